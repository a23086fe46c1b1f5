"""The camera of a bag, for playing it where tf2 is not installed: its topic, its frame, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.spatial.transform import Rotation

from soft_estimator.recordings.bag_files import Bag
from soft_estimator.recordings.bag_frames import open_camera


@dataclass(frozen=True)
class BagCamera:
    """What the nodes have to be told: topic, points or depth, the frame, and x, y, z [m] with a quaternion."""

    topic: str
    input: str
    frame: str
    pose: tuple[float, ...]


def bag_camera(path: str, topic: str, fixed_frame: str) -> BagCamera:
    """The camera by its first usable message."""
    with Bag(path) as bag:
        camera = open_camera(bag, topic or None, fixed_frame)
        problem = "it is empty"
        for item in bag.messages({camera.topic.name}):
            frame = camera._frame(item)
            if frame.cloud is not None:
                turn = Rotation.from_matrix(frame.cloud.rotation).as_quat()
                name = str(bag.decode(item).header.frame_id).lstrip("/")
                kind = "points" if camera.topic.kind.endswith("PointCloud2") else "depth"
                return BagCamera(camera.topic.name, kind, name, (*frame.cloud.sensor_m.tolist(), *turn.tolist()))
            problem = frame.problem
    raise ValueError(f"bag {path} has no usable message on {camera.topic.name}: {problem}")
