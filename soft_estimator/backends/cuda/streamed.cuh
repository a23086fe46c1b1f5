// Rows of a matrix that is read from global memory in every iteration, each by a warp with a block for each lane. For
// that the rows are first laid out anew, entry by entry instead of block by block, so that the lanes read consecutive
// numbers. Vectors are exchanged in plain arrays, made visible by the fences of the sums.

struct Streamed {
    Team team;
    int first, count;
    const int64 *row_start;
    const int *column;
    const real *inverse, *free, *b;  // from the first own row on
    real *rows, *z;                  // all rows: matrix rows (9, blocks) one after the other, z (N, 4)
    real *x, *r, *p, *s, *w;         // from the first own row on

    __device__ void lay_out(const real *blocks) {
        const int lane = threadIdx.x % 32;
        for (int row = threadIdx.x / 32; row < count; row += blockDim.x / 32) {
            const int64 from = row_start[first + row];
            const int length = row_start[first + row + 1] - from;
            for (int e = lane; e < 9 * length; e += 32)
                rows[9 * from + e % 9 * length + e / 9] = __ldcs(blocks + 9 * from + e);
        }
    }

    // w = A z on the own rows. A warp has two rows under way, and no read waits for a condition.
    __device__ void multiply() const {
        const int lane = threadIdx.x % 32;
        for (int row = threadIdx.x / 32 * 2; row < count; row += blockDim.x / 32 * 2) {
            const int64 *start = row_start + first + row;
            const int second = row + 1 < count ? 1 : 0;  // the last row may have none after it: then twice the same
            const int64 from[2] = {start[0], start[second]};
            const int length[2] = {(int)(start[1] - start[0]), (int)(start[second + 1] - start[second])};
            real m[2][9], there[2][4], y[2][3];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int k = min(lane, length[j] - 1);
                const real *entry = rows + 9 * from[j] + k;
#pragma unroll
                for (int e = 0; e < 9; ++e) m[j][e] = __ldcs(entry + e * length[j]);
                const Quarter *at = (const Quarter *)(z + 4 * (int64)__ldcs(column + from[j] + k));
#pragma unroll
                for (int part = 0; part < sizeof(real) / 4; ++part) ((Quarter *)there[j])[part] = at[part];
            }
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                turn(m[j], there[j], y[j]);
#pragma unroll
                for (int a = 0; a < 3; ++a) {
                    if (lane >= length[j]) y[j][a] = 0;
#pragma unroll
                    for (int step = 16; step > 0; step /= 2) y[j][a] += __shfl_xor_sync(ALL_LANES, y[j][a], step);
                }
                if (row + j < count && lane < 3)
                    w[3 * (int64)(row + j) + lane] = lane == 0 ? y[j][0] : lane == 1 ? y[j][1] : y[j][2];
            }
        }
        __syncthreads();
    }

    template <int COUNT>
    __device__ void sum(double (&values)[COUNT]) {
        team.hand_in<true>(values);
        team.collect<true>(values);
    }

    // |free (b - A x)| for x as it is, or with all free nodes at zero; the vector is left in r.
    __device__ double residual_of(bool held_only) {
        for (int i = threadIdx.x; i < 3 * count; i += blockDim.x)
            z[4 * (int64)(first + i / 3) + i % 3] = held_only && free[i / 3] != 0 ? real(0) : x[i];
        double square[1] = {0.0};
        sum(square);  // all have written their part of the vector
        multiply();
        square[0] = 0.0;
        for (int i = threadIdx.x; i < 3 * count; i += blockDim.x) {
            const real left = free[i / 3] * (b[i] - w[i]);
            r[i] = left;
            square[0] += (double)(left * left);
        }
        sum(square);
        return sqrt(square[0]);
    }

    __device__ double reference() { return residual_of(true); }
    __device__ double residual() { return residual_of(false); }

    __device__ void begin(double (&sums)[3]) { update(false, 0, 0, sums); }
    __device__ void advance(real alpha, real beta, double (&sums)[3]) { update(true, alpha, beta, sums); }

    __device__ void update(bool move, real alpha, real beta, double (&sums)[3]) {
        step_on(move, alpha, beta);
        finish(sums);
    }

    // p, s, x and r after a step, and z = M⁻¹ r, all on the own rows.
    __device__ void step_on(bool move, real alpha, real beta) {
        real *own_z = z + 4 * (int64)first;
        for (int row = threadIdx.x; row < count; row += blockDim.x) {
            real left[3], turned[3];
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                const int i = 3 * row + a;
                left[a] = r[i];
                if (move) {
                    const real direction = own_z[4 * row + a] + beta * p[i], image = w[i] + beta * s[i];
                    p[i] = direction, s[i] = image, x[i] += alpha * direction;
                    r[i] = left[a] -= alpha * image;
                }
            }
            turn(inverse + 9 * (int64)row, left, turned);
#pragma unroll
            for (int a = 0; a < 3; ++a) own_z[4 * row + a] = turned[a];
        }
    }

    // All have written their part of z.
    __device__ void wait_for_z() {
        double pause[1] = {0.0};
        sum(pause);
    }

    // w = A z and the sums of |r|², r·z and w·z.
    __device__ void finish(double (&sums)[3]) {
        wait_for_z();
        multiply();
        add_products(sums);
        sum(sums);
    }

    // The own rows' part of these sums, after a product.
    __device__ void add_products(double (&sums)[3]) {
        const real *own_z = z + 4 * (int64)first;
        sums[0] = sums[1] = sums[2] = 0.0;
        for (int i = threadIdx.x; i < 3 * count; i += blockDim.x) {
            const real image = free[i / 3] * w[i], own = own_z[4 * (i / 3) + i % 3];
            w[i] = image;
            sums[0] += (double)(r[i] * r[i]);
            sums[1] += (double)(r[i] * own);
            sums[2] += (double)(image * own);
        }
    }

    __device__ void clear_free() {
        for (int i = threadIdx.x; i < 3 * count; i += blockDim.x)
            if (free[i / 3] != 0) x[i] = 0;
    }
};

// The own part of a system as FIND_OWN_PART finds it, laid out.
#define FILL_STREAMED(v)                                                                                           \
    v.team = sums, v.first = first, v.count = count, v.row_start = row_start, v.column = column;                  \
    v.inverse = inverse, v.free = free, v.b = all_b + own, v.x = all_x + own;                                     \
    v.z = all_z + 4 * (int64)nodes * system;                                                                      \
    const int64 size = 3 * (int64)nodes;                                                                          \
    real *mine = work + (4 * size + 9 * row_start[nodes]) * system;                                               \
    v.rows = mine + 4 * size;                                                                                     \
    v.r = mine + 3 * (int64)first, v.p = v.r + size, v.s = v.p + size, v.w = v.s + size;                          \
    for (int i = threadIdx.x; i < 3 * count; i += blockDim.x) v.p[i] = v.s[i] = 0;                                \
    v.lay_out(blocks);
