"""The report of a fit: from what `soft-estimator estimate` found to what the page shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.physics.body import Body
from soft_estimator.physics.step import Simulation
from soft_estimator.pictures.surface_values import equivalent_strain, mean_near
from soft_estimator.report.content import Moment, Plane, ReportContent, ReportParameter, Series
from soft_estimator.report.page import write_report
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import shown, shown_labels
from soft_estimator.schema import to_plain
from soft_estimator.studies.estimate import WHOLE_CLOUDS, EstimateResult
from soft_estimator.studies.estimate_files import summarise

MOST_MOMENTS = 12  # more make the page heavy
_STAGES = {"frames_s": "making or reading the frames", "fit_s": "fitting", "posterior_s": "uncertainty"}


def write_estimate_report(path: Path, result: EstimateResult) -> None:
    """Write the report of a fit."""
    write_report(path, estimate_content(result))


def estimate_content(result: EstimateResult) -> ReportContent:
    """What the report of a fit shows. The fitted motion is simulated once more for the moments."""
    summary, config = summarise(result), result.scene.config
    simulated = summary["frames"]["source"] == "simulated"
    frames = summary["frames"]
    source = "its own simulated cameras" if simulated else f"the recording {frames['source']}"
    return ReportContent(
        title=config.name,
        subtitle=f"Estimated from {frames['used']} frames of {source}. {config.description}".strip(),
        parameters=[_parameter(row) for row in summary["parameters"]],
        warnings=warnings_of_summary(summary),
        series=_search(result),
        cost=_cost(result),
        faces=result.scene.body.surface.faces,
        moments=_moments(result),
        timing=[(_STAGES.get(key, key), value) for key, value in result.seconds.items()],
        facts=[*_facts(summary), ("size at rest", size_at_rest(result.scene.body))],
        configuration=yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True),
        up=config.picture.up,
        view_from=view_from(result.scene),
    )


def _parameter(row: dict[str, Any]) -> ReportParameter:
    return ReportParameter(
        name=row["name"],
        unit=row["unit"],
        value=row["value"],
        std=row["std"],
        low=row["low_95"],
        high=row["high_95"],
        guess=row["guess"],
        truth=row["truth"],
        observable=row["observable"],
        reason=row["reason"],
        mostly=row["mostly"],
    )


def warnings_of_summary(summary: dict[str, Any]) -> list[str]:
    """What a reader of an estimate must know, in plain words."""
    lines = [] if summary["fits"] else [f"The model does not fit: {summary['reason']}. Do not use these values."]
    lines += [line[:1].upper() + line[1:] + "." for line in summary["warnings"]]
    for reason, count in summary["frames"]["set_aside_reasons"].items():
        lines.append(f"{count} frame(s) were set aside: {reason}.")
    scale = summary["noise_scale"]
    if scale > 2:
        lines.append(
            f"The points scatter {scale:.1f} times as much as their stated noise: the noise is larger, the shape or "
            "the pose is a little off, or the body does what the model cannot. The intervals are widened as much."
        )
    if summary["far_points"]:
        lines.append(f"{summary['far_points']} points lie so far from the fitted body that they hardly count.")
    if not summary["finished"]:
        lines.insert(0, f"The search is not finished: {summary['stop_reason']}. These are the best values so far.")
    elif summary["reached_limit"]:
        lines.append(f"The search ended early: {summary['stop_reason']}.")
    return lines


def _search(result: EstimateResult) -> list[Series]:
    """Each parameter over the iterations; the interval is known at the end only."""
    variables, history = result.problem.variables, result.best.history
    values = np.array([variables.natural(h["theta"]) for h in history])
    at = np.arange(len(history), dtype=float)
    out = []
    for j in shown(variables):
        e, variable = result.posterior.estimates[j], variables.variables[j]
        low, high = np.full(len(at), np.nan), np.full(len(at), np.nan)
        low[-1], high[-1] = e.low, e.high
        spread = values[:, j].max() / values[:, j].min() if values[:, j].min() > 0 else 1.0
        out.append(
            Series(
                name=shown_labels(variables)[j],
                unit=e.unit,
                x=at,
                value=values[:, j],
                low=low,
                high=high,
                x_label="iteration",
                in_seconds=False,
                truth=None if result.truth is None else float(result.truth[j]),
                log=variable.transform == "log" and spread > 3,
            )
        )
    return out


def _cost(result: EstimateResult) -> Series:
    """The cost for each point in the window, which grows with the search."""
    kinds = result.problem.kinds
    points = np.cumsum([kinds.of(frame).count(frame) for frame in result.problem.frames])
    cost = np.array([h["cost"] / points[h["frames"] - 1] for h in result.best.history])
    at = np.arange(len(cost), dtype=float)
    clouds = result.method == WHOLE_CLOUDS
    name = "-log likelihood of each point" if clouds else "cost for each point"
    log = not clouds and bool((cost > 0).all())
    return Series(name, "", at, cost, x_label="iteration", in_seconds=False, log=log)


def _moments(result: EstimateResult) -> list[Moment]:
    frames, body = result.clouds, result.scene.body
    chosen = np.unique(np.linspace(0, len(frames) - 1, MOST_MOMENTS).round().astype(int))
    simulation = Simulation(result.problem.model, result.parameters, result.problem.backend)
    field = carry_field(body)
    times = [frames[k].time_s for k in chosen]
    out = []
    for k, u in zip(chosen, displacements(simulation, times)):
        distance = point_residuals(body, field, frames[k], u).value_m
        out.append(moment_of(result.scene, frames[k].time_s, u, frames[k].points_m, distance, plane_of(result)))
    return out


def moment_of(
    scene: Scene,
    time_s: float,
    u: np.ndarray,
    points_m: np.ndarray,
    point_residual_m: np.ndarray | None,
    plane: Plane | None,
) -> Moment:
    """The twin displaced by u (N, 3) [m] beside observed points (n, 3) [m] and their signed distances (n,) [m]."""
    body = scene.body
    vertices = body.surface_positions_m(u)
    residual = None
    if point_residual_m is not None and len(points_m):
        residual = mean_near(vertices, points_m, point_residual_m, 1.5 * body.grid.spacing_m)
    strain = np.maximum(body.surface.interpolate(equivalent_strain(body, u)), 0.0)
    return Moment(time_s, vertices, residual, strain, points_m, point_residual_m, plane)


def plane_of(result: EstimateResult) -> Plane | None:
    """The estimated contact plane of a scene that has one."""
    if result.scene.config.contact is None:
        return None
    return Plane(result.parameters.plane_normal.tolist(), float(result.parameters.plane_offset_m))


def view_from(scene: Scene) -> list[float] | None:
    """The direction from which the scene's pictures are taken, or from which its first camera looks."""
    config = scene.config
    middle = scene.body.surface_positions_m().mean(axis=0)
    if config.picture.eye_m is not None:
        target = middle if config.picture.target_m is None else np.array(config.picture.target_m)
        return (np.array(config.picture.eye_m) - target).tolist()
    if config.observe is not None and config.observe.cameras:
        camera = config.observe.cameras[0]
        return (np.array(camera.eye_m) - np.array(camera.target_m)).tolist()
    return None


def size_at_rest(body: Body) -> str:
    """Sides of the box around a body at rest, and its volume."""
    sides = np.ptp(body.surface_positions_m(), axis=0)
    return f"{' × '.join(f'{1e3 * side:.0f}' for side in sides)} mm, {1e6 * body.volume_m3:.4g} cm³"


def _facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    frames, plane = summary["frames"], summary.get("plane", {})
    rows = [
        ("frames used", f"{frames['used']}, with {frames['points']} points"),
        (
            "set aside",
            f"{frames['set_aside']} frames, {frames['nan_points']} NaN points, {frames['stray_points']} stray points, "
            f"{frames['copied_points']} copies",
        ),
        ("noise the residuals show", f"{summary['noise_scale']:.2f} times the stated"),
        ("search", f"{summary['iterations']} iterations, {summary['simulations']} simulations"),
        ("why it stopped", summary["stop_reason"]),
        ("body", f"{summary['nodes']} nodes, {summary['cells']} cells"),
        ("computed on", f"{summary['backend']}, {summary['precision']}"),
    ]
    if "angle_error_deg" in plane:
        off = f"{plane['angle_error_deg']:.3g}° and {1e3 * plane['offset_error_m']:+.3g} mm"
        rows.insert(2, ("the plane is off by", off.replace("-", "−")))
    return rows
