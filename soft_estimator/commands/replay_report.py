"""What the command line says of a replay: lines for people, and a page that follows the estimates as they come."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soft_estimator.commands.console import bold

if TYPE_CHECKING:
    from soft_estimator.estimation.window.live_estimate import LiveEstimate
    from soft_estimator.live.replay import ReplayResult
    from soft_estimator.live.replay_job import ReplayOutcome
    from soft_estimator.scene.scene import Scene

MOST_REASONS = 6  # why frames were not used, on a screen; metrics.json has all


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


def why_none(metrics: dict[str, Any]) -> list[str]:
    """Lines about a recording without a single estimate: how many frames were not used, and why."""
    if metrics["estimates"]:
        return []
    frames = metrics["frames"]
    reasons = frames["not_used_because"]
    if not reasons:
        return [f"no estimate from {frames['in_bag']} frames: there are too few of them; record a whole drop"]
    return [
        f"no estimate: {frames['dropped']} of {frames['in_bag']} frames were not used",
        *(f"{r['frames']} frames: {r['reason']}" for r in reasons[:MOST_REASONS]),
    ]


def lines_about(metrics: dict[str, Any], outcome: ReplayOutcome, out: Path) -> str:
    """A few lines for people."""
    from soft_estimator.pictures.wording import choose_unit, rounded, stated

    frames, frame = metrics["frames"], metrics["timing"]["frame"]
    lines = [
        f"{bold(metrics['bag'], sys.stdout)}  {metrics['topic']}",
        f"  frames    {frames['in_bag']} over {metrics['duration_s']:.3g} s, {frames['dropped']} dropped, "
        f"{metrics['estimates']} estimates, {metrics['status']} at the end",
    ]
    if metrics["estimates"]:
        lines += [f"  not used  {r['frames']}: {r['reason']}" for r in frames["not_used_because"][:MOST_REASONS]]
    for row in metrics["parameters"]:
        known = ""
        if row["truth"] is not None:
            after = row["converged_after_s"]
            held = "not converged" if after is None else f"within 5 % after {after:.3g} s"
            factor, unit = choose_unit(row["unit"], [row["truth"]])
            true = f"{rounded(row['truth'] / factor)} {unit}".rstrip()
            known = f"   truth {true}, {held}, {100 * row['coverage_95']:.0f} % of intervals hold it"
        unseen = "" if row["observable"] else "   not observable"
        shown = stated(row["value"], row["std"], row["low_95"], row["high_95"], row["unit"])
        lines.append(f"  {row['name']}  {shown}{known}{unseen}")
    if metrics["surface"]:
        surface = metrics["surface"]
        lines.append(f"  surface   {surface['rms_voxels']:.3g} voxels off (rms), {surface['max_voxels']:.3g} at most")
    ahead = metrics["held_out"]
    if ahead and ahead["frames"]:
        lines.append(
            f"  ahead     {ahead['frames']} frames over {ahead['horizon_s']:.3g} s foretold to "
            f"{1e3 * ahead['rms_m']:.3g} mm (rms of the points)"
        )
    if frame:
        lines.append(f"  time      {1e3 * frame['p50_s']:.0f} ms a frame (p99 {1e3 * frame['p99_s']:.0f} ms)")
    lines.append(f"  written   {', '.join(outcome.files)} in {out}")
    return "\n".join(lines)
