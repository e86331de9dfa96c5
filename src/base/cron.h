/* Cron lines: five fields, or @hourly and its like, as Vixie's cron reads them, and
 * when the next due time is. Pure.
 *
 *   ┌ minute 0-59
 *   │ ┌ hour 0-23
 *   │ │ ┌ day of the month 1-31
 *   │ │ │ ┌ month 1-12 or JAN-DEC
 *   │ │ │ │ ┌ day of the week 0-7 or SUN-SAT; 0 and 7 are Sunday
 *   0 3 * * MON-FRI       each field: * or a list of N, N-M, with /STEP behind * or N-M
 *
 * A day fits when month and both kinds of days fit; when neither kind begins with *, one of them is
 * enough. Times are those of the zone. When clocks are put forward, what was due in the missing
 * time is due once, right behind it. When they are put back, what is due in the hour that comes
 * twice is due the first time only. A line that is due in every hour takes the time as it comes
 * instead: it has nothing to make up for, and the hour that comes twice has its times twice. */
#ifndef TRIAGE_BASE_CRON_H
#define TRIAGE_BASE_CRON_H

#include "base/zone.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cron {
    uint64_t minutes; /* sets: bit n is n */
    uint32_t hours, days;
    uint16_t months;
    uint8_t weekdays; /* Sunday is 0 */
    bool either;      /* a day of the month or of the week is enough */
};

/* False with a piece of a sentence in *why ("has the hour 24, …"), of at most CRON_WHY_MAX bytes.
 * One that is never due, such as the 31st of February, is refused too. */
#define CRON_WHY_MAX 120
bool cron_parse(const char *text, size_t len, struct cron *c, char why[CRON_WHY_MAX]);

/* The first due time behind `after_s`; INT64_MAX when there is none in sight. Its cost has a bound:
 * a few microseconds, for what is due once in 28 years too. */
int64_t cron_next(const struct cron *c, const struct zone *z, int64_t after_s);

#endif
