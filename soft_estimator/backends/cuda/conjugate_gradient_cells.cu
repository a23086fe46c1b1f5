// Conjugate gradients for a batch of systems that share the body, without their matrices: what differs from system to
// system is a rotation for each cell, the material and the stiffness of contact points. Vectors are (N, 3, width):
// neighbouring lanes are neighbouring systems and read neighbouring numbers, and what belongs to the body is read once
// for all. All thread blocks are one team, each with a range of nodes and a range of cells.
//
// An iteration has two parts. Nodes: add up the cells' forces w = A z, then p = z + β p, s = w + β s, x += α p,
// r -= α s, z = M⁻¹ r. Cells: a thread takes a few cells of one system, in columns along z so that faces between them
// are read and written once, and writes the forces on the faces; w·z comes from the cells' work, so all sums are there
// with the forces. The systems' scalars are kept by every block in shared memory, from the same sums.

// What cells.py compiles for: numbers of lanes, and whether there is implicit contact.
#ifndef SIDE_BY_SIDE
#define SIDE_BY_SIDE 32
#define WITH_CONTACT true
#endif

#define MOST_PLACES 8  // of a node in the forces: two ends in each of four columns of cells
#define EARLY 7        // rows of a thread whose forces are gathered before the sums are there: REQUESTED / 3

// What the nodes do before a product.
#define SHOW 0     // show the guess
#define MEASURE 1  // take the residual of what was shown; no product follows
#define BEGIN 2    // z from the residual
#define MOVE 3     // an iteration

template <int WIDTH, bool CONTACT>
struct CellSolve {
    static const int PARTS = CELL_THREADS / WIDTH;  // threads of a system in a block
    CellPass<WIDTH, CONTACT> pass;
    SystemSums<WIDTH, CELL_THREADS> sums;
    Systems *systems;
    int lane, part;    // the thread's system, and its number among the system's
    int first, count;  // own nodes
    int64 own;         // where their numbers begin in the vectors
    const int *place_start, *place;  // from the own nodes on, in shared memory where they fit, as all that follows
    const real *inverse, *free;
    const double *volume;  // that the cells do not carry by themselves
    real *x, *r, *p, *s;

    // The cells' forces on an own node.
    __device__ void gather(int row, real *out) const {
        const int from = place_start[row], many = place_start[row + 1] - from;
        real parts[MOST_PLACES][3];
#pragma unroll
        for (int e = 0; e < MOST_PLACES; ++e) {  // all asked for at once
            const real *at = pass.batch.forces + (e < many ? (int64)place[from + e] * (3 * WIDTH) : 0) + lane;
#pragma unroll
            for (int a = 0; a < 3; ++a) parts[e][a] = e < many ? at[a * WIDTH] : real(0);
        }
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            out[a] = 0;
#pragma unroll
            for (int e = 0; e < MOST_PLACES; ++e) out[a] += parts[e][a];
        }
    }

    // Those of the first rows, kept where the cells' numbers were: this needs the forces but not the sums.
    __device__ void gather_early() {
        for (int k = 0, row = part; k < EARLY && row < count; ++k, row += PARTS) {
            real force[3];
            gather(row, force);
#pragma unroll
            for (int a = 0; a < 3; ++a) pass.requested[(3 * k + a) * CELL_THREADS] = force[a];
        }
    }

    // w = free (A v) at an own node, the thread's k-th, for the vector v that the cells were given; mine: v there.
    __device__ void product(int row, int k, const real *mine, real *w) const {
        real force[3];
        if (k < EARLY) {
#pragma unroll
            for (int a = 0; a < 3; ++a) force[a] = pass.requested[(3 * k + a) * CELL_THREADS];
        } else {
            gather(row, force);
        }
        const real mass = inertia(row), is_free = free[row];
#pragma unroll
        for (int a = 0; a < 3; ++a) w[a] = is_free * (force[a] + mass * mine[a]);
    }

    __device__ real inertia(int row) const {
        return systems->inertia[lane] * real(systems->density[lane] * volume[row]);
    }

    // Number `at` of the vector whose true residual is wanted: x as it is, or with all free nodes at zero.
    __device__ real guess(int row, int at, bool held_only) const {
        return held_only && free[row] != 0 ? real(0) : x[at];
    }

    __device__ void show_guess(bool held_only) {
        for (int row = part; row < count; row += PARTS)
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                const int at = (3 * row + a) * WIDTH + lane;
                pass.batch.z[own + at] = guess(row, at, held_only);
            }
    }

    // r = free (b - A v) for the guess shown last; parts[0]: its square.
    __device__ void take_residual(bool held_only, double (&parts)[3]) {
        for (int k = 0, row = part; row < count; ++k, row += PARTS) {
            const int at = 3 * row * WIDTH + lane;
            real mine[3], w[3];
#pragma unroll
            for (int a = 0; a < 3; ++a) mine[a] = guess(row, at + a * WIDTH, held_only);
            product(row, k, mine, w);
            const real is_free = free[row];
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                const real left = is_free * pass.batch.b[own + at + a * WIDTH] - w[a];
                r[at + a * WIDTH] = left;
                parts[0] += (double)(left * left);
            }
        }
    }

    // p = z + β p, s = w + β s, x += α p, r -= α s where `move`, then z = M⁻¹ r; parts of |r|², r·z and inertia's w·z.
    __device__ void update(bool move, double (&parts)[3]) {
        if (!systems->going[lane]) return;
        const real alpha = systems->alpha[lane], beta = systems->beta[lane];
        for (int k = 0, row = part; row < count; ++k, row += PARTS) {
            const int at = 3 * row * WIDTH + lane;
            real left[3], z[3], w[3], m[6];
#pragma unroll
            for (int a = 0; a < 3; ++a) left[a] = r[at + a * WIDTH];
#pragma unroll
            for (int e = 0; e < 6; ++e) m[e] = inverse[(6 * row + e) * WIDTH + lane];
            if (move) {
                precondition(m, left, z);  // as in the iteration before: cheaper than to keep it
                product(row, k, z, w);
#pragma unroll
                for (int a = 0; a < 3; ++a) {
                    const int i = at + a * WIDTH;
                    const real direction = z[a] + beta * p[i], image = w[a] + beta * s[i];
                    p[i] = direction, s[i] = image, x[i] += alpha * direction;
                    r[i] = left[a] -= alpha * image;
                }
            }
            precondition(m, left, z);
#pragma unroll
            for (int a = 0; a < 3; ++a) pass.batch.z[own + at + a * WIDTH] = z[a];
            parts[0] += (double)dot(left, left), parts[1] += (double)dot(left, z);
            parts[2] += (double)(inertia(row) * dot(z, z));
        }
    }

    // z = M⁻¹ r with the upper triangle of M⁻¹.
    static __device__ void precondition(const real *m, const real *left, real *z) {
        z[0] = m[0] * left[0] + m[1] * left[1] + m[2] * left[2];
        z[1] = m[1] * left[0] + m[3] * left[1] + m[4] * left[2];
        z[2] = m[2] * left[0] + m[4] * left[1] + m[5] * left[2];
    }

    // |b - A x_held| of the systems; where there is nothing to solve for, the free nodes do not move.
    __device__ void take_base() {
        if (threadIdx.x < WIDTH) systems->base[threadIdx.x] = sqrt(systems->total[threadIdx.x]);
        __syncthreads();
        for (int row = part; row < count; row += PARTS)
            for (int a = 0; a < 3; ++a)
                if (systems->base[lane] == 0.0 && free[row] != 0) x[(3 * row + a) * WIDTH + lane] = 0;
    }

    // What the nodes do is followed by a product and its sums; the product stands here once, for the compiler's sake.
    __device__ void run(double tolerance, int limit, int given) {
        int stage = SHOW, round = -1;  // round -1 measures |b - A x_held|
        for (;;) {
            double parts[3] = {0.0, 0.0, 0.0};
            if (stage == SHOW) show_guess(round < 0);
            if (stage == MEASURE) take_residual(round < 0, parts);
            if (stage >= BEGIN) update(stage == MOVE, parts);
            const bool push = stage == SHOW || (stage >= BEGIN && systems->going[lane]);
            if (push && pass.begin < pass.end) pass.request_rotation(pass.begin);
            sums.meet();
            if (push) parts[2] += pass.push();
            sums.hand_in(parts);
            sums.meet();
            sums.add_up();
            if (push) gather_early();
            sums.take_totals(systems->total);
            if (stage == SHOW) {
                stage = MEASURE;
            } else if (stage >= BEGIN) {
                stage = systems->choose(WIDTH, tolerance, limit) ? MOVE : SHOW;
            } else if (round < 0) {
                take_base();
                stage = SHOW, round = 0;
            } else {
                if (!systems->judge(round++, tolerance, given)) return;
                stage = BEGIN;
            }
        }
    }
};

// The block's part of an array: in shared memory where one more is to be there, else in the array itself.
struct SharedRoom {
    char *next;
    int64 left;

    template <typename T>
    __device__ T *part(T *all, int64 from, int length) {
        if (--left < 0) return all + from;
        T *out = (T *)next;
        next += (length * sizeof(T) + 15) / 16 * 16;
        return out;
    }

    template <typename T>
    __device__ const T *copy(const T *all, int64 from, int length) {
        T *out = part((T *)all, from, length);
        if (left >= 0)
            for (int i = threadIdx.x; i < length; i += blockDim.x) out[i] = all[from + i];
        return out;
    }
};

template <int WIDTH, bool CONTACT>
__device__ inline void find_own_part(CellSolve<WIDTH, CONTACT> &v, int64 nodes, int64 cells, SharedRoom room) {
    const int64 blocks = gridDim.x, rank = blockIdx.x, parts = v.PARTS, pieces = blocks * parts, piece = rank * parts;
    const int share = (nodes + blocks - 1) / blocks;
    v.first = min(rank * share, nodes), v.count = min((int64)share, nodes - v.first);
    const Batch &batch = v.pass.batch;
    const int64 first_cell = cells * piece / pieces;
    v.pass.first_cell = first_cell, v.pass.begin = cells * (piece + v.part) / pieces - first_cell;
    v.pass.end = cells * (piece + v.part + 1) / pieces - first_cell;
    const int own_cells = cells * (piece + parts) / pieces - first_cell, numbers = 3 * v.count * WIDTH;
    const int from = batch.place_start[v.first], to = batch.place_start[v.first + v.count];
    const int64 own = v.own = 3 * (int64)v.first * WIDTH;
    v.free = room.copy(batch.free, v.first, v.count), v.volume = room.copy(batch.volume, v.first, v.count);
    v.pass.cells = room.copy(batch.cells, CELL_NUMBERS * first_cell, CELL_NUMBERS * own_cells);
    v.place_start = room.copy(batch.place_start, v.first, v.count + 1);
    v.place = room.copy(batch.place, from, to - from) - from;
    v.pass.moments = room.copy(batch.moments, MOMENTS * first_cell, MOMENTS * own_cells);
    v.r = room.part(batch.r, own, numbers), v.s = room.part(batch.s, own, numbers);
    v.p = room.part(batch.p, own, numbers);
    v.inverse = room.copy(batch.inverse, 2 * own, 2 * numbers);
    v.x = (real *)room.copy((const real *)batch.x, own, numbers);
    for (int i = threadIdx.x; i < numbers; i += CELL_THREADS) v.p[i] = v.s[i] = 0;
}

// A batch as the host describes it. Kernel arguments, so that the pointers need no registers.
#define CELL_ARGUMENTS                                                                                            \
    const Scheme *schemes, const double *materials, int row_width, int nodes, int cell_count, int given,      \
        int in_shared, double mass_scale, const int *order, const real *free, const double *volume, const int *cells,                \
        const int *place_start, const int *place, const real *moments, const real *weight, const real *rotation,  \
        const real *inverse, const real *touch, const real *b, real *x, real *r, real *p, real *s, real *z,       \
        real *forces, Word *places, Word *sums, double tolerance, int limit, unsigned tag, double *report
#define CELL_ARRAYS                                                                                                 \
    free, volume, cells, place_start, place, moments, weight, rotation, inverse, touch, b, x, r, p, s, z, forces

template <int WIDTH, bool CONTACT>
__device__ inline void solve_cells(CELL_ARGUMENTS) {
    const int lane = threadIdx.x % WIDTH;
    Systems *systems = (Systems *)(shared_memory + SCRATCH);
    double *partial = shared_memory + SCRATCH + SYSTEMS_BYTES / 8;
    real *requested = (real *)(partial + 3 * CELL_THREADS);
    const Material &m = material_of(materials, row_width, order[lane]);
    CellSolve<WIDTH, CONTACT> v;
    v.pass.batch = {CELL_ARRAYS};
    v.pass.systems = v.systems = systems, v.pass.scheme = schemes, v.pass.material = &m, v.pass.region = -1;
    v.pass.requested = requested + threadIdx.x, v.pass.lane = v.lane = lane, v.part = threadIdx.x / WIDTH;
    v.sums = {places, sums, (int)gridDim.x, (int)blockIdx.x, tag, tag, partial};
    find_own_part(v, nodes, cell_count, {(char *)(requested + REQUESTED * CELL_THREADS), in_shared});
    if (threadIdx.x < WIDTH) {
        systems->iterations[lane] = 0, systems->status[lane] = CONVERGED, systems->going[lane] = 0;
        systems->density[lane] = m.density_kg_m3, systems->inertia[lane] = schemes->c_m + schemes->c_d * m.mass_damping_per_s;
        systems->spread[lane] = systems->inertia[lane] * m.density_kg_m3 * mass_scale;
        for (int a = 0; a < 3; ++a) systems->normal[a][lane] = m.plane_normal[a];
    }
    __syncthreads();
    v.run(tolerance, limit, given);
    for (int i = threadIdx.x; i < 3 * v.count * WIDTH; i += CELL_THREADS) x[v.own + i] = v.x[i];
    if (blockIdx.x == 0 && threadIdx.x < given) {
        double *row = report + 3 * order[threadIdx.x];
        row[0] = systems->iterations[threadIdx.x], row[1] = systems->left[threadIdx.x];
        row[2] = systems->status[threadIdx.x];
    }
}

#define CELL_NAMES                                                                                                   \
    schemes, materials, row_width, nodes, cell_count, given, in_shared, mass_scale, order, free, volume, cells,       \
        place_start, place, moments, weight, rotation, inverse, touch, b, x, r, p, s, z, forces, places, sums,   \
        tolerance, limit, tag, report

// order: the system of each lane (width,); report: (systems, 3).
extern "C" __global__ void __launch_bounds__(CELL_THREADS, 1) conjugate_gradient_cells(CELL_ARGUMENTS) {
    solve_cells<SIDE_BY_SIDE, WITH_CONTACT>(CELL_NAMES);
}
