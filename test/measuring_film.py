"""A small recording of a ball that lies still and is dropped once, for tests of `measure`."""

from __future__ import annotations

from pathlib import Path

from measure_objects import Case
from measure_recordings import write_recording

# Of 382 cm³ and 158 g, the mass that README gives.
BALL = Case(
    "ball", {"sphere": {"radius_m": 0.045, "center_m": [0, 0, 0.045]}}, 20e3, 0.35, 414.0,
    spacing_m=0.012, felt_m=0.003, drops=((0.03, (0.0, 0.0, 0.0)),),
)  # fmt: skip


def write_ball(out: Path, **options: object) -> float:
    """Write the recording; the ball's mass [kg]."""
    return write_recording(BALL, out, image=(160, 120), still=6, seconds=0.2, with_hand=False, **options).mass_kg
