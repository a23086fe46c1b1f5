"""The estimator's services: start, stop, reset, save, export (std_srvs/Trigger each)."""

from __future__ import annotations

from pathlib import Path
from time import strftime
from typing import Any, Protocol

from lifecycle_msgs.msg import State as Phase
from std_srvs.srv import Trigger

from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.export import FORMATS, Result, export
from soft_estimator.ros.reports import estimate_json
from soft_estimator.ros.settings import EstimatorSettings
from soft_estimator.ros.worker import Worker
from soft_estimator.scene.rest_shape import RestShape
from soft_estimator.scene.scene import Scene


class Served(Protocol):
    """What the services need of the estimator's node."""

    active: bool
    worker: Worker[Any] | None
    window: SlidingWindow | None
    scene: Scene | None
    settings: EstimatorSettings

    def phase(self) -> int: ...

    def trigger_configure(self) -> Any: ...

    def trigger_activate(self) -> Any: ...

    def trigger_deactivate(self) -> Any: ...

    def create_service(self, kind: Any, name: str, answer: Any) -> Any: ...


def serve(node: Served) -> None:
    """Offer the services of a node."""
    for name, call in _SERVICES:

        def answer(_: Trigger.Request, response: Trigger.Response, call: object = call) -> Trigger.Response:
            if node.phase() == Phase.PRIMARY_STATE_FINALIZED:
                response.success, response.message = False, "the node was shut down; start its process anew"
            else:
                response.success, response.message = call(node)  # type: ignore[operator]
            return response

        node.create_service(Trigger, f"~/{name}", answer)


def start(node: Served) -> tuple[bool, str]:
    """Configure where needed, and let frames in."""
    if node.phase() == Phase.PRIMARY_STATE_UNCONFIGURED:
        node.trigger_configure()
    if node.phase() == Phase.PRIMARY_STATE_INACTIVE:
        node.trigger_activate()
    return node.active, "taking in frames" if node.active else "could not be configured; see /diagnostics"


def stop(node: Served) -> tuple[bool, str]:
    """Pass frames over; the estimate is kept."""
    if node.phase() == Phase.PRIMARY_STATE_ACTIVE:
        node.trigger_deactivate()
    return not node.active, "frames are passed over"


def reset(node: Served) -> tuple[bool, str]:
    """Forget everything and start from the first guesses."""
    worker, window = node.worker, node.window
    if worker is None or window is None:
        return False, "there is no window yet"
    worker.clear()
    worker.ask("reset", window.reset)
    return True, "starts anew from the first guesses"


def save(node: Served) -> tuple[bool, str]:
    """Write the newest estimate into the folder save_to."""
    window, scene = node.window, node.scene
    last = None if window is None else window.last
    if window is None or scene is None or last is None:
        return False, "there is no estimate yet"
    folder = Path(node.settings.save_to)
    path = folder / f"estimate_{strftime('%Y%m%d_%H%M%S')}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(estimate_json(last, scene.config.name, window.counters.as_dict()), encoding="utf-8")
    except OSError as error:
        return False, f"cannot write to {folder} ({error.strerror})"
    return True, str(path)


def export_body(node: Served) -> tuple[bool, str]:
    """Write the newest estimate as a body for other simulators, in every format, into a new folder in save_to.

    Meshing takes a second or more: the worker does it between two frames, and a failure shows in /diagnostics. A call
    that comes before the last one was begun takes its place.
    """
    worker, window, scene = node.worker, node.window, node.scene
    last = None if window is None else window.last
    if worker is None or scene is None or last is None or last.posterior is None:
        return False, "there is no estimate yet"
    folder = Path(node.settings.save_to) / f"export_{strftime('%Y%m%d_%H%M%S')}"
    result = Result(folder, scene.config, RestShape.of(scene.body), last.posterior, followed=True)

    def write() -> None:
        for to in FORMATS:
            export(result, to, folder)

    worker.ask("export", write)
    return True, f"is being written to {folder}"


_SERVICES = (("start", start), ("stop", stop), ("reset", reset), ("save", save), ("export", export_body))
