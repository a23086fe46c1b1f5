// A whole time step without the host: kernels for a batch of systems that share the body (the grid's last dimension).
// The formulas are those of physics/step.py.

// Rotations (systems, C, 9) at the predicted displacement and, where corner is given, the corner forces (systems, C,
// 24) of f_int(u) with the damping by known velocities.
extern "C" __global__ void turn_cells(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                      const real *u, const real *v, const real *a, real *rotation, real *corner) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int system = blockIdx.y, t = thread_index(), p = t % LANES, c = min(t / LANES, (int)body.cells - 1);
    const Material &m = material_of(materials, width, system);
    const Motion motion = of_system(u, v, a, 3 * body.nodes * system);
    const int64 node = 3 * (int64)body.cell_nodes[8 * c + p], place = body.cells * system + c;
    double predicted[3], f[9], r[9];
#pragma unroll
    for (int k = 0; k < 3; ++k)
        predicted[k] = (real)(motion.u[node + k] + scheme.predictor * scheme.step * motion.ahead(scheme)[node + k]);
    displacement_gradient(predicted, p, 0.25 / body.spacing, f);
    f[0] += 1.0, f[4] += 1.0, f[8] += 1.0;
    closest_rotation(f, r);
    const bool write = t / LANES < body.cells;
    real turned[9], at[3], z[3], y[3], w[3], by_lame[3], by_shear[3], local[3], force[3];
#pragma unroll
    for (int i = 0; i < 9; ++i) turned[i] = r[i];
#pragma unroll
    for (int i = 0; i < 9; ++i)
        if (write && i % LANES == p) rotation[9 * place + i] = turned[i];
    if (!corner) return;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        at[k] = motion.u[node + k];
        z[k] = -m.stiffness_damping_s * motion.known_velocity(scheme, node + k);
    }
    corner_vector(p, at, z, real(1), real(body.spacing), y);
    local_vector(turned, p, y, real(1), real(body.spacing), w);
    cell_product(body.table + CELL_SIZE * (int64)body.gradient_index[c], p, w, by_lame, by_shear);
    const real young = m.youngs_modulus_pa[body.cell_region[c]];
#pragma unroll
    for (int k = 0; k < 3; ++k) local[k] = young * (real(m.lam) * by_lame[k] + real(m.mu) * by_shear[k]);
    turn(turned, local, force);
#pragma unroll
    for (int k = 0; k < 3; ++k)
        if (write) corner[24 * place + 3 * p + k] = force[k];
}

// Blocks (systems, row_start[N], 9) of c_m M + c_d D + c_k K. The grid's second dimension is the neighbour's offset; where
// only some blocks are kept, `kept` says of each of them 27 · node + offset, and there is a thread for each.
extern "C" __global__ void assemble_systems(const Body *bodies, const Scheme *schemes, const double *materials,
                                            int width, const int *kept, const real *rotation, real *blocks) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 t = thread_index(), system = blockIdx.z;
    if (t >= (kept ? body.row_start[body.nodes] : body.nodes)) return;
    const int64 which = kept ? kept[t] : 27 * t + blockIdx.y, i = which / 27, place = body.slot[which];
    const int offset = which % 27;
    if (place < 0) return;
    const Material &m = material_of(materials, width, system);
    const double scale = scheme.c_k + scheme.c_d * m.stiffness_damping_s;
    real block[9];
    stiffness_block(
        body.node_cells + 8 * i, offset, rotation + 9 * body.cells * system, body.gradient_index, body.table,
        [&](int c) { return real(scale * m.youngs_modulus_pa[body.cell_region[c]]); }, real(m.lam), real(m.mu), block);
    const real mass = m.density_kg_m3 * mass_entry(body, i, offset);
    const real inertia = real(scheme.c_m + scheme.c_d * m.mass_damping_per_s) * mass;
    block[0] += inertia, block[4] += inertia, block[8] += inertia;
    real *out = blocks + 9 * (body.row_start[body.nodes] * system + place);
#pragma unroll
    for (int k = 0; k < 9; ++k) out[k] = block[k];
}

// Force on the right-hand side and stiffness in the system of every contact point along n, touch (systems, P, 2).
extern "C" __global__ void touch_points(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                        const real *u, const real *v, const real *a, double *touch) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 t = thread_index(), system = blockIdx.y;
    if (t >= body.point_count) return;
    const Material &m = material_of(materials, width, system);
    const Motion motion = of_system(u, v, a, 3 * body.nodes * system);
    const double factor = m.contact_stiffness_pa_per_m * body.points.area[t];
    const double start = distance_of(body, m, t, motion.u);
    const double change = moved_ahead(body, scheme, m, t, motion.ahead(scheme));
    double depth, slope, *out = touch + 2 * (body.point_count * system + t);
    if (scheme.implicit != 0.0) {  // f(ũ) + C (ũ - u): the system's C Δu term then acts from ũ on
        softplus_and_slope(m.contact_sharpness_per_m, start + change, &depth, &slope);
        out[0] = factor * (depth + slope * change), out[1] = scheme.c_k * factor * slope;
    } else {
        softplus_and_slope(m.contact_sharpness_per_m, start, &depth, &slope);
        out[0] = factor * (depth - slope * change), out[1] = 0.0;
    }
}

// Displacement of a held node at the end of the step; path: moves, Q (9), shift (3) of its region.
__device__ inline double prescribed(const double *path, const real *position, const double *start, int k) {
    double total = path[10 + k] - position[k];
    for (int j = 0; j < 3; ++j) total += path[1 + 3 * k + j] * (position[j] + start[j]);
    return total;
}

// Displacement within a step that the nodes gain on average over what the last motion leads to, gains (systems, 3); a
// block of 512 threads a direction.
extern "C" __global__ void gain_in_speed(const Body *bodies, const Scheme *schemes, const real *v, const real *a,
                                         double *gains) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 offset = 3 * body.nodes * blockIdx.y + blockIdx.x;
    __shared__ double partial[512];
    double total = 0.0;
    for (int64 i = threadIdx.x; i < body.nodes; i += 512) total += scheme.gain(v[offset + 3 * i], a[offset + 3 * i]);
    partial[threadIdx.x] = total;
    for (int half = 256; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (threadIdx.x == 0) gains[3 * blockIdx.y + blockIdx.x] = scheme.step * partial[0] / body.nodes;
}

// Right-hand side, first guess and preconditioner, by eight lanes a node; contact is added to the blocks on the way, and,
// where there are obstacles, what the points felt of them. gains: of a free body, see gain_in_speed; null of others.
extern "C" __global__ void prepare_step(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                        const real *u, const real *v, const real *a, const double *paths,
                                        const double *start, const real *corner, const double *touch,
                                        const double *felt, const double *gains, real *blocks, real *inverse,
                                        real *rhs, real *increment) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int t = thread_index(), lane = t % LANES, system = blockIdx.y, i = min(t / LANES, (int)body.nodes - 1);
    const bool inside = t / LANES < body.nodes;
    const Material &m = material_of(materials, width, system);
    const int64 offset = 3 * body.nodes * system, own = 3 * (int64)i;
    const Motion motion = of_system(u, v, a, offset);
    const int c = body.node_cells[8 * (int64)i + lane];
    double elastic[3] = {0, 0, 0};
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        if (c >= 0) elastic[k] = corner[24 * (body.cells * system + c) + 3 * lane + k];
        elastic[k] = sum_lanes(elastic[k]);
    }
    blocks += 9 * body.row_start[body.nodes] * system;
    touch += 2 * body.point_count * system;
    const double contact = scheme.contact != 0.0 ? contact_force(body, scheme, m, touch, i, inside, blocks) : 0.0;
    double more[3] = {0, 0, 0};
    if (felt) add_felt(body, felt + FELT * body.point_count * system, i, inside, blocks, more);
    double inertia[3];
    times_mass_by_lanes(
        body, i, [&](int64 j, double *x) { motion.driving(scheme, m.mass_damping_per_s, j, x); }, inertia);
    if (!inside) return;
    if (lane == DIAGONAL_LANE)
        invert_block(blocks + 9 * body.slot[27 * (int64)i + 13], body.free[i], inverse + 9 * (body.nodes * system + i));
    const int region = body.held[i];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        if (lane != k) continue;
        const double external = m.density_kg_m3 * body.volume[i] * m.gravity_m_s2[k] + body.load[own + k];
        rhs[offset + own + k] =
            external + m.density_kg_m3 * inertia[k] + contact * m.plane_normal[k] + more[k] - elastic[k];
        double guess = scheme.step * motion.ahead(scheme)[own + k] + (gains ? gains[3 * system + k] : 0.0);
        if (region >= 0) {
            const double *path = paths + 13 * region;
            guess = path[0] == 0.0 ? 0.0
                                   : prescribed(path, body.position + own, start + offset + own, k) - motion.u[own + k];
        }
        increment[offset + own + k] = guess;
    }
}

// The state after an increment Δu.
extern "C" __global__ void advance(const Body *bodies, const Scheme *schemes, const real *u, const real *v,
                                   const real *a, const real *increment, real *u_out, real *v_out, real *a_out) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 t = thread_index(), i = 3 * body.nodes * blockIdx.y + t;
    if (t >= 3 * body.nodes) return;
    const bool free = body.free[t / 3] != 0;
    const double step = increment[i];
    u_out[i] = u[i] + increment[i];
    v_out[i] = free ? scheme.d_u * step + scheme.d_v * v[i] + scheme.d_a * a[i]
                    : scheme.h_u * step + scheme.h_v * v[i] + scheme.h_a * a[i];
    a_out[i] = free ? scheme.e_u * step + scheme.e_v * v[i] + scheme.e_a * a[i]
                    : scheme.k_u * step + scheme.k_v * v[i] + scheme.k_a * a[i];
}
