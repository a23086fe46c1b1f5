"""What an estimate starts from: frames of a scene's own motion; noise of recorded ones, and the surface they show."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.camera.observing import UnseenBody, camera_frame
from soft_estimator.camera.scene_cameras import cameras_of, depth_noise, frame_times_s
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.observed_frame import RAY_CURVATURE_SHARE, ObservedFrame
from soft_estimator.physics.step import Simulation
from soft_estimator.recordings.observed_frames import FrameSet, NoiseOf, SetAside
from soft_estimator.scene.finer import with_detailed_skin
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.wrenches import kinds_of_scene
from soft_estimator.schema import ConfigError

Progress = Callable[[str, int, int, str], None]  # stage, done, total, a note for people
# Frames that tell on which surface the points lie, and the part of its cost that the other's must be below.
FIRST_FRAMES, CLEARLY_LESS = 2, 0.95


def observe_truth(
    scene: Scene,
    field: CarriedField,
    backend: Backend,
    progress: Progress | None = None,
    steps: int | None = None,
    budget: int | None = None,
) -> FrameSet:
    """What the scene's cameras see while the scene moves with its own parameters."""
    observe = scene.config.observe
    cameras = [] if observe is None else cameras_of(observe)
    if observe is None or not cameras:
        raise ConfigError("has no camera; add observe.cameras or observe.ring, or give recorded frames", "scene")
    times = frame_times_s(scene.config, steps)
    noise, isotropic_m = depth_noise(observe.noise), observe.noise.isotropic_m(field.spacing_m)
    rng = np.random.default_rng(observe.seed)
    points = min(observe.points_per_frame, budget or observe.points_per_frame)
    frames: list[ObservedFrame] = []
    names: list[str] = []
    aside: list[SetAside] = []

    def look(moved: tuple[int, np.ndarray]) -> None:
        k, u = moved
        name = f"frame {k}"
        try:
            frames.append(camera_frame(times[k], scene.body, field, u, cameras, noise, rng, points, isotropic_m))
            names.append(name)
        except UnseenBody:
            aside.append(SetAside(name, times[k], "not seen by any camera"))
        if progress:
            progress("observing", k + 1, len(times), "")

    motion = displacements(Simulation(scene.model, scene.parameters, backend), times)
    backend.followed(enumerate(motion), look, scene.body.node_count)
    if not frames:
        raise ConfigError("see nothing of the body at any time; turn a camera towards it", "observe.cameras")
    return FrameSet(tuple(frames), tuple(names), tuple(aside))


def clouds_of(problem: Problem) -> list[ObservedFrame]:
    """The frames of points, without what else was measured."""
    return [frame for frame in problem.frames if isinstance(frame, ObservedFrame)]


def noise_of_points(scene: Scene, noise_m: float | None = None) -> NoiseOf:
    """The noise of recorded points: noise_m [m] along the view if given, else what the scene says of its sensor."""
    observe = scene.config.observe
    if noise_m is not None:
        return lambda points: (np.full(len(points), noise_m), np.full(len(points), RAY_CURVATURE_SHARE))
    isotropic_m = 0.0 if observe is None else observe.noise.isotropic_m(scene.body.grid.spacing_m)
    if isotropic_m > 0:
        return lambda points: (np.full(len(points), isotropic_m), np.ones(len(points)))
    cameras = [] if observe is None else cameras_of(observe)
    sensor = None if observe is None else depth_noise(observe.noise)

    def by_depth(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if sensor is None or not cameras:
            raise ValueError(
                "the frames do not say how noisy their points are; give --noise-mm, a fourth column, or observe.noise "
                "with cameras"
            )
        # Which camera saw a point is not known; the one it lies nearest to is the best bet.
        depth = np.stack([c.to_camera_frame(points)[:, 2] for c in cameras])
        nearest = np.where(depth > 0, depth, np.inf).min(axis=0)
        std = sensor.std_m(np.where(np.isfinite(nearest), nearest, 1.0), cameras[0])
        return np.maximum(std, 1e-5), np.full(len(points), RAY_CURVATURE_SHARE)

    return by_depth


def with_seen_surface(scene: Scene, problem: Problem) -> tuple[Scene, Problem]:
    """The scene with the surface that its frames show, and the problem with it.

    A grid bevels edges by up to a cell, and a held body's motion may be far smaller: a soft and slow one then bends to
    explain its edges. The first frames, in which it has not come far, tell which surface they are of. A body that falls
    moves by many cells, and shows itself by that.
    """
    sharp = with_detailed_skin(scene) if scene.model.dirichlet.any else None
    if sharp is None:
        return scene, problem
    other, start = on_scene(sharp, problem), problem.variables.start()
    cost, there = (each.evaluate(start, min(FIRST_FRAMES, len(each.frames))).cost for each in (problem, other))
    return (sharp, other) if there < CLEARLY_LESS * cost else (scene, problem)


def on_scene(scene: Scene, problem: Problem) -> Problem:
    """A problem's frames and variables with the model of another scene."""
    return Problem(
        scene.model,
        problem.variables,
        problem.frames,
        loss=problem.loss,
        backend=problem.backend,
        residual=kinds_of_scene(scene),
        known=problem.known,
        jacobian_tolerance=problem.jacobian_tolerance,
    )
