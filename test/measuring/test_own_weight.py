"""Sides of a soft object, each without what its weight had done to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from perception_scenes import Body, camera_at, make_body, shoot, table, yaw
from seen_falling import scanned, seen_in_the_air, sighting

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.measuring.alone import off_in_air_m
from soft_estimator.measuring.own_weight import _bend, as_it_flies, without_weight
from soft_estimator.measuring.phases import Drop
from soft_estimator.perception.fusion import Bend
from soft_estimator.perception.placed_side import Placed, surface_of
from soft_estimator.perception.scan import ScannedBody, close_body
from soft_estimator.perception.scan_frames import gather
from soft_estimator.perception.scan_sides import together
from soft_estimator.perception.settings import FinderSettings, ScanSettings
from soft_estimator.physics.body import build_body

TABLE = np.array([0.0, 0.0, 1.0, 0.0])


def test_a_column_is_shortened_as_the_closed_form_says() -> None:
    """Its own weight shortens it by ρ g z (H - z/2)/E up to a height z; held on its base, by at most a tenth less."""
    side_m, height_m = 0.03, 0.12
    column = build_body(sample(Box((side_m, side_m, height_m), (0.0, 0.0, 0.5 * height_m)), 0.01))
    bend = _bend(column, TABLE, 0.0)
    assert bend is not None
    over_length = 0.02 / (side_m**2 * height_m) ** (1 / 3)  # ρ g/E
    z = np.array([0.04, 0.08, 0.12])
    sunk = -bend.at(np.stack([0 * z, 0 * z, z], axis=1))[:, 2]
    closed = over_length * z * (height_m - 0.5 * z)
    assert (sunk < closed).all() and sunk == pytest.approx(closed, rel=0.1)


def test_a_bend_leads_there_and_back() -> None:
    """To second order of its slope: 10 mm/m here."""
    x = 0.01 * np.arange(11)
    nodes = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1)
    bend = Bend(np.zeros(3), 0.01, 0.01 * nodes[..., [2, 0, 1]])
    places = np.random.default_rng(0).uniform(0.02, 0.08, (50, 3))
    there = places + bend.at(places)
    assert np.abs(there - places).max() > 5e-4
    np.testing.assert_allclose(bend.back(there), places, atol=1e-6)
    np.testing.assert_allclose(bend.by(0.5).at(places), 0.5 * bend.at(places), atol=1e-15)


def test_sides_that_lie_alike_cannot_tell() -> None:
    """A ball turned about the vertical: its weight has bent it alike in all of them. They stay as they were seen. How
    far that may be is stated for ρ g L/E = 0.02, L³ its volume: less than the 1 % of L by which the top of a column
    sinks, and more than a tenth of that."""
    ball, far = make_body("ball"), camera_at(0.3, elevation_rad=0.7)
    camera = PinholeCamera(120, 90, 142.0, 142.0, 59.5, 44.5, far.position_m, far.rotation)
    cloud = shoot(camera, [ball.mesh, table()], 1).cloud
    data = gather([cloud], ScanSettings(target_cells=300), FinderSettings())
    surface = np.zeros((0, 3)), np.zeros((0, 3))
    sides = [Placed(data, *surface, yaw(angle), np.zeros(3)) for angle in (0.0, 1.6, 3.2, 4.8)]
    joined, bent_m = without_weight(sides, ["4 sides of it joined"])
    assert joined.notes[-1] == "4 sides of it joined"
    assert all(view.bend is None for view in joined.views) and len(joined.supports) == 1
    assert 0.1 < bent_m / (0.01 * ball.volume_m3 ** (1 / 3)) < 1.0


@pytest.mark.slow
def test_a_duck_that_lay_bent_has_the_shape_of_the_one_that_flies() -> None:
    """Seen from three sides of one table, squeezed by ρ g L/E = 0.04, twice what is taken for once: it is 4 to 12 mm
    lower, and such sides cannot tell. By a frame in the air it is unbent by 1 to 3 times: a shape that is nearer to
    what flies by a tenth and more. Nothing is taken off where what flies is bent, too."""
    duck = make_body("duck")
    bend = _bend(build_body(scanned(duck).grid), TABLE, 0.003)
    assert bend is not None
    bent = replace(duck, vertices_m=duck.vertices_m + bend.by(2.0).at(duck.vertices_m))
    assert 0.004 < np.ptp(duck.vertices_m[:, 2]) - np.ptp(bent.vertices_m[:, 2]) < 0.012
    sides, notes, coarse = list[Placed](), ["3 sides of it joined"], ScanSettings(target_cells=400, prior="none")
    for k in range(3):
        far = camera_at(2.1 * k, elevation_rad=0.7)
        camera = PinholeCamera(320, 240, 380.0, 380.0, 159.5, 119.5, far.position_m, far.rotation)
        data = gather([shoot(camera, [bent.mesh, table()], k).cloud], ScanSettings(target_cells=1000), FinderSettings())
        (turn, place), (first_turn, first_place) = data.frame, (sides[0].data if sides else data).frame
        sides.append(Placed(data, *surface_of(data), first_turn.T @ turn, (place - first_place) @ first_turn))
    now = close_body(together(sides, notes), coarse)

    def off_m(flies: Body) -> Callable[[ScannedBody], float]:
        seen = sighting(seen_in_the_air(flies, np.random.default_rng(0))[0], touched=False)
        return lambda body: off_in_air_m([seen], [Drop(0, 1, 1, 0.9)], body)

    found = as_it_flies(sides, now, notes, off_m(duck))
    assert found is not None and found[1] > 0.0
    off = off_m(duck)
    assert off(close_body(found[0], coarse)) < 0.9 * off(now)
    assert as_it_flies(sides, now, notes, off_m(bent)) is None
