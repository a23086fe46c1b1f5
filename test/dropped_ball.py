"""A soft ball dropped on a plane, seen in frames of 300 noisy points: what windows are tried on."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from soft_estimator.camera.observing import surface_frame
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

NOISE_M = 0.0005
TRUE_PA = 6000.0
TRUTH = Parameters(
    TRUE_PA, 0.4, 1000.0, 0.0, 0.003, translation_m=np.array([0.0, 0.115, 0.0]), velocity_m_s=[0.05, -0.7, 0]
)
# E off by two, the plane by 3 mm, nothing known of the motion.
GUESS = TRUTH.replace(youngs_modulus_pa=12000.0, plane_offset_m=0.003, velocity_m_s=np.zeros(3))
SMALL = WindowConfig(frames=5, grow_to_frames=9, points_per_frame=300, start="scene")


CELL_M = 0.02


@cache
def model(cell_m: float = CELL_M) -> Model:
    body = build_body(sample(Sphere(radius_m=0.05), cell_m))
    return build_model(body, theta_scheme(0.01), contact=ContactLaw(2e6, 1500.0))


@cache
def field(cell_m: float = CELL_M) -> CarriedField:
    return carry_field(model(cell_m).body)


@cache
def frames(cell_m: float = CELL_M) -> tuple[ObservedFrame, ...]:
    """Fifteen of them, 30 ms apart: it touches with the sixth and leaves with the last.

    Its steps are a quarter of those it is estimated with.
    """
    body, shape = model(cell_m).body, field(cell_m)
    rng, simulation = np.random.default_rng(3), Simulation(model(cell_m).with_step(theta_scheme(0.01 / 4)), TRUTH)
    state, out = simulation.initial_state(), []
    for k in range(4 * 43):
        if k % 12 == 0:
            out.append(surface_frame(state.time_s, body, shape, state.u, 300, NOISE_M, rng))
        state, _ = simulation.step(state)
    return tuple(out)


def window(
    guess: Parameters = GUESS, config: WindowConfig = SMALL, cell_m: float = CELL_M, **more: Any
) -> SlidingWindow:
    names = ["youngs_modulus_pa", "plane_offset_m"]
    return SlidingWindow(model(cell_m), guess, names, config, field=field(cell_m), **more)


def said(target: SlidingWindow, seen: tuple[ObservedFrame, ...]) -> list[LiveEstimate]:
    """Every estimate of a window that gets these frames from a hundred seconds on."""
    made = [target.add_frame(100.0 + f.time_s, f.points_m, f.std_m) for f in seen]
    return [estimate for estimate in made if estimate is not None]
