"""A scene on the grid refined once, to see what its grid does to an answer."""

from __future__ import annotations

from dataclasses import replace

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.shapes import interpolated
from soft_estimator.scene.clamps import held_as
from soft_estimator.scene.scene import Scene, assemble_scene, body_of


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
    if scene.model.modes is not None:  # amplitudes mean the same shapes: a mode's sign, or its turn, is anyone's
        finer = replace(finer, model=replace(finer.model, modes=scene.model.modes.on(scene.body, body)))
    return replace(finer, config=scene.config, warnings=scene.warnings, readings=scene.readings)
