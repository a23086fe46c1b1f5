// Conjugate gradients as one persistent kernel for a batch of systems of the same pattern: what the resident and the
// streamed variant share. Each system gets a team of thread blocks, each of them a range of rows for the whole solve.
//
// The iteration is Chronopoulos and Gear's form of conjugate gradients: with w = A z all of |r|², r·z and w·z are
// summed at once, and A p is carried along as s = w + β s, so a solve waits for the others once for each product and
// once for each sum. All blocks add all partial sums in the same order: they agree to the bit on every scalar and take
// the same turns.

#define SCRATCH 100  // doubles of shared memory for the sums

#define CONVERGED 0
#define LIMIT 1
#define BREAKDOWN 2
#define STALLED 3

extern __shared__ double shared_memory[];

// A number and its tag travel as one 16-byte word, read and written whole: who sees the tag has the number, and no
// fence is needed. Tags grow and are never used twice in a place.
struct __align__(16) Word {
    unsigned long long low, high;
};

__device__ inline void put(Word *place, Word word) {
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203 && __CUDA_ARCH__ >= 700
    asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.gpu.global.b128 [%0], w; }" ::"l"(place),
                 "l"(word.low), "l"(word.high)
                 : "memory");
#else  // aligned 16-byte accesses are whole on the hardware, though older PTX does not promise it
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(place), "l"(word.low), "l"(word.high) : "memory");
#endif
}

__device__ inline Word look(const Word *place) {
    Word word;
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203 && __CUDA_ARCH__ >= 700
    asm volatile("{ .reg .b128 w; ld.relaxed.gpu.global.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
                 : "=l"(word.low), "=l"(word.high)
                 : "l"(place)
                 : "memory");
#else
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(word.low), "=l"(word.high) : "l"(place) : "memory");
#endif
    return word;
}

__device__ inline void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

#define POLLS 5  // words that a lane waits for at once: 160 thread blocks in one go

// Sums over all threads of a team. Two sets of places take turns: who hands in for the next turn but one has seen all
// hand in for the next, so all have read this one.
struct Team {
    Word *places;  // (2, 3, blocks)
    int blocks, rank;
    unsigned tag;
    double *scratch;  // shared, (3, 32) and (3,)

    __device__ Word *place(int which) const { return places + ((tag & 1) * 3 + which) * blocks; }

    // Add `values` over the block in a fixed order and publish them. RELEASE: and all that the block wrote before.
    template <bool RELEASE, int COUNT>
    __device__ void hand_in(double (&values)[COUNT]) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
#pragma unroll
        for (int w = 0; w < COUNT; ++w) {
#pragma unroll
            for (int step = 16; step > 0; step /= 2) values[w] += __shfl_xor_sync(ALL_LANES, values[w], step);
            if (lane == 0) scratch[32 * w + warp] = values[w];
        }
        __syncthreads();
        ++tag;
        if (warp != 0) return;
#pragma unroll
        for (int w = 0; w < COUNT; ++w) {
            values[w] = lane < warps ? scratch[32 * w + lane] : 0.0;
#pragma unroll
            for (int step = 16; step > 0; step /= 2) values[w] += __shfl_xor_sync(ALL_LANES, values[w], step);
        }
        if (lane != 0) return;
        if (RELEASE) fence();
#pragma unroll
        for (int w = 0; w < COUNT; ++w)
            put(place(w) + rank, {(unsigned long long)__double_as_longlong(values[w]), tag});
    }

    // Wait for all blocks' numbers, one warp for each sum; the sums in every thread. ACQUIRE: what the blocks wrote
    // before is then visible.
    template <bool ACQUIRE, int COUNT>
    __device__ void collect(double (&values)[COUNT]) {
        const int lane = threadIdx.x % 32, which = threadIdx.x / 32;
        if (which < COUNT) {
            double total = 0.0;
            for (int first = lane; first - lane < blocks; first += 32 * POLLS) total += wait_for(which, first);
#pragma unroll
            for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(ALL_LANES, total, step);
            if (lane == 0) scratch[96 + which] = total;
            if (ACQUIRE) fence();
        }
        __syncthreads();
#pragma unroll
        for (int w = 0; w < COUNT; ++w) values[w] = scratch[96 + w];
    }

    // The numbers of the blocks first, first + 32, ..., all asked for at once.
    __device__ double wait_for(int which, int first) const {
        Word seen[POLLS];
        bool waiting;
#pragma unroll
        for (int j = 0; j < POLLS; ++j) seen[j] = {0, first + 32 * j < blocks ? tag - 1 : tag};
        do {  // look again at those only that are still missing: every look is in the way of the words to come
            waiting = false;
#pragma unroll
            for (int j = 0; j < POLLS; ++j)
                if (seen[j].high != tag) seen[j] = look(place(which) + first + 32 * j);
#pragma unroll
            for (int j = 0; j < POLLS; ++j) waiting |= seen[j].high != tag;
        } while (waiting);
        double total = 0.0;
#pragma unroll
        for (int j = 0; j < POLLS; ++j) total += __longlong_as_double((int64)seen[j].low);
        return total;
    }
};

struct Outcome {
    int iterations, status;
    double residual;
};

// The iteration, the same in every block. `system` knows
//   reference(): |b - A x_held|, with all free nodes at zero: what is to be solved for;
//   residual(): r = b - A x, returns |r|;
//   begin(sums): z = M⁻¹ r, w = A z; sums |r|², r·z and w·z;
//   advance(α, β, sums): p = z + β p, s = w + β s, x += α p, r -= α s, then as begin;
//   clear_free(): x = 0 on the free nodes.
// RESTART: begin anew from the true residual where the preconditioner may have drifted away from a linear one: where |r|²
// has fallen by DRIFT, or p·Ap is not positive.
#define DRIFT (sizeof(real) == 4 ? 1e-10 : 1e-24)
template <bool RESTART = false, typename System>
__device__ inline Outcome iterate(System &system, double tolerance, int limit) {
    const double base = system.reference();
    double norm = system.residual(), sums[3], alpha = 1.0, rz = 1.0, begun = 0.0;
    if (!isfinite(base) || !isfinite(norm)) return {0, BREAKDOWN, __longlong_as_double(0x7ff0000000000000ll)};
    if (base == 0.0) {
        system.clear_free();
        return {0, CONVERGED, 0.0};
    }
    const double goal = tolerance * tolerance * base * base, far = 1e16 * base * base;
    sums[0] = norm * norm;
    bool fresh = true;
    for (int iteration = 0, restarts = 0; iteration < limit; ++iteration) {
        // The recurred residual may drift from the true one: believe the latter.
        if (sums[0] <= goal || (RESTART && !fresh && sums[0] <= DRIFT * begun)) {
            if (!fresh) norm = system.residual();
            if (norm <= 2.0 * tolerance * base) return {iteration, CONVERGED, norm / base};
            if (restarts == 3) return {iteration, STALLED, norm / base};
            ++restarts, fresh = true;
        }
        if (fresh) system.begin(sums), begun = sums[0];
        const double beta = fresh || !(rz > 0.0) ? 0.0 : sums[1] / rz;
        const double pap = fresh ? sums[2] : sums[2] - beta * sums[1] / alpha;  // p·Ap without another sum
        if (!(pap > 0.0 && isfinite(pap))) {
            if (!RESTART || fresh) return {iteration, BREAKDOWN, sqrt(sums[0]) / base};
            norm = system.residual(), sums[0] = norm * norm;
            if (restarts == 3) return {iteration, STALLED, norm / base};
            ++restarts, fresh = true;
            continue;
        }
        alpha = sums[1] / pap, rz = sums[1], fresh = false;
        system.advance(alpha, beta, sums);
        if (!(sums[0] <= far)) return {iteration + 1, BREAKDOWN, sqrt(sums[0]) / base};
    }
    return {limit, LIMIT, sqrt(sums[0]) / base};
}

// A batch as the host describes it. halo: the nodes that each block of a team reads, wide at most, from halo_start on;
// local: where in that list a matrix block's column stands (resident variant only).
// places: (systems, 2, 3, team) words; report: (systems, 3).
#define BATCH_ARGUMENTS                                                                                            \
    int nodes, int team, int room, int wide, const int64 *row_start, const int *column, const int *halo,          \
        const int *halo_start, const unsigned short *local, const real *all_blocks, const real *all_inverse,      \
        const real *all_free, const real *all_b, real *all_x, real *all_z, real *work,    \
        int64 block_stride, int64 inverse_stride, double tolerance, int limit, unsigned tag, Word *places,        \
        double *report

// What a block finds for itself in it: its system, its rows [first, first + count), its part of the arrays.
#define FIND_OWN_PART                                                                                              \
    const int system = blockIdx.x / team, rank = blockIdx.x % team, share = (nodes + team - 1) / team;            \
    const int first = min(rank * share, nodes), count = min(share, nodes - first);                                \
    const int64 offset = 3 * (int64)nodes * system, own = offset + 3 * (int64)first;                              \
    const real *blocks = all_blocks + block_stride * system;                                                      \
    const real *inverse = all_inverse + inverse_stride * system + 9 * (int64)first, *free = all_free + first;     \
    Team sums = {places + 6 * (int64)team * system, team, rank, tag, shared_memory};

__device__ inline void write_report(double *report, const Outcome &outcome) {
    report[0] = outcome.iterations, report[1] = outcome.residual, report[2] = outcome.status;
}
