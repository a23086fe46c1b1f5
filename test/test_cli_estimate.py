"""`estimate` and `check-gradient` as a user meets them: files, JSON, one-line errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from soft_estimator.cli import main
from soft_estimator.commands.estimate import _off
from soft_estimator.report.of_estimate import warnings_of_summary

ROOT = Path(__file__).resolve().parent.parent


def write_scene(folder: Path, **changes: Any) -> str:
    scene: dict[str, Any] = {
        "name": "tiny",
        "body": {"shape": {"box": {"size_m": [0.06, 0.02, 0.02]}}, "spacing_m": "1 cm"},
        "material": {"youngs_modulus_pa": "10 kPa"},
        "fixed": [{"low_m": [-0.04, -0.02, -0.02], "high_m": [-0.025, 0.02, 0.02]}],
        "time": {"step_s": 0.01, "duration_s": 0.08},
        "observe": {
            "cameras": [{"eye_m": [0, 0.15, 0.3], "target_m": [0, 0, 0], "horizontal_fov_rad": 0.4}],
            "every_steps": 2,
            "points_per_frame": 300,
        },
        "estimate": {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "15 kPa"}},
    }
    path = folder / "scene.yaml"
    path.write_text(yaml.safe_dump({**scene, **changes}))
    return str(path)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "soft_estimator", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ},
    )


def write_frames(folder: Path, points: np.ndarray, stamps: str = "a.npy,0.04\n") -> str:
    folder.mkdir()
    np.save(folder / "a.npy", points)
    (folder / "stamps.csv").write_text(stamps)
    return str(folder)


@pytest.mark.slow
def test_an_estimate_becomes_files_and_json(tmp_path: Path) -> None:
    out = tmp_path / "out"
    # Recorded frames are taken for a real body's, whose grid and step are none and whose pose is refined: here they are
    # the scene's own.
    guess = {"youngs_modulus_pa": "15 kPa"}
    exact = dict.fromkeys(("translation_m", "rotation_rad", "camera_position_m", "camera_rotation_rad"), 0)
    estimate = {"parameters": ["youngs_modulus_pa"], "guess": guess, "grid_error_nodes": 0, "known_to": exact}
    scene = write_scene(tmp_path, estimate=estimate)
    done = command("estimate", scene, "--out", str(out), "--json", "--backend", "cpu", "--save-frames", "--progress")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)  # nothing but the summary stands there
    assert summary == json.loads((out / "estimate.json").read_text())
    assert summary["parameters"][0]["error_relative"] == pytest.approx(0, abs=0.05)
    assert {p.name for p in out.iterdir()} == {
        "estimate.json", "scene.yaml", "rest_shape.npz", "report.html", "cost.png", "parameters.png", "residuals.png",
        "frames",
    }  # fmt: skip
    assert all((out / name).stat().st_size > 0 for name in summary["files"])
    # The recorded frames of one run are the input of the next, with one that is upside down in time.
    with (out / "frames" / "stamps.csv").open("a") as stamps:
        stamps.write("00000.npy,0.001\n")
    again = tmp_path / "again"
    code = main(["estimate", scene, "--frames", str(out / "frames"), "--out", str(again), "--no-plots"])
    assert code == 0
    repeated = json.loads((again / "estimate.json").read_text())
    assert repeated["parameters"][0]["value"] == summary["parameters"][0]["value"]
    assert repeated["parameters"][0]["truth"] is None
    assert repeated["frames"]["set_aside_reasons"] == {"stamped out of order": 1}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["levenberg_marquardt", "lbfgs", "barzilai_borwein"])
def test_a_search_that_ends_at_its_limit_says_what_to_raise(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One iteration from 15 kPa is not enough for 10; the command, its JSON and the report tell so."""
    guess = {"youngs_modulus_pa": "15 kPa"}
    short = {"parameters": ["youngs_modulus_pa"], "guess": guess, "max_iterations": 1, "grid_error_nodes": 0}
    scene, out = write_scene(tmp_path, estimate={**short, "method": method}), tmp_path / "out"
    assert main(["estimate", scene, "--backend", "cpu", "--no-plots", "--out", str(out)]) == 0
    assert "reached 1 iterations on all frames: raise estimate.max_iterations" in capsys.readouterr().out
    summary = json.loads((out / "estimate.json").read_text())
    assert summary["reached_limit"] is True and summary["starts"][0]["reached_limit"] is True
    assert "The search ended early: reached 1 iterations." in warnings_of_summary(summary)


def test_check_gradient_prints_a_table_and_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = write_scene(tmp_path)
    done = command("check-gradient", scene, "--steps", "4", "--points", "100", "--json", "--backend", "cpu")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["within_tolerance"] is True
    (row,) = summary["rows"]
    assert row["label"] == "youngs_modulus_pa" and abs(row["adjoint"]) > 1
    assert row["adjoint"] == pytest.approx(row["differences"], rel=1e-5)
    # No arithmetic of sixteen digits meets 1e-17.
    code = main(
        ["check-gradient", scene, "--steps", "4", "--points", "100", "--tolerance", "1e-17", "--backend", "cpu"]
    )
    printed = capsys.readouterr()
    assert code == 1 and "youngs_modulus_pa off by more than 1e-17" in printed.err
    assert "adjoint" in printed.out and "beyond the tolerance" in printed.out


def test_check_gradient_says_where_there_is_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plane a metre off the box has no effect on the first frames: exp(-sharpness · 1 m) of a force is no number."""
    scene = write_scene(
        tmp_path,
        contact={"normal": [0, 1, 0], "offset_m": 1.0},
        estimate={"parameters": ["youngs_modulus_pa", "plane_offset_m"], "guess": {"youngs_modulus_pa": 1.5e4}},
    )
    few = ["--steps", "4", "--points", "100", "--backend", "cpu"]
    assert main(["check-gradient", scene, *few, "--json"]) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert summary["nothing_to_compare"] == ["plane_offset_m"] and summary["within_tolerance"]
    assert [row["shown"] for row in summary["rows"]] == [True, False]
    assert "nothing to compare for plane_offset_m" in printed.err
    alone = write_scene(
        tmp_path,
        contact={"normal": [0, 1, 0], "offset_m": 1.0},
        estimate={"parameters": ["plane_offset_m"], "guess": {"plane_offset_m": 1.0}},
    )
    assert main(["check-gradient", alone, *few]) == 1
    printed = capsys.readouterr()
    assert "nothing to compare" in printed.out and "error: nothing to compare for plane_offset_m" in printed.err


@pytest.mark.parametrize(
    ("points", "stamps", "expected"),
    [
        (np.zeros((0, 3)), "a.npy,0.04\n", "has no usable frame (1 without points)"),
        (np.full((5, 3), np.nan), "a.npy,0.04\n", "has no usable frame (1 with nothing but NaN)"),
        (np.full((5, 3), 10.0), "a.npy,0.04\n", "has no usable frame (1 with every point over 0.1"),
        (np.zeros((5, 3)), "a.npy,1700000000.5\n", "has no usable frame (1 after the watched 0.08 s)"),
        (np.zeros((5, 3)), "a.npy,soon\n", "has no usable frame (1 without a stamp)"),
        (np.zeros((5, 3)), "b.npy,0.04\n", "has no usable frame (1 missing from the folder)"),
        (np.zeros((5, 2)), "a.npy,0.04\n", "has no usable frame (1 unreadable)"),
    ],
)
def test_frames_that_cannot_be_used_are_one_line_and_exit_code_2(
    points: np.ndarray, stamps: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = write_frames(tmp_path / "frames", points, stamps)
    out = tmp_path / "out"
    code = main(["estimate", write_scene(tmp_path), "--frames", frames, "--out", str(out), "--backend", "cpu"])
    printed = capsys.readouterr()
    assert code == 2 and expected in printed.err and printed.err.count("\n") == 1
    assert printed.out == "" and not out.exists()


@pytest.mark.parametrize(
    ("changes", "arguments", "expected"),
    [
        (
            {"estimate": {"parameters": ["youngs_modulus"]}},
            [],
            "estimate.parameters[0] = 'youngs_modulus' cannot be estimated; did you mean 'youngs_modulus_pa'?",
        ),
        ({}, ["--frames", "nowhere"], "--frames nowhere is not a folder; give the one that holds stamps.csv"),
        ({}, ["--noise-mm", "1"], "--noise-mm is for recorded frames; give --frames"),
        ({}, ["--noise-mm", "-1"], "--noise-mm: -1 is not a positive number"),
        ({"estimate": None}, [], "scene has no estimate section; add one such as"),
        ({"observe": None}, [], "scene has no camera; add observe.cameras or observe.ring"),
    ],
)
def test_a_mistake_is_said_in_one_line(
    changes: dict[str, Any],
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene = write_scene(tmp_path, **changes)
    code = main(["estimate", scene, "--out", str(tmp_path / "out"), "--backend", "cpu", *arguments])
    printed = capsys.readouterr()
    assert code == 2 and expected in printed.err and "Traceback" not in printed.err
    assert not (tmp_path / "out").exists()


def test_unknown_noise_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames = write_frames(tmp_path / "frames", np.zeros((5, 3)))
    scene = write_scene(tmp_path, observe=None)
    call = ["estimate", scene, "--frames", frames, "--out", str(tmp_path / "out"), "--backend", "cpu", "--no-plots"]
    assert main(call) == 2
    assert "do not say how noisy their points are; give --noise-mm" in capsys.readouterr().err
    assert main([*call, "--noise-mm", "2"]) == 0


def test_a_misfit_is_said_first_and_strict_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sheet of points above the beam's upper face in a wave of 8 mm, which no pose and no stiffness makes of a beam;
    1 mm of noise is stated, and none is there."""
    x, z = np.meshgrid(np.linspace(-0.02, 0.025, 20), np.linspace(-0.008, 0.008, 10))
    sheet = np.column_stack([x.ravel(), 0.012 + 0.008 * np.sin(2 * np.pi * x.ravel() / 0.03), z.ravel()])
    frames = write_frames(tmp_path / "frames", sheet)
    guess = {"youngs_modulus_pa": "15 kPa"}
    quick = {"parameters": ["youngs_modulus_pa"], "guess": guess, "max_iterations": 4, "grid_error_nodes": 0}
    scene = write_scene(tmp_path, estimate=quick)
    call = ["estimate", scene, "--frames", frames, "--noise-mm", "1", "--backend", "cpu", "--no-plots"]
    assert main([*call, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert "warning: the model does not fit: " in printed.err
    assert "does not fit" in printed.out.splitlines()[1] and "not observable: the model does not fit" in printed.out
    assert main([*call, "--out", str(tmp_path / "out"), "--strict", "--json"]) == 1
    summary = json.loads(capsys.readouterr().out)
    assert summary["fits"] is False and summary["reason"] and summary["figures"]["patches"] > 2.5
    assert not any(row["observable"] for row in summary["parameters"])


@pytest.mark.parametrize(
    ("error", "relative", "said"),
    [(1e-4, None, "+100 µm"), (-2.5e-4, None, "−250 µm"), (0.0, None, "0 µm"), (1e-4, 0.0785, "+7.85 %")],
)
def test_an_error_has_the_unit_of_its_value(error: float, relative: float | None, said: str) -> None:
    row = {"value": 1.2e-4, "unit": "m", "error": error, "error_relative": relative}
    assert _off(row) == said
