// Conjugate gradients with the cells' pressures in the preconditioner, see physics/pressure.py:
//
//     z = D⁻¹ (r - Bᵀ y),   y about S⁻¹ B D⁻¹ r by Chebyshev's steps for S = I + B D⁻¹ Bᵀ.
//
// The matrix is streamed; S, of which a block has the rows of its own cells in shared memory, takes most of the time, and
// most of that is waiting for the neighbours' pressures. They come in tagged words, each read once by a block.

// What the host hands over; 8-byte fields only.
struct Pressures {
    int64 cells, wide, steps;   // wide: cells that a block reads at most
    const int *cell_nodes, *node_cells;  // (C, 8), (N, 8)
    const int *halo, *halo_start;        // cells that each block reads
    const unsigned short *local;         // where in that list the neighbours of a cell stand, (C, 27)
    const real *rows;                    // B, (C, 24)
    const float *matrix;                 // S, (C, 27), zero where there is no neighbour
    const double *step;                  // keep and take of each step, (steps, 2)
    Word *words;                         // (3, C): two sets of pressures in turn, and y
};

#define POLLED 4  // words that a thread waits for at once

struct WithPressures : Streamed {
    const Pressures *given;  // shared
    int begin_cell, cells, around;  // own cells: the first, how many; cells that they read
    unsigned tag;
    // Shared: own rows of S and where their neighbours stand (cells, 27), the pressures read (around,), and of the own
    // cells what is left to be solved for, the last step, their sum and 1/S on the diagonal.
    float *matrix;
    unsigned short *local;
    real *read, *left, *move, *total, *scale;

    __device__ void place(double *shared, int share) {
        real *at = (real *)shared;
        left = at, move = left + share, total = move + share, scale = total + share, read = scale + share;
        matrix = (float *)(read + given->wide), local = (unsigned short *)(matrix + 27 * share);
        for (int i = threadIdx.x; i < 27 * cells; i += blockDim.x) {
            matrix[i] = given->matrix[27 * (int64)begin_cell + i], local[i] = given->local[27 * (int64)begin_cell + i];
            if (i % 27 == 13) scale[i / 27] = real(1) / matrix[i];
        }
    }

    __device__ static Word word_of(double value, unsigned tag) {
        return {(unsigned long long)__double_as_longlong(value), tag};
    }

    __device__ Word *set(int which) const { return given->words + given->cells * which; }

    __device__ void show(int cell, real pressure) const { put(set(tag & 1) + begin_cell + cell, word_of(pressure, tag)); }

    __device__ static real hear(const Word *place, unsigned tag) {
        Word word = look(place);
        while ((unsigned)word.high != tag) word = look(place);
        return __longlong_as_double((int64)word.low);
    }

    // Wait for the pressures shown last on all cells around the own ones.
    __device__ void read_around() {
        const int *halo = given->halo + given->halo_start[team.rank];
        const Word *from = set(tag & 1);
        for (int first = threadIdx.x; first < around; first += POLLED * blockDim.x) {
            Word seen[POLLED];
            bool waiting;
#pragma unroll
            for (int j = 0; j < POLLED; ++j) seen[j] = {0, first + j * blockDim.x < around ? tag - 1u : tag};
            do {
                waiting = false;
#pragma unroll
                for (int j = 0; j < POLLED; ++j)
                    if ((unsigned)seen[j].high != tag) seen[j] = look(from + halo[first + j * blockDim.x]);
#pragma unroll
                for (int j = 0; j < POLLED; ++j) waiting |= (unsigned)seen[j].high != tag;
            } while (waiting);
#pragma unroll
            for (int j = 0; j < POLLED; ++j)
                if (first + j * blockDim.x < around) read[first + j * blockDim.x] = __longlong_as_double((int64)seen[j].low);
        }
        __syncthreads();
    }

    // left = B z, and the first step; eight lanes a cell.
    __device__ void start() {
        const int lane = threadIdx.x % LANES;
        const real take = given->step[1];
        ++tag;
        for (int item = threadIdx.x / LANES; item - threadIdx.x % 32 / LANES < cells; item += blockDim.x / LANES) {
            const int c = min(item, cells - 1);
            const int64 corner = LANES * (int64)(begin_cell + c) + lane;
            const real *row = given->rows + 3 * corner, *at = z + 4 * (int64)given->cell_nodes[corner];
            const real felt = sum_lanes(row[0] * at[0] + row[1] * at[1] + row[2] * at[2]);
            if (item >= cells || lane != 0) continue;
            left[c] = felt, move[c] = total[c] = take * scale[c] * felt;
            show(c, move[c]);
        }
        __syncthreads();
    }

    // left -= S move, move = keep move + take left/S_cc, total += move; four lanes a cell. Shown, but for the last.
    __device__ void step(real keep, real take, bool last) {
        const int lane = threadIdx.x % 4;
        read_around();
        ++tag;
        for (int item = threadIdx.x / 4; item - threadIdx.x % 32 / 4 < cells; item += blockDim.x / 4) {
            const int c = min(item, cells - 1);
            real product = 0;
#pragma unroll
            for (int j = 0; j < 7; ++j) {
                const int k = 27 * c + lane + 4 * j;
                if (lane + 4 * j < 27) product += matrix[k] * read[local[k]];
            }
            product += __shfl_xor_sync(ALL_LANES, product, 1);
            product += __shfl_xor_sync(ALL_LANES, product, 2);
            if (item >= cells || lane != 0) continue;
            const real now = left[c] - product, next = keep * move[c] + take * scale[c] * now;
            left[c] = now, move[c] = next, total[c] += next;
            if (last)
                put(set(2) + begin_cell + c, word_of(total[c], tag));
            else
                show(c, next);
        }
        __syncthreads();
    }

    // z = D⁻¹ (r - Bᵀ y) on the own rows; eight lanes a row, each with one of the cells around it.
    __device__ void correct() {
        const int lane = threadIdx.x % LANES;
        for (int item = threadIdx.x / LANES; item - threadIdx.x % 32 / LANES < count; item += blockDim.x / LANES) {
            const int row = min(item, count - 1);
            const int c = given->node_cells[LANES * (int64)(first + row) + lane];
            real right[3] = {0, 0, 0}, turned[3];
            if (c >= 0) {
                const real pressure = hear(set(2) + c, tag);
#pragma unroll
                for (int a = 0; a < 3; ++a) right[a] = -given->rows[24 * (int64)c + 3 * lane + a] * pressure;
            }
#pragma unroll
            for (int a = 0; a < 3; ++a) right[a] = r[3 * row + a] + sum_lanes(right[a]);
            turn(inverse + 9 * (int64)row, right, turned);
            if (item < count && lane < 3)
                z[4 * (int64)(first + row) + lane] = lane == 0 ? turned[0] : lane == 1 ? turned[1] : turned[2];
        }
    }

    __device__ void begin(double (&sums)[3]) { update(false, 0, 0, sums); }
    __device__ void advance(real alpha, real beta, double (&sums)[3]) { update(true, alpha, beta, sums); }

    __device__ void update(bool move_on, real alpha, real beta, double (&sums)[3]) {
        step_on(move_on, alpha, beta);  // z = D⁻¹ r
        wait_for_z();
        start();
        for (int k = 1; k < given->steps; ++k) step(given->step[2 * k], given->step[2 * k + 1], k == given->steps - 1);
        correct();
        finish(sums);
    }
};

// One system; inverse: of D. cell_tag: the largest tag of the words so far.
extern "C" __global__ void __launch_bounds__(512, 2)
    conjugate_gradient_pressure(BATCH_ARGUMENTS, const Pressures *pressures, unsigned cell_tag) {
    __shared__ Pressures given;
    FIND_OWN_PART
    if (threadIdx.x == 0) given = *pressures;
    __syncthreads();
    WithPressures v;
    FILL_STREAMED(v)
    const int cell_share = (given.cells + team - 1) / team;
    v.given = &given, v.tag = cell_tag;
    v.begin_cell = min((int64)rank * cell_share, given.cells);
    v.cells = min((int64)cell_share, given.cells - v.begin_cell);
    v.around = given.halo_start[rank + 1] - given.halo_start[rank];
    v.place(shared_memory + SCRATCH, cell_share);
    __syncthreads();
    const Outcome outcome = iterate<true>(v, tolerance, limit);
    if (rank == 0 && threadIdx.x == 0) write_report(report + 3 * system, outcome);
}
