// A time step linearised without the host (physics/tangent.py): changes of one system's state along several directions
// of the parameters at once, the grid's last dimension. A direction is laid out as a material: changes of λ and μ by
// Poisson's ratio, of density, contact stiffness and Young's modulus relative to themselves, of all else as it is.

// Directions that a thread works out one after the other: what they share is worked out once.
#define DIRECTIONS_AT_ONCE 6

// Corner forces' change (directions, C, 24): through R, through λ and μ, and through the corners' own motion. The grid's
// second dimension is that of groups of directions, of which there are `count`.
extern "C" __global__ void change_cells(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                        const double *directions, int count, const real *u, const real *v,
                                        const real *a, const real *u_after, const real *du, const real *dv,
                                        const real *da, const real *rotation, real *corner) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int t = thread_index(), p = t % LANES, c = min(t / LANES, (int)body.cells - 1);
    const int begin = DIRECTIONS_AT_ONCE * blockIdx.y, end = min(count, begin + DIRECTIONS_AT_ONCE);
    const Material &m = material_of(materials, width, 0);
    const int64 node = 3 * (int64)body.cell_nodes[8 * c + p];
    const Motion motion = of_system(u, v, a, 0);
    const double ahead = scheme.predictor * scheme.step;
    double at[3], z[3], increment[3], known[3], zero[3] = {0, 0, 0}, predicted[3], y[3], w[3], r[9], f[9];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        at[k] = motion.u[node + k], known[k] = motion.known_velocity(scheme, node + k);
        increment[k] = u_after[node + k] - motion.u[node + k];
        z[k] = (scheme.c_k + scheme.c_d * m.stiffness_damping_s) * increment[k] - m.stiffness_damping_s * known[k];
        predicted[k] = (real)(at[k] + ahead * motion.ahead(scheme)[node + k]);
    }
#pragma unroll
    for (int i = 0; i < 9; ++i) r[i] = rotation[9 * (int64)c + i];
    displacement_gradient(predicted, p, 0.25 / body.spacing, f);
    f[0] += 1.0, f[4] += 1.0, f[8] += 1.0;
    corner_vector(p, at, z, 1.0, body.spacing, y);
    local_vector(r, p, y, 1.0, body.spacing, w);
    const real *table_row = body.table + CELL_SIZE * (int64)body.gradient_index[c];
    double w_lame[3], w_shear[3], force[3];
    cell_product(table_row, p, w, w_lame, w_shear);
    const int region = body.cell_region[c];
    const double young = m.youngs_modulus_pa[region];
#pragma unroll
    for (int k = 0; k < 3; ++k) force[k] = young * (m.lam * w_lame[k] + m.mu * w_shear[k]);
    for (int column = begin; column < end; ++column) {
        const Material &d = material_of(directions, width, column);
        const Motion change = of_system(du, dv, da, 3 * body.nodes * column);
        double moved[3], turn_by[3], m_local[3], dw[3], df[9], dr[9], d_lame[3], d_shear[3], bent[3], one[3], two[3];
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            const double by_u = change.u[node + k], by_known = change.known_velocity(scheme, node + k);
            moved[k] = by_u + d.stiffness_damping_s * (scheme.c_d * increment[k] - known[k]) -
                       m.stiffness_damping_s * by_known;
            turn_by[k] = by_u + ahead * change.ahead(scheme)[node + k];
        }
        displacement_gradient(turn_by, p, 0.25 / body.spacing, df);
        turn_change(f, r, df, dr);
        corner_vector(p, zero, moved, 0.0, body.spacing, m_local);
        turn_back(r, m_local, dw);
        turn_back(dr, y, moved);
#pragma unroll
        for (int k = 0; k < 3; ++k) dw[k] += moved[k];
        cell_product(table_row, p, dw, d_lame, d_shear);
        const double dlam = m.lam * d.youngs_modulus_pa[region] + d.lam, dmu = m.mu * d.youngs_modulus_pa[region] + d.mu;
#pragma unroll
        for (int k = 0; k < 3; ++k)
            bent[k] = young * (m.lam * d_lame[k] + m.mu * d_shear[k] + dlam * w_lame[k] + dmu * w_shear[k]);
        turn(r, bent, one);
        turn(dr, force, two);
        if (t / LANES >= body.cells) continue;
#pragma unroll
        for (int k = 0; k < 3; ++k) corner[24 * (body.cells * column + c) + 3 * p + k] = one[k] + two[k];
    }
}

// The contact points of the body; see backends/cpu/contact.py.
struct Riding {
    const int *nodes;
    const double *weight, *area;

    // n·nodal at a point.
    __device__ double along(int64 point, const double *normal, const real *nodal) const {
        double total = 0.0;
        for (int q = 0; q < 8; ++q) {
            const real *at = nodal + 3 * (int64)nodes[8 * point + q];
            total += weight[8 * point + q] * (normal[0] * at[0] + normal[1] * at[1] + normal[2] * at[2]);
        }
        return total;
    }
};

// Change of n·x + d of a point; `here` is n·(x + u), by the change of n, at the same displacement.
__device__ inline double distance_change(double here, double along, const Material &d) {
    return along + here + d.plane_offset_m;
}

// Change of every contact point's normal force along n (directions, P), and the force itself (P,): it turns with n.
extern "C" __global__ void change_contact(const Body *bodies, const Scheme *schemes, const double *materials, int width,
                                          const double *directions, int count, const int *nodes, const double *weight,
                                          const double *area, const real *u, const real *v, const real *a,
                                          const real *u_after, const real *du, const real *dv, const real *da,
                                          double *change, double *force) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 point = thread_index(), column = blockIdx.y;
    if (point >= count) return;
    const Material &m = material_of(materials, width, 0), &d = material_of(directions, width, column);
    const Motion motion = of_system(u, v, a, 0), by = of_system(du, dv, da, 3 * body.nodes * column);
    const Riding points = {nodes, weight, area};
    const double ahead = scheme.c_k * scheme.step, factor = m.contact_stiffness_pa_per_m * area[point];
    const real *look = motion.ahead(scheme);
    const double start_along = points.along(point, m.plane_normal, motion.u);
    const double start = m.plane_offset_m + points.along(point, m.plane_normal, body.position) + start_along;
    const double predicted = start + ahead * points.along(point, m.plane_normal, look);
    const double turned = points.along(point, d.plane_normal, body.position) + points.along(point, d.plane_normal, motion.u);
    const double turned_ahead = turned + ahead * points.along(point, d.plane_normal, look);
    const double by_u = points.along(point, m.plane_normal, by.u);
    const double by_ahead = by_u + ahead * points.along(point, m.plane_normal, by.ahead(scheme));
    const double start_change = distance_change(turned, by_u, d);
    const double predicted_change = distance_change(turned_ahead, by_ahead, d);
    double depth, slope, total, value, sharper;
    if (scheme.implicit != 0.0) {
        softplus_and_slope(m.contact_sharpness_per_m, predicted, &depth, &slope);
        const double moved = points.along(point, m.plane_normal, u_after) - start_along;
        const double moved_turned = points.along(point, d.plane_normal, u_after) - points.along(point, d.plane_normal, motion.u);
        const double gap = predicted - start - scheme.c_k * moved;
        total = -m.contact_sharpness_per_m * slope * (1.0 - slope) * gap * predicted_change - slope * start_change -
                slope * scheme.c_k * moved_turned;
        value = depth + slope * gap;
        sharper = by_sharpness(m.contact_sharpness_per_m, predicted, depth, slope, gap);
    } else {
        softplus_and_slope(m.contact_sharpness_per_m, start, &depth, &slope);
        const double gap = predicted - start;
        total = -slope * predicted_change + m.contact_sharpness_per_m * slope * (1.0 - slope) * gap * start_change;
        value = depth - slope * gap;
        sharper = by_sharpness(m.contact_sharpness_per_m, start, depth, slope, -gap);
    }
    total += d.contact_stiffness_pa_per_m * value + d.contact_sharpness_per_m * sharper;
    change[count * column + point] = factor * total;
    if (column == 0) force[point] = factor * value;
}

// Right-hand side and first guess (directions, N, 3) of the increment's change.
extern "C" __global__ void prepare_step_tangent(const Body *bodies, const Scheme *schemes, const double *materials,
                                                int width, const double *directions, int points,
                                                const int64 *point_start, const double *weight, const real *u,
                                                const real *v, const real *a, const real *u_after, const real *du,
                                                const real *dv, const real *da, const double *paths,
                                                const double *start, const real *corner, const double *contact_change,
                                                const double *contact_force, const double *felt_change, real *rhs,
                                                real *guess) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int i = thread_index(), column = blockIdx.y;
    if (i >= body.nodes) return;
    const Material &m = material_of(materials, width, 0), &d = material_of(directions, width, column);
    const int64 offset = 3 * body.nodes * column, own = 3 * (int64)i;
    const Motion motion = of_system(u, v, a, 0), change = of_system(du, dv, da, offset);
    double total[3] = {0, 0, 0}, along = 0.0, turned = 0.0;
    for (int p = 0; p < 8; ++p) {
        const int c = body.node_cells[8 * (int64)i + p];
        if (c < 0) continue;
#pragma unroll
        for (int k = 0; k < 3; ++k) total[k] -= corner[24 * (body.cells * column + c) + 3 * p + k];
        for (int64 t = point_start[c]; felt_change && t < point_start[c + 1]; ++t)
            for (int k = 0; k < 3; ++k)
                total[k] += weight[8 * t + p] * felt_change[3 * (points * (int64)column + t) + k];
        if (scheme.contact == 0.0) continue;
        for (int64 t = point_start[c]; t < point_start[c + 1]; ++t) {
            along += weight[8 * t + p] * contact_change[points * (int64)column + t];
            turned += weight[8 * t + p] * contact_force[t];
        }
    }
    const double relative = d.density_kg_m3, inertia = scheme.c_m + scheme.c_d * m.mass_damping_per_s;
    const bool heavier = relative != 0.0 || d.mass_damping_per_s != 0.0;
    const int region = body.held[i];
    double push[3];
    times_mass(
        body, i,
        [&](int64 j, double *x) {
            change.driving(scheme, m.mass_damping_per_s, j, x);
            if (!heavier) return;  // as most directions
            double now[3];
            motion.driving(scheme, m.mass_damping_per_s, j, now);
            for (int k = 0; k < 3; ++k) {
                const double increment = u_after[3 * j + k] - motion.u[3 * j + k];
                x[k] += relative * (now[k] - inertia * increment);
                x[k] += d.mass_damping_per_s * (motion.known_velocity(scheme, 3 * j + k) - scheme.c_d * increment);
            }
        },
        push);
    for (int k = 0; k < 3; ++k) {
        const int64 e = own + k;
        const double weight = body.volume[i] * (d.gravity_m_s2[k] + relative * m.gravity_m_s2[k]);
        rhs[offset + e] = total[k] + m.density_kg_m3 * (push[k] + weight) + along * m.plane_normal[k] +
                          turned * d.plane_normal[k];
        double first = scheme.step * change.ahead(scheme)[e];
        if (region >= 0) {
            const double *path = paths + 13 * region;
            first = 0.0;
            if (path[0] != 0.0) {
                for (int j = 0; j < 3; ++j) first += path[1 + 3 * k + j] * start[offset + own + j];
                first -= change.u[e];
            }
        }
        guess[offset + e] = first;
    }
}
