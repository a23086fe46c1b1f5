"""The time step run backwards: derivatives of a scalar by the state before the step and by the parameters (METHOD §7).

With A Δu = r, g = r - A Δu and A λ = Δu_bar, everything that g depends on receives its share of λᵀg: each term's
`pull`, side by side with its force. Where the step was converged in Newton rounds, g also depends on Δu through where
its terms were made linear, and λ solves (A - ∂g/∂guess)ᵀ λ = Δu_bar, by the rounds' own iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.lying import lying
from soft_estimator.physics.solver import SolveReport, solve
from soft_estimator.physics.start import start_pull
from soft_estimator.physics.state import State
from soft_estimator.physics.statics import DERIVATIVE_ROUNDS, fall_rate, linearise_rest, loosely_held
from soft_estimator.physics.step import Linearisation, Simulation, at_rest
from soft_estimator.physics.terms.interface import Pulled, Stage


@dataclass
class StateGradient:
    """Derivatives of a scalar by u, v and a, each (N, 3), and by the terms' memories, where there are any."""

    u: Array
    v: Array
    a: Array
    memory: dict[str, Array] = field(default_factory=dict)


class Adjoint:
    """Runs the steps of a simulation backwards and collects the derivatives by its parameters.

    Feed `step_back` the states before and after each step, last step first, adding the derivative of whatever is
    measured at a state to the state's gradient in between; then `finish` carries what is left at the start to pose
    and motion.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.gradient = ParameterGradient.zero(simulation.parameters.regions)
        self.start_bar: np.ndarray = np.zeros((simulation.model.body.node_count, 3))

    def zero_state(self) -> StateGradient:
        device = self.simulation.device
        return StateGradient(*(device.xp.zeros_like(device.zero) for _ in range(3)))

    def step_back(self, before: State, after: State, bar: StateGradient) -> tuple[StateGradient, SolveReport]:
        """Derivatives by the state before a step, given those by the state after it; iterations of all its parts."""
        (part, count), states = self.simulation.parts_of(after), [before]
        for _ in range(count - 1):
            states.append(part.step_once(states[-1])[0])
        iterations, rescued = 0, False
        for start, end in zip(states[::-1], [after, *states[:0:-1]]):
            bar, report = self._step_back(part, start, end, bar)
            iterations, rescued = iterations + report.iterations, rescued or report.rescued
        return bar, replace(report, iterations=iterations, rescued=rescued)

    def _step_back(
        self, s: Simulation, before: State, after: State, bar: StateGradient
    ) -> tuple[StateGradient, SolveReport]:
        scheme, free = s.model.integrator, s.device.free[:, None]
        increment, foreseen = after.u - before.u, s.model.solver.rounds == 1  # the guess is the last motion's
        lin = s.linearise(before, None if foreseen else increment)

        increment_bar = bar.u + scheme.d_u * bar.v + scheme.e_u * bar.a
        out = StateGradient(bar.u.copy(), scheme.d_v * bar.v, s.xp.zeros_like(bar.a))
        if scheme.carries_acceleration:
            out.v += scheme.e_v * bar.a
            out.a += scheme.d_a * bar.v + scheme.e_a * bar.a
        for nodes, _ in s.model.dirichlet.held:
            v_bar, a_bar = bar.v[nodes], bar.a[nodes]
            increment_bar[nodes] = bar.u[nodes] + scheme.h_u * v_bar + scheme.k_u * a_bar
            out.v[nodes] = scheme.h_v * v_bar + scheme.k_v * a_bar
            out.a[nodes] = scheme.h_a * v_bar + scheme.k_a * a_bar
        shares = self._memories_adjoint(s, lin, increment, bar, increment_bar)
        if not foreseen:
            increment_bar += sum(share.guess for share in shares)

        lmbda = s.xp.zeros_like(s.device.zero)
        report = solve(s.backend, lin.system, increment_bar * free, lmbda, s.model.solver)
        if not s.one_solve(lin):
            increment_bar, lmbda, report = self._converged(s, lin, increment, increment_bar, lmbda, report)
        self._held_nodes_adjoint(s, after.time_s, lin, lmbda, increment_bar, out)
        shares.append(self._pulled(s, lin.stage, lin.at, increment, lmbda, self.gradient, self.start_bar))
        for share in shares:
            out.u += share.u
            out.v += share.v + scheme.q_v * share.known
            out.a += share.a + scheme.q_a * share.known
            for name, part in share.memory.items():
                out.memory[name] = out.memory[name] + part if name in out.memory else part
            if foreseen:
                ahead = out.a if scheme.ahead_v == 0.0 else out.v
                ahead += scheme.step_s * share.guess
        return out, report

    def _memories_adjoint(
        self, s: Simulation, lin: Linearisation, increment: Array, bar: StateGradient, increment_bar: Array
    ) -> list[Pulled]:
        """What the terms' memories after the step give to what was before it; their share of Δu goes to increment_bar.

        Empty where nothing that is measured depends on them.
        """
        pairs = [(term, at) for term, at in zip(s.terms, lin.at) if term.memory in bar.memory]
        if not pairs:
            return []
        out = self._nothing_pulled(s, self.gradient, self.start_bar)
        for term, at in pairs:
            increment_bar += term.pull_memory(lin.stage, at, increment, bar.memory[term.memory], out)
        self._rotations_adjoint(s, lin.stage, out)
        return [out]

    def _converged(
        self, s: Simulation, lin: Linearisation, increment: Array, by_state: Array, lmbda: Array, report: SolveReport
    ) -> tuple[Array, Array, SolveReport]:
        """λ of a step that Newton rounds brought to rest, and the derivative by Δu it belongs to."""
        regions, free = s.parameters.regions, s.device.free[:, None]
        for _ in range(s.model.solver.rounds):
            before, scratch = lmbda.copy(), np.zeros_like(self.start_bar)
            zero = ParameterGradient.zero(regions)
            total = by_state + self._pulled(s, lin.stage, lin.at, increment, lmbda, zero, scratch).guess
            report = solve(s.backend, lin.system, total * free, lmbda, s.model.solver)
            if at_rest(lmbda, before, s.model.solver.round_tolerance):
                break
        return total, lmbda, report

    def _pulled(
        self,
        s: Simulation,
        stage: Stage,
        at: tuple,
        increment: Array,
        lmbda: Array,
        gradient: ParameterGradient,
        start: np.ndarray,
    ) -> Pulled:
        """What all terms receive of λᵀg; the cells' rotations are handed on to the state and the guess."""
        out = self._nothing_pulled(s, gradient, start)
        for term, prepared in zip(s.terms, at):
            term.pull(stage, prepared, increment, lmbda, out)
        self._rotations_adjoint(s, stage, out)
        return out

    @staticmethod
    def _nothing_pulled(s: Simulation, gradient: ParameterGradient, start: np.ndarray) -> Pulled:
        u, v, a, guess, known = (s.xp.zeros_like(s.device.zero) for _ in range(5))
        return Pulled(u, v, a, guess, known, start, gradient)

    @staticmethod
    def _rotations_adjoint(s: Simulation, stage: Stage, out: Pulled) -> None:
        """Hand the derivatives by the step's rotations on to the state and the guess."""
        if out.rotations is not None:
            turned = s.device.rotations_adjoint(stage.turned_at, stage.rotations, out.rotations)
            out.u += turned
            out.guess += stage.scheme.predictor * turned

    def _held_nodes_adjoint(
        self, s: Simulation, time_s: float, lin: Linearisation, lmbda: Array, increment_bar: Array, out: StateGradient
    ) -> None:
        """Δu of a moving held node is its target minus u, and enters the free rows through A."""
        d, dirichlet = s.device, s.model.dirichlet
        if not any(path.moves for _, path in dirichlet.held):
            return
        product = s.xp.empty_like(lmbda)
        s.backend.multiply(d.row_start, d.column, lin.system.blocks, lmbda, product)
        given = s.backend.to_host(increment_bar - product)
        for nodes, path in dirichlet.held:
            if path.moves:
                out.u[nodes] -= d.up(given[nodes])
                self.start_bar[nodes] += given[nodes] @ path.at(time_s)[0]

    def finish(self, bar: StateGradient) -> ParameterGradient:
        """Carry the derivatives by the initial state to the initial pose and motion; the gradient is then complete."""
        s, host = self.simulation, self.simulation.device.host
        if s.model.rests:
            u_bar = self._initial_rest_adjoint(bar.u)
            start_pull(s.model.body, s.parameters, u_bar + self.start_bar, np.zeros_like(u_bar), self.gradient)
            return self.gradient
        u_bar, v_bar = host(bar.u), host(bar.v)
        if not s.model.integrator.carries_acceleration:
            v_bar = v_bar + host(bar.a)
        else:
            self._initial_acceleration_adjoint(host(bar.a), u_bar, v_bar)
        v_bar = v_bar * s.model.dirichlet.free[:, None]
        start_pull(s.model.body, s.parameters, u_bar + self.start_bar, v_bar, self.gradient, s.model.modes)
        return self.gradient

    def _initial_rest_adjoint(self, u_bar: Array) -> np.ndarray:
        """The rounds of `Tangent._initial_rest` backwards: K λ = ū, ū += (∂g/∂u)ᵀ λ, until λ has died away; what is
        left of ū belongs to the pose that they began with."""
        s = self.simulation
        at, free, by_friction, shift = s.initial_state().u, s.device.free[:, None], lying(s), loosely_held(s)
        lin, held_back, first, before = linearise_rest(s, at, shift), 0.0, 0.0, np.inf
        whole = s.xp.zeros_like(u_bar)
        for _ in range(DERIVATIVE_ROUNDS):
            lmbda = s.xp.zeros_like(u_bar)
            felt = u_bar * free if by_friction is None else by_friction.held_force(u_bar)
            solve(s.backend, lin.system, felt, lmbda, s.model.solver)
            lmbda = lmbda if by_friction is None else by_friction.held_motion(lmbda)
            size = float(np.abs(s.device.host(lmbda)).max())
            first = first or size
            if size <= s.model.solver.relative_tolerance * first:
                break
            if size > before:
                held_back = max(4 * held_back, fall_rate(s))
                lin, before = linearise_rest(s, at, shift + held_back), np.inf
                continue
            before = size
            pulled = self._pulled(s, lin.stage, lin.at, s.device.zero, lmbda, self.gradient, self.start_bar)
            u_bar, whole = u_bar + pulled.u, whole + lmbda
        if by_friction is not None:
            reaction = by_friction.reaction(s.right_hand_side(lin.stage, lin.at))
            by_friction.pull(s.device.host(u_bar), at, self.gradient)
            by_friction.pull_force(s.device.host(whole), reaction, self.gradient)
        return s.device.host(u_bar)

    def _initial_acceleration_adjoint(self, a_bar: np.ndarray, u_bar: np.ndarray, v_bar: np.ndarray) -> None:
        """a = M⁻¹ g - α₁ v of `Simulation.initial_acceleration`: the terms' shares of g, and M's own."""
        p, g, state = self.simulation.parameters, self.gradient, self.simulation.initial_state()
        s = self.simulation.at_start()
        d = s.device
        a_bar, v = a_bar * s.model.dirichlet.free[:, None], d.host(state.v)
        lmbda = s.accelerated(d.up(a_bar))
        stage, at = s.force_balance(state.u, state.v)
        pulled = self._pulled(s, stage, at, d.zero, lmbda, g, self.start_bar)
        u_bar += d.host(pulled.u)
        v_bar += d.host(pulled.v)
        v_bar -= p.mass_damping_per_s * a_bar
        g.mass_damping_per_s -= float((a_bar * v).sum())
        by_mass = d.host(state.a) + p.mass_damping_per_s * v
        g.density_kg_m3 -= float((a_bar * by_mass).sum()) / p.density_kg_m3
