// The second level of a preconditioner z = D⁻¹ r + P A_c⁻¹ Pᵀ r, as a team of thread blocks applies it: every block adds
// up Pᵀ of its own rows for the coarse nodes that these touch, one part ("slot") for each; every coarse node has an
// owner, who adds up its parts and knows its rows of the inverse. All sums run in a fixed order.

struct __align__(8) Entry {
    int row;  // counted from the block's first
    float weight;
};

struct Coarse {
    int64 count, space;      // coarse nodes; doubles of shared memory (resident variant)
    const int *touch_start;  // slots of each block, (blocks + 1,)
    const int *touch_node;   // coarse node of a slot
    const int *entry_start;
    const Entry *entry;  // rows of a slot
    const int *slot_start, *slot;  // slots of a coarse node, (count + 1,)
    const int *parent;             // coarse nodes of a row, (N, 8)
    const unsigned short *local;   // where they stand among the block's slots, (N, 8)
    const float *weight;           // (N, 8)
    const float *inverse;          // A_c⁻¹, (3 count, 3 count)

    // How many coarse nodes a block owns: rank, rank + blocks, ...
    __device__ int own(int rank, int blocks) const { return rank < count ? (count - rank + blocks - 1) / blocks : 0; }
};
