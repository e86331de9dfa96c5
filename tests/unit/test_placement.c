/* Where messages of a queue over several cells go, and what becomes of it when that changes. */
#include "base/limits.h"
#include "engine/cells/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct placement p;
static const char *why;

static int set_up(void **state)
{
    (void)state;
    p = (struct placement){.epoch = 1};
    why = NULL;
    for (const char *cell = "abc"; *cell; cell++)
        placement_add(&p, (char[]){*cell, '\0'}, SEAT_OPEN);
    placement_spread(&p);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    placement_fini(&p);
    return 0;
}

static struct buf text_of(const struct placement *from)
{
    struct buf text = {0};
    placement_write(from, &text);
    return text;
}

static void assert_same_again(void)
{
    struct buf text = text_of(&p), again;
    struct placement read;
    assert_true(placement_read(text.data, text.len, 7, &read));
    assert_int_equal(read.epoch, 7);
    again = text_of(&read);
    assert_int_equal(text.len, again.len);
    assert_memory_equal(text.data, again.data, text.len);
    placement_fini(&read);
    buf_fini(&text);
    buf_fini(&again);
}

static void buckets_are_spread_evenly(void **state)
{
    (void)state;
    assert_int_equal(placement_bucket_count(&p, 0), 86);
    assert_int_equal(placement_bucket_count(&p, 1), 85);
    assert_int_equal(placement_bucket_count(&p, 2), 85);
}

static void a_text_means_what_was_written(void **state)
{
    (void)state;
    assert_same_again();
    assert_true(placement_want(&p, "b", "9\n8\n", &why));
    assert_true(placement_drain(&p, "c", &why));
    assert_same_again();
    assert_true(placement_want(&p, "b", NULL, &why));
    assert_same_again();
    placement_settle(&p, 2, p.epoch, 1000);
    assert_same_again();
    assert_true(placement_remove(&p, "c", 1001, &why));
    assert_same_again();
}

static void a_drained_seat_has_no_buckets_and_its_keys_are_looked_for(void **state)
{
    (void)state;
    struct placement before;
    placement_copy(&p, &before);
    assert_true(placement_drain(&p, "b", &why));
    assert_int_equal(p.seats[1].state, SEAT_DRAINING);
    assert_int_equal(placement_bucket_count(&p, 1), 0);
    assert_int_equal(placement_bucket_count(&p, 0), 128);
    assert_int_equal(p.moved_count, 1);
    assert_int_equal(p.moved[0].from, 1);
    for (uint32_t i = 0; i < BUCKETS; i++)
        assert_int_equal(bucket_set_has(&p.moved[0].buckets, i), before.buckets[i] == 1);
    placement_fini(&before);
}

static void the_last_open_seat_stays_open(void **state)
{
    (void)state;
    assert_true(placement_drain(&p, "a", &why));
    assert_true(placement_drain(&p, "b", &why));
    struct placement next;
    placement_copy(&p, &next);
    assert_false(placement_drain(&next, "c", &why));
    assert_non_null(why);
    placement_fini(&next);
}

static void a_seat_goes_when_its_keys_are_forgotten(void **state)
{
    (void)state;
    assert_false(placement_remove(&p, "b", 0, &why)); /* open */
    assert_true(placement_drain(&p, "b", &why));
    assert_false(placement_remove(&p, "b", 5000, &why)); /* nobody knows yet until when */
    placement_settle(&p, 1, p.epoch, 1000);
    assert_false(placement_remove(&p, "b", 999, &why));
    assert_true(placement_remove(&p, "b", 1000, &why));
    placement_tidy(&p, 0); /* of a seat that is out nothing is looked for */
    assert_int_equal(p.moved_count, 0);
}

static void a_new_seat_takes_a_fair_share(void **state)
{
    (void)state;
    assert_true(placement_open(&p, "d", &why));
    assert_int_equal(placement_seat(&p, "d"), 3);
    assert_int_equal(placement_bucket_count(&p, 3), 64);
    assert_int_equal(p.moved_count, 3);
    assert_true(placement_open(&p, "d", &why)); /* once more changes nothing */
    assert_int_equal(placement_bucket_count(&p, 3), 64);
    placement_tidy(&p, 1000000);
    assert_int_equal(p.moved_count, 3); /* they have no end yet */
    for (uint32_t seat = 0; seat < 3; seat++)
        placement_settle(&p, seat, p.epoch, 1000);
    placement_tidy(&p, 1000);
    assert_int_equal(p.moved_count, 0);
}

static void a_move_has_no_end_before_its_old_cell_was_told(void **state)
{
    (void)state;
    struct bucket_set one = {{1}}, two = {{1 << 3}}; /* bucket 0 and bucket 3, both at "a" */
    p.epoch = 5;
    assert_true(placement_give(&p, "b", &one, &why));
    p.epoch = 6;
    assert_true(placement_give(&p, "b", &two, &why));
    assert_int_equal(p.moved_count, 2);
    assert_false(placement_unsettled(&p, 0, 4)); /* the cell has an older placement */
    placement_settle(&p, 0, 4, 1000);
    assert_int_equal(p.moved[0].until_ms, MOVED_FOR_GOOD);
    assert_true(placement_unsettled(&p, 0, 5));
    placement_settle(&p, 0, 5, 1000);
    assert_false(placement_unsettled(&p, 0, 5));
    assert_true(placement_unsettled(&p, 0, 6));
    placement_settle(&p, 0, 6, 2000);
    placement_tidy(&p, 1000);
    assert_int_equal(p.moved_count, 1);
    assert_true(bucket_set_has(&p.moved[0].buckets, 3));
    assert_int_equal(p.moved[0].until_ms, 2000);
    placement_tidy(&p, 2000);
    assert_int_equal(p.moved_count, 0);
}

static void moves_of_buckets_have_a_limit(void **state)
{
    (void)state;
    struct bucket_set one = {{1}};
    bool fits = true;
    for (; fits && p.epoch <= 2 * MOVED_MAX; p.epoch++)
        fits = placement_give(&p, p.epoch % 2 ? "b" : "a", &one, &why);
    assert_false(fits);
    assert_int_equal(p.moved_count, MOVED_MAX);
    assert_false(placement_give(&p, "nobody", &one, &why));
}

static void sets_of_buckets_are_read_to_the_letter(void **state)
{
    (void)state;
    static const char *const wrong[] = {"256",  "-1", "1-", "5-3",  "1,2",
                                        "1  2", " 1", "x",  "1-300"};
    struct bucket_set set;
    struct buf text = {0};
    assert_true(bucket_set_read("0-41 99 255", 11, &set));
    bucket_set_write(&set, &text);
    assert_string_equal(buf_cstr(&text), "0-41 99 255");
    buf_fini(&text);
    assert_true(bucket_set_read("", 0, &set));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(bucket_set_read(wrong[i], strlen(wrong[i]), &set));
}

static void what_a_store_gives_back_may_be_anything(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",
        "{}",
        "[]",
        "{\"seats\":[],\"buckets\":[0,256],\"moved\":[]}",
        "{\"seats\":[{\"cell\":\"a\"}],\"buckets\":[1,256],\"moved\":[]}",
        "{\"seats\":[{\"cell\":\"a\"}],\"buckets\":[0,255],\"moved\":[]}",
        "{\"seats\":[{\"cell\":\"a\"}],\"buckets\":[0,257],\"moved\":[]}",
        "{\"seats\":[{\"cell\":\"a\"}],\"buckets\":[0],\"moved\":[]}",
        "{\"seats\":[{\"cell\":\"a\"}],\"buckets\":[0,256]}",
        "{\"seats\":[{\"cell\":\"a\",\"state\":\"lost\"}],\"buckets\":[0,256],\"moved\":[]}",
        "{\"seats\":[{\"cell\":\"a\",\"levels\":[1]}],\"buckets\":[0,256],\"moved\":[]}",
        "{\"seats\":[{\"cell\":\"a\"}],\"buckets\":[0,256],\"moved\":[{\"from\":1}]}",
    };
    static const char long_name[] = "{\"seats\":[{\"cell\":\"12345678901234567890123456789012\"}],"
                                    "\"buckets\":[0,256],\"moved\":[]}";
    static const char nul[] = "{\"seats\":[{\"cell\":\"a\",\"levels\":[\"a\\u0000b\"]}],"
                              "\"buckets\":[0,256],\"moved\":[]}";
    struct placement read;
    assert_false(placement_read(nul, strlen(nul), 1, &read));
    assert_false(placement_read(long_name, strlen(long_name), 1, &read));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(placement_read(wrong[i], strlen(wrong[i]), 1, &read));
        assert_null(read.seats);
    }
}

static void a_placement_that_is_too_large_is_known(void **state)
{
    (void)state;
    char *levels = malloc(PLACE_MAP_MAX + 2);
    assert_true(placement_fits(&p));
    memset(levels, 'x', PLACE_MAP_MAX);
    memcpy(levels + PLACE_MAP_MAX, "\n", 2);
    assert_true(placement_want(&p, "a", levels, &why));
    assert_false(placement_fits(&p));
    free(levels);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(buckets_are_spread_evenly),
        TEST(a_text_means_what_was_written),
        TEST(a_drained_seat_has_no_buckets_and_its_keys_are_looked_for),
        TEST(the_last_open_seat_stays_open),
        TEST(a_seat_goes_when_its_keys_are_forgotten),
        TEST(a_new_seat_takes_a_fair_share),
        TEST(a_move_has_no_end_before_its_old_cell_was_told),
        TEST(moves_of_buckets_have_a_limit),
        TEST(sets_of_buckets_are_read_to_the_letter),
        TEST(what_a_store_gives_back_may_be_anything),
        TEST(a_placement_that_is_too_large_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
