/*
 * Stored records: whether they are still as they were written, and their checksum.
 *
 * The checksum at the end of a record proves all of it. In a record without one, which RocketMQ has
 * written, only the body is covered, and the parts must add up.
 *
 * Source: RocketMQ 5.3, CommitLog.checkMessageAndReturnSize, MessageDecoder.createCrc32.
 */
#include "native.h"

enum {
    BODY = 88, /* if both hosts are IPv4 */

    BORN_HOST_V6 = 16,
    STORE_HOST_V6 = 32,
    HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6,
    PREPARED = 4, /* of a transaction; set in one that is rolled back, too */
    V6_SIZE = 12, /* additional bytes of such a host */

    RECORD_SIZE_MIN = BODY + 1 + PROPERTIES_HEAD_SIZE,
    NAME_SIZE = 9, /* bytes of the checksum's name, NAME_END included */
    DIGITS = 10,
    WRONG_MAX = 4 /* bytes: with more differences from a checksum's form it is not one */
};

static const uint8_t FORM[] = "__CRC32#\1"
                              "0000000000"
                              "\2";

_Static_assert(sizeof FORM == CHECKSUM_SIZE + 1, "the form is as long as a checksum");

int has_checksum_room(const uint8_t *record, uint32_t size)
{
    return size >= CHECKSUM_SIZE && !memcmp(record + size - CHECKSUM_SIZE, FORM, CHECKSUM_SIZE);
}

static uint32_t checksum_of(const uint8_t *record, uint32_t size, crc32_function *crc32)
{
    return crc32_of(record, size - CHECKSUM_SIZE, crc32) & CRC_MASK;
}

int write_checksum(uint8_t *record, uint32_t size, crc32_function *crc32)
{
    if (!has_checksum_room(record, size))
        return 0;
    uint8_t *const digits = record + size - CHECKSUM_SIZE + NAME_SIZE;
    uint32_t rest = checksum_of(record, size, crc32);
    /* All ten, because the number of digits cannot be predicted. */
    for (int at = 0; at < DIGITS; at++, rest /= 10)
        digits[at] = (uint8_t)('0' + rest % 10);
    return 1;
}

/* Read the number in a checksum's digits; 0 if the bytes do not have its form. */
static int read_checksum(const uint8_t *checksum, uint64_t *number)
{
    const uint8_t *const digits = checksum + NAME_SIZE;
    uint32_t has_other = 0;
    *number = 0;
    for (int at = DIGITS - 1; at >= 0; at--) {
        const uint32_t digit = (uint32_t)digits[at] - '0';
        has_other |= digit > 9;
        *number = *number * 10 + digit;
    }
    return !has_other && !memcmp(checksum, FORM, NAME_SIZE)
           && digits[DIGITS] == FORM[CHECKSUM_SIZE - 1];
}

/* The number of bytes that cannot be those of a checksum at their place. */
static int wrong_bytes(const uint8_t *checksum)
{
    int wrong = 0;
    for (int at = 0; at < CHECKSUM_SIZE; at++)
        if (at < NAME_SIZE || at >= NAME_SIZE + DIGITS)
            wrong += checksum[at] != FORM[at];
        else
            wrong += checksum[at] < '0' || checksum[at] > '9';
    return wrong;
}

/* The beginning of a record's body, behind hosts of either family. */
static uint32_t body_at(uint32_t sys_flag)
{
    uint32_t at = BODY;
    if (sys_flag & BORN_HOST_V6)
        at += V6_SIZE;
    if (sys_flag & STORE_HOST_V6)
        at += V6_SIZE;
    return at;
}

/* The place of a record's topic; its beginning is NULL if the parts do not add up to the size. */
static struct value topic_of(const uint8_t *record, uint32_t size)
{
    const struct value none = {NULL, NULL};
    if (size < RECORD_SIZE_MIN || load32(record) != size)
        return none;
    const uint32_t magic = load32(record + MAGIC);
    if (magic != MAGIC_V1 && magic != MAGIC_V2)
        return none;
    const uint32_t body = body_at(load32(record + SYS_FLAG));
    const uint32_t head_size = magic == MAGIC_V2 ? 2 : 1;
    const uint32_t size_min = body + head_size + PROPERTIES_HEAD_SIZE;
    if (size < size_min)
        return none;
    const uint32_t body_size = load32(record + body - 4);
    if (body_size > size - size_min)
        return none;
    const uint8_t *const head = record + body + body_size;
    const uint32_t topic_size = magic == MAGIC_V2 ? load16(head) : *head;
    if (topic_size > size - size_min - body_size)
        return none;
    const uint8_t *const topic = head + head_size;
    if (load16(topic + topic_size) != size - size_min - body_size - topic_size)
        return none;
    return (struct value){topic, topic + topic_size};
}

/* Whether a record of `size` bytes is as it was written; `topic` is the place of its topic. */
static int is_sound(const uint8_t *record, uint32_t size, struct value topic, crc32_function *crc32)
{
    if (!topic.begin)
        return 0;
    const uint8_t *const checksum = record + size - CHECKSUM_SIZE;
    uint64_t number;
    if (read_checksum(checksum, &number))
        return number == checksum_of(record, size, crc32);
    if (wrong_bytes(checksum) <= WRONG_MAX)
        return 0;
    const uint8_t *const body = record + body_at(load32(record + SYS_FLAG));
    return (crc32_of(body, load32(body - 4), crc32) & CRC_MASK) == load32(record + BODY_CRC);
}

/* Tell which of `count` records, each with its own size, are as they were written. */
EXPORTED void prove_stored(const uint8_t *buffer, const int64_t *starts, const int64_t *sizes,
                           uint32_t count, crc32_function *crc32, uint8_t *sound)
{
    for (uint32_t row = 0; row < count; row++) {
        const uint8_t *const record = buffer + starts[row];
        const uint32_t size = (uint32_t)sizes[row];
        sound[row] = (uint8_t)is_sound(record, size, topic_of(record, size), crc32);
    }
}

/* Copy `count` records, which lie anywhere in a segment, into one stretch. */
EXPORTED void gather_records(const uint8_t *segment, const int64_t *starts, const int64_t *sizes,
                             uint32_t count, uint8_t *gathered)
{
    for (uint32_t row = 0; row < count; row++) {
        memcpy(gathered, segment + starts[row], (size_t)sizes[row]);
        gathered += sizes[row];
    }
}

/*
 * Verify records of a queue that fill `total` bytes. `sizes` are the consume queue's, as on the
 * wire. `log_offsets` are those of gathered records; NULL: each follows the one before it. `place`
 * moves behind the last record that is valid and in its place. Returns the number of those: if they
 * do not fill the bytes, the next one is damaged.
 */
EXPORTED uint32_t prove_queued(const uint8_t *record, uint32_t total, const uint8_t *sizes,
                               const int64_t *log_offsets, struct place *place,
                               crc32_function *crc32)
{
    uint32_t count = 0;
    for (uint32_t left = total, size; left; left -= size, record += size, count++) {
        if (log_offsets)
            place->log_offset = log_offsets[count];
        size = load32(sizes + 4 * (size_t)count);
        const struct value topic = size > left ? (struct value){NULL, NULL} : topic_of(record, size);
        if (!is_sound(record, size, topic, crc32)
            || (int64_t)load64(record + LOG_OFFSET) != place->log_offset
            || load32(record + QUEUE_ID) != place->queue_id
            || topic.end - topic.begin != (ptrdiff_t)place->topic_size
            || memcmp(topic.begin, place->topic, place->topic_size))
            break;
        if (place->queue_offset >= 0
            && (int64_t)load64(record + QUEUE_OFFSET) != place->queue_offset++)
            break;
        place->log_offset += size;
    }
    return count;
}

/*
 * Count the leading records of a queue that are as they were written, as prove_queued does, if
 * `count` of them lie back to back: from `record` on, `total` bytes. `entries` has their places in
 * the log. Their sizes go to `sizes`. 0 if they do not lie so, or the first one is damaged.
 */
EXPORTED uint32_t prove_entries(const uint8_t *entries, uint32_t count, const uint8_t *record,
                                uint32_t total, int64_t queue_offset, const struct place *queue,
                                crc32_function *crc32, uint8_t *sizes)
{
    struct place place = *queue;
    uint64_t end = load64(entries);
    place.log_offset = (int64_t)end;
    place.queue_offset = queue_offset;
    for (uint32_t row = 0; row < count; row++) {
        const uint8_t *const entry = entries + QUEUE_ENTRY_SIZE * (size_t)row;
        if (load64(entry) != end)
            return 0;
        memcpy(sizes + 4 * (size_t)row, entry + 8, 4);
        end += load32(entry + 8);
    }
    if (end != load64(entries) + total)
        return 0;
    return prove_queued(record, total, sizes, NULL, &place, crc32);
}

/* Neighbouring records of a run: one queue, one store time, hosts of the same families. */
struct run_batch {
    int64_t queue_offset;     /* of the first one; the others follow without a gap */
    int64_t store_timestamp;
    uint32_t begin, end;      /* in bytes, from the start of the stretch */
    uint32_t count;
    uint32_t queue_id;
    uint32_t hosts;           /* the bits of the sys flag that tell the hosts' families */
    uint32_t topic_at;        /* the place of the first one's topic in the stretch */
    uint32_t topic_size;
    uint32_t unused;
};

/* What a copied record says of itself; 0 if it is not plainly valid at its place. */
static int read_copied(const uint8_t *record, uint32_t left, int64_t log_offset,
                       crc32_function *crc32, struct run_batch *copied, struct value *topic)
{
    const uint32_t size = left < RECORD_SIZE_MIN ? 0 : load32(record);
    if (size < RECORD_SIZE_MIN + CHECKSUM_SIZE || size > left)
        return 0;
    *topic = topic_of(record, size);
    uint64_t number;
    if (!topic->begin || (int64_t)load64(record + LOG_OFFSET) != log_offset)
        return 0;
    const uint32_t sys_flag = load32(record + SYS_FLAG);
    copied->queue_offset = (int64_t)load64(record + QUEUE_OFFSET);
    copied->queue_id = load32(record + QUEUE_ID);
    copied->hosts = sys_flag & HOSTS_V6;
    const uint32_t born_host_size = sys_flag & BORN_HOST_V6 ? 8 + V6_SIZE : 8;
    copied->store_timestamp = (int64_t)load64(record + BORN_HOST + born_host_size);
    return copied->queue_offset >= 0 && (int32_t)copied->queue_id >= 0
           && !(sys_flag & PREPARED)
           && read_checksum(record + size - CHECKSUM_SIZE, &number)
           && number == checksum_of(record, size, crc32);
}

/*
 * Verify the records of a run's stretch of `total` bytes, and divide them into batches, at most
 * `room`. A record of the topic `single` is a batch of its own. Returns the number of batches: what
 * follows the last one is not plainly valid, or had no room.
 */
EXPORTED uint32_t divide_run(const uint8_t *stretch, uint32_t total, int64_t log_offset,
                             const uint8_t *single, uint32_t single_size, crc32_function *crc32,
                             struct run_batch *batches, uint32_t room)
{
    uint32_t count = 0;
    int is_open = 0; /* whether the last batch may go on */
    for (uint32_t at = 0, size; at < total; at += size) {
        const uint8_t *const record = stretch + at;
        struct run_batch copied = {0};
        struct value topic;
        if (!read_copied(record, total - at, log_offset + at, crc32, &copied, &topic))
            break;
        size = load32(record);
        const uint32_t topic_size = (uint32_t)(topic.end - topic.begin);
        struct run_batch *const last = count ? batches + count - 1 : batches;
        if (is_open && copied.queue_offset == last->queue_offset + last->count
            && copied.store_timestamp == last->store_timestamp
            && copied.queue_id == last->queue_id && copied.hosts == last->hosts
            && topic_size == last->topic_size
            && !memcmp(topic.begin, stretch + last->topic_at, topic_size)) {
            last->end = at + size;
            last->count++;
            continue;
        }
        if (count == room)
            break;
        copied.begin = at;
        copied.end = at + size;
        copied.count = 1;
        copied.topic_at = (uint32_t)(topic.begin - stretch);
        copied.topic_size = topic_size;
        batches[count++] = copied;
        is_open = topic_size != single_size || memcmp(topic.begin, single, single_size);
    }
    return count;
}

/*
 * Find the end of the last whole record within `bytes_max` of a segment's `total` bytes, but behind
 * the first record in any case. Only sizes and places are read: the records are not verified. Sets
 * `*next` to the size of the record that was too much, or to 0: the bytes end there, or what
 * follows is no record, which Python examines.
 */
EXPORTED uint32_t whole_records(const uint8_t *stretch, uint32_t total, int64_t log_offset,
                                uint32_t bytes_max, uint32_t *next)
{
    uint32_t at = 0;
    *next = 0;
    while (total - at >= LOG_OFFSET + 8) {
        const uint8_t *const record = stretch + at;
        const uint32_t size = load32(record), magic = load32(record + MAGIC);
        if ((magic != MAGIC_V1 && magic != MAGIC_V2) || size < RECORD_SIZE_MIN || size > total - at
            || (int64_t)load64(record + LOG_OFFSET) != log_offset + at)
            break;
        if (at && (at >= bytes_max || size > bytes_max - at)) {
            *next = size;
            break;
        }
        at += size;
    }
    return at;
}
