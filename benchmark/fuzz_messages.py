"""Sensor messages with fields that do not fit together, put through the same functions as those of a live graph.

A message becomes points, a lens or a pose, or is refused by a ValueError of one line; anything else is a finding. The
messages are plain objects with the fields of sensor_msgs: the conversions look at fields alone, whoever decoded them.
"""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
from fuzz_scenes import check_line

from soft_estimator.perception.cloud import cloud_from_depth, cloud_from_points
from soft_estimator.perception.objects import ObjectFinder, ObjectPoints
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.recordings.messages import depth_of, lens_of, points_of
from soft_estimator.recordings.transforms import TransformTree

INTEGERS = [0, 1, 2, 3, 4, 7, 8, 12, 16, 20, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf, 1e-9, 1e9, 60.0]
TEXTS = ["x", "y", "z", "", "rgb", "X", "intensity", "\x1b[31m", "<script>", "é" * 200]
ENCODINGS = ["16UC1", "32FC1", "mono16", "rgb8", "", "8UC1", "64FC1", "32fc1"]
MODELS = ["plumb_bob", "", "rational_polynomial", "equidistant", "\x00"]
_FINDER = FinderSettings(min_points=5)


def mostly(rng: random.Random, good: Any, bad: list[Any], share: float = 0.12) -> Any:
    """The good value, and with some share a bad one."""
    return rng.choice(bad) if rng.random() < share else good


def random_data(rng: random.Random, size: int, values: np.ndarray) -> Any:
    """`size` bytes that begin with these values, of one of the types that decoders hand over."""
    raw = values.tobytes()
    raw = (raw + bytes(max(0, size - len(raw))))[: max(size, 0)]
    if rng.random() < 0.1:
        raw = raw[: rng.randrange(len(raw) + 1)]
    kind = rng.randrange(3)
    return raw if kind == 0 else bytearray(raw) if kind == 1 else np.frombuffer(raw, dtype=np.uint8)


def scene_points(rng: random.Random, count: int) -> np.ndarray:
    """A table with a lump on it, some points odd, (n, 3)."""
    source = np.random.default_rng(rng.randrange(2**32))
    points = source.uniform(-0.5, 0.5, (count, 3)) + np.array([0.0, 0.0, 1.0])
    points[: count * 2 // 3, 2] = 1.2
    odd = source.random((count, 3)) < rng.choice([0, 0, 0.01, 0.5])
    return np.where(odd, source.choice(NUMBERS, (count, 3)), points)


def cloud_message(rng: random.Random) -> SimpleNamespace:
    height, width, step = rng.choice([1, 1, 4, 12]), rng.choice([0, 1, 5, 40, 300]), rng.choice([12, 16, 32])
    with np.errstate(all="ignore"):
        points = scene_points(rng, height * width).astype("<f4")
    rows = np.zeros((height * width, step // 4), dtype="<f4")
    rows[:, :3] = points
    fields = [
        SimpleNamespace(name=mostly(rng, axis, TEXTS, 0.05), offset=mostly(rng, 4 * k, INTEGERS, 0.05),
                        datatype=mostly(rng, 7, [0, 1, 2, 3, 4, 5, 6, 8, 9, 255], 0.05), count=1)
        for k, axis in enumerate("xyz")
    ]  # fmt: skip
    if rng.random() < 0.1:
        fields = rng.sample(fields, rng.randrange(len(fields)))
    return SimpleNamespace(
        height=mostly(rng, height, INTEGERS, 0.08), width=mostly(rng, width, INTEGERS, 0.08), fields=fields,
        is_bigendian=rng.random() < 0.1, point_step=mostly(rng, step, INTEGERS, 0.08),
        row_step=mostly(rng, step * width, INTEGERS), data=random_data(rng, rows.nbytes, rows), is_dense=False,
    )  # fmt: skip


def image_message(rng: random.Random) -> tuple[SimpleNamespace, SimpleNamespace]:
    """A depth image and its CameraInfo."""
    height, width = rng.choice([1, 4, 24]), rng.choice([1, 5, 32])
    encoding = mostly(rng, rng.choice(["16UC1", "32FC1"]), ENCODINGS)
    depth = scene_points(rng, height * width)[:, 2]
    with np.errstate(all="ignore"):
        pixels = (1000 * np.nan_to_num(depth)).astype("<u2") if "16" in encoding else depth.astype("<f4")
    image = SimpleNamespace(
        height=mostly(rng, height, INTEGERS, 0.08), width=mostly(rng, width, INTEGERS, 0.08), encoding=encoding,
        is_bigendian=int(rng.random() < 0.1), step=mostly(rng, width * pixels.itemsize, INTEGERS),
        data=random_data(rng, pixels.nbytes, pixels),
    )  # fmt: skip
    k = [mostly(rng, value, NUMBERS, 0.05) for value in (30.0, 0.0, 16.0, 0.0, 30.0, 12.0, 0.0, 0.0, 1.0)]
    d = [mostly(rng, 0.0, [*NUMBERS, 0.1, -0.3], 0.1) for _ in range(mostly(rng, 5, [0, 1, 4, 6, 8, 1000]))]
    info = SimpleNamespace(
        height=mostly(rng, height, INTEGERS, 0.05), width=mostly(rng, width, INTEGERS, 0.05),
        distortion_model=mostly(rng, "plumb_bob", MODELS), d=d, k=k if rng.random() > 0.02 else k[:5],
    )  # fmt: skip
    return image, info


def tree_message(rng: random.Random) -> SimpleNamespace:
    """A TFMessage between a few frames, loops and NaN among them."""
    entries = []
    for _ in range(rng.choice([0, 1, 3, 8, 1200])):
        quaternion = rng.choice([(0.0, 0.0, 0.0, 1.0), (0.5, 0.5, 0.5, 0.5), (1.0, 0.0, 0.0, 0.0)])
        x, y, z, w = (mostly(rng, value, NUMBERS, 0.02) for value in quaternion)
        place = SimpleNamespace(**{axis: mostly(rng, 0.1, NUMBERS, 0.05) for axis in "xyz"})
        stamp = SimpleNamespace(sec=rng.randrange(-(2**31), 2**31), nanosec=rng.randrange(2**32))
        header = SimpleNamespace(frame_id=rng.choice("abcde/") + str(rng.randrange(2000) // 400), stamp=stamp)
        turn = SimpleNamespace(x=x, y=y, z=z, w=w)
        entries.append(SimpleNamespace(header=header, child_frame_id=rng.choice("abcde") + str(rng.randrange(2000)),
                                       transform=SimpleNamespace(rotation=turn, translation=place)))  # fmt: skip
    return SimpleNamespace(transforms=entries)


def try_message(seed: int, looked_at: bool = False) -> str:
    """Convert the message of a seed: "taken" or "refused"; with `looked_at` the object is searched in it, too."""
    rng = random.Random(f"message {seed}")
    kind = rng.choice(["cloud", "cloud", "image", "image", "tree"])
    try:
        with np.errstate(all="ignore"):
            if kind == "tree":
                tree = TransformTree()
                for _ in range(2):
                    tree.add(tree_message(rng), static=rng.random() < 0.3)
                tree.pose(rng.choice("abc") + "1", rng.choice("abc") + "2", rng.choice([None, 0.0, math.nan]))
                return "taken"
            if kind == "cloud":
                cloud = cloud_from_points(points_of(cloud_message(rng)))
            else:
                image, info = image_message(rng)
                cloud = cloud_from_depth(depth_of(image), lens_of(info))
            if looked_at:
                found = ObjectFinder(_FINDER).process(cloud)
                if isinstance(found, ObjectPoints) and not np.isfinite(found.points_m).all():
                    raise AssertionError("points that are not finite were handed on")
    except ValueError as error:
        check_line(error)
        return "refused"
    return "taken"
