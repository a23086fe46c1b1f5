"""What a graph with a simulated camera compiles when it runs for the first time, by two processes side by side.

Loops are kept on disk: what one process has compiled the others load. Beside the one that moves the object, a second
one sees it: finds it in a picture, turns its shape onto the points, measures them against the surface.

    python -m soft_estimator.ros.first_run SCENE BACKEND        the second one's part
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.backends.cpu.points import kept_on_disk
from soft_estimator.backends.interface import Backend
from soft_estimator.camera.pinhole import depth_image
from soft_estimator.camera.rendering import watch_scene
from soft_estimator.camera.scene_cameras import scene_cameras, scene_lasting
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.window.incoming import frame_of
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.live.replay_config import finder_for
from soft_estimator.live.setup import build_window, locator
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.perception.objects import find_a_ball
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import Scene, build_scene


def compiled_scene(scene_name: str, backend: str) -> Scene:
    """A scene, built, when everything is compiled that its graph runs."""
    command = [sys.executable, "-m", "soft_estimator.ros.first_run", scene_name, backend]
    beside = None if kept_on_disk() else subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        config, folder = read_scene(scene_name)
        scene = build_scene(config, folder)
        chosen = choose_backend(backend, config.solver.precision)
        if beside is not None:
            _begun(_pressed(scene), chosen).at.trajectory.go_to(3 * scene.model.integrator.step_s)
            beside.wait()  # what it could not compile is compiled here
    except BaseException:
        if beside is not None:
            beside.kill()
        raise
    _watch(scene, chosen)
    return scene


def _watch(scene: Scene, backend: Backend) -> None:
    """A few frames of the scene's camera, through the whole of it."""
    short = replace(scene, config=scene_lasting(scene.config, 3 * scene.config.time.step_s))
    observe = scene.config.observe
    if observe is not None:
        every = replace(observe, frame_rate_hz=None, every_steps=1, duration_s=None)
        short = replace(short, config=replace(short.config, observe=every))
    camera = scene_cameras(short.config)[0]
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position_m
    pipeline = LivePipeline(short, finder_for(scene.config), backend=backend)
    for seen in watch_scene(short, backend, [camera]):
        pipeline.add_cloud(seen.time_s, cloud_from_points(seen.points_m[0], transform=pose))


def _begun(scene: Scene, backend: Backend) -> WindowFit:
    """A window that begins where the scene does, without a frame."""
    fit, reason = build_window(scene, backend=backend).episodes.begin(None, None)
    if fit is None:
        raise ValueError(reason)
    return fit


def _pressed(scene: Scene) -> Scene:
    """The scene with its body half a cell in its plane: what a touch needs is compiled then, too, not at the first."""
    if scene.config.contact is None:
        return scene
    p, body = scene.parameters, scene.body
    height_m = float((body.surface_positions_m() @ p.plane_normal).min() + p.plane_normal @ p.translation_m)
    down_m = height_m + p.plane_offset_m + 0.5 * body.grid.spacing_m
    return replace(scene, parameters=p.replace(translation_m=p.translation_m - down_m * p.plane_normal))


def _draw(config: SceneConfig) -> None:
    """A triangle before the scene's camera."""
    camera = scene_cameras(config)[0]
    corners = np.array([[-0.1, -0.1, 1.0], [0.1, -0.1, 1.0], [0.0, 0.1, 1.0]])
    depth_image(camera, corners @ camera.rotation.T + camera.position_m, np.array([[0, 1, 2]]))


def _measure(scene: Scene, backend: Backend) -> None:
    """Points of the body's surface: its pose from them, and how far they lie off."""
    points = scene.body.surface_positions_m() + scene.parameters.translation_m
    frame = frame_of(0.0, points, np.full(len(points), 1e-3), scene_cameras(scene.config)[0].position_m)
    locator(scene)(points, frame.std_m)
    trajectory = _begun(scene, backend).at.trajectory
    trajectory.look_between(frame, trajectory.after, trajectory.after, 0.0)


def main(scene_name: str, backend: str) -> None:
    """What the second process compiles."""
    config, folder = read_scene(scene_name)
    find_a_ball()
    _draw(config)
    scene = build_scene(config, folder)  # cuts cells by what the first process has compiled meanwhile
    _measure(scene, choose_backend(backend, config.solver.precision))


if __name__ == "__main__":
    main(*sys.argv[1:])
