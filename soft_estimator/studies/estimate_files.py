"""What an estimate leaves in its folder: estimate.json, the resolved scene, and plots."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.held_pose import pose_off
from soft_estimator.estimation.variables import natural_slope
from soft_estimator.physics.modes import BEND, SWING
from soft_estimator.physics.obstacles import Plane
from soft_estimator.recordings.observed_frames import write_frames
from soft_estimator.scene.rest_shape import REST_SHAPE, rest_shape_bytes
from soft_estimator.scene.variables import shown, shown_labels
from soft_estimator.schema import to_plain
from soft_estimator.studies.estimate import EstimateResult
from soft_estimator.studies.estimate_setup import Progress


def write_estimate(
    result: EstimateResult,
    out_dir: Path | str,
    *,
    plots: bool = True,
    frames: bool = False,
    report: Callable[[Path, EstimateResult], object] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write estimate.json, scene.yaml, rest_shape.npz and, as asked, plots, report.html and the frames used; returns
    what estimate.json holds. `report` writes the page: it knows of this module, not this module of it."""
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    files = ["estimate.json", "scene.yaml", REST_SHAPE]
    (out / "scene.yaml").write_text(
        "# The scene as it was used, every default filled in.\n"
        + yaml.safe_dump(to_plain(result.scene.config), sort_keys=False, allow_unicode=True),
        encoding="utf-8",
    )
    (out / REST_SHAPE).write_bytes(rest_shape_bytes(result.scene.body))
    if plots:
        files += _draw(result, out, progress)
    if report is not None:
        report(out / "report.html", result)
        files.append("report.html")
    if frames:
        write_frames(out / "frames", result.clouds)
        files.append("frames/stamps.csv")
    summary = {**summarise(result), "files": files}
    (out / "estimate.json").write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return summary


def _draw(result: EstimateResult, out: Path, progress: Progress | None) -> list[str]:
    """Draw the plots; the names of their files. Matplotlib is imported for them alone: whoever only sums up, as every
    report does, is spared its second."""
    from soft_estimator.studies.estimate_plots import draw_cost, draw_parameters, draw_residuals

    drawings = {"cost.png": draw_cost, "parameters.png": draw_parameters, "residuals.png": draw_residuals}
    for k, (name, draw) in enumerate(drawings.items()):
        draw(out / name, result)
        if progress:
            progress("drawing", k + 1, len(drawings), "")
    return list(drawings)


def summarise(result: EstimateResult) -> dict[str, Any]:
    """Everything worth knowing about an estimate as plain values; the unit ends a key's name or stands beside it."""
    problem, best, config = result.problem, result.best, result.scene.config
    covariance = result.posterior.covariance
    told = covariance[np.ix_(*2 * [shown(problem.variables)])]
    std = np.sqrt(np.diag(told))
    return {
        "scene": config.name,
        "finished": not result.stopped,
        "backend": result.backend,
        "precision": config.solver.precision,
        "nodes": result.scene.body.node_count,
        "cells": result.scene.body.cell_count,
        **result.posterior.verdict.as_plain(),
        "warnings": list(result.scene.warnings),
        "parameters": _parameters(result),
        **_modes(result),
        **_pose(result),
        **({"plane": _plane(result)} if any(v.name in Plane.parameters for v in problem.variables.variables) else {}),
        "correlation": (told / np.outer(std, std)).tolist(),
        "posterior": ParameterPosterior(problem.variables, result.posterior.theta, covariance).as_plain(),
        "method": result.method,
        "iterations": best.iterations,
        "stop_reason": best.reason,
        "reached_limit": best.reached_limit,
        "cost": _finite(best.evaluation.cost),
        "misfit": _finite(best.evaluation.misfit),
        "noise_scale": result.posterior.noise_scale,
        "far_points": best.evaluation.far,
        "starts": _starts(result),
        "simulations": problem.simulations,
        "frames": _frames(result),
        "times": {**result.seconds, "total_s": sum(result.seconds.values())},
        "history": [
            {
                "frames": h["frames"],
                "cost": _finite(h["cost"]),
                "values": problem.variables.natural(h["theta"]).tolist(),
            }
            for h in best.history
        ],
    }


def _parameters(result: EstimateResult) -> list[dict[str, Any]]:
    rows, labels = [], shown_labels(result.problem.variables)
    for j in shown(result.problem.variables):
        e, variable = result.posterior.estimates[j], result.problem.variables.variables[j]
        truth = None if result.truth is None else float(result.truth[j])
        scaled = truth is not None and variable.transform in ("log", "logit") and truth > 0
        rows.append(
            {
                "name": labels[j],
                "unit": e.unit,
                "value": e.value,
                "std": e.std,
                "std_statistical": e.std_statistical,
                "low_95": e.low,
                "high_95": e.high,
                "guess": float(result.guess[j]),
                "truth": truth,
                "error": None if truth is None else e.value - truth,
                "error_relative": (e.value - truth) / truth if scaled and truth is not None else None,
                "observable": e.observable,
                "reason": e.reason,
                "mostly": e.mostly,
                "std_by_source": _by_source(result, j),
            }
        )
    return rows


def _modes(result: EstimateResult) -> dict[str, Any]:
    """How the body was bent and swung at the start, where that was asked for."""
    modes, found = result.scene.model.modes, result.parameters
    if modes is None:
        return {}
    amounts = {name: getattr(found, name)[: modes.count].tolist() for name in (BEND, SWING)}
    return {"modes": {"frequency_hz": modes.hertz.tolist(), **amounts}}


def _pose(result: EstimateResult) -> dict[str, Any]:
    """Where a held body turned out to be, and how far that is from where it was said to be."""
    variables, posterior = result.problem.variables, result.posterior
    chosen = [j for j, v in enumerate(variables.variables) if v.beside]
    if not chosen:
        return {}
    found = {e.label: {"value": e.value, "std": e.std} for e in (posterior.estimates[j] for j in chosen)}
    return {"pose": {**found, "moved": pose_off(variables, posterior.theta)}}


def _by_source(result: EstimateResult, j: int) -> dict[str, float]:
    """What each number held fixed adds to the deviation of a variable, in its unit, the largest first."""
    variable, theta = result.problem.variables.variables[j], float(result.posterior.theta[j])
    slope = abs(natural_slope(variable, theta))
    parts = {e.name: slope * float(e.std[j]) for e in result.posterior.effects if e.std[j] > 0}
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _plane(result: EstimateResult) -> dict[str, Any]:
    """The estimated plane n·x + d = 0 as a whole."""
    found, true = result.parameters, result.scene.parameters
    out: dict[str, Any] = {"normal": found.plane_normal.tolist(), "offset_m": found.plane_offset_m}
    if result.truth is not None:
        cosine = float(found.plane_normal @ true.plane_normal)
        sine = float(np.linalg.norm(np.cross(found.plane_normal, true.plane_normal)))
        out["normal_truth"], out["offset_truth_m"] = true.plane_normal.tolist(), true.plane_offset_m
        out["angle_error_deg"] = math.degrees(math.atan2(sine, cosine))
        out["offset_error_m"] = found.plane_offset_m - true.plane_offset_m
    return out


def _starts(result: EstimateResult) -> list[dict[str, Any]]:
    variables = result.problem.variables
    return [
        {
            "start": variables.natural(f.history[0]["theta"]).tolist() if f.history else None,
            "end": variables.natural(f.theta).tolist(),
            "cost": _finite(f.evaluation.cost),
            "iterations": f.iterations,
            "stop_reason": f.reason,
            "reached_limit": f.reached_limit,
        }
        for f in result.fits
    ]


def _frames(result: EstimateResult) -> dict[str, Any]:
    made = result.frames
    counts: dict[str, int] = {}
    for item in made.set_aside:
        counts[item.reason] = counts.get(item.reason, 0) + 1
    return {
        "source": result.source,
        "used": len(made.frames),
        "points": made.points,
        "nan_points": made.nan_points,
        "stray_points": made.stray_points,
        "copied_points": made.copied_points,
        "set_aside": len(made.set_aside),
        "set_aside_reasons": counts,
        "set_aside_frames": [vars(item) for item in made.set_aside],
    }


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
