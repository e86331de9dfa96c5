/* A queue's configuration: its levels, and the rules its messages live by.
 *
 * Levels are data, most urgent first. A level's rank is its place in that list,
 * and what policies reason about. Its slot is what messages and stores remember:
 * it stays with the level's name when levels are reordered, added or dropped. */
#ifndef TRIAGE_CORE_LEVELS_H
#define TRIAGE_CORE_LEVELS_H

#include "base/limits.h"
#include "core/message.h"

#include <stdbool.h>
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
};

#define WEIGHT_UNIT 0.001
#define WEIGHT_MAX  1000000.0

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
    int64_t history_ms; /* how long done messages are kept; 0: not at all */

    uint64_t alert_dead_letters;        /* 0: none */
    int64_t alert_oldest_ready_seconds; /* 0: none */
    char alert_webhook[512];            /* empty: none */
};

/* A ready-made profile: "levels", "tiers", "environments", "timeline". False when unknown.
 * Fills the whole configuration with its defaults. */
bool levels_profile(const char *name, struct queue_config *config);
const char *const *levels_profile_names(void); /* NULL-terminated */

/* The rank a client means; -1 when the queue has no such level. */
int levels_resolve(const struct queue_config *config, const struct priority_ref *priority);

int levels_rank_of_slot(const struct queue_config *config, uint8_t slot); /* -1: no such level */

/* Gives `next`'s levels their slots: those of `now`'s levels with the same name, fresh ones for the
 * rest. used[slot] says which slots hold messages. False, naming the level, when one in use would
 * vanish or no slot is free. A first configuration passes now == NULL. */
bool levels_adopt_slots(const struct queue_config *now, const bool used[LEVEL_COUNT_MAX],
                        struct queue_config *next, const char **level_name);

/* The delay before attempt number `attempts` + 1; random01 in [0, 1) feeds the jitter. */
int64_t levels_backoff_ms(const struct queue_config *config, uint32_t attempts, double random01);

const char *policy_name(enum policy_kind kind);
bool policy_parse(const char *name, enum policy_kind *kind);

#endif
