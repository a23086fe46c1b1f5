"""The unseen back of a body that is as deep as it is wide: its front mirrored at its rim.

The rim is where a camera's rays graze the body: along its outline, and where one part of it hides another. There the
surface falls away from the camera, and s pixels inside the rim its depth is P - c √s. P is taken from that law all
along the rim and continued smoothly across the image (Δ P = 0, no flux across edges in depth). A ray that enters the
body at depth d then leaves it at 2 P - d: exact for a ball, an ellipsoid or a rod however it lies.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage, sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve

from soft_estimator.perception.fusion import Field, View

_JUMP_PX = 12.0  # a step in depth of so many pixels' width parts two surfaces
_LOST_PX = 1.5  # the rim lies half a pixel outside the last one, and edge removal takes one more
_REACH_PX = 6.0  # so far inside it the law of the root is followed
_POOL_PX = 2.0  # neighbours along the rim, that are fitted together
_HELD = 1e3  # how firmly the rim holds P where it is known
_DEEPEST = 0.8  # times its thickness; the back of a ball is √½ of it from the rim of its front
_RADII = 12  # of the balls that are tried to find how thick a part is
_NEIGHBOURS = ((0, 1), (1, 0), (0, -1), (-1, 0))


def round_back_m(
    field: Field, views: list[View], frame: tuple[np.ndarray, np.ndarray], thickness: float = 1.0
) -> np.ndarray:
    """φ [m] of the space behind what was seen, of the field's shape, cut off at its truncation: negative up to where
    each view's rays leave the body again. Several views each take away what they know to be outside.

    thickness: times as thick as the mirrored front makes it.
    """
    shape, limit = field.total.shape, field.truncation_m
    nodes = field.origin_m + field.spacing_m * np.stack(np.unravel_index(np.arange(field.total.size), shape), axis=-1)
    world, out = nodes @ frame[0].T + frame[1], np.full(field.total.size, -limit)
    for group in _same_pose(views):
        view, body, depth = _together(group)
        lens = view.lens
        rear = depth + thickness * (rear_depth_m(depth, body, max(lens.fx_px, lens.fy_px)) - depth)
        local = (world - view.translation_m) @ view.rotation
        with np.errstate(divide="ignore", invalid="ignore"):
            u = np.rint(lens.fx_px * local[:, 0] / local[:, 2] + lens.cx_px)
            v = np.rint(lens.fy_px * local[:, 1] / local[:, 2] + lens.cy_px)
        seen = (local[:, 2] > 0) & (u >= 0) & (v >= 0) & (u < body.shape[1]) & (v < body.shape[0])
        at = (v[seen].astype(np.int64), u[seen].astype(np.int64))
        behind = np.full(len(nodes), limit)
        behind[seen] = np.where(body[at], local[seen, 2] - rear[at], limit)
        out = np.maximum(out, behind)
    return np.clip(out, -limit, limit).reshape(shape)


def without_tails(phi: np.ndarray, near: np.ndarray, outside_m: float) -> np.ndarray:
    """φ without parts that reach farther behind what was seen than they are thick.

    The back of a ball or a rod is within its own thickness of its front. Where the rim's depth is wrong, a few rays
    leave the body far too late, and a thin tail of them points away from the camera.

    Args:
        phi: of any shape (nx, ny, nz), negative inside. near: nodes that were measured near the surface, the same
            shape. outside_m: φ of what is cut off.
    """
    inside = phi < 0
    if not near.any():
        return phi
    away = ndimage.distance_transform_edt(~near)
    return np.where(inside & (away > _DEEPEST * _thickness(inside) + 1), outside_m, phi)


def _thickness(inside: np.ndarray) -> np.ndarray:
    """Diameter, in voxels, of the largest ball within a body that a node lies in; 0 outside, the body's shape."""
    depth = ndimage.distance_transform_edt(inside)
    radius = depth.copy()
    for r in np.linspace(1.0, float(depth.max(initial=1.0)), _RADII):
        covered = inside & (ndimage.distance_transform_edt(depth < r) < r)
        radius[covered] = np.maximum(radius[covered], r)
    return 2.0 * radius


def rear_depth_m(depth_m: np.ndarray, body: np.ndarray, focal_px: float) -> np.ndarray:
    """Where the rays of an image leave the body, (h, w) [m], from where they enter it; as deep as `depth_m` elsewhere.

    Args:
        depth_m: (h, w) [m]. body: pixels of the object, (h, w) bool. focal_px: of the camera.
    """
    jump = _JUMP_PX * float(np.median(depth_m[body])) / focal_px
    rim, laplacian = _rim(depth_m, body, jump)
    held = _HELD * rim[body] + 1e-6  # a part without a rim stays where it is seen
    part = np.full(body.shape, -1)
    part[body] = connected_components(laplacian, directed=False)[1]
    known = depth_m.copy()
    for number in np.unique(part[rim]):  # the rims of two parts may lie side by side
        own = part == number
        known[own & rim] = _rim_depth_m(depth_m, own, own & rim, jump)[own & rim]
    middle = spsolve((laplacian + sparse.diags(held)).tocsc(), held * known[body])
    rear = depth_m.copy()
    rear[body] = np.maximum(2 * middle - depth_m[body], depth_m[body])
    return rear


def _rim(depth: np.ndarray, body: np.ndarray, jump: float) -> tuple[np.ndarray, sparse.csr_matrix]:
    """Pixels at whose edge something farther begins, (h, w) bool, and -Δ over the body's pixels, edges left out."""
    near, count = np.where(body, depth, np.inf), int(body.sum())
    number = np.full(body.shape, -1, dtype=np.int64)
    number[body] = np.arange(count)
    rim, rows, columns = np.zeros_like(body), [], []
    for step in _NEIGHBOURS:
        beside, other = _moved(near, step, np.inf), _moved(number, step, -1)
        rim |= body & (beside > near + jump)
        linked = body & (other >= 0) & (np.abs(beside - depth) < jump)
        rows.append(number[linked])
        columns.append(other[linked])
    row, column = np.concatenate(rows), np.concatenate(columns)
    links = sparse.csr_matrix((np.ones(len(row)), (row, column)), (count, count))
    return rim, sparse.diags(np.asarray(links.sum(axis=1)).ravel()) - links


def _rim_depth_m(depth: np.ndarray, body: np.ndarray, rim: np.ndarray, jump: float) -> np.ndarray:
    """P [m] at the rim's pixels, (h, w): d = P - c √s fitted to the pixels inside it, neighbours along it pooled."""
    away, nearest = ndimage.distance_transform_edt(~rim, return_indices=True)
    # Across an edge in depth the nearest rim is another surface's.
    band = body & (away <= _REACH_PX) & (depth[tuple(nearest)] > depth - jump)
    root, place = np.sqrt(away[band] + _LOST_PX), (nearest[0][band], nearest[1][band])
    sums = []
    for value in (np.ones_like(root), root, root**2, depth[band], depth[band] * root):
        image = np.zeros(body.shape)
        np.add.at(image, place, value)
        sums.append(ndimage.gaussian_filter(image, _POOL_PX))
    one, first, second, total, along = sums
    spread = one * second - first**2
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(spread > 1e-12, (second * total - first * along) / spread, depth)
    return np.maximum(found, depth)


def _moved(image: np.ndarray, step: tuple[int, int], fill: float) -> np.ndarray:
    """What is beside each pixel, a step (rows, columns) away."""
    padded = np.pad(image, 1, constant_values=fill)
    rows, columns = image.shape
    return padded[1 + step[0] : 1 + step[0] + rows, 1 + step[1] : 1 + step[1] + columns]


def _same_pose(views: list[View]) -> list[list[View]]:
    """The views by where their cameras stood."""
    groups: list[list[View]] = []
    for view in views:
        for group in groups:
            first = group[0]
            if np.allclose(view.translation_m, first.translation_m, atol=1e-6) and np.allclose(
                view.rotation, first.rotation
            ):
                group.append(view)
                break
        else:
            groups.append([view])
    return groups


def _together(views: list[View]) -> tuple[View, np.ndarray, np.ndarray]:
    """A view of one pose, the pixels that most of its views take for the object, gaps closed, and their mean depth."""
    votes = np.sum([view.body for view in views], axis=0)
    known = 2 * votes > len(views)
    total = np.sum([np.where(view.body, view.depth_m, 0.0) for view in views], axis=0)
    filled = ndimage.binary_closing(known, iterations=2) | known
    nearest = ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True)
    depth = np.divide(total, votes, out=np.zeros_like(total), where=votes > 0)
    return views[0], filled, depth[tuple(nearest)]
