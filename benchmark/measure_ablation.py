"""What `measure` would find, were something better known, or done otherwise: whose error is it?

    python benchmark/measure_ablation.py [--only box duck] [--know shape "shape ratio" ...] [--workers 2] [--data DATA]

shape: the true one. ratio: Poisson's. step: half of it. One process for every object and choice; one JSON line each on
stdout, a line for people on stderr.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from measure_objects import CASES, Case
from measure_recordings import scene_of, write_recording
from perception_scenes import DATA

from soft_estimator.backends import choose_backend
from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.config import SceneConfig
from soft_estimator.geometry.mesh_file import mesh_distance
from soft_estimator.geometry.shapes import Box, refine
from soft_estimator.measuring.fit import fit_drops, scene_plain
from soft_estimator.measuring.looking import MeasureOptions, Seen, look_at
from soft_estimator.perception.rest_shape import REFINEMENT, grid_with_cells, rest_shape_from_primitive
from soft_estimator.perception.scan import ScannedBody
from soft_estimator.scene.body_grid import Files, build_shape
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load

KNOW = ("", "step", "shape step", "shape ratio step")


def true_body(case: Case, truth: Scene, found: ScannedBody, cells: int) -> ScannedBody:
    """The body as it really is, on a grid of the estimate's size, where it stood while it lay still."""
    camera, body = scene_cameras(truth.config)[0], truth.body
    vertices, faces = body.surface_positions_m(), body.surface.faces
    if isinstance(case.shape, dict) and "union" not in case.shape:
        shape = build_shape(truth.config.body.shape, Files(Path(), None), "shape")
        if "box" in case.shape:  # as one that was recognised: its edges are sharp, since its faces lie on grid planes
            shape = Box(tuple(case.shape["box"]["size_m"]), tuple(case.shape["box"]["center_m"]))
        grid, detail = rest_shape_from_primitive(shape, cells)
    else:
        grid = grid_with_cells(vertices, faces, cells)
        detail = refine(mesh_distance(vertices, faces), grid, REFINEMENT)
    # The recording has no tf: its frame is the camera's, x_camera = Rᵀ (x - eye).
    return replace(
        found, grid=grid, detail=detail, vertices_m=vertices, faces=faces, volume_m3=body.volume_m3,
        volume_std_m3=0.003 * body.volume_m3, rotation=camera.rotation.T,
        translation_m=-camera.rotation.T @ np.asarray(camera.position_m),
    )  # fmt: skip


def fitted(case: Case, truth: Scene, seen: Seen, know: str, cells: int) -> dict[str, Any]:
    """E with some things known."""
    body = true_body(case, truth, seen.body, cells) if "shape" in know else seen.body
    plain = scene_plain(case.name, body, truth.mass_kg, seen.cloud, seen.noise, seen.survey.rate_hz)
    if "ratio" in know:
        plain["estimate"]["guess"]["poissons_ratio"] = plain["material"]["poissons_ratio"] = case.poissons_ratio
        plain["estimate"]["prior_std"]["poissons_ratio"] = 0.01
    if "step" in know:
        plain["time"]["step_s"] /= 2
    scene = build_scene(load(SceneConfig, plain, "scene"), Path(), grid=body.grid, detail=body.detail)
    fit = fit_drops(scene, body, seen.survey.sightings, seen.drops, choose_backend("cpu"))
    if not fit.after_drops:
        return {"error": "; ".join(item.example for item in fit.refusals.most_first()[:3])}
    last, true = fit.after_drops[-1][1], case.youngs_modulus_pa
    e = last.parameters[0]
    return {
        "off": e.value / true - 1,
        "std": e.std / e.value,
        "inside": bool(e.low <= true <= e.high),
        "parameters": {p.label: [float(p.value), float(p.std), p.reason] for p in last.parameters},
        "after_drops": [[x.parameters[0].value / true - 1, x.noise_scale] for _, x in fit.after_drops],
        "used": fit.used,
        "fits": last.verdict.as_plain(),
        "notes": list(last.notes),
    }


def trial(item: tuple[str, str, bool, Path, int]) -> dict[str, Any]:
    """Record one object, look at it, and fit it with something known."""
    name, know, with_hand, data, cells = item
    case, clock = CASES[name], process_time()
    row: dict[str, Any] = {"object": name, "hand": with_hand, "known": know}
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "bag"
        write_recording(case, bag, data=data, with_hand=with_hand)
        truth = scene_of(case, 0.0, (0.0, 0.0, 0.0), (240, 180), Path(folder))
        try:
            seen = look_at(bag, MeasureOptions(cells=cells))
            row |= {
                "drops": len(seen.drops),
                "shape": seen.body.prior,
                "seen": seen.body.coverage,
                "volume_off": seen.body.volume_m3 / truth.body.volume_m3 - 1,
                "volume_std": (seen.body.volume_std_m3 or 0.0) / truth.body.volume_m3,
                "looked_s": process_time() - clock,
            }
            row |= fitted(case, truth, seen, know, cells)
        except ValueError as error:
            row["error"] = str(error)
    return {**row, "seconds": process_time() - clock}


def line(row: dict[str, Any]) -> str:
    head = f"{row['object']:8s} {'hand' if row['hand'] else '':5s} known: {row.get('known') or 'nothing':12s}"
    if "error" in row:
        return f"{head} {row['error']}"
    after = ", ".join(f"{100 * off:+.0f} % at {scale:.1f} times the noise" for off, scale in row["after_drops"])
    nu = row["parameters"]["poissons_ratio"]
    return (
        f"{head} V {100 * row['volume_off']:+5.1f} %  E {100 * row['off']:+6.1f} ± {100 * row['std']:4.1f} % "
        f"{'inside ' if row['inside'] else 'outside'} ν {nu[0]:.2f} ± {nu[1]:.2f}  after each drop {after}"
        f"  {row['seconds']:.0f} s {row['fits']['reason']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--hand", choices=("with", "without"), default="with")
    parser.add_argument("--know", nargs="+", default=list(KNOW), help="each of: shape, ratio, step; '' for nothing")
    parser.add_argument("--cells", type=int, default=400, help="of the estimate's grid")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with bunny_medium.sdf")
    args = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    items = [(name, know, args.hand == "with", args.data, args.cells) for know in args.know for name in args.only]
    with multiprocessing.get_context("spawn").Pool(args.workers, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(trial, items):
            print(line(row), file=sys.stderr, flush=True)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
