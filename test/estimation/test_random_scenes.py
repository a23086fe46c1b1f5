"""Adjoint, tangent and central differences on random scenes: body, material, integrator, support, contact, motion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from gradient_suite import RollOut, complaints, table
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.shapes import Box, Shape, Sphere, Torus, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, State, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

SHAPES: dict[str, tuple[Shape, float]] = {
    "ball": (Sphere(radius_m=0.04), 0.017),
    "block": (Box(size_m=(0.07, 0.05, 0.06)), 0.018),
    "ring": (Torus(major_radius_m=0.04, minor_radius_m=0.018, axis=(0, 0.3, 1)), 0.016),
}
# An example takes seconds: a failing one is told as it was drawn, not shrunk for minutes.
AS_DRAWN = (Phase.explicit, Phase.generate)
# What one step of 2 ms may hardly show: a plane that is not reached, damping; and of a free flight, nothing of the
# material at all: a rigid motion strains only to second order in the step.
FAINT = ("plane_normal", "plane_offset_m", "mass_damping_per_s", "density_kg_m3: the differences cannot judge")
FAINT_IN_FLIGHT = ("youngs_modulus_pa", "poissons_ratio", "density_kg_m3", "stiffness_damping_s")


@dataclass(frozen=True)
class Scene:
    """A model and its parameters, as drawn."""

    model: Model
    parameters: Parameters
    carried: CarriedField
    seed: int

    def _repr_pretty_(self, printer: RepresentationPrinter, _: bool) -> None:
        """Hypothesis would print every node of a failing scene."""
        m = self.model
        printer.text(f"Scene({self.parameters}, {m.integrator}, {m.contact}, {m.body.node_count} nodes, {self.seed})")


@cache
def body_of(name: str) -> tuple[Body, CarriedField]:
    shape, spacing_m = SHAPES[name]
    body = build_body(sample(shape, spacing_m))
    return body, carry_field(body)


def _integrators() -> st.SearchStrategy[Integrator]:
    steps, lagged = st.sampled_from([0.002, 0.005]), st.booleans()
    theta = st.builds(lambda s, t, lag: theta_scheme(s, t, lagged=lag), steps, st.sampled_from([0.5, 0.6, 1.0]), lagged)
    hht = st.builds(lambda s, a, lag: hht_scheme(s, a, lagged=lag), steps, st.sampled_from([0.0, -0.05, -0.3]), lagged)
    return theta | hht


def _vectors(size: float) -> st.SearchStrategy[np.ndarray]:
    return st.tuples(*[st.floats(-size, size)] * 3).map(np.array)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A body that is held, or falls onto a tilted plane a millimetre away, while it moves and turns."""
    name = draw(st.sampled_from(sorted(SHAPES)))
    body, field = body_of(name)
    support = draw(st.sampled_from(["free", "free", "strong", "nitsche"]))
    contact = draw(st.sampled_from(["implicit", "extrapolated", "none"]))
    tilt = draw(_vectors(0.2)) + np.array([0.0, 1.0, 0.0])
    normal = tilt / np.linalg.norm(tilt)
    lowest = float((body.surface_positions_m() @ normal).min())
    parameters = Parameters(
        youngs_modulus_pa=np.array([draw(st.floats(5e3, 5e4))]),
        poissons_ratio=draw(st.floats(0.1, 0.42)),
        density_kg_m3=draw(st.floats(500, 1500)),
        mass_damping_per_s=draw(st.floats(0.05, 1.0)),
        stiffness_damping_s=draw(st.floats(1e-3, 5e-3)),
        gravity_m_s2=np.array([0.0, -9.81, 0.0]) + draw(_vectors(2.0)),
        plane_normal=normal,
        plane_offset_m=0.001 - lowest,
        translation_m=draw(_vectors(1e-3)),
        rotation_rad=draw(_vectors(0.1)),
        velocity_m_s=draw(_vectors(0.1)) - 0.2 * normal,
        angular_velocity_rad_s=draw(_vectors(1.0)),
    )
    law = {
        "implicit": ContactLaw(2e6, 800.0),
        "extrapolated": ContactLaw(1e5, 500.0, implicit=False),
        "none": None,
    }[contact]
    top = body.surface_positions_m()[:, 1].max()
    held = FixedRegion(Box(size_m=(0.2, 0.04, 0.2), centre_m=(0.0, top, 0.0)), support)
    model = build_model(
        body,
        draw(_integrators()),
        fixed=[] if support == "free" else [held],
        contact=law,
        solver=SolverSettings(1e-13, 3000),
    )
    return Scene(model, parameters, field, draw(st.integers(0, 99)))


def states_of(scene: Scene, parameters: Parameters, steps: int) -> list[State]:
    simulation = Simulation(scene.model, parameters)
    states = [simulation.initial_state()]
    for _ in range(steps):
        states.append(simulation.step(states[-1])[0])
    return states


@settings(max_examples=12, deadline=None, derandomize=True, phases=AS_DRAWN)
@given(scene=scenes())
def test_one_step(scene: Scene) -> None:
    """Every number in `Parameters` through one step: tangent = adjoint = differences, to the suite's tolerances.

    Without contact the plane has no effect at all. Everything must stand above the noise of the differences but what
    may be faint after one step; what is faint must still agree to that noise.
    """
    assume(not states_of(scene, scene.parameters, 1)[1].fallback_parts)
    cost = RollOut(lambda p: Simulation(scene.model, p), 1, scene.seed)
    zero = () if scene.model.contact is not None else ("plane_normal", "plane_offset_m")
    rows = table(cost, scene.parameters, zero=zero)
    held = scene.model.dirichlet.held or scene.model.dirichlet.weak
    faint = FAINT if held or scene.model.contact is not None else FAINT + FAINT_IN_FLIGHT
    wrong = [line for line in complaints(rows, zero) if not line.startswith(faint)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, derandomize=True, phases=AS_DRAWN)
@given(scene=scenes())
def test_thirty_steps_with_a_point_cloud(scene: Scene) -> None:
    """The robust point-cloud cost through 30 steps, all variables at once.

    Tangent against adjoint for every variable; along random directions against differences. Where one of the points
    crosses a cell face within a difference, that has a kink; so of three steps of the difference the best counts.
    """
    states = states_of(scene, scene.parameters, 30)
    assume(not any(s.fallback_parts for s in states))
    rng = np.random.default_rng(scene.seed)
    body = scene.model.body
    frames = [surface_frame(states[k].time_s, body, scene.carried, states[k].u, 60, 2e-4, rng) for k in (10, 20, 30)]
    problem = Problem(
        scene.model, make_variables(scene.parameters, list(scene.parameters)), frames, field=scene.carried
    )
    v = problem.variables
    theta = v.start() + 1e-3 * np.minimum(v.prior_std, 1.0)
    at = problem.evaluate(theta, gradient=True, jacobian=True)
    off = (theta - v.prior_mean) / v.prior_std**2
    by_tangent = at.jacobian.T @ (at.weight * at.residual) + off
    # Sums of 180 points cancel: to 1e-10 of what they add up from.
    size = np.abs(at.jacobian).T @ np.abs(at.weight * at.residual) + np.abs(off)
    assert (np.abs(by_tangent - at.gradient) <= 1e-10 * size + 1e-12 * size.max()).all()

    d = rng.normal(size=len(theta)) * np.minimum(v.prior_std, 1.0)
    wrong = []
    for e in (1e-5, 1e-6, 2e-7):
        ahead2, ahead, behind, behind2 = (problem.evaluate(theta + s * e * d).cost for s in (2, 1, -1, -2))
        difference = (8 * (ahead - behind) - (ahead2 - behind2)) / (12 * e)
        wrong.append(abs(at.gradient @ d / difference - 1))
        if wrong[-1] < 1e-6:
            break
    assert min(wrong) < 1e-6
