"""A body's arrays as the loops take them, and displacements that try the loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LAM, MU = 0.57, 0.37  # for E = 1 Pa
SHAPES = ("small", "inverted", "flat")


def noise(shape, scale=1.0, seed=0):
    return np.random.default_rng(seed).normal(size=shape) * scale


@dataclass
class Arrays:
    """Of a body with two material regions, in a precision."""

    body: object
    real: type

    def __post_init__(self):
        b = self.body
        self.spacing = b.grid.spacing_m
        self.nodes, self.cells, self.points = b.node_count, b.cell_count, len(b.contact_points.area_m2)
        self.cell_nodes, self.node_cells = b.cell_nodes, b.node_cells
        self.index, self.table = b.cells.gradient_index, b.cells.element_table.astype(self.real)
        self.young = np.array([3e4, 6e4], self.real)[b.cell_region]
        self.pattern = (b.row_start, b.column)
        self.normal = np.array([0.1, 0.97, -0.05]) / np.linalg.norm([0.1, 0.97, -0.05])
        self.riding = (b.contact_points.nodes, b.contact_points.weight)
        self.links = (b.node_cells, b.contact_points.point_start, b.contact_points.weight)

    def elastic(self):
        """What the cell loops take after the rotations."""
        return self.cell_nodes, self.index, self.table, self.young, LAM, MU

    def nodal(self, scale, seed):
        return noise((self.nodes, 3), scale, seed).astype(self.real)

    def displaced(self, shape):
        """Displacements (N, 3) [m]: a tenth of a cell; many cells inside out; all of the body pressed into a plane."""
        h, x = self.spacing, self.body.node_position_m
        u = noise((self.nodes, 3), {"small": 0.1 * h, "inverted": 2 * h, "flat": 0.1 * h}[shape])
        if shape == "flat":
            u[:, 2] = -x[:, 2]
        return u.astype(self.real)

    def out(self, *shape, real=None):
        """To be written: NaN shows what was not."""
        return np.full(shape, np.nan, real or self.real)
