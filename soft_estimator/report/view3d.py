"""What the interactive 3D view needs, packed for the page: the moments, and plotly.js to draw them.

plotly.js (MIT) comes with the Python package `plotly`; it is put into the page compressed, and the browser unpacks it.
"""

from __future__ import annotations

import base64
import functools
import gzip
import importlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from soft_estimator.report.content import Moment, Plane, ReportContent

MOST_POINTS = 3000  # of a moment: more only hide the body
MOST_TOOL_VERTICES = 5000  # of one tool
MOST_VERTICES = 600_000  # of all moments together, about 5 MB in the page


@functools.lru_cache(maxsize=1)
def plotly_packed() -> str | None:
    """plotly.js, compressed and in base64; None where the package is not installed."""
    try:
        offline = importlib.import_module("plotly.offline")
    except ImportError:
        return None
    return packed(offline.get_plotlyjs().encode("utf-8"))


def packed(data: bytes) -> str:
    """gzip in base64. The time stamp is left out, so that the same data give the same text."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def shown_moments(content: ReportContent) -> list[Moment]:
    """The moments that fit into a page of a reasonable size, evenly chosen, the first and last among them."""
    moments = list(content.moments)
    most = max(2, MOST_VERTICES // max(len(moments[0].vertices_m), 1)) if moments else 0
    if len(moments) <= most:
        return moments
    return [moments[k] for k in np.unique(np.linspace(0, len(moments) - 1, most).round().astype(int))]


def scene_data(content: ReportContent) -> dict[str, Any]:
    """The 3D view as plain values and base64 arrays: lengths in metres, residuals in millimetres.

    Everything is turned so that up is z: the library turns its camera about that axis only.
    """
    turn = upright(content.up)
    moments = [_turned(moment, turn) for moment in shown_moments(content)]
    low, high = bounds_m(moments)
    residual_mm, strain = residual_scale_m(moments) * 1e3, strain_scale(moments)
    return {
        "faces": _array(np.asarray(content.faces).ravel(), np.int32),
        "low": low.tolist(),
        "high": high.tolist(),
        "from": (turn @ eye_direction(content)).tolist(),
        "residual_mm": residual_mm,
        "strain": strain,
        "tools": {name: _array(np.asarray(faces).ravel(), np.int32) for name, (_, faces) in _tools(moments).items()},
        "moments": [_moment(moment, low, high) for moment in moments],
    }


def _tools(moments: Sequence[Moment]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Every tool of the moments that is not too fine for a page, by name."""
    found = {name: mesh for moment in moments for name, mesh in moment.tools.items()}
    return {name: mesh for name, mesh in found.items() if len(mesh[0]) <= MOST_TOOL_VERTICES}


def upright(up: Sequence[float]) -> np.ndarray:
    """A rotation (3, 3) that takes `up` to the z axis."""
    axis = _unit(up)
    across = np.cross(np.eye(3)[int(np.argmin(np.abs(axis)))], axis)
    across /= np.linalg.norm(across)
    return np.stack([across, np.cross(axis, across), axis])


def _turned(moment: Moment, turn: np.ndarray) -> Moment:
    plane = moment.plane
    if plane is not None:
        plane = Plane((turn @ np.asarray(plane.normal, dtype=np.float64)).tolist(), plane.offset_m)
    tools = {name: (vertices @ turn.T, faces) for name, (vertices, faces) in moment.tools.items()}
    vertices, points = moment.vertices_m @ turn.T, moment.points_m @ turn.T
    return replace(moment, vertices_m=vertices, points_m=points, plane=plane, tools=tools)


def _moment(moment: Moment, low: np.ndarray, high: np.ndarray) -> dict[str, Any]:
    n = len(moment.points_m)
    keep = np.unique(np.linspace(0, n - 1, min(n, MOST_POINTS)).astype(int)) if n else np.zeros(0, dtype=int)
    distance = moment.point_residual_m
    return {
        "time_s": float(moment.time_s),
        "vertices": _array(moment.vertices_m, np.float32),
        "residual_mm": None if moment.residual_m is None else _array(1e3 * moment.residual_m, np.float32),
        "strain": None if moment.strain is None else _array(moment.strain, np.float32),
        "points": _array(moment.points_m[keep], np.float32),
        "point_mm": None if distance is None else _array(1e3 * distance[keep], np.float32),
        "plane": None if moment.plane is None else plane_corners(moment.plane, low, high).tolist(),
        "tools": {name: _array(mesh[0], np.float32) for name, mesh in _tools([moment]).items()},
    }


def _array(values: Any, dtype: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


def scene_packed(content: ReportContent) -> str:
    """The 3D view's data, compressed, in base64."""
    return packed(json.dumps(scene_data(content), allow_nan=False).encode("utf-8"))


def bounds_m(moments: Sequence[Moment]) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the box (3,), (3,) [m] round the body in all moments."""
    return (
        np.min([m.vertices_m.min(axis=0) for m in moments], axis=0).astype(float),
        np.max([m.vertices_m.max(axis=0) for m in moments], axis=0).astype(float),
    )


def residual_scale_m(moments: Sequence[Moment]) -> float:
    """The residual [m] at the ends of the colours: few vertices are beyond it."""
    all_m = [np.abs(m.residual_m) for m in moments if m.residual_m is not None]
    finite = np.concatenate(all_m) if all_m else np.zeros(0)
    finite = finite[np.isfinite(finite)]
    return _round_up(max(float(np.percentile(finite, 98)), 1e-6)) if finite.size else 1e-3


def strain_scale(moments: Sequence[Moment]) -> float:
    """The strain at the bright end of the colours."""
    all_strains = [float(np.percentile(m.strain, 99)) for m in moments if m.strain is not None and len(m.strain)]
    return _round_up(max([*all_strains, 1e-4]))


def _round_up(value: float) -> float:
    power = 10.0 ** np.floor(np.log10(value))
    return float(power * min(step for step in (1, 1.5, 2, 3, 5, 7, 10) if step * power >= 0.98 * value))


def plane_corners(plane: Plane, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Four corners (4, 3) [m] of a square of the plane below the box."""
    normal = _unit(plane.normal)
    offset = plane.offset_m / float(np.linalg.norm(plane.normal))
    middle = 0.5 * (low + high)
    foot = middle - (float(normal @ middle) + offset) * normal
    across = np.cross(normal, np.eye(3)[int(np.argmin(np.abs(normal)))])
    across /= np.linalg.norm(across)
    along = np.cross(normal, across)
    half = 0.6 * float(np.linalg.norm(high - low))
    return np.stack([foot + half * (a * across + b * along) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))])


def eye_direction(content: ReportContent) -> np.ndarray:
    """Unit vector (3,) from the body to the viewer: as the content says, else from the side and a little above."""
    up = _unit(content.up)
    if content.view_from is not None and np.linalg.norm(content.view_from) > 0:
        direction = _unit(content.view_from)
        if np.linalg.norm(np.cross(direction, up)) > 0.05:
            return direction
    across = np.cross(up, np.eye(3)[int(np.argmin(np.abs(up)))])
    across /= np.linalg.norm(across)
    return _unit(across + 0.6 * np.cross(up, across) + 0.55 * up)


def _unit(vector: Sequence[float] | np.ndarray) -> np.ndarray:
    v = np.asarray(vector, dtype=np.float64)
    return v / max(float(np.linalg.norm(v)), 1e-300)
