/* net/parse: the strictness of the reader of heads and chunks, byte by byte. */
#include "net/parse.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

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
        cmocka_unit_test(heads_past_the_limits_are_refused),
        cmocka_unit_test(damaged_heads_never_hurt_the_parser),
        cmocka_unit_test(chunks_are_joined_however_they_are_cut),
        cmocka_unit_test(chunks_with_two_meanings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
