"""How the body's surface meets the contact plane."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ContactLaw:
    """Soft penalty: pressure = stiffness · log(1 + exp(-sharpness δ))/sharpness at distance δ.

    Attributes:
        stiffness_pa_per_m: pressure per depth [Pa/m]. sharpness_per_m: the softmin's a [1/m]; 1/a is the width of the
        soft zone.
        implicit: put the contact's stiffness into the system; otherwise extrapolate the force in time.
    """

    stiffness_pa_per_m: float
    sharpness_per_m: float
    implicit: bool = True

    def __post_init__(self) -> None:
        for name in ("stiffness_pa_per_m", "sharpness_per_m"):
            if not getattr(self, name) > 0:
                raise ValueError(f"contact {name} = {getattr(self, name)} must be positive")
