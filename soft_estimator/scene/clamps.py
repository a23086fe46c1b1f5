"""Where a clamp ends: strongly held nodes lie inside their box, and the body is held up to the last of them, not up to
the box' face. That is up to a cell short; a short body that hangs by its top feels it as a part of its stiffness.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.config import FixedBoxConfig, SceneConfig
from soft_estimator.scene.scene import Scene, assemble_scene, box_of

_MARGIN = 0.01  # cells: one layer of nodes makes no box
_BESIDE = 1.001  # cells between neighbours along an edge of the grid, and rounding


def clamp_share(scene: Scene) -> float:
    """How far beyond their last held nodes the boxes reach, in cells, 0 to 1: the mean over the grid's edges from held
    nodes to free ones; 0 where nothing is held so."""
    position, spacing_m = scene.body.node_position_m, scene.body.grid.spacing_m
    free, shares = np.nonzero(scene.model.dirichlet.free > 0)[0], [np.zeros(0)]
    for fixed, (nodes, _) in zip(_strong(scene.config), scene.model.dirichlet.held):
        pairs = cKDTree(position[nodes]).query_ball_tree(cKDTree(position[free]), _BESIDE * spacing_m)
        inside = np.repeat(nodes, [len(beside) for beside in pairs])
        outside = free[np.concatenate([np.asarray(beside, dtype=np.int64) for beside in pairs])]
        distance_m = box_of(fixed.low_m, fixed.high_m).distance_m(position)
        held, beyond = distance_m[inside], distance_m[outside]
        shares.append(-held / np.maximum(beyond - held, 1e-12))
    every = np.concatenate(shares)
    return float(np.clip(every, 0.0, 1.0).mean()) if len(every) else 0.0


def with_next_nodes_held(scene: Scene) -> Scene:
    """The same scene with the nodes beside the held ones held, too: its boxes reach a cell further."""
    spacing_m = scene.body.grid.spacing_m
    return _held_otherwise(scene, [_grown(fixed, spacing_m) for fixed in scene.config.fixed])


def held_as(scene: Scene, config: SceneConfig) -> SceneConfig:
    """A configuration whose boxes end where the scene's last held nodes are, whatever grid it is put on; but for those
    that lead the body, which turn about their own middle."""
    position, held = scene.body.node_position_m, iter(scene.model.dirichlet.held)
    boxes, margin_m = [], _MARGIN * scene.body.grid.spacing_m
    for fixed in config.fixed:
        places = position[next(held)[0]] if fixed.method == "strong" else position
        if fixed.method == "strong" and not fixed.path:
            low_m, high_m = places.min(axis=0) - margin_m, places.max(axis=0) + margin_m
            fixed = replace(fixed, low_m=_plain(low_m), high_m=_plain(high_m))
        boxes.append(fixed)
    return replace(config, fixed=tuple(boxes))


def _held_otherwise(scene: Scene, boxes: list[FixedBoxConfig]) -> Scene:
    other = assemble_scene(replace(scene.config, fixed=tuple(boxes)), scene.body, scene.obstacles)
    if scene.model.modes is not None:
        other = replace(other, model=replace(other.model, modes=scene.model.modes))
    return replace(other, warnings=scene.warnings, readings=scene.readings, detail=scene.detail)


def _strong(config: SceneConfig) -> list[FixedBoxConfig]:
    return [fixed for fixed in config.fixed if fixed.method == "strong"]


def _grown(fixed: FixedBoxConfig, by_m: float) -> FixedBoxConfig:
    if fixed.method != "strong":
        return fixed
    return replace(fixed, low_m=_plain(np.array(fixed.low_m) - by_m), high_m=_plain(np.array(fixed.high_m) + by_m))


def _plain(place_m: np.ndarray) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in place_m)
    return x, y, z
