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

// out = Σ_j M_ij x_j / ρ for node i; nodal(j, x) gives the three numbers x of a node. Differences: in single precision
// too nothing is lost of what the body moves as a whole.
template <typename Nodal>
__device__ inline void times_mass(const Body &body, int64 i, Nodal nodal, double *out) {
    double mine[3], total[3] = {0, 0, 0};
    nodal(i, mine);
#pragma unroll 9
    for (int o = 0; o < 27; ++o) {
        double other[3];
        nodal(body.near[body.nodes * o + i], other);
        const double share = body.spread[body.nodes * o + i];
#pragma unroll
        for (int k = 0; k < 3; ++k) total[k] += share * (other[k] - mine[k]);
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) out[k] = body.volume[i] * mine[k] + total[k];
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

// Contact of node i, given force and stiffness of the points (P, 2): its normal force [N] on the right-hand side; the
// stiffness goes into row i of the blocks.
__device__ inline double contact_force(const Body &body, const Scheme &scheme, const Material &m, const double *touch,
                                       int i, real *blocks) {
    double total = 0.0;
    for (int p = 0; p < 8; ++p) {
        const int c = body.node_cells[8 * (int64)i + p];
        if (c < 0) continue;
        for (int64 t = body.points.start[c]; t < body.points.start[c + 1]; ++t)
            total += body.points.weight[8 * t + p] * touch[2 * t];
        if (scheme.implicit != 0.0)
            add_cell_blocks(body.points, c, p, body.slot + 27 * (int64)i, m.plane_normal, touch + 1, 2, blocks);
    }
    return total;
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

// Obstacles at node i: adds their force, and their matrices to row i of the blocks.
__device__ inline void add_felt(const Body &body, const double *felt, int i, real *blocks, double *force) {
    const Points &points = body.points;
    for (int p = 0; p < 8; ++p) {
        const int c = body.node_cells[8 * (int64)i + p];
        if (c < 0) continue;
        bool any = false;
        for (int64 t = points.start[c]; t < points.start[c + 1]; ++t) {
            const double *at = felt + FELT * t, weight = points.weight[8 * t + p];
            any = any || at[3] + at[6] + at[8] != 0.0;  // the trace
            for (int k = 0; k < 3; ++k) force[k] += weight * at[k];
        }
        if (!any) continue;
        const int64 *slot = body.slot + 27 * (int64)i;
        for (int q = 0; q < 8; ++q) {
            const int offset =
                13 + 9 * ((q >> 2) - (p >> 2)) + 3 * ((q >> 1 & 1) - (p >> 1 & 1)) + (q & 1) - (p & 1);
            if (slot[offset] < 0) continue;
            double inner[6] = {0, 0, 0, 0, 0, 0};
            for (int64 t = points.start[c]; t < points.start[c + 1]; ++t) {
                const double share = points.weight[8 * t + p] * points.weight[8 * t + q];
                for (int k = 0; k < 6; ++k) inner[k] += share * felt[FELT * t + 3 + k];
            }
            real *block = blocks + 9 * slot[offset];
            block[0] += inner[0], block[4] += inner[3], block[8] += inner[5];
            block[1] += inner[1], block[3] += inner[1], block[2] += inner[2], block[6] += inner[2];
            block[5] += inner[4], block[7] += inner[4];
        }
    }
}
