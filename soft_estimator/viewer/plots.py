"""A parameter over time with its band, as a uPlot chart of viser."""

from __future__ import annotations

from typing import Any

import numpy as np

from soft_estimator.pictures.wording import choose_unit, plain_name, rounded, with_deviation
from soft_estimator.viewer.markdown import as_text
from soft_estimator.viewer.updates import ParameterNow

MOST_SAMPLES = 1500  # more than a chart has pixels; older ones are thinned
TEAL, BAND, CORAL = "#1f8f94", "rgba(31, 143, 148, 0.22)", "#e86b4d"


class ParameterPlot:
    """One chart, and above it the newest value in words."""

    def __init__(self, gui: Any, time_s: float, first: ParameterNow) -> None:
        self.name, self._now = first.name, first
        self._rows: list[tuple[float, float, float, float]] = []
        self._factor, self._unit = choose_unit(first.unit, [first.value])
        self._truth, self._range = first.truth, (0.0, 0.0)
        self.add(time_s, first)
        self._text = gui.add_markdown("")
        data = self._data()
        self._new_range(data)
        self._chart = gui.add_uplot(data, self._series(), **self._options())

    @property
    def samples(self) -> int:
        """How many times are plotted."""
        return len(self._rows)

    def add(self, time_s: float, now: ParameterNow) -> None:
        """Take a value in; `draw` shows it."""
        row = (time_s, now.low / self._factor, now.high / self._factor, now.value / self._factor)
        if self._rows and time_s <= self._rows[-1][0]:
            return
        self._rows.append(row)
        if len(self._rows) > MOST_SAMPLES:  # the older half at half the rate
            half = MOST_SAMPLES // 2
            self._rows = self._rows[:half:2] + self._rows[half:]
        self._now = now
        self._truth = now.truth if now.truth is not None else self._truth

    def clear(self) -> None:
        """Forget the past."""
        self._rows = []

    def draw(self) -> None:
        """Bring chart and text up to date."""
        if not self._rows:
            return
        now = self._now
        truth = "" if self._truth is None else f" (truth {rounded(self._truth / self._factor)})"
        f = self._factor
        value, std = with_deviation(now.value / f, (now.high - now.low) / f / 3.92)  # as many digits as are known
        places = len(std.partition(".")[2])
        low, high = (f"{x / f:.{places}f}".replace("-", "−") for x in (now.low, now.high))
        reason = as_text(now.reason or "the data do not depend on it")
        unseen = "" if now.observable else f"<br>_not observable: {reason}_"
        value = f"{value} {as_text(self._unit)}".strip()
        self._text.content = f"**{as_text(plain_name(self.name))}** {value}{truth}<br>95 %: {low} … {high}{unseen}"
        data = self._data()
        self._chart.data = data
        if self._new_range(data):
            self._chart.scales = self._options()["scales"]

    def _data(self) -> tuple[np.ndarray, ...]:
        columns = np.array(self._rows).T
        level = np.nan if self._truth is None else self._truth / self._factor  # NaN draws nothing
        return tuple(np.ascontiguousarray(c) for c in (*columns, np.full(columns.shape[1], level)))

    def _series(self) -> tuple[dict[str, Any], ...]:
        edge: dict[str, Any] = {"stroke": "transparent", "points": {"show": False}}
        series: list[dict[str, Any]] = [
            {"label": "t"},
            {"label": "low", **edge},
            {"label": "high", **edge},
            {"label": "value", "stroke": TEAL, "width": 2, "points": {"show": False}},
        ]
        series.append({"label": "truth", "stroke": CORAL, "width": 1.5, "dash": [6, 4], "points": {"show": False}})
        return tuple(series)

    def _options(self) -> dict[str, Any]:
        return {
            "bands": ({"series": (2, 1), "fill": BAND},),
            "scales": {"x": {"time": False}, "y": {"range": self._range}},
            "axes": ({"size": 30}, {"size": 52}),
            "legend": {"show": False},
            "height": 165,
        }

    def _new_range(self, data: tuple[np.ndarray, ...]) -> bool:
        """Whether the values need another range: they leave the old one, or fill less than a third of it.

        The chart is made anew with another range, so it keeps one as long as it can.
        """
        low, high = value_range(data[3], data[1], data[2], float(data[4][0]))
        old_low, old_high = self._range
        if low >= old_low and high <= old_high and high - low > (old_high - old_low) / 3:
            return False
        margin = 0.15 * (high - low)
        self._range = (low - margin, high + margin)
        return True


def value_range(value: np.ndarray, low: np.ndarray, high: np.ndarray, truth: float = np.nan) -> tuple[float, float]:
    """Room for the curve, the truth and the newest band; a first band far wider than the curve is cut off."""
    levels = np.append(value, truth)
    levels = levels[np.isfinite(levels)]
    if not levels.size:
        return 0.0, 1.0
    bottom, top = float(levels.min()), float(levels.max())
    half = 0.5 * (high - low)
    half = half[np.isfinite(half)]
    newest = float(half[-1]) if half.size else 0.0
    reach = max(0.15 * (top - bottom), 1.2 * newest, 1e-3 * max(abs(bottom), abs(top)), 1e-12)
    return bottom - reach, top + reach
