"""MuJoCo's ball of `bench_mujoco_ball.py`: dropped onto a plane, or swinging freely, and how to make it more like ours.

A flex is linear tetrahedra with lumped masses. Its law is that of Saint Venant and Kirchhoff, or, as an experiment of
MuJoCo 4, a stable neo-Hookean one. Steps are those of MuJoCo's implicit integrator ("discrete"): explicit ones of this
damped ball would have to be shorter than 8 µs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import spherical_jn

import soft_estimator as se
from soft_estimator.export.asset import Asset, ContactPlane
from soft_estimator.export.mjcf import mjcf_text
from soft_estimator.geometry.isosurface_stuffing import tetrahedralise_volume
from soft_estimator.geometry.surface import vertex_areas_m2
from soft_estimator.geometry.tetrahedra import TetrahedralMesh
from soft_estimator.physics.parameters import Parameters
from soft_estimator.scene.scene import Scene

try:
    import mujoco
except ModuleNotFoundError as missing:
    print(f"left out: no module {missing.name}; pip install -e '.[export-test]'", file=sys.stderr)
    sys.exit(0)

RADIUS_M, GAP_M, FRAMES_PER_S, FRAMES, STEP_S = 0.045, 0.003, 90.0, 14, 2e-4
CENTRE_M = np.array([0.0, RADIUS_M + GAP_M, 0.0])
TIMES_S = np.arange(1, FRAMES + 1) / FRAMES_PER_S
TRUE = {"youngs_modulus_pa": 20e3, "poissons_ratio": 0.35, "stiffness_damping_s": 2e-3}
SCENE: dict[str, Any] = {
    "name": "ball of another solver",
    "body": {"shape": {"sphere": {"radius_m": RADIUS_M, "center_m": CENTRE_M.tolist()}}, "spacing_m": 0.009},
    "material": {**TRUE, "density_kg_m3": 400.0},
    "contact": {"stiffness_pa_per_m": "20 kPa/mm", "sharpness_per_m": "2 1/mm"},
    "time": {"step_s": 1 / 360, "duration_s": FRAMES / FRAMES_PER_S},
    "estimate": {"parameters": list(TRUE), "guess": {"youngs_modulus_pa": "40 kPa", "poissons_ratio": 0.3}},
}
AMPLITUDE = 1e-3  # of the free swing, over the radius: for such strains all laws are Hooke's
SWINGS = 1.6


@dataclass(frozen=True)
class Ball:
    """A way to simulate the ball with MuJoCo.

    Attributes:
        spacing_m: of the lattice that its tetrahedra are cut from. law: "svk" or "neo_hookean".
        contact: "mujoco", its own constraints on vertices; or "ours", the pressure that the estimate's model has.
    """

    spacing_m: float = 0.010
    law: str = "svk"
    contact: str = "mujoco"


@dataclass(frozen=True, eq=False)
class Motion:
    """rest_m: vertices, (V, 3). faces: of the surface, (F, 3). time_s: of the frames, (T,). u_m: there, (T, V, 3)."""

    rest_m: np.ndarray
    faces: np.ndarray
    time_s: np.ndarray
    u_m: np.ndarray

    @property
    def squashed(self) -> float:
        """How much of its height the ball loses at most."""
        return 1.0 - float(np.ptp((self.rest_m + self.u_m)[..., 1], axis=1).min()) / (2 * RADIUS_M)


def scene_of(speed_m_s: float, law: str = "corotated", finer: int = 1) -> dict[str, Any]:
    """The ball as the estimate has it; on a grid and with steps so many times as fine."""
    return {
        **SCENE,
        "body": {**SCENE["body"], "spacing_m": SCENE["body"]["spacing_m"] / finer},
        "material": {**SCENE["material"], "law": law},
        "time": {**SCENE["time"], "step_s": SCENE["time"]["step_s"] / finer},
        "initial": {"velocity_m_s": [0, -speed_m_s, 0]},
    }


def _loaded(
    ball: Ball, scene: Scene, parameters: Parameters, plane: ContactPlane | None, step_s: float | None = None
) -> tuple[Any, TetrahedralMesh]:
    """MuJoCo's model and the mesh of it; step_s: of the implicit integrator, None for explicit steps as exported."""
    mesh = tetrahedralise_volume(scene.body.grid, scene.body.volume_m3, ball.spacing_m)
    asset = Asset("ball", mesh, np.zeros(len(mesh.elements), dtype=np.int64), parameters, plane, ())
    text = mjcf_text(asset).replace('priority="1"', 'priority="1" condim="1"')  # without friction
    spec = mujoco.MjSpec.from_string(text)
    if step_s is not None:
        spec.option.integrator, spec.option.timestep = mujoco.mjtIntegrator.mjINT_DISCRETE, step_s
    if ball.law == "neo_hookean":
        spec.flexes[0].elastic3d = 1
    return spec.compile(), mesh


def dropped(speed_m_s: float, ball: Ball) -> Motion:
    """The ball's motion in the frames."""
    scene = se.read_scene(scene_of(speed_m_s))
    p, contact = scene.parameters, scene.config.contact
    assert contact is not None
    plane = ContactPlane(p.plane_normal, p.plane_offset_m, contact.stiffness_pa_per_m)
    own = ball.contact == "mujoco"
    model, mesh = _loaded(ball, scene, p, plane if own else None, STEP_S)
    data, u_m = mujoco.MjData(model), []
    data.qvel[1::3] = -speed_m_s
    area_m2 = vertex_areas_m2(mesh.vertices_m, mesh.surface_faces())
    rest_m = mesh.vertices_m @ p.plane_normal + p.plane_offset_m
    for wanted in TIMES_S:
        while data.time < wanted - 1e-9:
            if not own:
                depth = -contact.sharpness_per_m * (rest_m + data.qpos.reshape(-1, 3) @ p.plane_normal)
                pressure = contact.stiffness_pa_per_m / contact.sharpness_per_m * np.logaddexp(0.0, depth)
                data.qfrc_applied[:] = ((area_m2 * pressure)[:, None] * p.plane_normal).ravel()
            before, since = data.qpos.copy(), data.time
            mujoco.mj_step(model, data)
        share = (wanted - since) / (data.time - since)
        u_m.append(((1 - share) * before + share * data.qpos).reshape(-1, 3))
    return Motion(mesh.vertices_m, mesh.surface_faces(), TIMES_S, np.stack(u_m))


def effective_young_pa(ball: Ball) -> float:
    """E of an exact ball with the lowest spheroidal frequency that MuJoCo's has: E (f/f₀)²."""
    scene = se.read_scene(scene_of(0.0))
    p = scene.parameters.replace(stiffness_damping_s=0.0, gravity_m_s2=np.zeros(3))
    model, mesh = _loaded(Ball(ball.spacing_m), scene, p, None)
    young, nu = float(p.youngs_modulus_pa[0]), p.poissons_ratio
    exact_hz = spheroidal_root(nu) * np.sqrt(young / (2 * (1 + nu)) / p.density_kg_m3) / (2 * np.pi * RADIUS_M)
    u = AMPLITUDE * RADIUS_M * spheroidal_shape((mesh.vertices_m - CENTRE_M) / RADIUS_M, nu)
    data, time_s, along = mujoco.MjData(model), [], []
    data.qpos[:] = u.ravel()
    weight = (model.body_mass[1:, None] * u).ravel()
    while data.time < SWINGS / exact_hz:
        time_s.append(data.time)
        along.append(float(weight @ data.qpos))
        mujoco.mj_step(model, data)
    return young * (_crossing_hz(np.array(time_s), np.array(along)) / exact_hz) ** 2


def _crossing_hz(time_s: np.ndarray, signal: np.ndarray) -> float:
    """The frequency of an oscillation about zero, by its zero crossings, linear in between."""
    at = np.flatnonzero(signal[1:] * signal[:-1] < 0)
    crossing = time_s[at] - signal[at] * (time_s[at + 1] - time_s[at]) / (signal[at + 1] - signal[at])
    return float((len(crossing) - 1) / (2 * (crossing[-1] - crossing[0])))


def _slowness(poisson: float) -> float:
    """c_s/c_p."""
    return float(np.sqrt((1 - 2 * poisson) / (2 - 2 * poisson)))


def _tractions(y: float, poisson: float) -> np.ndarray:
    """σ_rr and σ_rθ over μ at the surface of a unit ball, of ∇(j₂(x r) P₂) and of ∇×∇×(r j₂(y r) P₂), (2, 2):
    y = ω/c_s, x = ω/c_p (Lamb 1882)."""
    x = y * _slowness(poisson)
    (jx, dx), (jy, dy) = ((spherical_jn(2, k), k * spherical_jn(2, k, derivative=True)) for k in (x, y))
    return np.array(
        [[(12 - y * y) * jx - 4 * dx, 12 * (dy - jy)], [2 * (dx - jx), (10 - y * y) * jy - 2 * dy]],
    )


def spheroidal_root(poisson: float) -> float:
    """ωR/c_s of the lowest spheroidal mode of a free ball, in which it becomes long and flat in turn."""
    return float(brentq(lambda y: np.linalg.det(_tractions(y, poisson)), 2.0, 3.0))


def spheroidal_shape(points: np.ndarray, poisson: float) -> np.ndarray:
    """Its displacements (n, 3) about the y axis at points (n, 3) of a unit ball; the largest number is 1."""
    y = spheroidal_root(poisson)
    x, pulls = y * _slowness(poisson), _tractions(y, poisson)
    a, b = pulls[1, 1], -pulls[1, 0]  # no shear at the surface
    r = np.maximum(np.linalg.norm(points, axis=1), 1e-6)
    (jx, dx), (jy, dy) = ((spherical_jn(2, k * r), k * spherical_jn(2, k * r, derivative=True)) for k in (x, y))
    radial, tangential = a * dx + 6 * b * jy / r, a * jx / r + b * (jy / r + dy)
    outward, axis = points / r[:, None], np.array([0.0, 1.0, 0.0])
    cosine = outward @ axis
    # ∂P₂/∂θ = -3 cos θ sin θ, and sin θ times the unit vector of θ is cos θ r̂ - ŷ
    u = (radial * (1.5 * cosine**2 - 0.5))[:, None] * outward
    u += (-3 * tangential * cosine)[:, None] * (cosine[:, None] * outward - axis)
    return u / np.abs(u).max()
