#include "net/parse.h"

#include <http_parser.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* http_parser splits the head into its parts; what it lets pass and RFC 9112 does
 * not is checked here on the raw bytes: a line feed alone, folded lines, control
 * characters, more than one space in the request line, a tab in the target, a name
 * with a space, two lengths, codings other than `chunked`. (Debian builds it in its
 * lenient mode.) It only ever sees one whole head, so each
 * of its callbacks comes once per part and nothing has to be put together.
 *
 * Bodies do not go through it. A length is a number to wait for, and its chunk
 * reader takes extensions and trailers, which have a history of being read in two
 * ways (CVE-2025-22871, CVE-2025-55315); no client of ours sends them. */

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

/* Control characters, which no line may hold; tab is white space. */
static const bool control[256] = {[0x00 ... 0x08] = true, [0x0a ... 0x1f] = true, [0x7f] = true};

static bool line_is_clean(const char *line, size_t len)
{
    bool dirty = false;
    for (size_t i = 0; i < len; i++)
        dirty |= control[(unsigned char)line[i]];
    return !dirty;
}

static enum status line_check(const char *line, size_t len, const char **why)
{
    if (line[len - 1] != '\r')
        return malformed(why, "A line of the head does not end in CR LF.");
    if (line[0] == ' ' || line[0] == '\t')
        return malformed(why, "A header line is folded.");
    if (!line_is_clean(line, len - 1))
        return malformed(why, "The head has a control character.");
    return STATUS_OK;
}

enum status parse_find(const char *data, size_t len, size_t head_max, size_t *scanned,
                       size_t *head_len, const char **why)
{
    /* Says no at once to a TLS hello or a stray empty line, which may never send a line feed. */
    if (len > 0 && (data[0] < 'A' || data[0] > 'Z'))
        return malformed(why, "The request does not start with a method.");
    size_t at = *scanned;
    const char *lf;
    while (at < len && (lf = memchr(data + at, '\n', len - at))) {
        const char *line = data + at;
        size_t line_len = (size_t)(lf - line);
        at += line_len + 1;
        if (at > head_max)
            break;
        if (line_len == 0)
            return malformed(why, "A line of the head does not end in CR LF.");
        if (line_len == 1 && line[0] == '\r') {
            *scanned = 0;
            *head_len = at;
            return STATUS_OK;
        }
        enum status s = line_check(line, line_len, why);
        if (s)
            return s;
    }
    if (at > head_max || len > head_max)
        return too_large(why, "The request line and headers are too long.");
    *scanned = at;
    *head_len = 0;
    return STATUS_OK;
}

/* What the callbacks share while one head is read. */
struct reading {
    struct parse_head *head;
    struct http_slice target;
    unsigned fields_max;
    enum status status;
    const char *why;
};

static int stop(struct reading *r, enum status status, const char *why)
{
    r->status = status;
    r->why = why;
    return -1;
}

static int on_url(http_parser *p, const char *at, size_t len)
{
    struct reading *r = p->data;
    r->target = (struct http_slice){at, len};
    return 0;
}

static int on_header_field(http_parser *p, const char *at, size_t len)
{
    struct reading *r = p->data;
    struct parse_head *head = r->head;
    if (head->field_count == r->fields_max)
        return stop(r, STATUS_HEADERS_TOO_LARGE, "The request has too many headers.");
    if (len == 0 || at[len] != ':' || memchr(at, ' ', len))
        return stop(r, STATUS_MALFORMED_REQUEST, "A header's name is not a token.");
    head->fields[head->field_count++] = (struct parse_field){{at, len}, {at + len + 1, 0}};
    return 0;
}

/* Headers that are looked at in every request. Those marked `once` decide how the request is
 * framed or who it is for, and may not be said twice. */
static const struct known {
    const char *name;
    size_t len;
    size_t offset;
    bool once;
} knowns[] = {
#define KNOWN(name, member, once)                                                                  \
    {                                                                                              \
        name, sizeof(name) - 1, offsetof(struct parse_head, member), once                          \
    }
    KNOWN("host", host, true),
    KNOWN("expect", expect, true),
    KNOWN("content-type", content_type, true),
    KNOWN("x-request-id", request_id, false),
    KNOWN("authorization", authorization, true),
    KNOWN("content-length", length, true),
    KNOWN("x-receipt-handle", receipt, true),
    KNOWN("transfer-encoding", coding, true),
#undef KNOWN
};

static int field_note(struct reading *r, const struct parse_field *field)
{
    for (size_t i = 0; i < sizeof(knowns) / sizeof(knowns[0]); i++) {
        const struct known *k = &knowns[i];
        if (k->len != field->name.len || strncasecmp(k->name, field->name.data, k->len) != 0)
            continue;
        struct http_slice *slot = (struct http_slice *)((char *)r->head + k->offset);
        if (slot->data && k->once)
            return stop(r, STATUS_MALFORMED_REQUEST, "A header that may come once comes twice.");
        *slot = field->value;
        return 0;
    }
    return 0;
}

static int on_header_value(http_parser *p, const char *at, size_t len)
{
    struct reading *r = p->data;
    struct parse_field *field = &r->head->fields[r->head->field_count - 1];
    while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
        len--;
    field->value = (struct http_slice){at, len};
    return field_note(r, field);
}

/* 1 tells http_parser that no body follows: bodies are not its business. */
static int on_headers_complete(http_parser *p)
{
    struct reading *r = p->data;
    r->head->keep_alive = http_should_keep_alive(p) != 0;
    return 1;
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
};

static enum http_verb verb_of(unsigned method)
{
    static const enum http_verb verbs[] = {
        [HTTP_DELETE] = VERB_DELETE, [HTTP_GET] = VERB_GET, [HTTP_HEAD] = VERB_HEAD,
        [HTTP_POST] = VERB_POST,     [HTTP_PUT] = VERB_PUT,
    };
    return method < sizeof(verbs) / sizeof(verbs[0]) ? verbs[method] : VERB_OTHER;
}

static bool target_byte_is_bad(unsigned char c)
{
    return c <= ' ' || c >= 0x7f || c == '#';
}

/* The request line must be exactly "METHOD SP target SP HTTP/1.x": http_parser takes any number of
 * spaces, and ICE/1.x for some methods, so its length is compared with its parts. */
static enum status line_read(const http_parser *p, struct http_slice target, const char *data,
                             struct parse_head *head, const char **why)
{
    if (p->http_major != 1 || p->http_minor > 1)
        return malformed(why, "The HTTP version is neither 1.0 nor 1.1.");
    size_t method_len = strlen(http_method_str((enum http_method)p->method));
    const char *target_end = target.data + target.len;
    if (!target.data || target.data != data + method_len + 1 ||
        memcmp(target_end, " HTTP/1.", 8) != 0 || target_end[9] != '\r')
        return malformed(why, "The request line is not METHOD target HTTP/1.1.");
    for (size_t i = 0; i < target.len; i++)
        if (target_byte_is_bad((unsigned char)target.data[i]))
            return malformed(why, "The target has a character that must be percent-encoded.");
    if (target.data[0] != '/')
        return malformed(why, "The target does not start with a slash.");

    const char *mark = memchr(target.data, '?', target.len);
    head->path = target;
    if (mark) {
        head->path.len = (size_t)(mark - target.data);
        head->query = (struct http_slice){mark + 1, target.len - head->path.len - 1};
    }
    if (head->path.len > HTTP_PATH_MAX)
        return malformed(why, "The path is too long.");
    head->verb = verb_of(p->method);
    head->http10 = p->http_minor == 0;
    return STATUS_OK;
}

static enum status length_read(struct parse_head *head, const char **why)
{
    struct http_slice s = head->length;
    if (s.len == 0 || s.len > 19)
        return malformed(why, "Content-Length is not a number of at most 19 digits.");
    uint64_t value = 0; /* 19 digits cannot overflow 64 bits */
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] < '0' || s.data[i] > '9')
            return malformed(why, "Content-Length is not a number of at most 19 digits.");
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

enum status parse_head(struct parse_head *head, const char *data, size_t head_len,
                       unsigned fields_max, const char **why)
{
    memset(head, 0, offsetof(struct parse_head, fields));
    struct reading r = {.head = head, .fields_max = fields_max};
    http_parser p;
    http_parser_init(&p, HTTP_REQUEST);
    p.data = &r;
    size_t used = http_parser_execute(&p, &settings, data, head_len);
    if (r.status) {
        *why = r.why;
        return r.status;
    }
    if (HTTP_PARSER_ERRNO(&p) != HPE_OK || used != head_len)
        return malformed(why, "The request head is not HTTP/1.1.");
    enum status s = line_read(&p, r.target, data, head, why);
    return s ? s : framing_read(head, why);
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
