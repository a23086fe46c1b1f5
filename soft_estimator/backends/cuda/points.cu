// Observed points against the carried field of a deformed body (estimation/residuals/surface_distance.py): located, measured, changed
// with the nodes and pulled back to them.

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

// Cell (n,) and local coordinates (n, 3) of every point, one warp each; -1 where no cell holds it.
extern "C" __global__ void locate(int count, const double *points, FIELD_ARGUMENTS, int *cell, double *local) {
    const int i = thread_index() / 32;
    if (i >= count) return;
    const Found best = search(FIELD_OF(0), points + 3 * (int64)i);
    if (threadIdx.x % 32 != 0) return;
    cell[i] = best.halo == 2 ? -1 : best.cell;
    for (int a = 0; a < 3; ++a) local[3 * (int64)i + a] = best.xi[a];
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
