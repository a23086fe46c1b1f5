"""What the nodes themselves are told: frames, queues, rates. The only home of these defaults, units and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from soft_estimator.backends.choose import BACKENDS, WHERE_TO_COMPUTE
from soft_estimator.config_body import Vector
from soft_estimator.schema import ConfigError, Section, choice, quantity, setting, vector

_RECORDED = "frames come from a recording: no warning where none come; that it has ended is logged"
Pose = tuple[float, float, float, float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class FrameSettings(Section):
    """Where the sensor stands, and the frame everything is given in."""

    fixed_frame: str = setting("world", doc="frame that does not move; all results are given in it")
    sensor_frame: str = setting("", doc="frame of the sensor that sensor_pose places; other frames are asked of tf2")
    sensor_pose: Pose = vector(
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
        doc="sensor frame to fixed frame: x, y, z [m] and the quaternion x, y, z, w",
    )
    optical_axis: Vector = vector((0.0, 0.0, 1.0), doc="viewing direction in the sensor frame; z in optical frames")

    def check(self) -> None:
        if not self.fixed_frame:
            raise ConfigError("is empty; name the frame that does not move", "fixed_frame")
        if abs(sum(x * x for x in self.sensor_pose[3:]) - 1.0) > 0.02:
            raise ConfigError(f"= {list(self.sensor_pose)} must end in a quaternion of unit length", "sensor_pose")


@dataclass(frozen=True, kw_only=True)
class CloudSettings(Section):
    """What comes in, and how much of it may wait."""

    input: str = choice(
        "points", options=("points", "depth"), doc="take PointCloud2, or a depth image with its CameraInfo"
    )
    queue_clouds: int = quantity(4, low=1, high=100, doc="newest clouds that may wait; older ones are dropped")
    quiet_after_s: float = quantity(
        3.0, unit="s", low=0, low_open=True, doc="time without a cloud or image after which /diagnostics warns"
    )
    recorded: bool = setting(False, doc=_RECORDED)
    tools: str = setting("", doc="scene whose obstacles are in view: points on them are none of the object's")
    tools_data: str = setting("", doc="folder with the files that it names")


@dataclass(frozen=True, kw_only=True)
class SceneSettings(Section):
    """The body and what is known of it."""

    scene: str = setting(doc="a scene file or the name of a built-in scene: body, material, what is to be estimated")
    body: str = setting("", doc="a mesh of the body (.ply, .obj, .stl, .off), instead of the scene's own")
    data: str = setting("", doc="folder with the files that the scene names")
    backend: str = choice("auto", options=BACKENDS, doc=WHERE_TO_COMPUTE)


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings(Section):
    """How the estimator node works."""

    autostart: bool = setting(True, doc="configure and activate without being asked")
    queue_frames: int = quantity(120, low=1, high=1000, doc="most frames that may wait; beyond, the oldest goes")
    longest_gap_s: float = quantity(
        0.1,
        unit="s",
        low=0,
        doc="when work is late frames are left out, newest first, up to this far apart: the motion is simulated "
        "through the gap",
    )
    most_behind_s: float = quantity(
        2.0,
        unit="s",
        low=0,
        low_open=True,
        doc="how far the frame at hand may be behind the newest; beyond, the window begins anew at the newest one, "
        "knowing what is known",
    )
    save_to: str = setting("out", doc="folder in which ~/save writes estimate_*.json, and ~/export export_*/")
    use_support_plane: bool = setting(
        True, doc="start the contact plane from the newest support_plane, where one comes, not from the scene's guess"
    )
    point_std_m: float = quantity(
        0.002, unit="m", low=0, low_open=True, doc="deviation of points that come without the field std"
    )
    sensor_m: Vector | None = vector(
        None, unit="m", doc="where the depth camera is; if left out, as object_points say, else the scene's camera"
    )
    quiet_after_s: float = quantity(
        3.0, unit="s", low=0, low_open=True, doc="time without object_points after which /diagnostics warns"
    )
    recorded: bool = setting(False, doc=_RECORDED)
    late_after_s: float = quantity(
        2.0,
        unit="s",
        low=0,
        low_open=True,
        doc="age of an estimate, and its distance to the newest frame, from which on it is published as a warning",
    )
    publish_tf: bool = setting(
        False, doc="publish the frames contact_plane and soft_object to /tf; needs tf2_msgs, as a ROS install has it"
    )


@dataclass(frozen=True, kw_only=True)
class TwinSettings(Section):
    """How the digital twin is shown."""

    rate_hz: float = quantity(10.0, unit="Hz", low=0, low_open=True, high=200, doc="meshes published a second")
    horizon_s: float = quantity(
        0.1, unit="s", low=0, high=60, doc="farthest the twin is simulated beyond the newest estimate; 0 for not at all"
    )
    colour_by: str = choice("strain", options=("strain", "residual"), doc="what the mesh's colours show")
    colour_top: float = quantity(
        0.2, low=0, low_open=True, doc="strain, or residual in voxels, that is shown in full red"
    )


@dataclass(frozen=True, kw_only=True)
class CameraSettings(Section):
    """How the simulated camera plays its scene."""

    camera: int = quantity(0, low=0, high=100, doc="which of the scene's cameras")
    camera_frame: str = setting("camera_depth_optical_frame", doc="frame of its clouds and images")
    fixed_frame: str = setting("world", doc="frame of the scene")
    rate: float = quantity(1.0, low=0, low_open=True, high=100, doc="seconds of the scene a second")
    repeats: int = quantity(0, low=0, doc="times the scene is played; 0 for again and again")
    pause_s: float = quantity(0.0, unit="s", low=0, doc="time without frames between two repetitions")
    stepped: bool = setting(False, doc="publish a frame when ~/step is called, not by the clock")
