#include "term/when.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* A Thursday, five to three in the afternoon in Berlin. */
#define NOW "2026-04-09T12:55:00Z"

static int64_t ms_of(const char *rfc3339)
{
    int64_t ms;
    assert_true(time_parse_ms(rfc3339, strlen(rfc3339), &ms));
    return ms;
}

static int in_berlin(void **state)
{
    (void)state;
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1); /* by rule: needs no files */
    tzset();
    return 0;
}

static void assert_means(const char *said, const char *now, const char *meant)
{
    int64_t ms;
    if (!when_parse_ms(said, ms_of(now), &ms))
        fail_msg("\"%s\" is refused", said);
    if (ms != ms_of(meant)) {
        char text[TIME_TEXT_MAX];
        time_format_ms(ms, text);
        fail_msg("\"%s\" is %s, not %s", said, text, meant);
    }
}

static void times_are_read_as_people_say_them(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"now", "2026-04-09T12:55:00Z"},
        {"+2h", "2026-04-09T14:55:00Z"},
        {"+1h30m", "2026-04-09T14:25:00Z"},
        {"-10m", "2026-04-09T12:45:00Z"},
        {"2026-04-09T15:00:00Z", "2026-04-09T15:00:00Z"},
        {"2026-04-09T15:00:00+05:00", "2026-04-09T10:00:00Z"},
        {"2026-12-24 18:00", "2026-12-24T17:00:00Z"},
        {"2026-12-24 18:00:30", "2026-12-24T17:00:30Z"},
        {"2026-12-24", "2026-12-23T23:00:00Z"},
        {"today 15:00", "2026-04-09T13:00:00Z"},
        {"tomorrow 09:00", "2026-04-10T07:00:00Z"},
        {"Tomorrow  9:00", "2026-04-10T07:00:00Z"},
        {"tomorrow", "2026-04-09T22:00:00Z"},
        {"yesterday 12:00", "2026-04-08T10:00:00Z"},
        {"friday 09:00", "2026-04-10T07:00:00Z"},
        {"thursday 09:00", "2026-04-16T07:00:00Z"},
        {"wednesday", "2026-04-14T22:00:00Z"},
        {"15:00", "2026-04-09T13:00:00Z"},
        {"14:55", "2026-04-10T12:55:00Z"},
        {"14:54", "2026-04-10T12:54:00Z"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_means(cases[i][0], NOW, cases[i][1]);
}

/* The night of the 25th of October 2026 has an hour more. */
static void tomorrow_is_the_same_hour_also_when_the_clocks_change(void **state)
{
    (void)state;
    assert_means("tomorrow 09:00", "2026-10-24T10:00:00Z", "2026-10-25T08:00:00Z");
    assert_means("tomorrow 09:00", "2026-03-28T10:00:00Z", "2026-03-29T07:00:00Z");
}

static void months_and_years_end(void **state)
{
    (void)state;
    assert_means("tomorrow 00:30", "2026-12-31T12:00:00Z", "2026-12-31T23:30:00Z");
    assert_means("tomorrow 12:00", "2028-02-28T12:00:00Z", "2028-02-29T11:00:00Z");
}

static void what_is_no_time_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",          "soon",        "2h",          "+",          "+2x",         "25:00",
        "12:60",     "9",           "2026-13-01",  "2026-04-31", "2026-02-29",  "tomorrow 25:00",
        "tomorrow9", "2026-4-9",    "12:00:61",    "12:00 pm",   "monday noon", "tomorrow 09:00 x",
        "12:",       "2026-04-09x", "12:30:15:10",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t ms = 42;
        if (when_parse_ms(cases[i], ms_of(NOW), &ms))
            fail_msg("\"%s\" is taken", cases[i]);
        assert_int_equal(ms, 42);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_read_as_people_say_them),
        cmocka_unit_test(tomorrow_is_the_same_hour_also_when_the_clocks_change),
        cmocka_unit_test(months_and_years_end),
        cmocka_unit_test(what_is_no_time_is_refused),
    };
    return cmocka_run_group_tests_name("when", tests, in_berlin, NULL);
}
