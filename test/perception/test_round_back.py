"""The back of a round body is its front, mirrored where the camera's rays graze it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from soft_estimator.perception.round_back import rear_depth_m, without_tails

FOCAL_PX, SHAPE = 280.0, (180, 240)


def rays() -> np.ndarray:
    """Directions (h, w, 3) of depth 1 of a pinhole."""
    v, u = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return np.stack([(u - 119.5) / FOCAL_PX, (v - 89.5) / FOCAL_PX, np.ones(SHAPE)], axis=-1)


def ellipsoid(centre_m: tuple[float, float, float], axes_m: np.ndarray, noise_m: float = 0.0) -> tuple[np.ndarray, ...]:
    """Depths (h, w) [m] at which rays enter and leave the ellipsoid |M (x - c)| = 1, M = diag(1/a) Qᵀ, and where they
    do. axes_m: its half axes as columns, (3, 3). The last pixel of its outline is lost, as edge removal does."""
    lengths = np.linalg.norm(axes_m, axis=0)
    scaled = (axes_m / lengths).T / lengths[:, None]
    ray, start = rays() @ scaled.T, -scaled @ np.array(centre_m)
    a, b, c = (ray**2).sum(axis=-1), (ray * start).sum(axis=-1), start @ start - 1.0
    inside = b**2 - a * c
    root = np.sqrt(np.maximum(inside, 0.0))
    noise = noise_m * np.random.default_rng(0).standard_normal(SHAPE)
    return (-b - root) / a + noise, (-b + root) / a, ndimage.binary_erosion(inside > 0)


AXES = {
    "ball": np.diag([0.045, 0.045, 0.045]),
    "egg": np.diag([0.07, 0.035, 0.04]),
    "slanted": np.array([[0.05, 0.0, -0.03], [0.0, 0.04, 0.0], [0.03, 0.0, 0.05]]),
}


@pytest.mark.parametrize("noise_m", [0.0, 0.0005])
@pytest.mark.parametrize("name", AXES)
def test_an_ellipsoid_gets_its_back(name: str, noise_m: float) -> None:
    """Rays leave it at 2 P - d, P on the plane through its rim. √s is the first term of √(2Rs - s²): over 6 of 25 px
    it falls 7 % too fast, which puts P an eighth of the thickness too near at the most where nothing is smoothed. The
    volume is that of the intervals, Σ (out³ - in³) / 3 dΩ."""
    near, far, body = ellipsoid((0.01, 0.0, 0.5), AXES[name], noise_m)
    rear = rear_depth_m(np.where(body, near, 0.0), body, FOCAL_PX)
    true, found = (far**3 - near**3)[body].sum(), (rear**3 - near**3)[body].sum()
    assert 0.8 * true < found < 1.05 * true
    # Nothing of it is flat: it is thickest where the ellipsoid is, within a fifth.
    assert (rear - near)[body].max() == pytest.approx((far - near)[body].max(), rel=0.2)


def test_a_part_before_another_has_a_rim_of_its_own() -> None:
    """A small ball 10 cm before a large one: it is as thick as itself, 4 cm within a quarter, not as both together."""
    large, small = ellipsoid((0, 0, 0.56), np.diag([0.06] * 3)), ellipsoid((0.03, 0.02, 0.42), np.diag([0.02] * 3))
    front = small[2]
    depth = np.where(front, small[0], large[0])
    rear = rear_depth_m(np.where(large[2] | front, depth, 0.0), large[2] | front, FOCAL_PX)
    assert (rear - small[0])[front].max() == pytest.approx(0.04, rel=0.25)


def _of_balls(*balls: tuple[tuple[float, float, float], float]) -> np.ndarray:
    """φ of a union of balls (centre, radius) on 60³ voxels."""
    x = np.stack(np.mgrid[:60, :60, :60], axis=-1)
    return np.min([np.linalg.norm(x - np.array(centre), axis=-1) - radius for centre, radius in balls], axis=0)


def _front(phi: np.ndarray) -> np.ndarray:
    """Nodes within a voxel of the surface that nothing hides from a camera far off in -x."""
    first = (np.cumsum(phi < 0.5, axis=0) <= 2) & (np.abs(phi) <= 1.0)
    return first & (np.gradient(phi, axis=0) < 0)


def test_a_ball_and_a_rod_keep_their_backs() -> None:
    """The back of a ball is √2 R from the rim of its front, 0.71 of its thickness; so is a rod's across its axis."""
    ball = _of_balls(((28, 30, 30), 15.0))
    rod = _of_balls(*(((28, y, 30), 6.0) for y in np.arange(12, 49, 1.0)))
    for phi in (ball, rod):
        assert ((without_tails(phi, _front(phi), 1.0) < 0) == (phi < 0)).all()


def test_a_tail_that_points_away_is_cut_off() -> None:
    """A rod of a fifth of the ball's width behind it, where no camera saw it: what lies more than 0.8 of its thickness
    of 6 voxels, and a voxel, behind the ball's front is gone; the ball, all of which is within reach, stays."""
    ball = _of_balls(((18, 30, 30), 15.0))
    tail = _of_balls(*(((x, 30, 30), 3.0) for x in np.arange(34, 56, 1.0)))
    phi = np.minimum(ball, tail)
    kept = without_tails(phi, _front(phi), 1.0) < 0
    assert (kept | ~(ball < 0)).all()
    assert not kept[38:].any()
    assert (phi[38:] < 0).sum() > 300
