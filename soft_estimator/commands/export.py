"""`soft-estimator export`: a result as a body for MuJoCo, Newton, Isaac, SOFA or a program of one's own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from soft_estimator.commands.console import HelpFormatter
from soft_estimator.commands.numbers import positive

FORMATS = ("mjcf", "usd", "sofa", "json")

DESCRIPTION = """Write what was estimated as a tetrahedral body with its material, damping and contact plane.

RESULT is the folder that measure, estimate or replay wrote, or the JSON file with the numbers in it. With --samples,
bodies drawn from the posterior are written too, one a file: a simulator that trains on them sees what is not known."""

EPILOG = """formats (--to):
  mjcf   MuJoCo: a flex with solid elasticity (.xml)
  usd    OpenUSD: TetMesh, UsdPhysics and its deformable schemas, for Newton and Isaac (.usda)
  sofa   SOFA: corotated tetrahedra (.scn)
  json   plain numbers (.json)

files written to DIR: NAME of the scene with the format's ending; NAME_000, NAME_001, ... for samples, and
NAME_samples.csv with the numbers in each. Units and axes stand in every file.

examples:
  soft-estimator export out/estimate --to mjcf
  soft-estimator export out/mine --to usd --samples 20 --out assets
  soft-estimator export out/mine/metrics.json --to json --spacing-mm 6 --json"""


SHORT_STEP_S = 1e-5  # below, a second takes explicit integration over a hundred thousand steps


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "export",
        help="write a result as a body for MuJoCo, Newton, Isaac or SOFA, with samples of its posterior",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("result", metavar="RESULT", type=Path, help="folder of an estimate or a replay")
    parser.add_argument("--to", choices=FORMATS, required=True, help="format")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder for the files (default: RESULT/export)")
    parser.add_argument(
        "--samples", metavar="N", type=int, default=0, help="bodies drawn from the posterior (default: 0)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the draws (default: 0)")
    parser.add_argument(
        "--spacing-mm",
        metavar="X",
        type=positive("number of millimetres"),
        help="edge of the cubes of twelve tetrahedra each (default: the cells of the estimate)",
    )
    parser.add_argument("--json", action="store_true", help="print what was written as JSON, and nothing else")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from soft_estimator.export import export, read_result

    if args.seed < 0:
        raise ValueError(f"--seed {args.seed} must not be negative")
    if args.out is not None and args.out.exists() and not args.out.is_dir():
        raise ValueError(f"--out {args.out} is a file; give a folder")
    result = read_result(args.result)
    out = result.source.parent / "export" if args.out is None else args.out
    spacing_m = None if args.spacing_mm is None else 1e-3 * args.spacing_mm
    summary = export(result, args.to, out, args.samples, spacing_m=spacing_m, seed=args.seed)
    print(json.dumps(summary) if args.json else _report(summary))
    return 0


def _report(summary: dict[str, Any]) -> str:
    mesh, files = summary["mesh"], summary["files"]
    shown = ", ".join(files if len(files) <= 3 else [files[0], files[1], "...", files[-1]])
    short = mesh["stable_step_s"] < SHORT_STEP_S
    remedy = "; damped or stiff as it is, integrate it implicitly" if short else ""
    return "\n".join(
        [
            f"  mesh      {mesh['tetrahedra']} tetrahedra, {mesh['vertices']} vertices, dihedral angles "
            f"{mesh['dihedral_min_deg']:.0f} to {mesh['dihedral_max_deg']:.0f} degrees",
            f"  body      {1e6 * mesh['volume_m3']:.4g} cm^3, {mesh['mass_kg']:.4g} kg; explicit steps up to "
            f"{1e3 * mesh['stable_step_s']:.2g} ms{remedy}",
            f"  written   {shown} in {summary['out']}",
        ]
    )
