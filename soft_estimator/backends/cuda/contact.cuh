// Soft penalty contact with a plane, in double precision whatever REAL is; see backends/cpu/contact.py.

// -softmin_a(x, 0) = log(1 + exp(-a x))/a and σ = 1/(1 + exp(a x)), both safe for any a x.
__device__ inline void softplus_and_slope(double a, double x, double *value, double *slope) {
    const double t = a * x, e = exp(-fabs(t));
    *value = (t >= 0.0 ? log1p(e) : log1p(e) - t) / a;
    *slope = (t >= 0.0 ? e : 1.0) / (1.0 + e);
}

// The surface points of the body: each lies between two nodes; node i holds node_points[node_start[i]...].
struct Points {
    const int *node_a, *node_b;
    const double *weight_b;
    const int64 *node_start;
    const int *node_points;
    const int64 *slot_of_pair;
    const double *area;
};

// blocks += value · share_i share_j n nᵀ for one point of node i; only row i is touched.
__device__ inline void add_point_blocks(const Points &points, int v, bool is_a, int64 centre, const double *normal,
                                        double value, real *blocks) {
    const double weight = points.weight_b[v], own = is_a ? 1.0 - weight : weight, other = 1.0 - own;
    const int64 there = points.slot_of_pair[2 * (int64)v + (is_a ? 0 : 1)];
    const bool pair = points.node_a[v] != points.node_b[v];
    for (int a = 0; a < 3; ++a)
        for (int b = 0; b < 3; ++b) {
            const double nn = value * own * normal[a] * normal[b];
            blocks[9 * centre + 3 * a + b] += nn * own;
            if (pair) blocks[9 * there + 3 * a + b] += nn * other;
        }
}
