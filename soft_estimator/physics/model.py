"""What is simulated and how: the fixed part of a simulation, and the state that changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Shape
from soft_estimator.physics.body import Body
from soft_estimator.physics.contact import ContactLaw
from soft_estimator.physics.dirichlet import Dirichlet, FixedRegion, bind_dirichlet
from soft_estimator.physics.integrator import Integrator
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings


@dataclass(frozen=True)
class State:
    """Displacement u [m], velocity v [m/s] and the scheme's third array of the nodes, each (N, 3), at a time [s].

    a is the acceleration [m/s²] or, for the θ-scheme, the last step's mean velocity [m/s]. calmed tells that the step
    to this state was taken by backward Euler, in how many parts, 0 if not (see `Simulation.step_keeping`).
    """

    u: np.ndarray
    v: np.ndarray
    a: np.ndarray
    time_s: float
    calmed: int = 0


@dataclass(frozen=True)
class Model:
    """Everything fixed about a simulation.

    Attributes:
        body: the discretised body. integrator: time scheme. dirichlet: held parts. contact: law, None without a plane.
        load_n: dead load on the nodes [N], (N, 3). solver: settings of the linear solver.
        dtype: precision of the simulation, np.float32 or np.float64.
    """

    body: Body
    integrator: Integrator
    dirichlet: Dirichlet
    contact: ContactLaw | None = None
    load_n: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    solver: SolverSettings = field(default_factory=SolverSettings)
    dtype: type = np.float64


def build_model(
    body: Body,
    integrator: Integrator,
    *,
    fixed: list[FixedRegion] | None = None,
    loads: list[tuple[Shape, np.ndarray]] | None = None,
    contact: ContactLaw | None = None,
    solver: SolverSettings | None = None,
    dtype: type = np.float64,
) -> Model:
    """Bind held regions and loads, given in the body's rest coordinates, to a body.

    Args:
        loads: (region, total force (3,) [N]) pairs, each spread evenly over the surface triangles in its region.
    """
    total = np.zeros((body.node_count, 3))
    for k, (region, force) in enumerate(loads or []):
        total += _spread_load(body, region, np.asarray(force), k)
    return Model(
        body=body,
        integrator=integrator,
        dirichlet=bind_dirichlet(body, fixed or []),
        contact=contact,
        load_n=total,
        solver=solver or SolverSettings(),
        dtype=dtype,
    )


def initial_displacement(body: Body, parameters: Parameters) -> np.ndarray:
    """u of the initial pose: rotation about the centroid, then translation."""
    arm = body.node_position_m - body.centroid_m
    turn = rotation_matrix(parameters.rotation_rad) - np.eye(3)
    return arm @ turn.T + parameters.translation_m


def initial_velocity(body: Body, parameters: Parameters, u: np.ndarray) -> np.ndarray:
    """v of the initial motion of the posed body: v₀ + ω × r."""
    arm = body.node_position_m + u - body.centroid_m - parameters.translation_m
    return parameters.velocity_m_s + np.cross(parameters.angular_velocity_rad_s, arm)


def _spread_load(body: Body, region: Shape, force: np.ndarray, k: int) -> np.ndarray:
    vertices = body.surface_positions_m()
    triangles = vertices[body.surface.faces]
    inside = region.distance_m(triangles.mean(axis=1)) <= 0
    if not inside.any():
        raise ValueError(f"loads[{k}] meets no surface of the body; move or enlarge its box")
    cross = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    area = np.where(inside, np.linalg.norm(cross, axis=1), 0.0)
    share = np.bincount(body.surface.faces.ravel(), np.repeat(area / (3 * area.sum()), 3), len(vertices))
    nodal = np.bincount(body.surface.node_a, (1 - body.surface.weight_b) * share, body.node_count)
    nodal += np.bincount(body.surface.node_b, body.surface.weight_b * share, body.node_count)
    return nodal[:, None] * force
