"""Values as they are known: ± where the interval is symmetric, else the interval itself."""

from __future__ import annotations

import pytest

from soft_estimator.pictures.wording import as_interval, in_unit_of, stated


@pytest.mark.parametrize(
    ("value", "std", "low", "high", "unit", "expected"),
    [
        (2013.0, 14.2, 1985.0, 2041.0, "Pa", "2.013 ± 0.014 kPa"),
        (0.49, 0.02, 0.43, 0.499, "", "0.49 (0.43 to 0.499)"),  # ν near ½: ± would reach beyond it
        (30e3, 9e3, 17e3, 53e3, "Pa", "30 (17 to 53) kPa"),  # a factor either way, not a difference
    ],
)
def test_stated(value: float, std: float, low: float, high: float, unit: str, expected: str) -> None:
    assert stated(value, std, low, high, unit) == expected


def test_an_interval_that_does_not_hold_its_value_is_shown_as_it_is() -> None:
    assert as_interval(1.0, 1.0, 2.0) and as_interval(1.0, 1.5, 2.0) and not as_interval(1.0, 0.5, 1.5)


def test_a_value_beside_another_is_in_its_unit() -> None:
    """999 Pa beside 1.2 kPa is 0.999 kPa: readers compare numbers, not prefixes."""
    assert in_unit_of(999.0, 1200.0, "Pa") == "0.999 kPa"
    assert in_unit_of(0.002, 0.0019, "s") == "2 ms"
    assert in_unit_of(0.3, 0.31, "") == "0.3"
