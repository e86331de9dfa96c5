/* The rule behind the last change of a zone: POSIX's TZ as RFC 8536 has it in the
 * footer. "CET-1CEST,M3.5.0,M10.5.0/3". */
#include "base/zone.h"

struct rule_text {
    const char *at, *end;
};

static bool take(struct rule_text *t, char c)
{
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool is_digit(const struct rule_text *t)
{
    return t->at < t->end && *t->at >= '0' && *t->at <= '9';
}

static bool number(struct rule_text *t, int min, int max, int *out)
{
    int value = 0;
    if (!is_digit(t))
        return false;
    for (; is_digit(t); t->at++) {
        value = value * 10 + (*t->at - '0');
        if (value > max)
            return false;
    }
    *out = value;
    return value >= min;
}

/* Three letters or more, or anything in angle brackets. The name is not used. */
static bool name(struct rule_text *t)
{
    const char *from = t->at;
    if (take(t, '<')) {
        while (t->at < t->end && *t->at != '>')
            t->at++;
        return take(t, '>');
    }
    while (t->at < t->end && ((*t->at >= 'A' && *t->at <= 'Z') || (*t->at >= 'a' && *t->at <= 'z')))
        t->at++;
    return t->at - from >= 3;
}

/* [+-]hh[:mm[:ss]] */
static bool clock_time(struct rule_text *t, int hours_max, int32_t *out)
{
    bool minus = take(t, '-');
    int h, m = 0, s = 0;
    if (!minus)
        take(t, '+');
    if (!number(t, 0, hours_max, &h))
        return false;
    if (take(t, ':') && (!number(t, 0, 59, &m) || (take(t, ':') && !number(t, 0, 59, &s))))
        return false;
    *out = (h * 60 + m) * 60 + s;
    *out = minus ? -*out : *out;
    return true;
}

static bool change_day(struct rule_text *t, struct zone_day *d)
{
    bool ok;
    if (!take(t, ','))
        return false;
    if (take(t, 'M')) {
        d->kind = ZONE_DAY_OF_MONTH;
        ok = number(t, 1, 12, &d->month) && take(t, '.') && number(t, 1, 5, &d->week) &&
             take(t, '.') && number(t, 0, 6, &d->day);
    } else if (take(t, 'J')) {
        d->kind = ZONE_DAY_JULIAN;
        ok = number(t, 1, 365, &d->day);
    } else {
        d->kind = ZONE_DAY_OF_YEAR;
        ok = number(t, 0, 365, &d->day);
    }
    d->at_offset = 2 * 3600;
    return ok && (!take(t, '/') || clock_time(t, 167, &d->at_offset));
}

bool zone_rule_parse(const char *text, size_t len, struct zone_rule *rule)
{
    struct rule_text t = {text, text + len};
    *rule = (struct zone_rule){0};
    if (!name(&t) || !clock_time(&t, 24, &rule->standard))
        return false;
    rule->standard = -rule->standard; /* POSIX counts westwards */
    if (t.at == t.end)
        return true;
    rule->has_summer = true;
    rule->summer = rule->standard + 3600;
    if (!name(&t))
        return false;
    if (t.at < t.end && *t.at != ',') {
        if (!clock_time(&t, 24, &rule->summer))
            return false;
        rule->summer = -rule->summer;
    }
    return change_day(&t, &rule->from) && change_day(&t, &rule->until) && t.at == t.end;
}

static int64_t day_of(const struct zone_day *d, int64_t year)
{
    int64_t first = calendar_day(year, 1, 1);
    if (d->kind == ZONE_DAY_OF_YEAR)
        return first + d->day;
    if (d->kind == ZONE_DAY_JULIAN)
        return first + d->day - 1 + (d->day >= 60 && calendar_month_days(year, 2) == 29);
    int64_t month = calendar_day(year, d->month, 1);
    int64_t day = month + (d->day - calendar_weekday(month) + 7) % 7 + 7 * (d->week - 1);
    while (day >= month + calendar_month_days(year, d->month))
        day -= 7;
    return day;
}

int64_t zone_rule_change(const struct zone_rule *rule, int64_t year, int which, int32_t *offset)
{
    int64_t from = day_of(&rule->from, year) * 86400 + rule->from.at_offset - rule->standard;
    int64_t until = day_of(&rule->until, year) * 86400 + rule->until.at_offset - rule->summer;
    bool summer = (which == 0) == (from <= until);
    *offset = summer ? rule->summer : rule->standard;
    return summer ? from : until;
}
