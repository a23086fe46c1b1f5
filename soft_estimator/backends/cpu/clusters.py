"""Connected pieces of a cloud: over the pixels of an organised one, over the voxels of any other.

Labels count from 0 in the order of each piece's first point, -1 for points left out; the result depends on nothing but
the input. Union-find with path halving, the lower root winning, runs serially: it is a small part of a frame's time.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.cloud import _depth, _hash
from soft_estimator.backends.cpu.compiled import njit, prange


@njit(cache=True)
def _root(parent: np.ndarray, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@njit(cache=True)
def _join(parent: np.ndarray, i: int, j: int) -> None:
    a, b = _root(parent, i), _root(parent, j)
    if a < b:
        parent[b] = a
    elif b < a:
        parent[a] = b


@njit(cache=True)
def _number(parent: np.ndarray, used: np.ndarray, label: np.ndarray) -> int:
    """Number the roots in order of appearance; label (n,) is written, -1 where not used."""
    found = 0
    for i in range(parent.shape[0]):
        if not used[i]:
            label[i] = -1
            continue
        r = _root(parent, i)
        if r == i:
            label[i] = found
            found += 1
        else:
            label[i] = label[r]  # r < i, so it has its number
    return found


@njit(cache=True)
def cluster_image(
    points: np.ndarray,
    width: int,
    height: int,
    used: np.ndarray,
    std: np.ndarray,
    sensor: np.ndarray,
    axis: np.ndarray,
    pitch: float,
    slope: float,
    sigmas: float,
    steep: np.ndarray,
    label: np.ndarray,
) -> int:
    """Pieces of an organised cloud; the number of pieces.

    Two used pixels up to two apart in the image belong together when their depths differ by less than noise (sigmas ·
    √2 std) and a steep surface (slope · their distance) explain. Reaching over two pixels bridges single lost ones.
    steep: (n,) [m], the rise of depth per pixel of a surface known to be steeper, 0 elsewhere.
    """
    parent = np.arange(points.shape[0])
    for v in range(height):
        for u in range(width):
            i = v * width + u
            if not used[i]:
                continue
            depth = _depth(points, i, sensor, axis)
            step = slope * pitch * depth
            reach = sigmas * 1.4142 * std[i]
            for dv in range(-2, 1):
                for du in range(-2, 3):
                    if dv == 0 and du >= 0:
                        continue
                    v2, u2 = v + dv, u + du
                    if v2 < 0 or u2 < 0 or u2 >= width:
                        continue
                    j = v2 * width + u2
                    if not used[j]:
                        continue
                    far = max(step, steep[i], steep[j]) * float(max(abs(dv), abs(du)))
                    if abs(_depth(points, j, sensor, axis) - depth) < reach + far:
                        _join(parent, i, j)
    return _number(parent, used, label)


@njit(cache=True)
def cluster_voxels(
    points: np.ndarray,
    used: np.ndarray,
    origin: np.ndarray,
    voxel: float,
    least: int,
    sparse: float,
    table_size: int,
    label: np.ndarray,
) -> int:
    """Pieces of any cloud; the number of pieces.

    Points in the same or in touching voxels belong together. Voxels that hold, with their 26 neighbours, fewer than
    `least` points or less than the share `sparse` of what is usual are left out. table_size: a power of two, larger
    than the point count.
    """
    slots = np.full(table_size, -1, dtype=np.int64)
    keys = np.empty((points.shape[0], 3), dtype=np.int64)
    home = np.full(points.shape[0], -1, dtype=np.int64)
    count = np.zeros(points.shape[0], dtype=np.int64)
    found = 0
    for i in range(points.shape[0]):
        if not used[i]:
            continue
        a = int(np.floor((points[i, 0] - origin[0]) / voxel))
        b = int(np.floor((points[i, 1] - origin[1]) / voxel))
        c = int(np.floor((points[i, 2] - origin[2]) / voxel))
        slot = _find(slots, keys, a, b, c)
        k = slots[slot]
        if k < 0:
            k = found
            slots[slot] = k
            keys[k, 0], keys[k, 1], keys[k, 2] = a, b, c
            found += 1
        count[k] += 1
        home[i] = k
    parent, dense = _join_voxels(slots, keys, count, found, least, sparse)
    voxel_label = np.empty(found, dtype=np.int64)
    pieces = _number(parent, dense, voxel_label)
    for i in range(points.shape[0]):
        label[i] = voxel_label[home[i]] if home[i] >= 0 else -1
    return pieces


@njit(cache=True)
def _find(slots: np.ndarray, keys: np.ndarray, a: int, b: int, c: int) -> int:
    """The slot that holds this voxel, or the free one where it belongs."""
    mask = slots.shape[0] - 1
    slot = _hash(a, b, c) & mask
    while slots[slot] >= 0:
        k = slots[slot]
        if keys[k, 0] == a and keys[k, 1] == b and keys[k, 2] == c:
            break
        slot = (slot + 1) & mask
    return slot


@njit(cache=True)
def _join_voxels(
    slots: np.ndarray, keys: np.ndarray, count: np.ndarray, found: int, least: int, sparse: float
) -> tuple[np.ndarray, np.ndarray]:
    """Union-find parents of the voxels, and which of them are dense enough."""
    parent = np.arange(found)
    around = np.zeros(found, dtype=np.int64)
    for k in range(found):
        for da in range(-1, 2):
            for db in range(-1, 2):
                for dc in range(-1, 2):
                    other = slots[_find(slots, keys, keys[k, 0] + da, keys[k, 1] + db, keys[k, 2] + dc)]
                    if other >= 0:
                        around[k] += count[other]
    dense = around >= max(float(least), sparse * _typical(around, count[:found]))
    for k in range(found):
        if not dense[k]:
            continue
        for da in range(-1, 2):
            for db in range(-1, 2):
                for dc in range(-1, 2):
                    other = slots[_find(slots, keys, keys[k, 0] + da, keys[k, 1] + db, keys[k, 2] + dc)]
                    if other >= 0 and dense[other]:
                        _join(parent, k, other)
    return parent, dense


@njit(cache=True)
def _typical(around: np.ndarray, count: np.ndarray) -> float:
    """Median over the points of what is around them; counted, not sorted, which takes seconds to compile."""
    points, most = 0, 0
    for k in range(around.shape[0]):
        points += count[k]
        most = max(most, around[k])
    with_so_many = np.zeros(most + 1, dtype=np.int64)
    for k in range(around.shape[0]):
        with_so_many[around[k]] += count[k]
    passed = 0
    for n in range(most + 1):
        passed += with_so_many[n]
        if points > 0 and 2 * passed >= points:
            return float(n)
    return 0.0


@njit(parallel=True, cache=True)
def mark_pieces(label: np.ndarray, small: np.ndarray, speck: int, other: int, why: np.ndarray) -> None:
    """Say why points are left out: those of no piece or of a small one as specks, the rest as other pieces.

    label: piece of each point, negative for none, (n,). small: of each piece. why: (n,), 0 for not left out so far.
    """
    for i in prange(label.shape[0]):
        if label[i] >= 0:
            why[i] = speck if small[label[i]] else other
        elif why[i] == 0:
            why[i] = speck
