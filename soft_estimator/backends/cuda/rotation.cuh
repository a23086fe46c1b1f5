// Closest rotation to a deformation gradient and the derivative of that map, in double precision whatever REAL is.

// Eigenvector of the largest eigenvalue of a symmetric 4x4 matrix (overwritten), by cyclic Jacobi rotations.
__device__ inline void jacobi_largest(double (&a)[4][4], double (&vector)[4]) {
    double v[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) v[i][j] = i == j ? 1.0 : 0.0;
    for (int sweep = 0; sweep < 12; ++sweep) {
        double off = 0.0;
#pragma unroll
        for (int i = 0; i < 3; ++i)
#pragma unroll
            for (int j = i + 1; j < 4; ++j) off += a[i][j] * a[i][j];
        if (off < 1e-30) break;
#pragma unroll
        for (int p = 0; p < 3; ++p)
#pragma unroll
            for (int q = p + 1; q < 4; ++q) {
                if (a[p][q] == 0.0) continue;
                const double tau = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                const double t = (tau >= 0.0 ? 1.0 : -1.0) / (fabs(tau) + sqrt(1.0 + tau * tau));
                const double c = 1.0 / sqrt(1.0 + t * t), s = t * c;
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const double x = a[k][p], y = a[k][q];
                    a[k][p] = c * x - s * y, a[k][q] = s * x + c * y;
                }
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const double x = a[p][k], y = a[q][k];
                    a[p][k] = c * x - s * y, a[q][k] = s * x + c * y;
                    const double vx = v[k][p], vy = v[k][q];
                    v[k][p] = c * vx - s * vy, v[k][q] = s * vx + c * vy;
                }
            }
    }
    double largest = a[0][0];
#pragma unroll
    for (int k = 0; k < 4; ++k) vector[k] = v[k][0];
#pragma unroll
    for (int i = 1; i < 4; ++i)
        if (a[i][i] > largest) {
            largest = a[i][i];
#pragma unroll
            for (int k = 0; k < 4; ++k) vector[k] = v[k][i];
        }
}

// Davenport's method: the quaternion that maximises tr(RᵀF) is the top eigenvector of a symmetric 4x4 matrix.
__device__ inline void closest_rotation_by_quaternion(const double *f, double *r) {
    double scale = 0.0, g[9], n[4][4], q[4];
#pragma unroll
    for (int i = 0; i < 9; ++i) scale = fmax(scale, fabs(f[i]));
#pragma unroll
    for (int i = 0; i < 9; ++i) g[i] = scale > 0.0 ? f[i] / scale : 0.0;
    // The small first term decides for no rotation where F leaves the choice open (F = 0, F of rank one).
    n[0][0] = g[0] + g[4] + g[8] + 1e-12;
    n[1][1] = g[0] - g[4] - g[8], n[2][2] = -g[0] + g[4] - g[8], n[3][3] = -g[0] - g[4] + g[8];
    n[0][1] = n[1][0] = g[7] - g[5], n[0][2] = n[2][0] = g[2] - g[6], n[0][3] = n[3][0] = g[3] - g[1];
    n[1][2] = n[2][1] = g[1] + g[3], n[1][3] = n[3][1] = g[2] + g[6], n[2][3] = n[3][2] = g[5] + g[7];
    jacobi_largest(n, q);
    const double w = q[0], x = q[1], y = q[2], z = q[3];
    r[0] = 1 - 2 * (y * y + z * z), r[1] = 2 * (x * y - w * z), r[2] = 2 * (x * z + w * y);
    r[3] = 2 * (x * y + w * z), r[4] = 1 - 2 * (x * x + z * z), r[5] = 2 * (y * z - w * x);
    r[6] = 2 * (x * z - w * y), r[7] = 2 * (y * z + w * x), r[8] = 1 - 2 * (x * x + y * y);
}

// R that maximises tr(RᵀF): the polar factor for det F > 0, the signed singular value decomposition's elsewhere.
__device__ inline void closest_rotation(const double *f, double *r) {
    double c[9], size = 0.0;
    double determinant = cofactor(f, c);
#pragma unroll
    for (int i = 0; i < 9; ++i) size += f[i] * f[i], r[i] = f[i];
    if (!(determinant > 1e-3 * (size / 3.0) * sqrt(size / 3.0))) {
        closest_rotation_by_quaternion(f, r);
        return;
    }
    // Newton's iteration X ← ½(γX + X⁻ᵀ/γ) converges fast and safely away from singular F.
    for (int step = 0; step < 20; ++step) {
        determinant = cofactor(r, c);
        double gamma = 1.0, change = 0.0;
        if (step < 3) {
            double norm_x = 0.0, norm_c = 0.0;
#pragma unroll
            for (int i = 0; i < 9; ++i) norm_x += r[i] * r[i], norm_c += c[i] * c[i];
            gamma = sqrt(sqrt(norm_c / norm_x) / determinant);
        }
        const double ahead = 0.5 * gamma, back = 0.5 / (determinant * gamma);
#pragma unroll
        for (int i = 0; i < 9; ++i) {
            const double updated = ahead * r[i] + back * c[i];
            change = fmax(change, fabs(updated - r[i]));
            r[i] = updated;
        }
        if (change < 1e-9) break;  // quadratic convergence: the next change is below 1e-17
    }
}

// 1/(4h) Σ u_p s_pᵀ of one cell in all its lanes, from the displacement of the lane's corner; F is the identity more.
__device__ inline void displacement_gradient(const double *corner, int p, double quarter_inverse_h, double *f) {
#pragma unroll
    for (int a = 0; a < 3; ++a) {
        const double d = corner[a] - from_lane(corner[a], 0);
#pragma unroll
        for (int b = 0; b < 3; ++b) f[3 * a + b] = sum_lanes(d * corner_sign(p, b)) * quarter_inverse_h;
    }
}

// y with (tr(S) I - S) y = b, S = sym(RᵀF); zero where the closest rotation is not unique.
__device__ inline void solve_spin(const double *f, const double *r, const double *b, double *y) {
    double s[9], m[9], c[9];
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
        for (int j = 0; j < 3; ++j) s[3 * i + j] = r[i] * f[j] + r[3 + i] * f[3 + j] + r[6 + i] * f[6 + j];
    const double trace = s[0] + s[4] + s[8];
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
        for (int j = 0; j < 3; ++j) m[3 * i + j] = (i == j ? trace : 0.0) - 0.5 * (s[3 * i + j] + s[3 * j + i]);
    const double determinant = cofactor(m, c), size = fmax(fabs(trace), 1e-300);
    const bool unique = fabs(determinant) > 1e-12 * size * size * size;
#pragma unroll
    for (int i = 0; i < 3; ++i)
        y[i] = unique ? (c[i] * b[0] + c[3 + i] * b[1] + c[6 + i] * b[2]) / determinant : 0.0;
}

// axl(Rᵀ A).
__device__ inline void axial(const double *r, const double *a, double *w) {
    double b[9];
#pragma unroll
    for (int i = 0; i < 3; ++i)
#pragma unroll
        for (int j = 0; j < 3; ++j) b[3 * i + j] = r[i] * a[j] + r[3 + i] * a[3 + j] + r[6 + i] * a[6 + j];
    w[0] = b[7] - b[5], w[1] = b[2] - b[6], w[2] = b[3] - b[1];
}

// out = R [y]ₓ.
__device__ inline void spin(const double *r, const double *y, double *out) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        const double a = r[3 * i], b = r[3 * i + 1], c = r[3 * i + 2];
        out[3 * i] = b * y[2] - c * y[1], out[3 * i + 1] = c * y[0] - a * y[2], out[3 * i + 2] = a * y[1] - b * y[0];
    }
}

// Change of R for a change df of F: δR = R [ω]ₓ, (tr(S) I - S) ω = axl(Rᵀ δF). The map is symmetric: it is its own
// adjoint, F̄ from R̄.
__device__ inline void turn_change(const double *f, const double *r, const double *df, double *out) {
    double w[3], y[3];
    axial(r, df, w);
    solve_spin(f, r, w, y);
    spin(r, y, out);
}
