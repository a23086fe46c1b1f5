"""Starting and ending a node: mistakes become one line and exit code 2, Ctrl-C ends it cleanly."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.executors import ExternalShutdownException

from soft_estimator.ros.ending import MOST_END_S, exit_after
from soft_estimator.ros.run import EXIT_MISTAKE


def run_node(make: Callable[[], Any], arguments: list[str] | None = None) -> int:
    """Spin the node that `make` gives until it is interrupted; returns the exit code. The node has a `close()`."""
    interrupted = False

    def interrupt(*_: Any) -> None:
        nonlocal interrupted
        interrupted = True
        exit_after(MOST_END_S, 0)

    # rclpy's own handler ends the context. Python's would raise KeyboardInterrupt wherever the code happens to be, even
    # in the middle of a conversion.
    signal.signal(signal.SIGINT, interrupt)
    rclpy.init(args=arguments)
    node = None
    code = 0
    try:
        if not interrupted:  # before rclpy's handler was there to see it
            node = make()
            rclpy.spin(node)
    except ExternalShutdownException:
        pass
    except (ValueError, OSError, InvalidParameterTypeException, InvalidParameterValueException) as error:
        if node is not None:  # a mistake in the start-up is the user's; later it is ours
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        code = EXIT_MISTAKE
    except Exception:
        if rclpy.ok():  # what was at hand when the context ended may fail in any way
            raise
    exit_after(MOST_END_S, code)
    if node is not None and not node.close():
        # A thread deep in compiled code cannot be asked to stop, and a node that is destroyed under it ends in a
        # segmentation fault. Nothing is left to be written.
        print(f"{node.get_name()} ends in the middle of its work", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if node is not None:
        node.destroy_node()
    rclpy.try_shutdown()
    return code
