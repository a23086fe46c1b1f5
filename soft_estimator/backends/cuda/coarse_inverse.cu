// Inverse of the coarse matrix: Gauss-Jordan without pivoting, as a positive definite matrix needs none, tile by tile.
// Each round every thread block inverts the pivot tile for itself and makes its tiles of the next matrix, so that all
// wait for each other once a round.

#define TILE 32
#define STRIDE (TILE + 1)

// product = a · b of tiles, one number a thread.
__device__ inline double tile_product(const double *a, const double *b, int row, int column) {
    double total = 0.0;
#pragma unroll
    for (int k = 0; k < TILE; ++k) total += a[row * STRIDE + k] * b[k * STRIDE + column];
    return total;
}

// The inverse of the tile in `pivot` (2, TILE, STRIDE), which is overwritten; returns where it is. The inverse of the next
// diagonal number is made by one thread, beside it.
__device__ inline double *invert_tile(double *pivot, double *diagonal, int row, int column) {
    double *from = pivot, *to = pivot + TILE * STRIDE;
    for (int s = 0; s < TILE; ++s) {
        const double d = diagonal[s], left = from[row * STRIDE + s], above = from[s * STRIDE + column] * d;
        const double here = from[row * STRIDE + column];
        const double value = row == s ? (column == s ? d : above) : (column == s ? -left * d : here - left * above);
        to[row * STRIDE + column] = value;
        if (row == s + 1 && column == s + 1) diagonal[s + 1] = 1.0 / value;
        __syncthreads();
        double *swap = from;
        from = to, to = swap;
    }
    return from;
}

// matrix, other: (width, width), width a multiple of TILE, both overwritten; out: (n, n), exactly symmetric.
// 1024 threads a block; places: (2, 3, blocks) words.
extern "C" __global__ void __launch_bounds__(TILE *TILE, 1)
    coarse_inverse(int n, int width, double *matrix, double *other, float *out, unsigned tag, Word *places) {
    double *pivot = shared_memory + SCRATCH, *left = pivot + 2 * TILE * STRIDE, *above = left + TILE * STRIDE;
    double *diagonal = above + TILE * STRIDE;  // inverses of the pivots, (TILE,)
    Team team = {places, (int)gridDim.x, (int)blockIdx.x, tag, shared_memory};
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE, tiles = width / TILE;
    double *from = matrix, *to = other, nothing[1] = {0.0};
    for (int k = 0; k < tiles; ++k) {
        const double *at = from + (int64)row * width + column;
        const double given = at[TILE * (int64)(k * width + k)];
        pivot[row * STRIDE + column] = given;
        if (threadIdx.x == 0) diagonal[0] = 1.0 / given;
        __syncthreads();
        double *inverse = invert_tile(pivot, diagonal, row, column);
        for (int tile = team.rank; tile < tiles * tiles; tile += team.blocks) {
            const int i = tile / tiles, j = tile % tiles;
            double value = at[TILE * (int64)(i * width + j)];
            left[row * STRIDE + column] = at[TILE * (int64)(i * width + k)];
            above[row * STRIDE + column] = at[TILE * (int64)(k * width + j)];
            __syncthreads();
            // The pivot's row becomes its inverse times the row, its column minus the column times its inverse.
            const double turned = j == k ? inverse[row * STRIDE + column] : tile_product(inverse, above, row, column);
            __syncthreads();
            above[row * STRIDE + column] = turned;
            __syncthreads();
            if (i == k)
                value = turned;
            else
                value = (j == k ? 0.0 : value) - tile_product(left, above, row, column);
            to[(TILE * i + row) * (int64)width + TILE * j + column] = value;
            __syncthreads();
        }
        nothing[0] = 0.0;
        team.hand_in<true>(nothing);
        team.collect<true>(nothing);
        double *swap = from;
        from = to, to = swap;
    }
    for (int64 e = (int64)blockIdx.x * blockDim.x + threadIdx.x; e < (int64)n * n; e += gridDim.x * blockDim.x) {
        const int64 i = e / n, j = e % n;
        out[e] = 0.5 * (from[i * width + j] + from[j * width + i]);
    }
}
