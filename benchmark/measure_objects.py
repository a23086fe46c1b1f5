"""The objects that `measure` is tried on: eight, ones that nobody tuned for, and what may stand beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One object: its shape resting on z = 0 [m], E [Pa], ν, ρ [kg/m³], the spacing of the truth's grid [m], and the
    longest distance of the points that feel the table [m], a quarter of that.

    A shape named by a word is made from the file of that name in the data folder. obstacles: walls and boxes beside it,
    by their shapes; thrown_m_s: how fast it is let go, the hand's own motion.
    """

    name: str
    shape: dict[str, Any] | str
    youngs_modulus_pa: float
    poissons_ratio: float = 0.3
    density_kg_m3: float = 300.0
    stiffness_damping_s: float = 0.002
    spacing_m: float = 0.0035
    felt_m: float = 0.0009
    drops: tuple[tuple[float, tuple[float, float, float]], ...] = ((0.08, (0.1, 0.0, 0.3)), (0.06, (0.0, 0.15, -0.4)))
    obstacles: tuple[dict[str, Any], ...] = ()
    thrown_m_s: tuple[float, float, float] = (0.0, 0.0, 0.0)


def _sphere(radius_m: float, *center_m: float) -> dict[str, Any]:
    return {"sphere": {"radius_m": radius_m, "center_m": list(center_m)}}


def _capsule(radius_m: float, start_m: tuple[float, ...], end_m: tuple[float, ...]) -> dict[str, Any]:
    return {"capsule": {"radius_m": radius_m, "start_m": list(start_m), "end_m": list(end_m)}}


_DUCK = {
    "union": {
        "of": [
            _capsule(0.03, (-0.04, -0.015, 0.03), (0.04, -0.015, 0.03)),
            _capsule(0.03, (-0.04, 0.015, 0.03), (0.04, 0.015, 0.03)),
            _sphere(0.028, 0.045, 0.005, 0.08),
            _capsule(0.012, (0.065, 0.008, 0.078), (0.085, 0.014, 0.076)),
            _capsule(0.014, (-0.06, 0.0, 0.045), (-0.08, -0.008, 0.07)),
        ]
    }
}
_LUMPS = {
    "union": {
        "of": [
            _sphere(0.036, -0.034, -0.012, 0.036),
            _sphere(0.034, 0.022, -0.028, 0.034),
            _sphere(0.032, 0.012, 0.034, 0.032),
            _sphere(0.027, -0.004, 0.002, 0.066),
            _sphere(0.02, 0.05, 0.008, 0.03),
        ]
    }
}
_TORUS = {"torus": {"major_radius_m": 0.05, "minor_radius_m": 0.024, "center_m": [0, 0, 0.024], "axis": "z"}}

CASES = {
    case.name: case
    for case in (
        Case("box", {"box": {"size_m": [0.077, 0.077, 0.077], "center_m": [0, 0, 0.0385]}}, 40e3, 0.4, 700.0),
        Case("brick", {"box": {"size_m": [0.063, 0.112, 0.077], "center_m": [0, 0, 0.0385]}}, 12e3),
        Case("capsule", _capsule(0.035, (-0.04, 0, 0.035), (0.04, 0, 0.035)), 80e3, 0.45, 1000.0),
        Case("ball", _sphere(0.045, 0, 0, 0.045), 20e3, 0.35, 500.0),
        Case("duck", _DUCK, 8e3, 0.3, 200.0),
        Case("torus", _TORUS, 25e3, 0.25, 400.0),
        Case("bunny", "bunny_medium.sdf", 30e3, 0.35, 600.0),
        Case("lumps", _LUMPS, 3e3, 0.2, 60.0),
    )
}


# What may stand beside an object of 4 to 6 cm to each side, which is let go towards it: a wall behind it, as the camera
# sees it, turned by 0.26 rad, or a box of half the object's height.
BESIDE = {
    "wall": {"plane": {"normal": [0.966, 0.259, 0.0], "through_m": [-0.088, 0.0, 0.0]}},
    "box": {"box": {"size_m": [0.12, 0.16, 0.06], "center_m": [-0.15, 0.0, 0.03], "rotation_rad": [0.0, 0.0, 0.25]}},
}


def beside(case: Case, thing: str) -> Case:
    """An object with something beside it that it bounces off."""
    return replace(case, name=f"{case.name}+{thing}", obstacles=(BESIDE[thing],), thrown_m_s=(-0.4, 0.0, 0.0))


def random_body(seed: int) -> Case:
    """Two to five balls and rods of 4 to 8 cm in one piece, three of them at most on the table: nobody's shape."""
    rng, parts = np.random.default_rng(seed), []
    for number in range(rng.integers(2, 6)):
        radius, (x, y) = rng.uniform(0.022, 0.04), rng.uniform(-0.035, 0.035, 2)
        z = radius if number < 3 else rng.uniform(radius, 0.07)
        if rng.random() < 0.35:
            angle, half = rng.uniform(0, 2 * np.pi), rng.uniform(0.02, 0.05)
            ahead = half * np.array([np.cos(angle), np.sin(angle), 0.0])
            place = np.array([x, y, z])
            parts.append(_capsule(radius, tuple(place - ahead), tuple(place + ahead)))
        else:
            parts.append(_sphere(radius, x, y, z))
    return Case(f"random_{seed}", {"union": {"of": parts}}, 10e3)
