"""Symmetries of a half-seen body: a view of it is also a view from where the symmetry takes the camera."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import map_coordinates
from scipy.optimize import minimize

from soft_estimator.perception.fusion import Field

Motion = tuple[np.ndarray, np.ndarray]  # x ↦ rotation · x + shift, in the body frame

_UNKNOWN_COST = 0.15  # of the truncation: landing in unseen space is allowed but explains nothing
_TURNS = 12  # turns tried in the search for an axis
_VIEWS = 24  # views a revolution makes of one


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A symmetry that fits.

    Attributes:
        kind: revolution, half_turn or mirror.
        parameters: axis position (x, y) [m], or (angle [rad], offset [m]) of the mirror's vertical plane.
        misfit_m: mean distance [m] by which mapped surface points contradict what was seen.
        motions: x ↦ Q x + b in the body frame, the identity left out.
    """

    kind: str
    parameters: np.ndarray
    misfit_m: float
    motions: list[Motion]

    @property
    def described(self) -> str:
        """One line for a reader."""
        return f"{self.kind} at {np.round(self.parameters, 4).tolist()}, misfit {1e3 * self.misfit_m:.1f} mm"


def find_symmetry(field: Field, points_m: np.ndarray, kind: str) -> Symmetry:
    """The axis or plane that maps seen surface points (n, 3) [m] onto seen surface or unseen space, never into free
    space."""
    known = field.distance_m
    cost_field = np.where(np.isnan(known), _UNKNOWN_COST * field.truncation_m, np.abs(known))
    points = points_m[:: max(1, len(points_m) // 400)]

    def misfit(parameters: np.ndarray) -> float:
        motions = _motions(kind, parameters, _TURNS)
        mapped = np.concatenate([points @ q.T + b for q, b in motions])
        place = ((mapped - field.origin_m) / field.spacing_m).T
        values = map_coordinates(cost_field, place, order=1, mode="constant", cval=field.truncation_m)
        return float(values.mean())

    best = min(_tries(kind, points), key=misfit)
    fitted = _polish(misfit, best, field.spacing_m)
    return Symmetry(kind, fitted, misfit(fitted), _motions(kind, fitted, _VIEWS))


def _polish(misfit: Callable[[np.ndarray], float], start: np.ndarray, spacing_m: float) -> np.ndarray:
    simplex = np.array([start, start + (2 * spacing_m) * np.eye(2)[0], start + (2 * spacing_m) * np.eye(2)[1]])
    options = {"initial_simplex": simplex, "xatol": 1e-4, "fatol": 1e-7, "maxiter": 80}
    return np.asarray(minimize(misfit, start, method="Nelder-Mead", options=options).x)


def _tries(kind: str, points: np.ndarray) -> list[np.ndarray]:
    low, high = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
    middle, half = 0.5 * (low + high), 0.5 * float((high - low).max())
    steps = np.linspace(-1.0, 1.0, 15) * half
    if kind != "mirror":
        return [middle + np.array((a, b)) for a in steps for b in steps]
    tries = []
    for angle in np.linspace(0.0, np.pi, 36, endpoint=False):
        centre = np.array([np.cos(angle), np.sin(angle)]) @ middle
        tries += [np.array([angle, centre + offset]) for offset in steps]
    return tries


def _motions(kind: str, parameters: np.ndarray, turns: int) -> list[Motion]:
    if kind == "mirror":
        normal = np.array([np.cos(parameters[0]), np.sin(parameters[0]), 0.0])
        return [(np.eye(3) - 2 * np.outer(normal, normal), 2 * parameters[1] * normal)]
    count = 2 if kind == "half_turn" else turns
    axis, motions = np.append(parameters, 0.0), []
    for angle in 2 * np.pi * np.arange(1, count) / count:
        c, s = np.cos(angle), np.sin(angle)
        turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        motions.append((turn, axis - turn @ axis))
    return motions
