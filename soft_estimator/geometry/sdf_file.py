"""Signed distance files (`.sdf`).

Layout, little endian: int32 voxels per unit, int32[3] offset, int32[3] size, then float32 φ in voxel units, x fastest,
negative inside. Node (i, j, k) lies at (offset + (i, j, k)) / voxels per unit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.shapes import DEFAULT_NODE_BUDGET

_HEADER_BYTES = 28


def read_sdf(
    path: str | Path,
    size_m: float | None = None,
    spacing_m: float | None = None,
    node_budget: int = DEFAULT_NODE_BUDGET,
) -> SignedDistanceGrid:
    """Read a `.sdf` file.

    Args:
        path: the file.
        size_m: longest side [m] of the box around the body's surface; scales the body.
        spacing_m: edge length [m] of the file's voxels, the other way to scale.
            With neither, the file's unit is the metre.
        node_budget: most nodes the grid may have.
    """
    if size_m is not None and spacing_m is not None:
        raise ValueError(f"size_m ({size_m}) and spacing_m ({spacing_m}) both scale the body; give only one")
    for name, value in (("size_m", size_m), ("spacing_m", spacing_m)):
        if value is not None and not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive, got {value}")
    voxels_per_unit, offset, phi = _read_voxels(Path(path), node_budget)
    phi, offset = _pad_inside_border(phi, offset)
    if size_m is not None:
        spacing_m = size_m / float(zero_box_sides(phi).max())
    elif spacing_m is None:
        spacing_m = 1.0 / voxels_per_unit
    return SignedDistanceGrid(phi * spacing_m, offset * spacing_m, spacing_m)


def write_sdf(path: str | Path, grid: SignedDistanceGrid, voxels_per_unit: int = 1) -> None:
    """Write a grid as a `.sdf` file.

    The format holds integers for the scale and the offset, so the spacing is lost (read with spacing_m) unless it is
    1 / voxels_per_unit, and an origin that is not a multiple of the spacing is refused.
    """
    if voxels_per_unit < 1:
        raise ValueError(f"voxels_per_unit must be at least 1, got {voxels_per_unit}")
    offset = grid.origin_m / grid.spacing_m
    if np.abs(offset - np.round(offset)).max() > 1e-6:
        raise ValueError(
            f"origin_m {grid.origin_m.tolist()} is not a multiple of the spacing {grid.spacing_m:g} m, which a .sdf "
            "file cannot hold; sample the body with align='origin'"
        )
    header = np.array([voxels_per_unit, *np.round(offset), *grid.shape]).astype("<i4")
    body = np.asarray(grid.phi_m / grid.spacing_m).astype("<f4")
    Path(path).write_bytes(header.tobytes() + body.tobytes(order="F"))


def zero_box_sides(phi: np.ndarray) -> np.ndarray:
    """Sides [grid steps] of the box around the zero level set of φ (nx, ny, nz), by its crossings of grid edges."""
    inside = phi < 0
    if not inside.any():
        raise ValueError("the signed distance is nowhere negative: there is no body in the grid")
    sides = np.empty(3)
    for axis in range(3):
        along = np.moveaxis(phi, axis, 0)
        # φ is taken as linear between nodes, so the extreme crossing sits beside the extreme inside node
        sides[axis] = _extreme_crossing(along[::-1]) + _extreme_crossing(along) - (phi.shape[axis] - 1)
    return sides


def _extreme_crossing(phi: np.ndarray) -> float:
    """Largest coordinate [grid steps] along the first axis where φ crosses zero on a grid edge of that axis."""
    layer = int(np.flatnonzero((phi < 0).any(axis=(1, 2)))[-1])
    if layer + 1 == phi.shape[0]:
        return float(layer)
    here, beyond = phi[layer], phi[layer + 1]
    inside = here < 0
    return layer + float((here[inside] / (here[inside] - beyond[inside])).max())


def _read_voxels(path: Path, node_budget: int) -> tuple[int, np.ndarray, np.ndarray]:
    if not path.is_file():
        raise ValueError(f"signed distance file {path} does not exist; check the path")
    length = path.stat().st_size
    if length < _HEADER_BYTES:
        raise ValueError(
            f"{path} has {length} bytes, fewer than the {_HEADER_BYTES} of a .sdf header; is it truncated?"
        )
    with path.open("rb") as stream:
        header = [int(a) for a in np.frombuffer(stream.read(_HEADER_BYTES), dtype="<i4")]
        voxels_per_unit, offset, size = header[0], header[1:4], header[4:7]
        if voxels_per_unit < 1 or min(size) < 2:
            raise ValueError(
                f"{path} says {voxels_per_unit} voxels per unit and size {size}; a .sdf file needs at least 1 and "
                "2 nodes a side, so this is not one"
            )
        nodes = size[0] * size[1] * size[2]
        if nodes > node_budget:
            raise ValueError(
                f"{path} says size {size}, {nodes} nodes, over the budget of {node_budget}; is it a .sdf file?"
            )
        if length != _HEADER_BYTES + 4 * nodes:
            problem = "truncated" if length < _HEADER_BYTES + 4 * nodes else "followed by other bytes"
            raise ValueError(
                f"{path} is {problem}: size {size} needs {_HEADER_BYTES + 4 * nodes} bytes, the file has {length}; "
                "get it again"
            )
        values = np.frombuffer(stream.read(4 * nodes), dtype="<f4")
    if not np.isfinite(values).all():
        raise ValueError(f"{path} holds {int((~np.isfinite(values)).sum())} NaN or infinite distances; export it again")
    if not (values < 0).any():
        raise ValueError(f"{path} has no negative distance, so no body; a .sdf file is negative inside")
    # x fastest in the file is Fortran order
    return voxels_per_unit, np.array(offset, dtype=np.float64), values.astype(np.float64).reshape(size, order="F")


def _pad_inside_border(phi: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add a layer of outside nodes where an inside node lies on the border, so that the body is closed."""
    before, after = np.zeros(3, dtype=int), np.zeros(3, dtype=int)
    for axis in range(3):
        along = np.moveaxis(phi, axis, 0)
        before[axis], after[axis] = int((along[0] <= 0).any()), int((along[-1] <= 0).any())
    if not (before.any() or after.any()):
        return phi, offset
    widths = list(zip(before, after))
    # One step out from φ the distance is at most φ + 1. Next to an inside node the body is cut off: half a voxel
    # outside is as much as is known, and it keeps the surface from running along the old border.
    padded = np.pad(phi, widths, mode="edge") + _steps_outside(phi.shape, before, after)
    outside = np.ones(padded.shape, dtype=bool)
    outside[tuple(slice(b, b + n) for b, n in zip(before, phi.shape))] = False
    padded[outside] = np.maximum(padded[outside], 0.5)
    return padded, offset - before


def _steps_outside(shape: tuple[int, ...], before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Distance [grid steps] of each node of the padded grid from the unpadded one."""
    axes = [np.arange(-b, n + a) for b, n, a in zip(before, shape, after)]
    excess = [np.maximum(np.maximum(-i, i - (n - 1)), 0.0) for i, n in zip(axes, shape)]
    return np.sqrt(sum(e**2 for e in np.meshgrid(*excess, indexing="ij")))
