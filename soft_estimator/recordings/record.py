"""From a scene to a bag: what its cameras would have published, and the truth beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from soft_estimator.backends.interface import Backend
from soft_estimator.camera.rendering import SeenFrame, watch_scene
from soft_estimator.camera.scene_cameras import scene_cameras, times_from_start
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.recordings.cut_off import RecordingCutOff
from soft_estimator.recordings.ground_truth import TRUTH_MESH_TOPIC, TRUTH_TOPIC, truth_rows
from soft_estimator.recordings.record_tools import FIRST_STAMP_NS, FIXED_FRAME, RecordedTools
from soft_estimator.scene.scene import Scene

Progress = Callable[[str, int, int], None]  # stage, done, total

__all__ = ["FIRST_STAMP_NS", "FIXED_FRAME", "camera_names", "optical_frame", "record_scene"]

TOPICS = (
    "points",
    "depth",
)  # of each camera: an organised cloud is six times as large as the depth image it is made of


def camera_names(count: int) -> list[str]:
    """Namespaces of a scene's cameras: camera, camera_2, camera_3, ..."""
    return ["camera", *(f"camera_{k}" for k in range(2, count + 1))][:count]


def optical_frame(camera: str) -> str:
    """Frame of a camera's images and clouds: x right, y down, z forward."""
    return f"{camera}_optical_frame"


def record_scene(
    scene: Scene,
    backend: Backend,
    out: Path | str,
    storage: str = "mcap",
    progress: Progress | None = None,
    topics: Sequence[str] = TOPICS,
) -> dict[str, Any]:
    """Simulate a scene and write what its cameras see as a rosbag2; returns what was written.

    Topics: of each camera <camera>/points (`points` in topics), <camera>/depth/image and <camera>/depth/camera_info
    (`depth`); /tf_static, /ground_truth and /ground_truth/mesh; of led obstacles /tf, of force-torque sensors /wrench.
    """
    cameras, times = scene_cameras(scene.config), times_from_start(scene.config)
    names, clock = camera_names(len(cameras)), perf_counter()
    rows = truth_rows(scene.parameters, plane=scene.config.contact is not None)
    existed, tools = Path(out).exists(), RecordedTools(scene)
    try:
        with BagWriter(out, storage) as bag:
            bag.static_transforms(FIRST_STAMP_NS, FIXED_FRAME, [(optical_frame(n), c) for n, c in zip(names, cameras)])
            for done, frame in enumerate(watch_scene(scene, backend, cameras), 1):
                stamp_ns = FIRST_STAMP_NS + round(1e9 * frame.time_s)
                tools.write(bag, frame)
                for name, camera, points in zip(names, cameras, frame.points_m):
                    optical = optical_frame(name)
                    if "points" in topics:
                        bag.cloud(f"/{name}/points", stamp_ns, optical, points)
                    if "depth" in topics:
                        bag.depth_image(f"/{name}/depth/image", stamp_ns, optical, points[..., 2])
                        bag.camera_info(f"/{name}/depth/camera_info", stamp_ns, optical, camera)
                bag.truth(f"/{TRUTH_TOPIC}", stamp_ns, FIXED_FRAME, scene.config.name, rows)
                _write_mesh(bag, stamp_ns, frame, scene)
                if progress is not None:
                    progress("recording", done, len(times))
            counts = dict(bag.counts)
    except RecordingCutOff:
        raise  # the disk is full; what was recorded up to there is kept, and the message says so
    except BaseException:
        if not existed:  # half a bag would be mistaken for a whole one
            shutil.rmtree(out, ignore_errors=True)
        raise
    return {
        "scene": scene.config.name,
        "bag": str(out),
        "format": storage,
        "frames": len(times),
        "seconds": times[-1],
        "cameras": len(cameras),
        "topics": counts,
        "bytes": sum(file.stat().st_size for file in Path(out).iterdir()),
        "wall_s": perf_counter() - clock,
    }


def _write_mesh(bag: BagWriter, stamp_ns: int, frame: SeenFrame, scene: Scene) -> None:
    bag.mesh(f"/{TRUTH_MESH_TOPIC}", stamp_ns, FIXED_FRAME, frame.surface_m, scene.body.surface.faces)
