// Conjugate gradients with the cells' pressures in the preconditioner, for systems too large for shared memory.

struct WithPressures : Streamed {
    PressurePart *part;  // shared
    unsigned cell_tag;   // the last of the pressures' tags

    __device__ void begin(double (&sums)[3]) { update(false, 0, 0, sums); }
    __device__ void advance(real alpha, real beta, double (&sums)[3]) { update(true, alpha, beta, sums); }

    __device__ void update(bool move, real alpha, real beta, double (&sums)[3]) {
        step_on(move, alpha, beta);  // z = D⁻¹ r
        wait_for_z();
        part->start(cell_tag, [&](int node, real *at) {
#pragma unroll
            for (int a = 0; a < 3; ++a) at[a] = z[4 * (int64)node + a];
        });
        part->run(cell_tag);
        correct();
        finish(sums);
    }

    // z = D⁻¹ (r - Bᵀ y) on the own rows; eight lanes a row.
    __device__ void correct() {
        const int lane = threadIdx.x % LANES;
        for (int item = threadIdx.x / LANES; item - threadIdx.x % 32 / LANES < count; item += blockDim.x / LANES) {
            const int row = min(item, count - 1);
            real right[3], turned[3];
            part->pulled(cell_tag, first + row, right);
#pragma unroll
            for (int a = 0; a < 3; ++a) right[a] = r[3 * row + a] - right[a];
            turn(inverse + 9 * (int64)row, right, turned);
            if (item < count && lane < 3)
                z[4 * (int64)(first + row) + lane] = lane == 0 ? turned[0] : lane == 1 ? turned[1] : turned[2];
        }
    }
};

// One system; inverse: of D. cell_tag: the largest tag of the pressures' words so far.
extern "C" __global__ void __launch_bounds__(512, 2)
    conjugate_gradient_pressure(BATCH_ARGUMENTS, const Pressures *pressures, unsigned cell_tag) {
    FIND_OWN_PART
    WithPressures v;
    v.part = (PressurePart *)(shared_memory + SCRATCH), v.cell_tag = cell_tag;
    if (threadIdx.x == 0) v.part->place(*pressures, (real *)(shared_memory + SCRATCH + PRESSURE_PART), rank, team);
    FILL_STREAMED(v)
    __syncthreads();
    v.part->load();
    __syncthreads();
    const Outcome outcome = iterate<true>(v, tolerance, limit);
    if (rank == 0 && threadIdx.x == 0) write_report(report + 3 * system, outcome);
}
