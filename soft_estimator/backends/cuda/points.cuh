// Where an observed point lies in a deformed grid and how far from the carried field's zero level, by a warp: what the
// kernels of points.cu share. In double precision whatever REAL is; the formulas are those of backends/cpu/points.py.
//
// The lanes of a warp try the boxes of tiles of 32 cells, then the cells of those tiles that hold the point. Of several
// cells the first by (body before halo, smaller |value|, lower number) is taken, in whatever order they are met.

#define NEWTON_STEPS 20
#define EDGE 1e-9  // a point on a face belongs to both cells
#define LINE_STEPS 12  // of Newton's method along a ray
#define TILE 32

// A carried field where one frame's displacements have put it.
struct Field {
    int cells, tiles;
    const int *cell_nodes;
    const unsigned char *in_body;
    const double *value;                         // φ at the nodes
    double size;                                 // of a cell, about
    const double *position, *boxes, *tile_boxes;  // nodes (M, 3); boxes of the cells and of tiles of them

    __device__ Field(int nodes, int cells, const int *cell_nodes, const unsigned char *in_body, const double *value,
                     double size, const double *positions, const double *boxes, const double *tile_boxes, int frame)
        : cells(cells), tiles((cells + TILE - 1) / TILE), cell_nodes(cell_nodes), in_body(in_body), value(value),
          size(size), position(positions + 3 * (int64)nodes * frame), boxes(boxes + 6 * (int64)cells * frame),
          tile_boxes(tile_boxes + 6 * (int64)tiles * frame) {}
};

__device__ inline bool holds(const double *box, const double *point) {
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 3; ++a) inside = inside && box[a] <= point[a] && point[a] <= box[3 + a];
    return inside;
}

// N_p and its derivatives by ξ.
__device__ inline double corner_share(const double *xi, int p, double *slope) {
    const double fx = p & 4 ? xi[0] : 1.0 - xi[0], dx = p & 4 ? 1.0 : -1.0;
    const double fy = p & 2 ? xi[1] : 1.0 - xi[1], dy = p & 2 ? 1.0 : -1.0;
    const double fz = p & 1 ? xi[2] : 1.0 - xi[2], dz = p & 1 ? 1.0 : -1.0;
    slope[0] = dx * fy * fz, slope[1] = fx * dy * fz, slope[2] = fx * fy * dz;
    return fx * fy * fz;
}

// y(ξ) and ∂y/∂ξ of the trilinear map of a cell.
__device__ inline void map_cell(const double *position, const int *nodes, const double *xi, double *y, double *j) {
#pragma unroll
    for (int a = 0; a < 3; ++a) y[a] = j[3 * a] = j[3 * a + 1] = j[3 * a + 2] = 0.0;
    for (int p = 0; p < 8; ++p) {
        double slope[3];
        const double share = corner_share(xi, p, slope);
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            const double at = position[3 * (int64)nodes[p] + a];
            y[a] += share * at;
#pragma unroll
            for (int b = 0; b < 3; ++b) j[3 * a + b] += slope[b] * at;
        }
    }
}

// x with m x = b, or mᵀ x = b; false for a singular m.
__device__ inline bool solve3(const double *m, const double *b, bool transposed, double *x) {
    double c[9];
    const double determinant = cofactor(m, c);
    if (determinant == 0.0) return false;
    double out[3];
#pragma unroll
    for (int a = 0; a < 3; ++a)
        out[a] = (transposed ? c[3 * a] * b[0] + c[3 * a + 1] * b[1] + c[3 * a + 2] * b[2]
                             : c[a] * b[0] + c[3 + a] * b[1] + c[6 + a] * b[2]) /
                 determinant;
#pragma unroll
    for (int a = 0; a < 3; ++a) x[a] = out[a];
    return true;
}

// Newton for y(ξ) = point from the middle of the cell; whether it converged inside the cell.
__device__ inline bool invert_cell(const double *position, const int *nodes, const double *point, double size,
                                   double *xi) {
    double y[3], j[9], b[3], step[3];
    xi[0] = xi[1] = xi[2] = 0.5;
    for (int turn = 0; turn < NEWTON_STEPS; ++turn) {
        map_cell(position, nodes, xi, y, j);
        double error = 0.0, largest = 0.0;
#pragma unroll
        for (int a = 0; a < 3; ++a) b[a] = point[a] - y[a], error = fmax(error, fabs(b[a]));
        if (error < 1e-13 * size) break;
        if (!solve3(j, b, false, step)) return false;
#pragma unroll
        for (int a = 0; a < 3; ++a) xi[a] += step[a], largest = fmax(largest, fabs(xi[a] - 0.5));
        if (!(largest < 50.0)) return false;
    }
    map_cell(position, nodes, xi, y, j);
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 3; ++a)
        inside = inside && fabs(point[a] - y[a]) <= 1e-9 * size && -EDGE <= xi[a] && xi[a] <= 1.0 + EDGE;
    return inside;
}

// The best of the cells seen so far.
struct Found {
    int halo, cell;  // halo: 0 for a cell of the body, 1 of the halo, 2 for none
    double level, xi[3];

    __device__ bool worse_than(int other_halo, double other_level, int other_cell) const {
        if (halo != other_halo) return halo > other_halo;
        if (level != other_level) return level > other_level;
        return cell > other_cell;
    }

    __device__ void try_cell(const Field &field, const double *point, int c) {
        const int *nodes = field.cell_nodes + 8 * (int64)c;
        const int other = field.in_body[c] ? 0 : 1;
        if (other > halo) return;
        double there[3], slope[3], total = 0.0;
        if (!invert_cell(field.position, nodes, point, field.size, there)) return;
        for (int p = 0; p < 8; ++p) total += corner_share(there, p, slope) * field.value[nodes[p]];
        if (!worse_than(other, fabs(total), c)) return;
        halo = other, cell = c, level = fabs(total);
#pragma unroll
        for (int a = 0; a < 3; ++a) xi[a] = there[a];
    }

    __device__ void take_from(int step) {
        const int other = __shfl_xor_sync(ALL_LANES, halo, step), c = __shfl_xor_sync(ALL_LANES, cell, step);
        const double there = __shfl_xor_sync(ALL_LANES, level, step);
        double local[3];
#pragma unroll
        for (int a = 0; a < 3; ++a) local[a] = __shfl_xor_sync(ALL_LANES, xi[a], step);
        if (!worse_than(other, there, c)) return;
        halo = other, cell = c, level = there;
#pragma unroll
        for (int a = 0; a < 3; ++a) xi[a] = local[a];
    }
};

// The cell that holds a point, by a warp; the same in all lanes.
__device__ inline Found search(const Field &field, const double *point) {
    const int lane = threadIdx.x % 32;
    Found best = {2, 0x7fffffff, 0.0, {0.0, 0.0, 0.0}};
    for (int first = 0; first < field.tiles; first += 32) {
        const int tile = first + lane;
        const bool near = tile < field.tiles && holds(field.tile_boxes + 6 * (int64)tile, point);
        unsigned left = __ballot_sync(ALL_LANES, near);
        while (left) {
            const int c = TILE * (first + __ffs(left) - 1) + lane;
            left &= left - 1;
            if (c < field.cells && holds(field.boxes + 6 * (int64)c, point)) best.try_cell(field, point, c);
        }
    }
    __syncwarp();
#pragma unroll
    for (int step = 16; step > 0; step /= 2) best.take_from(step);
    return best;
}

#define FIELD_ARGUMENTS                                                                                            \
    int nodes, int cells, const int *cell_nodes, const unsigned char *in_body, const double *phi, double size,     \
        const double *position, const double *boxes, const double *tile_boxes
#define FIELD_OF(frame) \
    Field(nodes, cells, cell_nodes, in_body, phi, size, position, boxes, tile_boxes, frame)

// ψ/|g| of a located point and its derivatives; see surface_distances in backends/cpu/points.py. False where the cell
// is flat.
__device__ inline bool surface_distance(const double *position, const int *nodes, const double *xi,
                                        const double *value, double least_slope, double *distance, double *weights,
                                        double *slopes, double *by_value, double *by_slope) {
    double y[3], j[9], slope[3] = {0, 0, 0}, g[3], k[3], bent[3] = {0, 0, 0}, turned[3], psi = 0.0;
    map_cell(position, nodes, xi, y, j);
    for (int p = 0; p < 8; ++p) {
        double by[3];
        weights[p] = corner_share(xi, p, by);
        psi += weights[p] * value[p];
#pragma unroll
        for (int a = 0; a < 3; ++a) slope[a] += by[a] * value[p];
    }
    if (!solve3(j, slope, true, g) || !solve3(j, g, false, k)) return false;
    // S k with S = ∂²ψ/∂ξ² - Σ g_a ∂²y_a/∂ξ², whose diagonal is zero for trilinear functions.
    for (int p = 0; p < 8; ++p) {
        double by[3];
        corner_share(xi, p, by);
        const double fx = p & 4 ? xi[0] : 1.0 - xi[0], dx = p & 4 ? 1.0 : -1.0;
        const double fy = p & 2 ? xi[1] : 1.0 - xi[1], dy = p & 2 ? 1.0 : -1.0;
        const double fz = p & 1 ? xi[2] : 1.0 - xi[2], dz = p & 1 ? 1.0 : -1.0;
        const double rest = value[p] - dot(g, position + 3 * (int64)nodes[p]);
        const double xy = dx * dy * fz * rest, xz = dx * fy * dz * rest, yz = fx * dy * dz * rest;
        bent[0] += xy * k[1] + xz * k[2];
        bent[1] += xy * k[0] + yz * k[2];
        bent[2] += xz * k[0] + yz * k[1];
        slopes[p] = k[0] * by[0] + k[1] * by[1] + k[2] * by[2];
    }
    solve3(j, bent, true, turned);
    const double true_size = sqrt(dot(g, g)), size = fmax(true_size, least_slope);
    const double cube = true_size < least_slope ? 0.0 : psi / (size * size * size);
    *distance = psi / size;
#pragma unroll
    for (int a = 0; a < 3; ++a) by_value[a] = g[a] / size - cube * turned[a], by_slope[a] = -cube * g[a];
    return true;
}

// What the carried field says of a point: the cell that holds it (-1 for none) and its distance with derivatives.
struct Reading {
    int cell;
    double value, weights[8], slopes[8], by_value[3], by_slope[3];

    __device__ void take(const Field &field, const double *laplacian, double bias, double least_slope,
                         const double *point) {
        const Found found = search(field, point);
        cell = found.halo == 2 ? -1 : found.cell, value = 0.0;
        if (cell < 0) return;
        const int *corner = field.cell_nodes + 8 * (int64)cell;
        double nodal[8];
        for (int p = 0; p < 8; ++p) nodal[p] = field.value[corner[p]] - bias * laplacian[corner[p]];
        if (!surface_distance(field.position, corner, found.xi, nodal, least_slope, &value, weights, slopes, by_value,
                              by_slope))
            cell = -1, value = 0.0;
    }
};

// Where the line of a point along a ray meets the surface: value(x - s along) = 0 by Newton's method; then δs = δvalue /
// (∇value · along). Points farther than `reach` cells, and those whose lines graze the surface, keep what they have.
__device__ inline void measure_along(const Field &field, const double *laplacian, double bias, double least_slope,
                                     double spacing, double reach, const double *point, const double *along,
                                     Reading &at) {
    if (at.cell < 0 || !(fabs(at.value) < reach * spacing)) return;
    Reading there = at;
    double away = 0.0, slope = 0.0;
    for (int turn = 0;; ++turn) {
        slope = dot(there.by_value, along);
        if (there.cell < 0 || !(slope > least_slope) || !(fabs(away) < (reach + 1.0) * spacing)) return;
        if (fabs(there.value) < 1e-12 * spacing || turn == LINE_STEPS) break;
        away += fmin(fmax(there.value / slope, -spacing), spacing);
        const double moved[3] = {point[0] - away * along[0], point[1] - away * along[1], point[2] - away * along[2]};
        there.take(field, laplacian, bias, least_slope, moved);
    }
    if (!(fabs(there.value) < 1e-7 * spacing)) return;
    at = there, at.value = away;
#pragma unroll
    for (int a = 0; a < 3; ++a) at.by_value[a] /= slope, at.by_slope[a] = 0.0;
}
