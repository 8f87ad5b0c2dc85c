/* attention.cuh -- what the attention kernels share, and how decode's work is divided.
 *
 * Softmax is taken in base 2: scores are multiplied by scale * log2(e) once.
 *
 * Decode: the pages of all sequences, for each of their KV heads (and for each block of query heads
 * where a group has more of them than a kernel takes at once), lie one after another on a line:
 *
 *     | seq 0 head 0 | seq 0 head 1 | ... | seq 1 head 0 | ...        in units of pages
 *     |....block 0....|....block 1....|....block 2....|               one block an SM
 *
 * and every block gets a run of it, as equal as can be: whole items, and at most one cut at either
 * end. A *part* is what a result is first computed for by itself: an item's run within a block, or,
 * with fixed splits, so many pages of it as its own length says. Parts of an item that is cut meet
 * in slots in memory, and the block that comes last adds them up in order. */
#ifndef WEFT_ATTENTION_CUH
#define WEFT_ATTENTION_CUH

#include "kernels/cuda/common.cuh"

constexpr uint32_t HEAD_SIZE_MAX = 256;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LOWEST = -1e30f; /* a score that counts for nothing, and is no infinity */

constexpr uint32_t PLAN_BLOCKS_MAX = 256;
constexpr uint32_t PLAN_PAGES = 4;       /* that a block knows without looking them up */
constexpr uint32_t FIXED_PAGES = 8;      /* a fixed part has at least so many pages... */
constexpr uint32_t FIXED_PARTS_MAX = 32; /* ...and an item at most so many parts */

/* A run of pages of one sequence and KV head in one block. */
struct alignas(16) plan_item {
    uint32_t row;
    uint32_t token; /* of q and out */
    uint32_t keys;  /* of the sequence, the new one with them */
    uint32_t head;  /* kv head * blocks of query heads + the block */

    uint32_t page_first; /* of the sequence's pages */
    uint32_t page_count;
    uint32_t part_pages;
    uint32_t part_first;

    uint32_t part_count; /* of the whole item, wherever they are computed */
    uint32_t slot_first; /* of a cut item: where its part 0 goes */
    uint32_t home;       /* the block that has its first page: whose ticket counts its parts */
    uint32_t last_page;  /* page that holds the new token */
};

struct alignas(16) plan_block {
    uint32_t item_first;
    uint32_t item_count;
    uint32_t padding[2];
    uint32_t pages[PLAN_PAGES]; /* the first item's first ones */
    struct plan_item first;
};

/* The scratch, cut up. What has to stay zero comes first, where every batch size has it. */
struct plan {
    uint32_t *tickets;         /* [blocks], zero between calls */
    struct plan_block *blocks; /* [blocks] */
    struct plan_item *items;
    float *slots; /* [slot][query head of the block][head_size + SLOT_EXTRA] */
};
constexpr uint32_t SLOT_EXTRA = 4; /* maximum and sum after a head's elements, and alignment */

/* Query heads that a decode block takes at once: columns of one or two tiles of eight. */
__host__ __device__ __forceinline__ uint32_t plan_head_tiles(uint32_t group, uint32_t head_size)
{
    return group > 8 && head_size <= 128 ? 2 : 1;
}

__host__ __device__ __forceinline__ uint32_t plan_head_blocks(uint32_t group, uint32_t head_size)
{
    const uint32_t heads = 8 * plan_head_tiles(group, head_size);

    return (group + heads - 1) / heads;
}

struct plan plan_place(void *scratch, const struct cuda_properties *properties, uint32_t heads,
                       uint32_t kv_heads, uint32_t head_size, uint32_t sequences,
                       uint64_t *ret_bytes);
uint32_t plan_blocks(const struct cuda_properties *properties);

/* Where element `column` of token `token`'s result lies in args.out. */
__device__ __forceinline__ size_t output_index(const struct cuda_attention &args, uint32_t token,
                                               uint32_t column)
{
    return args.out_tiles > 0 ? cuda_fragment(token, column, args.out_tiles)
                              : (size_t)token * args.heads * args.head_size + column;
}

/* Any element type, head size and group, on any target: attention_general.cu. */
int attention_general_decode(const struct cuda_stream *stream, const struct cuda_attention *args,
                             uint32_t sequences, bool dependent);
int attention_general_prefill(const struct cuda_stream *stream, const struct cuda_attention *args,
                              const struct cuda_prefill_tile *tiles, uint32_t tile_count);

#endif
