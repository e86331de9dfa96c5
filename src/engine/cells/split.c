#include "engine/cells/split.h"

#define NOBODY UINT32_MAX

static bool is_slow(const struct split_terms *terms, const struct split_figures *p)
{
    return p->commit_ms > terms->commit_ms;
}

static bool is_over(const struct split_terms *terms, const struct split_figures *p)
{
    return p->open && (is_slow(terms, p) || p->depth > terms->depth);
}

/* Room is half of the threshold: so what is given away does not make the next one over. */
static bool has_room(const struct split_terms *terms, const struct split_figures *p)
{
    return p->open && p->commit_ms <= terms->commit_ms / 2 && p->depth <= terms->depth / 2;
}

static void watch(const struct split_terms *terms, struct split_figures partitions[],
                  uint32_t count, int64_t now_ms)
{
    for (uint32_t i = 0; i < count; i++) {
        struct split_figures *p = &partitions[i];
        if (!is_over(terms, p))
            p->over_ms = 0;
        else if (p->over_ms == 0)
            p->over_ms = now_ms;
    }
}

static uint32_t longest_over(const struct split_figures partitions[], uint32_t count)
{
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        int64_t over_ms = partitions[i].over_ms;
        if (over_ms > 0 && (best == NOBODY || over_ms < partitions[best].over_ms))
            best = i;
    }
    return best;
}

/* The one with the fewest messages; of equals the one with the fewest buckets. */
static uint32_t roomiest(const struct split_terms *terms, const struct split_figures partitions[],
                         uint32_t count, uint32_t from)
{
    uint32_t best = NOBODY;
    for (uint32_t i = 0; i < count; i++) {
        const struct split_figures *p = &partitions[i],
                                   *than = &partitions[best == NOBODY ? i : best];
        bool less =
            p->depth < than->depth || (p->depth == than->depth && p->buckets < than->buckets);
        if (i != from && has_room(terms, p) && (best == NOBODY || less))
            best = i;
    }
    return best;
}

struct split_decision split_decide(const struct split_terms *terms,
                                   struct split_figures partitions[], uint32_t count,
                                   int64_t split_ms, struct instant now)
{
    struct split_decision d = {.state = SPLIT_CALM};
    watch(terms, partitions, count, now.mono_ms);
    uint32_t from = longest_over(partitions, count);
    if (from == NOBODY)
        return d;
    d.from = from;
    d.cause = is_slow(terms, &partitions[from]) ? SPLIT_BY_COMMIT : SPLIT_BY_DEPTH;
    int64_t rests_ms = split_ms > 0 ? split_ms + terms->rest_ms - now.wall_ms : 0;
    rests_ms = rests_ms < terms->rest_ms ? rests_ms : terms->rest_ms; /* the clock was set back */
    int64_t over_ms = partitions[from].over_ms + terms->after_ms - now.mono_ms;
    uint32_t to = roomiest(terms, partitions, count, from);
    d.wait_ms = rests_ms > over_ms ? rests_ms : over_ms;
    if (rests_ms > 0) {
        d.state = SPLIT_RESTS;
    } else if (over_ms > 0) {
        d.state = SPLIT_OVER;
    } else if (to == NOBODY) {
        d.state = SPLIT_NO_ROOM;
    } else if (partitions[from].buckets < 2) {
        d.state = SPLIT_NO_SHARE;
    } else {
        d.state = SPLIT_NOW;
        d.to = to;
        d.buckets = partitions[from].buckets / 2;
    }
    return d;
}
