"""The object told from hands by its shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from perception_scenes import make_body
from seen_falling import scanned, seen_in_the_air, sighting

from soft_estimator.measuring.alone import cut_to_shape, without_fingers
from soft_estimator.measuring.phases import Drop

TABLE = np.array([0.0, 0.0, 1.0, 0.0])


def test_what_a_pose_of_its_shape_explains_is_alone() -> None:
    """A duck in the air that seemed touched, by what was beside it: all its points lie on it, and the frame counts.
    With an arm as wide as itself before it, the frame does not."""
    rng, duck = np.random.default_rng(2), make_body("duck")
    points, _ = seen_in_the_air(duck, rng)
    arm = np.array([0.0, 0.1, 0.25]) + rng.uniform(-1, 1, (900, 3)) * [0.02, 0.25, 0.02]
    body = scanned(duck)
    assert not cut_to_shape([sighting(points)], body, TABLE, 0.01)[0].touched
    held = cut_to_shape([sighting(np.concatenate([points, arm]))], body, TABLE, 0.01)[0]
    assert held.touched
    alone = sighting(points, touched=False)
    assert not cut_to_shape([alone], body, TABLE, 0.01)[0].cut


def test_fingers_on_an_object_that_falls_are_not_its_own() -> None:
    """36 points of 900 lie 7 mm above the surface, within what was cut to it: noise of 1 mm reaches 5 mm at most. They
    go, and nothing else; nor where there was no hand, where it touches already, or where a fifth of it lies so."""
    rng, duck = np.random.default_rng(4), make_body("duck")
    points, normals = seen_in_the_air(duck, rng)
    body, drop = scanned(duck), [Drop(0, 1, 1, 0.9)]

    def left(raised: int, cut: bool = True, falls: int = 0) -> int:
        lifted = points + 0.007 * normals * (np.arange(900) < raised)[:, None]
        seen = [sighting(points, touched=False)] * 2
        seen[falls] = replace(sighting(lifted, touched=False), cut=cut)
        out = without_fingers(seen, drop, body, TABLE)
        assert len(out[1 - falls].points_m) == 900
        return len(out[falls].points_m)

    assert 900 - 36 <= left(36) <= 900 - 33  # a few lie beside an edge, nearer to another face
    assert left(36, cut=False) == left(36, falls=1) == left(180) == left(0) == 900
