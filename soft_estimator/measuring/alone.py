"""The object alone: points of a hand that holds it, or has just let it go, are told from its own by its shape.

After a drop the object is alone. From there its pose is followed back in time, frame by frame, to where a hand let it
go: from a pose that is known, points of the hand do not lead astray, however they are connected to the object.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from soft_estimator.geometry.extent import widest_m
from soft_estimator.measuring.phases import AIRBORNE_M, TOGETHER_S, Drop
from soft_estimator.measuring.sightings import Progress, Sighting, sighting_of
from soft_estimator.perception.placed_shape import Pose, distances_to, prepare_model
from soft_estimator.perception.register import PoseFit, follow, register
from soft_estimator.perception.scan import ScannedBody
from soft_estimator.perception.settings import RegisterSettings

_STEPS_M = 0.015 * np.arange(-4, 6)  # along the vertical: how far it may have been from where it is in the next frame
_OFF, _OFF_BENT = 0.05, 0.15  # of the body's width: points this far off are not its own; in the air it is hardly bent
_WIDE, _TRIM = 1.1, 0.01  # times the body's width, strays left out: what is wider on the table is not it alone
_ALONE = 0.97  # share of the points on the body of a frame that shows nothing else
_SAME = (0.6, 1.5)  # how many times the points of the next frame there may be
# What is left of fingers on an object in the air: points farther above its surface, beside three deviations of their
# noise, and no more than such a share of them; more is a shape that is wrong there.
_FINGERS_M, _FINGERS = 0.002, 0.1
_ASTRAY_M = 0.01  # a point that lies farther off the body than this counts as this far off
_SETTINGS = RegisterSettings(yaw_steps=16, points=600, coarse_points=150, keep=6)
_log = logging.getLogger(__name__)


def cut_to_shape(
    sightings: list[Sighting],
    body: ScannedBody,
    plane: np.ndarray,
    rest_low_m: float,
    progress: Progress | None = None,
) -> list[Sighting]:
    """Sightings in the air with the points alone that lie on the body; `touched` where they cannot be told.

    Args:
        plane: the table (n, d). rest_low_m: height of the lower edge of what is seen of the object at rest [m].
    """
    teller = _Teller(body)
    out: list[Sighting] = []
    for number, seen in enumerate(reversed(sightings)):
        if progress is not None:
            progress("telling it from hands", number + 1, len(sightings))
        in_air = seen.low_m >= rest_low_m + AIRBORNE_M
        narrow = widest_m(seen.points_m, _TRIM) <= _WIDE * teller.width_m
        if not in_air and narrow:
            out.append(seen)  # on the table, and not more than it
            continue
        own = teller.own(seen, _OFF if in_air else _OFF_BENT)
        if own is None:  # bent by a bounce it may fit no pose of its rest shape: nothing wider than it is with it
            out.append(seen if narrow else replace(seen, touched=True))
        else:
            # A pose of its shape explains all that is seen: whatever made it look touched, it is alone.
            out.append(sighting_of(seen, own, plane) if own.mean() < _ALONE else replace(seen, touched=False))
    _log.info("in %d frames something was cut off the object, in %d it could not be told", teller.cut, teller.untold)
    return out[::-1]


def without_fingers(
    sightings: list[Sighting], drops: list[Drop], body: ScannedBody, plane: np.ndarray
) -> list[Sighting]:
    """Sightings without what a hand that was cut off left on the object, of frames before the touch of a drop: there it
    is not bent yet, and what lies above its surface is not its own.

    A brick that fell out of a hand, whose fingers were 4 % of its points a frame long, was 3 mm off its shape by that,
    and its stiffness known to 15 % instead of 3 (truth inside both).
    """
    teller, out, shown = _Teller(body), list(sightings), 0
    for k in (k for drop in drops for k in range(drop.first, drop.touch)):
        above = teller.above_m(out[k]) if out[k].cut else None
        if above is None:
            continue
        fingers = above > _FINGERS_M + 3 * out[k].std_m
        if 0 < fingers.mean() <= _FINGERS:
            out[k], shown = sighting_of(out[k], ~fingers, plane), shown + 1
    _log.info("in %d frames of falls fingers were left on the object", shown)
    return out


def off_in_air_m(sightings: list[Sighting], drops: list[Drop], body: ScannedBody) -> float:
    """How far the points of an object that falls lie off a body [m], rms over all before the touches."""
    teller, squares = _Teller(body), list[np.ndarray]()
    for k in (k for drop in drops for k in range(drop.first, drop.touch)):
        off = teller.above_m(sightings[k])
        far = np.full(len(sightings[k].points_m), _ASTRAY_M)
        squares.append(far**2 if off is None else np.minimum(np.abs(off), far) ** 2)
    return float(np.sqrt(np.mean(np.concatenate(squares)))) if squares else 0.0


class _Teller:
    """Knows the body's pose in the frame that was looked at last, which is the next one in time."""

    def __init__(self, body: ScannedBody) -> None:
        self.body, self.model, self.width_m = body, prepare_model(body.detail or body.grid), widest_m(body.vertices_m)
        self._pose: Pose | None = None
        self._time_s, self._points = np.inf, 0
        self.cut = self.untold = 0

    def own(self, seen: Sighting, off: float) -> np.ndarray | None:
        """Which points are the body's, (n,) bool, within so many of its widths; None where no pose tells."""
        body = self.body
        points = (seen.points_m - body.translation_m) @ body.rotation
        sensor = (seen.sensor_m - body.translation_m) @ body.rotation
        if self._pose is not None and not 0 < self._time_s - seen.time_s <= TOGETHER_S:
            self._pose = None
        found = self._followed(points, seen.std_m, off) if self._pose is not None else None
        if found is None:
            found = self._registered(points, seen.std_m, sensor)
        if found is None:
            self.untold += 1
            return None
        self._pose, own = found
        self._time_s, self._points = seen.time_s, int(own.sum())
        self.cut += bool(own.mean() < _ALONE)
        return own

    def above_m(self, seen: Sighting) -> np.ndarray | None:
        """How far points are above the surface (n,) [m], by their own frame alone; None where no pose tells."""
        body = self.body
        points = (seen.points_m - body.translation_m) @ body.rotation
        found = self._registered(points, seen.std_m, (seen.sensor_m - body.translation_m) @ body.rotation)
        return None if found is None else distances_to(self.model, points, found[0])[0]

    def _followed(self, points: np.ndarray, std: np.ndarray, off: float) -> tuple[Pose, np.ndarray] | None:
        """The pose near that of the next frame, and the points on it."""
        assert self._pose is not None
        rotation, translation = self._pose
        starts = [(rotation.copy(), translation + np.array([0.0, 0.0, step])) for step in _STEPS_M]
        pose, own = follow(self.model, points, std, starts, off * self.width_m)
        return (pose, own) if _SAME[0] * self._points <= own.sum() <= _SAME[1] * self._points else None

    def _registered(self, points: np.ndarray, std: np.ndarray, sensor: np.ndarray) -> tuple[Pose, np.ndarray] | None:
        """The pose in a frame that shows the body and nothing else."""
        fit = register(self.body.grid, points, std, sensor, settings=_SETTINGS)
        if not isinstance(fit, PoseFit):
            return None
        pose, own = follow(self.model, points, std, [(fit.rotation, fit.translation_m)], _OFF * self.width_m)
        return (pose, own) if own.mean() >= _ALONE else None
