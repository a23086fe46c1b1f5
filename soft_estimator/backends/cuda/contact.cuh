// Soft penalty contact with a plane, in double precision whatever REAL is; see backends/cpu/contact.py.

// -softmin_a(x, 0) = log(1 + exp(-a x))/a and σ = 1/(1 + exp(a x)), both safe for any a x.
__device__ inline void softplus_and_slope(double a, double x, double *value, double *slope) {
    const double t = a * x, e = exp(-fabs(t));
    *value = (t >= 0.0 ? log1p(e) : log1p(e) - t) / a;
    *slope = (t >= 0.0 ? e : 1.0) / (1.0 + e);
}

// Derivative of s + σ gap by the sharpness a, at distance x with smooth depth s and slope σ.
__device__ inline double by_sharpness(double a, double x, double depth, double slope, double gap) {
    return -(depth + slope * x) / a - x * slope * (1 - slope) * gap;
}

// The contact points of the body: each rides on the corners (P, 8) of a cell, x = Σ_p weight_p x_p; cell c has the points
// start[c] to start[c + 1].
struct Points {
    const int *nodes;
    const double *weight;
    const int64 *start;
    const double *area;

    // Component k of nodal values at point t.
    __device__ double at(int64 t, const real *nodal, int k) const {
        double total = 0.0;
#pragma unroll
        for (int p = 0; p < 8; ++p) total += weight[8 * t + p] * nodal[3 * (int64)nodes[8 * t + p] + k];
        return total;
    }
};

// Row i of the blocks += value · weight_p weight_q n nᵀ for the points of the cell in which node i is corner p.
// slot: of node i, negative for a block that nobody wants; value (P,) in steps of `stride`.
__device__ inline void add_cell_blocks(const Points &points, int c, int p, const int64 *slot, const double *normal,
                                       const double *value, int stride, real *blocks) {
    for (int q = 0; q < 8; ++q) {
        const int offset =
            13 + 9 * ((q >> 2) - (p >> 2)) + 3 * ((q >> 1 & 1) - (p >> 1 & 1)) + (q & 1) - (p & 1);
        if (slot[offset] < 0) continue;
        double total = 0.0;
        for (int64 t = points.start[c]; t < points.start[c + 1]; ++t)
            total += value[stride * t] * points.weight[8 * t + p] * points.weight[8 * t + q];
        if (total == 0.0) continue;
        real *block = blocks + 9 * slot[offset];
        for (int a = 0; a < 3; ++a)
            for (int b = 0; b < 3; ++b) block[3 * a + b] += total * normal[a] * normal[b];
    }
}
