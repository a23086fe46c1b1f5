// What all thread blocks of a batch agree on: the systems' scalars, from sums that all add up in the same order.

#define MOST_SYSTEMS 32

// What every block knows of the systems, in shared memory.
struct Systems {
    double base[MOST_SYSTEMS], left[MOST_SYSTEMS];  // |b - A x_held|, and the residual relative to it
    double rz[MOST_SYSTEMS], last_alpha[MOST_SYSTEMS], density[MOST_SYSTEMS], total[3 * MOST_SYSTEMS];
    real alpha[MOST_SYSTEMS], beta[MOST_SYSTEMS], inertia[MOST_SYSTEMS], normal[3][MOST_SYSTEMS];
    real spread[MOST_SYSTEMS];  // consistent mass of a cell's moments, times what inertia is taken by
    int going[MOST_SYSTEMS], status[MOST_SYSTEMS], iterations[MOST_SYSTEMS], fresh[MOST_SYSTEMS];

    // Whether any system goes on after a true residual was taken; `round` counts them.
    __device__ bool judge(int round, double tolerance, int given) {
        const int j = threadIdx.x;
        bool goes = false;
        if (j < given && (round == 0 || status[j] == CONVERGED)) {
            const double norm = sqrt(total[j]);
            const bool fine = norm <= (round == 0 ? 1.0 : 2.0) * tolerance * base[j];
            left[j] = base[j] > 0.0 ? norm / base[j] : 0.0;
            status[j] = !isfinite(base[j]) || !isfinite(norm) ? BREAKDOWN : fine ? CONVERGED : STALLED;
            goes = status[j] == STALLED && round < 4;
            going[j] = goes, fresh[j] = 1;
            if (goes) status[j] = LIMIT;
        }
        return __syncthreads_or(goes);
    }

    // α and β of every system from the last sums; whether any goes on.
    __device__ bool choose(int width, double tolerance, int limit) {
        const int j = threadIdx.x;
        bool goes = false;
        if (j < width && going[j]) {
            const double square = total[j], new_rz = total[width + j], wz = total[2 * width + j];
            const double goal = base[j] * base[j];
            const double ratio = fresh[j] || !(rz[j] > 0.0) ? 0.0 : new_rz / rz[j];
            const double pap = fresh[j] ? wz : wz - ratio * new_rz / last_alpha[j];  // p·Ap without another sum
            const bool done = !fresh[j] && square <= tolerance * tolerance * goal;
            const bool broken = !(pap > 0.0 && isfinite(pap)) || !(square <= 1e16 * goal);
            goes = !done && !broken && iterations[j] < limit;
            if (goes) {
                alpha[j] = last_alpha[j] = new_rz / pap, beta[j] = ratio, rz[j] = new_rz, fresh[j] = 0;
                ++iterations[j];
            } else {
                going[j] = 0, status[j] = done ? CONVERGED : broken ? BREAKDOWN : LIMIT;
                left[j] = sqrt(square) / base[j];
            }
        }
        return __syncthreads_or(goes);
    }
};
#define SYSTEMS_BYTES 4352  // as in cells.py
static_assert(sizeof(Systems) <= SYSTEMS_BYTES, "the systems' scalars need more room");

// Meetings of all blocks, and three sums for every system. A block hands in its parts, then all meet; who has met reads
// what the others wrote before, while one block for each sum adds up its parts; last, everyone takes the totals. There
// is another meeting before parts are handed in again, so that all have been read.
template <int WIDTH, int THREADS>
struct SystemSums {
    static const int ALL = 3 * WIDTH;
    static_assert(ALL <= THREADS, "a thread adds up a block's part of each sum");
    Word *places, *words;  // (2, blocks): two sets of places take turns; (ALL, blocks) parts and (ALL) totals
    int blocks, rank;
    unsigned tag, sum_tag;
    double *partial;  // shared (3, threads)

    __device__ void meet() {
        __syncthreads();
        ++tag;
        if (threadIdx.x < 32) {
            Word *here = places + (tag & 1) * blocks;
            if (threadIdx.x == 0) {
                fence();
                put(here + rank, {0, tag});
            }
            await(here, threadIdx.x, blocks, tag);
            __syncwarp();
            fence();
        }
        __syncthreads();
    }

    __device__ void hand_in(const double (&mine)[3]) {
        const int t = threadIdx.x;
        sum_tag = tag;
#pragma unroll
        for (int q = 0; q < 3; ++q) partial[q * THREADS + t] = mine[q];
        __syncthreads();
        if (t >= ALL) return;
        const double *from = partial + t / WIDTH * THREADS + t % WIDTH;
        double total = 0.0;
#pragma unroll
        for (int k = 0; k < THREADS / WIDTH; ++k) total += from[k * WIDTH];
        put(words + (int64)t * blocks + rank, tagged(total));
    }

    __device__ void add_up() const {
        for (int q = rank + threadIdx.x / 32 * blocks; q < ALL; q += THREADS / 32 * blocks) {
            double total = await(words + (int64)q * blocks, threadIdx.x % 32, blocks, sum_tag);
#pragma unroll
            for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(ALL_LANES, total, step);
            if (threadIdx.x % 32 == 0) put(words + (int64)ALL * blocks + q, tagged(total));
        }
    }

    __device__ void take_totals(double *totals) const {
        const int t = threadIdx.x;
        if (t < ALL) totals[t] = await(words + (int64)ALL * blocks + t, 0, 1, sum_tag);
        __syncthreads();
    }

    __device__ Word tagged(double value) const { return {(unsigned long long)__double_as_longlong(value), sum_tag}; }

    // Sum of the numbers at first, first + 32, ... below `end`, some asked for at once.
    static __device__ double await(const Word *at, int first, int end, unsigned tag) {
        double total = 0.0;
        for (; first < end; first += 32 * POLLS) {
            Word seen[POLLS];
            bool waiting;
#pragma unroll
            for (int j = 0; j < POLLS; ++j) seen[j] = {0, first + 32 * j < end ? tag - 1 : tag};
            do {
                waiting = false;
#pragma unroll
                for (int j = 0; j < POLLS; ++j)
                    if (seen[j].high != tag) seen[j] = look(at + first + 32 * j);
#pragma unroll
                for (int j = 0; j < POLLS; ++j) waiting |= seen[j].high != tag;
            } while (waiting);
#pragma unroll
            for (int j = 0; j < POLLS; ++j) total += __longlong_as_double((int64)seen[j].low);
        }
        return total;
    }
};
