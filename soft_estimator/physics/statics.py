"""Rest under load: elasticity, contact and held regions iterated to balance.

Laws with a potential (`Term.minimised`) go no further along a round's increment than their energy falls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import FORCE_BALANCE
from soft_estimator.physics.lying import Lying, lying
from soft_estimator.physics.solver import LinearSystem, SolverError, SolverSettings, solve
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Linearisation, Simulation
from soft_estimator.physics.terms.interface import Assembly, Stage
from soft_estimator.physics.terms.loads import Loads

# A force balance whose matrix is K itself.
_REST = replace(FORCE_BALANCE, c_k=1.0)
MOST_ROUNDS = 200  # of (rotations, contact, linear solve) before giving up
DERIVATIVE_ROUNDS = 1000  # the same of its derivatives; those of a body that hangs far down take some hundred
_LOOSE = 0.01  # of the rate of a fall: far below that of any swing, so that a round leaves as little
_SHARPEST = 1e-11  # part of the load left unbalanced that rounding still lets a solve reach


@dataclass(frozen=True)
class StaticReport:
    """Rounds of relinearisation, iterations of conjugate gradients in all, and the part of the load left unbalanced."""

    rounds: int
    iterations: int
    relative_imbalance: float


def solve_static(
    simulation: Simulation, *, tolerance: float = 1e-6, max_rounds: int = MOST_ROUNDS, hold_s: float | None = None
) -> tuple[State, StaticReport]:
    """The state of rest nearest to the initial pose.

    Args:
        tolerance: largest force out of balance, relative to the external force.
        max_rounds: rounds of (rotations, contact, linear solve) before giving up.
        hold_s: time constant τ of the term M/τ² that keeps each round near the last one. Not needed for held bodies;
        a body that
            only lies on the plane needs it, and gets the time of a fall through its own size by default.
    """
    s, model = simulation, simulation.model
    held = model.dirichlet.any
    if not held and model.contact is None and not model.obstacles:
        raise ValueError("a body that is neither fixed nor in contact has no state of rest; add `fixed` or `contact`")
    shift = 0.0 if hold_s is None and held else 1 / hold_s**2 if hold_s else fall_rate(s)
    by_friction = lying(s)
    u = s.posed_state().u.copy()
    scale = float(np.linalg.norm(s.backend.to_host(s.term(Loads).force))) or 1.0
    iterations, reach = 0, 0.2 * float(np.ptp(model.body.node_position_m))
    # A round that goes too far makes the imbalance grow; what then holds the next one back lets go with every good one.
    held_back, before = 0.0, np.inf
    for round_number in range(1, max_rounds + 1):
        system, rhs = _balance_system(s, u, shift + held_back, by_friction)
        imbalance = float(np.linalg.norm(s.backend.to_host(rhs * s.device.free[:, None]))) / scale
        if imbalance < tolerance:
            return State(u, s.xp.zeros_like(u), s.xp.zeros_like(u), 0.0), StaticReport(
                round_number, iterations, imbalance
            )
        if imbalance > before:
            held_back = max(4 * held_back, fall_rate(s))
            system, rhs = _balance_system(s, u, shift + held_back, by_friction)
        else:
            held_back *= 0.25
        before = imbalance
        increment = s.xp.zeros_like(u)
        settings = SolverSettings(min(1e-3, 0.1 * tolerance / imbalance) if imbalance > 0 else 1e-3, 20000)
        iterations += solve(s.backend, system, rhs, increment, settings).iterations
        if s.minimises and float((rhs * increment).sum()) <= 0.0:  # an indefinite matrix pointed uphill
            system, rhs = _balance_system(s, u, shift, by_friction, definite=True)
            increment = s.xp.zeros_like(u)
            iterations += solve(s.backend, system, rhs, increment, settings).iterations
        # Far from balance a round may ask for more than its linearisation carries; no node moves further than this.
        increment = increment if by_friction is None else by_friction.held_motion(increment)
        largest = float(abs(increment).max())
        increment = increment * min(1.0, reach / max(largest, 1e-300))
        u = _downhill(s, u, increment, rhs) if s.minimises else u + increment
    raise SolverError(
        f"no balance after {max_rounds} rounds: {imbalance:.1e} of the load is left; "
        "the load may be too large for the body"
    )


def loosely_held(s: Simulation) -> float:
    """Shift of the stiffness in rounds of derivatives: that of a body that nothing holds has no inverse."""
    return 0.0 if s.model.dirichlet.any else _LOOSE * fall_rate(s)


def fall_rate(s: Simulation) -> float:
    """1/τ² [1/s²] of a fall through the body's own size."""
    gravity = max(float(np.linalg.norm(s.parameters.gravity_m_s2)), 1e-6)
    return gravity / float(np.ptp(s.model.body.node_position_m, axis=0).max())


def state_of_rest(s: Simulation) -> State:
    """Rest under load, as sharply as the simulation's own solves: a motion that starts there stays there."""
    if not s.model.dirichlet.any and lying(s) is None:
        raise ValueError(
            "a start at rest needs a part of the body that is held, or a level plane that it lies on; add `fixed` or "
            "`contact`, or let it fall"
        )
    return solve_static(s, tolerance=max(_SHARPEST, 0.1 * s.model.solver.relative_tolerance))[0]


def _downhill(s: Simulation, u: Array, increment: Array, rhs: Array) -> Array:
    """The furthest of ever shorter steps along an increment at which the energy does not exceed that at u."""
    zero = s.device.zero
    start = balance(s, State(u, zero, zero, 0.0)).total_j
    slope = float((rhs * increment * s.device.free[:, None]).sum())
    while True:
        after = u + increment
        with np.errstate(over="ignore", invalid="ignore"):
            rise = balance(s, State(after, zero, zero, 0.0)).total_j - start
        # Near balance rounding hides a fall of slope/2.
        if rise <= 1e-12 * abs(start) or slope <= 1e-12 * abs(start) or float(np.abs(increment).max()) == 0.0:
            return after
        increment, slope = 0.5 * increment, 0.5 * slope


def _balance_system(
    s: Simulation, u: Array, shift: float, by_friction: Lying | None, definite: bool = False
) -> tuple[LinearSystem, Array]:
    """One Newton round towards rest: the terms' stiffness at u, and the force out of balance."""
    lin = linearise_rest(s, u, shift, definite)
    rhs = s.right_hand_side(lin.stage, lin.at)
    return lin.system, rhs if by_friction is None else by_friction.held_force(rhs)


def linearise_rest(s: Simulation, u: Array, shift: float = 0.0, definite: bool = False) -> Linearisation:
    """The terms made linear at a displacement, and the stiffness there."""
    state = State(u, s.device.zero, s.device.zero, 0.0)
    scheme = replace(_REST, c_m=shift)
    stage = Stage(s.device, scheme, state, s.device.zero, all_implicit=True, definite=definite)
    at, assembly = s.prepare(stage), Assembly(s.device)
    for term, prepared in zip(s.terms, at):
        term.add_blocks(stage, prepared, assembly)
    return Linearisation(stage, at, s.system_of(assembly), {})
