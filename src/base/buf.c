#define _GNU_SOURCE /* mremap */
#include "base/buf.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE (1024 * 1024) /* a large buffer grows seldom, and spare memory costs much */

/* A buffer of this size is a mapping of its own, which the kernel can move when it grows. To copy
 * it instead would stop the thread: a body of 64 MiB that grows once more takes 50 ms. */
#define MAPPED (4 * 1024 * 1024)
#define PAGE   4096

void buf_fini(struct buf *b)
{
    if (b->cap >= MAPPED)
        munmap(b->data, b->cap);
    else
        free(b->data);
    *b = (struct buf){0};
}

static void *map_grow(const struct buf *b, size_t cap)
{
    if (b->cap >= MAPPED)
        return mremap(b->data, b->cap, cap, MREMAP_MAYMOVE);
    void *data = mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data != MAP_FAILED && b->len > 0)
        memcpy(data, b->data, b->len);
    if (data != MAP_FAILED)
        free(b->data);
    return data;
}

static void grow_mapped(struct buf *b, size_t cap)
{
    void *data = map_grow(b, cap);
    if (data == MAP_FAILED) {
        fprintf(stderr, "triage: out of memory asking for %zu bytes\n", cap);
        abort();
    }
    b->data = data;
    b->cap = cap;
}

void buf_grow(struct buf *b, size_t more)
{
    assert(more < SIZE_MAX / 4);
    assert(b->len <= b->cap);
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->len < more)
        cap += cap < LARGE ? cap : cap / 4;
    if (cap >= MAPPED) {
        grow_mapped(b, (cap + PAGE - 1) / PAGE * PAGE);
        return;
    }
    b->data = mem_realloc(b->data, cap);
    b->cap = cap;
    assert(b->cap - b->len >= more);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int need = vsnprintf(NULL, 0, fmt, args);
    assert(need >= 0);
    buf_reserve(b, (size_t)need + 1);
    vsnprintf(b->data + b->len, (size_t)need + 1, fmt, again);
    va_end(again);
    b->len += (size_t)need;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    buf_vprintf(b, fmt, args);
    va_end(args);
}

void buf_put_u64(struct buf *b, uint64_t value)
{
    char digits[20];
    size_t n = sizeof(digits);
    do {
        digits[--n] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    buf_put(b, digits + n, sizeof(digits) - n);
}

void buf_put_i64(struct buf *b, int64_t value)
{
    if (value < 0)
        buf_putc(b, '-');
    buf_put_u64(b, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

char *buf_cstr(struct buf *b)
{
    buf_reserve(b, 1);
    b->data[b->len] = '\0';
    return b->data;
}

char *buf_take(struct buf *b)
{
    buf_cstr(b);
    char *data = b->cap < MAPPED ? b->data : mem_dup(b->data, b->len);
    if (b->cap < MAPPED)
        *b = (struct buf){0};
    buf_fini(b);
    return data;
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    b->len -= n;
    if (b->len > 0 && n > 0)
        memmove(b->data, b->data + n, b->len);
}
