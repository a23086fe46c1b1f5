"""Derivatives of steps with friction: adjoint, tangent and differences, for every scheme and way to take a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_suite import check_simulation

from soft_estimator.backends import choose_backend
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics import guard
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms import corotated
from soft_estimator.physics.terms.contact import ContactLaw

# A slip speed of a tenth of the motion's: neither stuck nor sliding all the way, where everything has a derivative.
LAW = ContactLaw(2e5, 500.0, friction=0.4, slip_speed_m_s=0.03)
PARAMETERS = Parameters(
    np.array([8000.0]),
    0.3,
    1000.0,
    0.4,
    0.003,
    plane_normal=np.array([0.05, np.sqrt(1 - 0.05**2), 0.0]),
    plane_offset_m=0.021,
    velocity_m_s=np.array([0.2, -0.3, 0.1]),
    angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
)
JUDGE = (
    *("youngs_modulus_pa", "friction_coefficient", "plane_normal", "plane_offset_m", "contact_stiffness_pa_per_m"),
    *("contact_sharpness_per_m", "velocity_m_s"),
)
SCHEMES = [theta_scheme(0.01), hht_scheme(0.01, -0.1), theta_scheme(0.01, 0.6, lagged=True)]


@pytest.fixture(scope="module")
def body() -> Body:
    return build_body(sample(Box(size_m=(0.06, 0.04, 0.05)), 0.02))


def model_of(body: Body, scheme: Integrator, law: ContactLaw = LAW, material: str = "corotated") -> Model:
    return build_model(body, scheme, contact=law, solver=SolverSettings(1e-13, 3000), material=material)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=["theta", "hht", "lagged"])
def test_every_derivative(body: Body, scheme: Integrator, backend: str) -> None:
    """Through two steps: in the second the slip that is expected depends on what the first one did."""
    model, where = model_of(body, scheme), choose_backend(backend)
    judge = JUDGE if backend == "cpu" else ("friction_coefficient",)
    rows = check_simulation(lambda p: Simulation(model, p, where), model.complete(PARAMETERS), 2, judge=judge)
    shown = {row.label: abs(row.adjoint) for row in rows}
    assert shown["friction_coefficient"] > 1e-3 * max(shown.values())


def test_extrapolated_contact(body: Body) -> None:
    model = model_of(body, SCHEMES[0], replace(LAW, stiffness_pa_per_m=2e4, implicit=False))
    check_simulation(lambda p: Simulation(model, p), model.complete(PARAMETERS), 2, judge=JUDGE[1:4])


def test_steps_of_several_rounds(body: Body) -> None:
    """The slip is that of the solution itself, found in rounds."""
    model = model_of(body, SCHEMES[0])
    model = replace(model, solver=replace(model.solver, rounds=60, round_tolerance=1e-13))
    simulation = Simulation(model, PARAMETERS)
    after, report, _ = simulation.step_keeping(simulation.initial_state())
    assert report.converged and report.rounds > 2 and not after.fallback_parts
    check_simulation(lambda p: Simulation(model, p), model.complete(PARAMETERS), 1, judge=JUDGE[1:4])


@pytest.mark.parametrize("scheme", [SCHEMES[0], SCHEMES[1]], ids=["theta", "hht"])
def test_steps_that_minimise(body: Body, scheme: Integrator) -> None:
    """Newton's rounds on a potential that friction has a part in; the matrix holds its true second derivative."""
    model = model_of(body, scheme, material="neo_hookean")
    simulation = Simulation(model, PARAMETERS)
    after, report, _ = simulation.step_keeping(simulation.initial_state())
    assert report.converged and not after.fallback_parts
    check_simulation(lambda p: Simulation(model, p), model.complete(PARAMETERS), 2, judge=JUDGE[1:3])


@pytest.mark.parametrize("scheme", [SCHEMES[0], SCHEMES[1]], ids=["theta", "hht"])
def test_steps_cut_while_something_rubs(body: Body, scheme: Integrator) -> None:
    model = model_of(body, scheme, replace(LAW, substeps=3))
    first = Simulation(model, PARAMETERS)
    after = first.step(first.initial_state())[0]
    assert after.substeps == 3 and not after.fallback_parts
    check_simulation(lambda p: Simulation(model, p), model.complete(PARAMETERS), 2, judge=JUDGE[:4])


def test_iterations_of_all_parts(body: Body) -> None:
    """The adjoint of a cut step reports what its parts take one by one."""
    whole = Simulation(model_of(body, SCHEMES[0], replace(LAW, substeps=3)), PARAMETERS)
    part, states = whole.in_substeps(3), [whole.initial_state()]
    for _ in range(3):
        states.append(part.step_once(states[-1])[0])
    adjoint, bar, counts = Adjoint(part), Adjoint(part).zero_state(), []
    bar.u += states[-1].u - states[0].u
    given = replace(bar)
    for before, after in zip(states[-2::-1], states[:0:-1]):
        bar, report = adjoint.step_back(before, after, bar)
        counts.append(report.iterations)
    _, report = Adjoint(whole).step_back(states[0], replace(states[-1], substeps=3), given)
    assert min(counts) > 0 and report.iterations == sum(counts)


def test_fallback_steps_in_parts(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corotated, "LARGEST_SURPRISE", 0.0)
    monkeypatch.setattr(guard, "FALLBACK_PARTS", (2,))
    model = model_of(body, SCHEMES[0])
    model = replace(model, solver=replace(model.solver, own_parts=False))  # which would be tried first, in vain
    first = Simulation(model, PARAMETERS)
    assert first.step(first.initial_state())[0].fallback_parts == 2
    check_simulation(lambda p: Simulation(model, p), model.complete(PARAMETERS), 2, judge=JUDGE[1:3])
