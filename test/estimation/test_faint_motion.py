"""Held bodies that hardly move: what their edges, and errors of their shape, must not do to their stiffness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from coverage_cases import scene_of, shape_of
from estimation_experiments import Experiment, surface_frame

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.clock import RATE
from soft_estimator.estimation.fitting.explained import explained_cost, explained_residual, patch_columns
from soft_estimator.estimation.fitting.faint_motion import (
    SHOWN,
    _costs_of_still,
    is_faint,
    motion_gain,
    with_faint_motion,
)
from soft_estimator.estimation.fitting.uncertainty import posterior
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.inspection import inspect_fit, look_at
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.sharp_edges import SHARP_RAD, turn_rad, without_sharp_edges
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.motion import displacements

SPACING_M, HALF_M = 0.0125, np.array([0.04, 0.035, 0.04])
CLAMP = [{"low_m": [-0.1, 0.02, -0.1], "high_m": [0.1, 0.1, 0.1]}]
STD_M = 2e-4


def still(kind: str, points_m: np.ndarray, known: KnownToConfig | None, *, held: bool = True) -> Problem:
    """One frame of a body of the coverage benchmark before it moves."""
    body, material = {"shape": shape_of(kind, 1.0), "spacing_m": SPACING_M}, {"youngs_modulus_pa": 1e5}
    scene = scene_of({"name": kind, "body": body, "material": material, "fixed": CLAMP if held else []})
    frame = ObservedFrame.of(0.0, points_m, STD_M)
    return Problem(scene.model, make_variables(scene.parameters, ["youngs_modulus_pa"]), [frame], known=known)


def turns(problem: Problem) -> np.ndarray:
    return turn_rad(problem, problem.frames[0], np.zeros((problem.model.body.node_count, 3)))


def box_points() -> tuple[np.ndarray, np.ndarray]:
    """Points of a face of the box more than two cells from its edges, and points on one of its edges."""
    line = np.linspace(-0.01, 0.01, 9)
    face = np.stack([line, 0.3 * line, np.full(9, HALF_M[2])], axis=1)
    return face, np.stack([line, np.full(9, HALF_M[1]), np.full(9, HALF_M[2])], axis=1)


def test_a_face_does_not_turn_and_an_edge_turns_within_a_cell() -> None:
    """h |Δφ| is 0 on a plane, whose φ is linear, to rounding; at a right edge φ is the greater of two linear functions,
    whose second differences are up to h each: 2 together. On a sphere |Δφ| = 2/r, at nodes up to √3 h inside R."""
    face, edge = box_points()
    assert turns(still("box", face, None)).max() < 1e-9
    at_edge = turns(still("box", edge, None))
    assert at_edge.min() > SHARP_RAD and at_edge.max() < 2.0 + 1e-9
    radius = 0.05
    ball = radius * np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.6, 0.0, 0.8]])
    of_ball = turns(still("sphere", ball, None))
    reach = np.sqrt(3.0) * SPACING_M
    # second differences over h are those of |x| to O(h²/r²): a tenth at four cells' radius
    assert (of_ball > 0.9 * 2 * SPACING_M / (radius + reach)).all()
    assert (of_ball < 1.1 * 2 * SPACING_M / (radius - reach)).all()


def test_points_at_edges_are_left_out_of_a_held_body_s_fit() -> None:
    """And of no other: an exact shape has no bevels, a free body's edges fly with it; and never too many."""
    face, edge = box_points()
    both, theta, known = np.concatenate([face, edge]), np.log([100e3]), KnownToConfig()
    held = still("box", both, known)
    np.testing.assert_array_equal(without_sharp_edges(held, theta).frames[0].points_m, face)
    few = still("box", np.concatenate([face[:2], edge]), known)
    exact = still("box", both, KnownToConfig(shape_offset_m=0.0, shape_scale=0.0))
    for kept in (few, exact, still("box", both, None), still("box", both, known, held=False)):
        assert without_sharp_edges(kept, theta) is kept


def test_noise_does_not_choose_the_points() -> None:
    """A point of a face beside its edge is left out, or not, wherever the noise along its ray has put it: half a cell
    outwards, inwards, or not at all."""
    line = np.linspace(-0.9, 0.9, 37) * HALF_M[1]
    face = np.stack([0.0 * line, line, np.full(37, HALF_M[2])], axis=1)
    ray = np.array([0.3, 0.0, 1.0])  # along the edge and out of the face, over its cosine to the normal
    chosen = []
    for thrown in (-0.5, 0.0, 0.5):
        problem = still("box", face, None)
        noisy = face + thrown * SPACING_M * ray
        frame = replace(problem.frames[0], points_m=noisy, along=np.broadcast_to(ray, face.shape).copy())
        chosen.append(turn_rad(problem, frame, np.zeros((problem.model.body.node_count, 3))) < SHARP_RAD)
    assert 0 < chosen[1].sum() < 37
    np.testing.assert_array_equal(chosen[0], chosen[1])
    np.testing.assert_array_equal(chosen[2], chosen[1])


def ring(torus: Experiment, frames: list[ObservedFrame], youngs_pa: float) -> Problem:
    truth = Parameters(np.array([youngs_pa]), 0.3, 1000.0, 0.1, 0.01)
    variables = make_variables(truth, ["youngs_modulus_pa"])
    loss = RobustLoss("squares")
    return Problem(torus.model, variables, frames, field=torus.field, known=KnownToConfig(), loss=loss)


@pytest.mark.slow
def test_a_motion_is_shown(torus: Experiment) -> None:
    """A ring that swings by centimetres is known to by far more than five deviations, and its answer stays as it is."""
    problem = ring(torus, torus.frames(STD_M), 2000.0)
    at = problem.evaluate(problem.variables.start(), jacobian=True)
    gain, found = motion_gain(problem, at, 1.0), posterior(problem, at)
    assert gain is not None and gain > 100 * SHOWN
    assert with_faint_motion(problem, at, found) is found and not is_faint(found)


@pytest.mark.slow
def test_an_error_of_the_shape_is_no_motion(torus: Experiment) -> None:
    """The same bent shape in every frame, by less than the shape is known to (0.45 mm): a body of this stiffness that
    bends as far on the way explains much of it (42 of the cost), and a stiff one none. With the patches' offsets free
    it explains little (5: what differs within patches); the stiffness is then as unknown as its prior has it."""
    youngs_pa = 1e6
    moving = ring(torus, torus.frames(STD_M), youngs_pa)
    times = [frame.time_s for frame in moving.frames]
    simulation = Simulation(torus.model, moving.variables.parameters(moving.variables.start()))
    bent = np.mean(list(displacements(simulation, times)), axis=0)
    assert 1e-4 < np.abs(bent).max() < 4.5e-4
    rng, body = np.random.default_rng(1), torus.model.body
    frames = [surface_frame(t, body, torus.field, bent, 300, 3 * STD_M, rng) for t in times]
    problem = ring(torus, frames, youngs_pa)
    at = problem.evaluate(problem.variables.start(), jacobian=True)
    motionless = problem.evaluate(at.theta + np.log(1000.0))
    assert motionless.misfit - at.misfit > 2 * SHOWN
    gain, found = motion_gain(problem, at, 1.0), posterior(problem, at)
    assert gain is not None and gain < SHOWN and found.estimates[0].observable
    late = FitVerdict(False, "late", "clock", {RATE: 0.8})
    faint = with_faint_motion(problem, at, replace(found, verdict=late))
    assert is_faint(faint) and not faint.estimates[0].observable and "too faint" in faint.estimates[0].reason
    prior = problem.variables.prior_std[0]
    assert faint.covariance[0, 0] == pytest.approx(found.covariance[0, 0] + prior**2)
    assert faint.estimates[0].value == found.estimates[0].value
    assert faint.verdict.fits  # what hardly moves keeps no time


def test_a_body_too_stiff_to_move_may_still_lie_elsewhere(torus: Experiment) -> None:
    """What came along beside the stiffness is fitted in both: the same with the whole Jacobian as with its columns
    alone. A direction among it is moved from the reference's, wherever it has come to."""
    frames = torus.frames(STD_M)[:3]
    variables = make_variables(torus.truth, ["youngs_modulus_pa"], beside=["translation_m", "plane_normal"])
    problem = Problem(torus.model, variables, frames, field=torus.field, known=KnownToConfig())
    theta = variables.start() + np.array([0.1, 1e-3, 0.0, -1e-3, 0.02, -0.01])
    look = inspect_fit(problem, theta, [])
    columns, at = 3 * 4.5e-4 * patch_columns(look.small_patch, look.by_offset), problem.evaluate(theta, jacobian=True)
    whole = explained_cost(problem, at, [columns], 1.3, np.arange(1, len(theta)))
    costs = list(_costs_of_still(problem, theta, columns, at.frame, 1.3, fewer=True))
    assert costs[-1] == pytest.approx(whole, rel=1e-6)
    # Every frame adds what it leaves: the first ones alone cost no more than all of them.
    assert len(costs) > 1 and (np.diff(costs) > 0).all()


def test_columns_of_patches_are_summed_where_they_are(torus: Experiment) -> None:
    """A patch's column, zero off the patch, is kept sparse: costs and residuals are those of whole columns, wherever
    among others it stands."""
    variables = make_variables(torus.truth, ["youngs_modulus_pa", "translation_m"])
    problem = Problem(torus.model, variables, torus.frames(STD_M)[:2], field=torus.field, known=KnownToConfig())
    theta = variables.start() + np.array([0.1, 1e-3, 0.0, -1e-3])
    at, look = problem.evaluate(theta, jacobian=True), inspect_fit(problem, theta, [])
    patches = 5e-4 * patch_columns(np.where(look.small_patch == 3, -1, look.small_patch), look.by_offset)
    one, dense = at.residual[:, None], patches.toarray()
    assert patches.nnz == (look.small_patch != 3).sum() < 0.1 * dense.size
    for some in (slice(0), slice(None)):
        few, many = [one, patches[:, some], 2 * one], [one, dense[:, some], 2 * one]
        assert explained_cost(problem, at, few, 1.3) == pytest.approx(explained_cost(problem, at, many, 1.3), rel=1e-9)
        left = explained_residual(problem, at, few, 1.3)
        np.testing.assert_allclose(left, explained_residual(problem, at, many, 1.3), atol=1e-7)


def test_several_questions_of_a_fit_simulate_it_once(torus: Experiment) -> None:
    """The look at a place is the one that was kept, and another place gets its own, the same as anew."""
    problem = ring(torus, torus.frames(STD_M)[:1], 2000.0)
    theta = problem.variables.start()
    first, count = look_at(problem, theta), problem.simulations
    assert look_at(problem, theta.copy()) is first and problem.simulations == count
    other = look_at(problem, theta + 0.1)
    anew = inspect_fit(problem, theta + 0.1, list(other.sources))
    assert problem.simulations == count + 2 and first.small_patch.min() >= 0
    for a, b, c in zip(other.columns, anew.columns, first.columns):
        np.testing.assert_array_equal(a, b)
        assert a.shape == c.shape
    assert not np.array_equal(np.concatenate(other.columns, axis=1), np.concatenate(first.columns, axis=1))


def test_what_there_is_nothing_to_set_against(torus: Experiment) -> None:
    """No stiffness among the variables: its motion is known; and an exact shape needs no such test."""
    frames = torus.frames(STD_M)[:2]
    damping = make_variables(torus.truth, ["stiffness_damping_s"])
    problem = Problem(torus.model, damping, frames, field=torus.field, known=KnownToConfig())
    at = problem.evaluate(problem.variables.start(), jacobian=True)
    assert motion_gain(problem, at, 1.0) is None
    exact = Problem(torus.model, make_variables(torus.truth, ["youngs_modulus_pa"]), frames, field=torus.field)
    assert motion_gain(exact, exact.evaluate(exact.variables.start(), jacobian=True), 1.0) is None
