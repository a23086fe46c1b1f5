"""The commands `scan` and `inspect`, to be mounted by the command line. They print; the library below does not."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from soft_estimator.commands.recording_options import add_recording_options, choice_of, finder_of
from soft_estimator.perception.settings import ScanSettings

# The rest is imported where it is used: it takes a second, and help and mistakes shall answer at once.
if TYPE_CHECKING:
    from soft_estimator.perception.scan import ScannedBody

_SEEN, _GUESSED = (0xE8, 0x6B, 0x4D), (0x9A, 0xA2, 0xB1)


_SCAN_EXAMPLES = """examples:
  soft-estimator scan frames --out body.npz
  soft-estimator scan scan.mcap --out body.npz --cells 6000
  soft-estimator scan scan.mcap --out body.npz --prior revolution
  soft-estimator scan frames --out body.npz --json | jq .coverage"""

_INSPECT_EXAMPLES = """exit code:
  1  no object was found; the last line says why

examples:
  soft-estimator inspect cloud.ply --out inspect.png
  soft-estimator inspect drop.mcap --frame 12 --crop -0.3 -0.3 0 0.3 0.3 0.5
  soft-estimator inspect cloud.ply --json | jq .points"""


def add_scan_parser(subparsers: argparse._SubParsersAction) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    """Add `scan FRAMES|BAG --out body.npz`."""
    parser = subparsers.add_parser(
        "scan",
        help="make a rest shape from static frames of an object on a table",
        description=run_scan.__doc__,
        epilog=_SCAN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_input(parser)
    parser.add_argument(
        "--out", type=Path, required=True, help="body file to write (.npz); a preview .ply is put beside it"
    )
    parser.add_argument(
        "--cells", type=int, default=ScanSettings().target_cells, help="grid cells wanted (%(default)s)"
    )
    parser.add_argument(
        "--voxel-mm", type=float, default=None, help="voxel of the fusion [mm]; by the sensor if left out"
    )
    parser.add_argument(
        "--prior",
        choices=("auto", "none", "revolution", "half-turn", "mirror", "balls", "extrusion", "poisson"),
        default="auto",
        help="what closes the side no camera saw (%(default)s: plain shapes and all priors are tried, and what the "
        "data support is taken; none: what was not seen free is body)",
    )
    parser.set_defaults(run=run_scan)
    return parser


def add_inspect_parser(subparsers: argparse._SubParsersAction) -> argparse.ArgumentParser:  # type: ignore[type-arg]
    """Add `inspect CLOUD|BAG`."""
    parser = subparsers.add_parser(
        "inspect",
        help="show which points of a cloud are kept, which are removed, and why",
        description=run_inspect.__doc__,
        epilog=_INSPECT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_input(parser)
    parser.add_argument("--out", type=Path, default=Path("inspect.png"), help="picture to write (%(default)s)")
    parser.add_argument("--frame", type=int, default=0, help="which frame is drawn, counted from 0 (%(default)s)")
    parser.set_defaults(run=run_inspect)
    return parser


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "frames_path", metavar="FRAMES|BAG", type=Path, help="folder with stamps.csv, point file, or bag"
    )
    add_recording_options(parser)
    parser.add_argument("--json", action="store_true", help="print what was found as JSON on stdout, and nothing else")


def run_scan(args: argparse.Namespace) -> int:
    """Fuse static frames into a closed body and write it with a preview mesh."""
    from soft_estimator.geometry.body_file import check_name
    from soft_estimator.perception.rest_shape import count_active_cells
    from soft_estimator.perception.scan import close_body
    from soft_estimator.perception.scan_choice import choose_body, with_prior
    from soft_estimator.perception.scan_frames import gather
    from soft_estimator.recordings.opening import read_frames

    try:
        settings = ScanSettings(
            target_cells=args.cells, voxel_m=None if args.voxel_mm is None else args.voxel_mm / 1000
        )
        check_name(args.out)  # before a minute is spent on what is to be written there
        said: list[str] = []
        frames = list(read_frames(args.frames_path, args.topic, args.fixed_frame, choice_of(args), said))
        data = gather([f.usable() for f in frames], settings, finder_of(args), [f.mask for f in frames])
        if args.prior == "auto":
            body = choose_body(data, settings)
        else:
            body = close_body(data, with_prior(settings, args.prior.replace("-", "_")))
        write_body(args.out, body)
    except ValueError as error:
        print(f"soft-estimator: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    size = " x ".join(f"{side:.3f}" for side in np.ptp(body.vertices_m, axis=0))
    cells, edge_mm = count_active_cells(body.grid), 1e3 * body.grid.spacing_m
    if args.json:
        print(json.dumps({
            "file": str(args.out), "frames": body.frames, "size_m": np.ptp(body.vertices_m, axis=0).tolist(),
            "volume_m3": float(body.volume_m3), "volume_std_m3": body.volume_std_m3, "prior": body.prior,
            "misfit_m": body.misfit_m, "coverage": float(body.coverage), "cells": cells,
            "spacing_m": body.grid.spacing_m, "notes": [*said, *body.notes],
        }))  # fmt: skip
        return 0
    std = "" if body.volume_std_m3 is None else f" ± {1e6 * body.volume_std_m3:.1f}"
    print(f"{args.out}: {body.frames} frames, {size} m, {1e6 * body.volume_m3:.1f}{std} cm³")
    print(f"  {body.coverage:.0%} of the surface was seen; {cells} cells of {edge_mm:.1f} mm")
    for note in [*said, *body.notes]:
        print(f"  {note}")
    return 0


def run_inspect(args: argparse.Namespace) -> int:
    """Draw what was kept of a frame and what was removed, and why; earlier frames are followed through."""
    from soft_estimator.perception.objects import NothingFound, ObjectFinder, Why
    from soft_estimator.perception.pictures import draw_frame, write_png
    from soft_estimator.recordings.opening import read_frames

    try:
        finder, last = ObjectFinder(finder_of(args)), None
        said: list[str] = []
        frames = read_frames(args.frames_path, args.topic, args.fixed_frame, choice_of(args), said)
        for frame in islice(frames, args.frame + 1):
            last = (frame, finder.process(frame.usable(), frame.mask, frame.time_s))
        if last is None:
            raise ValueError(f"{args.frames_path} has no frame {args.frame}; it is empty")
        frame, result = last
        write_png(args.out, draw_frame(frame.usable(), result))
    except ValueError as error:
        print(f"soft-estimator: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    counts = {Why(code).name.lower(): int(n) for code, n in zip(*np.unique(result.why, return_counts=True))}
    if args.json:
        plane, found = result.plane, not isinstance(result, NothingFound)
        print(json.dumps({
            "file": str(args.out), "frame": frame.name, "time_s": frame.time_s, "points": int(frame.usable().size),
            "counts": counts, "found": found,
            "notes": [*said, *([result.reason] if isinstance(result, NothingFound) else result.notes)],
            "plane": None if plane is None else {"normal": list(map(float, plane.normal)), "offset_m": plane.offset_m},
        }))  # fmt: skip
        return 0 if found else 1
    print(f"{args.out}: {frame.name} at {frame.time_s:.3f} s, {frame.usable().size} points")
    for name, count in counts.items():
        print(f"  {name.replace('_', ' '):14s} {count}")
    if result.plane is not None:
        n, d = result.plane.normal, result.plane.offset_m
        print(f"  plane {n[0]:+.4f} x {n[1]:+.4f} y {n[2]:+.4f} z {d:+.4f} m = 0")
    for note in said:
        print(f"  {note}")
    if isinstance(result, NothingFound):
        print(f"  {result.reason}")
        return 1
    for note in result.notes:
        print(f"  {note}")
    return 0


def write_body(path: str | Path, body: ScannedBody) -> None:
    """Write a scanned body as .npz, and its preview mesh as .ply beside it: seen surface coral, guessed surface
    grey."""
    from soft_estimator.geometry import body_file
    from soft_estimator.geometry.mesh_file import write_ply

    names = ("vertices_m", "faces", "seen", "coverage", "volume_m3", "rotation", "translation_m", "voxel_m")
    content: dict[str, Any] = {name: getattr(body, name) for name in names}
    body_file.write_body(path, body.grid, body.detail, **content, notes=np.array(body.notes, dtype=str))
    colours = np.where(body.seen[:, None], _SEEN, _GUESSED).astype(np.uint8)
    write_ply(Path(path).with_suffix(".ply"), body.vertices_m, body.faces, colours)
