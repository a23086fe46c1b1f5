"""Several sides of one object, shown to one camera by a hand that turns it on the table, joined into one scan.

Each still part is a scan of its own, whose pose relative to the others nobody knows. Parts are matched to those that
are joined already (`surface_match`), the ones that share most with them first; in the end each is refined against all
others together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.perception.placed_side import NOWHERE, Placed, moved_views, seen_by, surface_of, table_of
from soft_estimator.perception.scan_frames import ScanData, Support
from soft_estimator.perception.surface_match import PLENTY, Evidence, Surface, find_match, refined

_SETTLINGS = 3  # rounds in which every part is refined against all the others


def join_sides(parts: list[ScanData]) -> ScanData:
    """The first part with all others that could be matched to it, and notes on those that could not."""
    return together(*place_sides(parts))


def place_sides(parts: list[ScanData]) -> tuple[list[Placed], list[str]]:
    """The first part and all others that could be matched to it, and notes on those that could not."""
    alone = [Placed(data, *surface_of(data), *NOWHERE) for data in parts]
    joined, left, evidence = [alone[0]], list(range(1, len(parts))), [Evidence([one]) for one in alone]
    while left:
        known = Evidence(joined)
        found = {k: match for k in left if (match := find_match(known, evidence[k])) is not None and match.sure}
        if not found:
            break
        # What shares little with these may share more with those that are added now: it is looked at again.
        enough = min(PLENTY, max(match.shared for match in found.values()))
        for k, match in found.items():
            if match.shared >= enough:
                joined.append(alone[k].at(match.rotation, match.translation_m))
                left.remove(k)
    joined = settled(joined)
    notes = [f"{len(joined)} sides of it joined"] if len(joined) > 1 else []
    if left:
        notes.append(f"{len(left)} more still part(s) of the recording could not be matched to them, and are left out")
    return joined, notes


def settled(joined: list[Placed]) -> list[Placed]:
    """Every part but the first refined against all the others, a few times over."""
    joined = list(joined)
    for _ in range(_SETTLINGS if len(joined) > 2 else 0):
        for k in range(1, len(joined)):
            one = joined[k]
            others, alone = Surface(joined[:k] + joined[k + 1 :]), Surface([one.at(*NOWHERE)])
            match = refined(others, alone, one.rotation, one.translation_m, _stands_alike(one.rotation))
            if match is not None and match.sure:
                joined[k] = one.at(match.rotation, match.translation_m)
    return joined


def _stands_alike(rotation: np.ndarray) -> bool:
    """Whether a part stands on the same side as the first: z stays up."""
    return bool(rotation[2, 2] > 1 - 1e-9)


def together(joined: list[Placed], notes: list[str]) -> ScanData:
    """One scan in the frame of the first part."""
    first = joined[0].data
    if len(joined) == 1:
        return replace(first, notes=(*first.notes, *notes))
    supports: list[Support] = []
    for one in joined:
        plane = table_of(one)
        if one.data.stands and all(np.abs(plane - other.plane).max() > 1e-9 for other in supports):
            like = [np.abs(plane - table_of(other)).max() <= 1e-9 for other in joined]
            own = [v.of_support() for k, other in enumerate(joined) if like[k] for v in seen_by(other, first)]
            unlike = [v for k, other in enumerate(joined) if not like[k] for v in moved_views(other, first)]
            supports.append(Support(plane, own, unlike, one.bend))
    return replace(
        first, plane=None, supports=tuple(supports),
        frames=[frame for one in joined for frame in one.data.frames],
        views=[view for one in joined for view in moved_views(one, first)],
        local_m=np.concatenate([one.at_rest_m(one.data.local_m) for one in joined]),
        toward=np.concatenate([one.data.toward @ one.rotation.T for one in joined]),
        notes=(*first.notes, *notes),
    )  # fmt: skip
