"""Newest first: frames are left out when work is late, never farther apart than the window can follow, and what is
said of frames and estimates that are late."""

from __future__ import annotations

import pytest

from soft_estimator.live.lateness import Flow, RecordingWatch, age_of
from soft_estimator.live.newest_first import ANY, FOLLOW, IN_ORDER, Choice, NewestFirst

CAMERA_S = 1 / 30


def fresh() -> NewestFirst:
    order = NewestFirst(longest_gap_s=0.1, most_behind_s=2.0, episode_gap_s=0.5)
    assert order.choose([1.0], ANY) == Choice(0)
    return order


def test_in_time_every_frame_is_taken() -> None:
    order = fresh()
    assert [order.choose([1.0 + CAMERA_S * k], FOLLOW) for k in range(1, 9)] == [Choice(0)] * 8


def test_late_work_goes_on_with_the_newest_frame_that_can_be_followed() -> None:
    order = fresh()
    assert order.choose([1.03, 1.06], FOLLOW) == Choice(1)
    # 0.1 s from 1.06 s on reach to 1.16 s; what lies beyond waits for the next turn.
    assert order.choose([1.09, 1.12, 1.15, 1.18, 1.21], FOLLOW) == Choice(2)
    assert order.choose([1.18, 1.21], FOLLOW) == Choice(1)
    # A camera that leaves a gap of its own: the next frame there is, not none.
    assert order.choose([1.41, 1.44], FOLLOW) == Choice(0)


def test_the_first_frames_of_an_episode_are_taken_in_order() -> None:
    order = fresh()
    assert order.choose([1.03, 1.06, 1.09], IN_ORDER) == Choice(0)


def test_a_start_is_looked_for_in_the_oldest_frame_that_is_not_too_old() -> None:
    assert fresh().choose([1.03, 1.06, 1.09], ANY) == Choice(0)
    # More than 2 s before the newest: those are left out, with nothing to begin anew.
    assert fresh().choose([1.0 + 0.3 * k for k in range(10)], ANY) == Choice(3)


def test_too_far_behind_it_begins_anew_at_the_newest() -> None:
    order = fresh()
    waiting = [1.0 + CAMERA_S * k for k in range(1, 80)]  # 2.6 s of them
    assert order.choose(waiting, FOLLOW) == Choice(len(waiting) - 1, anew=True)
    assert order.choose([4.0], FOLLOW) == Choice(0)


@pytest.mark.parametrize("second_s", [5.0, 0.2])
def test_a_new_episode_begins_with_its_first_frame(second_s: float) -> None:
    """A pause, or a recording that begins anew: its beginning tells more than its middle, and what is left of the old
    motion is history."""
    stamps = [1.03, 1.06, second_s, second_s + 0.03, second_s + 0.06]
    assert fresh().choose(stamps, FOLLOW) == Choice(2)
    assert fresh().choose(stamps[2:], FOLLOW) == Choice(0)  # where nothing is left of the old one


@pytest.mark.parametrize("work_s", [0.02, 0.08, 0.095])
def test_the_age_stays_bounded_and_every_frame_is_taken_or_left_out(work_s: float) -> None:
    """A camera of 30 Hz for 20 s, updates of work_s: with less than the longest gap an update keeps up for ever, and a
    frame that is taken has waited for no longer than the update before it, the gap, and a frame's time."""
    order, taken, left_out, free_at, oldest = fresh(), 0, 0, 0.0, 0.0
    stamps = [1.0 + CAMERA_S * k for k in range(1, 601)]
    while taken + left_out < len(stamps):
        waiting = [s for s in stamps[taken + left_out :] if s <= free_at]
        if not waiting:
            free_at = stamps[taken + left_out]
            continue
        choice = order.choose(waiting, FOLLOW)
        assert not choice.anew
        oldest = max(oldest, free_at - waiting[choice.place])
        taken, left_out, free_at = taken + 1, left_out + choice.place, free_at + work_s
    assert oldest <= work_s + 0.1 + CAMERA_S
    assert (left_out > 0) == (work_s > CAMERA_S)


def test_the_silence_of_a_recording_is_told_once_and_again_after_it_went_on() -> None:
    watch = RecordingWatch("cloud", 3.0)
    told = [watch.news(quiet_s) for quiet_s in (0.1, 3.0, 3.6, 4.6, 90.0, 0.5, 5.2, 6.2)]
    assert [k for k, text in enumerate(told) if text] == [2, 6]
    assert told[2] == "no cloud for 4 s: the recording has ended, or is paused"


def test_an_age_is_that_of_the_stamp_where_the_clocks_agree() -> None:
    assert age_of(100.0, 100.4, 0.2) == pytest.approx(0.4)
    assert age_of(100.0, 1.7e9, 0.2) == 0.2  # a bag of last year
    assert age_of(100.0, 99.0, 0.2) == 0.2  # a camera ahead of this clock


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        (Flow(0.1, True, 10.0, 9.9, 3), ""),
        (Flow(35.0, True, 10.0, 9.9, 0), "no object_points for 35 s; does the camera run?"),
        (Flow(4.0, False, 0.0, None, 0), "no object_points yet, for 4 s; does the camera run?"),
        (Flow(0.1, True, 85.0, 10.0, 40), "the estimate is 75.0 s behind the newest frame: 40 frames wait"),
        (Flow(0.1, True, 13.0, 10.0, 0, "no fit"), "the estimate is 3.0 s behind the newest frame: no fit"),
        (Flow(0.1, True, 13.0, None, 0), ""),
    ],
)
def test_what_is_warned_of(flow: Flow, said: str) -> None:
    """A camera that is silent, frames that wait, an estimate that is old: each by its own sentence."""
    assert flow.complaint(quiet_after_s=3.0, late_after_s=2.0) == said
