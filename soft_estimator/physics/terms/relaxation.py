"""Relaxation: a Maxwell branch beside the elastic law, on the deviatoric part of the stress (METHOD §12).

With a shear modulus G and a bulk modulus K of the elastic law, shear that is held answers with G (1 + g e^{-t/τ}), and
pressure with K alone. So E is what is left after a long time; at once the body is stiffer, G (1 + g).

The branch carries q: the strain that has not relaxed yet, as displacements of each cell's corners in the cell's own
frame. With w = Rᵀ(x + u) of the cell at its own rotation R, over a time t within which w changes evenly by Δw,

    q ← e^{-t/τ} q + (1 - e^{-t/τ})/(t/τ) Δw

and its force is g E μ R D q, D the deviatoric stiffness of the cell (`deviatoric_products`). Forces balance at the time
c_k Δt of a step, when the cell stands at u + c_k Δu, turned to where the last motion leads; the matrix gets the part of
q there that is linear in Δu, a positive multiple of R D Rᵀ. So the branch is linear in Δu beside any elastic law. Then
q goes on to the step's end. A cell that only turns keeps its w, and q with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term
from soft_estimator.physics.terms.material import LinearMaterial

SHARE, TIME = "relaxation_share", "relaxation_time_s"
# Below this t/τ the slope of (1 - e^{-x})/x is taken from its series: the closed form cancels.
_SERIES_BELOW = 0.05


@dataclass(frozen=True)
class Interval:
    """What a time does to the branch: q ← decay · q + gain · Δw, and the slopes of both by τ [1/s]."""

    decay: float
    gain: float
    decay_slope: float
    gain_slope: float

    @classmethod
    def over(cls, time_s: float, relaxation_time_s: float) -> Interval:
        """No time at all stands for a balance at rest (`statics`), which has had all the time it takes."""
        if time_s == 0.0:
            return cls(0.0, 0.0, 0.0, 0.0)
        x = time_s / relaxation_time_s
        decay, gain = float(np.exp(-x)), float(-np.expm1(-x) / x)
        if x < _SERIES_BELOW:  # (1 - e^{-x} (1 + x))/x
            slope = x * float(np.polyval([-1 / 840, 1 / 144, -1 / 30, 1 / 8, -1 / 3, 1 / 2], x))
        else:
            slope = gain - decay
        return cls(decay, gain, decay * x / relaxation_time_s, slope / relaxation_time_s)


@dataclass(frozen=True, eq=False)
class Unrelaxed:
    """Where a step starts from.

    Attributes:
        q: of the branch before it, (C, 8, 3) [m]. y: corners before it from the first one, (C, 8, 3) [m].
        turned_at: displacement that the last motion leads to, (N, 3) [m]. turn: rotations there, (C, 3, 3).
        turn_before: rotations of the state before the step, (C, 3, 3).
        until_balance, whole: the step up to its balance of forces, and to its end.
    """

    q: Array
    y: Array
    turned_at: Array
    turn: Array
    turn_before: Array
    until_balance: Interval
    whole: Interval


class Relaxation(Term[Unrelaxed]):
    """The branch of all cells; g and τ are those of the whole body."""

    parameters: ClassVar[tuple[str, ...]] = ("youngs_modulus_pa", "poissons_ratio", SHARE, TIME)
    rests_undeformed: ClassVar[bool] = True
    memory = "relaxation"

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> None:
        super().__init__(device, values, start)
        self.share, self.time_s = values.relaxation_share, values.relaxation_time_s
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"{SHARE} = {self.share:g} must lie in 0-1; 0 is a body that does not relax")
        if not self.time_s > 0.0:
            raise ValueError(f"{TIME} = {self.time_s:g} must be a positive time in seconds")
        self.material = LinearMaterial(device, values)
        corner = np.array([(p >> 2, p >> 1 & 1, p & 1) for p in range(8)])
        self.corners = device.up(device.spacing_m * corner)
        # Force of a unit of q: g E μ of each cell [Pa].
        self.strength = self.share * self.material.mu * self.material.young

    # Cells

    def _from_first(self, nodal: Array) -> Array:
        """Nodal values (N, 3, ...) at the cells' corners, less those of the first corner, (C, 8, 3, ...)."""
        at = nodal[self.device.cell_nodes]
        return at - at[:, :1]

    def _deviatoric(self, vectors: Array) -> Array:
        """D times corner vectors (C, 8, 3) or (C, 8, 3, width)."""
        d = self.device
        flat = d.xp.ascontiguousarray(vectors.reshape(d.cells, 24, -1))
        out = d.xp.empty_like(flat)
        d.backend.deviatoric_products(flat, d.gradient_index, d.table, out)
        return out.reshape(vectors.shape)

    def _turns_push(self, u: Array, moved: Array, turn: Array) -> Array:
        """Changes of the rotations (C, 3, 3) at u for changes of u (N, 3, width), (C, 3, 3, width)."""
        d, one = self.device, self.device.xp.empty((self.device.cells, 9))
        out, r = d.xp.empty((d.cells, 9, moved.shape[2])), turn.reshape(-1, 9)
        for j in range(moved.shape[2]):
            du = d.xp.ascontiguousarray(moved[:, :, j])
            d.backend.rotations_tangent(u, du, r, d.cell_nodes, d.spacing_m, one)
            out[:, :, j] = one
        return out.reshape(d.cells, 3, 3, -1)

    def _turns_pull(self, u: Array, turn: Array, bar: Array) -> Array:
        """Derivative (N, 3) by u, given that by the rotations at u, (C, 3, 3)."""
        xp = self.device.xp
        return self.device.rotations_adjoint(u, turn.reshape(-1, 9), xp.ascontiguousarray(bar.reshape(-1, 9)))

    def _to_nodes(self, corner: Array, scale: float = 1.0) -> Array:
        """Corner vectors (C, 8, 3) summed at the nodes, (N, 3)."""
        return self.device.gathered(self.device.xp.ascontiguousarray(corner.reshape(-1, 24)), scale)

    def _remembered(self, state: State) -> Array:
        """q of a state (C, 8, 3); zero where it has not begun."""
        found = state.memory.get(self.memory)
        shape = (self.device.cells, 8, 3)
        return self.device.xp.zeros(shape, self.device.dtype) if found is None else found.reshape(shape)

    # The step

    def prepare(self, stage: Stage) -> Unrelaxed:
        state, step_s = stage.state, stage.scheme.step_s
        turned_at = state.u + self._led(stage, state.v, state.a)
        # In the usual step of one solve every term turns to where the last motion leads.
        shared = self.device.xp.array_equal(turned_at, stage.turned_at)
        turn = stage.rotations if shared else self.device.rotations(turned_at)
        return Unrelaxed(
            q=self._remembered(state),
            y=self.corners + self._from_first(state.u),
            turned_at=turned_at,
            turn=turn.reshape(-1, 3, 3),
            turn_before=stage.rotations_before.reshape(-1, 3, 3),
            until_balance=Interval.over(stage.scheme.c_k * step_s, self.time_s),
            whole=Interval.over(step_s, self.time_s),
        )

    @staticmethod
    def _led(stage: Stage, v: Array, a: Array) -> Array:
        """How far the last motion leads until the time of balance, of the state or of its changes."""
        return stage.scheme.predictor * stage.scheme.step_s * stage.scheme.velocity_ahead(v, a)

    def add_blocks(self, stage: Stage, at: Unrelaxed, assembly: Assembly) -> None:
        d, mu, scale = self.device, self.material.mu, self.share * stage.scheme.c_k * at.until_balance.gain
        if scale == 0.0:
            return
        blocks = d.xp.empty((len(d.column), 9), d.dtype)
        cells = (d.node_cells, d.gradient_index, d.table, self.material.young, -2 / 3 * mu, mu)  # λ = -2μ/3: deviatoric
        pattern = (assembly.take_inertia(), d.row_start, d.slot)
        d.backend.assemble(at.turn.reshape(-1, 9), *cells, scale, *pattern, blocks)
        assembly.blocks = blocks if assembly.blocks is None else assembly.blocks + blocks

    def add_force(self, stage: Stage, at: Unrelaxed, rhs: Array) -> None:
        _, stress = self._at_balance(stage, at, None)
        corner = self.strength[:, None, None] * (stress @ at.turn.swapaxes(1, 2))
        self.device.backend.gather(corner.reshape(-1, 24), self.device.node_cells, -1.0, rhs)

    def _at_balance(self, stage: Stage, at: Unrelaxed, increment: Array | None) -> tuple[Array, Array]:
        """Δw until the balance of forces for an increment Δu, and D q there, (C, 8, 3) each."""
        y = at.y if increment is None else at.y + stage.scheme.c_k * self._from_first(increment)
        strain = y @ at.turn - at.y @ at.turn_before
        return strain, self._deviatoric(at.until_balance.decay * at.q + at.until_balance.gain * strain)

    def push(
        self, stage: Stage, at: Unrelaxed, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        d, scheme, over = self.device, stage.scheme, at.until_balance
        strain, stress = self._at_balance(stage, at, increment)
        turning = self._turns_push(at.turned_at, changes.u + self._led(stage, changes.v, changes.a), at.turn)
        moved = self._from_first(changes.u)
        dstrain = _back_push(at.y + scheme.c_k * self._from_first(increment), moved, at.turn, turning)
        dstrain -= self._before_push(stage, at, changes.u)
        slower = directions.on_device(directions.column(TIME))
        dq = over.gain * dstrain + (over.decay_slope * at.q + over.gain_slope * strain)[..., None] * slower
        if self.memory in changes.memory:
            dq += over.decay * changes.memory[self.memory].reshape(dq.shape)
        change = d.xp.einsum("cab,cpbk->cpak", at.turn, self._deviatoric(dq))
        change += d.xp.einsum("cabk,cpb->cpak", turning, stress)
        change *= self.strength[:, None, None, None]
        change += (stress @ at.turn.swapaxes(1, 2))[..., None] * self._stronger(directions)[:, None, None, :]
        d.backend.gather_many(d.xp.ascontiguousarray(change.reshape(d.cells, 24, -1)), d.node_cells, -1.0, out)

    def _before_push(self, stage: Stage, at: Unrelaxed, moved: Array) -> Array:
        """Change of w before the step."""
        turning = self._turns_push(stage.state.u, moved, at.turn_before)
        return _back_push(at.y, self._from_first(moved), at.turn_before, turning)

    def _stronger(self, directions: Directions) -> Array:
        """Change of g E μ [Pa], (C, width)."""
        by_share = self.material.mu * directions.column(SHARE)
        relative = (self.share * self.material.push(directions)[1] + by_share)[self.material.region]
        return self.material.young[:, None] * directions.on_device(relative)

    def pull(self, stage: Stage, at: Unrelaxed, increment: Array, lmbda: Array, out: Pulled) -> None:
        d, over = self.device, at.until_balance
        strain, stress = self._at_balance(stage, at, increment)
        l, strength = lmbda[d.cell_nodes], self.strength[:, None, None]
        back = l @ at.turn
        self._strength_pull(-d.host(back * stress).sum(axis=(1, 2)), out)
        q_bar = -strength * self._deviatoric(back)
        out.add_memory(self.memory, (over.decay * q_bar).reshape(-1, 24))
        self._time_pull(over, at.q, strain, q_bar, out)
        w_bar = over.gain * q_bar
        y = at.y + stage.scheme.c_k * self._from_first(increment)
        turn_bar = y.swapaxes(1, 2) @ w_bar - l.swapaxes(1, 2) @ (strength * stress)
        turned = self._turns_pull(at.turned_at, at.turn, turn_bar)
        out.u += turned + self._to_nodes(w_bar @ at.turn.swapaxes(1, 2))
        ahead = out.a if stage.scheme.ahead_v == 0.0 else out.v
        ahead += stage.scheme.predictor * stage.scheme.step_s * turned
        self._before_pull(stage, at, w_bar, out)

    def _before_pull(self, stage: Stage, at: Unrelaxed, w_bar: Array, out: Pulled) -> None:
        """Hand the derivative by Δw on to the state before the step."""
        out.u -= self._to_nodes(w_bar @ at.turn_before.swapaxes(1, 2))
        out.u -= self._turns_pull(stage.state.u, at.turn_before, at.y.swapaxes(1, 2) @ w_bar)

    def _strength_pull(self, bar: np.ndarray, out: Pulled) -> None:
        """Given the derivatives by g E μ of the cells, (C,), on the host."""
        relative = bar * self.device.host(self.material.young)
        self.material.pull(np.stack([np.zeros_like(bar), self.share * relative], axis=1), out.gradient)
        out.gradient.add(SHARE, self.material.mu * float(relative.sum()))

    def _time_pull(self, over: Interval, q: Array, strain: Array, q_bar: Array, out: Pulled) -> None:
        out.gradient.add(TIME, float((q_bar * (over.decay_slope * q + over.gain_slope * strain)).sum()))

    # The memory

    def advance_memory(self, stage: Stage, at: Unrelaxed, increment: Array) -> Array:
        return self._after(stage, at, increment)[0].reshape(-1, 24)

    def _after(self, stage: Stage, at: Unrelaxed, increment: Array) -> tuple[Array, Array, Array, Array]:
        """At the step's end: q, Δw, corners and rotations."""
        y = at.y + self._from_first(increment)
        turn = self.device.rotations(stage.state.u + increment).reshape(-1, 3, 3)
        strain = y @ turn - at.y @ at.turn_before
        return at.whole.decay * at.q + at.whole.gain * strain, strain, y, turn

    def push_memory(
        self, stage: Stage, at: Unrelaxed, increment: Array, changes: Columns, moved: Array, directions: Directions
    ) -> Array:
        _, strain, y, turn = self._after(stage, at, increment)
        total = changes.u + moved
        turning = self._turns_push(stage.state.u + increment, total, turn)
        dstrain = _back_push(y, self._from_first(total), turn, turning) - self._before_push(stage, at, changes.u)
        slower = directions.on_device(directions.column(TIME))
        dq = at.whole.gain * dstrain
        dq += (at.whole.decay_slope * at.q + at.whole.gain_slope * strain)[..., None] * slower
        if self.memory in changes.memory:
            dq += at.whole.decay * changes.memory[self.memory].reshape(dq.shape)
        return dq.reshape(self.device.cells, 24, -1)

    def pull_memory(self, stage: Stage, at: Unrelaxed, increment: Array, bar: Array, out: Pulled) -> Array:
        q_bar = bar.reshape(-1, 8, 3)
        _, strain, y, turn = self._after(stage, at, increment)
        out.add_memory(self.memory, at.whole.decay * bar)
        self._time_pull(at.whole, at.q, strain, q_bar, out)
        w_bar = at.whole.gain * q_bar
        by_end = self._to_nodes(w_bar @ turn.swapaxes(1, 2))
        by_end += self._turns_pull(stage.state.u + increment, turn, y.swapaxes(1, 2) @ w_bar)
        out.u += by_end
        self._before_pull(stage, at, w_bar, out)
        return by_end

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        """½ g E μ qᵀ D q, what the branch's spring holds."""
        q = self._remembered(state)
        held = self.device.host((q * self._deviatoric(q)).sum(axis=(1, 2)))
        return {"elastic_j": 0.5 * float(held @ self.device.host(self.strength))}

    def resists(self) -> np.ndarray | None:
        return np.zeros((0, 3))


def _back_push(y: Array, moved: Array, turn: Array, turning: Array) -> Array:
    """Change of y @ turn, (C, 8, 3, width), for changes of y (C, 8, 3, width) and of turn (C, 3, 3, width)."""
    # As matrix products: (p, a) @ (a, b k), and with the corners' motion as (p k, a) @ (a, b).
    cells, corners, _, width = moved.shape
    by_turn = (y @ turning.reshape(cells, 3, 3 * width)).reshape(cells, corners, 3, width)
    sideways = moved.swapaxes(2, 3).reshape(cells, corners * width, 3) @ turn
    return by_turn + sideways.reshape(cells, corners, width, 3).swapaxes(2, 3)


@dataclass(frozen=True)
class RelaxationLaw:
    """One Maxwell branch: relaxation_share g of the long-time shear modulus, gone after relaxation_time_s τ [s]."""

    relaxation_share: float
    relaxation_time_s: float
    fused: ClassVar[str] = ""  # whole steps on a device carry no memory: such models take the loops one by one

    def defaults(self) -> Mapping[str, Any]:
        return {SHARE: self.relaxation_share, TIME: self.relaxation_time_s}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Relaxation:
        return Relaxation(device, values, start)
