/* Metrics as text, in the two formats that Prometheus reads: its own, and OpenMetrics. Private to
 * src/api. */
#ifndef TRIAGE_API_EXPOSITION_H
#define TRIAGE_API_EXPOSITION_H

#include "api/request_times.h"
#include "base/buf.h"
#include "base/durations.h"

#include <stdbool.h>
#include <stdint.h>

struct exposition {
    struct buf *out;
    bool open; /* OpenMetrics */
};

enum unit {
    PLAIN,
    MILLI,
    MICRO,
    MICRO_SIGNED
}; /* the number is in this part of the unit in the name */

/* `shares`: a gauge has the name of this counter without _total. OpenMetrics lets no two families
 * have one name, so the counter is of no known type there. */
void exposition_head(struct exposition *x, const char *name, const char *type, const char *help,
                     bool shares);
void exposition_label_text(struct buf *out, const char *text);
void exposition_value(struct buf *out, uint64_t value,
                      enum unit unit); /* and the end of the line */
void exposition_sample(struct buf *out, const char *name, const char *label, const char *text,
                       uint64_t value, enum unit unit); /* `label` may be NULL */

/* The bounds that a histogram shows: those from `first` to `last` of its scale. */
struct exposition_scale {
    const struct duration_scale *scale;
    uint8_t first, last;
};
extern const struct exposition_scale exposition_waits; /* 1 ms to a day */
extern const struct exposition_scale exposition_works; /* 100 us to a minute */
extern const struct exposition_scale exposition_turns; /* 1 ms to ten seconds */

/* `labels`: as text, or empty. `exemplars`: one for each bucket, or NULL. */
void exposition_histogram(struct buf *out, const char *name, const char *labels,
                          const struct durations *d, const struct exposition_scale *s,
                          const struct exemplar *exemplars);

#endif
