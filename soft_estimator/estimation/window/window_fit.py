"""The frames since a start: the newest explained by simulation, the older ones remembered as a Gaussian (METHOD §8).

The minimisation is Gauss-Newton with damping, warm-started. A new frame only continues the trajectory; the whole window
is simulated again when the variables have moved so far that the linearisation no longer holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.fitting.uncertainty import noise_scale, touches, widening
from soft_estimator.estimation.problem import Evaluation
from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.trajectory import Corner, Explained, Trajectory, initial_corner, trajectory_from
from soft_estimator.estimation.variables import Variables
from soft_estimator.estimation.window.arrival import POSE, Knowledge, begin_anew, inverse_of, rigid_correction
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError

# Moves within which the linearisation holds to a small part of a standard deviation, by variable.
HOLDS_WITHIN = {
    "plane_normal": 0.005,
    "plane_offset_m": 0.0005,
    "translation_m": 0.0005,
    "rotation_rad": 0.01,
    "velocity_m_s": 0.03,
    "angular_velocity_rad_s": 0.2,
    "gravity_m_s2": 0.1,
}
_HOLDS_LOG = 0.02  # for the logarithms of the others
# Changes may be used this many times farther from where they were worked out: the residuals are always exact, and a
# direction that is a little off still leads to the minimum.
_CHANGES_HOLD = 4.0
_LONGEST_STEP = 1.0
_MORE_CALMED = 4


@dataclass(frozen=True, eq=False)
class Answer:
    """Where the window stands: variables, their covariance, what the data say of them, and the noise seen.

    z, covariance, information: as `uncertainty.describe` takes them. scale: noise, in multiples of the stated one.
    touched: whether the body met the plane.
    """

    z: np.ndarray
    covariance: np.ndarray
    information: np.ndarray
    scale: float
    touched: bool
    cost: float


class WindowFit:
    """One stretch of frames from a start on.

    Args:
        knowledge: of the variables before any frame, and last of how far the whole surface lies outside its model [m]:
            a camera's habit or a shape's error, which no number of points averages out.
    """

    def __init__(
        self,
        model: Model,
        variables: Variables,
        knowledge: Knowledge,
        backend: Backend,
        field: CarriedField,
        loss: RobustLoss,
    ) -> None:
        self.model, self.variables, self.knowledge = model, variables, knowledge
        self.backend, self.field, self.loss = backend, field, loss
        self.pose = np.array([j for j, v in enumerate(variables.variables) if v.name in POSE], dtype=np.int64)
        self.z = knowledge.mean.copy()
        self.scale = 1.0
        self.explained: list[Explained] = []
        self.told = np.zeros((len(self.z), len(self.z)))  # information of the frames that have left the window
        self.touched = False
        self._start: tuple[Corner, np.ndarray, np.ndarray] | None = None  # corner, z there, first pose
        self._damping = 1e-3
        self.seconds_per_step = 0.0
        self.simulations = 0  # of the whole window
        self._calmed = 0  # parts of steps that the motion at hand took with backward Euler
        self.trajectory, _ = self._run(self.z)
        self._changes_at = self.z  # where the changes were last worked out

    @property
    def slid(self) -> bool:
        return self._start is not None

    def parameters(self, z: np.ndarray) -> Parameters:
        """Parameters of the simulation at z; the pose is that of the first start for good."""
        return self.variables.parameters(self._theta(z))

    def _theta(self, z: np.ndarray) -> np.ndarray:
        theta = np.array(z[:-1], dtype=np.float64)
        if self._start is not None:
            theta[self.pose] = self._start[2]
        return theta

    def _directions(self, z: np.ndarray) -> list[ParameterGradient]:
        still = ParameterGradient.zero(len(self.variables.reference.youngs_modulus_pa))
        out = [*self.variables.directions(self._theta(z)), still]
        if self._start is not None:
            for j in self.pose:
                out[j] = still
        return out

    def _run(self, z: np.ndarray, with_changes: bool = True) -> tuple[Trajectory, list[Explained]]:
        """Simulate the window at z; without changes, those there are stay in use."""
        self.simulations += 1
        parameters, directions = self.parameters(z), self._directions(z)
        if self._start is None:
            corner = initial_corner(self.model, parameters, directions, self.backend, self.field)
        else:
            corner = self._start[0].moved(z - self._start[1])
        clock = perf_counter()
        wanted = directions if with_changes else None
        trajectory = trajectory_from(self.model, parameters, wanted, corner, self.backend, self.field)
        if self.explained:
            # A trial that is far more violent than the motion at hand is not worth its many small steps.
            trajectory.most_calmed = self._calmed + _MORE_CALMED
        explained = [_raised(trajectory.through(e.frame), z[-1]) for e in self.explained]
        self._ran_calmed = trajectory.calmed
        if not with_changes:
            explained = [old.moved_to(new) for old, new in zip(self.explained, explained)]
            trajectory = self._continued(z, explained[-1], trajectory.steps)
        elif trajectory.steps:
            self.seconds_per_step = (perf_counter() - clock) / trajectory.steps
        return trajectory, explained

    def _continued(self, z: np.ndarray, newest: Explained, steps: int) -> Trajectory:
        """A trajectory that goes on from the newest frame."""
        parameters, directions = self.parameters(z), self._directions(z)
        out = trajectory_from(self.model, parameters, directions, newest.corner, self.backend, self.field)
        out.before, out.steps = newest.before, steps
        return out

    def add(self, frame: ObservedFrame) -> None:
        """Go on to a new frame."""
        self._damping = min(self._damping, 0.1)  # what a frame before could not do, this one may
        before = self.trajectory.calmed
        self.explained.append(_raised(self.trajectory.through(frame), self.z[-1]))
        self._calmed += self.trajectory.calmed - before
        self.touched = self.touched or touches(self.variables, self.explained[-1].jacobian)

    def set_motion(self, velocity_m_s: np.ndarray) -> None:
        """Begin anew with a first guess of the body's velocity, (3,)."""
        chosen = [j for j, v in enumerate(self.variables.variables) if v.name == "velocity_m_s"]
        if len(chosen) != 3 or self.slid:
            return
        self.z, mean = self.z.copy(), self.knowledge.mean.copy()
        self.z[chosen] = mean[chosen] = velocity_m_s
        self.knowledge = Knowledge(mean, self.knowledge.information)
        self.trajectory, self.explained = self._run(self.z)
        self._changes_at = self.z

    def refine(self, iterations: int, in_time: Callable[[float], bool]) -> None:
        """Move the variables to the minimum, in at most so many simulations of the window.

        in_time: whether there is time for work of so many seconds.
        """
        self._look_at_noise()
        for _ in range(iterations):
            step, predicted = self._step(self._damping)
            if self._holds(step):
                return
            if not in_time(self.seconds_per_step * self.trajectory.steps):
                return
            before = self._cost(self.explained, self.z)
            stale = not self._holds((self.z + step - self._changes_at) / _CHANGES_HOLD)
            try:
                trajectory, explained = self._run(self.z + step, with_changes=stale)
            except SolverError:
                self._damping = max(10 * self._damping, 1e-3)
                continue
            fall = before - self._cost(explained, self.z + step)
            if not fall > 0:
                if (self._changes_at != self.z).any():  # the direction may be at fault, not its length
                    self.trajectory, self.explained = self._run(self.z)
                    self._changes_at = self.z
                else:
                    self._damping = min(max(10 * self._damping, 1e-3), 1e8)
                continue
            self._damping = max(self._damping / (10 if fall > 0.25 * predicted else 2), 1e-9)
            self.z = self.z + step
            self.trajectory, self.explained = trajectory, explained
            self._calmed = self._ran_calmed
            self._changes_at = self.z if stale else self._changes_at
            self._look_at_noise()

    def answer(self) -> Answer:
        """The minimum as the linearisation sees it, and how sure it is."""
        step, _ = self._step(self._damping if self._damping > 1e-2 else 0.0)
        at = self._evaluation(step)
        data, _ = self._data(at)
        return Answer(
            self.z + step,
            inverse_of(self.knowledge.information + data),
            self.told + data,
            self.scale,
            self.touched,
            self._cost(self.explained, self.z),
        )

    def _data(self, at: Evaluation) -> tuple[np.ndarray, np.ndarray]:
        """What the window's frames say of the variables (P, P), and by how much each was taken to spread wider."""
        information = at.jacobian.T @ (at.jacobian * at.weight[:, None])
        widen = np.minimum(widening(at, inverse_of(self.knowledge.information + information), 1.0), 30.0)
        return information / np.outer(widen, widen), widen

    def settled(self, k: int, z: np.ndarray | None = None) -> Explained:
        """The k-th frame with its residuals where the variables are at z, by default at the answer."""
        e = self.explained[k]
        return replace(e, residual=e.residual + e.jacobian @ ((self.answer().z if z is None else z) - self.z))

    def newest_state(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, Explained]:
        """u, v, a (N, 3) at the newest frame, with the variables at z."""
        last, host = self.explained[-1], self.backend.to_host
        a, b = (c.moved(z - self.z).state for c in (last.before, last.corner))
        w = last.share
        u, v, third = (
            ((1 - w) * host(getattr(a, n)) + w * host(getattr(b, n))).astype(np.float64) for n in ("u", "v", "a")
        )
        return u, v, third, last

    def slide(self, keep: int, drift: np.ndarray, forgetting: float) -> None:
        """Remember all but the newest `keep` frames as a Gaussian and begin at the next one.

        drift: standard deviation of what the model misses between two frames, (12,), in the order of `POSE`.
        """
        dropped = self.explained[: len(self.explained) - keep]
        if not dropped:
            return
        _, widen = self._data(self._evaluation())
        material = np.setdiff1d(np.arange(len(self.z)), self.pose)
        trust = 1.0 / float(widen[material].max()) ** 2 if len(material) else 1.0
        for e in dropped:
            r = e.residual / self.scale
            rows = e.jacobian / self.scale
            weighted = rows * self.loss.weight(r)[:, None]
            information = trust * rows.T @ weighted
            self.knowledge = self.knowledge.joined(self.z, information, trust * weighted.T @ r)
            self.told += information
        if forgetting > 0:
            # Of the material only: what is known of the motion is kept fresh by the drift.
            keep_part = np.ones(len(self.z))
            keep_part[material] = (1 - forgetting) ** (0.5 * len(dropped))
            self.knowledge = Knowledge(self.knowledge.mean, self.knowledge.information * np.outer(keep_part, keep_part))
        self.explained = self.explained[len(dropped) :]
        corner = self.explained[0].before
        mixing = np.eye(len(self.z))
        first_pose = self._theta(self.z)[self.pose]
        if len(self.pose) == 12:
            correction = rigid_correction(self.model.body, corner, self.backend)
            many = np.sqrt(len(dropped))
            self.knowledge, mixing = begin_anew(self.knowledge, self.z, correction, self.pose, many * drift)
            self.z, self._changes_at = self.z.copy(), self._changes_at - self.z
            self.z[self.pose] = 0.0
            # Of the old start's variables only the distance to where the changes hold is left to remember.
            self._changes_at += self.z
        self.told = mixing.T @ self.told @ mixing
        self.explained = [e.in_terms_of(mixing) for e in self.explained]
        self._start = (self.explained[0].before, self.z.copy(), first_pose)
        self.trajectory = self._continued(self.z, self.explained[-1], max(self.trajectory.steps - len(dropped), 1))

    def _look_at_noise(self) -> None:
        raw = np.concatenate([e.residual for e in self.explained])
        self.scale = max(noise_scale(raw, len(self.z)), 0.3)

    def _evaluation(self, step: np.ndarray | None = None) -> Evaluation:
        """The window's rows as an evaluation, in units of the noise that is seen; `step` (P,) further if given."""
        jacobian = np.concatenate([e.jacobian for e in self.explained]) / self.scale
        residual = np.concatenate([e.residual for e in self.explained]) / self.scale
        if step is not None:
            residual = residual + jacobian @ step
        counts = [len(e.residual) for e in self.explained]
        return Evaluation(
            theta=self.z,
            cost=0.0,
            misfit=0.0,
            residual=residual,
            weight=self.loss.weight(residual),
            frame=np.repeat(np.arange(len(counts)), counts),
            far=0,
            jacobian=jacobian,
        )

    def _cost(self, explained: list[Explained], z: np.ndarray) -> float:
        total = sum(float(self.loss.value(e.residual / self.scale).sum()) for e in explained)
        return total + self.knowledge.cost(z)

    def _step(self, damping: float) -> tuple[np.ndarray, float]:
        """The damped Gauss-Newton step and the fall of the cost it predicts."""
        at = self._evaluation()
        weighted = at.jacobian * at.weight[:, None]
        hessian = at.jacobian.T @ weighted + self.knowledge.information
        gradient = weighted.T @ at.residual + self.knowledge.gradient(self.z)
        scale = np.sqrt(np.diag(hessian))
        inner = hessian / np.outer(scale, scale) + damping * np.eye(len(scale))
        step = -np.linalg.solve(inner, gradient / scale) / scale
        step *= min(1.0, _LONGEST_STEP / max(float(np.abs(step).max()), 1e-300))
        return step, float(-(gradient @ step) - 0.5 * step @ hessian @ step)

    def _holds(self, step: np.ndarray) -> bool:
        """Whether the linearisation holds over a step."""
        limits = [*(HOLDS_WITHIN.get(v.name, _HOLDS_LOG) for v in self.variables.variables), np.inf]
        return bool((np.abs(step) <= limits).all())


def _raised(explained: Explained, height_m: float) -> Explained:
    """The frame seen with the model's surface moved outwards by height_m [m]; the last variable does that."""
    inverse = 1.0 / explained.frame.std_m
    jacobian = explained.jacobian
    if jacobian.shape[1]:
        jacobian = jacobian.copy()
        jacobian[:, -1] = -inverse
    return replace(explained, residual=explained.residual - height_m * inverse, jacobian=jacobian)
