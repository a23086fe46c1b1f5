"""Whether a grid's simulation fits in the machine's memory, before any of it is made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from soft_estimator.geometry.cut_cells import CORNER_OFFSETS
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.schema import ConfigError

# Measured as growth of the peak resident set over building a body and two float64 steps: 4.9-5.1 kB a node for a box, a
# sphere and a ring of 40 000 to 60 000 nodes (5.8 kB at ν = 0.499), and 110 bytes a node of a nearly empty grid.
BYTES_PER_NODE = 5800.0
BYTES_PER_GRID_NODE = 110.0
# Layers of nodes around the body's bounds: two of margin on either side and one for the fence post.
_BORDER_NODES = 5
# A body this many cells long is counted node by node; a finer one is counted at this resolution and scaled up.
_COUNTED_CELLS = 48.0


def check_memory(
    sample: Callable[[float], SignedDistanceGrid],
    cells: np.ndarray,
    spacing_m: float,
    memory_bytes: float | None,
    key: str,
) -> None:
    """Refuse a grid whose simulation would not fit.

    Args:
        sample: the grid for a spacing [m]. cells: sides of the body in cells, (3,). spacing_m: the one asked for.
        memory_bytes: what there is; the machine's by default. key: what set the grid, for the message.
    """
    available = available_memory_bytes() if memory_bytes is None else memory_bytes
    span = np.asarray(cells, dtype=np.float64) * spacing_m
    longest = float(np.max(span))
    counted_m, grid = _coarse(sample, spacing_m, max(spacing_m, longest / _COUNTED_CELLS), span, available, key)
    inside = int((grid.phi_m < 0).sum())
    around = count_active_nodes(grid) - inside

    def nodes(h: float) -> float:  # the inside grows as a volume, the layer around it as an area
        return inside * (counted_m / h) ** 3 + around * (counted_m / h) ** 2

    def needed_bytes(h: float) -> float:
        return nodes(h) * BYTES_PER_NODE + float(np.prod(span / h + _BORDER_NODES)) * BYTES_PER_GRID_NODE

    needed = needed_bytes(spacing_m)
    if needed <= available:
        return
    fitting = spacing_m
    while needed_bytes(fitting) > 0.9 * available and fitting < longest:
        fitting *= 1.02
    raise ConfigError(
        f"= {spacing_m:.3g} m makes about {nodes(spacing_m):.3g} nodes, which need {needed / 1e9:.3g} GB of memory "
        f"where {available / 1e9:.3g} GB are available; use a spacing of {fitting:.2g} m or more",
        key,
    )


def _coarse(
    sample: Callable[[float], SignedDistanceGrid],
    finest_m: float,
    spacing_m: float,
    span_m: np.ndarray,
    available: float,
    key: str,
) -> tuple[float, SignedDistanceGrid]:
    """A spacing [m], halved until it resolves the body, and its grid; small parts far apart make that a large one."""
    while True:
        bytes_ = float(np.prod(span_m / spacing_m + _BORDER_NODES)) * BYTES_PER_GRID_NODE
        if bytes_ > available:
            raise ConfigError(
                f"= {finest_m:.3g} m makes a grid that needs over {bytes_ / 1e9:.3g} GB of memory where "
                f"{available / 1e9:.3g} GB are available, and coarser ones show nothing of the body; bring its parts "
                "closer together, or make them thicker",
                key,
            )
        try:
            return spacing_m, sample(spacing_m)
        except ValueError:
            if spacing_m <= finest_m:
                raise
            spacing_m = max(0.5 * spacing_m, finest_m)


def count_active_nodes(grid: SignedDistanceGrid) -> int:
    """Nodes of the cells that have a corner inside, as many as the simulation will have at most."""
    inside = grid.phi_m < 0
    size = [n - 1 for n in grid.shape]
    windows = [tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True)) for offset in CORNER_OFFSETS]
    cells = np.zeros(size, dtype=bool)
    for window in windows:
        cells |= inside[window]
    nodes = np.zeros(grid.shape, dtype=bool)
    for window in windows:
        nodes[window] |= cells
    return int(nodes.sum())


def available_memory_bytes() -> float:
    """Memory [bytes] that can still be taken, within a container's limit where there is one."""
    available = float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    try:  # what the kernel could free counts too, which sysconf's SC_AVPHYS_PAGES leaves out
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        available = 1024.0 * float(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:
        limit = float(Path("/sys/fs/cgroup/memory.max").read_text())
        used = float(Path("/sys/fs/cgroup/memory.current").read_text())
        available = min(available, max(limit - used, 0.0))
    except (OSError, ValueError):  # no container, or "max"
        pass
    return available
