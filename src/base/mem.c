#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p, size_t size)
{
    if (!p) {
        fprintf(stderr, "triage: out of memory asking for %zu bytes\n", size);
        abort();
    }
    return p;
}

void *mem_alloc(size_t size)
{
    return checked(malloc(size ? size : 1), size);
}

void *mem_zalloc(size_t size)
{
    return checked(calloc(1, size ? size : 1), size);
}

void *mem_realloc(void *old, size_t size)
{
    return checked(realloc(old, size ? size : 1), size);
}

void *mem_dup(const void *data, size_t len)
{
    char *copy = mem_alloc(len + 1);
    if (len > 0)
        memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}
