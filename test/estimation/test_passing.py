"""A motion and what is made of its steps go on at the same time: the same bits as one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_ball
from held_beam import beam, seen
from threads import so_many_threads

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.estimation.fixed_numbers import sources_of
from soft_estimator.estimation.inspection import Inspection, inspect_fit
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import variables_of
from soft_estimator.studies.estimate_setup import observe_truth


def looked_at(scene: Scene, threads: int) -> tuple[np.ndarray, Evaluation, Inspection]:
    """Its own frames; residuals and Jacobian of a guess, in two windows; the look with all that is held fixed."""
    config, backend = scene.config.estimate, CpuBackend()
    assert config is not None
    with so_many_threads(threads):
        field = carry_field(scene.body)
        frames = observe_truth(scene, field, backend).frames
        variables = variables_of(scene, config, refine_pose=False)
        problem = Problem(scene.model, variables, frames, backend=backend, field=field, known=config.known_to)
        theta = variables.start()
        problem.evaluate(theta, 1, jacobian=True)
        at = problem.evaluate(theta, jacobian=True)
        parameters = variables.parameters(theta)
        look = inspect_fit(problem, theta, sources_of(scene.model, variables, parameters, config.known_to))
    return np.concatenate([frame.points_m for frame in frames]), at, look


@pytest.mark.parametrize("scene", [tiny_ball.scene_of(), beam(20 / 3, start={})], ids=["falling", "held"])
def test_the_same_bits_for_any_number_of_threads(scene: Scene) -> None:
    """A ball that lands, with what the ground adds to each step; a beam that is let go."""
    (points, at, look), (points_2, at_2, look_2) = (looked_at(scene, threads) for threads in (1, 2))
    np.testing.assert_array_equal(points, points_2)
    np.testing.assert_array_equal(at.residual, at_2.residual)
    np.testing.assert_array_equal(at.jacobian, at_2.jacobian)
    assert look.columns and len(look.columns) == len(look_2.columns)
    for one, other in zip(look.columns, look_2.columns):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(look.patch, look_2.patch)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_that_fails_is_told(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the error of the step itself, with the changes of all before worked out; the next motion is a sound one."""
    scene = beam(20 / 3, start={})
    variables = variables_of(scene, scene.config.estimate, refine_pose=False)
    problem = Problem(scene.model, variables, seen().frames, backend=CpuBackend())
    step, taken = Simulation.step_keeping, []

    def fails(self: Simulation, state: object) -> object:
        taken.append(state)
        if len(taken) == 2:
            raise SolverError("the second step")
        return step(self, state)

    with so_many_threads(threads):
        monkeypatch.setattr(Simulation, "step_keeping", fails)
        with pytest.raises(SolverError, match="the second step"):
            problem.evaluate(variables.start(), jacobian=True)
        monkeypatch.undo()
        assert np.isfinite(problem.evaluate(variables.start(), jacobian=True).known_jacobian).all()
