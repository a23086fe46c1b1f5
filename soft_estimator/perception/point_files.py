"""Point files as perception reads them: the shared readers, and compressed PCD through Open3D."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from soft_estimator.geometry.point_files import POINT_ENDINGS, CompressedPcd, read_point_file

__all__ = ["POINT_ENDINGS", "read_points"]


def read_points(path: str | Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Points (n, 3) or, for an organised PCD, (h, w, 3) [m], and colours (n, 3) uint8 if a PLY holds them."""
    try:
        content = read_point_file(path)
    except CompressedPcd:
        return _through_open3d(Path(path)), None
    return content.points_m, content.colours


def _through_open3d(path: Path) -> np.ndarray:
    from soft_estimator.perception.poisson import import_open3d

    return np.asarray(import_open3d().io.read_point_cloud(str(path)).points)
