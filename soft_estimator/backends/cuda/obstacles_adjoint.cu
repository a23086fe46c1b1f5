// Contact and friction with obstacles run backwards: what every point receives, for the nodes to collect, and what it
// gives to the frames of obstacles that are posed.

#define FRAME_SUMS 6

// Where a point adds derivatives by the frame of an obstacle: by the way of its origin (3) and by its turn about that
// (3), in steps of `stride`.
struct FrameSums {
    double *sums;
    int64 stride;

    // Given those by the place and by n.
    __device__ void add(const double *x, const double *origin, const double *normal, const double *x_bar,
                        const double *normal_bar) const {
        double arm[3], of_place[3], of_normal[3];
        for (int k = 0; k < 3; ++k) arm[k] = x[k] - origin[k];
        cross(arm, x_bar, of_place), cross(normal, normal_bar, of_normal);
        for (int k = 0; k < 3; ++k) {
            sums[k * stride] -= x_bar[k];
            sums[(3 + k) * stride] += of_normal[k] - of_place[k];
        }
    }
};

// Derivative by y, given that by T y; that by n is added to normal_bar.
__device__ inline void along_adjoint(const Felt &at, const double *y, const double *bar, double *normal_bar,
                                     double *out) {
    const double of_y = dot(at.normal, y), of_bar = dot(at.normal, bar);
    for (int k = 0; k < 3; ++k) normal_bar[k] -= of_y * bar[k] + of_bar * y[k];
    at.along(bar, out);
}

// Derivatives by the place, given those by δ and n; the obstacle's parameters, or its frame, get theirs.
__device__ inline void place_adjoint(const Touchable &touched, const Felt &at, const double *bent, double distance_bar,
                                     const double *normal_bar, double *x_bar, double *received,
                                     const FrameSums &frame) {
    turn(bent, normal_bar, x_bar);
    for (int k = 0; k < 3; ++k) x_bar[k] += distance_bar * at.normal[k];
    if (touched.o.kind == KIND_PLANE) {
        received[FELT_OFFSET] += distance_bar;
        for (int k = 0; k < 3; ++k) received[FELT_NORMAL + k] += distance_bar * at.x[k] + normal_bar[k];
    } else if (touched.o.posed == 0.0) {
        for (int k = 0; k < 3; ++k) received[FELT_SHIFT + k] -= x_bar[k];
    } else {
        frame.add(at.x, touched.origin, at.normal, x_bar, normal_bar);
    }
}

struct Bars {
    double u[3], ahead[3], v[3], a[3];  // by the state before the step, and by the velocity that looks ahead
};

// Of the pressing; moved: c_k (Δt w - Δu), pulled: λ, both at the point.
__device__ inline void pressing_adjoint(const Touchable &touched, const Felt &at, const double *bent, double ahead,
                                        const double *moved, const double *pulled, Bars &bars, double *received,
                                        const FrameSums &frame) {
    const double gap = dot(at.normal, moved), along = dot(at.normal, pulled);
    const double value = at.factor * (at.depth + at.slope * gap), gap_bar = at.factor * at.slope * along;
    if (touched.o.own == 0.0) {
        received[FELT_STIFFNESS] += along * value / touched.stiffness;
        received[FELT_SHARPNESS] += along * value_by_sharpness(touched, at, gap);
    }
    double normal_bar[3], x_bar[3];
    for (int k = 0; k < 3; ++k) normal_bar[k] = value * pulled[k] + gap_bar * moved[k];
    place_adjoint(touched, at, bent, by_distance(touched, at, gap) * along, normal_bar, x_bar, received, frame);
    for (int k = 0; k < 3; ++k)
        bars.u[k] += x_bar[k], bars.ahead[k] += ahead * (x_bar[k] + gap_bar * at.normal[k]);
}

// Of the rubbing; increment: Δu at the point.
__device__ inline void rubbing_adjoint(const Touchable &touched, const Felt &at, const double *bent,
                                       const Scheme &scheme, const Pose &pose, const AtPoint &riding,
                                       const double *increment, const double *pulled, Bars &bars, double *received,
                                       const FrameSums &frame) {
    double moving[3], q[3], q_t[3], given[3], q_bar[3], d_bar[3], m_bar[3], by[2], normal_bar[3] = {0, 0, 0}, x_bar[3];
    carried(pose.moves, pose.drift_m_s, pose.spin_per_s, at.x, moving);
    const Slip slip(touched, at, riding, moving);
    for (int k = 0; k < 3; ++k) q[k] = scheme.c_d * increment[k] - riding.known[k] - moving[k];
    at.along(q, q_t);
    const double strength_bar = -dot(pulled, q_t) / slip.size, w0_bar = -strength_bar * slip.strength / slip.size;
    const double rho_bar = slip.by_rho() * w0_bar * dot(slip.w0, slip.d_t);
    for (int k = 0; k < 3; ++k) given[k] = -slip.strength * pulled[k];
    along_adjoint(at, q, given, normal_bar, q_bar);
    for (int k = 0; k < 3; ++k) given[k] = slip.chi * w0_bar * slip.w0[k] + rho_bar * slip.d_t[k];
    along_adjoint(at, riding.gained, given, normal_bar, d_bar);
    for (int k = 0; k < 3; ++k) given[k] = w0_bar * slip.w0[k] - rho_bar * slip.rho * slip.m_t[k];
    along_adjoint(at, slip.m, given, normal_bar, m_bar);
    const double press_bar = touched.friction * strength_bar;
    place_adjoint(touched, at, bent, -press_bar * at.factor * at.slope, normal_bar, x_bar, received, frame);
    if (pose.moves != 0.0) {
        for (int k = 0; k < 3; ++k) given[k] = q_bar[k] + m_bar[k];
        double spun[3];
        turn_back(pose.spin_per_s, given, spun);
        for (int k = 0; k < 3; ++k) x_bar[k] -= spun[k];
    }
    if (touched.o.own == 0.0) {
        received[FELT_STIFFNESS] += press_bar * at.press() / touched.stiffness;
        received[FELT_SHARPNESS] += press_bar * press_by_sharpness(touched, at);
        received[FELT_FRICTION] += strength_bar * at.press();
    }
    speeding(scheme, by);
    for (int k = 0; k < 3; ++k) {
        bars.u[k] += x_bar[k], bars.ahead[k] += m_bar[k] + scheme.c_k * scheme.step * x_bar[k];
        bars.v[k] += by[0] * d_bar[k] - scheme.q_v * q_bar[k], bars.a[k] += by[1] * d_bar[k] - scheme.q_a * q_bar[k];
    }
}

// felt_bar (systems, P, FELT_BARS): derivatives by u, v and a before the step (3 each), then those by the parameters.
// frame_sums (systems, count, FRAME_SUMS, P): grow by those by the frames of posed obstacles; null where none is.
extern "C" __global__ void touch_obstacles_adjoint(const Body *bodies, const Scheme *schemes, const double *materials,
                                                   int width, int count, const Obstacle *obstacles, const Pose *poses,
                                                   const real *u, const real *v, const real *a, const real *u_after,
                                                   const real *lmbda, double *felt_bar, double *frame_sums) {
    const Body &body = *bodies;
    const Scheme &scheme = *schemes;
    const int64 t = thread_index(), system = blockIdx.y, offset = 3 * body.nodes * system;
    if (t >= body.point_count) return;
    const Material &m = material_of(materials, width, system);
    const Motion motion = of_system(u, v, a, offset);
    const AtPoint riding(body.points, t, scheme, motion, body.position);
    Bars bars = {};
    double received[FELT_BARS] = {};
    poses += count * system;
    for (int j = 0; j < count; ++j) {
        const Obstacle &o = obstacles[j];
        const Touchable touched(o, m, poses[j].turn, poses[j].origin_m);
        const FrameSums frame = {frame_sums + FRAME_SUMS * (count * system + j) * body.point_count + t,
                                 body.point_count};
        Felt at;
        double bent[9], increment[3], moved[3], pulled[3];
        if (!feels(touched, body.points.area[t], riding.x, at, bent)) continue;
        for (int k = 0; k < 3; ++k) {
            increment[k] = body.points.at(t, u_after + offset, k) - body.points.at(t, motion.u, k);
            moved[k] = scheme.c_k * (scheme.step * riding.ahead[k] - increment[k]);
            pulled[k] = body.points.at(t, lmbda + offset, k);
        }
        if (o.presses != 0.0)
            pressing_adjoint(touched, at, bent, scheme.c_k * scheme.step, moved, pulled, bars, received, frame);
        if (o.rubs != 0.0)
            rubbing_adjoint(touched, at, bent, scheme, poses[j], riding, increment, pulled, bars, received, frame);
    }
    double *out = felt_bar + FELT_BARS * (body.point_count * system + t);
    const bool carries = scheme.carries_acceleration();
    for (int k = 0; k < 3; ++k) {
        out[k] = bars.u[k];
        out[3 + k] = bars.v[k] + (carries ? bars.ahead[k] : 0.0);
        out[6 + k] = bars.a[k] + (carries ? 0.0 : bars.ahead[k]);
    }
    for (int k = 9; k < FELT_BARS; ++k) out[k] = received[k];
}
