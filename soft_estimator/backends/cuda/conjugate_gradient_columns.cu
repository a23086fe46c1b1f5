// The kernels of columns_solve.cuh: what is given to them, laid out and handed back.

// b, x: (given, N, 3); work: 7 vectors (N, 3, wide); sums: 3 · wide · (team + 1) words; report (given, 3);
// coarse_work: the parts of the coarse level and 3 vectors (3 count, wide).
#define COLUMNS_ARGUMENTS                                                                                           \
    int nodes, int given, int groups, int room, const int64 *row_start, const int *column, const real *blocks,     \
        const real *inverse, const real *free, const real *b, real *x, real *work, double tolerance, int limit,    \
        unsigned tag, Word *places, Word *sums, double *report

template <bool COARSE>
__device__ inline void solve_columns(COLUMNS_ARGUMENTS, const Coarse *coarse, real *coarse_work) {
    const int team = gridDim.x, share = (nodes + team - 1) / team, wide = GROUP * groups;
    const int first = min((int)blockIdx.x * share, nodes), count = min(share, nodes - first);
    const int64 size = 3 * (int64)nodes * wide;
    Solve<COARSE> v;
    v.team = {places, team, (int)blockIdx.x, tag, shared_memory};
    v.columns = (Columns *)(shared_memory + SCRATCH);
    v.partial = shared_memory + SCRATCH + COLUMNS_BYTES / 8;
    v.near_blocks = (real *)(v.partial + PARTS * blockDim.x), v.near_column = (int *)(v.near_blocks + 9 * room);
    v.sums = sums, v.first = first, v.count = count, v.room = room, v.wide = wide, v.groups = groups;
    v.group = threadIdx.x % groups, v.begin_k = row_start[first], v.row_start = row_start, v.column = column;
    v.blocks = blocks, v.inverse = inverse, v.free = free;
    v.b = work, v.x = work + size, v.r = work + 2 * size, v.p = work + 3 * size, v.s = work + 4 * size;
    v.w = work + 5 * size, v.z = work + 6 * size;
    if (COARSE) {
        if (threadIdx.x == 0) *(Coarse *)(v.columns + 1) = *coarse;
        v.coarse = (const Coarse *)(v.columns + 1);
        const int64 rows = 3 * coarse->count * wide;
        v.totals = coarse_work, v.y = coarse_work + rows, v.t = coarse_work + 2 * rows, v.parts = coarse_work + 3 * rows;
    }
    const int held = min((int64)room, row_start[first + count] - v.begin_k);
    for (int e = threadIdx.x; e < 9 * held; e += blockDim.x)
        v.near_blocks[e % 9 * room + e / 9] = blocks[9 * v.begin_k + e];
    for (int k = threadIdx.x; k < held; k += blockDim.x) v.near_column[k] = column[v.begin_k + k];
    for (int j = threadIdx.x; j < MOST_COLUMNS; j += blockDim.x)
        v.columns->iterations[j] = 0, v.columns->status[j] = CONVERGED, v.columns->going[j] = 0;
    for (int e = threadIdx.x; e < 3 * count * wide; e += blockDim.x) {
        const int j = e % wide, number = 3 * first + e / wide;
        const int64 to = (int64)number * wide + j, from = 3 * (int64)nodes * j + number;
        v.b[to] = j < given ? b[from] : real(0), v.x[to] = j < given ? x[from] : real(0);
        v.p[to] = v.s[to] = v.w[to] = 0;
    }
    __syncthreads();
    v.run(tolerance, limit);
    for (int e = threadIdx.x; e < 3 * count * wide; e += blockDim.x) {
        const int j = e % wide, number = 3 * first + e / wide;
        if (j < given) x[3 * (int64)nodes * j + number] = v.x[(int64)number * wide + j];
    }
    if (blockIdx.x == 0 && threadIdx.x < given) {
        const int j = threadIdx.x;
        report[3 * j] = v.columns->iterations[j], report[3 * j + 1] = v.columns->left[j];
        report[3 * j + 2] = v.columns->status[j];
    }
}

// LEVELS: of the preconditioner; each kernel is compiled by itself.
#if !defined(LEVELS) || LEVELS == 1
extern "C" __global__ void __launch_bounds__(512, 1) conjugate_gradient_columns(COLUMNS_ARGUMENTS) {
    solve_columns<false>(nodes, given, groups, room, row_start, column, blocks, inverse, free, b, x, work, tolerance,
                         limit, tag, places, sums, report, nullptr, nullptr);
}
#endif

#if !defined(LEVELS) || LEVELS == 2
extern "C" __global__ void __launch_bounds__(512, 1)
    conjugate_gradient_columns_coarse(COLUMNS_ARGUMENTS, const Coarse *coarse, real *coarse_work) {
    solve_columns<true>(nodes, given, groups, room, row_start, column, blocks, inverse, free, b, x, work, tolerance,
                        limit, tag, places, sums, report, coarse, coarse_work);
}
#endif
