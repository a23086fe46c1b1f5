"""Shapes of obstacles in their own frames, from the formulas: distance, gradient and curvature at points y (P, 3) [m].

A shape is a row of `layout.OBSTACLE`, by name; a field's table holds coefficients of cubic B-splines, two nodes more
than the grid on every side.
"""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.layout import FIELD, HALF_SPACE

_LEAST = 1e-12  # [m]: closer to a core there is no direction


def distance(o: SimpleNamespace, y: Array) -> Array:
    """Signed distance (P,) [m], negative inside."""
    if o.kind == HALF_SPACE:
        return y[:, 2].copy()
    if o.kind == FIELD:
        _, _, away = _cell(o, y)
        return np.where(away > 0, away + o.farthest_m, _spline(o, y, (0, 0, 0)))
    beyond = np.max(np.abs(y) - o.half_m, axis=1)
    return np.linalg.norm(_arm(o, y), axis=1) + np.minimum(beyond, 0.0) - o.radius_m


def gradient(o: SimpleNamespace, y: Array) -> Array:
    """Of the distance, (P, 3)."""
    if o.kind == HALF_SPACE:
        return np.tile([0.0, 0.0, 1.0], (len(y), 1))
    if o.kind == FIELD:
        return np.stack([_spline(o, y, order) for order in ((1, 0, 0), (0, 1, 0), (0, 0, 1))], axis=1)
    arm, out = _arm(o, y), np.zeros_like(y)
    for n, a, at in zip(out, arm, y):
        if a.any():
            n[:] = a / max(float(np.linalg.norm(a)), _LEAST)
        else:  # within the core: out by the nearest side
            axis = int(np.argmax(np.abs(at) - o.half_m))
            n[axis] = -1.0 if at[axis] < 0 else 1.0
    return out


def curvature(o: SimpleNamespace, y: Array) -> Array:
    """Second derivatives of the distance (P, 3, 3) [1/m]."""
    out = np.zeros((len(y), 3, 3))
    if o.kind == FIELD:
        for a, b in product(range(3), repeat=2):
            out[:, a, b] = _spline(o, y, tuple((a == k) + (b == k) for k in range(3)))
    elif o.kind != HALF_SPACE:
        for c, n, arm in zip(out, gradient(o, y), _arm(o, y)):
            if arm.any():
                c[...] = (np.diag(arm != 0) - np.outer(n, n)) / max(float(np.linalg.norm(arm)), _LEAST)
    return out


def _arm(o: SimpleNamespace, y: Array) -> Array:
    """From the box that a round shape is drawn around to the points."""
    return y - np.clip(y, -o.half_m, o.half_m)


def _cell(o: SimpleNamespace, y: Array) -> tuple[Array, Array, Array]:
    """Lowest nodes of the cells (P, 3), places within them in 0-1, and the way back to the grid (P,) [m]."""
    s, last = (y - o.grid_origin_m) / o.grid_spacing_m, o.grid_nodes - 1.0
    inside = np.clip(s, 0.0, last)
    lowest = np.minimum(np.floor(inside), last - 1).astype(int)
    return lowest, inside - lowest, o.grid_spacing_m * np.linalg.norm(s - inside, axis=1)


def _spline(o: SimpleNamespace, y: Array, orders: tuple[int, ...]) -> Array:
    """A derivative of the spline, of an order along each axis, (P,)."""
    lowest, t, _ = _cell(o, y)
    i, j, k = (lowest[:, axis, None] + 1 + np.arange(4) for axis in range(3))
    near = o.table[i[:, :, None, None], j[:, None, :, None], k[:, None, None, :]]
    weights = [_weights(t[:, axis], order) for axis, order in enumerate(orders)]
    return np.einsum("pijk,pi,pj,pk->p", near, *weights, optimize=True) / o.grid_spacing_m ** sum(orders)


def _weights(t: Array, order: int) -> Array:
    """The four weights (P, 4) of a uniform cubic B-spline at t in 0-1, or a derivative of theirs."""
    cubes = map(np.polynomial.Polynomial, ([1, -3, 3, -1], [4, 0, -6, 3], [1, 3, 3, -3], [0, 0, 0, 1]))
    weights: Array = np.stack([(cube.deriv(order) if order else cube)(t) for cube in cubes], axis=1)
    return weights / 6.0
