"""The report of a run of the live estimator: it listens to the estimates of a replay or a live graph as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import yaml

from soft_estimator.estimation.fitting.uncertainty import Estimate, shown_label
from soft_estimator.estimation.window.live_estimate import Counters, LiveEstimate
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.pictures.wording import plain_name
from soft_estimator.report.content import Moment, Plane, ReportContent, ReportParameter, Series
from soft_estimator.report.of_estimate import moment_of, size_at_rest, view_from
from soft_estimator.scene.scene import Scene
from soft_estimator.schema import to_plain

MOST_MOMENTS = 12  # more make the page heavy
# Of eight independent 95 % intervals fewer than 80 % hold the truth by chance in 6 of 100 runs.
LEAST_TO_JUDGE, LEAST_COVERAGE = 8, 0.8


@dataclass
class LiveHistory:
    """What a report keeps of a run: every estimate's numbers, and the body at a dozen moments, whatever its length.

    Attributes:
        scene: the body and what was known of it.
    """

    scene: Scene
    estimates: list[tuple[float, str, tuple[Estimate, ...], float, float, float]] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    last: LiveEstimate | None = None
    _kept: list[LiveEstimate] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0

    def add(self, estimate: LiveEstimate) -> None:
        """Take in an estimate, in the order of time."""
        e = estimate
        row = (float(e.stamp_s), e.status, e.parameters, float(e.cost), float(e.rms_residual_m), float(e.seconds))
        self.estimates.append(row)
        for note in e.notes:
            self.notes[note] = self.notes.get(note, 0) + 1
        if e.status != "tracking":
            return
        self.last = e
        if self._seen % self._every == 0:
            self._kept.append(e)
            if len(self._kept) > 2 * MOST_MOMENTS:  # twice as many frames: keep every second
                self._kept, self._every = self._kept[::2], 2 * self._every
        self._seen += 1

    def content(
        self,
        *,
        title: str = "",
        subtitle: str = "",
        truth: Mapping[str, float] | None = None,
        counters: Counters | None = None,
        refusals: Refusals | None = None,
        facts: Sequence[tuple[str, str]] = (),
        timing: Sequence[tuple[str, float]] = (),
        warnings: Sequence[str] = (),
        configuration: str = "",
    ) -> ReportContent:
        """What the report shows.

        Args:
            truth: true natural values by the parameters' labels, where known. counters: frames in, used, set aside.
            refusals: why frames were not used.
            facts, timing, warnings: added to what is known from the estimates. configuration: the scene by default.
        """
        config = self.scene.config
        start_s = self.estimates[0][0] if self.estimates else 0.0
        plain = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)
        return ReportContent(
            title=title or config.name,
            subtitle=subtitle or f"Estimated live, frame by frame. {config.description}".strip(),
            parameters=self._parameters(truth or {}),
            warnings=_once([*self._warnings(refusals or Refusals()), *self._too_narrow(truth or {}), *warnings]),
            series=self._series(start_s, truth or {}),
            cost=self._single(start_s, 3, "cost of the window", ""),
            residual=self._single(start_s, 4, "points off the twin, RMS", "m"),
            faces=self.scene.body.surface.faces,
            moments=self._moments(start_s),
            timing=[*timing, *self._timing()],
            facts=[*facts, *self._facts(counters), *_not_used(refusals or Refusals())],
            configuration=configuration or plain,
            up=config.picture.up,
            view_from=view_from(self.scene),
        )

    def _parameters(self, truth: Mapping[str, float]) -> list[ReportParameter]:
        newest = self.last.parameters if self.last is not None else self.estimates[-1][2] if self.estimates else ()
        return [
            ReportParameter(
                name=shown_label(e.label, newest), unit=e.unit, value=e.value, std=e.std, low=e.low, high=e.high,
                truth=truth.get(e.label), observable=e.observable, reason=e.reason,
                mostly=e.mostly,
            )
            for e in newest
        ]  # fmt: skip

    def _series(self, start_s: float, truth: Mapping[str, float]) -> list[Series]:
        rows = [row for row in self.estimates if row[2]]
        if not rows:
            return []
        at = np.array([row[0] - start_s for row in rows])
        out = []
        for j, e in enumerate(rows[-1][2]):
            value, low, high = (np.array([getattr(r[2][j], n) for r in rows]) for n in ("value", "low", "high"))
            wide = e.unit in ("Pa", "s", "1/s") and low.min() > 0 and value.max() > 5 * value.min()
            name, true = shown_label(e.label, rows[-1][2]), truth.get(e.label)
            out.append(Series(name, e.unit, at, value, low, high, truth=true, log=wide))
        return out

    def _single(self, start_s: float, column: int, name: str, unit: str) -> Series | None:
        """One number of each estimate over time."""
        if not self.estimates:
            return None
        at = np.array([row[0] - start_s for row in self.estimates])
        return Series(name, unit, at, np.array([row[column] for row in self.estimates], dtype=float))

    def _too_narrow(self, truth: Mapping[str, float]) -> list[str]:
        """A warning for each parameter whose intervals held its true value far less often than 95 times in 100."""
        lines = []
        rows = [row[2] for row in self.estimates if row[1] == "tracking"]
        for j, e in enumerate(rows[-1] if rows else ()):
            if e.label not in truth or len(rows) < LEAST_TO_JUDGE:
                continue
            share = float(np.mean([r[j].low <= truth[e.label] <= r[j].high for r in rows]))
            if share < LEAST_COVERAGE:
                name = plain_name(shown_label(e.label, rows[-1]))
                lines.append(f"{name}: only {100 * share:.0f} % of the 95 % intervals held the true value.")
        return lines

    def _moments(self, start_s: float) -> list[Moment]:
        count = min(len(self._kept), MOST_MOMENTS)
        out = []
        for k in np.unique(np.linspace(0, len(self._kept) - 1, count).round().astype(int)):
            e = self._kept[k]
            plane = None
            if self.scene.config.contact is not None:
                plane = Plane(e.values.plane_normal.tolist(), float(e.values.plane_offset_m))
            moment = moment_of(self.scene, e.stamp_s - start_s, e.u_m, e.points_m, e.residual_m, plane)
            out.append(replace(moment, tools=e.tools))
        return out

    def _warnings(self, refusals: Refusals) -> list[str]:
        lines = [line[:1].upper() + line[1:] + "." for line in self.scene.warnings]
        if self.last is not None and not self.last.verdict.fits:
            lines.insert(0, f"The model does not fit: {self.last.verdict.reason}. Do not use these values.")
        if not self.estimates:
            why = [f"{r.count} frames: {r.example}." for r in refusals.most_first()]
            return ["There was no estimate: no frame could be used.", *why, *lines]
        if self.estimates[-1][1] != "tracking":
            lines.append("The object was lost at the end; the values are the last ones before that.")
        for note, count in self.notes.items():
            lines.append(f"{note[:1].upper()}{note[1:]}{f' ({count} times)' if count > 1 else ''}.")
        if self.last is not None and self.last.noise_scale > 2:
            lines.append(f"The points scatter {self.last.noise_scale:.1f} times as much as their stated noise.")
        return lines

    def _timing(self) -> list[tuple[str, float]]:
        seconds = [row[5] for row in self.estimates]
        if not seconds:
            return []
        typical, slow = np.percentile(seconds, [50, 95])
        return [("an update, median", float(typical)), ("an update, 95 of 100 below", float(slow))]

    def _facts(self, counters: Counters | None) -> list[tuple[str, str]]:
        rows: list[tuple[str, Any]] = [("estimates", len(self.estimates))]
        if counters is not None:
            counted = counters.as_dict()
            rows += [(key.replace("_", " "), n) for key, n in counted.items() if n or key.startswith("frames_used")]
        if self.last is not None:
            rows.append(("points off the twin, root mean square", f"{1e3 * self.last.rms_residual_m:.2f} mm"))
            rows.append(("noise the residuals show", f"{self.last.noise_scale:.2f} times the stated"))
        body = self.scene.body
        body_rows = [
            ("size at rest", size_at_rest(body)),
            ("body", f"{body.node_count} nodes, {body.cell_count} cells"),
        ]
        return [*((key, str(v)) for key, v in rows), *body_rows]


def _once(lines: Sequence[str]) -> list[str]:
    """The lines without those that say no more than another one does."""
    return [line for k, line in enumerate(lines) if not any(other.startswith(line[:-1]) for other in lines[:k])]


def _not_used(refusals: Refusals) -> list[tuple[str, str]]:
    """Why frames were not used, a row a reason."""
    return [(f"not used: {item.example}", f"{item.count} frames") for item in refusals.most_first()]
