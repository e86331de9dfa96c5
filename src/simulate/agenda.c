#include "simulate/agenda.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

static bool sooner(const struct agenda_item *a, const struct agenda_item *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->number < b->number;
}

static void rise(struct agenda *a, size_t at)
{
    struct agenda_item item = a->items[at];
    for (size_t up; at > 0 && sooner(&item, &a->items[up = (at - 1) / 2]); at = up)
        a->items[at] = a->items[up];
    a->items[at] = item;
}

static void sink(struct agenda *a, size_t at)
{
    struct agenda_item item = a->items[at];
    for (size_t down; (down = 2 * at + 1) < a->count; at = down) {
        if (down + 1 < a->count && sooner(&a->items[down + 1], &a->items[down]))
            down++;
        if (!sooner(&a->items[down], &item))
            break;
        a->items[at] = a->items[down];
    }
    a->items[at] = item;
}

void agenda_fini(struct agenda *a)
{
    free(a->items);
    *a = (struct agenda){0};
}

void agenda_plan(struct agenda *a, int64_t at_us, agenda_act *act, void *ctx)
{
    assert(at_us >= a->now_us);
    if (a->count == a->room) {
        a->room = a->room > 0 ? 2 * a->room : 64;
        a->items = mem_realloc(a->items, a->room * sizeof(a->items[0]));
    }
    a->items[a->count] = (struct agenda_item){at_us, a->planned++, act, ctx};
    rise(a, a->count++);
}

bool agenda_step(struct agenda *a, int64_t until_us)
{
    if (a->count == 0 || a->items[0].at_us > until_us) {
        a->now_us = until_us > a->now_us ? until_us : a->now_us;
        return false;
    }
    struct agenda_item first = a->items[0];
    a->items[0] = a->items[--a->count];
    if (a->count > 0)
        sink(a, 0);
    a->now_us = first.at_us;
    first.act(first.ctx);
    return true;
}

uint64_t chance_next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

double chance_share(uint64_t *state)
{
    return (double)(chance_next(state) >> 11) / 9007199254740992.0;
}
