// Corotated linear elasticity of a cell by eight lanes, lane p for corner p; see backends/cpu/elasticity.py for the
// formulas. T is the precision of the arithmetic. Places in a row of the table, CELL_..., are generated from
// backends/layout.py.

// by_lame = Σ_q b_p b_qᵀ/V w_q and by_shear = Σ_q (G_pqᵀ + tr G_pq - ⅔ G_pq) w_q + ⅔ by_lame for the lane's corner p.
template <typename T>
__device__ inline void cell_product(const real *table_row, int p, const T *w, T *by_lame, T *by_shear) {
    const T third = T(2.0 / 3.0);
#pragma unroll
    for (int a = 0; a < 3; ++a) by_shear[a] = 0;
#pragma unroll
    for (int q = 0; q < 8; ++q) {
        T other[3], row[3], column[3];
#pragma unroll
        for (int a = 0; a < 3; ++a) other[a] = from_lane(w[a], q);
        const int low = min(p, q), high = max(p, q);
        const real *g = table_row + 9 * (low * 8 - low * (low - 1) / 2 + high - low);
        T block[9];
#pragma unroll
        for (int i = 0; i < 9; ++i) block[i] = __ldg(g + i);
        turn(block, other, row);
        turn_back(block, other, column);
        const T trace = block[0] + block[4] + block[8];
#pragma unroll
        for (int a = 0; a < 3; ++a)
            by_shear[a] += (p > q ? row[a] - third * column[a] : column[a] - third * row[a]) + trace * other[a];
    }
    T mine[3];
#pragma unroll
    for (int a = 0; a < 3; ++a) mine[a] = __ldg(table_row + CELL_DILATATION + 3 * p + a);
    const T mean = sum_lanes(dot(mine, w));
#pragma unroll
    for (int a = 0; a < 3; ++a) by_lame[a] = mine[a] * mean, by_shear[a] += third * by_lame[a];
}

// y = share (x + u) + z of the lane's corner relative to corner 0, which the element ignores and float32 needs.
template <typename T>
__device__ inline void corner_vector(int p, const T *u, const T *z, T share, T spacing, T *y) {
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        y[a] = share * (u[a] - from_lane(u[a], 0)) + (z[a] - from_lane(z[a], 0));
        if ((p >> (2 - a)) & 1) y[a] += share * spacing;
    }
}

// w = Rᵀ y - share x.
template <typename M, typename T>
__device__ inline void local_vector(const M *r, int p, const T *y, T share, T spacing, T *w) {
    turn_back(r, y, w);
#pragma unroll
    for (int a = 0; a < 3; ++a)
        if ((p >> (2 - a)) & 1) w[a] -= share * spacing;
}

// Derivatives of Σ λᵀ(cell force): y_bar of the lane's corner; r_bar (9) and lame_bar (2) of the cell, in all lanes.
__device__ inline void cell_force_adjoint(const real *table_row, int p, const double *r, const double *y,
                                          const double *w, const double *lmbda, double young, double lam, double mu,
                                          double *y_bar, double *r_bar, double *lame_bar) {
    double back[3], w_lame[3], w_shear[3], b_lame[3], b_shear[3], k[3], m[3];
    turn_back(r, lmbda, back);
    cell_product(table_row, p, w, w_lame, w_shear);
    cell_product(table_row, p, back, b_lame, b_shear);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        k[a] = young * (lam * w_lame[a] + mu * w_shear[a]);
        m[a] = young * (lam * b_lame[a] + mu * b_shear[a]);
    }
    lame_bar[0] = sum_lanes(young * dot(back, w_lame));
    lame_bar[1] = sum_lanes(young * dot(back, w_shear));
    turn(r, m, y_bar);
#pragma unroll
    for (int a = 0; a < 3; ++a)
#pragma unroll
        for (int b = 0; b < 3; ++b) r_bar[3 * a + b] = sum_lanes(lmbda[a] * k[b] + y[a] * m[b]);
}

// block += R (μ(G_pqᵀ + tr(G_pq) I - ⅔ G_pq) + (λ + ⅔ μ) b_p b_qᵀ/V) Rᵀ.
__device__ inline void add_turned_block(const real *table_row, int p, int q, const real *r, real lam, real mu,
                                        real *block) {
    const int low = min(p, q), high = max(p, q);
    const real *g = table_row + 9 * (low * 8 - low * (low - 1) / 2 + high - low);
    const real *b_p = table_row + CELL_DILATATION + 3 * p, *b_q = table_row + CELL_DILATATION + 3 * q;
    real entry[9], local[9], half[9];
#pragma unroll
    for (int i = 0; i < 9; ++i) entry[i] = __ldg(g + i);
    const real third = mu * real(2.0 / 3.0), bulk = lam + third, trace = mu * (entry[0] + entry[4] + entry[8]);
    const real first = p > q ? mu : -third, second = p > q ? -third : mu;  // of G and Gᵀ as they stand in the table
#pragma unroll
    for (int a = 0; a < 3; ++a)
#pragma unroll
        for (int b = 0; b < 3; ++b)
            local[3 * a + b] =
                first * entry[3 * a + b] + second * entry[3 * b + a] + bulk * __ldg(b_p + a) * __ldg(b_q + b);
#pragma unroll
    for (int a = 0; a < 3; ++a) turn_back(local, r + 3 * a, half + 3 * a);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        real turned[3];
        turn(r, half + 3 * a, turned);
#pragma unroll
        for (int b = 0; b < 3; ++b) block[3 * a + b] += turned[b];
        block[4 * a] += trace;
    }
}

// The block of scale · K between a node and its neighbour at one of 27 offsets: the sum over the cells they share.
// stiffness(c) gives scale · E of a cell.
template <typename Stiffness>
__device__ inline void stiffness_block(const int *cells_of_node, int offset, const real *rotation,
                                       const int *gradient_index, const real *table, Stiffness stiffness, real lam,
                                       real mu, real *block) {
    const int dx = offset / 9 - 1, dy = offset / 3 % 3 - 1, dz = offset % 3 - 1;
#pragma unroll
    for (int i = 0; i < 9; ++i) block[i] = 0;
    for (int p = 0; p < 8; ++p) {
        const int x = (p >> 2) + dx, y = (p >> 1 & 1) + dy, z = (p & 1) + dz;
        if ((x | y | z) & ~1) continue;  // the neighbour is no corner of this cell
        const int c = cells_of_node[p];
        if (c < 0) continue;
        real r[9];
#pragma unroll
        for (int i = 0; i < 9; ++i) r[i] = rotation[9 * (int64)c + i];
        const real stiff = stiffness(c);
        add_turned_block(table + CELL_SIZE * (int64)gradient_index[c], p, 4 * x + 2 * y + z, r, stiff * lam, stiff * mu,
                         block);
    }
}
