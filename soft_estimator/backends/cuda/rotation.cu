// Rotation of every cell (C, 9) and its derivative; eight lanes a cell, each with one corner.

// Lane's corner of a cell: its displacement as double.
__device__ inline void load_corner(const real *u, int node, double *out) {
#pragma unroll
    for (int a = 0; a < 3; ++a) out[a] = u[3 * (int64)node + a];
}

__device__ inline void deformation_gradient(const real *u, int node, int p, double spacing, double *f) {
    double corner[3];
    load_corner(u, node, corner);
    displacement_gradient(corner, p, 0.25 / spacing, f);
    f[0] += 1.0, f[4] += 1.0, f[8] += 1.0;
}

extern "C" __global__ void rotations(int cells, const real *u, const int *cell_nodes, double spacing, real *out) {
    const int t = thread_index(), p = t % LANES, c = min(t / LANES, cells - 1);
    double f[9], r[9];
    deformation_gradient(u, cell_nodes[8 * c + p], p, spacing, f);
    if (p != 0 || t / LANES >= cells) return;
    closest_rotation(f, r);
#pragma unroll
    for (int i = 0; i < 9; ++i) out[9 * (int64)c + i] = r[i];
}

extern "C" __global__ void rotations_tangent(int cells, const real *u, const real *du, const real *r,
                                             const int *cell_nodes, double spacing, double *out) {
    const int t = thread_index(), p = t % LANES, c = min(t / LANES, cells - 1), node = cell_nodes[8 * c + p];
    double f[9], df[9], rc[9], corner[3], dr[9];
    deformation_gradient(u, node, p, spacing, f);
    load_corner(du, node, corner);
    displacement_gradient(corner, p, 0.25 / spacing, df);
    if (p != 0 || t / LANES >= cells) return;
#pragma unroll
    for (int i = 0; i < 9; ++i) rc[i] = r[9 * (int64)c + i];
    turn_change(f, rc, df, dr);
#pragma unroll
    for (int i = 0; i < 9; ++i) out[9 * (int64)c + i] = dr[i];
}

// Corner contributions (C, 24) to ū for given R̄ (C, 9): ū_p += F̄ s_p/(4h).
extern "C" __global__ void rotations_adjoint(int cells, const real *u, const real *r, const double *r_bar,
                                             const int *cell_nodes, double spacing, double *out) {
    const int t = thread_index(), p = t % LANES, c = min(t / LANES, cells - 1);
    double f[9], rc[9], rb[9], fb[9];
    deformation_gradient(u, cell_nodes[8 * c + p], p, spacing, f);
    if (t / LANES >= cells) return;
#pragma unroll
    for (int i = 0; i < 9; ++i) rc[i] = r[9 * (int64)c + i], rb[i] = r_bar[9 * (int64)c + i];
    turn_change(f, rc, rb, fb);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        double total = 0.0;
#pragma unroll
        for (int b = 0; b < 3; ++b) total += fb[3 * a + b] * corner_sign(p, b);
        out[24 * (int64)c + 3 * p + a] = total * 0.25 / spacing;
    }
}
