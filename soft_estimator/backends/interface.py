"""What a backend provides: hot loops (`loops`, `neo_hookean_loops`), whole steps where it can (`whole_steps`), and
where its arrays live.

Arrays live where the backend computes; `xp` is the array module for everything that is not a hot loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Protocol, TypeVar

import numpy.typing as npt

from soft_estimator.backends.band_loops import BandLoops
from soft_estimator.backends.joint_loops import JointLoops
from soft_estimator.backends.loops import CellLoops, ContactLoops, MatrixLoops, PointLoops
from soft_estimator.backends.multigrid_loops import MultigridLoops
from soft_estimator.backends.neo_hookean_loops import NeoHookeanLoops
from soft_estimator.backends.pressure_loops import PressureLoops
from soft_estimator.backends.whole_steps import (
    Array,
    Guard,
    GuardFactory,
    Observer,
    ObserverFactory,
    Paths,
    State,
    Stepper,
    StepperFactory,
    TangentStepper,
    TangentStepperFactory,
    View,
)

Item = TypeVar("Item")
One = TypeVar("One")
Other = TypeVar("Other")

__all__ = ["Array", "Backend", "Guard", "Observer", "Paths", "State", "Stepper", "TangentStepper", "View"]


class Backend(CellLoops, NeoHookeanLoops, ContactLoops, MatrixLoops, PointLoops, Protocol):
    """Everything that a simulation asks of what computes it."""

    @property
    def name(self) -> str: ...

    @property
    def xp(self) -> ModuleType: ...

    @property
    def single_precision(self) -> bool:
        """Whether it computes in float32 where a model asks for it; in double precision otherwise."""

    @property
    def column_multiple(self) -> int:
        """Several columns are handed over in a width that is a multiple of this."""

    @property
    def stepper(self) -> StepperFactory | None:
        """Whole steps without the host, for a batch of systems; None where the backend has only loops."""

    @property
    def guard(self) -> GuardFactory | None:
        """Sums over a stepper's steps; there where `stepper` is."""

    @property
    def tangent_stepper(self) -> TangentStepperFactory | None:
        """Whole tangent steps of a stepper; there where `stepper` is."""

    @property
    def observer(self) -> ObserverFactory | None:
        """Residuals of whole windows; there where `stepper` is."""

    @property
    def pressures(self) -> PressureLoops | None:
        """The preconditioner for nearly incompressible bodies; None where block-Jacobi is faster without."""

    @property
    def multigrid(self) -> MultigridLoops | None:
        """The preconditioner for bodies of many nodes; None where block-Jacobi is all there is, or whole steps have
        their own."""

    @property
    def bands(self) -> BandLoops | None:
        """Direct solves for slender bodies; None where there are only iterations."""

    @property
    def joints(self) -> JointLoops | None:
        """Block-Jacobi with one larger block, for nodes that friction ties together; None where each is by itself."""

    def to_device(self, array: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Array:
        """A contiguous copy or view of a host array where the backend computes."""

    def to_host(self, array: Array) -> Array:
        """The NumPy array of a device array."""

    def wait(self) -> None:
        """Return when all loops started so far are done."""

    def beside(self, one: Callable[[], One], other: Callable[[], Other], rows: int = 0) -> tuple[One, Other]:
        """What two functions give that need nothing of each other, at the same time where that is faster; rows: of
        their loops, 0 for few."""

    def followed(self, lead: Iterable[Item], follow: Callable[[Item], None], rows: int = 0) -> None:
        """Follow up what is made one after the other, in order, each while the next is being made where that is
        faster; rows: of the loops, 0 for few."""

    def device_name(self) -> str:
        """What computes, for people."""
