"""Steps with the neo-Hookean law: derivatives, volumes kept, cells turned inside out, steps that do not converge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_suite import RollOut, check_simulation, complaints, table

from soft_estimator.backends import choose_backend
from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, Placed, Shape, Sphere, sample
from soft_estimator.physics import guard
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.state import State
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

PARAMETERS = Parameters(
    np.array([8000.0, 5000.0]),
    0.4,
    1000.0,
    0.4,
    0.003,
    plane_offset_m=0.021,
    rotation_rad=np.array([0.1, 0.2, -0.1]),
    velocity_m_s=np.array([0.2, -0.8, 0.1]),
    angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
    gravity_m_s2=np.array([0.3, -9.8, 0.4]),
)
PATH = RigidPath(
    np.array([0.0, 0.1]), np.array([[0, 0, 0], [0.01, 0.02, 0]]), np.array([[0, 0, 0], [0, 0.3, 0]]), np.zeros(3)
)


@pytest.fixture(scope="module")
def body() -> Body:
    """Full and cut cells, two material regions."""
    box = Placed(Box((0.06, 0.04, 0.05)), np.eye(3), (0.003, 0.002, 0.001))
    return build_body(sample(box, 0.02, align="origin"), region_of=lambda x: (x[:, 0] > 0).astype(np.int32))


def make_model(body: Body, scheme: Integrator, held: bool = False) -> Model:
    fixed = [FixedRegion(Box((0.02, 0.2, 0.2), (-0.03, 0, 0)), "strong", PATH)] if held else []
    solver = SolverSettings(1e-13, 3000)
    return build_model(body, scheme, fixed=fixed, contact=ContactLaw(2e5, 500.0), solver=solver, material="neo_hookean")


@pytest.mark.parametrize(
    ("scheme", "held", "backend"),
    [
        (theta_scheme(0.01), False, "cpu"),
        (hht_scheme(0.01, -0.1), True, "cpu"),
        (theta_scheme(0.01, 0.6, lagged=True), True, "cpu"),
        pytest.param(theta_scheme(0.01), True, "reference", marks=pytest.mark.slow),
    ],
)
def test_every_derivative(body: Body, scheme: Integrator, held: bool, backend: str) -> None:
    """p ∂J/∂p of every number in `Parameters` through two converged steps, by the implicit function theorem with the
    true tangent: tangent = adjoint = differences to 1e-6. Tolerances: see `gradient_suite`."""
    model, device = make_model(body, scheme, held), choose_backend(backend)
    judge = None if backend == "cpu" else ("youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s")
    rows = check_simulation(lambda p: Simulation(model, p, device), model.complete(PARAMETERS), 2, judge=judge)
    assert {row.label for row in rows} >= {"youngs_modulus_pa[1]", "poissons_ratio", "contact_sharpness_per_m"}


def test_fallback_steps_have_exact_derivatives_too(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is taken by backward Euler in two parts, whose minima have derivatives like any other."""
    monkeypatch.setattr(guard, "_gain", lambda *_: 2.0)  # no step is good enough
    monkeypatch.setattr(guard, "FALLBACK_PARTS", (2,))
    model = make_model(body, theta_scheme(0.01))
    simulation = Simulation(model, PARAMETERS)
    assert simulation.step(simulation.initial_state())[0].fallback_parts == 2
    judge = ("poissons_ratio", "plane_offset_m", "density_kg_m3")
    check_simulation(lambda p: Simulation(model, p), model.complete(PARAMETERS), 2, judge=judge)


@pytest.mark.parametrize(("poissons_ratio", "in_all"), [(0.499, 3e-3), (0.4998, 1e-3)])
def test_a_squashed_block_keeps_its_volume(poissons_ratio: float, in_all: float) -> None:
    """A block of 6³ cells glued between plates that close to half its height.

    Sides free, the law itself gives J - 1 = -(1/s - 1) μ/(λ + μ) at a stretch s: -0.200 % at ν = 0.499 and s = ½, of
    which the block may be off by 0.1 % in all; at ν = 0.4998 it is -0.04 %, and 0.1 % holds in all. No cell: 1 %."""
    h, n = 0.01, 6
    size, middle = n * h, 0.5 * n * h

    def plate(y: float) -> Shape:
        return Box((2 * size, 1e-3, 2 * size), (middle, y, middle))

    body = build_body(sample(Box((size,) * 3, (middle,) * 3), h, align="origin"))
    closing = RigidPath(np.array([0.0, 1.0]), np.array([[0, 0, 0], [0, -0.5 * size, 0]]), np.zeros((2, 3)))
    fixed = [FixedRegion(plate(0.0)), FixedRegion(plate(size), "strong", closing)]
    parameters = Parameters(2e4, poissons_ratio, 1000.0, gravity_m_s2=np.zeros(3))
    simulation = Simulation(build_model(body, theta_scheme(0.1, 1.0), fixed=fixed, material="neo_hookean"), parameters)
    state = simulation.initial_state()
    for _ in range(10):
        state, report = simulation.step(state)
        assert report.converged and not report.retaken_parts
    assert (size + state.u[simulation.model.dirichlet.held[1][0], 1]) == pytest.approx(0.5 * size, rel=1e-9)
    j = mean_volume_ratio(body, state.u)
    assert np.abs(j - 1).max() < 1e-2
    own = -(1 / 0.5 - 1) * (1 - 2 * poissons_ratio)  # μ/(λ + μ) = 1 - 2ν
    assert abs(j.mean() - 1) < in_all and abs(j.mean() - 1 - own) < 1e-3


def mean_volume_ratio(body: Body, u: np.ndarray) -> np.ndarray:
    """J̄ of the cells, (C,)."""
    slopes = body.slopes.slopes_per_m[body.cells.gradient_index]
    f = np.eye(3) + np.einsum("cpa,cpbk->ckab", u[body.cell_nodes], slopes)
    return np.linalg.det(f).mean(axis=1)


def test_scrambled_nodes_come_back() -> None:
    """Every node of a ball thrown anywhere into its box, half of the cells inside out: damped, it is a ball again.

    After 0.8 s (some twenty damping times 2/(α₁ + α₂ ω²) of the slowest mode) a slow spin is left, whose centrifugal
    strain ρ ω² R²/E is a thousandth: nodes are within 0.5 % of the radius of its shape, up to a rotation. No step
    ends the run or brings more energy than the scrambled body had."""
    body = build_body(sample(Sphere(0.05), 0.02))
    parameters = Parameters(2e4, 0.45, 1000.0, 1.0, 0.002, gravity_m_s2=np.zeros(3))
    simulation = Simulation(build_model(body, theta_scheme(0.01), material="neo_hookean"), parameters)
    x = body.node_position_m
    u = np.random.default_rng(0).uniform(x.min(axis=0), x.max(axis=0), x.shape) - x
    assert (mean_volume_ratio(body, u) < 0).sum() > 0.3 * body.cell_count
    state = State(u, np.zeros_like(u), np.zeros_like(u), 0.0)
    start = balance(simulation, state).total_j
    for _ in range(80):
        state, _ = simulation.step(state)
        assert balance(simulation, state).total_j < start
    assert (mean_volume_ratio(body, state.u) > 0.9).all()
    rest, now_at = x - x.mean(axis=0), x + state.u - (x + state.u).mean(axis=0)
    left, _, right = np.linalg.svd(rest.T @ now_at)
    assert np.linalg.det(left @ right) > 0
    assert np.sqrt(((rest @ left @ right - now_at) ** 2).sum(axis=1).mean()) < 5e-3 * 0.05


def test_a_step_that_does_not_converge_falls_back_and_is_counted(body: Body) -> None:
    """With two rounds a hard landing does not converge: backward Euler takes the step, and the report says so."""
    model = make_model(body, theta_scheme(0.02))
    few = replace(model, solver=replace(model.solver, rounds=2))
    state = Simulation(model, PARAMETERS).initial_state()
    _, converged, _ = Simulation(model, PARAMETERS).step_once(state)
    assert converged.converged and 2 < converged.rounds < 60
    after, report = Simulation(few, PARAMETERS).step(state)
    assert report.fell_back and after.fallback_parts > 0 and np.isfinite(after.u).all()


def test_an_undamped_body_keeps_its_energy() -> None:
    """Midpoint steps of a free, spinning, ringing body: 60 steps keep E = kinetic + elastic to a part in a thousand,
    what the second-order scheme leaves at fifteen steps a period."""
    body = build_body(sample(Sphere(0.05), 0.025))
    parameters = Parameters(2e4, 0.45, 1000.0, gravity_m_s2=np.zeros(3), angular_velocity_rad_s=np.array([0, 20.0, 0]))
    simulation = Simulation(build_model(body, theta_scheme(0.002), material="neo_hookean"), parameters)
    state = simulation.initial_state()
    stretched = state.u + body.node_position_m * np.array([0.15, -0.06, -0.06])
    state = replace(state, u=stretched)
    start = balance(simulation, state).total_j
    for _ in range(60):
        state, report = simulation.step(state)
        assert report.converged and not report.retaken_parts
    assert balance(simulation, state).total_j == pytest.approx(start, rel=1e-3)


def test_rest_under_its_own_weight() -> None:
    """A soft cantilever at rest: the forces balance to 1e-6 of the load, which a dynamic step from there confirms by
    staying: accelerations below 1e-4 g."""
    body = build_body(sample(Box((0.12, 0.02, 0.02)), 0.01))
    parameters = Parameters(2e4, 0.45, 1000.0, 5.0, 0.01)
    held = [FixedRegion(Box((0.0201, 0.1, 0.1), (-0.06, 0, 0)))]
    simulation = Simulation(build_model(body, theta_scheme(0.01), fixed=held, material="neo_hookean"), parameters)
    state, report = solve_static(simulation)
    assert report.relative_imbalance < 1e-6 and state.u[:, 1].min() < -0.02
    after, _ = simulation.step(state)
    assert np.abs(after.u - state.u).max() < 1e-4 * 9.81 * 0.01**2


@pytest.mark.parametrize("tolerance", [1e-6, 1e-13])
def test_a_body_that_does_not_move_needs_no_rounds(tolerance: float) -> None:
    """Without load, ten metres from the origin, forces are rounding alone (1e-16 · 10 m · E h = 1e-12 N): steps take
    them for balance, and no node moves by more than they could push it, 1e-12 N Δt²/(4 ρ h³) = 1e-14 m."""
    body = build_body(sample(Sphere(0.05), 0.025))
    still = Parameters(
        2e4, 0.45, 1000.0, gravity_m_s2=np.zeros(3), translation_m=np.array([10.0, -7.0, 3.0]), rotation_rad=np.ones(3)
    )
    solver = SolverSettings(tolerance, 2000)
    simulation = Simulation(build_model(body, theta_scheme(0.01), solver=solver, material="neo_hookean"), still)
    first = state = simulation.initial_state()
    for _ in range(5):
        state, report = simulation.step(state)
        assert report.converged and not report.retaken_parts and report.rounds <= 2
    assert np.abs(state.u - first.u).max() < 1e-12


@pytest.mark.slow
def test_a_start_at_rest_has_its_derivatives() -> None:
    """u₀ from K(u₀) of the balance, then two steps: adjoint, tangent and differences of a beam that hangs by half its
    length. What damps has no effect on what stands still, beyond rounding."""
    body = build_body(sample(Box((0.08, 0.02, 0.02)), 0.01, align="origin"))
    held = [FixedRegion(Box((0.021, 0.03, 0.03), (-0.04, 0, 0)))]
    solver = SolverSettings(1e-13, 5000)
    model = build_model(body, theta_scheme(0.005), fixed=held, solver=solver, rests=True, material="neo_hookean")
    parameters = Parameters(2e4, 0.45, 1000.0)
    sag = -Simulation(model, parameters).initial_state().u[:, 1].min()
    assert sag > 0.03
    no_effect = ("plane_normal", "plane_offset_m", "velocity_m_s", "angular_velocity_rad_s")
    judged = ("youngs_modulus_pa", "poissons_ratio", "density_kg_m3", "gravity_m_s2", "rotation_rad")
    rows = table(RollOut(lambda p: Simulation(model, p), 2), model.complete(parameters), zero=no_effect, judge=judged)
    moving = [row for row in rows if "damping" not in row.label]
    assert not complaints(moving, no_effect), "\n".join(complaints(moving, no_effect))


def test_refusals() -> None:
    """One line for what does not go together."""
    body = build_body(sample(Sphere(0.05), 0.025))
    scheme = theta_scheme(0.01)
    with pytest.raises(ValueError, match=r"^material law 'rubber' does not exist; use one of corotated, neo_hookean$"):
        build_model(body, scheme, material="rubber")
    weak = [FixedRegion(Box((0.1, 0.02, 0.1), (0, -0.05, 0)), "nitsche")]
    with pytest.raises(ValueError, match=r"^fixed\[0\].method = nitsche knows the linear material alone; use strong"):
        build_model(body, scheme, fixed=weak, material="neo_hookean")
    with pytest.raises(ValueError, match=r"^contact.method = extrapolated goes with the linear material; use implicit"):
        build_model(body, scheme, contact=ContactLaw(1e5, 500.0, implicit=False), material="neo_hookean")
