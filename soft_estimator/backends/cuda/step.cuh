// What the kernels of a whole step share: the body, the time scheme and the material of each system in device memory.
// Only 8-byte fields, so that stepper.py can write the structures as rows of 64-bit numbers.

struct Body {
    int64 nodes, cells;
    const int *cell_nodes, *node_cells, *gradient_index, *cell_region;
    const real *table, *position, *free;
    const double *volume, *load;
    const int64 *slot, *row_start;
    const int *column, *held;  // held: number of the region that holds a node, -1 for none
    Points points;
    double spacing;
};

// The coefficients of physics/integrator.py, then the contact law (stiffness 0 without contact).
struct Scheme {
    double step, predictor, c_m, c_d, c_k, p_v, d_u, d_v, ahead_v, ahead_a, p_a, q_v, q_a, d_a, e_u, e_v, e_a;
    double stiffness, sharpness, implicit;

    // Whether a is an acceleration; otherwise it is the last step's mean velocity.
    __device__ bool carries_acceleration() const { return ahead_a == 0.0; }
};

// One row of the materials: these, then Young's modulus of each region.
struct Material {
    double lam, mu, density, mass_damping, stiffness_damping, gravity[3], normal[3], offset;
    double young[1];
};

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

// A surface point and the share of it that belongs to one of its nodes.
struct Point {
    int64 a, b;
    double weight, area, own;
    bool is_a;

    __device__ Point(const Points &points, int v, int node) {
        is_a = points.node_a[v] == node;
        a = 3 * (int64)points.node_a[v], b = 3 * (int64)points.node_b[v];
        weight = points.weight_b[v], area = points.area[v], own = is_a ? 1.0 - weight : weight;
    }

    __device__ double at(const real *nodal, int k) const {
        return (1.0 - weight) * nodal[a + k] + weight * nodal[b + k];
    }

    // n·x + d of the point at displacement u, or after moving on from there with a velocity for a while.
    __device__ double distance(const Body &body, const Material &m, const real *u, const real *velocity = nullptr,
                               double ahead_s = 0.0) const {
        double delta = m.offset;
#pragma unroll
        for (int k = 0; k < 3; ++k)
            delta += m.normal[k] * (at(body.position, k) + at(u, k) + (velocity ? ahead_s * at(velocity, k) : 0.0));
        return delta;
    }
};

// Contact of node i: its normal force [N] on the right-hand side; the contact's stiffness goes into row i.
__device__ inline double contact_force(const Body &body, const Scheme &scheme, const Material &m, const Motion &motion,
                                       int i, bool with_force, real *blocks) {
    const Points &points = body.points;
    double total = 0.0;
    for (int64 k = points.node_start[i]; k < points.node_start[i + 1]; ++k) {
        const int v = points.node_points[k];
        const Point point(points, v, i);
        const double factor = scheme.stiffness * point.area;
        const double predicted = point.distance(body, m, motion.u, motion.ahead(scheme), scheme.c_k * scheme.step);
        double depth, slope;
        if (scheme.implicit != 0.0) {
            softplus_and_slope(scheme.sharpness, predicted, &depth, &slope);
            const double value = scheme.c_k * factor * slope;
            if (value != 0.0)
                add_point_blocks(points, v, point.is_a, body.slot[27 * (int64)i + 13], m.normal, value, blocks);
        }
        if (!with_force) continue;
        const double start = point.distance(body, m, motion.u), change = predicted - start;
        if (scheme.implicit != 0.0) {  // f(ũ) + C (ũ - u): the system's C Δu term then acts from ũ on
            total += point.own * factor * (depth + slope * change);
        } else {
            softplus_and_slope(scheme.sharpness, start, &depth, &slope);
            total += point.own * factor * (depth - slope * change);
        }
    }
    return total;
}
