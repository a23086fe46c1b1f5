// What the preconditioner with the cells' pressures is made of, anew for each step: rows of B, D⁻¹ and S, see
// physics/pressure.py.

// rows (C, 24): √(scale E (λ + ⅔ μ)/V) R b of the cells of one system; a thread for each corner.
extern "C" __global__ void pressure_rows(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                         const real *rotation, real *rows) {
    const Body &body = *bodies;
    const int t = thread_index(), c = t / LANES, p = t % LANES;
    if (c >= body.cells) return;
    const Material &m = material_of(materials, width, 0);
    const double scale = schemes->c_k + schemes->c_d * m.stiffness_damping_s;
    const double young = m.youngs_modulus_pa[body.cell_region[c]];
    const real weight = sqrt(scale * young * (m.lam + 2.0 / 3.0 * m.mu));
    const real *mean = body.table + CELL_SIZE * (int64)body.gradient_index[c] + CELL_DILATATION + 3 * p;
    real turned[3];
    turn(rotation + 9 * (int64)c, mean, turned);
#pragma unroll
    for (int a = 0; a < 3; ++a) rows[24 * (int64)c + 3 * p + a] = weight * turned[a];
}

// out (N, 9): inverse diagonal blocks of A - BᵀB, zero for nodes that are not free.
extern "C" __global__ void pressure_inverse(int nodes, const real *blocks, const int64 *slot, const real *free,
                                            const int *node_cells, const real *rows, real *out) {
    const int i = thread_index();
    if (i >= nodes) return;
    real block[9], inverse[9];
#pragma unroll
    for (int e = 0; e < 9; ++e) block[e] = blocks[9 * slot[27 * (int64)i + 13] + e];
    for (int p = 0; p < 8; ++p) {
        const int c = node_cells[8 * (int64)i + p];
        if (c < 0) continue;
        const real *b = rows + 24 * (int64)c + 3 * p;
#pragma unroll
        for (int e = 0; e < 9; ++e) block[e] -= b[e / 3] * b[e % 3];
    }
    invert_block(block, free[i], inverse);
#pragma unroll
    for (int e = 0; e < 9; ++e) out[9 * (int64)i + e] = inverse[e];
}

// out (C, 27): S_cc' = δ_cc' + Σ over the nodes that two cells share of bᵀ D⁻¹ b', by the place of c' beside c.
extern "C" __global__ void pressure_matrix(int cells, const real *inverse, const real *rows, const int *cell_nodes,
                                           const int *node_cells, float *out) {
    const int64 t = thread_index(), c = t / 27;
    const int o = t % 27, x = o / 9 - 1, y = o / 3 % 3 - 1, z = o % 3 - 1;
    if (c >= cells) return;
    double total = o == 13 ? 1.0 : 0.0;
    for (int p = 0; p < 8; ++p) {
        const int i = (p >> 2) - x, j = (p >> 1 & 1) - y, k = (p & 1) - z;  // which corner of c' the node is
        if ((i | j | k) & ~1) continue;
        const int q = 4 * i + 2 * j + k, n = cell_nodes[8 * c + p], other = node_cells[8 * (int64)n + q];
        if (other < 0) continue;
        real turned[3];
        turn(inverse + 9 * (int64)n, rows + 24 * c + 3 * p, turned);
        total += dot(turned, rows + 24 * (int64)other + 3 * q);
    }
    out[t] = total;
}
