#include "base/cron.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Fields */

static const char month_names[] = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC";
static const char weekday_names[] = "SUNMONTUEWEDTHUFRISAT";

static const struct cron_field {
    const char *what;
    int min, max;
    const char *names; /* three letters each, the first is `min`; or NULL */
} fields[] = {
    {"minute", 0, 59, NULL},
    {"hour", 0, 23, NULL},
    {"day of the month", 1, 31, NULL},
    {"month", 1, 12, month_names},
    {"day of the week", 0, 7, weekday_names},
};

#define FIELD_COUNT 5

struct cron_text {
    const char *at, *end;
    char *why;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* `why` NULL: the text is not a value of the field. */
static bool refuse(struct cron_text *t, const struct cron_field *f, const char *from,
                   const char *why)
{
    const char *stop = from;
    while (stop < t->end && !is_blank(*stop) && *stop != ',' && stop - from < 20)
        stop++;
    for (const char *c = from; c < stop; c++) {
        if (*c < ' ' || *c > '~')
            stop = c;
    }
    if (why)
        snprintf(t->why, CRON_WHY_MAX, "has \"%.*s\" for the %s: %s", (int)(stop - from), from,
                 f->what, why);
    else
        snprintf(t->why, CRON_WHY_MAX, "has \"%.*s\" for the %s, which goes from %d to %d%s",
                 (int)(stop - from), from, f->what, f->min, f->max,
                 f->names ? ", or has a name of three letters" : "");
    return false;
}

/* A number or a name. */
static bool take_value(struct cron_text *t, const struct cron_field *f, int *out)
{
    int value = 0;
    const char *from = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9' && t->at - from < 4; t->at++)
        value = value * 10 + (*t->at - '0');
    if (t->at > from) {
        *out = value;
        return value >= f->min && value <= f->max;
    }
    for (size_t i = 0; f->names && f->names[i] && t->end - t->at >= 3; i += 3) {
        if (strncasecmp(t->at, f->names + i, 3) != 0)
            continue;
        t->at += 3;
        *out = f->min + (int)(i / 3);
        return true;
    }
    return false;
}

/* The number after the slash. */
static bool take_step(struct cron_text *t, const struct cron_field *f, const char *from, bool wide,
                      int *step)
{
    static const struct cron_field steps = {"step", 1, 59, NULL};
    if (!wide)
        return refuse(t, f, from, "a step stands behind * or a range");
    return take_value(t, &steps, step) || refuse(t, f, from, "a step goes from 1 to 59");
}

/* * or N or N-M, and /STEP. */
static bool take_range(struct cron_text *t, const struct cron_field *f, uint64_t *set)
{
    const char *from = t->at;
    int low = f->min, high = f->max, step = 1;
    bool wide = t->at < t->end && *t->at == '*';
    if (wide) {
        t->at++;
    } else {
        if (!take_value(t, f, &low))
            return refuse(t, f, from, NULL);
        high = low;
        if (t->at < t->end && *t->at == '-') {
            t->at++;
            wide = true;
            if (!take_value(t, f, &high))
                return refuse(t, f, from, NULL);
            if (high < low)
                return refuse(t, f, from, "the range ends before it begins; give two");
        }
    }
    if (t->at < t->end && *t->at == '/') {
        t->at++;
        if (!take_step(t, f, from, wide, &step))
            return false;
    }
    for (int i = low; i <= high; i += step)
        *set |= 1ULL << i;
    return true;
}

static bool take_field(struct cron_text *t, const struct cron_field *f, uint64_t *set,
                       bool *starred)
{
    *set = 0;
    *starred = t->at < t->end && *t->at == '*';
    for (;;) {
        if (!take_range(t, f, set))
            return false;
        if (t->at == t->end || is_blank(*t->at))
            return true;
        if (*t->at++ != ',')
            return refuse(t, f, t->at - 1, NULL);
    }
}

/* Lines */

static const struct {
    const char *name, *line;
} nicknames[] = {
    {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"},
    {"@weekly", "0 0 * * 0"}, {"@daily", "0 0 * * *"},    {"@midnight", "0 0 * * *"},
    {"@hourly", "0 * * * *"},
};

#define NICKNAME_COUNT (sizeof(nicknames) / sizeof(nicknames[0]))

/* Whether any day fits: some named month has such a day. If the weekday alone counts, one always
 * does. */
static bool is_possible(const struct cron *c)
{
    for (int month = 1; month <= 12 && !c->either; month++) {
        int days = calendar_month_days(2000, month);
        if (c->months >> month & 1 && c->days & ((2ULL << days) - 1))
            return true;
    }
    return c->either;
}

static bool take_fields(struct cron_text *t, struct cron *c)
{
    uint64_t sets[FIELD_COUNT];
    bool starred[FIELD_COUNT];
    for (int i = 0; i < FIELD_COUNT; i++) {
        while (t->at < t->end && is_blank(*t->at))
            t->at++;
        if (t->at == t->end) {
            snprintf(t->why, CRON_WHY_MAX, "has %d of the five fields: the %s is missing", i,
                     fields[i].what);
            return false;
        }
        if (!take_field(t, &fields[i], &sets[i], &starred[i]))
            return false;
    }
    while (t->at < t->end && is_blank(*t->at))
        t->at++;
    if (t->at < t->end) {
        snprintf(t->why, CRON_WHY_MAX, "has more than five fields");
        return false;
    }
    *c = (struct cron){
        .minutes = sets[0],
        .hours = (uint32_t)sets[1],
        .days = (uint32_t)sets[2],
        .months = (uint16_t)sets[3],
        .weekdays = (uint8_t)((sets[4] | sets[4] >> 7) & 0x7f),
        .either = !starred[2] && !starred[4],
    };
    return true;
}

bool cron_parse(const char *text, size_t len, struct cron *c, char why[CRON_WHY_MAX])
{
    struct cron_text t = {text, text + len, why};
    if (len > 0 && text[0] == '@') {
        size_t i = 0;
        while (i < NICKNAME_COUNT &&
               (strlen(nicknames[i].name) != len || strncasecmp(text, nicknames[i].name, len) != 0))
            i++;
        if (i == NICKNAME_COUNT) {
            snprintf(why, CRON_WHY_MAX,
                     "knows @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and "
                     "no other");
            return false;
        }
        t.at = nicknames[i].line;
        t.end = t.at + strlen(t.at);
    }
    if (!take_fields(&t, c))
        return false;
    if (!is_possible(c)) {
        snprintf(why, CRON_WHY_MAX, "is never due: no month that it names has such a day");
        return false;
    }
    return true;
}

/* Due times. In these functions a time is in seconds of local time, as if local time were UTC. */

static bool day_fits(const struct cron *c, int64_t days, int day)
{
    bool of_month = c->days >> day & 1, of_week = c->weekdays >> calendar_weekday(days) & 1;
    return c->either ? of_month || of_week : of_month && of_week;
}

/* The first minute of the day from `minute` on that fits; -1: none. */
static int minute_of_day(const struct cron *c, int minute)
{
    for (int hour = minute / 60; hour < 24; hour++, minute = hour * 60) {
        uint64_t left = c->minutes & UINT64_MAX << minute % 60;
        if (c->hours >> hour & 1 && left)
            return hour * 60 + __builtin_ctzll(left);
    }
    return -1;
}

/* The first time that fits, `from` or later, and before `limit`; else INT64_MAX. */
static int64_t local_next(const struct cron *c, int64_t from, int64_t limit)
{
    int64_t minutes = floor_div(from + 59, 60);
    int64_t days = floor_div(minutes, 1440), year;
    int minute = (int)(minutes - days * 1440), month, day;
    while (days * 86400 < limit) {
        calendar_date(days, &year, &month, &day);
        int length = calendar_month_days(year, month);
        if (!(c->months >> month & 1)) {
            days += length - day + 1;
            minute = 0;
            continue;
        }
        for (; day <= length && days * 86400 < limit; day++, days++, minute = 0) {
            int found = day_fits(c, days, day) ? minute_of_day(c, minute) : -1;
            int64_t at = days * 86400 + found * 60;
            if (found >= 0)
                return at < limit ? at : INT64_MAX;
        }
    }
    return INT64_MAX;
}

#define EVERY_HOUR 0xffffffU
#define YEARS_MAX  50 /* after at most 40 years the 29th of February is a Sunday */

static int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t cron_next(const struct cron *c, const struct zone *z, int64_t after_s)
{
    bool as_it_comes = c->hours == EVERY_HOUR;
    int64_t from = after_s + 1, horizon = after_s + YEARS_MAX * 366LL * 86400;
    while (from < horizon) {
        struct zone_span s = zone_span(z, from);
        int64_t local = from + s.offset;
        if (!as_it_comes && s.offset > s.before && from == s.from_s &&
            local_next(c, s.from_s + s.before, local) != INT64_MAX)
            return from; /* its local time was skipped: due at the change */
        if (!as_it_comes && s.offset < s.before && local < s.from_s + s.before)
            local = s.from_s + s.before; /* its local time comes twice: due the first time only */
        int64_t until = s.until_s < horizon ? s.until_s : horizon;
        int64_t found = local_next(c, local, add(until, s.offset));
        if (found != INT64_MAX)
            return found - s.offset;
        from = until;
    }
    return INT64_MAX;
}
