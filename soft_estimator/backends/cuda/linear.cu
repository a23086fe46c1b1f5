// Block-sparse matrix: products, diagonal blocks, and sums of given blocks.

// Pairs of arrays of `size` numbers, b null for ones; wide: 1 where a is double, 2 where b is, 3 where both are.
#define MOST_PAIRS 16
struct Pairs {
    struct {
        const void *a, *b;
        int64 size, wide;
    } pair[MOST_PAIRS];
};

__device__ inline double number(const void *array, int64 i, bool wide) {
    return wide ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

// out_k = Σ a b of pair k, a block of 1024 threads for each, in a fixed order.
extern "C" __global__ void sums(Pairs pairs, double *out) {
    __shared__ double parts[32];
    const auto &pair = pairs.pair[blockIdx.x];
    double total = 0.0;
    for (int64 i = threadIdx.x; i < pair.size; i += blockDim.x)
        total += number(pair.a, i, pair.wide & 1) * (pair.b ? number(pair.b, i, pair.wide & 2) : 1.0);
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(ALL_LANES, total, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    total = parts[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(ALL_LANES, total, step);
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

// out = A x for nodal vectors (N, 3); eight lanes a row.
extern "C" __global__ void multiply(int nodes, const int64 *row_start, const int *column, const real *blocks,
                                    const real *x, real *out) {
    const int t = thread_index(), i = t / LANES, lane = t % LANES;
    real y[3] = {0, 0, 0};
    if (i < nodes)
        for (int64 k = row_start[i] + lane; k < row_start[i + 1]; k += LANES) {
            real block[9], product[3];
#pragma unroll
            for (int e = 0; e < 9; ++e) block[e] = blocks[9 * k + e];
            turn(block, x + 3 * (int64)column[k], product);
#pragma unroll
            for (int a = 0; a < 3; ++a) y[a] += product[a];
        }
#pragma unroll
    for (int a = 0; a < 3; ++a) y[a] = sum_lanes(y[a]);
    if (i < nodes && lane < 3) out[3 * (int64)i + lane] = lane == 0 ? y[0] : lane == 1 ? y[1] : y[2];
}

// out = S x for nodal numbers (n, width), S with one number for each entry of the pattern; a thread for each number.
extern "C" __global__ void multiply_scalars(int rows, int width, const int64 *row_start, const int *column,
                                            const real *values, const real *x, real *out) {
    const int t = thread_index(), i = t / width, a = t % width;
    if (i >= rows) return;
    real total = 0;
    for (int64 k = row_start[i]; k < row_start[i + 1]; ++k) total += values[k] * x[(int64)width * column[k] + a];
    out[t] = total;
}

// Inverse of every diagonal block, zero for nodes that are not free; out (N, 9).
extern "C" __global__ void invert_diagonal(int nodes, const real *blocks, const int64 *slot, const real *free,
                                           real *out) {
    const int i = thread_index();
    if (i < nodes) invert_block(blocks + 9 * slot[27 * (int64)i + 13], free[i], out + 9 * (int64)i);
}

// blocks[slots[k]] += values[k] in the order of k: `order` sorts the slots stably, and the thread of a slot's first
// entry adds them all.
extern "C" __global__ void add_blocks(int count, const int64 *slots, const int64 *order, const real *values,
                                      real *blocks) {
    const int k = thread_index();
    if (k >= count) return;
    const int64 place = slots[order[k]];
    if (k > 0 && slots[order[k - 1]] == place) return;
    for (int j = k; j < count && slots[order[j]] == place; ++j)
        for (int e = 0; e < 9; ++e) blocks[9 * place + e] += values[9 * order[j] + e];
}
