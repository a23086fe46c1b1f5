"""Where frames lie between steps: one rule, for stamps before, at and after a state."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.physics.frame_times import SNAP, between, share_of_way, step_of, steps_until

STEP_S = 0.01


@pytest.mark.parametrize("k", [1, 2, 3, 7, 1000, 123456])
@pytest.mark.parametrize("off", [0.0, 0.5 * SNAP, -0.5 * SNAP])
def test_a_rounded_stamp_lies_at_its_state(k: int, off: float) -> None:
    """t = (k ± half of SNAP) Δt falls into step k - 1, all of the way: no further step is asked for, none is missed."""
    assert step_of((k + off) * STEP_S, STEP_S) == (k - 1, 1.0)
    assert steps_until((k + off) * STEP_S, 0.0, STEP_S) == k


@pytest.mark.parametrize("at", [0.25, 1.5, 2.0 + 2 * SNAP, 3.0 - 2 * SNAP, 41.9])
def test_between_states_the_share_is_the_time_passed(at: float) -> None:
    """(n + share) Δt = t, to the rounding of t/Δt; and t lies in the step (n, n + 1]."""
    n, share = step_of(at * STEP_S, STEP_S)
    assert n == int(np.floor(at)) and 0 < share < 1
    assert n + share == pytest.approx(at, abs=1e-12)


def test_the_start_and_one_state_alone() -> None:
    """At the very start nothing has passed of the first step; where both states are one, it is that one."""
    assert step_of(0.0, STEP_S) == (0, 0.0) and steps_until(0.0, 0.0, STEP_S) == 0
    assert share_of_way(3.0, 3.0, 3.0) == 1.0
    assert steps_until(1.0, 2.0, STEP_S) == 0


def test_on_a_straight_line() -> None:
    """(1 - s) a + s b, exactly a and b at the ends."""
    a, b = np.array([1.0, -2.0]), np.array([3.0, 4.0])
    np.testing.assert_array_equal(between(a, b, 0.0), a)
    np.testing.assert_array_equal(between(a, b, 1.0), b)
    np.testing.assert_allclose(between(a, b, 0.25), [1.5, -0.5], rtol=1e-15)
