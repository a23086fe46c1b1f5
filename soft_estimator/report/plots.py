"""Curves as inline SVG: crisp at any size, and coloured by the page's style sheet, so that dark and print just work."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from soft_estimator.pictures.wording import choose_unit, plain_name, rounded
from soft_estimator.report.content import ReportParameter, Series

# Units of the drawing: two plots beside each other on a page, and room for the axes' numbers.
WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 40


@dataclass(frozen=True)
class _Axis:
    """Maps values from low..high to pixels from start..end, perhaps by their logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, v = (math.log10(max(x, 1e-300)) if self.log else x for x in (self.low, self.high, value))
        return self.start + (v - low) / (high - low) * (self.end - self.start)


def line_plot(series: Series) -> str:
    """The curve with its band, truth and ticks as an <svg> element."""
    shown = [a for a in (series.value, series.low, series.high) if a is not None]
    finite = np.concatenate([np.ravel(a) for a in shown])
    finite = finite[np.isfinite(finite)]
    levels = [] if series.truth is None else [series.truth]
    if not finite.size:
        return '<p class="quiet">nothing to draw</p>'
    factor, unit = choose_unit(series.unit, [*np.abs(series.value[np.isfinite(series.value)]), *levels])
    y = _value_axis(finite / factor, np.array(levels) / factor, series, factor)
    x = _Axis(*_widened(float(series.x.min()), float(series.x.max()), 0.02), LEFT, WIDTH - RIGHT)
    name = plain_name(series.name)
    parts = [*_grid(x, y, series.x_label, f"{name} [{unit}]" if unit else name)]
    if series.low is not None and series.high is not None:
        parts.append(_band(series.x, series.low / factor, series.high / factor, x, y))
    if series.truth is not None:
        at = y(series.truth / factor)
        parts.append(f'<line class="truth" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
    parts.append(
        _curve(series.x, series.value / factor, x, y, lambda v: f"{rounded(v)} {unit}".strip(), series.x_label)
    )
    if series.in_seconds:
        parts.append(f'<line class="now" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    timed = f' data-low="{x.low:.9g}" data-high="{x.high:.9g}"' if series.in_seconds else ""
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" data-left="{LEFT}" data-right="{WIDTH - RIGHT}"'
        f'{timed} aria-label="{escape(name)} over {escape(series.x_label)}">{"".join(parts)}</svg>'
    )


def interval_bar(parameter: ReportParameter) -> str:
    """The 95 % interval on a line, with the value, and the truth and guess where they are near enough to be shown."""
    span = max(parameter.high - parameter.low, 1e-300)
    low, high = parameter.low - 0.6 * span, parameter.high + 0.6 * span
    if parameter.truth is not None and low - 3 * span < parameter.truth < high + 3 * span:
        low, high = min(low, parameter.truth - 0.3 * span), max(high, parameter.truth + 0.3 * span)
    x = _Axis(low, high, 6, 294)
    a, b = x(parameter.low), x(parameter.high)
    parts = [
        '<line class="axis" x1="6" x2="294" y1="14" y2="14"/>',
        f'<rect class="band" x="{a:.1f}" y="8" width="{b - a:.1f}" height="12" rx="3"/>',
        f'<circle class="dot" cx="{x(parameter.value):.1f}" cy="14" r="4.5"/>',
    ]
    if parameter.truth is not None:
        at = x(parameter.truth)
        if 6 <= at <= 294:
            parts.append(f'<line class="truth" x1="{at:.1f}" x2="{at:.1f}" y1="3" y2="25"/>')
        else:
            edge, turn = (297, 1) if at > 294 else (3, -1)
            parts.append(f'<path class="arrow" d="M{edge - 7 * turn} 8 L{edge} 14 L{edge - 7 * turn} 20"/>')
    return f'<svg class="interval" viewBox="0 0 300 28" aria-hidden="true">{"".join(parts)}</svg>'


def _value_axis(values: np.ndarray, levels: np.ndarray, series: Series, factor: float) -> _Axis:
    """Room for the curve, the truth and the band, but not for a band far wider than the curve itself."""
    curve = series.value[np.isfinite(series.value)] / factor
    shown = np.concatenate([curve, levels])
    low, high = float(np.min(shown)), float(np.max(shown))
    if series.log and values.min() > 0:
        low, high = max(float(values.min()), low / 10), min(float(values.max()), high * 10)
        margin = max((high / low) ** 0.06, 1.03)
        return _Axis(low / margin, high * margin, HEIGHT - BOTTOM, TOP, log=True)
    reach = max(high - low, 1e-3 * max(abs(low), abs(high)), float(np.median(_half_band(series))) / factor)
    low, high = max(float(values.min()), low - 1.5 * reach), min(float(values.max()), high + 1.5 * reach)
    return _Axis(*_widened(low, high, 0.08), HEIGHT - BOTTOM, TOP)


def _half_band(series: Series) -> np.ndarray:
    if series.low is None or series.high is None:
        return np.zeros(1)
    half = 0.5 * (series.high - series.low)
    return half[np.isfinite(half)] if np.isfinite(half).any() else np.zeros(1)


def _widened(low: float, high: float, share: float) -> tuple[float, float]:
    margin = share * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _grid(x: _Axis, y: _Axis, x_label: str, y_label: str) -> list[str]:
    parts = []
    across, up = ticks(x.low, x.high, 5), log_ticks(y.low, y.high) if y.log else ticks(y.low, y.high, 5)
    for value in up:
        at = y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{_tick(value, up)}</text>'
        )
    for value in across:
        at, text = x(value), _tick(value, across)
        parts.append(f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{text}</text>')
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    middle = 0.5 * (LEFT + WIDTH - RIGHT)
    parts.append(f'<text class="label" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    centre = 0.5 * (TOP + base)
    turned = f'x="12" y="{centre}" transform="rotate(-90 12 {centre})" text-anchor="middle"'
    parts.append(f'<text class="label" {turned}>{escape(y_label)}</text>')
    return parts


def ticks(low: float, high: float, count: int) -> list[float]:
    """At most about `count` round numbers between low and high."""
    raw = max((high - low) / count, 1e-300)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between low and high, at most six; round numbers between them where there are fewer than two."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    powers = [10.0**k for k in range(first, last + 1)]
    if len(powers) >= 2:
        return powers[:: max(1, math.ceil(len(powers) / 6))]
    decades = [10.0**k for k in range(first - 1, last + 1)]
    fine = [s * d for d in decades for s in (1, 2, 3, 5, 7) if low <= s * d <= high]
    return fine if len(fine) >= 2 else ticks(low, high, 4)


def _tick(value: float, beside: list[float]) -> str:
    step = min((abs(b - a) for a, b in pairwise(beside)), default=abs(value) or 1.0)
    largest = max(abs(v) for v in beside)
    if largest and not 1e-3 <= largest < 1e5:
        return rounded(value, 3)
    places = min(max(0, math.ceil(-math.log10(step) - 1e-9)), 6)
    places += round(step * 10**places, 6) % 1 > 1e-6  # a step of 2.5
    return f"{0.0 if abs(value) < 1e-9 * step else value:.{places}f}".replace("-", "−")


def _band(at: np.ndarray, low: np.ndarray, high: np.ndarray, x: _Axis, y: _Axis) -> str:
    """The band as a filled outline, cut off at the frame of the plot."""
    good = np.isfinite(low) & np.isfinite(high)
    top = [f"{x(a):.1f},{_inside(y(h)):.1f}" for a, h in zip(at[good], high[good])]
    bottom = [f"{x(a):.1f},{_inside(y(b)):.1f}" for a, b in zip(at[good], low[good])]
    if len(top) == 1:
        px, up, down = x(at[good][0]), top[0].split(",")[1], bottom[0].split(",")[1]
        return f'<rect class="band" x="{px - 4:.1f}" y="{up}" width="8" height="{float(down) - float(up):.1f}"/>'
    return f'<polygon class="band" points="{" ".join(top + bottom[::-1])}"/>'


def _inside(pixel: float) -> float:
    return min(max(pixel, TOP), HEIGHT - BOTTOM)


def _curve(at: np.ndarray, value: np.ndarray, x: _Axis, y: _Axis, text: Callable[[float], str], x_label: str) -> str:
    good = np.isfinite(value)
    places = [(x(a), _inside(y(v)), a, v) for a, v in zip(at[good], value[good])]
    line = " ".join(f"{px:.1f},{py:.1f}" for px, py, _, _ in places)
    radius = 3 if len(places) <= 60 else 1.5
    unit = x_label.partition("[")[2].rstrip("]")
    dots = "".join(
        f'<circle class="dot" cx="{px:.1f}" cy="{py:.1f}" r="{radius}">'
        f"<title>{escape(text(v))} at {rounded(a)} {unit}</title></circle>"
        for px, py, a, v in places[:: max(1, len(places) // 300)]
    )
    return f'<polyline class="curve" points="{line}"/>{dots}'
