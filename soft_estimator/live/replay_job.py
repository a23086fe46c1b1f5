"""One bag to replay, as it is sent to another process, and what comes back."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soft_estimator.estimation.long_work import TimeLimit
from soft_estimator.live.replay import Listener, Progress, ReplayResult, replay_bag
from soft_estimator.live.replay_config import ReplayConfig
from soft_estimator.live.replay_files import finished_files, result_files
from soft_estimator.live.replay_keeping import ReplayKeeper

# Numba's simplest threading layer must not be entered twice; a Dask worker may run several jobs as threads.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class ReplayJob:
    """One bag to replay, as plain as can be sent to another process.

    Attributes:
        listener: makes one, for further files. keep: folder in which what is known is kept as it goes; not at all
            without. resume: whether to go on from what is there. time: it may take, on this machine's clock.
    """

    name: str
    bag: str
    config: ReplayConfig
    folder: str
    data: str | None = None
    backend: str = "auto"
    listener: Callable[[], Listener] | None = None
    keep: str | None = None
    resume: bool = False
    time: TimeLimit = field(default_factory=TimeLimit)


@dataclass(frozen=True)
class ReplayOutcome:
    """What came of a job: its files and metrics, or an error and where it came from.

    stopped: why it was ended before its time, "" where it was not; then there may be nothing yet.
    """

    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    metrics: dict[str, Any] | None = None
    error: str = ""
    trace: str = ""
    stopped: str = ""


@dataclass(frozen=True)
class Watch:
    """Told how jobs go on.

    Attributes:
        tell: number of the job, part of it that is done, a note for people. done: told every outcome as it comes.
        ending: told that every job was asked to end after the frame at hand.
    """

    tell: Callable[[int, float, str], None] = lambda number, part, note: None
    done: Callable[[ReplayOutcome], None] = lambda outcome: None
    ending: Callable[[], None] = lambda: None


def keeper_of(job: ReplayJob) -> ReplayKeeper:
    """What keeps a job."""
    return ReplayKeeper(None if job.keep is None else Path(job.keep), job.resume, job.time)


def run_job(job: ReplayJob, progress: Progress | None = None, keeper: ReplayKeeper | None = None) -> ReplayOutcome:
    """Replay a bag; failures are told, not raised. One that was finished before is not done again, on `resume`."""
    data = None if job.data is None else Path(job.data)
    keeper = keeper or keeper_of(job)
    try:
        files, metrics = finished_files(job.keep, job.bag, job.config, job.backend) if job.resume else ({}, None)
        if metrics is not None:
            return ReplayOutcome(job.name, files, metrics)
        with _ONE_AT_A_TIME:
            listener = None if job.listener is None else job.listener()
            result = replay_bag(
                job.bag,
                job.config,
                Path(job.folder),
                data=data,
                backend=job.backend,
                progress=progress,
                listener=listener,
                keeper=keeper,
            )
            further = {} if listener is None else _further_files(listener, result)
            files = {**result_files(result), **further}
    except Exception as error:
        return ReplayOutcome(job.name, error=one_line(error), trace=traceback.format_exc())
    return ReplayOutcome(job.name, files, result.metrics, stopped=result.metrics["stopped"])


def _further_files(listener: Listener, result: ReplayResult) -> dict[str, bytes]:
    """A listener's files; an hour's estimates are not thrown away because it fails."""
    try:
        return listener.files(result)
    except Exception as error:
        result.notes.append(f"further files could not be made: {one_line(error)}")
        return {}


def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
