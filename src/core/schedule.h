/* A schedule: a message that a queue gets again and again, and when. Pure: time and
 * zones come in, decisions go out.
 *
 * The next due time is durable. Whoever puts the message of a due time sets the next
 * one in the same step, and only if the due time is still the one that was decided
 * upon. So each due time has exactly one message, whatever dies in between and however
 * many servers try. */
#ifndef TRIAGE_CORE_SCHEDULE_H
#define TRIAGE_CORE_SCHEDULE_H

#include "base/limits.h"
#include "base/zone.h"
#include "core/config.h"
#include "core/message.h"

#include <stdbool.h>
#include <stdint.h>

/* What becomes of missed due times: those that are over by more than the grace. */
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

/* When a schedule is due: by a cron line; or, with every_s > 0, at the multiples of so many seconds
 * since the epoch. */
struct schedule_rule {
    char cron[SCHEDULE_CRON_MAX + 1];
    char time_zone[ZONE_NAME_MAX + 1]; /* of the cron line */
    int64_t every_s;
};

struct schedule_timing {
    int64_t next_ms;  /* SCHEDULE_NEVER: paused */
    int64_t last_ms;  /* the last due time that had a message; SCHEDULE_NEVER_YET */
    uint64_t count;   /* due times that had a message */
    uint32_t made_up; /* missed due times in a row that got a message all the same (missed = all) */
};

#define SCHEDULE_NEVER     TIME_MS_MAX
#define SCHEDULE_NEVER_YET (-TIME_MS_MAX)

struct schedule {
    char name[QUEUE_NAME_MAX + 1];
    struct schedule_rule rule;
    uint8_t missed; /* enum missed */
    bool paused;
    int64_t grace_ms;
    struct draft draft; /* what each message is made of; its body is owned. Once the schedule is
                           set, a priority is a level's name: numbers may change their meaning */
    struct schedule_timing timing;
};

void schedule_fini(struct schedule *s);
void schedule_copy(struct schedule *to, const struct schedule *from); /* the body too */

/* The first due time behind `after_ms`, or SCHEDULE_NEVER. The rule is valid. */
int64_t schedule_next(const struct schedule_rule *rule, const struct zone *zone, int64_t after_ms);

/* Prepares a schedule that takes the place of `old` (NULL: there is none). It inherits what is
 * known of the past, and the next due time, unless the rule is another one or the schedule was
 * paused: then timing.next_ms stays, which the caller has computed for now. */
void schedule_inherit(struct schedule *s, const struct schedule *old);

/* The rank of the level that the schedule names. -1: the queue has no such level, or the schedule
 * names none and goes by the queue's default. */
int schedule_rank(const struct schedule *s, const struct queue_config *config);
/* Makes the schedule name this level, by the level's name. True when that is a change. */
bool schedule_name_level(struct schedule *s, const struct level *level);

/* What is to be done about a schedule that is due. */
struct schedule_step {
    int64_t due_ms;  /* the next due time before the step */
    int64_t next_ms; /* … and after it */
    bool puts;       /* the step puts a message */
    int64_t at_ms;   /* puts: the due time that the message is for */
    uint32_t made_up;
};

/* Decides about a schedule that is due: s->timing.next_ms is not later than now_ms. */
struct schedule_step schedule_decide(const struct schedule *s, const struct zone *zone,
                                     int64_t now_ms);

/* The timing after a step. A due time that is not later than the last one that had a message gets
 * none again, whatever the clock was set to: step->puts becomes false then. */
struct schedule_timing schedule_after(const struct schedule_timing *t, struct schedule_step *step);

/* Makes the draft of a due time's message. Its metadata begins with `schedule` and `due_at`. The
 * caller owns it. */
void schedule_draft(const struct schedule *s, int64_t due_ms, struct draft *out);

#endif
