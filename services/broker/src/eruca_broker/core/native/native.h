/*
 * The loops over a batch's records, properties and keys, message by message, in C.
 *
 * These functions only compute; those of pages.c ask the kernel. They hold no memory, allocate nothing, and know one error: "not
 * this one". If a record or a text is not plainly valid, they stop and return its number. The
 * calling Python then examines it. It refuses it with the reason, or finds it valid and makes its
 * text readable, and calls again for the rest. So every decision exists in Python as well, and
 * tests compare the two.
 *
 * Numbers in records and files are big-endian; numbers shared with Python in memory are not.
 */
#ifndef ERUCA_NATIVE_H
#define ERUCA_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

/* As zlib's: the CRC of the bytes before, continued over `size` more bytes. */
typedef uint32_t crc32_function(uint32_t before, const uint8_t *data, uint64_t size);

/*
 * The CRC of `size` bytes, by ISA-L's function. It cleans the vector registers' upper halves
 * afterwards, which ISA-L's function does not.
 */
uint32_t crc32_of(const uint8_t *data, uint64_t size, crc32_function *crc32);

#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu

enum {
    /* The places of a record's fields, from its start. */
    MAGIC = 4,
    BODY_CRC = 8,
    QUEUE_ID = 12,
    QUEUE_OFFSET = 20,
    LOG_OFFSET = 28,
    SYS_FLAG = 36,
    BORN_TIMESTAMP = 40,
    BORN_HOST = 48,

    PROPERTIES_HEAD_SIZE = 2, /* bytes of the properties' length */
    QUEUE_ENTRY_SIZE = 20     /* bytes of a consume queue's entry */
};

#define PROPERTY_END 2

/* The values that every record of a request must have. */
struct expected {
    const uint8_t *topic;         /* its length in one byte, then its name */
    crc32_function *crc32;
    int64_t born_timestamp_max;   /* ms */
    uint32_t topic_size;          /* bytes of `topic` */
    uint32_t body_at;             /* bytes of a record before its body */
    uint32_t body_bytes_max;
    uint32_t properties_size_max;
    uint32_t queue_id;
    uint32_t sys_flag_mask;       /* bits of the sys flag that must be … */
    uint32_t sys_flag;            /* … as here */
    uint32_t key_hash_start;      /* the hash of "topic#", which precedes every key */
    uint32_t key_size_max; /* bytes; a text with a longer key or tag needs Python */
};

/* The place that the next record of a queue must name as its own. */
struct place {
    const uint8_t *topic;  /* only its name */
    int64_t log_offset;
    int64_t queue_offset;  /* negative: unknown, because messages between them were omitted */
    uint32_t topic_size;
    uint32_t queue_id;
};

/* The additions to the records of a batch that wait for their delivery times. */
struct delay {
    const uint8_t *topic;     /* in which they wait: its length in one byte, then its name */
    const uint8_t *added;     /* properties, up to the digits of the delivery time */
    int64_t now_ms;
    int64_t deliver_ms_max;   /* later ones need Python */
    uint32_t topic_size;      /* bytes of `topic` */
    uint32_t added_size;      /* … and of `added` */
    uint32_t key_hash_start;  /* as in `expected`, for `topic` */
};

/* A reader's results; behind the records there is room for `key_room` keys. */
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
    uint32_t record;              /* its number or its start, as the reader decides */
};

/* The properties of a message that matter here. */
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
 * The checksum at the end of a record: of everything before it, in decimal digits, lowest first.
 *
 * Source: RocketMQ 5.3, MessageDecoder.createCrc32, CommitLog.CRC32_RESERVED_LEN.
 */
#define CRC_MASK 0x7FFFFFFFu
#define CHECKSUM_SIZE 20

/* Whether a record ends in the room for its checksum. */
int has_checksum_room(const uint8_t *record, uint32_t size);

/* Write the checksum of a record if it has room for one; return whether it has. */
int write_checksum(uint8_t *record, uint32_t size, crc32_function *crc32);

/* Find the properties that matter in a text with any content. */
struct properties find_properties(const uint8_t *text, uint32_t size);

/*
 * Hash tag and keys, and store them for the next record, whose keys belong to `record`. Keys go to
 * `keys`. Returns 0 and stores nothing if Python must do it: a value is not UTF-8, or room is
 * short.
 */
int hash_properties(const struct properties *properties, uint32_t key_hash_start, uint32_t record,
                    struct found *found, struct found_key *keys);

/* Whether a record of a request is valid; sets the place of its properties. */
int prove(const uint8_t *record, uint32_t size, const struct expected *expected,
          struct value *text);

/* Whether keys, tag and unique id of a record with these properties need no Python. */
int is_plain(struct value text, const struct properties *properties,
             const struct expected *expected);

/* Store the next record, which is at `start`; 0 if Python must do it. */
int note(struct value text, uint32_t start, uint32_t size, uint32_t key_hash_start,
         const struct properties *properties, struct found *found, struct found_key *keys);

#endif
