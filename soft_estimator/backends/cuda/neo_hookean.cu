// Neo-Hookean cells; the formulas are those of backends/cpu/neo_hookean.py and definite.py. Lane k of a cell has its
// quadrature point k; sums over the points are sums over the lanes.

// H = F - I at a lane's point, its cofactors and J - 1. w: displacements of the corners relative to corner 0. slope: the
// table's row from the lane's point on, ∂N_p/∂x_b at 8 (3p + b).
struct Strain {
    double h[9], cof[9], trace, volumetric;

    __device__ Strain(const double (*w)[3], const real *slope) {
#pragma unroll
        for (int i = 0; i < 9; ++i) h[i] = 0.0;
#pragma unroll
        for (int p = 1; p < 8; ++p) {
#pragma unroll
            for (int a = 0; a < 3; ++a) {
#pragma unroll
                for (int b = 0; b < 3; ++b) h[3 * a + b] += w[p][a] * slope[8 * (3 * p + b)];
            }
        }
        const double determinant = cofactor(h, cof);
        trace = h[0] + h[4] + h[8];
        volumetric = trace + (cof[0] + cof[4] + cof[8]) + determinant;
    }
};

__device__ inline void corner_displacements(const real *u, const int *nodes, double (*w)[3]) {
    const real *first = u + 3 * (int64)nodes[0];
#pragma unroll
    for (int p = 0; p < 8; ++p) {
        const real *at = u + 3 * (int64)nodes[p];
#pragma unroll
        for (int a = 0; a < 3; ++a) w[p][a] = double(at[a]) - double(first[a]);
    }
}

__device__ inline int pair_of(int p, int q) {
    const int low = min(p, q), high = max(p, q);
    return low * 8 - low * (low - 1) / 2 + high - low;
}

// energy (C,), and its derivatives by the corners' displacements, corner (C, 24).
extern "C" __global__ void neo_hookean_forces(int cells, const real *u, const int *cell_nodes, const int *index,
                                              const real *slopes, const real *laplacian, const real *volume,
                                              const real *young, double lam, double mu, double *energy, real *corner) {
    const int t = thread_index(), k = t % LANES, c = min(t / LANES, cells - 1), row = index[c];
    const double kappa = lam + 2.0 * mu / 3.0, weight = double(volume[row]) / 8.0;
    double w[8][3], stress[9], smooth[3] = {0.0, 0.0, 0.0}, own[3] = {0.0, 0.0, 0.0}, force[3];
    corner_displacements(u, cell_nodes + 8 * (int64)c, w);
    const real *slope = slopes + 192 * (int64)row + k;
    const Strain s(w, slope);
    const double mean = sum_lanes(s.volumetric) / 8.0, pressure = mu / 3.0 * s.volumetric + kappa * mean;
#pragma unroll
    for (int q = 0; q < 8; ++q) {
        const double g = laplacian[36 * (int64)row + pair_of(k, q)];
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            smooth[a] += g * w[q][a];
            if (q == k) own[a] = w[q][a];
        }
    }
    const double density = weight * mu * (s.volumetric * s.volumetric / 6.0 - (s.volumetric - s.trace));
    const double held = sum_lanes(0.5 * mu * dot(own, smooth) + density) + 4.0 * weight * kappa * mean * mean;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
#pragma unroll
        for (int b = 0; b < 3; ++b) {
            const double turned = s.h[3 * b + a], cof = s.cof[3 * a + b];
            stress[3 * a + b] = weight * (mu * (turned - cof) + pressure * (cof - turned));
        }
        stress[4 * a] += weight * (pressure * (1.0 + s.trace) - mu * s.trace);
    }
#pragma unroll
    for (int p = 0; p < 8; ++p) {
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            double part = 0.0;
#pragma unroll
            for (int b = 0; b < 3; ++b) part += stress[3 * a + b] * slope[8 * (3 * p + b)];
            const double total = sum_lanes(part);
            if (p == k) force[a] = total;
        }
    }
    if (t / LANES >= cells) return;
    const double stiff = young[c];
#pragma unroll
    for (int a = 0; a < 3; ++a) corner[24 * (int64)c + 3 * k + a] = stiff * (force[a] + mu * smooth[a]);
    if (k == 0) energy[c] = stiff * held;
}

// Eigenvalues of FᵀF, largest first.
__device__ inline void squared_stretches(const double *f, double *out) {
    double a[3], b[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        const int j = (i + 1) % 3, k = (i + 2) % 3;
        a[i] = f[i] * f[i] + f[3 + i] * f[3 + i] + f[6 + i] * f[6 + i];
        b[i] = f[j] * f[k] + f[3 + j] * f[3 + k] + f[6 + j] * f[6 + k];
    }
    const double mean = (a[0] + a[1] + a[2]) / 3.0;
#pragma unroll
    for (int i = 0; i < 3; ++i) a[i] -= mean, out[i] = mean;
    const double spread = sqrt((dot(a, a) + 2.0 * dot(b, b)) / 6.0);
    if (!(spread > 0.0)) return;
    const double determinant = a[0] * (a[1] * a[2] - b[0] * b[0]) - b[2] * (b[2] * a[2] - b[0] * b[1]) +
                               b[1] * (b[2] * b[0] - a[1] * b[1]);
    const double angle = acos(fmin(fmax(determinant / (2.0 * spread * spread * spread), -1.0), 1.0)) / 3.0;
    out[0] = mean + 2.0 * spread * cos(angle);
    out[2] = mean + 2.0 * spread * cos(angle + 2.0943951023931953);
    out[1] = 3.0 * mean - out[0] - out[2];
}

__device__ inline bool stretches_resist(double mu, double bend, double x, double y, double z) {
    const double t = mu / 3.0, g0 = y * z, g1 = x * z, g2 = x * y;
    const double b00 = mu + t * g0 * g0, b11 = mu + t * g1 * g1, b22 = mu + t * g2 * g2;
    const double b01 = t * g0 * g1 + bend * z, b02 = t * g0 * g2 + bend * y, b12 = t * g1 * g2 + bend * x;
    const double minor = b00 * b11 - b01 * b01;
    return minor > 0.0 && b22 * minor - b12 * (b00 * b12 - b01 * b02) + b02 * (b01 * b12 - b02 * b11) > 0.0;
}

// The largest s <= 1 that leaves μ I + μ/3 g gᵀ + s bend ∂²J/∂F² positive semi-definite.
__device__ inline double definite_share(const double *h, double mu, double bend) {
    double f[9], cof[9], squares[3];
#pragma unroll
    for (int i = 0; i < 9; ++i) f[i] = h[i] + (i % 4 == 0 ? 1.0 : 0.0);
    squared_stretches(f, squares);
    const double x = sqrt(fmax(squares[0], 0.0)), y = sqrt(fmax(squares[1], 0.0));
    const double size = sqrt(fmax(squares[2], 0.0)), z = cofactor(f, cof) < 0.0 ? -size : size;
    double low = 0.0, high = fmin(1.0, mu / fmax(fabs(bend) * x, 1e-300));
    if (stretches_resist(mu, high * bend, x, y, z)) return high;
    for (int i = 0; i < 48; ++i) {
        const double middle = 0.5 * (low + high);
        if (stretches_resist(mu, middle * bend, x, y, z)) low = middle;
        else high = middle;
    }
    return low;
}

// Second derivatives of the energy by the corner pairs p <= q, out (C, 36, 9).
extern "C" __global__ void neo_hookean_blocks(int cells, const real *u, const int *cell_nodes, const int *index,
                                              const real *slopes, const real *crossed, const real *laplacian,
                                              const real *volume, const real *young, double lam, double mu,
                                              int definite, real *out) {
    const int t = thread_index(), k = t % LANES, c = min(t / LANES, cells - 1), row = index[c];
    const double kappa = lam + 2.0 * mu / 3.0, weight = double(volume[row]) / 8.0;
    double w[8][3], g[8][3], mean_g[8][3], f[9];
    corner_displacements(u, cell_nodes + 8 * (int64)c, w);
    const real *slope = slopes + 192 * (int64)row + k;
    const Strain s(w, slope);
    const double mean = sum_lanes(s.volumetric) / 8.0;
    double bend = -mu + mu / 3.0 * s.volumetric + kappa * mean;
    if (definite) bend *= definite_share(s.h, mu, bend);
#pragma unroll
    for (int i = 0; i < 9; ++i) f[i] = weight * bend * (s.h[i] + (i % 4 == 0 ? 1.0 : 0.0));
#pragma unroll
    for (int p = 0; p < 8; ++p) {
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            double total = 0.0;
#pragma unroll
            for (int b = 0; b < 3; ++b) {
                const double cof = s.cof[3 * a + b] - s.h[3 * b + a] + (a == b ? 1.0 + s.trace : 0.0);
                total += cof * slope[8 * (3 * p + b)];
            }
            g[p][a] = total;
            mean_g[p][a] = sum_lanes(total) / 8.0;
        }
    }
    const double outer = weight * mu / 3.0, stiff = young[c];
    const bool writes = t / LANES < cells;
    int pair = 0, mixed = 0;
#pragma unroll
    for (int p = 0; p < 8; ++p) {
#pragma unroll
        for (int q = p; q < 8; ++q, ++pair) {
            double block[9], v[3] = {0.0, 0.0, 0.0};
            if (p != q) {
                const real *n = crossed + 672 * (int64)row + 28 * k + mixed++;
#pragma unroll
                for (int a = 0; a < 3; ++a) v[a] = f[3 * a] * n[0] + f[3 * a + 1] * n[224] + f[3 * a + 2] * n[448];
            }
#pragma unroll
            for (int a = 0; a < 3; ++a) {
#pragma unroll
                for (int b = 0; b < 3; ++b)
                    block[3 * a + b] = outer * g[p][a] * g[q][b] + weight * kappa * mean_g[p][a] * mean_g[q][b];
            }
            block[1] += v[2], block[3] -= v[2], block[2] -= v[1], block[6] += v[1], block[5] += v[0], block[7] -= v[0];
            const double smooth = mu * laplacian[36 * (int64)row + pair];
#pragma unroll
            for (int i = 0; i < 9; ++i) {
                const double total = sum_lanes(block[i]) + (i % 4 == 0 ? smooth : 0.0);
                if (writes && k == pair % LANES) out[324 * (int64)c + 9 * pair + i] = stiff * total;
            }
        }
    }
}

// blocks += scale · the cells' blocks: thread i, blockIdx.y has row i's neighbour at that offset of 27.
extern "C" __global__ void gather_blocks(int nodes, const real *cell_blocks, const int *node_cells, double scale,
                                         const int64 *slot, real *blocks) {
    const int i = thread_index(), offset = blockIdx.y;
    if (i >= nodes) return;
    const int64 place = slot[27 * (int64)i + offset];
    if (place < 0) return;
    const int dx = offset / 9 - 1, dy = offset / 3 % 3 - 1, dz = offset % 3 - 1;
    double total[9] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    for (int p = 0; p < 8; ++p) {
        const int x = (p >> 2) + dx, y = (p >> 1 & 1) + dy, z = (p & 1) + dz, c = node_cells[8 * (int64)i + p];
        if (c < 0 || (x | y | z) & ~1) continue;
        const int q = 4 * x + 2 * y + z;
        const real *given = cell_blocks + 324 * (int64)c + 9 * pair_of(p, q);
#pragma unroll
        for (int a = 0; a < 3; ++a) {
#pragma unroll
            for (int b = 0; b < 3; ++b) total[3 * a + b] += p <= q ? given[3 * a + b] : given[3 * b + a];
        }
    }
#pragma unroll
    for (int a = 0; a < 9; ++a) blocks[9 * place + a] += scale * total[a];
}

// out (C, 24, K): each cell's matrix times the columns x (N, 3, K) at its corners.
extern "C" __global__ void block_products(int cells, int columns, const real *cell_blocks, const int *cell_nodes,
                                          const real *x, real *out) {
    const int t = thread_index(), j = t % columns, p = t / columns % 8, c = t / columns / 8;
    if (c >= cells) return;
    double total[3] = {0.0, 0.0, 0.0};
    for (int q = 0; q < 8; ++q) {
        const real *block = cell_blocks + 324 * (int64)c + 9 * pair_of(p, q);
        const real *at = x + 3 * (int64)cell_nodes[8 * (int64)c + q] * columns + j;
#pragma unroll
        for (int b = 0; b < 3; ++b) {
            const double value = at[(int64)b * columns];
#pragma unroll
            for (int a = 0; a < 3; ++a) total[a] += (p <= q ? block[3 * a + b] : block[3 * b + a]) * value;
        }
    }
#pragma unroll
    for (int a = 0; a < 3; ++a) out[(24 * (int64)c + 3 * p + a) * columns + j] = total[a];
}
