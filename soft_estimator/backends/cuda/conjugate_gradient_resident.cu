// Conjugate gradients with the rows' vectors and as much of the matrix as fits in shared memory, and the rest in the L2
// cache, laid out entry by entry so that neighbouring lanes read neighbouring numbers. The neighbours' z comes in tagged
// words, each read once by a block and waited for on its own: no fence and no barrier of all blocks lies between a
// vector and its product.
//
// With a coarse level, y = A_c⁻¹ Pᵀ r is carried along with r: r -= α s makes y -= α t with t = A_c⁻¹ Pᵀ s. Parts of Pᵀ w,
// their totals and y travel in tagged words too, while the scalars are summed.

// Most threads of a block, so that each has the registers it needs: 96 rows in one go.
#define RESIDENT_THREADS 768

template <bool COARSE, bool PRESSURES>
struct Resident {
    Team team;
    unsigned tag;    // of the last exchange
    int nodes, first, count, room, around, far;  // far: matrix blocks beyond the room
    Outside near_outside;
    // Shared: vectors (count, 3), M⁻¹ (count, 9), free (count,), what was read of the exchange (around, 4), the first
    // `room` matrix blocks (9, room) and their columns in the halo (room,).
    real *x, *r, *p, *s, *z, *w, *inverse, *free, *read, *near_blocks;
    unsigned short *near_local;
    int *near_start;
    CoarsePart *part;  // shared
    unsigned coarse_tag;
    PressurePart *pressures;  // shared
    unsigned cell_tag;

    __device__ const Outside &outside() const { return COARSE ? part->outside : near_outside; }

    __device__ Word *place(int node) const { return outside().exchange + WORDS * ((tag & 1) * (int64)nodes + node); }

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

    // Wait for the vector shown last at a node.
    __device__ void read_node(int node, real *out) const {
        const Word *at = place(node);
        Word words[2];
#pragma unroll
        for (int j = 0; j < WORDS; ++j) words[j] = look(at + j);
#pragma unroll
        for (int j = 0; j < WORDS; ++j)
            while ((unsigned)(words[j].high >> 32) != tag) words[j] = look(at + j);
        join(words, out);
    }

    // And on all nodes of the halo.
    __device__ void read_halo() {
        for (int h = threadIdx.x; h < around; h += blockDim.x) read_node(outside().halo[h], read + 4 * h);
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
        const real *at = read + 4 * (k < room ? near_local[k] : outside().local[k]);
#pragma unroll
        for (int e = 0; e < 9; ++e)
            block[e] = k < room ? near_blocks[e * room + k] : __ldcg(outside().far_blocks + e * far + (k - room));
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

    // One of two sets of words takes turns, as in the exchange: before one is used again, all have handed in sums.
    __device__ Word *turn_of(Word *words, int64 length) const { return words + (coarse_tag & 1) * length; }
    __device__ int coarse_row(int e) const { return 3 * (team.rank + team.blocks * (e / 3)) + e % 3; }

    __device__ void tell(Word *place, double value) const {
        put(place, {(unsigned long long)__double_as_longlong(value), coarse_tag});
    }

    __device__ double hear(const Word *place) const {
        Word word = look(place);
        while (word.high != coarse_tag) word = look(place);
        return __longlong_as_double((int64)word.low);
    }

    static __device__ double over_warp(double value) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
        return value;
    }

    // Pᵀ vector, told to all by the owners; vector: shared, (count, 3), seen by all threads.
    __device__ void gather_coarse(const real *vector) {
        ++coarse_tag;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, four = threadIdx.x % 4, touched = part->touched;
        Word *parts = turn_of(part->part_words, 3 * (int64)part->coarse.touch_start[team.blocks]);
        for (int item = threadIdx.x / 4; item - lane / 4 < 3 * touched; item += blockDim.x / 4) {
            const int slot = part->slots + min(item / 3, touched - 1), end = part->coarse.entry_start[slot + 1];
            real total = 0;
#pragma unroll 4
            for (int e = part->coarse.entry_start[slot] + four; e < end; e += 4) {
                const Entry at = part->coarse.entry[e];
                total += real(at.weight) * vector[3 * at.row + item % 3];
            }
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
            if (four == 0 && item < 3 * touched) tell(parts + 3 * slot + item % 3, total);
        }
        Word *sums = turn_of(part->total_words, 3 * part->coarse.count);
        for (int e = warp; e < part->owned; e += blockDim.x / 32) {
            const int row = coarse_row(e);
            double total = 0.0;
            for (int q = part->coarse.slot_start[row / 3] + lane; q < part->coarse.slot_start[row / 3 + 1]; q += 32)
                total += hear(parts + 3 * part->coarse.slot[q] + row % 3);
            total = over_warp(total);
            if (lane == 0) tell(sums + row, total);
        }
    }

    // u = A_c⁻¹ of what was gathered last, the own rows of it. Asked for late, so that few words are looked at in vain.
    __device__ void solve_coarse() {
        const int all = 3 * part->coarse.count, lane = threadIdx.x % 32;
        const Word *sums = turn_of(part->total_words, all);
        for (int i = threadIdx.x; i < all; i += blockDim.x) part->totals[i] = hear(sums + i);
        __syncthreads();
        for (int e = threadIdx.x / 32; e < part->owned; e += blockDim.x / 32) {
            const float *row = part->coarse.inverse + (int64)coarse_row(e) * all;
            double total = 0.0;
#pragma unroll 4
            for (int i = lane; i < all; i += 32) total += row[i] * part->totals[i];
            total = over_warp(total);
            if (lane == 0) part->u[e] = total;
        }
        __syncthreads();
    }

    // t = u + β t, y -= α t, or y = u at the start; shown to all.
    __device__ void move_coarse(bool move, double alpha, double beta) {
        Word *words = turn_of(part->y_words, 3 * part->coarse.count);
        for (int e = threadIdx.x; e < part->owned; e += blockDim.x) {
            part->t[e] = move ? part->u[e] + beta * part->t[e] : 0.0;
            part->y[e] = move ? part->y[e] - alpha * part->t[e] : part->u[e];
            tell(words + coarse_row(e), part->y[e]);
        }
    }

    // Wait for y at the own slots.
    __device__ void read_coarse() {
        const Word *words = turn_of(part->y_words, 3 * part->coarse.count);
        for (int i = threadIdx.x; i < 3 * part->touched; i += blockDim.x)
            part->near_y[i] = hear(words + 3 * part->coarse.touch_node[part->slots + i / 3] + i % 3);
        __syncthreads();
    }

    // (P y)_a of a row.
    __device__ real from_coarse(int row, int a) const {
        const int64 at = 8 * (int64)(first + row);
        double total = 0.0;
#pragma unroll
        for (int q = 0; q < 8; ++q) total += part->coarse.weight[at + q] * part->near_y[3 * part->coarse.local[at + q] + a];
        return total;
    }

    // |free (b - A x)| for x as it is, or with all free nodes at zero; the vector is left in r.
    __device__ double residual_of(bool held_only) {
        ++tag;
        for_rows([&](int row, int a, bool inside) {
            show(row, held_only && free[row] != 0 ? real(0) : x[3 * row + min(a, 2)], inside);
        });
        double square[1] = {0.0};
        multiply([&](int row, int a, real y) {
            const real left = free[row] * outside().b[3 * row + a] - y;
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

    // p, s and x of a number; returns the residual there.
    __device__ real step_on(int i, real alpha, real beta) {
        const real direction = z[i] + beta * p[i], image = w[i] + beta * s[i];
        p[i] = direction, s[i] = image, x[i] += alpha * direction;
        return r[i] - alpha * image;
    }

    __device__ void update(bool move, real alpha, real beta, double (&sums)[3]) {
        ++tag;
        if (COARSE) {
            if (!move) gather_coarse(r);
            solve_coarse();
            move_coarse(move, alpha, beta);
            if (move)
                for (int i = threadIdx.x; i < 3 * count; i += blockDim.x) r[i] = step_on(i, alpha, beta);
            read_coarse();
        }
        for_rows([&](int row, int a, bool inside) {
            const int i = 3 * row + a;
            const bool own = inside && a < 3;
            real mine = own ? r[i] : real(0);
            if (move && own && !COARSE) mine = step_on(i, alpha, beta);
            const real r0 = __shfl_sync(ALL_LANES, mine, 0, 4), r1 = __shfl_sync(ALL_LANES, mine, 1, 4);
            const real r2 = __shfl_sync(ALL_LANES, mine, 2, 4);
            const real *m = inverse + 9 * row + 3 * min(a, 2);
            real turned = m[0] * r0 + m[1] * r1 + m[2] * r2;
            if (COARSE) turned += from_coarse(row, min(a, 2));
            show(row, turned, inside);
            if (own) r[i] = mine;
            if (own && !PRESSURES) z[i] = turned;
        });
        if (PRESSURES) correct();
        sums[0] = sums[1] = sums[2] = 0.0;
        multiply([&](int row, int a, real y) {
            const int i = 3 * row + a;
            w[i] = y;
            sums[0] += (double)(r[i] * r[i]);
            sums[1] += (double)(r[i] * z[i]);
            sums[2] += (double)(y * z[i]);
        });
        team.hand_in<false>(sums);
        if (COARSE) gather_coarse(w);
        team.collect<false>(sums);
    }

    // From D⁻¹ r, shown last, to z = D⁻¹ (r - Bᵀ y), shown then. w is free for Bᵀ y until the product is taken.
    __device__ void correct() {
        pressures->start(cell_tag, [&](int node, real *at) { read_node(node, at); });
        pressures->run(cell_tag);
        const int lane = threadIdx.x % LANES;
        for (int item = threadIdx.x / LANES; item - threadIdx.x % 32 / LANES < count; item += blockDim.x / LANES) {
            real pulled[3];
            pressures->pulled(cell_tag, first + min(item, count - 1), pulled);
            if (item < count && lane < 3) w[3 * item + lane] = lane == 0 ? pulled[0] : lane == 1 ? pulled[1] : pulled[2];
        }
        __syncthreads();
        ++tag;
        for_rows([&](int row, int a, bool inside) {
            const real *m = inverse + 9 * row + 3 * min(a, 2), *left = r + 3 * row, *pulled = w + 3 * row;
            real turned = 0;
#pragma unroll
            for (int b = 0; b < 3; ++b) turned += m[b] * (left[b] - pulled[b]);
            show(row, turned, inside);
            if (inside && a < 3) z[3 * row + a] = turned;
        });
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

template <bool COARSE, bool PRESSURES>
__device__ inline void solve_resident(BATCH_ARGUMENTS, const Coarse *coarse, Word *words, const Pressures *pressures,
                                      unsigned cell_tag) {
    FIND_OWN_PART
    Resident<COARSE, PRESSURES> v;
    v.team = sums, v.tag = tag, v.nodes = nodes;
    v.first = first, v.count = count, v.room = room;
    const int64 begin_k = row_start[first];  // first own matrix block
    v.around = halo_start[rank + 1] - halo_start[rank];
    real *near = (real *)(shared_memory + SCRATCH);
    if (COARSE) {
        v.part = (CoarsePart *)(shared_memory + SCRATCH), v.coarse_tag = tag;
        if (threadIdx.x == 0) v.part->place(shared_memory + SCRATCH + COARSE_PART, *coarse, rank, team, words);
        near = (real *)(shared_memory + SCRATCH + coarse->space);
    }
    if (PRESSURES) {
        v.pressures = (PressurePart *)(shared_memory + SCRATCH), v.cell_tag = cell_tag;
        real *own_cells = (real *)(shared_memory + SCRATCH + PRESSURE_PART);
        if (threadIdx.x == 0) v.pressures->place(*pressures, own_cells, rank, team);
        near = (real *)(shared_memory + SCRATCH + pressures->space);
    }
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
    v.far = total - held;
    const Outside outside = {(Word *)all_z + 2 * WORDS * (int64)nodes * system, halo + halo_start[rank],
                             local + begin_k, far_blocks, all_b + own};
    if (!COARSE) v.near_outside = outside;
    if (COARSE && threadIdx.x == 0) v.part->outside = outside;
    for (int e = threadIdx.x; e < 9 * v.far; e += blockDim.x)
        far_blocks[e % 9 * v.far + e / 9] = __ldcs(blocks + 9 * (begin_k + held) + e);
    for (int k = threadIdx.x; k < held; k += blockDim.x) v.near_local[k] = local[begin_k + k];
    for (int e = threadIdx.x; e < 9 * held; e += blockDim.x)
        v.near_blocks[e % 9 * room + e / 9] = blocks[9 * begin_k + e];
    __syncthreads();
    if (PRESSURES) v.pressures->load();
    __syncthreads();
    // What is carried along or rounded drifts: begin anew where it has gone too far.
    const Outcome outcome = iterate<COARSE || PRESSURES>(v, tolerance, limit);
    __syncthreads();
    for (int i = threadIdx.x; i < 3 * count; i += blockDim.x) all_x[own + i] = v.x[i];
    if (rank == 0 && threadIdx.x == 0) write_report(report + 3 * system, outcome);
}

#define RESIDENT_BATCH                                                                                             \
    nodes, team, room, wide, row_start, column, halo, halo_start, local, all_blocks, all_inverse, all_free, all_b,  \
        all_x, all_z, work, block_stride, inverse_stride, tolerance, limit, tag, places, report

// LEVELS: of the preconditioner, 3 for pressures; each kernel is compiled by itself.
#if !defined(LEVELS) || LEVELS == 1
extern "C" __global__ void __launch_bounds__(RESIDENT_THREADS, 1) conjugate_gradient_resident(BATCH_ARGUMENTS) {
    solve_resident<false, false>(RESIDENT_BATCH, nullptr, nullptr, nullptr, 0);
}
#endif

#if !defined(LEVELS) || LEVELS == 2
// One system; words: 12 count + 6 slots.
extern "C" __global__ void __launch_bounds__(RESIDENT_THREADS, 1)
    conjugate_gradient_resident_coarse(BATCH_ARGUMENTS, const Coarse *coarse, Word *words) {
    solve_resident<true, false>(RESIDENT_BATCH, coarse, words, nullptr, 0);
}
#endif

#if !defined(LEVELS) || LEVELS == 3
// One system; inverse: of D. cell_tag: the largest tag of the pressures' words so far.
extern "C" __global__ void __launch_bounds__(RESIDENT_THREADS, 1)
    conjugate_gradient_resident_pressure(BATCH_ARGUMENTS, const Pressures *pressures, unsigned cell_tag) {
    solve_resident<false, true>(RESIDENT_BATCH, nullptr, nullptr, pressures, cell_tag);
}
#endif
