"""A window without its first frames: it begins at the next one, with the variables of its start replaced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.estimation.window.arrival import Knowledge, begin_anew, rigid_correction, with_corrections
from soft_estimator.estimation.window.window_motion import WindowMotion, WindowRun, WindowStart


def begin_later(
    motion: WindowMotion, at: WindowRun, knowledge: Knowledge, count: int, drift: np.ndarray
) -> tuple[WindowRun, Knowledge, np.ndarray]:
    """The run from its frame number `count` on, whose start is the motion's from now on; what is known before it; and
    the mixing (P, P): old changes = mixing @ new changes.

    Nothing of the motion changes before everything is worked out: a step that fails leaves it as it was.
    knowledge: of the old variables, with the first frames in it. drift: standard deviation of what the model misses
    between two frames, (12,), in the order of `POSE`.
    """
    z, changes_at, mixing = at.z, at.changes_at, np.eye(len(at.z))
    frames, unmade = at.frames[count:], None
    if len(motion.pose) == 12:
        correction = rigid_correction(motion.model.body, frames[0].before, motion.backend)[:, : len(z)]
        knowledge, mixing, unmade = begin_anew(knowledge, z, correction, motion.pose, np.sqrt(count) * drift)
        z = at.z.copy()
        z[motion.pose] = 0.0
        # Of the old start's variables only the distance to where the changes hold is left.
        changes_at = at.changes_at - at.z + z
    frames = [e.in_terms_of(mixing) for e in frames]
    first, first_pose = frames[0].before, motion.theta(at.z)[motion.pose]
    if unmade is not None:
        first = with_corrections(motion.model.body, first, motion.backend, unmade, motion.pose)
    before, motion.start = motion.start, WindowStart(first, z.copy(), first_pose)
    try:
        if unmade is not None:  # what those corrections do to the frames nobody has simulated yet
            anew = motion.run(z, [e.frame for e in frames], at.retaken_parts)
            frames, changes_at = anew.frames, anew.changes_at
        trajectory = motion.continued(z, frames[-1], max(at.trajectory.steps - count, 1))
    except Exception:
        motion.start = before
        raise
    return replace(at, z=z, trajectory=trajectory, frames=frames, changes_at=changes_at), knowledge, mixing
