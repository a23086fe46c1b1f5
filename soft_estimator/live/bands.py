"""Parameters and their intervals as lines of text: a number, and a band that shrinks as more is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from soft_estimator.estimation.fitting.uncertainty import Estimate, shown_label, shown_labels
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.parameters import Parameters
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import variables_of

WIDTH = 32  # characters of a band; a name and a number fit beside it on 80 columns
_SHORT = {"Pa": (1e3, "kPa"), "s": (1e-3, "ms"), "m": (1e-3, "mm")}


def in_few_words(estimates: Sequence[Estimate]) -> str:
    """The numbers that are vouched for; where none is, why the first is not."""
    told = [e for e in estimates if e.observable]
    if not told:
        return f"nothing is vouched for yet: {estimates[0].reason}" if estimates else "no estimate yet"
    return ", ".join(f"{e.label} {_with_interval(e)}" for e in told)


def _with_interval(e: Estimate) -> str:
    scale, unit = _SHORT.get(e.unit, (1.0, e.unit))
    return f"{e.value / scale:.4g} ({e.low / scale:.4g} to {e.high / scale:.4g}) {unit}".rstrip()


class BandView:
    """Draws estimates on scales that are set by the first ones: logarithmic for positive quantities.

    Args:
        guess: first guesses by published label; truth: true values, likewise, where known.
    """

    def __init__(self, guess: Mapping[str, float] | None = None, truth: Mapping[str, float] | None = None) -> None:
        self.guess, self.truth = dict(guess or {}), dict(truth or {})
        self._scales: dict[str, tuple[float, float, bool]] = {}

    def lines(self, estimates: Sequence[Estimate]) -> list[str]:
        """One line a parameter."""
        shown = [replace(e, label=shown_label(e.label, estimates)) for e in estimates]
        width = max((len(e.label) for e in shown), default=0)
        return [self._line(e, width) for e in shown]

    def _line(self, e: Estimate, width: int) -> str:
        scale, unit = _SHORT.get(e.unit, (1.0, e.unit))
        number = f"{e.value / scale:9.4g} ± {e.std / scale:<8.2g} {unit:<4}"
        known = self.truth.get(e.label)
        true = "" if known is None else f"  truth {known / scale:.4g}"
        if known:
            true += f" ({100 * (e.value / known - 1):+.1f} %)"
        if not e.observable:
            true = f"  {e.reason}"
        return f"  {e.label:<{width}} {number} {self._band(e)}{true}"

    def _band(self, e: Estimate) -> str:
        low, high, log = self._scale(e)

        def place(value: float) -> float:
            if not math.isfinite(value):
                return -1.0
            x = math.log(max(value, 1e-300)) if log else value
            return (x - low) / (high - low) * (WIDTH - 1)

        first, last, at = (place(v) for v in (e.low, e.high, e.value))
        cells = ["·"] * WIDTH
        for i in range(WIDTH):
            if first - 0.5 <= i <= last + 0.5:
                cells[i] = "━"
        truth = self.truth.get(e.label)
        if truth is not None and 0 <= round(place(truth)) < WIDTH:
            cells[round(place(truth))] = "┃"
        if 0 <= round(at) < WIDTH:
            cells[round(at)] = "●"
        return "".join(cells)

    def _scale(self, e: Estimate) -> tuple[float, float, bool]:
        """Ends of the scale (logarithms for positive quantities), set once."""
        if e.label not in self._scales:
            marks = [v for v in (self.guess.get(e.label), self.truth.get(e.label), e.value) if v is not None]
            if e.unit in ("Pa", "s", "1/s", "kg/m^3") and all(v > 0 for v in marks):
                ends = min(marks) / 2.5, max(marks) * 2.5
                self._scales[e.label] = (math.log(ends[0]), math.log(ends[1]), True)
            else:
                reach = max([abs(v) for v in marks] + [min(3 * e.std, 0.02 if e.unit == "m" else math.inf), 1e-3])
                self._scales[e.label] = (-1.5 * reach, 1.5 * reach, False)
        return self._scales[e.label]


def band_view(scene: Scene) -> BandView:
    """Bands for what a scene estimates, with its first guesses and its true values marked."""
    estimate = scene.config.estimate
    if estimate is None:
        return BandView()
    variables = variables_of(scene, estimate)
    return BandView(_by_label(variables, variables.reference), _by_label(variables, scene.parameters))


def true_values(scene: Scene) -> dict[str, float]:
    """The scene's own numbers, by the labels that estimates are published under."""
    estimate = scene.config.estimate
    return {} if estimate is None else _by_label(variables_of(scene, estimate), scene.parameters)


def _by_label(variables: Variables, parameters: Parameters) -> dict[str, float]:
    return {label: float(x) for label, x in zip(shown_labels(variables.labels), variables.natural_of(parameters))}
