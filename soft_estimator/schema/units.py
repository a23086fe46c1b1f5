"""Physical units for configuration values: "50 kPa" → 50000.0, with the dimension checked."""

from __future__ import annotations

import difflib
import math
import re

# A dimension is the exponents of (metre, kilogram, second, radian). The radian counts, so that an angle is never
# taken for a plain number, nor rad/s for 1/s.
Dimension = tuple[int, int, int, int]

_SYMBOLS: dict[str, tuple[float, Dimension]] = {
    "1": (1.0, (0, 0, 0, 0)),
    "m": (1.0, (1, 0, 0, 0)),
    "km": (1e3, (1, 0, 0, 0)),
    "cm": (1e-2, (1, 0, 0, 0)),
    "mm": (1e-3, (1, 0, 0, 0)),
    "kg": (1.0, (0, 1, 0, 0)),
    "g": (1e-3, (0, 1, 0, 0)),
    "s": (1.0, (0, 0, 1, 0)),
    "ms": (1e-3, (0, 0, 1, 0)),
    "rad": (1.0, (0, 0, 0, 1)),
    "deg": (math.pi / 180.0, (0, 0, 0, 1)),
    "Hz": (1.0, (0, 0, -1, 0)),
    "N": (1.0, (1, 1, -2, 0)),
    "mN": (1e-3, (1, 1, -2, 0)),
    "kN": (1e3, (1, 1, -2, 0)),
    "Pa": (1.0, (-1, 1, -2, 0)),
    "kPa": (1e3, (-1, 1, -2, 0)),
    "MPa": (1e6, (-1, 1, -2, 0)),
    "GPa": (1e9, (-1, 1, -2, 0)),
}
_FACTOR = re.compile(r"([A-Za-z]+|1)(?:\^?(\d))?")
_SUPERSCRIPTS = str.maketrans("²³", "23")
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*")


class UnitError(ValueError):
    """Text that is not a number with a unit of the wanted dimension."""


def parse_unit(text: str) -> tuple[float, Dimension]:
    """Return the SI factor and the dimension of a unit such as `kg/m^3`, `kPa/mm` or `1/s`."""
    factor, dimension = 1.0, [0, 0, 0, 0]
    for position, part in enumerate(text.replace(" ", "").translate(_SUPERSCRIPTS).split("/")):
        sign = -1 if position else 1
        for symbol_text in part.replace("·", "*").split("*"):
            match = _FACTOR.fullmatch(symbol_text)
            if match is None or match[1] not in _SYMBOLS:
                raise UnitError(f"unknown unit '{text}'{_suggest(symbol_text)}")
            power = sign * int(match[2] or 1)
            symbol_factor, symbol_dimension = _SYMBOLS[match[1]]
            # Dividing by the whole power keeps 1/mm at exactly 1000.
            factor = factor * symbol_factor**power if power > 0 else factor / symbol_factor**-power
            dimension = [d + power * s for d, s in zip(dimension, symbol_dimension)]
    return factor, (dimension[0], dimension[1], dimension[2], dimension[3])


def parse_quantity(text: str, unit: str) -> float:
    """Return the value of `text` in the SI unit `unit`; a bare number is taken to be in `unit` already."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UnitError(f"is not a number; write one in {unit}" if unit else "is not a number")
    value = float(match[1])
    if not match[2]:
        return value
    if not unit:
        raise UnitError(f"carries the unit '{match[2]}' but has none; write the bare number")
    try:
        factor, dimension = parse_unit(match[2])
    except UnitError as error:
        raise UnitError(f"has the {error}; write it in {_alternatives(unit)}") from None
    if dimension != parse_unit(unit)[1]:
        raise UnitError(f"has a unit that does not measure {unit}; write it in {_alternatives(unit)}")
    return value * factor


def _alternatives(unit: str) -> str:
    dimension = parse_unit(unit)[1]
    others = [symbol for symbol, (_, d) in _SYMBOLS.items() if d == dimension and symbol != unit]
    return ", ".join([unit, *others])


def _suggest(symbol: str) -> str:
    by_lower = {known.lower(): known for known in _SYMBOLS}
    near = difflib.get_close_matches(symbol.lower(), by_lower, n=1, cutoff=0.7)
    return f" (did you mean '{by_lower[near[0]]}'?)" if near else ""
