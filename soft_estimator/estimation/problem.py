"""The estimation problem: how badly parameters explain the observed frames, and how that changes with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.field import CarriedField, carry_field
from soft_estimator.estimation.observation import ObservedFrame, Residuals, point_residuals
from soft_estimator.estimation.robust import RobustLoss
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.model import Model, State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent


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
        simulation = Simulation(self.model, self.variables.parameters(theta), self.backend)
        self.simulations += 1
        tangent = Tangent(simulation, self.variables.directions(theta)) if jacobian else None
        states, blocks, rows = self._run(simulation, used, tangent)
        raw = np.concatenate([r.value_m / f.std_m for r, f in zip(blocks, used)])
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
            far=int(sum(r.far.sum() for r in blocks)),
            jacobian=np.concatenate(rows) if jacobian else None,
        )
        if not gradient:
            return out
        slope = self._backwards(simulation, states, used, blocks, raw * weight)
        by_theta = np.array([slope.dot(d) for d in self.variables.directions(theta)])
        return Evaluation(**{**out.__dict__, "gradient": by_theta + off / self.variables.prior_std})

    def _places(self, used: list[ObservedFrame]) -> dict[int, list[tuple[int, float]]]:
        """Frames by the step they fall into: step number n → [(frame, share of the way from state n to n+1)]."""
        out: dict[int, list[tuple[int, float]]] = {}
        for k, frame in enumerate(used):
            at = frame.time_s / self.model.integrator.step_s
            n = int(np.floor(at + 1e-9))
            share = at - n
            out.setdefault(n - 1 if share < 1e-6 and n > 0 else n, []).append(
                (k, 1.0 if share < 1e-6 and n > 0 else share)
            )
        return out

    def _run(
        self, simulation: Simulation, used: list[ObservedFrame], tangent: Tangent | None
    ) -> tuple[list[State], list[Residuals], list[np.ndarray]]:
        """Forward through all frames: states, residuals of each frame, rows of the Jacobian."""
        places = self._places(used)
        host, body = self.backend.to_host, self.model.body
        state = simulation.initial_state()
        states, residuals, rows = [state], {}, {}
        changes = tangent.initial() if tangent else []
        for n in range(max(places) + 1):
            after, _, lin = simulation.step_keeping(state)
            new_changes = tangent.step(state, after, lin, changes)[0] if tangent else []
            for k, share in places.get(n, []):
                u = (1 - share) * host(state.u) + share * host(after.u)
                residuals[k] = point_residuals(body, self.field, used[k], u.astype(np.float64))
                if tangent:
                    columns = [
                        residuals[k].change((1 - share) * host(a.u) + share * host(b.u))
                        for a, b in zip(changes, new_changes)
                    ]
                    rows[k] = np.stack(columns, axis=1) / used[k].std_m[:, None]
            state, changes = after, new_changes
            states.append(state)
        order = range(len(used))
        return states, [residuals[k] for k in order], [rows[k] for k in order] if tangent else []

    def _backwards(
        self,
        simulation: Simulation,
        states: list[State],
        used: list[ObservedFrame],
        blocks: list[Residuals],
        scaled: np.ndarray,
    ):
        places = self._places(used)
        ends = np.cumsum([0] + [len(f.points_m) for f in used])
        adjoint = Adjoint(simulation)
        bar = adjoint.zero_state()
        to_device, dtype = self.backend.to_device, self.model.dtype
        for n in range(len(states) - 2, -1, -1):
            before_bar = 0.0
            for k, share in places.get(n, []):
                pulled = blocks[k].pull_back(scaled[ends[k] : ends[k + 1]] / used[k].std_m)
                bar.u += to_device(share * pulled, dtype)
                before_bar = before_bar + to_device((1 - share) * pulled, dtype)
            bar, _ = adjoint.step_back(states[n], states[n + 1], bar)
            bar.u += before_bar
        return adjoint.finish(bar)


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
