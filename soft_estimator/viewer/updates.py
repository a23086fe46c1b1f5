"""What the viewer is told: plain values, whoever sends them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class ParameterNow:
    """A parameter at one time: its value and 95 % interval in the SI unit; truth where it is known."""

    name: str
    unit: str
    value: float
    low: float
    high: float
    observable: bool = True
    reason: str = ""
    truth: float | None = None


@dataclass(frozen=True, eq=False)
class MeshNow:
    """The twin: vertices (V, 3) [m], faces (F, 3), and what its colours show.

    colours: (V, 3) in 0..1 by name, e.g. {"residual": ..., "strain": ...}; the first one is shown first.
    """

    vertices_m: np.ndarray
    faces: np.ndarray
    colours: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class ViewUpdate:
    """News for the viewer; None leaves a part as it is.

    Attributes:
        time_s: since the start, for the plots [s]. status: "starting", "tracking", "lost", or another word.
        points_m: observed points (n, 3) [m]. mesh: the twin. plane: normal (3,) and offset [m] of n . x + d = 0.
        parameters: every estimated one. line: a line of what is happening.
        tools: vertices (V, 3) [m] and faces (T, 3) of each by name.
    """

    time_s: float
    status: str | None = None
    points_m: np.ndarray | None = None
    mesh: MeshNow | None = None
    plane: tuple[np.ndarray, float] | None = None
    parameters: tuple[ParameterNow, ...] | None = None
    line: str | None = None
    tools: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None


class Shows(Protocol):
    """Who takes updates: the viewer, or a test."""

    def show(self, update: ViewUpdate) -> None:
        """Take news."""

    def clear(self) -> None:
        """Forget what was plotted."""


class Source(Protocol):
    """Who sends them. `run` works in a thread of its own until it ends or `stop` is set."""

    up: Sequence[float]

    def run(self, viewer: Shows, stop: threading.Event) -> None:
        """Send updates."""

    def reset(self) -> str:
        """Start anew; says what was done."""

    def pause(self, paused: bool) -> str:
        """Stand still, or go on; says what was done."""
