/* The fields that records and keys are made of: big endian, lengths before texts. A decoder
 * remembers in `ok` whether it ran over the end or met a value that this code never writes; the
 * values that it gives after that mean nothing. Private to key.c and the record files. */
#ifndef TRIAGE_ENGINE_LOCAL_FIELD_H
#define TRIAGE_ENGINE_LOCAL_FIELD_H

#include "base/buf.h"
#include "base/limits.h"
#include "core/message.h"

#include <assert.h>
#include <string.h>

/* Formats 1 (no escalations, aging or in-flight limits) and 2 (no peaks of the clock) are still
 * read. */
#define FORMAT 3

/* Times sort as their bytes do. */
static inline uint64_t time_bias(int64_t ms)
{
    assert(ms >= -TIME_MS_MAX - 1);
    assert(ms <= TIME_MS_MAX);
    return (uint64_t)(ms + TIME_MS_MAX + 1);
}

static inline int64_t time_unbias(uint64_t biased)
{
    return (int64_t)biased - TIME_MS_MAX - 1;
}

/* Writing */

static inline void put_be(struct buf *out, uint64_t value, size_t width)
{
    buf_reserve(out, width);
    for (size_t i = width; i-- > 0; value >>= 8)
        out->data[out->len + i] = (char)value;
    out->len += width;
}

static inline void put_text(struct buf *out, const char *text, size_t len)
{
    put_be(out, len, 2);
    buf_put(out, text, len);
}

static inline void put_double(struct buf *out, double value)
{
    uint64_t bits;
    static_assert(sizeof(bits) == sizeof(value), "a double is eight bytes");
    memcpy(&bits, &value, sizeof(bits));
    put_be(out, bits, 8);
}

/* Reading */

struct decoder {
    const uint8_t *at, *end;
    bool ok;
    uint8_t format; /* of a value, once get_format() was called */
};

static inline struct decoder decoder_of(const char *data, size_t len)
{
    return (struct decoder){
        .at = (const uint8_t *)data, .end = (const uint8_t *)data + len, .ok = true};
}

static inline uint64_t get_be(struct decoder *r, size_t width)
{
    if ((size_t)(r->end - r->at) < width) {
        r->ok = false;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value = value << 8 | *r->at++;
    return value;
}

static inline bool get_format(struct decoder *r)
{
    r->format = (uint8_t)get_be(r, 1);
    if (r->format < 1 || r->format > FORMAT)
        r->ok = false;
    return r->ok;
}

static inline const char *get_bytes(struct decoder *r, size_t len)
{
    if ((size_t)(r->end - r->at) < len) {
        r->ok = false;
        return NULL;
    }
    const char *bytes = (const char *)r->at;
    r->at += len;
    return bytes;
}

static inline bool get_bool(struct decoder *r)
{
    uint64_t value = get_be(r, 1);
    if (value > 1)
        r->ok = false;
    return value == 1;
}

static inline void get_text(struct decoder *r, char *out, size_t size)
{
    size_t len = get_be(r, 2);
    const char *text = len < size ? get_bytes(r, len) : NULL;
    if (!text || memchr(text, '\0', len)) {
        r->ok = false;
        return;
    }
    memcpy(out, text, len);
    out[len] = '\0';
}

static inline double get_double(struct decoder *r)
{
    uint64_t bits = get_be(r, 8);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline bool at_end(const struct decoder *r)
{
    return r->ok && r->at == r->end;
}

static inline void get_place(struct decoder *r, struct message_id *id)
{
    id->slot = (uint8_t)get_be(r, 1);
    id->ready_ms = time_unbias(get_be(r, 6));
    id->seq = get_be(r, 6);
}

#endif
