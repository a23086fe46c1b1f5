// Arrays of a batch of systems, one system after the other, laid out anew with neighbouring systems beside each other, and
// back. order (width,): the system of each lane.

#define TILE 32

// to (count, width) from (systems, length). triangle: count = 6 n numbers, the upper triangles of 3x3 matrices (n, 9).
extern "C" __global__ void to_lanes(int count, int64 length, int width, int triangle, const int *order,
                                    const real *from, real *to) {
    __shared__ real tile[TILE][TILE + 1];
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE, rows = blockDim.x / TILE, k = blockIdx.x * TILE + x;
    const int entry = k % 6, place = entry < 3 ? entry : entry < 5 ? entry + 1 : 8;
    const int64 source = triangle ? 9 * (int64)(k / 6) + place : k;
    for (int j = y; j < width; j += rows)
        if (k < count) tile[j][x] = from[length * order[j] + source];
    __syncthreads();
    for (int i = y; i < TILE; i += rows)
        if (blockIdx.x * TILE + i < count && x < width) to[(blockIdx.x * TILE + i) * (int64)width + x] = tile[x][i];
}

// to (systems, length) from (length, width), for the first `given` lanes.
extern "C" __global__ void from_lanes(int length, int width, int given, const int *order, const real *from, real *to) {
    __shared__ real tile[TILE][TILE + 1];
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE, rows = blockDim.x / TILE, k = blockIdx.x * TILE + x;
    for (int i = y; i < TILE; i += rows)
        if (blockIdx.x * TILE + i < length && x < width) tile[x][i] = from[(blockIdx.x * TILE + i) * (int64)width + x];
    __syncthreads();
    for (int j = y; j < given; j += rows)
        if (k < length) to[(int64)length * order[j] + k] = tile[j][x];
}

// Stiffness of the contact points, to (P, width) from the second of touch (systems, P, 2). A slope under 1e-20 of the
// stiffest point's is left out: it is far below the rounding of what it would be added to.
extern "C" __global__ void touch_to_lanes(int points, int width, const int *order, double least, const double *area,
                                          const double *touch, real *to) {
    const int64 i = thread_index(), t = i / width;
    if (t >= points) return;
    const double stiffness = touch[2 * ((int64)points * order[i % width] + t) + 1];
    to[i] = stiffness < least * area[t] ? 0.0 : stiffness;
}
