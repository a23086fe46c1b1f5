"""The disk runs full while recording: the message names the file, and the bag up to there is read.

A limit on the size of a file stands for the full disk: writing beyond it fails in the same calls, with another errno.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from soft_estimator.recordings.bag_files import Bag
from soft_estimator.recordings.bag_frames import BagRecording
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.recordings.cut_off import RecordingCutOff, finish_mcap

POINTS = np.random.default_rng(0).random((120, 160, 3)).astype(np.float32) + 0.5  # 230 kB a cloud


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """This process cannot write beyond `size` bytes of any file."""
    old_limit, old_handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old_limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)


def record_until_full(path: Path, storage: str, size: int) -> RecordingCutOff:
    with files_no_larger_than(size), pytest.raises(RecordingCutOff) as caught, BagWriter(path, storage) as writer:
        for k in range(1, 200):
            writer.cloud("/camera/points", k * 10**9, "camera", POINTS * k)
    return caught.value


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_the_bag_up_to_there_is_read(tmp_path: Path, storage: str) -> None:
    """Of 20 MB at 230 kB a cloud, all are there but the last chunk (1 MB) or transaction (4 MB) and its journal."""
    path, size = tmp_path / "bag", 20 << 20
    error = record_until_full(path, storage, size)
    file = path / f"bag.{'mcap' if storage == 'mcap' else 'db3'}"
    assert str(error).startswith(f"{file} could not be written any further (") and "\n" not in str(error)
    with BagRecording(path) as recording:
        frames = list(recording)
    fitting = size / POINTS.nbytes
    assert fitting - (5 if storage == "mcap" else 40) <= len(frames) <= fitting
    for k, frame in enumerate(frames, 1):
        assert frame.time_s == k and frame.cloud is not None
        np.testing.assert_array_equal(frame.cloud.points_m, (POINTS * k).astype(np.float64))


@pytest.mark.parametrize("cut", [1, 9, 20, 49, 50, 51, 1000, 300_000])
def test_a_file_cut_anywhere_ends_after_its_last_whole_record(tmp_path: Path, cut: int) -> None:
    """However many bytes of the last record are missing, what is before it can be read; the file never grows."""
    with BagWriter(tmp_path / "bag") as writer:
        for k in range(1, 30):
            writer.cloud("/camera/points", k * 10**9, "camera", POINTS)
    file = tmp_path / "bag" / "bag.mcap"
    whole = file.read_bytes()
    size = len(whole) - cut
    file.write_bytes(whole[:size])
    finish_mcap(file)
    assert file.stat().st_size <= size
    with Bag(file) as bag:
        count = sum(1 for _ in bag.messages(["/camera/points"]))
    assert 29 - 6 - cut // POINTS.nbytes <= count <= 29


def test_the_command_keeps_the_bag_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`record` on a disk with room for 3 MB: exit code 2, one line with the file's name, and frames in the bag."""
    from soft_estimator.cli import main

    out = tmp_path / "ball"
    with files_no_larger_than(3 << 20):
        words = ["--seconds", "0.2", "--backend", "cpu", "--topics", "points"]
        assert main(["record", "bouncing_ball", "--out", str(out), *words]) == 2
    assert f"{out / 'ball.mcap'} could not be written any further" in capsys.readouterr().err
    with Bag(out) as bag:
        assert sum(1 for _ in bag.messages(["/camera/points"])) >= 1
