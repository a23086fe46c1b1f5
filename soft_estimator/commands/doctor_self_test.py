"""The doctor's self-test of the core: a falling box against Galileo, a gradient against differences.

Run as `python -m soft_estimator.commands.doctor_self_test`, in an interpreter of its own.
"""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

from soft_estimator.commands.doctor_probes import MARK

# As check-gradient's: central differences agree with themselves to about 1e-7. A fall is exact but for the solver's
# 1e-12 a step, over eight steps.
GRADIENT_TOLERANCE = 1e-5
FALL_TOLERANCE = 1e-9

_BOX: dict[str, Any] = {
    "name": "self_test",
    "body": {"shape": {"box": {"size_m": [0.06, 0.02, 0.02]}}, "spacing_m": 0.01},
    "material": {"youngs_modulus_pa": 1e4},
    "time": {"step_s": 0.01, "duration_s": 0.08},
}
_HELD: dict[str, Any] = {
    "fixed": [{"low_m": [-0.04, -0.02, -0.02], "high_m": [-0.025, 0.02, 0.02]}],
    "observe": {
        "cameras": [{"eye_m": [0, 0.15, 0.3], "target_m": [0, 0, 0], "horizontal_fov_rad": 0.4}],
        "every_steps": 2,
        "points_per_frame": 100,
    },
    "estimate": {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": 1.5e4}},
}


def fall_error() -> float:
    """How far a freely falling box is from ½ g t², relative: the scheme is exact for a constant acceleration."""
    import numpy as np

    from soft_estimator.physics.step import Simulation

    scene = _scene(_BOX, exact=True)
    simulation = Simulation(scene.model, scene.parameters)
    state = simulation.initial_state()
    for _ in range(scene.config.time.steps):
        state = simulation.step(state)[0]
    expected = 0.5 * np.asarray(scene.parameters.gravity_m_s2) * state.time_s**2
    return float(np.abs(np.asarray(state.u) - expected).max() / np.linalg.norm(expected))


def gradient_error() -> float:
    """The largest relative difference of adjoint, tangent and central differences."""
    from soft_estimator.backends import choose_backend
    from soft_estimator.studies.gradient_check import check_gradient

    rows = check_gradient(_scene({**_BOX, **_HELD}, exact=True), choose_backend("cpu"), steps=4, points=100)
    return max(row.error for row in rows)


def _scene(data: dict[str, Any], exact: bool = False) -> Any:
    from pathlib import Path

    from soft_estimator.config import SceneConfig
    from soft_estimator.scene.scene import build_scene
    from soft_estimator.schema import load
    from soft_estimator.studies.gradient_check import exact_config

    config = load(SceneConfig, data, name="scene")
    return build_scene(exact_config(config) if exact else config, Path())


def main() -> None:
    """Print the answers as JSON."""
    out: dict[str, Any] = {}
    for name, test in (("fall", fall_error), ("gradient", gradient_error)):
        clock = perf_counter()
        try:
            out[name] = test()
        except Exception as error:  # whatever goes wrong is the answer
            out[f"{name}_failed"] = " ".join(f"{type(error).__name__}: {error}".split())
        out[f"{name}_s"] = perf_counter() - clock
    print(MARK + json.dumps(out), flush=True)


if __name__ == "__main__":
    main()
