/* The only place that reads the machine's clocks. Everything below the broker
 * is given a `struct instant` instead.
 *
 * wall_ms  milliseconds since the epoch: delays, time to live, what people see.
 * mono_ms  CLOCK_BOOTTIME: leases, waits, rates. It never jumps, and it counts on
 *          through suspend and through a restart of the process within one boot. */
#ifndef TRIAGE_BASE_CLOCK_H
#define TRIAGE_BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct instant {
    int64_t wall_ms;
    int64_t mono_ms;
};

struct instant clock_now(void);
uint64_t clock_mono_us(void); /* for measuring durations */
int64_t clock_wall_us(void);  /* since the epoch: for comparing clocks */

/* RFC 3339 in UTC with milliseconds: 2026-04-09T15:00:00.000Z */
#define TIME_TEXT_MAX 40
size_t time_format_ms(int64_t wall_ms, char out[TIME_TEXT_MAX]); /* returns the length */

/* Accepts any RFC 3339 offset and fraction; seconds may be left out (2026-04-09T15:00Z). */
bool time_parse_ms(const char *text, size_t len, int64_t *wall_ms);

/* "10s", "5m", "1h30m", "2d", "250ms" or a bare number of seconds; false when not one. */
bool duration_parse_ms(const char *text, int64_t *ms);

#endif
