"""A body whose skin is finer than its cells: a box' edges stay sharp wherever they lie in the grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gradient_suite import check_simulation
from scipy.spatial.transform import Rotation

from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.geometry.body_file import read_body, read_detail, write_body
from soft_estimator.geometry.shapes import Box, refine, sample_distance
from soft_estimator.perception.rest_shape import rest_shape_from_primitive
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

# The high faces lie a half, a quarter and three quarters of a cell beyond the last plane of the grid.
SPACING, SIZE = 0.012, np.array([5.5, 4.25, 6.75]) * 0.012
BOX = Box(SIZE, 0.5 * SIZE)


def made(sharp: bool = True) -> Body:
    grid = sample_distance(BOX.distance_m, np.zeros(3), np.ceil(SIZE / SPACING) * SPACING, SPACING)
    return build_body(grid, detail=refine(BOX.distance_m, grid, 4), sharp=sharp)


def on_faces(count: int) -> np.ndarray:
    """Points (n, 3) [m] all over the box' faces, its edges and corners too."""
    rng = np.random.default_rng(0)
    at, face = rng.random((count, 3)), rng.integers(0, 6, count)
    at[np.arange(count), face % 3] = face // 3
    at[:50] = np.round(at[:50])
    return at * SIZE


def contact_points_m(body: Body) -> np.ndarray:
    points = body.contact_points
    return np.einsum("pc,pcd->pd", points.weight, body.node_position_m[points.nodes])


def test_what_touches_is_the_box_itself() -> None:
    """∫dA over the contact points is 2 (ab + bc + ca), ∫x dA/A is the middle, and all lie on faces: to rounding, for
    the faces lie on planes of the skin's grid. The grid's own surface has its edges bevelled by up to a cell."""
    body = made()
    a, b, c = SIZE
    area, points = body.contact_points.area_m2, contact_points_m(body)
    assert area.sum() == pytest.approx(2 * (a * b + b * c + c * a), rel=1e-9)
    np.testing.assert_allclose(area @ points / area.sum(), 0.5 * SIZE, atol=1e-9)
    np.testing.assert_allclose(BOX.distance_m(points), 0.0, atol=1e-9)
    assert body.volume_m3 == pytest.approx(a * b * c, rel=1e-9)
    blunt = contact_points_m(made(sharp=False))
    assert BOX.distance_m(blunt).min() < -0.2 * SPACING


def test_what_is_seen_is_the_box_itself_wherever_it_goes() -> None:
    """Points on the faces have no distance, at rest and after a turn and a shift of the whole body, which the carried
    field follows exactly: x = R X + t is affine."""
    body = made()
    field, turn, shift = carry_field(body), Rotation.from_rotvec([0.3, -0.5, 0.2]).as_matrix(), np.array([0.1, 0.2, 0])
    for rotation, translation in ((np.eye(3), np.zeros(3)), (turn, shift)):
        u = body.node_position_m @ rotation.T + translation - body.node_position_m
        points = on_faces(600) @ rotation.T + translation
        frame = ObservedFrame.of(0.0, points, 1e-3, 0.0)
        found = point_residuals(body, field, frame, u)
        assert not found.far.any()
        np.testing.assert_allclose(found.value_m, 0.0, atol=1e-7)
    blunt = made(sharp=False)
    frame = ObservedFrame.of(0.0, on_faces(600), 1e-3, 0.0)
    off = point_residuals(blunt, carry_field(blunt), frame, np.zeros_like(blunt.node_position_m)).value_m
    assert off.max() > 0.2 * SPACING


def test_distances_change_with_the_nodes_as_differences_say() -> None:
    """r(u + ε v) - r(u - ε v) = 2 ε r'(u) v + O(ε³), for points near the faces and a bent body."""
    body, rng = made(), np.random.default_rng(1)
    field = carry_field(body)
    x = body.node_position_m
    u = 0.05 * np.stack([x[:, 1] * x[:, 2], x[:, 0] ** 2, -x[:, 0] * x[:, 1]], axis=1) / SPACING
    points = on_faces(200)[50:] * 0.9 + 0.05 * SIZE + 5e-4 * rng.standard_normal((150, 3))
    frame = ObservedFrame.of(0.0, points, 1e-3, 0.0)
    v, step = rng.standard_normal(x.shape) * 1e-3, 1e-4
    ahead, behind = (point_residuals(body, field, frame, u + sign * step * v).value_m for sign in (1, -1))
    exact = point_residuals(body, field, frame, u).change(v)
    differences = (ahead - behind) / (2 * step)
    # Between cells the field has kinks: a point whose cell changes within the step is one in a hundred.
    assert np.quantile(np.abs(exact - differences), 0.98) < 1e-5 * np.abs(differences).max()


@pytest.mark.slow
def test_a_step_on_a_corner_of_the_skin_has_exact_derivatives() -> None:
    """p ∂J/∂p of what a landing depends on, through two steps: tangent = adjoint = differences (`gradient_suite`). The
    box is turned by 0.1 rad and a corner of it lies some millimetres below the plane."""
    model = build_model(made(), theta_scheme(0.004), contact=ContactLaw(2e6, 500.0), solver=SolverSettings(1e-13, 3000))
    parameters = Parameters(
        youngs_modulus_pa=np.array([2e4]),
        poissons_ratio=0.35,
        density_kg_m3=500.0,
        mass_damping_per_s=0.5,
        stiffness_damping_s=0.002,
        gravity_m_s2=np.array([0.1, 0.2, -9.81]),
        plane_normal=np.array([0.02, 0.0, np.sqrt(1 - 0.02**2)]),
        plane_offset_m=0.0005,
        translation_m=np.array([0.001, 0.002, 0.001]),
        rotation_rad=np.array([0.1, -0.05, 0.2]),
        velocity_m_s=np.array([0.1, 0.05, -0.8]),
        angular_velocity_rad_s=np.array([0.3, -0.2, 0.1]),
    )
    judge = ("youngs_modulus_pa", "poissons_ratio", "plane_offset_m", "rotation_rad", "velocity_m_s")
    check_simulation(lambda p: Simulation(model, p), model.complete(parameters), 2, judge=judge)


def test_a_box_is_put_on_planes_of_its_skin() -> None:
    """Any box: all corners of the skin within 0.7 mm of its own along each side, the low faces where they were."""
    for size in ((0.0775, 0.07696, 0.07722), (0.0638, 0.1122, 0.0774), (0.05, 0.081, 0.123)):
        box = Box(size, (0.0, 0.0, 0.5 * size[2]))
        grid, detail = rest_shape_from_primitive(box, 400)
        points = contact_points_m(build_body(grid, detail=detail, sharp=True))
        low, high = box.bounds_m()
        np.testing.assert_allclose(points.min(axis=0), low, atol=1e-9)
        np.testing.assert_allclose(points.max(axis=0), high, atol=7e-4)
        assert np.abs(box.distance_m(points)).max() < 7e-4


def test_a_body_file_keeps_the_skin(tmp_path: Path) -> None:
    grid, detail = rest_shape_from_primitive(BOX, 200)
    write_body(tmp_path / "body.npz", grid, detail)
    back = read_body(tmp_path / "body.npz")
    found = read_detail(tmp_path / "body.npz", back)
    assert found is not None and found.spacing_m == pytest.approx(detail.spacing_m)
    np.testing.assert_array_equal(found.phi_m, detail.phi_m)
    write_body(tmp_path / "plain.npz", grid)
    assert read_detail(tmp_path / "plain.npz", back) is None
    write_body(tmp_path / "wrong.npz", grid, detail_phi_m=np.zeros((5, 5, 5)))
    with pytest.raises(ValueError, match=r"wrong detail_phi_m .* does not refine"):
        read_detail(tmp_path / "wrong.npz", back)
