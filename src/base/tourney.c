#include "base/tourney.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

void tourney_init(struct tourney *t, uint32_t places)
{
    uint32_t size = 2;
    assert(places <= UINT32_MAX / 4);
    while (size < places)
        size *= 2;
    t->size = size;
    t->keys = mem_zalloc(size * sizeof(t->keys[0]));
    t->winners = mem_alloc(2 * (size_t)size * sizeof(t->winners[0]));
    for (uint32_t i = 0; i < 2 * size; i++)
        t->winners[i] = TOURNEY_NONE;
}

void tourney_fini(struct tourney *t)
{
    free(t->keys);
    free(t->winners);
    *t = (struct tourney){0};
}

static bool is_below(const struct tourney_key *a, const struct tourney_key *b)
{
    if (a->major != b->major)
        return a->major < b->major;
    return a->minor != b->minor ? a->minor < b->minor : a->tie < b->tie;
}

static uint32_t better(const struct tourney *t, uint32_t a, uint32_t b)
{
    if (a == TOURNEY_NONE || b == TOURNEY_NONE)
        return a == TOURNEY_NONE ? b : a;
    bool second =
        is_below(&t->keys[b], &t->keys[a]) || (b < a && !is_below(&t->keys[a], &t->keys[b]));
    return second ? b : a;
}

/* Above a node that somebody else won before and after nothing has changed. */
static void replay(struct tourney *t, uint32_t place)
{
    for (uint32_t node = (t->size + place) / 2; node > 0; node /= 2) {
        uint32_t won = better(t, t->winners[2 * node], t->winners[2 * node + 1]);
        if (won == t->winners[node] && won != place)
            return;
        t->winners[node] = won;
    }
}

void tourney_set(struct tourney *t, uint32_t place, const struct tourney_key *key)
{
    assert(place < t->size);
    t->keys[place] = *key;
    t->winners[t->size + place] = place;
    replay(t, place);
}

void tourney_out(struct tourney *t, uint32_t place)
{
    if (!tourney_is_in(t, place))
        return;
    t->winners[t->size + place] = TOURNEY_NONE;
    replay(t, place);
}

struct descent {
    const struct tourney *t;
    int64_t most;
    tourney_skips *skips;
    const void *ctx;
};

static uint32_t first_below(const struct descent *s, uint32_t node)
{
    const struct tourney *t = s->t;
    uint32_t won = t->winners[node];
    if (won == TOURNEY_NONE || t->keys[won].major > s->most)
        return TOURNEY_NONE;
    if (!s->skips(s->ctx, won))
        return won;
    if (node >= t->size)
        return TOURNEY_NONE;
    return better(t, first_below(s, 2 * node), first_below(s, 2 * node + 1));
}

uint32_t tourney_first_but(const struct tourney *t, int64_t most, tourney_skips *skips,
                           const void *ctx)
{
    const struct descent search = {t, most, skips, ctx};
    return t->size > 0 ? first_below(&search, 1) : TOURNEY_NONE;
}
