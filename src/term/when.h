/* Times as people give them on a command line. */
#ifndef TRIAGE_TERM_WHEN_H
#define TRIAGE_TERM_WHEN_H

#include <stdbool.h>
#include <stdint.h>

/* One of, with now_ms and the local time zone (TZ) deciding what is not said:
 *   now, +2h, -30m               from now
 *   2026-04-09T15:00:00Z         RFC 3339, with its zone
 *   2026-04-09 15:00[:30]        local, as is all that follows
 *   2026-04-09                   its first moment
 *   today 15:00, tomorrow 09:00, yesterday 12:00, monday 09:00 (the next one, from tomorrow on)
 *   tomorrow, monday             its first moment
 *   15:00                        the next time the clock shows it
 * False when it is none of these; *wall_ms is untouched then. */
bool when_parse_ms(const char *text, int64_t now_ms, int64_t *wall_ms);

/* For complaints: "a time such as …". */
extern const char when_forms[];

#endif
