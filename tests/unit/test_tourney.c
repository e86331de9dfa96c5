#include "base/mem.h"
#include "base/tourney.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define PLACES 37 /* no power of 2 */

static struct tourney t;

/* The same by brute force. */
static struct model {
    bool in, skipped;
    struct tourney_key key;
} model[PLACES];

static int setup(void **state)
{
    (void)state;
    tourney_init(&t, PLACES);
    for (int i = 0; i < PLACES; i++)
        model[i] = (struct model){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tourney_fini(&t);
    return 0;
}

static bool is_skipped(const void *ctx, uint32_t place)
{
    (void)ctx;
    assert_true(place < PLACES);
    assert_true(model[place].in); /* who is out is not asked about */
    return model[place].skipped;
}

static bool is_below(const struct tourney_key *a, const struct tourney_key *b)
{
    if (a->major != b->major)
        return a->major < b->major;
    return a->minor != b->minor ? a->minor < b->minor : a->tie < b->tie;
}

static uint32_t model_first(int64_t most, bool all)
{
    uint32_t best = TOURNEY_NONE;
    for (uint32_t i = 0; i < PLACES; i++) {
        const struct model *m = &model[i];
        if (!m->in || (!all && (m->skipped || m->key.major > most)))
            continue;
        if (best == TOURNEY_NONE || is_below(&m->key, &model[best].key))
            best = i;
    }
    return best;
}

static void change_one(void)
{
    uint32_t i = (uint32_t)rand() % PLACES;
    model[i].in = rand() % 4 > 0;
    /* few different keys, so that many are equal */
    model[i].key = (struct tourney_key){rand() % 5 - 2, rand() % 3, (uint64_t)rand() % 3};
    if (model[i].in)
        tourney_set(&t, i, &model[i].key);
    else
        tourney_out(&t, i);
}

static void tourney_without_places_has_nobody(void **state)
{
    (void)state;
    struct tourney none = {0};
    assert_int_equal(tourney_first(&none), TOURNEY_NONE);
    assert_int_equal(tourney_first_but(&none, INT64_MAX, is_skipped, NULL), TOURNEY_NONE);
    assert_false(tourney_is_in(&none, 0));
    tourney_out(&none, 0);
    tourney_fini(&none);
}

static void tourney_has_the_smallest_key_and_of_equals_the_lowest_place(void **state)
{
    (void)state;
    const struct tourney_key five = {5, 0, 1}, same = {5, 0, 1}, six = {5, 0, 2};
    tourney_set(&t, 30, &five);
    tourney_set(&t, 7, &six);
    assert_int_equal(tourney_first(&t), 30);
    tourney_set(&t, 8, &same);
    assert_int_equal(tourney_first(&t), 8);
    tourney_out(&t, 8);
    tourney_out(&t, 30);
    assert_int_equal(tourney_first(&t), 7);
    tourney_out(&t, 7);
    assert_int_equal(tourney_first(&t), TOURNEY_NONE);
}

static void tourney_is_like_a_search_through_all_places(void **state)
{
    (void)state;
    srand(7);
    for (int n = 0; n < 50000; n++) {
        change_one();
        int64_t most = rand() % 6 - 3;
        for (int i = 0; i < PLACES; i++)
            model[i].skipped = rand() % 8 < n % 9;
        for (uint32_t i = 0; i < PLACES; i++)
            assert_int_equal(tourney_is_in(&t, i), model[i].in);
        assert_int_equal(tourney_first(&t), model_first(0, true));
        assert_int_equal(tourney_first_but(&t, most, is_skipped, NULL), model_first(most, false));
    }
}

/* Nobody below a winner that counts, or that is above `most`, is asked. */
static uint32_t asked;

static bool is_counted(const void *ctx, uint32_t place)
{
    asked++;
    return place < *(const uint32_t *)ctx;
}

static void tourney_asks_about_few(void **state)
{
    (void)state;
    struct tourney big = {0};
    tourney_init(&big, 1024);
    for (uint32_t i = 0; i < 1024; i++)
        tourney_set(&big, i, &(struct tourney_key){i, 0, 0});
    for (uint32_t skipped = 0; skipped < 20; skipped++) {
        asked = 0;
        assert_int_equal(tourney_first_but(&big, INT64_MAX, is_counted, &skipped), skipped);
        assert_true(asked <= 11 * (skipped + 1));
    }
    asked = 0;
    uint32_t all = 1024;
    assert_int_equal(tourney_first_but(&big, -1, is_counted, &all), TOURNEY_NONE);
    assert_int_equal(asked, 0);
    tourney_fini(&big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tourney_without_places_has_nobody),
        cmocka_unit_test_setup_teardown(tourney_has_the_smallest_key_and_of_equals_the_lowest_place,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(tourney_is_like_a_search_through_all_places, setup,
                                        teardown),
        cmocka_unit_test(tourney_asks_about_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
