// Forces, energies and matrix blocks of the cells; the formulas are those of backends/cpu/elasticity.py.

template <typename T>
__device__ inline void load3(const real *values, int node, T *out) {
#pragma unroll
    for (int a = 0; a < 3; ++a) out[a] = values[3 * (int64)node + a];
}

// What a lane knows of its cell after loading: y = share (x + u) + z of its corner and w = Rᵀ y - share x.
template <typename T>
struct Corner {
    T r[9], y[3], w[3];
    const real *table_row;

    __device__ Corner(int c, int p, int node, const real *u, const real *z, T share, const real *rotation,
                      const int *gradient_index, const real *table, T spacing) {
        T at[3], more[3];
#pragma unroll
        for (int i = 0; i < 9; ++i) r[i] = rotation[9 * (int64)c + i];
        load3(u, node, at);
        load3(z, node, more);
        corner_vector(p, at, more, share, spacing, y);
        local_vector(r, p, y, share, spacing, w);
        table_row = table + CELL_SIZE * (int64)gradient_index[c];
    }
};

#define CELL_ARGUMENTS                                                                                              \
    const real *u, const real *z, double share, const real *rotation, const int *cell_nodes,                       \
        const int *gradient_index, const real *table, const real *young, double lam, double mu

// Corner forces R K̂ (Rᵀ(share (x+u) + z) - share x) of every cell, out (C, 24).
extern "C" __global__ void cell_forces(int cells, CELL_ARGUMENTS, double spacing, real *out) {
    const int t = thread_index(), p = t % LANES, c = min(t / LANES, cells - 1);
    const Corner<real> corner(c, p, cell_nodes[8 * c + p], u, z, share, rotation, gradient_index, table, spacing);
    real by_lame[3], by_shear[3], local[3], force[3];
    cell_product(corner.table_row, p, corner.w, by_lame, by_shear);
    if (t / LANES >= cells) return;
#pragma unroll
    for (int a = 0; a < 3; ++a) local[a] = young[c] * (real(lam) * by_lame[a] + real(mu) * by_shear[a]);
    turn(corner.r, local, force);
#pragma unroll
    for (int a = 0; a < 3; ++a) out[24 * (int64)c + 3 * p + a] = force[a];
}

// Elastic energy ½ wᵀ K̂ w of every cell [J], out (C,).
extern "C" __global__ void cell_energies(int cells, CELL_ARGUMENTS, double spacing, double *out) {
    const int t = thread_index(), p = t % LANES, c = min(t / LANES, cells - 1);
    const Corner<double> corner(c, p, cell_nodes[8 * c + p], u, z, share, rotation, gradient_index, table, spacing);
    double by_lame[3], by_shear[3];
    cell_product(corner.table_row, p, corner.w, by_lame, by_shear);
    const double total = sum_lanes(lam * dot(corner.w, by_lame) + mu * dot(corner.w, by_shear));
    if (p == 0 && t / LANES < cells) out[c] = 0.5 * young[c] * total;
}

// Derivatives of Σ λᵀ(cell force): y_bar (C, 24), r_bar (C, 9), lame_bar (C, 2).
extern "C" __global__ void cell_forces_adjoint(int cells, const real *lmbda, CELL_ARGUMENTS, double spacing,
                                               double *y_bar, double *r_bar, double *lame_bar) {
    const int t = thread_index(), p = t % LANES, c = min(t / LANES, cells - 1), node = cell_nodes[8 * c + p];
    const Corner<double> corner(c, p, node, u, z, share, rotation, gradient_index, table, spacing);
    double at[3], yb[3], rb[9], lb[2];
    load3(lmbda, node, at);
    cell_force_adjoint(corner.table_row, p, corner.r, corner.y, corner.w, at, young[c], lam, mu, yb, rb, lb);
    if (t / LANES >= cells) return;
#pragma unroll
    for (int a = 0; a < 3; ++a) y_bar[24 * (int64)c + 3 * p + a] = yb[a];
    if (p != 0) return;
#pragma unroll
    for (int i = 0; i < 9; ++i) r_bar[9 * (int64)c + i] = rb[i];
    lame_bar[2 * (int64)c] = lb[0], lame_bar[2 * (int64)c + 1] = lb[1];
}

// Change of the cell forces for changes dr (C, 9) of R and dlam, dmu (C,) of λ, μ at fixed u and z; out (C, 24).
extern "C" __global__ void cell_forces_tangent(int cells, const double *dr, CELL_ARGUMENTS, const double *dlam,
                                               const double *dmu, double spacing, real *out) {
    const int t = thread_index(), p = t % LANES, c = min(t / LANES, cells - 1);
    const Corner<double> corner(c, p, cell_nodes[8 * c + p], u, z, share, rotation, gradient_index, table, spacing);
    double turned[9], dw[3], w_lame[3], w_shear[3], d_lame[3], d_shear[3], k[3], dk[3], one[3], two[3];
#pragma unroll
    for (int i = 0; i < 9; ++i) turned[i] = dr[9 * (int64)c + i];
    turn_back(turned, corner.y, dw);
    cell_product(corner.table_row, p, corner.w, w_lame, w_shear);
    cell_product(corner.table_row, p, dw, d_lame, d_shear);
    if (t / LANES >= cells) return;
    const double stiff = young[c];
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        k[a] = stiff * (lam * w_lame[a] + mu * w_shear[a]);
        dk[a] = stiff * (lam * d_lame[a] + mu * d_shear[a] + dlam[c] * w_lame[a] + dmu[c] * w_shear[a]);
    }
    turn(corner.r, dk, one);
    turn(turned, k, two);
#pragma unroll
    for (int a = 0; a < 3; ++a) out[24 * (int64)c + 3 * p + a] = one[a] + two[a];
}

// out_i += scale · Σ over the cells around node i of their value at that corner, in the order of the corners.
template <typename T>
__device__ inline void gather_cells(int nodes, const T *cell_values, const int *node_cells, double scale, real *out) {
    const int i = thread_index();
    if (i >= nodes) return;
    T total[3] = {0, 0, 0};
    for (int p = 0; p < 8; ++p) {
        const int c = node_cells[8 * (int64)i + p];
        if (c < 0) continue;
#pragma unroll
        for (int a = 0; a < 3; ++a) total[a] += cell_values[24 * (int64)c + 3 * p + a];
    }
#pragma unroll
    for (int a = 0; a < 3; ++a) out[3 * (int64)i + a] += T(scale) * total[a];
}

extern "C" __global__ void gather(int nodes, const real *cell_values, const int *node_cells, double scale, real *out) {
    gather_cells(nodes, cell_values, node_cells, scale, out);
}

extern "C" __global__ void gather_double(int nodes, const double *cell_values, const int *node_cells, double scale,
                                         real *out) {
    gather_cells(nodes, cell_values, node_cells, scale, out);
}

// Blocks of scale · K + inertia (B,) times unit matrices. The grid's second dimension is the neighbour's offset, so that the threads of a
// warp all sum over the same corners.
extern "C" __global__ void assemble(int nodes, const real *rotation, const int *node_cells, const int *gradient_index,
                                    const real *table, const real *young, double lam, double mu, double scale,
                                    const real *inertia, const int64 *slot, real *blocks) {
    const int i = thread_index(), offset = blockIdx.y;
    if (i >= nodes) return;
    const int64 place = slot[27 * (int64)i + offset];
    if (place < 0) return;
    real block[9];
    stiffness_block(
        node_cells + 8 * (int64)i, offset, rotation, gradient_index, table,
        [=](int c) { return real(scale * young[c]); }, real(lam), real(mu), block);
#pragma unroll
    for (int k = 0; k < 9; ++k) blocks[9 * place + k] = block[k] + (k % 4 == 0 ? inertia[place] : real(0));
}
