#include "net/parse.h"

#include <assert.h>
#include <endian.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* A head is read in one pass, forwards, and each byte is looked up in `classes` or
 * compared with the one byte that may stand there. No scan has to look for the end:
 * parse_find() has seen to it that the head ends in CR LF CR LF, and CR is in no
 * class. When a scan stops at a byte that may not come next, that is the error.
 *
 * The rules are those of RFC 9112, without the leniency that it allows: no line feed
 * alone, no folded lines, one space in each place of the request line, no space
 * before a colon, no length said twice, no coding but `chunked`. Chunk extensions and
 * trailers have a history of being read in two ways (CVE-2025-22871, CVE-2025-55315),
 * no client of ours sends them, and they are refused. */

static enum status malformed(const char **why, const char *sentence)
{
    *why = sentence;
    return STATUS_MALFORMED_REQUEST;
}

static enum status too_large(const char **why, const char *sentence)
{
    *why = sentence;
    return STATUS_HEADERS_TOO_LARGE;
}

/* Where a byte may stand. Bytes from 0x80 up may stand in a value (RFC 9110, 5.5, obs-text). */
enum {
    TOKEN = 1, /* a method or the name of a header */
    PATH = 2,  /* what a target may hold, but for the question mark */
    QUERY = 4,
    VALUE = 8,
    BLANK = 16,
};
#define SIGN (PATH | QUERY | VALUE)
#define WORD (TOKEN | SIGN)

static const unsigned char classes[256] = {
    ['\t'] = VALUE | BLANK, [' '] = VALUE | BLANK, ['!'] = WORD,           ['"'] = SIGN,
    ['#'] = VALUE | TOKEN,  ['$' ... '\''] = WORD, ['(' ... ')'] = SIGN,   ['*' ... '+'] = WORD,
    [','] = SIGN,           ['-' ... '.'] = WORD,  ['/'] = SIGN,           ['0' ... '9'] = WORD,
    [':' ... '>'] = SIGN,   ['?'] = QUERY | VALUE, ['@'] = SIGN,           ['A' ... 'Z'] = WORD,
    ['[' ... ']'] = SIGN,   ['^' ... 'z'] = WORD,  ['{'] = SIGN,           ['|'] = WORD,
    ['}'] = SIGN,           ['~'] = WORD,          [0x80 ... 0xff] = VALUE};

static bool byte_is(char c, unsigned char class)
{
    return classes[(unsigned char)c] & class;
}

/* Inline, so that `class` is a constant, and four at a time: three instructions each, not five. */
#define INLINE inline __attribute__((always_inline))
static INLINE const char *class_skip(const char *p, unsigned char class)
{
    for (;; p += 4) {
        if (!byte_is(p[0], class))
            return p;
        if (!byte_is(p[1], class))
            return p + 1;
        if (!byte_is(p[2], class))
            return p + 2;
        if (!byte_is(p[3], class))
            return p + 3;
    }
}

#define EIGHT_TIMES(byte) (UINT64_MAX / 255 * (byte))

static uint64_t eight_load(const char *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof(w));
    return le64toh(w);
}

/* A bit for each control character among eight bytes, those below 0x20 and 0x7f. A borrow may set
 * bits above the first, never below it (Anderson, "Bit Twiddling Hacks": hasless, haszero). */
static uint64_t eight_controls(uint64_t w)
{
    uint64_t del = w ^ EIGHT_TIMES(0x7f);
    uint64_t hits = ((w - EIGHT_TIMES(0x20)) & ~w) | ((del - EIGHT_TIMES(1)) & ~del);
    return hits & EIGHT_TIMES(0x80);
}

static const char *value_skip(const char *p, const char *end)
{
    for (; end - p >= 8; p += 8) {
        uint64_t hits = eight_controls(eight_load(p));
        if (hits) {
            p += __builtin_ctzll(hits) / 8;
            break;
        }
    }
    return class_skip(p, VALUE); /* a tab is no end */
}

#define TOO_LONG   "The request line and headers are too long."
#define NOT_A_LINE "The request line is not METHOD target HTTP/1.1."

enum status parse_find(const char *data, size_t len, size_t head_max, size_t *scanned,
                       size_t *head_len, const char **why)
{
    /* Refuses a TLS hello or a stray empty line at once, since a line feed may never come. */
    if (len > 0 && (data[0] < 'A' || data[0] > 'Z'))
        return malformed(why, "The request does not start with a method.");
    const char *end = data + len;
    const char *line = data + *scanned;
    const char *lf;
    while (line < end && (lf = memchr(line, '\n', (size_t)(end - line)))) {
        size_t at = (size_t)(lf + 1 - data);
        if (at > head_max)
            return too_large(why, TOO_LONG);
        if (lf[-1] != '\r') /* there is a byte before it: the first one is no line feed */
            return malformed(why, "A line of the head does not end in CR LF.");
        if (lf - line == 1) {
            *scanned = 0;
            *head_len = at;
            return STATUS_OK;
        }
        line = lf + 1;
    }
    if (len > head_max)
        return too_large(why, TOO_LONG);
    *scanned = (size_t)(line - data);
    *head_len = 0;
    return STATUS_OK;
}

/* Methods that RFC 9110 and RFC 5789 know. Others are refused rather than answered: a word that
 * is no method is more often the rest of a body that was read short. */
static const struct method {
    char name[8];
    enum http_verb verb;
} methods[] = {
    {"POST", VERB_POST},     {"GET", VERB_GET},       {"PUT", VERB_PUT},
    {"DELETE", VERB_DELETE}, {"HEAD", VERB_HEAD},     {"PATCH", VERB_PATCH},
    {"TRACE", VERB_OTHER},   {"CONNECT", VERB_OTHER}, {"OPTIONS", VERB_OTHER},
};

/* Eight bytes can be read at `name`, whatever its length. */
static const struct method *method_find(const char *name, size_t len)
{
    if (len == 0 || len >= sizeof(methods[0].name))
        return NULL;
    uint64_t word = eight_load(name) & (UINT64_MAX >> (64 - 8 * len));
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (eight_load(methods[i].name) == word)
            return &methods[i];
    return NULL;
}

/* " HTTP/1.1" and CR LF, from the byte that ended the target. */
static enum status version_read(struct parse_head *head, const char **at, const char *end,
                                const char **why)
{
    static const char tail[] = " HTTP/1.1\r\n";
    const char *p = *at;
    if (*p != ' ' && *p != '\r')
        return malformed(why, "The target has a character that must be percent-encoded.");
    if ((size_t)(end - p) < sizeof(tail) - 1 || memcmp(p, tail, 6) != 0)
        return malformed(why, NOT_A_LINE);
    if (memcmp(p + 6, "1.", 2) != 0 || (p[8] != '0' && p[8] != '1'))
        return malformed(why, "The HTTP version is neither 1.0 nor 1.1.");
    if (memcmp(p + 9, "\r\n", 2) != 0)
        return malformed(why, NOT_A_LINE);
    head->http10 = p[8] == '0';
    *at = p + sizeof(tail) - 1;
    return STATUS_OK;
}

static enum status line_read(struct parse_head *head, const char **at, const char *end,
                             const char **why)
{
    const char *start = *at;
    if ((size_t)(end - start) < sizeof("GET / HTTP/1.1\r\n\r\n") - 1)
        return malformed(why, NOT_A_LINE);
    const char *p = class_skip(start, TOKEN);
    const struct method *method = method_find(start, (size_t)(p - start));
    if (!method || *p != ' ')
        return malformed(why, "The request does not start with a method and a space.");
    head->verb = method->verb;
    const char *path = p + 1;
    if (*path != '/')
        return malformed(why, "The target does not start with a slash.");
    p = class_skip(path, PATH);
    head->path = (struct http_slice){path, (size_t)(p - path)};
    if (head->path.len > HTTP_PATH_MAX)
        return malformed(why, "The path is too long.");
    if (*p == '?') {
        const char *query = p + 1;
        p = class_skip(query, QUERY);
        head->query = (struct http_slice){query, (size_t)(p - query)};
    }
    *at = p;
    return version_read(head, at, end, why);
}

/* Headers that are looked at in every request. Those marked `once` decide how the request is
 * framed or who it is for, and may not be said twice. A name's place is its length and its first
 * letter; the compiler warns when two names meet in one. */
#define KNOWN_PLACES            32
#define KNOWN_PLACE(first, len) (((len) + (size_t)(first)) % KNOWN_PLACES)
static const struct known_header {
    char name[24];
    uint32_t offset;
    unsigned char len;
    bool once;
} knowns[KNOWN_PLACES] = {
#define KNOWN(first, name, member, once)                                                           \
    [KNOWN_PLACE(first, sizeof(name) - 1)] = {name, offsetof(struct parse_head, member),           \
                                              sizeof(name) - 1, once}
    KNOWN('h', "host", host, true),
    KNOWN('e', "expect", expect, true),
    KNOWN('a', "accept", accept, false),
    KNOWN('o', "origin", origin, true),
    KNOWN('c', "connection", connection, false),
    KNOWN('c', "content-type", content_type, true),
    KNOWN('x', "x-request-id", request_id, false),
    KNOWN('a', "authorization", authorization, true),
    KNOWN('c', "content-length", length, true),
    KNOWN('s', "sec-fetch-site", fetch_site, true),
    KNOWN('x', "x-receipt-handle", receipt, true),
    KNOWN('t', "traceparent", traceparent, false),
    KNOWN('t', "transfer-encoding", coding, true),
#undef KNOWN
};

static bool eight_differ(const char *name, const char *known, unsigned bits)
{
    return ((eight_load(name) | EIGHT_TIMES(0x20)) ^ eight_load(known)) << (64 - bits);
}

/* `name` is a token, so bit 0x20 makes a capital small and no other byte a letter or a hyphen.
 * Eight bytes can be read even of the shortest: a colon and two line ends come after it. */
static bool known_is(const struct known_header *k, struct http_slice name)
{
    if (k->len != name.len)
        return false;
    if (name.len < 8)
        return !eight_differ(name.data, k->name, (unsigned)name.len * 8);
    size_t last = name.len - 8;
    for (size_t i = 0; i < last; i += 8)
        if (eight_differ(name.data + i, k->name + i, 64))
            return false;
    return !eight_differ(name.data + last, k->name + last, 64);
}

static enum status field_note(struct parse_head *head, const struct parse_field *field,
                              const char **why)
{
    struct http_slice name = field->name;
    const struct known_header *k = &knowns[KNOWN_PLACE(name.data[0] | 0x20, name.len)];
    if (!known_is(k, name))
        return STATUS_OK;
    struct http_slice *slot = (struct http_slice *)((char *)head + k->offset);
    if (slot->data && k->once)
        return malformed(why, "A header that may come once comes twice.");
    *slot = field->value;
    return STATUS_OK;
}

static enum status field_read(struct parse_field *field, const char **at, const char *end,
                              const char **why)
{
    const char *name = *at;
    const char *p = class_skip(name, TOKEN);
    if (p == name || *p != ':')
        return malformed(why, byte_is(*name, BLANK) ? "A header line is folded."
                                                    : "A header's name is not a token.");
    field->name = (struct http_slice){name, (size_t)(p - name)};
    const char *value = class_skip(p + 1, BLANK);
    p = value_skip(value, end);
    if (p[0] != '\r' || p[1] != '\n')
        return malformed(why, "The head has a control character.");
    *at = p + 2;
    while (p > value && byte_is(p[-1], BLANK))
        p--;
    field->value = (struct http_slice){value, (size_t)(p - value)};
    return STATUS_OK;
}

static enum status fields_read(struct parse_head *head, const char *p, const char *end,
                               unsigned fields_max, const char **why)
{
    while (*p != '\r') {
        if (head->field_count == fields_max)
            return too_large(why, "The request has too many headers.");
        struct parse_field *field = &head->fields[head->field_count++];
        enum status s = field_read(field, &p, end, why);
        if (!s)
            s = field_note(head, field, why);
        if (s)
            return s;
    }
    if (p + 2 != end)
        return malformed(why, "The head has a control character.");
    return STATUS_OK;
}

static enum status length_read(struct parse_head *head, const char **why)
{
    static const char refusal[] = "Content-Length is not a number of at most 19 digits.";
    struct http_slice s = head->length;
    const char *after = s.data + s.len;
    while (*after == ' ') /* and no tab, which not every reader skips here */
        after++;
    if (s.len == 0 || s.len > 19 || *after != '\r')
        return malformed(why, refusal);
    uint64_t value = 0; /* 19 digits cannot overflow 64 bits */
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9')
            return malformed(why, refusal);
        value = value * 10 + (uint64_t)(s.data[i] - '0');
    }
    head->content_length = value;
    return STATUS_OK;
}

static enum status framing_read(struct parse_head *head, const char **why)
{
    if (head->length.data && head->coding.data)
        return malformed(why, "The request has both Content-Length and Transfer-Encoding.");
    if (head->length.data) {
        enum status s = length_read(head, why);
        if (s)
            return s;
    }
    if (head->coding.data) {
        if (head->http10 || !parse_name_is(head->coding, "chunked"))
            return malformed(why, "Transfer-Encoding is not exactly `chunked`.");
        head->chunked = true;
    }
    if (!head->http10 && !head->host.data)
        return malformed(why, "The request has no Host.");
    if (head->expect.data && !head->http10) {
        if (!parse_name_is(head->expect, "100-continue"))
            return malformed(why, "The only Expect that is taken is `100-continue`.");
        head->expect_continue = true;
    }
    return STATUS_OK;
}

/* Whether a list with commas has this member. */
static bool list_has(struct http_slice list, const char *name)
{
    const char *p = list.data;
    const char *end = p + list.len;
    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *next = comma ? comma + 1 : end;
        const char *last = comma ? comma : end;
        while (p < last && byte_is(*p, BLANK))
            p++;
        while (last > p && byte_is(last[-1], BLANK))
            last--;
        if (parse_name_is((struct http_slice){p, (size_t)(last - p)}, name))
            return true;
        p = next;
    }
    return false;
}

/* Connection may come in several lines, which are one list; `close` anywhere in it is the end. */
static void connection_read(struct parse_head *head)
{
    head->keep_alive = !head->http10;
    if (!head->connection.data)
        return;
    bool close = false;
    for (unsigned i = 0; i < head->field_count; i++) {
        const struct parse_field *field = &head->fields[i];
        if (!parse_name_is(field->name, "connection"))
            continue;
        close |= list_has(field->value, "close");
        head->keep_alive |= list_has(field->value, "keep-alive");
    }
    head->keep_alive &= !close;
}

enum status parse_head(struct parse_head *head, const char *data, size_t head_len,
                       unsigned fields_max, const char **why)
{
    const char *end = data + head_len;
    assert(head_len > 4);
    assert(memcmp(end - 4, "\r\n\r\n", 4) == 0);
    memset(head, 0, offsetof(struct parse_head, fields));
    const char *p = data;
    enum status s = line_read(head, &p, end, why);
    if (!s)
        s = fields_read(head, p, end, fields_max, why);
    if (!s)
        s = framing_read(head, why);
    if (!s)
        connection_read(head);
    return s;
}

bool parse_name_is(struct http_slice slice, const char *name)
{
    return slice.len == strlen(name) && strncasecmp(slice.data, name, slice.len) == 0;
}

enum chunk_state {
    CHUNK_SIZE, /* zero: where a body starts */
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_END_CR,
    CHUNK_END_LF,
};

#define CHUNK_DIGITS_MAX 16

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum status chunk_size_read(struct parse_chunks *chunks, char c, size_t body_max,
                                   const char **why)
{
    if (c == '\r' && chunks->digits > 0) {
        chunks->state = CHUNK_SIZE_LF;
        return STATUS_OK;
    }
    int digit = hex_value(c);
    if (digit < 0 || chunks->digits == CHUNK_DIGITS_MAX)
        return malformed(why, "A chunk's size is not hexadecimal digits and CR LF.");
    chunks->digits++;
    /* What is left is compared first, so that the size never grows past what fits. */
    uint64_t room = body_max - chunks->decoded;
    if (chunks->size > room / 16 || chunks->size * 16 + (uint64_t)digit > room) {
        *why = "The body is larger than this path takes.";
        return STATUS_PAYLOAD_TOO_LARGE;
    }
    chunks->size = chunks->size * 16 + (uint64_t)digit;
    return STATUS_OK;
}

/* One byte of what stands around the data. */
static enum status chunk_mark_read(struct parse_chunks *chunks, char c, const char **why)
{
    static const struct {
        char expected;
        enum chunk_state next;
    } marks[] = {
        [CHUNK_SIZE_LF] = {'\n', CHUNK_DATA}, [CHUNK_DATA_CR] = {'\r', CHUNK_DATA_LF},
        [CHUNK_DATA_LF] = {'\n', CHUNK_SIZE}, [CHUNK_END_CR] = {'\r', CHUNK_END_LF},
        [CHUNK_END_LF] = {'\n', CHUNK_SIZE},
    };
    if (c != marks[chunks->state].expected)
        return malformed(why, "A chunk is not ended by CR LF, or a trailer follows.");
    if (chunks->state == CHUNK_END_LF)
        chunks->done = true;
    if (chunks->state == CHUNK_SIZE_LF && chunks->size == 0)
        chunks->state = CHUNK_END_CR;
    else
        chunks->state = marks[chunks->state].next;
    chunks->digits = 0;
    return STATUS_OK;
}

enum status parse_chunks(struct parse_chunks *chunks, char *data, size_t len, size_t body_max,
                         size_t *used, size_t *made, const char **why)
{
    size_t in = 0;
    size_t out = 0;
    enum status s = STATUS_OK;
    while (in < len && !chunks->done && !s) {
        if (chunks->state == CHUNK_SIZE) {
            s = chunk_size_read(chunks, data[in++], body_max, why);
        } else if (chunks->state == CHUNK_DATA) {
            size_t n = len - in < chunks->size ? len - in : (size_t)chunks->size;
            memmove(data + out, data + in, n);
            in += n;
            out += n;
            chunks->decoded += n;
            chunks->size -= n;
            if (chunks->size == 0)
                chunks->state = CHUNK_DATA_CR;
        } else {
            s = chunk_mark_read(chunks, data[in++], why);
        }
    }
    *used = in;
    *made = out;
    return s;
}
