/* A queue's configuration: its levels, and the rules its messages live by.
 *
 * Levels are data, most urgent first. A level's rank is its place in that list,
 * and what policies reason about. Its slot is what messages and stores remember:
 * it stays with the level's name when levels are reordered, added or dropped. */
#ifndef TRIAGE_CORE_CONFIG_H
#define TRIAGE_CORE_CONFIG_H

#include "base/limits.h"
#include "core/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum policy_kind { POLICY_STRICT, POLICY_WEIGHTED };
enum backoff { BACKOFF_NONE, BACKOFF_FIXED, BACKOFF_EXPONENTIAL };
enum dedup_scope { DEDUP_WINDOW, DEDUP_LIVE };
enum expired_fate { EXPIRED_DROP, EXPIRED_DEAD };

struct level {
    char name[LEVEL_NAME_MAX + 1];
    bool has_number;
    int64_t number;      /* what the API shows; orders nothing */
    double weight;       /* a multiple of WEIGHT_UNIT */
    int64_t age_ms;      /* after waiting this long it counts as one level more urgent; 0: never */
    int64_t max_wait_ms; /* within which it is to be claimed; 0: no promise */
    uint32_t max_in_flight; /* leased at a time; 0: no limit */
    uint8_t slot;
    /* Only in a configuration on its way to an engine: 1 + the slot of an old level that goes on
     * under this name. 0: the old level of the same name goes on, if there is one. */
    uint8_t heir_of;
};

/* A time in which a queue was paused, wall clock. It does not count for the age of a message. */
struct pause {
    int64_t from_ms;
    int64_t until_ms; /* PAUSE_OPEN: the queue is still paused */
};

#define PAUSE_OPEN INT64_MAX

struct queue_config {
    char profile[16]; /* "levels", …, "custom" */
    uint8_t level_count;
    uint8_t default_rank;
    struct level levels[LEVEL_COUNT_MAX]; /* by rank */
    enum policy_kind policy;
    bool paused; /* changed through age_pause() */
    uint8_t pause_count;
    struct pause pauses[PAUSES_MAX]; /* the latest ones, in order */
    uint32_t max_in_flight;          /* leased at a time; 0: no limit */

    int64_t visibility_ms;
    uint32_t max_attempts;
    enum backoff backoff;
    int64_t backoff_base_ms;
    int64_t backoff_max_ms;
    double backoff_jitter; /* 0 to 1: share of the delay that is random */

    int64_t ttl_ms; /* 0: none */
    enum expired_fate expired;
    int64_t dedup_window_ms;
    enum dedup_scope dedup_scope;
    uint64_t max_depth;       /* scheduled and ready messages; 0: no limit */
    uint64_t max_bytes;       /* … and their bytes; 0: no limit */
    int64_t history_ms;       /* how long done messages are kept; 0: not at all */
    int64_t history_since_ms; /* messages that were done up to then are forgotten; 0: none. Wall
                                 clock. The engine sets it: config_adopt_history(). */

    uint64_t alert_dead_letters;         /* 0: none */
    int64_t alert_oldest_ready_seconds;  /* 0: none */
    char alert_webhook[WEBHOOK_MAX + 1]; /* empty: none */

    /* The server that the queue moves to. Not empty: this queue takes no new messages but those of
     * its own schedules (config_moves()), and hands none out. The broker sees to the second. */
    char forward_to[FORWARD_URL_MAX + 1];      /* a URL without a slash at its end; empty: none */
    char forward_token[FORWARD_TOKEN_MAX + 1]; /* for that server; a secret; empty: none */
};

static inline bool config_moves(const struct queue_config *config)
{
    return config->forward_to[0] != '\0';
}

/* Whether claims find nothing, whatever there is. */
static inline bool config_closed(const struct queue_config *config)
{
    return config->paused || config_moves(config);
}

/* Whether this code could have made the configuration. Ask before relying on one that was read from
 * a disk or a database. */
bool config_valid(const struct queue_config *config);
bool queue_prefix_valid(const char *prefix, size_t len); /* what a queue's name may start with */

/* A ready-made profile: "levels", "tiers", "environments", "timeline". False when unknown.
 * Fills the whole configuration with its defaults. */
bool config_profile(const char *name, struct queue_config *config);
const char *const *config_profile_names(void); /* NULL-terminated */

/* The rank a client means; -1 when the queue has no such level. A number that no level has is
 * looked for among the names. */
int levels_resolve(const struct queue_config *config, const struct priority_ref *priority);
int levels_rank_of_name(const struct queue_config *config, const char *name); /* -1: none */

/* Whether some number or name could mean both levels. */
bool level_clashes(const struct level *a, const struct level *b);

int levels_rank_of_slot(const struct queue_config *config, uint8_t slot); /* -1: no such level */

/* Gives the levels of `next` their slots. A level gets the slot of the level of `now` that has its
 * name, or whose heir it is (heir_of); other levels get free slots. used[slot] says which slots
 * hold messages. False when a level in use would vanish, or no slot is free: *level_name says which
 * level. For a queue's first configuration `now` is NULL. */
bool levels_adopt_slots(const struct queue_config *now, const bool used[LEVEL_COUNT_MAX],
                        struct queue_config *next, const char **level_name);

/* Sets history_since_ms of `next` after a change of history_ms at wall_ms. A queue that has
 * forgotten a done message does not show it again when it is told to keep more. So everything older
 * than the shorter of both history_ms is forgotten for good. */
void config_adopt_history(const struct queue_config *now, struct queue_config *next,
                          int64_t wall_ms);
/* Whether a message that was done at done_ms is kept. This rule alone decides what is shown. An
 * engine may delete the message at any later time. */
bool config_keeps(const struct queue_config *config, int64_t done_ms, int64_t wall_ms);
/* The time at which a message counts as done that is done at wall_ms: wall_ms, or later when the
 * queue has forgotten up to a later time. */
int64_t config_done_ms(const struct queue_config *config, int64_t wall_ms);

/* The delay before attempt number `attempts` + 1; random01 in [0, 1) feeds the jitter. */
int64_t config_backoff_ms(const struct queue_config *config, uint32_t attempts, double random01);

const char *policy_name(enum policy_kind kind);
bool policy_parse(const char *name, enum policy_kind *kind);

#endif
