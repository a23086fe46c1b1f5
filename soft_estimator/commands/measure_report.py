"""The page about a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from soft_estimator.measuring.measurement import Measurement


def report_of(made: Measurement) -> str:
    """The page: the sentence first, then what the live report shows of the drops."""
    from dataclasses import replace

    from soft_estimator.report import report_html
    from soft_estimator.report.of_live import LiveHistory

    history = LiveHistory(made.scene)
    for estimate in made.estimates:
        history.add(estimate)
    body = made.body
    facts = [
        ("mass", f"{1e3 * made.mass_kg:.4g} g"),
        ("volume", f"{1e6 * body.volume_m3:.1f} ± {1e6 * (body.volume_std_m3 or 0.0):.1f} cm³"),
        ("surface that was seen", f"{body.coverage:.0%}"),
        ("drops", str(len(made.drops))),
        ("frames used, of all", f"{made.used} of {made.frames}"),
    ]
    content = history.content(
        title=made.plain["name"],
        subtitle=made.sentence,
        refusals=made.refusals,
        facts=facts,
        warnings=[f"{note[:1].upper()}{note[1:]}." for note in made.notes],
        configuration=yaml.safe_dump(made.plain, sort_keys=False, allow_unicode=True),
    )
    final = {e.label: e for e in made.parameters}
    stated = [
        replace(p, value=final[p.name].value, std=final[p.name].std, low=final[p.name].low, high=final[p.name].high)
        if p.name in final
        else p
        for p in content.parameters
    ]
    return report_html(replace(content, parameters=stated))
