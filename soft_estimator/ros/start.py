"""The nodes' executables: an interrupt while the libraries are loaded ends a node as cleanly as one later.

    python -m soft_estimator.ros.start cloud_node --ros-args ...

Nothing heavy may be imported here, nor rclpy.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys

# A window's matrices are small, and BLAS threads wait for each other: on 16 cores an update took 168 to 200 ms, with
# one thread 78 to 93. Sums do not depend on the number of cores then, either. What the user has set holds.
_BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run(node: str) -> int:
    """Load a node and run it; returns the exit code."""
    for name in _BLAS:  # read when NumPy is loaded
        os.environ.setdefault(name, "1")
    # Loading takes seconds. Python's own handler would end it by a traceback from somewhere in a library.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    # What is loaded stays to the end: who looks through it for garbage takes a tenth of the time in which it is loaded,
    # and later a node's time, again and again.
    gc.disable()
    module = importlib.import_module(f"soft_estimator.ros.{node}")
    gc.freeze()
    gc.enable()
    return int(module.main())


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
