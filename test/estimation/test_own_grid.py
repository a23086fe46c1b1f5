"""The grid's own error in a window: looked at once a tool touches, and stated where nobody can look."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dropped_ball as ball
import numpy as np
import pytest

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.estimation.window import own_step
from soft_estimator.estimation.window.own_grid import OwnErrors, ToolGridError
from soft_estimator.estimation.window.own_step import Move
from soft_estimator.physics.body import felt_by

CELL_M = 0.0155


class Found:
    """A finer grid on which the stiffness is 3 % larger; counts how often it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks, self.known = 0, True
        monkeypatch.setattr(own_step, "move_with", self._move)

    def _move(self, *_: object) -> Move:
        self.looks += 1
        return Move(np.array([0.03, 0.0]), [], np.zeros(2))

    def in_steps_of(self, model: object) -> Any:
        return (model, None) if self.known else None


@pytest.fixture
def finer(monkeypatch: pytest.MonkeyPatch) -> Found:
    return Found(monkeypatch)


def seen(finer: Found, *, touched: bool = True, slid: bool = False, times: int = 1) -> tuple[float, float]:
    """What is taken off log E and what is left of it after so many frames, under a tool of 2 cm."""
    target = ball.window(ball.TRUTH, cell_m=CELL_M)
    errors = OwnErrors([ToolGridError(finer, CpuBackend(), target.kinds)])
    model = SimpleNamespace(body=felt_by(ball.model(CELL_M).body, 0.02), integrator=None)
    count = len(target.lasting.variables)
    fit: Any = SimpleNamespace(slid=slid, seconds=1.0, at=SimpleNamespace(z=target.lasting.variables.start()))
    fit.motion = SimpleNamespace(model=model)
    answer: Any = SimpleNamespace(covariance=0.01 * np.eye(count), settled=True)
    if touched:
        errors.touched()
    for _ in range(times):
        errors.look(fit, answer, target.lasting, lambda seconds: True)
    shift, effects = errors.refined(fit, target.lasting)
    return float(shift[0]), float(sum((e.covariance for e in effects), np.zeros((count, count)))[0, 0] ** 0.5)


def test_what_the_grid_does_under_a_tool_is_taken_off(finer: Found) -> None:
    """Second order: 4/3 of the move is taken off, 1/3 stays as a deviation; eight frames need one look, and a ninth
    another."""
    taken, left = seen(finer, times=8)
    assert taken == pytest.approx(0.04) and left == pytest.approx(0.01) and finer.looks == 1
    seen(finer, times=9)
    assert finer.looks == 3


def test_nobody_looks_before_a_tool_touches(finer: Found) -> None:
    assert seen(finer, touched=False) == (0.0, 0.0) and finer.looks == 0


@pytest.mark.parametrize("slid", [True, False])
def test_where_nobody_can_look_the_interval_is_wider(finer: Found, slid: bool) -> None:
    """In a window that slid before the first touch, or of too many nodes: 5 % times a cell over the tool's radius."""
    finer.known = slid
    taken, left = seen(finer, slid=slid)
    assert finer.looks == 0 and taken == 0.0 and left == pytest.approx(0.05 * CELL_M / 0.02)
