"""Triangle meshes: reading files, turning them into signed distance grids, writing PLY."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.geometry.array_files import one_line
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.shapes import DEFAULT_NODE_BUDGET, Align, sample_distance
from soft_estimator.geometry.surface import mesh_volume_m3

_FORMATS = (".obj", ".stl", ".ply")
_MOST_BYTES = 1 << 30


def load_mesh(path: str | Path, scale_to_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Read a closed triangle mesh: vertices (nv, 3) [m] and outward oriented faces (nf, 3) int64.

    Args:
        path: an OBJ, STL or PLY file.
        scale_to_m: metres in one unit of the file (0.001 for millimetres).
    """
    path = Path(path)
    if not (np.isfinite(scale_to_m) and scale_to_m > 0):
        raise ValueError(f"scale_to_m must be positive, got {scale_to_m}")
    vertices, faces = _read_triangles(path)
    if len(faces) == 0:
        raise ValueError(f"mesh {path} has no faces; a point cloud or an empty file cannot be a body")
    if not np.isfinite(vertices).all():
        raise ValueError(f"mesh {path} holds {int((~np.isfinite(vertices)).sum())} NaN or infinite coordinates")
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise ValueError(f"mesh {path} has a face that names vertex {int(faces.max())} of {len(vertices)}")
    vertices, faces = _merge_vertices(vertices, faces)
    _require_watertight(path, vertices, faces)
    return vertices * scale_to_m, _orient_outward(path, vertices, faces)


def mesh_to_sdf(
    vertices_m: np.ndarray,
    faces: np.ndarray,
    spacing_m: float,
    margin_cells: int = 2,
    align: Align = "bounds",
    node_budget: int = DEFAULT_NODE_BUDGET,
) -> SignedDistanceGrid:
    """Exact signed distance to a closed mesh, vertices (nv, 3) [m] and faces (nf, 3), on a grid of spacing_m [m]."""
    used = vertices_m[np.unique(faces)]
    distance_m = mesh_distance(vertices_m, faces)
    return sample_distance(distance_m, used.min(axis=0), used.max(axis=0), spacing_m, margin_cells, align, node_budget)


def mesh_distance(vertices_m: np.ndarray, faces: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Signed distance (n, 3) [m] -> (n,) [m] to a closed mesh, vertices (nv, 3) [m] and faces (nf, 3).

    Components may overlap (their walls inside the body do not count) and enclose cavities (faces oriented inwards).
    """
    vertices = np.ascontiguousarray(vertices_m, dtype=np.float64)
    triangles = np.ascontiguousarray(faces, dtype=np.int64)
    component = _components(triangles, len(vertices))
    shells = [np.ascontiguousarray(triangles[component == label]) for label in np.unique(component)]
    solids = [shell for shell in shells if mesh_volume_m3(vertices, shell) > 0]
    cavities = [shell for shell in shells if mesh_volume_m3(vertices, shell) <= 0]
    if not solids:
        raise ValueError("the mesh encloses no positive volume; orient its faces outwards")
    parts = [(solid, [c for c in cavities if _encloses(vertices, solid, c)]) for solid in solids]

    def distance_m(points_m: np.ndarray) -> np.ndarray:
        nearest = np.full(len(points_m), np.inf)
        for solid, holes in parts:
            part = _shell_distance(points_m, vertices, solid)
            for hole in holes:
                part = np.maximum(part, -_shell_distance(points_m, vertices, np.ascontiguousarray(hole[:, ::-1])))
            nearest = np.minimum(nearest, part)
        return nearest

    return distance_m


def write_ply(path: str | Path, positions_m: np.ndarray, faces: np.ndarray, colours: np.ndarray | None = None) -> None:
    """Write a binary PLY: positions (nv, 3) [m] as float32, faces (nf, 3), colours (nv, 3) uint8 if given."""
    positions = np.asarray(positions_m)
    triangles = np.asarray(faces)
    fields: list[tuple[str, str]] = [("x", "<f4"), ("y", "<f4"), ("z", "<f4")]
    if colours is not None:
        if np.shape(colours) != (len(positions), 3):
            raise ValueError(f"colours must have shape ({len(positions)}, 3), one per vertex, got {np.shape(colours)}")
        fields += [("red", "u1"), ("green", "u1"), ("blue", "u1")]
    vertex_rows = np.empty(len(positions), dtype=fields)
    for axis, name in enumerate("xyz"):
        vertex_rows[name] = positions[:, axis]
    if colours is not None:
        for channel, name in enumerate(("red", "green", "blue")):
            vertex_rows[name] = np.asarray(colours)[:, channel]
    face_rows = np.empty(len(triangles), dtype=[("count", "u1"), ("vertices", "<i4", (3,))])
    face_rows["count"] = 3
    face_rows["vertices"] = triangles
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(positions)}"]
    header += [f"property {'float' if kind == '<f4' else 'uchar'} {name}" for name, kind in fields]
    header += [f"element face {len(triangles)}", "property list uchar int vertex_indices", "end_header"]
    Path(path).write_bytes(("\n".join(header) + "\n").encode("ascii") + vertex_rows.tobytes() + face_rows.tobytes())


def _shell_distance(points_m: np.ndarray, vertices_m: np.ndarray, shell: np.ndarray) -> np.ndarray:
    """Signed distance (n,) [m] of points to one outward oriented closed shell."""
    import igl  # only mesh files need it

    # igl.signed_distance scales by 1 - 2 w with an approximate winding number w: the length would be off by it
    squared = igl.point_mesh_squared_distance(points_m, vertices_m, shell)[0]
    winding = igl.fast_winding_number(vertices_m, shell, points_m)
    return np.where(winding > 0.5, -1.0, 1.0) * np.sqrt(np.maximum(squared, 0.0))


def _encloses(vertices: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> bool:
    """Whether faces outer go round faces inner, judged at the middle of one of the latter."""
    import igl

    probe = np.ascontiguousarray(vertices[inner[:1]].mean(axis=1))
    return bool(np.reshape(igl.winding_number(vertices, np.ascontiguousarray(outer), probe), -1)[0] > 0.5)


def _read_triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:
    import trimesh  # only mesh files need it

    if not path.is_file():
        raise ValueError(f"mesh file {path} does not exist; check the path")
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"mesh file {path} has the ending {path.suffix!r}; use one of {', '.join(_FORMATS)}")
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES} bytes")
        # as a stream: by its path the library would follow the file's word to other files, such as materials
        stream, ending = io.BytesIO(path.read_bytes()), path.suffix.lower().removeprefix(".")
        loaded: Any = trimesh.load(stream, file_type=ending, process=False, force="mesh")
        vertices, faces = np.asarray(loaded.vertices), np.asarray(loaded.faces)
    except Exception as error:  # a parser may raise anything on a damaged file
        raise ValueError(f"mesh file {path} cannot be read ({one_line(error)}); export it again") from error
    return vertices.astype(np.float64).reshape(-1, 3), faces.astype(np.int64).reshape(-1, 3)


def _merge_vertices(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join vertices closer than 1e-8 of the body's size (seams of textures, triangle soups); drop what collapses."""
    low = vertices.min(axis=0)
    size = float((vertices.max(axis=0) - low).max()) or 1.0
    keys = np.round((vertices - low) / size * 1e8).astype(np.int64)
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    merged = group.reshape(-1)[faces]
    a, b, c = merged.T
    merged = merged[(a != b) & (b != c) & (c != a)]
    used, compact = np.unique(merged, return_inverse=True)
    return vertices[first][used], compact.reshape(-1, 3)


def _require_watertight(path: Path, vertices: np.ndarray, faces: np.ndarray) -> None:
    if len(faces) == 0:
        raise ValueError(f"mesh {path} has only faces of zero area; export it again")
    edges = np.sort(_directed_edges(faces), axis=1)
    _, uses = np.unique(edges[:, 0] * len(vertices) + edges[:, 1], return_counts=True)
    if (uses % 2).any():
        raise ValueError(
            f"mesh {path} is not watertight: {int((uses % 2).sum())} of {len(uses)} edges are open; "
            "close its holes in a mesh editor"
        )


def _orient_outward(path: Path, vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Make neighbouring faces agree, and turn around what encloses a negative volume and is not a cavity."""
    import trimesh

    if not _consistent(faces, len(vertices)):
        mesh = trimesh.Trimesh(vertices, faces, process=False)
        trimesh.repair.fix_winding(mesh)
        faces = np.asarray(mesh.faces, dtype=np.int64)
        if not _consistent(faces, len(vertices)):
            raise ValueError(f"mesh {path} has faces that cannot be oriented alike; repair it in a mesh editor")
    faces = faces if mesh_volume_m3(vertices, faces) > 0 else faces[:, ::-1].copy()
    component = _components(faces, len(vertices))
    for label in np.unique(component):
        mine = component == label
        inward = not mine.all() and mesh_volume_m3(vertices, faces[mine]) < 0
        # inside another component it is a cavity, outside it is inverted
        if inward and not _encloses(vertices, faces[~mine], faces[mine]):
            faces[mine] = faces[mine][:, ::-1]
    return np.ascontiguousarray(faces)


def _consistent(faces: np.ndarray, vertex_count: int) -> bool:
    """Whether every directed edge is met by as many opposite ones."""
    edges = _directed_edges(faces)
    forward = np.sort(edges[:, 0] * vertex_count + edges[:, 1])
    return bool(np.array_equal(forward, np.sort(edges[:, 1] * vertex_count + edges[:, 0])))


def _directed_edges(faces: np.ndarray) -> np.ndarray:
    return np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])


def _components(faces: np.ndarray, vertex_count: int) -> np.ndarray:
    """Label of the connected component of each face."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    links = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]]])
    graph = coo_matrix((np.ones(len(links)), links.T), shape=(vertex_count, vertex_count))
    return connected_components(graph, directed=False)[1][faces[:, 0]]
