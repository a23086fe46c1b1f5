"""One time step, forward (METHOD §3-§5)."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.energy import Balance, balance, in_contact, relative_gain, weak_work
from soft_estimator.physics.integrator import calm_scheme
from soft_estimator.physics.model import Model, State, initial_displacement, initial_velocity
from soft_estimator.physics.parameters import Parameters, lame
from soft_estimator.physics.solver import LinearSystem, SolveReport, solve


@dataclass(frozen=True)
class Linearisation:
    """A step's system: the rotations and contact it was taken at, its matrix, and the seconds each stage took."""

    predicted: Array
    rotations: Array
    contact: tuple[Array, Array, Array] | None
    system: LinearSystem
    seconds: dict[str, float]


@dataclass(frozen=True)
class StepReport:
    """How a step's solve went, the seconds of its stages, and whether backward Euler had to take it.

    work_j: what the regions that move strongly held nodes put into the body [J].
    """

    solve: SolveReport
    seconds: dict[str, float]
    calmed: bool = False
    work_j: float = 0.0


# How far the cells' rotations may come out from those foreseen for a step: root mean square over the body's volume of
# each cell's largest entry, about an angle in radians. Sound motions stay below half of it, runaway ones go far above.
LARGEST_SURPRISE = 0.08
# Energy that a step may make out of nothing, as a part of what the body holds after it. In contact it is more: a point
# that goes under the plane within a step holds energy at its end, which the next steps take out again.
LARGEST_GAIN, LARGEST_GAIN_IN_CONTACT = 0.1, 0.4
CALM_PARTS = (1, 2, 4, 8, 16)


class Simulation:
    """A model with parameters on a backend: `initial_state()`, then `step(state)` again and again."""

    def __init__(self, model: Model, parameters: Parameters, backend: Backend | None = None) -> None:
        self.model, self.parameters = model, parameters
        self.backend = b = backend or CpuBackend()
        self.xp = b.xp
        body, dtype = model.body, model.dtype
        regions = int(body.cell_region.max()) + 1
        given = len(parameters.youngs_modulus_pa)
        if given != regions:
            raise ValueError(
                f"youngs_modulus_pa holds {given} value(s) for {regions} material region(s); give one for each"
            )
        self.spacing = body.grid.spacing_m
        self.position = b.to_device(body.node_position_m, dtype)
        self.cell_nodes = b.to_device(body.cell_nodes)
        self.node_cells = b.to_device(body.node_cells)
        self.gradient_index = b.to_device(body.cells.gradient_index)
        self.table = b.to_device(body.cells.gradient_table_m, dtype)
        self.row_start, self.column = b.to_device(body.row_start), b.to_device(body.column)
        self.slot = b.to_device(body.slot)
        self.free = b.to_device(model.dirichlet.free, dtype)
        points = body.contact_points
        self.point_nodes, self.point_weight = b.to_device(points.nodes), b.to_device(points.weight)
        self.point_start, self.point_area = b.to_device(points.point_start), b.to_device(points.area_m2)
        self.lam, self.mu = lame(parameters.poissons_ratio)
        self.young = b.to_device(parameters.youngs_modulus_pa[body.cell_region], dtype)
        self.fill = b.to_device(body.cells.fill)
        self.mass = b.to_device(parameters.density_kg_m3 * body.node_volume_m3, dtype)
        external = parameters.density_kg_m3 * body.node_volume_m3[:, None] * parameters.gravity_m_s2
        if len(model.load_n):
            external = external + model.load_n
        self.external = b.to_device(external, dtype)
        self.normal = b.to_device(parameters.plane_normal)
        self.start = initial_displacement(body, parameters)
        self.zero = self.xp.zeros((body.node_count, 3), dtype)
        self._known: tuple[Array, Array, Balance] | None = None  # u and v of the last state, and what it holds

    def initial_state(self) -> State:
        """The body in its initial pose and motion, undeformed."""
        body, dtype = self.model.body, self.model.dtype
        v = initial_velocity(body, self.parameters, self.start) * self.model.dirichlet.free[:, None]
        u, v = self.backend.to_device(self.start, dtype), self.backend.to_device(v, dtype)
        a = self.initial_acceleration(u, v) if self.model.integrator.carries_acceleration else v.copy()
        return State(u, v, a, 0.0)

    def initial_acceleration(self, u: Array, v: Array) -> Array:
        """a = M⁻¹(f + contact) - α₁ v on the free nodes of a body that starts undeformed and in rigid motion."""
        total = self.external.copy()
        if self.model.contact is not None:
            self.add_along_normal(self.pressure_factor() * self.contact_state(u)[1], total)
        return (total / self.mass[:, None] - self.parameters.mass_damping_per_s * v) * self.free[:, None]

    def cell_rotations(self, u: Array) -> Array:
        out = self.xp.empty((self.model.body.cell_count, 9), self.model.dtype)
        self.backend.rotations(u, self.cell_nodes, self.spacing, out)
        return out

    def cell_arguments(self) -> tuple:
        """What the cell loops need besides state and rotations."""
        return self.cell_nodes, self.gradient_index, self.table, self.young, self.lam, self.mu, self.spacing

    def forces(self, u: Array, v: Array, a: Array | None, turned: Array, time_s: float) -> Array:
        """External minus internal force, and the damping by known velocities: f - f_int(u) + D(q_v v + q_a a)."""
        p = self.parameters
        known = self.known_velocity(v, a)
        out = self.external.copy()
        corner = self.xp.empty((self.model.body.cell_count, 24), self.model.dtype)
        z = self.zero if known is None else (-p.stiffness_damping_s) * known
        self.backend.cell_forces(u, z, 1.0, turned, *self.cell_arguments(), corner)
        self.backend.gather(corner, self.node_cells, -1.0, out)
        if known is not None:
            out += (p.mass_damping_per_s * self.mass)[:, None] * known
        for (cells, _), target in zip(self.model.dirichlet.weak, self.weak_targets(time_s)):
            host = [self.backend.to_host(x) for x in (u, z)]
            force = cells.forces(
                *host, target, *[self.backend.to_host(x) for x in (turned, self.young)], self.lam, self.mu
            )
            out -= self.scatter(cells.nodes, force)
        return out

    def weak_targets(self, time_s: float) -> list[np.ndarray]:
        """Where the weakly held corners should be when the force balance of the step from time_s holds."""
        scheme, dirichlet = self.model.integrator, self.model.dirichlet
        return dirichlet.weak_targets(self.model.body, self.start, time_s + scheme.c_k * scheme.step_s)

    def scatter(self, nodes: np.ndarray, values: np.ndarray) -> Array:
        """Values (S, 8, 3) summed at their nodes, (N, 3), in order."""
        total = np.zeros((self.model.body.node_count, 3))
        np.add.at(total, nodes, values)
        return self.backend.to_device(total, self.model.dtype)

    def velocity_ahead(self, v: Array, a: Array) -> Array:
        """The velocity that looks ahead to where rotations and contact are taken."""
        scheme = self.model.integrator
        return a if scheme.ahead_v == 0.0 else v

    def known_velocity(self, v: Array, a: Array | None) -> Array | None:
        """The part q_v v + q_a a of the damped velocity that is known before the solve; None where there is none."""
        scheme = self.model.integrator
        if a is None or not scheme.carries_acceleration:
            return None
        return scheme.q_v * v + scheme.q_a * a

    def contact_state(self, u: Array) -> tuple[Array, Array, Array]:
        """Distance [m], smooth depth [m] and slope of every contact point at displacement u."""
        plane = (self.normal, self.parameters.plane_offset_m, self.model.contact.sharpness_per_m)
        out = tuple(self.xp.empty(len(self.point_area)) for _ in range(3))
        self.backend.contact_points(self.position, u, self.point_nodes, self.point_weight, *plane, *out)
        return out

    def at_points(self, nodal: Array) -> Array:
        """Nodal values (N, 3) at the contact points, (P, 3)."""
        out = self.xp.empty((len(self.point_area), 3))
        self.backend.at_points(nodal, self.point_nodes, self.point_weight, out)
        return out

    def pressure_factor(self) -> Array:
        """Force per depth of every contact point [N/m]: stiffness times the area it stands for."""
        return self.model.contact.stiffness_pa_per_m * self.point_area

    def add_along_normal(self, value: Array, out: Array, normal: Array | None = None) -> None:
        """out += normal · value [N] of the contact points, shared between their nodes; the plane's normal if none."""
        along = self.normal if normal is None else normal
        self.backend.spread_along(along, value, self.node_cells, self.point_start, self.point_weight, out)

    def linearise(self, state: State) -> Linearisation:
        """The step's matrix, at the rotations and the contact predicted for it."""
        scheme, p, b, law = self.model.integrator, self.parameters, self.backend, self.model.contact
        seconds, clock = {}, perf_counter()
        ahead = scheme.step_s * self.velocity_ahead(state.v, state.a)
        turned = self.cell_rotations(state.u + scheme.predictor * ahead)
        clock = _lap(seconds, "rotations", clock)
        stiffness_scale = scheme.c_k + scheme.c_d * p.stiffness_damping_s
        diagonal = (scheme.c_m + scheme.c_d * p.mass_damping_per_s) * self.mass
        blocks = self.assemble(turned, stiffness_scale, diagonal)
        predicted = state.u + scheme.c_k * ahead
        contact = None
        if law is not None:
            contact = self.contact_state(predicted)
            if law.implicit:
                self.add_contact_stiffness(scheme.c_k * self.pressure_factor() * contact[2], blocks)
        inverse = self.xp.empty((self.model.body.node_count, 9), self.model.dtype)
        b.invert_diagonal(blocks, self.slot, self.free, inverse)
        system = LinearSystem(self.row_start, self.column, blocks, inverse, self.free)
        _lap(seconds, "assembly", clock)
        return Linearisation(predicted, turned, contact, system, seconds)

    def assemble(self, turned: Array, scale: float, diagonal: Array) -> Array:
        """Blocks of scale · K (Nitsche's terms included) + diag(diagonal)."""
        blocks = self.xp.empty((len(self.model.body.column), 9), self.model.dtype)
        self.backend.assemble(
            turned,
            self.node_cells,
            self.gradient_index,
            self.table,
            self.young,
            self.lam,
            self.mu,
            scale,
            diagonal,
            self.row_start,
            self.slot,
            blocks,
        )
        for cells, _ in self.model.dirichlet.weak:
            host = [self.backend.to_host(x) for x in (turned, self.young)]
            extra = scale * cells.blocks(host[0], host[1], self.lam, self.mu)
            self.backend.add_blocks(
                self.backend.to_device(cells.slots.ravel()),
                self.backend.to_device(extra.reshape(-1, 9), self.model.dtype),
                blocks,
            )
        return blocks

    def add_contact_stiffness(self, value: Array, blocks: Array) -> None:
        """blocks += value [N/m] n nᵀ of the contact points."""
        points = (self.node_cells, self.point_start, self.point_weight)
        self.backend.add_contact_blocks(self.normal, value, *points, self.slot, blocks)

    def contact_force_values(self, state: State, contact: tuple[Array, Array, Array]) -> Array:
        """Normal force [N] of every contact point on the right-hand side."""
        predicted_distance, depth, slope = contact
        start_distance, start_depth, start_slope = self.contact_state(state.u)
        change = predicted_distance - start_distance
        if self.model.contact.implicit:  # f(ũ) + C (ũ - u): the system's C Δu term then acts from ũ on
            return self.pressure_factor() * (depth + slope * change)
        return self.pressure_factor() * (start_depth - start_slope * change)

    def right_hand_side(self, state: State, lin: Linearisation) -> Array:
        """M(p_v v + p_a a) + D(q_v v + q_a a) + f - f_int(u), with the contact force."""
        scheme = self.model.integrator
        rhs = self.forces(state.u, state.v, state.a, lin.rotations, state.time_s)
        inertia = scheme.p_v * state.v
        if scheme.carries_acceleration:
            inertia = inertia + scheme.p_a * state.a
        rhs += self.mass[:, None] * inertia
        if lin.contact is not None:
            self.add_along_normal(self.contact_force_values(state, lin.contact), rhs)
        return rhs

    def step(self, state: State) -> tuple[State, StepReport]:
        """Advance by one time step."""
        after, report, _ = self.step_keeping(state)
        return after, report

    def step_keeping(self, state: State) -> tuple[State, StepReport, Linearisation]:
        """Advance by one time step and hand out its linearisation as well.

        A step that turns cells much further than was foreseen, meets a plane too stiff for an extrapolated force, or
        ends with more energy than it began with, is taken again by backward Euler with implicit contact, in as many
        parts as it needs not to gain. Its state is marked; the linearisation is then that of the last part.
        """
        start = self._held_energy(state)
        after, report, lin = self.step_once(state)
        end = balance(self, after)
        if (
            self._turned_unforeseen(state, after, lin)
            or self._ground_too_stiff(lin)
            or self._gain(state, after, start, end, report) > 1.0
        ):
            after, report, lin, end = self._calm_step(state, start)
        self._known = (after.u, after.v, end)
        return after, report, lin

    def _calm_step(self, state: State, start: Balance) -> tuple[State, StepReport, Linearisation, Balance]:
        least = np.inf
        for parts in CALM_PARTS:
            calm, after, work_j = self.calmed(parts), state, 0.0
            for _ in range(parts):
                after, report, lin = calm.step_once(after)
                work_j += report.work_j
            report = replace(report, calmed=True, work_j=work_j)
            end = balance(self, after)
            gain = self._gain(state, after, start, end, report)
            if gain < least:
                least, best = gain, (replace(after, calmed=parts), report, lin, end)
            if gain <= 1.0:
                break
        return best

    def calmed(self, parts: int = 1) -> Simulation:
        """This simulation with backward Euler over a part of its step, and implicit contact; all arrays are shared."""
        calm, law = copy(self), self.model.contact
        calm.model = replace(
            self.model,
            integrator=calm_scheme(self.model.integrator, parts),
            contact=None if law is None else replace(law, implicit=True),
        )
        return calm

    def _held_energy(self, state: State) -> Balance:
        """What a state holds, remembered from the step that led to it."""
        known = self._known
        if known is not None and state.u is known[0] and state.v is known[1]:
            return known[2]
        return balance(self, state)

    def _gain(self, before: State, after: State, start: Balance, end: Balance, report: StepReport) -> float:
        """Energy the step made out of nothing, relative to what is allowed."""
        largest = LARGEST_GAIN_IN_CONTACT if in_contact(start, end) else LARGEST_GAIN
        return relative_gain(start, end, report.work_j + weak_work(self, before, after)) / largest

    def _ground_too_stiff(self, lin: Linearisation) -> bool:
        """Whether extrapolated contact is stiffer than the system it pushes, at a point or for the body as a whole."""
        if lin.contact is None or self.model.contact.implicit:
            return False
        stiff = self.pressure_factor() * lin.contact[2]
        centre = lin.system.blocks[self.slot[:, 13]]
        diagonal = (centre[:, 0] + centre[:, 4] + centre[:, 8]) / 3
        give = (self.point_weight**2 / diagonal[self.point_nodes]).sum(axis=1)
        inertia = self.model.integrator.c_m * float(self.mass.sum())
        return bool((stiff * give).max() > 1.0) or float(stiff.sum()) > inertia

    def _turned_unforeseen(self, state: State, after: State, lin: Linearisation) -> bool:
        share = self.model.integrator.predictor
        if share == 0.0:
            return False
        reached = self.cell_rotations(state.u + share * (after.u - state.u))
        surprise = abs(reached - lin.rotations).max(axis=1)
        return float((self.fill * surprise**2).sum() / self.fill.sum()) > LARGEST_SURPRISE**2

    def step_once(self, state: State) -> tuple[State, StepReport, Linearisation]:
        scheme = self.model.integrator
        lin = self.linearise(state)
        clock = perf_counter()
        rhs = self.right_hand_side(state, lin)
        increment = scheme.step_s * self.velocity_ahead(state.v, state.a)
        time_s = state.time_s + scheme.step_s
        self.prescribe_increment(state, time_s, increment)
        clock = _lap(lin.seconds, "forces", clock)
        report = solve(self.backend, lin.system, rhs, increment, self.model.solver)
        _lap(lin.seconds, "solve", clock)
        after = self.advance(state, increment, time_s)
        work_j = self._work_of_held(state, after, lin, rhs)
        return after, StepReport(report, lin.seconds, work_j=work_j), lin

    def _work_of_held(self, before: State, after: State, lin: Linearisation, rhs: Array) -> float:
        """Work [J] on the strongly held nodes that move: what drags the rest along, and the change of their motion."""
        moving = [nodes for nodes, path in self.model.dirichlet.held if path.moves]
        if not moving:
            return 0.0
        scheme, increment = self.model.integrator, after.u - before.u
        force = self.xp.empty_like(rhs)
        self.backend.multiply(self.row_start, self.column, lin.system.blocks, increment, force)
        inertia = scheme.c_m * increment - scheme.p_v * before.v
        if scheme.carries_acceleration:
            inertia = inertia - scheme.p_a * before.a
        work = (force - rhs - self.mass[:, None] * inertia) * increment
        work = work + 0.5 * self.mass[:, None] * (after.v**2 - before.v**2)
        return float(sum(work[nodes].sum() for nodes in moving))

    def prescribe_increment(self, state: State, time_s: float, increment: Array) -> None:
        """Set Δu of the held nodes to what their path asks for."""
        for nodes, path in self.model.dirichlet.held:
            if not path.moves:
                increment[nodes] = 0.0
        if any(path.moves for _, path in self.model.dirichlet.held):
            u = self.backend.to_host(state.u).astype(np.float64)
            target = u.copy()
            self.model.dirichlet.prescribe(self.model.body, self.start, time_s, target)
            for nodes, path in self.model.dirichlet.held:
                if path.moves:
                    increment[nodes] = self.backend.to_device((target - u)[nodes], self.model.dtype)

    def advance(self, state: State, increment: Array, time_s: float) -> State:
        """The state after an increment Δu."""
        scheme = self.model.integrator
        v = scheme.d_u * increment + scheme.d_v * state.v
        a = scheme.e_u * increment
        if scheme.carries_acceleration:
            v += scheme.d_a * state.a
            a = (a + scheme.e_v * state.v + scheme.e_a * state.a) * self.free[:, None]
        for nodes, _ in self.model.dirichlet.held:
            v[nodes] = increment[nodes] / scheme.step_s
        return State(state.u + increment, v, a, time_s)


def _lap(seconds: dict[str, float], stage: str, since: float) -> float:
    now = perf_counter()
    seconds[stage] = seconds.get(stage, 0.0) + now - since
    return now
