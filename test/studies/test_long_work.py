"""A search that is ended before its time keeps what it has, says so, and goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_ball import scene_of, write_scene

from soft_estimator.cli import main
from soft_estimator.commands import console
from soft_estimator.commands.console import ProgressBar
from soft_estimator.estimation.fitting.answer import answer_of
from soft_estimator.estimation.fitting.least_squares import Fit
from soft_estimator.estimation.fitting.uncertainty import Posterior
from soft_estimator.estimation.long_work import CTRL_C, UNFINISHED, TimeLimit, TimeUp
from soft_estimator.estimation.problem import Problem
from soft_estimator.recordings.observed_frames import FrameSet
from soft_estimator.scene.scene import Scene
from soft_estimator.studies import estimate
from soft_estimator.studies.estimate import EstimateResult, estimate_scene
from soft_estimator.studies.estimate_keeping import Keeper

ESTIMATE = {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "60 kPa"}, "starts": 2, "seed": 3}
SHORT: dict[str, Any] = {"time": {"step_s": "5 ms", "duration_s": 0.06}, "estimate": ESTIMATE}


def ended_after(steps: int, folder: Path, of: str = "fitting", frames: FrameSet | None = None) -> EstimateResult:
    """An estimate with Ctrl-C after so many steps of its search, or of another stage."""
    left = [steps]

    def press(stage: str, done: int, total: int, note: str) -> None:
        left[0] -= stage == of
        if left[0] < 0:
            left[0] = 10**9  # pressed once
            raise KeyboardInterrupt

    return estimate_scene(scene(), frames=frames, progress=press, keeper=Keeper(folder / UNFINISHED))


def scene() -> Scene:
    return scene_of(**SHORT)


@pytest.fixture(scope="module")
def whole() -> EstimateResult:
    return estimate_scene(scene())


def test_an_ended_search_goes_on_to_the_same_answer(whole: EstimateResult, tmp_path: Path) -> None:
    part = ended_after(len(whole.fits[0].history) // 2, tmp_path)  # in the middle of the first start
    assert part.stopped == CTRL_C and part.best.reason.startswith("interrupted (Ctrl-C)")
    kept = json.loads((tmp_path / UNFINISHED).read_text())
    assert kept["starts"][-1]["reason"] == "" and kept["values"]["youngs_modulus_pa"] > 0
    again = Keeper(tmp_path / UNFINISHED, resume=True)
    rest = estimate_scene(scene(), keeper=again)
    assert not rest.stopped and len(rest.fits) == 2
    # Both stop on the same tests; the way there is another one. A hundredth of θ is what a stop lets pass.
    np.testing.assert_allclose(rest.best.theta, whole.best.theta, atol=1e-2)
    assert rest.problem.simulations < whole.problem.simulations


def test_an_ended_start_is_not_searched_again(whole: EstimateResult, tmp_path: Path) -> None:
    steps = len(whole.fits[0].history) + 2  # into the second start
    part = ended_after(steps, tmp_path)
    kept = json.loads((tmp_path / UNFINISHED).read_text())["starts"]
    assert part.stopped and len(kept) == 2 and kept[0]["reason"] and not kept[1]["reason"]
    np.testing.assert_allclose(part.best.theta, whole.fits[0].theta)  # the ended one is the best so far


@pytest.mark.parametrize("stage, steps", [("looking again", 6), ("refining", 1)])
def test_what_follows_a_search_is_ended_as_it_is(whole: EstimateResult, tmp_path: Path, stage: str, steps: int) -> None:
    part = ended_after(steps, tmp_path, stage, whole.frames)  # step and grid are looked at where frames are recorded
    assert part.stopped == CTRL_C and part.best.reason.startswith("interrupted (Ctrl-C) after the search")
    kept = json.loads((tmp_path / UNFINISHED).read_text())["starts"]
    assert len(kept) == 2 and all(start["reason"] for start in kept)
    np.testing.assert_allclose(part.posterior.estimates[0].value, whole.posterior.estimates[0].value, rtol=0.05)
    assert not any(effect.name in ("step", "grid") for effect in part.posterior.effects)


def test_an_answer_is_finished_at_the_first_ctrl_c_and_not_at_the_second(
    whole: EstimateResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    presses = [1]

    def pressed(problem: Problem, found: Fit) -> tuple[Problem, Fit, Posterior]:
        presses[0] -= 1
        if presses[0] >= 0:
            raise KeyboardInterrupt
        return answer_of(problem, found)

    monkeypatch.setattr(estimate, "answer_of", pressed)
    made = estimate_scene(scene(), frames=whole.frames)
    assert made.stopped == CTRL_C and made.posterior.estimates[0].value > 0
    presses[0] = 2
    with pytest.raises(KeyboardInterrupt):
        estimate_scene(scene(), frames=whole.frames)


def test_time_that_is_up_after_the_search_ends_it_there(whole: EstimateResult, tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / UNFINISHED)

    def no_more(stage: str, done: int, total: int, note: str) -> None:
        if stage == "looking again":
            keeper.time = TimeLimit(0.0)

    made = estimate_scene(scene(), frames=whole.frames, progress=no_more, keeper=keeper)
    assert "0 s that it was given are over" in made.stopped and "after the search" in made.best.reason


def test_no_time_ends_with_the_best_so_far(tmp_path: Path) -> None:
    made = estimate_scene(scene(), keeper=Keeper(tmp_path / UNFINISHED, time=TimeLimit(1e-9)))
    assert "1e-09 s that it was given are over" in made.stopped and made.posterior.estimates[0].value > 0


def test_another_scenes_search_is_not_gone_on_with(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / UNFINISHED, identity="one")
    keeper.note(0, np.zeros(1), 1, 1.0, {})
    with pytest.raises(ValueError, match="is of another scene or of other frames"):
        Keeper(tmp_path / UNFINISHED, resume=True).take_up("other")
    (tmp_path / UNFINISHED).write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        Keeper(tmp_path / UNFINISHED, resume=True).take_up("one")


def test_the_keeper_counts_steps_and_time() -> None:
    keeper = Keeper()
    keeper.note(0, np.zeros(1), 1, 5.0, {})
    keeper.note(0, np.ones(1), 2, 4.0, {})
    keeper.ended(0, "done", reached_limit=True)
    keeper.note(1, np.ones(1), 1, 9.0, {})
    told = [(s.steps, s.frames, s.reason, s.reached_limit) for s in keeper.starts]
    assert told == [(2, 2, "done", True), (1, 1, "", False)]
    keeper.time = TimeLimit(0.0)
    with pytest.raises(TimeUp, match="the 0 s that it was given are over"):
        keeper.note(1, np.ones(1), 1, 8.0, {})


def test_the_command_ends_in_time_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = write_scene(tmp_path, **SHORT), tmp_path / "out"
    call = ["estimate", str(file), "--out", str(out), "--backend", "cpu", "--no-plots"]
    assert main([*call, "--time-limit", "1e-9"]) == 0
    printed = capsys.readouterr()
    assert "not finished (the 1e-09 s" in printed.err and "--resume goes on" in printed.err
    assert json.loads((out / "estimate.json").read_text())["finished"] is False and (out / UNFINISHED).exists()
    assert main([*call, "--resume"]) == 0
    summary = json.loads((out / "estimate.json").read_text())
    assert summary["finished"] is True and summary["fits"] is True and not (out / UNFINISHED).exists()


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "LINE_EVERY_S", 0.0)
    with ProgressBar() as bar:
        bar("reading", 3, 10)
    assert capsys.readouterr().err == "soft-estimator: reading: 3 of 10\n"
    monkeypatch.setattr(console, "LINE_EVERY_S", 60.0)
    with ProgressBar() as bar:
        bar("reading", 4, 10)
    assert capsys.readouterr().err == ""
