"""What a simulated depth camera does pixel by pixel: it looks a little beside each, and sees some at grazing angles.

The same operations in the same order as on whole arrays, to the bit, without a dozen arrays of an image's size.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit


@njit(cache=True)
def look_beside(depth: np.ndarray, shift: np.ndarray, edge_relative: float, out: np.ndarray) -> None:
    """Depth [m] where every pixel really looks: 1/z interpolated (exact on a plane), the nearest pixel's at edges.

    depth (h, w) [m], 0 where nothing is; out the same. shift (2, h, w): down and to the right [px]. edge_relative: of
    four neighbours that differ by more than this fraction of the nearest one's depth, none is interpolated.
    """
    height, width = depth.shape
    for v in range(height):
        for u in range(width):
            v_at = min(max(v + shift[0, v, u], 0.0), height - 1.0)
            u_at = min(max(u + shift[1, v, u], 0.0), width - 1.0)
            v0, u0 = min(int(v_at), max(height - 2, 0)), min(int(u_at), max(width - 2, 0))
            v1, u1 = min(v0 + 1, height - 1), min(u0 + 1, width - 1)
            a, b, c, d = depth[v0, u0], depth[v0, u1], depth[v1, u0], depth[v1, u1]
            low = min(a, b, c, d)
            if low > 0.0 and max(a, b, c, d) - low <= edge_relative * low:
                s, t = u_at - u0, v_at - v0
                above, below = (1 - s) * (1.0 / a) + s * (1.0 / b), (1 - s) * (1.0 / c) + s * (1.0 / d)
                out[v, u] = 1.0 / ((1 - t) * above + t * below)
            else:
                out[v, u] = depth[int(np.rint(v_at)), int(np.rint(u_at))]


@njit(cache=True)
def _nearness(depth: float) -> float:
    return 1.0 / depth if depth > 0.0 else np.nan


@njit(cache=True)
def _slope(before: float, here: float, after: float) -> float:
    """Of the two one-sided slopes the smaller, which stays on the surface at an edge; 0 where there is none."""
    back, ahead = here - before, after - here
    out = back if not abs(back) > abs(ahead) and not np.isnan(back) else ahead
    return 0.0 if np.isnan(out) else out


@njit(cache=True)
def facing(depth: np.ndarray, rays: np.ndarray, fx_px: float, fy_px: float, out: np.ndarray) -> None:
    """Cosine between each ray and the surface normal, (h, w); 1 where nothing is seen.

    depth (h, w) [m], 0 where nothing is. rays (h, w, 3): of the pixels, third component 1. fx_px, fy_px: focal lengths.
    """
    height, width = depth.shape
    for v in range(height):
        for u in range(width):
            if not depth[v, u] > 0.0:
                out[v, u] = 1.0
                continue
            here, x, y = _nearness(depth[v, u]), rays[v, u, 0], rays[v, u, 1]
            left = _nearness(depth[v, u - 1]) if u > 0 else np.nan
            right = _nearness(depth[v, u + 1]) if u < width - 1 else np.nan
            above = _nearness(depth[v - 1, u]) if v > 0 else np.nan
            below = _nearness(depth[v + 1, u]) if v < height - 1 else np.nan
            a, b = _slope(left, here, right) * fx_px, _slope(above, here, below) * fy_px
            c = here - (a * x + b * y)
            lengths = np.sqrt(a * a + b * b + c * c) * np.sqrt(x * x + y * y + 1.0)
            out[v, u] = min(here / (lengths if lengths > 0.0 else 1.0), 1.0)
