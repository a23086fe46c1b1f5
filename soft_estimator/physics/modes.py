"""The modes of a body: shapes in which it swings, for starts that are bent and swing already (METHOD §14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

from soft_estimator.parameters import MOST_MODES
from soft_estimator.physics.between_grids import prolongation
from soft_estimator.physics.body import Body
from soft_estimator.physics.gradient import ParameterGradient

BEND, SWING = "modal_displacement_m", "modal_velocity_m_s"
_RIGID_MOTIONS = 6
# Of the mean diagonal of K over that of M, which is near the square of the grid's highest frequency: the lowest one of
# a slender body of a thousand cells is 1e-6 of it, a rigid motion 1e-14.
_SHIFT, _COSTS_NOTHING = 1e-6, 1e-9


class _Amplitudes(Protocol):
    """Parameters, or a direction of them."""

    @property
    def modal_displacement_m(self) -> np.ndarray: ...
    @property
    def modal_velocity_m_s(self) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Modes:
    """Shapes of the lowest modes.

    Attributes:
        hertz: their frequencies, (m,). shapes: displacements of the nodes, (m, N, 3), of root mean square 1 over the
            body's mass.

    Bends are measured for f₁: an amplitude of mode k counts f₁/f_k of it, so that equal ones hold equal energies and
    one prior fits all.
    """

    hertz: np.ndarray
    shapes: np.ndarray

    @property
    def count(self) -> int:
        return len(self.hertz)

    @property
    def names(self) -> list[str]:
        """Of its parameters."""
        return [f"{name}[{k}]" for name in (BEND, SWING) for k in range(self.count)]

    def defaults(self) -> Mapping[str, np.ndarray]:
        return {BEND: np.zeros(MOST_MODES), SWING: np.zeros(MOST_MODES)}

    @property
    def _shares(self) -> np.ndarray:
        return self.hertz[0] / self.hertz

    def bent(self, p: _Amplitudes) -> np.ndarray:
        """Σ a_k φ_k, (N, 3) [m]."""
        return np.einsum("k,kni->ni", self._shares * p.modal_displacement_m[: self.count], self.shapes)

    def swung(self, p: _Amplitudes) -> np.ndarray:
        """Σ ȧ_k φ_k, (N, 3) [m/s]."""
        return np.einsum("k,kni->ni", p.modal_velocity_m_s[: self.count], self.shapes)

    def pull(self, bend_bar: np.ndarray, swing_bar: np.ndarray, out: ParameterGradient) -> None:
        """Add the derivatives by the amplitudes, given those by `bent` and `swung`, (N, 3) each."""
        getattr(out, BEND)[: self.count] += self._shares * np.einsum("kni,ni->k", self.shapes, bend_bar)
        getattr(out, SWING)[: self.count] += np.einsum("kni,ni->k", self.shapes, swing_bar)

    def on(self, coarse: Body, fine: Body) -> Modes:
        """The same shapes on a grid of half the spacing."""
        carried = prolongation(fine, coarse)
        return Modes(self.hertz, np.stack([carried @ shape for shape in self.shapes]))


def lowest_modes(stiffness: sp.csr_matrix, mass: sp.csr_matrix, free: np.ndarray, count: int) -> Modes:
    """The lowest modes with K and M, (3N, 3N), of a body; free: which degrees of freedom are not held, (3N,).

    Motions that cost nothing, as the six of a body that nothing holds, are the pose's affair and left out.
    """
    k, m = (matrix[free][:, free] for matrix in (stiffness, mass))
    wanted = min(count + _RIGID_MOTIONS, k.shape[0] - 2)
    usual = float(k.diagonal().sum() / m.diagonal().sum())
    start = np.random.default_rng(0).normal(size=k.shape[0])  # the same shapes each time
    # A little below zero: K itself cannot be inverted where rigid motions are free.
    values, vectors = eigsh(k, wanted, m, sigma=-_SHIFT * usual, which="LM", v0=start)
    order = np.argsort(values)
    order = order[values[order] > _COSTS_NOTHING * usual][:count]
    shapes = np.zeros((len(order), len(free)))
    shapes[:, free] = vectors.T[order] * np.sqrt(float(mass.sum()) / 3)
    return Modes(np.sqrt(values[order]) / (2 * np.pi), shapes.reshape(len(order), -1, 3))
