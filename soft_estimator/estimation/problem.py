"""The estimation problem: how badly parameters explain the observed frames, and how that changes with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Backend
from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.interface import Frame, Kinds, Residual, weigh_all
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.runs import PlainRun, Run, run_through
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.body import Body
from soft_estimator.physics.frame_times import step_of
from soft_estimator.physics.model import Model

# A window over more frames starts where the last one ended: at the last place that was evaluated, or, where a step from
# there failed, at the one before.
_RUNS_KEPT = 2


@dataclass(frozen=True)
class Evaluation:
    """The problem at one θ, over the frames used.

    Attributes:
        cost: misfit plus prior. gradient: of the cost by θ, (P,), None where not asked for.
        residual: of all frames in order, (n,). slope: derivative of the misfit by each. weight: its curvature, as
            Gauss-Newton takes it; for whitened residuals that of the robust loss, 0-1.
        frame: which frame each residual belongs to, rising. whitened: which are in standard deviations.
        jacobian: ∂residual/∂θ, (n, P), None where not asked for. far: measurements too far off for more than a rough
            direction. linearised_at: the θ that the Jacobian is of, None where it is this one.
    """

    theta: np.ndarray
    cost: float
    misfit: float
    residual: np.ndarray
    slope: np.ndarray
    weight: np.ndarray
    frame: np.ndarray
    whitened: np.ndarray
    far: int
    jacobian: np.ndarray | None = None
    gradient: np.ndarray | None = None
    linearised_at: np.ndarray | None = None

    @property
    def known_jacobian(self) -> np.ndarray:
        """The Jacobian, where it was asked for."""
        if self.jacobian is None:
            raise ValueError("this evaluation holds no Jacobian; evaluate with jacobian=True")
        return self.jacobian

    @cached_property
    def weighted(self) -> np.ndarray:
        """Rows of the Jacobian times their weights, (n, P)."""
        return self.known_jacobian * self.weight[:, None]

    @cached_property
    def information(self) -> np.ndarray:
        """JᵀWJ, (P, P)."""
        return self.known_jacobian.T @ self.weighted

    @property
    def known_gradient(self) -> np.ndarray:
        """The gradient, where it was asked for."""
        if self.gradient is None:
            raise ValueError("this evaluation holds no gradient; evaluate with gradient=True")
        return self.gradient


class Problem:
    """Frames, a model and variables; `evaluate` runs the simulation, its tangent or its adjoint.

    Args:
        frames: in order of time, all after the start. field: of the model's body, built here by default.
        loss: robust loss of the whitened residuals; the configuration's own by default.
        residual: what the frames are measured against, one kind or several; each frame goes to the first that takes
            it, clouds that none takes to their distances from the surface.
        known: how far off everything that is not estimated may be; None: it is exact.
        jacobian_tolerance: of the linear solves of the Jacobian, where whole steps are not the backend's; None: that
            of the motion. A search needs no more than a few digits (`TANGENT_TOLERANCE`): its residuals are exact.
    """

    def __init__(
        self,
        model: Model,
        variables: Variables,
        frames: Sequence[Any],
        *,
        loss: RobustLoss | None = None,
        backend: Backend | None = None,
        field: CarriedField | None = None,
        residual: Residual[Any] | Sequence[Residual[Any]] = (),
        known: KnownToConfig | None = None,
        jacobian_tolerance: float | None = None,
    ) -> None:
        self.model, self.variables, self.known = model, variables, known
        self.jacobian_tolerance = jacobian_tolerance
        self.loss = loss or RobustLoss()
        self.backend: Backend = backend or CpuBackend()
        self.field = field or carry_field(model.body)
        self.kinds = kinds_of(model.body, self.field, self.backend, residual)
        self.frames = _checked(frames, self.kinds)
        self.simulations = 0
        self._runs: list[tuple[np.ndarray, PlainRun]] = []
        self._moved: tuple[np.ndarray, list[np.ndarray]] | None = None

    def with_frames(self, frames: Sequence[Any]) -> Problem:
        """The same problem with other frames."""
        return self._with(self.model, frames)

    def with_model(self, model: Model) -> Problem:
        """The same problem with another model of the same body."""
        return self._with(model, self.frames)

    def with_variables(self, variables: Variables) -> Problem:
        """The same problem with other variables, or other priors of them."""
        return self._with(self.model, self.frames, variables)

    def _with(self, model: Model, frames: Sequence[Any], variables: Variables | None = None) -> Problem:
        return Problem(
            model,
            variables or self.variables,
            frames,
            loss=self.loss,
            backend=self.backend,
            field=self.field,
            residual=self.kinds.kinds,
            known=self.known,
            jacobian_tolerance=self.jacobian_tolerance,
        )

    def evaluate(
        self, theta: np.ndarray, frames: int | None = None, *, jacobian: bool = False, gradient: bool = False
    ) -> Evaluation:
        """Cost at θ over the first `frames` frames (default: all), with Jacobian (tangent) or gradient (adjoint)."""
        used = self.frames[: len(self.frames) if frames is None else frames]
        self.simulations += 1
        run = self.run(theta, used, jacobian=jacobian)
        if jacobian and isinstance(run, PlainRun) and len(used) == len(self.frames):
            self._moved = np.array(theta, dtype=np.float64), run.displacements
        weighed, frame, whitened = weigh_all(self.kinds, used, run.residuals, self.loss)
        off = (theta - self.variables.prior_mean) / self.variables.prior_std
        misfit = float(weighed.value.sum())
        out = Evaluation(
            theta=np.array(theta, dtype=np.float64),
            cost=misfit + 0.5 * float(off @ off),
            misfit=misfit,
            residual=np.concatenate(run.residuals),
            slope=weighed.slope,
            weight=weighed.weight,
            frame=frame,
            whitened=whitened,
            far=run.far,
            jacobian=run.jacobian,
        )
        if not gradient:
            return out
        parts = run.gradient(weighed.slope)
        by_theta = np.array([sum(part.dot(d) for part in parts) for d in self.variables.directions(theta)])
        return replace(out, gradient=by_theta + off / self.variables.prior_std)

    def displacements_at(self, theta: np.ndarray) -> list[np.ndarray] | None:
        """Of the body at each frame, (N, 3) [m], where θ is the last place with a Jacobian over all frames; None
        elsewhere: they are to be simulated."""
        return self._moved[1] if self._moved is not None and np.array_equal(self._moved[0], theta) else None

    def run(self, theta: np.ndarray, frames: list[Any], *, jacobian: bool) -> Run:
        """The simulation at θ through the first frames, these; gone on with where one was there already."""
        run = self._grown(theta, frames, jacobian)
        if run is None:
            directions = self.variables.directions(theta) if jacobian else None
            parameters = self.variables.parameters(theta)
            steps = step_of(self.frames[-1].time_s, self.model.integrator.step_s)[0] + 1
            run = run_through(
                self.model, parameters, frames, directions, self.backend, self.kinds, steps, self.jacobian_tolerance
            )
        if isinstance(run, PlainRun) and len(frames) < len(self.frames):
            self._runs = [*self._runs[1 - _RUNS_KEPT :], (np.array(theta, dtype=np.float64), run)]
        return run

    def _grown(self, theta: np.ndarray, frames: list[Any], with_jacobian: bool) -> Run | None:
        """A run of the last few at this θ over fewer frames, grown to these; None where there is none."""
        for k, (at, run) in enumerate(self._runs):
            alike = np.array_equal(at, theta) and (run.jacobian is not None) == with_jacobian
            if alike and run.grows_to(frames):
                self._runs = [*self._runs[:k], *self._runs[k + 1 :]]
                run.grow(frames)
                return run
        return None


def kinds_of(
    body: Body, field: CarriedField, backend: Backend, residual: Residual[Any] | Sequence[Residual[Any]]
) -> Kinds:
    """The given kinds of residuals, and the surface distance for clouds that none of them takes."""
    given = list(residual) if isinstance(residual, Sequence) else [residual]
    if not any(isinstance(kind, SurfaceDistance) for kind in given):
        given.append(SurfaceDistance(body, field, backend))
    return Kinds(given)


def _checked(frames: Sequence[Frame], kinds: Kinds) -> list[Any]:
    if not frames:
        raise ValueError("no frames to explain; give at least one with points")
    out = sorted(frames, key=lambda f: f.time_s)
    for k, frame in enumerate(out):
        if frame.time_s < 0:
            raise ValueError(f"frame {k} lies {-frame.time_s:g} s before the start; set its time from the start on")
        wrong = kinds.of(frame).check(frame)
        if wrong:
            raise ValueError(f"frame {k} at {frame.time_s:g} s {wrong}")
    return out
