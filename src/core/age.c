#include "core/age.h"

#include <assert.h>
#include <string.h>

int64_t age_between(const struct queue_config *config, int64_t from_ms, int64_t now_ms)
{
    int64_t age_ms = now_ms - from_ms;
    for (int i = 0; i < config->pause_count; i++) {
        const struct pause *p = &config->pauses[i];
        int64_t from = p->from_ms > from_ms ? p->from_ms : from_ms;
        int64_t until = p->until_ms < now_ms ? p->until_ms : now_ms;
        if (until > from)
            age_ms -= until - from;
    }
    return age_ms > 0 ? age_ms : 0;
}

int64_t age_cutoff(const struct queue_config *config, int64_t now_ms, int64_t wait_ms)
{
    assert(wait_ms >= 0);
    int64_t at_ms = now_ms;
    for (int i = config->pause_count; i-- > 0;) {
        const struct pause *p = &config->pauses[i];
        if (p->until_ms < at_ms) {
            if (at_ms - p->until_ms >= wait_ms)
                break;
            wait_ms -= at_ms - p->until_ms;
        }
        if (p->from_ms < at_ms)
            at_ms = p->from_ms;
    }
    return at_ms - wait_ms;
}

int64_t age_urgent_ms(const struct level *level)
{
    return level->max_wait_ms - level->max_wait_ms / 8;
}

int age_effective_rank(const struct queue_config *config, int rank, int64_t ready_ms,
                       int64_t now_ms)
{
    assert(rank < config->level_count);
    const struct level *level = &config->levels[rank];
    if (level->age_ms == 0 && level->max_wait_ms == 0)
        return rank;
    int64_t age_ms = age_between(config, ready_ms, now_ms);
    if (level->max_wait_ms > 0 && age_ms >= age_urgent_ms(level))
        return 0;
    for (; rank > 0 && config->levels[rank].age_ms > 0; rank--) {
        age_ms -= config->levels[rank].age_ms;
        if (age_ms < 0)
            break;
    }
    return rank;
}

bool age_aged(const struct queue_config *config, int rank, int64_t ready_ms, int64_t now_ms)
{
    const struct level *level = &config->levels[rank];
    int64_t least_ms = level->age_ms, urgent_ms = age_urgent_ms(level);
    if (least_ms == 0 || (urgent_ms > 0 && urgent_ms < least_ms))
        least_ms = urgent_ms;
    return rank > 0 && least_ms > 0 && now_ms - ready_ms >= least_ms &&
           age_between(config, ready_ms, now_ms) >= least_ms;
}

bool age_late(const struct queue_config *config, int rank, int64_t ready_ms, int64_t now_ms)
{
    int64_t max_ms = config->levels[rank].max_wait_ms;
    return max_ms > 0 && age_between(config, ready_ms, now_ms) > max_ms;
}

/* Makes one pause of the two oldest: it is as long as both together and ends when the second ended.
 * For a message that has waited since before both pauses nothing changes. Only a message that
 * became ready during the first pause or between the two counts as younger than before. */
static void merge_oldest(struct queue_config *config)
{
    struct pause *p = config->pauses;
    assert(config->pause_count > 1);
    assert(p[0].until_ms != PAUSE_OPEN);
    p[1].from_ms -= p[0].until_ms - p[0].from_ms;
    memmove(p, p + 1, (size_t)(--config->pause_count) * sizeof(*p));
}

static int64_t no_sooner(int64_t ms, int64_t than_ms)
{
    return ms > than_ms ? ms : than_ms;
}

/* If the wall clock was set back, the new time is moved forward, so that pauses stay in order and
 * do not overlap. */
void age_pause(struct queue_config *config, bool paused, int64_t now_ms)
{
    struct pause *last = config->pause_count ? &config->pauses[config->pause_count - 1] : NULL;
    if (config->paused == paused)
        return;
    config->paused = paused;
    if (paused) {
        int64_t from_ms = last ? no_sooner(now_ms, last->until_ms) : now_ms;
        if (config->pause_count == PAUSES_MAX)
            merge_oldest(config);
        assert(config->pause_count < PAUSES_MAX);
        config->pauses[config->pause_count++] = (struct pause){from_ms, PAUSE_OPEN};
    } else if (last && last->until_ms == PAUSE_OPEN) {
        last->until_ms = no_sooner(now_ms, last->from_ms);
    }
}
