/*
 * ISA-L's CRC, called so that later instructions are not slowed down.
 *
 * ISA-L computes with 256 or 512 bits of a vector register and returns without `vzeroupper`, which
 * the x86-64 calling convention leaves to the callee. From then on each SSE instruction must merge
 * its result with an unused upper half. The loops here do not use SSE themselves, but compilers use
 * it for copies, comparisons and digits. After a CRC with 512 bits such a record took 0.2 us
 * longer, three times as long as the CRC itself.
 *
 * Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, "Mixing AVX and SSE".
 */
#include "native.h"

#ifdef __x86_64__
#include <cpuid.h>

enum { OSXSAVE_AND_AVX = 3 << 27 }; /* bits of ECX: the system saves the registers, and has AVX */

static int has_avx;

/* Once and not at each call, because CPUID takes a microsecond in a virtual machine. */
__attribute__((constructor)) static void ask_processor(void)
{
    uint32_t a, b, c, d;
    has_avx = __get_cpuid(1, &a, &b, &c, &d) && (c & OSXSAVE_AND_AVX) == OSXSAVE_AND_AVX;
}

static void clean_upper_halves(void)
{
    if (has_avx)
        __asm__ volatile("vzeroupper" ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
                         "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                         "xmm15");
}
#else
static void clean_upper_halves(void)
{
}
#endif

uint32_t crc32_of(const uint8_t *data, uint64_t size, crc32_function *crc32)
{
    const uint32_t crc = crc32(0, data, size);
    clean_upper_halves();
    return crc;
}
