#include "base/siphash.h"

#include <endian.h>
#include <string.h>

/* Inlined: frames of the log and names are so short that a call would cost more than the work. */
#define INLINE static inline __attribute__((always_inline))

struct state {
    uint64_t v0, v1, v2, v3;
};

INLINE uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

INLINE void rounds(struct state *s, int count)
{
    for (int i = 0; i < count; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 = rotate(s->v0, 32) + s->v3;
        s->v2 += s->v1;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 = rotate(s->v2, 32);
    }
}

/* Eight bytes, little endian, as the paper has it. */
INLINE uint64_t word(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

/* The last bytes, fewer than eight. */
INLINE uint64_t rest(const uint8_t *at, size_t len)
{
    uint64_t value = 0;
    for (size_t i = len; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

INLINE void take(struct state *s, uint64_t m, int count)
{
    s->v3 ^= m;
    rounds(s, count);
    s->v0 ^= m;
}

INLINE uint64_t digest(const uint8_t key[SIPHASH_KEY_BYTES], const void *data, size_t len,
                       int each_word, int at_the_end)
{
    uint64_t k0 = word(key), k1 = word(key + 8);
    struct state s = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
                      k1 ^ 0x7465646279746573};
    const uint8_t *at = data;
    size_t left = len;
    for (; left >= 8; at += 8, left -= 8)
        take(&s, word(at), each_word);
    take(&s, rest(at, left) | (uint64_t)len << 56, each_word);
    s.v2 ^= 0xff;
    rounds(&s, at_the_end);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t siphash(const uint8_t key[SIPHASH_KEY_BYTES], const void *data, size_t len)
{
    return digest(key, data, len, 2, 4);
}

uint64_t siphash_map(const uint8_t key[SIPHASH_KEY_BYTES], const void *data, size_t len)
{
    return digest(key, data, len, 1, 3);
}
