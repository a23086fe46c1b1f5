"""Triangle rasteriser through a pinhole: exact depth along every pixel's ray.

Triangles are drawn in homogeneous form: with d the ray of a pixel and a, b, c the corners in the camera frame,

    t d = w0 a + w1 b + w2 c,   w0 : w1 : w2 = d.(b x c) : d.(c x a) : d.(a x b),   t = n.a / n.d,   n = (b-a) x (c-a).

Nothing is divided by a corner's depth, so a triangle that reaches behind the camera needs no clipping: only its
bounding box does. A weight counts as zero within its rounding error, so no ray slips between neighbouring triangles,
not even through a vertex they share.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange

BAND_ROWS = 16  # rows per band; fixed, so the work split (and every bit) is the same for any thread count
WIDE_PX = 8  # boxes wider than this are searched where the triangle is; in smaller ones that takes longer than to look
SIDE_ON = 1e-6  # a triangle whose plane passes so near to the camera, over its distance, may be taken for its back
ROUNDING = 8 * 2.0**-52  # bounds the error of d.(p x q), about six roundings, relative to |p||q||d| in 1-norm, max-norm


def rasterise(
    vertices_camera: np.ndarray,
    faces: np.ndarray,
    fx: float,
    fy: float,
    cx: float,
    cy: float,
    width: int,
    height: int,
    near: float = 1e-3,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw triangles seen from the origin along +z (x right, y down).

    Pixel (u, v), integers at pixel centres, looks along ((u - cx) / fx, (v - cy) / fy, 1). Both sides of a triangle are
    drawn; of two equal depths the lower face index wins.

    Args:
        vertices_camera: corner positions in the camera frame [m], shape (nv, 3).
        faces: corner indices, shape (nf, 3).
        fx, fy, cx, cy: focal lengths and principal point [px].
        width, height: image size [px].
        near: surface nearer than this depth is not seen [m].

    Returns:
        depth along z [m], shape (height, width), inf where nothing; face index, int32, -1 where nothing; barycentric
        coordinates of the hit, shape (height, width, 3), zero where nothing.
    """
    vertices, triangles = checked_mesh(vertices_camera, faces, fx, fy, width, height, near)
    depth, face_index, planes = _draw(vertices, triangles, fx, fy, cx, cy, width, height, near)
    barycentric = np.zeros((height, width, 3))
    _barycentric(face_index, planes, fx, fy, cx, cy, barycentric)
    return depth, face_index, barycentric


def rasterise_depth(
    vertices_camera: np.ndarray,
    faces: np.ndarray,
    fx: float,
    fy: float,
    cx: float,
    cy: float,
    width: int,
    height: int,
    near: float = 1e-3,
) -> tuple[np.ndarray, np.ndarray]:
    """The depth [m] and face index of `rasterise`, shape (height, width) each, without the barycentric coordinates."""
    vertices, triangles = checked_mesh(vertices_camera, faces, fx, fy, width, height, near)
    depth, face_index, _ = _draw(vertices, triangles, fx, fy, cx, cy, width, height, near)
    return depth, face_index


def checked_mesh(
    vertices_camera: np.ndarray, faces: np.ndarray, fx: float, fy: float, width: int, height: int, near: float
) -> tuple[np.ndarray, np.ndarray]:
    """Contiguous float64 vertices and int64 faces, or a ValueError."""
    vertices = np.ascontiguousarray(vertices_camera, dtype=np.float64)
    triangles: np.ndarray = np.ascontiguousarray(faces, dtype=np.int64)
    if vertices.ndim != 2 or vertices.shape[1] != 3:
        raise ValueError(f"vertices have shape {vertices.shape}: give (nv, 3)")
    if triangles.size == 0:
        triangles = triangles.reshape(0, 3)
    if triangles.ndim != 2 or triangles.shape[1] != 3:
        raise ValueError(f"faces have shape {triangles.shape}: give triangles, (nf, 3)")
    if triangles.size and (triangles.min() < 0 or triangles.max() >= len(vertices)):
        raise ValueError(f"faces name vertices {triangles.min()}..{triangles.max()}: give 0..{len(vertices) - 1}")
    if not np.isfinite(vertices).all():
        raise ValueError("vertices hold NaN or infinity: remove them or check the simulation that made them")
    if width < 1 or height < 1 or fx <= 0 or fy <= 0 or near <= 0:
        raise ValueError(f"image {width}x{height}, focal {fx}, {fy}, near {near}: all must be positive")
    return vertices, triangles


def _draw(
    vertices: np.ndarray,
    triangles: np.ndarray,
    fx: float,
    fy: float,
    cx: float,
    cy: float,
    width: int,
    height: int,
    near: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depth, face index and the per-triangle numbers of `_set_up`."""
    planes = np.empty((len(triangles), 18))
    bounds = np.empty((len(triangles), 4), dtype=np.int32)
    _set_up(vertices, triangles, fx, fy, cx, cy, width, height, near, planes, bounds)
    start, members = _bin(bounds, -(-height // BAND_ROWS))
    depth = np.full((height, width), np.inf)
    face_index = np.full((height, width), -1, dtype=np.int32)
    _draw_bands(planes, bounds, start, members, fx, fy, cx, cy, near, depth, face_index)
    return depth, face_index, planes


@njit(parallel=True, cache=True)
def _set_up(
    vertices: np.ndarray,
    faces: np.ndarray,
    fx: float,
    fy: float,
    cx: float,
    cy: float,
    width: int,
    height: int,
    near: float,
    planes: np.ndarray,
    bounds: np.ndarray,
) -> None:
    """Per triangle: b x c, c x a, a x b (0-8), normal (9-11), n.a (12), depth range (13, 14), rounding (15-17), box.

    Of one that covers no pixel's middle the (empty) box alone.
    """
    d_max = largest_ray(fx, fy, cx, cy, width, height)
    for f in prange(faces.shape[0]):
        a, b, c = vertices[faces[f, 0]], vertices[faces[f, 1]], vertices[faces[f, 2]]
        _pixel_box(a, b, c, fx, fy, cx, cy, width, height, near, bounds[f])
        if bounds[f, 0] <= bounds[f, 1] and bounds[f, 2] <= bounds[f, 3]:
            set_up_plane(vertices, faces[f], d_max, planes[f])


@njit(cache=True)
def largest_ray(fx: float, fy: float, cx: float, cy: float, width: int, height: int) -> float:
    """The largest component of any pixel's ray."""
    return max(1.0, abs(cx) / fx, abs(width - 1 - cx) / fx, abs(cy) / fy, abs(height - 1 - cy) / fy)


@njit(cache=True)
def set_up_plane(vertices: np.ndarray, face: np.ndarray, d_max: float, plane: np.ndarray) -> None:
    a, b, c = vertices[face[0]], vertices[face[1]], vertices[face[2]]
    for i in range(3):
        p = vertices[face[(i + 1) % 3]]
        q = vertices[face[(i + 2) % 3]]
        plane[3 * i] = p[1] * q[2] - p[2] * q[1]
        plane[3 * i + 1] = p[2] * q[0] - p[0] * q[2]
        plane[3 * i + 2] = p[0] * q[1] - p[1] * q[0]
        size = (abs(p[0]) + abs(p[1]) + abs(p[2])) * (abs(q[0]) + abs(q[1]) + abs(q[2]))
        plane[15 + i] = ROUNDING * size * d_max
    # from differences: the sum of the edge vectors is the same normal, but loses digits on small far triangles
    bx, by, bz = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    ex, ey, ez = c[0] - a[0], c[1] - a[1], c[2] - a[2]
    nx, ny, nz = by * ez - bz * ey, bz * ex - bx * ez, bx * ey - by * ex
    plane[9], plane[10], plane[11] = nx, ny, nz
    plane[12] = nx * a[0] + ny * a[1] + nz * a[2]
    plane[13] = min(a[2], b[2], c[2])
    plane[14] = max(a[2], b[2], c[2])


@njit(cache=True)
def _pixel_box(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    fx: float,
    fy: float,
    cx: float,
    cy: float,
    width: int,
    height: int,
    near: float,
    box: np.ndarray,
) -> None:
    """Pixels u0..u1, v0..v1 (inclusive; empty when u0 > u1) that the part of the triangle beyond `near` may cover."""
    u_low, u_high, v_low, v_high = np.inf, -np.inf, np.inf, -np.inf
    for i in range(3):
        p = a if i == 0 else (b if i == 1 else c)
        q = b if i == 0 else (c if i == 1 else a)
        for end in range(2):  # the corner itself, then where its edge crosses the near plane
            if end == 0:
                if p[2] < near:
                    continue
                x, y, z = p[0], p[1], p[2]
            else:
                if (p[2] < near) == (q[2] < near):
                    continue
                s = (near - p[2]) / (q[2] - p[2])
                x, y, z = p[0] + s * (q[0] - p[0]), p[1] + s * (q[1] - p[1]), near
            u, v = fx * x / z + cx, fy * y / z + cy
            u_low, u_high = min(u_low, u), max(u_high, u)
            v_low, v_high = min(v_low, v), max(v_high, v)
    # a hair wider than computed, so that rounding loses no pixel whose centre lies on the outline
    box[0] = int(min(max(np.ceil(u_low - 1e-6), 0.0), float(width)))
    box[1] = int(max(min(np.floor(u_high + 1e-6), width - 1.0), -1.0))
    box[2] = int(min(max(np.ceil(v_low - 1e-6), 0.0), float(height)))
    box[3] = int(max(min(np.floor(v_high + 1e-6), height - 1.0), -1.0))


@njit(cache=True)
def _bin(bounds: np.ndarray, bands: int) -> tuple[np.ndarray, np.ndarray]:
    """Faces of each band of rows as (start, members), in rising face order."""
    start = np.zeros(bands + 1, dtype=np.int64)
    for f in range(bounds.shape[0]):
        if bounds[f, 0] <= bounds[f, 1] and bounds[f, 2] <= bounds[f, 3]:
            for band in range(bounds[f, 2] // BAND_ROWS, bounds[f, 3] // BAND_ROWS + 1):
                start[band + 1] += 1
    for band in range(bands):
        start[band + 1] += start[band]
    fill = start[:-1].copy()
    members = np.empty(start[bands], dtype=np.int64)
    for f in range(bounds.shape[0]):
        if bounds[f, 0] <= bounds[f, 1] and bounds[f, 2] <= bounds[f, 3]:
            for band in range(bounds[f, 2] // BAND_ROWS, bounds[f, 3] // BAND_ROWS + 1):
                members[fill[band]] = f
                fill[band] += 1
    return start, members


@njit(parallel=True, cache=True)
def _draw_bands(
    planes: np.ndarray,
    bounds: np.ndarray,
    start: np.ndarray,
    members: np.ndarray,
    fx: float,
    fy: float,
    cx: float,
    cy: float,
    near: float,
    depth: np.ndarray,
    face_index: np.ndarray,
) -> None:
    for band in prange(start.size - 1):
        for k in range(start[band], start[band + 1]):
            f = members[k]
            first, end = max(bounds[f, 2], band * BAND_ROWS), min(bounds[f, 3] + 1, (band + 1) * BAND_ROWS)
            for v in range(first, end):
                draw_row(planes[f], v, bounds[f, 0], bounds[f, 1], fx, fy, cx, cy, near, f, depth[v], face_index[v])


@njit(cache=True)
def draw_row(
    e: np.ndarray,
    v: int,
    first: int,
    last: int,
    fx: float,
    fy: float,
    cx: float,
    cy: float,
    near: float,
    face: int,
    depth: np.ndarray,
    face_index: np.ndarray,
) -> None:
    """The pixels first..last of row v that a face covers, where it is nearer than what is there."""
    dy = (v - cy) / fy
    r0, r1, r2 = e[1] * dy + e[2], e[4] * dy + e[5], e[7] * dy + e[8]
    rn = e[10] * dy + e[11]
    # Where the row crosses the triangle, and a pixel more: of a wide box most pixels lie beside it.
    steep = abs(e[9]) * e[14] + abs(e[10]) * e[14] + abs(e[11]) * e[14]
    if last - first > WIDE_PX and abs(e[12]) > SIDE_ON * steep:
        side = 1.0 if e[12] > 0 else -1.0
        low, high = float(first), float(last)
        for i in range(3):
            slope, rest = side * e[3 * i], side * (r0 if i == 0 else r1 if i == 1 else r2) + e[15 + i]
            if slope > 0:
                low = max(low, cx - fx * rest / slope - 1.0)
            elif slope < 0:
                high = min(high, cx - fx * rest / slope + 1.0)
        first, last = int(np.ceil(min(low, last + 1.0))), int(np.floor(max(high, first - 1.0)))
    for u in range(first, last + 1):
        dx = (u - cx) / fx
        w0, w1, w2 = e[0] * dx + r0, e[3] * dx + r1, e[6] * dx + r2
        if (w0 < -e[15] or w1 < -e[16] or w2 < -e[17]) and (w0 > e[15] or w1 > e[16] or w2 > e[17]):
            continue
        along = e[9] * dx + rn
        if along == 0.0 or abs(w0 + w1 + w2) <= e[15] + e[16] + e[17]:  # edge-on, or no area
            continue
        z = e[12] / along
        if z < near:
            continue
        z = min(max(z, e[13]), e[14])  # nearly edge-on: rounding must not carry the hit off the triangle
        if near <= z < depth[u]:
            depth[u] = z
            face_index[u] = face


@njit(parallel=True, cache=True)
def _barycentric(
    face_index: np.ndarray, planes: np.ndarray, fx: float, fy: float, cx: float, cy: float, barycentric: np.ndarray
) -> None:
    for v in prange(face_index.shape[0]):
        dy = (v - cy) / fy
        for u in range(face_index.shape[1]):
            if face_index[v, u] >= 0:
                e = planes[face_index[v, u]]
                dx = (u - cx) / fx
                w0 = e[0] * dx + (e[1] * dy + e[2])
                w1 = e[3] * dx + (e[4] * dy + e[5])
                w2 = e[6] * dx + (e[7] * dy + e[8])
                sign = 1.0 if w0 + w1 + w2 > 0 else -1.0
                w0, w1, w2 = max(sign * w0, 0.0), max(sign * w1, 0.0), max(sign * w2, 0.0)
                total = w0 + w1 + w2
                barycentric[v, u, 0] = w0 / total
                barycentric[v, u, 1] = w1 / total
                barycentric[v, u, 2] = w2 / total
