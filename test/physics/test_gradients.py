"""Adjoint and tangent of the time step against central differences, for every parameter, scheme and kind of support."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gradient_suite import check_simulation

from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, Torus, sample
from soft_estimator.physics import guard
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms import corotated
from soft_estimator.physics.terms.contact import ContactLaw

PARAMETERS = Parameters(
    youngs_modulus_pa=np.array([5000.0, 8000.0]),
    poissons_ratio=0.3,
    density_kg_m3=1000.0,
    mass_damping_per_s=2.0,
    stiffness_damping_s=0.003,
    gravity_m_s2=np.array([0.2, -9.81, 0.5]),
    plane_normal=np.array([0.05, np.sqrt(1 - 0.05**2), 0.0]),
    plane_offset_m=0.06,
    translation_m=np.array([0.001, 0.002, 0.003]),
    rotation_rad=np.array([0.2, -0.1, 0.3]),
    velocity_m_s=np.array([0.2, -0.3, 0.1]),
    angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
)


def ring(spacing_m: float) -> Body:
    grid = sample(Torus(major_radius_m=0.05, minor_radius_m=0.02, axis=(0, 0.3, 1)), spacing_m)
    return build_body(grid, region_of=lambda x: (x[:, 0] > 0).astype(int))


@pytest.fixture(scope="module")
def body() -> Body:
    return ring(0.022)


@pytest.fixture(scope="module")
def finer_body() -> Body:
    """Of smaller cells, which ν near ½ leaves better conditioned: solves are right to more digits."""
    return ring(0.018)


def make_model(body: Body, scheme: str, support: str, contact: str) -> Model:
    path = RigidPath(
        np.array([0.0, 1.0]),
        np.array([[0, 0, 0], [0.1, 0.2, 0.05]]),
        np.array([[0, 0, 0], [1.0, 0, 2.0]]),
        np.array([0.05, 0.0, 0.0]),
    )
    held = Box(size_m=(0.03, 0.2, 0.2), centre_m=(0.07, 0, 0))
    integrator = {
        "theta": theta_scheme(0.01),
        "lagged": theta_scheme(0.01, 0.6, lagged=True),
        "hht": hht_scheme(0.01, -0.1),
    }[scheme]
    law = {"implicit": ContactLaw(2e6, 500.0), "extrapolated": ContactLaw(2e5, 200.0, implicit=False), "none": None}
    return build_model(
        body,
        integrator,
        fixed=[] if support == "free" else [FixedRegion(held, support, path)],
        contact=law[contact],
        loads=[(Box(size_m=(0.2, 0.02, 0.2), centre_m=(0, 0.06, 0)), np.array([0.1, 0.05, 0.0]))],
        solver=SolverSettings(1e-13, 3000),
    )


CASES = [
    ("theta", "free", "none"),
    ("theta", "free", "implicit"),
    ("theta", "free", "extrapolated"),
    ("theta", "strong", "implicit"),
    ("theta", "nitsche", "implicit"),
    ("hht", "free", "implicit"),
    ("hht", "strong", "implicit"),
    ("hht", "nitsche", "extrapolated"),
    ("lagged", "free", "implicit"),
]


WITHOUT_CONTACT = ("plane_normal", "plane_offset_m")


@pytest.mark.parametrize("steps", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("scheme", "support", "contact"), CASES)
def test_every_derivative(body: Body, scheme: str, support: str, contact: str, steps: int) -> None:
    """p ∂J/∂p of every number in `Parameters`, through one step, each by itself, and three: tangent = adjoint =
    differences.

    Without contact the plane has no effect at all, to the bit. Tolerances: see `gradient_suite`.
    """
    model = make_model(body, scheme, support, contact)
    zero = WITHOUT_CONTACT if contact == "none" else ()
    check_simulation(lambda p: Simulation(model, p), model.complete(PARAMETERS), steps, zero=zero, each=steps == 1)


@pytest.mark.parametrize(
    "support, poissons_ratio", [("free", 0.45), ("free", 0.499), ("nitsche", 0.45), ("nitsche", 0.49)]
)
def test_every_derivative_of_a_nearly_incompressible_body(
    finer_body: Body, poissons_ratio: float, support: str
) -> None:
    """λ/μ = 2ν/(1-2ν) is 9, 49 and 499 here, ∂λ/∂ν = E (1 + 2ν²)/((1+ν)(1-2ν))² up to 1.7e5 E: the same tolerances.

    Three steps and much damping: after two, ν and damping have moved a held body too little for differences to judge.
    """
    model = make_model(finer_body, "theta", support, "implicit")
    parameters = replace(PARAMETERS, poissons_ratio=poissons_ratio, stiffness_damping_s=0.02)
    judge = ("youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s", "plane_offset_m", "rotation_rad")
    check_simulation(lambda p: Simulation(model, p), parameters, 3, judge=judge)


@pytest.mark.parametrize(("scheme", "support", "contact"), [CASES[1], CASES[4]])
def test_steps_of_several_newton_rounds(body: Body, scheme: str, support: str, contact: str) -> None:
    """Made linear at its own solution until that rests, a step has its derivatives by the implicit function theorem.

    The rounds end at 1e-13 of Δu; rotations lag by a round, so they converge linearly, by a factor of ten or so each.
    """
    model = make_model(body, scheme, support, contact)
    model = replace(model, solver=replace(model.solver, rounds=60, round_tolerance=1e-13))
    simulation = Simulation(model, PARAMETERS)
    after, report, _ = simulation.step_keeping(simulation.initial_state())
    assert report.converged and 2 < report.rounds < 60 and not after.fallback_parts
    judge = ("youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s", "plane_offset_m", "velocity_m_s")
    steps = 1 if support == "nitsche" else 2  # whose rounds are many
    check_simulation(lambda p: Simulation(model, p), model.complete(PARAMETERS), steps, judge=judge)


@pytest.mark.parametrize(
    ("scheme", "support", "contact", "parts"),
    [("theta", "free", "implicit", 1), ("hht", "free", "extrapolated", 3), ("theta", "strong", "implicit", 2)],
)
def test_fallback_steps_have_exact_derivatives_too(
    body: Body, scheme: str, support: str, contact: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limit at zero backward Euler takes every step, whole or in parts; adjoint, tangent and differences still
    agree."""
    monkeypatch.setattr(corotated, "LARGEST_SURPRISE", 0.0)
    monkeypatch.setattr(guard, "FALLBACK_PARTS", (parts,))
    model = make_model(body, scheme, support, contact)
    model = replace(model, solver=replace(model.solver, own_parts=False))  # which would be tried first, in vain
    simulation = Simulation(model, PARAMETERS)
    assert simulation.step(simulation.initial_state())[0].fallback_parts == parts
    judge = ("poissons_ratio", "plane_offset_m", "density_kg_m3")
    check_simulation(lambda p: Simulation(model, p), PARAMETERS, 2, judge=judge)


def test_steps_taken_again_in_parts_have_exact_derivatives_too(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no whole step is trusted, each is taken in two parts of its own scheme."""
    own_step = guard._own_step

    def no_whole_step(*of: Any) -> tuple[Any, ...]:
        *made, sound = own_step(*of)
        return (*made, sound and of[-1] > 1)

    monkeypatch.setattr(guard, "_own_step", no_whole_step)
    model = make_model(body, "hht", "free", "extrapolated")
    simulation = Simulation(model, PARAMETERS)
    after, report = simulation.step(simulation.initial_state())
    assert (after.substeps, after.retaken_parts, after.fallback_parts, report.retaken_parts) == (2, 2, 0, 2)
    judge = ("poissons_ratio", "plane_offset_m", "density_kg_m3")
    check_simulation(lambda p: Simulation(model, p), PARAMETERS, 2, judge=judge)
