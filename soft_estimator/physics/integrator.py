"""Time integrators as tables of numbers (METHOD §3).

Every scheme here is one linear step from (u, v, a) to the increment Δu, with the stiffness held at the step's
rotations:

    [c_m M + c_d D + c_k K] Δu = M (p_v v + p_a a) + D (q_v v + q_a a) + f - f_int(u)
    v⁺ = d_u Δu + d_v v + d_a a        a⁺ = e_u Δu + e_v v + e_a a

The third array a is the acceleration for HHT. The θ-scheme carries its last mean velocity Δu/Δt there, to look ahead
with: v itself swings from step to step in modes much faster than the step, and looking ahead with it feeds those.

Nodes that are held do not choose Δu. Inertia drags their neighbours along by M (c_m Δu - p_v v - p_a a) all the same,
so their v and a must make that their acceleration. The rules above would do so, but for a path with kinks v then swings
for ever; instead

    v⁺ = h_u Δu + h_v v + h_a a        a⁺ = k_u Δu + k_v v + k_a a

take the acceleration from this step's mean velocity and the last one's, which forgets a kink after two steps and lags
by a fraction of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.backends.interface import Array


@dataclass(frozen=True)
class Integrator:
    """Coefficients of one scheme for a step Δt; the names are those of the module's equations."""

    step_s: float
    predictor: float  # the cells' rotations are taken at u + predictor Δt w, w = ahead_v v + ahead_a a
    c_m: float
    c_d: float
    c_k: float
    p_v: float
    d_u: float
    d_v: float
    ahead_v: float = 1.0
    ahead_a: float = 0.0
    p_a: float = 0.0
    q_v: float = 0.0
    q_a: float = 0.0
    d_a: float = 0.0
    e_u: float = 0.0
    e_v: float = 0.0
    e_a: float = 0.0
    h_u: float = 0.0
    h_v: float = 0.0
    h_a: float = 0.0
    k_u: float = 0.0
    k_v: float = 0.0
    k_a: float = 0.0

    @property
    def carries_acceleration(self) -> bool:
        """Whether a is an acceleration; otherwise it is the last step's mean velocity."""
        return self.ahead_a == 0.0

    @property
    def order(self) -> int:
        """Of the error of a motion in the step. Rotations taken where a step starts are late by half of it."""
        return 2 if self.predictor > 0.0 and (self.carries_acceleration or self.d_v == -1.0) else 1

    def velocity_ahead(self, v: Array, a: Array) -> Array:
        """The velocity that looks ahead to where rotations and contact are taken: v or a of the state."""
        return a if self.ahead_v == 0.0 else v

    @property
    def speeding(self) -> tuple[float, float]:
        """(c_v, c_a): under a steady acceleration the velocity of the force balance is c_v v + c_a a beyond
        `velocity_ahead`; zeros where v and a do not tell."""
        if self.carries_acceleration:
            return 0.0, self.c_k * self.step_s
        return (2.0, -2.0) if self.d_v == -1.0 else (0.0, 0.0)  # mean velocities half a step to both sides of v

    @property
    def gaining(self) -> tuple[float, float]:
        """(c_v, c_a): under a steady acceleration the mean velocity of the next step is c_v v + c_a a beyond
        `velocity_ahead`; zeros where v and a do not tell."""
        if self.carries_acceleration:
            return 0.0, 0.5 * self.step_s
        later = 1.0 - self.c_k  # v is ahead of the last mean velocity by so much of what a step gains
        return (1.0 / later, -1.0 / later) if later > 0.0 else (0.0, 0.0)

    def advanced(self, increment: Array, v: Array, a: Array, held: Iterable[np.ndarray]) -> tuple[Array, Array]:
        """v⁺ and a⁺, or their changes, after a step by Δu; held: the nodes, by groups, that do not choose it."""
        after_v = self.d_u * increment + self.d_v * v
        after_a = self.e_u * increment
        if self.carries_acceleration:
            after_v += self.d_a * a
            after_a = after_a + self.e_v * v + self.e_a * a
        for nodes in held:
            after_v[nodes], after_a[nodes] = self.held(increment[nodes], v[nodes], a[nodes])
        return after_v, after_a

    def held(self, increment: Array, v: Array, a: Array) -> tuple[Array, Array]:
        """v and a of held nodes, or their changes, after a step that moved them by a given Δu."""
        return (
            self.h_u * increment + self.h_v * v + self.h_a * a,
            self.k_u * increment + self.k_v * v + self.k_a * a,
        )

    def known_velocity(self, v: Array, a: Array) -> Array | None:
        """The part q_v v + q_a a of the damped velocity that is known before the solve; None where there is none."""
        return self.q_v * v + self.q_a * a if self.carries_acceleration else None


def theta_scheme(step_s: float, theta: float = 0.5, *, lagged: bool = False) -> Integrator:
    """The θ-scheme, second order at θ = ½, damping of its own above that; METHOD §3 divided by Δt, solved for Δu."""
    _check_step(step_s)
    if not 0.5 <= theta <= 1.0:
        raise ValueError(f"theta = {theta:g} must lie in 0.5-1; below 0.5 the scheme is unstable for stiff bodies")
    dt = step_s
    return Integrator(
        step_s=dt,
        predictor=0.0 if lagged else theta,
        c_m=1 / (theta * dt**2),
        c_d=1 / dt,
        c_k=theta,
        p_v=1 / (theta * dt),
        d_u=1 / (theta * dt),
        d_v=-(1 - theta) / theta,
        ahead_v=0.0,
        ahead_a=1.0,
        e_u=1 / dt,
        # Under a steady acceleration the scheme's v is ahead of the mean velocity by (1 - θ) Δt of it.
        h_u=(2 - theta) / dt,
        h_a=-(1 - theta),
        k_u=1 / dt,
    )


def hht_scheme(step_s: float, alpha: float = -0.05, *, lagged: bool = False) -> Integrator:
    """Hilber-Hughes-Taylor α-scheme: second order, damps only the highest frequencies; α from -1/3 to 0."""
    _check_step(step_s)
    if not -1 / 3 <= alpha <= 0.0:
        raise ValueError(f"hht_alpha = {alpha:g} must lie in -1/3-0 (0 is the undamped Newmark scheme)")
    dt, gamma, beta, share = step_s, 0.5 - alpha, (1 - alpha) ** 2 / 4, 1 + alpha
    d_v, d_a = 1 - gamma / beta, dt * (1 - gamma / (2 * beta))
    return Integrator(
        step_s=dt,
        predictor=0.0 if lagged else share,
        c_m=1 / (beta * dt**2),
        c_d=share * gamma / (beta * dt),
        c_k=share,
        p_v=1 / (beta * dt),
        p_a=1 / (2 * beta) - 1,
        q_v=-(share * d_v - alpha),
        q_a=-share * d_a,
        d_u=gamma / (beta * dt),
        d_v=d_v,
        d_a=d_a,
        e_u=1 / (beta * dt**2),
        e_v=-1 / (beta * dt),
        e_a=1 - 1 / (2 * beta),
        # The last mean velocity is v - ½ Δt a.
        h_u=1.5 / dt,
        h_v=-0.5,
        h_a=0.25 * dt,
        k_u=1 / dt**2,
        k_v=-1 / dt,
        k_a=0.5,
    )


def with_step(scheme: Integrator, step_s: float) -> Integrator:
    """The same scheme for another step."""
    lagged = scheme.predictor == 0.0
    if scheme.carries_acceleration:
        return hht_scheme(step_s, scheme.c_k - 1.0, lagged=lagged)
    return theta_scheme(step_s, scheme.c_k, lagged=lagged)


# Not a step but a force balance: g = f - f_int(u), with Δu = 0 and nothing damped.
FORCE_BALANCE = Integrator(
    step_s=0.0, predictor=0.0, c_m=0.0, c_d=0.0, c_k=0.0, p_v=0.0, d_u=0.0, d_v=0.0, ahead_v=0.0, ahead_a=1.0
)  # fmt: skip

# Its matrix is M alone: accelerations that forces give.
ACCELERATION = replace(FORCE_BALANCE, c_m=1.0)


def fallback_scheme(scheme: Integrator, parts: int = 1) -> Integrator:
    """Backward Euler over a part of the same step, carrying the same third array: for a step that `scheme` gains by.

    The cells' rotations are those of the step's start. It then gains no more than the stretch of turning in a straight
    line, which goes with the fourth power of the step, whatever v is: looking ahead with a wild v would gain by itself.
    """
    dt = scheme.step_s / parts
    if not scheme.carries_acceleration:
        return theta_scheme(dt, 1.0, lagged=True)
    return Integrator(
        step_s=dt,
        predictor=0.0,
        c_m=1 / dt**2,
        c_d=1 / dt,
        c_k=1.0,
        p_v=1 / dt,
        d_u=1 / dt,
        d_v=0.0,
        e_u=1 / dt**2,
        e_v=-1 / dt,
        h_u=1 / dt,  # the mean velocity, which with a = 0 is what the scheme to come takes it for
    )


def _check_step(step_s: float) -> None:
    if not step_s > 0:
        raise ValueError(f"step_s = {step_s} must be a positive time in seconds")
