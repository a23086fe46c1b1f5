"""SOFA: a scene with corotated tetrahedra, Rayleigh damping, and the plane as a penalty on the surface."""

from __future__ import annotations

import numpy as np

from soft_estimator.export.asset import Asset
from soft_estimator.export.text import numbers, xml_comment
from soft_estimator.geometry.surface import vertex_areas_m2

# The plugins that hold the components used below.
PLUGINS = (
    "AnimationLoop", "LinearSolver.Iterative", "Mapping.Linear", "Mass", "MechanicalLoad", "ODESolver.Backward",
    "SolidMechanics.FEM.Elastic", "StateContainer", "Topology.Container.Dynamic",
)  # fmt: skip
# An implicit step needs no stability; one that shows the motion of a body this size.
STEP_S = 0.005


def sofa_text(asset: Asset) -> str:
    """The scene as XML."""
    p, mesh = asset.parameters, asset.mesh
    remarks = [*asset.remarks, "material: corotated linear elasticity, as it was estimated"]
    if asset.plane is not None and asset.plane.friction is not None:
        remarks.append("left out: the plane's friction, which a PlaneForceField does not have")
    young = p.youngs_modulus_pa[asset.region] if len(p.youngs_modulus_pa) > 1 else p.youngs_modulus_pa
    lines = [
        '<?xml version="1.0"?>',
        f'<Node name="{asset.name}" dt="{STEP_S:g}" gravity="{numbers(p.gravity_m_s2)}">',
        *(f"  {line}" for line in xml_comment(remarks)),
        *(f'  <RequiredPlugin name="Sofa.Component.{name}"/>' for name in PLUGINS),
        "  <DefaultAnimationLoop/>",
        '  <Node name="body">',
        f'    <EulerImplicitSolver rayleighMass="{p.mass_damping_per_s:.9g}" '
        f'rayleighStiffness="{p.stiffness_damping_s:.9g}"/>',
        '    <CGLinearSolver iterations="200" tolerance="1e-9" threshold="1e-12"/>',
        f'    <TetrahedronSetTopologyContainer name="topology" position="{numbers(mesh.vertices_m.ravel())}" '
        f'tetrahedra="{" ".join(map(str, mesh.elements.ravel()))}"/>',
        '    <TetrahedronSetGeometryAlgorithms template="Vec3"/>',
        '    <MechanicalObject name="state" template="Vec3" src="@topology"/>',
        f'    <DiagonalMass massDensity="{p.density_kg_m3:.9g}"/>',
        f'    <TetrahedronFEMForceField method="large" poissonRatio="{p.poissons_ratio:.9g}" '
        f'youngModulus="{numbers(young)}"/>',
        *_surface(asset),
        "  </Node>",
        "</Node>",
    ]
    return "\n".join(lines) + "\n"


def _surface(asset: Asset) -> list[str]:
    """The surface's vertices on the plane: each a spring of the plane's stiffness times the mean area it stands for."""
    if asset.plane is None:
        return []
    faces = asset.mesh.surface_faces()
    used = np.unique(faces)
    points, area = asset.mesh.vertices_m[used], vertex_areas_m2(asset.mesh.vertices_m, faces)[used].mean()
    stiffness = asset.plane.stiffness_pa_per_m * area
    # SOFA's plane is n.x = d
    return [
        '    <Node name="surface">',
        f'      <MechanicalObject name="points" template="Vec3" position="{numbers(points.ravel())}"/>',
        f'      <SubsetMapping indices="{" ".join(map(str, used))}" input="@../state" output="@points"/>',
        f'      <PlaneForceField normal="{numbers(asset.plane.normal)}" d="{-asset.plane.offset_m:.9g}" '
        f'stiffness="{stiffness:.9g}" damping="0"/>',
        "    </Node>",
    ]
