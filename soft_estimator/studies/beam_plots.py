"""The picture of the beam study: what the markers did, and what the model does, over time."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from soft_estimator.pictures.colours import CORAL, TEAL
from soft_estimator.studies.beam import BeamStudy, Compared

_INK = (0.27, 0.30, 0.35)  # as in the report's style sheet
_SHOWN_S = 1.6
_MARKERS = ("top", "one side", "other side")


def draw_beam(path: Path, study: BeamStudy) -> None:
    """Height of the three markers, measured and simulated, for both releases, and what is left between them."""
    figure = Figure(figsize=(10, 5.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2, sharex=True, height_ratios=[3, 1])
    young = study.estimates[0]
    title = f"fitted: own weight, E = {young.value / 1e3:.0f} ± {1.96 * young.std / 1e3:.1g} kPa"
    _draw(axes[0, 0], axes[1, 0], study.fitted, title)
    _draw(axes[0, 1], axes[1, 1], study.predicted, "predicted: 52 g at the free end")
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.savefig(path)


def _draw(top: Axes, below: Axes, compared: Compared, title: str) -> None:
    shown = compared.time_s <= _SHOWN_S
    t = compared.time_s[shown] - (compared.release.let_go_s - compared.release.start_s)
    for k, name in enumerate(_MARKERS):
        measured, model = (1e3 * x[shown, k, 0] for x in (compared.measured_m, compared.model_m))
        label = "marker" if k == 0 else None
        top.plot(t, measured, ".", color=_INK, markersize=3, label=label)
        top.plot(t, model, "-", color=TEAL, linewidth=1.2, label="model" if k == 0 else None)
        below.plot(t, model - measured, "-", color=CORAL, alpha=1.0 - 0.3 * k, linewidth=1, label=name)
    top.set_title(title, fontsize=10, color=_INK)
    top.set_ylabel("height of the markers [mm]")
    below.set(xlabel="time since the release [s]", ylabel="model - marker [mm]")
    for ax in (top, below):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.3)
