"""What a fused simulation hands to the backend's stepper: the body's arrays, and rows of numbers for materials."""

from __future__ import annotations

from typing import Any

import numpy as np

from soft_estimator.backends.layout import ADJOINT_SUMS, MATERIAL, REGIONAL, RELATIVE, place
from soft_estimator.physics.body import Body
from soft_estimator.physics.coarse import coarse_grid
from soft_estimator.physics.fused_obstacles import obstacle_rows, touchables
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters, lame, lame_slope
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation


class StartedSimulation(Simulation):
    """A simulation that remembers its initial state, which the adjoint asks for again."""

    _first: State | None = None

    def initial_state(self) -> State:
        if self._first is None:
            self._first = super().initial_state()
        return self._first

    def _bind(self, parameters: Parameters) -> None:
        super()._bind(parameters)
        self._first = None


LARGEST_WITH_COARSE_LEVEL = 400_000  # nodes; 300,000 were tried on a GPU


def material_row(p: Parameters) -> np.ndarray:
    """A row of the stepper's materials; a parameter that the model does not have is 1."""
    derived = dict(zip(("lam", "mu"), lame(p.poissons_ratio)))
    values = [(derived[name] if name in derived else p.values.get(name, 1.0), count) for name, count in MATERIAL]
    return np.concatenate([*(np.broadcast_to(value, count) for value, count in values), getattr(p, REGIONAL)])


def direction_row(p: Parameters, d: ParameterGradient) -> np.ndarray:
    """A direction of the parameters, laid out as a material."""
    derived = {n: slope * d.poissons_ratio for n, slope in zip(("lam", "mu"), lame_slope(p.poissons_ratio))}

    def change(name: str) -> np.ndarray:
        if name in derived:
            return np.ravel(derived[name])
        return np.ravel(getattr(d, name) / p.values.get(name, 1.0) if name in RELATIVE else getattr(d, name))

    return np.concatenate([change(name) for name, _ in (*MATERIAL, (REGIONAL, 0))])


def add_sums(gradient: ParameterGradient, p: Parameters, sums: np.ndarray, lame_sums: np.ndarray) -> None:
    """Hand the stepper's sums, a row of `layout.ADJOINT_SUMS` and (regions, 2), on to the parameters they belong to."""
    for name, count in ADJOINT_SUMS:
        part = sums[place(ADJOINT_SUMS, name)]
        if name == "density_kg_m3":  # by the logarithm of the density, and without gravity's weight
            weight = sums[place(ADJOINT_SUMS, "gravity_m_s2")] @ p.gravity_m_s2
            gradient.add(name, float(part[0] + weight) / p.density_kg_m3)
        elif name != "start":
            gradient.add(name, float(part[0]) if count == 1 else part)
    gradient.add("poissons_ratio", -float(lame_sums.sum(axis=0) @ lame_slope(p.poissons_ratio)))
    gradient.add(REGIONAL, -lame_sums @ np.array(lame(p.poissons_ratio)) / p.youngs_modulus_pa)


def body_arrays(s: Simulation) -> dict[str, Any]:
    """The stepper's arrays, most of which the simulation has on the device already."""
    d, body, to_device = s.device, s.model.body, s.backend.to_device
    held = np.full(body.node_count, -1, np.int32)
    for r, (nodes, _) in enumerate(s.model.dirichlet.held):
        held[nodes] = r
    load = s.model.load_n if len(s.model.load_n) else np.zeros((body.node_count, 3))
    near, spread = mass_stencil(body)
    own: tuple[str, ...] = ("cell_nodes", "node_cells", "cell_region", "gradient_index", "table", "position")
    obstacles, tables = obstacle_rows(touchables(s.model))
    own += ("free", "volume", "slot", "row_start", "column", "point_nodes", "point_weight", "point_start", "point_area")
    return {
        **{name: getattr(d, name) for name in own},
        "load": to_device(load),
        "held": to_device(held),
        "near": to_device(near),
        "spread": to_device(spread, d.dtype),
        "mass_table": body.cells.consistent_mass_table_m3,
        "coarse": _coarse_arrays(s),
        "obstacles": obstacles,
        "tables": tables,
    }


def mass_stencil(body: Body) -> tuple[np.ndarray, np.ndarray]:
    """The mass matrix over the density as M x = volume x_i + Σ_o spread_oi (x_near - x_i): near, spread (27, N).

    Differences keep in single precision what a body moves as a whole. Where there is no neighbour, near is the node
    itself; so it is at place 13, where spread is what the diagonal has less than the volume.
    """
    there = body.slot >= 0
    place = np.where(there, body.slot, 0)
    near = np.where(there, body.column[place], np.arange(body.node_count)[:, None])
    spread = np.where(there, body.mass_m3[place], 0.0)
    spread[:, 13] -= body.node_volume_m3
    return np.ascontiguousarray(near.T, np.int32), np.ascontiguousarray(spread.T)


def _coarse_arrays(s: Simulation) -> dict[str, Any] | None:
    """The grid of the preconditioner's coarse level, on the host."""
    body = s.model.body
    if body.node_count > LARGEST_WITH_COARSE_LEVEL:
        return None
    place = np.stack(np.unravel_index(body.node_index, body.grid.shape), axis=1)
    grid = coarse_grid(place, s.model.dirichlet.free)
    return None if grid is None else vars(grid)
