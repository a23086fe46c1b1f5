"""The estimation problem: how badly parameters explain the observed frames, and how that changes with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.runs import run_through
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.model import Model


@dataclass(frozen=True)
class Evaluation:
    """The problem at one θ, over the frames used.

    Attributes:
        cost: robust misfit plus prior. gradient: of the cost by θ, (P,), None where not asked for.
        residual: whitened residuals, one a point, frames in order. weight: of each by the robust loss, 0-1.
        frame: which frame each residual belongs to. jacobian: ∂residual/∂θ, (n, P), None where not asked for. far:
        points that found only the nearest vertex.
    """

    theta: np.ndarray
    cost: float
    misfit: float
    residual: np.ndarray
    weight: np.ndarray
    frame: np.ndarray
    far: int
    jacobian: np.ndarray | None = None
    gradient: np.ndarray | None = None


class Problem:
    """Frames, a model and variables; `evaluate` runs the simulation, its tangent or its adjoint.

    Args:
        frames: in order of time, all after the start. field: of the model's body, built here by default.
        loss: robust loss of the whitened residuals.
    """

    def __init__(
        self,
        model: Model,
        variables: Variables,
        frames: list[ObservedFrame],
        *,
        loss: RobustLoss | None = None,
        backend: Backend | None = None,
        field: CarriedField | None = None,
    ) -> None:
        self.model, self.variables = model, variables
        self.loss, self.backend = loss or RobustLoss(), backend or CpuBackend()
        self.field = field or carry_field(model.body)
        self.frames = _checked(frames, model.integrator.step_s)
        self.simulations = 0

    def evaluate(
        self, theta: np.ndarray, frames: int | None = None, *, jacobian: bool = False, gradient: bool = False
    ) -> Evaluation:
        """Cost at θ over the first `frames` frames (default: all), with Jacobian (tangent) or gradient (adjoint)."""
        used = self.frames[: len(self.frames) if frames is None else frames]
        self.simulations += 1
        directions = self.variables.directions(theta) if jacobian else None
        parameters = self.variables.parameters(theta)
        run = run_through(self.model, parameters, used, directions, self.backend, self.field)
        raw = run.residual
        value, weight = self.loss.value(raw), self.loss.weight(raw)
        off = (theta - self.variables.prior_mean) / self.variables.prior_std
        misfit = float(value.sum())
        out = Evaluation(
            theta=np.array(theta, dtype=np.float64),
            cost=misfit + 0.5 * float(off @ off),
            misfit=misfit,
            residual=raw,
            weight=weight,
            frame=np.repeat(np.arange(len(used)), [len(f.points_m) for f in used]),
            far=run.far,
            jacobian=run.jacobian,
        )
        if not gradient:
            return out
        slope = run.gradient(raw * weight)
        by_theta = np.array([slope.dot(d) for d in self.variables.directions(theta)])
        return Evaluation(**{**out.__dict__, "gradient": by_theta + off / self.variables.prior_std})


def _checked(frames: list[ObservedFrame], step_s: float) -> list[ObservedFrame]:
    if not frames:
        raise ValueError("no frames to explain; give at least one with points")
    out = sorted(frames, key=lambda f: f.time_s)
    for k, frame in enumerate(out):
        if frame.time_s < 0:
            raise ValueError(f"frame {k} lies {-frame.time_s:g} s before the start; set its time from the start on")
        if len(frame.points_m) == 0:
            raise ValueError(f"frame {k} at {frame.time_s:g} s holds no points; leave it out")
        if not (np.isfinite(frame.points_m).all() and np.isfinite(frame.std_m).all() and (frame.std_m > 0).all()):
            raise ValueError(
                f"frame {k} at {frame.time_s:g} s holds NaN points or a noise that is not positive; clean it"
            )
    return out
