"""How good a run of estimates was, measured against the truth where it is known.

Everything here is plain arithmetic on numbers that were collected during a run; nothing is estimated or simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.parameters import REGISTRY

# An estimate has converged when its error stays below this part of the parameter's scale.
CONVERGED = 0.05
# Stamps of a truth and an estimate that differ by less than this belong together.
SAME_STAMP_S = 1e-4
# What was not matched after so long never will be.
_FORGET_AFTER_S = 2.0


def error_scale(label: str, truth: float, body_size_m: float) -> float:
    """What an error of a parameter is measured by.

    Its true value where that is a positive quantity; the body's size for a plane's offset, one radian for its tilt and
    one g for gravity, whose true values may be zero.
    """
    name = label.partition("[")[0]
    scale = REGISTRY[name].error_scale if name in REGISTRY else "value"
    if isinstance(scale, float):
        return scale
    return body_size_m if scale == "body" else abs(truth)


@dataclass
class ParameterTrack:
    """One parameter over a run: its estimates, their intervals and the truth, if known.

    Attributes:
        label, unit: its name. truth: true value or None. scale: what its error is measured by, see `error_scale`.
        stamp_s, value, std, low, high, observable: one entry an estimate, only while the object was tracked.
        truth_then: the truth in the terms of each estimate, where those change: a plane's tilt is counted from the
            plane the estimator began with.
    """

    label: str
    unit: str
    truth: float | None = None
    scale: float = 1.0
    stamp_s: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    observable: list[bool] = field(default_factory=list)
    truth_then: list[float] = field(default_factory=list)

    def _truths(self) -> np.ndarray | float:
        """The truth beside each value, (n,) or one for all; NaN where it is not known."""
        if self.truth is None:
            return np.nan
        return np.array(self.truth_then) if len(self.truth_then) == len(self.value) else self.truth

    def error(self) -> np.ndarray:
        """Relative errors (n,): (value - truth) / scale; NaN where the truth is not known."""
        if self.scale == 0:
            return np.full(len(self.value), np.nan)
        return (np.array(self.value) - self._truths()) / self.scale

    def covered(self) -> np.ndarray:
        """Whether each 95 % interval holds the truth, (n,) bool."""
        truth = self._truths()
        return (np.array(self.low) <= truth) & (truth <= np.array(self.high))

    def converged_after_s(self, start_s: float) -> float | None:
        """Time from start_s until the error stays below 5 % [s]; None if it does not to the end."""
        good = np.abs(self.error()) < CONVERGED
        if len(good) == 0 or not good[-1]:
            return None
        bad = np.flatnonzero(~good)
        first = 0 if len(bad) == 0 else int(bad[-1]) + 1
        return self.stamp_s[first] - start_s

    def summary(self, start_s: float) -> dict[str, Any]:
        """Final value, errors, coverage and time to converge; the series they come from."""
        out: dict[str, Any] = {
            "name": self.label,
            "unit": self.unit,
            "value": self.value[-1] if self.value else None,
            "std": self.std[-1] if self.value else None,
            "low_95": self.low[-1] if self.value else None,
            "high_95": self.high[-1] if self.value else None,
            "observable": self.observable[-1] if self.value else None,
            "truth": self.truth,
        }
        if self.truth is None or not self.value:
            return out
        error, covered, seen = self.error(), self.covered(), np.array(self.observable, dtype=bool)
        return {
            **out,
            "error": self.value[-1] - self.truth,
            "error_scale": self.scale,
            "error_relative": _number(error[-1]),
            "error_relative_rms": _number(np.sqrt(np.mean(error**2))),
            "coverage_95": float(np.mean(covered)),
            "coverage_95_observable": float(np.mean(covered[seen])) if seen.any() else None,
            "converged_after_s": self.converged_after_s(start_s),
            "series": {
                "stamp_s": list(self.stamp_s),
                "error_relative": [_number(e) for e in error],
                "covered": [bool(c) for c in covered],
            },
        }


class ParameterTracks:
    """All parameters of a run, filled estimate by estimate.

    shown: names for people, by label.
    """

    def __init__(self, shown: dict[str, str] | None = None) -> None:
        self.shown = shown or {}
        self.tracks: dict[str, ParameterTrack] = {}

    def add(self, estimate: LiveEstimate, truth: dict[str, float] | None = None) -> None:
        """Take in an estimate; one that is merely held because the object is lost says nothing new.

        truth: by label, in the terms of this estimate, where they may change during the run.
        """
        if estimate.status == "lost":
            return
        for item in estimate.parameters:
            name = self.shown.get(item.label, item.label)
            track = self.tracks.setdefault(item.label, ParameterTrack(name, item.unit))
            track.stamp_s.append(estimate.stamp_s)
            for name in ("value", "std", "low", "high", "observable"):
                getattr(track, name).append(getattr(item, name))
            if truth is not None and item.label in truth:
                track.truth_then.append(truth[item.label])

    def set_truth(self, truth: dict[str, float], body_size_m: float) -> None:
        """Give the parameters their true values, by label."""
        for label, value in truth.items():
            if label in self.tracks:
                self.tracks[label].truth = value
                self.tracks[label].scale = error_scale(label, value, body_size_m)


@dataclass
class SurfaceErrors:
    """How far estimated surfaces lie from true ones of the same stamp.

    Attributes:
        spacing_m: edge of a voxel. stamp_s, rms_voxels, max_voxels: one entry a pair that was compared: distance of the
            estimated vertices to the true triangles, in voxels.
    """

    spacing_m: float
    stamp_s: list[float] = field(default_factory=list)
    rms_voxels: list[float] = field(default_factory=list)
    max_voxels: list[float] = field(default_factory=list)
    _estimated: dict[float, np.ndarray] = field(default_factory=dict)
    _true: dict[float, np.ndarray] = field(default_factory=dict)

    def add_estimate(self, stamp_s: float, vertices_m: np.ndarray) -> None:
        """An estimated surface, vertices (V, 3) [m]."""
        triangles = _take(self._true, stamp_s)
        if triangles is None:
            self._estimated[stamp_s] = vertices_m
            _forget(self._estimated, stamp_s)
        else:
            self._compare(stamp_s, vertices_m, triangles)

    def add_truth(self, stamp_s: float, triangles_m: np.ndarray) -> None:
        """A true surface, corners of its triangles (F, 3, 3) [m]."""
        vertices = _take(self._estimated, stamp_s)
        if vertices is None:
            self._true[stamp_s] = triangles_m
            _forget(self._true, stamp_s)
        else:
            self._compare(stamp_s, vertices, triangles_m)

    def _compare(self, stamp_s: float, vertices_m: np.ndarray, triangles_m: np.ndarray) -> None:
        distance = distance_to_triangles(vertices_m, triangles_m) / self.spacing_m
        self.stamp_s.append(stamp_s)
        self.rms_voxels.append(float(np.sqrt(np.mean(distance**2))))
        self.max_voxels.append(float(np.max(distance)))

    def summary(self) -> dict[str, Any] | None:
        """None where nothing could be compared."""
        if not self.stamp_s:
            return None
        return {
            "frames": len(self.stamp_s),
            "rms_voxels": float(np.sqrt(np.mean(np.square(self.rms_voxels)))),
            "last_rms_voxels": self.rms_voxels[-1],
            "last_max_voxels": self.max_voxels[-1],
            "max_voxels": max(self.max_voxels),
            "series": {"stamp_s": self.stamp_s, "rms_voxels": self.rms_voxels, "max_voxels": self.max_voxels},
        }


def distance_to_triangles(points_m: np.ndarray, triangles_m: np.ndarray) -> np.ndarray:
    """Distance (n,) [m] of points (n, 3) to the nearest of triangles (F, 3, 3)."""
    import igl

    corners = np.ascontiguousarray(triangles_m, dtype=np.float64).reshape(-1, 3)
    faces = np.arange(len(corners), dtype=np.int64).reshape(-1, 3)
    squared = igl.point_mesh_squared_distance(np.ascontiguousarray(points_m, dtype=np.float64), corners, faces)[0]
    return np.sqrt(np.maximum(squared, 0.0))


def latency_summary(seconds: Sequence[float]) -> dict[str, Any] | None:
    """Median and 99th percentile of the time a frame took [s]; the first, which loads code, apart."""
    if not seconds:
        return None
    later = np.array(seconds[1:] or seconds)
    return {
        "frames": len(seconds),
        "first_s": float(seconds[0]),
        "p50_s": float(np.percentile(later, 50)),
        "p99_s": float(np.percentile(later, 99)),
        "max_s": float(later.max()),
    }


def _take(store: dict[float, np.ndarray], stamp_s: float) -> np.ndarray | None:
    for known in store:
        if abs(known - stamp_s) < SAME_STAMP_S:
            return store.pop(known)
    return None


def _forget(store: dict[float, np.ndarray], now_s: float) -> None:
    for known in [k for k in store if abs(k - now_s) > _FORGET_AFTER_S]:
        del store[known]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
