#include "base/suggest.h"
#include "cli/synonym.h"
#include "term/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static size_t distance(const char *a, const char *b)
{
    return suggest_distance(a, strlen(a), b, strlen(b));
}

static void distance_counts_typing_mistakes(void **state)
{
    (void)state;
    assert_int_equal(distance("claim", "claim"), 0);
    assert_int_equal(distance("clam", "claim"), 1);
    assert_int_equal(distance("claiim", "claim"), 1);
    assert_int_equal(distance("clain", "claim"), 1);
    assert_int_equal(distance("calim", "claim"), 1); /* two neighbours swapped */
    assert_int_equal(distance("", "claim"), 5);
    assert_int_equal(distance("kitten", "sitting"), 3);
    char longer[100];
    memset(longer, 'x', sizeof(longer));
    assert_true(suggest_distance(longer, sizeof(longer), "claim", 5) == SIZE_MAX);
}

static const char *nearest(const char *asked)
{
    static const char *const names[] = {"enqueue", "claim", "ack",  "nack",
                                        "queues",  "queue", "stats"};
    struct suggestion s;
    suggest_begin(&s, asked, strlen(asked));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        suggest_offer(&s, names[i]);
    return s.best;
}

static void the_nearest_name_is_suggested_and_a_far_one_is_not(void **state)
{
    (void)state;
    assert_string_equal(nearest("calim"), "claim");
    assert_string_equal(nearest("enque"), "enqueue");
    assert_string_equal(nearest("queus"), "queues");
    assert_string_equal(nearest("stat"), "stats");
    assert_null(nearest("frobnicate"));
    assert_null(nearest("x"));
    assert_null(nearest(""));
}

static void other_programs_words_are_known_in_their_family(void **state)
{
    (void)state;
    assert_string_equal(synonym_find("", "list"), "triage queues");
    assert_string_equal(synonym_find("queue", "ls"), "triage queue list");
    assert_non_null(synonym_find("", "peek"));
    assert_null(synonym_find("dead", "peep"));
    assert_null(synonym_find("queue", "list"));
}

static void assert_says(const char *server, const char *field, const char *ours)
{
    struct buf out = {0};
    words_put(&out, server, strlen(server), field);
    assert_string_equal(buf_cstr(&out), ours);
    buf_fini(&out);
}

static void calls_become_commands(void **state)
{
    (void)state;
    assert_says(
        "There is no queue \"a.b\"; create it with PUT /v1/queues/a.b, or enqueue to it.", NULL,
        "There is no queue \"a.b\"; create it with `triage queue create a.b`, or enqueue to "
        "it.");
    assert_says("Create it with PUT /v1/queues/{queue}; GET /v1/queues lists them.", NULL,
                "Create it with `triage queue create QUEUE`; `triage queues` lists them.");
    assert_says("create it with PUT /v1/queues/mail.", NULL,
                "create it with `triage queue create mail`.");
    assert_says("or add ?force=true to delete it", NULL, "or give --force to delete it");
    assert_says("PUT /v1/queues/", NULL, "`triage queue create `");
    assert_says("nothing of that", NULL, "nothing of that");
    assert_says("", NULL, "");
}

static void fields_become_options(void **state)
{
    (void)state;
    assert_string_equal(words_option("/delay_seconds", 14), "--delay");
    assert_null(words_option("/delay", 6));
    assert_says("delay_seconds must be a number.", "--delay", "--delay must be a number.");
    assert_says("delay_seconds must be a number.", NULL, "delay_seconds must be a number.");
    assert_says("must be a number of delay_seconds", "--delay",
                "must be a number of delay_seconds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distance_counts_typing_mistakes),
        cmocka_unit_test(the_nearest_name_is_suggested_and_a_far_one_is_not),
        cmocka_unit_test(other_programs_words_are_known_in_their_family),
        cmocka_unit_test(calls_become_commands),
        cmocka_unit_test(fields_become_options),
    };
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
