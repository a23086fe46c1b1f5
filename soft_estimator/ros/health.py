"""How a node is doing: counts, rates, latencies and what went wrong, on /diagnostics once a second."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from soft_estimator.ros.reports import ERROR, OK, WARN, key_values

_PERIOD_S = 1.0  # as diagnostic aggregators expect
_HELD_S = 3.0  # a problem stays on show this long after it was last seen
_KEPT = 500  # latencies that percentiles are taken of


class Health:
    """Counts things and publishes them. Safe to use from a worker's thread."""

    def __init__(
        self,
        node: Node,
        extra: Callable[[], dict[str, Any]] | None = None,
        complaint: Callable[[], str] | None = None,
    ) -> None:
        """extra: further values. complaint: what to warn of when a report is due, "" for nothing."""
        self._node, self._extra, self._complaint = node, extra, complaint
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._times: dict[str, deque[float]] = {}
        self._problems: dict[str, tuple[float, bytes, str]] = {}
        self._last = monotonic()
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # By the steady clock: a clock that stands still, as /clock does when its bag has ended, must not end reports.
        node.create_timer(_PERIOD_S, self._publish, clock=Clock(clock_type=ClockType.STEADY_TIME))

    def count(self, what: str, by: int = 1) -> None:
        """Count an event; its number and rate are published."""
        with self._lock:
            self._counts[what] = self._counts.get(what, 0) + by

    def took(self, what: str, seconds: float) -> None:
        """Note a duration; its median and 99th percentile are published in milliseconds."""
        with self._lock:
            self._times.setdefault(what, deque(maxlen=_KEPT)).append(seconds)

    def note(self, key: str, text: str) -> None:
        """Something that is as it should be, for the log alone; ends a problem of that key."""
        self.clear(key)
        if self._node.context.ok():
            self._node.get_logger().info(text)

    def note_news(self, key: str, news: str) -> None:
        """Note what is new, if anything is: "" for nothing."""
        if news:
            self.note(key, news)

    def warn(self, key: str, text: str) -> None:
        """Something a reader should know; shown while it lasts."""
        if self._note(key, WARN, text):
            self._node.get_logger().warning(text, throttle_duration_sec=5.0)

    def error(self, key: str, text: str) -> None:
        """Something that keeps the node from its work; shown while it lasts."""
        if self._note(key, ERROR, text):
            self._node.get_logger().error(text, throttle_duration_sec=5.0)

    def clear(self, key: str) -> None:
        """A problem is over."""
        with self._lock:
            self._problems.pop(key, None)

    def _note(self, key: str, level: bytes, text: str) -> bool:
        """Keep a problem; False where the node is ending: what fails then, fails because of it."""
        if not self._node.context.ok():
            return False
        with self._lock:
            self._problems[key] = (monotonic(), level, " ".join(text.split()))
        return True

    def _publish(self) -> None:
        complaint = self._complaint() if self._complaint is not None else ""
        if complaint:
            self.warn("complaint", complaint)
        else:
            self.clear("complaint")
        now = monotonic()
        with self._lock:
            passed, self._last = max(now - self._last, 1e-6), now
            values: dict[str, Any] = {}
            for what, count in self._counts.items():
                values[what] = count
                values[f"{what}_per_s"] = round((count - self._before.get(what, 0)) / passed, 2)
            self._before = dict(self._counts)
            for what, times in self._times.items():
                low, high = np.percentile(np.array(times), (50, 99))
                values[f"{what}_p50_ms"], values[f"{what}_p99_ms"] = round(1e3 * low, 2), round(1e3 * high, 2)
            self._problems = {k: p for k, p in self._problems.items() if now - p[0] <= _HELD_S}
            problems = sorted(self._problems.values(), key=lambda p: p[1], reverse=True)
        if self._extra is not None:
            values.update(self._extra())
        status = DiagnosticStatus(
            level=problems[0][1] if problems else OK,
            name=self._node.get_fully_qualified_name().lstrip("/"),
            message="; ".join(text for _, _, text in problems) or "fine",
            hardware_id="soft_estimator",
            values=key_values(values),
        )
        message = DiagnosticArray(status=[status])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)
