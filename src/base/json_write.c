#include "base/json.h"

/* What follows the backslash: 'u' for the long form, 0 when the byte needs none. */
static char escape_of(unsigned char c)
{
    static const char controls[] = "uuuuuuuubtnufruuuuuuuuuuuuuuuuuu"; /* 0x00 to 0x1f */
    if (c < 0x20)
        return controls[c];
    return c == '"' || c == '\\' ? (char)c : 0;
}

void json_put_string(struct buf *out, const char *s, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    buf_reserve(out, len + 2);
    buf_putc(out, '"');
    size_t from = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        char escape = escape_of(c);
        if (escape == 0)
            continue;
        buf_put(out, s + from, i - from);
        from = i + 1;
        char text[6] = {'\\', escape, '0', '0', digits[c >> 4], digits[c & 15]};
        buf_put(out, text, escape == 'u' ? 6 : 2);
    }
    buf_put(out, s + from, len - from);
    buf_putc(out, '"');
}

void json_put_cstr(struct buf *out, const char *s)
{
    json_put_string(out, s, strlen(s));
}
