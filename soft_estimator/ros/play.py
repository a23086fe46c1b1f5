"""Publishing a bag into a running graph in real time, with /clock: `soft-estimator replay BAG --play`.

The bytes of the recording are published as they are. SIGUSR1 pauses and goes on; Ctrl-C ends.
"""

from __future__ import annotations

import importlib
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rclpy
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock

from soft_estimator.recordings.bag_files import Bag, Topic, list_topics
from soft_estimator.recordings.messages import CLOUD, IMAGE

Say = Callable[[str], None]

_CLOCK_PERIOD_S = 0.01  # of the wall clock
_WAIT_FOR_LISTENERS_S = 20.0  # nodes that start beside the player may compile first
_CAMERA = (CLOUD, IMAGE)
_FINDER, _ESTIMATOR = "cloud_node", "estimator_node"
_LATELY_S = 5.0  # reports come once a second
_FIRST_REPORT_S = 30.0  # a node's start, with its imports, takes 5 s on an idle machine
_BOTH_WAYS_S = 0.2  # a subscriber that is seen may not yet know of the publisher
_MOST_PREPARING_S = 300.0  # its loops may compile for minutes, the first time
_MOST_DIGESTING_S = 120.0


class BagClock:
    """The recording's time, which runs `rate` times as fast as the wall clock and stands still while paused."""

    def __init__(self, start_ns: int, rate: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self.rate, self._now_s = rate, now_s
        self._bag_ns, self._since_s, self.paused = start_ns, now_s(), False

    def now_ns(self) -> int:
        """Where the recording is [ns]."""
        gone_s = 0.0 if self.paused else self._now_s() - self._since_s
        return self._bag_ns + int(1e9 * self.rate * gone_s)

    def toggle(self) -> None:
        """Pause, or go on."""
        self._bag_ns, self._since_s = self.now_ns(), self._now_s()
        self.paused = not self.paused

    def restart(self, start_ns: int) -> None:
        """Jump to a time of the recording."""
        self._bag_ns, self._since_s = start_ns, self._now_s()


class NodeWatch:
    """What the nodes that use a recording say of themselves on /diagnostics.

    A node counts while it was heard lately, or while the graph still lists it: one that is deep in its work, or
    compiles, may be silent for longer. `ready` and `digested` answer for those heard so far.
    """

    def __init__(self, node: Node, now_s: Callable[[], float] = time.monotonic) -> None:
        self._node, self._now_s = node, now_s
        self._heard: dict[str, tuple[float, dict[str, str]]] = {}
        node.create_subscription(DiagnosticArray, "/diagnostics", self.listen, 100)

    def listen(self, message: DiagnosticArray) -> None:
        """Take in a report."""
        for status in message.status:
            if status.name.rsplit("/", 1)[-1] in (_FINDER, _ESTIMATOR):
                self._heard[status.name] = (self._now_s(), {v.key: v.value for v in status.values})

    def _present(self) -> list[tuple[float, dict[str, str]]]:
        silent = {name for name, (at_s, _) in self._heard.items() if self._now_s() - at_s >= _LATELY_S}
        if silent:
            listed = self._node.get_node_names_and_namespaces()
            silent -= {f"{namespace}/{name}".lstrip("/") for name, namespace in listed}
        return [entry for name, entry in self._heard.items() if name not in silent]

    @property
    def estimating(self) -> bool:
        """Whether an estimator was heard."""
        return any("window" in values for _, values in self._present())

    @property
    def finding(self) -> bool:
        """Whether a node that looks for the object in clouds was heard."""
        return any("clouds_waiting" in values for _, values in self._present())

    @property
    def ready(self) -> bool:
        """Whether every estimator has its window and takes frames, and every cloud's node is warm."""
        all_values = [values for _, values in self._present()]
        windows = [v for v in all_values if "window" in v]
        warm = all(v.get("preparing", "false") == "false" for v in all_values)
        return warm and bool(windows) and all(v["window"] != "preparing" and v.get("active") == "true" for v in windows)

    def digested(self, since_s: float) -> bool:
        """Whether nothing waits any more in any node, nor is at hand, by reports from after a time."""
        present = self._present()
        working = any(values.get("working") == "true" for _, values in present)
        waits = (int(values.get(key, "0")) for _, values in present for key in ("clouds_waiting", "frames_waiting"))
        return all(at_s > since_s for at_s, _ in present) and not any(waits) and not working


class Player:
    """Publishers for the topics of an open bag whose types are installed."""

    def __init__(self, node: Node, bag: Bag) -> None:
        self.node, self.bag = node, bag
        self.clock_publisher = node.create_publisher(Clock, "/clock", 10)
        self.publishers: dict[str, Publisher] = {}
        self.camera: list[Publisher] = []
        self.left_out: list[str] = []
        for topic in bag.topics:
            self._offer(topic)
        self.published: dict[str, int] = dict.fromkeys(self.publishers, 0)

    def _offer(self, topic: Topic) -> None:
        if topic.name == "/clock" or not topic.count:  # time is ours to tell
            return
        message_class = message_class_of(topic.kind)
        if message_class is None:
            self.left_out.append(f"{topic.name} ({topic.kind} is not installed)")
            return
        latched = topic.name.endswith("tf_static")
        qos = QoSProfile(
            depth=100 if latched else 10,
            reliability=ReliabilityPolicy.RELIABLE,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        )
        publisher = self.node.create_publisher(message_class, topic.name, qos)
        self.publishers[topic.name] = publisher
        if topic.kind in _CAMERA:
            self.camera.append(publisher)

    def wait_for_listeners(self, seconds: float, ok: Callable[[], bool]) -> bool:
        """Wait until somebody listens to a camera, so that the first frames are not lost."""
        end_s = time.monotonic() + seconds
        while ok() and time.monotonic() < end_s:
            if any(publisher.get_subscription_count() for publisher in self.camera):
                time.sleep(_BOTH_WAYS_S)
                return True
            time.sleep(0.05)
        return not self.camera

    def reaches(self, name: str) -> bool:
        """Whether a node of that name listens to a camera; others may listen, too, and long before."""
        infos = [i for p in self.camera for i in self.node.get_subscriptions_info_by_topic(p.topic_name)]
        return any(info.node_name == name for info in infos)

    def play(self, clock: BagClock, ok: Callable[[], bool]) -> None:
        """Publish every message when its time has come."""
        for number, message in enumerate(self.bag.messages(set(self.publishers))):
            if number == 0:
                clock.restart(message.stamp_ns)
            while ok() and (clock.paused or clock.now_ns() < message.stamp_ns):
                self.tell_time(clock)
                left_s = 1e-9 * (message.stamp_ns - clock.now_ns()) / clock.rate
                time.sleep(_CLOCK_PERIOD_S if clock.paused else min(max(left_s, 0.0), _CLOCK_PERIOD_S))
            if not ok():
                return
            self.publishers[message.topic].publish(bytes(message.raw))
            self.published[message.topic] += 1

    def tell_time(self, clock: BagClock) -> None:
        seconds, rest = divmod(clock.now_ns(), 10**9)
        self.clock_publisher.publish(Clock(clock=Time(sec=int(seconds), nanosec=int(rest))))

    def finish(self, seconds: float = 2.0) -> None:
        """Let reliable messages arrive before the publishers go."""
        for publisher in self.publishers.values():
            publisher.wait_for_all_acked(Duration(seconds=seconds))


def message_class_of(kind: str) -> Any:
    """The class of a message type such as sensor_msgs/msg/PointCloud2, None where its package is not installed."""
    package, _, name = kind.replace("/msg/", "/").partition("/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), name, None)
    except ImportError:
        return None


def _wait(node: Node, condition: Callable[[], bool], seconds: float) -> bool:
    """Listen until a condition holds; whether it came to hold in time."""
    end_s = time.monotonic() + seconds
    while rclpy.ok() and time.monotonic() < end_s:
        if condition():
            return True
        rclpy.spin_once(node, timeout_sec=0.05)
    return condition()


def _wait_until_ready(player: Player, watch: NodeWatch, say: Say) -> None:
    """Until the nodes are warm and listen: frames before that would be lost, left out, or only wait."""
    node, camera = player.node, bool(player.camera)
    if not _wait(node, lambda: watch.estimating and (watch.finding or not camera), _FIRST_REPORT_S):
        missing = _FINDER if watch.estimating else _ESTIMATOR
        say(f"no {missing} reports on /diagnostics; playing all the same")
    elif not _wait(node, lambda: watch.ready, _MOST_PREPARING_S):
        say(f"the nodes are not ready after {_MOST_PREPARING_S:.0f} s; playing all the same")
    elif camera and not _wait(node, lambda: player.reaches(_FINDER), _WAIT_FOR_LISTENERS_S):
        say(f"{_FINDER} does not listen to {', '.join(p.topic_name for p in player.camera)}; playing all the same")
    time.sleep(_BOTH_WAYS_S)


def _wait_until_digested(node: Node, watch: NodeWatch, say: Say) -> None:
    """Until no node has anything to do, by two reports in a row: clouds on their way count as waiting nowhere."""
    for _ in range(2):
        since_s = time.monotonic()
        if not _wait(node, lambda since_s=since_s: watch.digested(since_s), _MOST_DIGESTING_S):  # type: ignore[misc]
            say(f"frames still wait {_MOST_DIGESTING_S:.0f} s after the end of the bag; ending all the same")
            return


def play_bag(
    path: Path | str,
    *,
    rate: float = 1.0,
    loop: bool = False,
    say: Say = lambda text: None,
    wait_s: float = _WAIT_FOR_LISTENERS_S,
    wait_for_nodes: bool = False,
    ended: Callable[[dict[str, int]], None] = lambda published: None,
) -> dict[str, int]:
    """Publish a bag; returns how many messages went out on each topic.

    Args:
        rate: seconds of the recording a second. loop: begin anew at the end, a jump back in time.
        say: told what a user should know. wait_s: longest wait for a first subscriber [s].
        wait_for_nodes: begin when cloud_node and estimator_node are ready, and end when every frame was used.
        ended: told what went out when all is played, or an interrupt ended it; only the publishers go after that.
    """
    rclpy.init()
    node = rclpy.create_node("bag_player")
    watch = NodeWatch(node) if wait_for_nodes else None
    clock = BagClock(0, rate)
    before = _pause_on_signal(clock, say)
    published: dict[str, int] = {}
    try:
        with Bag(path) as bag:
            player = Player(node, bag)
            published = player.published
            if not player.publishers:
                raise ValueError(f"bag {bag.path} has no topic that can be published; {list_topics(bag.topics)}")
            if player.left_out:
                say(f"not published: {', '.join(player.left_out)}")
            if not player.wait_for_listeners(wait_s, rclpy.ok):
                say(f"nobody listens to {', '.join(p.topic_name for p in player.camera)}; playing all the same")
            if watch is not None:
                _wait_until_ready(player, watch, say)
            player.play(clock, rclpy.ok)
            while loop and rclpy.ok():
                player.play(clock, rclpy.ok)
            if rclpy.ok():
                player.finish()
            if rclpy.ok() and watch is not None:
                _wait_until_digested(node, watch, say)
            ended(published)
    except KeyboardInterrupt:
        ended(published)
    finally:
        if before is not None:
            signal.signal(signal.SIGUSR1, before)
        node.destroy_node()
        rclpy.try_shutdown()
    return published


def _pause_on_signal(clock: BagClock, say: Say) -> Any:
    if threading.current_thread() is not threading.main_thread():
        return None

    def toggle(*_: Any) -> None:
        clock.toggle()
        say("paused; send SIGUSR1 again to go on" if clock.paused else "going on")

    return signal.signal(signal.SIGUSR1, toggle)
