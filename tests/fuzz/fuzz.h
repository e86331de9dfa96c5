/* What the fuzz targets share. An input is read from its front: choices first, then the bytes
 * that they are about. Every assert here and in the targets states a promise of some header. */
#ifndef TRIAGE_TESTS_FUZZ_H
#define TRIAGE_TESTS_FUZZ_H

#include "base/mem.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *at;
    size_t left;
};

/* 0 when nothing is left. */
static inline uint8_t input_byte(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

/* A copy of exactly this size, on the heap: the address sanitizer sees one byte too many. */
static inline char *exact_copy(const void *data, size_t len)
{
    char *copy = mem_alloc(len ? len : 1);
    if (len > 0)
        memcpy(copy, data, len);
    return copy;
}

static inline void assert_same(const void *a, size_t a_len, const void *b, size_t b_len)
{
    assert(a_len == b_len);
    assert(a_len == 0 || memcmp(a, b, a_len) == 0);
}

#endif
