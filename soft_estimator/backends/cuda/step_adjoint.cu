// The time step run backwards without the host (physics/adjoint.py), for a batch of systems. What the parameters
// receive is collected cell by cell and node by node over all steps, and summed once at the end.

// Places of a node's sums, BY_..., are generated from backends/layout.py.

// Contact stiffness, preconditioner and right-hand side of A λ = Δu_bar, by eight lanes a node; λ starts from zero.
extern "C" __global__ void prepare_step_adjoint(const Body *bodies, const Scheme *schemes, const double *materials,
                                                int width, const real *u, const real *v, const real *a,
                                                const real *u_bar, const real *v_bar, const real *a_bar,
                                                const double *touch, const double *felt, real *blocks, real *inverse,
                                                real *rhs, real *lmbda) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int t = thread_index(), lane = t % LANES, system = blockIdx.y, i = min(t / LANES, (int)body.nodes - 1);
    const bool inside = t / LANES < body.nodes;
    const Material &m = material_of(materials, width, system);
    blocks += 9 * body.row_start[body.nodes] * system;
    if (scheme.contact != 0.0)
        contact_force(body, scheme, m, touch + 2 * body.point_count * system, i, inside, blocks);
    double force[3] = {0, 0, 0};  // of which the adjoint asks nothing
    if (felt) add_felt(body, felt + FELT * body.point_count * system, i, inside, blocks, force);
    if (!inside) return;
    if (lane == DIAGONAL_LANE)
        invert_block(blocks + 9 * body.slot[27 * (int64)i + 13], body.free[i], inverse + 9 * (body.nodes * system + i));
    if (lane >= 3) return;
    const int64 place = 3 * (body.nodes * system + i) + lane;
    const double total = u_bar[place] + scheme.d_u * v_bar[place] + scheme.e_u * a_bar[place];
    rhs[place] = body.free[i] != 0 ? total : 0.0;
    lmbda[place] = 0;
}

// Elastic forces and rotations of the cells: corner derivatives by y and, through R, by the predicted displacement,
// each (systems, C, 24); lame_sums (systems, 2, C) grows by the derivatives by λ and μ.
extern "C" __global__ void pull_cells_adjoint(const Body *bodies, const Scheme *schemes, const double *materials,
                                              int width, const real *u, const real *v, const real *a,
                                              const real *u_after, const real *lmbda, const real *rotation,
                                              double *pulled, double *turned, double *lame_sums) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int system = blockIdx.y, t = thread_index(), p = t % LANES, c = min(t / LANES, (int)body.cells - 1);
    const Material &m = material_of(materials, width, system);
    const int64 offset = 3 * body.nodes * system, place = body.cells * system + c;
    const int64 node = 3 * (int64)body.cell_nodes[8 * c + p];
    const Motion motion = of_system(u, v, a, offset);
    double r[9], at[3], z[3], y[3], w[3], l[3], predicted[3], y_bar[3], r_bar[9], lame_bar[2], f[9], f_bar[9];
#pragma unroll
    for (int i = 0; i < 9; ++i) r[i] = rotation[9 * place + i];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const double increment = u_after[offset + node + k] - motion.u[node + k];
        at[k] = motion.u[node + k], l[k] = lmbda[offset + node + k];
        z[k] = (scheme.c_k + scheme.c_d * m.stiffness_damping_s) * increment -
               m.stiffness_damping_s * motion.known_velocity(scheme, node + k);
        predicted[k] = (real)(at[k] + scheme.predictor * scheme.step * motion.ahead(scheme)[node + k]);
    }
    corner_vector(p, at, z, 1.0, body.spacing, y);
    local_vector(r, p, y, 1.0, body.spacing, w);
    cell_force_adjoint(body.table + CELL_SIZE * (int64)body.gradient_index[c], p, r, y, w, l, m.youngs_modulus_pa[body.cell_region[c]],
                       m.lam, m.mu, y_bar, r_bar, lame_bar);
    displacement_gradient(predicted, p, 0.25 / body.spacing, f);
    f[0] += 1.0, f[4] += 1.0, f[8] += 1.0;
    turn_change(f, r, r_bar, f_bar);
    if (t / LANES >= body.cells) return;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        double total = 0.0;
#pragma unroll
        for (int b = 0; b < 3; ++b) total += f_bar[3 * k + b] * corner_sign(p, b);
        pulled[24 * place + 3 * p + k] = y_bar[k];
        turned[24 * place + 3 * p + k] = total * 0.25 / body.spacing;
    }
    if (p < 2) lame_sums[(2 * (int64)system + p) * body.cells + c] += p == 0 ? lame_bar[0] : lame_bar[1];
}

#define TOUCH_BARS 7

// What every contact point receives, touch_bar (systems, P, 7): the derivatives by its distance, by the change of it up
// to the prediction, by the plane's normal (3), and by stiffness and sharpness of the contact.
extern "C" __global__ void touch_points_adjoint(const Body *bodies, const Scheme *schemes, const double *materials,
                                                int width, const real *u, const real *v, const real *a,
                                                const real *u_after, const real *lmbda, double *touch_bar) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const Points &points = body.points;
    const int64 t = thread_index(), system = blockIdx.y, offset = 3 * body.nodes * system;
    if (t >= body.point_count) return;
    const Material &m = material_of(materials, width, system);
    const Motion motion = of_system(u, v, a, offset);
    const real *look = motion.ahead(scheme);
    const double factor = m.contact_stiffness_pa_per_m * points.area[t], ahead = scheme.c_k * scheme.step;
    const double start = distance_of(body, m, t, motion.u), change = moved_ahead(body, scheme, m, t, look);
    double at[3], moved[3], depth, slope, predicted_bar, distance_bar, value, by_moved = 0.0, gap, delta;
#pragma unroll
    for (int j = 0; j < 3; ++j) {
        at[j] = points.at(t, lmbda + offset, j);
        moved[j] = points.at(t, u_after + offset, j) - points.at(t, motion.u, j);
    }
    const double along = dot(at, m.plane_normal);
    if (scheme.implicit != 0.0) {
        softplus_and_slope(m.contact_sharpness_per_m, start + change, &depth, &slope);
        gap = change - scheme.c_k * dot(moved, m.plane_normal), delta = start + change;
        predicted_bar = -factor * along * m.contact_sharpness_per_m * slope * (1 - slope) * gap;
        distance_bar = -factor * along * slope;
        value = factor * (depth + slope * gap);
        by_moved = scheme.c_k * factor * along * slope;
    } else {
        softplus_and_slope(m.contact_sharpness_per_m, start, &depth, &slope);
        gap = -change, delta = start;
        predicted_bar = -factor * along * slope;
        distance_bar = factor * along * m.contact_sharpness_per_m * slope * (1 - slope) * change;
        value = factor * (depth - slope * change);
    }
    double *out = touch_bar + TOUCH_BARS * (body.point_count * system + t);
    out[0] = predicted_bar + distance_bar, out[1] = predicted_bar;
    out[5] = along * value / m.contact_stiffness_pa_per_m;
    out[6] = factor * along * by_sharpness(m.contact_sharpness_per_m, delta, depth, slope, gap);
#pragma unroll
    for (int j = 0; j < 3; ++j) {
        const double here = points.at(t, body.position, j) + points.at(t, motion.u, j);
        out[2 + j] = value * at[j] - by_moved * moved[j] + distance_bar * here +
                     predicted_bar * (here + ahead * points.at(t, look, j));
    }
}

// The derivatives that node i gets through its contact points: by u, and by the velocity that looks ahead.
__device__ inline void contact_adjoint(const Body &body, const Scheme &scheme, const Material &m,
                                       const double *touch_bar, int i, double *u_bar, double *ahead_bar,
                                       double *sums) {
    const PointsAround around(body, i);
    const int p = threadIdx.x % LANES;
    double by_u = 0.0, by_prediction = 0.0;
    for (int t = around.first; t < around.end; ++t) {
        const double *bar = touch_bar + TOUCH_BARS * (int64)t, weight = body.points.weight[8 * (int64)t + p];
        by_u += weight * bar[0], by_prediction += weight * bar[1];
        if (p != 0) continue;  // each point counts once for the plane
        sums[BY_PLANE_OFFSET_M] += bar[0];
        sums[BY_CONTACT_STIFFNESS_PA_PER_M] += bar[5], sums[BY_CONTACT_SHARPNESS_PER_M] += bar[6];
#pragma unroll
        for (int j = 0; j < 3; ++j) sums[BY_PLANE_NORMAL + j] += bar[2 + j];
    }
    by_u = sum_lanes(by_u), by_prediction = sum_lanes(by_prediction);
    const double ahead = scheme.c_k * scheme.step * by_prediction;
#pragma unroll
    for (int j = 0; j < 3; ++j) u_bar[j] += by_u * m.plane_normal[j], ahead_bar[j] += ahead * m.plane_normal[j];
}

// The derivatives that node i gets through what its points felt of obstacles: by u, v and a before the step.
__device__ inline void felt_adjoint(const Body &body, const double *felt_bar, int i, double *u_bar, double *v_bar,
                                    double *a_bar, double *sums) {
    const PointsAround around(body, i);
    const int p = threadIdx.x % LANES;
    double by_state[9] = {};
    for (int t = around.first; t < around.end; ++t) {
        const double *bar = felt_bar + FELT_BARS * (int64)t, weight = body.points.weight[8 * (int64)t + p];
#pragma unroll
        for (int k = 0; k < 9; ++k) by_state[k] += weight * bar[k];
        if (p != 0) continue;  // each point counts once for the parameters
        sums[BY_CONTACT_STIFFNESS_PA_PER_M] += bar[FELT_STIFFNESS];
        sums[BY_CONTACT_SHARPNESS_PER_M] += bar[FELT_SHARPNESS];
        sums[BY_FRICTION_COEFFICIENT] += bar[FELT_FRICTION], sums[BY_PLANE_OFFSET_M] += bar[FELT_OFFSET];
        for (int k = 0; k < 3; ++k) {
            sums[BY_PLANE_NORMAL + k] += bar[FELT_NORMAL + k];
            sums[BY_OBSTACLE_SHIFT_M + k] += bar[FELT_SHIFT + k];
        }
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        u_bar[k] += sum_lanes(by_state[k]), v_bar[k] += sum_lanes(by_state[3 + k]);
        a_bar[k] += sum_lanes(by_state[6 + k]);
    }
}

// Δu of a moving held node is its target minus u, and enters the free rows through A.
__device__ inline void held_node_adjoint(const Body &body, const double *path, const real *blocks,
                                         const real *lmbda, int i, const double *increment_bar, double *u_bar,
                                         double *sums) {
    double given[3];
    for (int k = 0; k < 3; ++k) given[k] = increment_bar[k];
    for (int64 e = body.row_start[i]; e < body.row_start[i + 1]; ++e)
        for (int k = 0; k < 3; ++k)
            for (int j = 0; j < 3; ++j)
                given[k] -= (double)blocks[9 * e + 3 * k + j] * lmbda[3 * (int64)body.column[e] + j];
    for (int k = 0; k < 3; ++k) {
        u_bar[k] -= given[k];
        for (int j = 0; j < 3; ++j) sums[BY_START + k] += given[j] * path[1 + 3 * j + k];
    }
}

// Derivatives by the state before the step, in place of those by the state after it; sums (systems, BY_SIZE, N) grow. Eight
// lanes gather what a node gets, the first of them makes the rest of it.
extern "C" __global__ void collect_nodes_adjoint(const Body *bodies, const Scheme *schemes, const double *materials,
                                                 int width, const real *u, const real *v, const real *a,
                                                 const real *u_after, const double *paths, const real *blocks,
                                                 const real *lmbda, const double *pulled, const double *turned,
                                                 const double *touch_bar, const double *felt_bar, real *u_bar,
                                                 real *v_bar, real *a_bar, double *sums) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int t = thread_index(), lane = t % LANES, system = blockIdx.y, i = min(t / LANES, (int)body.nodes - 1);
    const Material &m = material_of(materials, width, system);
    const int64 offset = 3 * body.nodes * system, own = 3 * (int64)i;
    const Motion motion = of_system(u, v, a, offset);
    u_bar += offset + own, v_bar += offset + own, a_bar += offset + own;
    const bool carries = scheme.carries_acceleration();
    double pull[3] = {0, 0, 0}, by_turn[3] = {0, 0, 0}, u_out[3], v_out[3], a_out[3], ahead[3], mine[BY_SIZE] = {};
    const int c = body.node_cells[8 * (int64)i + lane];
    const int64 corner = 24 * (body.cells * system + c) + 3 * lane;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        if (c >= 0) pull[k] = pulled[corner + k], by_turn[k] = -turned[corner + k];
        pull[k] = sum_lanes(pull[k]), by_turn[k] = sum_lanes(by_turn[k]);
    }
    const bool free = body.free[i] != 0;
    double weighed[3];
    times_mass_by_lanes(body, i, NodalNumbers{lmbda + offset}, weighed);
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const double weighted = m.density_kg_m3 * weighed[k], by_v = v_bar[k], by_a = a_bar[k];
        const double increment = u_after[offset + own + k] - motion.u[own + k];
        const double known = motion.known_velocity(scheme, own + k);
        const double known_bar = m.stiffness_damping_s * pull[k] + m.mass_damping_per_s * weighted;
        const double moved = scheme.p_v * motion.v[own + k] + scheme.p_a * motion.a[own + k] + m.mass_damping_per_s * known -
                             (scheme.c_m + scheme.c_d * m.mass_damping_per_s) * increment;
        u_out[k] = u_bar[k] - pull[k] + by_turn[k];
        v_out[k] = (free ? scheme.d_v * by_v + scheme.e_v * by_a : scheme.h_v * by_v + scheme.k_v * by_a) +
                   scheme.p_v * weighted + scheme.q_v * known_bar;
        a_out[k] = (free ? scheme.d_a * by_v + scheme.e_a * by_a : scheme.h_a * by_v + scheme.k_a * by_a) +
                   scheme.p_a * weighted + scheme.q_a * known_bar;
        ahead[k] = scheme.predictor * scheme.step * by_turn[k];
        mine[BY_STIFFNESS_DAMPING_S] += pull[k] * (known - scheme.c_d * increment);
        mine[BY_MASS_DAMPING_PER_S] += weighted * (known - scheme.c_d * increment);
        mine[BY_GRAVITY_M_S2 + k] = weighted;
        mine[BY_DENSITY_KG_M3] += weighted * moved;
    }
    if (scheme.contact != 0.0)
        contact_adjoint(body, scheme, m, touch_bar + TOUCH_BARS * body.point_count * system, i, u_out, ahead, mine);
    if (felt_bar) felt_adjoint(body, felt_bar + FELT_BARS * body.point_count * system, i, u_out, v_out, a_out, mine);
    if (lane != 0 || t / LANES >= body.nodes) return;
    const int region = body.held[i];
    if (region >= 0 && paths[13 * region] != 0.0) {
        double increment_bar[3];
        for (int k = 0; k < 3; ++k)
            increment_bar[k] = u_bar[k] + scheme.h_u * v_bar[k] + scheme.k_u * a_bar[k];
        held_node_adjoint(body, paths + 13 * region, blocks + 9 * body.row_start[body.nodes] * system,
                          lmbda + offset, i, increment_bar, u_out, mine);
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        u_bar[k] = u_out[k];
        v_bar[k] = v_out[k] + (carries ? ahead[k] : 0.0);
        a_bar[k] = a_out[k] + (carries ? 0.0 : ahead[k]);
    }
#pragma unroll
    for (int s = 0; s < BY_SIZE; ++s)
        if (mine[s] != 0.0) sums[(BY_SIZE * (int64)system + s) * body.nodes + i] += mine[s];
}

// Sum of a row (length,) by one block of 256 threads in a fixed order; with labels, of the entries that carry `label`.
__device__ inline double row_sum(const double *row, int length, const int *labels, int label) {
    __shared__ double partial[256];
    double total = 0.0;
    for (int i = threadIdx.x; i < length; i += 256)
        if (!labels || labels[i] == label) total += row[i];
    partial[threadIdx.x] = total;
    for (int step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    }
    __syncthreads();
    return partial[0];
}

// Sums of rows of a length, one block of 256 threads each.
extern "C" __global__ void sum_rows(const double *rows, int length, double *out) {
    const double total = row_sum(rows + (int64)length * blockIdx.x, length, nullptr, 0);
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

// out (systems, BY_SIZE + 2 · regions): the nodes' sums, then those of the cells of each region by λ and by μ.
extern "C" __global__ void finish_sums(const Body *bodies, int regions, const double *sums, const double *lame_sums,
                                       double *out) {
    const Body &body = *bodies;
    const int which = blockIdx.x, system = blockIdx.y, columns = BY_SIZE + 2 * regions;
    double total;
    if (which < BY_SIZE) {
        total = row_sum(sums + (BY_SIZE * (int64)system + which) * body.nodes, body.nodes, nullptr, 0);
    } else {
        const int region = (which - BY_SIZE) / 2, row = 2 * system + (which - BY_SIZE) % 2;
        total = row_sum(lame_sums + (int64)row * body.cells, body.cells, body.cell_region, region);
    }
    if (threadIdx.x == 0) out[(int64)columns * system + which] = total;
}
