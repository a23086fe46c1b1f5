"""What perception reaches on simulated D435-like frames, with fixed seeds, and how fast it is beside stock Open3D.

python benchmark/bench_perception.py [--json FILE] [--only points,track,scan,pose,speed,large] [--trials 50]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from perception_scenes import (
    bounce_with_hand,
    camera_at,
    has_bunny,
    judge_points,
    judge_scan,
    make_body,
    pose_of,
    pose_trial,
    scan_views,
    shoot,
    table,
)

from soft_estimator.perception.cloud import cloud_from_depth, cloud_from_points
from soft_estimator.perception.objects import NothingFound, ObjectFinder, Why
from soft_estimator.perception.rest_shape import grid_with_cells
from soft_estimator.perception.scan import fuse_scan
from soft_estimator.perception.settings import ScanSettings

Rows = list[dict[str, Any]]


def bodies(*names: str) -> list[str]:
    return [name for name in names if name != "bunny" or has_bunny()]


def bench_points() -> Rows:
    """Object points and plane: 12 views of each body; the worst of each number."""
    rows = []
    for name in bodies("torus", "bunny", "box", "ball", "duck"):
        body, judged = make_body(name), []
        for i in range(12):
            shot = shoot(camera_at(0.5 * i, 0.45 + 0.05 * i, 0.5 + 0.03 * i), [body.mesh, table()], i)
            found = ObjectFinder().process(shot.cloud)
            if isinstance(found, NothingFound):
                rows.append({"body": name, "view": i, "nothing": found.reason})
                continue
            judged.append(judge_points(body, shot, found))
        worst = {key: max(j[key] for j in judged) for key in ("plane_deg", "plane_mm", "outliers")}
        least = {key: min(j[key] for j in judged) for key in ("kept", "covered", "covered_80", "coverable")}
        rows.append({"body": name, "views": len(judged), **worst, **least})
    return rows


def bench_track() -> Rows:
    """A bounce of 30 frames with a hand passing by before the object."""
    rows = []
    for name in bodies("torus", "ball", "box", "bunny"):
        finder, shares, strangers, silent = ObjectFinder(), [], [], 0
        for i, shot in enumerate(bounce_with_hand(name, 7)):
            found = finder.process(shot.cloud, time_s=i / 30)
            if isinstance(found, NothingFound):
                silent += 1
                continue
            kept, own = found.why == Why.KEPT, (shot.owner == 0) & (shot.depth_m > 0)
            shares.append((kept & own).sum() / max(own.sum(), 1))
            strangers.append((kept & (shot.owner == 2)).sum() / kept.sum())
        rows.append(
            {"body": name, "frames": 30, "without_object": silent, "least_kept": min(shares),
             "median_kept": float(np.median(shares)), "last_kept": shares[-1], "worst_hand_share": max(strangers)}
        )  # fmt: skip
    return rows


def bench_scan() -> Rows:
    """Rest shapes from eight views, and from one view with each prior."""
    rows = []
    for name in bodies("torus", "bunny", "box", "ball", "duck"):
        body = make_body(name)
        views = scan_views(body, 8)
        start = time.perf_counter()
        scan = fuse_scan([v.cloud for v in views], ScanSettings(prior="none"))
        rows.append({"body": name, "views": 8, "prior": "none", **judge_scan(body, scan, views)})
        rows[-1]["seconds"] = time.perf_counter() - start
    for name, prior in (
        ("box", "extrusion"), ("box", "half_turn"), ("ball", "revolution"), ("torus", "revolution"),
        ("ball", "extrusion"), ("torus", "extrusion"), ("box", "poisson"), ("ball", "poisson"), ("torus", "poisson"),
    ):  # fmt: skip
        body = make_body(name)
        for first in (0.4, 1.3):
            views = scan_views(body, 1, 5, first)
            symmetric = prior in ("half_turn", "revolution")
            settings = ScanSettings(prior="symmetry", symmetry=prior) if symmetric else ScanSettings(prior=prior)
            start = time.perf_counter()
            scan = fuse_scan([views[0].cloud], settings)
            rows.append({"body": name, "views": 1, "prior": prior, **judge_scan(body, scan, views)})
            rows[-1]["seconds"] = time.perf_counter() - start
    return rows


def bench_pose(trials: int) -> Rows:
    """Pose from any yaw and camera side."""
    rows = []
    for name in bodies("duck", "bunny", "box", "brick", "torus"):
        body = make_body(name)
        rest = grid_with_cells(body.vertices_m, body.faces, 4000)
        start = time.perf_counter()
        results = [pose_trial(body, rest, trial) for trial in range(trials)]
        errors = np.array([r for r in results if not isinstance(r, str)])
        refused = sorted({r for r in results if isinstance(r, str)})
        within = int(((errors[:, 0] < 2) & (errors[:, 1] < 2)).sum())
        rows.append(
            {"body": name, "trials": trials, "within_2deg_2mm": within, "worst_deg": errors[:, 0].max(),
             "worst_mm": errors[:, 1].max(), "median_deg": float(np.median(errors[:, 0])),
             "median_mm": float(np.median(errors[:, 1])), "refused": "; ".join(refused),
             "seconds_each": (time.perf_counter() - start) / trials}
        )  # fmt: skip
    return rows


def timed(work: Callable[[], Any], rounds: int) -> float:
    """Median milliseconds."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def bench_speed() -> Rows:
    """One 640x480 depth image to object points, first frame (plane search and all), beside the same chain in Open3D."""
    rows = []
    for name in bodies("torus", "box", "bunny"):
        body = make_body(name)
        shot = shoot(camera_at(0.4), [body.mesh, table()], 0)
        lens, pose = shot.cloud.lens, pose_of(shot.camera)

        def ours(depth: np.ndarray = shot.depth_m, lens: Any = lens, pose: np.ndarray = pose) -> int:
            found = ObjectFinder().process(cloud_from_depth(depth, lens, pose))
            return 0 if isinstance(found, NothingFound) else len(found.points_m)

        ours_ms, theirs_ms = timed(ours, 15), []
        row: dict[str, Any] = {"body": name, "ours_ms": ours_ms, "ours_points": ours()}
        try:
            import open3d
        except (ImportError, OSError) as error:
            rows.append({**row, "open3d": f"not usable: {' '.join(str(error).split())}"})
            continue
        for label, thin_first in (("open3d_ms", False), ("open3d_thinned_first_ms", True)):

            def stock(depth: Any = shot.depth_m, first: bool = thin_first, lens: Any = lens, pose: Any = pose) -> int:
                return len(open3d_chain(open3d, depth, lens, pose, first).points)

            theirs_ms.append(timed(stock, 5))
            row |= {label: theirs_ms[-1], label.replace("_ms", "_points"): stock()}
        row["times_faster"] = min(theirs_ms) / ours_ms
        rows.append(row)
    return rows


def open3d_chain(open3d: Any, depth: np.ndarray, lens: Any, pose: np.ndarray, thin_first: bool) -> Any:
    """Depth to points, plane, outliers, largest cluster, thinning (thin_first: at the start, too) in stock Open3D."""
    camera = open3d.camera.PinholeCameraIntrinsic(640, 480, lens.fx_px, lens.fy_px, lens.cx_px, lens.cy_px)
    image = open3d.geometry.Image(depth)
    create = open3d.geometry.PointCloud.create_from_depth_image
    cloud = create(image, camera, np.linalg.inv(pose), depth_scale=1.0, depth_trunc=10.0)
    if thin_first:
        cloud = cloud.voxel_down_sample(0.003)
    plane, inliers = cloud.segment_plane(distance_threshold=0.004, ransac_n=3, num_iterations=256)
    rest = cloud.select_by_index(inliers, invert=True)
    row = np.asarray(plane) * np.sign(np.asarray(plane) @ np.append(pose[:3, 3], 1.0))
    rest = rest.select_by_index(np.flatnonzero(np.asarray(rest.points) @ row[:3] + row[3] > 0))
    rest, _ = rest.remove_radius_outlier(nb_points=4, radius=0.006)
    label = np.asarray(rest.cluster_dbscan(eps=0.01, min_points=4))
    largest = int(np.argmax(np.bincount(label[label >= 0])))
    return rest.select_by_index(np.flatnonzero(label == largest)).voxel_down_sample(0.0044)


def bench_large() -> Rows:
    """Clouds of ten million points: a table with a block on it, unorganised."""
    rng = np.random.default_rng(0)
    rows = []
    for count in (1_000_000, 10_000_000):
        points = np.column_stack([rng.uniform(-1, 1, (count, 2)), np.full(count, 1.5)]).astype(np.float32)
        block = rng.random(count) < 0.05
        points[block, :2] *= 0.1
        points[block, 2] -= 0.1 * rng.random(block.sum(), dtype=np.float32)
        start = time.perf_counter()
        found = ObjectFinder().process(cloud_from_points(points))
        seconds = time.perf_counter() - start
        outcome = found.reason if isinstance(found, NothingFound) else f"{len(found.points_m)} points"
        rows.append({"points": count, "seconds": seconds, "outcome": outcome})
    return rows


def show(title: str, rows: Rows) -> None:
    print(f"\n{title}")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns] + [[_text(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths)))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=None, help="file to write the numbers to")
    parser.add_argument("--only", default="points,track,scan,pose,speed,large")
    parser.add_argument("--trials", type=int, default=50)
    args = parser.parse_args()
    parts: dict[str, Callable[[], Rows]] = {
        "points": bench_points, "track": bench_track, "scan": bench_scan, "pose": lambda: bench_pose(args.trials),
        "speed": bench_speed, "large": bench_large,
    }  # fmt: skip
    unknown = set(args.only.split(",")) - set(parts)
    if unknown:
        parser.error(f"--only {', '.join(sorted(unknown))}: choose among {', '.join(parts)}")
    results = {}
    for name in args.only.split(","):
        results[name] = parts[name]()
        show(f"{name}: {(parts[name].__doc__ or bench_pose.__doc__ or '').strip().splitlines()[0]}", results[name])
        sys.stdout.flush()
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1, default=float), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
