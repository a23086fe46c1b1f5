// What tells whether a step can be trusted (physics/step.py, step_keeping): the energy after it, the work put in, how
// far the cells turned from what was foreseen, and how stiff extrapolated contact is. Each cell, node and point gives its
// part; the parts are then summed in a fixed order.

// Places of the sums, as in guard.py.
#define ELASTIC 0
#define SURPRISE 1   // of cells, weighted by how full they are
#define KINETIC 2
#define POTENTIAL 3  // of gravity and dead loads
#define WORK 4       // of held nodes and obstacles that move
#define CONTACT 5
#define STIFFNESS 6  // of extrapolated contact
#define GIVE 7       // the largest of stiffness over what holds against it, at a point
#define MOMENTUM 8   // (3)
#define SUMS 11
#define NODE_SUMS 6
#define POINT_SUMS 4

// Rotation of the cell of eight lanes at displacement `corner` of the lane's corner.
__device__ inline void rotation_at(const double *corner, int p, double spacing, double *r) {
    double f[9];
    displacement_gradient(corner, p, 0.25 / spacing, f);
    f[0] += 1.0, f[4] += 1.0, f[8] += 1.0;
    closest_rotation(f, r);
}

// parts (systems, 2, C): elastic energy after the step, and fill · (largest turn that was not foreseen)². Without
// `before`, of a state alone.
extern "C" __global__ void guard_cells(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                       const double *fill, const real *before, const real *after, const real *rotation,
                                       double *parts) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int system = blockIdx.y, t = thread_index(), p = t % LANES, c = min(t / LANES, (int)body.cells - 1);
    const Material &m = material_of(materials, width, system);
    const int64 node = 3 * (body.nodes * system + body.cell_nodes[8 * c + p]);
    double at[3], zero[3] = {0, 0, 0}, r[9], y[3], w[3], by_lame[3], by_shear[3], surprise = 0.0;
#pragma unroll
    for (int k = 0; k < 3; ++k) at[k] = after[node + k];
    rotation_at(at, p, body.spacing, r);
#pragma unroll
    for (int i = 0; i < 9; ++i) r[i] = (real)r[i];
    corner_vector(p, at, zero, 1.0, body.spacing, y);
    local_vector(r, p, y, 1.0, body.spacing, w);
    cell_product(body.table + CELL_SIZE * (int64)body.gradient_index[c], p, w, by_lame, by_shear);
    const double energy = sum_lanes(m.lam * dot(w, by_lame) + m.mu * dot(w, by_shear));
    if (before && scheme.predictor != 0.0) {
        double there[3];
#pragma unroll
        for (int k = 0; k < 3; ++k)
            there[k] = (real)(before[node + k] + scheme.predictor * (after[node + k] - before[node + k]));
        rotation_at(there, p, body.spacing, r);
#pragma unroll
        for (int i = 0; i < 9; ++i)
            surprise = fmax(surprise, fabs(r[i] - rotation[9 * (body.cells * system + c) + i]));
    }
    if (p != 0 || t / LANES >= body.cells) return;
    parts += 2 * body.cells * system;
    parts[c] = 0.5 * m.youngs_modulus_pa[body.cell_region[c]] * energy;
    parts[body.cells + c] = fill[c] * surprise * surprise;
}

// parts (systems, 6, N): kinetic energy and potential after the step, the work on node i where it is held and moves, and
// its momentum.
extern "C" __global__ void guard_nodes(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                       const double *paths, const real *u, const real *v, const real *a,
                                       const real *u_after, const real *v_after, const real *blocks, const real *rhs,
                                       double *parts) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 i = thread_index(), system = blockIdx.y;
    if (i >= body.nodes) return;
    const Material &m = material_of(materials, width, system);
    const int64 offset = 3 * body.nodes * system, own = offset + 3 * i;
    const double mass = m.density_kg_m3 * body.volume[i];
    double kinetic = 0.0, potential = 0.0, work = 0.0, carried[3];
    times_mass(body, i, NodalNumbers{v_after + offset}, carried);
    for (int k = 0; k < 3; ++k) {
        const double speed = v_after[own + k], moved = u_after[own + k];
        kinetic += 0.5 * m.density_kg_m3 * carried[k] * speed;
        potential -= mass * m.gravity_m_s2[k] * (body.position[3 * i + k] + moved) + body.load[3 * i + k] * moved;
    }
    const int region = u ? body.held[i] : -1;
    if (region >= 0 && paths[13 * region] != 0.0) {
        double force[3] = {0, 0, 0};
        blocks += 9 * body.row_start[body.nodes] * system;
        for (int64 e = body.row_start[i]; e < body.row_start[i + 1]; ++e) {
            const int64 other = offset + 3 * (int64)body.column[e];
            for (int k = 0; k < 3; ++k)
                for (int j = 0; j < 3; ++j)
                    force[k] += (double)blocks[9 * e + 3 * k + j] * (u_after[other + j] - u[other + j]);
        }
        // As physics/step.py, _work_of_held: where held nodes have part in the motion, the change of kinetic energy
        // takes the place of inertia's work.
        const auto acceleration = [&](int64 j, double *x) {
            for (int64 e = offset + 3 * j; e < offset + 3 * j + 3; ++e)
                *x++ = scheme.c_m * ((double)u_after[e] - u[e]) - scheme.p_v * v[e] - scheme.p_a * a[e];
        };
        const auto moves = [&](int64 j) { return body.held[j] >= 0 && paths[13 * body.held[j]] != 0.0; };
        const auto of_others = [&](const real *after, const real *before, double *out) {
            times_mass(
                body, i,
                [&](int64 j, double *x) {
                    for (int k = 0; k < 3; ++k) {
                        const int64 e = offset + 3 * j + k;
                        x[k] = moves(j) ? 0.0 : (double)after[e] - (before ? before[e] : real(0));
                    }
                },
                out);
        };
        double now[3], inertia[3], step_others[3], v_others[3], v_others_before[3], carried_before[3];
        acceleration(i, now);
        times_mass(body, i, acceleration, inertia);
        times_mass(body, i, NodalNumbers{v + offset}, carried_before);
        of_others(u_after, u, step_others);
        of_others(v_after, nullptr, v_others);
        of_others(v, nullptr, v_others_before);
        for (int k = 0; k < 3; ++k) {
            const double increment = (double)u_after[own + k] - u[own + k];
            work += (force[k] - rhs[own + k]) * increment;
            const double change = 0.5 * v_after[own + k] * (carried[k] + v_others[k]) -
                                  0.5 * v[own + k] * (carried_before[k] + v_others_before[k]);
            work += m.density_kg_m3 * (change - inertia[k] * increment - now[k] * step_others[k]);
        }
    }
    parts += NODE_SUMS * body.nodes * system;
    parts[i] = kinetic, parts[body.nodes + i] = potential, parts[2 * body.nodes + i] = work;
    for (int k = 0; k < 3; ++k) parts[(3 + k) * body.nodes + i] = mass * v_after[own + k];
}

// ∫ from δ to ∞ of log(1 + exp(-a t))/a dt = -Li₂(-exp(-a δ))/a². With x = exp(-|aδ|) and y = log(1 + x) <= log 2,
// -Li₂(-x) = y + y²/4 + y³/36 - y⁵/3600 + ..., to 1e-12.
__device__ inline double softplus_integral(double a, double delta) {
    const double t = -a * delta, y = log1p(exp(-fabs(t))), q = y * y;
    const double odd = 1.0 / 36 + q * (-1.0 / 3600 + q * (1.0 / 211680 + q * (-1.0 / 10886400 + q / 526901760.0)));
    const double dilogarithm = y + 0.25 * q + y * q * odd;
    const double sixth = 1.6449340668482264;  // π²/6
    return (t > 0.0 ? sixth + 0.5 * t * t - dilogarithm : dilogarithm) / (a * a);
}

// Contact's energy [J] of a point at x that presses against an obstacle, at one moment of a step.
__device__ inline double energy_at(const Touchable &touched, double area, const double *x) {
    const double distance = touched.distance(x);
    if (!(distance < REACH / touched.sharpness)) return 0.0;
    return touched.stiffness * area * softplus_integral(touched.sharpness, distance);
}

// Work [J] of an obstacle that moves, on a point that goes from x to x_after: the energy that its motion gives to both
// places, and what it drags the point along by.
__device__ inline double work_of(const Obstacle &o, const Material &m, const Pose &pose, double step, double area,
                                 const double *x, const double *x_after) {
    const Touchable start(o, m, pose.start_turn, pose.start_origin_m), end(o, m, pose.end_turn, pose.end_origin_m);
    double work = 0.0;
    if (o.presses != 0.0)
        work = 0.5 * (energy_at(end, area, x) - energy_at(start, area, x) + energy_at(end, area, x_after) -
                      energy_at(start, area, x_after));
    if (o.rubs == 0.0) return work;
    const Touchable middle(o, m, pose.middle_turn, pose.middle_origin_m);
    double there[3], moving[3], slip[3], w[3];
    for (int k = 0; k < 3; ++k) there[k] = 0.5 * (x[k] + x_after[k]);
    Felt at;
    if (!feels(middle, area, there, at)) return work;
    carried(pose.middle_moves, pose.middle_drift_m_s, pose.middle_spin_per_s, there, moving);
    for (int k = 0; k < 3; ++k) slip[k] = (x_after[k] - x[k]) / step - moving[k];
    at.along(slip, w);
    const double size = sqrt(dot(w, w) + o.slip_speed_m_s * o.slip_speed_m_s);
    return work - step * middle.friction * at.press() / size * dot(w, moving);
}

// parts (systems, 4, P): contact energy after the step; stiffness and give of extrapolated contact; work of obstacles.
extern "C" __global__ void guard_points(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                        int count, const Obstacle *obstacles, const Pose *poses, const real *u,
                                        const real *v, const real *a, const real *u_after, const real *blocks,
                                        double *parts) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 t = thread_index(), system = blockIdx.y, offset = 3 * body.nodes * system;
    if (t >= body.point_count) return;
    const Material &m = material_of(materials, width, system);
    const double factor = m.contact_stiffness_pa_per_m * body.points.area[t];
    double stiff = 0.0, give = 0.0, energy = 0.0, work = 0.0;
    if (u && scheme.contact != 0.0 && scheme.implicit == 0.0) {
        const Motion motion = of_system(u, v, a, offset);
        const double start = distance_of(body, m, t, motion.u);
        double depth, slope;
        softplus_and_slope(m.contact_sharpness_per_m, start + moved_ahead(body, scheme, m, t, motion.ahead(scheme)), &depth,
                           &slope);
        stiff = factor * slope;
        blocks += 9 * body.row_start[body.nodes] * system;
        for (int p = 0; p < 8; ++p) {
            const real *centre = blocks + 9 * body.slot[27 * (int64)body.points.nodes[8 * t + p] + 13];
            const double weight = body.points.weight[8 * t + p];
            give += weight * weight * 3.0 / ((double)centre[0] + centre[4] + centre[8]);
        }
    }
    if (scheme.contact != 0.0)
        energy = factor * softplus_integral(m.contact_sharpness_per_m, distance_of(body, m, t, u_after + offset));
    if (count > 0) {
        poses += count * system;
        double x[3], x_after[3];
        for (int k = 0; k < 3; ++k) {
            const double rest = body.points.at(t, body.position, k);
            x[k] = u ? rest + body.points.at(t, u + offset, k) : rest;
            x_after[k] = rest + body.points.at(t, u_after + offset, k);
        }
        for (int j = 0; j < count; ++j) {
            const Touchable end(obstacles[j], m, poses[j].end_turn, poses[j].end_origin_m);
            if (obstacles[j].presses != 0.0) energy += energy_at(end, body.points.area[t], x_after);
            if (u && poses[j].middle_moves != 0.0)
                work += work_of(obstacles[j], m, poses[j], scheme.step, body.points.area[t], x, x_after);
        }
    }
    parts += POINT_SUMS * body.point_count * system;
    parts[t] = energy, parts[body.point_count + t] = stiff, parts[2 * body.point_count + t] = stiff * give;
    parts[3 * body.point_count + t] = work;
}

// out (systems, SUMS): one block of 256 threads for each; the largest instead of the sum for GIVE.
extern "C" __global__ void guard_sums(const Body *bodies, const double *cells, const double *nodes,
                                      const double *points, double *out) {
    __shared__ double partial[256];
    const Body &body = *bodies;
    const int which = blockIdx.x;
    const int64 system = blockIdx.y;
    const double *row;
    int64 length;
    if (which < KINETIC) {
        length = body.cells, row = cells + (2 * system + which) * length;
    } else if (which < CONTACT || which >= MOMENTUM) {
        const int place = which < CONTACT ? which - KINETIC : 3 + which - MOMENTUM;
        length = body.nodes, row = nodes + (NODE_SUMS * system + place) * length;
    } else {
        length = points ? body.point_count : 0, row = points + (POINT_SUMS * system + which - CONTACT) * length;
    }
    double total = 0.0;
    const double *led = points + (POINT_SUMS * system + 3) * body.point_count;  // the obstacles' part of the work
    for (int64 i = threadIdx.x; which == WORK && points && i < body.point_count; i += 256) total += led[i];
    for (int64 i = threadIdx.x; i < length; i += 256) total = which == GIVE ? fmax(total, row[i]) : total + row[i];
    partial[threadIdx.x] = total;
    for (int step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) {
            const double other = partial[threadIdx.x + step];
            partial[threadIdx.x] = which == GIVE ? fmax(partial[threadIdx.x], other) : partial[threadIdx.x] + other;
        }
    }
    if (threadIdx.x == 0) out[SUMS * system + which] = partial[0];
}
