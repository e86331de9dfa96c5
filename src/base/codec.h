/* Text encodings of bytes: base64 (RFC 4648), percent-encoding (RFC 3986) and
 * query strings. Strict: what is not well formed is refused, never guessed at. */
#ifndef TRIAGE_BASE_CODEC_H
#define TRIAGE_BASE_CODEC_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* The standard alphabet, padded. */
void base64_put(struct buf *out, const void *data, size_t len);

/* Bytes that `len` characters decode to, at most. */
static inline size_t base64_room(size_t len)
{
    return len / 4 * 3;
}

/* `out` has base64_room(len) bytes. False when the text has a stray character, lacks its padding
 * or has bits set that no byte uses. */
bool base64_decode(const char *text, size_t len, char *out, size_t *out_len);

/* Decodes %XX in place, and '+' to a blank when `plus` is set. False when a '%' is not followed by
 * two hexadecimal digits. */
bool percent_decode(char *text, size_t *len, bool plus);

struct query_pair {
    const char *key;
    size_t key_len;
    const char *value; /* empty when there is no '=' */
    size_t value_len;
};

enum query_step { QUERY_END, QUERY_PAIR, QUERY_MALFORMED };

/* Takes the next pair off the text between *at and end, decoding it in place; empty pairs are
 * skipped. The pair borrows the text. */
enum query_step query_next(char **at, char *end, struct query_pair *pair);

#endif
