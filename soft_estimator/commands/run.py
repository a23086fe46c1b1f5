"""`soft-estimator run`: the ROS 2 graph without `ros2 launch`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import threading
from typing import Any

from soft_estimator.commands.console import HelpFormatter, bold

DESCRIPTION = """Start the ROS 2 nodes as processes and end them together with Ctrl-C.

  live    a depth camera that is running: clouds or depth images in, estimates and the digital twin out
  replay  a recorded bag instead of the camera
  demo    the simulated camera of a scene

The same graphs as the launch files estimate, replay and demo, with the same arguments, for where launch is not
installed. Clouds travel through shared memory, by a Fast DDS profile, unless FASTRTPS_DEFAULT_PROFILES_FILE is set."""

EPILOG = """exit codes:
  0    it ran for --seconds, or the bag was played
  1    a node died; the lines above say why
  130  ended with Ctrl-C

examples:
  soft-estimator run demo
  soft-estimator run live --preset realsense_d435 --scene my_scene.yaml --body scan.ply
  soft-estimator run live --points-topic /camera/points --sensor-frame camera --sensor-pose "0 0 1 0 1 0 0"
  soft-estimator run replay --bag drop.mcap --scene bouncing_ball"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    from soft_estimator.ros.graph import GRAPHS, GraphOptions
    from soft_estimator.schema.section import kinds_of

    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run the ROS 2 nodes: live camera, bag or demo",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("graph", choices=GRAPHS, metavar="GRAPH", help="live, replay or demo")
    for kind in kinds_of(GraphOptions):
        choices = ", ".join(word for word in kind.rule.choices if word)
        shown = "" if kind.default in (None, "") else f" (default: {str(kind.default).lower()})"
        unit = f" [{kind.rule.unit}]" if kind.rule.unit else ""
        text = f"{kind.rule.doc}{unit}{f'; {choices}' if choices else ''}{shown}".replace("%", "%%")
        name = f"--{kind.name.replace('_', '-')}"
        option = parser.add_argument(name, metavar="X", default="", help=text, dest=f"option_{kind.name}")
        if kind.form == "truth value":  # --rviz alone is --rviz true
            option.nargs, option.const = "?", "true"
    parser.add_argument("--json", action="store_true", help="print what the nodes say as JSON, one object a line")
    parser.add_argument("--seconds", metavar="S", type=float, help="end after this time")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if importlib.util.find_spec("rclpy") is None:
        raise ValueError(
            "rclpy is not installed; run: pip install 'soft_estimator[ros]', or source a ROS 2 installation"
        )
    from soft_estimator.ros.graph import build_graph, options_from_text
    from soft_estimator.ros.run import run_graph

    given = {k.removeprefix("option_"): v for k, v in vars(args).items() if k.startswith("option_")}
    graph = build_graph(args.graph, options_from_text(given))
    lock = threading.Lock()

    def say(name: str, line: str) -> None:
        with lock:
            told = json.dumps({"node": name, "line": line}) if args.json else f"{bold(f'[{name}]', sys.stdout)} {line}"
            print(told, flush=True)

    return run_graph(graph, say, seconds=args.seconds)
