"""A ball that a tool strikes in the air: where the tool's pose is known its touch is simulated, else it is noticed.

The recording is of a body on half the spacing, in steps a quarter as long, with the noise of a depth camera.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_ball import ball

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.live.replay import ReplayResult, replay_bag
from soft_estimator.live.replay_config import ReplayConfig, finder_for, load_replay
from soft_estimator.live.replay_keeping import ReplayKeeper
from soft_estimator.live.setup import build_window
from soft_estimator.live.tools import tools_of
from soft_estimator.live.wrenches import Wrenches
from soft_estimator.perception.objects import ObjectFinder, ObjectPoints, Why
from soft_estimator.perception.pictures import COLOURS, draw_frame
from soft_estimator.recordings.interface import WrenchReading
from soft_estimator.recordings.opening import open_recording
from soft_estimator.recordings.record import record_scene
from soft_estimator.report.of_live import LiveHistory
from soft_estimator.report.pictures import still_pictures
from soft_estimator.report.view3d import scene_data
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import ConfigError, load
from soft_estimator.studies.simulate import simulate
from soft_estimator.viewer.history import History
from soft_estimator.viewer.replay_source import estimate_update

RADIUS_M, HALF_M = 0.06, 0.1
TIP = {"start_m": [0, 0, HALF_M], "end_m": [0, 0, -HALF_M], "radius_m": RADIUS_M}
MIDDLE_M = [0.0, 0.085, 0.075 + RADIUS_M + HALF_M]
SPEED_M_S = -0.8  # along z: it meets the ball after 31 ms


def struck(obstacles: list[dict[str, Any]]) -> dict[str, Any]:
    """The small ball, thrown upwards high over a table."""
    made = ball(name="struck", obstacles=obstacles, initial={"velocity_m_s": [0, 0.5, 0]})
    made["contact"] = {**made["contact"], "offset_m": 0.12}
    made["estimate"] = {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "60 kPa"}}
    made["observe"] = {**made["observe"], "noise": {"kind": "depth_camera"}, "duration_s": 0.09}
    return {**made, "time": {"step_s": "5 ms", "duration_s": 0.09}}


def rod(**led: Any) -> dict[str, Any]:
    return {"shape": {"capsule": TIP}, "stiffness_pa_per_m": 2e7, **led}


def led_by_the_scene() -> dict[str, Any]:
    """The rod in world coordinates, on waypoints from there."""
    shape = {name: np.add(TIP[name], MIDDLE_M).tolist() for name in ("start_m", "end_m")}
    path = [{"time_s": 0}, {"time_s": 0.2, "translation_m": [0, 0, 0.2 * SPEED_M_S]}]
    return {**rod(path=path), "shape": {"capsule": {**shape, "radius_m": RADIUS_M}}}


def log_of(folder: Path, start_s: float) -> str:
    """A robot's log of the same motion."""
    x, y, z = MIDDLE_M
    lines = [f"{start_s + t!r},{x},{y},{z + SPEED_M_S * t!r},0,0,0,1" for t in np.arange(0, 0.2, 0.02).tolist()]
    (folder / "log.csv").write_text("\n".join(["time_s,x_m,y_m,z_m,qx,qy,qz,qw", *lines]))
    return "log.csv"


def scene_of(obstacles: list[dict[str, Any]], folder: Path = Path()) -> Scene:
    return build_scene(load(SceneConfig, struck(obstacles), "scene"), folder)


def config_of(obstacles: list[dict[str, Any]], **changes: Any) -> ReplayConfig:
    return load_replay({"scene": struck(obstacles), **changes}, Path())[0]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("struck") / "bag"
    record_scene(on_finer_grid(scene_of([led_by_the_scene()])), choose_backend("cpu"), path, topics=("points",))
    return path


@pytest.fixture(scope="module")
def replayed(recorded: Path) -> ReplayResult:
    return replay_bag(recorded, config_of([rod(tool_frame="tool")]), Path(), backend="cpu")


def test_a_known_tool_tells_the_stiffness(replayed: ReplayResult) -> None:
    """E inside its interval and within a tenth; nothing was started anew, and no frame was said to be touched by
    something. Seen: 30.1 ± 1.3 kPa for 30."""
    (young,) = replayed.metrics["parameters"]
    frames = replayed.metrics["frames"]
    assert young["observable"] and young["low_95"] < 3e4 < young["high_95"] and abs(young["error_relative"]) < 0.1
    assert frames["frames_used"] == frames["in_bag"] == 7 and frames["resets"] == 0 and frames["frames_cut"] == 0
    assert frames["frames_touched"] >= 3 and replayed.metrics["fits"]
    assert not any("touch" in note or "anew" in note for note in replayed.notes)


def test_the_same_tool_unknown_is_noticed(recorded: Path) -> None:
    result = replay_bag(recorded, config_of([], frames="6"), Path(), backend="cpu")
    assert any("something touched the body" in note for note in result.notes)
    assert any("a thing that touches the object" in note for note in result.notes)
    assert not result.metrics["parameters"][0]["observable"]


class EndsAfter(ReplayKeeper):
    """Ends a replay after the second frame."""

    def note(self, *args: Any) -> None:
        super().note(*args)
        self.end = "after the second frame"


def test_a_replay_with_a_tool_is_gone_on_with(recorded: Path, replayed: ReplayResult, tmp_path: Path) -> None:
    """The same estimates to the last digit: poses are read again, and count from the start that was kept."""
    config = config_of([rod(tool_frame="tool")], frames="4")
    first = replay_bag(recorded, config, Path(), backend="cpu", keeper=EndsAfter(tmp_path))
    assert first.metrics["stopped"] and first.metrics["frames"]["frames_used"] == 2
    whole = replay_bag(recorded, config, Path(), backend="cpu", keeper=ReplayKeeper(tmp_path, resume=True))
    without_seconds = [row[:-1] for row in whole.rows]
    assert len(whole.rows) == 2 and without_seconds == [row[:-1] for row in replayed.rows[:2]]


def test_tf_a_log_and_the_scene_lead_the_same_way(recorded: Path, tmp_path: Path) -> None:
    """To the rounding of stamps in the bag [ns], over which the tool goes 1e-9 m."""
    log = rod(path_file=log_of(tmp_path, 1.0), path_clock="stamps")
    since = rod(path_file=log_of(tmp_path, 0.0))
    found = []
    with open_recording(recorded, fixed_frame="world") as recording:
        for led, folder in ((rod(tool_frame="/tool"), tmp_path), (led_by_the_scene(), tmp_path)):
            tools = tools_of(scene_of([led], folder))
            tools.read(recording)
            found.append(tools)
        for start_s, led in ((1.0, log), (0.0, since)):
            log_of(tmp_path, start_s)
            tools = tools_of(scene_of([led], tmp_path))
            tools.read(recording)
            found.append(tools)
    for stamp_s in (1.0, 1.033, 1.09):
        told = [tools.tools[0].pose_at(stamp_s) for tools in found]
        for turn, origin in told:  # type: ignore[misc]
            np.testing.assert_allclose(origin, np.add(MIDDLE_M, [0, 0, SPEED_M_S * (stamp_s - 1.0)]), atol=2e-9)
            np.testing.assert_allclose(np.abs(turn[:, 2]), [0, 0, 1], atol=1e-9)


def test_points_on_the_tool_are_none_of_the_object(recorded: Path) -> None:
    """In the frame of the strike every point that is kept lies nearer to the ball than to the tool, and what is the
    tool's does not lie on the ball, but for the ring where they meet."""
    scene = scene_of([rod(tool_frame="tool")])
    pipeline = LivePipeline(scene, finder_for(scene.config), backend=choose_backend("cpu"))
    with open_recording(recorded, fixed_frame="world") as recording:
        pipeline.tools.read(recording)
        frame = recording[3]
        found = pipeline.finder.process(frame.usable(), None, frame.time_s, pipeline.tools)
        alone = ObjectFinder(finder_for(scene.config)).process(frame.usable(), None, frame.time_s)
    assert isinstance(found, ObjectPoints)
    turn, origin = pipeline.tools.tools[0].pose_at(frame.time_s)  # type: ignore[misc]
    tip_m = origin + turn @ np.array([0, 0, -HALF_M]) if turn[2, 2] > 0 else origin + turn @ np.array([0, 0, HALF_M])
    away = np.linalg.norm(found.points_m - tip_m, axis=1)
    assert away.min() > RADIUS_M and found.points_m[:, 2].max() < 0.06
    assert (found.why == Why.TOOL).sum() > 200
    assert (
        set(COLOURS) == set(Why) and (draw_frame(frame.usable(), found) == COLOURS[Why.TOOL]).all(axis=-1).sum() > 200
    )
    assert not isinstance(alone, ObjectPoints) or alone.points_m[:, 2].max() > 0.07


def test_a_frame_whose_pose_is_missing_says_so() -> None:
    """It is not used, and the next one that has a pose is; what is known stays."""
    scene = scene_of([rod(tool_frame="tool")])
    tools = tools_of(scene)
    window = build_window(scene, tools=tools, backend=choose_backend("cpu"))
    points = scene.body.surface_positions_m()
    fall = np.array([0.0, 1.0, 0.0])

    def shown(time_s: float) -> None:
        window.add_frame(7.0 + time_s, points + (0.5 * time_s - 4.905 * time_s**2) * fall, 0.001)

    shown(0.0)
    assert window.waiting_for == "tool frame 'tool' has no pose yet" and not window.begun
    far = [(7.0 + t, np.eye(3), np.array([0.0, 0.0, 5.0])) for t in (0.0, 0.015, 0.03)]
    tools.add_poses("tool", far)
    shown(0.015)
    assert window.begun and window.waiting_for == ""
    shown(0.03)
    shown(0.06)
    assert window.waiting_for == "the newest pose of tool frame 'tool' is 0.03 s older than the frame"
    assert window.counters.frames_refused == 2 and window.counters.frames_used == 2 and window.begun
    tools.add_poses("tool", [(7.075, np.eye(3), np.array([0.0, 0.0, 5.0]))])
    shown(0.075)
    assert window.waiting_for == "" and window.counters.frames_used == 3 and window.status == "tracking"
    resets = window.counters.resets
    tools.add_poses("tool", [(7.0 + t, np.eye(3), np.array([0.0, 0.0, 5.0])) for t in (0.28, 0.3)])
    shown(0.29)
    assert window.status == "starting" and window.begun and window.counters.resets == resets
    assert window.last is not None, "over 0.2 s nobody knows the tool's way: a new episode, which knows what was known"


@pytest.mark.parametrize(
    ("led", "said"),
    [
        ({"tool_frame": "tool", "path": [{"time_s": 0}]}, r"tool_frame = 'tool' and path both lead it"),
        ({"tool_frame": "/"}, r"tool_frame = '/' names no frame"),
        ({"path_clock": "stamps"}, r"path_clock = stamps is about path_file"),
    ],
)
def test_what_cannot_lead_a_tool(led: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(SceneConfig, struck([rod(**led)]), "scene")


def test_a_robots_log_without_a_recording_is_told_in_a_line(tmp_path: Path) -> None:
    """The path_file is there: what is missing is a recording whose stamps it counts in."""
    scene = scene_of([rod(path_file=log_of(tmp_path, 1.0), path_clock="stamps")], tmp_path)
    with pytest.raises(ValueError, match=r"obstacles\[0\]\.path_file has no pose: its times are stamps of a recording"):
        simulate(scene, choose_backend("cpu"), steps=1)


def test_a_recording_without_the_frame_is_told_in_a_line(recorded: Path) -> None:
    with pytest.raises(ValueError, match=r"tool_frame 'gripper': the bag's transforms do not lead from 'gripper' to"):
        replay_bag(recorded, config_of([rod(tool_frame="gripper")]), Path(), backend="cpu")


def test_readings_belong_to_the_step_before_a_frame(recorded: Path, tmp_path: Path) -> None:
    """The mean of those within the last 5 ms; of a log by stamps, of a file by the scene's time, as they come; those of
    another frame are refused, and that is said."""
    (tmp_path / "felt.csv").write_text(
        "time_s,fx_n,fy_n,fz_n,tx_nm,ty_nm,tz_nm\n7.011,0,1,0,0,0,0\n7.013,0,3,0,0,0,0\n7.02,0,9,0,0,0,0\n"
    )
    made = struck([rod(tool_frame="tool"), rod(tool_frame="tool")])
    sensors = [{"file": "felt.csv", "clock": "stamps"}, {"obstacle": 1, "topic": "hand/ft"}]
    made["observe"] = {**made["observe"], "wrenches": sensors}
    wrenches = Wrenches(build_scene(load(SceneConfig, made, "scene"), tmp_path))
    assert wrenches.topics == ["wrench", "hand/ft"]
    (felt,) = wrenches.at(7.015)
    assert felt.time_s == pytest.approx(7.012) and felt.wrench[1] == 2.0 and felt.tool == 0
    assert wrenches.at(7.03) == []
    wrenches.add(1, [WrenchReading(7.03, np.ones(6), "tool"), WrenchReading(7.031, np.ones(6), "elsewhere")])
    (felt,) = wrenches.at(7.032)
    assert felt.time_s == 7.03
    assert wrenches.refused.startswith("hand/ft is in frame 'elsewhere', the tool in 'tool'; publish force")
    with open_recording(recorded, None) as recording:
        wrenches.read(recording)
    assert "has no force on hand/ft, which tells nothing of the answer; name another" in wrenches.refused
    made["observe"] = {**made["observe"], "wrenches": [{"clock": "stamps"}]}
    with pytest.raises(ConfigError, match=r"observe\.wrenches\[0\]\.clock = stamps is about file"):
        load(SceneConfig, made, "scene")


def test_the_report_shows_the_tool(replayed: ReplayResult) -> None:
    """In the 3D view and in the still pictures: a moment's picture with the tool differs from the one without."""
    history = LiveHistory(replayed.scene)
    tools = tools_of(replayed.scene)
    far = np.array([0.0, 0.08, 0.3])
    tools.add_poses("tool", [(1.0, np.eye(3), far)], rests=True)
    meshes = tools.meshes(1.0)
    assert list(meshes) == ["obstacles[0] tool"]
    np.testing.assert_allclose(meshes["obstacles[0] tool"][0].mean(axis=0), far, atol=0.01)
    u = np.zeros((replayed.scene.body.node_count, 3))
    none = np.zeros((0, 3))
    estimate = LiveEstimate(
        1.0, "tracking", (), replayed.scene.parameters, u, u, u, 1.0, 0.0, 0.0, np.zeros(0), none, 3, 0.1, tools=meshes
    )
    history.add(estimate)
    content = history.content()
    data = scene_data(content)
    assert list(data["tools"]) == list(data["moments"][0]["tools"]) == ["obstacles[0] tool"]
    without = replace(content, moments=[replace(content.moments[0], tools={})])
    assert still_pictures(content, 1) != still_pictures(without, 1)
    update = estimate_update(replayed.scene, estimate, 1.0)
    moment = History().add(update)
    assert moment is not None and list(moment.tools) == ["obstacles[0] tool"]


def test_a_tool_touches_what_it_is_near_to() -> None:
    """Within four lengths of the contact's onset, 2 mm: a body that it holds still is then followed on."""
    scene = scene_of([rod(tool_frame="tool")])
    tools = tools_of(scene)
    window = build_window(scene, tools=tools, backend=choose_backend("cpu"))
    surface = scene.body.surface_positions_m()
    reach_m = RADIUS_M + HALF_M + float(surface[:, 2].max())
    for gap_m, touches in ((0.0019, True), (0.0021, False)):
        for tool in tools.tools:
            tool.path.clear()  # type: ignore[union-attr]
        tools.add_poses("tool", [(1.0, np.eye(3), np.array([0.0, 0.075, reach_m + gap_m]))], rests=True)
        top = surface[np.argmax(surface[:, 2])]
        straight = surface + np.array([-top[0], 0.075 - top[1], 0.0])  # its foremost point lies on the rod's axis
        assert window.tools.touch(straight, 1.0) is touches
