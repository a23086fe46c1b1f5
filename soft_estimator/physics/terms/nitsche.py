"""Surfaces held weakly, at rest or along a path, by Nitsche's method; the integrals are those of `nitsche_cells`.

Few cells carry it, so plain array algebra on the host does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.dirichlet import moved
from soft_estimator.physics.nitsche_cells import Held, NitscheCells
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.damping import matrix_scale, pulled_by, pulled_by_pull, pulled_by_push
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term
from soft_estimator.physics.terms.material import LinearMaterial


@dataclass(frozen=True)
class NitscheLaw:
    """One weakly held region: its cells, and the path they follow."""

    cells: NitscheCells
    path: RigidPath
    fused: ClassVar[str] = ""

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Nitsche:
        return Nitsche(device, values, start, self)


class Nitsche(Term[np.ndarray]):
    """The cells' stiffness against leaving their targets (S, 8, 3) [m]."""

    parameters: ClassVar[tuple[str, ...]] = LinearMaterial.parameters
    rests_undeformed: ClassVar[bool] = True  # what it holds starts where it is held

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray, law: NitscheLaw) -> None:
        super().__init__(device, values, start)
        self.law, self.cells, self.material = law, law.cells, LinearMaterial(device, values)
        self._young = device.host(self.material.young)
        self._held = law.cells.held(self.material.lam, self.material.mu)

    def target(self, time_s: float) -> np.ndarray:
        """Prescribed displacements of the corners, (S, 8, 3) [m]."""
        nodes = self.cells.nodes
        return moved(self.law.path, time_s, self.device.body.node_position_m[nodes], self.start[nodes])

    def _material(self, rotations: Array) -> tuple[np.ndarray, np.ndarray, Held]:
        return self.device.host(rotations), self._young, self._held

    def prepare(self, stage: Stage) -> np.ndarray:
        return self.target(stage.balance_time_s)

    def add_blocks(self, stage: Stage, at: np.ndarray, assembly: Assembly) -> None:
        self.assemble(stage.rotations, matrix_scale(stage, self.values), assembly)
        if assembly.dilatation is not None:
            # Here pressure also pulls at the held surface: what is left without BᵀB would not be positive.
            assembly.dilatation[self.device.backend.to_device(self.cells.cell)] = 0.0

    def assemble(self, rotations: Array, scale: float, assembly: Assembly) -> None:
        """Add scale · K at given rotations (C, 9)."""
        extra = scale * self.cells.blocks(*self._material(rotations))
        assembly.add_blocks(self.cells.slots.ravel(), extra.reshape(-1, 9))

    def add_force(self, stage: Stage, at: np.ndarray, rhs: Array) -> None:
        d, z = self.device, pulled_by(stage, self.values, None)
        force = self.cells.forces(d.host(stage.state.u), d.host(z), at, *self._material(stage.rotations))
        rhs -= d.scattered(self.cells.nodes, force)

    def push(
        self, stage: Stage, at: np.ndarray, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        d, cells, host, material = self.device, self.cells, self.device.host, self._material(stage.rotations)
        u, z = host(stage.state.u), host(pulled_by(stage, self.values, increment))
        all_moved = pulled_by_push(stage, self.values, increment, changes, directions)
        at_change = changes.u + stage.scheme.predictor * changes.guess
        region, count = d.body.cell_region[cells.cell], len(directions.list)
        d_lam, d_mu = (x[region][:, :count] for x in self.material.push(directions))
        turned = self.law.path.at(stage.balance_time_s)[0]
        d_target = np.stack([start[cells.nodes] @ turned.T for start in directions.start_m], axis=3)
        few = (d.backend.to_device(host(stage.rotations)[cells.cell], d.dtype), d.backend.to_device(cells.nodes))
        one, dr = d.xp.empty((len(cells.cell), 9)), np.empty((len(cells.cell), 9, count))
        for j in range(count):
            column = d.xp.ascontiguousarray(at_change[:, :, j])
            d.backend.rotations_tangent(stage.turned_at, column, *few, d.spacing_m, one)
            dr[:, :, j] = host(one)
        moved_by = host(all_moved[:, :, :count])
        change = cells.forces_tangent(moved_by, d_target, dr, (d_lam, d_mu), u, z, at, *material)
        out[:, :, :count] -= d.scattered(cells.nodes, change)

    def pull(self, stage: Stage, at: np.ndarray, increment: Array, lmbda: Array, out: Pulled) -> None:
        d, cells, host = self.device, self.cells, self.device.host
        z = pulled_by(stage, self.values, increment)
        u, material = host(stage.state.u), self._material(stage.rotations)
        y, target_bar, turn_bar, share = cells.forces_adjoint(host(lmbda), u, host(z), at, *material)
        pulled_by_pull(stage, self.values, increment, -d.scattered(cells.nodes, y), out)
        out.by_rotations(d)[cells.cell] -= d.backend.to_device(turn_bar)
        self.material.pull(-share, out.gradient, cells.cell)
        np.add.at(out.start, cells.nodes, -target_bar @ self.law.path.at(stage.balance_time_s)[0])

    def _energy(self, u: np.ndarray, rotations: Array, time_s: float) -> float:
        return self.cells.energy(u, self.target(time_s), *self._material(rotations))

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        return {"elastic_j": self._energy(self.device.host(state.u), rotations, state.time_s)}

    def work_j(self, before: State, after: State) -> float:
        """The change of energy with the targets' place, by the trapezoidal rule."""
        if not self.law.path.moves:
            return 0.0
        total = 0.0
        for state, other in ((before, after), (after, before)):
            u, turned = self.device.host(state.u), self.device.rotations(state.u)
            change = self._energy(u, turned, other.time_s) - self._energy(u, turned, state.time_s)
            total += 0.5 * change if state is before else -0.5 * change
        return total
