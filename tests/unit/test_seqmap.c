#include "base/seqmap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct seqmap m;

static int setup(void **state)
{
    (void)state;
    m = (struct seqmap){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    seqmap_fini(&m);
    return 0;
}

/* Any pointer does as a value; this one tells its seq. */
static void *value(uint64_t seq)
{
    return (void *)(uintptr_t)(seq * 2 + 1);
}

static void seqmap_finds_what_was_put(void **state)
{
    (void)state;
    static const uint64_t seqs[] = {0, 1, 63, 64, 4095, 4096, 1ULL << 30, (1ULL << 48) - 1};
    for (size_t i = 0; i < 8; i++)
        seqmap_put(&m, seqs[i], value(seqs[i]));
    assert_int_equal(m.count, 8);
    for (size_t i = 0; i < 8; i++)
        assert_ptr_equal(seqmap_get(&m, seqs[i]), value(seqs[i]));
    assert_null(seqmap_get(&m, 2));
    assert_null(seqmap_get(&m, 65));
    assert_null(seqmap_get(&m, 1ULL << 31));
    assert_null(seqmap_get(&m, UINT64_MAX));
}

static void seqmap_removes_once(void **state)
{
    (void)state;
    seqmap_put(&m, 70, value(70));
    assert_ptr_equal(seqmap_remove(&m, 70), value(70));
    assert_null(seqmap_remove(&m, 70));
    assert_null(seqmap_get(&m, 70));
    assert_int_equal(m.count, 0);
    seqmap_put(&m, 70, value(71));
    assert_ptr_equal(seqmap_get(&m, 70), value(71));
}

static void seqmap_is_empty_at_first(void **state)
{
    (void)state;
    uint64_t seq;
    assert_null(seqmap_get(&m, 0));
    assert_null(seqmap_remove(&m, 0));
    assert_null(seqmap_next(&m, 0, &seq));
}

static void seqmap_walks_in_order(void **state)
{
    (void)state;
    for (uint64_t i = 1; i < 1000; i++)
        seqmap_put(&m, i * i * 37, value(i * i * 37));
    uint64_t seq = 0, i = 1;
    for (void *v; (v = seqmap_next(&m, seq, &seq)); seq++, i++) {
        assert_int_equal(seq, i * i * 37);
        assert_ptr_equal(v, value(seq));
    }
    assert_int_equal(i, 1000);
    assert_non_null(seqmap_next(&m, 38, &seq));
    assert_int_equal(seq, 4 * 37);
    assert_null(seqmap_next(&m, 999ULL * 999 * 37 + 1, &seq));
    assert_null(seqmap_next(&m, UINT64_MAX, &seq));
}

/* The life of a queue: numbers go up, the oldest go first, some stay long. */
static void seqmap_slides_along(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        seqmap_put(&m, i, value(i));
        if (i >= 500 && (i - 500) % 1000 != 0)
            assert_ptr_equal(seqmap_remove(&m, i - 500), value(i - 500));
    }
    uint64_t left = 0, seq = 0;
    for (void *v; (v = seqmap_next(&m, seq, &seq)); seq++, left++)
        assert_ptr_equal(v, value(seq));
    assert_int_equal(left, m.count);
    assert_int_equal(left, 700 - 1 + 1);
}

/* The remembered leaf must not outlive the nodes that removal frees. */
static void seqmap_forgets_a_leaf_that_went(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 100; round++) {
        uint64_t a = round * 64, b = a + (1ULL << 40);
        seqmap_put(&m, a, value(a));
        seqmap_put(&m, b, value(b));
        assert_ptr_equal(seqmap_get(&m, a), value(a));
        assert_ptr_equal(seqmap_remove(&m, a), value(a));
        assert_null(seqmap_get(&m, a));
        assert_ptr_equal(seqmap_remove(&m, b), value(b));
        assert_null(seqmap_get(&m, b));
    }
    assert_int_equal(m.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(seqmap_finds_what_was_put), TEST(seqmap_removes_once),
        TEST(seqmap_is_empty_at_first),  TEST(seqmap_walks_in_order),
        TEST(seqmap_slides_along),       TEST(seqmap_forgets_a_leaf_that_went),
    };
    return cmocka_run_group_tests_name("seqmap", tests, NULL, NULL);
}
