"""What a fused simulation hands to the backend's stepper: the body's arrays, and rows of numbers for materials."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import numpy as np

from soft_estimator.physics.coarse import coarse_grid
from soft_estimator.physics.model import State, initial_displacement
from soft_estimator.physics.parameters import Parameters, lame
from soft_estimator.physics.step import Simulation


class StartedSimulation(Simulation):
    """A simulation that remembers its initial state, which the adjoint asks for again."""

    _first: State | None = None

    def initial_state(self) -> State:
        if self._first is None:
            self._first = super().initial_state()
        return self._first


LARGEST_WITH_COARSE_LEVEL = 60_000  # nodes; beyond, a GPU streams the matrix and an iteration's own cost prevails

Started = TypeVar("Started", bound=StartedSimulation)


def with_parameters(simulation: Started, parameters: Parameters) -> Started:
    """A simulation of the same model with other parameters, sharing the body's arrays."""
    s, b, body = copy.copy(simulation), simulation.backend, simulation.model.body
    dtype = s.model.dtype
    s.parameters, s._first, s._known = parameters, None, None
    s.lam, s.mu = lame(parameters.poissons_ratio)
    s.young = b.to_device(parameters.youngs_modulus_pa[body.cell_region], dtype)
    s.mass = b.to_device(parameters.density_kg_m3 * body.node_volume_m3, dtype)
    external = parameters.density_kg_m3 * body.node_volume_m3[:, None] * parameters.gravity_m_s2
    s.external = b.to_device(external + s.model.load_n if len(s.model.load_n) else external, dtype)
    s.normal = b.to_device(parameters.plane_normal)
    s.start = initial_displacement(body, parameters)
    return s


def material_row(p: Parameters) -> np.ndarray:
    """A row of the stepper's materials."""
    damping = (p.mass_damping_per_s, p.stiffness_damping_s)
    plane = (*p.plane_normal, p.plane_offset_m)
    return np.array([*lame(p.poissons_ratio), p.density_kg_m3, *damping, *p.gravity_m_s2, *plane, *p.youngs_modulus_pa])


def body_arrays(s: Simulation) -> dict[str, Any]:
    """The stepper's arrays, most of which the simulation has on the device already."""
    body, to_device = s.model.body, s.backend.to_device
    held = np.full(body.node_count, -1, np.int32)
    for r, (nodes, _) in enumerate(s.model.dirichlet.held):
        held[nodes] = r
    load = s.model.load_n if len(s.model.load_n) else np.zeros((body.node_count, 3))
    own = ("cell_nodes", "node_cells", "gradient_index", "table", "position", "free", "slot", "row_start", "column")
    own += ("point_nodes", "point_weight", "point_start", "point_area")
    return {
        **{name: getattr(s, name) for name in own},
        "cell_region": to_device(body.cell_region),
        "volume": to_device(body.node_volume_m3),
        "load": to_device(load),
        "held": to_device(held),
        "coarse": _coarse_arrays(s),
    }


def _coarse_arrays(s: Simulation) -> dict[str, Any] | None:
    """The grid of the preconditioner's coarse level, on the host."""
    body = s.model.body
    if body.node_count > LARGEST_WITH_COARSE_LEVEL:
        return None
    place = np.stack(np.unravel_index(body.node_index, body.grid.shape), axis=1)
    grid = coarse_grid(place, s.model.dirichlet.free)
    return None if grid is None else vars(grid)
