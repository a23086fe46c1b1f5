"""Tests with real ROS processes: a domain of their own, no traffic beyond this machine, the package's transport."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("ROS_LOG_DIR", tempfile.mkdtemp(prefix="ros_log_"))
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def free_domain(number: int = 0) -> Iterator[int]:
    """A domain id that no other test on this machine uses; number: of those that this process has at a time."""
    pytest.importorskip("rclpy")
    from soft_estimator.ros.transport import transport_environment

    os.environ.update(transport_environment())
    try:
        from domain_coordinator import domain_id
    except ImportError:
        yield 1 + (os.getpid() + 50 * number) % 100
        return
    with domain_id() as free:
        yield int(free)


@pytest.fixture
def domain() -> Iterator[int]:
    with free_domain() as free:
        yield free


class Peer:
    """The test's own node: it listens, publishes and calls while the nodes under test run as processes."""

    def __init__(self, domain: int) -> None:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("peer", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.heard: dict[str, list[Any]] = {}

    def listen(self, kind: type, topic: str, qos: Any = 10) -> list[Any]:
        """Messages of a topic, as they come in."""
        box = self.heard.setdefault(topic, [])
        self.node.create_subscription(kind, topic, box.append, qos)
        return box

    def until(self, condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
        """Spin until the condition holds; fail after the timeout."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.05)
            found = condition()
            if found:
                return found
        pytest.fail(f"after {timeout_s:g} s still not: {what}")

    def spin(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.02)

    def call(self, kind: type, service: str, request: Any, timeout_s: float = 30.0) -> Any:
        """Call a service; again where an answer stays out, which DDS may lose while the two sides get to know each
        other."""
        client = self.node.create_client(kind, service)
        self.until(client.service_is_ready, timeout_s, f"{service} is there")
        futures, again_s = [client.call_async(request)], time.monotonic() + timeout_s / 3

        def answered() -> Any:
            nonlocal again_s
            if time.monotonic() > again_s:
                futures.append(client.call_async(request))
                again_s += timeout_s / 3
            return next((f for f in futures if f.done()), None)

        future = self.until(answered, timeout_s, f"{service} answers")
        self.node.destroy_client(client)
        return future.result()

    def linked(self, *topics: str) -> None:
        """Wait until each topic that is listened to has a publisher: what it sends from then on arrives."""
        self.until(lambda: all(self.node.count_publishers(t) for t in topics), 120, f"somebody publishes {topics}")

    def diagnosis(self, name: str) -> Any:
        """The newest status of a node on /diagnostics."""
        found = [s for m in self.heard["/diagnostics"] for s in m.status if s.name == name]
        return found[-1] if found else None

    def close(self) -> None:
        import rclpy

        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@contextmanager
def peer_in(domain: int) -> Iterator[Peer]:
    from diagnostic_msgs.msg import DiagnosticArray

    made = Peer(domain)
    made.listen(DiagnosticArray, "/diagnostics", 100)
    yield made
    made.close()


@pytest.fixture
def peer(domain: int) -> Iterator[Peer]:
    with peer_in(domain) as made:
        yield made


class Processes:
    """Nodes as processes; all are ended with the test."""

    def __init__(self, domain: int, folder: Path) -> None:
        self.folder, self.running = folder, []
        self.environment = {**os.environ, "ROS_DOMAIN_ID": str(domain), "PYTHONUNBUFFERED": "1"}

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Run `python -m ...`; what it writes goes to a file."""
        log = (self.folder / f"{len(self.running)}.log").open("w+")
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=log, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env=self.environment, start_new_session=True,
        )  # fmt: skip
        process.log = log  # type: ignore[attr-defined]
        self.running.append(process)
        return process

    def node(self, name: str, **parameters: Any) -> subprocess.Popen[str]:
        import yaml

        file = self.folder / f"{name}_{len(self.running)}.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
        return self.start("soft_estimator.ros.start", name, "--ros-args", "--params-file", str(file))

    def output(self, process: Any) -> str:
        process.log.flush()
        return Path(process.log.name).read_text(errors="replace")

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        end = time.monotonic() + 10
        for process in self.running:
            try:
                process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            process.log.close()


@pytest.fixture
def processes(domain: int, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(domain, tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Processes]]:
    """A peer and processes for all tests of a file that ask the same node: it takes seconds to start one."""
    with free_domain(1) as domain, peer_in(domain) as made:
        processes = Processes(domain, tmp_path_factory.mktemp("together"))
        yield made, processes
        processes.end()
