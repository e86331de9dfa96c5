/* UTF-8 as the Unicode standard defines it: no overlong forms, no surrogates, nothing past
 * U+10FFFF. */
#ifndef TRIAGE_BASE_UTF8_H
#define TRIAGE_BASE_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool utf8_valid(const char *s, size_t len);

/* `s` points at a byte beyond ASCII, with `left` > 0 bytes from there on. The length of the
 * well-formed sequence that starts there, or 0 when there is none. */
size_t utf8_sequence(const char *s, size_t left);

/* Appends the character; code is at most 0x10FFFF and no surrogate. */
void utf8_put(struct buf *out, uint32_t code);

#endif
