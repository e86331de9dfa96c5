#include "core/config.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct profile_level {
    const char *name;
    int number; /* -1: none */
    double weight;
    int age_minutes;
};

struct profile {
    const char *name;
    struct profile_level levels[LEVEL_COUNT_MAX];
    int level_count;
    int default_rank;
    int64_t visibility_ms;
    enum policy_kind policy;
};

static const struct profile profiles[] = {
    {"levels",
     {{"9", 9, 10, 0},
      {"8", 8, 9, 0},
      {"7", 7, 8, 0},
      {"6", 6, 7, 0},
      {"5", 5, 6, 0},
      {"4", 4, 5, 0},
      {"3", 3, 4, 0},
      {"2", 2, 3, 0},
      {"1", 1, 2, 0},
      {"0", 0, 1, 0}},
     10,
     4,
     30000,
     POLICY_STRICT},
    {"tiers",
     {{"CRITICAL", 0, 8, 0},
      {"HIGH", 1, 4, 0},
      {"NORMAL", 2, 2, 0},
      {"LOW", 3, 1, 30},
      {"BACKGROUND", 4, 0.5, 60}},
     5,
     2,
     300000,
     POLICY_WEIGHTED},
    {"environments",
     {{"production", -1, 4, 0}, {"staging", -1, 3, 0}, {"qa", -1, 2, 0}, {"development", -1, 1, 0}},
     4,
     0,
     30000,
     POLICY_WEIGHTED},
    {"timeline", {{"timeline", 0, 1, 0}}, 1, 0, 30000, POLICY_STRICT},
};

#define PROFILE_COUNT (sizeof(profiles) / sizeof(profiles[0]))

const char *const *config_profile_names(void)
{
    static const char *names[PROFILE_COUNT + 1];
    for (size_t i = 0; i < PROFILE_COUNT; i++)
        names[i] = profiles[i].name;
    return names;
}

static void fill(const struct profile *p, struct queue_config *config)
{
    *config = (struct queue_config){
        .level_count = (uint8_t)p->level_count,
        .default_rank = (uint8_t)p->default_rank,
        .policy = p->policy,
        .visibility_ms = p->visibility_ms,
        .max_attempts = 5,
        .backoff = BACKOFF_EXPONENTIAL,
        .backoff_base_ms = 1000,
        .backoff_max_ms = 300000,
        .backoff_jitter = 0.1,
        .dedup_window_ms = 300000,
        .dedup_scope = DEDUP_WINDOW,
    };
    snprintf(config->profile, sizeof(config->profile), "%s", p->name);
    for (int i = 0; i < p->level_count; i++) {
        struct level *level = &config->levels[i];
        snprintf(level->name, sizeof(level->name), "%s", p->levels[i].name);
        level->has_number = p->levels[i].number >= 0;
        level->number = level->has_number ? p->levels[i].number : 0;
        level->weight = p->levels[i].weight;
        level->age_ms = p->levels[i].age_minutes * 60000LL;
        level->slot = (uint8_t)i;
    }
    assert(config_valid(config));
}

bool config_profile(const char *name, struct queue_config *config)
{
    for (size_t i = 0; i < PROFILE_COUNT; i++) {
        if (strcmp(profiles[i].name, name) == 0) {
            fill(&profiles[i], config);
            return true;
        }
    }
    return false;
}

/* Validity */

static_assert(PAUSES_MAX <= UINT8_MAX, "pause_count");
static_assert(LEVEL_COUNT_MAX <= UINT8_MAX, "level_count, and 1 + a slot in heir_of");
static_assert(IN_FLIGHT_MAX <= UINT32_MAX, "max_in_flight");
static_assert(COUNT_MAX < INT64_MAX / 2, "sums of what a queue may hold do not overflow");
static_assert(DELAY_SECONDS_MAX * 1000 < TIME_MS_MAX, "a delay is within the times there are");
static_assert(TTL_SECONDS_MAX * 1000 < TIME_MS_MAX, "the same");

static bool within(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most;
}

static bool levels_distinct(const struct queue_config *c)
{
    bool taken[LEVEL_COUNT_MAX] = {false};
    for (int i = 0; i < c->level_count; i++) {
        const struct level *l = &c->levels[i];
        if (l->slot >= LEVEL_COUNT_MAX || taken[l->slot] || levels_rank_of_name(c, l->name) != i)
            return false;
        taken[l->slot] = true;
    }
    return true;
}

static bool level_valid(const struct level *l)
{
    return l->name[0] && within(l->number, -LEVEL_NUMBER_MAX, LEVEL_NUMBER_MAX) &&
           l->weight >= WEIGHT_UNIT / 2 && l->weight <= WEIGHT_MAX && /* false for NaN, too */
           within(l->age_ms, 0, DELAY_SECONDS_MAX * 1000) &&
           within(l->max_wait_ms, 0, DELAY_SECONDS_MAX * 1000) && l->max_in_flight <= IN_FLIGHT_MAX;
}

/* Pauses are in order and do not overlap. Only the last one may still be open. */
static bool pauses_valid(const struct queue_config *c)
{
    int64_t after_ms = -TIME_MS_MAX - 1;
    for (int i = 0; i < c->pause_count; i++) {
        const struct pause *p = &c->pauses[i];
        bool open = p->until_ms == PAUSE_OPEN && i == c->pause_count - 1;
        if (!within(p->from_ms, after_ms, TIME_MS_MAX) ||
            (!open && !within(p->until_ms, p->from_ms, TIME_MS_MAX)))
            return false;
        after_ms = p->until_ms;
    }
    return true;
}

static bool rules_valid(const struct queue_config *c)
{
    const struct {
        int64_t value, least, most;
    } numbers[] = {
        {c->visibility_ms, 0, LEASE_SECONDS_MAX * 1000},
        {c->max_attempts, 1, ATTEMPTS_MAX},
        {c->backoff_base_ms, 0, DELAY_SECONDS_MAX * 1000},
        {c->backoff_max_ms, 0, DELAY_SECONDS_MAX * 1000},
        {c->ttl_ms, 0, TTL_SECONDS_MAX * 1000},
        {c->dedup_window_ms, 0, TTL_SECONDS_MAX * 1000},
        {c->history_ms, 0, HISTORY_SECONDS_MAX * 1000},
        {c->history_since_ms, 0, TIME_MS_MAX},
        {c->max_in_flight, 0, IN_FLIGHT_MAX},
        {c->alert_oldest_ready_seconds, 0, DELAY_SECONDS_MAX},
        {c->policy, POLICY_STRICT, POLICY_WEIGHTED},
        {c->backoff, BACKOFF_NONE, BACKOFF_EXPONENTIAL},
        {c->expired, EXPIRED_DROP, EXPIRED_DEAD},
        {c->dedup_scope, DEDUP_WINDOW, DEDUP_LIVE},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!within(numbers[i].value, numbers[i].least, numbers[i].most))
            return false;
    }
    return c->backoff_jitter >= 0 && c->backoff_jitter <= 1 && c->max_depth <= COUNT_MAX &&
           c->max_bytes <= COUNT_MAX && c->alert_dead_letters <= COUNT_MAX;
}

bool config_valid(const struct queue_config *c)
{
    if (c->level_count == 0 || c->level_count > LEVEL_COUNT_MAX || c->pause_count > PAUSES_MAX ||
        c->default_rank >= c->level_count)
        return false;
    for (int i = 0; i < c->level_count; i++) {
        if (!level_valid(&c->levels[i]))
            return false;
    }
    return levels_distinct(c) && pauses_valid(c) && rules_valid(c);
}

bool queue_prefix_valid(const char *prefix, size_t len)
{
    if (len > QUEUE_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = prefix[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

/* History */

void config_adopt_history(const struct queue_config *now, struct queue_config *next,
                          int64_t wall_ms)
{
    bool lowered = next->history_ms < now->history_ms;
    int64_t since_ms = wall_ms - (lowered ? next->history_ms : now->history_ms);
    next->history_since_ms = now->history_since_ms;
    if (next->history_ms != now->history_ms && since_ms > now->history_since_ms)
        next->history_since_ms = since_ms;
}

bool config_keeps(const struct queue_config *config, int64_t done_ms, int64_t wall_ms)
{
    bool forgotten = config->history_since_ms != 0 && done_ms <= config->history_since_ms;
    return !forgotten && wall_ms < done_ms + config->history_ms;
}

int64_t config_done_ms(const struct queue_config *config, int64_t wall_ms)
{
    bool early = config->history_since_ms != 0 && wall_ms <= config->history_since_ms;
    return early ? config->history_since_ms + 1 : wall_ms;
}

int64_t config_backoff_ms(const struct queue_config *config, uint32_t attempts, double random01)
{
    assert(random01 >= 0);
    assert(random01 < 1);
    if (config->backoff == BACKOFF_NONE)
        return 0;
    double delay = (double)config->backoff_base_ms;
    for (uint32_t i = 1; config->backoff == BACKOFF_EXPONENTIAL && i < attempts; i++) {
        delay *= 2;
        if (delay >= (double)config->backoff_max_ms)
            break;
    }
    if (delay > (double)config->backoff_max_ms)
        delay = (double)config->backoff_max_ms;
    return (int64_t)(delay * (1 + config->backoff_jitter * (2 * random01 - 1)) + 0.5);
}

static const char *const policy_names[] = {
    [POLICY_STRICT] = "strict", [POLICY_WEIGHTED] = "weighted"};

const char *policy_name(enum policy_kind kind)
{
    assert(kind < sizeof(policy_names) / sizeof(policy_names[0]));
    return policy_names[kind];
}

bool policy_parse(const char *name, enum policy_kind *kind)
{
    for (size_t i = 0; i < sizeof(policy_names) / sizeof(policy_names[0]); i++) {
        if (strcmp(policy_names[i], name) == 0) {
            *kind = (enum policy_kind)i;
            return true;
        }
    }
    return false;
}
