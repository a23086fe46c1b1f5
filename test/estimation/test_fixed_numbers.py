"""Columns of what is held fixed, each compared with the thing itself made a little wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_ball import ball

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fixed_numbers import Source, sources_of, window_sources
from soft_estimator.estimation.inspection import Inspection, inspect_fit
from soft_estimator.estimation.motion import motion
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load
from soft_estimator.studies.estimate_setup import observe_truth

KNOWN = KnownToConfig()
EXACT = {"relative_tolerance": 1e-10}


@cache
def scene(larger: float = 0.0) -> Scene:
    """The ball over its first touch; larger by a part of itself, with cells that grow along: the same grid of nodes."""
    size = 1 + larger
    body = {
        "shape": {"sphere": {"radius_m": 0.05 * size, "center_m": [0, 0.075, 0]}},
        "spacing_m": 0.014 * size,
        "align": "centre",
    }
    data = ball(body=body, solver=EXACT, contact={**ball()["contact"], "normal": [0.1, 1, 0.05]})
    return build_scene(load(SceneConfig, data, "scene"), Path())


@cache
def problem() -> Problem:
    made = scene()
    frames = observe_truth(made, carry_field(made.body), choose_backend("cpu"), budget=60).frames
    # A deviation of a millimetre instead of the 10 µm of exact points: residuals then are of order one.
    frames = tuple(replace(f, std_m=np.full(len(f.std_m), 1e-3)) for f in frames)
    return Problem(made.model, make_variables(made.parameters, ["youngs_modulus_pa"]), list(frames), known=KNOWN)


@cache
def inspection() -> Inspection:
    p = problem()
    return inspect_fit(p, p.variables.start(), sources_of(p.model, p.variables, scene().parameters, KNOWN))


def column(name: str) -> np.ndarray:
    names = [source.name for source in inspection().sources]
    return inspection().columns[names.index(name)]


def residuals(frames: list[Any] | None = None, larger: float = 0.0) -> np.ndarray:
    made = scene(larger)
    there = Problem(made.model, make_variables(made.parameters, ["youngs_modulus_pa"]), frames or problem().frames)
    return there.evaluate(there.variables.start()).residual


def close(found: np.ndarray, expected: np.ndarray, part: float) -> None:
    """Within a part of the column's size: a last look solves its tangents to 1e-3 a step, 24 steps of them."""
    assert np.linalg.norm(expected) > 0
    assert np.linalg.norm(found - expected) < part * np.linalg.norm(expected)


def test_everything_that_is_not_estimated_has_columns() -> None:
    names = {source.name for source in inspection().sources}
    # mass damping is zero in this scene: it has no relative error
    left_out = {"youngs_modulus_pa", "mass_damping_per_s"}
    given = {name for name in scene().parameters if getattr(KNOWN, name) > 0}
    assert len(given) > 10 and names >= given - left_out and not names & left_out
    assert {"shape_offset_m", "shape_scale", "camera_position_m", "camera_rotation_rad", "time_offset_s"} <= names
    p = problem()
    more = make_variables(scene().parameters, ["youngs_modulus_pa", "density_kg_m3", "gravity_m_s2[1]"])
    fewer = {s.name: len(s.directions) for s in sources_of(p.model, more, scene().parameters, KNOWN)}
    assert "density_kg_m3" not in fewer and fewer["gravity_m_s2"] == 2  # estimating one takes it off the list


@pytest.mark.parametrize("name", ["density_kg_m3", "poissons_ratio", "plane_offset_m", "plane_normal"])
def test_a_parameters_column_is_that_of_the_tangent_times_its_deviation(name: str) -> None:
    p = problem()
    one = Problem(p.model, make_variables(scene().parameters, [name]), p.frames)
    slope = 1.0 if name != "poissons_ratio" else 0.4 * (1 - 0.4 / 0.5)  # dν/dθ of θ = log(ν/(½ - ν))
    expected = one.evaluate(one.variables.start(), jacobian=True).known_jacobian * getattr(KNOWN, name) / slope
    close(column(name), expected, 3e-2)  # 2 % were seen: more digits buy an interval nothing


def test_the_camera_moves_the_points() -> None:
    step = 1e-5  # metres; the distance field is smooth over that
    for axis in range(3):
        moved = [replace(f, points_m=f.points_m + step * np.eye(3)[axis]) for f in problem().frames]
        expected = (residuals(moved) - residuals()) / step * KNOWN.camera_position_m
        close(column("camera_position_m")[:, axis], expected, 1e-2)


def test_the_camera_turns_the_points_about_the_body() -> None:
    p, made, step = problem(), scene(), 1e-4
    turned = []
    for frame, u, _ in motion(p, p.variables.start(), tangent=False):
        centre = made.body.node_volume_m3 @ (made.body.node_position_m + u) / made.body.volume_m3
        points = (frame.points_m - centre) @ rotation_matrix(np.array([0, 0, step])).T + centre
        turned.append(replace(frame, points_m=points))
    expected = (residuals(turned) - residuals()) / step * KNOWN.camera_rotation_rad
    # A ball hardly shows a turn; what is left of the column is small against the rounding of its matches.
    got = column("camera_rotation_rad")[:, 2]
    assert np.abs(got - expected).max() < 0.02 * np.abs(column("camera_position_m")).max()


def test_stamps_that_are_late_show_the_body_further_on() -> None:
    """A stamp later by δ lets the model move on by v δ."""
    step = 2e-4
    late = [replace(f, time_s=f.time_s + step) for f in problem().frames]
    early = [replace(f, time_s=f.time_s - step) for f in problem().frames]
    expected = (residuals(late) - residuals(early)) / (2 * step)
    # Velocity at a state against that of the chords on both sides: second order in the step, a few per cent at impact.
    close(column("time_offset_s")[:, 0], expected * KNOWN.time_offset_s, 0.06)
    jitter = column("stamp_jitter_s") / KNOWN.stamp_jitter_s
    np.testing.assert_allclose(jitter, column("time_offset_s") / KNOWN.time_offset_s)
    times = np.repeat([f.time_s for f in problem().frames], [len(f.points_m) for f in problem().frames])
    np.testing.assert_allclose(column("time_rate")[:, 0] / KNOWN.time_rate, times * jitter[:, 0])


def test_a_larger_body_moves_as_its_scaled_numbers_say() -> None:
    """The scene built anew with a larger ball, cells and all: dimensions alone must give its motion."""
    step = 1e-4
    expected = (residuals(larger=step) - residuals(larger=-step)) / (2 * step) * KNOWN.shape_scale
    close(column("shape_scale")[:, 0], expected, 1e-2)


def test_an_offset_lies_outside() -> None:
    np.testing.assert_allclose(column("shape_offset_m"), -KNOWN.shape_offset_m / 1e-3)


def test_patches_are_parts_of_the_body_not_of_space() -> None:
    found = inspection().patch
    assert (found >= 0).all() and 4 <= len(np.unique(found)) <= 24


def test_what_is_kept_of_other_values_is_what_they_would_make() -> None:
    """One number after another is another one: its source is made anew, and that of a larger body with each."""
    made, kept = scene(), dict[str, tuple[bytes, Source | None]]()
    variables = make_variables(made.parameters, ["youngs_modulus_pa", "plane_normal[0]"])
    changed = [{}, {"poissons_ratio": 0.3}, {"plane_normal": np.array([0.0, 1.0, 0.1])}, {"plane_offset_m": 0.01}, {}]
    for values in changed:
        parameters = made.parameters.replace(**values)
        anew = window_sources(made.model, variables, parameters, KNOWN)
        again = window_sources(made.model, variables, parameters, KNOWN, kept)
        assert [source.name for source in again] == [source.name for source in anew]
        for one, other in zip(anew, again, strict=True):
            for a, b in zip(one.directions, other.directions, strict=True):
                assert a.values.keys() == b.values.keys()
                assert all(np.array_equal(a.values[name], b.values[name]) for name in a.values), (one.name, values)
