"""Replaying many bags at once, in worker processes.

Every bag runs in a process of its own with one BLAS thread: sums of matrix products then do not depend on how many
cores there are, and neither do the bytes of the result. What is ended before its time, by Ctrl-C or a limit, gives what
is known by then.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any

from soft_estimator.estimation.long_work import CTRL_C, TimeLimit, TimeUp
from soft_estimator.live.replay_job import ReplayJob, ReplayOutcome, Watch, keeper_of, run_job

_BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
_TOLD_EVERY_S = 0.1  # how far a worker is; a bar needs no more


def run_in_processes(
    jobs: Sequence[ReplayJob],
    workers: int = 1,
    threads: int | None = None,
    watch: Watch | None = None,
    limit_s: float | None = None,
) -> list[ReplayOutcome]:
    """Replay bags in processes of their own, `workers` at a time, with `threads` threads each.

    Args:
        limit_s: time that all of them may take. At Ctrl-C every bag is asked to end after the frame at hand; a second
            one ends them at once.
    """
    outcomes: dict[int, ReplayOutcome] = {}
    running: dict[Connection, tuple[int, Any]] = {}
    waiting, time, stopped, watch = list(enumerate(jobs)), TimeLimit(limit_s), "", watch or Watch()
    try:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    time.check()
                    _start(*waiting.pop(0), running, threads, time)
                for pipe in wait(list(running)):
                    _hear(pipe, running, jobs, outcomes, watch)  # type: ignore[arg-type]
        except (KeyboardInterrupt, TimeUp) as ended:
            stopped = str(ended) or CTRL_C
            if stopped == CTRL_C:
                watch.ending()
                for _, process in running.values():
                    process.terminate()  # see `_work`
            while running:
                for pipe in wait(list(running)):
                    _hear(pipe, running, jobs, outcomes, watch, stopped)  # type: ignore[arg-type]
    finally:
        for pipe, (_, process) in running.items():
            process.kill()
            process.join()
            pipe.close()
    nothing = {number: ReplayOutcome(job.name, stopped=stopped) for number, job in enumerate(jobs)}
    return [{**nothing, **outcomes}[number] for number in range(len(jobs))]


def _start(
    number: int, job: ReplayJob, running: dict[Connection, tuple[int, Any]], threads: int | None, time: TimeLimit
) -> None:
    """Start the process of a job."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(there, replace(job, time=time)), daemon=True)
    with _environment(threads), _without_interrupts():
        process.start()
    there.close()
    running[here] = (number, process)


def _work(pipe: Connection, job: ReplayJob) -> None:
    """What a worker process does. An interrupt from the keyboard is for its parent, who ends it by SIGTERM: after the
    frame at hand, with what is known."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keeper, told_s = keeper_of(job), -_TOLD_EVERY_S

    def end(number: int, frame: object) -> None:
        keeper.end = CTRL_C

    def progress(done: int, total: int, note: str) -> None:
        nonlocal told_s
        if monotonic() - told_s >= _TOLD_EVERY_S:
            told_s = monotonic()
            pipe.send((done / max(total, 1), note))

    signal.signal(signal.SIGTERM, end)
    pipe.send(run_job(job, progress, keeper))
    pipe.close()


def _hear(
    pipe: Connection,
    running: dict[Connection, tuple[int, Any]],
    jobs: Sequence[ReplayJob],
    outcomes: dict[int, ReplayOutcome],
    watch: Watch,
    stopped: str = "",
) -> None:
    """Take in a message of a worker: how far it is, its outcome, or its end; stopped: why it was asked to end."""
    number, process = running[pipe]
    try:
        said = pipe.recv()
    except EOFError:
        process.join()
        if number not in outcomes and not stopped:
            code = process.exitcode
            why = f"was ended by signal {-code}" if code and code < 0 else f"ended with code {code}"
            outcomes[number] = ReplayOutcome(jobs[number].name, error=f"its process {why}; is there memory enough?")
        del running[pipe]
        pipe.close()
        said = 1.0, ""
    if isinstance(said, ReplayOutcome):
        outcomes[number] = said
        watch.done(said)
    else:
        watch.tell(number, *said)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started in this block never hear an interrupt from the keyboard, not even while they import."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(threads: int | None) -> Iterator[None]:
    """The environment that a process started in this block begins with."""
    before = dict(os.environ)
    os.environ.update(blas_environment(threads))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def blas_environment(threads: int | None) -> dict[str, str]:
    """What a worker's environment says of threads."""
    out = dict.fromkeys(_BLAS, "1")
    return out if threads is None else {**out, "NUMBA_NUM_THREADS": str(threads)}
