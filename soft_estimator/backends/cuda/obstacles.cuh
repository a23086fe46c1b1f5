// Obstacles beside the ground's pressing: their shapes, the points of the body that feel them, and how these slip; all
// in double precision. The formulas are those of backends/reference/obstacles.py. `struct Obstacle`, a shape with the
// numbers of its contact, `struct Pose`, where it is within a step, shifts and turn counted in, and `struct Move`, how a
// direction of the parameters moves it, are generated from backends/layout.py.

#define KIND_PLANE 0
#define KIND_HALF_SPACE 1
#define KIND_ROUND 2
#define KIND_FIELD 3
#define LEAST_ARM 1e-12  // [m]: closer to a core there is no direction

__device__ inline double length_of(const double *v) { return sqrt(dot(v, v)); }

__device__ inline void cross(const double *v, const double *w, double *out) {
    out[0] = v[1] * w[2] - v[2] * w[1], out[1] = v[2] * w[0] - v[0] * w[2], out[2] = v[0] * w[1] - v[1] * w[0];
}

// Weights of a uniform cubic B-spline at t in 0-1 (4), then their first and second derivatives.
__device__ inline void cubic(double t, double *w) {
    const double s = 1 - t, sixth = 1.0 / 6;
    w[0] = sixth * s * s * s, w[1] = sixth * ((3 * t - 6) * t * t + 4);
    w[2] = sixth * (((-3 * t + 3) * t + 3) * t + 1), w[3] = sixth * t * t * t;
    w[4] = -0.5 * s * s, w[5] = (1.5 * t - 2) * t, w[6] = (-1.5 * t + 1) * t + 0.5, w[7] = 0.5 * t * t;
    w[8] = s, w[9] = 3 * t - 2, w[10] = 1 - 3 * t, w[11] = t;
}

// Derivatives of a field's spline at y up to ORDER: value, x, y, z, then xx, yy, zz, xy, xz, yz.
template <int ORDER>
__device__ __noinline__ void spline(const Obstacle &o, const double *y, double *out) {
    double w[3][12];
    int64 lowest[3], across[3];
    for (int a = 0; a < 3; ++a) {
        const double last = o.grid_nodes[a] - 1, at = (y[a] - o.grid_origin_m[a]) / o.grid_spacing_m;
        const double s = fmin(fmax(at, 0.0), last);
        const double cell = fmin(floor(s), last - 1);
        lowest[a] = (int64)cell + 1, across[a] = (int64)o.grid_nodes[a] + 4;
        cubic(s - cell, w[a]);
    }
    const double *table = (const double *)__double_as_longlong(o.table), h = 1 / o.grid_spacing_m;
    double sum[10] = {};
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            const double *row = table + ((lowest[0] + i) * across[1] + lowest[1] + j) * across[2] + lowest[2];
            double z[3] = {0, 0, 0};
            for (int k = 0; k < 4; ++k)
                for (int m = 0; m <= ORDER; ++m) z[m] += w[2][4 * m + k] * row[k];
            sum[0] += w[0][i] * w[1][j] * z[0];
            if (ORDER < 1) continue;
            sum[1] += w[0][4 + i] * w[1][j] * z[0], sum[2] += w[0][i] * w[1][4 + j] * z[0];
            sum[3] += w[0][i] * w[1][j] * z[1];
            if (ORDER < 2) continue;
            sum[4] += w[0][8 + i] * w[1][j] * z[0], sum[5] += w[0][i] * w[1][8 + j] * z[0];
            sum[6] += w[0][i] * w[1][j] * z[2];
            sum[7] += w[0][4 + i] * w[1][4 + j] * z[0], sum[8] += w[0][4 + i] * w[1][j] * z[1];
            sum[9] += w[0][i] * w[1][4 + j] * z[1];
        }
    out[0] = sum[0];
    for (int m = 1; m < (ORDER < 1 ? 1 : 4); ++m) out[m] = h * sum[m];
    for (int m = 4; m < (ORDER < 2 ? 4 : 10); ++m) out[m] = h * h * sum[m];
}

// From the box that a round shape is drawn around to y; returns whether y is outside of it.
__device__ inline bool arm_of(const Obstacle &o, const double *y, double *arm) {
    for (int a = 0; a < 3; ++a) arm[a] = y[a] - fmin(fmax(y[a], -o.half_m[a]), o.half_m[a]);
    return arm[0] != 0 || arm[1] != 0 || arm[2] != 0;
}

// Signed distance [m] of y in the obstacle's own frame.
__device__ __noinline__ double local_distance(const Obstacle &o, const double *y) {
    if (o.kind == KIND_HALF_SPACE) return y[2];
    if (o.kind == KIND_ROUND) {
        double arm[3];
        arm_of(o, y, arm);
        const double beyond = fmax(fmax(fabs(y[0]) - o.half_m[0], fabs(y[1]) - o.half_m[1]), fabs(y[2]) - o.half_m[2]);
        return length_of(arm) + fmin(beyond, 0.0) - o.radius_m;
    }
    double away[3], value;
    for (int a = 0; a < 3; ++a) {
        const double s = (y[a] - o.grid_origin_m[a]) / o.grid_spacing_m;
        away[a] = o.grid_spacing_m * (s - fmin(fmax(s, 0.0), o.grid_nodes[a] - 1));
    }
    const double back = length_of(away);
    if (back > 0) return back + o.farthest_m;
    spline<0>(o, y, &value);
    return value;
}

// Gradient and, where bent is given, second derivatives (9) [1/m] of the distance at y.
__device__ __noinline__ void local_gradient(const Obstacle &o, const double *y, double *n, double *bent) {
    if (bent)
        for (int k = 0; k < 9; ++k) bent[k] = 0;
    n[0] = n[1] = n[2] = 0;
    if (o.kind == KIND_HALF_SPACE) {
        n[2] = 1;
    } else if (o.kind == KIND_ROUND) {
        double arm[3];
        if (arm_of(o, y, arm)) {
            const double length = fmax(length_of(arm), LEAST_ARM);
            for (int a = 0; a < 3; ++a) n[a] = arm[a] / length;
            for (int k = 0; bent && k < 9; ++k)
                bent[k] = ((k % 4 == 0 && arm[k / 3] != 0 ? 1.0 : 0.0) - n[k / 3] * n[k % 3]) / length;
        } else {  // within the core: out by the nearest side
            int axis = 0;
            for (int a = 1; a < 3; ++a)
                if (fabs(y[a]) - o.half_m[a] > fabs(y[axis]) - o.half_m[axis]) axis = a;
            n[axis] = y[axis] < 0 ? -1 : 1;
        }
    } else {
        double d[10];
        if (bent) {
            spline<2>(o, y, d);
            bent[0] = d[4], bent[4] = d[5], bent[8] = d[6];
            bent[1] = bent[3] = d[7], bent[2] = bent[6] = d[8], bent[5] = bent[7] = d[9];
        } else {
            spline<1>(o, y, d);
        }
        for (int a = 0; a < 3; ++a) n[a] = d[1 + a];
    }
}

// One obstacle as a system has it, at one moment of a step; turn (9) and origin (3) of its frame.
struct Touchable {
    const Obstacle &o;
    const Material &m;
    const double *turned, *origin;
    double stiffness, sharpness, friction;

    __device__ Touchable(const Obstacle &obstacle, const Material &material, const double *turn, const double *at)
        : o(obstacle), m(material), turned(turn), origin(at) {
        const bool own = o.own != 0.0;
        stiffness = own ? o.stiffness_pa_per_m : m.contact_stiffness_pa_per_m;
        sharpness = own ? o.sharpness_per_m : m.contact_sharpness_per_m;
        friction = own ? o.friction : m.friction_coefficient;
    }

    __device__ void to_local(const double *x, double *y) const {
        double from[3];
        for (int k = 0; k < 3; ++k) from[k] = x[k] - origin[k];
        turn_back(turned, from, y);
    }

    __device__ double distance(const double *x) const {
        if (o.kind == KIND_PLANE) return dot(m.plane_normal, x) + m.plane_offset_m;
        double y[3];
        to_local(x, y);
        return local_distance(o, y);
    }

    // Normal and, where bent is given, its derivatives (9) by the place.
    __device__ void normal(const double *x, double *n, double *bent) const {
        if (o.kind == KIND_PLANE) {
            for (int k = 0; k < 3; ++k) n[k] = m.plane_normal[k];
            for (int k = 0; bent && k < 9; ++k) bent[k] = 0;
            return;
        }
        double y[3], local[3], local_bent[9];
        to_local(x, y);
        local_gradient(o, y, local, bent ? local_bent : nullptr);
        turn(turned, local, n);
        for (int a = 0; bent && a < 3; ++a) {  // Q C Qᵀ
            double row[3];
            turn_back(local_bent, turned + 3 * a, row);
            turn(turned, row, bent + 3 * a);
        }
    }
};

// A point that feels an obstacle: where it is, and what presses on it there.
struct Felt {
    double x[3], normal[3], distance, depth, slope, factor;

    __device__ double press() const { return factor * depth; }

    // T y, T = 1 - n nᵀ.
    __device__ void along(const double *y, double *out) const {
        const double across = dot(normal, y);
        for (int k = 0; k < 3; ++k) out[k] = y[k] - normal[k] * across;
    }
};

// Whether a point of an area at x feels an obstacle; what it feels then, with the normal's derivatives where asked for.
__device__ inline bool feels(const Touchable &touched, double area, const double *x, Felt &at, double *bent = nullptr) {
    at.distance = touched.distance(x);
    if (!(at.distance < REACH / touched.sharpness)) return false;
    softplus_and_slope(touched.sharpness, at.distance, &at.depth, &at.slope);
    at.factor = touched.stiffness * area;
    for (int k = 0; k < 3; ++k) at.x[k] = x[k];
    touched.normal(x, at.normal, bent);
    return true;
}

// Velocity of what is carried along with an obstacle at x.
__device__ inline void carried(double moves, const double *drift, const double *spin, const double *x, double *out) {
    turn(spin, x, out);
    for (int k = 0; k < 3; ++k) out[k] = moves != 0.0 ? out[k] + drift[k] : 0.0;
}

// c_v, c_a: what v and a tell of the velocity of the force balance beyond the one that looks ahead.
__device__ inline void speeding(const Scheme &scheme, double *by) {
    by[0] = 0.0, by[1] = scheme.c_k * scheme.step;
    if (!scheme.carries_acceleration()) by[0] = scheme.d_v == -1.0 ? 2.0 : 0.0, by[1] = -by[0];
}

// What of a state a point feels: where the last motion leads it, that velocity, the known one, and what was gained.
struct AtPoint {
    double x[3], ahead[3], known[3], gained[3];

    // Of changes of a state, `rest` being null.
    __device__ AtPoint(const Points &points, int64 t, const Scheme &scheme, const Motion &motion, const real *rest) {
        double by[2];
        speeding(scheme, by);
        const bool carries = scheme.carries_acceleration();
        for (int k = 0; k < 3; ++k) {
            const double v = points.at(t, motion.v, k), a = points.at(t, motion.a, k);
            ahead[k] = carries ? v : a;
            known[k] = scheme.q_v * v + scheme.q_a * a, gained[k] = by[0] * v + by[1] * a;
            x[k] = points.at(t, motion.u, k) + scheme.c_k * scheme.step * ahead[k];
            if (rest) x[k] += points.at(t, rest, k);
        }
    }
};

// How a point slips: m and d of the slip to come w₀ = T m + χ T d, and the strength μ f_n/S of its friction.
struct Slip {
    double m[3], m_t[3], d_t[3], w0[3], rho, chi, size, strength, slow_and_slip;

    __device__ Slip(const Touchable &touched, const Felt &at, const AtPoint &riding, const double *moving) {
        const double slow = touched.o.slip_speed_m_s * touched.o.slip_speed_m_s;
        for (int k = 0; k < 3; ++k) m[k] = riding.ahead[k] - moving[k];
        at.along(m, m_t);
        at.along(riding.gained, d_t);
        slow_and_slip = dot(m_t, m_t) + slow;
        rho = dot(d_t, d_t) / slow_and_slip, chi = 1 / (1 + rho * rho);
        for (int k = 0; k < 3; ++k) w0[k] = m_t[k] + chi * d_t[k];
        size = sqrt(dot(w0, w0) + slow);
        strength = touched.friction * at.press() / size;
    }

    // ∂χ/∂ρ times the 2/(|T m|² + ε²) of ρ's own slopes.
    __device__ double by_rho() const { return -4 * rho * chi * chi / slow_and_slip; }
};

// Derivatives of k A (s + σ gap) by δ, of k A s by a, and of k A (s + σ gap) by a.
__device__ inline double by_distance(const Touchable &touched, const Felt &at, double gap) {
    return -at.factor * at.slope * (1 + touched.sharpness * (1 - at.slope) * gap);
}

__device__ inline double press_by_sharpness(const Touchable &touched, const Felt &at) {
    return -at.factor * (at.depth + at.slope * at.distance) / touched.sharpness;
}

__device__ inline double value_by_sharpness(const Touchable &touched, const Felt &at, double gap) {
    return at.factor * by_sharpness(touched.sharpness, at.distance, at.depth, at.slope, gap);
}
