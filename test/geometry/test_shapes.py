"""Analytic shapes: exact distance, tight bounds, and where the grid planes fall."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.shapes import Box, Capsule, Cylinder, Placed, Sphere, Torus, Union, plan_grid, sample


def rotation(axis, angle):
    x, y, z = np.asarray(axis, dtype=float) / np.linalg.norm(axis)
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


TILT = rotation((1, 2, -0.5), 0.7)
CONVEX_AND_RING = {
    "box": Box((0.2, 0.1, 0.3), (0.1, 0.0, -0.2)),
    "sphere": Sphere(0.15, (0.3, -0.1, 0.2)),
    "cylinder": Cylinder(0.12, 0.2, (0.1, 0.2, 0.0), axis=(1, 1, 2)),
    "torus": Torus(0.2, 0.05, (0.1, 0.2, 0.0), axis=(1, 1, 2)),
    "capsule": Capsule((0.0, 0.1, 0.0), (0.2, 0.0, 0.3), 0.07),
    "tilted box": Placed(Box((0.2, 0.1, 0.3)), TILT, (0.4, 0.1, -0.3)),
    "tilted torus": Placed(Torus(0.2, 0.05), TILT, (0.0, 0.1, 0.0)),
}


def around(shape, count, seed=0):
    low, high = shape.bounds_m()
    return np.random.default_rng(seed).uniform(low - 0.1, high + 0.1, (count, 3))


@pytest.mark.parametrize("name", CONVEX_AND_RING)
def test_distance_is_an_exact_distance(name):
    """|∇φ| = 1, and x - φ ∇φ lies on the surface: together they say φ is the distance, not a mere implicit function.

    Central differences of step 1e-6 err by 1e-10/1e-6 of rounding and by (1e-6)² of curvature, so 1e-6 is ample; points
    within 1e-3 of the medial axis, where ∇φ jumps, show as |∇φ| well below one and are the only ones left out.
    """
    shape = CONVEX_AND_RING[name]
    x = around(shape, 4000)
    phi = shape.distance_m(x)
    step = 1e-6
    gradient = np.stack(
        [(shape.distance_m(x + step * e) - shape.distance_m(x - step * e)) / (2 * step) for e in np.eye(3)], axis=1
    )
    length = np.linalg.norm(gradient, axis=1)
    smooth = np.abs(length - 1) < 1e-6
    assert smooth.mean() > 0.99
    foot = x[smooth] - phi[smooth, None] * gradient[smooth]
    assert np.abs(shape.distance_m(foot)).max() < 1e-6
    assert (phi < 0).any() and (phi > 0).any()


@pytest.mark.parametrize("name", CONVEX_AND_RING)
def test_bounds_are_tight(name):
    """The bounds are max and min of each coordinate over the surface points x - φ ∇φ; 20 000 random ones come within
    2 % of the body's size of them and never lie outside (1e-6: see above)."""
    shape = CONVEX_AND_RING[name]
    low, high = shape.bounds_m()
    x = around(shape, 20000)
    for _ in range(3):  # projected again: one step from beyond a medial axis may land off the surface
        phi = shape.distance_m(x)
        g = np.stack(
            [(shape.distance_m(x + 1e-6 * e) - shape.distance_m(x - 1e-6 * e)) / 2e-6 for e in np.eye(3)], axis=1
        )
        x = x - phi[:, None] * g
    x = x[np.abs(shape.distance_m(x)) < 1e-7]
    assert (x > low - 1e-6).all() and (x < high + 1e-6).all()
    slack = 0.02 * (high - low).max()
    assert (x.min(axis=0) < low + slack).all() and (x.max(axis=0) > high - slack).all()


def test_torus_axes_and_placement_agree():
    """Turning the frame of a torus is the same as turning its axis."""
    x = np.random.default_rng(1).uniform(-0.4, 0.4, (500, 3))
    by_axis = Torus(0.2, 0.05, axis=TILT @ [0, 0, 1], centre_m=(0.1, 0, 0)).distance_m(x)
    by_place = Placed(Torus(0.2, 0.05), TILT, (0.1, 0, 0)).distance_m(x)
    np.testing.assert_allclose(by_axis, by_place, atol=1e-15 * 100)


def test_union_is_the_minimum_and_covers_both():
    parts = (Sphere(0.1), Box((0.1, 0.1, 0.4), (0.1, 0, 0)))
    x = around(Union(parts), 500)
    np.testing.assert_array_equal(
        Union(parts).distance_m(x), np.minimum(parts[0].distance_m(x), parts[1].distance_m(x))
    )
    low, high = Union(parts).bounds_m()
    np.testing.assert_allclose(low, [-0.1, -0.1, -0.2])
    np.testing.assert_allclose(high, [0.15, 0.1, 0.2])


@pytest.mark.parametrize("cells", [4, 7, 8])
def test_box_faces_fall_on_grid_planes(cells):
    """A beam whose sides are multiples of h: face nodes have φ = 0 to the bit, cells inside the faces are all full, and
    their number times h³ is the volume."""
    size = np.array([0.2, 0.03, 0.02])
    h = 0.02 / cells if cells != 7 else 0.03 / 7
    size[2] = round(0.02 / h) * h
    size[0] = round(0.2 / h) * h
    size[1] = round(0.03 / h) * h
    grid = sample(Box(size, (0.013, -0.2, 1.1)), h)
    counts = np.round(size / h).astype(int)
    assert (grid.phi_m < 0).sum() == np.prod(counts - 1)
    assert (grid.phi_m <= 0).sum() == np.prod(counts + 1)
    assert (grid.phi_m == 0).sum() == np.prod(counts + 1) - np.prod(counts - 1)


def test_any_other_box_is_symmetric_in_its_grid():
    """φ mirrored about the body's centre is φ: no direction is favoured. Rounding of the mirror is 1e-15."""
    grid = sample(Box((0.2, 0.033, 0.0217), (0.013, -0.2, 1.1)), 0.004)
    np.testing.assert_allclose(grid.phi_m, grid.phi_m[::-1, ::-1, ::-1], atol=1e-14)
    centre = grid.origin_m + 0.5 * grid.spacing_m * (np.array(grid.shape) - 1)
    np.testing.assert_allclose(centre, [0.013, -0.2, 1.1], atol=1e-14)


@pytest.mark.parametrize("align", ["bounds", "centre", "origin"])
@pytest.mark.parametrize("margin", [1, 3])
def test_margin_of_outside_nodes(align, margin):
    """Every inside node is more than margin layers away from the border."""
    grid = sample(CONVEX_AND_RING["tilted box"], 0.017, margin, align)
    for axis in range(3):
        body = np.flatnonzero((grid.phi_m <= 0).any(axis=tuple(k for k in range(3) if k != axis)))
        assert body[0] >= margin and body[-1] <= grid.shape[axis] - 1 - margin


def test_alignments_put_nodes_where_they_say():
    shape, h = Sphere(0.1, (0.033, 0.2, -0.1)), 0.013
    node = (np.array(shape.centre_m) - sample(shape, h, align="centre").origin_m) / h
    np.testing.assert_allclose(node, np.round(node), atol=1e-9)
    node = sample(shape, h, align="origin").origin_m / h
    np.testing.assert_allclose(node, np.round(node), atol=1e-9)


def test_grid_too_large_is_refused_before_it_is_allocated():
    with pytest.raises(
        ValueError, match=r"spacing_m 1e-07 needs 8\S+ nodes .*GB.*budget of 50000000 nodes; use a spacing"
    ) as e:
        sample(Sphere(1.0), 1e-7)
    assert "\n" not in str(e.value)
    fitting = float(str(e.value).split("spacing of ")[1].split(" m")[0])
    _, counts = plan_grid(np.full(3, -1.0), np.ones(3), fitting)
    assert 0.9 * 50e6 < np.prod(counts) <= 50e6


def test_grid_too_coarse_is_refused():
    with pytest.raises(
        ValueError, match=r"spacing_m 0\.5 is too coarse: no grid node lies inside the body of size 0\.1 x 0\.1 x 0\.1"
    ):
        sample(Sphere(0.05), 0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box((0.1, -0.1, 0.1)), "Box size_m must be positive"),
        (lambda: Box((0.1, 0.1)), "Box size_m must be three"),
        (lambda: Sphere(0.0), "Sphere radius_m must be positive, got 0.0"),
        (lambda: Sphere(float("nan")), "Sphere radius_m must be positive, got nan"),
        (lambda: Torus(0.1, 0.2), "must be smaller than major_radius_m"),
        (lambda: Torus(0.2, 0.1, axis=(0, 0, 0)), "axis must not be zero"),
        (lambda: Cylinder(0.2, 0.1, axis=(0, 0, 0)), "axis must not be zero"),
        (lambda: Cylinder(0.2, 0.0), "height_m must be positive"),
        (lambda: Capsule((0, 0, 0), (0, 0, 0), 0.1), "use a Sphere"),
        (lambda: Union(()), "empty"),
        (lambda: Placed(Sphere(1.0), np.diag([1, 1, -1])), "reflection"),
        (lambda: Placed(Sphere(1.0), 2 * np.eye(3)), "orthonormal"),
        (lambda: sample(Sphere(1.0), 0.0), "spacing_m must be positive"),
        (lambda: sample(Sphere(1.0), 0.3, margin_cells=0), "margin_cells must be at least 1"),
        (lambda: sample(Sphere(1.0), 0.3, align="left"), "align must be"),
        (lambda: sample(Sphere(1.0), 0.3, node_budget=10), "too small for any spacing"),
    ],
)
def test_nonsense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
