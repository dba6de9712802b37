/*
 * Which pages of a mapped file are in memory. The only system call of this library; it never waits.
 */
#define _DEFAULT_SOURCE
#include "native.h"
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES_MAX = 4096 /* asked about at a time */ };

/*
 * How far the bytes of a mapping from `begin` up to `end` are in memory without a gap; `begin` if the
 * first one is not. Both count from `mapping`.
 */
EXPORTED uint64_t in_memory_until(const uint8_t *mapping, uint64_t begin, uint64_t end)
{
    unsigned char pages[PAGES_MAX];
    const uint64_t page_size = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t at = begin - begin % page_size;
    while (at < end) {
        uint64_t count = (end - at + page_size - 1) / page_size;
        if (count > PAGES_MAX)
            count = PAGES_MAX;
        /* If the kernel does not tell, reading them is the only way to find out. */
        if (mincore((void *)(mapping + at), count * page_size, pages))
            return end;
        for (uint64_t page = 0; page < count; page++)
            if (!(pages[page] & 1)) {
                const uint64_t missing = at + page * page_size;
                return missing > begin ? missing : begin;
            }
        at += count * page_size;
    }
    return end;
}
