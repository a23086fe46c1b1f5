"""What the nodes subscribe to, publish and serve, and their parameters, for the reference. Nothing here needs ROS.

A test starts the nodes and compares.
"""

from __future__ import annotations

from dataclasses import dataclass

from soft_estimator.config_live import WindowConfig
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.ros.graph import GraphOptions
from soft_estimator.ros.settings import (
    CameraSettings,
    CloudSettings,
    EstimatorSettings,
    FrameSettings,
    SceneSettings,
    TwinSettings,
)
from soft_estimator.schema import Section, describe

LATCHED, RELIABLE, SENSOR = "latched", "reliable", "best effort"


@dataclass(frozen=True)
class Topic:
    """A topic or service of a node. name: relative to the node's namespace. qos: how it is offered or asked for."""

    name: str
    type: str
    qos: str
    doc: str


@dataclass(frozen=True)
class NodeInterface:
    """A node: its topics and services, and the sections its parameters come from (prefix, class, changeable)."""

    name: str
    doc: str
    subscribes: tuple[Topic, ...]
    publishes: tuple[Topic, ...]
    serves: tuple[Topic, ...] = ()
    parameters: tuple[tuple[str, type[Section], bool], ...] = ()


_TRIGGER = "std_srvs/srv/Trigger"
_HEALTH = Topic("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", RELIABLE, "rates, latency, drops, what is wrong")
_TOOL = Topic(
    "tool_pose/<frame>",
    "geometry_msgs/msg/PoseStamped",
    RELIABLE,
    "of each tool_frame of the scene, in fixed_frame; asked of tf2 where nobody publishes it",
)
_OBJECT = ("object_points", "sensor_msgs/msg/PointCloud2")

NODES = (
    NodeInterface(
        "cloud_node",
        "Finds the object in the camera's clouds.",
        subscribes=(
            Topic("camera/points", "sensor_msgs/msg/PointCloud2", SENSOR, "with input = points"),
            Topic("camera/depth/image", "sensor_msgs/msg/Image", SENSOR, "with input = depth: 16UC1 [mm], 32FC1 [m]"),
            Topic("camera/depth/camera_info", "sensor_msgs/msg/CameraInfo", SENSOR, "with input = depth"),
            _TOOL,
        ),
        publishes=(
            Topic(
                *_OBJECT,
                RELIABLE,
                "the object's points [m], `std` their noise, `vp_x` to `vp_z` the camera; empty: none in view",
            ),
            Topic("support_plane", "geometry_msgs/msg/PoseStamped", RELIABLE, "the table; z is its normal"),
            Topic("/tf_static", "tf2_msgs/msg/TFMessage", LATCHED, "where sensor_pose places sensor_frame"),
            _HEALTH,
        ),
        parameters=(("", CloudSettings, False), ("", FrameSettings, False), ("finder", FinderSettings, True)),
    ),
    NodeInterface(
        "estimator_node",
        "Estimates in a sliding window. A lifecycle node; it starts itself unless autostart is false. The other nodes "
        "are plain ones: they keep nothing that outlives a few frames, so that there is nothing for a manager to "
        "configure, hold back or let go of.",
        subscribes=(
            Topic(*_OBJECT, RELIABLE, "from cloud_node"),
            Topic("support_plane", "geometry_msgs/msg/PoseStamped", RELIABLE, "with use_support_plane"),
            _TOOL,
            Topic(
                "wrench",
                "geometry_msgs/msg/WrenchStamped",
                RELIABLE,
                "of each of the scene's observe.wrenches: force and moment on the tool, in its frame, tared",
            ),
        ),
        publishes=(
            Topic(
                "estimate",
                "diagnostic_msgs/msg/DiagnosticArray",
                LATCHED,
                "a status for each parameter: value, std, low, high (95 %), unit; WARN: not observable, STALE: lost; "
                "and one for the window: age_s when sent, frames_skipped so far; WARN: does not fit, not settled, "
                "late; what a pause between frames adds comes with the same stamp once more",
            ),
            Topic("estimate/<name>", "std_msgs/msg/Float64", LATCHED, "the value alone, SI"),
            Topic("/tf", "tf2_msgs/msg/TFMessage", RELIABLE, "with publish_tf: contact_plane and soft_object"),
            Topic(
                "estimate_state", "std_msgs/msg/Float64MultiArray", LATCHED, "parameters and nodal state, for the twin"
            ),
            Topic("contact_plane", "geometry_msgs/msg/PoseStamped", RELIABLE, "the plane it touches; z is its normal"),
            Topic("contact_plane_marker", "visualization_msgs/msg/Marker", RELIABLE, "the same to look at"),
            _HEALTH,
        ),
        serves=(
            Topic("~/start", _TRIGGER, "", "let frames in"),
            Topic("~/stop", _TRIGGER, "", "pass frames over; the estimate is kept"),
            Topic("~/reset", _TRIGGER, "", "forget everything, start from the first guesses"),
            Topic("~/save", _TRIGGER, "", "write the estimate as JSON to save_to"),
            Topic("~/export", _TRIGGER, "", "write the body for MuJoCo, USD, SOFA and as JSON to save_to"),
        ),
        parameters=(
            ("", SceneSettings, False),
            ("", EstimatorSettings, False),
            ("window", WindowConfig, True),
            ("", FrameSettings, False),
        ),
    ),
    NodeInterface(
        "twin_node",
        "The digital twin: simulates on from the newest estimate.",
        subscribes=(
            Topic("estimate_state", "std_msgs/msg/Float64MultiArray", LATCHED, "from estimator_node"),
            Topic(*_OBJECT, RELIABLE, "for colours by residual"),
            _TOOL,
        ),
        publishes=(
            Topic("mesh", "visualization_msgs/msg/Marker", RELIABLE, "the deformed surface, coloured"),
            Topic("mesh_shape", "shape_msgs/msg/Mesh", RELIABLE, "the same as a shape, while somebody listens"),
            Topic("mesh_rest", "visualization_msgs/msg/Marker", LATCHED, "the rest shape"),
            Topic("predicted_points", "sensor_msgs/msg/PointCloud2", RELIABLE, "vertices of the deformed surface"),
            Topic("tool_mesh", "visualization_msgs/msg/Marker", RELIABLE, "the scene's obstacles, each a namespace"),
            _HEALTH,
        ),
        parameters=(("", SceneSettings, False), ("", TwinSettings, True), ("", FrameSettings, False)),
    ),
    NodeInterface(
        "camera_node",
        "The simulated depth camera of a scene, with the ground truth beside it.",
        subscribes=(),
        publishes=(
            Topic("camera/points", "sensor_msgs/msg/PointCloud2", RELIABLE, "organised, in the camera's optical frame"),
            Topic("camera/depth/image", "sensor_msgs/msg/Image", RELIABLE, "16UC1 [mm], while somebody listens"),
            Topic("camera/depth/camera_info", "sensor_msgs/msg/CameraInfo", RELIABLE, "its lens"),
            Topic("camera/pose", "geometry_msgs/msg/PoseStamped", LATCHED, "where it stands"),
            Topic("ground_truth", "diagnostic_msgs/msg/DiagnosticArray", RELIABLE, "the true parameters"),
            Topic("ground_truth/mesh", "visualization_msgs/msg/Marker", RELIABLE, "the true surface"),
            Topic("/tf_static", "tf2_msgs/msg/TFMessage", LATCHED, "where tf2_msgs is installed: its place"),
            _HEALTH,
        ),
        serves=(Topic("~/step", _TRIGGER, "", "with stepped: send the next frame"),),
        parameters=(("", SceneSettings, False), ("", CameraSettings, False)),
    ),
)


def interface_rows() -> list[dict[str, object]]:
    """Everything as plain rows."""
    rows: list[dict[str, object]] = []
    for node in NODES:
        for kind, topics in (
            ("subscribes", node.subscribes),
            ("publishes", node.publishes),
            ("serves", node.serves),
        ):
            rows += [{"node": node.name, "kind": kind, **vars(topic)} for topic in topics]
        for prefix, cls, changeable in node.parameters:
            for row in describe(cls):
                if row.type != "section":
                    name = f"{prefix}.{row.key}" if prefix else row.key
                    rows.append({"node": node.name, "kind": "parameter", **vars(row), "key": name, "live": changeable})
    return rows + [{"node": "", "kind": "launch argument", **vars(row)} for row in describe(GraphOptions)]


def interface_markdown() -> str:
    """The reference as Markdown."""
    parts = [
        "# The ROS 2 interface\n\nMade by `soft-estimator ros-interface`; do not edit it here.\n\nTopic names are "
        "relative: they move with the namespace and with remappings. *latched* means transient local: the newest "
        "message reaches whoever comes late. Parameters marked *live* can change while the node runs; a wrong value "
        "is refused with its reason."
    ]
    for node in NODES:
        parts.append(f"## {node.name}\n\n{node.doc}")
        rows = [f"| subscribes | `{t.name}` | {t.type} | {t.qos} | {t.doc} |" for t in node.subscribes]
        rows += [f"| publishes | `{t.name}` | {t.type} | {t.qos} | {t.doc} |" for t in node.publishes]
        rows += [f"| serves | `{t.name}` | {t.type} | | {t.doc} |" for t in node.serves]
        parts.append("\n".join(["| | name | type | QoS | what |", "|---|---|---|---|---|", *rows]))
        table = ["| parameter | type | unit | default | bounds | live | what |", "|---|---|---|---|---|---|---|"]
        for row in interface_rows():
            if row["node"] == node.name and row["kind"] == "parameter":
                table.append(f"{_described(row)} {'yes' if row['live'] else ''} | {row['doc']} |")
        parts.append("\n".join(table))
    return "\n\n".join([*parts, _launch_arguments()]) + "\n"


def _launch_arguments() -> str:
    rows = [f"{_described(row)} {row['doc']} |" for row in interface_rows() if row["kind"] == "launch argument"]
    head = (
        "## Launch files\n\n`demo.launch.py`, `estimate.launch.py` and `replay.launch.py` take these as "
        "`argument:=value`, `soft-estimator run` as options (`--points-topic`). A misspelt name is an error of `run`; "
        "`ros2 launch` passes over it."
    )
    table = ["| argument | type | unit | default | bounds | what |", "|---|---|---|---|---|---|", *rows]
    return "\n\n".join([head, "\n".join(table)])


def _described(row: dict[str, object]) -> str:
    """The first cells of a parameter's row: name, type, unit, default, bounds."""
    default = "" if row["default"] in (None, "", []) else f"`{row['default']}`"
    bounds = ", ".join(word for word in row["choices"] if word) or row["bounds"]  # type: ignore[attr-defined]
    return f"| `{row['key']}` | {row['type']} | {row['unit']} | {default} | {bounds} |"
