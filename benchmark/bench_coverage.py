"""Coverage as the field reports it: how often intervals hold truths that are drawn at random.

    python benchmark/bench_coverage.py [--trials 400] [--workers 2] [--only exact|wrong] [--first 0] [--json FILE]

The first table has nothing wrong in the scene but the noise; nothing is allowed for either. In the second density
(3 %), plane (1 mm), Poisson's ratio (up to 0.1), size (1 %), grid, steps and missing frames are drawn, too, and
intervals are those of the defaults of `estimate.known_to`. Limits are exact binomial ones (Clopper and Pearson), 95 %.
A fit that is called wrong states no value; how many were is told beside the tables. Isotropic noise, which three in ten
trials have, is shown apart, too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from coverage_cases import draw, frames_of, scene_of
from estimation_trials import spread
from scipy.stats import beta, norm

from soft_estimator.backends.choose import choose_backend
from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.solver import SolverError
from soft_estimator.scene.variables import shown
from soft_estimator.studies.estimate import estimate_scene

LEVELS = (0.5, 0.8, 0.9, 0.95)


def trial(item: tuple[int, bool]) -> dict[str, Any]:
    """One scene: normalised errors, relative deviations and the verdict."""
    seed, wrong = item
    clock, drawn = process_time(), draw(seed, wrong)
    out: dict[str, Any] = {"seed": seed, "words": drawn.words, "rows": [], "fits": None}
    try:
        result = estimate_scene(scene_of(drawn.told), choose_backend("cpu"), frames=frames_of(drawn, seed))
    except (SolverError, np.linalg.LinAlgError) as error:  # counted, not hidden
        return {**out, "failed": str(error), "seconds": process_time() - clock}
    true = scene_of({**drawn.truth, "estimate": None}).parameters
    out["fits"], out["cause"] = result.posterior.verdict.fits, result.posterior.verdict.cause
    variables = result.problem.variables
    for e, variable in zip(result.estimates, [variables.variables[j] for j in shown(variables)]):
        value = getattr(true, variable.name)
        truth = float(value if variable.index is None else np.asarray(value)[variable.index])
        z = normalised(variable.name, e.value, e.low, e.high, truth)
        out["rows"].append({"name": variable.name, "z": z, "observable": e.observable, "value": e.value, "std": e.std})
        out["rows"][-1]["truth"] = truth
    return {**out, "seconds": process_time() - clock}


def normalised(name: str, value: float, low: float, high: float, truth: float) -> float:
    """Error in standard deviations of the transformed value, in which the interval is symmetric."""
    kind = REGISTRY[name]

    def theta(x: float) -> float:
        if kind.transform == "log":
            return float(np.log(x))
        return float(np.log(x / (kind.high - x))) if kind.transform == "logit" and kind.high else x

    return (theta(value) - theta(truth)) / max((theta(high) - theta(low)) / (2 * 1.96), 1e-300)


def limits(inside: int, count: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % limits of a share, in per cent."""
    low = beta.ppf(0.025, inside, count - inside + 1) if inside else 0.0
    high = beta.ppf(0.975, inside + 1, count - inside) if inside < count else 1.0
    return 100 * float(low), 100 * float(high)


def table(trials: list[dict[str, Any]], title: str) -> list[dict[str, Any]]:
    """Print a table, one line a parameter; what it shows."""
    run = [t for t in trials if t["fits"] is not None]
    called = [t for t in run if not t["fits"]]
    print(f"{title}: {len(trials)} trials, {len(trials) - len(run)} not simulated, {len(called)} called wrong", end="")
    seconds = [t["seconds"] for t in trials[1:] or trials]  # the first one compiles
    print(f", {np.median(seconds):.1f} CPU s a trial (median), {np.mean(seconds):.1f} (mean)")
    levels = "".join(f"{100 * p:>4.0f} % [limits]   " for p in LEVELS)
    print(f"{'parameter':32s} {'n':>4s}  {levels}  z mean, rms")
    fitting = [t for t in run if t["fits"]]
    return [
        row for name in dict.fromkeys(row["name"] for t in run for row in t["rows"]) for row in lines(fitting, name)
    ]


def lines(fitting: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Print what trials show of one parameter, and those with isotropic noise alone; what was printed."""
    out = []
    for which, trials in (("", fitting), (", isotropic", [t for t in fitting if "isotropic" in t["words"]])):
        rows = [row for t in trials for row in t["rows"] if row["name"] == name and row["observable"]]
        if rows:
            out.append(line(name + which, rows))
    return out


def line(label: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Print one line: how often the intervals held, with the limits of that share, and the normalised errors."""
    z = np.array([row["z"] for row in rows])
    shown, text = [], f"{label:32s} {len(z):4d}  "
    for level in LEVELS:
        inside = int((np.abs(z) < norm.ppf(0.5 + level / 2)).sum())
        low, high = limits(inside, len(z))
        shown.append(100 * inside / len(z))
        text += f"{shown[-1]:4.0f} [{low:3.0f}, {high:3.0f}]  "
    width = float(np.median([row["std"] / max(abs(row["value"]), 1e-9) for row in rows]))
    print(f"{text}  {z.mean():+.2f}, {np.sqrt((z**2).mean()):.2f}; median deviation {100 * width:.1f} % of the value")
    return {"name": label, "n": len(z), "covered": shown, "z": z.tolist(), "width": width}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--only", choices=("exact", "wrong"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all trials there")
    args = parser.parse_args()
    out: list[dict[str, Any]] = []
    for name, wrong in (("exact", False), ("wrong", True)):
        if args.only in (None, name):
            items = [(seed, wrong) for seed in range(args.first, args.first + args.trials)]
            trials = spread(trial, items, args.workers, name)
            title = "model errors drawn, too" if wrong else "nothing wrong but noise"
            out.append({"table": title, "lines": table(trials, title), "trials": trials})
    if args.json:
        args.json.write_text(json.dumps(out))


if __name__ == "__main__":
    main()
