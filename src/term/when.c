#include "term/when.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

const char when_forms[] =
    "a time such as +2h, 15:00, \"tomorrow 09:00\", \"2026-04-09 15:00\" or 2026-04-09T15:00:00Z";

/* Days from today by name; a weekday is the next one of its name. */
static bool day_named(const char *name, size_t len, int today, int *days)
{
    static const char *const names[] = {"yesterday", "today", "tomorrow"};
    static const char *const week[] = {"sunday",   "monday", "tuesday", "wednesday",
                                       "thursday", "friday", "saturday"};
    for (int i = 0; i < 3; i++) {
        if (strlen(names[i]) == len && strncasecmp(names[i], name, len) == 0) {
            *days = i - 1;
            return true;
        }
    }
    for (int i = 0; i < 7; i++) {
        if (strlen(week[i]) == len && strncasecmp(week[i], name, len) == 0) {
            *days = (i - today + 6) % 7 + 1;
            return true;
        }
    }
    return false;
}

/* HH:MM or HH:MM:SS, and nothing else. */
static bool clock_parse(const char *text, struct tm *tm)
{
    int hour, minute, second = 0, len = 0;
    size_t digits = strspn(text, "0123456789:");
    if (text[digits] != '\0' || digits < 4 || digits > 8)
        return false;
    int got = sscanf(text, "%2d:%2d%n:%2d%n", &hour, &minute, &len, &second, &len);
    if (got < 2 || text[len] != '\0' || hour > 23 || minute > 59 || second > 59)
        return false;
    tm->tm_hour = hour;
    tm->tm_min = minute;
    tm->tm_sec = second;
    return true;
}

static bool date_parse(const char *text, size_t len, struct tm *tm)
{
    int year, month, day, end = 0;
    if (len != 10 || sscanf(text, "%4d-%2d-%2d%n", &year, &month, &day, &end) != 3 || end != 10)
        return false;
    struct tm copy = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = 12};
    if (timegm(&copy) == -1 || copy.tm_mday != day || copy.tm_mon != month - 1)
        return false; /* there is no 31st of April */
    tm->tm_year = year - 1900;
    tm->tm_mon = month - 1;
    tm->tm_mday = day;
    return true;
}

/* Summer time is for mktime to find out: the zone decides by the date. */
static bool local_ms(struct tm tm, int64_t *wall_ms)
{
    tm.tm_isdst = -1;
    time_t seconds = mktime(&tm);
    if (seconds == -1)
        return false;
    *wall_ms = (int64_t)seconds * 1000;
    return true;
}

static bool offset_parse(const char *text, int64_t now_ms, int64_t *wall_ms)
{
    int64_t ms;
    if ((text[0] != '+' && text[0] != '-') || !duration_parse_ms(text + 1, &ms))
        return false;
    *wall_ms = text[0] == '+' ? now_ms + ms : now_ms - ms;
    return true;
}

static bool day_parse(const char *text, struct tm now, int64_t *wall_ms)
{
    size_t len = strcspn(text, " ");
    const char *clock = text + len + strspn(text + len, " ");
    struct tm tm = now;
    int days;
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    if (day_named(text, len, now.tm_wday, &days))
        tm.tm_mday += days;
    else if (!date_parse(text, len, &tm))
        return false;
    return (*clock == '\0' || clock_parse(clock, &tm)) && local_ms(tm, wall_ms);
}

bool when_parse_ms(const char *text, int64_t now_ms, int64_t *wall_ms)
{
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm now;
    if (strcasecmp(text, "now") == 0) {
        *wall_ms = now_ms;
        return true;
    }
    if (time_parse_ms(text, strlen(text), wall_ms) || offset_parse(text, now_ms, wall_ms))
        return true;
    tzset();
    if (localtime_r(&seconds, &now) == NULL)
        return false;
    struct tm at = now;
    int64_t ms;
    if (!clock_parse(text, &at))
        return day_parse(text, now, wall_ms);
    if (local_ms(at, &ms) && ms <= now_ms)
        at.tm_mday++;
    return local_ms(at, wall_ms);
}
