"""A small ball that falls onto a table, watched by one noisy camera, and everything that may be wrong with it.

The truth is made on a finer grid and with shorter steps than the estimate uses: no inverse crime.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tiny_ball import ball

from soft_estimator.backends.choose import choose_backend
from soft_estimator.camera.observing import camera_frame
from soft_estimator.camera.scene_cameras import cameras_of, depth_noise, frame_times_s
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.physics.step import Simulation
from soft_estimator.recordings.observed_frames import FrameSet
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load
from soft_estimator.studies.estimate import EstimateResult, estimate_scene
from soft_estimator.studies.estimate_setup import observe_truth

TRUTH_PA = 30e3
# What the grid does to an answer has tests of its own.
QUICK: dict[str, Any] = {"max_iterations": 15, "grid_error_nodes": 0}
OBSERVE: dict[str, Any] = {**ball()["observe"], "duration_s": 0.09, "noise": {}, "points_per_frame": 200}


def true_scene(seed: int = 0, **changes: Any) -> Scene:
    """What happens: cells of 13 mm instead of 20, steps of 2.5 ms instead of 5."""
    data = ball(
        body={"shape": {"sphere": {"radius_m": 0.05, "center_m": [0, 0.075, 0]}}, "spacing_m": "13 mm"},
        time={"step_s": "2.5 ms", "duration_s": 0.09},
        observe={**OBSERVE, "every_steps": 6, "seed": seed},
    )
    return build_scene(load(SceneConfig, {**data, **changes}, "scene"), Path())


def assumed(**changes: Any) -> Scene:
    """What the estimate takes for granted."""
    estimate = {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "33 kPa"}, **QUICK}
    return build_scene(
        load(SceneConfig, ball(**{"observe": OBSERVE, "estimate": estimate, **changes}), "scene"), Path()
    )


@cache
def seen(seed: int = 0, change: str = "") -> FrameSet:
    """Frames of the truth, or of another body where `change` names one."""
    others: dict[str, dict[str, Any]] = {
        "": {},
        "box": {
            "body": {"shape": {"box": {"size_m": [0.09, 0.09, 0.09], "center_m": [0, 0.075, 0]}}, "spacing_m": "15 mm"}
        },
        "larger": {"body": {"shape": {"sphere": {"radius_m": 0.06, "center_m": [0, 0.075, 0]}}, "spacing_m": "16 mm"}},
    }
    scene = true_scene(seed, **others[change])
    return observe_truth(scene, carry_field(scene.body), choose_backend("cpu"))


@cache
def released(pinched_m: float) -> FrameSet:
    """Frames of the truth let go from a pinch: flatter by so much on either side, towards the camera, its volume kept
    to first order. Its first acceleration is that of the fall; the step finds the other one by itself."""
    scene = true_scene()
    simulation = Simulation(scene.model, scene.parameters, choose_backend("cpu"))
    arm = scene.body.node_position_m - scene.body.centroid_m
    u = pinched_m / 0.05 * arm * np.array([-1.0, 0.5, 0.5])
    start = replace(simulation.initial_state(), u=u)
    observe, field, times = scene.config.observe, carry_field(scene.body), frame_times_s(scene.config)
    assert observe is not None
    cameras, noise, rng = cameras_of(observe), depth_noise(observe.noise), np.random.default_rng(observe.seed)
    frames = tuple(
        camera_frame(t, scene.body, field, u, cameras, noise, rng, observe.points_per_frame)
        for t, u in zip(times, displacements(simulation, times, start))
    )
    return FrameSet(frames, tuple(map(str, times)), ())


def changed(frames: FrameSet, *, points: Any = None, time: Any = None) -> FrameSet:
    """Frames whose points (n, 3) at a time or whose times [s] were changed by a function."""
    out = []
    for frame in frames.frames:
        moved = frame.points_m if points is None else points(frame.points_m, frame.time_s)
        kept = replace(frame, time_s=frame.time_s if time is None else time(frame.time_s))
        out.append(_with_points(kept, moved))
    return replace(frames, frames=tuple(out))


def _with_points(frame: ObservedFrame, points: np.ndarray) -> ObservedFrame:
    if len(points) == len(frame.points_m):
        return replace(frame, points_m=points)
    times = len(points) // len(frame.points_m)
    along = None if frame.along is None else np.tile(frame.along, (times, 1))
    return ObservedFrame(
        frame.time_s, points, np.tile(frame.std_m, times), np.tile(frame.curvature_share, times), along
    )


@cache
def clean() -> EstimateResult:
    """With nothing wrong but cells and steps."""
    return found(seen())


def found(frames: FrameSet, **changes: Any) -> EstimateResult:
    return estimate_scene(assumed(**changes), frames=frames)


def holds(result: EstimateResult, truth: float = TRUTH_PA) -> bool:
    """Whether the interval of the stiffness holds the truth."""
    e = result.posterior.estimates[0]
    return e.low <= truth <= e.high
