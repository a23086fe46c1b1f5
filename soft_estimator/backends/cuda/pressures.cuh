// The cells' pressures in a preconditioner, see physics/pressure.py, as a team of thread blocks applies it:
//
//     z = D⁻¹ (r - Bᵀ y),   y about S⁻¹ B D⁻¹ r by Chebyshev's steps for S = I + B D⁻¹ Bᵀ.
//
// Each block has a range of cells, with their rows of S in shared memory. What takes time is waiting for the neighbours'
// pressures: they come in tagged words, each read once by a block.

// What the host hands over; 8-byte fields only.
struct Pressures {
    int64 cells, wide, steps, space;     // wide: cells that a block reads at most; space: doubles of shared memory
    const int *cell_nodes, *node_cells;  // (C, 8), (N, 8)
    const int *halo, *halo_start;        // cells that each block reads
    const unsigned short *local;         // where in that list the neighbours of a cell stand, (C, 27)
    const real *rows;                    // B, (C, 24)
    const float *matrix;                 // S, (C, 27), zero where there is no neighbour
    const double *step;                  // keep and take of each step, (steps, 2)
    Word *words;                         // (3, C): two sets of pressures in turn, and y
};

#define POLLED 4  // words that a thread waits for at once

// What a block knows of it, in shared memory.
struct PressurePart {
    Pressures given;
    const int *halo;
    int64 begin;        // first own cell
    int cells, around;  // own cells; cells that they read
    // Own rows of S and where their neighbours stand (cells, 27), the pressures read (around,), and of the own cells what
    // is left to be solved for, the last step, their sum and 1/S on the diagonal.
    float *matrix;
    unsigned short *local;
    real *read, *left, *move, *total, *scale;

    // By one thread.
    __device__ void place(const Pressures &pressures, real *shared, int rank, int blocks) {
        given = pressures;
        const int64 share = (given.cells + blocks - 1) / blocks;
        begin = min(rank * share, given.cells), cells = min(share, given.cells - begin);
        halo = given.halo + given.halo_start[rank], around = given.halo_start[rank + 1] - given.halo_start[rank];
        left = shared, move = left + share, total = move + share, scale = total + share, read = scale + share;
        matrix = (float *)(read + given.wide), local = (unsigned short *)(matrix + 27 * share);
    }

    // By all threads, when `place` is done.
    __device__ void load() {
        for (int i = threadIdx.x; i < 27 * cells; i += blockDim.x) {
            matrix[i] = given.matrix[27 * begin + i], local[i] = given.local[27 * begin + i];
            if (i % 27 == 13) scale[i / 27] = real(1) / matrix[i];
        }
    }

    __device__ Word *set(int which) const { return given.words + given.cells * which; }

    __device__ static void tell(Word *place, double value, unsigned tag) {
        put(place, {(unsigned long long)__double_as_longlong(value), tag});
    }

    __device__ static real hear(const Word *place, unsigned tag) {
        Word word = look(place);
        while ((unsigned)word.high != tag) word = look(place);
        return __longlong_as_double((int64)word.low);
    }

    // Wait for the pressures told last on all cells around the own ones.
    __device__ void read_around(unsigned tag) {
        const Word *from = set(tag & 1);
        const int stride = blockDim.x;
        for (int first = threadIdx.x; first < around; first += POLLED * stride) {
            Word seen[POLLED];
            bool waiting;
#pragma unroll
            for (int j = 0; j < POLLED; ++j) seen[j] = {0, first + j * stride < around ? tag - 1u : tag};
            do {
                waiting = false;
#pragma unroll
                for (int j = 0; j < POLLED; ++j)
                    if ((unsigned)seen[j].high != tag) seen[j] = look(from + halo[first + j * stride]);
#pragma unroll
                for (int j = 0; j < POLLED; ++j) waiting |= (unsigned)seen[j].high != tag;
            } while (waiting);
#pragma unroll
            for (int j = 0; j < POLLED; ++j)
                if (first + j * stride < around) read[first + j * stride] = __longlong_as_double((int64)seen[j].low);
        }
        __syncthreads();
    }

    // left = B z and the first step, told; eight lanes a cell. nodal(n, at) gives the three numbers of z at a node.
    template <typename Nodal>
    __device__ void start(unsigned &tag, Nodal nodal) {
        const int lane = threadIdx.x % LANES;
        const real take = given.step[1];
        ++tag;
        for (int item = threadIdx.x / LANES; item - threadIdx.x % 32 / LANES < cells; item += blockDim.x / LANES) {
            const int c = min(item, cells - 1);
            const int64 corner = LANES * (begin + c) + lane;
            const real *row = given.rows + 3 * corner;
            real at[3];
            nodal(given.cell_nodes[corner], at);
            const real felt = sum_lanes(row[0] * at[0] + row[1] * at[1] + row[2] * at[2]);
            if (item >= cells || lane != 0) continue;
            left[c] = felt, move[c] = total[c] = take * scale[c] * felt;
            tell(set(tag & 1) + begin + c, move[c], tag);
        }
        __syncthreads();
    }

    // All further steps; y is told at the end.
    __device__ void run(unsigned &tag) {
        for (int k = 1; k < given.steps; ++k) step(tag, given.step[2 * k], given.step[2 * k + 1], k == given.steps - 1);
    }

    // left -= S move, move = keep move + take left/S_cc, total += move; four lanes a cell.
    __device__ void step(unsigned &tag, real keep, real take, bool last) {
        const int lane = threadIdx.x % 4;
        read_around(tag);
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
            tell(set(last ? 2 : tag & 1) + begin + c, last ? total[c] : next, tag);
        }
        __syncthreads();
    }

    // Bᵀ y at a node, in all of its eight lanes: each waits for one of the cells around it.
    __device__ void pulled(unsigned tag, int64 node, real *out) const {
        const int lane = threadIdx.x % LANES, c = given.node_cells[LANES * node + lane];
        const real pressure = c >= 0 ? hear(set(2) + c, tag) : real(0);
        const real *row = given.rows + 24 * (int64)max(c, 0) + 3 * lane;
#pragma unroll
        for (int a = 0; a < 3; ++a) out[a] = sum_lanes(c >= 0 ? row[a] * pressure : real(0));
    }
};
#define PRESSURE_PART 32  // doubles, as in pressure.py
static_assert(sizeof(PressurePart) <= 8 * PRESSURE_PART, "the pressures need more room");
