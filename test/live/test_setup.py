"""A window that learns where the camera is only when the first points come, as a node's does."""

from __future__ import annotations

import numpy as np
from tiny_ball import scene_of

from soft_estimator.config_live import WindowConfig
from soft_estimator.live.setup import build_window, look_from

CAMERA_M = np.array([0.45, 0.25, 0.0])


def test_a_window_told_where_the_camera_is_equals_one_made_there() -> None:
    """The side that the camera sees of a ball at rest: registration and residuals along rays agree to the bit."""
    scene = scene_of()
    early = build_window(scene, WindowConfig(), sensor_m=CAMERA_M)
    late = build_window(scene, WindowConfig())
    look_from(late, scene, CAMERA_M)
    surface = scene.body.surface_positions_m()
    points = surface[(surface - scene.body.centroid_m) @ (CAMERA_M - scene.body.centroid_m) > 0.005]
    assert early.locate is not None and late.locate is not None
    std = np.full(len(points), 1e-3)
    one, other = early.locate(points, std), late.locate(points, std)
    assert one.translation_m is not None and other.translation_m is not None
    np.testing.assert_array_equal(one.translation_m, other.translation_m)
    assert late.sensor_m is not None and (late.sensor_m == early.sensor_m).all()


def test_a_camera_that_stands_still_changes_nothing_and_one_that_moves_does() -> None:
    scene = scene_of()
    window = build_window(scene, WindowConfig(), sensor_m=CAMERA_M)
    locate = window.locate
    look_from(window, scene, CAMERA_M + 5e-4)  # less than a millimetre each way: rounding of float32, or of tf
    assert window.locate is locate and window.sensor_m is not None and (window.sensor_m == CAMERA_M).all()
    look_from(window, scene, CAMERA_M + np.array([0.0, 0.1, 0.0]))
    assert window.locate is not locate and window.sensor_m[1] == CAMERA_M[1] + 0.1


def test_a_window_has_the_modes_of_an_unknown_start_among_its_variables() -> None:
    """On a grid that has a coarser one, on which changes are worked out but for those of a start along modes."""
    body = {"shape": {"sphere": {"radius_m": 0.05, "center_m": [0, 0.075, 0]}}, "spacing_m": "10.5 mm"}
    for start, modes in (({}, 0), ({"modes": {"count": 2}}, 4)):
        scene = scene_of(body=body, start=start)
        window = build_window(scene, WindowConfig(start="scene", least_frames=1))
        assert ("coarser in 1 parts" in window.made_once) == (modes == 0)
        window.add_frame(1.0, scene.body.surface_positions_m()[::4], 1e-3)
        assert window.add_frame(1.01, scene.body.surface_positions_m()[::4] - [0, 0.008, 0], 1e-3) is not None
        fit = window._fit
        assert fit is not None
        modal = [j for j, v in enumerate(fit.motion.variables.variables) if v.kind.shape == "modes"]
        assert len(modal) == modes and list(fit.motion.of_start) == [*fit.motion.pose, *modal]
        assert fit.frames[-1].jacobian[:, modal].any(axis=0).all()
