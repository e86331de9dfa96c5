#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define KEYS 5000

struct item {
    char key[16];
    size_t len;
    bool in;
};

static struct map m;
static struct item items[KEYS];

static int setup(void **state)
{
    (void)state;
    m = (struct map){0};
    for (int i = 0; i < KEYS; i++) {
        items[i].len = (size_t)snprintf(items[i].key, sizeof(items[i].key), "key-%d", i);
        items[i].in = false;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    map_fini(&m);
    return 0;
}

static void put(int i)
{
    map_put(&m, items[i].key, items[i].len, &items[i]);
    items[i].in = true;
}

static void take(int i)
{
    assert_ptr_equal(map_remove(&m, items[i].key, items[i].len), &items[i]);
    items[i].in = false;
}

static void map_is_empty_at_first(void **state)
{
    (void)state;
    size_t at = 0;
    assert_null(map_get(&m, "x", 1));
    assert_null(map_remove(&m, "x", 1));
    assert_null(map_each(&m, &at));
}

static void map_tells_keys_apart_by_length(void **state)
{
    (void)state;
    int a, b, c;
    map_put(&m, "ab", 2, &a);
    map_put(&m, "a", 1, &b);
    map_put(&m, "", 0, &c);
    assert_ptr_equal(map_get(&m, "abc", 2), &a);
    assert_ptr_equal(map_get(&m, "abc", 1), &b);
    assert_ptr_equal(map_get(&m, "abc", 0), &c);
    assert_null(map_get(&m, "abc", 3));
}

static void map_takes_bytes_of_any_value(void **state)
{
    (void)state;
    int a, b;
    map_put(&m, "a\0b", 3, &a);
    map_put(&m, "a\0c", 3, &b);
    assert_ptr_equal(map_get(&m, "a\0b", 3), &a);
    assert_ptr_equal(map_get(&m, "a\0c", 3), &b);
}

static void check(void)
{
    size_t in = 0, seen = 0, at = 0;
    for (int i = 0; i < KEYS; i++) {
        assert_ptr_equal(map_get(&m, items[i].key, items[i].len), items[i].in ? &items[i] : NULL);
        in += items[i].in;
    }
    assert_int_equal(m.count, in);
    for (struct item *it; (it = map_each(&m, &at)); seen++)
        assert_true(it->in);
    assert_int_equal(seen, in);
}

/* Removal closes gaps; every key must still be found from its own place. */
static void map_finds_the_rest_after_removals(void **state)
{
    (void)state;
    for (int i = 0; i < KEYS; i++)
        put(i);
    check();
    for (int i = 0; i < KEYS; i += 2)
        take(i);
    check();
    for (int i = 0; i < KEYS; i += 4)
        put(i);
    for (int i = 1; i < KEYS; i += 2)
        take(i);
    check();
    assert_null(map_remove(&m, items[1].key, items[1].len));
}

/* A small map that is nearly full wraps around its end. */
static void map_wraps_around(void **state)
{
    (void)state;
    for (int round = 0; round + 12 < KEYS; round += 3) {
        for (int i = 0; i < 11; i++)
            put(round + i);
        for (int i = 10; i >= 0; i -= 2)
            take(round + i);
        for (int i = 1; i < 11; i += 2)
            assert_ptr_equal(map_get(&m, items[round + i].key, items[round + i].len),
                             &items[round + i]);
        for (int i = 1; i < 11; i += 2)
            take(round + i);
        assert_int_equal(m.count, 0);
    }
    assert_int_equal(m.cap, 16);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* The order in which a map goes through its values shows where they are. */
static void places_under(uint8_t first_byte, const char *names[], size_t count, void **order)
{
    uint8_t key[MAP_KEY_BYTES] = {first_byte};
    struct map placed = {0};
    map_key(key);
    for (size_t i = 0; i < count; i++)
        map_put(&placed, names[i], strlen(names[i]), (void *)names[i]);
    size_t n = 0;
    for (size_t at = 0; (order[n] = map_each(&placed, &at));)
        n++;
    assert_int_equal(n, count);
    map_fini(&placed);
    map_key((uint8_t[MAP_KEY_BYTES]){0});
}

static void map_has_places_that_only_who_knows_the_key_can_tell(void **state)
{
    (void)state;
    static const char *names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    void *one[11], *same[11], *other[11];
    places_under(1, names, 10, one);
    places_under(1, names, 10, same);
    places_under(2, names, 10, other);
    assert_memory_equal(one, same, sizeof(one));
    assert_memory_not_equal(one, other, sizeof(one));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(map_is_empty_at_first),
        TEST(map_tells_keys_apart_by_length),
        TEST(map_takes_bytes_of_any_value),
        TEST(map_finds_the_rest_after_removals),
        TEST(map_wraps_around),
        TEST(map_has_places_that_only_who_knows_the_key_can_tell),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
