"""Poisson reconstruction of the unseen part of a body, by Open3D."""

from __future__ import annotations

from typing import Any

import numpy as np

from soft_estimator.perception.fusion import Field, View
from soft_estimator.perception.open3d_import import import_open3d


def poisson_distance_m(
    field: Field, views: list[View], frame: tuple[np.ndarray, np.ndarray], stands: bool
) -> np.ndarray:
    """Signed distance [m] at the field's nodes to a Poisson surface through what was seen and the support under it."""
    open3d = import_open3d()
    points, normals = _seen_surface(field)
    if stands:
        bottom = _footprint(points, field.spacing_m)
        points = np.concatenate([points, bottom])
        normals = np.concatenate([normals, np.tile((0.0, 0.0, -1.0), (len(bottom), 1))])
    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points))
    cloud.normals = open3d.utility.Vector3dVector(normals)
    extent = float(np.ptp(points, axis=0).max())
    depth = int(np.clip(np.ceil(np.log2(1.6 * extent / field.spacing_m)), 4, 9))
    with open3d.utility.VerbosityContextManager(open3d.utility.VerbosityLevel.Error):
        mesh, _ = open3d.geometry.TriangleMesh.create_from_point_cloud_poisson(
            cloud, depth=depth, scale=1.6, n_threads=1
        )
    return _distance_to(mesh, field)


def _distance_to(mesh: Any, field: Field) -> np.ndarray:
    import igl

    vertices, faces = np.asarray(mesh.vertices), np.asarray(mesh.triangles).astype(np.int64)
    if len(faces) == 0:
        raise ValueError("Poisson reconstruction gave no surface: too few points; use prior symmetry or extrusion")
    nodes = field.origin_m + field.spacing_m * np.argwhere(np.ones(field.total.shape, dtype=bool))
    squared = igl.point_mesh_squared_distance(nodes, vertices, faces)[0]
    winding = igl.fast_winding_number(vertices, faces, nodes)
    return (np.where(winding > 0.5, -1.0, 1.0) * np.sqrt(squared)).reshape(field.total.shape)


def _seen_surface(field: Field) -> tuple[np.ndarray, np.ndarray]:
    """Points [m] on the fused surface that was seen above the support, and outward normals: φ's zero crossings."""
    distance = np.where((field.weight > 0) & (field.free == 0), field.total / np.maximum(field.weight, 1e-300), np.nan)
    distance = np.where(np.isnan(distance) & (field.free > 0), field.truncation_m, distance)
    gradient = np.stack([*np.gradient(distance)], axis=-1)
    near = (np.abs(distance) < 0.9 * field.spacing_m) & np.isfinite(gradient).all(axis=-1)
    near[:, :, field.heights_m() < 1.5 * field.spacing_m] = False
    index = np.argwhere(near)
    slope = gradient[near]
    length = np.linalg.norm(slope, axis=1)
    fine = length > 0.2 * field.spacing_m
    normal = slope[fine] / length[fine, None]
    points = field.origin_m + field.spacing_m * index[fine] - distance[near][fine, None] * normal
    return points, normal


def _footprint(points: np.ndarray, spacing_m: float) -> np.ndarray:
    """Points on z = 0 under the seen surface, a node a column."""
    columns = np.unique(np.rint(points[:, :2] / spacing_m), axis=0) * spacing_m
    return np.column_stack([columns, np.zeros(len(columns))])
