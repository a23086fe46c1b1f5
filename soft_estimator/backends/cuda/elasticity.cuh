// Corotated linear elasticity of a cell by eight lanes, lane p for corner p; see backends/cpu/elasticity.py for the
// formulas. T is the precision of the arithmetic.

// by_lame = Σ_q G_pq w_q and by_shear = Σ_q (G_pqᵀ + tr G_pq) w_q for the lane's corner p; table_row (36, 9).
template <typename T>
__device__ inline void cell_product(const real *table_row, int p, const T *w, T *by_lame, T *by_shear) {
#pragma unroll
    for (int a = 0; a < 3; ++a) by_lame[a] = by_shear[a] = 0;
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
        for (int a = 0; a < 3; ++a) {
            by_lame[a] += p > q ? column[a] : row[a];
            by_shear[a] += (p > q ? row[a] : column[a]) + trace * other[a];
        }
    }
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

// block += λ RGRᵀ + μ((RGRᵀ)ᵀ + tr(G) I), with Gᵀ for G where transposed.
__device__ inline void add_turned_block(const real *g, bool transposed, const real *r, real lam, real mu, real *block) {
    real entry[9], turned[9], half[9];
#pragma unroll
    for (int i = 0; i < 9; ++i) entry[i] = __ldg(g + i);
#pragma unroll
    for (int a = 0; a < 3; ++a) turn_back(entry, r + 3 * a, half + 3 * a);
#pragma unroll
    for (int a = 0; a < 3; ++a) turn(r, half + 3 * a, turned + 3 * a);
    const real first = transposed ? mu : lam, second = transposed ? lam : mu;
    const real trace = mu * (entry[0] + entry[4] + entry[8]);
#pragma unroll
    for (int a = 0; a < 3; ++a) {
#pragma unroll
        for (int b = 0; b < 3; ++b) block[3 * a + b] += first * turned[3 * a + b] + second * turned[3 * b + a];
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
        const int q = 4 * x + 2 * y + z, low = min(p, q), high = max(p, q);
        const int pair = low * 8 - low * (low - 1) / 2 + high - low;
        real r[9];
#pragma unroll
        for (int i = 0; i < 9; ++i) r[i] = rotation[9 * (int64)c + i];
        const real stiff = stiffness(c);
        add_turned_block(table + 9 * (36 * (int64)gradient_index[c] + pair), p > q, r, stiff * lam, stiff * mu, block);
    }
}
