"""A trajectory gives up where backward Euler has to take more parts of steps than it is allowed."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.trajectory import Moment, Trajectory, trajectory_from
from soft_estimator.physics import guard
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms import corotated

PARTS = 2


@pytest.fixture
def every_step_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit at zero backward Euler takes every step, in two parts."""
    monkeypatch.setattr(corotated, "LARGEST_SURPRISE", 0.0)
    monkeypatch.setattr(guard, "OWN_PARTS", ())
    monkeypatch.setattr(guard, "FALLBACK_PARTS", (PARTS,))


def trajectory_of(experiment: Experiment) -> Trajectory:
    start = Moment(Simulation(experiment.model, experiment.truth).initial_state(), None)
    kinds = Kinds([SurfaceDistance(experiment.model.body, experiment.field)])
    return trajectory_from(experiment.model, experiment.truth, None, start, CpuBackend(), kinds)


def frame_after(experiment: Experiment, steps: int) -> ObservedFrame:
    time_s = steps * experiment.model.integrator.step_s
    return ObservedFrame.of(time_s, experiment.model.body.surface_positions_m()[:5], 1e-3)


def test_a_motion_that_is_taken_again_too_often_is_given_up(torus: Experiment, every_step_taken_again: None) -> None:
    """Two parts a step, five allowed: the third step is one too many, and is named; without a limit all are counted."""
    limited = trajectory_of(torus)
    limited.most_retaken_parts = 5
    with pytest.raises(SolverError, match="too violent for its steps; use a smaller step_s"):
        limited.through(frame_after(torus, 4))
    assert limited.retaken_parts == 3 * PARTS
    free = trajectory_of(torus)
    free.through(frame_after(torus, 4))
    assert free.retaken_parts == 4 * PARTS


def test_a_gentle_motion_needs_no_part(torus: Experiment) -> None:
    """The swinging torus is what its steps were made for: none is taken again, and a limit of zero is not reached."""
    trajectory = trajectory_of(torus)
    trajectory.most_retaken_parts = 0
    seen = trajectory.through(frame_after(torus, 4))
    assert trajectory.retaken_parts == 0 and trajectory.steps == 4 and np.isfinite(seen.residual).all()
