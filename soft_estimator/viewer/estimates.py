"""Live estimates as updates for the viewer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.pictures.colours import colour_map, residual_colours
from soft_estimator.pictures.surface_values import equivalent_strain, mean_near
from soft_estimator.scene.scene import Scene
from soft_estimator.viewer.updates import MeshNow, ParameterNow, ViewUpdate

STRAIN_TOP = 0.2


def estimate_update(
    scene: Scene, estimate: LiveEstimate, start_s: float, truth: Mapping[str, float] | None = None
) -> ViewUpdate:
    """What the viewer shows of an estimate: twin coloured by residual and by strain, points, plane, parameters."""
    e, body = estimate, scene.body
    vertices = body.surface_positions_m(e.u_m)
    full_m = max(2.0 * float(e.rms_residual_m), 1e-5) if np.isfinite(e.rms_residual_m) else 1e-3
    residual = np.full(len(vertices), np.nan)
    if len(e.points_m):
        residual = mean_near(vertices, e.points_m, e.residual_m, 1.5 * body.grid.spacing_m)
    strain = np.maximum(body.surface.interpolate(equivalent_strain(body, e.u_m)), 0.0)
    colours = {"residual": residual_colours(residual, full_m), "strain": colour_map(strain, 0.0, STRAIN_TOP)}
    plane = None
    if scene.config.contact is not None:
        plane = (np.asarray(e.values.plane_normal), float(e.values.plane_offset_m))
    line = f"{e.frames_in_window} frames in the window, {1e3 * e.rms_residual_m:.2f} mm off, {1e3 * e.seconds:.0f} ms"
    return ViewUpdate(
        time_s=e.stamp_s - start_s,
        status=e.status,
        points_m=e.points_m,
        mesh=MeshNow(vertices, body.surface.faces, colours),
        plane=plane,
        parameters=parameters_now(e, truth or {}),
        line="; ".join((line, *e.notes)),
    )


def parameters_now(estimate: LiveEstimate, truth: Mapping[str, float]) -> tuple[ParameterNow, ...]:
    """The parameters of an estimate."""
    alone = all(p.label != "youngs_modulus_pa[1]" for p in estimate.parameters)
    return tuple(
        ParameterNow(
            name="youngs_modulus_pa" if alone and p.label == "youngs_modulus_pa[0]" else p.label,
            unit=p.unit, value=p.value, low=p.low, high=p.high, observable=p.observable, reason=p.reason,
            truth=truth.get(p.label),
        )
        for p in estimate.parameters
    )  # fmt: skip
