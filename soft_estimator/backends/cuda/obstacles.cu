// Contact and friction with obstacles in a whole time step: one thread for each point of each system goes through all
// of them. Poses are of every system. The nodes gather what comes out when they prepare the step.

// felt (systems, P, FELT): force on the right-hand side (3), and the symmetric matrix (6) that goes into the system.
extern "C" __global__ void touch_obstacles(const Body *bodies, const Scheme *schemes, const double *materials,
                                           int width, int count, const Obstacle *obstacles, const Pose *poses,
                                           const real *u, const real *v, const real *a, double *felt) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 t = thread_index(), system = blockIdx.y;
    if (t >= body.point_count) return;
    const Material &m = material_of(materials, width, system);
    const Motion motion = of_system(u, v, a, 3 * body.nodes * system);
    const AtPoint riding(body.points, t, scheme, motion, body.position);
    poses += count * system;
    double force[3] = {0, 0, 0}, inner[6] = {0, 0, 0, 0, 0, 0};
    for (int j = 0; j < count; ++j) {
        const Obstacle &o = obstacles[j];
        const Pose &pose = poses[j];
        const Touchable touched(o, m, pose.turn, pose.origin_m);
        Felt at;
        if (!feels(touched, body.points.area[t], riding.x, at)) continue;
        double across = 0.0, even = 0.0;  // inner = even + across n nᵀ
        if (o.presses != 0.0) {
            const double gap = scheme.c_k * scheme.step * dot(at.normal, riding.ahead);
            const double value = at.factor * (at.depth + at.slope * gap);
            for (int k = 0; k < 3; ++k) force[k] += value * at.normal[k];
            across = scheme.c_k * at.factor * at.slope;
        }
        if (o.rubs != 0.0) {
            double moving[3], known[3], dragged[3];
            carried(pose.moves, pose.drift_m_s, pose.spin_per_s, at.x, moving);
            const Slip slip(touched, at, riding, moving);
            for (int k = 0; k < 3; ++k) known[k] = riding.known[k] + moving[k];
            at.along(known, dragged);
            for (int k = 0; k < 3; ++k) force[k] += slip.strength * dragged[k];
            even = scheme.c_d * slip.strength, across -= even;
        }
        for (int k = 0, i = 0; i < 3; ++i)
            for (int l = i; l < 3; ++l, ++k) inner[k] += (i == l ? even : 0.0) + across * at.normal[i] * at.normal[l];
    }
    double *out = felt + FELT * (body.point_count * system + t);
    for (int k = 0; k < 3; ++k) out[k] = force[k];
    for (int k = 0; k < 6; ++k) out[3 + k] = inner[k];
}
