"""The page about a replay, for the command line: it follows the estimates and hands over report.html at the end."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from soft_estimator.estimation.window.live_estimate import LiveEstimate
    from soft_estimator.live.replay import ReplayResult
    from soft_estimator.scene.scene import Scene


class ReportListener:
    """A `Listener` that gathers what soft_estimator.report shows of a live run."""

    def __init__(self) -> None:
        self._history: Any = None

    def begin(self, scene: Scene) -> None:
        """Start to gather."""
        self._history = importlib.import_module("soft_estimator.report.of_live").LiveHistory(scene)

    def add(self, estimate: LiveEstimate) -> None:
        """Take in an estimate."""
        self._history.add(estimate)

    def files(self, result: ReplayResult) -> dict[str, bytes]:
        """The page."""
        from soft_estimator.live.replay_config import config_text
        from soft_estimator.report import report_html

        content = self._history.content(
            subtitle=f"Replay of {result.bag.name}, frame by frame as a live camera.",
            truth=result.truth,
            counters=result.counters,
            refusals=result.refusals,
            facts=_facts(result.metrics),
            configuration=config_text(result.config),
        )
        return {"report.html": report_html(content).encode()}


def _facts(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """What was measured, in words."""
    from soft_estimator.pictures.wording import plain_name

    facts = [("frames in the bag", str(metrics["frames"]["in_bag"])), ("topic", metrics["topic"])]
    for row in metrics["parameters"]:
        if row["truth"] is not None and row["value"] is not None:
            after, name = row["converged_after_s"], plain_name(row["name"])
            facts.append((f"{name}, intervals that hold the truth", f"{100 * row['coverage_95']:.0f} %"))
            facts.append((f"{name}, within 5 % after", "never" if after is None else f"{after:.3g} s"))
    surface, ahead = metrics["surface"], metrics["held_out"]
    if surface:
        facts.append(("surface off the true one, root mean square", f"{surface['rms_voxels']:.3g} voxels"))
    if ahead and ahead["frames"]:
        text = f"{1e3 * ahead['rms_m']:.3g} mm over {ahead['horizon_s']:.3g} s"
        facts.append(("points foretold without looking, root mean square", text))
    return facts
