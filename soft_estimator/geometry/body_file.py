"""Body files (.npz): the signed distance grid of a scanned body, with whatever else the scan knew of it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.geometry.array_files import has_array, one_line, read_npz
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.shapes import DEFAULT_NODE_BUDGET


def write_body(
    path: str | Path, grid: SignedDistanceGrid, detail: SignedDistanceGrid | None = None, **more: Any
) -> None:
    """Write a grid, its detail where there is one, and arrays under other names beside them."""
    check_name(path)
    Path(path).write_bytes(body_bytes(grid, detail, **more))


def check_name(path: str | Path) -> None:
    """A ValueError for a name that no body can be written under, or whose folder is not there."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"body file {path} must end in .npz")
    if not path.parent.is_dir():
        raise ValueError(f"the folder of body file {path} does not exist; make it")


def body_bytes(grid: SignedDistanceGrid, detail: SignedDistanceGrid | None = None, **more: Any) -> bytes:
    """The content of a body file: the same bytes for the same arrays. detail: φ on the grid refined (`refine`)."""
    stream = io.BytesIO()
    content: dict[str, Any] = {"phi_m": grid.phi_m, "origin_m": grid.origin_m, "spacing_m": grid.spacing_m}
    if detail is not None:
        content["detail_phi_m"] = detail.phi_m
    np.savez_compressed(stream, **content, **more)
    return stream.getvalue()


def read_body(path: str | Path) -> SignedDistanceGrid:
    """The signed distance grid of a body file."""
    remedy = "write one with: soft-estimator scan"
    try:
        # φ in double precision on as many nodes as a grid may have
        phi, origin, spacing = read_npz(path, ("phi_m", "origin_m", "spacing_m"), 8 * DEFAULT_NODE_BUDGET)
    except OSError as error:
        raise ValueError(f"body file {path} cannot be read ({one_line(error)}); {remedy}") from error
    except ValueError as error:
        raise ValueError(f"{path} is no body file ({one_line(error)}); {remedy}") from error
    if spacing.size != 1 or origin.size != 3:
        raise ValueError(f"body file {path} has origin_m {origin.shape} and spacing_m {spacing.shape}; {remedy}")
    try:
        grid = SignedDistanceGrid(phi, origin, float(spacing.reshape(())))
    except ValueError as error:
        raise ValueError(f"body file {path} holds no grid ({one_line(error)}); {remedy}") from error
    if not (grid.phi_m < 0).any():
        raise ValueError(f"body file {path} has no negative distance, so no body; scan it again")
    return grid


def read_detail(path: str | Path, grid: SignedDistanceGrid) -> SignedDistanceGrid | None:
    """φ on a body file's grid refined by a whole number, or None where the file has none; grid: what it refines."""
    if not has_array(path, "detail_phi_m"):
        return None
    try:
        (phi,) = read_npz(path, ("detail_phi_m",), 8 * DEFAULT_NODE_BUDGET)
        parts = (phi.shape[0] - 1) // (grid.shape[0] - 1) if phi.ndim == 3 else 0
        if parts < 2 or phi.shape != tuple(parts * (n - 1) + 1 for n in grid.shape):
            raise ValueError(f"its shape {phi.shape} does not refine the grid's {grid.shape}")
        return SignedDistanceGrid(phi, grid.origin_m, grid.spacing_m / parts)
    except (OSError, ValueError) as error:
        raise ValueError(f"body file {path} has a wrong detail_phi_m ({one_line(error)}); scan it again") from error
