// Conjugate gradients with a coarse level in the preconditioner, for systems too large for shared memory.
//
// y = A_c⁻¹ Pᵀ r is carried along with r: r -= α s makes y -= α t with t = u + β t and u = A_c⁻¹ Pᵀ w. Parts of Pᵀ w, their
// totals and y lie in plain arrays, made visible by the fences of the sums.

#define HALF_WARP 16  // lanes that add up the rows of a coarse node together

struct WithCoarseLevel : Streamed {
    const Coarse *coarse;            // shared
    double *parts, *totals, *y, *t;  // global: (slots, 3), then three of (count, 3)

    __device__ void begin(double (&sums)[3]) {
        gather(r);
        pause();
        update<false>(0, 0, sums);
    }
    __device__ void advance(real alpha, real beta, double (&sums)[3]) { update<true>(alpha, beta, sums); }

    // All have written what the others will read.
    __device__ void pause() { wait_for_z(); }

    template <bool MOVE>
    __device__ void update(real alpha, real beta, double (&sums)[3]) {
        move_coarse<MOVE>(alpha, beta);
        if (MOVE) move_rows(alpha, beta);
        pause();
        precondition();
        finish(sums);
    }

    // Pᵀ of a vector's own rows, which all threads of the block have written, into `totals`; visible after the next sum.
    __device__ void gather(const real *vector) {
        const int slots = coarse->touch_start[team.rank], touched = coarse->touch_start[team.rank + 1] - slots;
        const int part = threadIdx.x % HALF_WARP;
        __syncthreads();
        for (int item = threadIdx.x / HALF_WARP; item - threadIdx.x % 32 / HALF_WARP < touched;
             item += blockDim.x / HALF_WARP) {
            const int slot = slots + min(item, touched - 1), end = coarse->entry_start[slot + 1];
            double total[3] = {0.0, 0.0, 0.0};
#pragma unroll 4
            for (int e = coarse->entry_start[slot] + part; e < end; e += HALF_WARP) {
                const Entry at = coarse->entry[e];
#pragma unroll
                for (int a = 0; a < 3; ++a) total[a] += (double)at.weight * (double)vector[3 * at.row + a];
            }
#pragma unroll
            for (int a = 0; a < 3; ++a) {
#pragma unroll
                for (int step = 1; step < HALF_WARP; step *= 2)
                    total[a] += __shfl_xor_sync(ALL_LANES, total[a], step, HALF_WARP);
                if (part == 0 && item < touched) parts[3 * (int64)slot + a] = total[a];
            }
        }
        pause();
        const int lane = threadIdx.x % 32;
        for_own_coarse_rows([&](int row) {
            double total = 0.0;
            for (int q = coarse->slot_start[row / 3] + lane; q < coarse->slot_start[row / 3 + 1]; q += 32)
                total += parts[3 * (int64)coarse->slot[q] + row % 3];
            total = over_warp(total);
            if (lane == 0) totals[row] = total;
        });
    }

    // act(row) by a warp for each of the block's own rows of A_c⁻¹.
    template <typename Act>
    __device__ void for_own_coarse_rows(Act act) const {
        const int own = 3 * coarse->own(team.rank, team.blocks);
        for (int e = threadIdx.x / 32; e < own; e += blockDim.x / 32)
            act(3 * (team.rank + team.blocks * (e / 3)) + e % 3);
    }

    static __device__ double over_warp(double value) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
        return value;
    }

    // u, t and y of the own rows; y = u at the start.
    template <bool MOVE>
    __device__ void move_coarse(double alpha, double beta) {
        const int lane = threadIdx.x % 32, rows = 3 * coarse->count;
        for_own_coarse_rows([&](int row) {
            const float *inverse_row = coarse->inverse + (int64)row * rows;
            double u = 0.0;
#pragma unroll 16
            for (int i = lane; i < rows; i += 32) u += (double)inverse_row[i] * totals[i];
            u = over_warp(u);
            if (lane != 0) return;
            if (MOVE) {
                const double turned = beta != 0 ? u + beta * t[row] : u;
                t[row] = turned, y[row] -= alpha * turned;
            } else {
                t[row] = 0.0, y[row] = u;
            }
        });
    }

    // p, s, x and r after a step on the own rows.
    __device__ void move_rows(real alpha, real beta) {
        const real *own_z = z + 4 * (int64)first;
        for (int i = threadIdx.x; i < 3 * count; i += blockDim.x) {
            const real direction = own_z[4 * (i / 3) + i % 3] + beta * p[i], image = w[i] + beta * s[i];
            p[i] = direction, s[i] = image, x[i] += alpha * direction, r[i] -= alpha * image;
        }
    }

    // z = D⁻¹ r + P y on the own rows.
    __device__ void precondition() {
        for (int row = threadIdx.x; row < count; row += blockDim.x) {
            const int64 at = 8 * (int64)(first + row);
            real turned[3];
            turn(inverse + 9 * (int64)row, r + 3 * row, turned);
            double from_coarse[3] = {0.0, 0.0, 0.0};
#pragma unroll
            for (int q = 0; q < 8; ++q) {
                const double weight = coarse->weight[at + q];
                const double *there = y + 3 * coarse->parent[at + q];
#pragma unroll
                for (int a = 0; a < 3; ++a) from_coarse[a] += weight * there[a];
            }
#pragma unroll
            for (int a = 0; a < 3; ++a) z[4 * (int64)(first + row) + a] = turned[a] + real(from_coarse[a]);
        }
    }

    // As in `Streamed`, and Pᵀ w.
    __device__ void finish(double (&sums)[3]) {
        wait_for_z();
        multiply();
        add_products(sums);
        gather(w);
        sum(sums);
    }
};

// One system; coarse_work: 3 slots and 9 count.
extern "C" __global__ void __launch_bounds__(512, 2)
    conjugate_gradient_streamed_coarse(BATCH_ARGUMENTS, const Coarse *coarse, double *coarse_work) {
    FIND_OWN_PART
    WithCoarseLevel v;
    Coarse *level = (Coarse *)(shared_memory + SCRATCH);
    if (threadIdx.x == 0) *level = *coarse;
    const int64 rows = 3 * coarse->count;
    v.coarse = level, v.totals = coarse_work, v.y = v.totals + rows, v.t = v.y + rows, v.parts = v.t + rows;
    FILL_STREAMED(v)
    __syncthreads();
    // What is carried along drifts: begin anew where it has gone too far.
    const Outcome outcome = iterate<true>(v, tolerance, limit);
    if (rank == 0 && threadIdx.x == 0) write_report(report + 3 * system, outcome);
}
