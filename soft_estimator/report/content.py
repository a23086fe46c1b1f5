"""What a report shows, as plain values: it does not matter whether a fit, a replay or the live graph fills it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class ReportParameter:
    """One estimated parameter.

    Attributes:
        name: as in the scene file, e.g. "youngs_modulus_pa". unit: SI unit of the numbers, "" for none.
        value, std, low, high: the answer, its standard deviation and 95 % interval.
        guess, truth: where the search began; what it should have found. None where not known.
        observable: whether the data could tell it. reason: why not, in plain words, else "".
        mostly: what its interval mostly comes from, where that is not noise.
    """

    name: str
    unit: str
    value: float
    std: float
    low: float
    high: float
    guess: float | None = None
    truth: float | None = None
    observable: bool = True
    reason: str = ""
    mostly: str = ""


@dataclass(frozen=True, eq=False)
class Series:
    """A curve over time, frames or iterations.

    Attributes:
        name: of a parameter, or a title. unit: SI unit of the values.
        x: (n,), rising. value: (n,); NaN leaves a gap. low, high: the 95 % band, (n,), or None.
        x_label: what x is. in_seconds: whether x is the time of the moments, which the slider then marks.
        truth: a level to compare with. log: draw the values on a logarithmic scale.
    """

    name: str
    unit: str
    x: np.ndarray
    value: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    x_label: str = "time [s]"
    in_seconds: bool = True
    truth: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Plane:
    """The contact plane normal . x + offset_m = 0, the normal (3,) of unit length and pointing to the body."""

    normal: Sequence[float]
    offset_m: float


@dataclass(frozen=True, eq=False)
class Moment:
    """The body and what was seen of it at one time.

    Attributes:
        time_s: [s]. vertices_m: the twin's surface (V, 3) [m].
        residual_m: mean signed distance of the points near each vertex (V,) [m], outside positive, NaN where none is.
        strain: equivalent strain at each vertex (V,), or None.
        points_m: observed points (n, 3) [m]. point_residual_m: their signed distances (n,) [m], or None.
        plane: the contact plane as estimated then, or None.
        tools: surfaces of the tools by name, vertices (V, 3) [m] and faces (T, 3).
    """

    time_s: float
    vertices_m: np.ndarray
    residual_m: np.ndarray | None = None
    strain: np.ndarray | None = None
    points_m: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    point_residual_m: np.ndarray | None = None
    plane: Plane | None = None
    tools: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Everything a report shows. Empty parts are left out of the page.

    Attributes:
        title: name of the scene or recording. subtitle: one sentence of what was done.
        parameters: the answers. warnings: what a reader must know, in plain words.
        series: parameters over time, with bands. cost: the cost, or None. residual: how far points lie off, or None.
        faces: triangles (F, 3) of every moment's vertices. moments: a few, in order of time.
        timing: (what, seconds). facts: (what, value) such as frames, points, noise.
        configuration: the resolved scene as YAML. up: the direction that is up in pictures (3,).
        view_from: from where the body is seen (3,), a direction; None leaves it to the page.
    """

    title: str
    subtitle: str = ""
    parameters: Sequence[ReportParameter] = ()
    warnings: Sequence[str] = ()
    series: Sequence[Series] = ()
    cost: Series | None = None
    residual: Series | None = None
    faces: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int32))
    moments: Sequence[Moment] = ()
    timing: Sequence[tuple[str, float]] = ()
    facts: Sequence[tuple[str, str]] = ()
    configuration: str = ""
    up: Sequence[float] = (0.0, 0.0, 1.0)
    view_from: Sequence[float] | None = None
