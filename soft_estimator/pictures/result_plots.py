"""Posteriors as curves, for notebooks and files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from soft_estimator.pictures.wording import choose_unit, plain_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CORAL, _GREY = "#e86b4d", "#9aa2b1"


def draw_posterior(
    ax: Axes | None, name: str, unit: str, value: float, interval: tuple[float, float], samples: np.ndarray
) -> Axes:
    """A histogram of draws (n,), the value and the 95 % interval; in a figure of its own without axes."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6, 2.4), layout="constrained").subplots()
    factor, shown = choose_unit(unit, [value])
    ax.hist(np.asarray(samples) / factor, bins=60, density=True, color=_CORAL, alpha=0.5)
    ax.axvspan(interval[0] / factor, interval[1] / factor, color=_GREY, alpha=0.25, label="95 % interval")
    ax.axvline(value / factor, color=_CORAL, label="estimate")
    ax.set_xlabel(f"{plain_name(name)} [{shown}]" if shown else plain_name(name))
    ax.set_yticks([])
    ax.legend(frameon=False, loc="upper right")
    return ax


def png_of(figure: Any) -> bytes:
    """A figure as the bytes of a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    return stream.getvalue()
