"""A rest shape from a mesh file or a primitive, on a grid with a wanted number of cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from soft_estimator.geometry.grid import CORNER_OFFSETS, SignedDistanceGrid
from soft_estimator.geometry.mesh_file import load_mesh, mesh_to_sdf
from soft_estimator.geometry.shapes import Box, Shape, refine, sample, sample_distance
from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3

UNITS_M = {"m": 1.0, "dm": 0.1, "cm": 0.01, "mm": 0.001, "inch": 0.0254}
REFINEMENT = 2  # a rest shape's surface is kept on a grid this many times as fine as that of its cells
BOX_REFINEMENT = 4  # of a box: its sides are rounded to so fine planes
_ROUNDED_M, _MORE_CELLS = 0.0003, 0.2  # sides may be off by this [m], or there may be this part more or fewer cells
PLAUSIBLE_SIZE_M = (0.005, 2.0)  # longest side of a soft object a depth camera can look at


def rest_shape_from_mesh(
    path: str | Path,
    unit: str | None = None,
    target_cells: int = 4000,
    expected_size_m: float | None = None,
) -> SignedDistanceGrid:
    """A rest shape from a closed mesh file.

    Args:
        unit: unit of the file's numbers: m, dm, cm, mm or inch; metres if left out.
        target_cells: active cells the grid is to have, roughly.
        expected_size_m: measured longest side [m]; more than 10 % off is refused.
    """
    if unit is not None and unit not in UNITS_M:
        raise ValueError(f"unit {unit!r} is not known; use one of {', '.join(UNITS_M)}")
    vertices, faces = load_mesh(path, UNITS_M[unit or "m"])
    size = float(np.ptp(vertices, axis=0).max())
    low, high = PLAUSIBLE_SIZE_M if expected_size_m is None else (0.9 * expected_size_m, 1.1 * expected_size_m)
    if not low <= size <= high:
        wanted = f"between {low:g} and {high:g} m"
        fitting = [name for name, scale in UNITS_M.items() if low <= size / UNITS_M[unit or "m"] * scale <= high]
        remedy = f"pass unit={' or '.join(repr(name) for name in fitting)}" if fitting else "check its scale"
        raise ValueError(f"mesh {path} is {size:.4g} m long in unit {unit or 'm'!r}, expected {wanted}; {remedy}")
    return grid_with_cells(vertices, faces, target_cells)


def rest_shape_from_primitive(shape: Shape, target_cells: int = 4000) -> tuple[SignedDistanceGrid, SignedDistanceGrid]:
    """A rest shape from an analytic body, with about target_cells cells, and φ on a grid REFINEMENT times as fine.

    A box, whose faces lie on planes of the refined grid, may have a fifth more or fewer cells.
    """
    _check_target(target_cells)
    low, high = shape.bounds_m()
    coarse = sample(shape, float((high - low).max()) / 24)
    surface = extract_surface(coarse)
    volume = mesh_volume_m3(surface.positions_m(coarse.node_positions_m()), surface.faces)
    if isinstance(shape, Box):
        shape, grid = _box_on_planes(shape, target_cells)
        return grid, refine(shape.distance_m, grid, BOX_REFINEMENT)
    grid = _search_spacing(lambda spacing: sample(shape, spacing), volume, target_cells)
    return grid, refine(shape.distance_m, grid, REFINEMENT)


def _box_on_planes(box: Box, target_cells: int) -> tuple[Box, SignedDistanceGrid]:
    """A box with all faces on planes of the refined grid, and its grid of about so many cells.

    Edges between such faces are sharp; a face that lies a tenth of a millimetre inside a plane has its edges bevelled
    by a whole cell. The sides are rounded for it, by less than cameras know them.
    """
    size = np.array(box.size_m)
    tries = (size.prod() / target_cells) ** (1 / 3) * np.linspace(0.8, 1.3, 1001)
    parts = np.maximum(np.round(BOX_REFINEMENT * size[:, None] / tries), BOX_REFINEMENT)
    off = parts * tries / BOX_REFINEMENT - size[:, None]
    cells = np.ceil(parts / BOX_REFINEMENT - 1e-6).prod(axis=0)
    cost = (off**2).sum(axis=0) / _ROUNDED_M**2 + np.log(cells / target_cells) ** 2 / _MORE_CELLS**2
    best = int(np.argmin(cost))
    spacing, rounded = float(tries[best]), parts[:, best] * tries[best] / BOX_REFINEMENT
    # The low corner stays where it is: the box stands on it, and it lies on planes of the coarse grid.
    low = np.array(box.centre_m) - 0.5 * size
    on_planes = Box(rounded, low + 0.5 * rounded)
    high = low + np.ceil(rounded / spacing - 1e-6) * spacing
    return on_planes, sample_distance(on_planes.distance_m, low, high, spacing)


def grid_with_cells(vertices_m: np.ndarray, faces: np.ndarray, target_cells: int) -> SignedDistanceGrid:
    """Signed distance to a closed mesh on a grid with about target_cells active cells."""
    volume = mesh_volume_m3(vertices_m, faces)
    return _search_spacing(lambda spacing: mesh_to_sdf(vertices_m, faces, spacing), volume, target_cells)


def count_active_cells(grid: SignedDistanceGrid) -> int:
    """Cells with a corner inside the body."""
    mask = np.zeros([n - 1 for n in grid.shape], dtype=bool)
    for offset in CORNER_OFFSETS:
        mask |= grid.phi_m[tuple(slice(o, o + n) for o, n in zip(offset, mask.shape))] < 0
    return int(mask.sum())


def _check_target(target_cells: int) -> None:
    if target_cells < 8:
        raise ValueError(f"target_cells is {target_cells}; a body needs at least 8")


def _search_spacing(make, volume_m3: float, target_cells: int) -> SignedDistanceGrid:  # type: ignore[no-untyped-def]
    """Try spacings until the active cells are within 5 % of the target, four times at most; the nearest try wins."""
    _check_target(target_cells)
    spacing, best, best_miss = (volume_m3 / target_cells) ** (1 / 3), None, np.inf
    for _ in range(4):
        try:
            grid = make(spacing)
        except ValueError:  # too coarse for any node to lie inside
            spacing *= 0.7
            continue
        cells = count_active_cells(grid)
        miss = abs(np.log(cells / target_cells))
        if miss < best_miss:
            best, best_miss = grid, miss
        if miss < 0.05:
            break
        spacing *= (cells / target_cells) ** 0.36  # between h⁻² of the skin and h⁻³ of the core
    if best is None:
        raise ValueError(f"target_cells {target_cells} is too few for a body this thin; raise it")
    return best
