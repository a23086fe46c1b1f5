// The product of a cell's stiffness and mass with one vector by one thread, from the moments of cell_layout.py: 28 numbers
// of the cell instead of 384. Modes and corners are numbered by the bits of their axes: 4 is x, 2 is y, 1 is z.

#define MOMENTS 28  // numbers of a cell, as in cell_layout.py
#define HOURGLASS 27

// Place of the moment of ξ^m ξ^n.
__device__ constexpr int moment(int m, int n) {
    return 9 * ((m >> 2) + (n >> 2)) + 3 * ((m >> 1 & 1) + (n >> 1 & 1)) + (m & 1) + (n & 1);
}

// The four values of a face z = ±1 to their sums over ξ^m (m without z), or back; x and y as the bits 2 and 1.
__device__ inline void face_modes(real *v) {
    const real a = v[0] + v[1], b = v[1] - v[0], c = v[2] + v[3], d = v[3] - v[2];
    v[0] = a + c, v[1] = b + d, v[2] = c - a, v[3] = d - b;
}

__device__ inline void face_corners(real *f) {
    const real a = f[0] - f[1], b = f[0] + f[1], c = f[2] - f[3], d = f[2] + f[3];
    f[0] = a - c, f[1] = b - d, f[2] = a + c, f[3] = b + d;
}

// force_m (3, 8) of modes u_m (3, 8), both in the cell's own frame. Returns u·force. mass: of a moment. WHOLE: all of the
// cell is inside, so that it has even moments only and no stabilisation. λ acts on the mean of the divergence alone, of
// which shear takes ⅔ μ away point by point and gives it back to the mean.
template <bool WHOLE>
__device__ inline real mode_forces(const real *j, const real (&u)[3][8], real lam, real mu, real mass,
                                   real (&force)[3][8]) {
    const real third = mu * real(2.0 / 3.0);
    real divergence[7], mean = 0;
#pragma unroll
    for (int n = 0; n < 7; ++n) {
        divergence[n] = 0;
#pragma unroll
        for (int a = 0; a < 3; ++a)
            if (!(n & 4 >> a)) divergence[n] += u[a][n | 4 >> a];
        if (!WHOLE || n == 0) mean += divergence[n] * j[moment(n, 0)];
        divergence[n] *= -third;
    }
    const real pressure = (lam + third) * mean / j[0];
    const real hold = WHOLE ? real(0) : real(10.0 / 3.0) * mu * j[HOURGLASS];
#pragma unroll
    for (int a = 0; a < 3; ++a) {  // stress along an axis against the stretch along it
        const int bit = 4 >> a;
        real stress[7];
#pragma unroll
        for (int n = 0; n < 7; ++n) stress[n] = n & bit ? divergence[n] : divergence[n] + 2 * mu * u[a][n | bit];
        stress[0] += pressure;
#pragma unroll
        for (int m = 0; m < 8; ++m) {
            const bool twist = !WHOLE && (m == 3 || m >= 5);
            real total = twist ? (m == 7 ? hold : 2 * hold) * u[a][m] : real(0), carried = 0;
            if (m & bit)
#pragma unroll
                for (int n = 0; n < 7; ++n)
                    if (!WHOLE || n == (m ^ bit)) total += stress[n] * j[moment(m ^ bit, n)];
#pragma unroll
            for (int n = 0; n < 8; ++n)
                if (!WHOLE || n == m) carried += u[a][n] * j[moment(m, n)];
            force[a][m] = total + mass * carried;
        }
    }
#pragma unroll
    for (int pair = 0; pair < 3; ++pair) {  // shear
        const int a = pair == 2 ? 1 : 0, b = pair == 0 ? 1 : 2, along = 4 >> a, across = 4 >> b;
        real stress[7];
#pragma unroll
        for (int n = 0; n < 7; ++n) {
            stress[n] = 0;
            if (!(n & along)) stress[n] += u[b][n | along];
            if (!(n & across)) stress[n] += u[a][n | across];
            stress[n] *= mu;
        }
#pragma unroll
        for (int t = 0; t < 7; ++t) {
            if (t == (along | across)) continue;
            real total = 0;
#pragma unroll
            for (int n = 0; n < 7; ++n)
                if (n != (along | across) && (!WHOLE || n == t)) total += stress[n] * j[moment(t, n)];
            if (!(t & along)) force[b][t | along] += total;
            if (!(t & across)) force[a][t | across] += total;
        }
    }
    real work = 0;
#pragma unroll
    for (int m = 0; m < 8; ++m)
#pragma unroll
        for (int a = 0; a < 3; ++a) work += u[a][m] * force[a][m];
    return work;
}

#define CELL_THREADS 384  // of a block, as in cells.py
#define CELL_NUMBERS 16   // of a cell: nodes of its low and high face; face, region, flags, 0; first and last point, 0, 0
#define CHAINED 1         // its low face is the high face of the cell before
#define ENDS 2            // no cell goes on from its high face
#define FULL 4            // all of it is inside
#define REQUESTED 21      // numbers of the next cell: rotation and high face

// Copies that are under way while the thread goes on; each thread waits for its own.
__device__ inline void request(real *near, const real *far) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((unsigned)__cvta_generic_to_shared(near)), "l"(far),
                 "n"(sizeof(real))
                 : "memory");
#else
    *near = *far;
#endif
}

__device__ inline void wait_for_requests() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

struct Batch {
    const real *free;                           // (N,)
    const double *volume;                       // (N,) [m³]
    const int *cells, *place_start, *place;     // (C, CELL_NUMBERS); where in the forces a node's parts are
    const real *moments, *weight;               // (C, MOMENTS); the contact points' weights of the modes (P, 8)
    const real *rotation, *inverse;             // (C, 9, width); upper triangles (N, 6, width)
    const real *touch, *b;                      // stiffness of the contact points (P, width); (N, 3, width)
    real *x, *r, *p, *s, *z, *forces;           // (N, 3, width), the last (faces, 4, 3, width)
};

// The cells' forces for the vector in batch.z. A thread takes the cells [begin, end) for the system of its lane.
template <int WIDTH, bool CONTACT>
struct CellPass {
    Batch batch;
    const Systems *systems;
    const Scheme *scheme;
    const Material *material;     // of the lane's system
    const int *cells;             // the block's, in shared memory where they fit, as the moments
    const real *moments;
    real *requested;              // shared (REQUESTED, threads), from the own one on
    int lane, first_cell, begin, end;  // begin and end count from the block's first cell
    int region;
    real lam, mu;  // of the region of the last cell

    // Writes the forces on the cells' faces and returns Σ z·force. The first cell's rotation has been requested.
    __device__ double push() {
        double work = 0.0;
        const real mass = systems->spread[lane];
        real low[3][4], carried[3][4];
        if (begin < end) request_face(begin);
        for (int c = begin; c < end; ++c) {
            const int4 *cell = (const int4 *)(cells + CELL_NUMBERS * c);
            const int4 rest = cell[2];
            real high[3][4], u[3][8], force[3][8], turn_by[9];
            if (!(rest.z & CHAINED)) {
                read_face(cell[0], low);
#pragma unroll
                for (int a = 0; a < 3; ++a)
#pragma unroll
                    for (int m = 0; m < 4; ++m) carried[a][m] = 0;
            }
            take_requested(turn_by, high);
            if (c + 1 < end) request_rotation(c + 1), request_face(c + 1);
            take_region(rest.y);
#pragma unroll
            for (int a = 0; a < 3; ++a)
#pragma unroll
                for (int m = 0; m < 4; ++m) {
                    u[a][2 * m] = high[a][m] + low[a][m], u[a][2 * m + 1] = high[a][m] - low[a][m];
                    low[a][m] = high[a][m];
                }
            real pressed[8], normal[3];
            if (CONTACT) {
#pragma unroll
                for (int a = 0; a < 3; ++a) normal[a] = systems->normal[a][lane];
                work += press_points(cell[3], u, normal, pressed);
            }
#pragma unroll
            for (int m = 0; m < 8; ++m) {
                const real v[3] = {u[0][m], u[1][m], u[2][m]};
                real out[3];
                turn_back(turn_by, v, out);
#pragma unroll
                for (int a = 0; a < 3; ++a) u[a][m] = out[a];
            }
            const real *row = moments + MOMENTS * c;
            const bool full = rest.z & FULL;
            work += (double)(full ? mode_forces<true>(row, u, lam, mu, mass, force) : cut_forces(row, u, mass, force));
#pragma unroll
            for (int m = 0; m < 8; ++m) {
                const real v[3] = {force[0][m], force[1][m], force[2][m]};
                real out[3];
                turn(turn_by, v, out);
#pragma unroll
                for (int a = 0; a < 3; ++a) {
                    force[a][m] = out[a];
                    if (CONTACT) force[a][m] += normal[a] * pressed[m];
                }
            }
#pragma unroll
            for (int a = 0; a < 3; ++a)
#pragma unroll
                for (int m = 0; m < 4; ++m) {
                    carried[a][m] += force[a][2 * m] - force[a][2 * m + 1];
                    high[a][m] = force[a][2 * m] + force[a][2 * m + 1];
                }
            write_face(rest.x, carried);
#pragma unroll
            for (int a = 0; a < 3; ++a)
#pragma unroll
                for (int m = 0; m < 4; ++m) carried[a][m] = high[a][m];
            if (rest.z & ENDS) write_face(rest.x + 1, carried);
        }
        return work;
    }

    __device__ void take_region(int of_cell) {
        if (of_cell == region) return;
        region = of_cell;
        const real stiff = (scheme->c_k + scheme->c_d * material->stiffness_damping_s) * material->youngs_modulus_pa[region];
        lam = stiff * real(material->lam), mu = stiff * real(material->mu);
    }

    __device__ real cut_forces(const real *row, const real (&u)[3][8], real mass, real (&force)[3][8]) const {
        real j[MOMENTS];
#pragma unroll
        for (int i = 0; i < MOMENTS; i += 16 / sizeof(real)) {
            const Quarter four = *(const Quarter *)(row + i);
#pragma unroll
            for (int e = 0; e < 16 / sizeof(real); ++e) j[i + e] = four.value[e];
        }
        return mode_forces<false>(j, u, lam, mu, mass, force);
    }

    __device__ void request_rotation(int c) const {
        const real *from = batch.rotation + 9 * (int64)(first_cell + c) * WIDTH + lane;
#pragma unroll
        for (int i = 0; i < 9; ++i) request(requested + i * CELL_THREADS, from + i * WIDTH);
    }

    __device__ void request_face(int c) const {
        const int4 nodes = ((const int4 *)(cells + CELL_NUMBERS * c))[1];
        const int node[4] = {nodes.x, nodes.y, nodes.z, nodes.w};
#pragma unroll
        for (int q = 0; q < 4; ++q)
#pragma unroll
            for (int a = 0; a < 3; ++a)
                request(requested + (9 + 3 * q + a) * CELL_THREADS, batch.z + (3 * (int64)node[q] + a) * WIDTH + lane);
    }

    __device__ void take_requested(real *rotation, real (&face)[3][4]) const {
        wait_for_requests();
#pragma unroll
        for (int i = 0; i < 9; ++i) rotation[i] = requested[i * CELL_THREADS];
#pragma unroll
        for (int a = 0; a < 3; ++a) {
#pragma unroll
            for (int q = 0; q < 4; ++q) face[a][q] = requested[(9 + 3 * q + a) * CELL_THREADS];
            face_modes(face[a]);
        }
    }

    __device__ void read_face(int4 nodes, real (&out)[3][4]) const {
        const int node[4] = {nodes.x, nodes.y, nodes.z, nodes.w};
#pragma unroll
        for (int q = 0; q < 4; ++q)
#pragma unroll
            for (int a = 0; a < 3; ++a) out[a][q] = batch.z[(3 * (int64)node[q] + a) * WIDTH + lane];
#pragma unroll
        for (int a = 0; a < 3; ++a) face_modes(out[a]);
    }

    __device__ void write_face(int face, real (&modes)[3][4]) const {
        real *to = batch.forces + 12 * (int64)face * WIDTH + lane;
#pragma unroll
        for (int a = 0; a < 3; ++a) {
            face_corners(modes[a]);
#pragma unroll
            for (int q = 0; q < 4; ++q) to[(3 * q + a) * WIDTH] = modes[a][q];
        }
    }

    // Contact of the cell's points along the normal, in modes; returns its work.
    __device__ double press_points(int4 points, const real (&u)[3][8], const real *normal, real *out) const {
        double work = 0.0;
        real along[8];
#pragma unroll
        for (int m = 0; m < 8; ++m) out[m] = 0;
        if (points.x >= points.y) return work;
#pragma unroll
        for (int m = 0; m < 8; ++m)
            along[m] = normal[0] * u[0][m] + normal[1] * u[1][m] + normal[2] * u[2][m];
        for (int64 t = points.x; t < points.y; ++t) {
            const real stiffness = __ldg(batch.touch + t * WIDTH + lane), *weight = batch.weight + 8 * t;
            if (stiffness == 0) continue;
            real depth = 0;
#pragma unroll
            for (int m = 0; m < 8; ++m) depth += __ldg(weight + m) * along[m];
            const real push = stiffness * depth;
            work += (double)(push * depth);
#pragma unroll
            for (int m = 0; m < 8; ++m) out[m] += push * __ldg(weight + m);
        }
        return work;
    }
};
