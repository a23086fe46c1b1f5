"""Poisson's ratios of rubber, 0.45 to 0.499: stresses by closed form, and steps that are solved and keep their energy.

The derivatives there are checked in test_gradients.
"""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.backends.reference import ReferenceBackend
from soft_estimator.geometry.shapes import Box, Sphere, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.corotated import Corotated

YOUNG, STRETCH = 4000.0, 0.01
SIZE_M = np.array([0.08, 0.04, 0.04])
RATIOS = (0.45, 0.49, 0.499)


@pytest.fixture(scope="module")
def bar() -> Body:
    return build_body(sample(Box(size_m=tuple(SIZE_M)), 0.01))


def force_of(body: Body, poissons_ratio: float, strain: np.ndarray) -> np.ndarray:
    """Nodal forces [N] that hold u = ε x, in the linear theory: rotations at rest."""
    parameters = Parameters(YOUNG, poissons_ratio, 1000.0, gravity_m_s2=np.zeros(3))
    simulation = Simulation(build_model(body, theta_scheme(0.01)), parameters)
    still = np.tile(np.eye(3).ravel(), (body.cell_count, 1))
    u = body.node_position_m @ strain
    device, corner = simulation.device, np.empty((body.cell_count, 24))
    elastic = simulation.term(Corotated).cell_arguments
    device.backend.cell_forces(u, device.zero, 1.0, still, *elastic, corner)
    return device.gathered(corner)


@pytest.mark.parametrize("nu", RATIOS)
def test_a_stretched_bar_pulls_with_youngs_modulus_and_not_sideways(bar: Body, nu: float) -> None:
    """ε = diag(s, -νs, -νs) is uniaxial stress: E s A at each end, nothing sideways.

    There λ tr ε + 2μ ε_yy = 0 is a difference of terms λ/E = ν/((1+ν)(1-2ν)), up to 166, times as large: rounding of
    1e-11 of the pull.
    """
    force = force_of(bar, nu, STRETCH * np.diag([1.0, -nu, -nu]))
    pull = YOUNG * STRETCH * SIZE_M[1] * SIZE_M[2]
    right = bar.node_position_m[:, 0] > 0
    assert force[right, 0].sum() == pytest.approx(pull, rel=1e-10)
    assert force[~right, 0].sum() == pytest.approx(-pull, rel=1e-10)
    assert np.abs(force[:, 1:]).max() < 1e-11 * pull


@pytest.mark.parametrize("nu", RATIOS)
def test_a_squeezed_bar_answers_with_its_bulk_modulus(bar: Body, nu: float) -> None:
    """ε = -s I: pressure 3 K s = E s/(1-2ν) on every face, fifty times E s at ν = 0.49, five hundred at 0.499."""
    force = force_of(bar, nu, -STRETCH * np.eye(3))
    area = np.prod(SIZE_M) / SIZE_M
    for axis in range(3):
        half = bar.node_position_m[:, axis] > 0
        expected = -YOUNG * STRETCH / (1 - 2 * nu) * area[axis]
        assert force[half, axis].sum() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("nu", RATIOS)
def test_a_ball_bounces_without_losing_its_solver_or_gaining_energy(nu: float) -> None:
    """60 ms, most of it in contact: no solve is rescued, and kinetic, elastic, contact and potential energy together
    never exceed the start's by more than 1 % of its kinetic energy: θ = 0.6 damps, the soft contact's step errs."""
    body = build_body(sample(Sphere(radius_m=0.04), 0.016))
    model = build_model(body, theta_scheme(0.004, 0.6), contact=ContactLaw(1e6, 1000.0))
    parameters = Parameters(
        2e4, nu, 1000.0, 0.0, 1e-3, plane_offset_m=0.041, velocity_m_s=np.array([0.0, -0.5, 0.0])
    )  # fmt: skip
    simulation = Simulation(model, parameters)
    state = simulation.initial_state()
    start = balance(simulation, state)
    for _ in range(15):
        state, report = simulation.step(state)
        assert not report.solve.rescued and np.isfinite(state.u).all()
        assert balance(simulation, state).total_j - start.total_j < 0.01 * start.kinetic_j
    assert np.abs(state.v[:, 1].mean()) > 0.05  # it moves: it was no rest that was simulated


@pytest.mark.parametrize("nu", RATIOS)
def test_single_precision_follows_the_double_one(nu: float) -> None:
    """A ball held at its top sags for twelve steps of 10 ms, on the backend that has both. Pressures are differences of
    displacements times λ, so rounding of ε = 6e-8 shows λ/μ times as large, 9 to 499: u agrees to 16 ε λ/μ of the
    largest (a quarter of it seen), and no solve is rescued or falls back."""
    body, step = build_body(sample(Sphere(radius_m=0.05), 0.02)), theta_scheme(0.01)
    held = [FixedRegion(Box((1.0, 0.02, 1.0), (0.0, 0.05, 0.0)))]
    parameters, ends = Parameters(2e4, nu, 1000.0, 0.0, 1e-3), []
    for dtype in (np.float64, np.float32):
        simulation = Simulation(build_model(body, step, fixed=held, dtype=dtype), parameters, ReferenceBackend())
        state = simulation.initial_state()
        for _ in range(12):
            state, report = simulation.step(state)
            assert not report.retaken_parts and not report.solve.rescued
        assert state.u.dtype == dtype
        ends.append(state.u.astype(np.float64))
    off = np.abs(ends[1] - ends[0]).max() / np.abs(ends[0]).max()
    assert off < 16 * 6e-8 * 2 * nu / (1 - 2 * nu)
