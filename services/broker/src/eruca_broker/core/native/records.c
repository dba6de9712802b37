/*
 * A batch's records: verified before they enter the log, stamped on their way into it.
 *
 * Source: RocketMQ 5.3, CommitLog.checkMessageAndReturnSize, MessageExtEncoder; ConsumeQueue.
 */
#include "native.h"

#define BATCH_MAGIC 0x45524231u /* "ERB1" */

enum {
    /* The places of a record's later fields, from its body. */
    RECONSUME_TIMES = -16,
    PREPARED_OFFSET = -12,
    BODY_SIZE = -4,

    /* The places in a request's preamble, and the bytes before the record if there is one. */
    BATCH_COUNT = 4,
    BATCH_SIZE = 8,
    BATCH_RESERVED = 12,
    BATCH_SIZES = 16,
    SINGLE_HEAD_SIZE = 20,

    IPV4_HOST_SIZE = 8 /* bytes of an address with its port */
};

int prove(const uint8_t *record, uint32_t size, const struct expected *expected,
          struct value *text)
{
    const uint8_t *const body = record + expected->body_at;
    const uint32_t size_min = expected->body_at + expected->topic_size + PROPERTIES_HEAD_SIZE;
    if (size < size_min)
        return 0;
    const int64_t born = (int64_t)load64(record + BORN_TIMESTAMP);
    if (load32(record) != size || load32(record + MAGIC) != MAGIC_V1
        || load32(record + QUEUE_ID) != expected->queue_id
        || (load32(record + SYS_FLAG) & expected->sys_flag_mask) != expected->sys_flag
        || born < 0 || born > expected->born_timestamp_max
        || load32(body + RECONSUME_TIMES) || load64(body + PREPARED_OFFSET))
        return 0;

    const uint32_t body_size = load32(body + BODY_SIZE);
    if (!body_size || body_size > expected->body_bytes_max || body_size > size - size_min)
        return 0;
    const uint32_t rest = size - size_min - body_size;
    const uint8_t *const topic = body + body_size;
    const uint8_t *const head = topic + expected->topic_size;
    if (memcmp(topic, expected->topic, expected->topic_size)
        || rest > expected->properties_size_max || load16(head) != rest
        || rest < CHECKSUM_SIZE || !has_checksum_room(record, size))
        return 0;
    *text = (struct value){head + PROPERTIES_HEAD_SIZE, record + size};
    return (crc32_of(body, body_size, expected->crc32) & CRC_MASK) == load32(record + BODY_CRC);
}

int note(struct value text, uint32_t start, uint32_t size, uint32_t key_hash_start,
         const struct properties *properties, struct found *found, struct found_key *keys)
{
    struct found_record *const record = found->records + found->count;
    record->end = start + size;
    record->properties_size = (uint32_t)(text.end - text.begin);
    return hash_properties(properties, key_hash_start, start, found, keys);
}

static int is_longer(struct value value, uint32_t size)
{
    return value.begin && value.end - value.begin > (ptrdiff_t)size;
}

/*
 * Whether a unique id can occur in a path, and `text` contains no U+0000. Python examines an id
 * that begins with a dot or is not ASCII.
 */
static int can_be_named(struct value text, struct value unique_id)
{
    const uint64_t first = 0x2121212121212121u, beyond_ascii = 0x8080808080808080u;
    const uint8_t *at = unique_id.begin;
    if (at < unique_id.end && *at == '.')
        return 0;
    for (; unique_id.end - at >= 8; at += 8) {
        const uint64_t word = load64(at);
        if (((word - first) | word) & beyond_ascii)
            return 0;
    }
    for (; at < unique_id.end; at++)
        if (*at <= ' ' || *at >= 0x80)
            return 0;
    return !memchr(text.begin, 0, (size_t)(text.end - text.begin));
}

int is_plain(struct value text, const struct properties *properties,
             const struct expected *expected)
{
    return !is_longer(properties->keys, expected->key_size_max)
           && !is_longer(properties->tag, expected->key_size_max)
           && can_be_named(text, properties->unique_id);
}

static uint32_t end_of(const struct found *found)
{
    return found->count ? found->records[found->count - 1].end : 0;
}

/*
 * Verify the next record, which is at `start`, and read its properties; its keys belong to its
 * start. 0 if Python must do it.
 */
static int take(const uint8_t *record, uint32_t start, uint32_t size,
                const struct expected *expected, struct found *found, struct found_key *keys)
{
    struct value text;
    if (!prove(record, size, expected, &text))
        return 0;
    const struct properties properties =
        find_properties(text.begin, (uint32_t)(text.end - text.begin));
    return !properties.may_ask_for_delay && is_plain(text, &properties, expected)
           && note(text, start, size, expected->key_hash_start, &properties, found, keys);
}

/*
 * Verify the `count` records of a batch and read their properties. `sizes` is the batch's own
 * column, of `total` bytes of records. Returns the number of valid records: the next one needs
 * Python.
 */
EXPORTED uint32_t prove_records(const uint8_t *sizes, const uint8_t *records, uint32_t total,
                                uint32_t count, const struct expected *expected,
                                struct found *found)
{
    struct found_key *const keys = (struct found_key *)(found->records + count);
    while (found->count < count) {
        const uint32_t start = end_of(found), left = total - start;
        const uint32_t size = load32(sizes + 4 * (size_t)found->count);
        const int is_last = found->count == count - 1;
        if (size > left || (is_last && size < left)
            || !take(records + start, start, size, expected, found, keys))
            break;
    }
    return found->count;
}

/*
 * Verify `count` requests of one record each, which follow each other in `requests`, and move
 * their records together to its beginning, each with its peer's IPv4 address. `sizes` has the bytes
 * of each request, `heads` those of them that precede its body, `born_hosts` the addresses. Returns
 * the number of plain requests: the next one needs Python.
 */
EXPORTED uint32_t gather_singles(uint8_t *requests, const uint32_t *sizes, const uint32_t *heads,
                                 const uint8_t *born_hosts, uint32_t count,
                                 const struct expected *expected, struct found *found)
{
    struct found_key *const keys = (struct found_key *)(found->records + count);
    const uint8_t *next = requests;
    while (found->count < count) {
        const uint32_t row = found->count, start = end_of(found);
        if (sizes[row] < heads[row] || sizes[row] - heads[row] < SINGLE_HEAD_SIZE)
            break;
        const uint8_t *const request = next + heads[row];
        const uint32_t size = sizes[row] - heads[row] - SINGLE_HEAD_SIZE;
        const uint8_t *const record = request + SINGLE_HEAD_SIZE;
        if (load32(request) != BATCH_MAGIC || load32(request + BATCH_COUNT) != 1
            || load32(request + BATCH_SIZE) != size || load32(request + BATCH_RESERVED)
            || load32(request + BATCH_SIZES) != size
            || !take(record, start, size, expected, found, keys))
            break;
        next += sizes[row];
        memmove(requests + start, record, size);
        memcpy(requests + start + BORN_HOST, born_hosts + IPV4_HOST_SIZE * (size_t)row,
               IPV4_HOST_SIZE);
    }
    return found->count;
}

/* Do the same for records that the broker itself has made: they are valid, of any version. */
EXPORTED uint32_t read_records(const uint8_t *records, uint32_t count, uint32_t body_at,
                               uint32_t key_hash_start, struct found *found)
{
    struct found_key *const keys = (struct found_key *)(found->records + count);
    while (found->count < count) {
        const uint32_t start = end_of(found);
        const uint8_t *const record = records + start;
        const uint32_t size = load32(record);
        const uint8_t *const topic = record + body_at + load32(record + body_at + BODY_SIZE);
        const uint8_t *const head = load32(record + MAGIC) == MAGIC_V2 ? topic + 2 + load16(topic)
                                                                      : topic + 1 + *topic;
        const struct value text = {head + PROPERTIES_HEAD_SIZE, record + size};
        const struct properties properties =
            find_properties(text.begin, (uint32_t)(text.end - text.begin));
        if (!note(text, start, size, key_hash_start, &properties, found, keys))
            break;
    }
    return found->count;
}

/*
 * Write the broker's fields into `count` records, and their entries for the consume queue.
 *
 * `common` is equal in all records and goes to `common_at`: hosts and store time. The checksums
 * cover everything, so they come last. They have their own loop, because the CRC reads in wide
 * words the bytes that were written in narrow ones: directly after the write, that stalls.
 *
 * Each checksum is computed over the whole record, although the body's CRC was computed before.
 * Combining it with the header's takes a multiplication of polynomials, which costs as much as the
 * CRC of 2.5 KiB. Also, the checksum then covers the bytes that go to the disk, not earlier ones.
 */
EXPORTED void stamp_records(uint8_t *record, uint32_t count, int64_t queue_offset,
                            int64_t log_offset, const uint8_t *common, uint32_t common_at,
                            uint32_t common_size, const struct found *found, uint8_t *entry,
                            crc32_function *crc32)
{
    uint8_t *const first = record;
    for (uint32_t row = 0; row < count; row++, entry += QUEUE_ENTRY_SIZE) {
        const uint32_t size = load32(record);
        store64(record + QUEUE_OFFSET, (uint64_t)(queue_offset + row));
        store64(record + LOG_OFFSET, (uint64_t)log_offset);
        memcpy(record + common_at, common, common_size);
        store64(entry, (uint64_t)log_offset);
        store32(entry + 8, size);
        store64(entry + 12, (uint64_t)found->records[row].tag_code);
        log_offset += size;
        record += size;
    }
    record = first;
    for (uint32_t row = 0; row < count; row++) {
        const uint32_t size = load32(record);
        write_checksum(record, size, crc32);
        record += size;
    }
}

/* Write the consume queue's entries of `count` stored records, whose properties were read. */
EXPORTED void enter_records(uint32_t count, int64_t log_offset, const struct found *found,
                            uint8_t *entry)
{
    for (uint32_t row = 0, start = 0; row < count; row++, entry += QUEUE_ENTRY_SIZE) {
        const uint32_t end = found->records[row].end;
        store64(entry, (uint64_t)(log_offset + start));
        store32(entry + 8, end - start);
        store64(entry + 12, (uint64_t)found->records[row].tag_code);
        start = end;
    }
}
