"""A path that grows: even motion between its poses, a little beyond the newest, and what it does not know."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.live_path import AHEAD_S, LATE_S, LivePath
from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.geometry.rigid import rotation_matrix


def poses(times, speed=(0.1, 0.0, -0.2), spin=(0.0, 0.0, 2.0)):
    """Poses of an even motion that turns about z."""
    return [(5.0 + t, rotation_matrix(t * np.array(spin)), t * np.array(speed)) for t in times]


def test_between_its_poses_it_is_the_path_of_a_file():
    """The same poses read as a whole: the same place and motion at any time, to rounding of stamps of 5 s."""
    times = np.array([0.0, 0.03, 0.05, 0.11])
    stamps, turns, shifts = zip(*poses(times))
    told, path = PosePath(times, np.array(turns), np.array(shifts)), LivePath("it")
    path.since_s = 5.0
    for pose in zip(stamps, turns, shifts):
        path.extend([pose])
    for time_s in (0.0, 0.01, 0.03, 0.049, 0.1099):
        for found, wanted in zip(path.at(time_s) + path.motion(time_s), told.at(time_s) + told.motion(time_s)):
            np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_beyond_the_newest_pose_it_goes_on_for_a_while_and_then_stays():
    path = LivePath("it")
    path.extend(poses([0.0, 0.04]))
    turn, shift = path.at_stamp(5.0 + 0.05)
    np.testing.assert_allclose(shift, [0.005, 0, -0.01], atol=1e-12)
    np.testing.assert_allclose(turn, rotation_matrix(np.array([0, 0, 0.1])), atol=1e-12)
    assert path.motion(5.05) is not None and path.motion(5.04 + AHEAD_S + 0.001) is None
    np.testing.assert_allclose(path.at_stamp(9.0)[1], path.at_stamp(5.04 + AHEAD_S - 1e-9)[1], atol=1e-9)


def test_what_is_not_known_is_said():
    path = LivePath("tool frame 'tip'")
    assert path.lacks(5.0) == "tool frame 'tip' has no pose yet"
    with pytest.raises(ValueError, match="tool frame 'tip' has no pose: replay of a bag and the nodes know it"):
        path.at(0.0)
    path.extend(poses([0.0, 0.1, 0.2, 0.6, 0.7]))
    assert not path.lacks(5.15) and not path.lacks(5.7 + 0.9 * LATE_S) and not path.lacks(5.2, 5.0)
    assert path.lacks(5.9) == "the newest pose of tool frame 'tip' is 0.20 s older than the frame"
    assert path.lacks(4.9) == "the first pose of tool frame 'tip' is 0.10 s later than the frame"
    assert "are 0.40 s apart" in path.lacks(5.4) and "are 0.40 s apart" in path.lacks(5.65, 5.15)
    assert not path.lacks(5.65)


def test_time_that_goes_back_begins_it_anew_and_stragglers_are_passed_over():
    path = LivePath("it")
    path.extend(poses([0.0, 0.1, 0.2]))
    path.extend(poses([0.15]))
    assert path.stamps_s == [5.0, 5.1, 5.2]
    path.extend([(5.3, np.full((3, 3), np.nan), np.zeros(3))])
    assert path.stamps_s[-1] == 5.2
    path.forget_before(5.15)
    assert path.stamps_s == [5.1, 5.2] and np.allclose(path.at_stamp(5.15)[1], [0.015, 0, -0.03])
    path.extend(poses([-3.0]))
    assert path.stamps_s == [2.0]
