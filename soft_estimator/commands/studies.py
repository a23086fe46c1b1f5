"""`soft-estimator studies`: recordings of real bodies that come with the package, fitted and predicted."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from soft_estimator.backends.choose import BACKENDS, WHERE_TO_COMPUTE
from soft_estimator.commands.console import HelpFormatter, stderr_line

if TYPE_CHECKING:
    from soft_estimator.studies.beam import BeamStudy, Compared

EXIT_OFF = 1

DESCRIPTION = """A real body against the model, with nothing simulated on the measured side.

beam: a silicone beam (Dragon Skin 10, 30 x 30 x 100 mm), clamped, held straight and let go; six markers of a motion
capture system at 100 Hz, recorded by the Soft Robotics Lab of ETH Zurich (srl-ethz/diffPD_sim2real, MIT). Stiffness,
relaxation and damping are fitted to its release under its own weight. From that fit the release with 52 g at its end is
predicted. The table sets frequency, damping ratio and drop beside what the markers show."""

EPILOG = """exit code:
  1  some number of the table is further off than asked for

examples:
  soft-estimator studies beam
  soft-estimator studies beam --out out/beam --cells 6     # finer, and a picture
  soft-estimator studies beam --json > beam.json"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "studies",
        help="fit and predict a recording of a real body",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("study", choices=("beam",), help="which one")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder for a picture and the numbers; made if needed")
    parser.add_argument(
        "--cells", type=int, choices=(3, 6, 12), default=3, help="cells through the beam's thickness (default: 3)"
    )
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=f"{WHERE_TO_COMPUTE} (default: auto)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON on stdout, and nothing else")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from soft_estimator.backends import choose_backend
    from soft_estimator.studies.beam import study_beam
    from soft_estimator.studies.beam_plots import draw_beam

    if args.out is not None and args.out.exists() and not args.out.is_dir():
        raise ValueError(f"--out {args.out} is a file; give a folder")
    study = study_beam(choose_backend(args.backend), cells=args.cells, say=stderr_line)
    numbers = numbers_of(study)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        draw_beam(args.out / "beam.png", study)
        (args.out / "beam.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(numbers) if args.json else _table(study))
    holds = all(row.holds for compared in (study.fitted, study.predicted) for row in compared.rows)
    return 0 if holds else EXIT_OFF


def numbers_of(study: BeamStudy) -> dict[str, Any]:
    """What the study found, for files."""
    return {
        "cells": study.cells,
        "residual_m": study.residual_m,
        "stopped": study.reason,
        "estimates": [
            {"name": e.label, "unit": e.unit, "value": e.value, "std": e.std, "low": e.low, "high": e.high}
            for e in study.estimates
        ],
        "fitted": _rows(study.fitted),
        "predicted": _rows(study.predicted),
    }


def _rows(compared: Compared) -> list[dict[str, Any]]:
    return [
        {"what": r.what, "unit": r.unit, "measured": r.measured, "model": r.model, "asked": _asked(r.within),
         "holds": r.holds}
        for r in compared.rows
    ]  # fmt: skip


def _asked(within: float) -> float | None:
    return within if within < float("inf") else None


def _table(study: BeamStudy) -> str:
    lines = [f"{study.cells} cells; markers and model differ by {1e3 * study.residual_m:.3f} mm rms where fitted"]
    for e in study.estimates:
        lines.append(f"  {e.label:<24} {e.value:>12.5g} ± {1.96 * e.std:<9.2g} {e.unit}")
    lines.append(f"{'':<34} {'measured':>10} {'model':>10} {'off':>8} {'asked':>8}")
    for compared, word in ((study.fitted, "fitted"), (study.predicted, "predicted")):
        for r in compared.rows:
            asked = "" if _asked(r.within) is None else f"{100 * r.within:.0f} %"
            name = f"{compared.release.name}, {word}: {r.what} {f'[{r.unit}]' if r.unit else ''}"
            mark = "" if r.holds else "  !"
            lines.append(f"{name:<42} {r.measured:>8.4g} {r.model:>8.4g} {100 * r.off:>+7.1f} % {asked:>6}{mark}")
    return "\n".join(lines)
