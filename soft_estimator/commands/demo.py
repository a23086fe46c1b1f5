"""`soft-estimator demo`: the whole graph on this machine, with a simulated camera, for about a minute."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import Any

from soft_estimator.backends.choose import BACKENDS, WHERE_TO_COMPUTE
from soft_estimator.commands.console import HelpFormatter, bold, stderr_line

DESCRIPTION = """Run the real ROS 2 graph with a simulated depth camera, watch it estimate, and write a report.

Four processes: camera (a soft ball dropped onto a table again and again), cloud (finds the ball's points), estimator
(stiffness, damping, contact plane, each with its uncertainty) and twin (the deforming mesh). It ends by itself."""

EPILOG = """written to --out:
  report.html    what was found, over time and in 3D; one file, opens anywhere
  metrics.json   errors against the simulated truth, interval coverage, surface error, latency
  bag/           the first drops as a rosbag2, for `soft-estimator replay`
  animation.gif  the digital twin
  graph.log      what the nodes said

examples:
  soft-estimator demo
  soft-estimator demo --out out/demo --seconds 30 --json"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="run the whole graph with a simulated camera and write a report",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("out/demo"), help="folder (default: out/demo)")
    parser.add_argument(
        "--scene", metavar="SCENE", default="demo_drop", help="scene with a camera (default: demo_drop)"
    )
    parser.add_argument("--seconds", metavar="S", type=float, default=40.0, help="time to watch [s] (default: 40)")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=f"{WHERE_TO_COMPUTE} (default: auto)")
    parser.add_argument("--json", action="store_true", help="print the metrics as JSON at the end, nothing else")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if importlib.util.find_spec("rclpy") is None:
        raise ValueError(
            "rclpy is not installed; run: pip install 'soft_estimator[ros]', or source a ROS 2 installation"
        )
    if not args.seconds > 0:
        raise ValueError(f"--seconds = {args.seconds} must be positive")
    from soft_estimator.ros.demo import DemoFailed, keep_lines, run_demo

    lock, drawn, last = threading.Lock(), [0], [0.0]

    def say(line: str) -> None:
        drawn[0] = 0
        if not args.json:
            stderr_line(line)

    def show(lines: list[str]) -> None:
        if args.json:
            return
        if sys.stderr.isatty():
            keep_lines(lines, sys.stderr, lock, drawn)
        elif monotonic() - last[0] > 5.0:
            last[0] = monotonic()
            print("\n".join(lines), file=sys.stderr, flush=True)

    try:
        result = run_demo(args.scene, args.out, args.seconds, args.backend, say, show)
    except DemoFailed as error:
        stderr_line(f"{error} ({args.out / 'graph.log'})", "error")
        return 1
    if args.json:
        print(json.dumps(result.metrics))
        return 0
    print(bold("written", sys.stdout))
    for name, path in result.files.items():
        print(f"  {name:<14} {path}")
    return 0
