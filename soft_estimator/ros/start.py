"""The nodes' executables: an interrupt while the libraries are loaded ends a node as cleanly as one later.

    python -m soft_estimator.ros.start cloud_node --ros-args ...

Nothing heavy may be imported here, nor rclpy.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys


def run(node: str) -> int:
    """Load a node and run it; returns the exit code."""
    # Loading takes seconds. Python's own handler would end it by a traceback from somewhere in a library.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    return int(importlib.import_module(f"soft_estimator.ros.{node}").main())


def camera_node() -> int:
    """Run camera_node."""
    return run("camera_node")


def cloud_node() -> int:
    """Run cloud_node."""
    return run("cloud_node")


def estimator_node() -> int:
    """Run estimator_node."""
    return run("estimator_node")


def twin_node() -> int:
    """Run twin_node."""
    return run("twin_node")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
