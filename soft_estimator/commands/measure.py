"""`soft-estimator measure`: from one recording and a weight to the stiffness of an object."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soft_estimator.backends.choose import BACKENDS, WHERE_TO_COMPUTE
from soft_estimator.commands.console import EXIT_INTERRUPTED, HelpFormatter, ProgressBar, bold, stderr_line
from soft_estimator.commands.numbers import positive
from soft_estimator.commands.recording_options import add_recording_options, choice_of, finder_of
from soft_estimator.commands.scene_setup import add_progress, check_out

if TYPE_CHECKING:
    from soft_estimator.measuring.measurement import Measurement

DESCRIPTION = """Measure a soft object: record it lying still on a table for a second, then drop it a few times from 5
to 20 cm, weigh it, and give both to this command. It finds the rest shape and the drops by itself and says how stiff
the object is, with its uncertainty.

It takes a ROS 2 bag (MCAP or SQLite; PointCloud2, or depth images with CameraInfo) or a folder of frames (.ply, .pcd,
.npy, or 16-bit .png depth with camera.json). Transforms are not needed: the table that is seen tells where down is."""

EPILOG = """exit code:
  1  the recording does not tell; the line on stderr says why and what to do

Ctrl-C and --time-limit end it with what the drops till then say, marked as not finished.

files written to DIR (--out):
  measurement.json  what was found, with deviations, 95 % intervals and the posterior; frames not used and why
  scene.yaml        the scene it was found with, for replay and run live; body.npz: the rest shape
  rest_shape.npz    its grid as it was simulated; soft-estimator export takes it from there
  report.html       all of it as a page, with points and twin in 3D

examples:
  soft-estimator measure my_bag --mass "158 g"
  soft-estimator measure my_bag --mass 0.158 --out out/sponge
  soft-estimator measure frames/ --mass "42 g" --out out/ball --up y
  soft-estimator measure my_bag --mass "158 g" --json | jq .sentence"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "measure",
        help="measure an object from one recording and its weight",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("recording", metavar="BAG|FRAMES", type=Path, help="a bag, or a folder of frames")
    parser.add_argument("--mass", metavar="M", type=_mass, required=True, help="its mass, such as '158 g' or 0.158")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder for the results; made if needed")
    parser.add_argument("--name", default="my_object", help="name of the scene that is written (default: my_object)")
    parser.add_argument(
        "--cells",
        metavar="N",
        type=_cells,
        help="grid cells of the body (default: 400 for a plain shape; else 1000, and 4000 with a GPU)",
    )
    parser.add_argument(
        "--friction",
        metavar="MU",
        type=positive(),
        help="the table rubs: first guess of its coefficient of friction, which is estimated then, such as 0.5 "
        "(default: a smooth table)",
    )
    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=positive(),
        help="end at the first frame after so many seconds, with what the drops before it say",
    )
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=f"{WHERE_TO_COMPUTE} (default: auto)")
    add_recording_options(parser)
    parser.add_argument("--json", action="store_true", help="print measurement.json on stdout, and nothing else")
    add_progress(parser)
    return parser


def _mass(text: str) -> float:
    from soft_estimator.schema.units import UnitError, parse_quantity

    try:
        kg = parse_quantity(text, "kg")
    except UnitError as error:
        raise argparse.ArgumentTypeError(f"'{text}' {error}") from None
    if not 0 < kg < 1000:
        raise argparse.ArgumentTypeError(f"'{text}' is no mass of an object before a camera; write it as '158 g'")
    return kg


def _cells(text: str) -> int:
    if not (text.isdigit() and 50 <= int(text) <= 2_000_000):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of cells from 50 to 2000000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from soft_estimator.estimation.long_work import CTRL_C, TimeLimit
    from soft_estimator.measuring.looking import MeasureOptions, NotMeasured
    from soft_estimator.measuring.measure import measure

    if args.out is not None:
        check_out(args)
    options = MeasureOptions(
        cells=args.cells, finder=finder_of(args), choice=choice_of(args), topic=args.topic,
        fixed_frame=args.fixed_frame, up=args.up, name=args.name, friction=args.friction,
    )  # fmt: skip
    try:
        with ProgressBar(args.progress) as progress:
            made = measure(args.recording, args.mass, options, args.backend, progress, TimeLimit(args.time_limit))
    except NotMeasured as error:
        stderr_line(" ".join(str(error).split()), label="error")
        return 1
    if made.stopped:
        stderr_line(f"not finished ({made.stopped}): {len(made.drops)} drop(s) are in it", label="warning")
    written = [] if args.out is None else _write(made, args.out)
    print(json.dumps(made.summary()) if args.json else _report(made, written, args.out))
    if made.stopped == CTRL_C:
        return EXIT_INTERRUPTED
    return 0 if made.stiffness.observable else 1


def _write(made: Measurement, out: Path) -> list[str]:
    from soft_estimator.commands.measure_report import report_of

    names = [path.name for path in made.save(out)]
    (out / "report.html").write_text(report_of(made), encoding="utf-8")
    return [*names, "report.html"]


def _report(made: Measurement, written: list[str], out: Path | None) -> str:
    """A few lines for people, the sentence first."""
    from soft_estimator.pictures.wording import plain_name, stated

    lines = [bold(made.sentence, sys.stdout)]
    for e in made.parameters[1:]:
        unseen = "" if e.observable else f"   not observable: {e.reason}"
        lines.append(f"  {plain_name(e.label)}  {stated(e.value, e.std, e.low, e.high, e.unit)}{unseen}")
    lines.append(f"  density  {made.scene.parameters.density_kg_m3:.4g} kg/m³")
    lines.append(f"  frames   {made.used} used in {len(made.drops)} drop(s), of {made.frames}")
    lines += [f"  not used {item.count}: {item.example}" for item in made.refusals.most_first()[:4]]
    lines += [f"  note     {note}" for note in made.notes]
    if written and out is not None:
        lines += [f"  written  {', '.join(written)} in {out}", "go on with:"]
        lines += [f"  {command}" for command in made.next_commands(out)]
    return "\n".join(lines)
