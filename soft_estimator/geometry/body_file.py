"""Body files (.npz): the signed distance grid of a scanned body, with whatever else the scan knew of it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.geometry.grid import SignedDistanceGrid


def write_body(path: str | Path, grid: SignedDistanceGrid, **more: Any) -> None:
    """Write a grid, and arrays under other names beside it."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"body file {path} must end in .npz")
    content: dict[str, Any] = {"phi_m": grid.phi_m, "origin_m": grid.origin_m, "spacing_m": grid.spacing_m}
    np.savez_compressed(path, **content, **more)


def read_body(path: str | Path) -> SignedDistanceGrid:
    """The signed distance grid of a body file."""
    remedy = "write one with: soft-estimator scan"
    try:
        with np.load(path, allow_pickle=False) as data:
            phi, origin, spacing = (data[name] for name in ("phi_m", "origin_m", "spacing_m"))
    except OSError as error:
        raise ValueError(f"body file {path} cannot be read ({' '.join(str(error).split())}); {remedy}") from error
    # in so many ways numpy says that a file is none of its own, holds a bare array, or other names
    except (KeyError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no body file, it lacks phi_m, origin_m or spacing_m; {remedy}") from error
    if spacing.size != 1 or origin.size != 3:
        raise ValueError(f"body file {path} has origin_m {origin.shape} and spacing_m {spacing.shape}; {remedy}")
    grid = SignedDistanceGrid(phi, origin, float(spacing))
    if not (grid.phi_m < 0).any():
        raise ValueError(f"body file {path} has no negative distance, so no body; scan it again")
    return grid
