/* A growing run of bytes that travels with its length. Not a string: there is
 * no terminator unless buf_cstr() puts one. A zeroed struct is an empty buf.
 * Growth that fails aborts: sizes from outside meet limits.h before they come here. */
#ifndef TRIAGE_BASE_BUF_H
#define TRIAGE_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
    char *data; /* owned; NULL while cap is 0 */
    size_t len;
    size_t cap;
};

void buf_fini(struct buf *b);              /* frees; the buf is empty again */
void buf_grow(struct buf *b, size_t more); /* room for `more` bytes past len */
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list args);
void buf_put_u64(struct buf *b, uint64_t value); /* decimal digits */
void buf_put_i64(struct buf *b, int64_t value);
char *buf_cstr(struct buf *b); /* terminates without counting the NUL; valid until the next write */
char *buf_take(struct buf *b); /* NUL-terminated memory changes owner; the buf is empty again */
void buf_consume(struct buf *b, size_t n); /* drops n bytes from the front */

static inline void buf_reserve(struct buf *b, size_t more)
{
    if (b->cap - b->len < more)
        buf_grow(b, more);
}

static inline void buf_put(struct buf *b, const void *data, size_t len)
{
    buf_reserve(b, len);
    if (len > 0)
        memcpy(b->data + b->len, data, len);
    b->len += len;
}

static inline void buf_putc(struct buf *b, char c)
{
    buf_reserve(b, 1);
    b->data[b->len++] = c;
}

static inline void buf_puts(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

static inline void buf_clear(struct buf *b)
{
    b->len = 0;
}

/* For string literals: the length is known at compile time. */
#define buf_lit(b, literal) buf_put((b), "" literal, sizeof(literal) - 1)

#endif
