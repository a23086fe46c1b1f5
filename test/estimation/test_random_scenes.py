"""Adjoint, tangent and central differences on random scenes: body, material, integrator, support, contact, motion."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.variables import KINDS, make_variables
from soft_estimator.geometry.shapes import Box, Shape, Sphere, Torus, sample
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.contact import ContactLaw
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.gradient import NAMES, ParameterGradient, shifted
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, State, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

SHAPES: dict[str, tuple[Shape, float]] = {
    "ball": (Sphere(radius_m=0.04), 0.017),
    "block": (Box(size_m=(0.07, 0.05, 0.06)), 0.018),
    "ring": (Torus(major_radius_m=0.04, minor_radius_m=0.018, axis=(0, 0.3, 1)), 0.016),
}
# What a parameter's difference is stepped by where its value is small or zero.
LEAST_SCALE = {"translation_m": 0.01, "plane_offset_m": 0.01, "stiffness_damping_s": 0.001}


@dataclass(frozen=True)
class Scene:
    """A model and its parameters, as drawn."""

    model: Model
    parameters: Parameters
    field: CarriedField
    seed: int


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


@settings(max_examples=12, deadline=None, derandomize=True)
@given(scene=scenes())
def test_one_step(scene: Scene) -> None:
    """J = w·u + 0.01 w'·v after one step: every number in `Parameters`, by adjoint, tangent and differences.

    Fourth-order differences leave rounding and truncation of about 1e-9, solves 1e-13; the components of one vector
    are judged together, since one of them may be zero by symmetry.
    """
    rng = np.random.default_rng(scene.seed)
    by_u, by_v = rng.normal(size=(2, scene.model.body.node_count, 3))

    def value(parameters: Parameters) -> float:
        after = states_of(scene, parameters, 1)[1]
        return float((by_u * after.u).sum() + 0.01 * (by_v * after.v).sum())

    before, after = states_of(scene, scene.parameters, 1)
    assume(not after.calmed)
    adjoint = Adjoint(Simulation(scene.model, scene.parameters))
    bar = adjoint.zero_state()
    bar.u += by_u
    bar.v += 0.01 * by_v
    gradient = adjoint.finish(adjoint.step_back(before, after, bar)[0])
    for name in NAMES:
        zero = np.atleast_1d(getattr(ParameterGradient.zero(1), name))
        plain = np.ndim(getattr(ParameterGradient.zero(1), name)) == 0
        units = [ParameterGradient.unit(1, name, None if plain else i) for i in range(len(zero))]
        difference = np.array([_difference(value, scene.parameters, name, d) for d in units])
        exact = np.atleast_1d(getattr(gradient, name))
        assert np.abs(exact - difference).max() <= 1e-6 * np.abs(difference).max() + 1e-9, name
    _check_dot_product(scene, gradient, by_u, by_v, rng)


def _difference(value, parameters: Parameters, name: str, direction: ParameterGradient) -> float:
    e = 1e-4 * max(float(np.abs(getattr(parameters, name)).max()), LEAST_SCALE.get(name, 0.1))

    def slope(step: float) -> float:
        ahead, behind = (value(shifted(parameters, direction, s * step)) for s in (1, -1))
        return (ahead - behind) / (2 * step)

    return (4 * slope(e / 2) - slope(e)) / 3


def _check_dot_product(
    scene: Scene, gradient: ParameterGradient, by_u: np.ndarray, by_v: np.ndarray, rng: np.random.Generator
) -> None:
    """The tangent along a random direction against the adjoint, to 1e-10 of the sum's largest term."""
    direction = ParameterGradient.zero(1)
    for name in NAMES:
        size = max(float(np.abs(getattr(scene.parameters, name)).max()), LEAST_SCALE.get(name, 0.1))
        shape = np.shape(getattr(direction, name))
        setattr(direction, name, size * rng.normal(size=shape) if shape else size * float(rng.normal()))
    simulation = Simulation(scene.model, scene.parameters)
    tangent, before = Tangent(simulation, [direction]), simulation.initial_state()
    after, _, kept = simulation.step_keeping(before)
    change = tangent.step(before, after, kept, tangent.initial())[0][0]
    by_tangent = float((by_u * change.u).sum() + 0.01 * (by_v * change.v).sum())
    terms = [np.abs(np.asarray(getattr(gradient, n)) * getattr(direction, n)).max() for n in NAMES]
    assert abs(by_tangent - gradient.dot(direction)) <= 1e-10 * max(terms)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(scene=scenes())
def test_thirty_steps_with_a_point_cloud(scene: Scene) -> None:
    """The robust point-cloud cost through 30 steps, all variables at once.

    Tangent against adjoint for every variable; along random directions against differences. Where one of the points
    crosses a cell face within a difference, that has a kink; so of three steps of the difference the best counts.
    """
    states = states_of(scene, scene.parameters, 30)
    assume(not any(s.calmed for s in states))
    rng = np.random.default_rng(scene.seed)
    body = scene.model.body
    frames = [surface_frame(states[k].time_s, body, scene.field, states[k].u, 60, 2e-4, rng) for k in (10, 20, 30)]
    problem = Problem(scene.model, make_variables(scene.parameters, list(KINDS)), frames, field=scene.field)
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
