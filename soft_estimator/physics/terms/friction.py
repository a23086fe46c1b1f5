"""Friction of the surface on an obstacle, smooth Coulomb (METHOD §13): -μ f_n w/√(|w|² + ε²) for a slip velocity w.

The normal force f_n and the normal n are those of the place that the last motion leads to, so that within a step the
force depends on w alone, and has a potential. With T = 1 - n nᵀ and the velocity of the step's force balance,

    w = T q,    q = c_d Δu - known - (velocity of the obstacle),    g = -μ f_n w/s,    s = √(|w₀|² + ε²)

A step of one solve takes w₀, the slip that is to come, from the state: then the force is linear in w and always against
it, so that no step gains energy by friction, however wrong w₀ is. Steps of several rounds take w₀ at the guess. Steps
that minimise a potential (`newton`) have its true second derivative in the matrix. A balance of forces without a step
(c_d = 0: the first acceleration, rest) feels the friction of the state's own velocity, q = v.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.integrator import Integrator
from soft_estimator.physics.obstacles import Motion
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term
from soft_estimator.physics.terms.patch import Patch

COEFFICIENT = "friction_coefficient"
# Widths 1/a of the contact's onset from which on a point is taken to rub: it is pressed by 3 % of what it is at 0.
RUBS = 4.0


@dataclass(frozen=True)
class FrictionLaw:
    """Friction where a contact law with a coefficient presses."""

    contact: ContactLaw

    @property
    def fused(self) -> str:
        return "friction" if self.contact.fused else ""

    def defaults(self) -> Mapping[str, Any]:
        return {} if self.contact.own else {COEFFICIENT: self.contact.friction}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Friction:
        return Friction(device, values, start, self)


@dataclass(frozen=True, eq=False)
class Expected:
    """The slip w₀ that a state leads to: m + χ d along the surface, m the last one and d what it gained since.

    χ = 1/(1 + ρ²), ρ = |d|²/(|m|² + ε²), leaves d out where it says more than m: the θ-scheme's v swings about m in
    what rests.

    Attributes:
        m, d: before they were laid along the surface, (F, 3) [m/s]; m_t, d_t: after. rho, chi: (F,).
    """

    m: Array
    d: Array
    m_t: Array
    d_t: Array
    rho: Array
    chi: Array


@dataclass(frozen=True, eq=False)
class Slip:
    """The points that rub, at the place that the last motion leads to.

    Attributes:
        patch: the points. motion: of the obstacle. w0: (F, 3) [m/s]. size: s, (F,) [m/s]. strength: μ f_n/s [N s/m],
        (F,). expected: how w₀ was made of the state; None where it was made of the guess.
    """

    patch: Patch
    motion: Motion | None
    w0: Array
    size: Array
    strength: Array
    expected: Expected | None


class Friction(Term["Slip | None"]):
    """The surface rubbing on one obstacle."""

    parameters: ClassVar[tuple[str, ...]] = (COEFFICIENT,)
    curved: ClassVar[bool] = True

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray, law: FrictionLaw) -> None:
        super().__init__(device, values, start)
        contact = law.contact
        self.touched, self.slow, self.own = contact.touched(device, values), contact.slip_speed_m_s, contact.own
        self._substeps = contact.substeps
        given = contact.friction if contact.own else values.friction_coefficient
        if given is None or not given >= 0.0:
            raise ValueError(f"{COEFFICIENT} = {given:g} must not be negative; 0 is no friction")
        self.coefficient = float(given)

    # Where it acts

    def substeps(self, state: State, scheme: Integrator) -> int:
        """What rubs slips anew within a fraction of the contact's own period, which one solve does not foresee."""
        if self._substeps == 1:
            return 1
        x = self.device.surface_points(state.u + scheme.step_s * scheme.velocity_ahead(state.v, state.a))
        nearest = self.touched.obstacle.distance(x, state.time_s + scheme.step_s).min()
        return self._substeps if float(nearest) < RUBS / self.touched.sharpness else 1

    def prepare(self, stage: Stage) -> Slip | None:
        """None where nothing touches."""
        place, state = stage.predicted, stage.state
        if stage.iterated:
            led = stage.scheme.c_k * stage.scheme.step_s * stage.scheme.velocity_ahead(state.v, state.a)
            place = state.u + led
        patch = self.touched.near(place, stage.balance_time_s)
        if patch is None:
            return None
        motion = self.touched.obstacle.motion(patch.time_s)
        expected = None if stage.iterated or stage.scheme.c_d == 0.0 else self._expected(stage, patch, motion)
        if expected is None:
            w0 = _along(patch, self._velocity(stage, patch, motion, stage.guess))
        else:
            w0 = expected.m_t + expected.chi[:, None] * expected.d_t
        size = self.device.xp.sqrt((w0**2).sum(axis=1) + self.slow**2)
        return Slip(patch, motion, w0, size, self.coefficient * patch.press / size, expected)

    def _expected(self, stage: Stage, patch: Patch, motion: Motion | None) -> Expected:
        v, a, (by_v, by_a) = stage.state.v, stage.state.a, stage.scheme.speeding
        m = patch.at(stage.scheme.velocity_ahead(v, a))
        if motion is not None:
            m = m - motion.at(patch.x)
        d = patch.at(by_v * v + by_a * a)
        m_t, d_t = _along(patch, m), _along(patch, d)
        rho = (d_t**2).sum(axis=1) / ((m_t**2).sum(axis=1) + self.slow**2)
        return Expected(m, d, m_t, d_t, rho, 1.0 / (1.0 + rho**2))

    def _velocity(self, stage: Stage, patch: Patch, motion: Motion | None, increment: Array | None) -> Array:
        """q of an increment Δu, (F, 3); without one, what is known before the solve."""
        if stage.scheme.c_d == 0.0:
            q = patch.at(stage.state.v)
        else:
            q = self.device.xp.zeros_like(patch.x) if increment is None else stage.scheme.c_d * patch.at(increment)
        if stage.known_velocity is not None:
            q = q - patch.at(stage.known_velocity)
        return q if motion is None else q - motion.at(patch.x)

    # The step

    def add_blocks(self, stage: Stage, at: Slip | None, assembly: Assembly) -> None:
        if at is None or stage.scheme.c_d == 0.0:
            return
        host = self.device.host
        normal = host(at.patch.normal)
        inner = np.eye(3) - normal[:, :, None] * normal[:, None, :]
        if stage.minimised:
            w = host(at.w0 / at.size[:, None])
            inner -= w[:, :, None] * w[:, None, :]
        at.patch.add_blocks(stage.scheme.c_d * host(at.strength)[:, None, None] * inner, assembly, rubs=True)

    def add_force(self, stage: Stage, at: Slip | None, rhs: Array) -> None:
        if at is None:
            return
        w = _along(at.patch, self._velocity(stage, at.patch, at.motion, None))
        if stage.minimised:  # made linear at the guess: its force there, and the way back from it
            back = stage.scheme.c_d * _along(at.patch, at.patch.at(stage.guess))
            w = at.w0 - back + at.w0 * ((at.w0 * back).sum(axis=1) / at.size**2)[:, None]
        rhs -= at.patch.spread(at.strength[:, None] * w)

    def add_residual(self, stage: Stage, at: Slip | None, out: Array) -> None:
        if at is not None:
            out -= at.patch.spread(at.strength[:, None] * at.w0)

    def potential_j(self, stage: Stage, at: Slip | None) -> Array:
        """μ f_n s/c_d, whose slope by Δu is -g."""
        if at is None:
            return self.device.xp.zeros(1)
        return self.coefficient * at.patch.press * at.size / stage.scheme.c_d

    def missed_n(self, stage: Stage, at: Slip | None, increment: Array) -> tuple[float, float]:
        """How far the force of a step is from that of its own slip, added up over the points, and the largest that it
        could be, both [N]."""
        if at is None or stage.scheme.c_d == 0.0:
            return 0.0, 0.0
        w = _along(at.patch, self._velocity(stage, at.patch, at.motion, increment))
        slip, full = self.device.xp.sqrt((w**2).sum(axis=1)), self.coefficient * at.patch.press
        off = at.strength - full / self.device.xp.sqrt(slip**2 + self.slow**2)
        return float(abs(off * slip).sum()), float(full.sum())

    # Forwards

    def push(
        self, stage: Stage, at: Slip | None, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        if at is None:
            return
        scheme, t, patch = stage.scheme, self.touched, at.patch
        q = self._velocity(stage, patch, at.motion, increment)
        dx = patch.at(changes.u + scheme.c_k * scheme.step_s * scheme.velocity_ahead(changes.v, changes.a))
        dn = t.normal_push(patch, dx, directions)
        carried = 0.0 if at.motion is None else self.device.xp.einsum("ab,fbk->fak", at.motion.spin, dx)
        dq = (patch.at(changes.v) if scheme.c_d == 0.0 else self.device.xp.zeros_like(dx)) - carried
        if changes.known is not None:
            dq = dq - patch.at(changes.known)
        dw, dw0 = _along_push(patch, q, dq, dn), self._w0_push(stage, at, changes, dq, dn, carried)
        dsize = (at.w0[:, :, None] * dw0).sum(axis=1) / at.size[:, None]
        dpress = -(patch.factor * patch.slope)[:, None] * t.distance_push(patch, dx, directions)
        dpress = dpress + t.numbers_push(patch.press, patch.factor * t.depth_by_sharpness(patch), directions)
        dstrength = self.coefficient * dpress - at.strength[:, None] * dsize
        if not self.own:
            dstrength = dstrength + patch.press[:, None] * directions.on_device(directions.column(COEFFICIENT))
        dstrength = dstrength / at.size[:, None]
        w = _along(patch, q)
        out -= patch.spread(dstrength[:, None, :] * w[:, :, None] + at.strength[:, None, None] * dw)

    def _w0_push(
        self, stage: Stage, at: Slip, changes: Columns, dq: Array, dn: Array | None, carried: Array | float
    ) -> Array:
        """Change of w₀, (F, 3, width); in steps that minimise the matrix holds what the guess does to it."""
        e, scheme, patch = at.expected, stage.scheme, at.patch
        if e is None:
            led = dq if stage.minimised else dq + scheme.c_d * patch.at(changes.guess)
            return _along_push(patch, self._velocity(stage, patch, at.motion, stage.guess), led, dn)
        by_v, by_a = scheme.speeding
        dm_t = _along_push(patch, e.m, patch.at(scheme.velocity_ahead(changes.v, changes.a)) - carried, dn)
        dd_t = _along_push(patch, e.d, patch.at(by_v * changes.v + by_a * changes.a), dn)
        drho = (e.d_t[:, :, None] * dd_t).sum(axis=1) - e.rho[:, None] * (e.m_t[:, :, None] * dm_t).sum(axis=1)
        dchi = self._by_rho(e)[:, None] * drho
        return dm_t + e.chi[:, None, None] * dd_t + dchi[:, None, :] * e.d_t[:, :, None]

    def _by_rho(self, e: Expected) -> Array:
        """∂χ/∂ρ times the 2/(|m|² + ε²) of ρ's own slopes, (F,)."""
        return -4.0 * e.rho * e.chi**2 / ((e.m_t**2).sum(axis=1) + self.slow**2)

    # Backwards

    def pull(self, stage: Stage, at: Slip | None, increment: Array, lmbda: Array, out: Pulled) -> None:
        if at is None:
            return
        scheme, t, patch = stage.scheme, self.touched, at.patch
        pulled, normal_bar = patch.at(lmbda), self.device.xp.zeros_like(patch.x)
        q = self._velocity(stage, patch, at.motion, increment)
        strength_bar = -(pulled * _along(patch, q)).sum(axis=1) / at.size
        w0_bar = -(strength_bar * at.strength / at.size)[:, None] * at.w0
        q_bar = _along_pull(patch, q, -at.strength[:, None] * pulled, normal_bar)
        carried_bar = self._w0_pull(stage, at, w0_bar, q_bar, normal_bar, out)
        press_bar = self.coefficient * strength_bar
        x_bar = t.place_pull(patch, -press_bar * patch.factor * patch.slope, normal_bar, out.gradient)
        if at.motion is not None:
            x_bar = x_bar - carried_bar @ at.motion.spin
        if stage.known_velocity is not None:
            out.known -= patch.spread(q_bar)
        if scheme.c_d == 0.0:
            out.v += patch.spread(q_bar)
        t.numbers_pull(press_bar, patch.press, patch.factor * t.depth_by_sharpness(patch), out.gradient)
        if not self.own:
            out.gradient.add(COEFFICIENT, float((strength_bar * patch.press).sum()))
        place_bar = patch.spread(x_bar)
        out.u += place_bar
        ahead = out.a if scheme.ahead_v == 0.0 else out.v
        ahead += scheme.c_k * scheme.step_s * place_bar

    def _w0_pull(self, stage: Stage, at: Slip, bar: Array, q_bar: Array, normal_bar: Array, out: Pulled) -> Array:
        """Hand the derivative by w₀ on, to q where w₀ is that of the guess, else to the state.

        Returns minus the derivative by the obstacle's velocity.
        """
        e, scheme, patch = at.expected, stage.scheme, at.patch
        if e is None:
            led = _along_pull(patch, self._velocity(stage, patch, at.motion, stage.guess), bar, normal_bar)
            q_bar += led
            if not stage.minimised:
                out.guess += scheme.c_d * patch.spread(led)
            return q_bar
        rho_bar = self._by_rho(e) * (bar * e.d_t).sum(axis=1)
        d_bar = _along_pull(patch, e.d, e.chi[:, None] * bar + rho_bar[:, None] * e.d_t, normal_bar)
        m_bar = _along_pull(patch, e.m, bar - (rho_bar * e.rho)[:, None] * e.m_t, normal_bar)
        by_v, by_a = scheme.speeding
        faster = patch.spread(d_bar)
        out.v += by_v * faster
        out.a += by_a * faster
        ahead = out.a if scheme.ahead_v == 0.0 else out.v
        ahead += patch.spread(m_bar)
        return q_bar + m_bar

    def work_j(self, before: State, after: State) -> float:
        """What a moving obstacle drags the body along by."""
        time_s, step_s = 0.5 * (before.time_s + after.time_s), after.time_s - before.time_s
        motion = self.touched.obstacle.motion(time_s)
        patch = None if motion is None else self.touched.near(0.5 * (before.u + after.u), time_s)
        if motion is None or patch is None:
            return 0.0
        moving = motion.at(patch.x)
        w = _along(patch, patch.at(after.u - before.u) / step_s - moving)
        size = self.device.xp.sqrt((w**2).sum(axis=1) + self.slow**2)
        return -step_s * self.coefficient * float(((patch.press / size)[:, None] * w * moving).sum())


def _along(patch: Patch, y: Array) -> Array:
    """T y of vectors (F, 3) or (F, 3, width)."""
    n = patch.normal if y.ndim == 2 else patch.normal[:, :, None]
    return y - n * (n * y).sum(axis=1, keepdims=True)


def _along_push(patch: Patch, y: Array, dy: Array, dn: Array | None) -> Array:
    """Change of T y, (F, 3, width), for changes of y and of n."""
    out = _along(patch, dy)
    if dn is not None:
        n = patch.normal
        out = out - dn * (n * y).sum(axis=1)[:, None, None]
        out = out - n[:, :, None] * (dn * y[:, :, None]).sum(axis=1)[:, None, :]
    return out


def _along_pull(patch: Patch, y: Array, bar: Array, normal_bar: Array) -> Array:
    """Derivative by y, given that by T y; adds to that by n."""
    n = patch.normal
    normal_bar -= (n * y).sum(axis=1)[:, None] * bar + (n * bar).sum(axis=1)[:, None] * y
    return _along(patch, bar)
