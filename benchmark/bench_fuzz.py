"""Scenes, files, bags and messages with mistakes of all kinds: each is taken, or refused in one line.

    python benchmark/bench_fuzz.py                                  # a short run
    python benchmark/bench_fuzz.py --scenes 10000 --files 10000 --bags 1000 --messages 100000
    python benchmark/bench_fuzz.py --only messages --first 4711 --messages 1      # one finding again

Every case has a number, its seed: the same number is the same case on any machine. A finding (a traceback, a message
of several lines, a case that takes longer than --limit seconds) is printed with its number; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz_files import make_bags, make_files, try_bag, try_file
from fuzz_messages import try_message
from fuzz_scenes import try_scene

KINDS = ("scenes", "files", "bags", "messages")
_SHORT = {"scenes": 300, "files": 500, "bags": 100, "messages": 3000}
_LOOKED_AT = 25  # of so many messages one is also searched for the object


def cases(kind: str, folder: Path) -> Callable[[int], str]:
    """What tries the case of a number, with the good files it starts from made in a folder."""
    if kind == "scenes":
        return lambda seed: try_scene(seed, folder)
    if kind == "messages":
        return lambda seed: try_message(seed, seed % _LOOKED_AT == 0)
    good = make_files(folder / "files") if kind == "files" else make_bags(folder)
    return (lambda seed: try_file(seed, folder / "files", good)) if kind == "files" else (
        lambda seed: try_bag(seed, folder, good)
    )  # fmt: skip


def hunt(kind: str, numbers: range, folder: Path, limit_s: float) -> tuple[Counter[str], list[str]]:
    """Try cases; how often each outcome was, and a line for every finding."""
    try_one, outcomes, findings = cases(kind, folder), Counter[str](), []
    for seed in numbers:
        begun = time.thread_time()
        try:
            outcomes[try_one(seed)] += 1
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            findings.append(f"{kind} {seed}: {type(error).__name__} at {where}: {str(error)[:200]!r}")
        taken_s = time.thread_time() - begun
        if taken_s > limit_s and seed != numbers.start:  # the first one compiles
            findings.append(f"{kind} {seed}: took {taken_s:.1f} s")
    return outcomes, findings


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", metavar="N", type=int, default=_SHORT[kind], help=f"(default: {_SHORT[kind]})")
    parser.add_argument("--only", choices=KINDS, help="just these")
    parser.add_argument("--first", metavar="SEED", type=int, default=0, help="number of the first case (default: 0)")
    parser.add_argument("--limit", metavar="S", type=float, default=20.0, help="seconds a case may take (default: 20)")
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # of NumPy, about values that are odd on purpose
    total = 0
    with TemporaryDirectory(prefix="fuzz_") as folder:
        for kind in KINDS if args.only is None else (args.only,):
            numbers, begun = range(args.first, args.first + getattr(args, kind)), time.perf_counter()
            outcomes, findings = hunt(kind, numbers, Path(folder), args.limit)
            listed = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            seconds = time.perf_counter() - begun
            print(f"{kind} {numbers.start}..{numbers.stop - 1}: {listed}; {len(findings)} findings; {seconds:.0f} s")
            print("".join(f"  {line}\n" for line in findings), end="", flush=True)
            total += len(findings)
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
