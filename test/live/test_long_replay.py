"""A replay that is ended before its time keeps what it has, says so, and goes on from there to the same bytes."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import zlib
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_ball import ball, write_scene

from soft_estimator.cli import main
from soft_estimator.commands.replay_report import ReportListener
from soft_estimator.estimation.long_work import CTRL_C, UNFINISHED, TimeLimit
from soft_estimator.live.estimate_table import ESTIMATES
from soft_estimator.live.replay import ReplayResult, replay_bag
from soft_estimator.live.replay_config import ReplayConfig, load_replay
from soft_estimator.live.replay_files import METRICS, result_files
from soft_estimator.live.replay_keeping import STATE, ReplayKeeper
from soft_estimator.live.replay_state import read_state, state_bytes
from soft_estimator.live.setup import Locator

ROOT = Path(__file__).resolve().parent.parent.parent
FRAMES = 9  # of the small ball's bag


@pytest.fixture(scope="module")
def config() -> ReplayConfig:
    """A window so short that it slides within the bag: what has left it is kept, too."""
    return load_replay({"scene": ball(), "window": {"frames": 3, "grow_to_frames": 4}}, Path())[0]


@pytest.fixture(scope="module")
def whole(bag: Path, config: ReplayConfig) -> tuple[ReplayResult, bytes]:
    listener = ReportListener()
    result = replay_bag(bag, config, Path(), backend="cpu", listener=listener)
    return result, listener.files(result)["report.html"]


def ended_after(frames: int, bag: Path, config: ReplayConfig, folder: Path) -> tuple[ReplayResult, list[int]]:
    """The replay, gone on with where one was ended, and told to end while its frame of this number (from 1) is at work;
    the frames that it took."""
    keeper = ReplayKeeper(folder, resume=True)
    taken: list[int] = []

    def press(done: int, total: int, note: str) -> None:
        taken.append(done)
        if done == frames:
            keeper.end = CTRL_C

    listener = ReportListener()
    return replay_bag(bag, config, Path(), backend="cpu", listener=listener, keeper=keeper, progress=press), taken


def timeless(result: ReplayResult) -> dict[str, Any]:
    """Everything of the metrics that does not depend on the machine's clock."""
    return {key: value for key, value in result.metrics.items() if key != "timing"}


def test_an_ended_replay_goes_on_to_the_same_bytes(
    bag: Path, config: ReplayConfig, whole: tuple[ReplayResult, bytes], tmp_path: Path
) -> None:
    """Ended three times: before there is an estimate, with a window that slid, before the last frame."""
    done = 0
    for frames in (1, 5, 8):
        part, seen = ended_after(frames, bag, config, tmp_path)
        assert seen == list(range(done + 1, frames + 1))  # nothing is done twice
        assert part.metrics["stopped"] == CTRL_C and part.metrics["finished"] is False
        told = json.loads((tmp_path / UNFINISHED).read_text())
        assert told["frames_done"] == frames and told["frames"] == FRAMES and told["estimates"] == len(part.rows)
        assert part.rows == whole[0].rows[: len(part.rows)] and len(part.rows) < len(whole[0].rows)
        assert (tmp_path / ESTIMATES).read_bytes() == result_files(part)[ESTIMATES]
        done = frames
    listener, keeper = ReportListener(), ReplayKeeper(tmp_path, resume=True)
    rest = replay_bag(bag, config, Path(), backend="cpu", listener=listener, keeper=keeper)
    assert result_files(rest)[ESTIMATES] == result_files(whole[0])[ESTIMATES]
    assert timeless(rest) == timeless(whole[0])
    page = listener.files(rest)["report.html"]
    assert abs(len(page) - len(whole[1])) < 0.01 * len(whole[1])  # the times that frames took have other digits


def test_how_the_body_was_turned_is_gone_on_with(bag: Path, config: ReplayConfig, tmp_path: Path) -> None:
    """An episode that begins later looks first for the body as it was turned before: without that it is found by a
    search, and its estimates have other last digits."""
    taken_up: list[Any] = []

    class Shows(ReplayKeeper):
        def take_up(self, *args: Any) -> Any:
            taken_up.append(super().take_up(*args))
            return taken_up[-1]

    for _ in range(2):  # a frame each
        replay_bag(bag, config, Path(), backend="cpu", keeper=Shows(tmp_path, resume=True, end=CTRL_C))
    locate = taken_up[1]["pipeline"].window.locate
    assert isinstance(locate, Locator) and locate._last is not None


def test_no_time_ends_after_a_frame(bag: Path, config: ReplayConfig, tmp_path: Path) -> None:
    made = replay_bag(bag, config, Path(), backend="cpu", keeper=ReplayKeeper(tmp_path, time=TimeLimit(1e-9)))
    assert "the 1e-09 s that it was given are over" in made.metrics["stopped"]
    assert json.loads((tmp_path / UNFINISHED).read_text())["frames_done"] == 1


def test_only_what_belongs_together_is_gone_on_with(bag: Path, config: ReplayConfig, tmp_path: Path) -> None:
    ended_after(2, bag, config, tmp_path)
    other = replace(config, hold_out=0.1)
    with pytest.raises(ValueError, match="is of another bag or configuration; give another --out, or no --resume"):
        replay_bag(bag, other, Path(), backend="cpu", keeper=ReplayKeeper(tmp_path, resume=True))
    path = tmp_path / STATE
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"cannot be read \(.+\); remove it, or leave --resume out"):
        replay_bag(bag, config, Path(), backend="cpu", keeper=ReplayKeeper(tmp_path, resume=True))


class Harm:
    """Bytes that would run a command when a plain unpickler reads them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def test_a_state_can_do_no_harm(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for content, said in (
        (pickle.dumps({"run": Harm(mark)}), "system, which is no part of a replay"),
        (pickle.dumps({"run": main}), r"soft_estimator\.cli\.main, which is no part of a replay"),
        (pickle.dumps({"run": read_state}), "read_state, which is no part of a replay"),  # no class
        (pickle.dumps([1, 2]), "it holds no state"),
        (b"no pickle", "."),
    ):
        with pytest.raises(ValueError, match=said):
            read_state(zlib.compress(content), {})
    with pytest.raises(ValueError, match="incorrect header"):
        read_state(b"not even compressed", {})
    assert not mark.exists()
    shared = object()
    assert read_state(state_bytes({"a": shared, "b": [1.5, shared]}, {"s": shared}), {"s": "other"}) == {
        "a": "other",
        "b": [1.5, "other"],
    }


def started(arguments: list[str]) -> subprocess.Popen[str]:
    """The command in a process of its own, in a group of its own as a shell would start it."""
    return subprocess.Popen(
        [sys.executable, "-m", "soft_estimator", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def without_time(bag: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path, str]:
    """The command, given no time and run once more: how it is called, its folder, and what the first call said."""
    folder = tmp_path_factory.mktemp("command")
    call = ["replay", str(bag), "--scene", str(write_scene(folder)), "--backend", "cpu", "--out", str(folder / "out")]
    with redirect_stderr(io.StringIO()) as said:
        assert main([*call, "--time-limit", "1e-9"]) == 2
    assert main([*call, "--resume"]) == 0  # nothing was there to go on from
    return call, folder / "out", said.getvalue()


@pytest.mark.slow
def test_ctrl_c_ends_the_command_with_what_is_known_and_resume_goes_on(
    bag: Path, without_time: tuple[list[str], Path, str], tmp_path: Path
) -> None:
    """Ctrl-C goes to the command and to its worker alike: the whole process group hears it. It ends after the first
    frame or one of the next; gone on with, the table has the bytes of one that was not ended."""
    scene, out, plain = write_scene(tmp_path), tmp_path / "out", without_time[1]
    call = ["replay", str(bag), "--scene", str(scene), "--backend", "cpu", "--threads", "1", "--out", str(out)]
    process = started(call)
    until = time.monotonic() + 120
    while not (out / UNFINISHED).exists():  # written after the first frame
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert "ending after the frame at hand" in said and "--resume goes on from here" in said
    assert "Traceback" not in said
    metrics = json.loads((out / METRICS).read_text())
    kept = (out / ESTIMATES).read_bytes()
    assert metrics["finished"] is False and metrics["stopped"] == CTRL_C
    assert kept.count(b"\n") == metrics["estimates"] + 1 and (out / STATE).exists()
    assert main([*call, "--resume"]) == 0  # here: what it goes on from is another process's
    assert not (out / STATE).exists() and not (out / UNFINISHED).exists()
    assert json.loads((out / METRICS).read_text())["finished"] is True
    table, before = (out / ESTIMATES).read_bytes(), kept.splitlines()[1:]
    assert table == (plain / ESTIMATES).read_bytes() and table.splitlines()[1 : len(before) + 1] == before


def test_the_command_ends_in_time_and_does_only_what_is_left(
    without_time: tuple[list[str], Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Ended before there is an estimate it says so; what is finished is taken as it is."""
    call, out, said = without_time
    assert "nothing is known yet: the 1e-09 s that it was given are over; give it more time" in said
    before = (out / METRICS).read_bytes()
    assert main([*call, "--resume"]) == 0
    assert (out / METRICS).read_bytes() == before  # the times in it, too: it was not done again
    assert "estimates.csv" in capsys.readouterr().out
