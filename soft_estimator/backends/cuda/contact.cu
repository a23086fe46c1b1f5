// Contact of the surface points with the plane: state of the points, forces and matrix blocks at the nodes.

// Distance δ [m], smooth depth [m] and slope σ of every surface point, each (V,).
extern "C" __global__ void contact_points(int count, const real *position, const real *u, const int *node_a,
                                          const int *node_b, const double *weight_b, const double *normal,
                                          double offset, double sharpness, double *distance, double *depth,
                                          double *slope) {
    const int v = thread_index();
    if (v >= count) return;
    const int64 a = 3 * (int64)node_a[v], b = 3 * (int64)node_b[v];
    const double w = weight_b[v];
    double delta = offset;
#pragma unroll
    for (int k = 0; k < 3; ++k)
        delta += normal[k] * ((1.0 - w) * (position[a + k] + u[a + k]) + w * (position[b + k] + u[b + k]));
    distance[v] = delta;
    softplus_and_slope(sharpness, delta, depth + v, slope + v);
}

// out_i += n Σ over the surface points of node i of (their share of node i) · value.
extern "C" __global__ void spread_along(int nodes, const double *normal, const double *value, const int *node_a,
                                        const int64 *point_start, const int *point_index, const double *weight_b,
                                        real *out) {
    const int i = thread_index();
    if (i >= nodes) return;
    double total = 0.0;
    for (int64 k = point_start[i]; k < point_start[i + 1]; ++k) {
        const int v = point_index[k];
        total += (node_a[v] == i ? 1.0 - weight_b[v] : weight_b[v]) * value[v];
    }
    if (total != 0.0)
        for (int a = 0; a < 3; ++a) out[3 * (int64)i + a] += total * normal[a];
}

extern "C" __global__ void add_contact_blocks(int nodes, const double *normal, const double *value, const int *node_a,
                                              const int *node_b, const double *weight_b, const int64 *point_start,
                                              const int *point_index, const int64 *slot_of_pair, const int64 *slot,
                                              real *blocks) {
    const int i = thread_index();
    if (i >= nodes) return;
    const Points points = {node_a, node_b, weight_b, point_start, point_index, slot_of_pair, nullptr};
    for (int64 k = point_start[i]; k < point_start[i + 1]; ++k) {
        const int v = point_index[k];
        if (value[v] == 0.0) continue;
        add_point_blocks(points, v, node_a[v] == i, slot[27 * (int64)i + 13], normal, value[v], blocks);
    }
}
