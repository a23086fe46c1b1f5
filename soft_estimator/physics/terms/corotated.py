"""Corotated linear elasticity of the cells: f = R K̂ (Rᵀ(x + u) - x), with stiffness damping.

K̂ is that of mean dilatation (METHOD §10, docs/elements.md): shear point by point, pressure on a cell's mean dilatation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.layout import CELL, place
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.pressure import WORTH_FROM
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.damping import matrix_scale, pulled_by, pulled_by_pull, pulled_by_push
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term
from soft_estimator.physics.terms.material import LinearMaterial

# How far the cells' rotations may come out from those foreseen for a step: root mean square over the body's volume of
# each cell's largest entry, about an angle in radians. Sound motions stay below half of it, runaway ones go far above.
LARGEST_SURPRISE = 0.08


class Corotated(Term[None]):
    """The cells' stiffness at the rotations of the stage."""

    parameters: ClassVar[tuple[str, ...]] = LinearMaterial.parameters
    rests_undeformed: ClassVar[bool] = True

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> None:
        super().__init__(device, values, start)
        self.material = LinearMaterial(device, values)

    @cached_property
    def cell_arguments(self) -> tuple[Array, Array, Array, Array, float, float, float]:
        """What the cell loops need besides state and rotations."""
        d, m = self.device, self.material
        return d.cell_nodes, d.gradient_index, d.table, m.young, m.lam, m.mu, d.spacing_m

    def add_blocks(self, stage: Stage, at: None, assembly: Assembly) -> None:
        scale = matrix_scale(stage, self.values)
        self.assemble(stage.rotations, scale, assembly)
        if self.device.backend.pressures is not None and self.material.lam >= WORTH_FROM * self.material.mu:
            assembly.dilatation = self._dilatation(stage.rotations, scale)

    def _dilatation(self, rotations: Array, scale: float) -> Array:
        """√(scale E (λ + ⅔ μ)/V) R b of the cells, (C, 24)."""
        d, m = self.device, self.material
        mean = d.table[:, place(CELL, "dilatation")].reshape(-1, 8, 3)[d.gradient_index]
        weight = (scale * m.young * (m.lam + 2 / 3 * m.mu)) ** 0.5
        turned = mean @ rotations.reshape(-1, 3, 3).transpose(0, 2, 1)
        return d.xp.ascontiguousarray((weight[:, None, None] * turned).reshape(-1, 24))

    def assemble(self, rotations: Array, scale: float, assembly: Assembly) -> None:
        """Add scale · K at given rotations (C, 9)."""
        d, m = self.device, self.material
        blocks = d.xp.empty((len(d.column), 9), d.dtype)
        pattern = (assembly.take_inertia(), d.row_start, d.slot)
        cells = (d.gradient_index, d.table, m.young, m.lam, m.mu)
        d.backend.assemble(rotations, d.node_cells, *cells, scale, *pattern, blocks)
        assembly.blocks = blocks if assembly.blocks is None else assembly.blocks + blocks

    def add_force(self, stage: Stage, at: None, rhs: Array) -> None:
        d = self.device
        corner = d.xp.empty((d.cells, 24), d.dtype)
        z = pulled_by(stage, self.values, None)
        d.backend.cell_forces(stage.state.u, z, 1.0, stage.rotations, *self.cell_arguments, corner)
        d.backend.gather(corner, d.node_cells, -1.0, rhs)

    def push(
        self, stage: Stage, at: None, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        d, m = self.device, self.material
        z = pulled_by(stage, self.values, increment)
        moved = pulled_by_push(stage, self.values, increment, changes, directions)
        dlam, dmu = (directions.on_device(x) for x in m.push(directions))
        corner = d.xp.empty((d.cells, 24, out.shape[2]), d.dtype)
        d.backend.cell_forces_tangents(
            stage.turned_at, changes.u + stage.scheme.predictor * changes.guess, stage.state.u, z, moved,
            stage.rotations, d.cell_nodes, d.gradient_index, d.table, m.young, d.cell_region, m.lam, m.mu, dlam, dmu,
            d.spacing_m, corner,
        )  # fmt: skip
        d.backend.gather_many(corner, d.node_cells, -1.0, out)

    def pull(self, stage: Stage, at: None, increment: Array, lmbda: Array, out: Pulled) -> None:
        d, xp = self.device, self.device.xp
        z = pulled_by(stage, self.values, increment)
        y_bar, r_bar, lame_bar = xp.empty((d.cells, 24)), xp.empty((d.cells, 9)), xp.empty((d.cells, 2))
        cells = (stage.rotations, *self.cell_arguments)
        d.backend.cell_forces_adjoint(lmbda, stage.state.u, z, 1.0, *cells, y_bar, r_bar, lame_bar)
        pulled_by_pull(stage, self.values, increment, d.gathered(y_bar, -1.0), out)
        turned = out.by_rotations(d)
        turned -= r_bar
        self.material.pull(-d.host(lame_bar), out.gradient)

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        d = self.device
        energies = d.xp.empty(d.cells)
        d.backend.cell_energies(state.u, d.zero, rotations, *self.cell_arguments, energies)
        return {"elastic_j": float(d.host(energies).sum())}

    def resists(self) -> np.ndarray | None:
        return np.zeros((0, 3))

    def unsound(self, stage: Stage, at: None, after: State, blocks: Array) -> bool:
        """Whether the cells turned much further than was foreseen."""
        share, fill = stage.scheme.predictor, self.device.fill
        if share == 0.0:
            return False
        reached = self.device.rotations(stage.state.u + share * (after.u - stage.state.u))
        off: Array = abs(reached - stage.rotations)
        if float(off.max()) <= LARGEST_SURPRISE:
            return False
        surprise = off.max(axis=1)
        return float((fill * surprise**2).sum() / fill.sum()) > LARGEST_SURPRISE**2


@dataclass(frozen=True)
class CorotatedLaw:
    """A linear elastic material under large turns and moderate strains."""

    fused: ClassVar[str] = "corotated"

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Corotated:
        return Corotated(device, values, start)
