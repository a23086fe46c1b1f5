"""Adjoint and tangent of a body that relaxes, memory and all, against central differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_suite import RollOut, check_simulation

from soft_estimator.backends import choose_backend
from soft_estimator.geometry.rigid import RigidPath, rotation_matrix
from soft_estimator.geometry.shapes import Box, Placed, sample
from soft_estimator.physics import guard
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms import corotated
from soft_estimator.physics.terms.relaxation import RelaxationLaw

PARAMETERS = Parameters(
    youngs_modulus_pa=np.array([5000.0, 8000.0]),
    poissons_ratio=0.4,
    density_kg_m3=1000.0,
    mass_damping_per_s=2.0,
    stiffness_damping_s=0.003,
    velocity_m_s=np.array([0.2, -0.3, 0.1]),
    rotation_rad=np.array([0.2, -0.1, 0.3]),
    angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
    relaxation_share=0.6,
    relaxation_time_s=0.02,
)
NO_PLANE = ("plane_normal", "plane_offset_m")
JUDGE = (
    *("youngs_modulus_pa", "poissons_ratio", "mass_damping_per_s", "stiffness_damping_s"),
    *("relaxation_share", "relaxation_time_s", "rotation_rad", "density_kg_m3"),
)


@pytest.fixture(scope="module")
def body() -> Body:
    """A turned brick of a few cells, full and cut ones."""
    turn = rotation_matrix(np.array([0.3, -0.2, 0.1]))
    grid = sample(Placed(Box(size_m=(0.06, 0.04, 0.04)), turn), 0.02)
    return build_body(grid, region_of=lambda x: (x[:, 0] > 0).astype(int))


def make_model(body: Body, scheme: Integrator, material: str = "corotated") -> Model:
    path = RigidPath(
        np.array([0.0, 1.0]),
        np.array([[0, 0, 0], [0.1, 0.2, 0.05]]),
        np.array([[0, 0, 0], [1.0, 0, 2.0]]),
        np.array([0.03, 0.0, 0.0]),
    )
    held = FixedRegion(Box(size_m=(0.02, 0.2, 0.2), centre_m=(0.03, 0, 0)), "strong", path)
    solver, more = SolverSettings(1e-13, 3000), [RelaxationLaw(0.5, 0.1)]
    return build_model(body, scheme, fixed=[held], more=more, solver=solver, material=material)


SCHEMES = [theta_scheme(0.01), hht_scheme(0.01, -0.1), theta_scheme(0.01, 0.6, lagged=True)]


@pytest.mark.parametrize(
    ("scheme", "backend"),
    [*((scheme, "cpu") for scheme in SCHEMES), (SCHEMES[0], "reference")],
    ids=["theta-cpu", "hht-cpu", "lagged-cpu", "theta-reference"],
)
def test_every_derivative(body: Body, scheme: Integrator, backend: str) -> None:
    """p ∂J/∂p of every number through three steps, so that the memory of one step reaches the force of later ones.

    Steps of half the relaxation time: decay, gain and their slopes are all far from 0 and 1.
    """
    model, where = make_model(body, scheme), choose_backend(backend)
    assert (body.cells.gradient_index > 0).any()
    rows = check_simulation(lambda p: Simulation(model, p, where), PARAMETERS, 3, zero=NO_PLANE, judge=JUDGE)
    shown = {row.label: row.adjoint for row in rows}
    assert shown["relaxation_share"] != 0 and shown["relaxation_time_s"] != 0


def test_steps_much_shorter_than_the_relaxation(body: Body) -> None:
    """τ = 50 Δt: the slopes of decay and gain come from the series, and of a long memory only a little is gone."""
    model = make_model(body, theta_scheme(0.01))
    slow = PARAMETERS.replace(relaxation_time_s=0.5)
    check_simulation(lambda p: Simulation(model, p), slow, 3, zero=NO_PLANE, judge=("relaxation_time_s",))


def test_steps_of_several_newton_rounds(body: Body) -> None:
    """Elasticity turns to the solution in rounds, the branch stays where the last motion leads: both are followed."""
    model = make_model(body, theta_scheme(0.01))
    model = replace(model, solver=replace(model.solver, rounds=60, round_tolerance=1e-13))
    after, report, _ = Simulation(model, PARAMETERS).step_keeping(Simulation(model, PARAMETERS).initial_state())
    assert report.converged and report.rounds > 2 and not after.fallback_parts
    judge = ("youngs_modulus_pa", "relaxation_share", "relaxation_time_s", "rotation_rad")
    check_simulation(lambda p: Simulation(model, p), PARAMETERS, 3, zero=NO_PLANE, judge=judge)


@pytest.mark.parametrize("scheme", [SCHEMES[0], pytest.param(SCHEMES[1], marks=pytest.mark.slow)], ids=["theta", "hht"])
def test_beside_the_neo_hookean_law(body: Body, scheme: Integrator) -> None:
    """Newton's rounds on the elastic law; the branch is linear in Δu, and is linear where the last motion leads."""
    model = make_model(body, scheme, "neo_hookean")
    judge = ("youngs_modulus_pa", "poissons_ratio", "relaxation_share", "relaxation_time_s", "rotation_rad")
    check_simulation(lambda p: Simulation(model, p), PARAMETERS, 3, zero=NO_PLANE, judge=judge)


def test_fallback_steps_in_parts(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts of backward Euler a step: the memory goes from part to part, each with its own decay."""
    monkeypatch.setattr(corotated, "LARGEST_SURPRISE", 0.0)
    monkeypatch.setattr(guard, "FALLBACK_PARTS", (2,))
    model = make_model(body, theta_scheme(0.01))
    model = replace(model, solver=replace(model.solver, own_parts=False))  # which would be tried first, in vain
    first = Simulation(model, PARAMETERS)
    assert first.step(first.initial_state())[0].fallback_parts == 2
    judge = ("youngs_modulus_pa", "relaxation_share", "relaxation_time_s")
    check_simulation(lambda p: Simulation(model, p), PARAMETERS, 3, zero=NO_PLANE, judge=judge)


def test_a_share_of_zero_has_a_derivative_too(body: Body) -> None:
    """∂J/∂g at g = 0 is the branch's whole force; τ has no effect there, and the motion is that without a branch."""
    model = make_model(body, theta_scheme(0.01))
    none = PARAMETERS.replace(relaxation_share=0.0)
    plain = replace(model, more=())
    state, bare = Simulation(model, none).initial_state(), Simulation(plain, none).initial_state()
    for _ in range(3):
        state, bare = Simulation(model, none).step(state)[0], Simulation(plain, none).step(bare)[0]
    assert np.array_equal(state.u, bare.u)
    gradient = RollOut(lambda p: Simulation(model, p), 3).adjoint(none)
    tangent = RollOut(lambda p: Simulation(model, p), 3).tangent(none, [ParameterGradient.unit(2, "relaxation_share")])
    assert gradient.relaxation_share != 0 and gradient.relaxation_time_s == 0
    assert tangent[0] == pytest.approx(gradient.relaxation_share, rel=1e-10)
