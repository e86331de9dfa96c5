/* How a limit is divided among cells: never more than the limit together, nobody starves, and it
 * comes to rest. */
#include "base/limits.h"
#include "engine/cells/division.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CELLS 5

static uint64_t seed;

static uint64_t chance(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static uint64_t aims(const struct portion *p, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += p[i].aim + (p[i].reached ? 0 : p[i].grant);
    return sum;
}

static void what_is_used_and_needed_comes_first_and_the_rest_is_spread(void **state)
{
    struct portion p[3] = {
        {.reached = true, .open = true, .used = 4, .needs = 10},
        {.reached = true, .open = true},
        {.reached = true, .used = 1},
    };
    (void)state;
    division_aim(20, p, 3);
    assert_int_equal(p[0].aim, 14 + 3);
    assert_int_equal(p[1].aim, 2);
    assert_int_equal(p[2].aim, 1);
}

static void a_limit_of_one_is_whole_and_goes_to_the_oldest(void **state)
{
    struct portion p[3] = {
        {.reached = true, .open = true, .share = 1, .needs = 1000, .turn = 7},
        {.reached = true, .open = true, .needs = 1, .turn = 5},
        {.reached = true, .open = true},
    };
    (void)state;
    division_aim(1, p, 3);
    assert_int_equal(p[0].aim, 0);
    assert_int_equal(p[1].aim, 1);
    assert_int_equal(p[2].aim, 0);
    assert_true(division_helps(p, 3));
}

static void nothing_new_comes_in_while_more_is_used_than_the_limit(void **state)
{
    struct portion p[2] = {
        {.reached = true, .open = true, .share = 9, .used = 3, .needs = 5},
        {.reached = true, .open = true, .share = 9, .used = 3},
    };
    (void)state;
    division_aim(5, p, 2);
    assert_int_equal(p[0].aim, 0);
    assert_int_equal(p[1].aim, 0);
}

static void a_cell_that_is_away_keeps_its_grant(void **state)
{
    struct portion p[2] = {
        {.grant = 6},
        {.reached = true, .open = true, .share = 1, .grant = 1, .needs = 50},
    };
    (void)state;
    division_aim(10, p, 2);
    assert_int_equal(p[0].aim, 0);
    assert_int_equal(p[1].aim, 4);
    division_grant(10, p, 2);
    assert_int_equal(p[0].grant, 6);
    assert_int_equal(p[1].grant, 4);
}

static void what_nobody_knows_is_left_as_it_is(void **state)
{
    struct portion p[2] = {
        {.grant = SHARE_WHOLE},
        {.reached = true, .open = true, .share = 3, .grant = 3, .needs = 50},
    };
    (void)state;
    division_aim(10, p, 2);
    assert_int_equal(p[1].aim, 3);
    division_grant(10, p, 2);
    assert_int_equal(p[1].grant, 3);
}

/* Cells and servers at random, by the rules of shares.c: asked, lowered, written, raised, and any
 * step may not come to be. */

struct cell {
    uint64_t share, used, backlog;
    int64_t turn;
};

struct world {
    uint64_t limit;
    struct cell cells[CELLS];
    uint64_t grants[CELLS];
};

static void assert_kept(const struct world *w)
{
    uint64_t sum = 0;
    for (int i = 0; i < CELLS; i++) {
        const struct cell *c = &w->cells[i];
        uint64_t holds = c->share > c->used ? c->share : c->used;
        assert_true(holds <= w->grants[i]);
        sum += w->grants[i];
    }
    assert_true(sum <= w->limit);
}

static void work(struct world *w)
{
    struct cell *c = &w->cells[chance(CELLS)];
    if (chance(2) == 0 && c->used > 0) {
        c->used--;
    } else if (c->backlog > 0 && c->used < c->share) {
        c->backlog--;
        c->used++;
        c->turn++;
    }
}

static void divide(struct world *w, bool quiet)
{
    struct portion p[CELLS];
    for (int i = 0; i < CELLS; i++) {
        const struct cell *c = &w->cells[i];
        p[i] = (struct portion){.grant = w->grants[i],
                                .share = c->share,
                                .used = c->used,
                                .needs = c->backlog,
                                .turn = c->turn,
                                .reached = quiet || chance(8) > 0,
                                .open = true};
    }
    division_aim(w->limit, p, CELLS);
    assert_true(aims(p, CELLS) <= w->limit);
    for (int i = 0; i < CELLS; i++) {
        struct cell *c = &w->cells[i];
        for (int k = quiet ? 0 : (int)chance(3); k > 0; k--)
            work(w);
        if (!p[i].reached || (p[i].aim >= p[i].share && p[i].aim >= p[i].grant))
            continue;
        if (!quiet && chance(8) == 0) {
            p[i].reached = false; /* its answer is lost, and perhaps what was asked, too */
            c->share = chance(2) == 0 && p[i].aim < c->share ? p[i].aim : c->share;
            continue;
        }
        p[i].share = c->share = p[i].aim < c->share ? p[i].aim : c->share;
        p[i].used = c->used;
        p[i].grant = c->share > c->used ? c->share : c->used;
    }
    division_grant(w->limit, p, CELLS);
    if (!quiet && chance(8) == 0)
        return; /* the server dies */
    for (int i = 0; i < CELLS; i++)
        w->grants[i] = p[i].grant;
    assert_kept(w);
    for (int i = 0; i < CELLS; i++) {
        uint64_t next = p[i].aim < p[i].grant ? p[i].aim : p[i].grant;
        if (p[i].reached && next > w->cells[i].share && (quiet || chance(8) > 0))
            w->cells[i].share = next;
    }
}

static void no_limit_is_ever_exceeded_whatever_fails(void **state)
{
    (void)state;
    for (seed = 1; seed < 400;) {
        uint64_t first = seed;
        struct world w = {.limit = 1 + chance(chance(2) == 0 ? 4 : 1000)};
        for (int i = 0; i < CELLS; i++)
            w.cells[i].backlog = chance(3) == 0 ? 0 : chance(300);
        for (int turn = 0; turn < 300; turn++) {
            for (int k = 0; k < 5; k++)
                work(&w);
            divide(&w, false);
            assert_kept(&w);
        }
        seed = first + 1;
    }
}

static void everything_is_served_with_a_limit_of_one(void **state)
{
    (void)state;
    struct world w = {.limit = 1};
    seed = 42;
    for (int i = 0; i < CELLS; i++)
        w.cells[i] = (struct cell){.backlog = 20, .turn = (int64_t)chance(10)};
    for (int turn = 0; turn < 20000; turn++) {
        work(&w);
        if (turn % 3 == 0)
            divide(&w, true);
        assert_kept(&w);
    }
    for (int i = 0; i < CELLS; i++)
        assert_int_equal(w.cells[i].backlog, 0);
}

static void shares_come_to_rest(void **state)
{
    (void)state;
    for (seed = 1; seed < 200;) {
        uint64_t first = seed;
        struct world w = {.limit = 1 + chance(500)};
        for (int i = 0; i < CELLS; i++)
            w.cells[i].backlog = chance(400);
        divide(&w, true);
        struct world once = w;
        divide(&w, true);
        assert_memory_equal(&w, &once, sizeof(w));
        uint64_t sum = 0;
        for (int i = 0; i < CELLS; i++)
            sum += w.cells[i].share;
        assert_int_equal(sum, w.limit); /* nothing lies idle in the ledger */
        seed = first + 1;
    }
}

/* The ledger */

static void a_ledger_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct grants l = {0}, back;
    struct buf text = {0};
    *grants_add(&l, "a")->grants = 12;
    grants_add(&l, "b-2")->grants[SHARE_LEVEL + 15] = 0;
    grants_write(&l, 1U << SHARE_DEPTH | 1U << (SHARE_LEVEL + 15), &text);
    assert_string_equal(buf_cstr(&text), "0 18\na 12 -\nb-2 - 0\n");
    assert_true(grants_read(buf_cstr(&text), text.len, &back));
    assert_int_equal(back.count, 2);
    assert_int_equal(grants_find(&back, "a")->grants[SHARE_DEPTH], 12);
    assert_int_equal(grants_find(&back, "a")->grants[SHARE_BYTES], SHARE_WHOLE);
    assert_int_equal(grants_find(&back, "b-2")->grants[SHARE_LEVEL + 15], 0);
    grants_remove(&back, "a");
    assert_null(grants_find(&back, "a"));
    grants_fini(&back);
    grants_fini(&l);
    buf_fini(&text);
}

static void what_is_no_ledger_is_refused(void **state)
{
    static const char *const texts[] = {
        "0",
        "0\na",
        "0\na\n",
        "0\na 1",
        "0\na 1 2\n",
        "19\n",
        "x\n",
        "0\n 1\n",
        "0\na 1\na 2\n",
        "0\na 99999999999999999999\n",
        "0\na -1\n",
        "0\naaaaaaaaaabbbbbbbbbbccccccccccddd 1\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct grants l;
        assert_false(grants_read(texts[i], strlen(texts[i]), &l));
        assert_int_equal(l.count, 0);
    }
    struct grants none;
    assert_true(grants_read("", 0, &none));
    assert_int_equal(none.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_used_and_needed_comes_first_and_the_rest_is_spread),
        cmocka_unit_test(a_limit_of_one_is_whole_and_goes_to_the_oldest),
        cmocka_unit_test(nothing_new_comes_in_while_more_is_used_than_the_limit),
        cmocka_unit_test(a_cell_that_is_away_keeps_its_grant),
        cmocka_unit_test(what_nobody_knows_is_left_as_it_is),
        cmocka_unit_test(no_limit_is_ever_exceeded_whatever_fails),
        cmocka_unit_test(everything_is_served_with_a_limit_of_one),
        cmocka_unit_test(shares_come_to_rest),
        cmocka_unit_test(a_ledger_is_read_as_it_was_written),
        cmocka_unit_test(what_is_no_ledger_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
