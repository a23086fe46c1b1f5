"""Integrals over the inside of a cut cell and over the surface in it.

Each cell is split into n³ sub-cells, at whose corners φ is given, and each of those into 24 tetrahedra that share the
sub-cell's centre and a face centre, where φ is the mean of the corners. Neighbouring cells agree on every shared face,
and the split has the full symmetry of the cube: no case table, and no ambiguous case. In a tetrahedron φ
is taken linear, clipped at zero and integrated exactly. All lengths here are in units of the cell edge.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange

Point = tuple[float, float, float]  # no array: those are made on the heap, and take long to compile

# Degree-6 rule of 24 points on a tetrahedron (Keast 1986), barycentric, weights positive and points inside; exact for
# x²y²z², the highest of the products N_p N_q.
_VERTEX_ORBITS = (  # (a, weight): the points with coordinates a, a, a, 1 - 3a
    (0.214602871259151684, 6.0 * 0.00665379170969464506),
    (0.0406739585346113397, 6.0 * 0.00167953517588677620),
    (0.322337890142275646, 6.0 * 0.00922619692394239843),
)
_EDGE_ORBIT = (0.0636610018750175299, 0.269672331458315867)  # (a, b): the points a, a, b, 1 - 2a - b
_EDGE_WEIGHT = 6.0 * 0.00803571428571428248


def _tetrahedron_rule() -> tuple[np.ndarray, np.ndarray]:
    points, weights = [], []
    for a, w in _VERTEX_ORBITS:
        for i in range(4):
            points.append([1.0 - 3.0 * a if j == i else a for j in range(4)])
            weights.append(w)
    a, b = _EDGE_ORBIT
    for i in range(4):
        for j in range(4):
            if i != j:
                points.append([b if k == i else 1.0 - 2.0 * a - b if k == j else a for k in range(4)])
                weights.append(_EDGE_WEIGHT)
    return np.array(points), np.array(weights)


def _triangle_rule(points_a_side: int) -> tuple[np.ndarray, np.ndarray]:
    """Collapsed Gauss rule, exact to degree 2n-2: two trilinear functions on a plane need 6, one needs 3."""
    at, share = np.polynomial.legendre.leggauss(points_a_side)
    x, w = 0.5 * (at + 1.0), 0.5 * share
    s, t = np.meshgrid(x, x, indexing="ij")
    weight = np.outer(w * (1.0 - x), w) * 2.0
    first, second = s.ravel(), ((1.0 - s) * t).ravel()
    return np.stack([first, second, 1.0 - first - second], axis=1), weight.ravel()


_TET_POINTS, _TET_WEIGHTS = _tetrahedron_rule()
_TRI_POINTS, _TRI_WEIGHTS = _triangle_rule(4)
_FEW_POINTS, _FEW_WEIGHTS = _triangle_rule(3)

# The four corners around each of the six faces of a cell, in order.
_FACE_CORNERS = np.array(
    [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)], dtype=np.int64
)


@njit(cache=True)
def _row(points: np.ndarray, i: int) -> Point:
    return points[i, 0], points[i, 1], points[i, 2]


@njit(cache=True)
def _minus(p: Point, q: Point) -> Point:
    return p[0] - q[0], p[1] - q[1], p[2] - q[2]


@njit(cache=True)
def _mixed(share: np.ndarray, p0: Point, p1: Point, p2: Point) -> Point:
    """The point of a triangle with these barycentric coordinates."""
    a, b, c = share[0], share[1], share[2]
    return (
        a * p0[0] + b * p1[0] + c * p2[0],
        a * p0[1] + b * p1[1] + c * p2[1],
        a * p0[2] + b * p1[2] + c * p2[2],
    )


@njit(cache=True)
def _add_volume(p0: Point, p1: Point, p2: Point, p3: Point, sign: float, moments: np.ndarray) -> None:
    """Add sign · ∫ xᵃ yᵇ zᶜ over one tetrahedron, exponents 0-2, to moments[9a + 3b + c], where there are any."""
    if moments.size == 0:
        return
    e1, e2, e3 = _minus(p1, p0), _minus(p2, p0), _minus(p3, p0)
    volume = (
        abs(
            e1[0] * (e2[1] * e3[2] - e2[2] * e3[1])
            - e1[1] * (e2[0] * e3[2] - e2[2] * e3[0])
            + e1[2] * (e2[0] * e3[1] - e2[1] * e3[0])
        )
        / 6.0
    )
    if volume == 0.0:
        return
    for k in range(_TET_WEIGHTS.size):
        b = _TET_POINTS[k]
        x = b[0] * p0[0] + b[1] * p1[0] + b[2] * p2[0] + b[3] * p3[0]
        y = b[0] * p0[1] + b[1] * p1[1] + b[2] * p2[1] + b[3] * p3[1]
        z = b[0] * p0[2] + b[1] * p1[2] + b[2] * p2[2] + b[3] * p3[2]
        wx = sign * volume * _TET_WEIGHTS[k]
        for i in range(3):
            wy = wx
            for j in range(3):
                m = 9 * i + 3 * j
                moments[m] += wy
                moments[m + 1] += wy * z
                moments[m + 2] += wy * z * z
                wy *= y
            wx *= x


@njit(cache=True)
def _add_box(low: Point, step: float, moments: np.ndarray) -> None:
    """Add ∫ xᵃ yᵇ zᶜ over a box of edge `step`, exponents 0-2, to moments[9a + 3b + c]."""
    power = np.empty((3, 3))
    for axis in range(3):
        a, b = low[axis], low[axis] + step
        power[axis, 0] = step
        power[axis, 1] = 0.5 * step * (a + b)
        power[axis, 2] = step * (a * a + a * b + b * b) / 3.0
    for i in range(3):
        for j in range(3):
            for k in range(3):
                moments[9 * i + 3 * j + k] += power[0, i] * power[1, j] * power[2, k]


@njit(cache=True)
def _shape_functions(x: float, y: float, z: float, value: np.ndarray, gradient: np.ndarray) -> None:
    """Trilinear N_i and ∇N_i at a point of the unit cell."""
    for i in range(8):
        fx, dx = (x, 1.0) if i & 4 else (1.0 - x, -1.0)
        fy, dy = (y, 1.0) if i & 2 else (1.0 - y, -1.0)
        fz, dz = (z, 1.0) if i & 1 else (1.0 - z, -1.0)
        value[i] = fx * fy * fz
        gradient[i, 0], gradient[i, 1], gradient[i, 2] = dx * fy * fz, fx * dy * fz, fx * fy * dz


@njit(cache=True)
def _triangle_area_and_normal(p0: Point, p1: Point, p2: Point, outward: Point) -> tuple[float, float, float, float]:
    """Area and unit normal on the side of `outward`; area 0 for a degenerate triangle."""
    a, b = _minus(p1, p0), _minus(p2, p0)
    nx, ny, nz = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
    area = 0.5 * np.sqrt(nx * nx + ny * ny + nz * nz)
    if area == 0.0:
        return 0.0, 0.0, 0.0, 0.0
    scale = 0.5 / area
    if nx * outward[0] + ny * outward[1] + nz * outward[2] < 0.0:
        scale = -scale
    return area, nx * scale, ny * scale, nz * scale


@njit(cache=True)
def _add_surface(
    p0: Point,
    p1: Point,
    p2: Point,
    outward: Point,
    surface: np.ndarray,
    value: np.ndarray,
    gradient: np.ndarray,
    triangles: np.ndarray,
) -> None:
    """Add one triangle: surface[i] += (∫N_i, ∫N_i n), or, where it is not empty, list it in the next free row of
    triangles.

    A row of triangles is p0, p1, p2, normal; triangles[-1, 0] counts the rows in use.
    """
    area, nx, ny, nz = _triangle_area_and_normal(p0, p1, p2, outward)
    if area == 0.0:
        return
    if triangles.shape[0] > 0:
        row = triangles[int(triangles[-1, 0])]
        for a in range(3):
            row[a], row[3 + a], row[6 + a] = p0[a], p1[a], p2[a]
        row[9], row[10], row[11] = nx, ny, nz
        triangles[-1, 0] += 1.0
        return
    for k in range(_FEW_WEIGHTS.size):
        q = _mixed(_FEW_POINTS[k], p0, p1, p2)
        w = area * _FEW_WEIGHTS[k]
        _shape_functions(q[0], q[1], q[2], value, gradient)
        for i in range(8):
            wn = w * value[i]
            surface[i, 0] += wn
            surface[i, 1] += wn * nx
            surface[i, 2] += wn * ny
            surface[i, 3] += wn * nz


@njit(cache=True)
def _cut(points: np.ndarray, d: np.ndarray, i: int, j: int) -> Point:
    """Where φ is zero between two corners."""
    share, p, q = d[i] / (d[i] - d[j]), _row(points, i), _row(points, j)
    return p[0] + share * (q[0] - p[0]), p[1] + share * (q[1] - p[1]), p[2] + share * (q[2] - p[2])


@njit(cache=True)
def _add_tetrahedron(
    p: np.ndarray,
    d: np.ndarray,
    moments: np.ndarray,
    surface: np.ndarray,
    value: np.ndarray,
    gradient: np.ndarray,
    triangles: np.ndarray,
) -> None:
    """Clip one tetrahedron (corners p, values d of φ) at φ = 0 and add its inside and its piece of surface."""
    inside, outside = np.empty(4, np.int64), np.empty(4, np.int64)
    n_in = n_out = 0
    for i in range(4):
        if d[i] < 0.0:
            inside[n_in] = i
            n_in += 1
        else:
            outside[n_out] = i
            n_out += 1
    if n_in == 0:
        return
    if n_in >= 3:
        _add_volume(_row(p, 0), _row(p, 1), _row(p, 2), _row(p, 3), 1.0, moments)
    if n_in == 4:
        return
    outward = _minus(_row(p, outside[0]), _row(p, inside[0]))
    if n_in == 2:
        a, b, c, e = inside[0], inside[1], outside[0], outside[1]
        ac, ae, bc, be = _cut(p, d, a, c), _cut(p, d, a, e), _cut(p, d, b, c), _cut(p, d, b, e)
        pa = _row(p, a)
        _add_volume(pa, ac, ae, be, 1.0, moments)
        _add_volume(pa, ac, bc, be, 1.0, moments)
        _add_volume(pa, _row(p, b), bc, be, 1.0, moments)
        _add_surface(ac, ae, be, outward, surface, value, gradient, triangles)
        _add_surface(ac, be, bc, outward, surface, value, gradient, triangles)
        return
    apex = inside[0] if n_in == 1 else outside[0]
    others = outside if n_in == 1 else inside
    c0, c1, c2 = _cut(p, d, apex, others[0]), _cut(p, d, apex, others[1]), _cut(p, d, apex, others[2])
    _add_volume(_row(p, apex), c0, c1, c2, 1.0 if n_in == 1 else -1.0, moments)
    _add_surface(c0, c1, c2, outward, surface, value, gradient, triangles)


@njit(cache=True)
def _integrate_cell(field: np.ndarray, moments: np.ndarray, surface: np.ndarray, triangles: np.ndarray) -> None:
    count = field.shape[0] - 1
    step = 1.0 / count
    value, gradient = np.empty(8), np.empty((8, 3))
    at, phi = np.empty((8, 3)), np.empty(8)
    p, d = np.empty((4, 3)), np.empty(4)
    for s in range(count**3):
        x, y, z = s // count**2, s // count % count, s % count
        low = (x * step, y * step, z * step)
        inside = 0
        for i in range(8):
            bx, by, bz = i >> 2 & 1, i >> 1 & 1, i & 1
            at[i, 0], at[i, 1], at[i, 2] = low[0] + step * bx, low[1] + step * by, low[2] + step * bz
            phi[i] = field[x + bx, y + by, z + bz]
            inside += phi[i] < 0.0
        if inside == 8 and moments.size > 0:  # so are the face centres and the centre: means of corners
            _add_box(low, step, moments)
        if inside in (0, 8):
            continue
        total = 0.0
        for i in range(8):
            total += phi[i]
        d[0] = total / 8
        for a in range(3):
            p[0, a] = low[a] + 0.5 * step
        for f in range(6):
            ring = _FACE_CORNERS[f]
            for a in range(3):
                p[1, a] = 0.25 * (at[ring[0], a] + at[ring[1], a] + at[ring[2], a] + at[ring[3], a])
            d[1] = 0.25 * (phi[ring[0]] + phi[ring[1]] + phi[ring[2]] + phi[ring[3]])
            for k in range(4):
                i, j = ring[k], ring[(k + 1) % 4]
                for a in range(3):
                    p[2, a], p[3, a] = at[i, a], at[j, a]
                d[2], d[3] = phi[i], phi[j]
                _add_tetrahedron(p, d, moments, surface, value, gradient, triangles)


def subdivide(corner_phi: np.ndarray, subdivision: int) -> np.ndarray:
    """The trilinear φ of cells (C, 8) at the corners of their sub-cells, (C, n+1, n+1, n+1) for n = subdivision."""
    t = np.arange(subdivision + 1) / subdivision
    line = np.stack([1.0 - t, t], axis=1)
    field = np.einsum("cijk,xi,yj,zk->cxyz", corner_phi.reshape(-1, 2, 2, 2), line, line, line, optimize=True)
    return np.ascontiguousarray(field)  # another layout would be compiled anew


@njit(parallel=True, cache=True)
def integrate_cut_cells(field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moments and surface integrals of many cells.

    Args:
        field: φ at the corners of the sub-cells of each cell, any unit, shape (C, n+1, n+1, n+1).

    Returns:
        moments (C, 27): ∫ xᵃ yᵇ zᶜ over the inside, at 9a + 3b + c; surface (C, 8, 4): ∫N_i, then ∫N_i n over the
        surface.
    """
    count = field.shape[0]
    moments, surface = np.zeros((count, 27)), np.zeros((count, 8, 4))
    for c in prange(count):
        _integrate_cell(field[c], moments[c], surface[c], np.empty((0, 12)))
    return moments, surface


@njit(cache=True)
def surface_triangles(field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of surface in each cell; field as in `integrate_cut_cells`.

    Returns:
        triangles (T, 12): three corners in cell units, then the outward normal; cell (T,): the cell each lies in.
    """
    scratch = np.zeros((48 * (field.shape[1] - 1) ** 3 + 1, 12))
    found, cell = [], []
    for c in range(field.shape[0]):
        scratch[-1, 0] = 0.0
        _integrate_cell(field[c], np.zeros(0), np.zeros((0, 4)), scratch)
        for k in range(int(scratch[-1, 0])):
            found.append(scratch[k].copy())
            cell.append(c)
    triangles = np.empty((len(found), 12))
    for k in range(len(found)):
        for i in range(12):
            triangles[k, i] = found[k][i]
    return triangles, np.array(cell, dtype=np.int64)


@njit(cache=True)
def integrate_boundary_products(triangles: np.ndarray, cell: np.ndarray, count: int) -> np.ndarray:
    """Surface integrals of products for Nitsche's method over given triangles, in cell units.

    Returns:
        (count, 8, 8, 11): ∫N_i n ∇N_jᵀ row-major (9), ∫N_i N_j, ∫∂ₙN_i ∂ₙN_j.
    """
    products = np.zeros((count, 8, 8, 11))
    value, gradient, slope = np.empty(8), np.empty((8, 3)), np.empty(8)
    for t in range(triangles.shape[0]):
        corners = triangles[t].reshape(4, 3)
        p0, p1, p2, n = _row(corners, 0), _row(corners, 1), _row(corners, 2), _row(corners, 3)
        area = _triangle_area_and_normal(p0, p1, p2, n)[0]
        for k in range(_TRI_WEIGHTS.size):
            q = _mixed(_TRI_POINTS[k], p0, p1, p2)
            w = area * _TRI_WEIGHTS[k]
            _shape_functions(q[0], q[1], q[2], value, gradient)
            for i in range(8):
                slope[i] = gradient[i, 0] * n[0] + gradient[i, 1] * n[1] + gradient[i, 2] * n[2]
            for i in range(8):
                for j in range(8):
                    out = products[cell[t], i, j]
                    for a in range(3):
                        for d in range(3):
                            out[3 * a + d] += w * value[i] * n[a] * gradient[j, d]
                    out[9] += w * value[i] * value[j]
                    out[10] += w * slope[i] * slope[j]
    return products
