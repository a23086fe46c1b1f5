"""From a result to files: one of the estimate, and one of each sample of the posterior."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.export.asset import Asset, asset_maker
from soft_estimator.export.json_file import json_text
from soft_estimator.export.mjcf import mjcf_text
from soft_estimator.export.result import Result, read_result
from soft_estimator.export.sofa import sofa_text
from soft_estimator.export.usd import usd_text
from soft_estimator.physics.parameters import Parameters

# format → (ending of its files, its writer)
FORMATS: dict[str, tuple[str, Callable[[Asset], str]]] = {
    "mjcf": (".xml", mjcf_text),
    "usd": (".usda", usd_text),
    "sofa": (".scn", sofa_text),
    "json": (".json", json_text),
}
MOST_SAMPLES = 10_000


def export(
    result: Result | Path | str,
    to: str,
    out: Path | str,
    samples: int = 0,
    *,
    spacing_m: float | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write the estimated body, and as many more drawn from the posterior as asked for.

    Args:
        result: the folder that `measure`, `estimate` or `replay` wrote, a file in it, or what `read_result` made of it.
        to: mjcf, usd, sofa or json. out: folder for the files, made if needed.
        samples: bodies drawn from the posterior, each a file of its own.
        spacing_m: edge of the cubes of twelve tetrahedra each [m]; that of the body's own cells by default.
        seed: of the draws; the same seed gives the same bodies in every format.

    Returns:
        what was written, as plain values: files, and the mesh's size and quality.
    """
    if to not in FORMATS:
        raise ValueError(f"cannot export to '{to}'; choose from {', '.join(FORMATS)}")
    if not 0 <= samples <= MOST_SAMPLES:
        raise ValueError(f"samples = {samples} must lie between 0 and {MOST_SAMPLES}")
    if spacing_m is not None and not 0 < spacing_m < np.inf:
        raise ValueError(f"spacing_m = {spacing_m} must be positive")
    if not isinstance(result, Result):
        result = read_result(result)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    ending, text_of = FORMATS[to]
    make = asset_maker(result, spacing_m)
    name = safe_name(result.config.name)
    estimate = make(name, result.estimate(), "the estimate")
    written = [(f"{name}{ending}", estimate.parameters)]
    (folder / written[0][0]).write_text(text_of(estimate), encoding="utf-8")
    for k, drawn in enumerate(result.draw(samples, seed)):
        asset = make(f"{name}_{k:03d}", drawn, f"sample {k} of {samples} of the posterior, seed {seed}")
        written.append((asset.name + ending, drawn))
        (folder / written[-1][0]).write_text(text_of(asset), encoding="utf-8")
    files = [file for file, _ in written]
    if samples:
        files.append(f"{name}_samples.csv")
        (folder / files[-1]).write_text(samples_table(written), encoding="utf-8")
    return {"result": str(result.source), "to": to, "out": str(folder), "files": files, "mesh": mesh_summary(estimate)}


def safe_name(name: str) -> str:
    """A scene's name as an identifier that every format and file system takes."""
    clean = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    return clean if re.match(r"[A-Za-z]", clean) else f"body_{clean}".rstrip("_")


def samples_table(written: list[tuple[str, Parameters]]) -> str:
    """What each file holds: a line a file, a column a number."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for k, (file, parameters) in enumerate(written):
        flat = {"file": file}
        for name, value in parameters.values.items():
            values = np.atleast_1d(value)
            alone = values.size == 1
            flat |= {name if alone else f"{name}[{i}]": repr(float(x)) for i, x in enumerate(values)}
        if k == 0:
            writer.writerow(flat)
        writer.writerow(flat.values())
    return stream.getvalue()


def mesh_summary(asset: Asset) -> dict[str, Any]:
    """Size and quality of a mesh."""
    angles = asset.mesh.dihedral_angles_deg()
    return {
        "vertices": len(asset.mesh.vertices_m),
        "tetrahedra": len(asset.mesh.elements),
        "volume_m3": asset.mesh.volume_m3,
        "mass_kg": float(asset.vertex_masses_kg().sum()),
        "dihedral_min_deg": float(angles.min()),
        "dihedral_max_deg": float(angles.max()),
        "stable_step_s": asset.stable_step_s(),
    }
