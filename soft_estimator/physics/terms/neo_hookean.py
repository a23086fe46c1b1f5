"""Stable neo-Hookean elasticity of the cells with their mean volume change (METHOD §11), for strains of any size.

    W = ∫ μ/2 (tr FᵀF - 3) - μ (J - 1) + μ/6 (J - 1)²  +  V (λ + 2μ/3)/2 (J̄ - 1)²,   J = det F, J̄ the cell's mean

It has no logarithm and stays finite when cells turn inside out; at rest it is the linear element with mean dilatation.
With stiffness damping the force is that at u + α₂ u̇, which for slow motion is α₂ K(u) u̇ with the tangent K: so a
step has a potential, and nothing of third order is asked of the law.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.neo_hookean_loops import NeoHookeanCells
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.damping import matrix_scale, pulled_by, pulled_by_pull, pulled_by_push
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term
from soft_estimator.physics.terms.material import LinearMaterial


class Strained:
    """The cells at a displacement u (N, 3) [m]: their energies [J], (C,), and corner forces [N], (C, 24), on demand."""

    def __init__(self, term: NeoHookean, u: Array) -> None:
        self.term, self.u = term, u

    @cached_property
    def _both(self) -> tuple[Array, Array]:
        return self.term.forces(self.u, self.term.material.lam, self.term.material.mu)

    @property
    def energies_j(self) -> Array:
        return self._both[0]

    @property
    def energy_j(self) -> float:
        return float(self.energies_j.sum())

    @property
    def corner(self) -> Array:
        return self._both[1]


class NeoHookean(Term[Strained]):
    """The cells where a step's guess puts them."""

    parameters: ClassVar[tuple[str, ...]] = LinearMaterial.parameters
    rests_undeformed: ClassVar[bool] = True
    curved: ClassVar[bool] = True
    minimised: ClassVar[bool] = True

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> None:
        super().__init__(device, values, start)
        self.material = LinearMaterial(device, values)
        self._blocks: Array | None = None  # of the cells, where `_blocks_of` says
        self._blocks_of: tuple[Strained, bool] | None = None

    @cached_property
    def cells(self) -> NeoHookeanCells:
        """What the loops over the cells take."""
        d, s, m = self.device, self.device.slopes, self.material
        tables = (s.slopes, s.crossed, s.laplacian, s.volume)
        return NeoHookeanCells(d.cell_nodes, d.gradient_index, *tables, m.young, m.lam, m.mu)

    def forces(self, u: Array, lam: float, mu: float) -> tuple[Array, Array]:
        """Energies (C,) [J] and corner forces (C, 24) [N] at a displacement, for given λ and μ at E = 1."""
        d, cells = self.device, self.cells._replace(lam=lam, mu=mu)
        energy, corner = d.xp.empty(d.cells), d.xp.empty((d.cells, 24), d.dtype)
        d.backend.neo_hookean_forces(u, cells, energy, corner)
        return energy, corner

    def cell_blocks(self, at: Strained, definite: bool = False) -> Array:
        """Second derivatives of the cells' energies by their corner pairs, (C, 36, 9) [N/m]; valid until asked again.

        definite: without what makes a cell's matrix indefinite.
        """
        d = self.device
        if self._blocks is None:
            self._blocks = d.xp.empty((d.cells, 36, 9), d.dtype)
        if self._blocks_of is None or self._blocks_of[0] is not at or self._blocks_of[1] != definite:
            d.backend.neo_hookean_blocks(at.u, self.cells, definite, self._blocks)
            self._blocks_of = (at, definite)
        return self._blocks

    def prepare(self, stage: Stage) -> Strained:
        return Strained(self, stage.state.u + pulled_by(stage, self.values, stage.guess))

    def add_blocks(self, stage: Stage, at: Strained, assembly: Assembly) -> None:
        self.assemble(at, matrix_scale(stage, self.values), assembly, stage.definite)

    def assemble(self, at: Strained, scale: float, assembly: Assembly, definite: bool = False) -> None:
        """Add scale · K at a displacement."""
        d = self.device
        d.backend.gather_blocks(self.cell_blocks(at, definite), d.node_cells, scale, d.slot, assembly.writable())

    def add_force(self, stage: Stage, at: Strained, rhs: Array) -> None:
        d = self.device
        d.backend.gather(at.corner, d.node_cells, -1.0, rhs)
        if bool((stage.guess != 0).any()):
            rhs += self._product(at, stage.guess, matrix_scale(stage, self.values), stage.definite)

    def add_residual(self, stage: Stage, at: Strained, out: Array) -> None:
        self.device.backend.gather(at.corner, self.device.node_cells, -1.0, out)

    def potential_j(self, stage: Stage, at: Strained) -> Array:
        return at.energies_j / matrix_scale(stage, self.values)

    def _product(self, at: Strained, x: Array, scale: float, definite: bool = False) -> Array:
        """scale · K x for nodal x (N, 3)."""
        d, corner = self.device, self.device.xp.empty((self.device.cells, 24, 1), self.device.dtype)
        column = d.xp.ascontiguousarray(x[:, :, None])
        d.backend.block_products(self.cell_blocks(at, definite), d.cell_nodes, column, corner)
        return d.gathered(d.xp.ascontiguousarray(corner[:, :, 0]), scale)

    # The step is converged where derivatives are asked for: Δu is the guess, and with the true tangent in A the change
    # of the guess cancels from g = r - A Δu.

    def push(
        self, stage: Stage, at: Strained, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        d, m = self.device, self.material
        moved = d.xp.ascontiguousarray(pulled_by_push(stage, self.values, increment, changes, directions))
        corner = d.xp.empty((d.cells, 24, out.shape[2]), d.dtype)
        d.backend.block_products(self.cell_blocks(at), d.cell_nodes, moved, corner)
        if directions.any("youngs_modulus_pa") or directions.any("poissons_ratio"):
            # The force is linear in λ and μ.
            for unit, change in zip(((1.0, 0.0), (0.0, 1.0)), m.push(directions)):
                by_region = directions.on_device(change)[d.cell_region]
                corner += self.forces(at.u, *unit)[1][:, :, None] * by_region[:, None, :]
        d.backend.gather_many(corner, d.node_cells, -1.0, out)

    def pull(self, stage: Stage, at: Strained, increment: Array, lmbda: Array, out: Pulled) -> None:
        d = self.device
        pulled_by_pull(stage, self.values, increment, self._product(at, lmbda, -1.0), out)
        felt = lmbda[d.cell_nodes].reshape(d.cells, 24)
        by_lame = [d.host((felt * self.forces(at.u, *unit)[1]).sum(axis=1)) for unit in ((1.0, 0.0), (0.0, 1.0))]
        self.material.pull(-np.stack(by_lame, axis=1), out.gradient)

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        return {"elastic_j": Strained(self, state.u).energy_j}

    def resists(self) -> np.ndarray | None:
        return np.zeros((0, 3))


@dataclass(frozen=True)
class NeoHookeanLaw:
    """A material under strains of any size."""

    fused: ClassVar[str] = ""

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> NeoHookean:
        return NeoHookean(device, values, start)
