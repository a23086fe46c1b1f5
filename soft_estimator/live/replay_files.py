"""What a replay leaves behind: files of one bag, and a table over several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soft_estimator.backends.choose import choose_backend
from soft_estimator.live.estimate_table import ESTIMATES, csv_bytes, estimate_table
from soft_estimator.live.replay import ReplayResult
from soft_estimator.live.replay_config import ReplayConfig, config_text
from soft_estimator.live.replay_keeping import identity_of
from soft_estimator.scene.rest_shape import REST_SHAPE, rest_shape_bytes

METRICS, CONFIG, REPORT = "metrics.json", "replay.yaml", "report.html"


def result_files(result: ReplayResult) -> dict[str, bytes]:
    """Name and content of every file of a replay."""
    return {
        ESTIMATES: estimate_table(result.labels, result.rows),
        METRICS: (json.dumps(result.metrics, indent=1) + "\n").encode(),
        CONFIG: config_text(result.config).encode(),
        REST_SHAPE: rest_shape_bytes(result.scene.body),
    }


def finished_files(
    folder: str | None, bag: str, config: ReplayConfig, backend: str
) -> tuple[dict[str, bytes], dict[str, Any] | None]:
    """The files and metrics of a replay that came to its end in a folder earlier; none where it did not."""
    try:
        metrics = json.loads((Path(folder or "") / METRICS).read_text(encoding="utf-8"))
        name = choose_backend(backend, config.scene.solver.precision).name
        if folder is None or not metrics["finished"] or metrics["identity"] != identity_of(bag, config, name):
            return {}, None
    except (OSError, ValueError, KeyError, TypeError):
        return {}, None
    found = (Path(folder) / name for name in (ESTIMATES, METRICS, CONFIG, REST_SHAPE, REPORT))
    return {file.name: file.read_bytes() for file in found if file.is_file()}, metrics


def fleet_rows(outcomes: Sequence[tuple[str, dict[str, Any] | None, str]]) -> list[dict[str, Any]]:
    """One flat row a bag, from (name, metrics or None, error)."""
    return [{"bag": name, **_flat(metrics), "error": error} for name, metrics, error in outcomes]


def _flat(metrics: dict[str, Any] | None) -> dict[str, Any]:
    if metrics is None:
        return {}
    surface, ahead, frame = metrics["surface"] or {}, metrics["held_out"] or {}, metrics["timing"]["frame"] or {}
    row = {
        "status": metrics["status"],
        "frames": metrics["frames"]["in_bag"],
        "dropped": metrics["frames"]["dropped"],
        "estimates": metrics["estimates"],
        "rms_residual_m": metrics["rms_residual_m"],
        "surface_rms_voxels": surface.get("rms_voxels"),
        "held_out_rms_m": ahead.get("rms_m"),
        "frame_p50_s": frame.get("p50_s"),
        "frame_p99_s": frame.get("p99_s"),
    }
    for item in metrics["parameters"]:
        row[item["name"]] = item["value"]
        for key in ("std", "truth", "error_relative", "coverage_95", "converged_after_s"):
            row[f"{item['name']}.{key}"] = item.get(key)
    return row


def fleet_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """The rows as metrics.csv; a column for every key that any row has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns = [c for c in columns if c != "error"] + ["error"]
    body = [["" if row.get(c) is None else _text(row[c]) for c in columns] for row in rows]
    return csv_bytes([columns, *body])


def fleet_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows for people: what they look at first."""
    names = list(dict.fromkeys(key for row in rows for key in row if f"{key}.std" in row))
    head = ["bag", "status", "frames", "dropped", *names, "surface [voxel]", "ahead [mm]", "ms/frame"]
    lines = [head]
    for row in rows:
        if "status" not in row:
            lines.append([row["bag"], f"error: {row['error']}"])
            continue
        values = [_value(row, name) for name in names]
        counts = [str(row["frames"]), str(row["dropped"])]
        measured = (row["surface_rms_voxels"], _milli(row["held_out_rms_m"]), _milli(row["frame_p50_s"]))
        lines.append([row["bag"], row["status"], *counts, *values, *(_short(x) for x in measured)])
    whole = [line for line in lines if len(line) == len(head)]
    widths = [max(len(line[k]) for line in whole) for k in range(len(head))]
    widths[0] = max(len(line[0]) for line in lines)
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines)


def _value(row: dict[str, Any], name: str) -> str:
    value, error = row.get(name), row.get(f"{name}.error_relative")
    if value is None:
        return "-"
    return f"{value:.4g}" + ("" if error is None else f" ({100 * error:+.1f} %)")


def _milli(value: float | None) -> float | None:
    return None if value is None else 1e3 * value


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
