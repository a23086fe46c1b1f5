"""Numbers for people: a name instead of a key, a prefix instead of zeros, as many digits as the deviation allows."""

from __future__ import annotations

import math
from collections.abc import Iterable

from soft_estimator.parameters import REGISTRY

_EVEN = 0.75  # the shorter part of an interval over the longer one, at least, for ± to tell it: ±15 % of a logarithm
_UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    "Pa": ((1e9, "GPa"), (1e6, "MPa"), (1e3, "kPa"), (1.0, "Pa")),
    "m": ((1.0, "m"), (1e-3, "mm"), (1e-6, "µm")),
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "rad": ((math.pi / 180, "°"),),
    "rad/s": ((math.pi / 180, "°/s"),),
    "kg/m^3": ((1.0, "kg/m³"),),
    "m/s^2": ((1.0, "m/s²"),),
}


def plain_name(name: str) -> str:
    """ "Young's modulus" for youngs_modulus_pa; a component keeps its axis or number."""
    base, _, rest = name.partition("[")
    if base not in REGISTRY:
        return name[:1].upper() + name[1:].replace("_", " ")
    kind, index = REGISTRY[base], rest.rstrip("]")
    if not index:
        return kind.title
    # Names come from recordings and topics too: a component that cannot be is shown as it was written.
    known = index.isdecimal() and len(index) < 10 and (kind.shape != "vector" or int(index) < 3)
    return kind.component_title(int(index)) if known else f"{kind.title} {index}"


def choose_unit(unit: str, values: Iterable[float]) -> tuple[float, str]:
    """(factor, shown unit): a value in SI divided by the factor is shown in the unit, without many zeros."""
    steps = _UNITS.get(unit, ((1.0, unit),))
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    for factor, shown in steps:
        if largest >= factor:
            return factor, shown
    return steps[-1] if largest > 0 else steps[0]


def with_deviation(value: float, std: float) -> tuple[str, str]:
    """The value and its deviation with two digits of the deviation, e.g. ("20.049", "0.022")."""
    if not (math.isfinite(value) and math.isfinite(std) and std > 0):
        return rounded(value), rounded(std)
    digits = 1 - math.floor(math.log10(std))
    if digits > 12 or digits < -6:
        return f"{value:.6g}", f"{std:.2g}"
    places = max(digits, 0)
    if digits < 0:
        value, std = round(value, digits), round(std, digits)
    return _minus(f"{value:.{places}f}"), f"{std:.{places}f}"


def as_interval(value: float, low: float, high: float) -> bool:
    """Whether a 95 % interval must be shown as such: it is not symmetric, as near a bound, and ± would mislead."""
    below, above = value - low, high - value
    return not (below > 0 and above > 0 and _EVEN < above / below < 1 / _EVEN)


def stated(value: float, std: float, low: float, high: float, unit: str) -> str:
    """A value as it is known, in a unit without many zeros: "12.35 ± 0.14 kPa", or "0.49 (0.43 to 0.499)" where the
    interval is not symmetric."""
    factor, unit = choose_unit(unit, [value])
    if not as_interval(value, low, high):
        shown, deviation = with_deviation(value / factor, std / factor)
        return f"{shown} ± {deviation} {unit}".rstrip()
    return f"{value / factor:.3g} ({low / factor:.3g} to {high / factor:.3g}) {unit}".rstrip()


def in_unit_of(value: float, beside: float, unit: str) -> str:
    """A value with its unit, in the one in which a value beside it is shown: "20 kPa" beside "20.3 ± 0.4 kPa"."""
    factor, shown = choose_unit(unit, [beside])
    return f"{rounded(value / factor)} {shown}".rstrip()


def rounded(value: float, digits: int = 4) -> str:
    """A number to a few digits, without an exponent where it can be read without one."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        text = f"{value:.{places}f}"
        return _minus(text.rstrip("0").rstrip(".") if "." in text else text)
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return _minus(f"{mantissa.rstrip('0').rstrip('.')}·10{_superscript(int(exponent))}")


def seconds(value_s: float) -> str:
    """A duration, e.g. "1.2 s", "35 ms", "2 min 5 s"."""
    if value_s >= 60:
        return f"{int(value_s // 60)} min {value_s % 60:.0f} s"
    factor, unit = choose_unit("s", [value_s])
    return f"{rounded(value_s / factor, 3)} {unit}"


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _minus(text: str) -> str:
    if text.startswith("-"):
        return f"−{text[1:]}" if text.strip("-0.") else text[1:]
    return text
