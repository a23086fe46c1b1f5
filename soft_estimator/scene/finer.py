"""A scene on the grid refined once, to see what its grid does to an answer; and one whose grid bevels no edges."""

from __future__ import annotations

from dataclasses import replace

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.shapes import interpolated
from soft_estimator.scene.clamps import held_as
from soft_estimator.scene.scene import Scene, assemble_scene, body_of

MOST_NODES = 60_000  # of a finer grid that an answer is compared with: eight times those of the body
DETAILED_SKIN = "detail"  # of `body.skin`


def on_finer_grid(scene: Scene) -> Scene:
    """The same scene with cells of half the size, held where the scene's own nodes are.

    The surface is that of the scene's detail where there is one, else the trilinear one of its own grid.
    """
    config, grid, detail = held_as(scene, scene.config), scene.body.grid, scene.detail
    parts = 1 if detail is None else round(grid.spacing_m / detail.spacing_m)
    if detail is not None and parts % 2 == 0:
        every = parts // 2
        fine = SignedDistanceGrid(detail.phi_m[::every, ::every, ::every], grid.origin_m, 0.5 * grid.spacing_m)
        body = body_of(fine, config, detail=detail if every > 1 else None)
    else:
        fine = SignedDistanceGrid(interpolated(grid.phi_m, 2), grid.origin_m, 0.5 * grid.spacing_m)
        body = body_of(fine, config, correct=False)  # the grid's own correction is in it
    finer = assemble_scene(config, body, scene.obstacles)
    finer = replace(finer, model=replace(finer.model, solver=scene.model.solver))
    if scene.model.modes is not None:  # amplitudes mean the same shapes: a mode's sign, or its turn, is anyone's
        finer = replace(finer, model=replace(finer.model, modes=scene.model.modes.on(scene.body, body)))
    return replace(finer, config=scene.config, warnings=scene.warnings, readings=scene.readings)


def with_detailed_skin(scene: Scene) -> Scene | None:
    """The same scene, nodes and all, with the detail's surface as the one that touches and is seen (`body.skin`); None
    where it is that already, or where there is no detail."""
    grid, detail = scene.body.grid, scene.detail
    if detail is None or scene.body.skin is not None:
        return None
    config = replace(scene.config, body=replace(scene.config.body, skin=DETAILED_SKIN))
    every = round(grid.spacing_m / detail.spacing_m)
    told = SignedDistanceGrid(detail.phi_m[::every, ::every, ::every], grid.origin_m, grid.spacing_m)
    body = body_of(told, config, detail=detail)
    if len(body.node_index) != len(scene.body.node_index):  # it was cleaned of specks, which the detail still has
        return None
    sharp = assemble_scene(config, body, scene.obstacles)
    if scene.model.modes is not None:
        sharp = replace(sharp, model=replace(sharp.model, modes=scene.model.modes))
    return replace(sharp, warnings=scene.warnings, readings=scene.readings, detail=detail)
