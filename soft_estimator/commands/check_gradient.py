"""`soft-estimator check-gradient`: adjoint, tangent and central differences of a scene's cost, side by side."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from soft_estimator.commands.console import HelpFormatter, ProgressBar, stderr_line
from soft_estimator.commands.numbers import count
from soft_estimator.commands.scene_setup import add_computing, add_progress, add_scene, make_ready, read_scene_argument

EXIT_BEYOND_TOLERANCE = 1

DESCRIPTION = """Compare the derivatives of the point-cloud cost by every estimated parameter, three ways: adjoint,
tangent, and central differences. Where the scene has no `estimate` section, every parameter that applies is taken.

The scene's own cameras watch its motion over some steps; the cost is taken at the scene's guess, or a little off the
scene's values where there is none. All runs in float64 with the solver at 1e-12. Derivatives are by the optimiser's
variable: log E, logit of Poisson's ratio, metres, radians.

The cost has kinks: where a point passes from one deformed cell into the next, its slope jumps. So few points are used
(--points), the differences are Richardson-extrapolated, taken at several short steps, and the one that agrees best with
the next is kept; `doubt` says to what. A doubt near the tolerance means that the differences failed, not the gradient:
try another --steps or fewer --points.

A parameter that moves the cost by less than 1e-9 of it over a prior deviation, by all three, is not shown by the
frames: there is nothing to compare, and the table says so."""

EPILOG = """exit code:
  1  some derivative is off by more than the tolerance, or the frames show none of the parameters

examples:
  soft-estimator check-gradient swinging_torus
  soft-estimator check-gradient bouncing_ball                  # past the first touch
  soft-estimator check-gradient bouncing_ball --steps 20       # before it: nothing to compare
  soft-estimator check-gradient my_scene.yaml --tolerance 1e-6 --json"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check-gradient",
        help="compare adjoint, tangent and central differences of a scene's cost",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    add_scene(parser)
    parser.add_argument(
        "--steps", metavar="N", type=count, help="time steps (default: two frames, past the first touch)"
    )
    parser.add_argument("--points", metavar="N", type=count, default=300, help="most points a frame (default: 300)")
    parser.add_argument("--tolerance", metavar="X", type=_tolerance, default=1e-5, help="relative (default: 1e-5)")
    add_computing(parser)
    parser.add_argument("--json", action="store_true", help="print the table as JSON on stdout, and nothing else")
    add_progress(parser)
    return parser


def _tolerance(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number between 0 and 1")
    return number


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    config, folder = read_scene_argument(args)

    from soft_estimator.studies.gradient_check import check_gradient, exact_config

    bar = ProgressBar(args.progress)
    with bar:
        config = exact_config(config)
        scene, backend = make_ready(args, config, folder, bar)
        rows = check_gradient(scene, backend, steps=args.steps, points=args.points, progress=bar)
    beyond = [row.label for row in rows if not row.error <= args.tolerance]
    unseen = [row.label for row in rows if not row.shown]
    if args.json:
        summary = {"scene": config.name, "tolerance": args.tolerance, "within_tolerance": not beyond}
        print(json.dumps({**summary, "nothing_to_compare": unseen, "rows": [vars(row) for row in rows]}))
    else:
        print(_table(rows, args.tolerance))
    if beyond:
        stderr_line(f"{', '.join(beyond)} off by more than {args.tolerance:g}", label="error")
    if unseen:
        line = f"nothing to compare for {', '.join(unseen)}: the frames do not show it; try more --steps"
        stderr_line(line, label="error" if len(unseen) == len(rows) else "note")
    return EXIT_BEYOND_TOLERANCE if beyond or len(unseen) == len(rows) else 0


def _table(rows: list[Any], tolerance: float) -> str:
    width = max(len(row.label) for row in rows)
    lines = [f"{'by':<{width}}  {'adjoint':>20}  {'tangent':>20}  {'differences':>20}  {'doubt':>8}  {'error':>8}"]
    for row in rows:
        mark = "" if row.error <= tolerance else "  <-- beyond the tolerance"
        mark = mark if row.shown else "  nothing to compare"
        lines.append(
            f"{row.label:<{width}}  {row.adjoint:>20.12g}  {row.tangent:>20.12g}  {row.differences:>20.12g}  "
            f"{row.doubt:>8.1e}  {row.error:>8.1e}{mark}"
        )
    return "\n".join(lines)
