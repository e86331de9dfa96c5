#include "api/trace_context.h"
#include "base/buf.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CONTEXT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static bool valid(const char *text)
{
    return trace_context_valid(text, strlen(text));
}

static void a_context_is_checked(void **state)
{
    (void)state;
    assert_true(valid(CONTEXT));
    assert_true(valid("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    assert_true(valid("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"));
    static const char *const wrong[] = {
        "",
        "00",
        CONTEXT "-more",
        CONTEXT "0",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "0\"-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(valid(wrong[i]));
}

/* The metadata of a draft with payload "p", this metadata and the key "k", after a context came. */
static const char *after(const char *metadata, const char *context)
{
    static char text[2 * METADATA_MAX];
    char body[METADATA_MAX + 3];
    size_t len = strlen(metadata), context_len = strlen(context);
    memcpy(body, "p", 1);
    memcpy(body + 1, metadata, len);
    memcpy(body + 1 + len, "k", 1);
    struct draft d = {.body = mem_dup(body, len + 2),
                      .payload_len = 1,
                      .metadata_len = (uint16_t)len,
                      .dedup_len = 1};
    trace_context_put(&d, context, context_len);
    assert_int_equal(d.body[0], 'p');
    assert_int_equal(d.body[1 + d.metadata_len], 'k');
    memcpy(text, d.body + 1, d.metadata_len);
    text[d.metadata_len] = '\0';
    draft_fini(&d);
    return text;
}

static void a_context_becomes_a_member_of_the_metadata(void **state)
{
    (void)state;
    assert_string_equal(after("", CONTEXT), "{\"traceparent\":\"" CONTEXT "\"}");
    assert_string_equal(after("{\"a\": 1}", CONTEXT), "{\"traceparent\":\"" CONTEXT "\",\"a\": 1}");
    assert_string_equal(after("{\"a\":\"traceparent\"}", CONTEXT),
                        "{\"traceparent\":\"" CONTEXT "\",\"a\":\"traceparent\"}");
    assert_string_equal(after("", "00-nonsense"), "");
}

static void metadata_of_the_client_goes_first(void **state)
{
    (void)state;
    assert_string_equal(after("{\"traceparent\" : \"mine\"}", CONTEXT),
                        "{\"traceparent\" : \"mine\"}");
    assert_string_equal(after("{\"\\u0074raceparent\":\"mine\"}", CONTEXT),
                        "{\"\\u0074raceparent\":\"mine\"}");
    char large[METADATA_MAX + 1];
    memset(large, 'x', sizeof(large));
    memcpy(large, "{\"a\":\"", 6);
    memcpy(large + METADATA_MAX - 50, "\"}", 3);
    assert_string_equal(after(large, CONTEXT), large);
    struct buf many = {0};
    for (int i = 0; i < METADATA_KEYS_MAX; i++)
        buf_printf(&many, "%c\"k%d\":%d", i > 0 ? ',' : '{', i, i);
    buf_putc(&many, '}');
    assert_string_equal(after(buf_cstr(&many), CONTEXT), buf_cstr(&many));
    buf_fini(&many);
}

static bool found(const char *metadata)
{
    const char *trace = trace_context_find(metadata, strlen(metadata));
    if (trace)
        assert_memory_equal(trace, CONTEXT, TRACEPARENT_LEN);
    return trace != NULL;
}

static void a_context_is_found_as_a_member_alone(void **state)
{
    (void)state;
    assert_true(found("{\"traceparent\":\"" CONTEXT "\"}"));
    assert_true(found("{\"a\": 1, \"traceparent\" :\n \"" CONTEXT "\", \"b\": \"\"}"));
    assert_true(found("{\"a\":\"traceparent\",\"traceparent\":\"" CONTEXT "\"}"));
    assert_false(found(""));
    assert_false(
        found("{\"traceparent\":42,\"a\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}"));
    assert_false(found("{\"a\":\"\\\"traceparent\\\":\\\"" CONTEXT "\\\"\"}"));
    assert_false(
        found("{\"traceparent\":\"00-nonsense\",\"a\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_is_checked),
        cmocka_unit_test(a_context_becomes_a_member_of_the_metadata),
        cmocka_unit_test(metadata_of_the_client_goes_first),
        cmocka_unit_test(a_context_is_found_as_a_member_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
