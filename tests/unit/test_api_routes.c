#include "api/auth.h"
#include "api/rate.h"
#include "api/routes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct route_match match;

static const char *found(enum http_verb verb, const char *path)
{
    match = (struct route_match){0};
    route_find(verb, path, strlen(path), &match);
    return match.route ? match.route->pattern : "";
}

static void paths_lead_to_their_patterns(void **state)
{
    (void)state;
    assert_string_equal(found(VERB_GET, "/"), "/");
    assert_string_equal(found(VERB_GET, "/healthz"), "/healthz");
    assert_string_equal(found(VERB_HEAD, "/healthz"), "/healthz");
    assert_string_equal(found(VERB_POST, "/v1/queues/q/messages"), "/v1/queues/{queue}/messages");
    assert_int_equal(match.queue.len, 1);
    assert_string_equal(found(VERB_POST, "/v1/queues/q/messages/claim"),
                        "/v1/queues/{queue}/messages/claim");
    assert_string_equal(found(VERB_GET, "/v1/queues/q/messages/msg_1"),
                        "/v1/queues/{queue}/messages/{id}");
    assert_int_equal(match.id.len, 5);
    assert_string_equal(found(VERB_POST, "/v1/queues/q/messages/msg_1/nack"),
                        "/v1/queues/{queue}/messages/{id}/nack");
    assert_string_equal(found(VERB_GET, "/v1/queues/q/dead/msg_1"), "/v1/queues/{queue}/dead/{id}");
    assert_string_equal(found(VERB_POST, "/v1/queues/q/dead/purge"),
                        "/v1/queues/{queue}/dead/purge");
}

static void unknown_paths_and_methods_are_told_apart(void **state)
{
    static const char *const unknown[] = {"/v1",
                                          "/v2/queues",
                                          "/v1/queues/a/b",
                                          "/nothing",
                                          "//",
                                          "/v1/queues/a/messages/b/c/d/e/f/g/h",
                                          "/v1/queues/q/messages/m/c/d",
                                          "/healthz/"};
    (void)state;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_string_equal(found(VERB_GET, unknown[i]), "");
        assert_false(match.known);
    }
    assert_string_equal(found(VERB_PUT, "/v1/queues/q/messages"), "");
    assert_true(match.known);
    assert_string_equal(match.allow, "POST, GET");
    assert_string_equal(found(VERB_OTHER, "/v1/queues/q"), "");
    assert_string_equal(match.allow, "PUT, PATCH, GET, HEAD, DELETE");
    assert_string_equal(found(VERB_GET, "/v1/queues/q/messages/claim"), "");
    assert_string_equal(match.allow, "POST");
    assert_string_equal(found(VERB_HEAD, "/v1/queues/q/messages"), "");
    assert_true(match.known);
}

/* route_find takes the methods of one path from one run of the table. */
static void the_table_keeps_a_path_together_and_literals_first(void **state)
{
    (void)state;
    for (size_t i = 0; route_at(i); i++) {
        const struct route *r = route_at(i);
        const struct route *next = route_at(i + 1);
        assert_non_null(r->handle);
        for (size_t j = i + 1; next && route_at(j); j++) {
            if (strcmp(r->pattern, next->pattern) != 0)
                assert_string_not_equal(r->pattern, route_at(j)->pattern);
        }
        found(r->verb, r->pattern);
        assert_ptr_equal(match.route, r);
        struct route_match again = {0};
        route_parameters(r, r->pattern, strlen(r->pattern), &again);
        assert_memory_equal(&again.queue, &match.queue, sizeof(again.queue));
        assert_memory_equal(&again.name, &match.name, sizeof(again.name));
        assert_memory_equal(&again.id, &match.id, sizeof(again.id));
    }
    assert_int_equal(route_body_max(BODY_BATCH), HTTP_BODY_MAX);
    assert_true(route_body_max(BODY_MESSAGE) > 6 * PAYLOAD_MAX);
}

#define HASH_OF_SECRET "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
#define HASH_OF_OTHER  "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"

static struct http_slice slice(const char *text)
{
    return (struct http_slice){text, strlen(text)};
}

static void tokens_have_roles_and_queues(void **state)
{
    static const char file[] = "# who may do what\n\n"
                               "shop " HASH_OF_OTHER " produce,read shop-\r\n"
                               "root " HASH_OF_SECRET " admin";
    struct auth_table table;
    struct buf error = {0};
    (void)state;
    assert_true(auth_parse(file, strlen(file), 10, &table, &error));
    assert_int_equal(table.count, 2);
    const struct auth_token *shop = &table.tokens[0], *root = &table.tokens[1];
    assert_non_null(shop->rate);
    assert_true(auth_allows(shop, ROLE_PRODUCE, "shop-1"));
    assert_false(auth_allows(shop, ROLE_PRODUCE, "other"));
    assert_false(auth_allows(shop, ROLE_CONSUME, "shop-1"));
    assert_true(auth_allows(shop, 0, NULL));
    assert_true(auth_allows(root, ROLE_CONSUME, "other"));
    assert_ptr_equal(auth_find(&table, slice("Bearer secret")), root);
    assert_ptr_equal(auth_find(&table, slice("bearer   secret")), root);
    assert_null(auth_find(&table, slice("Bearer guess")));
    assert_null(auth_find(&table, slice("Bearer ")));
    assert_null(auth_find(&table, slice("Basic secret")));
    assert_null(auth_find(&table, (struct http_slice){0}));
    auth_fini(&table);
    buf_fini(&error);
}

static void tokens_are_exchanged_and_keep_their_account(void **state)
{
    static const char before[] = "same " HASH_OF_SECRET " read\nother " HASH_OF_OTHER " read\n"
                                 "gone - admin\n";
    static const char after[] = "other " HASH_OF_OTHER " admin\nsame " HASH_OF_SECRET " read\n";
    struct auth_table table;
    struct auth_version *held = NULL, *fresh = NULL;
    struct buf error = {0};
    (void)state;
    assert_true(auth_parse(before, strlen(before), 10, &table, &error));
    struct auth *auth = auth_new(&table);
    auth_refresh(auth, &held);
    const struct auth_token *gone = auth_find_name(&held->table, slice("gone"));
    const struct rate *same = auth_find_name(&held->table, slice("same"))->rate;
    const struct rate *other = auth_find_name(&held->table, slice("other"))->rate;
    assert_null(auth_find_name(&held->table, slice("gon")));
    assert_true(auth_parse(after, strlen(after), 10, &table, &error));
    auth_replace(auth, &table);
    auth_refresh(auth, &fresh);
    assert_ptr_not_equal(fresh, held);
    assert_null(auth_find_name(&fresh->table, slice("gone")));
    assert_ptr_equal(auth_find_name(&fresh->table, slice("same"))->rate, same);
    assert_ptr_not_equal(auth_find_name(&fresh->table, slice("other"))->rate, other);
    /* Who holds the old version still has all of it. */
    assert_string_equal(gone->name, "gone");
    assert_true(auth_allows(gone, ROLE_ADMIN, NULL));
    auth_unref(held);
    auth_unref(fresh);
    auth_free(auth);
    buf_fini(&error);
}

static void a_wrong_tokens_file_is_refused_with_its_line(void **state)
{
    static const char *const bad[] = {"a\n",
                                      "a b c\n",
                                      "\na " HASH_OF_SECRET " wizard\n",
                                      "a " HASH_OF_SECRET "\n",
                                      "a " HASH_OF_SECRET " read p extra\n",
                                      "a " HASH_OF_SECRET " read m\xc3\xbc\n",
                                      "a " HASH_OF_SECRET " read\na " HASH_OF_OTHER " admin\n",
                                      "a " HASH_OF_SECRET " read\nb " HASH_OF_SECRET " admin\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct auth_table table;
        struct buf error = {0};
        assert_false(auth_parse(bad[i], strlen(bad[i]), 0, &table, &error));
        assert_non_null(strstr(buf_cstr(&error), i == 2 || i >= 6 ? "line 2" : "line 1"));
        buf_fini(&error);
    }
}

static void a_rate_allows_its_burst_and_then_its_pace(void **state)
{
    struct rate *r = rate_new(10, 3);
    uint64_t now_us = 5000000;
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_true(rate_take(r, now_us));
    assert_false(rate_take(r, now_us));
    assert_false(rate_take(r, now_us + 99000));
    assert_true(rate_take(r, now_us + 100000));
    assert_false(rate_take(r, now_us + 100000));
    int passed = 0;
    for (int i = 0; i < 1000; i++)
        passed += rate_take(r, now_us + 1000000 + (uint64_t)i * 10000);
    assert_in_range(passed, 99, 104);
    rate_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_lead_to_their_patterns),
        cmocka_unit_test(unknown_paths_and_methods_are_told_apart),
        cmocka_unit_test(the_table_keeps_a_path_together_and_literals_first),
        cmocka_unit_test(tokens_have_roles_and_queues),
        cmocka_unit_test(tokens_are_exchanged_and_keep_their_account),
        cmocka_unit_test(a_wrong_tokens_file_is_refused_with_its_line),
        cmocka_unit_test(a_rate_allows_its_burst_and_then_its_pace),
    };
    return cmocka_run_group_tests_name("api routes", tests, NULL, NULL);
}
