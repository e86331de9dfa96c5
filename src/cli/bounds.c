#include "cli/bounds.h"

struct bounder {
    const struct queue_config *config;
    const struct policy *policy;
    uint64_t cycle;
    int64_t window_us;  /* in which every consumer claims at least once */
    uint64_t in_window; /* messages that they claim in it */
};

int bounds_feeder(const struct queue_config *config, int rank)
{
    while (rank + 1 < config->level_count && config->levels[rank + 1].age_ms > 0)
        rank++;
    return rank;
}

/* How many claims until one that counts as `rank`, with `ahead` before it. */
static int64_t claims_until(const struct bounder *b, int rank, uint64_t ahead)
{
    if (b->config->policy == POLICY_STRICT)
        return rank == 0 ? (int64_t)ahead + 1 : BOUND_NONE;
    uint64_t quota = b->policy->quota[rank];
    return (int64_t)(((ahead + quota) / quota + 1) * b->cycle);
}

static int64_t claims_ms(const struct bounder *b, int64_t claims)
{
    uint64_t windows = ((uint64_t)claims + b->in_window - 1) / b->in_window;
    return (int64_t)(windows * (uint64_t)b->window_us / 1000 + 1);
}

/* Whether claims that cost no token, or a limit, may come between a level and its turn. */
static bool undisturbed(const struct queue_config *config, int rank)
{
    bool free_of = config->levels[rank].max_in_flight == 0;
    for (int other = 0; other < config->level_count; other++)
        free_of = free_of && (other == rank || config->levels[other].max_wait_ms == 0);
    return free_of;
}

/* The smallest over all levels that a message of `rank` comes to count as. */
static int64_t longest_ms(const struct bounder *b, int rank, const uint64_t ahead[LEVEL_COUNT_MAX])
{
    int64_t best = BOUND_NONE, waited_ms = 0;
    for (int to = rank; to >= 0; to--) {
        int64_t claims = claims_until(b, to, ahead[to]);
        /* Those of its level that go first to keep its own max_wait cost a claim and no token. */
        if (claims != BOUND_NONE && b->config->levels[rank].max_wait_ms > 0)
            claims += (int64_t)ahead[to];
        int64_t ms = claims == BOUND_NONE ? BOUND_NONE : waited_ms + claims_ms(b, claims);
        if (ms != BOUND_NONE && (best == BOUND_NONE || ms < best))
            best = ms;
        if (b->config->levels[to].age_ms == 0)
            break;
        waited_ms += b->config->levels[to].age_ms;
    }
    return best;
}

static void age(const struct queue_config *config, int rank, struct level_bound *out)
{
    out->ages_to = rank;
    out->ages_ms = 0;
    while (out->ages_to > 0 && config->levels[out->ages_to].age_ms > 0)
        out->ages_ms += config->levels[out->ages_to--].age_ms;
}

static double share_of(const struct bounder *b, int rank)
{
    if (b->config->policy == POLICY_STRICT)
        return rank == 0 ? 1 : 0;
    return (double)b->policy->quota[rank] / (double)b->cycle;
}

void bounds_compute(const struct queue_config *config, const struct capacity *capacity,
                    const uint64_t ahead[LEVEL_COUNT_MAX][LEVEL_COUNT_MAX], struct bounds *out)
{
    struct policy policy;
    policy_init(&policy, config);
    struct bounder b = {
        .config = config,
        .policy = &policy,
        .cycle = policy_cycle(&policy, config),
        .window_us = capacity->claim_max * capacity->service_us,
        .in_window = (uint64_t)capacity->consumers * capacity->claim_max,
    };
    if (config->max_in_flight > 0 && config->max_in_flight < b.in_window)
        b.in_window = config->max_in_flight;
    *out = (struct bounds){.cycle = config->policy == POLICY_WEIGHTED ? b.cycle : 0};
    out->claims_per_second = (double)b.in_window * 1e6 / (double)b.window_us;
    for (int rank = 0; rank < config->level_count; rank++) {
        struct level_bound *level = &out->levels[rank];
        bool timed = undisturbed(config, rank);
        level->quota = policy.quota[rank];
        level->share = share_of(&b, rank);
        level->next_claims = claims_until(&b, rank, 0);
        timed = timed && level->next_claims != BOUND_NONE;
        level->next_ms = timed ? claims_ms(&b, level->next_claims) : BOUND_NONE;
        level->ahead = ahead[rank][rank];
        level->longest_ms =
            undisturbed(config, rank) ? longest_ms(&b, rank, ahead[rank]) : BOUND_NONE;
        age(config, rank, level);
    }
}
