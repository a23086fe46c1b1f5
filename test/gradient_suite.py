"""The gradient suite: adjoint, tangent and central differences of any simulation, for every parameter.

    check_simulation(lambda p: Simulation(model, p), parameters)

Derivatives are compared in scaled form, s = p ∂J/∂p with p the parameter's size: one number says how much J moves when
the parameter changes by its own size, whatever its unit. Three things must hold for each number in `Parameters`, the
second, unless asked for each of them, along one mixture of a vector's numbers: tangent and adjoint are linear, so that
a wrong one is wrong along it, too:

    tangent = adjoint            to SOLVES of itself and ROUNDING of the largest derivative (the dot-product test)
    adjoint = differences        to TOLERANCE of itself, beyond the noise of the differences
    all three are exactly zero   for parameters that are named as without effect, and for no others

The noise is measured, not assumed. J is known to η: its values at equally spaced points so close together that J is a
straight line between them scatter by η about it (fourth differences; Moré and Wild, "Estimating computational noise",
2011). Richardson's (4 D(e/2) - D(e))/3 of two central differences D then carries 1.90 η/e from rounding, and less
than its own distance to D(e/2) from truncation: of three steps e the one with the least noise is kept. What iterative
solves leave (CONVERGENCE) follows the parameters smoothly, so that no scatter shows it, and is added. Where all that
exceeds TOLERANCE of the derivative the differences cannot judge it; that is an error of the test's set-up, and is
reported as one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.gradient import ParameterGradient, shifted
from soft_estimator.physics.model import State
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

TOLERANCE = 1e-6  # of the differences
SOLVES = 1e-10  # of tangent against adjoint: linear solves to 1e-13, through a few steps
ROUNDING = 1e-12  # of the largest derivative: sums over all nodes cancel
CONVERGENCE = 1e-11  # of the largest derivative: residuals of 1e-13 times the condition, some 100 with a short step
STEPS = (1e-4, 1e-3, 1e-5)  # of a difference, in units of the parameter's size; tried until one is good enough
GOOD_ENOUGH = 0.3 * TOLERANCE
MIXTURE = (1.0, -0.7, 0.45)  # of a vector's numbers: no two alike, none small
DEVIATIONS = 4.0  # of the rounding that the noise allows for
_NOISE_STEP = 1e-7  # between the points that tell the noise
# What a parameter is measured in where its value is small or zero.
LEAST_SIZE = {"translation_m": 0.01, "plane_offset_m": 0.01, "stiffness_damping_s": 0.001}
_LEAST_SIZE = 0.1


class Cost(Protocol):
    """A scalar of the parameters with its derivatives, forwards and backwards."""

    def value(self, parameters: Parameters) -> float: ...

    def adjoint(self, parameters: Parameters) -> ParameterGradient: ...

    def tangent(self, parameters: Parameters, directions: list[ParameterGradient]) -> np.ndarray: ...


@dataclass(frozen=True)
class Number:
    """One number of `Parameters`: where it stands, and a change of it by its own size."""

    name: str
    index: int | None
    direction: ParameterGradient

    @property
    def label(self) -> str:
        return self.name if self.index is None else f"{self.name}[{self.index}]"


@dataclass(frozen=True)
class Row:
    """The scaled derivative by one number, three ways, and the noise of the differences."""

    label: str
    adjoint: float
    tangent: float
    differences: float
    noise: float

    def __str__(self) -> str:
        return (
            f"{self.label}: adjoint {self.adjoint:.12g}, tangent {self.tangent:.12g}, "
            f"differences {self.differences:.12g} with noise {self.noise:.1e}"
        )


def numbers_of(parameters: Parameters, names: Collection[str] | None = None) -> list[Number]:
    """Every number of the named entries; by default of all that are given."""
    out = []
    for name in parameters if names is None else names:
        value = np.asarray(getattr(parameters, name))
        size = max(float(np.abs(value).max()), LEAST_SIZE.get(name, _LEAST_SIZE))
        for index in [None] if value.ndim == 0 else range(len(value)):
            unit = ParameterGradient.unit(len(parameters.youngs_modulus_pa), name, index)
            setattr(unit, name, size * getattr(unit, name))
            out.append(Number(name, index, unit))
    return out


class RollOut:
    """J = Σ over the states of w·u + 0.1 s w'·v with random w, w': a scalar that sees every node at every time.

    Args:
        build: makes the simulation of some parameters. steps: time steps taken.
    """

    def __init__(self, build: Callable[[Parameters], Simulation], steps: int, seed: int = 0) -> None:
        self.build, self.steps, self._rng = build, steps, np.random.default_rng(seed)
        self._by_u: list[np.ndarray] = []
        self._by_v: list[np.ndarray] = []

    def _weigh(self, state: State, simulation: Simulation) -> None:
        """Draw w and w' when the first state is seen; they stay."""
        if not self._by_u:
            shape = (2, self.steps + 1, *np.shape(simulation.backend.to_host(state.u)))
            self._by_u, by_v = map(list, self._rng.normal(size=shape))
            self._by_v = [0.1 * w for w in by_v]

    def _states(self, simulation: Simulation) -> list[State]:
        states = [simulation.initial_state()]
        self._weigh(states[0], simulation)
        for _ in range(self.steps):
            states.append(simulation.step(states[-1])[0])
        return states

    def _of(self, k: int, simulation: Simulation, u: np.ndarray, v: np.ndarray) -> float:
        host = simulation.backend.to_host
        return float((self._by_u[k] * host(u)).sum() + (self._by_v[k] * host(v)).sum())

    def value(self, parameters: Parameters) -> float:
        simulation = self.build(parameters)
        return sum(self._of(k, simulation, s.u, s.v) for k, s in enumerate(self._states(simulation)))

    def adjoint(self, parameters: Parameters) -> ParameterGradient:
        simulation = self.build(parameters)
        states = self._states(simulation)
        adjoint, device = Adjoint(simulation), simulation.backend.to_device
        bar = adjoint.zero_state()
        for k in range(self.steps, -1, -1):
            bar.u += device(self._by_u[k])
            bar.v += device(self._by_v[k])
            if k:
                bar, _ = adjoint.step_back(states[k - 1], states[k], bar)
        return adjoint.finish(bar)

    def tangent(self, parameters: Parameters, directions: list[ParameterGradient]) -> np.ndarray:
        simulation = self.build(parameters)
        tangent = Tangent(simulation, directions)
        state, changes = simulation.initial_state(), tangent.initial()
        self._weigh(state, simulation)
        total = np.array([self._of(0, simulation, c.u, c.v) for c in changes])
        for k in range(1, self.steps + 1):
            after, _, linearisation = simulation.step_keeping(state)
            changes, _ = tangent.step(state, after, linearisation, changes)
            state = after
            total += [self._of(k, simulation, c.u, c.v) for c in changes]
        return total


def noise_of(value: Callable[[float], float]) -> float:
    """Standard deviation η of a function's rounding, from its fourth differences at seven points.

    Independent errors of deviation η make fourth differences of variance 70 η²; a smooth function adds 1e-28 of its
    fourth derivative at this spacing. Never less than half a unit in the last place.
    """
    values = np.array([value(k * _NOISE_STEP) for k in range(-3, 4)])
    fourth = np.diff(values, 4)
    return max(float(np.sqrt(np.mean(fourth**2) / 70)), 0.5 * float(np.spacing(np.abs(values).max())))


def difference_of(value: Callable[[float], float], noise: float) -> tuple[float, float]:
    """Richardson's central difference of a function at 0 and its noise, given that of the function."""

    def slope(e: float) -> float:
        return (value(e) - value(-e)) / (2 * e)

    best, least = 0.0, np.inf
    for step in STEPS:
        wide, narrow = slope(step), slope(step / 2)
        difference = (4 * narrow - wide) / 3
        # D(e) carries η/(√2 e): (16/9 · 2 + 1/9 · 1/2) η²/e² = (1.90 η/e)².
        doubt = DEVIATIONS * 1.90 * noise / step + abs(difference - narrow)
        if doubt < least:
            best, least = difference, doubt
        if wide == narrow == 0.0 or least <= GOOD_ENOUGH * abs(best):
            break
    return best, least


def table(
    cost: Cost,
    parameters: Parameters,
    *,
    zero: Collection[str] = (),
    judge: Collection[str] | None = None,
    each: bool = False,
) -> list[Row]:
    """The three derivatives by every number; differences only of the entries in `judge`, NaN elsewhere.

    each: differences by every number of a vector, not along one mixture of them, which has a row of its own.
    """
    numbers = numbers_of(parameters)
    directions = [n.direction for n in numbers]
    gradient = cost.adjoint(parameters)
    by_tangent = cost.tangent(parameters, directions)
    mixed = _mixture([n for n in numbers if n.name not in zero])
    noise = noise_of(lambda e: cost.value(shifted(parameters, mixed, e)))
    by_adjoint = [gradient.dot(d) for d in directions]
    left = CONVERGENCE * max(map(abs, by_adjoint))
    rows, judged = [], [n.name for n in numbers if judge is None or n.name in judge]
    for number, adjoint, tangent in zip(numbers, by_adjoint, by_tangent):
        found, doubt = np.nan, np.nan
        if number.name in judged and (each or judged.count(number.name) == 1):
            found, doubt = difference_of(lambda e, d=number.direction: cost.value(shifted(parameters, d, e)), noise)
        rows.append(Row(number.label, adjoint, float(tangent), found, doubt + left))
    for name in [] if each else [name for name in dict.fromkeys(judged) if judged.count(name) > 1]:
        parts = [k for k, n in enumerate(numbers) if n.name == name]
        direction = _mixture([numbers[k] for k in parts], MIXTURE)
        found, doubt = difference_of(lambda e, d=direction: cost.value(shifted(parameters, d, e)), noise)
        adjoint, tangent = (
            float(sum(MIXTURE[j % len(MIXTURE)] * by[k] for j, k in enumerate(parts)))
            for by in (by_adjoint, by_tangent)
        )
        rows.append(Row(name, adjoint, tangent, found, doubt + left))
    return rows


def _mixture(numbers: Sequence[Number], shares: Sequence[float] = (1.0, -1.0)) -> ParameterGradient:
    """All numbers changed at once, each by a share of its size, the shares in turn."""
    out = ParameterGradient.zero(len(numbers[0].direction.youngs_modulus_pa))
    for k, number in enumerate(numbers):
        share = shares[k % len(shares)]
        setattr(out, number.name, getattr(out, number.name) + share * getattr(number.direction, number.name))
    return out


def complaints(rows: Sequence[Row], zero: Collection[str] = ()) -> list[str]:
    """What does not hold, one line each."""
    largest = max(abs(row.adjoint) for row in rows)
    out = []
    for row in rows:
        if row.label.partition("[")[0] in zero:
            judged = 0.0 if np.isnan(row.differences) else row.differences
            if not row.adjoint == row.tangent == judged == 0.0:
                out.append(f"has an effect, but should have none: {row}")
            continue
        size = abs(row.adjoint)
        if not abs(row.tangent - row.adjoint) <= SOLVES * size + ROUNDING * largest:
            out.append(f"tangent and adjoint differ: {row}")
        if np.isnan(row.noise):
            continue
        if not abs(row.differences - row.adjoint) <= TOLERANCE * size + row.noise:
            out.append(f"adjoint and differences differ: {row}")
    return out + _not_judged(rows, zero)


def _not_judged(rows: Sequence[Row], zero: Collection[str]) -> list[str]:
    """Entries of which no number stands far enough above the noise; one component of a vector may be nearly zero."""
    best: dict[str, float] = {}
    for row in rows:
        name = row.label.partition("[")[0]
        if name not in zero and not np.isnan(row.noise):
            best[name] = min(best.get(name, np.inf), row.noise / max(abs(row.differences), 1e-300))
    return [f"{name}: the differences cannot judge it, noise {b:.1e}" for name, b in best.items() if b > TOLERANCE]


def check_cost(
    cost: Cost,
    parameters: Parameters,
    *,
    zero: Collection[str] = (),
    judge: Collection[str] | None = None,
    each: bool = False,
) -> list[Row]:
    """Compare and raise AssertionError with a line for everything that does not hold.

    Args:
        zero: entries of `Parameters` without any effect. judge: entries compared with differences, all by default.
        each: differences by every number of a vector by itself.
    """
    rows = table(cost, parameters, zero=zero, judge=judge, each=each)
    wrong = complaints(rows, zero)
    if wrong:
        raise AssertionError("\n".join(wrong))
    return rows


def check_simulation(
    build: Callable[[Parameters], Simulation],
    parameters: Parameters,
    steps: int = 3,
    *,
    zero: Collection[str] = (),
    judge: Collection[str] | None = None,
    each: bool = False,
    seed: int = 0,
) -> list[Row]:
    """`check_cost` of a random functional of every state of a simulation; solve its systems to 1e-13."""
    return check_cost(RollOut(build, steps, seed), parameters, zero=zero, judge=judge, each=each)
