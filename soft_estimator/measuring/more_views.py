"""An object that falls turns: frames of its drops show it from other sides than those in which it lay still.

Where its pose is known, a frame in which it flew is one of a camera that moved about it while it lay. Such views are
fused with the others: what they see of the sides is surface, and what they see past the object is not it.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from soft_estimator.measuring.phases import Drop
from soft_estimator.measuring.sightings import Sighting
from soft_estimator.perception.fusion import View, make_view
from soft_estimator.perception.objects import NothingFound, ObjectFinder, Why
from soft_estimator.perception.placed_shape import Pose
from soft_estimator.perception.scan_frames import Frame, ScanData
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.recordings.interface import Recording

_MOST_VIEWS = 8  # of all drops together: as many as frames of the still part
_SAME_M = 0.005  # the middle of the object as it is found again
_log = logging.getLogger(__name__)


def with_views_of_falls(
    data: ScanData, recording: Recording, sightings: list[Sighting], drops: list[Drop], finder: FinderSettings
) -> ScanData | None:
    """The scan with frames in which the object fell freely; None where no pose of it is known in any."""
    falling = [k for drop in drops for k in range(drop.first, drop.touch) if sightings[k].pose is not None]
    chosen = (
        [falling[i] for i in np.unique(np.linspace(0, len(falling) - 1, _MOST_VIEWS).astype(int))] if falling else []
    )
    views: list[View] = []
    points: list[np.ndarray] = []
    for seen in (sightings[k] for k in chosen):
        view = _view(recording, seen, data, finder)
        if view is not None and seen.pose is not None:
            rotation, shift = camera_motion(seen.pose, data.frame)
            views.append(view.seen_from(rotation, shift))
            points.append(((seen.points_m - data.frame[1]) @ data.frame[0] - seen.pose[1]) @ seen.pose[0])
    if not views:
        return None
    _log.info("%d frames of its falls show it from other sides", len(views))
    return replace(data, views=[*data.views, *views], local_m=np.concatenate([data.local_m, *points]))


def camera_motion(pose: Pose, frame: Frame) -> Pose:
    """How a camera would have moved, x ↦ Q x + s in the fixed frame, to see a body at rest as it saw it at a pose.

    pose: x ↦ R x + t in the body's frame; frame: y = F x + f from there to the fixed frame. The body's point x was seen
    at y = F (R x + t) + f and belongs to F x + f, so Q = F Rᵀ Fᵀ and s = f - Q f - F Rᵀ t.
    """
    turn = frame[0] @ pose[0].T
    rotation = turn @ frame[0].T
    return rotation, frame[1] - rotation @ frame[1] - turn @ pose[1]


def _view(recording: Recording, seen: Sighting, data: ScanData, finder: FinderSettings) -> View | None:
    """A sighting's frame as an image whose only surface is the object; None where it is not found again."""
    frame = recording[seen.index]
    found = ObjectFinder(replace(finder, steepest_incidence_rad=0.0)).process(frame.usable(), frame.mask)
    if isinstance(found, NothingFound):
        return None
    if float(np.linalg.norm(np.median(found.points_m, axis=0) - seen.middle_m)) > _SAME_M:
        return None
    ignored = np.isin(found.why, (Why.FLYING, Why.SPECK, Why.NOT_MEASURED))
    none = np.zeros_like(ignored)
    return make_view(frame.usable(), found.why == Why.KEPT, none, ignored, finder.noise, data.smooth_px)
