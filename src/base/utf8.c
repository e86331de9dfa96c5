#include "base/utf8.h"

static bool within(unsigned char c, unsigned char low, unsigned char high)
{
    return c >= low && c <= high;
}

/* The first byte gives the length and bounds the second (Unicode 15, table 3-7). */
size_t utf8_sequence(const char *s, size_t left)
{
    const unsigned char *u = (const unsigned char *)s;
    unsigned char low = 0x80, high = 0xbf;
    if (u[0] < 0xe0)
        return u[0] >= 0xc2 && left >= 2 && within(u[1], low, high) ? 2 : 0;
    if (u[0] < 0xf0) {
        if (u[0] == 0xe0)
            low = 0xa0;
        else if (u[0] == 0xed)
            high = 0x9f;
        return left >= 3 && within(u[1], low, high) && within(u[2], 0x80, 0xbf) ? 3 : 0;
    }
    if (u[0] == 0xf0)
        low = 0x90;
    else if (u[0] == 0xf4)
        high = 0x8f;
    return u[0] <= 0xf4 && left >= 4 && within(u[1], low, high) && within(u[2], 0x80, 0xbf) &&
                   within(u[3], 0x80, 0xbf)
               ? 4
               : 0;
}

bool utf8_valid(const char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint64_t word;
        if (len - i >= sizeof(word)) {
            memcpy(&word, s + i, sizeof(word));
            if ((word & 0x8080808080808080u) == 0) {
                i += sizeof(word);
                continue;
            }
        }
        size_t step = (unsigned char)s[i] < 0x80 ? 1 : utf8_sequence(s + i, len - i);
        if (step == 0)
            return false;
        i += step;
    }
    return true;
}

void utf8_put(struct buf *out, uint32_t code)
{
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (code < 0x80) {
        buf_putc(out, (char)code);
        return;
    }
    unsigned len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    char bytes[4];
    for (unsigned i = len; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(leads[len] | code);
    buf_put(out, bytes, len);
}
