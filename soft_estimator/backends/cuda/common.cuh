// Types, 3-vectors and lane groups shared by all kernels. kernels.py puts this text in front of every .cu file (CuPy's
// cache does not look into #include), with REAL defined as float or double.

typedef REAL real;
typedef long long int64;

// What a thread reads or writes in one go.
struct __align__(16) Quarter {
    real value[16 / sizeof(real)];
};

// Eight neighbouring lanes work on one cell or one matrix row: lane p is corner p, or takes every eighth block.
#define LANES 8
#define USUAL_THREADS 128  // of a block, as in kernels.py
#define ALL_LANES 0xffffffffu

__device__ inline int thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <typename T>
__device__ inline T from_lane(T value, int lane) {
    return __shfl_sync(ALL_LANES, value, lane, LANES);
}

// The same sum in all eight lanes. Each stage adds the same two numbers in both lanes, so all lanes get the same bits.
template <typename T>
__device__ inline T sum_lanes(T value) {
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) value += __shfl_xor_sync(ALL_LANES, value, step, LANES);
    return value;
}

// out = R v and out = Rᵀ v for a row-major R.
template <typename M, typename T>
__device__ inline void turn(const M *r, const T *v, T *out) {
#pragma unroll
    for (int a = 0; a < 3; ++a) out[a] = r[3 * a] * v[0] + r[3 * a + 1] * v[1] + r[3 * a + 2] * v[2];
}

template <typename M, typename T>
__device__ inline void turn_back(const M *r, const T *v, T *out) {
#pragma unroll
    for (int a = 0; a < 3; ++a) out[a] = r[a] * v[0] + r[3 + a] * v[1] + r[6 + a] * v[2];
}

template <typename T>
__device__ inline T dot(const T *v, const T *w) {
    return v[0] * w[0] + v[1] * w[1] + v[2] * w[2];
}

// ±1: on which side of its cell corner p lies along an axis (0 is x).
__device__ inline double corner_sign(int p, int axis) { return (p >> (2 - axis)) & 1 ? 1.0 : -1.0; }

// Cofactors c of a 3x3 matrix x; returns its determinant.
__device__ inline double cofactor(const double *x, double *c) {
    c[0] = x[4] * x[8] - x[5] * x[7], c[1] = x[5] * x[6] - x[3] * x[8], c[2] = x[3] * x[7] - x[4] * x[6];
    c[3] = x[2] * x[7] - x[1] * x[8], c[4] = x[0] * x[8] - x[2] * x[6], c[5] = x[1] * x[6] - x[0] * x[7];
    c[6] = x[1] * x[5] - x[2] * x[4], c[7] = x[2] * x[3] - x[0] * x[5], c[8] = x[0] * x[4] - x[1] * x[3];
    return x[0] * c[0] + x[1] * c[1] + x[2] * c[2];
}

// Inverse of the 3x3 matrix m times `free` (0 for a held node).
__device__ inline void invert_block(const real *m, real free, real *out) {
    const real c0 = m[4] * m[8] - m[5] * m[7], c1 = m[5] * m[6] - m[3] * m[8], c2 = m[3] * m[7] - m[4] * m[6];
    const real inverse = free / (m[0] * c0 + m[1] * c1 + m[2] * c2);
    out[0] = c0 * inverse, out[3] = c1 * inverse, out[6] = c2 * inverse;
    out[1] = (m[2] * m[7] - m[1] * m[8]) * inverse, out[4] = (m[0] * m[8] - m[2] * m[6]) * inverse;
    out[7] = (m[1] * m[6] - m[0] * m[7]) * inverse, out[2] = (m[1] * m[5] - m[2] * m[4]) * inverse;
    out[5] = (m[2] * m[3] - m[0] * m[5]) * inverse, out[8] = (m[0] * m[4] - m[1] * m[3]) * inverse;
}
