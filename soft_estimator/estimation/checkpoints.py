"""The states of a long simulation: only every so many are kept, those between are simulated again when asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import overload

from soft_estimator.physics.model import State
from soft_estimator.physics.step import Simulation

# Up to this many steps all states are kept: recomputing costs a forward run, and they fit.
KEEP_ALL = 400


class Checkpoints(Sequence[State]):
    """States 0, 1, 2, ... of a simulation, in the memory of about 2 √steps of them.

    Going backwards, as an adjoint does, every step is simulated once more. A step from the same state gives the same
    bits, so nothing else changes.

    Args:
        steps: how many are to come. keep_all: up to how many steps every state is kept, KEEP_ALL by default.
    """

    def __init__(self, simulation: Simulation, first: State, steps: int, keep_all: int | None = None) -> None:
        self.simulation = simulation
        self.stride = 1 if steps <= (KEEP_ALL if keep_all is None else keep_all) else math.isqrt(steps - 1) + 1
        self.kept = [first]
        self._count = 1
        self._block: tuple[int, list[State]] = (0, [first])

    def append(self, state: State) -> None:
        """The state after the last one."""
        if self._count % self.stride == 0:
            self.kept.append(state)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> State: ...
    @overload
    def __getitem__(self, index: slice) -> list[State]: ...
    def __getitem__(self, index: int | slice) -> State | list[State]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(self._count))]
        n = index + self._count if index < 0 else index
        if not 0 <= n < self._count:
            raise IndexError(f"state {index} of {self._count}")
        block, place = divmod(n, self.stride)
        if place == 0:
            return self.kept[block]
        if self._block[0] != block or len(self._block[1]) == 1:
            self._block = (block, self._again(block))
        return self._block[1][place]

    def _again(self, block: int) -> list[State]:
        states = [self.kept[block]]
        while len(states) < min(self.stride, self._count - block * self.stride):
            states.append(self.simulation.step_keeping(states[-1])[0])
        return states
