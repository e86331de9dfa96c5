/* net/parse: the strictness of the reader of heads and chunks, byte by byte. */
#include "net/parse.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HOST         "Host: a\r\n"

static enum status head_read(const char *text, size_t len, struct parse_head *head)
{
    /* An exact copy on the heap lets the address sanitizer see one byte too many. */
    char *copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    size_t scanned = 0;
    size_t head_len = 0;
    const char *why = NULL;
    enum status s = parse_find(copy, len, HTTP_HEAD_MAX, &scanned, &head_len, &why);
    if (!s && head_len > 0)
        s = parse_head(head, copy, head_len, HTTP_HEADERS_MAX, &why);
    if (s)
        assert_non_null(why);
    free(copy);
    return s;
}

static void assert_slice(struct http_slice slice, const char *text)
{
    assert_int_equal(slice.len, strlen(text));
    assert_memory_equal(slice.data, text, slice.len);
}

static void head_is_split_into_its_parts(void **state)
{
    (void)state;
    static const char text[] = "POST /v1/queues/q/messages?max=2&wait=1 HTTP/1.1\r\n"
                               "Host: example\r\n"
                               "content-TYPE: \t application/json \t\r\n"
                               "X-Receipt-Handle: rh_1\r\n"
                               "Authorization: Bearer t\r\n"
                               "X-Request-Id: abc\r\n"
                               "Empty:\r\n"
                               "Content-Length: 12\r\n\r\nhello, world";
    struct parse_head head;
    size_t scanned = 0;
    size_t head_len;
    const char *why;
    assert_int_equal(parse_find(text, sizeof(text) - 1, HTTP_HEAD_MAX, &scanned, &head_len, &why),
                     STATUS_OK);
    assert_int_equal(head_len, sizeof(text) - 1 - 12);
    assert_int_equal(parse_head(&head, text, head_len, HTTP_HEADERS_MAX, &why), STATUS_OK);
    assert_int_equal(head.verb, VERB_POST);
    assert_slice(head.path, "/v1/queues/q/messages");
    assert_slice(head.query, "max=2&wait=1");
    assert_slice(head.content_type, "application/json");
    assert_slice(head.receipt, "rh_1");
    assert_slice(head.authorization, "Bearer t");
    assert_slice(head.request_id, "abc");
    assert_int_equal(head.content_length, 12);
    assert_int_equal(head.field_count, 7);
    assert_slice(head.fields[5].value, "");
    assert_true(head.keep_alive);
    assert_false(head.chunked);
}

static void head_ends_at_the_same_byte_however_it_is_cut(void **state)
{
    (void)state;
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\nGET /";
    size_t expected = strlen(text) - 5;
    size_t scanned = 0;
    for (size_t len = 0; len < sizeof(text); len++) {
        size_t head_len;
        const char *why;
        assert_int_equal(parse_find(text, len, 1000, &scanned, &head_len, &why), STATUS_OK);
        assert_int_equal(head_len, len >= expected ? expected : 0);
    }
}

static void oddities_that_have_one_meaning_are_taken(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "GET / HTTP/1.0\r\n\r\n",
        "GET /?? HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nhOST: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
        "PATCH /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%00/.. HTTP/1.1\r\nHost: a\r\nX: caf\xc3\xa9\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\nExpect: 100-Continue\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0000000000000000012\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Y: 1\r\nX-Y: 2\r\n\r\n",
    };
    for (size_t i = 0; i < COUNT(heads); i++) {
        struct parse_head head;
        if (head_read(heads[i], strlen(heads[i]), &head) != STATUS_OK)
            fail_msg("refused: %s", heads[i]);
    }
}

struct text {
    const char *data;
    size_t len;
};
#define TEXT(literal)                                                                              \
    {                                                                                              \
        "" literal, sizeof(literal) - 1                                                            \
    }

/* Each has been read in two ways by some pair of servers, or is on the way there. */
static const struct text malformed_heads[] = {
    TEXT("\r\nGET / HTTP/1.1\r\n" HOST "\r\n"),
    TEXT(" GET / HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("get / HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("\x16\x03\x01\x02"),
    TEXT("GET / HTTP/1.1\n" HOST "\r\n"),
    TEXT("GET / HTTP/1.1\r\nHost: a\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "\n"),
    TEXT("GET / HTTP/1.1\r\r\n" HOST "\r\n"),
    TEXT("GET / HTTP/1.1\r" HOST "\r\n"),
    TEXT("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"),
    TEXT("GET  / HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET /  HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET / HTTP/1.1 \r\n" HOST "\r\n"),
    TEXT("GET\t/ HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET /a b HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET /a\tb HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET /a#b HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET /a\0b HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET http://a/ HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET /\r\n\r\n"),
    TEXT("GET\r\n\r\n"),
    TEXT("GET / HTTP/0.9\r\n" HOST "\r\n"),
    TEXT("GET / HTTP/1.2\r\n" HOST "\r\n"),
    TEXT("GET / HTTP/2.0\r\n" HOST "\r\n"),
    TEXT("GET / HTTP/11.1\r\n" HOST "\r\n"),
    TEXT("GET / HTTP/1.11\r\n" HOST "\r\n"),
    TEXT("GET / http/1.1\r\n" HOST "\r\n"),
    TEXT("SOURCE / ICE/1.0\r\n" HOST "\r\n"),
    TEXT("PRI * HTTP/2.0\r\n\r\n"),
    TEXT("FROB / HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GET / HTTP/1.1\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST HOST "\r\n"),
    TEXT("GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\nHost\t: a\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A B: c\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST ": c\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A(: c\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A\x80: c\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A: b\r\n\tc\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A: b\0c\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A\0: b\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "A: b\x7f\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 5,5\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 5 5\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 5a\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551616\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length : 5\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: \"chunked\"\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked,\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST
         "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    TEXT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Expect: something\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 5\t\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\n" HOST "Content-Length: 5 \t\r\n\r\n"),
    TEXT("POST / HTTP/1.1\r\nTransfer-Encoding:\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\nConnection:\r\n\r\n"),
    TEXT("G\r\n\r\n"),
    TEXT("GET /\r\nHost: a\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\n" HOST "\rX: y\r\n\r\n"),
    TEXT("GET / HTTP/1.1\r\nX: y\rz" HOST "\r\n"),
    TEXT("GET / HTTP/1.1\rz" HOST "\r\n"),
    TEXT("GET / HTTP/1.1  " HOST "\r\n"),
    TEXT("GETS / HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("GE / HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("Get / HTTP/1.1\r\n" HOST "\r\n"),
    TEXT("OPTIONSS / HTTP/1.1\r\n" HOST "\r\n"),
};

static void heads_with_two_meanings_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(malformed_heads); i++) {
        const struct text *t = &malformed_heads[i];
        struct parse_head head;
        if (head_read(t->data, t->len, &head) != STATUS_MALFORMED_REQUEST)
            fail_msg("taken: %s", t->data);
    }
}

/* Where a byte may stand, written out apart from the table that the parser has. */
static bool byte_may_stand(const char *allowed, int c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != 0 && strchr(allowed, c));
}

static bool stands_in_name(int c)
{
    return byte_may_stand("!#$%&'*+-.^_`|~", c);
}

static bool stands_in_target(int c)
{
    return byte_may_stand("!\"$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c);
}

static bool stands_in_value(int c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static bool stands_after_name(int c)
{
    return stands_in_name(c) || c == ':';
}

static bool is_slash(int c)
{
    return c == '/';
}

static bool is_line_feed(int c)
{
    return c == '\n';
}

static bool stands_nowhere(int c)
{
    (void)c;
    return false;
}

static void bytes_are_taken_only_where_they_may_stand(void **state)
{
    (void)state;
    static const struct {
        const char *before;
        bool (*may_stand)(int c);
        const char *after;
    } places[] = {
        {"", stands_nowhere, "GET / HTTP/1.1\r\n" HOST "\r\n"},
        {"GET", stands_nowhere, " / HTTP/1.1\r\n" HOST "\r\n"},
        {"GET ", is_slash, "/ HTTP/1.1\r\n" HOST "\r\n"},
        {"GET /", stands_in_target, " HTTP/1.1\r\n" HOST "\r\n"},
        {"GET /a", stands_in_target, "b HTTP/1.1\r\n" HOST "\r\n"},
        {"GET /a?", stands_in_target, " HTTP/1.1\r\n" HOST "\r\n"},
        {"GET / ", stands_nowhere, "HTTP/1.1\r\n" HOST "\r\n"},
        {"GET / HTTP/1", stands_nowhere, ".1\r\n" HOST "\r\n"},
        {"GET / HTTP/1.1", stands_nowhere, "\r\n" HOST "\r\n"},
        {"GET / HTTP/1.1\r", stands_nowhere, "\n" HOST "\r\n"},
        {"GET / HTTP/1.1\r\n", stands_in_name, "X: y\r\n" HOST "\r\n"},
        {"GET / HTTP/1.1\r\n" HOST "X", stands_after_name, ":\r\n\r\n"},
        {"GET / HTTP/1.1\r\n" HOST "X:", stands_in_value, "\r\n\r\n"},
        {"GET / HTTP/1.1\r\n" HOST "X: y", stands_in_value, "\r\n\r\n"},
        {"GET / HTTP/1.1\r\n" HOST "X: y\r", stands_nowhere, "\n\r\n"},
        {"GET / HTTP/1.1\r\n" HOST "X: 01234567", stands_in_value, "89abcdef01\r\n\r\n"},
        {"GET / HTTP/1.1\r\n" HOST "\r", is_line_feed, "\n\r\n"},
    };
    struct buf b = {0};
    for (size_t i = 0; i < COUNT(places); i++)
        for (int c = 0; c < 256; c++) {
            buf_clear(&b);
            buf_puts(&b, places[i].before);
            buf_putc(&b, (char)c);
            buf_puts(&b, places[i].after);
            struct parse_head head;
            enum status s = head_read(b.data, b.len, &head);
            if ((s == STATUS_OK) != places[i].may_stand(c))
                fail_msg("byte 0x%02x after \"%s\" gives status %d", c, places[i].before, (int)s);
        }
    buf_fini(&b);
}

/* Values are looked at in words: each place in a word, and each length of what is left over. */
static void control_bytes_are_seen_at_every_place_of_a_value(void **state)
{
    (void)state;
    static const char bad[] = {'\0', '\x01', '\x1f', '\x7f', '\r', '\n'};
    static const char good[] = {'\t', ' ', '~', '\x80', '\xff'};
    for (size_t len = 1; len < 28; len++)
        for (size_t at = 0; at < len; at++)
            for (size_t i = 0; i < COUNT(bad) + COUNT(good); i++) {
                char text[64] = "GET / HTTP/1.1\r\nHost:";
                size_t start = strlen(text);
                memset(text + start, '\xa0', len);
                text[start + at] = i < COUNT(bad) ? bad[i] : good[i - COUNT(bad)];
                memcpy(text + start + len, "\r\n\r\n", 4);
                struct parse_head head;
                assert_int_equal(head_read(text, start + len + 4, &head),
                                 i < COUNT(bad) ? STATUS_MALFORMED_REQUEST : STATUS_OK);
            }
}

/* A name is the known one when it differs in case at most. Twice is how it shows: these may come
 * once, so the second is refused if it was recognised. */
static void known_names_are_told_from_their_neighbours(void **state)
{
    (void)state;
    static const char *const names[] = {"Host",          "Expect",         "Content-Type",
                                        "Authorization", "Content-Length", "X-Receipt-Handle"};
    for (size_t i = 0; i < COUNT(names); i++)
        for (size_t at = 0; at < strlen(names[i]); at++)
            for (int c = 1; c < 256; c++) {
                char name[32];
                strcpy(name, names[i]);
                name[at] = (char)c;
                bool is_same = strcasecmp(name, names[i]) == 0;
                if (!is_same && !stands_in_name(c))
                    continue;
                const char *value = names[i][0] == 'E' ? "100-continue" : "1";
                char text[200];
                int len = snprintf(text, sizeof(text), "GET / HTTP/1.0\r\n%s: %s\r\n%s:%s\r\n\r\n",
                                   names[i], value, name, value);
                struct parse_head head;
                if ((head_read(text, (size_t)len, &head) == STATUS_OK) == is_same)
                    fail_msg("%s was taken for something else", name);
            }
}

static void connection_is_a_list_of_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        const char *lines;
        bool keep_alive;
    } cases[] = {
        {"1.1", "", true},
        {"1.1", "Connection:\r\n", true},
        {"1.1", "Connection: close\r\n", false},
        {"1.1", "Connection: CLOSE\t\r\n", false},
        {"1.1", "Connection: te ,\t,close, x\r\n", false},
        {"1.1", "Connection: keep-alive\r\nX: y\r\nconnection: close\r\n", false},
        {"1.1", "Connection: close\r\nConnection: keep-alive\r\n", false},
        {"1.1", "Connection: closed, xclose, not close\r\n", true},
        {"1.1", "Proxy-Connection: close\r\n", true},
        {"1.0", "", false},
        {"1.0", "Connection: Keep-Alive\r\n", true},
        {"1.0", "Connection: upgrade,keep-alive\r\n", true},
        {"1.0", "Connection: keep-alive, close\r\n", false},
        {"1.0", "Connection: keep-alives\r\n", false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[200];
        int len = snprintf(text, sizeof(text), "GET / HTTP/%s\r\n" HOST "%s\r\n", cases[i].version,
                           cases[i].lines);
        struct parse_head head;
        assert_int_equal(head_read(text, (size_t)len, &head), STATUS_OK);
        if (head.keep_alive != cases[i].keep_alive)
            fail_msg("HTTP/%s with %s", cases[i].version, cases[i].lines);
    }
}

static void a_line_feed_alone_is_refused_before_the_head_is_whole(void **state)
{
    (void)state;
    static const char *const starts[] = {"G\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\n\n",
                                         "GET / HTTP/1.1\r\nHost: a\n"};
    for (size_t i = 0; i < COUNT(starts); i++) {
        struct parse_head head;
        assert_int_equal(head_read(starts[i], strlen(starts[i]), &head), STATUS_MALFORMED_REQUEST);
    }
}

static void heads_past_the_limits_are_refused(void **state)
{
    (void)state;
    struct parse_head head;
    struct buf b = {0};
    buf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    while (b.len <= HTTP_HEAD_MAX)
        buf_putc(&b, 'x');
    assert_int_equal(head_read(b.data, b.len, &head), STATUS_HEADERS_TOO_LARGE);
    buf_puts(&b, "\r\n\r\n");
    assert_int_equal(head_read(b.data, b.len, &head), STATUS_HEADERS_TOO_LARGE);

    buf_clear(&b);
    buf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 1; i < HTTP_HEADERS_MAX; i++)
        buf_puts(&b, "X: y\r\n");
    struct buf more = {0};
    buf_put(&more, b.data, b.len);
    buf_puts(&b, "\r\n");
    buf_puts(&more, "X: y\r\n\r\n");
    assert_int_equal(head_read(b.data, b.len, &head), STATUS_OK);
    assert_int_equal(head_read(more.data, more.len, &head), STATUS_HEADERS_TOO_LARGE);

    buf_clear(&b);
    buf_puts(&b, "GET /");
    for (int i = 0; i < HTTP_PATH_MAX; i++)
        buf_putc(&b, 'p');
    buf_puts(&b, " HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(head_read(b.data, b.len, &head), STATUS_MALFORMED_REQUEST);
    buf_fini(&b);
    buf_fini(&more);
}

/* Any bytes at all: no crash, and what is taken has a clean target. The seed is fixed. */
static void damaged_heads_never_hurt_the_parser(void **state)
{
    (void)state;
    static const char text[] = "POST /v1/queues/q?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n"
                               "Content-Type: application/json\r\nConnection: close\r\n\r\n";
    static const char spice[] = "\r\n :\t\0,;?#/GH1\x80\xff";
    uint32_t random = 1;
    for (int round = 0; round < 50000; round++) {
        char copy[sizeof(text)];
        memcpy(copy, text, sizeof(text));
        for (int hits = 1 + round % 4; hits > 0; hits--) {
            random = random * 1664525u + 1013904223u;
            copy[(random >> 8) % (sizeof(text) - 1)] = spice[(random >> 24) % (sizeof(spice) - 1)];
        }
        struct parse_head head;
        random = random * 1664525u + 1013904223u;
        size_t len = random >> 31 ? sizeof(text) - 1 : (random >> 8) % sizeof(text);
        memset(&head, 0, sizeof(head));
        enum status s = head_read(copy, len, &head);
        assert_true(s == STATUS_OK || s == STATUS_MALFORMED_REQUEST);
    }
}

static enum status chunks_read(const char *text, size_t cut, size_t body_max, struct buf *body,
                               size_t *rest)
{
    struct parse_chunks chunks = {0};
    size_t len = strlen(text);
    size_t at = 0;
    const char *why;
    enum status s = STATUS_OK;
    while (at < len && !chunks.done && !s) {
        size_t n = at == 0 && cut > 0 ? cut : len - at;
        char *piece = malloc(n);
        memcpy(piece, text + at, n);
        size_t used;
        size_t made;
        s = parse_chunks(&chunks, piece, n, body_max, &used, &made, &why);
        buf_put(body, piece, made);
        free(piece);
        at += used;
    }
    *rest = len - at;
    if (!s && !chunks.done)
        *rest = SIZE_MAX;
    return s;
}

static void chunks_are_joined_however_they_are_cut(void **state)
{
    (void)state;
    static const char text[] = "5\r\nhello\r\n1\r\n,\r\n00A\r\n big world\r\n0\r\n\r\nGET";
    for (size_t cut = 0; cut < sizeof(text) - 4; cut++) {
        struct buf body = {0};
        size_t rest;
        assert_int_equal(chunks_read(text, cut, 16, &body, &rest), STATUS_OK);
        assert_int_equal(rest, 3);
        assert_string_equal(buf_cstr(&body), "hello, big world");
        buf_fini(&body);
    }
}

static void chunks_with_two_meanings_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum status status;
    } cases[] = {
        {"5;a=b\r\nhello\r\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"5 \r\nhello\r\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {" 5\r\nhello\r\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"0x5\r\nhello\r\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"-5\r\nhello\r\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"5\nhello\r\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"5\rhello\r\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"5\r\nhello\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"5\r\nhelloX\r\n0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"5\r\nhello0\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"\r\n", STATUS_MALFORMED_REQUEST},
        {"0\r\nTrailer: a\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"0\r\n\n", STATUS_MALFORMED_REQUEST},
        {"00000000000000000\r\n\r\n", STATUS_MALFORMED_REQUEST},
        {"ffffffffffffffff\r\n", STATUS_PAYLOAD_TOO_LARGE},
        {"10000000000000005\r\n", STATUS_PAYLOAD_TOO_LARGE},
        {"11\r\n", STATUS_PAYLOAD_TOO_LARGE},
        {"a\r\n0123456789\r\n7\r\n", STATUS_PAYLOAD_TOO_LARGE},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf body = {0};
        size_t rest;
        if (chunks_read(cases[i].text, 0, 16, &body, &rest) != cases[i].status)
            fail_msg("not refused as it should be: %s", cases[i].text);
        buf_fini(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_is_split_into_its_parts),
        cmocka_unit_test(head_ends_at_the_same_byte_however_it_is_cut),
        cmocka_unit_test(oddities_that_have_one_meaning_are_taken),
        cmocka_unit_test(heads_with_two_meanings_are_refused),
        cmocka_unit_test(bytes_are_taken_only_where_they_may_stand),
        cmocka_unit_test(control_bytes_are_seen_at_every_place_of_a_value),
        cmocka_unit_test(known_names_are_told_from_their_neighbours),
        cmocka_unit_test(connection_is_a_list_of_tokens),
        cmocka_unit_test(a_line_feed_alone_is_refused_before_the_head_is_whole),
        cmocka_unit_test(heads_past_the_limits_are_refused),
        cmocka_unit_test(damaged_heads_never_hurt_the_parser),
        cmocka_unit_test(chunks_are_joined_however_they_are_cut),
        cmocka_unit_test(chunks_with_two_meanings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
