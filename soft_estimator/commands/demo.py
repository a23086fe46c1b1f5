"""`soft-estimator demo`: the whole graph on this machine, with a simulated camera, for about a minute."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from time import monotonic
from typing import Any

from soft_estimator.backends.choose import BACKENDS, WHERE_TO_COMPUTE
from soft_estimator.commands.console import HelpFormatter, bold, stderr_line

_PLAIN_EVERY_S = 5.0

DESCRIPTION = """Run the real ROS 2 graph with a simulated depth camera, watch it estimate, and write a report.

Four processes: camera (a soft ball dropped onto a table again and again), cloud (finds the ball's points), estimator
(stiffness, damping, contact plane, each with its uncertainty) and twin (the deforming mesh). It ends by itself.

Where rclpy is not installed the same job runs without the graph: the simulated camera's bag is recorded, replayed frame
by frame, and reported on; it takes as long as it takes."""

EPILOG = """written to --out:
  report.html    what was found, over time and in 3D; one file, opens anywhere
  metrics.json   errors against the simulated truth, interval coverage, surface error, latency
  bag/           the first drops as a rosbag2, for `soft-estimator replay`
  animation.gif  the digital twin
  graph.log      what the nodes said; without ROS estimates.csv and replay.yaml instead

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
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=float,
        default=40.0,
        help="time to watch [s] (default: 40; without ROS the scene's own duration at most)",
    )
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=f"{WHERE_TO_COMPUTE} (default: auto)")
    parser.add_argument("--json", action="store_true", help="print the metrics as JSON at the end, nothing else")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if not args.seconds > 0:
        raise ValueError(f"--seconds = {args.seconds} must be positive")
    lines = _Lines(quiet=args.json)
    job = (args.scene, args.out, args.seconds, args.backend, lines.say, lines.show)
    if importlib.util.find_spec("rclpy") is None:
        from soft_estimator.commands.demo_recorded import WHY, run_recorded_demo

        stderr_line(WHY, "note")
        return _finish(args, *run_recorded_demo(*job))
    from soft_estimator.ros.demo import DemoFailed, run_demo

    try:
        result = run_demo(*job)
    except DemoFailed as error:
        stderr_line(f"{error} ({args.out / 'graph.log'})", "error")
        return 1
    return _finish(args, result.files, result.metrics)


class _Lines:
    """What happens, a line each, and the newest estimate: over itself on a terminal, every few seconds elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._drawn, self._last_s = quiet, 0, 0.0

    def say(self, line: str) -> None:
        self._drawn = 0
        if not self._quiet:
            stderr_line(line)

    def show(self, lines: list[str]) -> None:
        if self._quiet:
            return
        if sys.stderr.isatty():
            width = shutil.get_terminal_size((100, 24)).columns
            over = f"\033[{self._drawn}F\033[J" if self._drawn else ""
            print(over + "\n".join(line[: width - 1] for line in lines), file=sys.stderr, flush=True)
            self._drawn = len(lines)
        elif monotonic() - self._last_s > _PLAIN_EVERY_S:
            self._last_s = monotonic()
            print("\n".join(lines), file=sys.stderr, flush=True)


def _finish(args: argparse.Namespace, files: dict[str, Path], metrics: dict[str, Any]) -> int:
    if args.json:
        print(json.dumps(metrics))
        return 0
    print(bold("written", sys.stdout))
    for name, path in files.items():
        print(f"  {name:<14} {path}")
    return 0
