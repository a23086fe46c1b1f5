"""Adjoint and tangent of the time step against central differences, for every parameter, scheme and kind of support."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, Torus, sample
from soft_estimator.physics import step
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.contact import ContactLaw
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.gradient import NAMES, ParameterGradient, shifted
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, State, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

REGIONS = 2
PARAMETERS = Parameters(
    youngs_modulus_pa=np.array([5000.0, 8000.0]),
    poissons_ratio=0.3,
    density_kg_m3=1000.0,
    mass_damping_per_s=0.4,
    stiffness_damping_s=0.003,
    gravity_m_s2=np.array([0.2, -9.81, 0.5]),
    plane_normal=np.array([0.05, np.sqrt(1 - 0.05**2), 0.0]),
    plane_offset_m=0.06,
    translation_m=np.array([0.001, 0.002, 0.003]),
    rotation_rad=np.array([0.2, -0.1, 0.3]),
    velocity_m_s=np.array([0.2, -0.3, 0.1]),
    angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
)
# What a parameter's finite difference is measured against where its value is small or zero.
LEAST_SCALE = {"translation_m": 0.01, "plane_offset_m": 0.01}


@pytest.fixture(scope="module")
def body() -> Body:
    grid = sample(Torus(major_radius_m=0.05, minor_radius_m=0.02, axis=(0, 0.3, 1)), 0.014)
    return build_body(grid, region_of=lambda x: (x[:, 0] > 0).astype(int))


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
    law = {"implicit": ContactLaw(2e6, 500.0), "extrapolated": ContactLaw(2e5, 500.0, implicit=False), "none": None}
    return build_model(
        body,
        integrator,
        fixed=[] if support == "free" else [FixedRegion(held, support, path)],
        contact=law[contact],
        loads=[(Box(size_m=(0.2, 0.02, 0.2), centre_m=(0, 0.06, 0)), np.array([0.1, 0.05, 0.0]))],
        solver=SolverSettings(1e-13, 3000),
    )


class Functional:
    """J = Σ over the steps of w·u + 0.01 w'·v with random w, w': a scalar that sees every node at every time."""

    def __init__(self, body: Body, steps: int) -> None:
        rng = np.random.default_rng(0)
        self.steps = steps
        self.by_u, self.by_v = rng.normal(size=(2, steps + 1, body.node_count, 3))
        self.by_v *= 0.01

    def of(self, k: int, state: State) -> float:
        return float((self.by_u[k] * state.u).sum() + (self.by_v[k] * state.v).sum())

    def value(self, model: Model, parameters: Parameters) -> float:
        simulation = Simulation(model, parameters)
        state = simulation.initial_state()
        total = self.of(0, state)
        for k in range(self.steps):
            state, _ = simulation.step(state)
            total += self.of(k + 1, state)
        return total

    def adjoint(self, model: Model, parameters: Parameters) -> ParameterGradient:
        simulation = Simulation(model, parameters)
        states = [simulation.initial_state()]
        for _ in range(self.steps):
            states.append(simulation.step(states[-1])[0])
        adjoint = Adjoint(simulation)
        bar = adjoint.zero_state()
        for k in range(self.steps, 0, -1):
            bar.u += self.by_u[k]
            bar.v += self.by_v[k]
            bar, _ = adjoint.step_back(states[k - 1], states[k], bar)
        bar.u += self.by_u[0]
        bar.v += self.by_v[0]
        return adjoint.finish(bar)

    def tangent(self, model: Model, parameters: Parameters, directions: list[ParameterGradient]) -> np.ndarray:
        simulation = Simulation(model, parameters)
        tangent = Tangent(simulation, directions)
        state, changes = simulation.initial_state(), tangent.initial()
        total = np.array([self.of(0, change) for change in changes])
        for k in range(self.steps):
            after, _, lin = simulation.step_keeping(state)
            changes, _ = tangent.step(state, after, lin, changes)
            state = after
            total += [self.of(k + 1, change) for change in changes]
        return total


def all_directions() -> list[tuple[str, int | None, ParameterGradient]]:
    zero, out = ParameterGradient.zero(REGIONS), []
    for name in NAMES:
        entry = getattr(zero, name)
        for index in [None] if np.ndim(entry) == 0 else range(len(entry)):
            out.append((name, index, ParameterGradient.unit(REGIONS, name, index)))
    return out


def central_difference(f: Functional, model: Model, name: str, direction: ParameterGradient) -> float:
    """Fourth-order central difference; its step keeps both the error of the formula and rounding near 1e-9."""
    size = np.abs(getattr(PARAMETERS, name)).max()
    e = 1e-4 * max(float(size), LEAST_SCALE.get(name, 0.1))

    def slope(step: float) -> float:
        ahead, behind = (f.value(model, shifted(PARAMETERS, direction, s * step)) for s in (1, -1))
        return (ahead - behind) / (2 * step)

    return (4 * slope(e / 2) - slope(e)) / 3


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


@pytest.mark.parametrize(("scheme", "support", "contact"), CASES)
def test_tangent_and_adjoint_agree(body: Body, scheme: str, support: str, contact: str) -> None:
    """Dot-product test: both give the same derivatives, to the accuracy of the linear solves (1e-13, hence 1e-10)."""
    f, model = Functional(body, 3), make_model(body, scheme, support, contact)
    gradient = f.adjoint(model, PARAMETERS)
    rows = all_directions()
    by_adjoint = np.array([gradient.dot(d) for _, _, d in rows])
    by_tangent = f.tangent(model, PARAMETERS, [d for _, _, d in rows])
    size = np.abs(by_adjoint)
    np.testing.assert_array_less(np.abs(by_tangent - by_adjoint), 1e-10 * size + 1e-12 * size.max())


@pytest.mark.parametrize(
    ("scheme", "support", "contact", "parts"),
    [("theta", "free", "implicit", 1), ("hht", "free", "extrapolated", 3), ("theta", "strong", "implicit", 2)],
)
def test_calmed_steps_have_exact_derivatives_too(
    body: Body, scheme: str, support: str, contact: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limit at zero backward Euler takes every step, whole or in parts; adjoint, tangent and differences still
    agree."""
    monkeypatch.setattr(step, "LARGEST_SURPRISE", 0.0)
    monkeypatch.setattr(step, "CALM_PARTS", (parts,))
    f, model = Functional(body, 2), make_model(body, scheme, support, contact)
    simulation = Simulation(model, PARAMETERS)
    assert simulation.step(simulation.initial_state())[0].calmed == parts
    gradient = f.adjoint(model, PARAMETERS)
    rows = all_directions()
    by_adjoint = np.array([gradient.dot(d) for _, _, d in rows])
    by_tangent = f.tangent(model, PARAMETERS, [d for _, _, d in rows])
    np.testing.assert_allclose(by_tangent, by_adjoint, rtol=1e-9, atol=1e-12 * np.abs(by_adjoint).max())
    for name in ("poissons_ratio", "plane_offset_m", "density_kg_m3"):
        direction = ParameterGradient.unit(REGIONS, name)
        assert gradient.dot(direction) == pytest.approx(central_difference(f, model, name, direction), rel=1e-6)


@pytest.mark.parametrize(("scheme", "support", "contact", "steps"), [(*c, s) for c in CASES for s in (1, 3)])
def test_adjoint_against_central_differences(body: Body, scheme: str, support: str, contact: str, steps: int) -> None:
    """Every parameter, one step and three, to 1e-6 of its group (the components of one vector)."""
    f, model = Functional(body, steps), make_model(body, scheme, support, contact)
    gradient = f.adjoint(model, PARAMETERS)
    for name in NAMES:
        exact = np.atleast_1d(getattr(gradient, name))
        rows = [d for n, _, d in all_directions() if n == name]
        difference = np.array([central_difference(f, model, name, d) for d in rows])
        size = np.abs(difference).max()
        assert np.abs(exact - difference).max() <= 1e-6 * size + 1e-9, (name, exact, difference)
