"""What was seen of balls and rods tells all of them: the largest balls that touch it from within."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.perception.fusion import Field
from soft_estimator.perception.inner_balls import inner_balls, union_m

VOXEL_M, CUT_M = 0.003, 0.0075
Ball = tuple[tuple[float, float, float], float]  # centre and radius, in voxels


def body_of(*balls: Ball) -> np.ndarray:
    """φ [m] of a union of balls on 44 x 60 x 44 nodes, whose fourth layer is the support."""
    nodes = np.stack(np.mgrid[:44, :60, -3:41], axis=-1).astype(float)
    return VOXEL_M * np.min([np.linalg.norm(nodes - np.array(c), axis=-1) - r for c, r in balls], axis=0)


def seen_from_x(phi: np.ndarray, noise_m: float = 0.0) -> tuple[Field, Field]:
    """What a camera far off in x knows of a body and its support, and of the body alone: free space up to the first
    surface along each ray, distances near that, and nothing behind it."""
    first = np.cumsum((phi < 0)[::-1], axis=0)[::-1]  # how many nodes of the body a ray from x has met
    front = (np.abs(phi) <= CUT_M) & (first <= CUT_M / VOXEL_M + 1) & (np.gradient(phi, axis=0) > 0)
    noisy = phi + noise_m * np.random.default_rng(0).standard_normal(phi.shape)
    free = ((first == 0) & (phi > CUT_M)).astype(float)
    origin = VOXEL_M * np.array([0.0, 0.0, -3.0])
    field = Field(origin, VOXEL_M, CUT_M, np.where(front, noisy, 0.0), front.astype(float), free)
    return field, field


def found(phi: np.ndarray, noise_m: float = 0.0) -> np.ndarray:
    """Inside of the balls that touch what was seen from within, and of no free space."""
    field, body = seen_from_x(phi, noise_m)
    return (union_m(field, *inner_balls(field, body, stands=True)) < 0) & (field.free == 0)


BODIES: dict[str, list[Ball]] = {
    "ball": [((22, 30, 13), 13.0)],
    "two balls": [((20, 18, 12), 12.0), ((24, 38, 15), 15.0)],
    "rod": [((20, y, 9), 9.0) for y in np.arange(14, 47, 1.0)],
    "ball on a rod": [((20, 30, 26), 9.0), *(((20, y, 10), 10.0) for y in np.arange(14, 47, 1.0))],
}


@pytest.mark.parametrize(
    ("name", "noise_m"), [("ball", 0.0003), ("two balls", 0.0), ("rod", 0.0003), ("ball on a rod", 0.0)]
)
def test_balls_and_rods_get_their_backs_and_undersides(name: str, noise_m: float) -> None:
    """All of them are balls that touch their fronts. A front within half a voxel of the truth, 10 to 15 voxels from the
    centre, is up to a tenth of the volume, and so is the fillet that balls leave where two parts meet; half of the body
    is unseen. The underside, which nobody saw, reaches the support where the body does."""
    phi = body_of(*BODIES[name])
    true, made = phi < 0, found(phi, noise_m)
    assert (true != made).sum() < 0.15 * true.sum()
    assert made.sum() == pytest.approx(true.sum(), rel=0.12)
    unseen_low = true & (np.arange(44) < 22)[:, None, None] & (np.arange(-3, 41) <= 3)
    assert (made & unseen_low).sum() > 0.7 * unseen_low.sum()


def test_a_part_in_the_air_does_not_reach_down_to_the_support() -> None:
    """A ball whose lower side is ten voxels above the support, seen free around it: it stays as large as it is, though
    a ball that stands on the support would touch its top as well."""
    phi = body_of(((22, 30, 22), 12.0))
    made = found(phi)
    assert made.any(axis=(0, 1)).nonzero()[0][0] >= 3 + 8
    assert made.sum() == pytest.approx((phi < 0).sum(), rel=0.1)


def test_what_is_thinner_than_a_voxel_is_no_part_of_it() -> None:
    """A trail of stray pixels behind the outline, a node thick, holds no ball of a voxel's radius."""
    phi = np.minimum(body_of(((28, 30, 12), 12.0)), body_of(*(((x, 44, 20), 0.6) for x in np.arange(4, 30, 1.0))))
    made = found(phi)
    assert not made[:, 43:].any()
    assert made.sum() == pytest.approx((body_of(((28, 30, 12), 12.0)) < 0).sum(), rel=0.1)


def test_nothing_seen_is_nothing_found() -> None:
    """No place, no ball: φ is outside everywhere."""
    field, body = seen_from_x(np.full((44, 60, 44), 1.0))
    centre, radius = inner_balls(field, body, stands=True)
    assert len(centre) == len(radius) == 0
    assert (union_m(field, centre, radius) == CUT_M).all()
