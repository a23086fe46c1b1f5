"""Rest shapes from files and primitives: units, size and cell count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from soft_estimator.geometry.mesh_file import write_ply
from soft_estimator.geometry.shapes import Box, Sphere, Torus, sample
from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3
from soft_estimator.perception.rest_shape import count_active_cells, rest_shape_from_mesh, rest_shape_from_primitive


def write_ball(path: Path, scale: float) -> None:
    """A ball of 5 cm radius, written in units of 1/scale metres."""
    grid = sample(Sphere(0.05), 0.005)
    surface = extract_surface(grid)
    write_ply(path, surface.positions_m(grid.node_positions_m()) * scale, surface.faces)


def test_a_mesh_in_millimetres_is_scaled(tmp_path: Path) -> None:
    write_ball(tmp_path / "ball.ply", 1000.0)
    grid = rest_shape_from_mesh(tmp_path / "ball.ply", "mm", target_cells=1500)
    surface = extract_surface(grid)
    volume = mesh_volume_m3(surface.positions_m(grid.node_positions_m()), surface.faces)
    assert volume == pytest.approx(4 / 3 * np.pi * 0.05**3, rel=0.03)  # ten cells a diameter lose 2 % to curvature


def test_a_wrong_unit_is_found_out_and_the_right_one_named(tmp_path: Path) -> None:
    write_ball(tmp_path / "ball.ply", 1000.0)
    with pytest.raises(ValueError, match=r"100 m long in unit 'm'.*'mm'"):
        rest_shape_from_mesh(tmp_path / "ball.ply")
    with pytest.raises(ValueError, match="pass unit='mm'"):
        rest_shape_from_mesh(tmp_path / "ball.ply", "cm", expected_size_m=0.1)
    with pytest.raises(ValueError, match="not known"):
        rest_shape_from_mesh(tmp_path / "ball.ply", "furlong")


@pytest.mark.parametrize("shape", [Box((0.1, 0.05, 0.2)), Sphere(0.05), Torus(0.06, 0.02)])
@pytest.mark.parametrize("cells", [500, 5000])
def test_a_primitive_gets_the_cells_that_were_asked_for(shape: Box, cells: int) -> None:
    # cells come in whole layers, so a tenth is what can be promised; a fifth where faces are to lie on planes of the
    # grid: one layer more or less on each side of 9 x 18 x 36 cells
    rel = 0.2 if isinstance(shape, Box) else 0.1
    assert count_active_cells(rest_shape_from_primitive(shape, cells)[0]) == pytest.approx(cells, rel=rel)


def test_too_few_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        rest_shape_from_primitive(Sphere(0.05), 1)
    with pytest.raises(ValueError, match="at least 8"):
        rest_shape_from_primitive(Box((0.1, 0.05, 0.2)), 7)
