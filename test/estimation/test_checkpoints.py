"""Checkpointed states: the same bits, the same gradient, in far less memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.estimation import checkpoints
from soft_estimator.estimation.checkpoints import Checkpoints
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.step import Simulation


@pytest.mark.slow
def test_states_come_back_to_the_bit(ball: Experiment) -> None:
    """Every state of a bounce, asked for in any order, is the one that was put in; about 2 √steps are held."""
    simulation = Simulation(ball.model, ball.truth)
    states = [simulation.initial_state()]
    kept = Checkpoints(simulation, states[0], 30, keep_all=10)
    for _ in range(30):
        states.append(simulation.step(states[-1])[0])
        kept.append(states[-1])
    assert len(kept) == 31 and len(kept.kept) == 6
    for n in [*range(30, -1, -1), 3, 17, 0, -1]:
        for name in ("u", "v", "a"):
            np.testing.assert_array_equal(getattr(kept[n], name), getattr(states[n], name))
    with pytest.raises(IndexError):
        kept[31]


def test_the_gradient_stays_the_same(ball: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without checkpoints, through contact, to the bit."""
    guess = replace(ball.truth, youngs_modulus_pa=np.array([2.2e4]))
    names = ["youngs_modulus_pa", "plane_offset_m", "velocity_m_s"]
    problem = Problem(ball.model, make_variables(guess, names), ball.frames(2e-4, count=50), field=ball.field)
    theta = problem.variables.start()
    whole = problem.evaluate(theta, gradient=True)
    monkeypatch.setattr(checkpoints, "KEEP_ALL", 5)
    thin = problem.evaluate(theta, gradient=True)
    assert thin.cost == whole.cost
    np.testing.assert_array_equal(thin.gradient, whole.gradient)
