/* attention_plan.cu -- divides decode attention's work among blocks: the first node of a step.
 *
 * attention.cuh draws the line of pages that is divided. One block of threads computes
 *   1. which sequences have a token, and how many pages lie before each (a scan),
 *   2. where each block of the decode kernel starts: shares as equal as they can be without many
 *      cuts; with fixed splits equal ones, moved back to where a part begins,
 *   3. how many cuts and slots lie before each of them (a scan),
 *   4. the items, in order, each sequence and head for itself; then the blocks.
 * A few KB are written; it takes some microseconds a step and is the same for every layer. */
#include "kernels/cuda/attention.cuh"

constexpr uint32_t THREADS = 512;
constexpr uint32_t SEQUENCES_MAX = 4096;
constexpr uint32_t CUT_PAGES = 9;      /* more of them for a block are cheaper than a cut */
constexpr uint32_t PART_PAGES_MIN = 2; /* of a part, where there is little to read */

struct plan_size {
    uint32_t sequences;
    uint32_t heads; /* kv heads * blocks of query heads */
    uint32_t blocks;
    uint32_t fixed;
};

struct line {
    uint32_t sequences[SEQUENCES_MAX];        /* those with a token */
    uint32_t pages_before[SEQUENCES_MAX + 1]; /* of each of them; the last is their sum */
    uint32_t starts[PLAN_BLOCKS_MAX + 1];     /* of the decode kernel's blocks, in units */
    uint2 before[PLAN_BLOCKS_MAX];            /* cuts up to and in a block, slots before it */
    uint2 warps[THREADS / 32];
    uint32_t count; /* of sequences with a token */
};

/* An item's place on the line. */
struct place {
    uint32_t item;     /* counted along the line */
    uint32_t from, to; /* units */
    uint32_t pages;
};

__device__ __forceinline__ uint32_t fixed_pages(uint32_t pages)
{
    return max(FIXED_PAGES, (pages + FIXED_PARTS_MAX - 1) / FIXED_PARTS_MAX);
}

/* Inclusive sums over the block's threads. */
__device__ uint2 scan(uint2 v, uint2 *warps)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t x = __shfl_up_sync(ALL_LANES, v.x, distance);
        uint32_t y = __shfl_up_sync(ALL_LANES, v.y, distance);

        if (lane >= distance) {
            v.x += x;
            v.y += y;
        }
    }
    __syncthreads();
    if (lane == 31)
        warps[warp] = v;
    __syncthreads();
    for (uint32_t i = 0; i < warp; i++) {
        v.x += warps[i].x;
        v.y += warps[i].y;
    }
    return v;
}

/* The last index in 0 .. count - 1 whose value is at most `v`; values[0] is. */
__device__ uint32_t last_at_most(const uint32_t *values, uint32_t count, uint32_t v)
{
    uint32_t low = 0, high = count;

    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;

        if (values[middle] <= v)
            low = middle;
        else
            high = middle;
    }
    return low;
}

__device__ struct place place_item(const struct line &line, uint32_t heads, uint32_t item)
{
    const uint32_t sequence = item / heads, before = line.pages_before[sequence];
    struct place at;

    at.item = item;
    at.pages = line.pages_before[sequence + 1] - before;
    at.from = before * heads + item % heads * at.pages;
    at.to = at.from + at.pages;
    return at;
}

__device__ struct place place_unit(const struct line &line, uint32_t heads, uint32_t unit)
{
    const uint32_t sequence = last_at_most(line.pages_before, line.count, unit / heads);
    const uint32_t before = line.pages_before[sequence];
    const uint32_t pages = line.pages_before[sequence + 1] - before;

    return place_item(line, heads, sequence * heads + (unit - before * heads) / pages);
}

/* Step 1. */
__device__ void sequences_list(const struct cuda_segment *segments, const struct plan_size &size,
                               struct line *line)
{
    uint2 carry = {0, 0}; /* sequences, pages */

    for (uint32_t base = 0; base < size.sequences; base += THREADS) {
        const uint32_t i = base + threadIdx.x;
        uint32_t pages = 0;
        uint2 sum;

        if (i < size.sequences && segments[i].token_count > 0)
            pages = segments[i].position / CUDA_PAGE_TOKENS + 1;
        sum = scan({pages > 0, pages}, line->warps);
        if (pages > 0) {
            line->sequences[carry.x + sum.x - 1] = i;
            line->pages_before[carry.x + sum.x - 1] = carry.y + sum.y - pages;
        }
        __syncthreads();
        if (threadIdx.x == THREADS - 1)
            line->warps[0] = sum;
        __syncthreads();
        carry.x += line->warps[0].x;
        carry.y += line->warps[0].y;
    }
    if (threadIdx.x == 0) {
        line->count = carry.x;
        line->pages_before[carry.x] = carry.y;
    }
    __syncthreads();
}

/* Between how many blocks the units are divided. Few items: into equal parts, each of at least
 * PART_PAGES_MIN pages, where no block gets many more pages by it than if all blocks had the same.
 * Blocks without work cost little: half of them read nearly as fast as all. */
__device__ __forceinline__ uint32_t blocks_choose(uint32_t units, uint32_t items, uint32_t blocks)
{
    uint32_t share, even;

    if (items == 0 || items > blocks)
        return min(blocks, units);
    share = max((units + blocks - 1) / blocks, PART_PAGES_MIN);
    even = items * min((units + items * share - 1) / (items * share), blocks / items);
    return (units + even - 1) / even <= units / blocks + CUT_PAGES ? even : min(blocks, units);
}

/* Where block `block` of `blocks` begins. A start that lies near to an item's is moved there. */
__device__ uint32_t start_of(const struct plan_size &size, const struct line &line, uint32_t block,
                             uint32_t blocks)
{
    const uint32_t units = line.pages_before[line.count] * size.heads;

    if (block >= blocks)
        return units;
    const uint32_t start = (uint32_t)((uint64_t)units * block / blocks);
    const uint32_t tolerance = min(CUT_PAGES, units / blocks / 3);
    const struct place at = place_unit(line, size.heads, start);

    if (size.fixed)
        return start - (start - at.from) % fixed_pages(at.pages);
    return start - at.from <= tolerance ? at.from : at.to - start <= tolerance ? at.to : start;
}

/* Step 2. */
__device__ void starts_choose(const struct plan_size &size, struct line *line)
{
    const uint32_t units = line->pages_before[line->count] * size.heads;
    const uint32_t blocks = size.fixed
                                ? min(size.blocks, units)
                                : blocks_choose(units, line->count * size.heads, size.blocks);

    for (uint32_t i = threadIdx.x; i <= size.blocks; i += THREADS)
        line->starts[i] = start_of(size, *line, i, blocks);
    __syncthreads();
}

__device__ uint32_t part_count(const struct plan_size &size, const struct line &line,
                               const struct place &at, uint32_t home)
{
    if (size.fixed)
        return (at.pages + fixed_pages(at.pages) - 1) / fixed_pages(at.pages);
    return last_at_most(line.starts, size.blocks, at.to - 1) - home + 1;
}

/* Step 3. */
__device__ void cuts_count(const struct plan_size &size, struct line *line)
{
    const uint32_t block = threadIdx.x;
    uint2 mine = {0, 0}, sum;

    if (block < size.blocks && line->starts[block] < line->starts[block + 1]) {
        const struct place first = place_unit(*line, size.heads, line->starts[block]);
        const struct place last = place_unit(*line, size.heads, line->starts[block + 1] - 1);

        mine.x = first.from < line->starts[block];
        if (last.to > line->starts[block + 1] && last.from >= line->starts[block])
            mine.y = part_count(size, *line, last, block);
    }
    sum = scan(mine, line->warps);
    if (block < size.blocks)
        line->before[block] = {sum.x, sum.y - mine.y};
    __syncthreads();
}

/* Step 4: the runs of one item. */
__device__ void item_write(const struct cuda_attention &args, const struct plan_size &size,
                           const struct line &line, const struct place &at, struct plan_item *items)
{
    const struct cuda_segment segment = args.segments[line.sequences[at.item / size.heads]];
    const uint32_t home = last_at_most(line.starts, size.blocks, at.from);
    const uint32_t last_page = segment.position / CUDA_PAGE_TOKENS;
    struct plan_item item = {};
    uint32_t part = 0;

    item.row = segment.row;
    item.token = segment.first_token;
    item.keys = segment.position + 1;
    item.head = at.item % size.heads;
    item.part_count = part_count(size, line, at, home);
    item.slot_first = line.before[home].y;
    item.home = home;
    item.last_page = args.page_table[(size_t)segment.row * args.pages_per_row + last_page];
    for (uint32_t block = home; block < size.blocks && line.starts[block] < at.to; block++) {
        const uint32_t from = max(line.starts[block], at.from);
        const uint32_t to = min(line.starts[block + 1], at.to);

        if (from >= to)
            continue;
        item.page_first = from - at.from;
        item.page_count = to - from;
        item.part_pages = size.fixed ? fixed_pages(at.pages) : item.page_count;
        item.part_first = size.fixed ? item.page_first / item.part_pages : part++;
        items[at.item + line.before[block].x] = item;
    }
}

/* Step 4: a block, after the items are written. */
__device__ void block_write(const struct cuda_attention &args, const struct plan_size &size,
                            const struct line &line, uint32_t index, const struct plan &plan)
{
    struct plan_block block = {};
    const uint32_t from = line.starts[index], to = line.starts[index + 1];

    if (from < to) {
        const uint32_t first = place_unit(line, size.heads, from).item;
        const uint32_t last = place_unit(line, size.heads, to - 1).item;
        const uint32_t *pages;

        block.item_first = first + line.before[index].x;
        block.item_count = last - first + 1;
        block.first = plan.items[block.item_first];
        pages =
            args.page_table + (size_t)block.first.row * args.pages_per_row + block.first.page_first;
        for (uint32_t i = 0; i < PLAN_PAGES; i++)
            block.pages[i] = i < block.first.page_count ? pages[i] : 0;
    }
    plan.blocks[index] = block;
}

__global__ void __launch_bounds__(THREADS)
    plan_kernel(struct cuda_attention args, struct plan_size size, struct plan plan)
{
    __shared__ struct line line;
    uint32_t items;

    dependents_launch();
    dependency_wait();
    sequences_list(args.segments, size, &line);
    starts_choose(size, &line);
    cuts_count(size, &line);
    items = line.count * size.heads;
    for (uint32_t i = threadIdx.x; i < items; i += THREADS)
        item_write(args, size, line, place_item(line, size.heads, i), plan.items);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < size.blocks; i += THREADS)
        block_write(args, size, line, i, plan);
}

/* --- the C side ---------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 255) & ~(uint64_t)255;
}

uint32_t plan_blocks(const struct cuda_properties *properties)
{
    const uint32_t count = (uint32_t)properties->multiprocessors;

    return count < PLAN_BLOCKS_MAX ? count : PLAN_BLOCKS_MAX;
}

struct plan plan_place(void *scratch, const struct cuda_properties *properties, uint32_t heads,
                       uint32_t kv_heads, uint32_t head_size, uint32_t sequences,
                       uint64_t *ret_bytes)
{
    const uint32_t group = heads / kv_heads, most = 8 * plan_head_tiles(group, head_size);
    const uint64_t items = (uint64_t)sequences * kv_heads * plan_head_blocks(group, head_size);
    const uint64_t blocks = plan_blocks(properties), cut = items < blocks ? items : blocks;
    const uint64_t parts = FIXED_PARTS_MAX * cut, slots = parts > 2 * blocks ? parts : 2 * blocks;
    const uint64_t slot = (uint64_t)(group < most ? group : most) * (head_size + SLOT_EXTRA);
    uint8_t *base = (uint8_t *)scratch;
    uint64_t at = 0;
    struct plan plan;

    plan.tickets = (uint32_t *)base;
    at += aligned(blocks * sizeof(uint32_t));
    plan.blocks = (struct plan_block *)(base + at);
    at += aligned(blocks * sizeof(struct plan_block));
    plan.items = (struct plan_item *)(base + at);
    at += aligned((items + blocks) * sizeof(struct plan_item));
    plan.slots = (float *)(base + at);
    at += aligned(slots * slot * sizeof(float));
    if (ret_bytes)
        *ret_bytes = at;
    return plan;
}

extern "C" uint64_t cuda_attention_scratch(const struct cuda_properties *properties, uint32_t heads,
                                           uint32_t kv_heads, uint32_t head_size,
                                           uint32_t sequences)
{
    uint64_t bytes;

    plan_place(NULL, properties, heads, kv_heads, head_size, sequences, &bytes);
    return bytes;
}

extern "C" int cuda_attention_plan(const struct cuda_stream *stream,
                                   const struct cuda_attention *args, uint32_t sequences,
                                   bool fixed_splits, void *scratch, bool dependent)
{
    const struct cuda_properties *properties = &stream->context->properties;
    const struct plan plan = plan_place(scratch, properties, args->heads, args->kv_heads,
                                        args->head_size, sequences, NULL);
    const struct plan_size size = {
        sequences,
        args->kv_heads * plan_head_blocks(args->heads / args->kv_heads, args->head_size),
        plan_blocks(properties),
        fixed_splits,
    };

    if (sequences > SEQUENCES_MAX)
        return E_TOO_LARGE;
    return launch(stream, {1, 1, 1, THREADS, 0, dependent}, plan_kernel, *args, size, plan);
}
