#include "term/text.h"

#include <unistd.h>

/* A character that changes what a terminal shows of the others: a control character, or one that
 * turns the direction of text around or ends its line. */
struct hidden {
    size_t len; /* in bytes; 0: it is none */
    unsigned code;
};

/* U+0080 to U+009F are controls too: to many terminals U+009B is the same as escape and a bracket.
 * U+200E, U+200F, U+2028 to U+202E and U+2066 to U+2069 are marks of direction and line ends. */
static struct hidden hidden_at(const char *s, size_t left)
{
    unsigned char a = (unsigned char)s[0], b = left > 1 ? (unsigned char)s[1] : 0,
                  c = left > 2 ? (unsigned char)s[2] : 0;
    if (a < 0x20 || a == 0x7f)
        return (struct hidden){1, a};
    if (a == 0xc2 && b >= 0x80 && b < 0xa0)
        return (struct hidden){2, b};
    bool turns =
        a == 0xe2 && ((b == 0x80 && (c == 0x8e || c == 0x8f || (c >= 0xa8 && c <= 0xae))) ||
                      (b == 0x81 && c >= 0xa6 && c <= 0xa9));
    return turns ? (struct hidden){3, 0x2000u + (unsigned)(b & 1) * 64 + (c & 0x3f)}
                 : (struct hidden){0, 0};
}

static void put_escape(struct buf *out, unsigned code)
{
    if (code == '\n' || code == '\t' || code == '\r')
        buf_printf(out, "\\%c", code == '\n' ? 'n' : code == '\t' ? 't' : 'r');
    else
        buf_printf(out, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
}

void text_escape(struct buf *out, const char *s, size_t len, bool one_line)
{
    for (size_t i = 0; i < len;) {
        bool passes = !one_line && (s[i] == '\n' || s[i] == '\t');
        struct hidden h = passes ? (struct hidden){0, 0} : hidden_at(s + i, len - i);
        if (h.len > 0)
            put_escape(out, h.code);
        else
            buf_putc(out, s[i]);
        i += h.len > 0 ? h.len : 1;
    }
}

bool text_write(FILE *to, const char *s, size_t len)
{
    if (!isatty(fileno(to)))
        return len == 0 || fwrite(s, 1, len, to) == len;
    struct buf safe = {0};
    text_escape(&safe, s, len, false);
    bool written = safe.len == 0 || fwrite(safe.data, 1, safe.len, to) == safe.len;
    buf_fini(&safe);
    return written;
}

void text_document(const struct buf *document)
{
    size_t len = document->len;
    while (len > 0 && document->data[len - 1] == '\n')
        len--;
    if (len == 0)
        return;
    text_write(stdout, document->data, len);
    putchar('\n');
}
