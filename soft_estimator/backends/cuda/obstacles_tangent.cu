// Contact and friction with obstacles made linear: the change of every point's force along several directions at once.

// Change of T y for changes of y and of n.
__device__ inline void along_tangent(const Felt &at, const double *y, const double *dy, const double *dn, double *out) {
    at.along(dy, out);
    const double of_y = dot(at.normal, y), turned = dot(dn, y);
    for (int k = 0; k < 3; ++k) out[k] -= of_y * dn[k] + turned * at.normal[k];
}

// Changes of δ (returned) and n for a change of the place and of the plane, and a move of the obstacle.
__device__ inline double place_tangent(const Touchable &touched, const Felt &at, const double *bent, const Material &d,
                                       const Move &move, const double *dx, double *dn) {
    if (touched.o.kind == KIND_PLANE) {
        for (int k = 0; k < 3; ++k) dn[k] = d.plane_normal[k];
        return dot(at.normal, dx) + dot(at.x, dn) + d.plane_offset_m;
    }
    double moved[3];
    for (int k = 0; k < 3; ++k) moved[k] = dx[k] - move.way_m[k];
    if (touched.o.posed == 0.0) {
        turn(bent, moved, dn);
        return dot(at.normal, moved);
    }
    double arm[3], along[3], turned[3];
    for (int k = 0; k < 3; ++k) arm[k] = at.x[k] - touched.origin[k];
    cross(move.turn_rad, arm, along), cross(move.turn_rad, at.normal, turned);
    for (int k = 0; k < 3; ++k) moved[k] -= along[k];
    turn(bent, moved, dn);
    for (int k = 0; k < 3; ++k) dn[k] += turned[k];
    return dot(at.normal, moved);
}

// Adds the change of the pressing; moved: c_k (Δt w - Δu) at the point.
__device__ inline void pressing_tangent(const Touchable &touched, const Felt &at, const Scheme &scheme,
                                        const Material &d, double d_distance, const double *dn, const double *moved,
                                        const AtPoint &by, double *force) {
    const double gap = dot(at.normal, moved), value = at.factor * (at.depth + at.slope * gap);
    const double dgap = scheme.c_k * scheme.step * dot(at.normal, by.ahead) + dot(moved, dn);
    double change = by_distance(touched, at, gap) * d_distance + at.factor * at.slope * dgap;
    if (touched.o.own == 0.0)
        change += d.contact_stiffness_pa_per_m * value +
                  d.contact_sharpness_per_m * value_by_sharpness(touched, at, gap);
    for (int k = 0; k < 3; ++k) force[k] += change * at.normal[k] + value * dn[k];
}

// Adds the change of the rubbing; increment: Δu at the point.
__device__ inline void rubbing_tangent(const Touchable &touched, const Felt &at, const Scheme &scheme, const Pose &pose,
                                       const Material &d, double d_distance, const double *dn, const double *increment,
                                       const AtPoint &riding, const AtPoint &by, double *force) {
    double moving[3], spun[3], q[3], q_t[3], dq[3], dm[3], dq_t[3], dm_t[3], dd_t[3], dw0[3];
    carried(pose.moves, pose.drift_m_s, pose.spin_per_s, at.x, moving);
    turn(pose.spin_per_s, by.x, spun);
    const Slip slip(touched, at, riding, moving);
    for (int k = 0; k < 3; ++k) {
        if (pose.moves == 0.0) spun[k] = 0.0;
        q[k] = scheme.c_d * increment[k] - riding.known[k] - moving[k];
        dq[k] = -by.known[k] - spun[k], dm[k] = by.ahead[k] - spun[k];
    }
    at.along(q, q_t);
    along_tangent(at, q, dq, dn, dq_t);
    along_tangent(at, slip.m, dm, dn, dm_t);
    along_tangent(at, riding.gained, by.gained, dn, dd_t);
    const double dchi = slip.by_rho() * (dot(slip.d_t, dd_t) - slip.rho * dot(slip.m_t, dm_t));
    for (int k = 0; k < 3; ++k) dw0[k] = dm_t[k] + slip.chi * dd_t[k] + dchi * slip.d_t[k];
    double dpress = -at.factor * at.slope * d_distance, dfriction = 0.0;
    if (touched.o.own == 0.0) {
        dpress += d.contact_stiffness_pa_per_m * at.press() +
                  d.contact_sharpness_per_m * press_by_sharpness(touched, at);
        dfriction = d.friction_coefficient;
    }
    const double dsize = dot(slip.w0, dw0) / slip.size;
    const double dstrength =
        (touched.friction * dpress + dfriction * at.press() - slip.strength * dsize) / slip.size;
    for (int k = 0; k < 3; ++k) force[k] -= dstrength * q_t[k] + slip.strength * dq_t[k];
}

// felt_change (directions, P, 3): change of the force of every point, at a fixed increment; moves (directions, count).
extern "C" __global__ void change_obstacles(const Body *bodies, const Scheme *schemes, const double *materials,
                                            int width, const double *directions, const Move *moves, int count,
                                            const Obstacle *obstacles, const Pose *poses, const real *u,
                                            const real *v, const real *a, const real *u_after, const real *du,
                                            const real *dv, const real *da, double *felt_change) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 t = thread_index(), column = blockIdx.y;
    if (t >= body.point_count) return;
    const Material &m = material_of(materials, width, 0), &d = material_of(directions, width, column);
    const Motion motion = of_system(u, v, a, 0);
    const AtPoint riding(body.points, t, scheme, motion, body.position);
    double force[3] = {0, 0, 0};
    for (int j = 0; j < count; ++j) {
        const Obstacle &o = obstacles[j];
        const Touchable touched(o, m, poses[j].turn, poses[j].origin_m);
        Felt at;
        double bent[9], increment[3], moved[3], dn[3];
        if (!feels(touched, body.points.area[t], riding.x, at, bent)) continue;
        const AtPoint by(body.points, t, scheme, of_system(du, dv, da, 3 * body.nodes * column), nullptr);
        for (int k = 0; k < 3; ++k) {
            increment[k] = body.points.at(t, u_after, k) - body.points.at(t, motion.u, k);
            moved[k] = scheme.c_k * (scheme.step * riding.ahead[k] - increment[k]);
        }
        const double d_distance = place_tangent(touched, at, bent, d, moves[count * column + j], by.x, dn);
        if (o.presses != 0.0) pressing_tangent(touched, at, scheme, d, d_distance, dn, moved, by, force);
        if (o.rubs != 0.0)
            rubbing_tangent(touched, at, scheme, poses[j], d, d_distance, dn, increment, riding, by, force);
    }
    double *out = felt_change + 3 * (body.point_count * column + t);
    for (int k = 0; k < 3; ++k) out[k] = force[k];
}
