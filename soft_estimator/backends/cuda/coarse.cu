// The coarse matrix A_c = Pᵀ A P of a two-level preconditioner, in two products; every sum in a fixed order. P is the
// trilinear interpolation of physics/coarse.py from a grid of `factor` cells.

#define SEGMENTS 8  // of the nodes that a coarse node reaches, added up side by side

// A fine node that a coarse node reaches. code: bits 0-2 whether it lies in the coarse cell before the coarse node along
// an axis, bits 3-5 whether it lies at the lower end of its coarse cell.
struct __align__(16) Reached {
    int node, code;
    float weight, unused;
};

struct CoarseGrid {
    int64 nodes, count, factor, shape[3], width;  // width: rows of A_c, padded
    const int *place, *node, *number, *start;     // start: of each coarse node in `reached`
    const Reached *reached;
};

// Weight of a fine node at l (cells from the lower coarse node along an axis) of the coarse node q, -1 to 1, times factor.
__device__ inline int hat(int l, int q, int factor) { return max(0, factor - abs(l - factor * q)); }

// Whether a row at l reaches the coarse node q along an axis: the one below only from a coarse node itself.
__device__ inline bool reaches(int l, int q) { return q == 0 || q == 1 || (q == -1 && l == 0); }

// A P: for every row and each coarse node around it, q = (qx + 1) 9 + (qy + 1) 3 + qz + 1, a block; out (N, 27, 9).
// Clears the place of A_c (width, width) on the way.
extern "C" __global__ void interpolate_rows(const CoarseGrid *grids, const int64 *slot, const int *column,
                                            const real *free, const real *blocks, real *out, double *matrix) {
    const CoarseGrid &grid = *grids;
    const int t = thread_index(), i = t / 27, q = t % 27;
    for (int64 e = t; e < grid.width * grid.width; e += (int64)gridDim.x * blockDim.x)
        matrix[e] = e % (grid.width + 1) == 0 && e / grid.width >= 3 * grid.count ? 1.0 : 0.0;
    if (i >= grid.nodes) return;
    const int factor = grid.factor, to[3] = {q / 9 - 1, q / 3 % 3 - 1, q % 3 - 1};
    int l[3];
    for (int axis = 0; axis < 3; ++axis) l[axis] = grid.place[3 * i + axis] % factor;
    if (!reaches(l[0], to[0]) || !reaches(l[1], to[1]) || !reaches(l[2], to[2])) return;
    real total[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll 3
    for (int o = 0; o < 27; ++o) {
        const int weight = hat(l[0] + o / 9 - 1, to[0], factor) * hat(l[1] + o / 3 % 3 - 1, to[1], factor) *
                           hat(l[2] + o % 3 - 1, to[2], factor);
        if (weight == 0) continue;
        const int64 k = slot[27 * (int64)i + o];
        if (k < 0) continue;
        const real share = weight * free[column[k]];
#pragma unroll
        for (int e = 0; e < 9; ++e) total[e] += share * blocks[9 * k + e];
    }
    const real scale = real(1) / (factor * factor * factor);
    for (int e = 0; e < 9; ++e) out[9 * (27 * (int64)i + q) + e] = scale * total[e];
}

// Pᵀ (A P): three thread blocks a coarse node, one for each step dx to its neighbours; thread (segment, dy dz, entry).
// out (width, width), identity beyond A_c.
extern "C" __global__ void __launch_bounds__(SEGMENTS * 81)
    coarse_matrix(const CoarseGrid *grids, const real *rows, double *out) {
    __shared__ double part[SEGMENTS * 81];
    const CoarseGrid &grid = *grids;
    const int own = blockIdx.x, width = grid.width, t = threadIdx.x;
    const int entry = t % 9, segment = t / 81, d[3] = {(int)blockIdx.y - 1, t / 27 % 3 - 1, t / 9 % 3 - 1};
    int there[3], other = -1;
    bool inside = own < grid.count;
    for (int axis = 0; axis < 3 && inside; ++axis) {
        there[axis] = grid.node[3 * own + axis] + d[axis];
        inside = there[axis] >= 0 && there[axis] < grid.shape[axis];
    }
    if (inside) other = grid.number[(there[0] * grid.shape[1] + there[1]) * grid.shape[2] + there[2]];
    double total = 0.0;
    if (other >= 0) {
#pragma unroll 4
        for (int e = grid.start[own] + segment; e < grid.start[own + 1]; e += SEGMENTS) {
            const Reached to = grid.reached[e];
            int q[3];
            bool near = true;
#pragma unroll
            for (int axis = 0; axis < 3; ++axis) {
                q[axis] = d[axis] + (to.code >> axis & 1);
                near = near && reaches(to.code >> (3 + axis) & 1 ? 0 : 1, q[axis]);
            }
            if (near)
                total += to.weight * (double)rows[9 * (27 * (int64)to.node + 9 * q[0] + 3 * q[1] + q[2] + 13) + entry];
        }
    }
    part[t] = total;
    __syncthreads();
    if (segment != 0 || other < 0) return;
    for (int s = 1; s < SEGMENTS; ++s) total += part[81 * s + t];
    if (other == own && entry % 4 == 0) total *= 1.0 + 1e-6;  // a safe distance from singular
    out[(3 * own + entry / 3) * (int64)width + 3 * other + entry % 3] = total;
}
