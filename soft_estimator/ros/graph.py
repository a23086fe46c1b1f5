"""The graphs: which nodes run, with what parameters and topics. One description, for the launch files and `run`.

Nothing here needs ROS.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from soft_estimator.backends.choose import BACKENDS, WHERE_TO_COMPUTE
from soft_estimator.config import SceneConfig
from soft_estimator.ros.config_files import config_file
from soft_estimator.ros.settings import Pose, SceneSettings
from soft_estimator.ros.transport import transport_environment
from soft_estimator.schema import ConfigError, Section, choice, load, quantity, setting, vector
from soft_estimator.schema.section import Kind, kinds_of

GRAPHS = ("live", "replay", "demo")
CAMERA_FRAME = "camera_depth_optical_frame"


@dataclass(frozen=True, kw_only=True)
class GraphOptions(Section):
    """What a user may say about a graph; the arguments of the launch files and of `soft-estimator run`."""

    scene: str = setting("demo_drop", doc="scene file or name of a built-in scene: body, material, what is estimated")
    body: str = setting(
        "", doc="mesh of the body (.ply, .obj, .stl, .off), as `scan` writes it, instead of the scene's"
    )
    data: str = setting("", doc="folder with the files that the scene names")
    backend: str = choice("auto", options=BACKENDS, doc=WHERE_TO_COMPUTE)
    preset: str = choice("none", options=("none", "realsense_d435"), doc="topics, frame and noise of a known camera")
    config: str = setting("", doc="file of ROS parameters, read after the package's own")
    input: str = choice("", options=("", "points", "depth"), doc="what the camera sends; by the preset, or points")
    points_topic: str = setting("", doc="topic of the clouds")
    depth_topic: str = setting("", doc="topic of the depth images")
    info_topic: str = setting("", doc="topic of the depth camera's CameraInfo")
    fixed_frame: str = setting("world", doc="frame that does not move; results are given in it")
    sensor_frame: str = setting("", doc="frame of the camera that sensor_pose places; by the preset if left out")
    sensor_pose: Pose | None = vector(
        None, doc="camera to fixed frame, x, y, z [m] and quaternion x, y, z, w; from tf2 if left out"
    )
    use_support_plane: bool = setting(True, doc="start the contact plane from the table that is seen")
    twin: bool = setting(True, doc="whether the digital twin runs")
    namespace: str = setting("", doc="namespace of all nodes")
    use_sim_time: bool = setting(False, doc="take the time from /clock")
    bag: str = setting("", doc="replay: the bag to play")
    player: str = choice("own", options=("own", "ros2", "none"), doc="replay: soft-estimator, ros2 bag play, or nobody")
    linger_s: float = quantity(
        2.0, unit="s", low=0, doc="replay: time the nodes run on after the bag was played and its frames were used"
    )
    restart: bool = setting(False, doc="start a node anew when it dies; else its end ends the graph")
    rviz: bool = setting(False, doc="show it in RViz, where rviz2 is installed")
    publish_tf: bool = setting(False, doc="publish contact plane and object as tf frames")
    rate: float = quantity(1.0, low=0, low_open=True, high=100, doc="replay, demo: seconds of the scene a second")
    repeats: int = quantity(0, low=0, doc="demo: times the scene is played; 0 for again and again")
    pause_s: float = quantity(2.5, unit="s", low=0, doc="demo: time without frames between two repetitions")


@dataclass(frozen=True)
class Preset:
    """What is known of a camera: topics, frame, and the file with its noise."""

    input: str
    points_topic: str
    depth_topic: str
    info_topic: str
    sensor_frame: str
    file: str


_OWN = Preset("points", "camera/points", "camera/depth/image", "camera/depth/camera_info", "", "")
PRESETS = {
    "none": _OWN,
    # realsense2_camera 4.x; its depth images are smaller than its clouds, and organised.
    "realsense_d435": Preset(
        "depth",
        "/camera/camera/depth/color/points",
        "/camera/camera/depth/image_rect_raw",
        "/camera/camera/depth/camera_info",
        CAMERA_FRAME,
        "realsense_d435.yaml",
    ),
}


@dataclass(frozen=True)
class NodeSpec:
    """One node: executable (and module below soft_estimator.ros), parameters, remappings, parameter files.

    defaults: parameters that hold where no file sets them.
    """

    executable: str
    parameters: dict[str, Any]
    remappings: tuple[tuple[str, str], ...] = ()
    files: tuple[Path, ...] = ()
    namespace: str = ""
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def told(self) -> tuple[dict[str, Any] | Path, ...]:
        """Parameters and files, as the node gets them: of those that set a parameter the last one holds."""
        parts: tuple[dict[str, Any] | Path, ...] = (self.defaults, *self.files, self.parameters)
        return tuple(part for part in parts if part)


@dataclass(frozen=True)
class Graph:
    """Nodes, further commands whose end ends the graph linger_s [s] later, and the environment that all of them get.

    beside: commands that may end as they like. restart: whether a node that dies is started anew.
    """

    nodes: tuple[NodeSpec, ...]
    commands: tuple[tuple[str, ...], ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    linger_s: float = 0.0
    beside: tuple[tuple[str, ...], ...] = ()
    restart: bool = False


def options_from_text(texts: Mapping[str, str]) -> GraphOptions:
    """Options out of texts, as launch arguments and command lines give them; "" leaves an option at its default."""
    kinds = {kind.name: kind for kind in kinds_of(GraphOptions)}
    return load(GraphOptions, {k: _from_text(kinds[k], v) for k, v in texts.items() if v != ""}, "the arguments")


def _from_text(kind: Kind, text: str) -> Any:
    if kind.form == "truth value":
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"= '{text}' must be true or false", kind.name)
        return text.lower() == "true"
    if kind.form == "vector":
        return text.strip("[]() ").replace(",", " ").split()
    return text


def build_graph(kind: str, options: GraphOptions) -> Graph:
    """The graph of a kind: live, replay or demo; a scene that is wrong is told before anything starts."""
    from soft_estimator.ros.scene import scene_config

    settings = SceneSettings(scene=options.scene, body=_path(options.body), data=_path(options.data))
    told, folder = scene_config(settings)
    if kind == "demo":
        _check_film(told)
    preset = PRESETS[options.preset]
    if kind == "replay" and options.player != "none":
        options = _of_bag(options, preset)
    files = _files(options, preset)
    common: dict[str, Any] = {"fixed_frame": options.fixed_frame}
    recorded = {"recorded": True} if kind == "replay" else {}
    if options.use_sim_time or (kind == "replay" and options.player != "none"):
        common["use_sim_time"] = True
    scene = {"scene": options.scene, "body": _path(options.body), "data": _path(options.data)}
    scene["backend"] = options.backend
    camera = {**recorded, **_camera_parameters(kind, options, preset)}
    if told.obstacles:
        camera |= {"tools": options.scene, "tools_data": _path(options.data)}
    sensor = {"sensor_m": list(camera["sensor_pose"][:3])} if "sensor_pose" in camera else {}
    estimator = {**common, **recorded, **scene, **sensor, "use_support_plane": options.use_support_plane}
    estimator["publish_tf"] = options.publish_tf
    remappings, width = _remappings(options, preset), _known_width(told, folder, settings.data)
    nodes = [
        NodeSpec("cloud_node", {**common, **camera}, remappings, files, options.namespace, width),
        NodeSpec("estimator_node", estimator, (), files, options.namespace),
    ]
    if options.twin:
        nodes.append(NodeSpec("twin_node", {**common, **scene}, (), files, options.namespace))
    if kind == "demo":
        film = {"rate": options.rate, "repeats": options.repeats, "pause_s": options.pause_s}
        parameters = {**common, **scene, **film, "camera_frame": _own_frame(options)}
        nodes.append(NodeSpec("camera_node", parameters, (), files, options.namespace))
    commands = (_player(options),) if kind == "replay" and options.player != "none" else ()
    beside = (("rviz2", "-d", str(config_file("rviz/soft_estimator.rviz"))),) if options.rviz else ()
    if options.rviz and shutil.which("rviz2") is None:
        raise ConfigError("= true, but rviz2 is not installed; install it, or leave rviz out", "rviz")
    return Graph(tuple(nodes), commands, transport_environment(), options.linger_s, beside, options.restart)


def _check_film(config: SceneConfig) -> None:
    """Refuse tools whose poses nobody gives to a camera that films the scene by itself."""
    for k, obstacle in enumerate(config.obstacles):
        if obstacle.tool_frame is not None:
            problem = f"= '{obstacle.tool_frame}' has no pose in a demo, which films the scene; give path or path_file"
            raise ConfigError(problem, f"obstacles[{k}].tool_frame")
        if obstacle.path_clock == "stamps":
            problem = "= stamps are those of a recording, and a demo films the scene; count path_file from its start"
            raise ConfigError(problem, f"obstacles[{k}].path_clock")


def _own_frame(options: GraphOptions) -> str:
    """The simulated camera's frame; tf knows no namespaces, so it carries that of the graph in its name."""
    namespace = options.namespace.strip("/")
    return f"{namespace}/{CAMERA_FRAME}" if namespace else CAMERA_FRAME


def _files(options: GraphOptions, preset: Preset) -> tuple[Path, ...]:
    files = [config_file(preset.file)] if preset.file else []
    if options.config:
        given = Path(options.config).expanduser()
        if not given.is_file():
            raise ConfigError(f"= '{given}' does not exist; give a file of ROS parameters", "config")
        files.append(given.resolve())
    return tuple(files)


def _camera_parameters(kind: str, options: GraphOptions, preset: Preset) -> dict[str, Any]:
    made: dict[str, Any] = {"input": options.input or preset.input}
    if options.sensor_pose is not None:
        frame = options.sensor_frame or preset.sensor_frame or CAMERA_FRAME
        return {**made, "sensor_frame": frame, "sensor_pose": list(options.sensor_pose)}
    if kind == "demo":
        return {**made, "sensor_frame": _own_frame(options), "sensor_pose": scene_camera_pose(options.scene)}
    return made


def scene_camera_pose(scene: str) -> list[float]:
    """Where the first camera of a scene is: x, y, z [m] and the quaternion x, y, z, w."""
    from soft_estimator.camera.scene_cameras import scene_cameras
    from soft_estimator.geometry.rigid import quaternion
    from soft_estimator.scene.files import read_scene

    camera = scene_cameras(read_scene(scene)[0])[0]
    return [*camera.position_m.tolist(), *quaternion(camera.rotation).tolist()]


def _known_width(config: SceneConfig, folder: Path, data: str) -> dict[str, float]:
    """What cloud_node knows of the object: how wide it is, by which it is told from what is beside it."""
    from soft_estimator.scene.body_grid import body_width_m

    return {"finder.track.size_m": body_width_m(config.body, folder, Path(data) if data else None)}


def _remappings(options: GraphOptions, preset: Preset) -> tuple[tuple[str, str], ...]:
    names = ("points_topic", "depth_topic", "info_topic")
    wanted = [(getattr(_OWN, n), getattr(options, n) or getattr(preset, n)) for n in names]
    return tuple((own, topic) for own, topic in wanted if own != topic)


def _player(options: GraphOptions) -> tuple[str, ...]:
    bag = _check_bag(options)
    if options.player == "ros2":
        return ("ros2", "bag", "play", str(bag.resolve()), "--clock", "--rate", str(options.rate))
    own = (sys.executable, "-m", "soft_estimator", "replay", str(bag.resolve()), "--play", "--wait-for-nodes")
    return (*own, "--rate", str(options.rate))


def _of_bag(options: GraphOptions, preset: Preset) -> GraphOptions:
    """The options with the bag's camera filled in: its topics, and where tf2 is not there to place it, its pose."""
    _check_bag(options)
    given = (options.points_topic, options.depth_topic, options.sensor_pose)
    if any(given) or preset.sensor_frame:
        return options
    from soft_estimator.recordings.bag_frames import bag_camera, bag_topic

    topics = {"points": "points_topic", "depth": "depth_topic"}
    if importlib.util.find_spec("tf2_ros") is not None:
        source, kind = bag_topic(options.bag, None)
        made: dict[str, Any] = {"input": kind, topics[kind]: source}
        if kind == "depth" and not options.info_topic:
            made["info_topic"] = source.rsplit("/", 1)[0] + "/camera_info"
        return replace(options, **made)
    found = bag_camera(options.bag, None, options.fixed_frame)
    topic = topics[found.input]
    made = {"input": found.input, topic: found.topic, "sensor_frame": found.frame, "sensor_pose": found.pose}
    if found.input == "depth" and not options.info_topic:
        made["info_topic"] = found.topic.rsplit("/", 1)[0] + "/camera_info"
    return replace(options, **made)


def _check_bag(options: GraphOptions) -> Path:
    if not options.bag:
        raise ConfigError("is missing; give the bag to play", "bag")
    bag = Path(options.bag).expanduser()
    if not bag.exists():
        raise ConfigError(f"= '{bag}' does not exist; give a bag's folder or its .mcap or .db3 file", "bag")
    return bag


def _path(text: str) -> str:
    return str(Path(text).expanduser().resolve()) if text else ""
