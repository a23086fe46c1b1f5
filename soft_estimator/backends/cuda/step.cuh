// What the kernels of a whole step share: the body, the time scheme and the material of each system in device memory.
// Only 8-byte fields, so that stepper.py can write the structures as rows of 64-bit numbers.

struct Body {
    int64 nodes, cells, point_count;
    const int *cell_nodes, *node_cells, *gradient_index, *cell_region;
    const real *table, *position, *free;
    const double *volume, *load;
    const int64 *slot, *row_start;
    const int *column, *held;  // held: number of the region that holds a node, -1 for none
    const int *near;           // (27, N): neighbours of a node, itself where there is none
    const real *spread;        // (27, N): mass matrix over density [m³] but for the nodes' volumes; rows sum to zero
    Points points;
    double spacing;
};

// The coefficients of physics/integrator.py, then whether there is contact and whether it is implicit.
struct Scheme {
    double step, predictor, c_m, c_d, c_k, p_v, d_u, d_v, ahead_v, ahead_a, p_a, q_v, q_a, d_a, e_u, e_v, e_a;
    double h_u, h_v, h_a, k_u, k_v, k_a;
    double contact, implicit;

    // Whether a is an acceleration; otherwise it is the last step's mean velocity.
    __device__ bool carries_acceleration() const { return ahead_a == 0.0; }

    // What the next step's mean velocity is beyond the one that looks ahead, under a steady acceleration; 0 where v and
    // a do not tell.
    __device__ double gain(double v, double a) const {
        if (carries_acceleration()) return 0.5 * step * a;
        return c_k < 1.0 ? (v - a) / (1.0 - c_k) : 0.0;
    }
};

// `struct Material`, a row of the materials, is generated from backends/layout.py.

// u, v, a (systems, N, 3) before a step.
struct Motion {
    const real *u, *v, *a;

    __device__ double known_velocity(const Scheme &scheme, int64 i) const {
        return scheme.q_v * v[i] + scheme.q_a * a[i];
    }

    // What the mass matrix acts on before a step: p_v v + p_a a + α₁ (q_v v + q_a a) of a node.
    __device__ void driving(const Scheme &scheme, double mass_damping, int64 node, double *out) const {
        const double by_v = scheme.p_v + mass_damping * scheme.q_v, by_a = scheme.p_a + mass_damping * scheme.q_a;
#pragma unroll
        for (int k = 0; k < 3; ++k) out[k] = by_v * v[3 * node + k];
        if (by_a != 0.0)
#pragma unroll
            for (int k = 0; k < 3; ++k) out[k] += by_a * a[3 * node + k];
    }

    // The velocity that looks ahead to where rotations and contact are taken.
    __device__ const real *ahead(const Scheme &scheme) const { return scheme.carries_acceleration() ? v : a; }
};

__device__ inline Motion of_system(const real *u, const real *v, const real *a, int64 offset) {
    return {u + offset, v + offset, a + offset};
}

// The differences in Σ_j M_ij x_j / ρ for node i, of every stride-th neighbour from the first on, added to total; nodal(j, x)
// gives the three numbers x of a node.
template <typename Nodal>
__device__ inline void add_mass_differences(const Body &body, int64 i, Nodal nodal, const double *mine, int first,
                                            int stride, double *total) {
#pragma unroll 9
    for (int o = first; o < 27; o += stride) {
        double other[3];
        nodal(body.near[body.nodes * o + i], other);
        const double share = body.spread[body.nodes * o + i];
#pragma unroll
        for (int k = 0; k < 3; ++k) total[k] += share * (other[k] - mine[k]);
    }
}

// out = Σ_j M_ij x_j / ρ for node i. Differences: in single precision too nothing is lost of what the body moves as a
// whole.
template <typename Nodal>
__device__ inline void times_mass(const Body &body, int64 i, Nodal nodal, double *out) {
    double mine[3], total[3] = {0, 0, 0};
    nodal(i, mine);
    add_mass_differences(body, i, nodal, mine, 0, 1, total);
#pragma unroll
    for (int k = 0; k < 3; ++k) out[k] = body.volume[i] * mine[k] + total[k];
}

// The same by eight lanes, in all of them.
template <typename Nodal>
__device__ inline void times_mass_by_lanes(const Body &body, int64 i, Nodal nodal, double *out) {
    double mine[3], total[3] = {0, 0, 0};
    nodal(i, mine);
    add_mass_differences(body, i, nodal, mine, threadIdx.x % LANES, LANES, total);
#pragma unroll
    for (int k = 0; k < 3; ++k) out[k] = body.volume[i] * mine[k] + sum_lanes(total[k]);
}

// The numbers of a nodal vector (N, 3), as `times_mass` takes them.
struct NodalNumbers {
    const real *values;

    __device__ void operator()(int64 node, double *x) const {
#pragma unroll
        for (int k = 0; k < 3; ++k) x[k] = values[3 * node + k];
    }
};

// Entry of the mass matrix over the density between a node and its neighbour at one of 27 offsets [m³].
__device__ inline double mass_entry(const Body &body, int64 i, int offset) {
    return body.spread[body.nodes * offset + i] + (offset == 13 ? body.volume[i] : 0.0);
}

__device__ inline const Material &material_of(const double *materials, int width, int system) {
    return *(const Material *)(materials + (int64)width * system);
}

// n·x + d of point t at displacement u.
__device__ inline double distance_of(const Body &body, const Material &m, int64 t, const real *u) {
    double delta = m.plane_offset_m;
#pragma unroll
    for (int k = 0; k < 3; ++k) delta += m.plane_normal[k] * (body.points.at(t, body.position, k) + body.points.at(t, u, k));
    return delta;
}

// How far point t moves along n with the velocity that looks ahead.
__device__ inline double moved_ahead(const Body &body, const Scheme &scheme, const Material &m, int64 t,
                                     const real *velocity) {
    double along = 0.0;
#pragma unroll
    for (int k = 0; k < 3; ++k) along += m.plane_normal[k] * body.points.at(t, velocity, k);
    return scheme.c_k * scheme.step * along;
}

// What a point's stiffness, as a part of a firm touch's, shows in no block by: contact ten thousand times stiffer than a cell
// then adds less than that one's last digit.
#define UNFELT 1e-20

// The points of the cell in which a node is the lane's corner: from `first` to before `end`.
struct PointsAround {
    int first, end;

    __device__ PointsAround(const Body &body, int i) {
        const int c = body.node_cells[8 * (int64)i + threadIdx.x % LANES];
        first = c < 0 ? 0 : (int)body.points.start[c], end = c < 0 ? 0 : (int)body.points.start[c + 1];
    }
};

// Adds to row i of the blocks what the points around the node have for it, by eight lanes; near: whether those of the
// lane's cell have anything. All lanes of a warp come here, in blocks of USUAL_THREADS. entry(t, p, q, sums) adds a point's part
// between corners p and q of its cell to COUNT sums, add(sums, block) these to a block. A lane writes every eighth block.
template <int COUNT, typename Entry, typename Add>
__device__ inline void add_to_row(const Body &body, int i, const PointsAround &around, bool near, real *blocks,
                                  Entry entry, Add add) {
    __shared__ double of_rows[USUAL_THREADS / LANES][27 * COUNT];
    const unsigned cells = __ballot_sync(ALL_LANES, near);
    if (!cells) return;
    const int lane = threadIdx.x % LANES, end = near ? around.end : around.first;
    double *row = of_rows[threadIdx.x / LANES];
    for (int s = lane; s < 27 * COUNT; s += LANES) row[s] = 0.0;
    for (int p = 0; p < 8; ++p) {
        if (!(cells >> p & 0x01010101u)) continue;  // of none of the warp's nodes
        double sums[COUNT] = {};
        const int last = from_lane(end, p);
        for (int t = from_lane(around.first, p); t < last; ++t) entry(t, p, lane, sums);
        const int offset =
            13 + 9 * ((lane >> 2) - (p >> 2)) + 3 * ((lane >> 1 & 1) - (p >> 1 & 1)) + (lane & 1) - (p & 1);
        __syncwarp();
#pragma unroll
        for (int k = 0; k < COUNT; ++k) row[COUNT * offset + k] += sums[k];
    }
    __syncwarp();
#pragma unroll
    for (int offset = lane; offset < 27; offset += LANES) {
        const int64 place = body.slot[27 * (int64)i + offset];
        bool any = false;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) any = any || row[COUNT * offset + k] != 0.0;
        if (place >= 0 && any) add(row + COUNT * offset, blocks + 9 * place);
    }
}

// Contact of node i by eight lanes, given force and stiffness of the points (P, 2): its normal force [N] on the right-hand
// side, in all lanes; the stiffness goes into row i of the blocks. inside: whether there is such a node.
__device__ inline double contact_force(const Body &body, const Scheme &scheme, const Material &m, const double *touch,
                                       int i, bool inside, real *blocks) {
    const PointsAround around(body, i);
    const double *weight = body.points.weight + threadIdx.x % LANES;
    double force = 0.0, stiffness = 0.0;
    for (int t = around.first; t < around.end; ++t) {
        force += weight[8 * t] * touch[2 * t];
        stiffness += touch[2 * t + 1];  // none is negative
    }
    const double firm = scheme.c_k * m.contact_stiffness_pa_per_m * body.spacing * body.spacing;
    const double n[3] = {m.plane_normal[0], m.plane_normal[1], m.plane_normal[2]};
    add_to_row<1>(
        body, i, around, inside && stiffness > UNFELT * firm, blocks,
        [&](int t, int p, int q, double *sums) {
            sums[0] += touch[2 * t + 1] * body.points.weight[8 * t + p] * body.points.weight[8 * t + q];
        },
        [&](const double *sums, real *block) {
            real out[9];
#pragma unroll
            for (int k = 0; k < 9; ++k) out[k] = block[k] + sums[0] * n[k / 3] * n[k % 3];
#pragma unroll
            for (int k = 0; k < 9; ++k) block[k] = out[k];
        });
    return sum_lanes(force);
}

// What obstacles do to a point, see obstacles.cu: force (3) and a symmetric matrix (6); and what it receives backwards, see
// obstacles_adjoint.cu: derivatives by u, v and a (3 each), and by the parameters from these places on.
#define FELT 9
#define FELT_STIFFNESS 9
#define FELT_SHARPNESS 10
#define FELT_FRICTION 11
#define FELT_NORMAL 12
#define FELT_OFFSET 15
#define FELT_SHIFT 16
#define FELT_BARS 19

// Obstacles at node i by eight lanes: adds their force, in all lanes, and their matrices to row i of the blocks.
__device__ inline void add_felt(const Body &body, const double *felt, int i, bool inside, real *blocks, double *force) {
    const PointsAround around(body, i);
    const double *weight = body.points.weight + threadIdx.x % LANES;
    bool any = false;
    double mine[3] = {0, 0, 0};
    for (int t = around.first; t < around.end; ++t) {
        const double *at = felt + FELT * (int64)t;
        any = any || at[3] + at[6] + at[8] != 0.0;  // the trace
        for (int k = 0; k < 3; ++k) mine[k] += weight[8 * t] * at[k];
    }
    add_to_row<6>(
        body, i, around, inside && any, blocks,
        [&](int t, int p, int q, double *sums) {
            const double share = body.points.weight[8 * t + p] * body.points.weight[8 * t + q];
#pragma unroll
            for (int k = 0; k < 6; ++k) sums[k] += share * felt[FELT * (int64)t + 3 + k];
        },
        [&](const double *sums, real *block) {
            block[0] += sums[0], block[4] += sums[3], block[8] += sums[5];
            block[1] += sums[1], block[3] += sums[1], block[2] += sums[2], block[6] += sums[2];
            block[5] += sums[4], block[7] += sums[4];
        });
    for (int k = 0; k < 3; ++k) force[k] += sum_lanes(mine[k]);
}

// The lane of a node that adds to the block on the diagonal, see add_to_row.
#define DIAGONAL_LANE (13 % LANES)
