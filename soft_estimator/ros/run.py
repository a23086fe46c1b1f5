"""A graph as processes of this machine, where launch is not installed: started, watched, ended together."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import yaml

from soft_estimator.ros.graph import Graph, NodeSpec
from soft_estimator.ros.transport import transport_note

EXIT_NODE_DIED = 1
EXIT_MISTAKE = 2  # of a node whose parameters are wrong
_GRACE_S = 8.0  # from Ctrl-C to a kill; a node finishes the update at hand
RESTART_AFTER_S = 1.0  # a node that dies at once must not fill the log

Say = Callable[[str, str], None]  # name of the process, a line


@dataclass
class _Running:
    name: str
    command: list[str]
    node: bool
    process: subprocess.Popen[str]
    restart_at_s: float | None = None


def node_command(spec: NodeSpec, folder: Path) -> list[str]:
    """The command line of a node; its parameters go through files in `folder`, which keep their types."""
    command = [sys.executable, "-m", "soft_estimator.ros.start", spec.executable, "--ros-args"]
    for k, told in enumerate(spec.told):
        if isinstance(told, dict):
            file = folder / f"{spec.executable}_{k}.yaml"
            file.write_text(yaml.safe_dump({"/**": {"ros__parameters": told}}), encoding="utf-8")
        command += ["--params-file", str(file if isinstance(told, dict) else told)]
    for old, new in spec.remappings:
        command += ["-r", f"{old}:={new}"]
    if spec.namespace:
        command += ["-r", f"__ns:=/{spec.namespace.strip('/')}"]
    return command


def run_graph(graph: Graph, say: Say, *, restart: bool = False, seconds: float | None = None) -> int:
    """Run a graph until it ends, somebody interrupts, or `seconds` have passed; returns the exit code.

    Args:
        say: told every line that a process writes.
        restart: start a node anew when it dies; else its end ends the graph.
    """
    environment = {**os.environ, **graph.environment, "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory(prefix="soft_estimator_") as folder:
        running: list[_Running] = []
        beside: list[_Running] = []
        code = 0
        note = transport_note()
        if note and graph.nodes:
            say("run", note)
        before = _interrupt_on_terminate()
        try:
            for spec in graph.nodes:
                running.append(_start(spec.executable, node_command(spec, Path(folder)), True, environment, say))
            for command in graph.commands:
                running.append(_start("player", list(command), False, environment, say))
            beside += [_start(command[0], list(command), False, environment, say) for command in graph.beside]
            code = _watch(running, environment, say, restart or graph.restart, seconds, graph.linger_s)
        except KeyboardInterrupt:
            code = 130
        finally:
            _end([*running, *beside], say)
            if before is not None:
                signal.signal(signal.SIGTERM, before)
        return code


def _interrupt_on_terminate() -> Any:
    """SIGTERM ends a graph as Ctrl-C does; returns what was there before."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    return signal.signal(signal.SIGTERM, interrupt)


def _start(name: str, command: list[str], node: bool, environment: dict[str, str], say: Say) -> _Running:
    # A session of its own: the terminal's Ctrl-C reaches the nodes once, through us.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )
    threading.Thread(target=_forward, args=(name, process, say), daemon=True).start()
    say("run", f"{name} started, process {process.pid}")
    return _Running(name, command, node, process)


def _end_with_parent() -> None:
    """In the new process: be interrupted when the one that started it is gone, however it went."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def _forward(name: str, process: subprocess.Popen[str], say: Say) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        say(name, line.rstrip("\n"))


def _watch(
    running: list[_Running],
    environment: dict[str, str],
    say: Say,
    restart: bool,
    seconds: float | None,
    linger_s: float,
) -> int:
    end_s = None if seconds is None else monotonic() + seconds
    while end_s is None or monotonic() < end_s:
        for entry in running:
            code = entry.process.poll()
            if code is None:
                continue
            if entry.restart_at_s is None:
                say("run", f"{entry.name} ended with {meaning(code)}")
                if not entry.node:
                    if code != 0:
                        return EXIT_NODE_DIED
                    end_s = min(end_s or math.inf, monotonic() + linger_s)
                    entry.restart_at_s = math.inf
                    continue
                # A mistake in its parameters would only be made again.
                if not restart or code == EXIT_MISTAKE:
                    return code if code in (0, EXIT_MISTAKE) else EXIT_NODE_DIED
                entry.restart_at_s = monotonic() + RESTART_AFTER_S
            elif monotonic() >= entry.restart_at_s:
                fresh = _start(entry.name, entry.command, entry.node, environment, say)
                entry.process, entry.restart_at_s = fresh.process, None
        sleep(0.1)
    return 0


def meaning(code: int) -> str:
    """An exit code in words."""
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _end(running: list[_Running], say: Say) -> None:
    """Interrupt, then terminate, then kill."""
    end_s = monotonic() + _GRACE_S
    for number, wait_s in ((signal.SIGINT, _GRACE_S), (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        left = [entry for entry in running if entry.process.poll() is None]
        if not left:
            return
        if number != signal.SIGINT:
            say("run", f"{', '.join(entry.name for entry in left)} did not end; sending {number.name}")
        for entry in left:
            entry.process.send_signal(number)
        end_s = monotonic() + wait_s
        while monotonic() < end_s and any(entry.process.poll() is None for entry in left):
            try:
                sleep(0.05)
            except KeyboardInterrupt:  # an impatient second Ctrl-C goes one step further
                break
