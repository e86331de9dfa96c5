/* A time zone: what clocks on the wall show at a moment, and when that changes. It
 * is read from the bytes of a TZif file (RFC 8536); for the time behind the last
 * change that the file lists, its footer has a rule in the form of POSIX's TZ.
 * Pure: zoneinfo.h finds the files. Seconds since the epoch throughout. */
#ifndef TRIAGE_BASE_ZONE_H
#define TRIAGE_BASE_ZONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZONE_NAME_MAX    64
#define ZONE_CHANGES_MAX 4096 /* the largest file of 2024 has 310 */
#define ZONE_BYTES_MAX   (64 * 1024)
#define ZONE_OFFSET_MAX  (26 * 3600) /* seconds east or west of Greenwich; RFC 8536 wants less */

/* The day of a year on which the rule of a footer changes the clocks. */
struct zone_day {
    enum { ZONE_DAY_JULIAN, ZONE_DAY_OF_YEAR, ZONE_DAY_OF_MONTH } kind;
    int day;           /* Jn: 1 to 365, never the leap day. n: 0 to 365. Mm.w.d: d, Sunday is 0 */
    int month, week;   /* Mm.w.d; week 5 is the last */
    int32_t at_offset; /* seconds after midnight, by the clock before the change; may be negative */
};

struct zone_rule {
    int32_t standard, summer; /* seconds east of Greenwich */
    bool has_summer;
    struct zone_day from, until;
};

struct zone {
    uint32_t count; /* of changes */
    bool has_rule;
    struct zone_rule rule;
    int32_t first; /* before the first change */
    struct zone_change {
        int64_t at_s;
        int32_t offset; /* from then on */
    } changes[];
};

/* NULL when the bytes are not a whole TZif file, or have leap seconds. The caller frees it. */
struct zone *zone_parse(const void *data, size_t len);

/* The time around a moment in which clocks run evenly. */
struct zone_span {
    int64_t from_s, until_s; /* until_s is the first second of the next; INT64_MIN, INT64_MAX */
    int32_t offset;          /* local time less UTC */
    int32_t before; /* the offset of the span before; equal to `offset` when there is none */
};

/* NULL is UTC. */
struct zone_span zone_span(const struct zone *z, int64_t at_s);

/* For zone.c: the footer's text, without its line breaks; false when it is not one. */
bool zone_rule_parse(const char *text, size_t len, struct zone_rule *rule);
/* The change of a year, 0 or 1 by order of time, and the offset from then on. */
int64_t zone_rule_change(const struct zone_rule *rule, int64_t year, int which, int32_t *offset);

/* The calendar, proleptic Gregorian. Days since the epoch. */
int64_t calendar_day(int64_t year, int month, int day); /* month 1 to 12 */
void calendar_date(int64_t days, int64_t *year, int *month, int *day);
int calendar_weekday(int64_t days); /* Sunday is 0 */
int calendar_month_days(int64_t year, int month);

/* Floored, as time before 1970 needs it. */
static inline int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

#endif
