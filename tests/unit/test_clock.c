#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void time_is_written_with_milliseconds_in_utc(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {1, "1970-01-01T00:00:00.001Z"},
        {-1, "1969-12-31T23:59:59.999Z"},
        {951782400000, "2000-02-29T00:00:00.000Z"},
        {4107542399999, "2100-02-28T23:59:59.999Z"},
        {4107542400000, "2100-03-01T00:00:00.000Z"},
        {1775746800000, "2026-04-09T15:00:00.000Z"},
        {253402300799999, "9999-12-31T23:59:59.999Z"},
        {-62167219200000, "0000-01-01T00:00:00.000Z"},
        {(1LL << 47) - 1, "6429-10-17T02:45:55.327Z"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[TIME_TEXT_MAX];
        assert_int_equal(time_format_ms(cases[i].ms, text), strlen(cases[i].text));
        assert_string_equal(text, cases[i].text);
        int64_t back;
        assert_true(time_parse_ms(text, strlen(text), &back));
        assert_int_equal(back, cases[i].ms);
    }
}

static void time_outside_four_digit_years_is_clamped(void **state)
{
    (void)state;
    char text[TIME_TEXT_MAX];
    time_format_ms(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    time_format_ms(INT64_MIN, text);
    assert_string_equal(text, "0000-01-01T00:00:00.000Z");
}

static void time_is_read_in_every_form_of_rfc3339(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01t00:00:00z", 0},
        {"1970-01-01 00:00:00Z", 0},
        {"1970-01-01T00:00Z", 0},
        {"1970-01-01T01:00:00+01:00", 0},
        {"1969-12-31T19:00:00-05:00", 0},
        {"1970-01-01T05:45:00.5+05:45", 500},
        {"1970-01-01T00:00:00.123456789Z", 123},
        {"1970-01-01T00:00:00.9999Z", 999},
        {"1970-01-01T00:00:00.1Z", 100},
        {"2016-12-31T23:59:60Z", 1483228800000},
        {"2000-02-29T00:00:00Z", 951782400000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ms = -7;
        assert_true(time_parse_ms(cases[i].text, strlen(cases[i].text), &ms));
        assert_int_equal(ms, cases[i].ms);
    }
}

static void time_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        "Z",
        "1970",
        "1970-01-01",
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00ZZ",
        "1970-01-01T00:00:00Z ",
        " 1970-01-01T00:00:00Z",
        "1970-13-01T00:00:00Z",
        "1970-00-01T00:00:00Z",
        "1970-01-32T00:00:00Z",
        "1970-01-00T00:00:00Z",
        "1970-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "1970-04-31T00:00:00Z",
        "1970-01-01T24:00:00Z",
        "1970-01-01T00:60:00Z",
        "1970-01-01T00:00:61Z",
        "1970-01-01T00:00:00.Z",
        "1970-01-01T00:00:00+1:00",
        "1970-01-01T00:00:00+0100",
        "1970-01-01T00:00:00+24:00",
        "1970-01-01T00:00:00+00:60",
        "1970-1-1T00:00:00Z",
        "+970-01-01T00:00:00Z",
        "1970-01-01T-1:00:00Z",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ms = 42;
        assert_false(time_parse_ms(cases[i], strlen(cases[i]), &ms));
        assert_int_equal(ms, 42);
    }
    int64_t ms;
    assert_false(time_parse_ms("1970-01-01T00:00:00Z", 19, &ms)); /* the length rules */
    assert_false(time_parse_ms("1970-01-01T00:00:00\0", 20, &ms));
}

static void every_day_of_four_centuries_comes_back(void **state)
{
    (void)state;
    for (int64_t day = -146097; day <= 146097; day++) {
        char text[TIME_TEXT_MAX];
        int64_t back, ms = day * 86400000 + 45296789;
        assert_true(time_parse_ms(text, time_format_ms(ms, text), &back));
        assert_int_equal(back, ms);
    }
}

static void durations_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {
        {"0", 0},           {"10", 10000},     {"10s", 10000},         {"5m", 300000},
        {"1h30m", 5400000}, {"2d", 172800000}, {"250ms", 250},         {"1.5s", 1500},
        {"1m250ms", 60250}, {"0.5", 500},      {"1d1h1m1s", 90061000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ms = -1;
        assert_true(duration_parse_ms(cases[i].text, &ms));
        assert_int_equal(ms, cases[i].ms);
    }
}

static void durations_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {"",
                                        "s",
                                        "-1",
                                        "-1s",
                                        "10x",
                                        "10 s",
                                        " 10",
                                        "10s ",
                                        "1hh",
                                        "nan",
                                        "inf",
                                        "1e30d",
                                        "ms",
                                        "+5",
                                        "1s5x",
                                        "0x10",
                                        "99999999999999999999d"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ms = 42;
        if (duration_parse_ms(cases[i], &ms))
            fail_msg("\"%s\" was taken as %lld ms", cases[i], (long long)ms);
        assert_int_equal(ms, 42);
    }
}

static void clocks_go_forward(void **state)
{
    (void)state;
    struct instant a = clock_now(), b = clock_now();
    assert_true(b.mono_ms >= a.mono_ms);
    assert_true(a.wall_ms > 1700000000000);
    uint64_t us = clock_mono_us();
    assert_true(clock_mono_us() >= us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_is_written_with_milliseconds_in_utc),
        cmocka_unit_test(time_outside_four_digit_years_is_clamped),
        cmocka_unit_test(time_is_read_in_every_form_of_rfc3339),
        cmocka_unit_test(time_that_is_none_is_refused),
        cmocka_unit_test(every_day_of_four_centuries_comes_back),
        cmocka_unit_test(durations_have_units),
        cmocka_unit_test(durations_that_are_none_are_refused),
        cmocka_unit_test(clocks_go_forward),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
