"""The command line as a user meets it: files, one-line errors, exit codes."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from soft_estimator.cli import build_parser, main
from soft_estimator.commands.scene_format import scene_reference
from soft_estimator.ros.graph import GraphOptions
from soft_estimator.ros.interface import NODES, interface_markdown
from soft_estimator.scene.files import builtin_scene_names
from soft_estimator.schema.section import kinds_of

ROOT = Path(__file__).resolve().parent.parent


def write_scene(folder: Path, **changes: Any) -> str:
    scene: dict[str, Any] = {
        "name": "tiny",
        "body": {"shape": {"sphere": {"radius_m": 0.03, "center_m": [0, 0.04, 0]}}, "spacing_m": "1 cm"},
        "material": {"youngs_modulus_pa": "20 kPa"},
        "contact": {},
        "time": {"step_s": "5 ms", "duration_s": 0.05},
        "picture": {"frames": 2, "width_px": 200},
    }
    path = folder / "scene.yaml"
    path.write_text(yaml.safe_dump({**scene, **changes}))
    return str(path)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "soft_estimator", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_a_scene_becomes_files_and_json(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = command("simulate", write_scene(tmp_path), "--out", str(out), "--steps", "2", "--json", "--backend", "cpu")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)  # nothing but the summary stands there
    assert summary == json.loads((out / "summary.json").read_text())
    assert summary["steps"] == 2 and summary["scene"] == "tiny" and summary["backend"] == "cpu"
    assert {"strip.png", "animation.gif", "scene.yaml", "summary.json"} == {p.name for p in out.iterdir()}
    assert done.stderr == ""  # no bar where nobody watches


def test_mistakes_at_the_prompt() -> None:
    nothing = command()
    assert nothing.returncode == 2 and "COMMAND" in nothing.stderr and "Traceback" not in nothing.stderr


def body(**changes: Any) -> dict[str, Any]:
    return {"shape": {"sphere": {"radius_m": 0.03}}, "spacing_m": 0.01, **changes}


def open_mesh(folder: Path) -> dict[str, Any]:
    (folder / "open.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\n")
    return {"body": {"shape": {"mesh": {"file": "open.obj"}}, "spacing_m": 0.1}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"materail": {}}, "unknown key 'materail' in scene; did you mean 'material'?"),
        ({"material": {"youngs_modulus_pa": "5 kg"}}, "material.youngs_modulus_pa = '5 kg' has a unit that does not"),
        (
            {"material": {"youngs_modulus_pa": 1e4, "poissons_ratio": 0.5}},
            "material.poissons_ratio = 0.5 must be >= 0, <= 0.499; a material at 0.5 is incompressible",
        ),
        (
            {"material": {"youngs_modulus_pa": 1e4, "density_kg_m3": -5}},
            "material.density_kg_m3 = -5 must be > 0 [kg/m^3]",
        ),
        (open_mesh, "is not watertight: 3 of 6 edges are open; close its holes in a mesh editor"),
        (
            {"body": body(spacing_m=1e-6)},
            "body.spacing_m = 1e-06 m makes about 1.13e+14 nodes, which need ",
        ),
        ({"body": body(spacing_m=0.5)}, "spacing_m 0.5 is too coarse"),
        (
            {"body": {"shape": {"sdf": {"file": "none.sdf", "size_m": 1}}}},
            "body.shape.sdf.file = 'none.sdf' is not in ",
        ),
        ({"fixed": [{"low_m": [1, 1, 1], "high_m": [2, 2, 2]}]}, "fixed[0] holds no node of the body; move or enlarge"),
    ],
)
def test_a_mistake_in_a_scene_is_one_line_and_exit_code_2(
    changes: Any, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = changes(tmp_path) if callable(changes) else changes
    code = main(["simulate", write_scene(tmp_path, **made), "--out", str(tmp_path / "out"), "--backend", "cpu"])
    printed = capsys.readouterr()
    assert code == 2
    assert printed.err.startswith("soft-estimator: error: ") and printed.err.count("\n") == 1
    assert expected in printed.err
    assert printed.out == "" and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["simulate", "bunny_on_tilted_plane"], "'bunny_small.sdf' is not in"),
        (["simulate", "swinging_tours"], "no built-in scene 'swinging_tours'; did you mean 'swinging_torus'?"),
        (["simulate", "missing.yaml"], "missing.yaml cannot be read (No such file or directory)"),
        (["simulate", "cantilever", "--data", "nowhere"], "--data nowhere is not a folder"),
        (["simulate", "cantilever", "--backend", "cuda"], "backend 'cuda' cannot be used: "),
        (["scenes", "--show", "dragn"], "no built-in scene 'dragn'; did you mean 'dragon'?"),
    ],
)
def test_a_mistake_on_the_command_line(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "cuda" in arguments:
        from soft_estimator.backends import BackendError, choose_backend

        try:
            choose_backend("cuda")
            pytest.skip("there is a CUDA device here")
        except BackendError:
            pass
    if arguments[0] == "simulate":
        arguments = [*arguments, "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert expected in printed.err and printed.err.count("\n") == 1 and printed.out == ""


def test_steps_must_be_a_positive_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("0", "many"):
        assert main(["simulate", "cantilever", "--out", str(tmp_path), "--steps", text]) == 2
        assert "--steps" in capsys.readouterr().err


def test_a_diverged_step_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 1e200 m/s squared overflows: the energy is infinite, and that must not go unsaid. A scene file may not ask for it,
    # so the bound is lifted.
    monkeypatch.setattr(importlib.import_module("soft_estimator.schema.section"), "LARGEST", 1e300)
    scene = write_scene(tmp_path, initial={"velocity_m_s": [0, 1e200, 0]})
    code = main(["simulate", scene, "--out", str(tmp_path / "out"), "--no-pictures", "--backend", "cpu"])
    printed = capsys.readouterr()
    assert code == 1, printed
    assert "step " in printed.err and "use a smaller step_s" in printed.err


def test_an_unwritable_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["simulate", write_scene(tmp_path), "--steps", "1", "--no-pictures", "--backend", "cpu", "--out"]
    assert main([*arguments, str(tmp_path / "file")]) == 2
    assert main([*arguments, str(tmp_path / "file" / "below")]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_interrupting_is_one_line_and_130(tmp_path: Path) -> None:
    scene = write_scene(tmp_path, time={"step_s": "1 ms", "duration_s": 1000})
    process = subprocess.Popen(
        [sys.executable, "-m", "soft_estimator", "simulate", scene, "--out", str(tmp_path / "out"), "--progress"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stderr is not None
    seen = ""
    while "simulating" not in seen:  # the bar shows after two seconds: now it is in the middle of its work
        letter = process.stderr.read(1)
        assert letter, seen
        seen += letter
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest.splitlines()[-1].strip().endswith("soft-estimator: interrupted") and "Traceback" not in rest


def test_scenes_lists_every_scene_and_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenes", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == builtin_scene_names()
    assert {row["name"] for row in rows if row["needs_data"]} == {"bunny_on_tilted_plane", "dragon"}
    assert main(["scenes"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in builtin_scene_names()) and "--data with bunny_small.sdf" in text
    assert "\033" not in text


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser()
    names = list(parser._subparsers._group_actions[0].choices)  # type: ignore[union-attr,arg-type]
    assert {"simulate", "scenes", "scene-format"} <= set(names)
    for arguments in (["--help"], *([name, "--help"] for name in names)):
        assert main(arguments) == 0
        text = capsys.readouterr().out
        assert text.startswith("usage: soft-estimator")
        if arguments[0] in ("--help", "simulate", "scenes", "scene-format"):
            assert "examples:" in text
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("soft-estimator ")


def test_the_reference_of_the_scene_file_is_up_to_date() -> None:
    written = (ROOT / "docs" / "scene_format.md").read_text(encoding="utf-8")
    assert written == scene_reference(), "run: make docs"


def test_the_reference_of_the_ros_interface_is_up_to_date() -> None:
    written = (ROOT / "docs" / "ros_interface.md").read_text(encoding="utf-8")
    assert written == interface_markdown(), "run: make docs"


def test_launch_arguments_and_topics_that_readme_names_are_there() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    options = {kind.name for kind in kinds_of(GraphOptions)}
    named = re.findall(r"(\w+):=", readme)
    assert named and set(named) <= options
    rows = re.findall(r"^\| `(\w+_node)`[^|]*\|([^|]*)\|([^|]*)\|$", readme, re.MULTILINE)
    assert {row[0] for row in rows} == {node.name for node in NODES}
    for name, heard, said in rows:
        node = next(node for node in NODES if node.name == name)
        for text, topics in ((heard, node.subscribes), (said, node.publishes)):
            known = {word for topic in topics for word in (topic.name, topic.name.rsplit("/", 1)[-1])}
            assert set(re.findall(r"`([^`]+)`", text)) <= known, name
