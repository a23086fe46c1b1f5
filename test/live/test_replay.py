"""Replays: the same bytes each time, in any process and with any number of threads; and what they measure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_ball import Dies, ball, write_scene

from soft_estimator.cli import main
from soft_estimator.export import export
from soft_estimator.live.estimate_table import ESTIMATES
from soft_estimator.live.fleet import run_in_processes
from soft_estimator.live.fleet_dask import run_on_dask
from soft_estimator.live.replay import ReplayResult, replay_bag
from soft_estimator.live.replay_config import ReplayConfig, config_text, finder_for, load_replay
from soft_estimator.live.replay_files import METRICS, fleet_csv, fleet_rows, fleet_table, result_files
from soft_estimator.live.replay_job import ReplayJob, Watch, run_job
from soft_estimator.recordings.bag_files import storage_files
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.recordings.frame_folder import write_frames
from soft_estimator.recordings.opening import read_frames
from soft_estimator.schema import ConfigError


@pytest.fixture(scope="module")
def config() -> ReplayConfig:
    return load_replay({"scene": ball()}, Path())[0]


@pytest.fixture(scope="module")
def replayed(bag: Path, config: ReplayConfig) -> ReplayResult:
    return replay_bag(bag, config, Path(), backend="cpu")


@pytest.fixture(scope="module")
def elsewhere(bag: Path, config: ReplayConfig) -> dict[str, bytes]:
    """The files of a replay in a process of its own.

    Two processes that load the compiled loops agree to the bit. The one that compiles them may not: what it inlines
    depends on what it has compiled before, and this process may be that one.
    """
    (outcome,) = run_in_processes([job("reference", bag, config)], threads=2)
    assert outcome.error == ""
    return outcome.files


def job(name: str, bag: Path, config: ReplayConfig) -> ReplayJob:
    return ReplayJob(name, str(bag), config, ".", backend="cpu")


def test_the_truth_is_found(replayed: ReplayResult) -> None:
    metrics = replayed.metrics
    stiffness, plane = metrics["parameters"]
    assert stiffness["name"] == "youngs_modulus_pa" and stiffness["truth"] == 30000 and plane["truth"] == 0
    # The guess is twice the truth. The frames were made without noise by the model itself: what is left is the finder's
    # averaging over 2 mm, some 0.01 mm on a ball of 5 cm, of which it is pressed in by some 10 mm.
    assert abs(stiffness["error_relative"]) < 0.01 and abs(plane["error"]) < 0.0002
    assert stiffness["converged_after_s"] < 0.08  # it lands after 30 ms
    assert metrics["status"] == "tracking" and metrics["frames"]["in_bag"] == 9
    assert metrics["frames"]["dropped"] == 9 - metrics["frames"]["frames_used"]
    assert sum(row["frames"] for row in metrics["frames"]["not_used_because"]) == metrics["frames"]["dropped"]
    assert len(replayed.rows) == metrics["estimates"] >= 6


def test_a_folder_of_the_same_frames_gives_the_same_estimates(
    bag: Path, config: ReplayConfig, replayed: ReplayResult, tmp_path: Path
) -> None:
    """The folder holds the points as float32 in the camera's frame, as the bag does, and its pose in other digits: they
    differ by 1e-7 m, 1e-4 of the millimetre that they are known to, and the estimates by less than a hundredth of
    their deviation."""
    frames = list(read_frames(bag, fixed_frame="world"))
    write_frames(tmp_path / "frames", [frame.usable() for frame in frames], [frame.time_s for frame in frames])
    again = replay_bag(tmp_path / "frames", config, Path(), backend="cpu")
    assert len(again.rows) == len(replayed.rows) and again.truth == {}  # a folder holds no ground truth
    for row, other in zip(again.rows, replayed.rows):
        assert row[:3] == other[:3]  # stamp, status, frames in the window
        for value, std in ((5, 6), (10, 11)):
            assert abs(float(row[value]) - float(other[value])) < 0.01 * float(other[std])


def test_surface_and_held_out_frames(replayed: ReplayResult) -> None:
    surface, ahead = replayed.metrics["surface"], replayed.metrics["held_out"]
    assert surface["frames"] == replayed.metrics["estimates"]
    assert 0 < surface["rms_voxels"] < 0.05  # a voxel is 20 mm
    # 30 % of 9 frames are 3: at 90, 105 and 120 ms, predicted from the estimate at 75 ms.
    assert ahead["frames"] == 3 and ahead["from_stamp_s"] == pytest.approx(1.075)
    assert ahead["horizon_s"] == pytest.approx(0.045) and ahead["failed"] == ""
    # In 45 ms the ball moves by some 30 mm.
    assert 0 < ahead["rms_m"] < 0.0005 and ahead["rms_voxels"] == pytest.approx(ahead["rms_m"] / 0.02)


def test_a_replay_keeps_its_posterior_and_goes_to_other_simulators(replayed: ReplayResult, tmp_path: Path) -> None:
    """σ(log E) of the kept covariance is std/E of the last estimate. The ball is exported where the scene puts it, not
    where it was when the window began: its middle is that of the body to a hundredth of a cell."""
    for name, content in result_files(replayed).items():
        (tmp_path / name).write_bytes(content)
    summary = export(tmp_path, "json", tmp_path, 1)
    last = replayed.metrics["parameters"][0]
    body, drawn = (json.loads((tmp_path / f"tiny_ball{k}.json").read_text()) for k in ("", "_000"))
    assert body["material"]["youngs_modulus_pa"] == [last["value"]] != drawn["material"]["youngs_modulus_pa"]
    covariance = replayed.metrics["posterior"]["covariance"]
    assert np.sqrt(covariance[0][0]) == pytest.approx(last["std"] / last["value"], rel=1e-9)
    middle = np.array(body["vertex_mass_kg"]) @ np.array(body["vertices_m"]) / summary["mesh"]["mass_kg"]
    assert middle == pytest.approx(replayed.scene.body.centroid_m, abs=0.01 * replayed.scene.body.grid.spacing_m)


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_and_survives_a_bad_bag(
    elsewhere: dict[str, bytes], bag: Path, config: ReplayConfig, tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    broken = tmp_path / "broken.mcap"
    broken.write_bytes(storage_files(bag)[0].read_bytes()[:10000])
    told: list[tuple[int, float]] = []
    watch = Watch(tell=lambda number, part, note: told.append((number, part)))
    jobs = [job("broken", broken, config), job("good", bag, config)]
    bad, good = run_on_dask(jobs, workers=1, threads=1, watch=watch)
    assert good.error == "" and good.files[ESTIMATES] == elsewhere[ESTIMATES]
    assert "cut short" in bad.error and bad.metrics is None
    assert sorted(told) == [(0, 1.0), (1, 1.0)]


def test_no_scheduler_is_one_line(bag: Path, config: ReplayConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("soft_estimator.live.fleet_dask.SCHEDULER_TIMEOUT", "1s")
    with pytest.raises(ValueError, match="no Dask scheduler answers at tcp://127"):
        run_on_dask([job("good", bag, config)], "tcp://127.0.0.1:1")


def test_a_worker_that_dies_is_told(bag: Path, config: ReplayConfig) -> None:
    suicidal = replace(job("gone", bag, config), listener=Dies)
    (outcome,) = run_in_processes([suicidal])
    assert "ended by signal 9" in outcome.error


def test_bags_that_fail_are_told_not_raised(config: ReplayConfig, bag: Path, tmp_path: Path) -> None:
    with BagWriter(tmp_path / "odd") as writer:
        writer.write("/chatter", 1, writer.make("std_msgs/msg/String", data="hello"))
    outcome = run_job(job("odd", tmp_path / "odd", config))
    assert "/chatter (std_msgs/msg/String, 1 messages)" in outcome.error and not outcome.files
    outcome = run_job(job("lost", bag, replace(config, fixed_frame="map")))
    assert "none of 9 messages can be used" in outcome.error and "'map'" in outcome.error


def test_an_empty_view_gives_an_empty_table(config: ReplayConfig, tmp_path: Path) -> None:
    with BagWriter(tmp_path / "blind") as writer:
        for k in range(1, 4):
            writer.cloud("/camera/points", k * 10**8, "camera", np.full((12, 16, 3), np.nan))
    made = replay_bag(tmp_path / "blind", config, Path(), backend="cpu")
    assert made.rows == [] and made.metrics["frames"]["frames_empty"] == 3 and made.metrics["status"] == "none"
    assert result_files(made)[ESTIMATES].startswith(b"stamp_s,status")
    assert json.loads(result_files(made)[METRICS])["surface"] is None
    (why,) = made.metrics["frames"]["not_used_because"]
    assert why["frames"] == 3 and "192 not measured" in why["reason"]


def test_no_estimate_is_a_failure_with_its_reasons_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four frames without a point: exit code 1; every frame is accounted for, in the
    terminal, in metrics.json and in the report."""
    with BagWriter(tmp_path / "blind") as writer:
        for k in range(1, 5):
            writer.cloud("/camera/points", k * 10**8, "camera", np.full((12, 16, 3), np.nan))
    scene, out = write_scene(tmp_path), tmp_path / "out"
    assert main(["replay", str(tmp_path / "blind"), "--scene", str(scene), "--out", str(out), "--backend", "cpu"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert "no estimate: 4 of 4 frames were not used" in said[0] and "4 frames: none of the cloud's" in said[1]
    frames = json.loads((out / METRICS).read_text())["frames"]
    assert sum(row["frames"] for row in frames["not_used_because"]) == frames["dropped"] == 4
    assert "4 frames: none of the cloud" in (out / "report.html").read_text()


def test_the_configuration_comes_back(config: ReplayConfig, tmp_path: Path) -> None:
    assert load_replay(yaml.safe_load(config_text(config)), tmp_path)[0] == config
    write_scene(tmp_path)
    by_name, folder = load_replay({"scene": "scene.yaml", "window": {"frames": 5}}, tmp_path)
    assert by_name.scene == config.scene and by_name.window.frames == 5 and folder == tmp_path
    assert by_name.finder == finder_for(config.scene) and by_name.finder.plane.expected_normal == (0, 1, 0)
    hanging = replace(config.scene, contact=None, estimate=replace(config.scene.estimate, parameters="density_kg_m3"))
    assert finder_for(hanging).support == "none"
    for content, said in (
        ({"scene": ball(), "window": {"time_budget_s": 0.1}}, "time_budget_s"),
        ({"scene": ball(estimate=None)}, "no estimate section"),
        ({"scene": "no_such_scene"}, "no_such_scene"),
        ({}, "scene"),
        ([], "mapping"),
    ):
        with pytest.raises((ConfigError, ValueError), match=said):
            load_replay(content, tmp_path)


def test_one_table_over_several_bags(replayed: ReplayResult) -> None:
    rows = fleet_rows([("good", replayed.metrics, ""), ("bad", None, "it is cut short")])
    assert rows[0]["youngs_modulus_pa.truth"] == 30000 and rows[0]["frames"] == 9 and rows[0]["error"] == ""
    text = fleet_csv(rows).decode().splitlines()
    assert text[0].startswith("bag,status,frames") and text[0].endswith(",error") and len(text) == 3
    assert text[2].startswith("bad,,") and text[2].endswith(",it is cut short")
    table = fleet_table(rows).splitlines()
    assert "youngs_modulus_pa" in table[0] and table[1].startswith("good  tracking") and "it is cut short" in table[2]


def test_the_command(
    replayed: ReplayResult, bag: Path, elsewhere: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table over two bags, one of them broken; and the same bytes in another process, with one thread here and two
    elsewhere."""
    scene, out = write_scene(tmp_path), tmp_path / "out"
    broken = tmp_path / "broken.mcap"
    broken.write_bytes(storage_files(bag)[0].read_bytes()[:10000])
    arguments = ["replay", str(bag), str(broken), "--scene", str(scene), "--out", str(out), "--workers", "2"]
    arguments += ["--threads", "1", "--hold-out", "0", "--backend", "cpu", "--json"]
    assert main(arguments) == 2  # one of the two failed
    said = capsys.readouterr()
    good, bad = json.loads(said.out)["bags"]
    assert good["bag"] == "ball" and good["frames"] == 9 and "cut short" in bad["error"]
    assert "1 of 2 bags failed: broken" in said.err
    names = {file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file()}
    assert {
        "metrics.json",
        "metrics.csv",
        "ball/estimates.csv",
        "ball/metrics.json",
        "ball/replay.yaml",
        "ball/rest_shape.npz",
    } <= names
    assert load_replay(yaml.safe_load((out / "ball/replay.yaml").read_text()), out)[0].hold_out == 0
    # Nothing is held out, too: frames are kept from the prediction only, so the table is the same.
    assert good["held_out_rms_m"] is None
    assert (out / "ball" / ESTIMATES).read_bytes() == elsewhere[ESTIMATES]
    assert elsewhere[ESTIMATES].count(b"\n") == len(replayed.rows) + 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scene", "bouncing_ball"], "needs --out"),
        (["--out", "x"], "needs --out DIR and one of --scene"),
        (["--out", "x", "--scene", "bouncing_ball", "--engine", "spark"], "is no engine"),
        (["--out", "x", "--scene", "bouncing_ball", "--hold-out", "1.5"], "a share from 0 to 0.95"),
        (["--out", "x", "--scene", "bouncing_ball", "--threads", "0"], "whole number above 0"),
        (["--out", "x", "--scene", "bouncing_ball", "--config", "y"], "not allowed with"),
        (["--out", "x", "--scene", "bouncing_ball"], "nowhere does not exist"),
        (["--out", "x", "--config", "nothing.yaml"], "nothing.yaml"),
        (["again", "--play"], "--play takes one bag"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "nowhere", *arguments]) == 2
    assert said in capsys.readouterr().err
