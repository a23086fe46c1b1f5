// Observed points against the carried field of a deformed body (estimation/observation.py), in double precision
// whatever REAL is; the formulas are those of backends/cpu/points.py.
//
// A point's cell is found by a warp: its lanes try the boxes of tiles of 32 cells, then the cells of those tiles that
// hold it. Of several cells the first by (body before halo, smaller |value|, lower number) is taken, in whatever order
// they are met.

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

// position (frames, nodes, 3) = rest + follow · u (frames, N, 3); follow by rows.
extern "C" __global__ void carry_nodes(int nodes, int body_nodes, const int *start, const int *column,
                                       const double *share, const double *rest, const double *u, double *position) {
    const int i = thread_index(), frame = blockIdx.y;
    if (i >= nodes) return;
    double total[3] = {rest[3 * (int64)i], rest[3 * (int64)i + 1], rest[3 * (int64)i + 2]};
    for (int k = start[i]; k < start[i + 1]; ++k) {
        const double *at = u + 3 * ((int64)body_nodes * frame + column[k]);
        for (int a = 0; a < 3; ++a) total[a] += share[k] * at[a];
    }
    for (int a = 0; a < 3; ++a) position[3 * ((int64)nodes * frame + i) + a] = total[a];
}

// Boxes (frames, C, 6) of the deformed cells, low then high, and of tiles of 32 of them.
extern "C" __global__ void box_cells(int nodes, int cells, const int *cell_nodes, const double *position,
                                     double *boxes, double *tile_boxes) {
    const int t = thread_index(), c = min(t, cells - 1), tile = t / TILE, frame = blockIdx.y;
    const double *at = position + 3 * (int64)nodes * frame;
    double low[3], high[3];
    for (int p = 0; p < 8; ++p)
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            const double value = at[3 * (int64)cell_nodes[8 * (int64)c + p] + a];
            low[a] = p == 0 ? value : fmin(low[a], value), high[a] = p == 0 ? value : fmax(high[a], value);
        }
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        if (t < cells) {
            boxes[6 * ((int64)cells * frame + c) + a] = low[a];
            boxes[6 * ((int64)cells * frame + c) + 3 + a] = high[a];
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            low[a] = fmin(low[a], __shfl_xor_sync(ALL_LANES, low[a], step));
            high[a] = fmax(high[a], __shfl_xor_sync(ALL_LANES, high[a], step));
        }
        const int tiles = (cells + TILE - 1) / TILE;
        if (t % TILE == 0 && tile < tiles) {
            tile_boxes[6 * ((int64)tiles * frame + tile) + a] = low[a];
            tile_boxes[6 * ((int64)tiles * frame + tile) + 3 + a] = high[a];
        }
    }
}

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

// Cell (n,) and local coordinates (n, 3) of every point, one warp each; -1 where no cell holds it.
extern "C" __global__ void locate(int count, const double *points, FIELD_ARGUMENTS, int *cell, double *local) {
    const int i = thread_index() / 32;
    if (i >= count) return;
    const Found best = search(FIELD_OF(0), points + 3 * (int64)i);
    if (threadIdx.x % 32 != 0) return;
    cell[i] = best.halo == 2 ? -1 : best.cell;
    for (int a = 0; a < 3; ++a) local[3 * (int64)i + a] = best.xi[a];
}

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

// The loop of that name of backends/cpu/points.py; value (n, 8).
extern "C" __global__ void surface_distances(int count, int *found, const double *local, const double *position,
                                             const int *cell_nodes, const double *value, double least_slope,
                                             double *distance, double *weights, double *slopes, double *by_value,
                                             double *by_slope) {
    const int64 i = thread_index();
    if (i >= count || found[i] < 0) return;
    if (!surface_distance(position, cell_nodes + 8 * (int64)found[i], local + 3 * i, value + 8 * i, least_slope,
                          distance + i, weights + 8 * i, slopes + 8 * i, by_value + 3 * i, by_slope + 3 * i))
        found[i] = -1;
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

// Residual (n,) of every point and what it changes with, one warp each: the carried field near the body, going over
// smoothly into the distance to the nearest vertex. The vertices are the frame's last `vertices` nodes.
// along (n, 3): zero where the noise has no known direction; line_bias (n,): the bias there. cell, vertex: -1 where they do not count; far (n,): 1 where
// only the vertex does.
extern "C" __global__ void measure_points(int count, const double *points, const double *bias, const double *along,
                                          const double *line_bias, const int *frame_of, FIELD_ARGUMENTS, int vertices,
                                          const double *laplacian, double spacing, double halo_cells,
                                          double least_slope, double reach, double *residual,
                                          int *cell, double *weights, double *slopes, double *by_value,
                                          double *by_slope, int *vertex, double *away, int *far) {
    const int lane = threadIdx.x % 32;
    const int64 i = thread_index() / 32;
    if (i >= count) return;
    const Field field = FIELD_OF(frame_of[i]);
    const double *point = points + 3 * i, *vertex_at = field.position + 3 * (int64)(nodes - vertices);
    Reading at;
    at.take(field, laplacian, bias[i], least_slope, point);
    measure_along(field, laplacian, line_bias[i], least_slope, spacing, reach, point, along + 3 * i, at);
    const bool found = at.cell >= 0;
    double blend = 1.0, blend_slope = 0.0;
    if (found) {
        const double t = fmin(fmax(at.value / spacing - (halo_cells - 1.0), 0.0), 1.0);
        blend = t * t * (3.0 - 2.0 * t), blend_slope = 6.0 * t * (1.0 - t) / spacing;
    }
    double from[3] = {0, 0, 0}, part = 1.0, total = at.value;
    int best = -1;
    if (blend > 0.0) {  // the same in all lanes
        double least = __longlong_as_double(0x7ff0000000000000ll);
        for (int v = lane; v < vertices; v += 32) {
            const double *there = vertex_at + 3 * (int64)v;
            const double d[3] = {point[0] - there[0], point[1] - there[1], point[2] - there[2]}, square = dot(d, d);
            if (square < least) least = square, best = v;
        }
        __syncwarp();
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            const double other = __shfl_xor_sync(ALL_LANES, least, step);
            const int that = __shfl_xor_sync(ALL_LANES, best, step);
            if (other < least || (other == least && that < best)) least = other, best = that;
        }
        const double nearest = sqrt(least);
        for (int a = 0; a < 3; ++a)
            from[a] = blend * (point[a] - vertex_at[3 * (int64)best + a]) / fmax(nearest, 1e-300);
        total = (1.0 - blend) * at.value + blend * nearest;
        part = found ? 1.0 - blend + blend_slope * (nearest - at.value) : 0.0;
    }
    if (lane != 0) return;
    residual[i] = total, cell[i] = at.cell, vertex[i] = best, far[i] = blend >= 1.0;
    for (int p = 0; p < 8; ++p) {
        weights[8 * i + p] = found ? at.weights[p] : 0.0;
        slopes[8 * i + p] = found ? at.slopes[p] : 0.0;
    }
    for (int a = 0; a < 3; ++a) {
        by_value[3 * i + a] = found ? part * at.by_value[a] : 0.0;
        by_slope[3 * i + a] = found ? part * at.by_slope[a] : 0.0;
        away[3 * i + a] = from[a];
    }
}

// out (n, columns) at (row, column) = -scale · (by_value·Σ w δu + by_slope·Σ s δu + away·δu_vertex), for changes of the
// body's nodes from `before` to `after` (columns, N, 3), taken at a share of the way.
extern "C" __global__ void change_points(int count, int body_nodes, int nodes, int vertices, const int *start,
                                         const int *column, const double *share, const int *cell_nodes,
                                         const int *cell, const double *weights, const double *slopes,
                                         const double *by_value, const double *by_slope, const int *vertex,
                                         const double *away, const double *scale, const real *before,
                                         const real *after, double way, int width, double *out) {
    const int64 i = thread_index(), j = blockIdx.y;
    if (i >= count) return;
    before += 3 * (int64)body_nodes * j, after += 3 * (int64)body_nodes * j;
    double total = 0.0;
    for (int p = 0; p < 9; ++p) {  // the cell's corners, then the vertex
        const int node = p < 8 ? (cell[i] < 0 ? -1 : cell_nodes[8 * (int64)cell[i] + p])
                               : (vertex[i] < 0 ? -1 : nodes - vertices + vertex[i]);
        if (node < 0) continue;
        double by[3], moved = 0.0;
#pragma unroll
        for (int a = 0; a < 3; ++a)
            by[a] = p < 8 ? weights[8 * i + p] * by_value[3 * i + a] + slopes[8 * i + p] * by_slope[3 * i + a]
                          : away[3 * i + a];
        for (int k = start[node]; k < start[node + 1]; ++k) {
            const int64 at = 3 * (int64)column[k];
#pragma unroll
            for (int a = 0; a < 3; ++a)
                moved += share[k] * by[a] * ((1.0 - way) * before[at + a] + way * after[at + a]);
        }
        total += moved;
    }
    out[width * i + j] = -scale[i] * total;
}

// node_bar (frames, nodes, 3): derivatives by the carried nodes, given those by the residuals (n,). Points are listed
// by cell and by vertex: those of cell c of a frame are cell_order[cell_start[frame · cells + c]...], likewise vertices.
extern "C" __global__ void pull_points(int nodes, int vertices, int cells, const int *node_cells,
                                       const int64 *cell_start, const int64 *cell_order, const int64 *vertex_start,
                                       const int64 *vertex_order, const double *weights, const double *slopes,
                                       const double *by_value, const double *by_slope, const double *away,
                                       const double *bar, double *node_bar) {
    const int i = thread_index(), frame = blockIdx.y, field_nodes = nodes - vertices;
    if (i >= nodes) return;
    double total[3] = {0, 0, 0};
    if (i < field_nodes) {
        for (int p = 0; p < 8; ++p) {
            const int c = node_cells[8 * (int64)i + p];
            if (c < 0) continue;
            const int64 place = (int64)cells * frame + c;
            for (int64 e = cell_start[place]; e < cell_start[place + 1]; ++e) {
                const int64 k = cell_order[e];
#pragma unroll
                for (int a = 0; a < 3; ++a)
                    total[a] -= bar[k] * (weights[8 * k + p] * by_value[3 * k + a] + slopes[8 * k + p] * by_slope[3 * k + a]);
            }
        }
    } else {
        const int64 place = (int64)vertices * frame + i - field_nodes;
        for (int64 e = vertex_start[place]; e < vertex_start[place + 1]; ++e) {
            const int64 k = vertex_order[e];
#pragma unroll
            for (int a = 0; a < 3; ++a) total[a] -= bar[k] * away[3 * k + a];
        }
    }
    for (int a = 0; a < 3; ++a) node_bar[3 * ((int64)nodes * frame + i) + a] = total[a];
}

// out (frames, N, 3) = followᵀ · node_bar (frames, nodes, 3); followᵀ by rows.
extern "C" __global__ void gather_followers(int body_nodes, int nodes, const int *start, const int *column,
                                            const double *share, const double *node_bar, double *out) {
    const int i = thread_index(), frame = blockIdx.y;
    if (i >= body_nodes) return;
    double total[3] = {0, 0, 0};
    for (int k = start[i]; k < start[i + 1]; ++k) {
        const double *at = node_bar + 3 * ((int64)nodes * frame + column[k]);
        for (int a = 0; a < 3; ++a) total[a] += share[k] * at[a];
    }
    for (int a = 0; a < 3; ++a) out[3 * ((int64)body_nodes * frame + i) + a] = total[a];
}
