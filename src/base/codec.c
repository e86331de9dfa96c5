#include "base/codec.h"

#include <stdint.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_put(struct buf *out, const void *data, size_t len)
{
    const unsigned char *from = data;
    if (len == 0)
        return;
    buf_reserve(out, (len + 2) / 3 * 4);
    char *to = out->data + out->len;
    for (; len >= 3; from += 3, len -= 3) {
        uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
        *to++ = alphabet[bits >> 18];
        *to++ = alphabet[bits >> 12 & 63];
        *to++ = alphabet[bits >> 6 & 63];
        *to++ = alphabet[bits & 63];
    }
    if (len > 0) {
        uint32_t bits = (uint32_t)from[0] << 16 | (len > 1 ? (uint32_t)from[1] << 8 : 0);
        *to++ = alphabet[bits >> 18];
        *to++ = alphabet[bits >> 12 & 63];
        *to++ = len > 1 ? alphabet[bits >> 6 & 63] : '=';
        *to++ = '=';
    }
    out->len = (size_t)(to - out->data);
}

/* The six bits of a character, or -1. */
static int sextet(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : -1;
}

bool base64_decode(const char *text, size_t len, char *out, size_t *out_len)
{
    char *to = out;
    if (len % 4 != 0)
        return false;
    size_t pad = 0;
    while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
        pad++;
    size_t digits = len - pad;
    uint32_t bits = 0;
    for (size_t i = 0; i < digits; i++) {
        int six = sextet(text[i]);
        if (six < 0)
            return false;
        bits = bits << 6 | (uint32_t)six;
        if (i % 4 == 3) {
            *to++ = (char)(bits >> 16);
            *to++ = (char)(bits >> 8);
            *to++ = (char)bits;
            bits = 0;
        }
    }
    if (pad == 1) { /* 18 bits for 2 bytes */
        if (bits & 3)
            return false;
        *to++ = (char)(bits >> 10);
        *to++ = (char)(bits >> 2);
    } else if (pad == 2) { /* 12 bits for 1 byte */
        if (bits & 15)
            return false;
        *to++ = (char)(bits >> 4);
    }
    *out_len = (size_t)(to - out);
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool percent_decode(char *text, size_t *len, bool plus)
{
    char *to = text;
    for (size_t i = 0; i < *len; i++) {
        if (text[i] == '%') {
            int high = *len - i > 2 ? hex_digit(text[i + 1]) : -1;
            int low = *len - i > 2 ? hex_digit(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            *to++ = (char)(high << 4 | low);
            i += 2;
        } else {
            *to++ = plus && text[i] == '+' ? ' ' : text[i];
        }
    }
    *len = (size_t)(to - text);
    return true;
}

enum query_step query_next(char **at, char *end, struct query_pair *pair)
{
    while (*at < end && **at == '&')
        ++*at;
    if (*at >= end)
        return QUERY_END;
    char *key = *at;
    char *stop = memchr(key, '&', (size_t)(end - key));
    stop = stop ? stop : end;
    *at = stop;
    char *equals = memchr(key, '=', (size_t)(stop - key));
    char *value = equals ? equals + 1 : stop;
    size_t key_len = (size_t)((equals ? equals : stop) - key);
    size_t value_len = (size_t)(stop - value);
    if (!percent_decode(key, &key_len, true) || !percent_decode(value, &value_len, true))
        return QUERY_MALFORMED;
    *pair = (struct query_pair){key, key_len, value, value_len};
    return QUERY_PAIR;
}
