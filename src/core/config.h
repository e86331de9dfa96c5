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
    /* On the way to an engine: 1 + the slot of the level that goes on under this name; 0: that of
     * the level with the same name, if there is one. */
    uint8_t heir_of;
};

/* When a queue was paused, wall clock: that time is nobody's age. */
struct pause {
    int64_t from_ms;
    int64_t until_ms; /* PAUSE_OPEN: it still is */
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
    uint64_t max_depth; /* scheduled and ready; 0: no limit. The same for the next. */
    uint64_t max_bytes;
    int64_t history_ms;       /* how long done messages are kept; 0: not at all */
    int64_t history_since_ms; /* what was done up to then is forgotten; 0: nothing. Wall clock, and
                                 the engine's to set: config_adopt_history(). */

    uint64_t alert_dead_letters;         /* 0: none */
    int64_t alert_oldest_ready_seconds;  /* 0: none */
    char alert_webhook[WEBHOOK_MAX + 1]; /* empty: none */
};

/* Whether a configuration is one that could have been made here: what a disk or a database says is
 * asked before anything counts on it. */
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

/* Whether a number or a name could mean both. */
bool level_clashes(const struct level *a, const struct level *b);

int levels_rank_of_slot(const struct queue_config *config, uint8_t slot); /* -1: no such level */

/* Gives `next`'s levels their slots: those of `now`'s levels with the same name, or of which they
 * are the heirs, fresh ones for the rest. used[slot] says which slots hold messages. False, naming
 * the level, when one in use would vanish or no slot is free. A first configuration passes now ==
 * NULL. */
bool levels_adopt_slots(const struct queue_config *now, const bool used[LEVEL_COUNT_MAX],
                        struct queue_config *next, const char **level_name);

/* History. What a queue has forgotten it does not remember when it is told to keep more: a change
 * of history_ms at wall_ms moves `next`'s history_since_ms to where the shorter of both ends. */
void config_adopt_history(const struct queue_config *now, struct queue_config *next,
                          int64_t wall_ms);
/* Whether a message that was done at done_ms is kept. This rule alone says what anybody sees; when
 * an engine deletes what is not kept is its own matter. */
bool config_keeps(const struct queue_config *config, int64_t done_ms, int64_t wall_ms);
/* When what is done at wall_ms counts as done: after all that is forgotten. */
int64_t config_done_ms(const struct queue_config *config, int64_t wall_ms);

/* The delay before attempt number `attempts` + 1; random01 in [0, 1) feeds the jitter. */
int64_t config_backoff_ms(const struct queue_config *config, uint32_t attempts, double random01);

const char *policy_name(enum policy_kind kind);
bool policy_parse(const char *name, enum policy_kind *kind);

#endif
