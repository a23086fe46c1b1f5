"""What every format writes: tetrahedra in the world, their material, and the plane under them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from soft_estimator.config import SceneConfig
from soft_estimator.export.result import Result
from soft_estimator.geometry.isosurface_stuffing import tetrahedralise_volume
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.tetrahedra import TetrahedralMesh
from soft_estimator.physics.parameters import Parameters, lame

# Explicit steps are stable up to a limit that holds for small strains; squeezed elements have a lower one.
STEP_SAFETY = 0.7


@dataclass(frozen=True)
class ContactPlane:
    """The plane n·x + d = 0: normal: n, (3,). offset_m: d. stiffness_pa_per_m: pressure per depth.

    friction: Coulomb's coefficient, None where the scene has no friction and nothing is known of it.
    """

    normal: np.ndarray
    offset_m: float
    stiffness_pa_per_m: float
    friction: float | None = None

    @property
    def point_m(self) -> np.ndarray:
        """The point of the plane nearest to the origin [m], (3,)."""
        return -self.offset_m * self.normal


@dataclass(frozen=True)
class Asset:
    """One body to be written.

    Attributes:
        name: of the file, letters and digits. mesh: at rest in the world [m].
        region: material of each tetrahedron, (T,). parameters: material and gravity. plane: None without one.
        remarks: lines about origin, units and axes.
    """

    name: str
    mesh: TetrahedralMesh
    region: np.ndarray
    parameters: Parameters
    plane: ContactPlane | None
    remarks: tuple[str, ...]

    def lame_pa(self) -> tuple[np.ndarray, np.ndarray]:
        """Lamé's λ and μ of each tetrahedron [Pa], (T,) each."""
        lam, mu = lame(self.parameters.poissons_ratio)
        young = self.parameters.youngs_modulus_pa[self.region]
        return lam * young, mu * young

    def vertex_masses_kg(self) -> np.ndarray:
        """Lumped mass of each vertex [kg], (V,)."""
        return self.parameters.density_kg_m3 * self.mesh.vertex_volumes_m3()

    def stable_step_s(self) -> float:
        """The longest time step [s] that explicit integration of the tetrahedra with lumped mass takes, less a margin.

        No frequency of the mesh is above that of its fastest tetrahedron alone, ω² = 4 λ_max(BᵀCB)/ρ. A step of the
        semi-implicit Euler method is stable for ω²Δt²/4 + α₂ω²Δt/2 < 1.
        """
        square = 4.0 * self._largest_stiffness() / self.parameters.density_kg_m3
        drag = self.parameters.stiffness_damping_s * square
        return STEP_SAFETY * float((np.sqrt(drag**2 + 4.0 * square) - drag) / square)

    def _largest_stiffness(self) -> float:
        """The largest eigenvalue of BᵀCB [Pa/m²] over the tetrahedra, B from nodal displacements to strains."""
        corner = self.mesh.vertices_m[self.mesh.elements]
        edges = corner[:, 1:] - corner[:, :1]
        inner = np.linalg.inv(edges)  # column p is ∇N of node p + 1
        slopes = np.concatenate([-inner.sum(axis=2, keepdims=True), inner], axis=2).transpose(0, 2, 1)
        lam, mu = self.lame_pa()
        # σ = λ tr ε I + 2μ ε tested with ∇N_p: a 12x12 matrix a tetrahedron, by nodes p, q and axes i, j
        same = np.einsum("tpk,tqk->tpq", slopes, slopes)
        blocks = np.einsum("t,tpi,tqj->tpiqj", lam, slopes, slopes) + np.einsum("t,tpj,tqi->tpiqj", mu, slopes, slopes)
        blocks += np.einsum("t,tpq,ij->tpiqj", mu, same, np.eye(3))
        return float(np.linalg.eigvalsh(blocks.reshape(-1, 12, 12))[:, -1].max())


def asset_maker(result: Result, spacing_m: float | None = None) -> Callable[[str, Parameters, str], Asset]:
    """A function (name, parameters, remark) → asset: the mesh is made once, parameters may be many.

    Args:
        spacing_m: edge of the cubes of twelve tetrahedra each [m]; that of the body's own cells by default.
    """
    config, shape = result.config, result.shape
    rest = tetrahedralise_volume(shape.grid, shape.volume_m3, spacing_m)
    region = _regions(config, rest)

    def make(name: str, parameters: Parameters, remark: str) -> Asset:
        turn = rotation_matrix(parameters.rotation_rad)
        centre = shape.centroid_m
        vertices = centre + (rest.vertices_m - centre) @ turn.T + parameters.translation_m
        mesh = TetrahedralMesh(vertices, rest.elements)
        plane = _plane(config, parameters)
        return Asset(name, mesh, region, parameters, plane, _remarks(config, parameters, plane, remark))

    return make


def _plane(config: SceneConfig, p: Parameters) -> ContactPlane | None:
    """The plane with all that was estimated of it."""
    if config.contact is None:
        return None
    friction = p.values.get("friction_coefficient") if config.contact.friction is not None else None
    stiffness = p.values.get("contact_stiffness_pa_per_m", config.contact.stiffness_pa_per_m)
    return ContactPlane(
        p.plane_normal, p.plane_offset_m, float(stiffness), None if friction is None else float(friction)
    )


def _regions(config: SceneConfig, rest: TetrahedralMesh) -> np.ndarray:
    """The material of each tetrahedron by where its centre lies at rest; where boxes overlap the last wins, (T,)."""
    centre = rest.vertices_m[rest.elements].mean(axis=1)
    region = np.zeros(len(centre), dtype=np.int64)
    for k, box in enumerate(config.material.regions, start=1):
        region[((centre >= box.low_m) & (centre <= box.high_m)).all(axis=1)] = k
    return region


def _remarks(config: SceneConfig, p: Parameters, plane: ContactPlane | None, remark: str) -> tuple[str, ...]:
    young = ", ".join(f"{e:.6g}" for e in p.youngs_modulus_pa)
    gravity = "none" if not p.gravity_m_s2.any() else f"{_vector(p.gravity_m_s2)} m/s^2"
    lines = [
        f"{config.name}: a soft body measured with soft_estimator; {remark}",
        f"units: m, kg, s, N, Pa. axes: right-handed world axes of the scene, gravity {gravity}",
        f"Young's modulus {young} Pa, Poisson's ratio {p.poissons_ratio:.6g}, density {p.density_kg_m3:.6g} kg/m^3",
        f"Rayleigh damping D = {p.mass_damping_per_s:.6g} 1/s M + {p.stiffness_damping_s:.6g} s K",
    ]
    if plane is not None:
        unknown = "friction was not estimated, the simulator's default holds"
        rough = unknown if plane.friction is None else f"Coulomb's friction coefficient {plane.friction:.6g}"
        lines.append(
            f"contact plane n.x + d = 0 with n = {_vector(plane.normal)}, d = {plane.offset_m:.6g} m, "
            f"{plane.stiffness_pa_per_m:.6g} Pa/m; {rough}"
        )
    if config.fixed:
        lines.append("the scene held a part of the body; the file does not: it is free")
    return tuple(lines)


def _vector(values: np.ndarray) -> str:
    return "(" + ", ".join(f"{x:.6g}" for x in values) + ")"
