"""Transforms of a recording at any time within it."""

from __future__ import annotations

from types import SimpleNamespace as Message

import numpy as np
import pytest

from soft_estimator.recordings.transforms import TransformTree, slerp


def turn_z(angle_rad: float) -> tuple[float, ...]:
    return (0.0, 0.0, float(np.sin(angle_rad / 2)), float(np.cos(angle_rad / 2)))


def message(
    time_s: float, parent: str, child: str, position: tuple[float, ...], quaternion: tuple[float, ...]
) -> Message:
    """A message with one transform, with the fields of a TFMessage."""
    stamp = Message(sec=int(time_s), nanosec=round(1e9 * (time_s % 1)))
    moved = Message(
        translation=Message(**dict(zip("xyz", position))), rotation=Message(**dict(zip("xyzw", quaternion)))
    )
    header = Message(frame_id=parent, stamp=stamp)
    return Message(transforms=[Message(header=header, child_frame_id=child, transform=moved)])


@pytest.fixture
def tree() -> TransformTree:
    """A mount that moves along x and turns about z for two seconds, and a camera fixed to it, 0.5 m along its x."""
    made = TransformTree()
    made.add(message(0.0, "mount", "camera", (0.5, 0.0, 0.0), turn_z(0.0)), static=True)
    for time_s in (12.0, 10.0, 11.0):  # late messages find their place
        made.add(message(time_s, "world", "mount", (time_s - 10, 0.0, 0.0), turn_z(0.8 * (time_s - 10))))
    return made


@pytest.mark.parametrize("time_s", [10.0, 10.25, 11.5, 12.0])
def test_between_stamps_a_steady_motion_is_exact(tree: TransformTree, time_s: float) -> None:
    # straight in position and at constant speed in angle: both are what interpolation assumes, so exact to rounding
    passed = time_s - 10
    pose = tree.pose("camera", "world", time_s)
    angle = 0.8 * passed
    np.testing.assert_allclose(
        pose[:2, :2], [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], atol=1e-9
    )
    np.testing.assert_allclose(pose[:3, 3], (passed + 0.5 * np.cos(angle), 0.5 * np.sin(angle), 0), atol=1e-9)
    np.testing.assert_allclose(tree.pose("world", "camera", time_s) @ pose, np.eye(4), atol=1e-9)


def test_a_little_outside_the_nearest_counts_and_far_outside_is_refused(tree: TransformTree) -> None:
    np.testing.assert_array_equal(tree.pose("camera", "world", 9.95), tree.pose("camera", "world", 10.0))
    np.testing.assert_array_equal(tree.pose("camera", "world", 12.05), tree.pose("camera", "world", 12.0))
    np.testing.assert_array_equal(tree.pose("camera", "world"), tree.pose("camera", "world", 12.0))
    for time_s in (9.8, 12.2):
        with pytest.raises(ValueError, match=r"0\.200 s outside .* 'mount' to 'world', which cover 10\.000 to 12\.000"):
            tree.pose("camera", "world", time_s)
    tree.pose("camera", "mount", 99.0)  # static: at any time
    assert tree.root("camera") == "world" and tree.root("moon") == "moon"
    with pytest.raises(ValueError, match="known frames: camera, mount, world"):
        tree.pose("camera", "moon", 11.0)


def test_the_short_way_round() -> None:
    # q and -q are one rotation; halfway from 10° to 50° is 30° whichever sign comes
    a, b, half = (np.array(turn_z(np.radians(d))) for d in (10, 50, 30))
    for sign in (1, -1):
        middle = slerp(a, sign * b, 0.5)
        assert abs(middle @ half) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(slerp(a, a, 0.3), a, atol=1e-15)
