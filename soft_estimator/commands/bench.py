"""`soft-estimator bench`: how fast this machine simulates, differentiates and evaluates the cost."""

from __future__ import annotations

import argparse
import json
from typing import Any

from soft_estimator.backends.choose import BACKENDS, PRECISIONS, WHERE_TO_COMPUTE
from soft_estimator.commands.console import HelpFormatter, ProgressBar
from soft_estimator.commands.numbers import count

DESCRIPTION = """Time a conjugate gradient iteration, a time step, a gradient and an evaluation of the point-cloud cost,
by scene and size.

Beside each time stand the least bytes it must move, the floor that this machine's memory sets for them (measured by a
large copy), and the ratio to it; near 1 the memory is the bound, and small bodies on a GPU lie far above it. Where JAX
is installed and this is a source checkout, the gradient is timed in JAX too."""

EPILOG = """examples:
  soft-estimator bench
  soft-estimator bench --backend cuda --sizes 1000,9200,30000 --json > bench.json
  soft-estimator bench --scenes torus --parts step,gradient --precisions float32"""

# Nodes of the scenes, and time steps of a gradient: each row within a few seconds on either.
_SIZES = {"cpu": (1000, 9200), "cuda": (1000, 9200, 30000)}
_STEPS = {"cpu": 4, "cuda": 30}


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="time steps, gradients and cost evaluations on this machine",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=f"{WHERE_TO_COMPUTE} (default: auto)")
    parser.add_argument("--sizes", metavar="N,...", type=_counts, help="nodes, about (default: 1000,9200)")
    parser.add_argument("--scenes", metavar="NAME,...", default="torus,block", help="of torus, block (default: both)")
    parser.add_argument("--parts", metavar="NAME,...", default="iteration,step,gradient,cost", help="default: all four")
    both = ",".join(PRECISIONS)
    parser.add_argument("--precisions", metavar="NAME,...", default=both, help="default: both, on the CPU float64")
    parser.add_argument("--steps", metavar="N", type=count, help="time steps of a gradient (default: 4, cuda 30)")
    parser.add_argument("--repeats", metavar="N", type=count, default=3, help="the median of so many (default: 3)")
    parser.add_argument("--no-jax", action="store_true", help="do not time the JAX implementation")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON on stdout, and nothing else")
    parser.add_argument("--progress", action="store_true", help="show the progress bar even outside a terminal")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    return tuple(count(part) for part in text.split(","))


def _names(text: str, option: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise ValueError(f"{option} {name} is not known; choose from {', '.join(known)}")
    return names


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from soft_estimator.backends import choose_backend
    from soft_estimator.studies.bench import PARTS, run_bench
    from soft_estimator.studies.bench_scenes import SCENES

    scenes, parts = _names(args.scenes, "--scenes", tuple(SCENES)), _names(args.parts, "--parts", PARTS)
    precisions = _names(args.precisions, "--precisions", PRECISIONS)
    backend = choose_backend(args.backend)
    with ProgressBar(args.progress) as bar:
        bar("preparing", 0, 1)
        result = run_bench(
            backend,
            sizes=args.sizes or _SIZES[backend.name],
            scenes=scenes,
            precisions=precisions,
            parts=parts,
            steps=args.steps or _STEPS[backend.name],
            repeats=args.repeats,
            with_peer=not args.no_jax,
            progress=bar,
        )
    print(json.dumps(result) if args.json else _table(result))
    return 0


def _table(result: dict[str, Any]) -> str:
    speed = 1e-9 * result["copy_bytes_per_s"]
    lines = [f"{result['device']}, memory {speed:.1f} GB/s, steps of {result['step_s']:g} s"]
    jax = any(row["jax_ms"] is not None for row in result["rows"])
    head = f"{'':<10} {'scene':<6} {'nodes':>8} {'precision':<9} {'ms':>10} {'floor ms':>10} {'ratio':>8} {'MB':>10}"
    lines.append(head + f" {'iterations':>10}" + (f" {'JAX ms':>10}" if jax else ""))
    for r in result["rows"]:
        line = f"{r['what']:<10} {r['scene']:<6} {r['nodes']:>8} {r['precision']:<9} {r['ms']:>10.4g} "
        line += f"{r['floor_ms']:>10.4g} {r['ratio']:>8.3g} {1e-6 * r['bytes']:>10.4g} {r['iterations']:>10}"
        if jax and r["jax_ms"] is not None:
            line += f" {r['jax_ms']:>10.4g}"
        lines.append(line)
    return "\n".join(lines)
