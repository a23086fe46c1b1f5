"""What a residual is: a measurement at one time, what a state predicts of it, and how that changes (METHOD §6).

A new kind of measurement is one class with the methods of `Residual`; `Problem` and the sliding window take it as it
is (`residual=`). Frames are plain objects with a `time_s`; each kind says which of them are its own. On a backend that
runs whole steps by itself a kind needs nothing more: the state comes to the host when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar, final

import numpy as np

from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.physics.frame_times import between
from soft_estimator.physics.fused_tangent import Changes
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.tangent import ColumnChanges

F = TypeVar("F", contravariant=True)


class Frame(Protocol):
    """Something measured at one time since the start of the simulation [s]."""

    @property
    def time_s(self) -> float: ...


class FrameState:
    """The state of the body at a frame's time: u [m], v [m/s], (N, 3), on the host; and the simulation's parameters.

    Args:
        before, after: states around the frame, or anything with u and v, (N, 3). share: of the way between them.
        host: brings their arrays to the host.
    """

    def __init__(
        self, before: Any, after: Any, share: float, parameters: Parameters, host: Callable[[Any], np.ndarray]
    ) -> None:
        self._before, self._after, self._share, self._host = before, after, share, host
        self.parameters = parameters

    @cached_property
    def u(self) -> np.ndarray:
        return self._at("u")

    @cached_property
    def v(self) -> np.ndarray:
        return self._at("v")

    def _at(self, name: str) -> np.ndarray:
        before, after = (self._host(getattr(state, name)) for state in (self._before, self._after))
        return np.asarray(between(before, after, self._share), dtype=np.float64)


class FrameChanges:
    """How the state at a frame's time changes with each of P variables: u, v (N, 3, P), and the parameters, (P,).

    Args:
        before, after: changes of the states around the frame.
    """

    def __init__(
        self,
        before: ColumnChanges | Changes,
        after: ColumnChanges | Changes,
        share: float,
        directions: Sequence[ParameterGradient],
        host: Callable[[Any], np.ndarray],
    ) -> None:
        self._before, self._after, self._share, self._host = before, after, share, host
        self.parameters = directions

    @cached_property
    def u(self) -> np.ndarray:
        return self._at("u")

    @cached_property
    def v(self) -> np.ndarray:
        return self._at("v")

    def _at(self, name: str) -> np.ndarray:
        before, after = (self._columns(changes, name) for changes in (self._before, self._after))
        return np.asarray(between(before, after, self._share), dtype=np.float64)

    def _columns(self, changes: ColumnChanges | Changes, name: str) -> np.ndarray:
        """(N, 3, P), from columns side by side, padded, or one after another."""
        array = self._host(getattr(changes, name))
        return array[:, :, : len(changes)] if isinstance(changes, ColumnChanges) else np.moveaxis(array, 0, 2)


@dataclass
class FrameAdjoint:
    """Derivatives of a scalar by a frame's state, (N, 3) each, and by the parameters; None for zero."""

    u: np.ndarray | None = None
    v: np.ndarray | None = None
    parameters: ParameterGradient | None = None


class Prediction(Protocol):
    """A frame's residuals at one state, and their derivatives there.

    Attributes:
        residual: (n,); of kinds that are `whitened` in standard deviations. far: how many measurements are so far off
            that only their rough direction counts.
    """

    @property
    def residual(self) -> np.ndarray: ...
    @property
    def far(self) -> int: ...

    def changes(self, changes: FrameChanges) -> np.ndarray:
        """Change of the residuals with each variable, (n, P)."""

    def changes_adjoint(self, residual_bar: np.ndarray) -> FrameAdjoint:
        """Derivatives by state and parameters, given those by the residuals (n,): the transpose of `changes`."""


@dataclass(frozen=True)
class Weighed:
    """Residuals in the cost: value, Σ of which is the cost; slope, its derivative by each residual; and weight, the
    curvature that Gauss-Newton takes for it; (n,) each."""

    value: np.ndarray
    slope: np.ndarray
    weight: np.ndarray


class Residual(Protocol[F]):
    """One kind of measurement.

    Attributes:
        whitened: residuals are in standard deviations of independent errors, so that their spread shows the noise.
    """

    @property
    def whitened(self) -> bool: ...

    def takes(self, frame: object) -> bool:
        """Whether a frame is of this kind."""

    def check(self, frame: F) -> str:
        """What is wrong with a frame and what to do about it, "" if nothing is."""

    def count(self, frame: F) -> int:
        """How many residuals a frame has."""

    def predict(self, frame: F, state: FrameState) -> Prediction:
        """The residuals of a frame at a state."""

    def weigh(self, frame: F, residual: np.ndarray, loss: RobustLoss) -> Weighed:
        """The part of residuals (n,) in the cost; the loss is that of the problem, for kinds that want it."""

    def by_offset(self, frame: F) -> np.ndarray:
        """Change of the residuals with an offset [m] of the whole surface outwards from its model (a bias of the
        sensor, an error of the shape), (n,); zero for kinds that do not see the surface."""


def weigh_by_loss(residual: np.ndarray, loss: RobustLoss) -> Weighed:
    """Whitened residuals (n,) under a robust loss: what most kinds do."""
    weight = loss.weight(residual)
    return Weighed(loss.value(residual), residual * weight, weight)


class ByLoss:
    """A kind whose residuals count one by one under the loss, whatever their frame."""

    @final
    def weigh(self, frame: Any, residual: np.ndarray, loss: RobustLoss) -> Weighed:
        return weigh_by_loss(residual, loss)


class Kinds:
    """The kinds of residuals of a problem: each frame goes to the first that takes it."""

    def __init__(self, kinds: Sequence[Residual[Any]]) -> None:
        self.kinds = tuple(kinds)

    def of(self, frame: Frame) -> Residual[Any]:
        """The kind of a frame."""
        for kind in self.kinds:
            if kind.takes(frame):
                return kind
        names = ", ".join(type(kind).__name__ for kind in self.kinds)
        raise ValueError(f"no residual takes a frame of type {type(frame).__name__}; give one beside {names}")


def weigh_all(
    kinds: Kinds, frames: Sequence[Frame], residuals: Sequence[np.ndarray], loss: RobustLoss
) -> tuple[Weighed, np.ndarray, np.ndarray]:
    """All frames' residuals in the cost, (n,) each; the frame each belongs to; and which ones are whitened."""
    own = [kinds.of(frame) for frame in frames]
    if all(isinstance(kind, ByLoss) for kind in own):
        joined = weigh_by_loss(np.concatenate(residuals), loss)
    else:
        parts = [kind.weigh(frame, r, loss) for kind, frame, r in zip(own, frames, residuals)]
        joined = Weighed(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("value", "slope", "weight")))
    counts = [len(r) for r in residuals]
    whitened = np.repeat([kind.whitened for kind in own], counts)
    return joined, np.repeat(np.arange(len(counts)), counts), whitened
