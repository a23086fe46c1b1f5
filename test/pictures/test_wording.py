"""Numbers for people: a unit without zeros, as many digits as the deviation has."""

from __future__ import annotations

import pytest

from soft_estimator.pictures.wording import stated


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((12345.6, 142.0, 12067.0, 12624.0, "Pa"), "12.35 ± 0.14 kPa"),
        ((2.1e6, 3e4, 2.04e6, 2.16e6, "Pa"), "2.100 ± 0.030 MPa"),
        ((0.00207, 2.1e-5, 0.00203, 0.00211, "s"), "2.070 ± 0.021 ms"),
        ((0.31, 0.02, 0.27, 0.35, ""), "0.310 ± 0.020"),
        ((0.49, 0.01, 0.43, 0.499, ""), "0.49 (0.43 to 0.499)"),  # near its bound ± would mislead
    ],
)
def test_values_are_stated_in_engineering_units(numbers: tuple[float, float, float, float, str], said: str) -> None:
    assert stated(*numbers) == said
