/* The inner loops of json.c: passing over the bytes of a string that stand for themselves, up to
 * the first quote, backslash, control character or byte beyond ASCII. */
#ifndef TRIAGE_BASE_JSON_PLAIN_H
#define TRIAGE_BASE_JSON_PLAIN_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Up to the first byte that does not stand for itself, or until less than a vector is left. Turning
 * bit 1 makes the quote 0x20 and leaves the control characters below it: so one signed comparison
 * finds quotes, control characters and bytes beyond ASCII, and only the backslash needs another. */
static inline const char *json_plain_vectors(const char *s, const char *end)
{
#ifdef __SSE2__
    const __m128i turn = _mm_set1_epi8(0x02), bound = _mm_set1_epi8(0x21);
    const __m128i backslash = _mm_set1_epi8('\\');
    for (size_t n = (size_t)(end - s) / sizeof(__m128i); n > 0; n--, s += sizeof(__m128i)) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)s);
        __m128i low = _mm_cmpgt_epi8(bound, _mm_xor_si128(bytes, turn));
        __m128i either = _mm_or_si128(low, _mm_cmpeq_epi8(bytes, backslash));
        unsigned found = (unsigned)_mm_movemask_epi8(either);
        if (found != 0)
            return s + __builtin_ctz(found);
    }
#else
    (void)end;
#endif
    return s;
}

/* Up to the first byte that does not stand for itself, or the end, by words of eight bytes. The
 * subtraction compares all bytes of a word at once, and answers in their high bits. A byte borrows
 * from the next one only when it was found itself: so the lowest bit that is found is right. */
static inline const char *json_plain(const char *s, const char *end)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t word;
    for (; end - s >= (ptrdiff_t)sizeof(word); s += sizeof(word)) {
        memcpy(&word, s, sizeof(word));
        word = le64toh(word);
        uint64_t low = (word ^ ones * 0x02) - ones * 0x21;
        uint64_t backslash = (word ^ ones * '\\') - ones;
        uint64_t found = (low | backslash | word) & ones * 0x80;
        if (found != 0)
            return s + __builtin_ctzll(found) / 8;
    }
    while (s < end && (signed char)*s >= 0x20 && *s != '"' && *s != '\\')
        s++;
    return s;
}

#endif
