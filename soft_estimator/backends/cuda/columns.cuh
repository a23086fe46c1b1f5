// Four neighbouring columns of a thread, and what every block knows of all of them.

#define GROUP 4         // columns of a thread
#define MOST_COLUMNS 32
#define PARTS (3 * GROUP)

struct Four {
    real value[GROUP];

    __device__ void clear() {
#pragma unroll
        for (int j = 0; j < GROUP; ++j) value[j] = 0;
    }

    __device__ void add(real factor, const real *from) {
        Four there;
        there.read(from);
#pragma unroll
        for (int j = 0; j < GROUP; ++j) value[j] += factor * there.value[j];
    }

    __device__ void read(const real *from) {
#pragma unroll
        for (int part = 0; part < sizeof(real) / 4; ++part)
            ((Quarter *)value)[part] = ((const Quarter *)from)[part];
    }

    __device__ void write(real *to) const {
#pragma unroll
        for (int part = 0; part < sizeof(real) / 4; ++part)
            ((Quarter *)to)[part] = ((const Quarter *)value)[part];
    }
};

// What every block knows of the columns, in shared memory.
struct Columns {
    double base[MOST_COLUMNS], left[MOST_COLUMNS];  // |b - A x_held|, and the residual relative to it
    double alpha[MOST_COLUMNS], beta[MOST_COLUMNS], rz[MOST_COLUMNS], last_alpha[MOST_COLUMNS];
    double begun[MOST_COLUMNS];  // |r|² at the last start
    double total[3 * MOST_COLUMNS];
    int going[MOST_COLUMNS], status[MOST_COLUMNS], iterations[MOST_COLUMNS], fresh[MOST_COLUMNS], any;
};
#define COLUMNS_BYTES 4096  // as in columns.py
static_assert(sizeof(Columns) + sizeof(Coarse) <= COLUMNS_BYTES, "the columns' scalars need more room");
