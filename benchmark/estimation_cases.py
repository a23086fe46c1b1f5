"""The estimation scenes of Weiss' thesis, as far as its text gives them, and what observes them.

The thesis prints neither sizes, nor densities, nor time steps; those are ours, chosen so that bodies sag and bounce
as its pictures show. Numbers that it does print (E, ν, α, plane, cameras, noise in voxels, starts, frames) are its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.camera.depth_sensor import DepthNoise
from soft_estimator.camera.observing import camera_frame
from soft_estimator.camera.pinhole import PinholeCamera, ring_of_cameras
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.sdf_file import read_sdf
from soft_estimator.geometry.shapes import Box, Torus, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import Integrator, theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters, Value
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

TOLERANCE = SolverSettings(1e-7, 5000)


@dataclass(frozen=True)
class Case:
    """A body, how it is held, its true parameters, and the cameras around it."""

    name: str
    model: Model
    field: CarriedField
    truth: Parameters
    cameras: tuple[PinholeCamera, ...]
    steps: int
    every: int

    @property
    def body(self) -> Body:
        return self.model.body

    def frames(
        self,
        noise: DepthNoise | None = None,
        *,
        seed: int = 0,
        budget: int = 2000,
        isotropic_voxels: float = 0.0,
        truth_from: Case | None = None,
    ) -> list[ObservedFrame]:
        """Frames of the true motion, every `every` steps; from another case's model where given."""
        source = truth_from or self
        rng = np.random.default_rng(seed)
        simulation = Simulation(source.model, source.truth)
        state, out = simulation.initial_state(), []
        per_step = self.model.integrator.step_s / source.model.integrator.step_s
        for k in range(1, round(self.steps * per_step) + 1):
            state, _ = simulation.step(state)
            if k % round(self.every * per_step) == 0:
                std = isotropic_voxels * self.body.grid.spacing_m
                out.append(
                    camera_frame(
                        k * source.model.integrator.step_s,
                        source.body,
                        source.field,
                        state.u,
                        self.cameras,
                        noise,
                        rng,
                        budget,
                        std,
                    )
                )
        return out

    def problem(
        self, frames: list[ObservedFrame], names: list[str], backend: Backend | None = None, **guess: Value
    ) -> Problem:
        """The problem of estimating the named parameters from a first guess that is the truth but for `guess`."""
        variables = make_variables(self.truth.replace(**guess), names)
        loss = RobustLoss("huber", 2.0)
        return Problem(self.model, variables, frames, field=self.field, loss=loss, backend=backend)


def torus(
    spacing_m: float = 0.004, integrator: Integrator | None = None, cameras: int = 10, hold: str = "nitsche"
) -> Case:
    """The swinging torus: 9,244 active nodes at 4 mm (the thesis: 9,220), held at the top, 30 steps.

    Its lowest part swings out of the cameras' view; see `torus_in_view`.
    """
    body = build_body(sample(Torus(major_radius_m=0.05, minor_radius_m=0.02, axis=(0, 0, 1)), spacing_m))
    held = FixedRegion(Box(size_m=(0.04, 0.02, 0.06), centre_m=(0, 0.07, 0)), hold)
    model = build_model(body, integrator or theta_scheme(0.01), fixed=[held], solver=TOLERANCE)
    truth = Parameters(np.array([2000.0]), 0.30, 1000.0, 0.1, 0.01)
    ring = ring_of_cameras(
        cameras, (0, -0.02, 0), 0.5, 0.1, (0, 1, 0), 100 if cameras > 1 else 320, 100 if cameras > 1 else 240, 0.6, 0.6
    )
    return Case("torus", model, carry_field(body), truth, ring, 30, 3)


def torus_in_view(spacing_m: float = 0.004) -> Case:
    """The torus, all of it in view of its ten cameras all the time, and held strongly, as GPUs do it fastest."""
    ring = ring_of_cameras(10, (0, -0.07, 0), 0.5, 0.1, (0, 1, 0), 100, 100, 0.7, 0.6)
    return replace(torus(spacing_m, hold="strong"), cameras=ring)


def bunny(data: Path) -> Case:
    """The bunny on a tilted plane, 1 m tall so that the thesis' offsets keep their meaning; 65 steps."""
    body = build_body(read_sdf(data / "bunny_small.sdf", size_m=1.0))
    lowest = body.surface_positions_m()[:, 1].min()
    law = ContactLaw(1e6, 200.0)
    model = build_model(body, theta_scheme(0.01), contact=law, solver=TOLERANCE)
    normal = np.array([-0.011, 0.996, -0.091])
    truth = Parameters(
        np.array([1e5]),
        0.3,
        1000.0,
        0.1,
        0.003,
        plane_normal=normal / np.linalg.norm(normal),
        plane_offset_m=0.0,
        translation_m=np.array([0.0, 0.15 - lowest, 0.0]),
    )
    ring = ring_of_cameras(8, (0, 0.4, 0), 2.5, 0.8, (0, 1, 0), 100, 100, 0.7)
    return Case("bunny", model, carry_field(body), truth, ring, 65, 5)


def dragon(data: Path, file: str = "dragon_medium.sdf", steps: int = 30) -> Case:
    """The dragon held by its head, 20 cm long, the first 30 steps of its fall."""
    body = build_body(read_sdf(data / file, size_m=0.2))
    x = body.surface_positions_m()
    low, high = x.min(axis=0), x.max(axis=0)
    long = int(np.argmax(high - low))
    centre, size = 0.5 * (low + high), np.full(3, 1.0)
    centre[long], size[long] = low[long], 0.3 * (high - low)[long]
    model = build_model(
        body, theta_scheme(0.01), fixed=[FixedRegion(Box(size_m=tuple(size), centre_m=tuple(centre)))], solver=TOLERANCE
    )
    truth = Parameters(np.array([5000.0]), 0.3, 1000.0, 0.1, 0.005)
    middle = 0.5 * (low + high) - np.array([0, 0.03, 0])
    ring = ring_of_cameras(12, tuple(middle), 0.6, 0.15, (0, 1, 0), 100, 100, 0.6)
    return Case("dragon", model, carry_field(body), truth, ring, steps, 3)
