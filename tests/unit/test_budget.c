/* The budget: who may take how much of what all clients share. */
#include "net/budget.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include <cmocka.h>

#define LIMIT 800000
#define SOFT  700000

static struct budget *budget_with(uint64_t connections)
{
    struct budget_limits limits = {.max = {LIMIT, 80}, .connections_max = connections};
    return budget_new(&limits);
}

static struct account *open_v4(struct budget *b, const char *text)
{
    struct sockaddr_in peer = {.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, text, &peer.sin_addr), 1);
    return account_open(b, (struct sockaddr *)&peer);
}

static struct account *open_v6(struct budget *b, const char *text)
{
    struct sockaddr_in6 peer = {.sin6_family = AF_INET6};
    assert_int_equal(inet_pton(AF_INET6, text, &peer.sin6_addr), 1);
    return account_open(b, (struct sockaddr *)&peer);
}

static void take(struct account *a, int64_t bytes)
{
    account_charge(a, BUDGET_BYTES, bytes);
}

static uint64_t room(struct account *a)
{
    return account_room(a, BUDGET_BYTES);
}

static void one_address_alone_may_take_all_but_an_eighth(void **state)
{
    (void)state;
    struct budget *b = budget_with(0);
    struct account *a = open_v4(b, "10.0.0.1");
    assert_int_equal(room(a), SOFT);
    take(a, SOFT);
    assert_int_equal(room(a), 0);
    assert_false(budget_is_short(b, BUDGET_BYTES));
    assert_false(account_is_over(a, BUDGET_BYTES));
    take(a, -SOFT);
    assert_int_equal(room(a), SOFT);
    account_close(a);
    budget_free(b);
}

static void who_comes_later_finds_room_and_who_has_more_than_a_share_is_told(void **state)
{
    (void)state;
    struct budget *b = budget_with(0);
    struct account *hog = open_v4(b, "10.0.0.1");
    struct account *other = open_v4(b, "10.0.0.2");
    take(hog, SOFT);
    assert_int_equal(room(other), LIMIT - SOFT);
    take(other, 50000);
    assert_false(budget_is_short(b, BUDGET_BYTES));
    take(other, 10000);
    assert_true(budget_is_short(b, BUDGET_BYTES));
    assert_true(account_is_over(hog, BUDGET_BYTES));
    assert_false(account_is_over(other, BUDGET_BYTES));
    assert_int_equal(room(hog), 0);
    assert_int_equal(room(other), 40000);
    take(hog, -400000); /* 300000 are left to it */
    assert_false(account_is_over(hog, BUDGET_BYTES));
    assert_int_equal(room(other), LIMIT / 2 - 60000);
    take(hog, -300000);
    take(other, -60000);
    account_close(hog);
    account_close(other);
    budget_free(b);
}

/* Three that want all they can get: none ends up with more than a third and what nobody wants. */
static void those_who_want_everything_get_equal_shares(void **state)
{
    (void)state;
    struct budget *b = budget_with(0);
    struct account *all[3] = {open_v4(b, "10.0.0.1"), open_v4(b, "10.0.0.2"),
                              open_v4(b, "10.0.0.3")};
    int64_t held[3] = {0};
    for (int step = 0; step < 1000; step++) {
        for (int i = 0; i < 3; i++) {
            int64_t more = room(all[i]) >= 1000 ? 1000 : 0;
            held[i] += more;
            take(all[i], more);
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_in_range(held[i], LIMIT / 3 - 1000, LIMIT / 3);
        assert_false(account_is_over(all[i], BUDGET_BYTES));
    }
    assert_int_equal(budget_counters(b).budget_bytes, held[0] + held[1] + held[2]);
    for (int i = 0; i < 3; i++) {
        take(all[i], -held[i]);
        account_close(all[i]);
    }
    budget_free(b);
}

/* A client that only holds a little does not make the shares of others smaller. */
static void who_holds_next_to_nothing_wants_no_share(void **state)
{
    (void)state;
    struct budget *b = budget_with(0);
    struct account *busy = open_v4(b, "10.0.0.1");
    struct account *idle[100];
    for (int i = 0; i < 100; i++) {
        char text[20];
        snprintf(text, sizeof(text), "10.0.1.%d", i);
        idle[i] = open_v4(b, text);
        take(idle[i], 100);
    }
    take(busy, 600000);
    assert_false(account_is_over(busy, BUDGET_BYTES));
    take(busy, -600000);
    for (int i = 0; i < 100; i++) {
        take(idle[i], -100);
        account_close(idle[i]);
    }
    account_close(busy);
    budget_free(b);
}

static void addresses_are_told_apart_as_their_owners_are(void **state)
{
    (void)state;
    struct budget *b = budget_with(0);
    struct account *v4 = open_v4(b, "10.0.0.1");
    struct account *mapped = open_v6(b, "::ffff:10.0.0.1");
    struct account *network = open_v6(b, "2001:db8:1:1::1");
    struct account *neighbour = open_v6(b, "2001:db8:1:1:ffff::2");
    struct account *elsewhere = open_v6(b, "2001:db8:1:2::1");
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct account *file = account_open(b, (struct sockaddr *)&path);
    assert_ptr_equal(v4, mapped);
    assert_ptr_equal(network, neighbour);
    assert_ptr_not_equal(network, elsewhere);
    assert_ptr_not_equal(file, v4);
    assert_int_equal(budget_counters(b).addresses_open, 4);
    account_close(v4);
    account_close(mapped);
    account_close(network);
    account_close(neighbour);
    account_close(elsewhere);
    account_close(file);
    assert_int_equal(budget_counters(b).addresses_open, 0);
    budget_free(b);
}

static void connections_of_an_address_are_limited_and_counted(void **state)
{
    (void)state;
    struct budget *b = budget_with(2);
    struct account *first = open_v4(b, "10.0.0.1");
    struct account *second = open_v4(b, "10.0.0.1");
    assert_null(open_v4(b, "10.0.0.1"));
    struct account *other = open_v4(b, "10.0.0.2");
    assert_non_null(other);
    assert_int_equal(budget_counters(b).refused_connections, 1);
    account_close(second);
    second = open_v4(b, "10.0.0.1");
    assert_non_null(second);
    account_ref(first); /* something outlives both */
    account_close(first);
    account_close(second);
    assert_int_equal(budget_counters(b).addresses_open, 2);
    account_unref(first);
    assert_int_equal(budget_counters(b).addresses_open, 1);
    account_close(other);
    budget_free(b);
}

static void places_to_wait_are_divided_like_bytes(void **state)
{
    (void)state;
    struct budget *b = budget_with(0);
    struct account *many = open_v4(b, "10.0.0.1");
    struct account *few = open_v4(b, "10.0.0.2");
    assert_int_equal(account_room(many, BUDGET_WAITING), 70);
    account_charge(many, BUDGET_WAITING, 70);
    assert_int_equal(account_room(many, BUDGET_WAITING), 0);
    assert_int_equal(room(many), SOFT);
    assert_false(budget_is_short(b, BUDGET_WAITING));
    /* Its share is 40; a quarter of the limit may be overdrawn until others have given way. */
    assert_int_equal(account_room(few, BUDGET_WAITING), 30);
    account_charge(few, BUDGET_WAITING, 20);
    assert_int_equal(account_room(few, BUDGET_WAITING), 10);
    assert_true(budget_is_short(b, BUDGET_WAITING));
    assert_true(account_is_over(many, BUDGET_WAITING));
    assert_false(account_is_over(few, BUDGET_WAITING));
    assert_false(account_is_over(many, BUDGET_BYTES));
    account_charge(many, BUDGET_WAITING, -70);
    account_charge(few, BUDGET_WAITING, -20);
    account_close(many);
    account_close(few);
    budget_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_address_alone_may_take_all_but_an_eighth),
        cmocka_unit_test(who_comes_later_finds_room_and_who_has_more_than_a_share_is_told),
        cmocka_unit_test(those_who_want_everything_get_equal_shares),
        cmocka_unit_test(who_holds_next_to_nothing_wants_no_share),
        cmocka_unit_test(addresses_are_told_apart_as_their_owners_are),
        cmocka_unit_test(connections_of_an_address_are_limited_and_counted),
        cmocka_unit_test(places_to_wait_are_divided_like_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
