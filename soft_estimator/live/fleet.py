"""Replaying many bags at once: in worker processes here, or over a Dask cluster.

Every bag runs in a process of its own with one BLAS thread: sums of matrix products then do not depend on how many
cores there are, and neither do the bytes of the result.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from soft_estimator.live.replay import Listener, Progress, ReplayResult, replay_bag
from soft_estimator.live.replay_config import ReplayConfig
from soft_estimator.live.replay_files import result_files

Tell = Callable[[int, float], None]  # number of the job, part of it that is done
_BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
SCHEDULER_TIMEOUT = "10s"  # a scheduler that runs answers in well under one
# Numba's simplest threading layer must not be entered twice; a Dask worker may run several jobs as threads.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class ReplayJob:
    """One bag to replay, as plain as can be sent to another process. listener: makes one, for further files."""

    name: str
    bag: str
    config: ReplayConfig
    folder: str
    data: str | None = None
    backend: str = "auto"
    listener: Callable[[], Listener] | None = None


@dataclass(frozen=True)
class ReplayOutcome:
    """What came of a job: its files and metrics, or an error and where it came from."""

    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    metrics: dict[str, Any] | None = None
    error: str = ""
    trace: str = ""


def run_job(job: ReplayJob, progress: Progress | None = None) -> ReplayOutcome:
    """Replay a bag; failures are told, not raised."""
    data = None if job.data is None else Path(job.data)
    try:
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
            )
            further = {} if listener is None else _further_files(listener, result)
            files = {**result_files(result), **further}
    except Exception as error:
        return ReplayOutcome(job.name, error=_one_line(error), trace=traceback.format_exc())
    return ReplayOutcome(job.name, files, result.metrics)


def _further_files(listener: Listener, result: ReplayResult) -> dict[str, bytes]:
    """A listener's files; an hour's estimates are not thrown away because it fails."""
    try:
        return listener.files(result)
    except Exception as error:
        result.notes.append(f"further files could not be made: {_one_line(error)}")
        return {}


def run_in_processes(
    jobs: Sequence[ReplayJob], workers: int = 1, threads: int | None = None, tell: Tell | None = None
) -> list[ReplayOutcome]:
    """Replay bags in processes of their own, `workers` at a time, with `threads` threads each."""
    context = multiprocessing.get_context("spawn")
    outcomes: dict[int, ReplayOutcome] = {}
    running: dict[Connection, tuple[int, Any]] = {}
    waiting = list(enumerate(jobs))
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                number, job = waiting.pop(0)
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(there, job), daemon=True)
                with _environment(threads):
                    process.start()
                there.close()
                running[here] = (number, process)
            for pipe in wait(list(running)):
                _hear(pipe, running, jobs, outcomes, tell)  # type: ignore[arg-type]
    finally:
        for _, process in running.values():
            process.terminate()
        for pipe, (_, process) in running.items():
            process.join()
            pipe.close()
    return [outcomes[number] for number in range(len(jobs))]


def _work(pipe: Connection, job: ReplayJob) -> None:
    """What a worker process does. An interrupt from the keyboard is for its parent, who ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(run_job(job, lambda done, total: pipe.send(done / max(total, 1))))
    pipe.close()


def _hear(
    pipe: Connection,
    running: dict[Connection, tuple[int, Any]],
    jobs: Sequence[ReplayJob],
    outcomes: dict[int, ReplayOutcome],
    tell: Tell | None,
) -> None:
    """Take in a message of a worker: how far it is, its outcome, or its end."""
    number, process = running[pipe]
    try:
        said = pipe.recv()
    except EOFError:
        process.join()
        if number not in outcomes:
            code = process.exitcode
            why = f"was ended by signal {-code}" if code and code < 0 else f"ended with code {code}"
            outcomes[number] = ReplayOutcome(jobs[number].name, error=f"its process {why}; is there memory enough?")
        del running[pipe]
        pipe.close()
        said = 1.0
    if isinstance(said, ReplayOutcome):
        outcomes[number] = said
    elif tell is not None:
        tell(number, said)


@contextmanager
def _environment(threads: int | None) -> Iterator[None]:
    """The environment that a process started in this block begins with."""
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(_BLAS, "1"))
    if threads is not None:
        os.environ["NUMBA_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_on_dask(
    jobs: Sequence[ReplayJob],
    address: str | None = None,
    workers: int = 1,
    threads: int | None = None,
    tell: Tell | None = None,
) -> list[ReplayOutcome]:
    """Replay bags on a Dask cluster; its workers must see the bags under the same paths.

    Args:
        address: of a scheduler, such as tcp://host:8786; a cluster on this machine, of `workers` processes, without.
    """
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise ValueError("--engine dask needs dask.distributed; run: pip install distributed") from error
    environment = dict.fromkeys(_BLAS, "1")
    if threads is not None:
        environment["NUMBA_NUM_THREADS"] = str(threads)
    local = None
    if address is None:
        local = LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, env=environment
        )
    try:
        try:
            client = Client(local or address, timeout=SCHEDULER_TIMEOUT)
        except (OSError, TimeoutError, ValueError) as error:
            raise ValueError(
                f"no Dask scheduler answers at {address} ({_one_line(error)}); start one with `dask scheduler`"
            ) from error
        with client:
            futures = {client.submit(run_job, job, pure=False, retries=1): k for k, job in enumerate(jobs)}
            outcomes: dict[int, ReplayOutcome] = {}
            for future in as_completed(list(futures)):
                number = futures[future]
                outcomes[number] = _outcome_of(future, jobs[number].name)
                if tell is not None:
                    tell(number, 1.0)
            return [outcomes[number] for number in range(len(jobs))]
    finally:
        if local is not None:
            local.close()


def _outcome_of(future: Any, name: str) -> ReplayOutcome:
    try:
        return future.result()  # type: ignore[no-any-return]
    except Exception as error:  # a worker that died, or has no soft_estimator
        return ReplayOutcome(name, error=f"the Dask worker failed: {_one_line(error)}", trace=traceback.format_exc())


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
