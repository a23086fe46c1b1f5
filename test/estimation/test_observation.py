"""Residuals of observed points: zero on the surface, a distance off it, exact derivatives, no cell missed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.carried_surface import CarriedSurface, onto_surface
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Sphere, Torus, sample
from soft_estimator.physics.body import Body, build_body


@pytest.fixture(scope="module")
def torus() -> tuple[Body, CarriedField]:
    body = build_body(sample(Torus(major_radius_m=0.05, minor_radius_m=0.02, axis=(0, 0.3, 1)), 0.008))
    return body, carry_field(body)


def bent(body: Body) -> np.ndarray:
    """A large rotation, a shift and a strain of up to about 15 %."""
    x = body.node_position_m
    return x @ rotation_matrix([1.0, 0.5, 0.3]).T - x + 0.1 + 0.004 * np.sin(40 * x[:, [1, 2, 0]])


def points_near(body: Body, u: np.ndarray, distance_m: float, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vertices = body.surface_positions_m(u)
    return vertices[rng.integers(0, len(vertices), count)] + distance_m * rng.normal(size=(count, 3))


def test_points_on_the_surface_have_no_residual(torus: tuple[Body, CarriedField]) -> None:
    """φ = 0 at points projected onto the carried field's zero level, and a millionth of a cell off it that much.

    Newton's last step is below 1e-12 of a cell and leaves its square; what is left is the rounding of coordinates of
    up to 0.2 m, 3e-17 m or 4e-15 cells, times a few operations: 1e-13 cells. Along the normal φ grows at unit rate to
    the surface's curvature times the way, 1e-6, relative.
    """
    body, field = torus
    u, h = bent(body), field.spacing_m
    points = onto_surface(body, field, u, points_near(body, u, 1e-4, 500))

    def residual(at: np.ndarray) -> np.ndarray:
        return point_residuals(body, field, ObservedFrame.of(0.0, at, 1e-9), u).value_m

    assert np.abs(residual(points)).max() < 1e-13 * h
    normal = CarriedSurface(field, u).measure(points, np.zeros(len(points))).by_value
    np.testing.assert_allclose(residual(points + 1e-6 * h * normal), 1e-6 * h, rtol=1e-6)


def test_rigid_motion_carries_the_distance_along(torus: tuple[Body, CarriedField]) -> None:
    """Turning body and points together changes nothing: the halo follows affine motions exactly."""
    body, field = torus
    points = points_near(body, np.zeros((body.node_count, 3)), 0.01, 800)
    turn, shift = rotation_matrix([2.0, -0.7, 0.4]), np.array([0.3, -0.2, 0.5])
    still = point_residuals(body, field, ObservedFrame.of(0.0, points, 1e-9), np.zeros((body.node_count, 3)))
    u = body.node_position_m @ turn.T + shift - body.node_position_m
    moved = point_residuals(body, field, ObservedFrame.of(0.0, points @ turn.T + shift, 1e-9), u)
    np.testing.assert_allclose(moved.value_m, still.value_m, atol=1e-6 * field.spacing_m)


def test_residual_is_the_distance_to_a_ball() -> None:
    """|x - c| - r at any distance.

    On the surface to the grid's second order (h²/r, 2 % of h here); off it ψ/|g| inherits the trilinear gradient's
    few percent; beyond the halo the nearest vertex stands in for the surface.
    """
    body = build_body(sample(Sphere(radius_m=0.05), 0.008))
    field = carry_field(body)
    rng = np.random.default_rng(1)
    direction = rng.normal(size=(600, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    radius = rng.uniform(0.035, 0.15, 600)
    frame = ObservedFrame.of(0.0, direction * radius[:, None], 1e-9)
    value = point_residuals(body, field, frame, np.zeros((body.node_count, 3))).value_m
    error = np.abs(value - (radius - 0.05))
    assert (error < 0.02 * field.spacing_m + 0.12 * np.abs(radius - 0.05)).all()
    assert error.max() < 0.3 * field.spacing_m


@pytest.mark.parametrize("distance_m", [0.001, 0.01, 0.03, 0.1])
def test_derivatives_against_central_differences(torus: tuple[Body, CarriedField], distance_m: float) -> None:
    """∂r/∂u along a smooth motion, near the surface, across the blend and far off.

    A point that crosses a cell face (or changes its nearest vertex) within the difference has a kink there: at most 1
    % of the points may, at a step of 1e-9 of the body's size.
    """
    body, field = torus
    u = bent(body)
    frame = ObservedFrame.of(0.0, points_near(body, u, distance_m, 1000), 1e-4)
    residual = point_residuals(body, field, frame, u)
    du = np.sin(30 * body.node_position_m[:, [2, 0, 1]] + 1.0)
    e = 1e-8
    ahead, behind = (point_residuals(body, field, frame, u + s * e * du).value_m for s in (1, -1))
    difference = (ahead - behind) / (2 * e)
    wrong = np.abs(difference - residual.change(du)) > 1e-6 * np.abs(difference).max()
    assert wrong.mean() < 0.01


def test_pull_back_is_the_transpose_of_change(torus: tuple[Body, CarriedField]) -> None:
    """value_bar · change(du) = pull_back(value_bar) · du."""
    body, field = torus
    u, rng = bent(body), np.random.default_rng(2)
    residual = point_residuals(body, field, ObservedFrame.of(0.0, points_near(body, u, 0.02, 500), 1e-4), u)
    du, bar = rng.normal(size=u.shape), rng.normal(size=500)
    assert bar @ residual.change(du) == pytest.approx(float((residual.pull_back(bar) * du).sum()), rel=1e-12)


def test_a_far_off_guess_still_feels_a_pull(torus: tuple[Body, CarriedField]) -> None:
    """Points a body length away: the derivative along the offset brings the distance down at unit rate."""
    body, field = torus
    u = np.zeros((body.node_count, 3))
    offset = np.array([0.3, 0.0, 0.0])
    frame = ObservedFrame.of(0.0, body.surface_positions_m() + offset, 1e-3)
    residual = point_residuals(body, field, frame, u)
    assert residual.far.mean() > 0.9
    slope = residual.change(np.broadcast_to(offset / 0.3, u.shape))
    assert slope.mean() < -0.9


def test_noise_on_a_curved_surface_is_unbiased() -> None:
    """E[r] of points scattered about a ball is ½σ²Δφ; what is taken off leaves a mean within 4 standard errors of zero.

    Left in, the bias ½σ²·2/r would stand at more than 20 standard errors here.
    """
    body = build_body(sample(Sphere(radius_m=0.05), 0.006))
    field = carry_field(body)
    u = np.zeros((body.node_count, 3))
    rng = np.random.default_rng(3)
    direction = rng.normal(size=(40000, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    on_surface = onto_surface(body, field, u, 0.05 * direction)
    std = 0.002
    noisy = on_surface + std * rng.normal(size=direction.shape)
    error = std / np.sqrt(len(noisy))
    corrected = point_residuals(body, field, ObservedFrame.of(0.0, noisy, std), u).value_m.mean()
    plain = point_residuals(body, field, ObservedFrame.of(0.0, noisy, std, curvature_share=0.0), u).value_m.mean()
    assert plain > 3 * error
    assert abs(corrected) < 4 * error


def seen_along_rays(torus: tuple[Body, CarriedField], noise_m: float) -> tuple[ObservedFrame, np.ndarray, np.ndarray]:
    """Points on the bent torus moved along slanted lines by known amounts: the frame, the amounts and u."""
    body, field = torus
    u, rng = bent(body), np.random.default_rng(4)
    points = onto_surface(body, field, u, points_near(body, u, 1e-4, 600))
    normal = CarriedSurface(field, u).measure(points, np.zeros(600)).by_value
    side = 0.4 * np.cross(normal, [0.3, -0.5, 0.8])
    amount = noise_m * rng.normal(size=600)
    along = normal + side
    frame = ObservedFrame.of(0.0, points + amount[:, None] * along, 1e-9)
    share = 0.5 * ((along**2).sum(axis=1) - 1)
    return replace(frame, along=along, curvature_share=share), amount, u


def test_distance_along_a_ray_is_the_noise_itself(torus: tuple[Body, CarriedField]) -> None:
    """x = p + s·along with p on the surface: the residual is s, to Newton's accuracy, however bent the surface is.

    A few lines meet the faceted surface more than once near the point; of noise of a fifth of a cell 98 % must not.
    """
    frame, amount, u = seen_along_rays(torus, 0.2 * torus[1].spacing_m)
    value = point_residuals(*torus, frame, u).value_m
    assert (np.abs(value - amount) < 1e-8 * torus[1].spacing_m).mean() > 0.98
    plain = point_residuals(*torus, replace(frame, along=None), u).value_m
    assert np.abs(plain - amount).mean() > 1e-3 * torus[1].spacing_m


def test_derivatives_along_rays_against_central_differences(torus: tuple[Body, CarriedField]) -> None:
    """∂s/∂u of the distance along fixed lines; where a line meets a cell face within the difference it has a kink."""
    frame, _, u = seen_along_rays(torus, 0.3 * torus[1].spacing_m)
    body = torus[0]
    residual = point_residuals(*torus, frame, u)
    du = np.sin(30 * body.node_position_m[:, [2, 0, 1]] + 1.0)
    ahead, behind = (point_residuals(*torus, frame, u + s * 1e-8 * du).value_m for s in (1, -1))
    difference = (ahead - behind) / 2e-8
    wrong = np.abs(difference - residual.change(du)) > 1e-6 * np.abs(difference).max()
    assert wrong.mean() < 0.01
