// Conjugate gradients with the rows' vectors and as much of the matrix as fits in shared memory, and the rest in the L2
// cache, laid out entry by entry so that neighbouring lanes read neighbouring numbers. The neighbours' z comes in tagged words, each read once by a block and waited for on its own: no fence and
// no barrier of all blocks lies between a vector and its product.

// Most threads of a block, so that each has the registers it needs: 96 rows in one go.
#define RESIDENT_THREADS 768

// Three components and the tag as one or two words. Two split the third double, so that both carry the tag.
#define WORDS (sizeof(real) == 4 ? 1 : 2)

__device__ inline void split(float a, float b, float c, unsigned tag, Word *out) {
    out[0].low = __float_as_uint(a) | (unsigned long long)__float_as_uint(b) << 32;
    out[0].high = __float_as_uint(c) | (unsigned long long)tag << 32;
}

__device__ inline void split(double a, double b, double c, unsigned tag, Word *out) {
    const unsigned long long third = __double_as_longlong(c), high_tag = (unsigned long long)tag << 32;
    out[0] = {(unsigned long long)__double_as_longlong(a), high_tag | (third >> 32)};
    out[1] = {(unsigned long long)__double_as_longlong(b), high_tag | (third & 0xffffffffull)};
}

__device__ inline void join(const Word *words, float *out) {
    out[0] = __uint_as_float((unsigned)words[0].low), out[1] = __uint_as_float((unsigned)(words[0].low >> 32));
    out[2] = __uint_as_float((unsigned)words[0].high);
}

__device__ inline void join(const Word *words, double *out) {
    out[0] = __longlong_as_double((int64)words[0].low), out[1] = __longlong_as_double((int64)words[1].low);
    out[2] = __longlong_as_double((int64)(words[0].high << 32 | (words[1].high & 0xffffffffull)));
}

struct Resident {
    Team team;
    unsigned tag;    // of the last exchange
    Word *exchange;  // global (2, N, WORDS): two vectors, since some block may still be reading the last
    int nodes, first, count, room, around, far;  // far: matrix blocks beyond the room
    const int *halo;  // nodes that the own rows read, (around,)
    const unsigned short *local;  // from the first own block on
    const real *far_blocks, *b;  // global: the blocks beyond the room (9, far)
    // Shared: vectors (count, 3), M⁻¹ (count, 9), free (count,), what was read of the exchange (around, 4), the first
    // `room` matrix blocks (9, room) and their columns in the halo (room,).
    real *x, *r, *p, *s, *z, *w, *inverse, *free, *read, *near_blocks;
    unsigned short *near_local;
    int *near_start;

    __device__ Word *place(int node) const { return exchange + WORDS * ((tag & 1) * (int64)nodes + node); }

    // act(row, a, inside) by four lanes a row, a = 0-3, whole warps at a time; outside the rows with the last one.
    template <typename Act>
    __device__ void for_rows(Act act) {
        for (int row = threadIdx.x / 4; row - threadIdx.x % 32 / 4 < count; row += blockDim.x / 4)
            act(min(row, count - 1), threadIdx.x % 4, row < count);
    }

    // Show the team three numbers of a row, each in one lane.
    __device__ void show(int row, real mine, bool inside) {
        const real a = __shfl_sync(ALL_LANES, mine, 0, 4), c = __shfl_sync(ALL_LANES, mine, 1, 4);
        const real d = __shfl_sync(ALL_LANES, mine, 2, 4);
        const int which = threadIdx.x % 4;
        Word words[2] = {};
        split(a, c, d, tag, words);
        const Word part = which == 0 ? words[0] : words[1];
        if (inside && which < WORDS) put(place(first + row) + which, part);
    }

    // Wait for the vector shown last on all nodes of the halo.
    __device__ void read_halo() {
        for (int h = threadIdx.x; h < around; h += blockDim.x) {
            const Word *at = place(halo[h]);
            Word words[2];
#pragma unroll
            for (int j = 0; j < WORDS; ++j) words[j] = look(at + j);
#pragma unroll
            for (int j = 0; j < WORDS; ++j)
                while ((unsigned)(words[j].high >> 32) != tag) words[j] = look(at + j);
            join(words, read + 4 * h);
        }
        __syncthreads();
    }

    // done(row, a, y) with y = (A · vector shown last)_a for every row and component, each in one of eight lanes.
    template <typename Done>
    __device__ void multiply(Done done) {
        read_halo();
        const int lane = threadIdx.x % LANES;
        for (int row = threadIdx.x / LANES; row - threadIdx.x % 32 / LANES < count; row += blockDim.x / LANES) {
            real y[3] = {0, 0, 0};
            const int start = row < count ? near_start[row] : 0, end = row < count ? near_start[row + 1] : 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) {  // a row has at most 27 blocks
                const int k = start + lane + LANES * j;
                if (k < end) add_block(k, y);
            }
#pragma unroll
            for (int a = 0; a < 3; ++a) y[a] = sum_lanes(y[a]);
            if (row < count && lane < 3) done(row, lane, free[row] * (lane == 0 ? y[0] : lane == 1 ? y[1] : y[2]));
        }
    }

    __device__ void add_block(int k, real *y) const {
        real block[9];
        const real *at = read + 4 * (k < room ? near_local[k] : local[k]);
#pragma unroll
        for (int e = 0; e < 9; ++e)
            block[e] = k < room ? near_blocks[e * room + k] : __ldcg(far_blocks + e * far + (k - room));
        const real there[3] = {at[0], at[1], at[2]};
#pragma unroll
        for (int a = 0; a < 3; ++a)
            y[a] += block[3 * a] * there[0] + block[3 * a + 1] * there[1] + block[3 * a + 2] * there[2];
    }

    template <int COUNT>
    __device__ void sum(double (&values)[COUNT]) {
        team.hand_in<false>(values);
        team.collect<false>(values);
    }

    // |free (b - A x)| for x as it is, or with all free nodes at zero; the vector is left in r.
    __device__ double residual_of(bool held_only) {
        ++tag;
        for_rows([&](int row, int a, bool inside) {
            show(row, held_only && free[row] != 0 ? real(0) : x[3 * row + min(a, 2)], inside);
        });
        double square[1] = {0.0};
        multiply([&](int row, int a, real y) {
            const real left = free[row] * b[3 * row + a] - y;
            r[3 * row + a] = left;
            square[0] += (double)(left * left);
        });
        sum(square);
        return sqrt(square[0]);
    }

    __device__ double reference() { return residual_of(true); }
    __device__ double residual() { return residual_of(false); }

    __device__ void begin(double (&sums)[3]) { update(false, 0, 0, sums); }
    __device__ void advance(real alpha, real beta, double (&sums)[3]) { update(true, alpha, beta, sums); }

    __device__ void update(bool move, real alpha, real beta, double (&sums)[3]) {
        ++tag;
        for_rows([&](int row, int a, bool inside) {
            const int i = 3 * row + a;
            const bool own = inside && a < 3;
            real mine = own ? r[i] : real(0);
            if (move && own) {
                const real direction = z[i] + beta * p[i], image = w[i] + beta * s[i];
                p[i] = direction, s[i] = image, x[i] += alpha * direction;
                mine -= alpha * image;
            }
            const real r0 = __shfl_sync(ALL_LANES, mine, 0, 4), r1 = __shfl_sync(ALL_LANES, mine, 1, 4);
            const real r2 = __shfl_sync(ALL_LANES, mine, 2, 4);
            const real *m = inverse + 9 * row + 3 * min(a, 2);
            const real turned = m[0] * r0 + m[1] * r1 + m[2] * r2;
            show(row, turned, inside);
            if (own) r[i] = mine, z[i] = turned;
        });
        sums[0] = sums[1] = sums[2] = 0.0;
        multiply([&](int row, int a, real y) {
            const int i = 3 * row + a;
            w[i] = y;
            sums[0] += (double)(r[i] * r[i]);
            sums[1] += (double)(r[i] * z[i]);
            sums[2] += (double)(y * z[i]);
        });
        sum(sums);
    }

    __device__ void clear_free() {
        for (int i = threadIdx.x; i < 3 * count; i += blockDim.x)
            if (free[i / 3] != 0) x[i] = 0;
    }
};

// Copy an array of the block's rows into shared memory, zeros without one; returns the place after it.
__device__ inline real *take(real *to, const real *from, int length, int space, real **where) {
    for (int i = threadIdx.x; i < length; i += blockDim.x) to[i] = from ? from[i] : real(0);
    *where = to;
    return to + space;
}

extern "C" __global__ void __launch_bounds__(RESIDENT_THREADS, 1) conjugate_gradient_resident(BATCH_ARGUMENTS) {
    FIND_OWN_PART
    Resident v;
    v.team = sums, v.tag = tag, v.exchange = (Word *)all_z + 2 * WORDS * (int64)nodes * system, v.nodes = nodes;
    v.first = first, v.count = count, v.room = room;
    const int64 begin_k = row_start[first];  // first own matrix block
    v.halo = halo + halo_start[rank], v.around = halo_start[rank + 1] - halo_start[rank], v.local = local + begin_k;
    v.b = all_b + own;
    real *near = (real *)(shared_memory + SCRATCH);
    near = take(near, nullptr, 0, 4 * wide, &v.read);  // first: read in whole words, so it must be aligned
    near = take(near, all_x + own, 3 * count, 3 * share, &v.x);
    near = take(near, nullptr, 3 * count, 3 * share, &v.p);
    near = take(near, nullptr, 3 * count, 3 * share, &v.s);
    near = take(near, nullptr, 3 * count, 3 * share, &v.z);
    near = take(near, nullptr, 3 * count, 3 * share, &v.w);
    near = take(near, nullptr, 3 * count, 3 * share, &v.r);
    near = take(near, inverse, 9 * count, 9 * share, &v.inverse);
    near = take(near, free, count, share, &v.free);
    v.near_blocks = near, v.near_start = (int *)(near + 9 * room);
    v.near_local = (unsigned short *)(v.near_start + share + 1);
    for (int i = threadIdx.x; i <= count; i += blockDim.x) v.near_start[i] = row_start[first + i] - begin_k;
    const int total = row_start[first + count] - begin_k, held = min(room, total);
    real *far_blocks = work + 9 * (row_start[nodes] * system + begin_k);
    v.far = total - held, v.far_blocks = far_blocks;
    for (int e = threadIdx.x; e < 9 * v.far; e += blockDim.x)
        far_blocks[e % 9 * v.far + e / 9] = __ldcs(blocks + 9 * (begin_k + held) + e);
    for (int k = threadIdx.x; k < held; k += blockDim.x) v.near_local[k] = local[begin_k + k];
    for (int e = threadIdx.x; e < 9 * held; e += blockDim.x)
        v.near_blocks[e % 9 * room + e / 9] = blocks[9 * begin_k + e];
    __syncthreads();
    const Outcome outcome = iterate(v, tolerance, limit);
    __syncthreads();
    for (int i = threadIdx.x; i < 3 * count; i += blockDim.x) all_x[own + i] = v.x[i];
    if (rank == 0 && threadIdx.x == 0) write_report(report + 3 * system, outcome);
}
