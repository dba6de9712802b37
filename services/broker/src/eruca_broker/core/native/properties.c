/*
 * Tag and keys of a message, from the text of its properties: name 1 value 2 name 1 value 2 …
 *
 * RocketMQ's rules: a property without a value does not count. Of several with one name the last
 * one counts. The last property needs no 2 behind it. Hashes are Java's, over UTF-16 units.
 *
 * Source: RocketMQ 5.3, MessageDecoder.string2messageProperties, IndexService.buildIndex,
 * MessageExtBrokerInner.tagsString2tagsCode; Java's String.hashCode.
 */
#include "native.h"

#define KEY_SEPARATOR ' '

#define POWER1 31u
#define POWER2 (POWER1 * POWER1)
#define POWER4 (POWER2 * POWER2)
#define POWER8 (POWER4 * POWER4)

#define BEYOND_ASCII 0x8080808080808080u

/* The hash of eight ASCII characters, the first one in the highest byte. */
static inline uint32_t hash_eight(uint64_t word)
{
    const uint64_t bytes = 0x00FF00FF00FF00FFu, pairs = 0x0000FFFF0000FFFFu;
    /* Neighbours become one number, three times; none exceeds the room of two. */
    word = (word >> 8 & bytes) * POWER1 + (word & bytes);
    word = (word >> 16 & pairs) * POWER2 + (word & pairs);
    return (uint32_t)(word >> 32) * POWER4 + (uint32_t)word;
}

/* The length of the character that begins at `at`, and its code; 0 if it is not UTF-8. */
static int decode(const uint8_t *at, const uint8_t *end, uint32_t *character)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t found = *at;
    if (found < 0x80) {
        *character = found;
        return 1;
    }
    const int size = found >> 5 == 6 ? 2 : found >> 4 == 14 ? 3 : found >> 3 == 30 ? 4 : 0;
    if (!size || end - at < size)
        return 0;
    found &= 0x7Fu >> size;
    for (int next = 1; next < size; next++) {
        if ((at[next] & 0xC0) != 0x80)
            return 0;
        found = found << 6 | (at[next] & 0x3F);
    }
    if (found < smallest[size] || found > 0x10FFFF || (found >= 0xD800 && found < 0xE000))
        return 0;
    *character = found;
    return size;
}

/* Continue `*hash` over a text; return 0 if it is not UTF-8. */
static int hash_text(uint32_t *hash, const uint8_t *at, const uint8_t *end)
{
    uint32_t result = *hash, character = 0;
    while (at < end) {
        if (end - at >= 8) {
            const uint64_t word = load64(at);
            if (!(word & BEYOND_ASCII)) {
                result = result * POWER8 + hash_eight(word);
                at += 8;
                continue;
            }
        }
        const int size = decode(at, end, &character);
        if (!size)
            return 0;
        at += size;
        if (character >= 0x10000) {
            character -= 0x10000;
            result = result * POWER1 + (0xD800 | character >> 10);
            character = 0xDC00 | (character & 0x3FF);
        }
        result = result * POWER1 + character;
    }
    *hash = result;
    return 1;
}

static int add_key(struct value key, uint32_t hash, uint32_t record, struct found *found,
                   struct found_key *keys)
{
    if (found->key_count == found->key_room || !hash_text(&hash, key.begin, key.end))
        return 0;
    /* As in Java, the smallest number has no magnitude: it becomes 0. */
    const uint32_t magnitude = hash & 0x80000000u ? 0u - hash : hash;
    keys[found->key_count++] = (struct found_key){(int32_t)(magnitude & 0x7FFFFFFFu), record};
    return 1;
}

/* Whether the property from `at` to `end` has this name, NAME_END included, and a value. */
#define IS(name) (end - at >= (ptrdiff_t)sizeof name && !memcmp(at, name, sizeof name - 1))
#define VALUE_AFTER(name) ((struct value){at + sizeof name - 1, end})

struct properties find_properties(const uint8_t *text, uint32_t size)
{
    struct properties found = {0};
    const uint8_t *const text_end = text + size;
    for (const uint8_t *at = text, *end; at < text_end; at = end + 1) {
        end = memchr(at, PROPERTY_END, (size_t)(text_end - at));
        if (!end)
            end = text_end;
        if (IS("TAGS\1"))
            found.tag = VALUE_AFTER("TAGS\1");
        else if (IS("KEYS\1"))
            found.keys = VALUE_AFTER("KEYS\1");
        else if (IS("UNIQ_KEY\1"))
            found.unique_id = VALUE_AFTER("UNIQ_KEY\1");
        else if (IS("DELAY") || IS("TIMER_DEL"))
            found.may_ask_for_delay = 1;
    }
    return found;
}

static int add_keys(const struct properties *properties, uint32_t hash_start, uint32_t record,
                    struct found *found, struct found_key *keys)
{
    const struct value unique_id = properties->unique_id, several = properties->keys;
    if (unique_id.begin && !add_key(unique_id, hash_start, record, found, keys))
        return 0;
    for (struct value key = several; key.begin < several.end; key.begin = key.end + 1) {
        key.end = memchr(key.begin, KEY_SEPARATOR, (size_t)(several.end - key.begin));
        if (!key.end)
            key.end = several.end;
        if (key.begin < key.end && !add_key(key, hash_start, record, found, keys))
            return 0;
    }
    return 1;
}

int hash_properties(const struct properties *properties, uint32_t key_hash_start, uint32_t record,
                    struct found *found, struct found_key *keys)
{
    const uint32_t key_count = found->key_count;
    uint32_t tag_hash = 0;
    if (!hash_text(&tag_hash, properties->tag.begin, properties->tag.end)
        || !add_keys(properties, key_hash_start, record, found, keys)) {
        found->key_count = key_count;
        return 0;
    }
    found->records[found->count++].tag_code = (int32_t)tag_hash;
    return 1;
}

/*
 * Read the properties of `count` messages, anywhere in a buffer; keys belong to a record's number.
 * Returns the number of messages read: the next one needs Python.
 */
EXPORTED uint32_t read_properties(const uint8_t *buffer, const int64_t *starts,
                                  const int64_t *sizes, const uint32_t *key_hash_starts,
                                  uint32_t count, struct found *found)
{
    struct found_key *const keys = (struct found_key *)(found->records + count);
    while (found->count < count) {
        const uint32_t row = found->count;
        const struct properties properties =
            find_properties(buffer + starts[row], (uint32_t)sizes[row]);
        if (!hash_properties(&properties, key_hash_starts[row], row, found, keys))
            break;
    }
    return found->count;
}

/*
 * Read the properties of one more message into the next of `count` records; keys belong to
 * `record`. Returns whether this was possible.
 */
EXPORTED uint32_t read_text(const uint8_t *text, uint32_t size, uint32_t key_hash_start,
                            uint32_t record, uint32_t count, struct found *found)
{
    const struct properties properties = find_properties(text, size);
    return (uint32_t)hash_properties(&properties, key_hash_start, record, found,
                                     (struct found_key *)(found->records + count));
}
