"""`soft-estimator estimate`: find a scene's parameters from what cameras saw."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from soft_estimator.commands.console import EXIT_INTERRUPTED, HelpFormatter, ProgressBar, bold, stderr_line
from soft_estimator.commands.numbers import positive
from soft_estimator.commands.scene_setup import (
    add_computing,
    add_out,
    add_progress,
    add_scene,
    check_out,
    make_ready,
    read_scene_argument,
)
from soft_estimator.pictures.wording import in_unit_of, stated

DESCRIPTION = """Estimate what the scene's `estimate` section names: stiffness, damping, the contact plane, ...

Without --frames the scene is simulated with its own parameters, its cameras (`observe`) watch it with their noise, and
the search starts from the scene's guess: a test of what these cameras can tell. With --frames the points are recorded
ones, and the scene's parameters stand for what is known beforehand."""

EPILOG = """recorded frames (--frames FOLDER):
  stamps.csv      file name, seconds since the scene's time 0
  *.npy           points (n, 3) in metres, world frame; a fourth column is each point's standard deviation in metres
  *.ply, *.pcd    the same, with the deviation as property std_m
  Frames that cannot be used, NaN points and points far from the body are set aside and counted.

files written to DIR:
  estimate.json   whether the model fits, and why not; value, deviation and what it comes from, 95 % interval, truth and
                  error where known, observable or not; cost, frames, times
  scene.yaml      the scene with every default filled in
  rest_shape.npz  the signed distance grid it was simulated with; soft-estimator export takes it from there
  report.html     all of it as one page to read, send or print; with a 3D view that needs no network
  cost.png, parameters.png, residuals.png
  unfinished.json how far a search has come, while it runs or where it was ended (Ctrl-C, --time-limit); estimate.json
                  then holds the best so far with finished: false, and --resume goes on

examples:
  soft-estimator estimate swinging_torus --out out/torus
  soft-estimator estimate bunny_on_tilted_plane --data ~/data --out out/bunny
  soft-estimator estimate my_scene.yaml --frames recorded --noise-mm 1.5 --out out/mine
  soft-estimator estimate swinging_torus --out out/torus --json | jq '.parameters[] | {name, value, std}'"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "estimate",
        help="estimate stiffness, damping, contact plane, ... from camera points",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    add_scene(parser)
    add_out(parser)
    parser.add_argument("--frames", metavar="FOLDER", type=Path, help="recorded frames, instead of simulated ones")
    parser.add_argument(
        "--noise-mm", metavar="X", type=positive(), help="standard deviation of recorded points whose file gives none"
    )
    add_computing(parser)
    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=positive(),
        help="end with the best so far at the first step after so many seconds of search; its interval takes "
        "simulations more",
    )
    parser.add_argument("--resume", action="store_true", help="go on from where an earlier search into DIR was ended")
    parser.add_argument("--save-frames", action="store_true", help="write the frames used to DIR/frames")
    parser.add_argument("--no-plots", action="store_true", help="write neither the report nor pictures")
    parser.add_argument("--strict", action="store_true", help="end with exit code 1 where the model does not fit")
    parser.add_argument("--json", action="store_true", help="print estimate.json on stdout, and nothing else")
    add_progress(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    config, folder = read_scene_argument(args)
    if args.frames is not None and not args.frames.is_dir():
        raise ValueError(f"--frames {args.frames} is not a folder; give the one that holds stamps.csv")
    if args.frames is None and args.noise_mm is not None:
        raise ValueError("--noise-mm is for recorded frames; give --frames, or set observe.noise in the scene")
    check_out(args)

    from soft_estimator.estimation.long_work import CTRL_C, UNFINISHED, TimeLimit
    from soft_estimator.report.of_estimate import write_estimate_report
    from soft_estimator.studies.estimate import estimate_scene
    from soft_estimator.studies.estimate_files import write_estimate
    from soft_estimator.studies.estimate_keeping import Keeper

    bar = ProgressBar(args.progress)
    with bar:
        scene, backend = make_ready(args, config, folder, bar)
        noise_m = None if args.noise_mm is None else 1e-3 * args.noise_mm
        keeper = Keeper(args.out / UNFINISHED, resume=args.resume, time=TimeLimit(args.time_limit))
        result = estimate_scene(scene, backend, frames_dir=args.frames, noise_m=noise_m, progress=bar, keeper=keeper)
        summary = write_estimate(
            result,
            args.out,
            plots=not args.no_plots,
            frames=args.save_frames,
            report=None if args.no_plots else write_estimate_report,
            progress=bar,
        )
        if not result.stopped:
            keeper.remove()
    aside = summary["frames"]["set_aside_reasons"]
    if aside:
        listed = ", ".join(f"{count} {reason}" for reason, count in aside.items())
        stderr_line(f"frames set aside: {listed}", label="warning")
    if not summary["fits"]:
        stderr_line(f"the model does not fit: {summary['reason']}", label="warning")
    if result.stopped:
        stderr_line(f"not finished ({result.stopped}): --resume goes on from here", label="warning")
    print(json.dumps(summary) if args.json else _report(summary, args.out))
    if result.stopped == CTRL_C:
        return EXIT_INTERRUPTED
    return 1 if args.strict and not summary["fits"] else 0


def _why_it_stopped(summary: dict[str, Any]) -> str:
    why = str(summary["stop_reason"])
    return f"{why} on all frames: raise estimate.max_iterations" if summary["reached_limit"] else why


def _doubts(row: dict[str, Any]) -> str:
    """What to know beside a value: why it is not observable, or what its interval mostly comes from."""
    if not row["observable"]:
        return f"   not observable: {row['reason']}"
    if not row["mostly"]:
        return ""
    return f"   {row['mostly']} (noise alone ± {in_unit_of(row['std_statistical'], row['value'], row['unit'])})"


def _off(row: dict[str, Any]) -> str:
    """How far an answer is off: in per cent, of what may be zero in the unit of its value."""
    if row["error_relative"] is not None:
        return f"{100 * row['error_relative']:+.2f} %"
    return ("+" if row["error"] > 0 else "") + in_unit_of(row["error"], row["value"], row["unit"])


def _report(summary: dict[str, Any], out: Path) -> str:
    """A few lines for people."""
    frames, times = summary["frames"], summary["times"]
    lines = [bold(summary["scene"], sys.stdout)]
    if not summary["fits"]:
        lines.append(f"  {bold('does not fit', sys.stdout)}: {summary['reason']}; do not use these values")
    width = max(len(row["name"]) for row in summary["parameters"])
    for row in summary["parameters"]:
        known = ""
        if row["truth"] is not None:
            known = f"   truth {in_unit_of(row['truth'], row['value'], row['unit'])} ({_off(row)})"
        shown = stated(row["value"], row["std"], row["low_95"], row["high_95"], row["unit"])
        lines.append(f"  {row['name']:<{width}}  {shown}{known}{_doubts(row)}")
    plane = summary.get("plane", {})
    if "angle_error_deg" in plane:
        lines.append(
            f"  plane off by {plane['angle_error_deg']:.3f} degrees and {1e3 * plane['offset_error_m']:+.3f} mm"
        )
    moved = summary.get("pose", {}).get("moved")
    if moved:
        away, turned = 1e3 * moved.get("translation_m", 0.0), math.degrees(moved.get("rotation_rad", 0.0))
        lines.append(f"  pose      {away:.2g} mm and {turned:.2g} degrees from where the scene has it")
    lines += [
        f"  fit       cost {summary['cost']:.5g}, {summary['iterations']} iterations, {_why_it_stopped(summary)}",
        f"  frames    {frames['used']} with {frames['points']} points, noise {summary['noise_scale']:.2f} times as "
        f"stated; {frames['set_aside']} frames, {frames['nan_points'] + frames['stray_points']} points set aside",
        f"  time      {times['total_s']:.1f} s, {summary['simulations']} simulations, backend {summary['backend']}",
        f"  written   {', '.join(summary['files'])} in {out}",
    ]
    return "\n".join(lines)
