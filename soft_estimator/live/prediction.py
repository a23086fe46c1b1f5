"""Simulating on from an estimate: what the body will do next, if the estimate is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.physics.model import Model, State
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene

SeenPoints = tuple[float, np.ndarray]  # stamp [s], points on the object (n, 3) [m]


def predict(
    model: Model, estimate: LiveEstimate, stamps_s: Iterable[float], backend: Backend, start_s: float | None = None
) -> Iterator[np.ndarray]:
    """Displacements (N, 3) [m] at rising stamps after that of the estimate [s].

    Args:
        start_s: stamp of the scene's time 0, which tells where led parts of the body are; the estimate's if left out.
    """
    simulation = Simulation(model, estimate.values, backend)
    dtype = simulation.model.dtype
    begun = estimate.stamp_s - (estimate.stamp_s if start_s is None else start_s)
    u, v, a = (backend.to_device(np.array(x), dtype) for x in (estimate.u_m, estimate.v_m_s, estimate.a))
    ahead_s = (stamp_s - estimate.stamp_s for stamp_s in stamps_s)
    memory = {name: backend.to_device(part, dtype) for name, part in estimate.memory.items()}
    return displacements(simulation, ahead_s, State(u, v, a, begun, memory=memory))


def score_prediction(
    scene: Scene, fitted: LiveEstimate, frames: Sequence[SeenPoints], start_s: float, backend: Backend
) -> dict[str, Any] | None:
    """How well an estimate predicts later frames without looking at them; None where there are none.

    Args:
        frames: what was seen after the estimate, in the order of the recording. start_s: stamp of the scene's time 0.
    """
    ahead = _rising(frames, fitted.stamp_s)
    if not ahead:
        return None
    body, around = scene.body, carry_field(scene.body)
    stamps, rms, failed = [], [], ""
    try:
        states = predict(scene.model, fitted, [stamp for stamp, _ in ahead], backend, start_s)
        for (stamp_s, points), u in zip(ahead, states):
            off = point_residuals(body, around, ObservedFrame.of(stamp_s, points, 0.0), u).value_m
            stamps.append(stamp_s)
            rms.append(float(np.sqrt(np.mean(off**2))))
    except SolverError as error:
        failed = " ".join(str(error).split())
    if not rms:
        return {"frames": 0, "failed": failed}
    total = float(np.sqrt(np.mean(np.square(rms))))
    return {
        "frames": len(rms),
        "from_stamp_s": fitted.stamp_s,
        "horizon_s": stamps[-1] - fitted.stamp_s,
        "rms_m": total,
        "rms_voxels": total / body.grid.spacing_m,
        "last_rms_m": rms[-1],
        "rms_at_the_last_fit_m": fitted.rms_residual_m,
        "failed": failed,
        "series": {"stamp_s": stamps, "rms_m": rms},
    }


def _rising(frames: Sequence[SeenPoints], after_s: float) -> Sequence[SeenPoints]:
    """The frames up to where time jumps back: what comes then is another motion."""
    for k, (stamp_s, _) in enumerate(frames):
        if stamp_s <= after_s:
            return frames[:k]
        after_s = stamp_s
    return frames
