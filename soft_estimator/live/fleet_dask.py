"""Replaying many bags over a Dask cluster."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from soft_estimator.estimation.long_work import CTRL_C
from soft_estimator.live.fleet import blas_environment
from soft_estimator.live.replay_job import ReplayJob, ReplayOutcome, Watch, one_line, run_job

SCHEDULER_TIMEOUT = "10s"  # a scheduler that runs answers in well under one


def run_on_dask(
    jobs: Sequence[ReplayJob],
    address: str | None = None,
    workers: int = 1,
    threads: int | None = None,
    watch: Watch | None = None,
    limit_s: float | None = None,
) -> list[ReplayOutcome]:
    """Replay bags on a Dask cluster; its workers must see the bags under the same paths. One that is ended before its
    time, by Ctrl-C or the limit for all of them, gives the bags that are done.

    Args:
        address: of a scheduler, such as tcp://host:8786; a cluster on this machine, of `workers` processes, without.
    """
    try:
        from distributed import Client, LocalCluster, as_completed
        from distributed import TimeoutError as FutureTimeout
    except ImportError as error:
        raise ValueError("--engine dask needs dask.distributed; run: pip install distributed") from error
    local, watch = None, watch or Watch()
    if address is None:
        local = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            env=blas_environment(threads),
        )
    try:
        try:
            client = Client(local or address, timeout=SCHEDULER_TIMEOUT)
        except (OSError, TimeoutError, ValueError) as error:
            raise ValueError(
                f"no Dask scheduler answers at {address} ({one_line(error)}); start one with `dask scheduler`"
            ) from error
        with client:
            futures = {client.submit(run_job, job, pure=False, retries=1): k for k, job in enumerate(jobs)}
            outcomes = {number: ReplayOutcome(job.name, stopped=CTRL_C) for number, job in enumerate(jobs)}
            try:
                for future in as_completed(list(futures), timeout=limit_s):
                    number = futures[future]
                    outcomes[number] = _outcome_of(future, jobs[number].name)
                    watch.done(outcomes[number])
                    watch.tell(number, 1.0, "")
            except (KeyboardInterrupt, FutureTimeout) as ended:
                client.cancel(list(futures))
                if isinstance(ended, FutureTimeout):
                    late = f"the {limit_s:g} s that it was given are over"
                    outcomes = {n: replace(o, stopped=late) if o.stopped else o for n, o in outcomes.items()}
            return [outcomes[number] for number in range(len(jobs))]
    finally:
        if local is not None:
            local.close()


def _outcome_of(future: Any, name: str) -> ReplayOutcome:
    try:
        return future.result()  # type: ignore[no-any-return]
    except Exception as error:  # a worker that died, or has no soft_estimator
        return ReplayOutcome(name, error=f"the Dask worker failed: {one_line(error)}", trace=traceback.format_exc())
