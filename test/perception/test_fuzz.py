"""Whatever comes in, a result or a clear error comes out: no crash, no hang, no NaN handed on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.perception.cloud import Intrinsics, cloud_from_depth, cloud_from_points
from soft_estimator.perception.objects import NothingFound, ObjectFinder, ObjectPoints
from soft_estimator.perception.register import register
from soft_estimator.perception.settings import FinderSettings

RELAXED = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
DTYPES = ["<f4", "<f8", ">f4", ">f8", "f2", "i2", "i4", "u1", "u8", "c8", "?", "O", "U3"]
SHAPES = [(0, 3), (1, 3), (2, 3), (500, 3), (3000, 3), (1, 1, 3), (0, 5, 3), (7, 0, 3), (30, 40, 3), (1, 900, 3)]
SHAPES += [(5, 4), (3,), (2, 3, 4, 3)]  # no clouds
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-300, 1e300, -1e300, 3.4e38, 1.0, 2.0])


def check(result: ObjectPoints | NothingFound, size: int) -> None:
    assert result.why.size == size
    if isinstance(result, NothingFound):
        assert result.reason and "\n" not in result.reason
        return
    assert 0 < len(result.points_m) <= FinderSettings().point_budget
    assert np.isfinite(result.points_m).all() and np.isfinite(result.std_m).all() and (result.std_m > 0).all()


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of odd shape, type, layout and content; some are scenes with a plane and a lump."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from(SHAPES))
    values = rng.normal(size=shape) * draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0, 50.0, 1e12])) + draw(
        st.sampled_from([0.0, 1.0])
    )
    if draw(st.booleans()) and shape[-1] == 3 and values.size > 30:
        flat = values.reshape(-1, 3)
        flat[: len(flat) * 2 // 3, 2] = 1.0 + 0.001 * rng.standard_normal(len(flat) * 2 // 3)
        flat[len(flat) * 2 // 3 :] = 0.02 * rng.standard_normal((len(flat) - len(flat) * 2 // 3, 3)) + (0, 0, 0.9)
    share = draw(st.sampled_from([0.0, 0.01, 0.5, 1.0]))
    values = np.where(rng.random(values.shape) < share, rng.choice(SPECIAL, values.shape), values)
    if draw(st.booleans()) and values.ndim == 2 and len(values) > 1:
        values[1:] = values[0]  # duplicates
    with np.errstate(all="ignore"):
        array = np.nan_to_num(values).astype(draw(st.sampled_from(DTYPES))) if draw(st.booleans()) else values
    layout = draw(st.sampled_from(["C", "F", "reversed", "strided", "readonly"]))
    if layout == "F":
        array = np.asfortranarray(array)
    elif layout == "reversed":
        array = array[::-1]
    elif layout == "strided":
        array = np.repeat(array, 2, axis=0)[::2]
    elif layout == "readonly":
        array = array.copy()
        array.flags.writeable = False
    return array


@RELAXED
@given(arrays(), st.sampled_from(["fit", "none"]))
def test_any_array_of_points(array: np.ndarray, support: str) -> None:
    try:
        cloud = cloud_from_points(array)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    finder = ObjectFinder(FinderSettings(support=support, min_points=10))
    for _ in range(2):  # the second frame is followed, not found
        check(finder.process(cloud), cloud.size)


@RELAXED
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(["u2", ">u2", "f4", ">f4", "f8", "f2", "i4", "u1", "c8"]), st.booleans()
)
def test_any_depth_image(seed: int, dtype: str, flat: bool) -> None:
    rng = np.random.default_rng(seed)
    lens = Intrinsics(int(rng.integers(1, 60)), int(rng.integers(1, 50)), 50.0, 50.0, 20.0, 20.0)
    shape = (lens.height_px, lens.width_px)
    image = np.full(shape, 1.0) if flat else rng.uniform(-0.5, 2.0, shape)
    image = np.where(rng.random(shape) < 0.1, rng.choice(SPECIAL, shape), image)
    with np.errstate(all="ignore"):
        image = (np.nan_to_num(image, posinf=9, neginf=0) * (1000 if "u2" in dtype else 1)).astype(dtype)
    try:
        cloud = cloud_from_depth(image, lens)
    except ValueError as error:
        assert "\n" not in str(error)
        return
    check(ObjectFinder(FinderSettings(min_points=5)).process(cloud), image.size)


@settings(RELAXED, max_examples=15)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 19, 20, 300]), st.sampled_from([1e-9, 0.01, 0.05, 5.0]))
def test_any_points_to_register(seed: int, count: int, size: float) -> None:
    points = size * np.random.default_rng(seed).normal(size=(count, 3)) + (0, 0, 1.0)
    result = register(sample(Sphere(0.05), 0.01), points, np.full(count, 0.001), np.zeros(3))
    reason = getattr(result, "reason", "fits")
    assert reason and "\n" not in reason


@pytest.mark.parametrize("count", [10_000_000])
def test_ten_million_points(count: int) -> None:
    # a table with a block on it, unorganised, in single precision
    rng = np.random.default_rng(0)
    points = np.empty((count, 3), dtype=np.float32)
    points[:, :2] = rng.random((count, 2), dtype=np.float32) * 2 - 1
    points[:, 2] = 1.5
    points[: count // 20, :2] *= 0.1
    points[: count // 20, 2] -= 0.1
    check(ObjectFinder().process(cloud_from_points(points)), count)
