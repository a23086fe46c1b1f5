"""Scenes that the CUDA tests share: small enough to be quick, with cut cells, held nodes and contact."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, Torus, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.contact import ContactLaw
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings

MOVING = RigidPath(np.array([0.0, 0.1]), np.array([[0, 0, 0], [0.01, 0.004, 0]]), np.array([[0, 0, 0], [0, 0, 0.4]]))


@pytest.fixture(scope="session")
def torus():
    """About 1,000 nodes, two material regions."""
    grid = sample(Torus(0.08, 0.03, axis=(0.3, 1.0, 0.2)), 0.0115)
    return build_body(grid, region_of=lambda x: (x[:, 0] > 0).astype(np.int32))


@pytest.fixture
def make_scene(torus):
    """Model and parameters; the words of kind say what is in it: theta, held, moving, contact (implicit), explicit."""

    def make(kind, dtype=np.float64, tolerance=1e-13):
        scheme = theta_scheme(0.005, 0.6) if "theta" in kind else hht_scheme(0.005, -0.1)
        grip = FixedRegion(Box((0.04, 0.2, 0.2), (-0.1, 0.0, 0.0)), path=MOVING if "moving" in kind else RigidPath())
        load = (Box((0.04, 0.2, 0.2), (0.1, 0.0, 0.0)), np.array([0.0, 0.3, 0.1]))
        laws = {"contact": ContactLaw(2e6, 800.0), "explicit": ContactLaw(2e5, 400.0, implicit=False)}
        model = build_model(
            torus,
            scheme,
            fixed=[grip] if "held" in kind or "moving" in kind else [],
            loads=[load] if "held" in kind else [],
            contact=next((law for name, law in laws.items() if name in kind), None),
            solver=SolverSettings(tolerance, 3000),
            dtype=dtype,
        )
        parameters = Parameters(
            np.array([3e4, 6e4]),
            0.35,
            900.0,
            mass_damping_per_s=0.4,
            stiffness_damping_s=2e-3,
            plane_normal=np.array([0.1, 0.97, -0.05]),
            plane_offset_m=0.055,
            rotation_rad=np.array([0.1, 0.2, -0.3]),
            velocity_m_s=np.array([0.1, -0.8, 0.2]),
            angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
        )
        return model, parameters

    return make
