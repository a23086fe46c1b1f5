"""`soft-estimator ros-interface`: the reference of the ROS 2 nodes, made from the code."""

from __future__ import annotations

import argparse
import json
from typing import Any

from soft_estimator.commands.console import HelpFormatter

EPILOG = """examples:
  soft-estimator ros-interface
  soft-estimator ros-interface --json
  soft-estimator ros-interface > docs/ros_interface.md"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "ros-interface",
        help="print the reference of the ROS 2 nodes",
        description="Print topics, types, QoS, services and parameters of every node, as Markdown. Needs no ROS.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from soft_estimator.ros.interface import interface_markdown, interface_rows

    print(json.dumps(interface_rows(), indent=1, default=str) if args.json else interface_markdown(), end="")
    return 0
