"""How often a recording that the model does not fit is called so, and a clean one is not.

    python benchmark/bench_misfit.py [--trials 200] [--workers 2] [--first 0] [--only wrong|clean] [--json FILE]

As many recordings with one thing wrong, the cases of `misfit_cases` in turn, as clean ones. A wrong one is caught where
the verdict says that the model does not fit. Where the frames cannot tell (the density, a bend that has died down), it
is also caught by an interval of the stiffness that holds the truth, or by none. Limits are exact binomial ones, 95 %.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from bench_coverage import limits
from estimation_trials import spread
from misfit_cases import CALLED, CASES, case_of, recording

from soft_estimator.backends.choose import choose_backend
from soft_estimator.physics.solver import SolverError
from soft_estimator.studies.estimate import estimate_scene


def trial(item: tuple[int, str]) -> dict[str, Any]:
    """One recording: the verdict, and whether the interval of the stiffness holds the truth."""
    seed, case = item
    clock, made = process_time(), recording(seed, case)
    out: dict[str, Any] = {"seed": seed, "case": case, "words": made.words, "fits": None, "holds": False}
    try:
        around = estimate_scene(made.told, choose_backend("cpu"), frames=made.frames).posterior
    except (SolverError, np.linalg.LinAlgError) as error:  # no number, so no wrong one; counted apart
        return {**out, "failed": str(error), "seconds": process_time() - clock}
    stiffness = around.estimates[0]
    holds = not stiffness.observable or stiffness.low <= made.truth_pa <= stiffness.high
    out |= {"fits": around.verdict.fits, "cause": around.verdict.cause, "figures": around.verdict.figures}
    out |= {"value": stiffness.value, "low": stiffness.low, "high": stiffness.high, "truth": made.truth_pa}
    return {**out, "holds": holds, "seconds": process_time() - clock}


def caught(row: dict[str, Any]) -> bool:
    """Whether a wrong recording left no confident number that is wrong."""
    return row["fits"] is not True or (row["case"] not in CALLED and row["holds"])


def share(text: str, count: int, of: int) -> None:
    low, high = limits(count, of)
    print(f"{text}: {count} of {of}, {100 * count / of:.1f} % [{low:.1f}, {high:.1f}]")


def show(rows: list[dict[str, Any]], name: str) -> None:
    """Print what became of the recordings."""
    seconds = [row["seconds"] for row in rows[1:] or rows]  # the first one compiles
    failed = sum("failed" in row for row in rows)
    print(f"{name}: {len(rows)} recordings, {failed} not simulated, {np.mean(seconds):.1f} CPU s each (mean)")
    for case in CASES:
        of = [row for row in rows if row["case"] == case]
        if of:
            called = sum(row["fits"] is not True for row in of)
            held = sum(row["holds"] for row in of if row["fits"])
            causes = ", ".join(sorted({row.get("cause", "") for row in of} - {""}))
            print(f"  {case:14s} {len(of):3d}: {called} called wrong ({causes}), {held} others hold the truth", end="")
            print(f", {sum(map(caught, of))} caught; not: {[row['seed'] for row in of if not caught(row)]}")
    if name == "wrong":
        share("caught", sum(map(caught, rows)), len(rows))
    else:
        refused = [row for row in rows if row["fits"] is False]
        share("clean ones called wrong", len(refused), len(rows))
        share("intervals of clean ones that hold the truth", sum(row["holds"] for row in rows), len(rows))
        for row in refused:
            print(f"  seed {row['seed']}, {row['words']}: {row['cause']}, {row['figures']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200, help="of each kind")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="seed of the first recording")
    parser.add_argument("--only", choices=("wrong", "clean"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all recordings' results there")
    args = parser.parse_args()
    seeds, out = range(args.first, args.first + args.trials), {}
    for name in ("wrong", "clean"):
        if args.only in (None, name):
            items = [(seed, case_of(k, seed) if name == "wrong" else "") for k, seed in enumerate(seeds)]
            out[name] = spread(trial, items, args.workers, name)
            show(out[name], name)
    if args.json:
        args.json.write_text(json.dumps(out))


if __name__ == "__main__":
    main()
