"""Numbers on the command line: what `type=` of an option takes, with one line for what is none."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def count(text: str) -> int:
    """A whole number above 0."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def positive(what: str = "number") -> Callable[[str], float]:
    """A number above 0; what: how it is called, such as "number of seconds"."""

    def read(text: str) -> float:
        number = _number(text, f"a {what}")
        if not (number > 0 and math.isfinite(number)):
            raise argparse.ArgumentTypeError(f"{text} is not a positive {what}")
        return number

    return read


def between(low: float, high: float, what: str) -> Callable[[str], float]:
    """A number from low to high; what: how it is called, such as "a share from 0 to 0.95"."""

    def read(text: str) -> float:
        number = _number(text, what)
        if not (low <= number <= high and math.isfinite(number)):
            raise argparse.ArgumentTypeError(f"{text} is not {what}")
        return number

    return read


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not {what}") from None
