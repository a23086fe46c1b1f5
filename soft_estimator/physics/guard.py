"""Which steps can be trusted, and what takes those that cannot.

A step whose terms left what they were made linear for, whose Newton rounds did not come to rest, or that ends with more
energy than it began with, is taken again in 2, 4, 8 or 16 parts, each a step of its own scheme; where none of these can
be trusted either, or the solver's settings leave them out (`own_parts`), by backward Euler with everything implicit, in
as many parts as it needs not to gain. Terms may ask for steps of their own scheme that are shorter (`Term.substeps`).
The state after a step in parts is marked; its linearisation is that of the last part.

From one value of a parameter to the next a step is taken again or is not, and all that follows is another motion then,
by as much as the two steps differ. Those of one scheme differ less than either does from backward Euler: of 200 drawn
recordings of bodies that bounce wildly nine searches ended in a wrong minimum with backward Euler alone, and six do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.physics.energy import Balance, balance
from soft_estimator.physics.state import State

if TYPE_CHECKING:
    from soft_estimator.physics.step import Linearisation, Simulation, StepReport

# Energy that a step may make out of nothing, as a part of what the body holds after it. In contact it is more: a point
# that goes under the plane within a step holds energy at its end, which the next steps take out again.
LARGEST_GAIN, LARGEST_GAIN_IN_CONTACT = 0.1, 0.4
# Less energy than this is none [J]: a gram at 4e-14 m/s. The ground presses on what is far above it, too, by e^(-a δ).
NO_ENERGY_J = 1e-30
# Of that, what the parts of a step may gain together by its own scheme. Where every step was taken again, and gained as
# much as it may, a body held two and a half times its energy after sixty; with a tenth of that 1.4 times, so 1.0.
LARGEST_GAIN_IN_PARTS = 0.02
OWN_PARTS = (2, 4, 8, 16)
FALLBACK_PARTS = (1, 2, 4, 8, 16)


def guarded_step(simulation: Simulation, state: State) -> tuple[State, StepReport, Linearisation]:
    """Advance by one time step, and hand out its linearisation as well."""
    s = simulation
    start = _held_before(s, state)
    after, report, lin, sound = _own_step(s, state, s.substeps(state))
    end = balance(s, after)
    if not sound or _gain(s, state, after, start, end, report) > 1.0:
        shorter = _shorter_steps(s, state, start, after.substeps)
        after, report, lin, end = _fallback_step(s, state, start) if shorter is None else shorter
    s._known = (after.u, after.v, end)
    return after, report, lin


def _shorter_steps(
    s: Simulation, state: State, start: Balance, tried: int
) -> tuple[State, StepReport, Linearisation, Balance] | None:
    """The step by the simulation's own scheme in more parts than were tried, None where they cannot be trusted either;
    steps that minimise have seen to their length themselves."""
    if s.minimises or not s.model.solver.own_parts:
        return None
    for count in OWN_PARTS:
        if count <= tried:
            continue
        after, report, lin, sound = _own_step(s, state, count)
        end = balance(s, after)
        if sound and _gain(s, state, after, start, end, report) <= LARGEST_GAIN_IN_PARTS:
            return replace(after, retaken_parts=count), replace(report, retaken_parts=count), lin, end
    return None


def _own_step(s: Simulation, state: State, count: int) -> tuple[State, StepReport, Linearisation, bool]:
    """A step by the simulation's own scheme in so many parts, and whether its terms stayed where they were made
    linear."""
    part, after, sound = s if count == 1 else s.in_substeps(count), state, True
    reports = []
    for _ in range(count):
        after, report, lin = part.step_once(after)
        reports.append(report)
        unsound = any(t.unsound(lin.stage, at, after, lin.system.blocks) for t, at in zip(s.terms, lin.at))
        sound = sound and report.converged and not unsound
    if count > 1:
        after, report = replace(after, substeps=count), _together(reports)
    return after, report, lin, sound


def _together(reports: list[StepReport]) -> StepReport:
    """Of all substeps of a step: work, seconds and iterations added up, the rest as of the last."""
    last = reports[-1]
    solve = replace(
        last.solve,
        iterations=sum(report.solve.iterations for report in reports),
        rescued=any(report.solve.rescued for report in reports),
    )
    seconds = {name: sum(report.seconds.get(name, 0.0) for report in reports) for name in last.seconds}
    return replace(last, solve=solve, seconds=seconds, work_j=sum(report.work_j for report in reports))


def _fallback_step(s: Simulation, state: State, start: Balance) -> tuple[State, StepReport, Linearisation, Balance]:
    least = (True, np.inf)
    for parts in FALLBACK_PARTS:
        part, after, work_j, converged = s.fallback(parts), state, 0.0, True
        for _ in range(parts):
            after, report, lin = part.step_once(after)
            work_j += report.work_j
            converged = converged and report.converged
        report = replace(report, fell_back=True, retaken_parts=parts, work_j=work_j, converged=converged)
        end = balance(s, after)
        gain = _gain(s, state, after, start, end, report)
        if parts == FALLBACK_PARTS[0] or (not converged, gain) < least:
            least = not converged, gain
            best = replace(after, fallback_parts=parts, retaken_parts=parts), report, lin, end
        if converged and gain <= 1.0:
            break
    return best


def _held_before(s: Simulation, state: State) -> Balance:
    """What a state holds, kept from the step that led to it."""
    known = s._known
    if known is not None and state.u is known[0] and state.v is known[1]:
        return known[2]
    return balance(s, state)


def _gain(s: Simulation, before: State, after: State, start: Balance, end: Balance, report: StepReport) -> float:
    """Energy the step made out of nothing, relative to what is allowed."""
    return relative_to_allowed(start, end, report.work_j + sum(t.work_j(before, after) for t in s.terms))


def relative_to_allowed(start: Balance, end: Balance, work_j: float) -> float:
    """Energy a step made out of nothing over what is allowed."""
    largest = LARGEST_GAIN_IN_CONTACT if in_contact(start, end) else LARGEST_GAIN
    return relative_gain(start, end, work_j) / largest


def relative_gain(before: Balance, after: Balance, work_j: float) -> float:
    """Energy that a step made out of nothing, as a part of what the body holds after it in motion, strain and contact.

    work_j: what the regions that hold and move the body put in [J].
    """
    # A thousandth of the drift stays in: the solver's tolerance makes and loses about a millionth.
    holds = after.kinetic_j - 0.999 * after.drift_j + after.elastic_j + after.contact_j
    return (after.total_j - before.total_j - work_j) / max(holds, NO_ENERGY_J)


def in_contact(before: Balance, after: Balance) -> bool:
    """Whether a step had to do with an obstacle."""
    return max(before.contact_j, after.contact_j) > 1e-3 * (after.kinetic_j - after.drift_j + after.elastic_j)
