/* Cron lines and time zones, against a slow reference: minute by minute, by the C library. */
#include "base/cron.h"
#include "base/mem.h"
#include "base/zoneinfo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct cron parse(const char *line)
{
    struct cron c;
    char why[CRON_WHY_MAX] = "";
    if (!cron_parse(line, strlen(line), &c, why))
        fail_msg("\"%s\" %s", line, why);
    return c;
}

static const struct zone *zone(const char *name)
{
    const struct zone *z;
    assert_true(zone_find(name, &z));
    return z;
}

static int64_t utc(int year, int month, int day, int hour, int minute)
{
    return calendar_day(year, month, day) * 86400 + hour * 3600 + minute * 60;
}

/* The reference */

static bool slow_item(const char *item, int value, int min, int max)
{
    static const char names[] = "JAN1 FEB2 MAR3 APR4 MAY5 JUN6 JUL7 AUG8 SEP9 OCT10 NOV11 DEC12 "
                                "SUN0 MON1 TUE2 WED3 THU4 FRI5 SAT6 ";
    char text[64] = "";
    while (*item) { /* names become numbers */
        char name[4] = "";
        strncpy(name, item, 3);
        const char *known = strlen(name) == 3 && name[0] >= 'A' ? strstr(names, name) : NULL;
        size_t len = strlen(text);
        if (known)
            snprintf(text + len, sizeof(text) - len, "%d", atoi(known + 3));
        else
            snprintf(text + len, sizeof(text) - len, "%c", *item);
        item += known ? 3 : 1;
    }
    int low = min, high = max, step = 1;
    const char *slash = strchr(text, '/'), *dash = strchr(text, '-');
    if (text[0] != '*') {
        low = high = atoi(text);
        high = dash ? atoi(dash + 1) : low;
    }
    step = slash ? atoi(slash + 1) : 1;
    return value >= low && value <= high && (value - low) % step == 0;
}

static bool slow_field(const char *field, int value, int min, int max)
{
    char copy[64], *rest = copy;
    bool fits = false;
    snprintf(copy, sizeof(copy), "%s", field);
    for (const char *item; (item = strtok_r(rest, ",", &rest));)
        fits = fits || slow_item(item, value, min, max);
    return fits;
}

struct line {
    char fields[5][32];
};

static struct line split(const char *text)
{
    struct line l;
    assert_int_equal(sscanf(text, "%31s %31s %31s %31s %31s", l.fields[0], l.fields[1], l.fields[2],
                            l.fields[3], l.fields[4]),
                     5);
    return l;
}

static bool slow_fits(const struct line *l, int64_t local_s)
{
    time_t at = (time_t)local_s;
    struct tm tm;
    gmtime_r(&at, &tm);
    if (!slow_field(l->fields[0], tm.tm_min, 0, 59))
        return false;
    bool day = slow_field(l->fields[2], tm.tm_mday, 1, 31);
    bool weekday = slow_field(l->fields[4], tm.tm_wday, 0, 7) ||
                   (tm.tm_wday == 0 && slow_field(l->fields[4], 7, 0, 7));
    bool either = l->fields[2][0] != '*' && l->fields[4][0] != '*';
    return slow_field(l->fields[1], tm.tm_hour, 0, 23) &&
           slow_field(l->fields[3], tm.tm_mon + 1, 1, 12) &&
           (either ? day || weekday : day && weekday);
}

static bool is_every_hour(const struct line *l)
{
    bool every = true;
    for (int hour = 0; hour < 24; hour++)
        every = every && slow_field(l->fields[1], hour, 0, 23);
    return every;
}

/* What clocks show, as the C library has it. */
static int64_t libc_local(int64_t at_s)
{
    time_t at = (time_t)at_s;
    struct tm tm;
    localtime_r(&at, &tm);
    return at_s + tm.tm_gmtoff;
}

/* Compares all due times from `from` on, for `days`. */
static void compare(const char *name, const char *text, int64_t from, int days)
{
    struct line l = split(text);
    struct cron c = parse(text);
    const struct zone *z = zone(name);
    bool as_it_comes = is_every_hour(&l);
    int64_t before = libc_local(from - 60), latest = before, next = cron_next(&c, z, from - 1);
    for (int64_t at = from; at < from + days * 86400LL; at += 60) {
        int64_t local = libc_local(at);
        bool due = slow_fits(&l, local) && (as_it_comes || local > latest);
        for (int64_t missing = before + 60; !as_it_comes && missing < local && !due; missing += 60)
            due = slow_fits(&l, missing) && missing > latest;
        if (due != (next == at))
            fail_msg("%s \"%s\": %lld is %s, and the next is said to be %lld", name, text,
                     (long long)at, due ? "due" : "not due", (long long)next);
        if (due)
            next = cron_next(&c, z, at);
        before = local;
        latest = local > latest ? local : latest;
    }
}

static void due_times_are_those_of_a_minute_by_minute_search(void **state)
{
    static const char *const zones[] = {"UTC", "Europe/Berlin", "America/New_York",
                                        "Australia/Lord_Howe", "America/Havana"};
    static const char *const lines[] = {
        "*/5 * * * *",       "30 2 * * *",
        "0 3 * * MON-FRI",   "15,45 1-3 * * *",
        "0 */2 * * *",       "0 0 13 * FRI",
        "59 23 31 * *",      "0 12 29 FEB *",
        "7 0-23/6 */10 * 7", "10 1,2 * MAR,OCT,NOV *",
    };
    (void)state;
    for (size_t z = 0; z < sizeof(zones) / sizeof(zones[0]); z++) {
        setenv("TZ", zones[z], 1);
        tzset();
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
            compare(zones[z], lines[i], utc(2024, 3, 7, 0, 0), 33);  /* forward in the north */
            compare(zones[z], lines[i], utc(2024, 10, 4, 0, 0), 32); /* and back */
            compare(zones[z], lines[i], utc(2051, 3, 9, 0, 0), 28);  /* by the rule alone */
            compare(zones[z], lines[i], utc(2051, 10, 27, 0, 0), 12);
        }
    }
}

static void a_day_that_never_was_is_made_up_for_at_once(void **state)
{
    (void)state;
    setenv("TZ", "Pacific/Apia", 1); /* had no 30 December 2011 */
    tzset();
    compare("Pacific/Apia", "0 9 * * *", utc(2011, 12, 28, 0, 0), 6);
    compare("Pacific/Apia", "0 9 30 * *", utc(2011, 12, 28, 0, 0), 6);
}

static void every_zone_shows_what_the_c_library_shows(void **state)
{
    static const char *const zones[] = {
        "Europe/Berlin",    "America/New_York", "Africa/Casablanca", "Asia/Gaza",
        "Europe/Dublin",    "America/Nuuk",     "Asia/Kathmandu",    "Pacific/Chatham",
        "Africa/Cairo",     "Asia/Tehran",      "Etc/GMT+5",         "America/Scoresbysund",
        "Antarctica/Troll",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(zones) / sizeof(zones[0]); i++) {
        setenv("TZ", zones[i], 1);
        tzset();
        const struct zone *z = zone(zones[i]);
        for (int64_t at = utc(1950, 1, 1, 0, 0); at < utc(2110, 1, 1, 0, 0);
             at += 5 * 3600 + 1800) {
            struct zone_span s = zone_span(z, at);
            assert_true(s.from_s <= at && at < s.until_s);
            if (at + s.offset != libc_local(at))
                fail_msg("%s at %lld: %d", zones[i], (long long)at, s.offset);
            if (s.until_s == INT64_MAX || s.from_s == INT64_MIN)
                continue;
            assert_int_equal(zone_span(z, s.until_s).before, s.offset);
            assert_int_equal(zone_span(z, s.from_s - 1).offset, s.before);
        }
    }
}

static void the_hour_that_is_missing_and_the_one_that_comes_twice(void **state)
{
    (void)state;
    const struct zone *berlin = zone("Europe/Berlin");
    struct cron c = parse("30 2 * * *");
    /* 31 March 2024, 02:00 is 03:00: due at 03:00, which is 01:00 UTC. */
    assert_int_equal(cron_next(&c, berlin, utc(2024, 3, 30, 12, 0)), utc(2024, 3, 31, 1, 0));
    assert_int_equal(cron_next(&c, berlin, utc(2024, 3, 31, 1, 0)), utc(2024, 4, 1, 0, 30));
    /* 27 October 2024, 03:00 is 02:00: due at the first 02:30, which is 00:30 UTC. */
    assert_int_equal(cron_next(&c, berlin, utc(2024, 10, 26, 12, 0)), utc(2024, 10, 27, 0, 30));
    assert_int_equal(cron_next(&c, berlin, utc(2024, 10, 27, 0, 30)), utc(2024, 10, 28, 1, 30));
    c = parse("30 * * * *");
    assert_int_equal(cron_next(&c, berlin, utc(2024, 10, 27, 0, 30)), utc(2024, 10, 27, 1, 30));
}

static void rare_ones_are_found(void **state)
{
    (void)state;
    struct cron c = parse("0 0 29 2 *");
    assert_int_equal(cron_next(&c, NULL, utc(2024, 3, 1, 0, 0)), utc(2028, 2, 29, 0, 0));
    assert_int_equal(cron_next(&c, NULL, utc(2096, 3, 1, 0, 0)), utc(2104, 2, 29, 0, 0));
    c = parse("0 0 29 2 */7"); /* a leap day that is a Sunday: * in front makes it both */
    assert_int_equal(cron_next(&c, zone("Europe/Berlin"), utc(2088, 3, 1, 0, 0)),
                     utc(2128, 2, 28, 23, 0));
}

static void assert_same_cron(const struct cron *a, const struct cron *b)
{
    assert_int_equal(a->minutes, b->minutes);
    assert_int_equal(a->hours, b->hours);
    assert_int_equal(a->days, b->days);
    assert_int_equal(a->months, b->months);
    assert_int_equal(a->weekdays, b->weekdays);
    assert_int_equal(a->either, b->either);
}

static void names_lists_and_nicknames(void **state)
{
    (void)state;
    struct cron a = parse("0 0 1 JAN,jul Mon-wed"), b = parse("0 0 1 1,7 1-3");
    assert_same_cron(&a, &b);
    a = parse("@hourly");
    b = parse("0 * * * *");
    assert_same_cron(&a, &b);
    a = parse("0 0 * * 7");
    b = parse("0 0 * * SUN");
    assert_same_cron(&a, &b);
    assert_true(parse("0 0 31 2 MON").either); /* Mondays of February are days enough */
}

static void what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *line, *why;
    } bad[] = {
        {"", "minute is missing"},
        {"* * * *", "the day of the week is missing"},
        {"* * * * * *", "more than five"},
        {"60 * * * *", "\"60\" for the minute"},
        {"* 24 * * *", "\"24\" for the hour"},
        {"* * 0 * *", "\"0\" for the day of the month"},
        {"* * * 13 *", "\"13\" for the month"},
        {"* * * MAI *", "\"MAI\" for the month"},
        {"* * * * 8", "\"8\" for the day of the week"},
        {"5-1 * * * *", "\"5-1\" for the minute: the range ends before it begins"},
        {"* 22-2 * * *", "\"22-2\" for the hour: the range ends before it begins"},
        {"*/0 * * * *", "\"*/0\" for the minute: a step goes from 1 to 59"},
        {"5/10 * * * *", "\"5/10\" for the minute: a step stands behind * or a range"},
        {"1,,2 * * * *", "for the minute"},
        {"1- * * * *", "\"1-\""},
        {"99999999999999 * * * *", "for the minute"},
        {"@reboot", "@hourly"},
        {"@reboot", "@annually"},
        {"@reboot", "@midnight"},
        {"0 0 31 2 *", "never due"},
        {"0 0 30,31 FEB *", "never due"},
        {"0 0 31 4,6,9,11 *", "never due"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct cron c;
        char why[CRON_WHY_MAX] = "";
        if (cron_parse(bad[i].line, strlen(bad[i].line), &c, why))
            fail_msg("\"%s\" was taken", bad[i].line);
        if (!strstr(why, bad[i].why))
            fail_msg("\"%s\": %s", bad[i].line, why);
    }
}

static void names_of_zones_stay_inside_their_folder(void **state)
{
    static const char *const bad[] = {"",
                                      "/etc/localtime",
                                      "../zoneinfo/UTC",
                                      "Europe/",
                                      "Europe//Berlin",
                                      "Europe/../UTC",
                                      "Mars/Olympus",
                                      "Europe",
                                      "tzdata.zi",
                                      "zone.tab",
                                      "right/UTC ",
                                      "a b"};
    const struct zone *z;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (zone_find(bad[i], &z))
            fail_msg("\"%s\" was found", bad[i]);
    }
    assert_true(zone_find("UTC", &z));
    assert_null(z);
}

static void files_that_are_cut_are_no_zones(void **state)
{
    (void)state;
    FILE *f = fopen("/usr/share/zoneinfo/Europe/Berlin", "r");
    assert_non_null(f);
    char data[ZONE_BYTES_MAX];
    size_t len = fread(data, 1, sizeof(data), f);
    fclose(f);
    for (size_t cut = 0; cut < len; cut++) {
        char *copy = mem_dup(data, cut); /* of its own, so that reading too far is seen */
        struct zone *z = zone_parse(copy, cut);
        free(copy);
        assert_null(z);
    }
    struct zone *z = zone_parse(data, len);
    assert_non_null(z);
    free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(due_times_are_those_of_a_minute_by_minute_search),
        cmocka_unit_test(a_day_that_never_was_is_made_up_for_at_once),
        cmocka_unit_test(every_zone_shows_what_the_c_library_shows),
        cmocka_unit_test(the_hour_that_is_missing_and_the_one_that_comes_twice),
        cmocka_unit_test(rare_ones_are_found),
        cmocka_unit_test(names_lists_and_nicknames),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(names_of_zones_stay_inside_their_folder),
        cmocka_unit_test(files_that_are_cut_are_no_zones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
