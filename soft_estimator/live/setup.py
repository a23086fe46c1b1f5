"""A sliding window out of a scene: its body, its guesses, and what its `estimate` section asks for."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from time import perf_counter

import numpy as np
from scipy.spatial.transform import Rotation

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Backend
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.tool_wrench import ToolWrench
from soft_estimator.estimation.window.episode import FoundPose, Locate
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.live.finer_scene import FinerScene
from soft_estimator.live.tools import Tools, tools_of
from soft_estimator.perception.placed_shape import prepare_model
from soft_estimator.perception.register import PoseFit, PoseRefused, register
from soft_estimator.perception.settings import RegisterSettings
from soft_estimator.physics.body import Body
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import priors_of, variables_of
from soft_estimator.schema import ConfigError

# A camera that moved by less has not: rays turn by a milliradian at a metre's distance, noise along them by 1e-6.
_STILL_M = 1e-3


def live_scene(scene: Scene) -> Scene:
    """The scene as those follow it who must keep up with a camera: no step is taken again in parts of its own scheme.

    A window tries motions that are too violent for their steps; up to thirty parts of each cost a demo drop two of
    three of its estimates.
    """
    model, solver = scene.model, scene.model.solver
    return replace(scene, model=replace(model, solver=replace(solver, own_parts=False))) if solver.own_parts else scene


def build_window(
    scene: Scene,
    config: WindowConfig | None = None,
    *,
    backend: Backend | None = None,
    sensor_m: np.ndarray | None = None,
    register_settings: RegisterSettings | None = None,
    tools: Tools | None = None,
    clock: Callable[[], float] = perf_counter,
) -> SlidingWindow:
    """The window that estimates what the scene's `estimate` section names, from its guesses.

    Args:
        sensor_m: where the depth camera is [m], (3,), for finding the body in the first frame; its scene's camera, or
            high above the body, if left out.
        tools: the scene's, whose poses somebody adds; the window's own if left out.
        clock: seconds, see `SlidingWindow`.
    """
    config, estimate = config or WindowConfig(), scene.config.estimate
    if estimate is None:
        raise ConfigError(
            "has no estimate section; add one such as estimate: {parameters: [youngs_modulus_pa]}", "scene"
        )
    variables = variables_of(scene, estimate)
    backend, model = backend or CpuBackend(), (tools or tools_of(scene)).model or scene.model
    return SlidingWindow(
        model,
        variables.reference,
        list(estimate.names),
        config,
        prior_std=priors_of(scene, estimate),
        backend=backend,
        sensor_m=sensor_m,
        locate=locator(scene, sensor_m, register_settings) if config.start == "register" else None,
        loss=RobustLoss(estimate.loss.kind, estimate.loss.threshold),
        known=estimate.known_to,
        residual=[ToolWrench(model)] if model.obstacles else (),
        finer=FinerScene(scene, model, backend) if model.obstacles else None,
        clock=clock,
    )


def look_from(
    window: SlidingWindow, scene: Scene, sensor_m: np.ndarray, register_settings: RegisterSettings | None = None
) -> None:
    """Let a window know where the depth camera is [m], (3,): noise and residuals then lie along its rays."""
    sensor = np.asarray(sensor_m, dtype=np.float64)
    if window.sensor_m is not None and float(np.linalg.norm(window.sensor_m - sensor)) < _STILL_M:
        return
    window.sensor_m = sensor
    if isinstance(window.locate, Locator):
        window.locate = window.locate.seen_from(sensor)
    elif window.locate is not None:
        window.locate = locator(scene, sensor, register_settings)


def start_from_plane(window: SlidingWindow, normal: np.ndarray, offset_m: float) -> None:
    """Take the support plane that a camera sees, n·x + d = 0, as the prior of the contact plane."""
    c = window.config
    window.know_plane(normal, offset_m, c.plane_std_rad, c.plane_std_m)


def locator(scene: Scene, sensor_m: np.ndarray | None = None, settings: RegisterSettings | None = None) -> Locate:
    """Finds the scene's body in a frame's points, by its shape."""
    gravity = np.asarray(scene.parameters.gravity_m_s2)
    up = -gravity / np.linalg.norm(gravity) if gravity.any() else np.array([0.0, 0.0, 1.0])
    if scene.config.contact is not None:
        up = np.asarray(scene.config.contact.unit_normal)
    sensor = _sensor_of(scene, up) if sensor_m is None else np.asarray(sensor_m, dtype=np.float64)
    return Locator(scene.body, sensor, up, settings or RegisterSettings())


class Locator:
    """Finds a body in points that a camera at sensor_m [m] saw, by its shape; up: unit vector, (3,).

    It looks first for the body turned as it was found before: a robot drops what it holds the same way again, and while
    a window waits for a body to fly, each frame shows it turned by little.
    """

    def __init__(self, body: Body, sensor_m: np.ndarray, up: np.ndarray, settings: RegisterSettings) -> None:
        self.body, self.sensor_m, self.up, self.settings = body, sensor_m, up, settings
        self._shape = prepare_model(body.grid)
        self._last: PoseFit | None = None

    def seen_from(self, sensor_m: np.ndarray) -> Locator:
        """The same from another place [m], (3,)."""
        other = copy(self)
        other.sensor_m = sensor_m
        return other

    def __call__(self, points_m: np.ndarray, std_m: np.ndarray) -> FoundPose:
        fit = register(self._shape, points_m, std_m, self.sensor_m, self.up, self.settings, self._last)
        if isinstance(fit, PoseRefused):
            return FoundPose(None, None, fit.reason)
        least, most = fit.excess, fit.in_vain
        if self._last is not None:
            least, most = min(least, self._last.excess), max(most, self._last.in_vain)
        self._last = replace(fit, excess=least, in_vain=most)  # what is taken as good must not get worse by and by
        # How far the points lie off is for the window to judge (`BentStarts`), which waits but not for ever: a scanned
        # shape is never as exact as a drawn one.
        # The simulation turns about the centroid c: x = c + R (X - c) + t.
        c = self.body.centroid_m
        translation = fit.rotation @ c + fit.translation_m - c
        return FoundPose(translation, Rotation.from_matrix(fit.rotation).as_rotvec())


def _sensor_of(scene: Scene, up: np.ndarray) -> np.ndarray:
    observe = scene.config.observe
    if observe is not None and observe.cameras:
        return np.asarray(observe.cameras[0].eye_m, dtype=np.float64)
    return scene.body.centroid_m + 2.0 * up
