#include "base/mem.h"
#include "base/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static struct order o;

static int setup(void **state)
{
    (void)state;
    order_init(&o);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (struct order_node *n; (n = order_first(&o));) {
        order_remove(&o, n);
        free(n);
    }
    order_fini(&o);
    return 0;
}

static struct order_node *add(int64_t key, uint64_t tie)
{
    struct order_node *n = mem_zalloc(sizeof(*n) + order_node_extra(tie));
    n->key = key;
    n->tie = tie;
    order_insert(&o, n);
    return n;
}

static void order_starts_empty(void **state)
{
    (void)state;
    assert_int_equal(o.count, 0);
    assert_null(order_first(&o));
    assert_null(order_last(&o));
    assert_null(order_seek(&o, INT64_MIN, 0));
    order_check(&o);
}

static void order_returns_equal_keys_by_tie(void **state)
{
    (void)state;
    add(5, 3);
    add(5, 1);
    add(5, 2);
    add(-5, 9);
    static const uint64_t ties[] = {9, 1, 2, 3};
    const struct order_node *n = order_first(&o);
    for (int i = 0; i < 4; i++, n = order_next(&o, n))
        assert_int_equal(n->tie, ties[i]);
    assert_null(n);
    assert_int_equal(order_last(&o)->tie, 3);
}

static void order_knows_the_ends_of_the_number_line(void **state)
{
    (void)state;
    add(INT64_MAX, UINT64_MAX);
    add(INT64_MIN, 0);
    add(0, 5);
    assert_int_equal(order_first(&o)->key, INT64_MIN);
    assert_int_equal(order_last(&o)->key, INT64_MAX);
    assert_int_equal(order_seek(&o, INT64_MAX, UINT64_MAX)->key, INT64_MAX);
    order_check(&o);
}

static void order_seeks_the_first_not_below(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        add(i * 10, (uint64_t)i + 1);
    assert_int_equal(order_seek(&o, 50, 6)->key, 50);
    assert_int_equal(order_seek(&o, 50, 5)->key, 50);
    assert_int_equal(order_seek(&o, 50, 7)->key, 60);
    assert_int_equal(order_seek(&o, 51, 0)->key, 60);
    assert_int_equal(order_seek(&o, INT64_MIN, 0)->key, 0);
    assert_null(order_seek(&o, 991, 0));
}

static void order_takes_a_removed_node_again(void **state)
{
    (void)state;
    struct order_node *n = add(1, 1);
    add(2, 2);
    order_remove(&o, n);
    assert_int_equal(n->height, 0);
    n->key = 3;
    order_insert(&o, n);
    assert_ptr_equal(order_last(&o), n);
    order_check(&o);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7FB5D329728EA185ULL;
    return x ^ x >> 27;
}

/* Random inserts and removals leave the list sorted, whatever the order they came in. */
static void order_stays_sorted_through_any_history(void **state)
{
    (void)state;
    enum { NODES = 2000 };
    static struct order_node *nodes[NODES];
    for (uint64_t i = 0; i < NODES; i++)
        nodes[i] = add((int64_t)(mix(i) % 50) - 25, i + 1);
    order_check(&o);
    for (uint64_t i = 0; i < NODES; i++) {
        uint64_t at = mix(i * 7 + 3) % NODES;
        order_remove(&o, nodes[at]);
        nodes[at]->key = (int64_t)(mix(i * 11) % 1000);
        order_insert(&o, nodes[at]);
    }
    order_check(&o);
    assert_int_equal(o.count, NODES);
    const struct order_node *last = NULL;
    uint64_t seen = 0;
    for (const struct order_node *n = order_first(&o); n; n = order_next(&o, n), seen++) {
        assert_true(!last || last->key < n->key || (last->key == n->key && last->tie < n->tie));
        last = n;
    }
    assert_int_equal(seen, NODES);
}

static void order_heights_thin_out(void **state)
{
    (void)state;
    uint64_t by_height[ORDER_HEIGHT_MAX + 1] = {0}, links = 0;
    for (uint64_t tie = 1; tie <= 100000; tie++) {
        by_height[order_height(tie)]++;
        links += order_height(tie);
    }
    assert_int_equal(by_height[0], 0);
    assert_in_range(by_height[1], 70000, 80000);
    assert_in_range(by_height[2], 17000, 21000);
    assert_in_range(links, 130000, 137000);
}

/* However many there are, what is near the front is counted exactly. */
static void order_counts_what_is_before_a_place(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 2, 1023, 1024, 1025, 20000};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (uint64_t i = 0; i < sizes[s]; i++)
            add((int64_t)(i / 3) * 10, i); /* three of each key */
        for (uint64_t i = 0; i <= sizes[s] + 3; i = i < 1100 ? i + 1 : i + 97) {
            uint64_t want = i < sizes[s] ? i : sizes[s];
            bool exact = true;
            uint64_t have = order_count_before(&o, (int64_t)(i / 3) * 10, i, &exact);
            if (want < 1024 || sizes[s] <= 1024)
                assert_true(exact);
            if (exact)
                assert_int_equal(have, want);
            assert_true(have >= (want < 1024 ? want : 1024));
            assert_in_range(have, want - want / 5, want + want / 5); /* a sample of a quarter */
        }
        bool exact = true;
        assert_int_equal(order_count_before(&o, INT64_MIN, UINT64_MAX, &exact), 0);
        assert_true(exact);
        assert_int_equal(order_count_before(&o, INT64_MAX, UINT64_MAX, &exact), sizes[s]);
        teardown(NULL);
        setup(NULL);
    }
}

static void order_counts_equal_keys_by_tie(void **state)
{
    (void)state;
    bool exact = true;
    for (uint64_t tie = 10; tie < 20; tie++)
        add(7, tie);
    assert_int_equal(order_count_before(&o, 7, 10, &exact), 0);
    assert_int_equal(order_count_before(&o, 7, 15, &exact), 5);
    assert_int_equal(order_count_before(&o, 7, UINT64_MAX, &exact), 10);
    assert_int_equal(order_count_before(&o, 6, UINT64_MAX, &exact), 0);
    assert_int_equal(order_count_before(&o, 8, 0, &exact), 10);
    assert_true(exact);
}

/* An estimate says so, and leaves what was said before alone. */
static void order_never_calls_an_estimate_exact(void **state)
{
    (void)state;
    bool exact = false;
    for (uint64_t i = 0; i < 5000; i++)
        add((int64_t)i, i);
    order_count_before(&o, 10, 0, &exact);
    assert_false(exact);
    exact = true;
    order_count_before(&o, 4000, 0, &exact);
    assert_false(exact);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(order_starts_empty),
        TEST(order_returns_equal_keys_by_tie),
        TEST(order_knows_the_ends_of_the_number_line),
        TEST(order_seeks_the_first_not_below),
        TEST(order_takes_a_removed_node_again),
        TEST(order_stays_sorted_through_any_history),
        TEST(order_heights_thin_out),
        TEST(order_counts_what_is_before_a_place),
        TEST(order_counts_equal_keys_by_tie),
        TEST(order_never_calls_an_estimate_exact),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
