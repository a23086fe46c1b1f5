"""Run a scene from start to end, and put what happened into files."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import yaml

from soft_estimator.backends.interface import Backend
from soft_estimator.geometry.mesh_file import write_ply
from soft_estimator.physics.energy import Balance, balance
from soft_estimator.physics.model import State
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Linearisation, Simulation, StepReport
from soft_estimator.physics.terms.friction import Friction
from soft_estimator.physics.terms.obstacle_contact import ObstacleContact
from soft_estimator.pictures.motion_pictures import Frame, draw_animation, draw_strip, frame_colours
from soft_estimator.pictures.surface_values import equivalent_strain
from soft_estimator.scene.doubts import doubts
from soft_estimator.scene.scene import Scene
from soft_estimator.schema import to_plain
from soft_estimator.studies.passing_through import depths_m, passing_warnings

Progress = Callable[[str, int, int], None]  # stage, done, total

# An animation shows this many moments at most and plays each for this long.
GIF_FRAMES = 60
GIF_FRAME_S = 0.04  # 25 frames a second; browsers slow anything under 0.02 s down
# A gain of energy above this part of what the motion holds is reported; the shipped scenes gain under 0.1 %.
ENERGY_GAIN_NOTICED = 0.01
# Friction of another slip than the step's own, above this part of all that there could be, is reported. A brick that is
# thrown misses 58 % in steps of 2 ms and lands 36 mm off, in 4, 8, 16 substeps 11, 1.8, 0.3 % and 4, 0.4, 0.06 mm.
FRICTION_MISSED_NOTICED = 0.1
LASTING = 5


@dataclass(frozen=True)
class SimulationResult:
    """What happened: states 0..steps and the steps between them.

    Attributes:
        scene: what was simulated. backend: the backend's name.
        time_s: times (S + 1,) [s]. balances: energies, centre of mass and contact force at each of them.
        reports: how each step's solve went, S of them. step_seconds: wall-clock time of each step [s], (S,).
        frames: the surfaces that were kept, by step. tool_work_j: what tools put in until each time, (S + 1,).
        friction_missed: friction of another slip than the steps' own, as a part of all that there could be.
        deepest_m: how deep the body came into each obstacle, (K,).
    """

    scene: Scene
    backend: str
    time_s: np.ndarray
    balances: list[Balance]
    reports: list[StepReport]
    step_seconds: np.ndarray
    frames: dict[int, Frame] = field(default_factory=dict)
    tool_work_j: np.ndarray = field(default_factory=lambda: np.zeros(1))
    friction_missed: float = 0.0
    deepest_m: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def steps(self) -> int:
        return len(self.reports)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was noticed about the scene and about its motion."""
        return (
            *self.scene.warnings,
            *doubts(self.scene),
            *_fallback_warning(self),
            *_friction_warning(self),
            *passing_warnings(self.scene.obstacles, self.deepest_m),
            *_energy_warning(self),
        )


def strip_steps(scene: Scene, steps: int | None = None) -> list[int]:
    """The steps shown in the picture strip, spread evenly over the duration."""
    total = scene.config.time.steps if steps is None else steps
    return _spread(total, scene.config.picture.frames)


def gif_steps(scene: Scene, steps: int | None = None) -> list[int]:
    """The steps shown in the animation: in real time where that gives neither too few nor too many."""
    total = scene.config.time.steps if steps is None else steps
    real_time = round(total * scene.config.time.step_s / GIF_FRAME_S) + 1
    return _spread(total, min(max(real_time, GIF_FRAMES // 2), GIF_FRAMES))


def _spread(total: int, count: int) -> list[int]:
    return sorted({round(x) for x in np.linspace(0, total, count)})


def simulate(
    scene: Scene,
    backend: Backend | None = None,
    progress: Progress | None = None,
    keep: Collection[int] | None = None,
    steps: int | None = None,
) -> SimulationResult:
    """Simulate a scene.

    Args:
        scene: what to simulate. backend: where; the CPU by default.
        progress: told ("simulating", steps done, steps in all) after each step.
        keep: steps whose surface is kept; those of the strip and the animation by default.
        steps: how many; those of the scene's duration by default.
    """
    total = scene.config.time.steps if steps is None else steps
    kept = {*strip_steps(scene, total), *gif_steps(scene, total)} if keep is None else set(keep)
    simulation = Simulation(scene.model, scene.parameters, backend)
    state = simulation.initial_state()
    times, balances, reports, seconds = [0.0], [_finite_balance(simulation, state, 0)], [], []
    frames = {0: _frame(simulation, state)} if 0 in kept else {}
    tools, work = [term for term in simulation.terms if isinstance(term, ObstacleContact | Friction)], [0.0]
    missed, deepest_m = np.zeros(2), np.zeros(len(scene.obstacles))
    for step in range(1, total + 1):
        clock, before = perf_counter(), state
        try:
            state, report, lin = simulation.step_keeping(state)
        except SolverError as error:
            raise SolverError(f"step {step} of {total} (t = {step * scene.config.time.step_s:g} s): {error}") from error
        seconds.append(perf_counter() - clock)
        times.append(step * scene.config.time.step_s)
        balances.append(_finite_balance(simulation, state, step))
        reports.append(report)
        work.append(work[-1] + sum(tool.work_j(before, state) for tool in tools))
        missed += _missed_n(simulation, state, lin)
        deepest_m = np.maximum(deepest_m, _depths_m(simulation, scene, before, state))
        if step in kept:
            frames[step] = _frame(simulation, state)
        if progress is not None:
            progress("simulating", step, total)
    return SimulationResult(
        scene,
        simulation.backend.name,
        np.array(times),
        balances,
        reports,
        np.array(seconds),
        frames,
        np.array(work),
        float(missed[0] / missed[1]) if missed[1] > 0.0 else 0.0,
        deepest_m,
    )


def _depths_m(simulation: Simulation, scene: Scene, before: State, after: State) -> np.ndarray:
    """How deep a step takes the surface into each obstacle at most [m], (K,)."""
    if not scene.obstacles:
        return np.zeros(0)
    start, end = (simulation.device.host(simulation.device.surface_points(state.u)) for state in (before, after))
    return depths_m(scene.obstacles, start, end, (before.time_s, after.time_s))


def _missed_n(simulation: Simulation, after: State, lin: Linearisation) -> np.ndarray:
    """Friction that a step missed, and all that there could be [N], (2,)."""
    increment, out = after.u - lin.stage.state.u, np.zeros(2)
    for term, at in zip(simulation.terms, lin.at):
        if isinstance(term, Friction):
            out += term.missed_n(lin.stage, at, increment)
    return out


def _finite_balance(simulation: Simulation, state: State, step: int) -> Balance:
    with np.errstate(over="ignore", invalid="ignore"):
        made = balance(simulation, state)
    if not np.isfinite(made.total_j):
        raise SolverError(f"after step {step} the energy is not finite: the motion has diverged; use a smaller step_s")
    return made


def _fallback_warning(result: SimulationResult) -> list[str]:
    """A line where steps were too large for the motion."""
    parts = [report.retaken_parts for report in result.reports if report.retaken_parts]
    if not parts:
        return []
    fallbacks = sum(report.fell_back for report in result.reports)
    damped = f", {fallbacks} of them by backward Euler, which damps" if fallbacks else ""
    return [
        f"{len(parts)} of {len(result.reports)} steps were too large for the motion and were taken again in up to "
        f"{max(parts)} parts{damped}; use a smaller time.step_s"
    ]


def _friction_warning(result: SimulationResult) -> list[str]:
    """A line where what rubs slipped otherwise than its steps foresaw."""
    if result.friction_missed <= FRICTION_MISSED_NOTICED:
        return []
    return [
        f"friction is off by {100 * result.friction_missed:.0f} % of what it could be: points stick and slip anew "
        "within a step; give contact.friction (or that of the obstacle) substeps: 8, or use a smaller time.step_s"
    ]


def lasting_gain_j(total_j: np.ndarray) -> float:
    """The most energy above that of the start that some LASTING states in a row hold [J]; total_j: of all, (S + 1,).

    A point that goes under an obstacle within a step holds energy at its end, which the next steps take out again.
    """
    rows = np.lib.stride_tricks.sliding_window_view(total_j, min(LASTING, len(total_j)))
    return max(float(rows.min(axis=1).max() - total_j[0]), 0.0)


def _energy_warning(result: SimulationResult) -> list[str]:
    """A line where energy came from nowhere: an unstable time scheme keeps all numbers finite for long."""
    if any(fixed.path for fixed in result.scene.config.fixed):
        return []  # what is held and led gets work that is known less well
    total = np.array([b.total_j for b in result.balances]) - result.tool_work_j
    gained, moved = lasting_gain_j(total), max(b.kinetic_j + b.elastic_j for b in result.balances)
    if gained <= ENERGY_GAIN_NOTICED * moved:
        return []
    return [
        f"{gained:.2g} J of energy came from nowhere ({moved:.2g} J are in the motion at most): the time stepping is "
        "unstable; use a smaller time.step_s, or time.integrator hht with hht_alpha -0.1"
    ]


def _frame(simulation: Simulation, state: State) -> Frame:
    body = simulation.model.body
    u = simulation.backend.to_host(state.u).astype(np.float64)
    strain = np.maximum(body.surface.interpolate(equivalent_strain(body, u)), 0.0)
    return Frame(state.time_s, body.surface_positions_m(u).astype(np.float32), strain.astype(np.float32))


def write_result(
    result: SimulationResult,
    out_dir: Path | str,
    meshes: bool = False,
    gif: bool = True,
    strip: bool = True,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write summary.json, scene.yaml and, as asked, strip.png, animation.gif and meshes/; returns the summary."""
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    files = ["summary.json", "scene.yaml"]
    config = result.scene.config
    (out / "scene.yaml").write_text(
        "# The scene as it was simulated, every default filled in.\n"
        + yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True),
        encoding="utf-8",
    )
    if strip:
        draw_strip(out / "strip.png", result.scene, _chosen(result, strip_steps(result.scene, result.steps)), progress)
        files.append("strip.png")
    if gif:
        frames = _chosen(result, gif_steps(result.scene, result.steps))
        draw_animation(out / "animation.gif", result.scene, frames, GIF_FRAME_S, progress)
        files.append("animation.gif")
    if meshes:
        files += _write_meshes(result, out / "meshes")
    summary = summarise(result)
    summary["files"] = files
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def _chosen(result: SimulationResult, steps: list[int]) -> list[Frame]:
    frames = [result.frames[step] for step in steps if step in result.frames]
    if not frames:
        raise ValueError("no surface was kept to draw; pass keep=None to simulate, or strip=False and gif=False here")
    return frames


def _write_meshes(result: SimulationResult, folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    colours = frame_colours(result.scene, list(result.frames.values()))
    names = []
    for (step, frame), colour in zip(sorted(result.frames.items()), colours, strict=True):
        name = f"{folder.name}/step_{step:05d}.ply"
        write_ply(folder.parent / name, frame.vertices_m, result.scene.body.surface.faces, np.rint(255 * colour))
        names.append(name)
    return names


def summarise(result: SimulationResult) -> dict[str, Any]:
    """Everything worth knowing about a run as plain numbers; the unit ends each key's name."""
    scene, body, config = result.scene, result.scene.body, result.scene.config
    iterations = [report.solve.iterations for report in result.reports]
    return {
        "scene": config.name,
        "backend": result.backend,
        "precision": config.solver.precision,
        "warnings": list(result.warnings),
        "nodes": body.node_count,
        "cells": body.cell_count,
        "surface_points": len(body.surface.area_m2),
        "spacing_m": body.grid.spacing_m,
        "volume_m3": body.volume_m3,
        "mass_kg": scene.mass_kg,
        "steps": result.steps,
        "step_s": config.time.step_s,
        "simulated_s": float(result.time_s[-1]),
        "cg_iterations_mean": float(np.mean(iterations)),
        "cg_iterations_max": max(iterations),
        "direct_solves": sum(report.solve.rescued for report in result.reports),
        "retaken_steps": sum(report.retaken_parts > 0 for report in result.reports),
        "fallback_steps": sum(report.fell_back for report in result.reports),
        "friction_missed": result.friction_missed,
        **_newton_rounds(result),
        **_timing(result),
        "series": _series(result),
        "cg_iterations": iterations,
        "cg_relative_residual": [report.solve.relative_residual for report in result.reports],
    }


def _newton_rounds(result: SimulationResult) -> dict[str, Any]:
    """How many rounds the steps took, and how many did not converge, where steps take rounds."""
    if result.scene.model.solver.rounds == 1:
        return {}
    rounds = [report.rounds for report in result.reports]
    return {
        "newton_rounds_mean": float(np.mean(rounds)),
        "newton_rounds_max": max(rounds),
        "steps_not_converged": sum(not report.converged for report in result.reports),
    }


def _timing(result: SimulationResult) -> dict[str, Any]:
    """Times per step; the first step, which may load or compile code, is left out of the statistics."""
    later = result.reports[1:] or result.reports
    seconds = result.step_seconds[1:] if result.steps > 1 else result.step_seconds
    stages = {
        f"{name}_ms": 1e3 * float(np.mean([report.seconds[name] for report in later])) for name in later[0].seconds
    }
    return {
        "wall_s": float(result.step_seconds.sum()),
        "first_step_ms": 1e3 * float(result.step_seconds[0]),
        "step_mean_ms": 1e3 * float(seconds.mean()),
        "step_median_ms": 1e3 * float(np.median(seconds)),
        "step_max_ms": 1e3 * float(seconds.max()),
        "stage_mean_ms": {name.removesuffix("_ms"): value for name, value in stages.items()},
        "step_ms": [1e3 * s for s in result.step_seconds.tolist()],
    }


def _series(result: SimulationResult) -> dict[str, list[Any]]:
    """Time series over states 0..steps."""
    series: dict[str, list[Any]] = {"time_s": result.time_s.tolist()}
    for name in ("kinetic_j", "elastic_j", "gravity_j", "contact_j", "load_j", "total_j"):
        series[name] = [getattr(b, name) for b in result.balances]
    series["centre_of_mass_m"] = [b.centre_of_mass_m.tolist() for b in result.balances]
    series["contact_force_n"] = [b.contact_force_n.tolist() for b in result.balances]
    return series
