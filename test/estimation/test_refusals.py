"""Why frames were not used: counted by reason, whatever numbers stand in it."""

from __future__ import annotations

import json

import pytest

from soft_estimator.estimation.window.refusals import MOST_REASONS, Refusals


def test_numbers_do_not_make_another_reason() -> None:
    """Three frames of one reason with other numbers and two of another: two entries, 3 + 2 = 5 frames."""
    refusals = Refusals()
    for stamp, off in ((1.0, "2.3"), (1.1, "-0.4e-3"), (1.5, "11")):
        refusals.add(stamp, f"the points lie {off} mm off")
    refusals.add(1.2, "hidden", 2)
    assert refusals.total == 5
    assert refusals.as_plain() == [
        {"reason": "the points lie 2.3 mm off", "frames": 3, "first_s": 1.0, "last_s": 1.5},
        {"reason": "hidden", "frames": 2, "first_s": 1.2, "last_s": 1.2},
    ]


def test_two_are_joined() -> None:
    first, second = Refusals(), Refusals()
    first.add(1.0, "hidden")
    second.add(2.0, "hidden", 3)
    second.add(3.0, "far away")
    both = first.joined(second)
    assert [(r.example, r.count, r.first_s, r.last_s) for r in both.most_first()] == [
        ("hidden", 4, 1.0, 2.0),
        ("far away", 1, 3.0, 3.0),
    ]
    assert first.total == 1  # as it was


def test_endless_reasons_are_bounded_and_a_missing_stamp_is_plain_json() -> None:
    refusals = Refusals()
    for k in range(MOST_REASONS + 20):
        refusals.add(float("nan"), "x" * (k + 1))
    assert len(refusals.by_reason) == MOST_REASONS + 1 and refusals.total == MOST_REASONS + 20
    assert refusals.most_first()[0].count == 20
    assert json.loads(json.dumps(refusals.as_plain(), allow_nan=False))[0]["first_s"] is None


@pytest.mark.parametrize("reason", ["", "...", "%d {} \\"])
def test_any_text_is_a_reason(reason: str) -> None:
    refusals = Refusals()
    refusals.add(0.0, reason)
    assert refusals.total == 1
