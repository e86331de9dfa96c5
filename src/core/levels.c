#include "core/levels.h"

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

const char *const *levels_profile_names(void)
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
        .max_attempts = 3,
        .backoff = BACKOFF_NONE,
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
}

bool levels_profile(const char *name, struct queue_config *config)
{
    for (size_t i = 0; i < PROFILE_COUNT; i++) {
        if (strcmp(profiles[i].name, name) == 0) {
            fill(&profiles[i], config);
            return true;
        }
    }
    return false;
}

static int rank_of_name(const struct queue_config *config, const char *name)
{
    for (int i = 0; i < config->level_count; i++) {
        if (strcmp(config->levels[i].name, name) == 0)
            return i;
    }
    return -1;
}

int levels_resolve(const struct queue_config *config, const struct priority_ref *priority)
{
    switch (priority->kind) {
    case PRIORITY_DEFAULT:
        return config->default_rank;
    case PRIORITY_NAME:
        return rank_of_name(config, priority->name);
    case PRIORITY_NUMBER:
        for (int i = 0; i < config->level_count; i++) {
            if (config->levels[i].has_number && config->levels[i].number == priority->number)
                return i;
        }
        return -1;
    }
    return -1;
}

int levels_rank_of_slot(const struct queue_config *config, uint8_t slot)
{
    if (slot < config->level_count && config->levels[slot].slot == slot)
        return slot; /* as it is until levels are reordered */
    for (int i = 0; i < config->level_count; i++) {
        if (config->levels[i].slot == slot)
            return i;
    }
    return -1;
}

bool levels_adopt_slots(const struct queue_config *now, const bool used[LEVEL_COUNT_MAX],
                        struct queue_config *next, const char **level_name)
{
    bool taken[LEVEL_COUNT_MAX] = {false};
    for (int i = 0; now && i < now->level_count; i++) {
        const struct level *old = &now->levels[i];
        int rank = rank_of_name(next, old->name);
        if (rank < 0 && used[old->slot]) {
            *level_name = old->name;
            return false;
        }
        if (rank >= 0) {
            next->levels[rank].slot = old->slot;
            taken[old->slot] = true;
        }
    }
    for (int i = 0; i < next->level_count; i++) {
        struct level *level = &next->levels[i];
        if (now && rank_of_name(now, level->name) >= 0)
            continue;
        uint8_t slot = 0;
        while (taken[slot]) /* at most 16 levels, so one is free */
            slot++;
        level->slot = slot;
        taken[slot] = true;
    }
    return true;
}

int64_t levels_backoff_ms(const struct queue_config *config, uint32_t attempts, double random01)
{
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
