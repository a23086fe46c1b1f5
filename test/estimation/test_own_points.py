"""What touches a body whose motion is known is cut off: its points lie off the body's surface."""

from __future__ import annotations

import numpy as np
from dropped_ball import NOISE_M, TRUE_PA, frames, window

from soft_estimator.estimation.window.own_points import OFF_SIZES, TOUCHED, foreign_points


def sphere(count: int, radius_m: float, centre_m: tuple[float, float, float], seed: int = 0) -> np.ndarray:
    """Points all over a sphere (n, 3) [m]."""
    directions = np.random.default_rng(seed).standard_normal((count, 3))
    return np.array(centre_m) + radius_m * directions / np.linalg.norm(directions, axis=1)[:, None]


def finger(base_m: np.ndarray, count: int = 120, length_m: float = 0.08) -> np.ndarray:
    """Points of a finger of 1 cm radius that stands on a place of the surface (3,) [m] and goes up."""
    rng = np.random.default_rng(5)
    angle, height = rng.uniform(0, 2 * np.pi, count), rng.uniform(0.0, length_m, count)
    return base_m + np.stack([0.01 * np.cos(angle), height, 0.01 * np.sin(angle)], axis=1)


def test_a_finger_is_told_from_a_ball_that_moved() -> None:
    """The ball of 10 cm went 4 cm since it was seen last. Its size is that of its box, 17.3 cm: what lies more than a
    tenth of it (and 4 σ = 2 mm) off is the finger's: above 19.3 of its 80 mm, once the surface is put within 5 mm of
    where it is. Nothing of the ball is."""
    surface, gone = sphere(3000, 0.05, (0, 0, 0)), np.array([0.0, -0.04, 0.01])
    own = sphere(600, 0.05, (0, 0, 0), seed=1) + gone
    other = finger(np.array([0.0, 0.05, 0.0]) + gone)
    points = np.concatenate([own, other])
    size = float(np.linalg.norm([0.1, 0.1, 0.1]))
    std = np.full(len(points), 5e-4)
    off = foreign_points(points, std, surface, 0.1, (np.zeros(3), 0.7 * gone))
    assert not off[: len(own)].any()
    above = other[:, 1] - gone[1] - 0.05
    assert off[len(own) :][above > OFF_SIZES * size + 0.002 + 0.005].all()
    assert not off[len(own) :][above < 0.004].any()  # what lies on the body cannot be told from it
    assert not foreign_points(own, std[: len(own)], surface, 0.1, (np.zeros(3), gone)).any()


def test_strays_are_left_to_the_robust_loss() -> None:
    """7 of 600 points far off make the cloud wide, but are fewer than 2 %."""
    surface = sphere(3000, 0.05, (0, 0, 0))
    points = np.concatenate([sphere(593, 0.05, (0, 0, 0), seed=1), sphere(7, 0.01, (0, 0.2, 0))])
    assert not foreign_points(points, np.full(600, 5e-4), surface, 0.1).any()


def test_a_window_measures_on_while_a_finger_touches() -> None:
    """A finger and a hand, 16 cm of them, follow the ball through its bounce, five frames in which it is flattened to
    half its height: E comes out within 3 % of the truth, as without them (test_sliding_window)."""
    touched = window()
    for k, frame in enumerate(frames()):
        points = frame.points_m
        if 4 <= k < 9:
            top = points[int(np.argmax(points[:, 1]))]
            points = np.concatenate([points, finger(top, 60, 0.16)])
        said = touched.add_frame(frame.time_s, points, np.full(len(points), NOISE_M))
        assert (said is not None and TOUCHED in said.notes) == (4 <= k < 9)
    assert touched.counters.frames_cut == 5 and touched.counters.points_set_aside >= 5 * 20
    assert said is not None and abs(said.parameters[0].value / TRUE_PA - 1) < 0.03
