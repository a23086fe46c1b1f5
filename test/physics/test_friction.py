"""Friction against closed forms: sticking and slipping, stopping, rolling; and it never makes energy."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.shapes import Box, Sphere, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.friction import Friction
from soft_estimator.physics.terms.interface import Assembly

DENSITY, GRAVITY, HEIGHT = 1000.0, 9.81, 0.03
STIFFNESS, SHARPNESS = 1e6, 2000.0
# Pressure ρ g H = k log(1 + exp(-a δ))/a under a block at rest: where its bottom lies.
DEPTH = float(-np.log(np.expm1(SHARPNESS * DENSITY * GRAVITY * HEIGHT / STIFFNESS)) / SHARPNESS)


@pytest.fixture(scope="module")
def block() -> Body:
    return build_body(sample(Box((0.06, HEIGHT, 0.06)), 0.015))


def lying(
    body: Body, coefficient: float | None, scheme: Integrator, *, tilt_rad: float = 0.0, speed_m_s: float = 0.0
) -> Simulation:
    """A stiff block that lies on the plane y = 0 as deep as it rests, gravity tilted instead of the plane."""
    law = ContactLaw(STIFFNESS, SHARPNESS, friction=coefficient, slip_speed_m_s=1e-3)
    parameters = Parameters(
        1e6,
        0.3,
        DENSITY,
        mass_damping_per_s=0.0,
        stiffness_damping_s=1e-3,
        gravity_m_s2=GRAVITY * np.array([np.sin(tilt_rad), -np.cos(tilt_rad), 0.0]),
        translation_m=(0.0, HEIGHT / 2 + DEPTH, 0.0),
        velocity_m_s=(speed_m_s, 0.0, 0.0),
    )
    return Simulation(build_model(body, scheme, contact=law), parameters)


def moved(simulation: Simulation, steps: int, state: State | None = None) -> tuple[np.ndarray, np.ndarray, State]:
    """The centre of mass (steps + 1, 3) [m], the energy (steps + 1,) [J], and the last state."""
    state = simulation.initial_state() if state is None else state
    found = [balance(simulation, state)]
    for _ in range(steps):
        state, report = simulation.step(state)
        assert not report.retaken_parts
        found.append(balance(simulation, state))
    return np.array([b.centre_of_mass_m for b in found]), np.array([b.total_j for b in found]), state


@pytest.mark.parametrize("coefficient", [0.5, 0.2])
def test_a_block_on_an_incline_slips_beyond_the_angle_of_friction(block, coefficient):
    """Half a degree below atan μ it creeps at ε tan θ/√(μ² - tan²θ), a few ε = 1 mm/s; half a degree above it speeds up
    by g (sin θ - μ cos θ).

    It is first held back by mass damping until it no longer rocks. 10 % for what rocking is left.
    """
    step_s, steps = 0.002, 100
    critical = np.arctan(coefficient)
    below, above = critical - np.radians(0.5), critical + np.radians(0.5)
    held = lying(block, coefficient, theta_scheme(step_s), tilt_rad=below)
    state = moved(held.with_parameters(held.parameters.replace(mass_damping_per_s=60.0)), steps)[2]
    x = moved(held, steps, state)[0][:, 0]
    creep = 1e-3 * np.tan(below) / np.sqrt(coefficient**2 - np.tan(below) ** 2)
    assert (x[-1] - x[-51]) / (50 * step_s) == pytest.approx(creep, rel=0.1)
    x = moved(lying(block, coefficient, theta_scheme(step_s), tilt_rad=above), steps, state)[0][:, 0]
    acceleration = GRAVITY * (np.sin(above) - coefficient * np.cos(above))
    fit = np.polyfit(step_s * np.arange(50, 101), x[50:], 2)
    assert 2 * fit[0] == pytest.approx(acceleration, rel=0.1)


@pytest.mark.parametrize("scheme", [theta_scheme(0.004), hht_scheme(0.004)], ids=["theta", "hht"])
def test_a_sliding_block_stops_where_it_should(block, scheme):
    """After v²/(2 μ g), within 2 %; and then it stays, but for rocking on its contact, by 0.5 mm at most."""
    coefficient, speed = 0.4, 0.6
    x, energy, _ = moved(lying(block, coefficient, scheme, speed_m_s=speed), 75)
    expected = speed**2 / (2 * coefficient * GRAVITY)
    stopped = int(speed / (coefficient * GRAVITY) / scheme.step_s) + 3
    assert x[stopped, 0] - x[0, 0] == pytest.approx(expected, rel=0.02)
    assert np.ptp(x[stopped:, 0]) < 6e-4
    assert np.diff(energy).max() < 1e-3 * energy[0]


def test_a_sliding_ball_ends_rolling():
    """Set sliding at v without spin, it rolls at 5 v/7 once v = ω R, after 2 v/(7 μ g): both to 3 %.

    A ball of six cells across has facets a hundredth of its radius deep, and rolls over them.
    """
    radius, speed, coefficient = 0.03, 0.5, 0.5
    body = build_body(sample(Sphere(radius), 0.01))
    law = ContactLaw(2e7, SHARPNESS, friction=coefficient)
    depth = 0.0004  # as deep as it rests
    parameters = Parameters(
        2e6, 0.3, DENSITY, 0.0, 1e-4, translation_m=(0, radius - depth, 0), velocity_m_s=(speed, 0, 0)
    )
    simulation = Simulation(build_model(body, theta_scheme(0.001), contact=law), parameters)
    x, _, state = moved(simulation, 50)
    mean = (x[50, 0] - x[44, 0]) / 0.006
    assert mean == pytest.approx(5 / 7 * speed, rel=0.03)
    arm = body.node_position_m + state.u - x[-1]
    mass = DENSITY * body.node_volume_m3
    spin = (mass[:, None] * np.cross(arm, state.v)).sum(axis=0)[2] / (mass * (arm[:, :2] ** 2).sum(axis=1)).sum()
    assert -spin * x[-1, 1] == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize("lagged", [False, True])
def test_friction_takes_energy_whatever_the_slip_was_thought_to_be(block, lagged):
    """The work f·Δu of a step's friction is never positive: any state, any Δu, any w₀ (θ-scheme, velocity Δu/Δt)."""
    simulation = lying(block, 0.7, theta_scheme(0.004, 0.5 if not lagged else 1.0, lagged=lagged))
    friction, rng = simulation.term(Friction), np.random.default_rng(2)
    for _ in range(5):
        u, v, a, increment = 1e-3 * rng.normal(size=(4, block.node_count, 3))
        stage = simulation.linearise(State(simulation.start + u, 100 * v, 100 * a, 0.0)).stage
        at = friction.prepare(stage)
        force = np.zeros_like(increment)
        friction.add_force(stage, at, force)
        assembly = Assembly(simulation.device)
        friction.add_blocks(stage, at, assembly)
        force -= assembly.times(increment)  # g = r - A Δu
        assert float((force * increment).sum()) < 0.0


def test_a_tumbling_brick_never_gains_energy(block):
    """A brick that lands on an edge with spin: the total never rises by more than 0.2 % of what it started with, which
    is what the contact does without friction; and friction takes a good part of it."""
    parameters = Parameters(
        5e4, 0.3, DENSITY, 0.0, 1e-3, rotation_rad=(0, 0, 0.5), translation_m=(0, 0.035, 0),
        velocity_m_s=(0.8, -0.3, 0), angular_velocity_rad_s=(1.0, 0, -6.0),
    )  # fmt: skip
    left = []
    for coefficient in (None, 0.6):
        law = ContactLaw(2e6, SHARPNESS, friction=coefficient)
        simulation = Simulation(build_model(block, theta_scheme(0.002), contact=law), parameters)
        energy = moved(simulation, 100)[1]
        assert np.maximum.accumulate(energy)[-1] <= 1.002 * energy[0]
        left.append(energy[-1] / energy[0])
    assert left[1] < left[0] - 0.1


def test_steps_are_cut_while_a_brick_rubs_and_then_alone(block):
    """Thrown, it lands with 2 ms in eight substeps where it does with 0.25 ms all along, within 0.02 mm after 0.1 s; in
    one solve of 2 ms it is off by more than fifty times that. In the air no step is cut."""
    parameters = Parameters(
        5e4, 0.3, DENSITY, 0.0, 1e-3, rotation_rad=(0, 0, 0.35), translation_m=(0, 0.035, 0),
        velocity_m_s=(1.8, -0.4, 0.15), angular_velocity_rad_s=(0.0, 1.0, 1.0),
    )  # fmt: skip

    def thrown(step_s: float, substeps: int) -> tuple[np.ndarray, list[int]]:
        law = ContactLaw(2e7, SHARPNESS, friction=0.4, substeps=substeps)
        simulation = Simulation(build_model(block, theta_scheme(step_s), contact=law), parameters)
        state, taken = simulation.initial_state(), []
        for _ in range(round(0.1 / step_s)):
            state, report = simulation.step(state)
            assert not report.retaken_parts
            taken.append(state.substeps)
        return balance(simulation, state).centre_of_mass_m, taken

    (short, _), (cut, taken), (long, _) = thrown(0.00025, 1), thrown(0.002, 8), thrown(0.002, 1)
    assert np.linalg.norm(cut - short) < 2e-5
    assert np.linalg.norm(long - short) > 1e-3
    assert set(taken) == {1, 8} and taken[0] == 1 and taken.count(8) < len(taken) / 2


def test_a_coefficient_of_zero_is_no_friction_at_all(block):
    """The same bits, and no mean motion counts as drift that nothing resists."""
    rubbing, plain = (lying(block, c, theta_scheme(0.004), speed_m_s=0.3) for c in (0.0, None))
    states = [s.initial_state() for s in (rubbing, plain)]
    for _ in range(5):
        states = [s.step(state)[0] for s, state in zip((rubbing, plain), states)]
    assert np.array_equal(states[0].u, states[1].u) and np.array_equal(states[0].v, states[1].v)
    assert len(plain.drifts) == 2 and len(rubbing.drifts) == 0


def test_nonsense_is_refused_in_one_line(block):
    with pytest.raises(ValueError, match=r"^contact friction = -0\.1 must not be negative; leave it out for none$"):
        ContactLaw(1e6, 2000.0, friction=-0.1)
    with pytest.raises(ValueError, match=r"slip_speed_m_s = 0\.0 must be positive"):
        ContactLaw(1e6, 2000.0, friction=0.1, slip_speed_m_s=0.0)
    simulation = lying(block, 0.3, theta_scheme(0.004))
    below = simulation.with_parameters(simulation.parameters.replace(friction_coefficient=-0.2))
    with pytest.raises(ValueError, match=r"^friction_coefficient = -0\.2 must not be negative; 0 is no friction$"):
        below.initial_state(), below.terms
