"""Does a fit feel the forces that a tool's sensor read?

Points outnumber readings by hundreds to one, and a robust loss takes readings that do not fit for outliers: a sensor
that nobody tared, or whose sign is the other way, bends the answer without a word from the points. So what the fit
leaves of the forces is judged by itself, once everything that is held fixed is as wrong as it may be. Moments are not:
a tool that the scene takes for smooth turns its sensor by its friction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.explained import explained_residual
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.inspection import Inspection
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.physics.model import Model

FORCE = "force"
# Root mean square of what is left, in deviations of the sensor, and over the force itself; both must be exceeded. Right
# sensors left 0.8 to 0.9 deviations and 0.01 to 0.03 of the force; one with the other sign 17 and 0.4, one that read
# 2 N too much of 1.4 N 41 and 1.0 (`test_tool_wrench.py`). Grid and step change a force by a few per cent.
DEVIATIONS, SHARE = 3.0, 0.25
# What a sensor reads on average while its tool touches nothing, over the largest force of the touch, and of how
# many readings. A tenth moves E by about as much.
IDLE_SHARE, LEAST_IDLE = 0.1, 3
_NO_TOUCH = 0.02  # of the largest force that a fit predicts: a contact presses a little before it is reached
_NOT_IDLE: Mapping[int, np.ndarray] = {}


def with_felt_force(
    verdict: FitVerdict, problem: Problem, at: Evaluation, inspection: Inspection, noise_scale: float
) -> FitVerdict:
    """The verdict on a fit whose tools may be pressed by other forces than their sensors read."""
    felt = [(k, frame) for k, frame in enumerate(problem.frames) if isinstance(frame, WrenchFrame)]
    if not verdict.fits or not felt:
        return verdict
    columns = [column for source, column in zip(inspection.sources, inspection.columns) if not source.each_frame]
    left = explained_residual(problem, at, columns, noise_scale**2)
    rows = np.array([np.flatnonzero(at.frame == k)[:3] for k, _ in felt])
    return with_forces_left(verdict, [frame for _, frame in felt], at.residual[rows], left[rows], problem.model)


def with_forces_left(
    verdict: FitVerdict,
    felt: Sequence[WrenchFrame],
    residual: np.ndarray,
    left: np.ndarray,
    model: Model,
    idle_n: Mapping[int, np.ndarray] = _NOT_IDLE,
) -> FitVerdict:
    """The same, of readings whose forces are off by `residual` (F, 3) deviations, `left` of it once everything that is
    held fixed is as wrong as it may be.

    idle_n: what else the sensors of tools read while these were clear of the body, (n, 3) each.
    """
    figures = dict(verdict.figures)
    tools = np.array([frame.tool for frame in felt])
    for tool in sorted(set(tools.tolist())):
        rows = np.flatnonzero(tools == tool).tolist()
        read_n, std_n = (np.array([getattr(felt[k], name)[:3] for k in rows]) for name in ("wrench", "std"))
        deviations, off_n = float(np.sqrt(np.mean(left[rows] ** 2))), _size(left[rows] * std_n)
        predicted_n = read_n + residual[rows] * std_n
        touches = np.linalg.norm(predicted_n, axis=1) > _NO_TOUCH * np.linalg.norm(predicted_n, axis=1).max()
        idle = np.concatenate([(read_n - predicted_n)[~touches], idle_n.get(tool, np.zeros((0, 3)))])
        if reason := untared(tool, read_n[touches], idle, float(std_n.max())):
            return FitVerdict(False, reason, FORCE, figures)
        force_n = max(_size(read_n), _size(predicted_n))
        share = off_n / force_n if force_n > 0 else 0.0
        figures[FORCE] = max(figures.get(FORCE, 0.0), share)
        # Friction, which is not predicted, is at most μ times as large.
        if deviations > DEVIATIONS and share > SHARE + (model.obstacles[tool].friction or 0.0):
            reason = (
                f"the force on obstacles[{tool}] is found {off_n:.2g} N off the {_size(read_n):.2g} N that were read: "
                "tare the sensor, and look at the sign, the unit and the frame of its readings"
            )
            return FitVerdict(False, reason, FORCE, figures)
    return replace(verdict, figures=figures)


def untared(tool: int, read_n: np.ndarray, idle_n: np.ndarray, std_n: float) -> str:
    """Why a sensor was not tared that read idle_n (n, 3) while its tool touched nothing, and read_n (F, 3) while it
    did, each reading to std_n; "" where it was."""
    if len(idle_n) < LEAST_IDLE or not len(read_n):
        return ""
    mean_n = idle_n.mean(axis=0)
    size_n = float(np.linalg.norm(mean_n))
    touch_n = float(np.max(np.linalg.norm(read_n - mean_n, axis=1)))
    if size_n <= max(DEVIATIONS * std_n, IDLE_SHARE * touch_n):
        return ""
    return (
        f"the sensor of obstacles[{tool}] reads {size_n:.2g} N while that touches nothing: tare it, or look at its path"
    )


def is_by_force(verdict: FitVerdict) -> bool:
    """Whether it was the forces that did not fit."""
    return verdict.cause == FORCE


def _size(force_n: np.ndarray) -> float:
    """Root mean square of the lengths of forces (F, 3)."""
    return float(np.sqrt((force_n**2).sum(axis=1).mean()))
