/* A progress bar on standard error, drawn only on a terminal and at most ten
 * times a second. */
#ifndef TRIAGE_TERM_PROGRESS_H
#define TRIAGE_TERM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;
    bool hide_bytes;     /* they measure the way, but are nothing to tell */
    bool hide_messages;  /* there are none to count */
    int64_t bytes_total; /* 0 when nobody knows */
    int64_t bytes;
    int64_t messages;
    uint64_t started_us;
    uint64_t drawn_us;
};

void progress_init(struct progress *p, bool wanted, int64_t bytes_total);
void progress_update(struct progress *p, int64_t bytes, int64_t messages); /* totals so far */
void progress_wipe(const struct progress *p); /* until the next update */

#endif
