#include "base/mem.h"
#include "core/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW 1750000000000

static struct filter f;
static struct message *m;

static int setup(void **state)
{
    (void)state;
    filter_init(&f);
    m = message_new(1);
    m->state = MESSAGE_READY;
    m->slot = 3;
    m->enqueued_ms = NOW - 60000;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    filter_fini(&f);
    message_free(m);
    return 0;
}

/* The metadata stands between the payload and the dedup key. */
static void set_metadata(const char *text)
{
    struct buf body = {0};
    buf_printf(&body, "payload%skey", text);
    free(m->body);
    m->payload_len = 7;
    m->metadata_len = (uint16_t)strlen(text);
    m->dedup_len = 3;
    m->body = buf_take(&body);
}

static bool wants(const char *metadata)
{
    assert_true(filter_set_metadata(&f, metadata, strlen(metadata)));
    return filter_matches(&f, m, -1, NOW);
}

static void no_condition_matches_every_waiting_message(void **state)
{
    (void)state;
    assert_true(filter_matches(&f, m, -1, NOW));
    m->state = MESSAGE_SCHEDULED;
    assert_true(filter_matches(&f, m, -1, NOW));
}

static void only_waiting_messages_match(void **state)
{
    (void)state;
    static const enum message_state others[] = {MESSAGE_LEASED, MESSAGE_DEAD, MESSAGE_DONE};
    for (int i = 0; i < 3; i++) {
        m->state = (uint8_t)others[i];
        assert_false(filter_matches(&f, m, -1, NOW));
    }
}

static void a_level_is_matched_by_its_slot(void **state)
{
    (void)state;
    assert_true(filter_matches(&f, m, 3, NOW));
    assert_false(filter_matches(&f, m, 2, NOW));
    assert_false(filter_matches(&f, m, 0, NOW));
}

static void age_counts_from_the_enqueue(void **state)
{
    (void)state;
    m->ready_ms = NOW + 5000;
    f.older_than_ms = 60000;
    assert_true(filter_matches(&f, m, -1, NOW));
    f.older_than_ms = 60001;
    assert_false(filter_matches(&f, m, -1, NOW));
    f.older_than_ms = 0;
    assert_true(filter_matches(&f, m, -1, NOW));
}

static void every_wanted_member_must_be_there_with_its_value(void **state)
{
    (void)state;
    set_metadata("{\"tenant\":\"acme\",\"n\":7,\"ok\":true,\"none\":null}");
    assert_true(wants("{}"));
    assert_true(wants("{\"tenant\":\"acme\"}"));
    assert_true(wants("{ \"n\" : 7, \"tenant\":\"acme\" }"));
    assert_true(wants("{\"ok\":true,\"none\":null}"));
    assert_false(wants("{\"tenant\":\"acme\",\"n\":8}"));
    assert_false(wants("{\"tenant\":\"acm\"}"));
    assert_false(wants("{\"tenants\":\"acme\"}"));
    assert_false(wants("{\"n\":\"7\"}"));
    assert_false(wants("{\"ok\":false}"));
    assert_false(wants("{\"none\":false}"));
    assert_false(wants("{\"tenant\":\"acme\",\"more\":1}"));
}

static void as_text_a_value_is_what_it_is_written_as(void **state)
{
    (void)state;
    set_metadata("{\"n\":7,\"s\":\"7\",\"ok\":true,\"o\":{}}");
    f.as_text = true;
    assert_true(wants("{\"n\":\"7\",\"s\":\"7\",\"ok\":\"true\"}"));
    assert_false(wants("{\"n\":\"7.0\"}"));
    assert_false(wants("{\"o\":\"{}\"}"));
    assert_false(wants("{\"ok\":\"false\"}"));
}

static void a_part_of_the_payload_is_found_anywhere_in_it(void **state)
{
    (void)state;
    set_metadata("{\"tail\":1}");
    filter_set_part(&f, "load", 4);
    assert_true(filter_needs_payload(&f));
    assert_true(filter_matches(&f, m, -1, NOW));
    filter_set_part(&f, "payload", 7);
    assert_true(filter_matches(&f, m, -1, NOW));
    filter_set_part(&f, "payloads", 8);
    assert_false(filter_matches(&f, m, -1, NOW));
    filter_set_part(&f, "tail", 4); /* that is in the metadata */
    assert_false(filter_matches(&f, m, -1, NOW));
}

static void a_reason_is_compared_as_a_whole(void **state)
{
    (void)state;
    filter_set_reason(&f, "no", 2);
    assert_false(filter_matches(&f, m, -1, NOW));
    message_set_reason(m, "nope", 4);
    assert_false(filter_matches(&f, m, -1, NOW));
    message_set_reason(m, "no", 2);
    assert_true(filter_matches(&f, m, -1, NOW));
}

static void states_can_be_asked_for(void **state)
{
    (void)state;
    f.states = 1U << MESSAGE_DEAD;
    assert_false(filter_matches(&f, m, -1, NOW));
    m->state = MESSAGE_DEAD;
    assert_true(filter_matches(&f, m, -1, NOW));
}

static void strings_compare_as_what_they_mean(void **state)
{
    (void)state;
    set_metadata("{\"a\\u0062\":\"x\\u0079\"}");
    assert_true(wants("{\"ab\":\"xy\"}"));
    assert_false(wants("{\"ab\":\"x\\\\u0079\"}"));
}

static void numbers_compare_as_what_they_mean(void **state)
{
    (void)state;
    set_metadata("{\"a\":1000,\"b\":0.5,\"big\":9007199254740993}");
    assert_true(wants("{\"a\":1e3}"));
    assert_true(wants("{\"a\":1000.0,\"b\":5e-1}"));
    assert_true(wants("{\"big\":9007199254740993}"));
    assert_false(wants("{\"big\":9007199254740992}"));
    assert_false(wants("{\"a\":1001}"));
}

static void a_message_without_metadata_matches_only_an_empty_wish(void **state)
{
    (void)state;
    assert_true(wants("{}"));
    assert_false(wants("{\"tenant\":\"acme\"}"));
}

static void only_an_object_can_be_wished_for(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "[]", "7", "null", "{", "{\"a\":1} x", "\"a\""};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_false(filter_set_metadata(&f, texts[i], strlen(texts[i])));
}

/* The text that was handed in may be gone by the time a message is looked at. */
static void the_wish_is_kept_by_the_filter(void **state)
{
    (void)state;
    char text[] = "{\"tenant\":\"acme\"}";
    set_metadata(text);
    assert_true(filter_set_metadata(&f, text, strlen(text)));
    memset(text, 'x', sizeof(text));
    assert_true(filter_matches(&f, m, -1, NOW));
}

static void all_conditions_hold_together(void **state)
{
    (void)state;
    set_metadata("{\"tenant\":\"acme\"}");
    f.older_than_ms = 1000;
    assert_true(filter_set_metadata(&f, "{\"tenant\":\"acme\"}", 17));
    assert_true(filter_matches(&f, m, 3, NOW));
    assert_false(filter_matches(&f, m, 4, NOW));
    assert_false(filter_matches(&f, m, 3, NOW - 59500));
    set_metadata("{\"tenant\":\"else\"}");
    assert_false(filter_matches(&f, m, 3, NOW));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_condition_matches_every_waiting_message),
        TEST(only_waiting_messages_match),
        TEST(a_level_is_matched_by_its_slot),
        TEST(age_counts_from_the_enqueue),
        TEST(every_wanted_member_must_be_there_with_its_value),
        TEST(as_text_a_value_is_what_it_is_written_as),
        TEST(a_part_of_the_payload_is_found_anywhere_in_it),
        TEST(a_reason_is_compared_as_a_whole),
        TEST(states_can_be_asked_for),
        TEST(strings_compare_as_what_they_mean),
        TEST(numbers_compare_as_what_they_mean),
        TEST(a_message_without_metadata_matches_only_an_empty_wish),
        TEST(only_an_object_can_be_wished_for),
        TEST(the_wish_is_kept_by_the_filter),
        TEST(all_conditions_hold_together),
    };
    return cmocka_run_group_tests_name("filter", tests, NULL, NULL);
}
