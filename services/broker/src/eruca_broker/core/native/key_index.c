/*
 * The key index's chains and entries.
 *
 * A slot holds the number of its newest entry, and each entry the number of the next older one.
 *
 * Source: RocketMQ 5.3, IndexFile.putKey.
 */
#include "native.h"

enum {
    ENTRY_SIZE = 20,
    SECONDS_MAX = 0x7FFFFFFF,
    AHEAD = 16 /* slots being prefetched from memory while one is written */
};

/*
 * Add entries numbered from `number` on to `slots`, whose count is `slot_count`. Sets each one's
 * `previous`. Returns the number of slots newly in use.
 */
EXPORTED uint32_t chain_keys(int32_t *slots, uint32_t slot_count, int32_t number,
                             const int32_t *hashes, uint32_t count, int32_t *previous)
{
    uint32_t used = 0;
    for (uint32_t row = 0; row < count; row++) {
        if (row + AHEAD < count)
            __builtin_prefetch(slots + (uint32_t)hashes[row + AHEAD] % slot_count, 1);
        int32_t *const slot = slots + (uint32_t)hashes[row] % slot_count;
        previous[row] = *slot;
        used += !*slot;
        *slot = number++;
    }
    return used;
}

/* Write the entries. Their seconds count from `begin`, in ms; if that is not positive, all are 0. */
EXPORTED void encode_index_entries(const int32_t *hashes, const int64_t *log_offsets,
                                   const int64_t *timestamps, const int32_t *previous,
                                   uint32_t count, int64_t begin, uint8_t *entry)
{
    for (uint32_t row = 0; row < count; row++, entry += ENTRY_SIZE) {
        int64_t seconds = begin > 0 && timestamps[row] > begin ? (timestamps[row] - begin) / 1000 : 0;
        store32(entry, (uint32_t)hashes[row]);
        store64(entry + 4, (uint64_t)log_offsets[row]);
        store32(entry + 12, (uint32_t)(seconds < SECONDS_MAX ? seconds : SECONDS_MAX));
        store32(entry + 16, (uint32_t)previous[row]);
    }
}
