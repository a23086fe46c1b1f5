"""The state that a simulation carries from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from soft_estimator.backends.interface import Array


@dataclass(frozen=True)
class State:
    """Displacement u [m], velocity v [m/s] and the scheme's third array of the nodes, each (N, 3), at a time [s].

    a is the acceleration [m/s²] or, for the θ-scheme, the last step's mean velocity [m/s]. fallback_parts tells that
    the step to this state was taken by the backward-Euler fallback, in how many parts, 0 if not (see `guard`).
    substeps: of the scheme's own, that it was cut into (`Term.substeps`, or `guard`). retaken_parts: of either, where
    the step could not be trusted and was taken again, 0 where it was not. memory: what terms carry along themselves, by
    the name of the term's memory; one that is missing has not begun.
    """

    u: Array
    v: Array
    a: Array
    time_s: float
    fallback_parts: int = 0
    substeps: int = 1
    retaken_parts: int = 0
    memory: Mapping[str, Array] = field(default_factory=dict)
