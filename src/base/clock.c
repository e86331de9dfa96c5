#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct instant clock_now(void)
{
    struct timespec wall, mono;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_BOOTTIME, &mono);
    return (struct instant){
        .wall_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000,
        .mono_ms = (int64_t)mono.tv_sec * 1000 + mono.tv_nsec / 1000000,
    };
}

uint64_t clock_mono_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

int64_t clock_wall_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Days since 1970-01-01 of a proleptic Gregorian date, counting years from March so that the leap
 * day comes last. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static void civil_from_days(int64_t days, int64_t *year, int *month, int *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t doe = days - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    *day = (int)(doy - (153 * mp + 2) / 5 + 1);
    *month = (int)(mp < 10 ? mp + 3 : mp - 9);
    *year = yoe + era * 400 + (*month <= 2);
}

static char *put_digits(char *at, int64_t value, int width)
{
    for (int i = width - 1; i >= 0; i--) {
        at[i] = (char)('0' + value % 10);
        value /= 10;
    }
    return at + width;
}

size_t time_format_ms(int64_t wall_ms, char out[TIME_TEXT_MAX])
{
    int64_t days = wall_ms / 86400000, rest = wall_ms % 86400000;
    if (rest < 0) {
        rest += 86400000;
        days--;
    }
    int64_t year;
    int month, day;
    civil_from_days(days, &year, &month, &day);
    if (year < 0 || year > 9999) /* outside RFC 3339: the closest that it can say */
        return time_format_ms(year < 0 ? -62167219200000LL : 253402300799999LL, out);
    char *at = put_digits(out, year, 4);
    *at++ = '-';
    at = put_digits(at, month, 2);
    *at++ = '-';
    at = put_digits(at, day, 2);
    *at++ = 'T';
    at = put_digits(at, rest / 3600000, 2);
    *at++ = ':';
    at = put_digits(at, rest / 60000 % 60, 2);
    *at++ = ':';
    at = put_digits(at, rest / 1000 % 60, 2);
    *at++ = '.';
    at = put_digits(at, rest % 1000, 3);
    *at++ = 'Z';
    *at = '\0';
    return (size_t)(at - out);
}

/* Reads exactly `width` digits; NULL when they are not there. */
static const char *take_digits(const char *at, const char *end, int width, int64_t *out)
{
    if (!at || end - at < width)
        return NULL;
    *out = 0;
    for (int i = 0; i < width; i++) {
        if (at[i] < '0' || at[i] > '9')
            return NULL;
        *out = *out * 10 + (at[i] - '0');
    }
    return at + width;
}

static const char *take_char(const char *at, const char *end, const char *any_of)
{
    return at && at < end && strchr(any_of, *at) && *at ? at + 1 : NULL;
}

static const char *take_offset(const char *at, const char *end, int64_t *minutes)
{
    *minutes = 0;
    if (at && at < end && (*at == 'Z' || *at == 'z'))
        return at + 1;
    const char *sign = at;
    int64_t h, m;
    at = take_digits(take_char(at, end, "+-"), end, 2, &h);
    at = take_digits(take_char(at, end, ":"), end, 2, &m);
    if (!at || h > 23 || m > 59)
        return NULL;
    *minutes = (h * 60 + m) * (*sign == '-' ? -1 : 1);
    return at;
}

bool time_parse_ms(const char *text, size_t len, int64_t *wall_ms)
{
    static const int month_days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const char *end = text + len, *at = text;
    int64_t year, month, day, hour, minute, second = 0, ms = 0, offset;
    at = take_digits(at, end, 4, &year);
    at = take_digits(take_char(at, end, "-"), end, 2, &month);
    at = take_digits(take_char(at, end, "-"), end, 2, &day);
    at = take_digits(take_char(at, end, "Tt "), end, 2, &hour);
    at = take_digits(take_char(at, end, ":"), end, 2, &minute);
    if (at && at < end && *at == ':')
        at = take_digits(at + 1, end, 2, &second);
    if (at && at < end && *at == '.') {
        int64_t scale = 100, digit;
        if (!take_digits(++at, end, 1, &digit))
            return false;
        for (; take_digits(at, end, 1, &digit); at++, scale /= 10)
            ms += digit * scale;
    }
    at = take_offset(at, end, &offset);
    if (at != end || !at || month < 1 || month > 12 || day < 1 || day > month_days[month - 1] ||
        hour > 23 || minute > 59 || second > 60)
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (month == 2 && day == 29 && !leap)
        return false;
    int64_t days = days_from_civil(year, (int)month, (int)day);
    *wall_ms = ((days * 24 + hour) * 60 + minute - offset) * 60000 + second * 1000 + ms;
    return true;
}

bool duration_parse_ms(const char *text, int64_t *ms)
{
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
    double total = 0;
    if (!*text)
        return false;
    while (*text) {
        size_t digits = strspn(text, "0123456789."); /* strtod alone would take 0x10 and 1e3 */
        if (*text < '0' || *text > '9')
            return false;
        char *rest;
        double value = strtod(text, &rest);
        if (rest != text + digits)
            return false;
        size_t letters = strspn(rest, "smhd");
        double scale = 0;
        if (letters == 0 && *rest == '\0')
            scale = 1e3;
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strlen(units[i].unit) == letters && strncmp(rest, units[i].unit, letters) == 0)
                scale = units[i].ms;
        }
        if (scale == 0)
            return false;
        total += value * scale;
        text = rest + letters;
    }
    if (total > 1e15)
        return false;
    *ms = (int64_t)(total + 0.5);
    return true;
}
