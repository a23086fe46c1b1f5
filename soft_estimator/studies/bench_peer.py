"""The JAX implementation of the same step and gradient as a peer, where JAX and the source checkout are there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from time import perf_counter
from types import ModuleType

import numpy as np

from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation

_FILE = Path(__file__).resolve().parents[2] / "benchmark" / "jax_peer.py"


def peer_module() -> ModuleType | None:
    """benchmark/jax_peer.py, None where it or JAX is missing."""
    if not _FILE.exists() or importlib.util.find_spec("jax") is None:
        return None
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    spec = importlib.util.spec_from_file_location("jax_peer", _FILE)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def time_peer(
    model: Model, parameters: Parameters, simulation: Simulation, steps: int, repeats: int = 3
) -> float | None:
    """Milliseconds of one gradient of ½ Σ |u|² in JAX, compiled before; None where there is no peer."""
    module = peer_module()
    if module is None:
        return None
    import jax

    peer, material = module.Peer(model), module.material_of(parameters, np.dtype(model.dtype))
    first = simulation.initial_state()
    state = tuple(jax.numpy.asarray(simulation.backend.to_host(x)) for x in (first.u, first.v, first.a))
    times = []
    for k in range(repeats + 1):
        start = perf_counter()
        jax.block_until_ready(peer.gradient(material, state, steps))
        if k:
            times.append(perf_counter() - start)
    return 1e3 * float(np.median(times))
