"""A small torus that swings and a small ball that bounces, with frames of their true motion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.geometry.shapes import Box, Shape, Sphere, Torus, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import Integrator, theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw


@dataclass(frozen=True)
class Experiment:
    """A model, its field, its true parameters and where its steps are observed."""

    model: Model
    field: CarriedField
    truth: Parameters
    steps: int
    every: int

    def frames(self, std_m: float = 0.0, count: int = 300, seed: int = 0) -> list[ObservedFrame]:
        rng, body = np.random.default_rng(seed), self.model.body
        return [surface_frame(s.time_s, body, self.field, s.u, count, std_m, rng) for s in self.observed]

    @cached_property
    def observed(self) -> list[State]:
        """The true motion where it is observed; many tests draw points of it."""
        simulation = Simulation(self.model, self.truth)
        state, out = simulation.initial_state(), []
        for k in range(1, self.steps + 1):
            state, _ = simulation.step(state)
            if k % self.every == 0:
                out.append(state)
        return out


def swinging(spacing_m: float = 0.014, integrator: Integrator | None = None) -> Experiment:
    shape: Shape = Torus(major_radius_m=0.05, minor_radius_m=0.02, axis=(0, 0, 1))
    body = build_body(sample(shape, spacing_m))
    held = FixedRegion(Box(size_m=(0.04, 0.02, 0.06), centre_m=(0, 0.07, 0)), "nitsche")
    model = build_model(body, integrator or theta_scheme(0.01), fixed=[held], solver=SolverSettings(1e-10, 5000))
    return Experiment(model, carry_field(body), Parameters(np.array([2000.0]), 0.3, 1000.0, 0.1, 0.01), 16, 2)


@pytest.fixture(scope="session")
def torus() -> Experiment:
    return swinging()


@pytest.fixture(scope="session")
def ball() -> Experiment:
    """Falls 5 mm onto a tilted plane within the first steps and rolls off it."""
    body = build_body(sample(Sphere(radius_m=0.04), 0.013))
    law = ContactLaw(2e6, 800.0)
    model = build_model(body, theta_scheme(0.005), contact=law, solver=SolverSettings(1e-12, 5000))
    normal = np.array([0.1, 1.0, -0.05])
    truth = Parameters(
        np.array([2e4]),
        0.35,
        900.0,
        0.2,
        0.002,
        plane_normal=normal / np.linalg.norm(normal),
        plane_offset_m=0.045,
        velocity_m_s=np.array([0.1, -0.6, 0.0]),
        angular_velocity_rad_s=np.array([0.0, 1.0, 2.0]),
    )
    return Experiment(model, carry_field(body), truth, 30, 5)
