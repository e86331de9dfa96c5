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
 * A day fits when the month, the day of the month and the day of the week fit. When neither field
 * of days begins with *, one of the two is enough: 0 0 13 * FRI is every Friday and every 13th.
 *
 * Times are those of the zone. When clocks are put forward, due times in the missing hour become
 * one due time, right behind it. When clocks are put back, due times in the hour that comes twice
 * are due the first time only. A line that is due in every hour goes by the clock instead: it makes
 * up for nothing, and is due in both of the two equal hours. */
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
 * A line that is never due, such as the 31st of February, is refused too. */
#define CRON_WHY_MAX 120
bool cron_parse(const char *text, size_t len, struct cron *c, char why[CRON_WHY_MAX]);

/* The first due time behind `after_s`; INT64_MAX when there is none in sight. The cost has a bound:
 * a few microseconds, also for a line that is due once in 28 years. */
int64_t cron_next(const struct cron *c, const struct zone *z, int64_t after_s);

#endif
