"""`soft-estimator simulate`: run a scene and write what happened."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from soft_estimator.commands.console import HelpFormatter, ProgressBar, bold, stderr_line
from soft_estimator.commands.scene_setup import (
    add_computing,
    add_out,
    add_progress,
    add_scene,
    check_out,
    make_ready,
    read_scene_argument,
)

EPILOG = """files written to DIR:
  summary.json    nodes, cells, volume, mass, energies, centre of mass and contact force over time, solver, timing
  scene.yaml      the scene with every default filled in
  strip.png       the motion as a row of pictures, coloured by strain
  animation.gif   the motion
  meshes/*.ply    the surface after each step, with --meshes

examples:
  soft-estimator simulate swinging_torus --out out/torus
  soft-estimator simulate bunny_on_tilted_plane --data ~/data --out out/bunny
  soft-estimator simulate my_scene.yaml --out out/mine --meshes --steps 50
  soft-estimator simulate cantilever --out out/beam --no-pictures --json | jq .cg_iterations_mean"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "simulate",
        help="simulate a scene, write numbers and pictures",
        description="Simulate a scene and write numbers, pictures and meshes.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    add_scene(parser)
    add_out(parser)
    add_computing(parser)
    parser.add_argument("--steps", metavar="N", type=_count, help="time steps, instead of the scene's duration")
    parser.add_argument("--meshes", action="store_true", help="write the surface after each step as PLY")
    parser.add_argument("--no-pictures", action="store_true", help="write neither strip.png nor animation.gif")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout, and nothing else")
    add_progress(parser)
    return parser


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1; simulate at least one step")
    return number


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    config, folder = read_scene_argument(args)
    if args.steps is not None:
        time = dataclasses.replace(config.time, duration_s=args.steps * config.time.step_s)
        config = dataclasses.replace(config, time=time)
    check_out(args)

    from soft_estimator.studies.simulate import simulate, write_result

    with ProgressBar(args.progress) as progress:
        scene, backend = make_ready(args, config, folder, progress)
        progress("simulating", 0, config.time.steps)
        # Without pictures and meshes no surface needs to be kept; with meshes every one does.
        keep = range(config.time.steps + 1) if args.meshes else () if args.no_pictures else None
        result = simulate(scene, backend, progress, keep)
        for warning in result.warnings[len(scene.warnings) :]:
            stderr_line(warning, label="warning")
        pictures = not args.no_pictures
        summary = write_result(result, args.out, meshes=args.meshes, gif=pictures, strip=pictures, progress=progress)
    print(json.dumps(summary) if args.json else _report(summary, args.out))
    return 0


def _report(summary: dict[str, Any], out: Path) -> str:
    """A few lines for people."""
    series = summary["series"]
    stages = ", ".join(f"{name} {ms:.1f}" for name, ms in summary["stage_mean_ms"].items())
    shown = [name for name in summary["files"] if not name.startswith("meshes/")]
    meshes = len(summary["files"]) - len(shown)
    rounds = ""
    if "newton_rounds_mean" in summary:
        rounds = f"{summary['newton_rounds_mean']:.1f} Newton rounds (at most {summary['newton_rounds_max']}) and "
    lines = [
        bold(summary["scene"], sys.stdout),
        f"  body      {summary['nodes']} nodes, {summary['cells']} cells of {1e3 * summary['spacing_m']:.3g} mm, "
        f"{1e6 * summary['volume_m3']:.4g} cm³, {summary['mass_kg']:.4g} kg",
        f"  steps     {summary['steps']} of {1e3 * summary['step_s']:.3g} ms, {rounds}"
        f"{summary['cg_iterations_mean']:.1f} CG iterations each (at most {summary['cg_iterations_max']}), "
        f"backend {summary['backend']}",
        f"  time      {summary['step_mean_ms']:.1f} ms a step ({stages}), {summary['wall_s']:.1f} s in all",
        f"  energy    {series['total_j'][0]:.4g} J at the start, {series['total_j'][-1]:.4g} J at the end",
        f"  written   {', '.join(shown)}{f' and {meshes} meshes' if meshes else ''} in {out}",
    ]
    return "\n".join(lines)
