"""Windows over experiments, and what they see."""

from __future__ import annotations

import numpy as np
from estimation_experiments import Experiment

from soft_estimator.camera.observing import surface_frame
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.problem import kinds_of
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.variables import make_variables
from soft_estimator.estimation.window.arrival import Knowledge
from soft_estimator.estimation.window.point_places import PointPlaces
from soft_estimator.estimation.window.shape_details import ShapeDetails
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.estimation.window.window_motion import WindowMotion
from soft_estimator.physics.frame_times import displacements_from
from soft_estimator.physics.step import Simulation

NOISE_M = 0.0005
CONFIG = WindowConfig(frames=4, grow_to_frames=6, least_frames=3, points_per_frame=200, start="scene")
PLANES = ["youngs_modulus_pa", "plane_normal", "plane_offset_m"]


def seen(experiment: Experiment, count: int, every_s: float, noise_m: float = NOISE_M) -> list[ObservedFrame]:
    """Frames of the true motion from its start on."""
    rng, times = np.random.default_rng(7), every_s * np.arange(count)
    simulation, body = Simulation(experiment.model, experiment.truth), experiment.model.body
    states = zip(times, displacements_from(simulation, simulation.initial_state(), times))
    return [surface_frame(t, body, experiment.field, u, 200, noise_m, rng) for t, u in states]


def window_of(experiment: Experiment, names: list[str], config: WindowConfig = CONFIG) -> SlidingWindow:
    return SlidingWindow(experiment.model, experiment.truth, names, config, field=experiment.field)


def feed(window: SlidingWindow, frames: list[ObservedFrame], since_s: float = 10.0) -> None:
    for frame in frames:
        window.add_frame(since_s + frame.time_s, frame.points_m, frame.std_m)


def swinging_fit(torus: Experiment, frames: list[ObservedFrame]) -> WindowFit:
    """A window over the held torus: all of its variables are lasting ones."""
    variables = make_variables(torus.truth, ["youngs_modulus_pa", "poissons_ratio"])
    backend = Simulation(torus.model, torus.truth).backend
    kinds = kinds_of(torus.model.body, torus.field, backend, ())
    motion, places = WindowMotion(torus.model, variables, backend, kinds), PointPlaces(torus.model.body, 200, backend)
    details = ShapeDetails(torus.model.body, places, kinds, None)
    std = np.append(variables.prior_std, 2e-4)
    fit = WindowFit(motion, Knowledge(np.append(variables.prior_mean, 0.0), np.diag(std**-2.0)), RobustLoss(), details)
    for frame in frames:
        fit.add(frame)
    return fit
