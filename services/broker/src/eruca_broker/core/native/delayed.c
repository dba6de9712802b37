/*
 * Records that request a delivery time: verified, and rewritten as they wait for it; and the
 * delivery times of waiting records, for their queue.
 *
 * Source: RocketMQ 5.3, HookUtils.handleScheduleMessage, TimerMessageStore.convert.
 */
#include "native.h"

enum {
    TIME_DIGITS_MAX = 18, /* of a number that fits into 64 bits, and so does any sum of two */
    QUEUE_OF_TIMERS = 0
};

/* Whether the property from `at` to `end` begins so. */
#define BEGINS_WITH(name) \
    (end - at >= (ptrdiff_t)sizeof name - 1 && !memcmp(at, name, sizeof name - 1))

/* Whether a property may be one of those that a waiting record does not keep. */
static int may_be_left_out(const uint8_t *at, const uint8_t *end)
{
    return BEGINS_WITH("DELAY") || BEGINS_WITH("TIMER_") || BEGINS_WITH("REAL_")
           || BEGINS_WITH("__CRC32#");
}

static int read_number(const uint8_t *at, const uint8_t *end, int64_t *number)
{
    if (at >= end || end - at > TIME_DIGITS_MAX)
        return 0;
    int64_t found = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        found = found * 10 + (*at - '0');
    }
    *number = found;
    return 1;
}

/* The delivery time that the property from `at` to `end` requests; 0 if Python must read it. */
static int read_request(const uint8_t *at, const uint8_t *end, int64_t now_ms, int64_t *deliver_ms)
{
    static const char since_now[] = "TIMER_DELAY_MS\1", since_epoch[] = "TIMER_DELIVER_MS\1";
    if (BEGINS_WITH("TIMER_DELIVER_MS\1"))
        return read_number(at + sizeof since_epoch - 1, end, deliver_ms);
    if (!BEGINS_WITH("TIMER_DELAY_MS\1")
        || !read_number(at + sizeof since_now - 1, end, deliver_ms))
        return 0;
    *deliver_ms += now_ms;
    return 1;
}

/*
 * Find the request of a delivery time, which must be the last property before the room for the
 * checksum, and the only one that a waiting record does not keep. 0 if Python must do it: also if
 * the record would not wait, or would wait too long.
 */
static int find_request(struct value text, const struct delay *delay, const uint8_t **request,
                        int64_t *deliver_ms)
{
    const uint8_t *const texts_end = text.end - CHECKSUM_SIZE;
    for (const uint8_t *at = text.begin, *end; at < texts_end; at = end + 1) {
        end = memchr(at, PROPERTY_END, (size_t)(texts_end - at));
        if (!end || end == at)
            return 0;
        if (may_be_left_out(at, end)) {
            *request = at;
            return end + 1 == texts_end && read_request(at, end, delay->now_ms, deliver_ms)
                   && *deliver_ms > delay->now_ms && *deliver_ms <= delay->deliver_ms_max;
        }
    }
    return 0;
}

static uint8_t *append(uint8_t *to, const uint8_t *from, size_t size)
{
    memcpy(to, from, size);
    return to + size;
}

/*
 * Verify the `count` records of a batch, as prove_records does, each of which requests a delivery
 * time, and write them to `waiting` as they wait for it. Returns the number of records that were
 * plainly valid: if it is not `count`, Python does all of them.
 */
EXPORTED uint32_t delay_records(const uint8_t *sizes, const uint8_t *records, uint32_t total,
                                uint32_t count, const struct expected *expected,
                                const struct delay *delay, uint8_t *waiting, struct found *found)
{
    struct found_key *const keys = (struct found_key *)(found->records + count);
    const uint8_t *record = records;
    uint8_t *to = waiting;
    while (found->count < count) {
        const uint32_t row = found->count, left = total - (uint32_t)(record - records);
        const uint32_t size = load32(sizes + 4 * (size_t)row);
        struct value text;
        if (size > left || (row == count - 1 && size < left)
            || !prove(record, size, expected, &text))
            break;
        const uint8_t *request;
        int64_t deliver_ms;
        const struct properties properties =
            find_properties(text.begin, (uint32_t)(text.end - text.begin));
        if (!is_plain(text, &properties, expected)
            || !find_request(text, delay, &request, &deliver_ms))
            break;

        uint8_t digits[TIME_DIGITS_MAX + 2];
        uint32_t digits_at = sizeof digits;
        digits[--digits_at] = PROPERTY_END;
        for (int64_t rest = deliver_ms; rest; rest /= 10)
            digits[--digits_at] = (uint8_t)('0' + rest % 10);
        const uint32_t digits_size = (uint32_t)sizeof digits - digits_at;
        const uint32_t kept_size = (uint32_t)(request - text.begin);
        const uint32_t text_size = kept_size + delay->added_size + digits_size + CHECKSUM_SIZE;
        if (text_size > expected->properties_size_max)
            break;

        uint8_t *const first = to;
        const uint32_t body_end = expected->body_at + load32(record + expected->body_at - 4);
        to = append(to, record, body_end);
        to = append(to, delay->topic, delay->topic_size);
        *to++ = (uint8_t)(text_size >> 8);
        *to++ = (uint8_t)text_size;
        const uint8_t *const text_begin = to;
        to = append(to, text.begin, kept_size);
        to = append(to, delay->added, delay->added_size);
        to = append(to, digits + digits_at, digits_size);
        to = append(to, text.end - CHECKSUM_SIZE, CHECKSUM_SIZE);
        store32(first, (uint32_t)(to - first));
        store32(first + QUEUE_ID, QUEUE_OF_TIMERS);
        if (!note((struct value){text_begin, to}, (uint32_t)(first - waiting),
                  (uint32_t)(to - first), delay->key_hash_start, &properties, found, keys))
            break;
        record += size;
    }
    return found->count;
}

/*
 * Write the delivery times of waiting records, from number `row` on, into their queue's entries,
 * in place of a tag's code. Returns the number of the record that Python must read, or `count`.
 */
EXPORTED uint32_t enter_times(const uint8_t *records, uint32_t row, uint32_t count,
                              const struct found *found, uint8_t *entries)
{
    static const char name[] = "TIMER_OUT_MS\1";
    for (; row < count; row++) {
        const uint8_t *const text_end = records + found->records[row].end;
        struct value time = {0};
        for (const uint8_t *at = text_end - found->records[row].properties_size, *end;
             at < text_end; at = end + 1) {
            end = memchr(at, PROPERTY_END, (size_t)(text_end - at));
            if (!end)
                end = text_end;
            if (BEGINS_WITH("TIMER_OUT_MS\1") && end - at >= (ptrdiff_t)sizeof name)
                time = (struct value){at + sizeof name - 1, end};
        }
        int64_t deliver_ms;
        if (!read_number(time.begin, time.end, &deliver_ms))
            break;
        store64(entries + QUEUE_ENTRY_SIZE * (size_t)row + 12, (uint64_t)deliver_ms);
    }
    return row;
}
