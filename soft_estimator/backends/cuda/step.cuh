// What the kernels of a whole step share: the body, the time scheme and the material of each system in device memory.
// Only 8-byte fields, so that stepper.py can write the structures as rows of 64-bit numbers.

struct Body {
    int64 nodes, cells, point_count;
    const int *cell_nodes, *node_cells, *gradient_index, *cell_region;
    const real *table, *position, *free;
    const double *volume, *load;
    const int64 *slot, *row_start;
    const int *column, *held;  // held: number of the region that holds a node, -1 for none
    Points points;
    double spacing;
};

// The coefficients of physics/integrator.py, then whether there is contact and whether it is implicit.
struct Scheme {
    double step, predictor, c_m, c_d, c_k, p_v, d_u, d_v, ahead_v, ahead_a, p_a, q_v, q_a, d_a, e_u, e_v, e_a;
    double contact, implicit;

    // Whether a is an acceleration; otherwise it is the last step's mean velocity.
    __device__ bool carries_acceleration() const { return ahead_a == 0.0; }
};

// `struct Material`, a row of the materials, is generated from backends/layout.py.

// u, v, a (systems, N, 3) before a step.
struct Motion {
    const real *u, *v, *a;

    __device__ double known_velocity(const Scheme &scheme, int64 i) const {
        return scheme.q_v * v[i] + scheme.q_a * a[i];
    }

    // The velocity that looks ahead to where rotations and contact are taken.
    __device__ const real *ahead(const Scheme &scheme) const { return scheme.carries_acceleration() ? v : a; }
};

__device__ inline Motion of_system(const real *u, const real *v, const real *a, int64 offset) {
    return {u + offset, v + offset, a + offset};
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
