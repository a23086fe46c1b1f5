"""Fixed and moving parts of a body: a gripper, a clamp, a table it is glued to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Shape
from soft_estimator.physics.body import Body
from soft_estimator.physics.nitsche_cells import NitscheCells, nitsche_cells


@dataclass(frozen=True)
class FixedRegion:
    """A region of space whose part of the body is held and moved along a path.

    Attributes:
        region: shape in the body's rest coordinates.
        method: "strong" holds the nodes inside, "nitsche" the surface inside, weakly.
        path: the motion from the start pose on, in world coordinates.
    """

    region: Shape
    method: str = "strong"
    path: RigidPath = field(default_factory=RigidPath)


@dataclass(frozen=True)
class Dirichlet:
    """Fixed regions bound to a body.

    Attributes:
        free: 1 for free nodes and 0 for held ones, (N,).
        held: (nodes, path) of each strongly held region. weak: (cells, path) of each weakly held one.
    """

    free: np.ndarray
    held: tuple[tuple[np.ndarray, RigidPath], ...] = ()
    weak: tuple[tuple[NitscheCells, RigidPath], ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.held or self.weak)

    def prescribe(self, body: Body, start: np.ndarray, time_s: float, u: np.ndarray) -> None:
        """Write the prescribed displacements of the held nodes into u; start: u at t = 0 (N, 3) [m]."""
        for nodes, path in self.held:
            u[nodes] = moved(path, time_s, body.node_position_m[nodes], start[nodes])


def moved(path: RigidPath, time_s: float, position: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Displacements of points carried along a path from where they started."""
    if not path.moves:
        return start
    q, shift = path.at(time_s)
    return (position + start) @ q.T + shift - position


def bind_dirichlet(body: Body, regions: list[FixedRegion]) -> Dirichlet:
    """Find the nodes and cells that each region holds."""
    free = np.ones(body.node_count)
    held, weak = [], []
    position = body.node_position_m
    for k, fixed in enumerate(regions):
        if fixed.method == "strong":
            nodes = np.nonzero((fixed.region.distance_m(position) <= 1e-9) & (free > 0))[0]
            if nodes.size == 0:
                raise ValueError(f"fixed[{k}] holds no node of the body; move or enlarge its box ({_span(position)})")
            free[nodes] = 0
            held.append((nodes, fixed.path))
        else:
            cells = nitsche_cells(body, fixed.region)
            if cells.cell.size == 0:
                raise ValueError(
                    f"fixed[{k}] (nitsche) holds no surface of the body; move or enlarge its box ({_span(position)})"
                )
            weak.append((cells, fixed.path))
    return Dirichlet(free, tuple(held), tuple(weak))


def _span(position: np.ndarray) -> str:
    low, high = position.min(axis=0), position.max(axis=0)
    return f"the body spans {np.round(low, 4).tolist()} to {np.round(high, 4).tolist()} m"
