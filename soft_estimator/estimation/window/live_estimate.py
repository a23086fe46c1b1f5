"""What a live estimator publishes after a frame, and what it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.fitting.uncertainty import Estimate
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.physics.parameters import Parameters


@dataclass(frozen=True, eq=False)
class LiveEstimate:
    """The newest answer.

    Attributes:
        stamp_s: time of the newest frame in it [s]. status: "starting", "tracking" or "lost".
        parameters: one answer for each estimated parameter. values: the same as parameters of a simulation.
        u_m, v_m_s, a: displacement [m], velocity [m/s] and the scheme's third array of the nodes at stamp_s, (N, 3).
        noise_scale: how many times the stated noise the residuals show. cost: at the minimum.
        rms_residual_m: root mean square distance of the newest frame's points to the body's surface [m].
        residual_m: those distances, (n,), of points_m (n, 3).
        frames_in_window: frames predicted by simulation. seconds: wall-clock time of the update.
        notes: what a reader should know, in plain words.
        posterior: of the estimated parameters together, None where only the answers are known (a recorded message).
        memory: what the model's terms remember at stamp_s, by name (`State.memory`).
        verdict: whether the model fits the window's frames. settled: whether the fit has reached its minimum; where
            not, the way that is left is part of the deviations, and no value counts as observed.
        tools: surfaces of the tools at stamp_s by name, vertices (V, 3) [m] and faces (T, 3), where somebody gave them.
    """

    stamp_s: float
    status: str
    parameters: tuple[Estimate, ...]
    values: Parameters
    u_m: np.ndarray
    v_m_s: np.ndarray
    a: np.ndarray
    noise_scale: float
    cost: float
    rms_residual_m: float
    residual_m: np.ndarray
    points_m: np.ndarray
    frames_in_window: int
    seconds: float
    notes: tuple[str, ...] = ()
    posterior: ParameterPosterior | None = None
    memory: Mapping[str, np.ndarray] = field(default_factory=dict)
    verdict: FitVerdict = field(default_factory=FitVerdict)
    settled: bool = True
    tools: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


NOT_SETTLED = "the fit has not settled yet"
FEW_LOOKS = "a few looks at its first touch need another ground than was seen: more of its motion will tell"


def unvouched(estimate: LiveEstimate, reason: str = NOT_SETTLED) -> LiveEstimate:
    """The estimate of a window that has not settled: its values are on their way, and none of them is vouched for. How
    far the minimum is, the linearisation does not tell beyond where it holds; of a ball seen again after its first
    touch, with a frame missing, it was off by twelve of the deviations stated."""
    doubted = tuple(replace(p, observable=False, reason=p.reason or reason) for p in estimate.parameters)
    return replace(estimate, parameters=doubted)


@dataclass
class Counters:
    """Frames and points since the start: frames_in = used + late + thinned + empty + skipped + refused for another
    reason. Late ones came out of order; skipped ones there was no time for. From cut ones what touched the body was cut
    off; in touched ones a tool that is known touched it."""

    frames_in: int = 0
    frames_used: int = 0
    frames_late: int = 0
    frames_thinned: int = 0
    frames_empty: int = 0
    frames_refused: int = 0
    frames_skipped: int = 0
    points_set_aside: int = 0
    resets: int = 0
    frames_cut: int = 0
    frames_touched: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
