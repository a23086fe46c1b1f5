"""Does the model fit at all? Residuals that are off together, against the noise that the points show by themselves.

Noise is what neighbours differ by; a model that does not fit leaves whole patches of the surface, or whole frames, off
to one side. How far a patch may be off without a complaint is what shape and grid are known to. None of this believes
the stated noise: one that is too large hides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from soft_estimator.estimation.residuals.local_noise import LEAST_POINTS, neighbours_variance, without_outliers

# Points of one patch in one frame whose median means something.
_LEAST_OF_A_CELL = 6
# Causes whose columns are known, the likelier ones first: seen from one side, a body that is nearer looks larger.
LIKELY = ("clock", "pose", "start", "size", "contact")
# Part of the residuals' power that a cause must explain to be named; and within which the likelier one is taken.
_NAMED, _AS_GOOD = 0.7, 0.1
_MEDIAN_VARIANCE = 1.57  # of a median over that of a mean, for Gaussian noise


@dataclass(frozen=True)
class Limits:
    """Beyond these the model does not fit; each is a number that clean recordings stay below by far.

    Attributes:
        patches: mean square of the patches' medians over their deviations; one is what noise gives.
        frames: the same of the worst part of the frames. scatter: spread of all residuals over stated noise and
            allowance. far: share of points that lie more than six deviations off.
    """

    patches: float = 2.5
    frames: float = 6.0
    scatter: float = 2.5
    far: float = 0.1


@dataclass(frozen=True)
class FitVerdict:
    """Whether the model fits, and if not, why, in plain words.

    Attributes:
        fits: False where it does not. reason: one clause, "" where it fits. cause: a word for it: "shape", "pose",
            "start", "contact", "touched", "motion", "clock", "size", "noise", "force", "body"; "" where it fits.
        figures: what was measured, by the names of `Limits`.
    """

    fits: bool = True
    reason: str = ""
    cause: str = ""
    figures: dict[str, float] = field(default_factory=dict)

    def as_plain(self) -> dict[str, object]:
        """For JSON files."""
        return {"fits": self.fits, "reason": self.reason, "cause": self.cause, "figures": dict(self.figures)}


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a verdict is made from: residuals of clouds at the fit.

    Attributes:
        residual: in stated deviations, (n,). std_m: those [m], (n,). frame, patch: which each belongs to, (n,).
        neighbour: the nearest point of the same frame, as an index of these arrays, (n,). time_s: of the frames, (F,).
        jacobian: by the variables, (n, P).
        suspects: columns (n, k) of what may be wrong, by the cause they stand for.
        allowance_m: by how much a patch may be off without a complaint.
        refined_m: by how much half the spacing and half the step change each point's distance [m], (n,); None where the
            residuals are those of the grid and the step as they are.
    """

    residual: np.ndarray
    std_m: np.ndarray
    frame: np.ndarray
    patch: np.ndarray
    neighbour: np.ndarray
    time_s: np.ndarray
    jacobian: np.ndarray
    suspects: dict[str, np.ndarray]
    allowance_m: float
    refined_m: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class PatchTable:
    """Medians of patches in frames: frame, patch, z (median over its deviation) and count, (c,) each."""

    frame: np.ndarray
    patch: np.ndarray
    z: np.ndarray
    count: np.ndarray

    def power(self, chosen: np.ndarray | None = None) -> float:
        """Mean square of z; 0 where there is none."""
        z = self.z if chosen is None else self.z[chosen]
        return float(np.mean(z**2)) if len(z) else 0.0

    def by_frame(self, frames: int) -> np.ndarray:
        """Power of every frame, (F,); 0 where it has no patch."""
        total = np.bincount(self.frame, self.z**2, frames)
        return total / np.maximum(np.bincount(self.frame, minlength=frames), 1)


def patch_table(e: Evidence) -> PatchTable:
    """Median distances of patches, over what noise and allowance let them be."""
    off, noise = e.residual * e.std_m, np.full(int(e.frame.max(initial=-1)) + 1, np.nan)
    for k in np.unique(e.frame):
        of_frame = np.flatnonzero(e.frame == k)
        if len(of_frame) >= LEAST_POINTS:
            usual, neighbour = without_outliers(off[of_frame]), np.searchsorted(of_frame, e.neighbour[of_frame])
            noise[k] = neighbours_variance(usual, neighbour)
    groups = _medians(off, e)
    kept = (groups.count >= _LEAST_OF_A_CELL) & np.isfinite(noise[groups.frame])
    frame, patch, count = groups.frame[kept], groups.patch[kept], groups.count[kept]
    variance = _MEDIAN_VARIANCE * noise[frame] / count + e.allowance_m**2
    if e.refined_m is not None:
        variance += _frames_mean(_medians(e.refined_m, e).median[kept] ** 2, frame)
    return PatchTable(frame, patch, groups.median[kept] / np.sqrt(variance), count)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Points of one patch in one frame: which, how many, and their median; (g,) each."""

    frame: np.ndarray
    patch: np.ndarray
    count: np.ndarray
    median: np.ndarray


def _medians(value: np.ndarray, e: Evidence) -> _Groups:
    """Medians of values (n,) of the points, patch by patch in each frame."""
    # Points in the order of their frames, patches and values: every group's median is its middle.
    order = np.lexsort((value, e.patch, e.frame))
    frame, patch, value = e.frame[order], e.patch[order], value[order]
    first = np.flatnonzero(np.diff(frame, prepend=-1) | np.diff(patch, prepend=-2))
    count = np.diff(first, append=len(value))
    median = 0.5 * (value[first + (count - 1) // 2] + value[first + count // 2])
    return _Groups(frame[first], patch[first], count, median)


def _frames_mean(square: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Means (c,) of squares (c,) over the patches of each one's frame.

    What grid and step put a patch off by wanders over the surface as the body swings: a frame's patches share it. Only
    patches that are judged do: one or two points at a rim may move by millimetres.
    """
    return (np.bincount(frame, square) / np.maximum(np.bincount(frame), 1))[frame]


def judge(evidence: Evidence, limits: Limits | None = None) -> FitVerdict:
    """The verdict on a fit."""
    e, limits = evidence, limits or Limits()
    if len(e.residual) < LEAST_POINTS:
        return FitVerdict()
    table, off = patch_table(e), e.residual * e.std_m
    spread = 1.4826 * float(np.median(np.abs(off)))
    usual = float(np.hypot(np.median(e.std_m), e.allowance_m))
    frames = np.sort(table.by_frame(len(e.time_s)))[::-1]
    worst = max(2, round(0.1 * len(frames))) if len(frames) > 2 else 1
    figures = {
        "patches": table.power(),
        "frames": float(frames[:worst].min(initial=np.inf)) if len(frames) else 0.0,
        "scatter": spread / usual,
        "far": float(np.mean(np.abs(off) > 6 * usual)),
    }
    if all(value <= getattr(limits, name) for name, value in figures.items()):
        return FitVerdict(figures=figures)
    cause = _cause(e, table, figures, limits)
    return FitVerdict(False, _words(cause, e, table, off), cause, figures)


def _cause(e: Evidence, table: PatchTable, figures: dict[str, float], limits: Limits) -> str:
    """The likeliest of the known causes: what explains the residuals best, else how they lie in time and place."""
    if figures["patches"] <= limits.patches and figures["frames"] <= limits.frames:
        return "noise"  # off at random: neighbours do not agree
    shares = {cause: _explained(e, e.suspects[cause]) for cause in LIKELY if cause in e.suspects}
    best = max(shares.values(), default=0.0)
    if best > _NAMED:
        return next(cause for cause, share in shares.items() if share > best - _AS_GOOD)
    power = table.by_frame(len(e.time_s))
    bad = power > limits.patches
    if len(bad) >= 4 and not bad.all():
        first = int(np.argmax(bad))
        if first == 0 and not bad[len(bad) // 2 :].any():
            return "start"
        if first >= 2 and power[:first].max() < limits.patches:
            return "touched"
    return "shape" if figures["far"] <= limits.far else "body"


def _explained(e: Evidence, columns: np.ndarray) -> float:
    """The part of the residuals' power that columns explain beyond the variables."""
    r = without_outliers(e.residual)
    left = r - _projected(e.jacobian, r)
    whole = float(left @ left)
    both = r - _projected(np.concatenate([e.jacobian, columns], axis=1), r)
    return 1.0 - float(both @ both) / whole if whole > 0 else 0.0


def _projected(columns: np.ndarray, r: np.ndarray) -> np.ndarray:
    size = np.linalg.norm(columns, axis=0)
    scaled = columns[:, size > 0] / size[size > 0]
    return scaled @ np.linalg.lstsq(scaled, r, rcond=1e-8)[0]


def _words(cause: str, e: Evidence, table: PatchTable, off: np.ndarray) -> str:
    rms = f"{1e3 * float(np.sqrt(np.mean(off**2))):.2g} mm"
    if cause == "touched":
        power = table.by_frame(len(e.time_s))
        first = float(e.time_s[int(np.argmax(power > Limits().patches))])
        return f"from {first:.3g} s on the points lie {rms} off: something touched the body"
    return {
        "noise": f"the points scatter by {rms} at random: they are noisier than stated, or not of this body",
        "pose": f"the points lie {rms} off as a whole: the pose of the body or of the camera is wrong",
        "start": f"the points lie {rms} off as if the body had begun otherwise: bent, or with another speed",
        "contact": f"the points lie {rms} off as they would with another ground: the contact plane is wrong",
        "clock": f"the points lie {rms} off along their motion: the stamps are wrong",
        "size": f"the points lie {rms} off all around: the body has another size",
        "shape": f"patches of the surface lie {rms} off together: the shape is wrong, or another body's",
        "body": f"many points lie far off ({rms}): this is another body, or it lies elsewhere",
    }[cause]
