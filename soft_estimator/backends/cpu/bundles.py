"""Means over bundles of a camera's neighbouring rays."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit

_FEW = 32  # up to here insertion is the fastest; its cost grows with the square of the number


@njit(cache=True)
def _sort_by_depth(order: np.ndarray, begin: int, end: int, depth: np.ndarray, spare: np.ndarray) -> None:
    """Sort order[begin:end] by depth; points of equal depth keep their order.

    By insertion, a few at a time, which are merged; NumPy's own sort takes eight seconds to compile. spare: like order.
    """
    for first in range(begin, end, _FEW):
        for i in range(first + 1, min(first + _FEW, end)):
            k = order[i]
            j = i - 1
            while j >= first and depth[order[j]] > depth[k]:
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = k
    width = _FEW
    while width < end - begin:
        for first in range(begin, end - width, 2 * width):
            middle, last = first + width, min(first + 2 * width, end)
            for e in range(first, last):
                spare[e] = order[e]
            i, j = first, middle
            for e in range(first, last):
                if j == last or (i < middle and depth[spare[i]] <= depth[spare[j]]):
                    order[e] = spare[i]
                    i += 1
                else:
                    order[e] = spare[j]
                    j += 1
        width *= 2


@njit(cache=True)
def bundle_means(
    place: np.ndarray, std: np.ndarray, low: np.ndarray, width: float, columns: int, rows: int, gap: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean place, mean std and number of points of every surface in every bundle.

    Surfaces of a bundle lie farther apart in depth than gap · std. One seen so obliquely that it runs as deep itself
    gets four bundles of half the width.

    Args:
        place: across, across and along the view, (n, 3). std: (n,). low: least of the first two, (2,).
        width: of a bundle. columns, rows: how many there are. gap: in standard deviations.
    Returns:
        (m, 3), (m,), (m,), in the order of the bundles.
    """
    n = place.shape[0]
    bundle = np.empty(n, np.int64)
    start = np.zeros(columns * rows + 1, np.int64)
    for i in range(n):
        a = min(columns - 1, int((place[i, 0] - low[0]) / width))
        b = min(rows - 1, int((place[i, 1] - low[1]) / width))
        bundle[i] = a * rows + b
        start[bundle[i] + 1] += 1
    for c in range(columns * rows):
        start[c + 1] += start[c]
    order, spare, filled = np.empty(n, np.int64), np.empty(n, np.int64), start[:-1].copy()
    depth = place[:, 2].copy()
    for i in range(n):
        order[filled[bundle[i]]] = i
        filled[bundle[i]] += 1
    # One more than there can be: where every point is a surface of its own, the last quarters looked at are empty.
    mean, spread, count = np.zeros((n + 1, 3)), np.zeros(n + 1), np.zeros(n + 1, np.int64)
    found = 0
    for c in range(columns * rows):
        _sort_by_depth(order, start[c], start[c + 1], depth, spare)
        begin = start[c]
        while begin < start[c + 1]:
            end = begin + 1
            while end < start[c + 1] and place[order[end], 2] - place[order[end - 1], 2] <= gap * std[order[end]]:
                end += 1
            oblique = place[order[end - 1], 2] - place[order[begin], 2] > gap * std[order[begin]]
            for quarter in range(4 if oblique else 1):
                for e in range(begin, end):
                    i = order[e]
                    if oblique:
                        right = (place[i, 0] - low[0]) / width % 1.0 >= 0.5
                        above = (place[i, 1] - low[1]) / width % 1.0 >= 0.5
                        if quarter != 2 * np.int64(right) + np.int64(above):
                            continue
                    count[found] += 1
                    spread[found] += std[i]
                    for axis in range(3):
                        mean[found, axis] += place[i, axis]
                if count[found] > 0:
                    spread[found] /= count[found]
                    for axis in range(3):
                        mean[found, axis] /= count[found]
                    found += 1
            begin = end
    return mean[:found].copy(), spread[:found].copy(), count[:found].copy()
