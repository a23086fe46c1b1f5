// Words that blocks of `conjugate_gradient_resident` exchange, and what each has outside of its shared memory.

// Three components and the tag as one or two words. Two split the third double, so that both carry the tag.
#define WORDS (sizeof(real) == 4 ? 1 : 2)

__device__ inline void split(float a, float b, float c, unsigned tag, Word *out) {
    out[0].low = __float_as_uint(a) | (unsigned long long)__float_as_uint(b) << 32;
    out[0].high = __float_as_uint(c) | (unsigned long long)tag << 32;
}

__device__ inline void split(double a, double b, double c, unsigned tag, Word *out) {
    const unsigned long long third = __double_as_longlong(c), high_tag = (unsigned long long)tag << 32;
    out[0] = {(unsigned long long)__double_as_longlong(a), high_tag | (third >> 32)};
    out[1] = {(unsigned long long)__double_as_longlong(b), high_tag | (third & 0xffffffffull)};
}

__device__ inline void join(const Word *words, float *out) {
    out[0] = __uint_as_float((unsigned)words[0].low), out[1] = __uint_as_float((unsigned)(words[0].low >> 32));
    out[2] = __uint_as_float((unsigned)words[0].high);
}

__device__ inline void join(const Word *words, double *out) {
    out[0] = __longlong_as_double((int64)words[0].low), out[1] = __longlong_as_double((int64)words[1].low);
    out[2] = __longlong_as_double((int64)(words[0].high << 32 | (words[1].high & 0xffffffffull)));
}

// What a block has in global memory.
struct Outside {
    Word *exchange;               // (2, N, WORDS): two vectors, since some block may still be reading the last
    const int *halo;              // nodes that the own rows read, (around,)
    const unsigned short *local;  // from the first own block on
    const real *far_blocks, *b;   // the blocks beyond the room (9, far)
};

// What a block knows of the coarse level, and what else must make room for it in the registers.
struct CoarsePart {
    Coarse coarse;
    Outside outside;
    Word *part_words, *total_words, *y_words;  // global: (2, slots, 3), (2, count, 3) and (2, count, 3)
    int slots, touched, owned;                 // own slots: the first, how many; own rows of A_c⁻¹
    double *totals, *near_y, *u, *t, *y;  // shared: (count, 3), y at the own slots (touched, 3), own rows (owned,)

    __device__ void place(double *shared, const Coarse &level, int rank, int blocks, Word *words) {
        coarse = level, slots = level.touch_start[rank], touched = level.touch_start[rank + 1] - slots;
        owned = 3 * level.own(rank, blocks), total_words = words, y_words = words + 6 * level.count;
        part_words = words + 12 * level.count, totals = shared, near_y = totals + 3 * level.count;
        u = near_y + 3 * touched, t = u + owned, y = t + owned;
    }
};
#define COARSE_PART 32  // doubles, as in coarse.py
static_assert(sizeof(CoarsePart) <= 8 * COARSE_PART, "the coarse level needs more room");
