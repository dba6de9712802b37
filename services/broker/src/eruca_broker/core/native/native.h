/*
 * The loops over a batch's records, properties and keys, message by message, in C.
 *
 * What is here computes and nothing else: it keeps nothing but what the processor can, allocates
 * nothing, and knows no error but "not this one". Where a record or a text is not plainly right it stops and says at which; the
 * Python that called it then looks at that one, refuses it with its reasons or finds it good after
 * all and makes its text one that can be read, and calls again for what follows. So whatever decides
 * something stands in Python as well, and the tests hold the two against each other.
 *
 * Numbers in records and files are big-endian; what is shared with Python in memory is not.
 */
#ifndef ERUCA_NATIVE_H
#define ERUCA_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

/* As zlib's: the CRC of what came before and of `size` bytes more. */
typedef uint32_t crc32_function(uint32_t before, const uint8_t *data, uint64_t size);

/*
 * The CRC of `size` bytes, by ISA-L's function; the vector registers' upper halves are clean
 * afterwards, as ISA-L's function does not leave them.
 */
uint32_t crc32_of(const uint8_t *data, uint64_t size, crc32_function *crc32);

#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu

enum {
    /* Where a record's fields lie, from its start. */
    MAGIC = 4,
    BODY_CRC = 8,
    QUEUE_ID = 12,
    QUEUE_OFFSET = 20,
    LOG_OFFSET = 28,
    SYS_FLAG = 36,
    BORN_TIMESTAMP = 40,

    PROPERTIES_HEAD_SIZE = 2 /* bytes of the properties' length */
};

/* What every record of a request must say. */
struct expected {
    const uint8_t *topic;         /* its length in one byte, then its name */
    crc32_function *crc32;
    int64_t born_timestamp_max;   /* ms */
    uint32_t topic_size;          /* bytes of `topic` */
    uint32_t body_at;             /* bytes of a record before its body */
    uint32_t body_size_max;
    uint32_t properties_size_max;
    uint32_t queue_id;
    uint32_t sys_flag_mask;       /* bits of the sys flag that must be … */
    uint32_t sys_flag;            /* … as here */
    uint32_t key_hash_start;      /* the hash of "topic#", which precedes every key */
    uint32_t key_size_max; /* bytes; what may have a longer key, or tag, needs Python */
};

/* Where the next record of a queue must say that it lies. */
struct place {
    const uint8_t *topic;  /* its name alone */
    int64_t log_offset;
    int64_t queue_offset;  /* negative: unknown, for messages between them were left out */
    uint32_t topic_size;
    uint32_t queue_id;
};

/* What a reader has found; `key_room` keys have their place behind the records. */
struct found {
    uint32_t count;               /* records read so far */
    uint32_t key_count;           /* … and keys */
    uint32_t key_room;
    uint32_t unused;
    struct found_record {
        int64_t tag_code;         /* 0 without a tag */
        uint32_t end;             /* of the record, counted from the first one's start */
        uint32_t properties_size; /* bytes, at the record's end */
    } records[];
};

struct found_key {
    int32_t hash;                 /* |hash("topic#key")| */
    uint32_t record;              /* its number, or where it starts, as the reader says */
};

/* What matters here of a message's properties. */
struct properties {
    struct value {
        const uint8_t *begin, *end;
    } tag, unique_id, keys;
    int may_ask_for_delay;
};

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BIG_ENDIAN32(value) (value)
#define BIG_ENDIAN64(value) (value)
#else
#define BIG_ENDIAN32(value) __builtin_bswap32(value)
#define BIG_ENDIAN64(value) __builtin_bswap64(value)
#endif

static inline uint32_t load16(const uint8_t *at)
{
    return (uint32_t)(at[0] << 8 | at[1]);
}

static inline uint32_t load32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return BIG_ENDIAN32(value);
}

static inline uint64_t load64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return BIG_ENDIAN64(value);
}

static inline void store32(uint8_t *at, uint32_t value)
{
    value = BIG_ENDIAN32(value);
    memcpy(at, &value, sizeof value);
}

static inline void store64(uint8_t *at, uint64_t value)
{
    value = BIG_ENDIAN64(value);
    memcpy(at, &value, sizeof value);
}

/*
 * The checksum that ends a record: of all that precedes it, in decimal digits, the lowest first.
 *
 * Source: RocketMQ 5.3, MessageDecoder.createCrc32, CommitLog.CRC32_RESERVED_LEN.
 */
#define CRC_MASK 0x7FFFFFFFu
#define CHECKSUM_SIZE 20

/* Whether a record ends in the room for its checksum. */
int has_checksum_room(const uint8_t *record, uint32_t size);

/* Write the checksum of a record that has room for it; tells whether it has. */
int write_checksum(uint8_t *record, uint32_t size, crc32_function *crc32);

/* Find the properties that matter in a text, whatever it holds. */
struct properties find_properties(const uint8_t *text, uint32_t size);

/*
 * Hash tag and keys, and note them for the next record, whose keys belong to `record`. Keys go to
 * `keys`. Returns 0, and notes nothing, where Python must: a value is no UTF-8, or room is lacking.
 */
int hash_properties(const struct properties *properties, uint32_t key_hash_start, uint32_t record,
                    struct found *found, struct found_key *keys);

#endif
