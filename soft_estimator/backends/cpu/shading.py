"""Light on surfaces: depth maps of many lamps, what they let through, and the colour that a lit surface has."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange
from soft_estimator.backends.cpu.raster import checked_mesh, draw_row, largest_ray, set_up_plane

# Parallel are the loops over lamps, which take nearly all of a picture's time; the others are not worth compiling so.
CHUNK = 1024  # points per parallel chunk; fixed, so the work split (and every bit) is the same for any thread count


def depth_maps(
    vertices: np.ndarray,
    faces: np.ndarray,
    positions: np.ndarray,
    rotations: np.ndarray,
    focal_px: float,
    size_px: int,
) -> np.ndarray:
    """What each of many lamps sees of a mesh that lies wholly before it: depths [m], inf where nothing.

    Args:
        vertices: corner positions in the world [m], shape (nv, 3). faces: corner indices, shape (nf, 3).
        positions, rotations, focal_px: of the lamps, as in `gather_light`.

    Returns:
        shape (nl, size_px, size_px).
    """
    corners, triangles = checked_mesh(vertices, faces, focal_px, focal_px, size_px, size_px, 1.0)
    maps = np.full((len(positions), size_px, size_px), np.inf)
    _draw_maps(corners, triangles, positions, rotations, focal_px, maps)
    return maps


def gather_light(
    points: np.ndarray,
    normals: np.ndarray,
    positions: np.ndarray,
    rotations: np.ndarray,
    weights: np.ndarray,
    focal_px: float,
    depth_maps: np.ndarray,
    bias: float,
    turn: np.ndarray | None = None,
    turns: int = 1,
) -> np.ndarray:
    """Light that reaches surface points from distant lamps, each with the depth map of what it sees.

    Args:
        points: surface points [m], shape (n, 3).
        normals: unit normals, shape (n, 3).
        positions: lamp positions [m], shape (nl, 3).
        rotations: lamp frames (x right, y down, z towards the scene) to world, shape (nl, 3, 3).
        weights: strength of each lamp, shape (nl,).
        focal_px: focal length of the square depth maps [px].
        depth_maps: depth seen by each lamp [m], inf where nothing, shape (nl, size, size).
        bias: points this far [m] behind the recorded depth still count as lit.
        turn: of each point, (n,), rising, in 0..turns - 1: it asks only lamps whose number leaves that over `turns`.

    Returns:
        sum over lamps of weight * max(normal . direction to the lamp, 0) * visible fraction, shape (n,).
    """
    light = np.zeros(len(points))
    asked = np.full(len(points), -1, np.int8) if turn is None else np.ascontiguousarray(turn, np.int8)
    frames = (positions, rotations, weights, focal_px, depth_maps)
    _gather_light(points, normals, *frames, bias, asked, turns, light)
    return light


@njit(parallel=True, cache=True)
def _draw_maps(
    vertices: np.ndarray,
    faces: np.ndarray,
    positions: np.ndarray,
    rotations: np.ndarray,
    focal: float,
    maps: np.ndarray,
) -> None:
    """Draw a mesh into depth maps (nl, size, size), a lamp at a time."""
    size = maps.shape[1]
    centre = 0.5 * (size - 1)
    d_max = largest_ray(focal, focal, centre, centre, size, size)
    for lamp in prange(positions.shape[0]):
        r, seen, pixel = rotations[lamp], np.empty_like(vertices), np.empty((vertices.shape[0], 2))
        for i in range(vertices.shape[0]):
            px, py, pz = (
                vertices[i, 0] - positions[lamp, 0],
                vertices[i, 1] - positions[lamp, 1],
                vertices[i, 2] - positions[lamp, 2],
            )
            for k in range(3):
                seen[i, k] = r[0, k] * px + r[1, k] * py + r[2, k] * pz
            per_z = focal / seen[i, 2]
            pixel[i, 0], pixel[i, 1] = seen[i, 0] * per_z + centre, seen[i, 1] * per_z + centre
        plane, box, nobody = np.empty(18), np.empty(4, dtype=np.int32), np.empty(size, dtype=np.int32)
        for f in range(faces.shape[0]):
            a, b, c = faces[f, 0], faces[f, 1], faces[f, 2]
            for k in range(2):  # most of a fine mesh lies between the pixels
                p, q, s = pixel[a, k], pixel[b, k], pixel[c, k]
                box[2 * k] = int(np.ceil(max(min(p, q, s) - 1e-6, 0.0)))
                box[2 * k + 1] = int(np.floor(min(max(p, q, s) + 1e-6, size - 1.0)))
            if box[0] > box[1] or box[2] > box[3]:
                continue
            set_up_plane(seen, faces[f], d_max, plane)
            for v in range(box[2], box[3] + 1):
                draw_row(plane, v, box[0], box[1], focal, focal, centre, centre, 0.0, f, maps[lamp, v], nobody)


@njit(parallel=True, cache=True)
def _gather_light(
    points: np.ndarray,
    normals: np.ndarray,
    positions: np.ndarray,
    rotations: np.ndarray,
    weights: np.ndarray,
    focal: float,
    maps: np.ndarray,
    bias: float,
    turn: np.ndarray,
    turns: int,
    light: np.ndarray,
) -> None:
    size = maps.shape[1]
    centre, last = 0.5 * (size - 1), float(size - 1)
    for chunk in prange((points.shape[0] + CHUNK - 1) // CHUNK):
        begin, end = chunk * CHUNK, min((chunk + 1) * CHUNK, points.shape[0])
        for lamp in range(positions.shape[0]):
            r, now = rotations[lamp], lamp % turns
            if turn[begin] == turn[end - 1] and 0 <= turn[begin] != now:  # in order of their turns they ask together
                continue
            for i in range(begin, end):
                if 0 <= turn[i] != now:
                    continue
                facing = -(normals[i, 0] * r[0, 2] + normals[i, 1] * r[1, 2] + normals[i, 2] * r[2, 2])
                if facing <= 0.0:
                    continue
                px, py, pz = (
                    points[i, 0] - positions[lamp, 0],
                    points[i, 1] - positions[lamp, 1],
                    points[i, 2] - positions[lamp, 2],
                )
                z = r[0, 2] * px + r[1, 2] * py + r[2, 2] * pz
                u = focal * (r[0, 0] * px + r[1, 0] * py + r[2, 0] * pz) + centre * z  # times z, as most points are
                v = focal * (r[0, 1] * px + r[1, 1] * py + r[2, 1] * pz) + centre * z  # beside the map
                visible = 1.0
                if 0.0 <= u < last * z and 0.0 <= v < last * z:
                    u, v = u / z, v / z
                    iu, iv = min(int(u), size - 2), min(int(v), size - 2)
                    su, sv = u - iu, v - iv
                    visible = (1 - sv) * (1 - su) * (maps[lamp, iv, iu] >= z - bias)
                    visible += (1 - sv) * su * (maps[lamp, iv, iu + 1] >= z - bias)
                    visible += sv * (1 - su) * (maps[lamp, iv + 1, iu] >= z - bias)
                    visible += sv * su * (maps[lamp, iv + 1, iu + 1] >= z - bias)
                light[i] += weights[lamp] * facing * visible


@njit(cache=True)
def surface_samples(
    face: np.ndarray,
    weight: np.ndarray,
    corners: np.ndarray,
    corner_normals: np.ndarray,
    eye: np.ndarray,
    points: np.ndarray,
    normals: np.ndarray,
    views: np.ndarray,
) -> None:
    """Points on faces (n,) at barycentric weights (n, 3): where they are [m], their unit normals on the side that is
    seen, and the unit vectors towards the eye, out (n, 3) each.

    corners [m], corner_normals: (nf, 3, 3). eye: where the camera is [m].
    """
    for i in range(face.shape[0]):
        f, along, size, far = face[i], 0.0, 0.0, 0.0
        for a in range(3):
            point, normal = 0.0, 0.0
            for c in range(3):
                point += weight[i, c] * corners[f, c, a]
                normal += weight[i, c] * corner_normals[f, c, a]
            points[i, a], normals[i, a], views[i, a] = point, normal, eye[a] - point
            far += views[i, a] * views[i, a]
            size += normal * normal
            along += views[i, a] * normal
        far, size = np.sqrt(far), max(np.sqrt(size), 1e-300)
        side = -1.0 if along < -0.2 * far else 1.0  # the inside of an open mesh
        for a in range(3):
            normals[i, a] *= side / size
            views[i, a] /= far


@njit(cache=True)
def shade_samples(
    face: np.ndarray,
    weight: np.ndarray,
    colours: np.ndarray,
    gloss: np.ndarray,
    normals: np.ndarray,
    views: np.ndarray,
    up: np.ndarray,
    towards: np.ndarray,
    from_key: np.ndarray,
    from_sky: np.ndarray,
    key: np.ndarray,
    sky: np.ndarray,
    bounce: float,
    out: np.ndarray,
) -> None:
    """Linear RGB of surface points, out (n, 3): lamp, sky, light from the ground, highlight and a faint bright rim.

    face, weight, normals, views: as in `surface_samples`. colours: of the corners, linear (nf, 3, 3). gloss: (nf,).
    towards: where the lamp is. from_key, from_sky: what of them reaches the points, (n,). key, sky: their colours times
    strength, (3,). bounce: strength of the light from the ground.
    """
    for i in range(face.shape[0]):
        f, rise, half, shine, rim = face[i], 0.0, 0.0, 0.0, 0.0
        for a in range(3):
            rise += normals[i, a] * up[a]
            middle = views[i, a] + towards[a]
            half += middle * middle
            shine += middle * normals[i, a]
            rim += views[i, a] * normals[i, a]
        shine = max(shine / np.sqrt(half), 0.0) ** 40 * min(2.0 * from_key[i], 1.0)
        rim = (1.0 - min(max(rim, 0.0), 1.0)) ** 4 * from_sky[i]
        bright, ground = gloss[f] * (shine + 0.5 * rim), bounce * (0.85 - 0.5 * rise)
        for a in range(3):
            colour = weight[i, 0] * colours[f, 0, a] + weight[i, 1] * colours[f, 1, a] + weight[i, 2] * colours[f, 2, a]
            out[i, a] = colour * (from_key[i] * key[a] + from_sky[i] * sky[a] + ground) + bright
