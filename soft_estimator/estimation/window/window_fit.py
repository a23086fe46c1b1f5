"""The frames since a start: the newest predicted by simulation, the older ones marginalised to a Gaussian (METHOD §8).

The minimisation is Gauss-Newton with damping, warm-started. A new frame only continues the trajectory; the whole window
is simulated again when the variables have moved so far that the linearisation no longer holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.estimation.fitting.gauss_newton import Damping, Step, damped_step, minimise
from soft_estimator.estimation.fitting.uncertainty import touches
from soft_estimator.estimation.fitting.widening import with_way_left
from soft_estimator.estimation.problem import Evaluation
from soft_estimator.estimation.residuals.interface import Frame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.variables import Variables
from soft_estimator.estimation.window.arrival import Knowledge, inverse_of, marginalise
from soft_estimator.estimation.window.later_start import begin_later
from soft_estimator.estimation.window.linear_fit import LinearFit
from soft_estimator.estimation.window.newest import Newest
from soft_estimator.estimation.window.shape_details import ShapeDetails
from soft_estimator.estimation.window.window_motion import WindowMotion, WindowRun
from soft_estimator.estimation.window.window_rows import WindowRows
from soft_estimator.physics.frame_times import between

# Changes may be used this many times farther from where they were worked out: the residuals are always exact, and a
# direction that is a little off still leads to the minimum.
_CHANGES_HOLD = 4.0
_HELD = 1e-3
# Standard deviations of a variable, within which it may lie anywhere; of one of the start, which nobody asks for, and
# whose turn and spin a ball hardly shows, all that moves the frames by no more than their noise.
_UNKNOWN, _UNKNOWN_START = 0.3, 1.0
# A trial costs a simulation of the window: not for a place within a tenth of one that failed, and not for a fall of the
# cost that is no more than its roughness, where points cross the faces of cells.
_RULE = Damping(shorter=0.1)
_ROUGH = 5.0
_MOST_DAMPING_OF_A_NEW_FRAME = 0.1  # what a frame before could not do, a new one may
# An answer between frames goes the whole way of its linearisation unless the last steps had to be damped by more.
_FREE_DAMPING = 1e-2
TO_THE_END = 12  # simulations at most, on the way that is left to a minimum


@dataclass(frozen=True, eq=False)
class Answer:
    """Where the window stands: variables, their covariance, what the data say of them, and the noise seen.

    z, covariance, information: as `uncertainty.describe` takes them. scale: noise, in multiples of the stated one.
    touched: whether the body met the plane. by_fixed: change of z with what is held fixed, (P, K). settled: whether the
    linearisation reaches the minimum; where it does not, the way there is in the covariance.
    """

    z: np.ndarray
    covariance: np.ndarray
    information: np.ndarray
    scale: float
    touched: bool
    cost: float
    by_fixed: np.ndarray
    settled: bool


class WindowFit:
    """One episode of frames from a start on; an objective of `gauss_newton`.

    Args:
        knowledge: of the variables and the surface's offset before any frame. details: of the shape, and where points
            lie on it.
    """

    def __init__(self, motion: WindowMotion, knowledge: Knowledge, loss: RobustLoss, details: ShapeDetails) -> None:
        self.motion, self.knowledge, self.details = motion, knowledge, details
        self.rows = WindowRows(motion.kinds, loss, details)
        count = len(knowledge.mean)
        self.scale = 1.0
        self.information = np.zeros((count, count))  # of the frames that have left the window
        self.touched = False
        self.at = motion.run(knowledge.mean.copy(), [])
        self._damping = _RULE.first
        self._held: np.ndarray = np.zeros(count)  # information that only holds variables where they are
        self._in_time: Callable[[float], bool] = always
        self._failed_from: WindowRun | None = None  # where a trial with its changes was for nothing
        self._deviate: Newest[np.ndarray] = Newest()
        self._last: tuple[tuple[list[PredictedFrame], float], Evaluation] | None = None  # frames and scale it is of

    @property
    def frames(self) -> list[PredictedFrame]:
        """The window's frames as they are predicted."""
        return self.at.frames

    @property
    def slid(self) -> bool:
        return self.motion.start is not None

    @property
    def only_frame(self) -> Frame | None:
        """The frame of a window that has begun with one and has no other yet."""
        return self.frames[0].frame if len(self.frames) == 1 and not self.slid else None

    @property
    def seconds(self) -> float:
        """How long it takes to simulate the window."""
        return self.motion.seconds_per_step * self.at.trajectory.steps

    @property
    def holds(self) -> bool:
        """Whether the linearisation reaches the minimum."""
        return self._reaches(self.at, self._free_step().by)

    def changes_hold(self, by: np.ndarray) -> bool:
        """Whether changes may be used so far (P,) from where they were worked out."""
        return self._reaches(self.at, by / _CHANGES_HOLD)

    @property
    def deviations(self) -> np.ndarray:
        """Standard deviations of the variables and the offset by point-by-point noise alone, (P + 1,)."""
        return self._deviations(self.at)

    def _deviations(self, at: WindowRun) -> np.ndarray:
        rows = self._evaluation(at)
        return self._deviate.of((rows, self.knowledge), lambda: np.sqrt(np.diag(inverse_of(self._hessian(rows)))))

    def _free_step(self) -> Step:
        """The step to the minimum, damped only where the last steps had to be."""
        return self.step(self.at, self._damping if self._damping > _FREE_DAMPING else 0.0)

    def last_surface_m(self) -> np.ndarray:
        """Vertices of the body's surface where the motion at hand ends, (V, 3) [m]."""
        u = self.motion.backend.to_host(self.at.trajectory.after.state.u).astype(np.float64)
        return self.motion.model.body.surface_positions_m(u)

    def last_velocity_m_s(self) -> np.ndarray:
        """The nodes' mean velocity there, (3,)."""
        v = self.motion.backend.to_host(self.at.trajectory.after.state.v).astype(np.float64)
        return np.asarray(v.mean(axis=0))

    def motion_since(self, time_s: float) -> float:
        """How far the body moved in the window's frames from time_s [s] on, where it moved most [m]."""
        xp, last = self.motion.backend.xp, self.frames[-1].after.state.u
        there = [e.after.state.u for e in self.frames if e.frame.time_s >= time_s]
        return max((float(xp.abs(u - last).max()) for u in there), default=0.0)

    def add(self, frame: Frame) -> None:
        """Go on to a new frame."""
        self._damping = min(self._damping, _MOST_DAMPING_OF_A_NEW_FRAME)
        at, before = self.at, self.at.trajectory.retaken_parts
        newest = self.motion.through(at.trajectory, frame, at.z)
        self.at = replace(
            at, frames=[*at.frames, newest], retaken_parts=at.retaken_parts + at.trajectory.retaken_parts - before
        )
        self.touched = self.touched or touches(self.motion.variables, newest.jacobian)

    def set_motion(self, velocity_m_s: np.ndarray) -> None:
        """Begin anew with a first guess of the body's velocity, (3,)."""
        chosen = [j for j, v in enumerate(self.motion.variables.variables) if v.name == "velocity_m_s"]
        if len(chosen) != 3 or self.slid:
            return
        z, mean = self.at.z.copy(), self.knowledge.mean.copy()
        z[chosen] = mean[chosen] = velocity_m_s
        self.at = self.motion.run(z, [e.frame for e in self.frames], self.at.retaken_parts)
        self.knowledge = replace(self.knowledge, mean=mean)

    def doubt(self, variables: Variables) -> None:
        """Go on with wider priors of the same variables, in a window that has not slid, before which nothing was
        learnt."""
        before, self.motion.variables = self.motion.variables, variables
        wider = np.append(variables.prior_std**-2.0 - before.prior_std**-2.0, 0.0)
        self.knowledge = replace(self.knowledge, information=self.knowledge.information + np.diag(wider))

    @property
    def held(self) -> bool:
        """Whether some of the variables are held."""
        return bool(self._held.any())

    def hold_all_but(self, names: Sequence[str]) -> None:
        """Keep what is not named where it is known to be, by deviations of a thousandth of those known."""
        free = [*(v.name in names for v in self.motion.variables.variables), False]
        known = np.diag(self.knowledge.information) / _HELD**2
        self._held = np.where(free, 0.0, known)
        self.knowledge = replace(self.knowledge, information=self.knowledge.information + np.diag(self._held))

    def let_go(self) -> None:
        """Hold nothing any more, in a window that has not slid."""
        self.knowledge = replace(self.knowledge, information=self.knowledge.information - np.diag(self._held))
        self._held, self._damping = np.zeros(len(self._held)), _RULE.first

    def use(self, motion: WindowMotion) -> None:
        """Go on with another simulation of the same frames and variables, in a window that has not slid."""
        self.motion = motion
        seen = [e.frame for e in self.frames]
        self.at = self._with_noise(motion.run(self.at.z, seen, self.at.retaken_parts, self.at))

    def refine(self, iterations: int, in_time: Callable[[float], bool]) -> None:
        """Move the variables to the minimum, in at most so many simulations of the window.

        in_time: whether there is time for work of so many seconds.
        """
        self._in_time = in_time
        try:
            found = minimise(self, self._with_noise(self.at), _RULE, most_trials=iterations, damping=self._damping)
        finally:
            self._in_time = always
        self.at, self._damping = found.at, found.damping

    def from_another(self, z: np.ndarray) -> WindowFit:
        """Another fit of the same frames, with the variables at z (P,)."""
        other = copy(self)
        other.at = self.motion.run(z, [e.frame for e in self.frames], self.at.retaken_parts, self.at)
        other._damping = _RULE.first
        return other

    def on_coarser_grid(self) -> WindowFit | None:
        """Another fit of the same frames on the coarser grid alone, from where this one stands, that looks for a
        minimum and knows nothing of what is held fixed; None without one, or where the window has slid."""
        motion = None if self.slid else self.motion.on_coarser_grid()
        if motion is None:
            return None
        other = copy(self)
        other.motion, other._damping = motion, _RULE.first
        other.at = motion.run(self.at.z, [e.frame for e in self.frames], self.at.retaken_parts)
        return other

    def cost_of(self, other: WindowFit) -> float:
        """The cost of a fit of the same frames, in units of the noise that this one sees."""
        return self._cost(other.at)

    def step(self, at: WindowRun, damping: float) -> Step:
        rows = self._evaluation(at)
        gradient = rows.known_jacobian.T @ rows.slope + self.knowledge.gradient(at.z)
        longest = np.append(self.motion.variables.longest_steps, 1.0)  # and the surface's offset
        return damped_step(self._hessian(rows), gradient, damping, longest)

    def _hessian(self, rows: Evaluation) -> np.ndarray:
        return rows.information + self.knowledge.information

    def stop_before(self, at: WindowRun, step: Step) -> str:
        if self._reaches(at, step.by):
            return "the linearisation holds as far as the minimum"
        return "" if self._in_time(self.seconds) else "no time for another simulation"

    def moved(self, at: WindowRun, step: Step) -> WindowRun:
        z = at.z + step.by
        near = self._holds((z - at.changes_at) / _CHANGES_HOLD)
        if near or self._failed_from is at:  # a shorter step than one that failed may fail as well, without changes
            trial = self.motion.run_keeping_changes(z, at)
            trial = replace(trial, cost=self._cost(trial))
            if near or not trial.cost < at.cost:
                return trial
        run = self.motion.run(z, [e.frame for e in at.frames], at.retaken_parts, at)
        run = replace(run, cost=self._cost(run))
        self._failed_from = None if run.cost < at.cost else at
        return run

    def arrived(self, at: WindowRun, trial: WindowRun) -> WindowRun:
        return self._with_noise(trial)

    def stop_after(self, at: WindowRun, trial: WindowRun, step: Step) -> str:
        return ""

    def stop_failed(self, step: Step) -> str:
        return "at the minimum but for the roughness of the cost" if step.predicted < _ROUGH else ""

    def renewed(self, at: WindowRun) -> WindowRun | None:
        if not at.stale:  # it is the length of the step that is at fault, not its direction
            return None
        run = self.motion.run(at.z, [e.frame for e in at.frames], at.retaken_parts, at)
        return replace(run, cost=self._cost(run))

    def _with_noise(self, at: WindowRun) -> WindowRun:
        """Look at the noise that the residuals show, and take the cost in its units."""
        self.scale = self.rows.noise(at.frames, len(at.z))
        return replace(at, cost=self._cost(at))

    def _cost(self, at: WindowRun) -> float:
        return self.rows.misfit(at.frames, self.scale) + self.knowledge.cost(at.z)

    def _evaluation(self, at: WindowRun) -> Evaluation:
        """The window's rows as an evaluation, in units of the noise that is seen."""
        if self._last is None or self._last[0][0] is not at.frames or self._last[0][1] != self.scale:
            self._last = (at.frames, self.scale), self.rows.evaluation(at.frames, at.z, self.scale)
        return self._last[1]

    def answer(self) -> Answer:
        """The minimum as the linearisation sees it, and how sure it is."""
        step = self._free_step()
        there = self.linear.stepped(step.by)
        data, _ = there.data()
        covariance = inverse_of(self.knowledge.information + data)
        if self._far(step.by, covariance):  # how far the minimum really is nobody knows yet: about as far as that
            lasting = self._lasting
            covariance = covariance * with_way_left(step.by[lasting], covariance[np.ix_(lasting, lasting)])
        return Answer(
            self.at.z + step.by,
            covariance,
            self.information + data,
            self.scale,
            self.touched,
            self._cost(self.at),
            there.by_fixed(),
            self._reaches(self.at, step.by),
        )

    @property
    def linear(self) -> LinearFit:
        """The frames along the linearisation at hand, with what is known before them."""
        return LinearFit(self.rows, self.frames, self.scale, self.knowledge, self._evaluation(self.at))

    def settled(self, k: int, z: np.ndarray | None = None) -> PredictedFrame:
        """The k-th frame with its residuals where the variables are at z, by default at the answer."""
        e = self.frames[k]
        return replace(e, residual=e.residual + e.jacobian @ ((self.answer().z if z is None else z) - self.at.z))

    def newest_state(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """u, v, a (N, 3) at the newest frame, with the variables at z."""
        last, host = self.frames[-1], self.motion.backend.to_host
        a, b = (m.moved_state(z - self.at.z) for m in (last.before, last.after))
        u, v, third = (
            between(host(getattr(a, n)), host(getattr(b, n)), last.share).astype(np.float64) for n in ("u", "v", "a")
        )
        return u, v, third

    def newest_memory(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """What the model's terms remember at the newest frame, with the variables at z."""
        last, host = self.frames[-1], self.motion.backend.to_host
        if not last.after.state.memory:
            return {}
        a, b = (m.moved_state(z - self.at.z).memory for m in (last.before, last.after))
        # One that begins with the last step was zero before it.
        return {n: host(between(a.get(n, 0.0 * b[n]), b[n], last.share)).astype(np.float64) for n in b}

    def slide(self, keep: int, drift: np.ndarray, forgetting: float) -> None:
        """Marginalise all but the newest `keep` frames to a Gaussian and begin at the next one.

        Nothing of the window changes before everything is worked out: a step that fails leaves it as it was.
        drift: standard deviation of what the model misses between two frames, (12,), in the order of `POSE`.
        """
        count = len(self.at.frames) - keep
        if count <= 0:
            return
        known, information = self._joined(self.at.frames[:count], forgetting)
        self.at, self.knowledge, mixing = begin_later(self.motion, self.at, known, count, drift)
        self.information = mixing.T @ information @ mixing

    def _joined(self, dropped: list[PredictedFrame], forgetting: float) -> tuple[Knowledge, np.ndarray]:
        """Knowledge, and the information of all frames before the window, with these frames joined to them."""
        z, material = self.at.z, np.setdiff1d(np.arange(len(self.at.z)), self.motion.of_start)
        _, widen = self.linear.data()
        trust = 1.0 / float(widen[material].max()) ** 2 if len(material) else 1.0
        # Of all frames, of which these are the first: places that are not asked for are forgotten.
        fixed = self.rows.by_fixed(self.frames, self.scale)
        seen = [(self.rows.evaluation([e], z, self.scale), by_fixed) for e, by_fixed in zip(dropped, fixed)]
        knowledge, information = marginalise(self.knowledge, self.information, z, seen, trust)
        if forgetting > 0:
            # Of the material only: what is known of the motion is kept fresh by the drift.
            knowledge = knowledge.faded(material, (1 - forgetting) ** (0.5 * len(dropped)))
        return knowledge, information

    def _far(self, step: np.ndarray, covariance: np.ndarray) -> bool:
        """Whether a step to the minimum takes the lasting variables beyond their linearisation, by more than a small
        part of what is not known of them anyway."""
        lasting = self._lasting
        limits = np.array([self.motion.variables.variables[j].kind.linear_within for j in lasting])
        known = 0.5 * np.sqrt(np.diag(covariance)[lasting])
        return bool((np.abs(step[lasting]) > np.maximum(limits, known)).any())

    @property
    def _lasting(self) -> np.ndarray:
        """Which variables are not those of the start."""
        return np.setdiff1d(np.arange(len(self.motion.variables)), self.motion.of_start)

    def _reaches(self, at: WindowRun, step: np.ndarray) -> bool:
        """Whether the linearisation reaches the minimum, a step away: it holds over the step, but for variables of
        which nobody knows that much anyway (the stiffness of a body that has touched nothing)."""
        share = np.full(len(step), _UNKNOWN)
        share[self.motion.of_start] = _UNKNOWN_START
        return self._holds(np.where(np.abs(step) <= share * self._deviations(at), 0.0, step))

    def _holds(self, step: np.ndarray) -> bool:
        """Whether the linearisation holds over a step; the surface's offset is linear anyway."""
        limits = [*(v.kind.linear_within for v in self.motion.variables.variables), np.inf]
        return bool((np.abs(step) <= limits).all())


def always(seconds: float) -> bool:
    """There is time for everything."""
    return True
