// Conjugate gradients for systems too large for shared memory.

extern "C" __global__ void __launch_bounds__(512, 2) conjugate_gradient_streamed(BATCH_ARGUMENTS) {
    FIND_OWN_PART
    Streamed v;
    FILL_STREAMED(v)
    __syncthreads();
    const Outcome outcome = iterate(v, tolerance, limit);
    if (rank == 0 && threadIdx.x == 0) write_report(report + 3 * system, outcome);
}
