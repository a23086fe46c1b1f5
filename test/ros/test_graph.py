"""The one description of the graphs, and the command that runs it where there is no launch. Needs no ROS."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import trimesh
import yaml

from soft_estimator.camera.scene_cameras import cameras_of
from soft_estimator.geometry.mesh_file import write_ply
from soft_estimator.ros import transport
from soft_estimator.ros.graph import Graph, GraphOptions, NodeSpec, build_graph, options_from_text
from soft_estimator.ros.run import EXIT_NODE_DIED, node_command, run_graph
from soft_estimator.scene.files import read_scene
from soft_estimator.schema import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def node(graph: Graph, name: str) -> NodeSpec:
    return next(n for n in graph.nodes if n.executable == name)


def test_the_demo_places_the_camera_where_its_scene_does() -> None:
    from scipy.spatial.transform import Rotation

    graph = build_graph("demo", GraphOptions())
    assert [n.executable for n in graph.nodes] == ["cloud_node", "estimator_node", "twin_node", "camera_node"]
    cloud, camera = node(graph, "cloud_node").parameters, node(graph, "camera_node").parameters
    assert cloud["sensor_frame"] == camera["camera_frame"]
    wanted = cameras_of(read_scene("demo_drop")[0].observe)[0]
    np.testing.assert_allclose(cloud["sensor_pose"][:3], wanted.position_m)
    turned = Rotation.from_quat(cloud["sensor_pose"][3:]).as_matrix()
    np.testing.assert_allclose(turned, wanted.rotation, atol=1e-12)
    assert node(graph, "estimator_node").parameters["sensor_m"] == cloud["sensor_pose"][:3]


def test_the_preset_names_the_cameras_topics_and_noise() -> None:
    graph = build_graph("live", GraphOptions(preset="realsense_d435", namespace="arm", twin=False))
    cloud = node(graph, "cloud_node")
    assert [n.executable for n in graph.nodes] == ["cloud_node", "estimator_node"]
    assert cloud.parameters["input"] == "depth"
    assert dict(cloud.remappings)["camera/depth/image"] == "/camera/camera/depth/image_rect_raw"
    assert [f.name for f in cloud.files] == ["realsense_d435.yaml"]
    assert "sensor_pose" not in cloud.parameters  # from tf2


def test_given_topics_win_over_the_preset() -> None:
    options = options_from_text({"preset": "realsense_d435", "depth_topic": "/d", "sensor_pose": "1, 2, 3, 0, 0, 0, 1"})
    cloud = node(build_graph("live", options), "cloud_node")
    assert dict(cloud.remappings)["camera/depth/image"] == "/d"
    assert cloud.parameters["sensor_pose"] == [1, 2, 3, 0, 0, 0, 1]
    assert cloud.parameters["sensor_frame"] == "camera_depth_optical_frame"


def test_a_replay_plays_its_bag_with_the_bags_clock(tmp_path: Path) -> None:
    (tmp_path / "a.mcap").touch()
    pose = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    graph = build_graph("replay", GraphOptions(bag=str(tmp_path / "a.mcap"), rate=2.0, sensor_pose=pose))
    assert all(n.parameters["use_sim_time"] for n in graph.nodes)
    assert str(tmp_path / "a.mcap") in graph.commands[0]
    other = build_graph("replay", GraphOptions(bag=str(tmp_path / "a.mcap"), player="ros2", sensor_pose=pose))
    assert other.commands[0][:3] == ("ros2", "bag", "play")


def test_nodes_of_a_replay_alone_know_that_their_frames_are_recorded(tmp_path: Path) -> None:
    """Where a camera may be at fault, a recording has only ended; the twin asks for no frames."""
    (tmp_path / "a.mcap").touch()
    pose = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    options = GraphOptions(bag=str(tmp_path / "a.mcap"), sensor_pose=pose)
    for kind, told in (("replay", {"cloud_node", "estimator_node"}), ("live", set()), ("demo", set())):
        assert {n.executable for n in build_graph(kind, options).nodes if n.parameters.get("recorded")} == told


@pytest.mark.parametrize("tf2", [False, True])
def test_a_replay_takes_topic_and_without_tf2_place_of_the_camera_from_the_bag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tf2: bool
) -> None:
    pytest.importorskip("rosbags")
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, found=importlib.util.find_spec: (object() if tf2 else None) if name == "tf2_ros" else found(name),
    )
    from soft_estimator.recordings.bag_writing import BagWriter

    camera = cameras_of(read_scene("demo_drop")[0].observe)[0]
    with BagWriter(tmp_path / "bag", "mcap") as bag:
        bag.static_transforms(10**9, "world", [("eye", camera)])
        bag.cloud("/eye/points", 10**9, "eye", np.ones((2, 3, 3)))
    cloud = node(build_graph("replay", GraphOptions(bag=str(tmp_path / "bag"))), "cloud_node")
    assert cloud.remappings == (("camera/points", "/eye/points"),)
    if tf2:
        assert "sensor_pose" not in cloud.parameters
        return
    assert cloud.parameters["sensor_frame"] == "eye"
    np.testing.assert_allclose(cloud.parameters["sensor_pose"][:3], camera.position_m)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"backend": "gpu"}, "backend = 'gpu' must be one of auto, cpu, cuda, reference"),
        ({"twin": "perhaps"}, "twin = 'perhaps' must be true or false"),
        ({"sensor_pose": "1 2 3"}, "has 3 entries; it needs 7"),
        ({"rate": "fast"}, "rate = 'fast' is not a number"),
    ],
)
def test_a_wrong_argument_is_named(texts: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        options_from_text(texts)


@pytest.mark.parametrize(("kind", "options"), [("replay", {}), ("replay", {"bag": "/no"}), ("live", {"config": "/no"})])
def test_a_missing_file_is_named(kind: str, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"bag|config"):
        build_graph(kind, GraphOptions(**options))


def sizes_in(file: str) -> list[int]:
    found = re.findall(r"<(?:segment_size|maxMessageSize)>(\d+)<", Path(file).read_text())
    return [int(n) // 2**20 for n in found]


@pytest.mark.parametrize(
    ("free_mib", "sizes", "note"),
    [
        (8000, [64, 16], ""),
        (64, [10, 10], "has 64 MiB free: each node takes 10 MiB instead of 64; give it 384 MiB"),
        (20, None, "has 20 MiB free, too little for clouds: they travel by UDP, which loses some; give it 384 MiB"),
        (None, None, "is missing, too little for clouds"),
    ],
)
def test_each_node_takes_of_the_shared_memory_what_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free_mib: int | None, sizes: list[int] | None, note: str
) -> None:
    """Docker's /dev/shm has 64 MB: six segments of 64 MiB do not fit, and Fast DDS loses clouds without a word."""
    for name in transport.PROFILES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(transport, "free_bytes", lambda folder: None if free_mib is None else free_mib * 2**20)
    made = transport.transport_environment()
    assert (sizes is None and made == {}) or {tuple(sizes_in(f)) for f in made.values()} == {tuple(sizes or ())}
    assert note in transport.transport_note() and bool(note) == bool(transport.transport_note())


def test_a_profile_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTRTPS_DEFAULT_PROFILES_FILE", "/mine.xml")
    assert build_graph("demo", GraphOptions()).environment["FASTRTPS_DEFAULT_PROFILES_FILE"] == "/mine.xml"
    assert transport.transport_note() == ""


@pytest.mark.parametrize(
    ("led", "said"),
    [
        ({"tool_frame": "tool0"}, r"obstacles\[0\]\.tool_frame = 'tool0' has no pose in a demo"),
        ({"path_file": "log.csv", "path_clock": "stamps"}, r"obstacles\[0\]\.path_clock = stamps are those of a"),
    ],
)
def test_a_demo_needs_tools_that_the_scene_leads(tmp_path: Path, led: dict[str, str], said: str) -> None:
    """The camera would never send a frame, and the graph run on; live the same scene is right."""
    scene = yaml.safe_load((ROOT / "config/scenes/demo_drop.yaml").read_text())
    scene["obstacles"] = [{"shape": {"sphere": {"radius_m": 0.02}}, **led}]
    file = tmp_path / "scene.yaml"
    file.write_text(yaml.safe_dump(scene))
    with pytest.raises(ConfigError, match=said):
        build_graph("demo", GraphOptions(scene=str(file)))
    assert node(build_graph("live", GraphOptions(scene=str(file))), "cloud_node").parameters["tools"] == str(file)


def test_two_demos_have_frames_of_their_own() -> None:
    """tf knows no namespaces: the camera's frame carries that of the graph."""
    graph = build_graph("demo", GraphOptions(namespace="/left/"))
    frame = node(graph, "camera_node").parameters["camera_frame"]
    assert frame == "left/camera_depth_optical_frame" == node(graph, "cloud_node").parameters["sensor_frame"]


def test_a_wrong_scene_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("name: x\nbody: {shape: {sphere: {radius_m: 0.1}}}\n")
    with pytest.raises(ConfigError, match="missing key 'material'"):
        build_graph("live", GraphOptions(scene=str(tmp_path / "wrong.yaml")))
    with pytest.raises(ConfigError, match="rviz2 is not installed"):
        build_graph("live", GraphOptions(rviz=True, config=""))


def test_a_graph_whose_runner_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    """SIGKILL gives the runner no time to end anything: the kernel interrupts its children."""
    mark = tmp_path / "pid"
    waits = f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(60)"
    program = (
        "import sys; from soft_estimator.ros.graph import Graph; from soft_estimator.ros.run import run_graph; "
        f"run_graph(Graph((), ((sys.executable, '-c', {waits!r}),)), lambda *a: None)"
    )
    runner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    end = time.monotonic() + 30
    while not (mark.exists() and mark.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    child = int(mark.read_text())
    runner.kill()
    runner.wait(10)
    while Path(f"/proc/{child}/stat").exists() and time.monotonic() < end:
        if Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            break  # ended; whoever took it over has not yet looked
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}/stat").exists()


def test_parameters_travel_in_a_file_with_their_types(tmp_path: Path) -> None:
    command = node_command(NodeSpec("cloud_node", {"a": 1.0, "b": [0.0, 1.0], "c": "1", "d": True}), tmp_path)
    file = Path(command[command.index("--params-file") + 1])
    assert yaml.safe_load(file.read_text())["/**"]["ros__parameters"] == {
        "a": 1.0,
        "b": [0.0, 1.0],
        "c": "1",
        "d": True,
    }


def test_without_rclpy_one_line_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['rclpy'] = None; from soft_estimator.cli import main; sys.exit(main(['run', 'demo']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install 'soft_estimator[ros]'" in done.stderr


def plain(*lines: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "\n".join(lines))


def test_the_end_of_a_command_ends_the_graph_with_its_code() -> None:
    said: list[tuple[str, str]] = []
    begin = time.monotonic()
    code = run_graph(Graph((), (plain("print('hello')"),), linger_s=1.5), lambda *line: said.append(line))
    assert code == 0
    assert time.monotonic() - begin > 1.5
    end = time.monotonic() + 30  # a thread hands on what the command said
    while ("player", "hello") not in said and time.monotonic() < end:
        time.sleep(0.01)
    assert ("player", "hello") in said
    assert run_graph(Graph((), (plain("raise SystemExit(3)"),)), lambda *_: None) == EXIT_NODE_DIED


def test_a_graph_ends_after_its_time_and_takes_its_processes_along(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    waits = plain(
        "import time, pathlib",
        "try:",
        f"    pathlib.Path({str(begun)!r}).touch()",
        "    time.sleep(60)",
        "except KeyboardInterrupt:",
        f"    pathlib.Path({str(ended)!r}).touch()",
    )
    for seconds in (1.0, 4.0, 16.0):  # as long as a busy machine takes to start an interpreter
        begin = time.monotonic()
        assert run_graph(Graph((), (waits,)), lambda *_: None, seconds=seconds) == 0
        assert seconds < time.monotonic() - begin < seconds + 13
        if begun.exists():
            break
    assert begun.exists() and ended.exists()  # it was interrupted, not killed


def test_ctrl_c_ends_the_command_with_130() -> None:
    program = (
        "import sys; from soft_estimator.ros.graph import Graph; from soft_estimator.ros.run import run_graph; "
        "sys.exit(run_graph(Graph((), ((sys.executable, '-c', 'import time; time.sleep(60)'),)), "
        "lambda *a: print(*a, flush=True)))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert "started" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stdout.close()


def test_the_cloud_node_is_told_of_a_scenes_obstacles() -> None:
    """Their points are none of the object's; a scene without any leaves it as it was."""
    cloud = build_graph("live", GraphOptions(scene="poke")).nodes[0]
    assert cloud.executable == "cloud_node" and cloud.parameters["tools"] == "poke"
    assert "tools" not in build_graph("live", GraphOptions()).nodes[0].parameters


@pytest.mark.parametrize("kind", ["live", "replay", "demo"])
def test_the_cloud_node_is_told_how_wide_the_scenes_body_is(tmp_path: Path, kind: str) -> None:
    """demo_drop is a ball of 10 cm, and so its width in every direction; --body is what stands in its place."""
    (tmp_path / "a.mcap").touch()
    write_ply(tmp_path / "box.ply", *box_mesh((0.03, 0.04, 0.12)))
    pose = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    for body, width_m in (("", 0.1), (str(tmp_path / "box.ply"), 0.13)):
        options = GraphOptions(bag=str(tmp_path / "a.mcap"), sensor_pose=pose, body=body)
        told = node(build_graph(kind, options), "cloud_node").defaults
        assert told == {"finder.track.size_m": pytest.approx(width_m, rel=0.022)}  # 100 directions: within 12 degrees


def box_mesh(size_m: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray]:
    box = trimesh.creation.box(size_m)
    return np.asarray(box.vertices), np.asarray(box.faces)


@pytest.mark.parametrize("key", [None, "/**", "cloud_node", "/**/cloud_node"])
def test_a_file_of_the_users_own_says_how_wide_the_object_is(tmp_path: Path, domain: int, key: str | None) -> None:
    """What rclpy makes of the node's command line; launch hands over `told` in the same order."""
    rclpy = pytest.importorskip("rclpy")
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump({key or "/other": {"ros__parameters": {"finder": {"track": {"size_m": 0.25}}}}}))
    spec = node(build_graph("live", GraphOptions(config=str(mine))), "cloud_node")
    command = node_command(spec, tmp_path)
    context = rclpy.Context()
    rclpy.init(args=command[command.index("--ros-args") :], context=context, domain_id=domain)
    made = rclpy.create_node("cloud_node", context=context)
    width_m = made.declare_parameter("finder.track.size_m", 0.0).value
    fixed_frame = made.declare_parameter("fixed_frame", "").value
    made.destroy_node()
    rclpy.shutdown(context=context)
    assert width_m == pytest.approx(0.25 if key else 0.1) and fixed_frame == "world"
