"""Plots of an estimate: the cost, the way of each parameter, and where on the body the points do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.camera.scene_cameras import cameras_of
from soft_estimator.pictures.colours import CORAL, TEAL, UNSEEN
from soft_estimator.pictures.ground import Ground
from soft_estimator.pictures.motion_pictures import Frame, choose_camera
from soft_estimator.pictures.renderer import SceneObject, render
from soft_estimator.pictures.surface_values import mean_near
from soft_estimator.scene.variables import shown, shown_labels
from soft_estimator.studies.estimate import WHOLE_CLOUDS, EstimateResult

# As in the report's style sheet.
_INK, _GREY = (0.27, 0.30, 0.35), (0.72, 0.74, 0.78)
_PICTURE_PX = (560, 420)


def draw_cost(path: Path, result: EstimateResult) -> None:
    """Cost per point over the iterations; steps up are frames joining the window."""
    history = result.best.history
    kinds = result.problem.kinds
    points = np.cumsum([kinds.of(frame).count(frame) for frame in result.problem.frames])
    frames = np.array([h["frames"] for h in history])
    cost = np.array([h["cost"] for h in history]) / points[frames - 1]
    figure, axes = _figure(1)
    clouds = result.method == WHOLE_CLOUDS
    axes[0].plot(range(len(cost)), cost if clouds else np.maximum(cost, 1e-300), "-o", color=TEAL, markersize=3.5)
    axes[0].set(
        xlabel="iteration (above: frames in the window)",
        ylabel="-log likelihood per point" if clouds else "cost per point",
        yscale="linear" if clouds else "log",
    )
    axes[0].set_title(f"{result.scene.config.name}: {result.best.reason}", fontsize=10, pad=16, color=_INK)
    _mark_windows(axes[0], frames, label=True)
    _save(figure, path)


def draw_parameters(path: Path, result: EstimateResult) -> None:
    """Each parameter over the iterations, with its 95 % interval at the end and the truth where it is known."""
    variables, history = result.problem.variables, result.best.history
    values = np.array([variables.natural(h["theta"]) for h in history])
    frames = np.array([h["frames"] for h in history])
    told = shown(variables)
    figure, axes = _figure(len(told))
    for ax, j in zip(axes, told):
        e, variable = result.posterior.estimates[j], variables.variables[j]
        ax.axhspan(e.low, e.high, color=CORAL, alpha=0.2, linewidth=0, label="95 % interval")
        ax.plot(values[:, j], "-o", color=TEAL, markersize=3.5, label="estimate")
        if result.truth is not None:
            ax.axhline(result.truth[j], color=_INK, linestyle="--", linewidth=1, label="truth")
        if variable.transform == "log" and values[:, j].max() > 3 * values[:, j].min():
            ax.set_yscale("log")
        unit = f" [{e.unit}]" if e.unit else ""
        note = "" if e.observable else f" (not observable: {e.reason})"
        ax.set(ylabel=f"{shown_labels(variables)[j]}{unit}")
        ax.set_title(f"{e.value:.5g} ± {e.std:.2g}{note}", fontsize=10, color=_INK)
        _mark_windows(ax, frames, label=False)
    axes[0].legend(fontsize=8, frameon=False)
    axes[-1].set_xlabel("iteration")
    _save(figure, path)


def draw_residuals(path: Path, result: EstimateResult) -> None:
    """The fitted body at the last frame, coloured by the mean signed distance of the points near each vertex."""
    body, frame = result.scene.body, result.clouds[-1]
    vertices = body.surface_positions_m(result.last_u)
    mean_m = mean_near(vertices, frame.points_m, result.last_residual_m, 1.5 * body.grid.spacing_m)
    seen = np.isfinite(mean_m)
    full_mm = 1e3 * max(float(np.percentile(np.abs(mean_m[seen]), 98)) if seen.any() else 0.0, 1e-7)
    ramp = LinearSegmentedColormap.from_list("signed", [TEAL, (0.96, 0.96, 0.96), CORAL])
    scale = Normalize(-full_mm, full_mm)
    colours = np.where(seen[:, None], ramp(scale(np.nan_to_num(1e3 * mean_m)))[:, :3], UNSEEN)
    contact = result.scene.config.contact
    ground = None if contact is None else Ground(result.parameters.plane_normal, result.parameters.plane_offset_m)
    shape = SceneObject(vertices, body.surface.faces, colours, gloss=0.05)
    cameras = _views(result, vertices)
    figure = Figure(figsize=(5.6 * len(cameras) + 0.9, 4.6), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(cameras)))
    for ax, (title, camera) in zip(axes, cameras):
        ax.imshow(render([shape], camera, ground, up=result.scene.config.picture.up))
        ax.set_title(title, fontsize=10, color=_INK)
        ax.axis("off")
    bar = figure.colorbar(ScalarMappable(scale, ramp), ax=list(axes), shrink=0.8)
    bar.set_label("mean distance of points [mm]")
    title = f"points off the fitted surface at {1e3 * frame.time_s:.0f} ms, outside positive, grey: none seen"
    figure.suptitle(f"{result.scene.config.name}: {title}", color=_INK, fontsize=11)
    _save(figure, path)


def _views(result: EstimateResult, vertices: np.ndarray) -> list[tuple[str, PinholeCamera]]:
    """From the first observing camera, drawn close, and from where the scene's pictures are taken."""
    config = result.scene.config
    still = Frame(0.0, vertices, np.zeros(len(vertices)))
    views = [("scene view", choose_camera(result.scene, [still], _PICTURE_PX))]
    cameras = [] if config.observe is None else cameras_of(config.observe)
    if cameras:
        middle = 0.5 * (vertices.min(axis=0) + vertices.max(axis=0))
        away = float(np.linalg.norm(cameras[0].position_m - middle))
        radius = float(np.linalg.norm(vertices - middle, axis=1).max())
        fov = 2 * 1.45 * np.arcsin(min(radius / max(away, 1e-9), 0.6))
        up = config.observe.cameras[0].up if config.observe and config.observe.cameras else config.picture.up
        close = PinholeCamera.looking_at(cameras[0].position_m, middle, up, *_PICTURE_PX, fov)
        views.insert(0, ("from the first camera", close))
    return views


def _figure(rows: int) -> tuple[Figure, list]:
    figure = Figure(figsize=(7.5, 1.2 + 2.3 * rows), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, 1, sharex=True)))
    for ax in axes:
        ax.grid(True, color=_GREY, alpha=0.4, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _mark_windows(ax: object, frames: np.ndarray, label: bool) -> None:
    """A thin line wherever more frames join in."""
    for at in np.nonzero(np.diff(frames, prepend=frames[:1]))[0]:
        ax.axvline(at, color=_GREY, linewidth=0.8)  # type: ignore[attr-defined]
        if label:
            ax.annotate(  # type: ignore[attr-defined]
                f"{frames[at]}", (at, 1.0), xycoords=("data", "axes fraction"), fontsize=7, color=_INK, va="bottom"
            )


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=130)
