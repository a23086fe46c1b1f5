"""Weights that ride on a body, and a support that is taken away: closed forms and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_suite import check_simulation

from soft_estimator.backends import choose_backend
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model, surface_shares
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.interface import Law
from soft_estimator.physics.terms.support import Support, SupportLaw
from soft_estimator.physics.terms.weights import WeightsLaw

LENGTH, SIDE, MASS_KG = 0.06, 0.02, 0.05
TIP = Box((1e-4, 1, 1), (LENGTH / 2, 0, 0))
ROOT = FixedRegion(Box((1e-4, 1, 1), (-LENGTH / 2, 0, 0)), "strong")
SOLVER = SolverSettings(1e-12, 3000)


@pytest.fixture(scope="module")
def bar() -> Body:
    return build_body(sample(Box((LENGTH, SIDE, SIDE)), 0.01, align="origin"))


def on_tip(bar: Body, mass_kg: float = MASS_KG) -> np.ndarray:
    return mass_kg * surface_shares(bar, TIP, "weight")


def parameters(**changed: Any) -> Parameters:
    return Parameters(1e5, 0.0, 1.0, gravity_m_s2=np.array([9.81, 0.0, 0.0])).replace(**changed)


def test_a_weight_on_a_light_bar_is_a_mass_on_a_spring(bar: Body) -> None:
    """k = E A/L, ν = 0: it hangs by m g/k, and let go from the unstretched bar swings about that with ω = √(k/m).

    The weight is shared so that it pulls evenly (as the volumes of the end's nodes are); the bar's own 0.024 g, a third
    of which swings along, lengthens the period by 1e-4 and θ = ½ by (ωΔt)²/12 = 5e-4: 1e-3 is allowed.
    """
    k = 1e5 * SIDE**2 / LENGTH
    omega, hangs = np.sqrt(k / MASS_KG), MASS_KG * 9.81 / k
    tip = bar.node_position_m[:, 0] > LENGTH / 2 - 1e-9
    evenly = np.where(tip, bar.node_volume_m3, 0.0)
    law = WeightsLaw(MASS_KG * evenly / evenly.sum())
    model = build_model(bar, theta_scheme(0.08 / omega), fixed=[ROOT], more=[law], solver=SOLVER)
    simulation = Simulation(model, parameters())
    rest, _ = solve_static(simulation)
    assert float(rest.u[tip, 0].mean()) == pytest.approx(hangs, rel=1e-3)
    state, times, places = simulation.initial_state(), [0.0], [-1.0]
    for _ in range(120):
        state, _ = simulation.step(state)
        times.append(state.time_s)
        places.append(float(state.u[tip, 0].mean()) / hangs - 1.0)
    t, x = np.array(times), np.array(places)
    at = np.flatnonzero(x[:-1] * x[1:] < 0)
    crossings = t[at] - x[at] * (t[at + 1] - t[at]) / (x[at + 1] - x[at])
    assert crossings[2] == pytest.approx(2.5 * np.pi / omega, rel=1e-3)
    assert x.max() == pytest.approx(1.0, abs=0.005)


def test_energy_of_a_swinging_weight_is_kept(bar: Body) -> None:
    """Kinetic, elastic and gravity with the weight's own shares: kept to 1e-3 of the swing, the scheme's error."""
    model = build_model(bar, theta_scheme(0.001), fixed=[ROOT], more=[WeightsLaw(on_tip(bar))], solver=SOLVER)
    simulation = Simulation(model, parameters())
    state, held = simulation.initial_state(), []
    for _ in range(60):
        state, report = simulation.step(state)
        assert not report.retaken_parts
        held.append(balance(simulation, state))
    totals, kinetic = [b.total_j for b in held], [b.kinetic_j for b in held]
    assert np.ptp(totals) < 1e-3 * max(kinetic)


@pytest.mark.parametrize("with_weight", [False, True])
def test_nothing_moves_until_the_support_gives_way(bar: Body, with_weight: bool) -> None:
    """Body and weight are carried node by node: at rest to the solver's accuracy before t₀, then both fall."""
    weights = on_tip(bar) if with_weight else np.zeros(0)
    more: list[Law] = [SupportLaw(0.05, 0.02, weights)]
    if with_weight:
        more.append(WeightsLaw(weights))
    model = build_model(bar, theta_scheme(0.005), fixed=[ROOT], more=more, solver=SOLVER)
    simulation = Simulation(model, parameters(density_kg_m3=1000.0))
    state = simulation.initial_state()
    for _ in range(10):
        state, _ = simulation.step(state)
    assert np.abs(state.u).max() < 1e-12
    for _ in range(6):
        state, _ = simulation.step(state)
    assert np.abs(state.u).max() > 1e-6


def test_a_free_body_falls_by_the_double_integral_of_the_release(bar: Body) -> None:
    """a = s(t) g: v(t₀ + T) = g T/2 and, from there on, g t more; a step's midpoint sums s exactly to O(Δt²), 1e-3."""
    model = build_model(bar, theta_scheme(0.002), more=[SupportLaw(0.02, 0.04, np.zeros(0))], solver=SOLVER)
    simulation = Simulation(model, parameters(density_kg_m3=1000.0))
    state = simulation.initial_state()
    for _ in range(50):
        state, _ = simulation.step(state)
    assert float(state.v[:, 0].mean()) == pytest.approx(9.81 * (0.02 + 0.04), rel=1e-3)


def test_a_support_works_on_a_body_that_rises(bar: Body) -> None:
    """What a free body gains against gravity, -Σ m g·Δu, is the work of the support, all of it while that carries
    all; nothing of it is energy out of nothing, so that no step is taken again, up or down."""
    law = SupportLaw(0.02, 0.04, np.zeros(0))
    model = build_model(bar, theta_scheme(0.005), more=[law], solver=SOLVER)
    for speed in (-0.5, 0.5):
        simulation = Simulation(model, parameters(density_kg_m3=1000.0, velocity_m_s=np.array([speed, 0.0, 0.0])))
        support = next(term for term in simulation.terms if isinstance(term, Support))
        state = simulation.initial_state()
        for k in range(14):
            before, held = state, balance(simulation, state).total_j
            state, report = simulation.step(state)
            assert not report.retaken_parts and not report.fell_back
            rise_m = -float((state.u - before.u)[:, 0].mean())
            mass_kg = 1000.0 * bar.volume_m3
            if k < 4:
                assert support.work_j(before, state) == pytest.approx(mass_kg * 9.81 * rise_m, rel=1e-9)
            gained_j = balance(simulation, state).total_j - held
            assert gained_j == pytest.approx(support.work_j(before, state), abs=1e-9 * mass_kg)


@pytest.mark.parametrize(
    ("scheme", "backend"),
    [
        (theta_scheme(0.01), "cpu"),
        (hht_scheme(0.01, -0.1), "cpu"),
        pytest.param(hht_scheme(0.01, -0.1), "reference", marks=pytest.mark.slow),
    ],
    ids=["theta-cpu", "hht-cpu", "hht-reference"],
)
def test_every_derivative(scheme: Integrator, backend: str) -> None:
    """Three steps in the middle of the release, with a weight: p ∂J/∂p of every number, t₀ and T among them. Twelve
    cells: each has the same terms. No step is taken again: else backward Euler in parts would be what is
    differentiated."""
    bar = build_body(sample(Box((LENGTH, 2 * SIDE, 2 * SIDE)), SIDE))
    weights = on_tip(bar)
    more = [WeightsLaw(weights), SupportLaw(0.0, 0.1, weights)]
    model = build_model(bar, scheme, fixed=[ROOT], more=more, solver=SolverSettings(1e-13, 3000))
    given = parameters(
        youngs_modulus_pa=5e3, poissons_ratio=0.3, density_kg_m3=1000.0, mass_damping_per_s=2.0,
        stiffness_damping_s=0.003, gravity_m_s2=np.array([3.0, -8.0, 2.0]), support_until_s=-0.02,
        support_gone_within_s=0.07, velocity_m_s=np.array([0.1, -0.2, 0.1]),
    )  # fmt: skip
    judge = ("gravity_m_s2", "density_kg_m3", "support_until_s", "support_gone_within_s", "velocity_m_s")
    where = choose_backend(backend)
    zero = ("plane_normal", "plane_offset_m")
    simulation = Simulation(model, given)
    assert not simulation.step(simulation.initial_state())[1].retaken_parts
    check_simulation(lambda p: Simulation(model, p, where), given, 3, zero=zero, judge=judge)


def test_bad_numbers_get_one_line(bar: Body) -> None:
    with pytest.raises(ValueError, match=r"mass_kg = -1 must not be negative; give the mass itself$"):
        WeightsLaw(np.full(bar.node_count, -1.0))
    model = build_model(bar, theta_scheme(0.01), more=[SupportLaw(0.0, 0.0, np.zeros(0))])
    with pytest.raises(ValueError, match=r"^support_gone_within_s = 0 must be a positive time in seconds$"):
        Simulation(model, parameters())
    with pytest.raises(ValueError, match=r"^weight meets no surface of the body; move or enlarge its box$"):
        surface_shares(bar, Box((0.01, 0.01, 0.01), (1.0, 0, 0)), "weight")
