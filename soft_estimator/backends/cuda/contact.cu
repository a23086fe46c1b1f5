// Contact of the surface with obstacles: depths at distances, values at the contact points, forces and matrix blocks.

// Smooth depth [m] and slope σ at given distances, each (P,).
extern "C" __global__ void soft_depths(int count, const double *distance, double sharpness, double *depth,
                                       double *slope) {
    const int t = thread_index();
    if (t < count) softplus_and_slope(sharpness, distance[t], depth + t, slope + t);
}

// -Li₂(-e^-t) for t >= 0, by the series in v = log(1 + e^-t) <= log 2: v + v²/4 + Σ B_2k v^(2k+1)/(2k+1)!, Bernoulli's
// numbers. Each term is 80 times the next at least, the first left out below the last bit.
__device__ inline double dilogarithm(double t) {
    const double v = log1p(exp(-t)), w = v * v;
    double sum = -3617.0 / 181400588328960000.0;
    sum = sum * w + 1.0 / 1120863744000.0;
    sum = sum * w - 691.0 / 16999766784000.0;
    sum = sum * w + 1.0 / 526901760.0;
    sum = sum * w - 1.0 / 10886400.0;
    sum = sum * w + 1.0 / 211680.0;
    sum = sum * w - 1.0 / 3600.0;
    sum = sum * w + 1.0 / 36.0;
    return v + w * (0.25 + v * sum);
}

// ∫ from δ to ∞ of the smooth depth [m²]; below the plane by Li₂(-e^t) = -π²/6 - t²/2 - Li₂(-e^-t).
extern "C" __global__ void soft_energies(int count, const double *distance, double sharpness, double *out) {
    const int k = thread_index();
    if (k >= count) return;
    const double t = sharpness * distance[k], outer = dilogarithm(fabs(t));
    const double energy = t >= 0.0 ? outer : 1.6449340668482264 + 0.5 * t * t - outer;
    out[k] = t < 60.0 ? energy / (sharpness * sharpness) : 0.0;
}

// Nodal values (N, 3) at the contact points, out (P, 3).
extern "C" __global__ void at_points(int count, const real *nodal, const int *nodes, const double *weight, double *out) {
    const int64 t = thread_index();
    if (t >= count) return;
    const Points points = {nodes, weight, nullptr, nullptr};
    for (int k = 0; k < 3; ++k) out[3 * t + k] = points.at(t, nodal, k);
}

// out (N, width) += the points' values (P, width), shared between the nodes of each point's cell.
extern "C" __global__ void spread_columns(int nodes, int width, const double *value, const int *node_cells,
                                          const int64 *point_start, const double *weight, double *out) {
    const int64 k = thread_index(), i = k / width, j = k % width;
    if (i >= nodes) return;
    double total = 0.0;
    for (int p = 0; p < 8; ++p) {
        const int c = node_cells[8 * i + p];
        if (c < 0) continue;
        for (int64 t = point_start[c]; t < point_start[c + 1]; ++t) total += weight[8 * t + p] * value[width * t + j];
    }
    out[k] += total;
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
