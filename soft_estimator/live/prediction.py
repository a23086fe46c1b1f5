"""Simulating on from an estimate: what the body will do next, if the estimate is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.live import LiveEstimate
from soft_estimator.physics.model import Model, State
from soft_estimator.physics.step import Simulation


def predict(
    model: Model, estimate: LiveEstimate, stamps_s: Iterable[float], backend: Backend, start_s: float | None = None
) -> Iterator[np.ndarray]:
    """Displacements (N, 3) [m] at rising stamps after that of the estimate [s].

    Args:
        start_s: stamp of the scene's time 0, which tells where led parts of the body are; the estimate's if left out.
    """
    simulation = Simulation(model, estimate.values, backend)
    step, device, host = model.integrator.step_s, backend.to_device, backend.to_host
    begun = estimate.stamp_s - (estimate.stamp_s if start_s is None else start_s)
    u, v, a = (device(np.array(x), model.dtype) for x in (estimate.u_m, estimate.v_m_s, estimate.a))
    before = after = State(u, v, a, begun)
    done = 0
    for stamp_s in stamps_s:
        ahead = stamp_s - estimate.stamp_s
        while done * step < ahead - 1e-6 * step:
            before, after = after, simulation.step(after)[0]
            done += 1
        share = 1.0 if done == 0 else min(max(ahead / step - (done - 1), 0.0), 1.0)
        share = 1.0 if share > 1 - 1e-6 else share
        yield ((1 - share) * host(before.u) + share * host(after.u)).astype(np.float64)
