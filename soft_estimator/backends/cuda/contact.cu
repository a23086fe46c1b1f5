// Contact of the surface with the plane: state of the contact points, forces and matrix blocks at the nodes.

// Distance δ [m], smooth depth [m] and slope σ of every contact point, each (P,).
extern "C" __global__ void contact_points(int count, const real *position, const real *u, const int *nodes,
                                          const double *weight, const double *normal, double offset, double sharpness,
                                          double *distance, double *depth, double *slope) {
    const int64 t = thread_index();
    if (t >= count) return;
    const Points points = {nodes, weight, nullptr, nullptr};
    double delta = offset;
#pragma unroll
    for (int k = 0; k < 3; ++k) delta += normal[k] * (points.at(t, position, k) + points.at(t, u, k));
    distance[t] = delta;
    softplus_and_slope(sharpness, delta, depth + t, slope + t);
}

// Nodal values (N, 3) at the contact points, out (P, 3).
extern "C" __global__ void at_points(int count, const real *nodal, const int *nodes, const double *weight, double *out) {
    const int64 t = thread_index();
    if (t >= count) return;
    const Points points = {nodes, weight, nullptr, nullptr};
    for (int k = 0; k < 3; ++k) out[3 * t + k] = points.at(t, nodal, k);
}

// out_i += n Σ over the points in the cells around node i of (their weight of node i) · value.
extern "C" __global__ void spread_along(int count, const double *normal, const double *value, const int *node_cells,
                                        const int64 *point_start, const double *weight, real *out) {
    const int i = thread_index();
    if (i >= count) return;
    double total = 0.0;
    for (int p = 0; p < 8; ++p) {
        const int c = node_cells[8 * (int64)i + p];
        if (c < 0) continue;
        for (int64 t = point_start[c]; t < point_start[c + 1]; ++t) total += weight[8 * t + p] * value[t];
    }
    if (total != 0.0)
        for (int a = 0; a < 3; ++a) out[3 * (int64)i + a] += total * normal[a];
}

extern "C" __global__ void add_contact_blocks(int count, const double *normal, const double *value,
                                              const int *node_cells, const int64 *point_start, const double *weight,
                                              const int64 *slot, real *blocks) {
    const int i = thread_index();
    if (i >= count) return;
    const Points points = {nullptr, weight, point_start, nullptr};
    for (int p = 0; p < 8; ++p) {
        const int c = node_cells[8 * (int64)i + p];
        if (c >= 0) add_cell_blocks(points, c, p, slot + 27 * (int64)i, normal, value, 1, blocks);
    }
}
