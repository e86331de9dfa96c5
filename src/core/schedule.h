/* A schedule: a message that a queue gets again and again, and when. Pure: time and
 * zones come in, decisions go out.
 *
 * What is durable is the next due time, and it only moves on: whoever puts the message
 * of a due time moves it on in the same step, and only if it is still the one that was
 * decided upon. So each due time has one message, whatever dies in between and however
 * many try. */
#ifndef TRIAGE_CORE_SCHEDULE_H
#define TRIAGE_CORE_SCHEDULE_H

#include "base/limits.h"
#include "base/zone.h"
#include "core/config.h"
#include "core/message.h"

#include <stdbool.h>
#include <stdint.h>

/* What becomes of due times that are over by more than the grace. */
#define MISSED_KINDS(X)                                                                            \
    X(SKIP, "skip") /* nothing */                                                                  \
    X(ONCE, "once") /* one message for all of them, with the time of the last */                   \
    X(ALL, "all")   /* a message for each, up to SCHEDULE_MADE_UP_MAX */

enum missed {
#define X(symbol, name) MISSED_##symbol,
    MISSED_KINDS(X)
#undef X
        MISSED_COUNT
};

extern const char *const missed_names[MISSED_COUNT];

/* When it is due. Either a cron line, or every_s > 0: at the multiples of so many seconds since the
 * epoch. */
struct schedule_rule {
    char cron[SCHEDULE_CRON_MAX + 1];
    char time_zone[ZONE_NAME_MAX + 1]; /* of the cron line */
    int64_t every_s;
};

struct schedule_timing {
    int64_t next_ms;  /* SCHEDULE_NEVER: paused */
    int64_t last_ms;  /* the last due time that had a message; SCHEDULE_NEVER_YET */
    uint64_t count;   /* due times that had one */
    uint32_t made_up; /* missed ones in a row that were made up for */
};

#define SCHEDULE_NEVER     TIME_MS_MAX
#define SCHEDULE_NEVER_YET (-TIME_MS_MAX)

struct schedule {
    char name[QUEUE_NAME_MAX + 1];
    struct schedule_rule rule;
    uint8_t missed; /* enum missed */
    bool paused;
    int64_t grace_ms;
    struct draft draft; /* what each message is made of; its body is owned. A priority is that of a
                           level's name once the schedule is set: numbers change their meaning */
    struct schedule_timing timing;
};

void schedule_fini(struct schedule *s);
void schedule_copy(struct schedule *to, const struct schedule *from); /* the body too */

/* The first due time behind `after_ms`, or SCHEDULE_NEVER. The rule is one that was taken. */
int64_t schedule_next(const struct schedule_rule *rule, const struct zone *zone, int64_t after_ms);

/* A schedule that is set in the place of `old` (NULL: there is none): what is known of the past
 * stays, and so does the next due time unless the rule is another one or the schedule was paused.
 * next_ms is what the caller found for now. */
void schedule_inherit(struct schedule *s, const struct schedule *old);

/* The rank of the level that it names; -1: the queue has none of that name, or the schedule names
 * none and goes by the queue's default. */
int schedule_rank(const struct schedule *s, const struct queue_config *config);
/* From now on it names this level by its name. True when it did not so far. */
bool schedule_name_level(struct schedule *s, const struct level *level);

/* What is to be done about a schedule that is due. */
struct schedule_step {
    int64_t due_ms;  /* the next due time as it was */
    int64_t next_ms; /* and is to be */
    bool puts;
    int64_t at_ms; /* puts: the due time that the message is for */
    uint32_t made_up;
};

/* timing.next_ms is not behind now_ms. */
struct schedule_step schedule_decide(const struct schedule *s, const struct zone *zone,
                                     int64_t now_ms);

/* What a step leaves behind. A due time that is not behind the last one has no message again,
 * whatever the clock was set to: then step->puts becomes false. */
struct schedule_timing schedule_after(const struct schedule_timing *t, struct schedule_step *step);

/* The message of a due time: the metadata begins with `schedule` and `due_at`. The caller's. */
void schedule_draft(const struct schedule *s, int64_t due_ms, struct draft *out);

#endif
