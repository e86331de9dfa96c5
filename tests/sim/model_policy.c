#include "sim/model.h"

#include <stddef.h>
#include <string.h>

/* Age */

void model_pause(struct model_queue *q, bool paused, int64_t wall_ms)
{
    struct pause *last = q->pause_count ? &q->pauses[q->pause_count - 1] : NULL;
    int64_t at_ms = wall_ms;
    if (last && paused && at_ms < last->until_ms)
        at_ms = last->until_ms;
    if (last && !paused && at_ms < last->from_ms)
        at_ms = last->from_ms;
    if (paused)
        q->pauses[q->pause_count++] = (struct pause){at_ms, PAUSE_OPEN};
    else
        last->until_ms = at_ms;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t model_waited_ms(const struct model_queue *q, const struct model_message *m, int64_t wall_ms)
{
    int64_t waited_ms = 0, from_ms = m->ready_ms;
    for (uint32_t i = 0; i < q->pause_count && from_ms < wall_ms; i++) {
        const struct pause *p = &q->pauses[i];
        int64_t until_ms = p->from_ms < wall_ms ? p->from_ms : wall_ms;
        waited_ms += larger(until_ms - from_ms, 0);
        from_ms = larger(from_ms, p->until_ms);
    }
    return waited_ms + (from_ms < wall_ms ? wall_ms - from_ms : 0);
}

static int rank_of(const struct model_queue *q, const struct model_message *m)
{
    return levels_rank_of_slot(&q->config, m->slot);
}

static bool close_to_promise(const struct model_queue *q, const struct model_message *m,
                             int64_t wall_ms)
{
    int64_t max_ms = q->config.levels[rank_of(q, m)].max_wait_ms;
    return max_ms > 0 && model_waited_ms(q, m, wall_ms) >= max_ms - max_ms / 8;
}

/* Has it waited long enough to count as `rank`, too? */
static bool reaches(const struct model_queue *q, const struct model_message *m, int rank,
                    int64_t wall_ms)
{
    int own = rank_of(q, m);
    int64_t need_ms = 0;
    for (int r = own; r > rank; r--) {
        if (q->config.levels[r].age_ms == 0)
            return false;
        need_ms += q->config.levels[r].age_ms;
    }
    return own == rank || (own > rank && model_waited_ms(q, m, wall_ms) >= need_ms);
}

int model_counts_as(const struct model_queue *q, const struct model_message *m, int64_t wall_ms)
{
    if (close_to_promise(q, m, wall_ms))
        return 0;
    int rank = rank_of(q, m);
    while (rank > 0 && reaches(q, m, rank - 1, wall_ms))
        rank--;
    return rank;
}

bool model_has_expired(const struct model_queue *q, struct instant now)
{
    for (uint32_t i = 0; i < q->count; i++) {
        if (q->messages[i].state == MESSAGE_READY && q->messages[i].expire_ms <= now.wall_ms)
            return true;
    }
    return false;
}

/* Limits */

struct candidates {
    bool open[LEVEL_COUNT_MAX]; /* by rank: fewer in flight than the level may have */
    int max_rank;
    int64_t wall_ms;
};

static struct candidates candidates(const struct model_queue *q, int max_rank, int64_t wall_ms)
{
    struct candidates c = {.max_rank = max_rank, .wall_ms = wall_ms};
    uint32_t leased[LEVEL_COUNT_MAX] = {0}, all = 0;
    for (uint32_t i = 0; i < q->count; i++) {
        if (q->messages[i].state == MESSAGE_LEASED) {
            leased[rank_of(q, &q->messages[i])]++;
            all++;
        }
    }
    for (int rank = 0; rank <= max_rank; rank++) {
        uint32_t limit = q->config.levels[rank].max_in_flight;
        c.open[rank] = (limit == 0 || leased[rank] < limit) &&
                       (q->config.max_in_flight == 0 || all < q->config.max_in_flight);
    }
    return c;
}

static bool may_be_claimed(const struct model_queue *q, const struct candidates *c,
                           const struct model_message *m)
{
    int rank = rank_of(q, m);
    return m->state == MESSAGE_READY && rank <= c->max_rank && c->open[rank];
}

/* Order */

static struct model_message *earlier(struct model_message *a, int64_t a_ms, struct model_message *b,
                                     int64_t b_ms)
{
    if (!a || !b)
        return a ? a : b;
    bool first = a_ms != b_ms ? a_ms < b_ms : a->id.seq < b->id.seq;
    return first ? a : b;
}

static struct model_message *nearest_promise(struct model_queue *q, const struct candidates *c)
{
    struct model_message *best = NULL;
    int64_t best_ms = 0;
    for (uint32_t i = 0; i < q->count; i++) {
        struct model_message *m = &q->messages[i];
        if (!may_be_claimed(q, c, m) || !close_to_promise(q, m, c->wall_ms))
            continue;
        int64_t ms = m->ready_ms + q->config.levels[rank_of(q, m)].max_wait_ms;
        best = earlier(best, best_ms, m, ms);
        best_ms = best == m ? ms : best_ms;
    }
    return best;
}

/* The oldest of what counts as `rank`. */
static struct model_message *oldest(struct model_queue *q, const struct candidates *c, int rank)
{
    struct model_message *best = NULL;
    for (uint32_t i = 0; i < q->count; i++) {
        struct model_message *m = &q->messages[i];
        if (may_be_claimed(q, c, m) && reaches(q, m, rank, c->wall_ms))
            best = earlier(best, best ? best->ready_ms : 0, m, m->ready_ms);
    }
    return best;
}

static struct model_message *pick_strict(struct model_queue *q, const struct candidates *c)
{
    struct model_message *m = NULL;
    for (int rank = 0; !m && rank <= c->max_rank; rank++)
        m = oldest(q, c, rank);
    return m;
}

static uint32_t thousandths(const struct level *level)
{
    return (uint32_t)(level->weight * 1000 + 0.5);
}

/* The largest unit of which every weight is a whole number. */
static uint32_t common_unit(const struct queue_config *c)
{
    for (uint32_t unit = thousandths(&c->levels[0]);; unit--) {
        bool fits = true;
        for (int rank = 0; fits && rank < c->level_count; rank++)
            fits = thousandths(&c->levels[rank]) % unit == 0;
        if (fits)
            return unit;
    }
}

void model_refill(struct model_queue *q)
{
    uint32_t unit = common_unit(&q->config);
    memset(q->full, 0, sizeof(q->full));
    for (int rank = 0; rank < q->config.level_count; rank++)
        q->full[rank] = thousandths(&q->config.levels[rank]) / unit;
    for (int max_rank = 0; max_rank < LEVEL_COUNT_MAX; max_rank++)
        memcpy(q->tokens[max_rank], q->full, sizeof(q->full));
}

int model_turn(struct model_queue *q, int max_rank, const void *const there[])
{
    uint32_t *tokens = q->tokens[max_rank];
    bool any = false;
    for (int rank = 0; rank <= max_rank; rank++)
        any = any || there[rank];
    while (any) {
        int best = -1;
        for (int rank = 0; rank <= max_rank; rank++) {
            if (there[rank] && tokens[rank] > (best < 0 ? 0 : tokens[best]))
                best = rank;
        }
        if (best >= 0) {
            tokens[best]--;
            return best;
        }
        memcpy(tokens, q->full, sizeof(q->full));
    }
    return -1;
}

static struct model_message *pick_weighted(struct model_queue *q, const struct candidates *c)
{
    struct model_message *first[LEVEL_COUNT_MAX];
    for (int rank = 0; rank <= c->max_rank; rank++)
        first[rank] = oldest(q, c, rank);
    int rank = model_turn(q, c->max_rank, (const void *const *)first);
    return rank >= 0 ? first[rank] : NULL;
}

struct model_message *model_pick(struct model_queue *q, int max_rank, struct instant now)
{
    struct candidates c = candidates(q, max_rank, now.wall_ms);
    struct model_message *m = nearest_promise(q, &c);
    if (m)
        return m;
    return q->config.policy == POLICY_STRICT ? pick_strict(q, &c) : pick_weighted(q, &c);
}

uint64_t model_ahead(const struct model_queue *q, const struct message_id *id, struct instant now,
                     uint64_t most)
{
    static struct model_queue copy;
    copy = *q;
    copy.config.max_in_flight = 0;
    for (int rank = 0; rank < copy.config.level_count; rank++)
        copy.config.levels[rank].max_in_flight = 0;
    for (uint64_t ahead = 0; ahead < most; ahead++) {
        struct model_message *m = model_pick(&copy, copy.config.level_count - 1, now);
        if (!m || m->id.seq == id->seq)
            return ahead;
        m->state = MESSAGE_LEASED;
    }
    return most;
}
