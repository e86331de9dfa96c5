#include "api/enqueue.h"
#include "base/clock.h"
#include "base/codec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct draft draft;
static struct problem problem;

static bool from_json(const char *text)
{
    struct json_doc doc;
    problem = (struct problem){0};
    json_init(&doc);
    assert_true(json_parse(&doc, text, strlen(text), MESSAGE_TOKENS_MAX));
    bool ok = enqueue_from_json(&doc, 0, &draft, &problem);
    json_fini(&doc);
    return ok;
}

static bool from_bytes(const char *payload, size_t len, const char *query)
{
    struct buf scratch = {0};
    problem = (struct problem){0};
    bool ok = enqueue_from_bytes(payload, len, query, strlen(query), &scratch, &draft, &problem);
    buf_fini(&scratch);
    return ok;
}

static void draft_is(enum payload_kind kind, const char *payload, const char *metadata,
                     const char *dedup)
{
    assert_int_equal(draft.kind, kind);
    assert_int_equal(draft.payload_len, strlen(payload));
    assert_int_equal(draft.metadata_len, strlen(metadata));
    assert_int_equal(draft.dedup_len, strlen(dedup));
    assert_memory_equal(draft.body, payload, draft.payload_len);
    assert_memory_equal(draft.body + draft.payload_len, metadata, draft.metadata_len);
    assert_memory_equal(draft.body + draft.payload_len + draft.metadata_len, dedup,
                        draft.dedup_len);
    draft_fini(&draft);
}

static void payloads_keep_their_kind(void **state)
{
    (void)state;
    assert_true(from_json("{\"payload\":\"a\\nb\"}"));
    assert_int_equal(draft.ready_ms, READY_NOW);
    assert_int_equal(draft.delay_ms, 0);
    assert_int_equal(draft.ttl_ms, TTL_DEFAULT);
    assert_int_equal(draft.priority.kind, PRIORITY_DEFAULT);
    draft_is(PAYLOAD_TEXT, "a\nb", "", "");
    assert_true(from_json("{\"payload\": {\"x\": [1, 2]} }"));
    draft_is(PAYLOAD_JSON, "{\"x\": [1, 2]}", "", "");
    assert_true(from_json("{\"payload\":null}"));
    draft_is(PAYLOAD_JSON, "null", "", "");
    assert_true(from_json("{\"payload\":\"\"}"));
    draft_is(PAYLOAD_TEXT, "", "", "");
    assert_true(from_json("{\"payload_base64\":\"Zm9vYg==\"}"));
    draft_is(PAYLOAD_BYTES, "foob", "", "");
}

static void the_body_holds_payload_metadata_and_key(void **state)
{
    (void)state;
    assert_true(from_json("{\"metadata\":{\"tenant\": \"acme\"},\"dedup_key\":\"k-1\","
                          "\"priority\":7,\"ttl_seconds\":1.5,\"payload\":\"p\"}"));
    assert_int_equal(draft.priority.kind, PRIORITY_NUMBER);
    assert_int_equal(draft.priority.number, 7);
    assert_int_equal(draft.ttl_ms, 1500);
    draft_is(PAYLOAD_TEXT, "p", "{\"tenant\": \"acme\"}", "k-1");
    assert_true(
        from_json("{\"payload_base64\":\"Zg==\",\"metadata\":{\"a\":1},\"dedup_key\":\"k\"}"));
    draft_is(PAYLOAD_BYTES, "f", "{\"a\":1}", "k");
    assert_true(from_json("{\"payload\":1,\"metadata\":{},\"dedup_key\":null,\"priority\":null}"));
    draft_is(PAYLOAD_JSON, "1", "", "");
}

static void a_time_is_given_in_one_of_three_ways(void **state)
{
    (void)state;
    assert_true(from_json("{\"payload\":1,\"delay_seconds\":2.5}"));
    assert_int_equal(draft.delay_ms, 2500);
    draft_fini(&draft);
    assert_true(from_json("{\"payload\":1,\"dequeue_at\":-5}"));
    assert_int_equal(draft.ready_ms, -5);
    draft_fini(&draft);
    assert_true(from_json("{\"payload\":1,\"delay_until\":\"2200-01-01T00:00:00Z\"}"));
    assert_true(draft.ready_ms > clock_now().wall_ms);
    draft_fini(&draft);
    assert_true(from_json("{\"payload\":1,\"delay_until\":\"2001-01-01T00:00:00Z\"}"));
    assert_int_equal(draft.ready_ms, READY_NOW);
    draft_fini(&draft);
    assert_false(from_json("{\"payload\":1,\"delay_seconds\":1,\"dequeue_at\":1}"));
    assert_int_equal(problem.status, STATUS_INVALID_FIELD);
}

static void what_is_not_allowed_is_refused(void **state)
{
    static const struct {
        const char *text, *field;
    } bad[] = {
        {"{}", "/payload"},
        {"{\"payload\":1,\"payload_base64\":\"\"}", "/payload"},
        {"{\"payload_base64\":\"?\"}", "/payload_base64"},
        {"{\"payload_base64\":7}", "/payload_base64"},
        {"{\"payload\":1,\"delay_seconds\":-1}", "/delay_seconds"},
        {"{\"payload\":1,\"dequeue_at\":1.5}", "/dequeue_at"},
        {"{\"payload\":1,\"dequeue_at\":200000000000000}", "/dequeue_at"},
        {"{\"payload\":1,\"dedup_key\":\"\"}", "/dedup_key"},
        {"{\"payload\":1,\"ttl_seconds\":0}", "/ttl_seconds"},
        {"{\"payload\":1,\"metadata\":[]}", "/metadata"},
        {"{\"payload\":1,\"metadata\":{\"a\":{}}}", "/metadata"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(from_json(bad[i].text));
        assert_int_equal(problem.status, STATUS_INVALID_FIELD);
        assert_string_equal(problem.field, bad[i].field);
    }
    assert_false(from_json("{\"payload\":1,\"delay_until\":\"9999-12-31T23:59:59Z\"}"));
    assert_int_equal(problem.status, STATUS_INVALID_FIELD);
    assert_non_null(strstr(problem.detail, "6429-10-17"));
    assert_false(from_json("{\"payload\":1,\"prioritty\":3}"));
    assert_int_equal(problem.status, STATUS_UNKNOWN_FIELD);
}

static void the_largest_payload_fits_and_one_byte_more_does_not(void **state)
{
    size_t room = PAYLOAD_MAX + 64;
    char *text = malloc(room);
    (void)state;
    for (size_t len = PAYLOAD_MAX; len <= PAYLOAD_MAX + 1; len++) {
        memset(text, 'x', room);
        size_t at = strlen("{\"payload\":\"");
        memcpy(text, "{\"payload\":\"", at);
        memcpy(text + at + len, "\"}", 3);
        bool fits = len == PAYLOAD_MAX;
        assert_int_equal(from_json(text), fits);
        if (fits)
            draft_fini(&draft);
        else
            assert_int_equal(problem.status, STATUS_PAYLOAD_TOO_LARGE);
        assert_int_equal(from_bytes(text, len, ""), fits);
        if (fits)
            draft_fini(&draft);
        else
            assert_int_equal(problem.status, STATUS_PAYLOAD_TOO_LARGE);
    }
    free(text);
}

/* 262144, 262145 and 262146 bytes have base64 of one length. */
static void a_payload_in_base64_is_measured_after_decoding(void **state)
{
    char *bytes = calloc(1, PAYLOAD_MAX + 2);
    (void)state;
    for (size_t len = PAYLOAD_MAX; len <= PAYLOAD_MAX + 2; len++) {
        struct buf text = {0};
        buf_lit(&text, "{\"payload_base64\":\"");
        base64_put(&text, bytes, len);
        buf_lit(&text, "\"}");
        bool fits = from_json(buf_cstr(&text));
        assert_int_equal(fits, len == PAYLOAD_MAX);
        if (fits)
            draft_fini(&draft);
        else
            assert_int_equal(problem.status, STATUS_PAYLOAD_TOO_LARGE);
        buf_fini(&text);
    }
    free(bytes);
}

static void bytes_take_their_fields_from_the_query(void **state)
{
    (void)state;
    assert_true(from_bytes("plain", 5, "priority=3&dedup_key=77&delay_seconds=1"));
    assert_int_equal(draft.priority.number, 3);
    assert_int_equal(draft.delay_ms, 1000);
    draft_is(PAYLOAD_TEXT, "plain", "", "77");
    assert_true(from_bytes("\xff\xfe", 2, "metadata.tenant=ac%20me&metadata.n=1&priority=HIGH"));
    assert_int_equal(draft.priority.kind, PRIORITY_NAME);
    draft_is(PAYLOAD_BYTES, "\xff\xfe", "{\"tenant\":\"ac me\",\"n\":\"1\"}", "");
    assert_true(from_bytes("x", 1, "metadata=%7B%22a%22:1%7D"));
    draft_is(PAYLOAD_TEXT, "x", "{\"a\":1}", "");
    assert_false(from_bytes("x", 1, "metadata.a=1&metadata.a=2"));
    assert_false(from_bytes("x", 1, "metadata=5"));
    assert_false(from_bytes("x", 1, "metadata={&metadata.a=1"));
    assert_false(from_bytes("x", 1, "metadata=%7B%22a%22:1%7D&metadata.a=1"));
    assert_false(from_bytes("x", 1, "payload=y"));
    assert_int_equal(problem.status, STATUS_UNKNOWN_FIELD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payloads_keep_their_kind),
        cmocka_unit_test(the_body_holds_payload_metadata_and_key),
        cmocka_unit_test(a_time_is_given_in_one_of_three_ways),
        cmocka_unit_test(what_is_not_allowed_is_refused),
        cmocka_unit_test(the_largest_payload_fits_and_one_byte_more_does_not),
        cmocka_unit_test(a_payload_in_base64_is_measured_after_decoding),
        cmocka_unit_test(bytes_take_their_fields_from_the_query),
    };
    return cmocka_run_group_tests_name("api enqueue", tests, NULL, NULL);
}
