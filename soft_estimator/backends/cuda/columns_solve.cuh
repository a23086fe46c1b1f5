// Conjugate gradients for several right-hand sides of one matrix: every matrix block is read once for all of them. All
// thread blocks are one team, each with a range of rows; a thread has four neighbouring columns of a row. Vectors are
// (N, 3, columns) in global memory. The columns' scalars are kept by every block in shared memory, from the same sums.
//
// With a coarse level, y = A_c⁻¹ Pᵀ r is carried along with r: r -= α s makes y -= α t with t = A_c⁻¹ Pᵀ s, and Pᵀ w is
// summed together with the scalars.

template <bool COARSE>
struct Solve {
    Team team;
    Columns *columns;
    double *partial;  // shared (threads, PARTS)
    Word *sums;       // global: (3 · columns, blocks) of the blocks, then (3 · columns) of all
    int first, count, room, wide, groups, group;  // wide: columns, padded to whole groups
    int64 begin_k;
    const int64 *row_start;
    const int *column;
    const real *blocks, *inverse, *free;
    real *near_blocks;  // shared: the first `room` matrix blocks (9, room), and their columns
    int *near_column;
    real *b, *x, *r, *p, *s, *w, *z;  // global (N, 3, wide)
    const Coarse *coarse;  // shared
    real *parts, *totals, *y, *t;  // global (slots, 3, wide), then Pᵀ of a vector, y and t, each (3 count, wide)

    // act(row, place) for the own rows' groups, place: of the first number in the vectors.
    template <typename Act>
    __device__ void for_items(Act act) {
        for (int row = threadIdx.x / groups; row < count; row += blockDim.x / groups)
            act(row, 3 * (int64)(first + row) * wide + GROUP * group);
    }

    // All blocks have written what the others will read.
    __device__ void pause() {
        double nothing[1] = {0.0};
        team.hand_in<true>(nothing);
        team.collect<true>(nothing);
    }

    // y (3 components, 4 columns) = free A · vector of a row.
    __device__ void row_product(int row, const real *vector, Four *y) const {
#pragma unroll
        for (int a = 0; a < 3; ++a) y[a].clear();
        const int64 from = row_start[first + row], to = row_start[first + row + 1];
#pragma unroll(sizeof(real) == 4 ? 4 : 2)
        for (int64 k = from; k < to; ++k) {
            const int near = k - begin_k;
            real m[9];
            int other;
            if (near < room) {
                other = near_column[near];
#pragma unroll
                for (int e = 0; e < 9; ++e) m[e] = near_blocks[e * room + near];
            } else {
                other = column[k];
#pragma unroll
                for (int e = 0; e < 9; ++e) m[e] = blocks[9 * k + e];
            }
            const real *there = vector + 3 * (int64)other * wide + GROUP * group;
            Four at[3];
#pragma unroll
            for (int a = 0; a < 3; ++a) at[a].read(there + a * wide);
#pragma unroll
            for (int a = 0; a < 3; ++a)
#pragma unroll
                for (int c = 0; c < 3; ++c)
#pragma unroll
                    for (int j = 0; j < GROUP; ++j) y[a].value[j] += m[3 * a + c] * at[c].value[j];
        }
        const real is_free = free[first + row];
#pragma unroll
        for (int a = 0; a < 3; ++a)
#pragma unroll
            for (int j = 0; j < GROUP; ++j) y[a].value[j] *= is_free;
    }

    // Sums of all blocks, COUNT for each column, into columns->total (COUNT, wide): each sum is added up by one block.
    // With a coarse level, what the blocks wrote before is then visible.
    template <int COUNT>
    __device__ void sum(const double (&mine)[PARTS]) {
        const int width = COUNT * GROUP, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int all = COUNT * wide, warps = blockDim.x / 32;
        for (int e = 0; e < width; ++e) partial[e * blockDim.x + threadIdx.x] = mine[e];
        __syncthreads();
        if (COARSE && lane == 0) fence();
        for (int q = warp; q < all; q += warps) {  // sum q: number q / wide of column q % wide
            const int which = q / wide, own = q % wide;
            const double *from = partial + (which * GROUP + own % GROUP) * blockDim.x + own / GROUP;
            double total = 0.0;
            for (int t = lane; t < blockDim.x / groups; t += 32) total += from[t * groups];
            publish(sums + (int64)q * team.blocks + team.rank, over_warp(total), lane);
        }
        for (int q = team.rank + warp * team.blocks; q < all; q += warps * team.blocks) {
            double total = 0.0;
            for (int block = lane; block - lane < team.blocks; block += 32 * POLLS)
                total += await(sums + (int64)q * team.blocks, block, team.blocks);
            if (COARSE) fence();
            publish(grand_total(q), over_warp(total), lane);
        }
        if (threadIdx.x < all) columns->total[threadIdx.x] = await(grand_total(threadIdx.x), 0, 1);
        if (COARSE && threadIdx.x < all) fence();
        __syncthreads();
    }

    __device__ Word *grand_total(int q) const { return sums + 3 * (int64)wide * team.blocks + q; }

    static __device__ double over_warp(double value) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
        return value;
    }

    // The tag is that of the last pause: there is one before every sum, so all have read the sum before.
    __device__ void publish(Word *place, double value, int lane) const {
        if (lane == 0) put(place, {(unsigned long long)__double_as_longlong(value), team.tag});
    }

    // The numbers at first, first + 32, ... below `end`, all asked for at once.
    __device__ double await(const Word *places, int first, int end) const {
        Word seen[POLLS];
        bool waiting;
#pragma unroll
        for (int j = 0; j < POLLS; ++j) seen[j] = {0, first + 32 * j < end ? team.tag - 1 : team.tag};
        do {
            waiting = false;
#pragma unroll
            for (int j = 0; j < POLLS; ++j)
                if (seen[j].high != team.tag) seen[j] = look(places + first + 32 * j);
#pragma unroll
            for (int j = 0; j < POLLS; ++j) waiting |= seen[j].high != team.tag;
        } while (waiting);
        double total = 0.0;
#pragma unroll
        for (int j = 0; j < POLLS; ++j) total += __longlong_as_double((int64)seen[j].low);
        return total;
    }

    // Pᵀ of a vector, into `totals`; visible after the next sum.
    __device__ void gather_coarse(const real *vector) {
        const int slots = coarse->touch_start[team.rank], touched = coarse->touch_start[team.rank + 1] - slots;
        __syncthreads();
        for (int item = threadIdx.x / groups; item < 3 * touched; item += blockDim.x / groups) {
            const int slot = slots + item / 3, a = item % 3;
            Four total;
            total.clear();
#pragma unroll(sizeof(real) == 4 ? 8 : 4)
            for (int e = coarse->entry_start[slot]; e < coarse->entry_start[slot + 1]; ++e) {
                const Entry at = coarse->entry[e];
                total.add(at.weight, vector + (3 * (int64)(first + at.row) + a) * wide + GROUP * group);
            }
            total.write(parts + (3 * (int64)slot + a) * wide + GROUP * group);
        }
        pause();
        const int lane = threadIdx.x % LANES, items = 3 * coarse->own(team.rank, team.blocks) * groups;
        for (int item = threadIdx.x / LANES; item - threadIdx.x % 32 / LANES < items; item += blockDim.x / LANES) {
            const int e = item / groups, row = 3 * (team.rank + team.blocks * (e / 3)) + e % 3, j = item % groups;
            Four total;
            total.clear();
            if (item < items)
                for (int q = coarse->slot_start[row / 3] + lane; q < coarse->slot_start[row / 3 + 1]; q += LANES)
                    total.add(1, parts + (3 * (int64)coarse->slot[q] + e % 3) * wide + GROUP * j);
#pragma unroll
            for (int c = 0; c < GROUP; ++c) total.value[c] = sum_lanes(total.value[c]);
            if (item < items && lane == 0) total.write(totals + row * wide + GROUP * j);
        }
    }

    // u = A_c⁻¹ totals of the own rows, then t = u + β t, y -= α t where MOVE; else y = u.
    template <bool MOVE>
    __device__ void move_coarse() {
        const int lane = threadIdx.x % 32, rows = 3 * coarse->count;
        const int items = 3 * coarse->own(team.rank, team.blocks) * groups;
        for (int item = threadIdx.x / 32; item < items; item += blockDim.x / 32) {
            const int e = item / groups, row = 3 * (team.rank + team.blocks * (e / 3)) + e % 3, j = item % groups;
            Four u, old, moved;
            u.clear();
#pragma unroll(sizeof(real) == 4 ? 8 : 4)
            for (int i = lane; i < rows; i += 32) u.add(coarse->inverse[row * rows + i], totals + i * wide + GROUP * j);
#pragma unroll
            for (int c = 0; c < GROUP; ++c)
#pragma unroll
                for (int step = 16; step > 0; step /= 2) u.value[c] += __shfl_xor_sync(ALL_LANES, u.value[c], step);
            if (lane != 0) continue;
            if (MOVE) {
                old.read(t + row * wide + GROUP * j), moved.read(y + row * wide + GROUP * j);
#pragma unroll
                for (int c = 0; c < GROUP; ++c) {
                    const real alpha = columns->alpha[GROUP * j + c], beta = columns->beta[GROUP * j + c];
                    u.value[c] += beta != 0 ? beta * old.value[c] : real(0);
                    moved.value[c] -= alpha != 0 ? alpha * u.value[c] : real(0);
                }
                u.write(t + row * wide + GROUP * j), moved.write(y + row * wide + GROUP * j);
            } else {
                u.write(y + row * wide + GROUP * j);
            }
        }
    }

    // (P y)_a of a row.
    __device__ void add_coarse(int row, int a, Four &to) const {
        const int64 at = 8 * (int64)(first + row);
#pragma unroll
        for (int q = 0; q < 8; ++q)
            to.add(coarse->weight[at + q], y + (3 * coarse->parent[at + q] + a) * wide + GROUP * group);
    }

    // columns->total: |free (b - A x)|² of every column, with x as it is or with all free nodes at zero; left in r.
    __device__ void residual(bool held_only) {
        for_items([&](int row, int64 at) {
            const bool zero = held_only && free[first + row] != 0;
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                Four value;
                value.read(x + at + a * wide);
#pragma unroll
                for (int j = 0; j < GROUP; ++j)
                    if (zero) value.value[j] = 0;
                value.write(z + at + a * wide);
            }
        });
        pause();
        double mine[PARTS] = {};
        for_items([&](int row, int64 at) {
            Four y[3];
            row_product(row, z, y);
            const real is_free = free[first + row];
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                Four given;
                given.read(b + at + a * wide);
#pragma unroll
                for (int j = 0; j < GROUP; ++j) {
                    given.value[j] = is_free * given.value[j] - y[a].value[j];
                    mine[j] += (double)(given.value[j] * given.value[j]);
                }
                given.write(r + at + a * wide);
            }
        });
        if (COARSE && !held_only) gather_coarse(r);
        sum<1>(mine);  // who has its result knows that all have handed in theirs, and so have read z
    }

    // p = z + β p, s = w + β s, x += α p, r -= α s where MOVE, then z = M⁻¹ r, w = A z and the sums |r|², r·z, w·z.
    template <bool MOVE>
    __device__ void update() {
        if (COARSE) {
            move_coarse<MOVE>();
            if (MOVE) {
                for_items([&](int row, int64 at) {
                    for (int a = 0; a < 3; ++a) {
                        Four left;
                        left.read(r + at + a * wide);
                        advance(at + a * wide, left);
                    }
                });
            }
            pause();
        }
        for_items([&](int row, int64 at) {
            Four left[3];
#pragma unroll
            for (int a = 0; a < 3; ++a) left[a].read(r + at + a * wide);
            if (MOVE && !COARSE) {
#pragma unroll
                for (int a = 0; a < 3; ++a) advance(at + a * wide, left[a]);
            }
            const real *m = inverse + 9 * (int64)(first + row);
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                Four turned;
#pragma unroll
                for (int j = 0; j < GROUP; ++j)
                    turned.value[j] = m[3 * a] * left[0].value[j] + m[3 * a + 1] * left[1].value[j] +
                                      m[3 * a + 2] * left[2].value[j];
                if (COARSE) add_coarse(row, a, turned);
                turned.write(z + at + a * wide);
            }
        });
        pause();
        double mine[PARTS] = {};
        for_items([&](int row, int64 at) {
            Four y[3];
            row_product(row, z, y);
#pragma unroll
            for (int a = 0; a < 3; ++a) {
                Four left, turned;
                left.read(r + at + a * wide);
                turned.read(z + at + a * wide);
                y[a].write(w + at + a * wide);
#pragma unroll
                for (int j = 0; j < GROUP; ++j) {
                    mine[j] += (double)(left.value[j] * left.value[j]);
                    mine[GROUP + j] += (double)(left.value[j] * turned.value[j]);
                    mine[2 * GROUP + j] += (double)(y[a].value[j] * turned.value[j]);
                }
            }
        });
        if (COARSE) gather_coarse(w);
        sum<3>(mine);
    }

    __device__ void advance(int64 at, Four &left) {
        Four direction, image, old, guess;
        direction.read(z + at);
        image.read(w + at);
        old.read(p + at);
        guess.read(x + at);
#pragma unroll
        for (int j = 0; j < GROUP; ++j) {
            const real beta = columns->beta[GROUP * group + j];
            direction.value[j] += beta != 0 ? beta * old.value[j] : real(0);
        }
        direction.write(p + at);
        old.read(s + at);
#pragma unroll
        for (int j = 0; j < GROUP; ++j) {
            const real alpha = columns->alpha[GROUP * group + j], beta = columns->beta[GROUP * group + j];
            image.value[j] += beta != 0 ? beta * old.value[j] : real(0);
            if (columns->going[GROUP * group + j]) {
                guess.value[j] += alpha * direction.value[j];
                left.value[j] -= alpha * image.value[j];
            }
        }
        image.write(s + at);
        guess.write(x + at);
        left.write(r + at);
    }

    // Who goes on after a true residual was taken; `round` counts them.
    __device__ void judge(int round, double tolerance) {
        if (threadIdx.x == 0) columns->any = 0;
        __syncthreads();
        const int j = threadIdx.x;
        if (j < wide) {
            const double norm = sqrt(columns->total[j]), base = columns->base[j];
            const bool fine = norm <= (round == 0 ? 1.0 : 2.0) * tolerance * base;
            if (round == 0 || columns->status[j] == CONVERGED) {
                columns->left[j] = base > 0.0 ? norm / base : 0.0;
                columns->status[j] = !isfinite(base) || !isfinite(norm) ? BREAKDOWN : fine ? CONVERGED : STALLED;
                columns->going[j] = columns->status[j] == STALLED && round < 4;
                columns->fresh[j] = 1;
                if (columns->going[j]) columns->status[j] = LIMIT, columns->any = 1;
            }
        }
        __syncthreads();
    }

    // α and β of every column from the last sums, and who goes on.
    __device__ void choose(double tolerance, int limit) {
        if (threadIdx.x == 0) columns->any = 0;
        __syncthreads();
        const int j = threadIdx.x;
        if (j < wide) {
            columns->alpha[j] = columns->beta[j] = 0.0;
            if (columns->going[j]) {
                const double square = columns->total[j], rz = columns->total[wide + j];
                const double wz = columns->total[2 * wide + j], base = columns->base[j];
                const bool fresh = columns->fresh[j];
                const double beta = fresh || !(columns->rz[j] > 0.0) ? 0.0 : rz / columns->rz[j];
                const double pap = fresh ? wz : wz - beta * rz / columns->last_alpha[j];
                const bool done = !fresh && square <= tolerance * tolerance * base * base;
                // With a coarse level y drifts: where it may have gone too far the true residual is asked for as well.
                const bool far = square <= DRIFT * columns->begun[j] || !(pap > 0.0);
                const bool adrift = COARSE && !fresh && far && square <= 1e16 * base * base;
                if (fresh) columns->begun[j] = square;
                if (done || adrift) {
                    columns->going[j] = 0, columns->status[j] = CONVERGED;
                } else if (!(pap > 0.0 && isfinite(pap)) || !(square <= 1e16 * base * base)) {
                    columns->going[j] = 0, columns->status[j] = BREAKDOWN;
                    columns->left[j] = sqrt(square) / base;
                } else if (columns->iterations[j] >= limit) {
                    columns->going[j] = 0, columns->status[j] = LIMIT, columns->left[j] = sqrt(square) / base;
                } else {
                    columns->alpha[j] = columns->last_alpha[j] = rz / pap, columns->beta[j] = beta;
                    columns->rz[j] = rz, columns->fresh[j] = 0, columns->any = 1;
                    ++columns->iterations[j];
                }
            }
        }
        __syncthreads();
    }

    __device__ void run(double tolerance, int limit) {
        residual(true);
        if (threadIdx.x < wide) columns->base[threadIdx.x] = sqrt(columns->total[threadIdx.x]);
        __syncthreads();
        clear_idle();
        for (int round = 0;; ++round) {
            residual(false);
            judge(round, tolerance);
            if (!columns->any) return;
            update<false>();
            for (;;) {
                choose(tolerance, limit);
                if (!columns->any) break;
                update<true>();
            }
        }
    }

    // Where there is nothing to solve for, the free nodes do not move.
    __device__ void clear_idle() {
        for_items([&](int row, int64 at) {
            for (int a = 0; a < 3; ++a)
                for (int j = 0; j < GROUP; ++j)
                    if (free[first + row] != 0 && columns->base[GROUP * group + j] == 0.0) x[at + a * wide + j] = 0;
        });
        __syncthreads();
    }
};
