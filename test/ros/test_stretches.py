"""Who falls behind takes whole stretches: nothing enters between a full queue and the next gap."""

from __future__ import annotations

from soft_estimator.ros.stretches import Stretches


def test_all_enter_while_there_is_room() -> None:
    gate = Stretches(5, 0.5, 2.0)
    assert [gate.admit(0.03 * k, k % 5) for k in range(20)] == [(True, 0)] * 20


def test_a_full_queue_closes_until_the_next_gap() -> None:
    gate = Stretches(3, 0.5, 2.0)
    assert gate.admit(0.00, 2) == (True, 0)
    assert gate.admit(0.03, 3) == (False, 0)
    assert gate.admit(0.06, 1) == (False, 0)  # room again, but the stretch is torn
    assert gate.admit(0.09, 0) == (False, 0)
    assert gate.admit(1.00, 1) == (False, 0)  # a gap, but work is left
    assert gate.admit(2.00, 0) == (True, 4)  # a gap and nothing waits: four were left out
    assert gate.admit(2.03, 1) == (True, 0)


def test_without_gaps_patience_ends() -> None:
    gate = Stretches(1, 0.5, 0.2)
    assert gate.admit(0.0, 1) == (False, 0)
    entered = [gate.admit(0.125 * k, 0)[0] for k in range(1, 6)]
    assert entered == [False, False, True, True, True]  # free since 0.125 s, and open 0.2 s later


def test_time_that_goes_back_begins_a_stretch() -> None:
    gate = Stretches(1, 0.5, 60.0)
    assert gate.admit(10.0, 1) == (False, 0)
    assert gate.admit(3.0, 0) == (True, 1)
