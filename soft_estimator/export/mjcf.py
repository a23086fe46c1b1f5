"""MuJoCo: an MJCF model with a flex, its own solid elasticity, and a point mass a vertex.

A `flexcomp` would give every vertex the same mass; the vertices of this mesh stand for volumes that differ by a factor
of ten, so that the bodies are written out, each with its own.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.export.asset import Asset
from soft_estimator.export.text import numbers, rotation_from_z, xml_comment
from soft_estimator.geometry.surface import vertex_areas_m2
from soft_estimator.physics.parameters import Parameters

# Half of a contact's force answers the load, half the depth: the impedance at which MuJoCo's constraint is closest to a
# spring. A vertex of mass m that is in touch then feels the depth r by 2 m s r, s the stiffness of solref.
IMPEDANCE = 0.5
# Of a vertex on the plane. The contact that was estimated loses nothing; without any loss vertices would rattle.
CONTACT_DAMPING_RATIO = 0.1


def mjcf_text(asset: Asset) -> str:
    """The model as XML."""
    p = asset.parameters
    remarks = [
        *asset.remarks,
        "material: Saint Venant-Kirchhoff, the same as measured for small strains",
        *_before_4(p),
        *_left_out(asset),
        'the time step is that of explicit integration; MuJoCo 4 takes longer ones with integrator="discrete"',
    ]
    lines = [
        f'<mujoco model="{asset.name}">',
        *(f"  {line}" for line in xml_comment(remarks)),
        f'  <option gravity="{numbers(p.gravity_m_s2)}" timestep="{asset.stable_step_s():.3g}"/>',
        "  <worldbody>",
        *_plane(asset),
        *_bodies(asset),
        "  </worldbody>",
        "  <deformable>",
        *_flexes(asset),
        "  </deformable>",
        "</mujoco>",
    ]
    return "\n".join(lines) + "\n"


def _before_4(p: Parameters) -> list[str]:
    """What to write for versions that take twice Lamé's λ: ν' with λ(ν')/μ(ν') half as large, E' with the same μ."""
    poisson = p.poissons_ratio / (2 * (1 - p.poissons_ratio))
    young = ", ".join(f"{e * (1 + poisson) / (1 + p.poissons_ratio):.6g}" for e in p.youngs_modulus_pa)
    return [
        f'for MuJoCo 4; 3, which takes twice the first Lame parameter, needs poisson="{poisson:.6g}", young={young}'
    ]


def _left_out(asset: Asset) -> list[str]:
    alpha = asset.parameters.mass_damping_per_s
    if not alpha:
        return []
    return [
        f"left out: the mass damping of {alpha:.6g} 1/s, which a flex does not take; at a frequency f it is as much as "
        f"{alpha:.6g}/(2 pi f)^2 s more stiffness damping"
    ]


def _plane(asset: Asset) -> list[str]:
    if asset.plane is None:
        return []
    size = 10.0 * float(np.ptp(asset.mesh.vertices_m, axis=0).max())
    turn = rotation_from_z(asset.plane.normal)
    # against sliding alone; the other two are MuJoCo's defaults, against spinning and rolling of a single vertex
    friction = "" if asset.plane.friction is None else f' friction="{asset.plane.friction:.9g} 0.005 0.0001"'
    return [
        f'    <geom name="plane" type="plane" size="{size:.6g} {size:.6g} {0.1 * size:.6g}" '
        f'pos="{numbers(asset.plane.point_m)}" quat="{numbers(turn)}" priority="1" '
        f'solref="{numbers(_contact_solref(asset))}" solimp="{IMPEDANCE:g} {IMPEDANCE:g} 0.001"{friction}/>'
    ]


def _contact_solref(asset: Asset) -> tuple[float, float]:
    """(-stiffness, -damping) with which a vertex feels the estimated pressure per depth on the area it stands for.

    The force on a vertex is m s r/(1-d) for an impedance d; it is to be k A r. All vertices share one number, which
    makes the force right for the surface as a whole. What the time step cannot follow is not asked for: Δt √s < 1/2.
    """
    assert asset.plane is not None
    faces = asset.mesh.surface_faces()
    area_m2 = vertex_areas_m2(asset.mesh.vertices_m, faces).sum()
    mass_kg = asset.vertex_masses_kg()[np.unique(faces)].sum()
    stiffness = (1 - IMPEDANCE) * asset.plane.stiffness_pa_per_m * float(area_m2 / mass_kg)
    stiffness = min(stiffness, (0.5 / asset.stable_step_s()) ** 2)
    return -stiffness, -2 * CONTACT_DAMPING_RATIO * float(np.sqrt(stiffness))


def _bodies(asset: Asset) -> list[str]:
    """A body a vertex that slides along three axes; the inertia it never uses is that of a ball of its volume."""
    lines = []
    masses = asset.vertex_masses_kg()
    inertia = 0.4 * masses * (3 * asset.mesh.vertex_volumes_m3() / (4 * np.pi)) ** (2 / 3)
    for k, (position, mass, turning) in enumerate(zip(asset.mesh.vertices_m, masses, inertia)):
        joints = "".join(f'<joint type="slide" axis="{axis}"/>' for axis in ("1 0 0", "0 1 0", "0 0 1"))
        lines.append(
            f'    <body name="v{k}" pos="{numbers(position)}"><inertial pos="0 0 0" mass="{mass:.9g}" '
            f'diaginertia="{numbers([turning] * 3)}"/>{joints}</body>'
        )
    return lines


def _flexes(asset: Asset) -> list[str]:
    """A flex for each stiffness; neighbours share the bodies of the vertices between them."""
    lines = []
    p = asset.parameters
    for k in np.unique(asset.region):
        elements = asset.mesh.elements[asset.region == k]
        used, local = np.unique(elements, return_inverse=True)
        lines += [
            f'    <flex name="body{k}" dim="3" radius="0" body="{" ".join(f"v{i}" for i in used)}"',
            f'          element="{" ".join(map(str, local.ravel()))}">',
            '      <contact selfcollide="none"/>',
            f'      <elasticity young="{p.youngs_modulus_pa[k]:.9g}" poisson="{p.poissons_ratio:.9g}" '
            f'damping="{p.stiffness_damping_s:.9g}"/>',
            "    </flex>",
        ]
    return lines
