"""Sensor messages by their fields: whatever the layout, what was packed comes out, for bags and ROS alike."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soft_estimator.recordings.messages import depth_of, field_views, lens_of, points_of, seconds_of

TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


@dataclass
class Field:
    name: str
    offset: int
    datatype: int


@dataclass
class Message:
    """The fields that rclpy and rosbags both give a PointCloud2 or an Image."""

    height: int
    width: int
    data: Any
    is_bigendian: bool = False
    fields: list[Field] = field(default_factory=list)
    point_step: int = 0
    row_step: int = 0
    encoding: str = ""
    step: int = 0


def packed(points: np.ndarray, types: dict[str, int], gap: int, big: bool, row_padding: int = 0) -> Message:
    """A cloud (h, w, 3) with these datatypes, `gap` bytes before each field, and padding after each row."""
    height, width = points.shape[:2]
    fields, offset = [], 0
    for name, datatype in types.items():
        offset += gap
        fields.append(Field(name, offset, datatype))
        offset += np.dtype(TYPES[datatype]).itemsize
    row_step = width * offset + row_padding
    data = bytearray(height * row_step)
    for k, item in enumerate(fields):
        dtype = np.dtype((">" if big else "<") + TYPES[item.datatype])
        for v, u in np.ndindex(height, width):
            at = v * row_step + u * offset + item.offset
            data[at : at + dtype.itemsize] = points[v, u, k : k + 1].astype(dtype).tobytes()
    return Message(height, width, bytes(data), big, fields, offset, row_step)


@given(
    types=st.lists(st.sampled_from(sorted(TYPES)), min_size=3, max_size=3),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    gap=st.integers(0, 5),
    padding=st.integers(0, 7),
    big=st.booleans(),
    holder=st.sampled_from([bytes, lambda b: array("B", b), lambda b: np.frombuffer(b, dtype=np.uint8)]),
)
def test_every_layout_gives_the_packed_numbers(
    types: list[int], shape: tuple[int, int], gap: int, padding: int, big: bool, holder: Callable[[bytes], Any]
) -> None:
    # whole numbers up to 99 are exact in each of the eight types, so equality is to the bit
    points = np.arange(1.0, 1.0 + 3 * shape[0] * shape[1]).reshape(*shape, 3)
    message = packed(points, dict(zip("xyz", types)), gap, big, padding)
    message.data = holder(message.data)
    found = points_of(message)
    np.testing.assert_array_equal(found, points if shape[0] > 1 else points[0])
    assert found.dtype == (np.float32 if set(types) == {7} else np.float64)


def test_plain_float_points_are_not_copied() -> None:
    message = packed(np.ones((2, 4, 3)), dict.fromkeys("xyz", 7), 0, False)
    message.data = np.frombuffer(message.data, dtype=np.uint8)
    assert np.shares_memory(field_views(message, ("y",))[0], message.data)
    assert np.shares_memory(points_of(message), message.data)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"fields": [Field("x", 0, 7)]}, "lacks the field y, z; it has x"),
        ({"fields": []}, "lacks the field x, y, z; it has none"),
        ({"data": b"\0" * 95}, "cut short"),
        ({"row_step": 40}, "cut short"),
        ({"fields": [Field("x", 0, 7), Field("y", 4, 9), Field("z", 8, 7)]}, "datatype 9"),
        ({"fields": [Field("x", 0, 7), Field("y", 4, 7), Field("z", 9, 7)]}, "ends at byte 13 of points of 12"),
    ],
)
def test_a_malformed_cloud_is_one_line(changes: dict[str, Any], text: str) -> None:
    message = replace(packed(np.ones((2, 4, 3)), dict.fromkeys("xyz", 7), 0, False), **changes)
    with pytest.raises(ValueError, match=text) as error:
        points_of(message)
    assert "\n" not in str(error.value)


def test_an_empty_cloud_has_no_points() -> None:
    message = replace(packed(np.ones((1, 1, 3)), dict.fromkeys("xyz", 7), 0, False), width=0, data=b"", row_step=0)
    assert points_of(message).shape == (0, 3)


@pytest.mark.parametrize(("encoding", "kind"), [("16UC1", "u2"), ("mono16", "u2"), ("32FC1", "f4")])
@pytest.mark.parametrize("big", [False, True])
def test_a_depth_image_loses_its_padding_and_byte_order(encoding: str, kind: str, big: bool) -> None:
    item = np.dtype((">" if big else "<") + kind)
    depth = np.arange(6).reshape(2, 3)
    rows = np.zeros((2, 3 * item.itemsize + 5), dtype=np.uint8)
    rows[:, : 3 * item.itemsize] = depth.astype(item).view(np.uint8).reshape(2, -1)
    message = Message(2, 3, rows.tobytes(), big, encoding=encoding, step=rows.shape[1])
    found = depth_of(message)
    np.testing.assert_array_equal(found, depth)
    assert found.dtype == np.dtype(kind)
    with pytest.raises(ValueError, match="cut short"):
        depth_of(replace(message, height=3))
    with pytest.raises(ValueError, match="no depth"):
        depth_of(replace(message, encoding="bgr8"))
    with pytest.raises(ValueError, match="0x3 pixels"):
        depth_of(replace(message, height=0))


def test_a_lens_and_a_stamp() -> None:
    @dataclass
    class Info:
        width: int = 4
        height: int = 2
        k: tuple[float, ...] = (5.0, 0, 1.5, 0, 6.0, 0.5, 0, 0, 1)
        distortion_model: str = "plumb_bob"
        d: tuple[float, ...] = (0.0,) * 5

    @dataclass
    class Stamp:
        sec: int
        nanosec: int

    lens = lens_of(Info())
    assert (lens.width_px, lens.height_px, lens.fx_px, lens.fy_px, lens.cx_px, lens.cy_px) == (4, 2, 5, 6, 1.5, 0.5)
    assert lens.distortion == ()
    assert seconds_of(Stamp(3, 250_000_000)) == 3.25  # exact in binary
