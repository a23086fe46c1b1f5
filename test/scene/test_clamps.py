"""Clamps on a grid end with their last node: how far short of their box that is, and what it does to an answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coverage_cases import draw, frames_of, scene_of

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.scene.clamps import clamp_share, held_as, with_next_nodes_held
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load
from soft_estimator.studies.estimate import estimate_scene

SPACING_M = 0.005


def beam(end_m: float, method: str = "strong") -> Scene:
    """Of 8 cm, with nodes every 5 mm from its end at -40 mm on, held up to a place on the way."""
    data = {
        "name": "beam",
        "body": {"shape": {"box": {"size_m": [0.08, 0.02, 0.02]}}, "spacing_m": SPACING_M},
        "material": {"youngs_modulus_pa": 1e5},
        "fixed": [{"low_m": [-0.1, -0.1, -0.1], "high_m": [end_m, 0.1, 0.1], "method": method}],
    }
    return build_scene(load(SceneConfig, data, "scene"), Path())


def last_held_m(scene: Scene) -> float:
    return float(scene.body.node_position_m[scene.model.dirichlet.held[0][0], 0].max())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_how_far_beyond_its_last_nodes_a_clamp_reaches(share: float) -> None:
    """The face of the box cuts every edge between held and free nodes at the same part of a cell; exact to rounding."""
    scene = beam(-0.03 + share * SPACING_M + 1e-12)
    assert last_held_m(scene) == pytest.approx(-0.03, abs=1e-9)
    assert clamp_share(scene) == pytest.approx(share, abs=1e-6)
    assert last_held_m(with_next_nodes_held(scene)) == pytest.approx(-0.03 + SPACING_M, abs=1e-9)


def test_a_finer_grid_is_held_as_the_grid_itself_is() -> None:
    """With half the spacing there are nodes in the box beyond the last ones: what the grid does is not what the clamp
    does."""
    scene = beam(-0.03 + 0.8 * SPACING_M)
    fine = on_finer_grid(scene)
    assert fine.body.grid.spacing_m == pytest.approx(0.5 * SPACING_M)
    assert last_held_m(fine) == pytest.approx(last_held_m(scene), abs=1e-9)
    assert fine.config == scene.config and clamp_share(scene) > 0.7
    held = held_as(scene, scene.config).fixed[0]
    np.testing.assert_allclose(held.high_m[0], -0.03, atol=0.011 * SPACING_M)


def test_what_is_held_weakly_ends_where_its_box_does() -> None:
    scene = beam(-0.028, "nitsche")
    assert clamp_share(scene) == 0.0 and held_as(scene, scene.config).fixed == scene.config.fixed


@pytest.mark.slow
def test_a_body_that_is_held_by_its_tip_says_that_its_clamp_is_short() -> None:
    """A capsule four cells across whose clamp reaches 0.8 cells beyond the only layer of nodes in it. Fitted so, it is
    2.6 times too stiff, which was seven stated deviations. With a shape that is told to be exact: it hardly moves, and
    would be called too faint for anything else. From a guess nine times too stiff three steps lead to that fit; from
    the drawn one, 1.3 times, three times the work leads to another, 9 times too stiff, of which the same holds."""
    drawn = draw(85, True)
    truth = drawn.truth["material"]["youngs_modulus_pa"]
    guess = {**drawn.told["estimate"]["guess"], "youngs_modulus_pa": 9.0 * truth}
    exact = {"known_to": {"shape_offset_m": 0.0, "shape_scale": 0.0}, "guess": guess}
    scene = scene_of({**drawn.told, "estimate": {**drawn.told["estimate"], **exact}})
    result = estimate_scene(scene, choose_backend("cpu"), frames=frames_of(drawn, 85))
    e = result.estimates[0]
    assert clamp_share(result.scene) == pytest.approx(0.8, abs=0.01)
    assert e.low < truth < e.high and "clamp" in e.mostly
