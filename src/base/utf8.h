/* UTF-8 as the Unicode standard defines it: no overlong forms, no surrogates, nothing past
 * U+10FFFF. */
#ifndef TRIAGE_BASE_UTF8_H
#define TRIAGE_BASE_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool utf8_valid(const char *s, size_t len);

/* The length of the well-formed sequence that starts with the byte beyond ASCII at s, or 0 when
 * there is none in the `left` bytes from there; left > 0. */
size_t utf8_sequence(const char *s, size_t left);

/* Appends the character; code is at most 0x10FFFF and no surrogate. */
void utf8_put(struct buf *out, uint32_t code);

#endif
