"""Relaxation and creep of a bar against the closed forms of a standard linear solid in shear.

K and G are those of E and ν; in shear the body answers with G (1 + g e^{-t/τ}), in pressure with K. By the
correspondence principle a bar that is pulled has Ê(s) = 9 K Ĝ/(3 K + Ĝ), Ĝ(s) = G (1 + g s τ/(1 + s τ)):

    held at a strain ε:  σ(t) = ε [E + (E₀ - E) e^{-t/τ'}],  E₀ of K and G₀ = (1 + g) G,  τ' = τ (3 K + G₀)/(3 K + G)
    under a stress σ:    ε(t) = σ [1/(9K) + 1/(3G) (1 - g/(1 + g) e^{-t/((1 + g) τ)})]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.state import State
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.interface import Term
from soft_estimator.physics.terms.relaxation import Relaxation, RelaxationLaw

LENGTH, SIDE, YOUNG, NU, SHARE, TIME = 0.08, 0.02, 2e5, 0.4, 0.5, 0.2
BULK, SHEAR = YOUNG / (3 * (1 - 2 * NU)), YOUNG / (2 * (1 + NU))
# So light that waves cross it in a thousandth of τ: inertia has no say.
LIGHT_KG_M3, STEP_S = 0.1, 0.002
# θ = 0.6 calms those waves within a few steps, and errs by 0.1 Δt/τ = 0.1 % in what relaxes.
SCHEME = theta_scheme(STEP_S, 0.6)
SOLVER = SolverSettings(1e-10, 3000)


@pytest.fixture(scope="module")
def bar() -> Body:
    return build_body(sample(Box((LENGTH, SIDE, SIDE)), 0.01, align="origin"))


def parameters(**changed: Any) -> Parameters:
    return Parameters(YOUNG, NU, LIGHT_KG_M3, gravity_m_s2=np.zeros(3)).replace(**changed)


class Grips(Term[None]):
    """Springs along x alone on the nodes of both end faces, so stiff that they set the length and leave the sides."""

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray, strain: float) -> None:
        super().__init__(device, values, start)
        x = device.body.node_position_m[:, 0]
        self.nodes = np.flatnonzero(np.abs(np.abs(x) - LENGTH / 2) < 1e-9)
        self.right = x[self.nodes] > 0
        self.target = strain * x[self.nodes]
        self.stiffness = 1e5 * YOUNG * SIDE**2 / LENGTH / len(self.nodes)

    def add_blocks(self, stage: Any, at: None, assembly: Any) -> None:
        block = np.zeros((len(self.nodes), 9))
        block[:, 0] = stage.scheme.c_k * self.stiffness
        assembly.add_blocks(self.device.body.slot[self.nodes, 13], block)

    def add_force(self, stage: Any, at: None, rhs: np.ndarray) -> None:
        rhs[self.nodes, 0] += self.pull_n(stage.state.u)

    def pull_n(self, u: np.ndarray) -> np.ndarray:
        """Force of each spring along x [N]."""
        return self.stiffness * (self.target - u[self.nodes, 0])


@dataclass(frozen=True)
class GripsLaw:
    strain: float
    fused: ClassVar[str] = ""

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Grips:
        return Grips(device, values, start, self.strain)


@pytest.mark.parametrize("material", ["corotated", "neo_hookean"])
def test_stress_relaxation_of_a_bar(bar: Body, material: str) -> None:
    """A bar stretched at once by 0.1 % and held: its pull within 0.5 % of the closed form over 3 τ.

    The grips take 2e-5 of the strain, the first steps' waves are gone after twenty steps, and θ = 0.6 errs by 0.1 %.
    """
    strain = 1e-3
    model = build_model(
        bar, SCHEME, more=[RelaxationLaw(SHARE, TIME), GripsLaw(strain)], solver=SOLVER, material=material
    )
    simulation = Simulation(model, parameters())
    grips, state = simulation.term(Grips), simulation.initial_state()
    found, times = [], []
    for k in range(int(3 * TIME / STEP_S)):
        state, _ = simulation.step(state)
        if k > 20:
            found.append(float(grips.pull_n(state.u)[grips.right].sum()) / SIDE**2)
            times.append(state.time_s)
    at_once = 9 * BULK * (1 + SHARE) * SHEAR / (3 * BULK + (1 + SHARE) * SHEAR)
    slow = TIME * (3 * BULK + (1 + SHARE) * SHEAR) / (3 * BULK + SHEAR)
    expected = strain * (YOUNG + (at_once - YOUNG) * np.exp(-np.array(times) / slow))
    assert found[0] > 1.3 * found[-1]  # it does relax
    np.testing.assert_allclose(found, expected, rtol=0.005)


@pytest.mark.parametrize("material", ["corotated", "neo_hookean"])
def test_creep_of_a_bar(bar: Body, material: str) -> None:
    """A bar pulled at once by a constant stress of E/1000: its strain within 0.5 % of the closed form over 4 τ."""
    stress = 1e-3 * YOUNG
    ends = [(Box((1e-4, 1, 1), (s * LENGTH / 2, 0, 0)), np.array([s * stress * SIDE**2, 0, 0])) for s in (-1, 1)]
    model = build_model(bar, SCHEME, loads=ends, more=[RelaxationLaw(SHARE, TIME)], solver=SOLVER, material=material)
    simulation = Simulation(model, parameters())
    x = bar.node_position_m[:, 0]
    left, right = np.abs(x + LENGTH / 2) < 1e-9, np.abs(x - LENGTH / 2) < 1e-9
    state, found, times = simulation.initial_state(), [], []
    for k in range(int(4 * TIME / STEP_S)):
        state, _ = simulation.step(state)
        if k > 20:
            found.append(float(state.u[right, 0].mean() - state.u[left, 0].mean()) / LENGTH)
            times.append(state.time_s)
    fading = SHARE / (1 + SHARE) * np.exp(-np.array(times) / ((1 + SHARE) * TIME))
    expected = stress * (1 / (9 * BULK) + (1 - fading) / (3 * SHEAR))
    assert found[-1] > 1.25 * found[0]  # it does creep
    np.testing.assert_allclose(found, expected, rtol=0.005)


def test_rest_is_that_of_the_long_time_stiffness(bar: Body) -> None:
    """A balance at rest has had all the time it takes: the same with and without the branch, to the bit."""
    ends = [(Box((1e-4, 1, 1), (LENGTH / 2, 0, 0)), np.array([0.0, 0.01, 0.0]))]
    held = [FixedRegion(Box((1e-4, 1, 1), (-LENGTH / 2, 0, 0)), "strong")]
    found = []
    for more in ([], [RelaxationLaw(SHARE, TIME)]):
        model = build_model(bar, SCHEME, fixed=held, loads=ends, more=more, solver=SOLVER)
        found.append(solve_static(Simulation(model, parameters()))[0].u)
    assert np.array_equal(found[0], found[1])


@pytest.mark.parametrize("angle_rad", [0.3, 2.5])
def test_a_turn_alone_relaxes_nothing_new(bar: Body, angle_rad: float) -> None:
    """w = Rᵀ(x + u) does not change when a strained body turns as a whole: q only fades, by e^{-Δt/τ}, whatever the
    angle and the scheme's own rotation. Rounding of the rotations: 1e-12 of the displacements."""
    model = build_model(bar, hht_scheme(STEP_S), more=[RelaxationLaw(SHARE, TIME)], solver=SOLVER)
    simulation = Simulation(model, parameters())
    rng = np.random.default_rng(3)
    u = 0.1 * bar.grid.spacing_m * rng.normal(size=(bar.node_count, 3))
    q = 1e-3 * rng.normal(size=(bar.cell_count, 24))
    state = State(u, np.zeros_like(u), np.zeros_like(u), 0.0, memory={"relaxation": q})
    turn = rotation_matrix(angle_rad * np.array([0.6, 0.0, 0.8]))
    turned = (bar.node_position_m + u) @ turn.T - bar.node_position_m
    lin = simulation.linearise(state)
    after = simulation.advance_memory(lin, turned - u)["relaxation"]
    # A common shift of a cell's corners strains nothing and is left out of the comparison.
    off = (after - np.exp(-STEP_S / TIME) * q).reshape(-1, 8, 3)
    assert np.abs(off - off[:, :1]).max() < 1e-12 * np.abs(turned).max()


def test_energy_only_goes_down(bar: Body) -> None:
    """A cantilever let go under its weight, with no other damping: the branch's dashpot is all that takes energy, and
    it never gives any. The total, with ½ g E μ qᵀDq of the branch, falls from step to step; the midpoint rule's own
    error, with cells that turn by some hundredths of a radian a step, is some 1e-4 of what swings."""
    held = [FixedRegion(Box((1e-4, 1, 1), (-LENGTH / 2, 0, 0)), "strong")]
    model = build_model(bar, theta_scheme(0.0025), fixed=held, more=[RelaxationLaw(SHARE, 0.05)], solver=SOLVER)
    weight = parameters(youngs_modulus_pa=4e4, density_kg_m3=1000.0, gravity_m_s2=np.array([0.0, -9.81, 0.0]))
    simulation = Simulation(model, weight)
    state = simulation.initial_state()
    totals, kinetic, held_j = [balance(simulation, state).total_j], [], []
    for _ in range(400):
        state, report = simulation.step(state)
        assert not report.retaken_parts
        now = balance(simulation, state)
        totals.append(now.total_j)
        kinetic.append(now.kinetic_j)
        held_j.append(simulation.term(Relaxation).energies_j(state, simulation.device.rotations(state.u))["elastic_j"])
    assert max(held_j) > 0.05 * max(kinetic)
    assert np.diff(totals).max() < 1e-3 * max(kinetic)
    assert totals[0] - totals[-1] > 0.9 * max(kinetic)


@pytest.mark.parametrize(
    ("share", "time_s", "line"),
    [
        (-0.1, 0.1, "relaxation_share = -0.1 must lie in 0-1; 0 is a body that does not relax"),
        (1.5, 0.1, "relaxation_share = 1.5 must lie in 0-1; 0 is a body that does not relax"),
        (0.5, 0.0, "relaxation_time_s = 0 must be a positive time in seconds"),
        (0.5, float("nan"), "relaxation_time_s = nan must be a positive time in seconds"),
    ],
)
def test_bad_numbers_get_one_line(bar: Body, share: float, time_s: float, line: str) -> None:
    model = build_model(bar, SCHEME, more=[RelaxationLaw(share, time_s)])
    with pytest.raises(ValueError, match="relaxation") as refused:
        Simulation(model, parameters())
    assert str(refused.value) == line
