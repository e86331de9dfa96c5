#include "simulate/ledger.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

void ledger_init(struct ledger *l, uint32_t cell_count)
{
    *l = (struct ledger){.cell_count = cell_count};
    l->since_us = mem_zalloc(cell_count * sizeof(l->since_us[0]));
}

void ledger_fini(struct ledger *l)
{
    for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++)
        free(l->claims[rank].items);
    free(l->messages);
    free(l->since_us);
}

uint32_t ledger_begin(struct ledger *l, uint8_t rank, int64_t now_us)
{
    if (l->count == l->room) {
        l->room = l->room > 0 ? 2 * l->room : 1024;
        l->messages = mem_realloc(l->messages, l->room * sizeof(l->messages[0]));
    }
    l->messages[l->count] = (struct ledger_message){.put_us = now_us, .ready_us = -1, .rank = rank};
    return l->count++;
}

void ledger_ready(struct ledger *l, uint32_t number, uint32_t cell, int64_t now_us)
{
    assert(number < l->count);
    assert(cell < l->cell_count);
    l->messages[number].ready_us = now_us;
    l->messages[number].cell = cell;
}

static void note_claim(struct ledger_claims *c, int64_t began_us, int64_t put_us, int64_t now_us)
{
    if (c->count == c->room) {
        c->room = c->room > 0 ? 2 * c->room : 256;
        c->items = mem_realloc(c->items, c->room * sizeof(c->items[0]));
    }
    if (c->count > 0) {
        const struct ledger_claim *last = &c->items[c->count - 1];
        assert(last->over_us <= now_us);
        began_us = last->began_us > began_us ? last->began_us : began_us;
        put_us = last->put_us > put_us ? last->put_us : put_us;
    }
    c->items[c->count++] = (struct ledger_claim){now_us, began_us, put_us};
}

/* The last claim that was over before `us`; NULL: there is none. */
static const struct ledger_claim *last_before(const struct ledger_claims *c, int64_t us)
{
    size_t from = 0, end = c->count;
    while (from < end) {
        size_t middle = from + (end - from) / 2;
        if (c->items[middle].over_us < us)
            from = middle + 1;
        else
            end = middle;
    }
    return from > 0 ? &c->items[from - 1] : NULL;
}

/* What passed over a message until a claim began that took it. */
static void judge(struct ledger *l, const struct ledger_message *m, int64_t until_us)
{
    int64_t since_us = l->since_us[m->cell], between = 0, within = 0;
    if (m->ready_us < 0 || since_us == INT64_MAX)
        return;
    since_us = since_us > m->ready_us ? since_us : m->ready_us;
    for (int rank = m->rank + 1; rank < LEVEL_COUNT_MAX; rank++) {
        const struct ledger_claim *c = last_before(&l->claims[rank], until_us);
        if (c && c->began_us - since_us > between)
            between = c->began_us - since_us;
    }
    const struct ledger_claim *same = last_before(&l->claims[m->rank], until_us);
    if (same && since_us == m->ready_us && same->put_us > m->ready_us)
        within = same->put_us - m->ready_us;
    l->passed_between += between > 0;
    l->passed_within += within > 0;
    hist_add(&l->between_us, (uint64_t)between);
    hist_add(&l->within_us, (uint64_t)within);
}

void ledger_taken(struct ledger *l, uint32_t number, uint8_t rank, int64_t began_us, int64_t now_us)
{
    assert(number < l->count);
    struct ledger_message *m = &l->messages[number];
    assert(!m->taken); /* one holder */
    m->taken = true;
    judge(l, m, began_us);
    note_claim(&l->claims[rank], began_us, m->put_us, now_us);
}

void ledger_cell(struct ledger *l, uint32_t cell, bool there, int64_t now_us)
{
    assert(cell < l->cell_count);
    l->since_us[cell] = there ? now_us : INT64_MAX;
}

void ledger_close(struct ledger *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        if (!l->messages[i].taken)
            judge(l, &l->messages[i], INT64_MAX);
    }
}
