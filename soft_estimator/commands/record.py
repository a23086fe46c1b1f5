"""`soft-estimator record`: simulate a scene and write what its cameras see as a ROS 2 bag."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from soft_estimator.commands.console import HelpFormatter, ProgressBar, bold
from soft_estimator.commands.numbers import positive
from soft_estimator.commands.scene_setup import add_computing, add_progress, add_scene, make_ready, read_scene_argument

DESCRIPTION = """Simulate a scene, look at it with its depth cameras (`observe`) and their noise, and write a rosbag2.

The contact plane stands in the images as a table. ROS is not needed; `ros2 bag play` and `soft-estimator replay` read
the bag."""

EPILOG = """topics (a second camera is camera_2, and so on):
  /camera/depth/image            sensor_msgs/Image, 16UC1 millimetres
  /camera/depth/camera_info      sensor_msgs/CameraInfo
  /camera/points                 sensor_msgs/PointCloud2 of floats, organised, optical frame, NaN where nothing was
                                 measured; with --topics points, six times as large
  /tf_static                     world -> camera_optical_frame
  /tf                            world -> tool, tool_2, ...: obstacles that are led, in the scene's order
  /wrench                        geometry_msgs/WrenchStamped of the first sensor in observe.wrenches; /wrench_2, ...
  /ground_truth                  diagnostic_msgs/DiagnosticArray, one status for each parameter
  /ground_truth/mesh             visualization_msgs/Marker, the true surface as triangles

examples:
  soft-estimator record bouncing_ball --out bags/ball
  soft-estimator record bouncing_ball --out bags/ball_db3 --format sqlite3 --seconds 0.5
  soft-estimator record bouncing_ball --out bags/clouds --topics points
  soft-estimator replay bags/ball --scene bouncing_ball --out out/ball"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "record",
        help="write what a scene's cameras see as a ROS 2 bag",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    add_scene(parser)
    parser.add_argument(
        "--out", metavar="BAG_DIR", type=Path, required=True, help="folder of the bag; must not exist yet"
    )
    parser.add_argument("--format", choices=("mcap", "sqlite3"), default="mcap", help="storage (default: mcap)")
    parser.add_argument(
        "--topics", nargs="+", choices=("depth", "points"), default=["depth"], help="of each camera (default: depth)"
    )
    parser.add_argument(
        "--seconds", metavar="S", type=positive("number of seconds"), help="time watched, instead of the scene's own"
    )
    add_computing(parser)
    parser.add_argument("--json", action="store_true", help="print what was written as JSON, and nothing else")
    add_progress(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    config, folder = read_scene_argument(args)
    if args.out.exists():
        raise ValueError(f"--out {args.out} exists already; name a folder that does not, or remove it")

    from soft_estimator.camera.scene_cameras import scene_cameras, scene_lasting, times_from_start
    from soft_estimator.recordings.record import record_scene

    config = scene_lasting(config, args.seconds)
    scene_cameras(config)  # what is missing is said before the work starts
    with ProgressBar(args.progress) as progress:
        scene, backend = make_ready(args, config, folder, progress)
        progress("recording", 0, len(times_from_start(config)))
        summary = record_scene(scene, backend, args.out, args.format, progress, args.topics)
    print(json.dumps(summary) if args.json else _report(summary))
    return 0


def _report(summary: dict[str, Any]) -> str:
    """A few lines for people."""
    width = max(map(len, summary["topics"]))
    lines = [
        bold(summary["bag"], sys.stdout),
        f"  {summary['frames']} frames over {summary['seconds']:.3g} s of {summary['scene']}, "
        f"{summary['cameras']} camera(s), {summary['bytes'] / 1e6:.1f} MB of {summary['format']}, "
        f"{summary['wall_s']:.1f} s",
        *(f"  {topic:<{width}}  {count}" for topic, count in summary["topics"].items()),
    ]
    return "\n".join(lines)
