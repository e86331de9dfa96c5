#include "core/dedup.h"
#include "base/mem.h"
#include "base/plant.h"
#include "core/moves.h"

#include <assert.h>
#include <stdlib.h>

static_assert(IMPORT_KEY_BYTES <= DEDUP_KEY_MAX, "it is a key among the others");

static struct dedup_entry *entry_of(const struct queue *q, const char *key, size_t len)
{
    return map_get(&q->dedup, key, len);
}

#define DEDUP_TAG TAG('d', 'e', 'd', 'u')

static struct dedup_entry *entry_at(const struct order_node *n)
{
    tag_check(n->tag, DEDUP_TAG);
    return container_of(n, struct dedup_entry, node);
}

static void entry_end(struct dedup_entry *e)
{
    tag_end(&e->node.tag, DEDUP_TAG);
    free(e->key);
    free(e);
}

static void entry_free(struct queue *q, struct dedup_entry *e)
{
    void *removed = map_remove(&q->dedup, e->key, e->key_len);
    assert(removed == e);
    (void)removed;
    if (e->node.height > 0)
        order_remove(&q->dedup_until, &e->node);
    entry_end(e);
}

static struct dedup_entry *entry_add(struct queue *q, const char *key, size_t len,
                                     const struct dedup_hit *hit, bool dropped)
{
    struct dedup_entry *e = mem_alloc(sizeof(*e) + order_node_extra(hit->id.seq));
    *e = (struct dedup_entry){.hit = *hit, .dropped = dropped, .key_len = (uint32_t)len};
    e->key = mem_dup(key, len);
    e->node.key = hit->until_ms;
    e->node.tie = hit->id.seq;
    e->node.tag = DEDUP_TAG;
    e->node.height = 0;
    map_put(&q->dedup, e->key, len, e);
    if (hit->until_ms != INT64_MAX)
        order_insert(&q->dedup_until, &e->node);
    return e;
}

static void forget(struct queue *q, const char *key, size_t len)
{
    struct dedup_entry *e = entry_of(q, key, len);
    if (e)
        entry_free(q, e);
}

bool queue_key_here(const struct queue *q, const char *key, size_t len)
{
    return entry_of(q, key, len) != NULL;
}

bool dedup_find(const struct queue *q, const char *key, size_t len,
                const struct dedup_hit *elsewhere, struct instant now, struct dedup_hit *hit)
{
    const struct dedup_entry *e = entry_of(q, key, len);
    const struct dedup_hit *found = e ? &e->hit : elsewhere;
    if (!found || (e && e->dropped) || found->until_ms <= now.wall_ms)
        return false;
    *hit = *found;
    return true;
}

void dedup_remember(struct queue *q, const char *key, size_t len, const struct dedup_hit *hit)
{
    assert(len > 0);
    assert(len <= DEDUP_KEY_MAX);
    assert(hit->id.queue == q->id);
    assert(hit->id.seq < *q->next_seq);
    forget(q, key, len);
    const struct dedup_entry *e = entry_add(q, key, len, hit, false);
    if (q->reports && !PLANTED(DEDUP_FORGETS))
        *queue_report_next(q) = (struct queue_report){.key = e, .kind = REPORT_KEY};
}

void dedup_put(struct queue *q, const struct message *m)
{
    bool live = q->config->dedup_scope == DEDUP_LIVE;
    if (!live && q->config->dedup_window_ms == 0)
        return;
    struct dedup_hit hit = {
        .id = message_identity(m, q->id),
        .enqueued_ms = m->enqueued_ms,
        .until_ms = live ? INT64_MAX : m->enqueued_ms + q->config->dedup_window_ms,
    };
    dedup_remember(q, message_dedup_key(m), m->dedup_len, &hit);
}

void dedup_adopt(struct queue *q, const struct message *m, const struct dedup_hit *elsewhere,
                 struct instant now)
{
    bool live = q->config->dedup_scope == DEDUP_LIVE;
    struct dedup_hit hit;
    if (!live && m->enqueued_ms + q->config->dedup_window_ms <= now.wall_ms)
        return;
    if (!dedup_find(q, message_dedup_key(m), m->dedup_len, elsewhere, now, &hit))
        dedup_put(q, m);
}

/* With the message goes only a key whose first message is this one, and which has no time limit
 * (`DEDUP_LIVE`). When the message has left for another store, the key is known there, and goes in
 * any case. */
bool queue_key_drop(struct queue *q, const struct message *m, const struct dedup_hit *elsewhere)
{
    const char *key = message_dedup_key(m);
    const struct dedup_entry *e = entry_of(q, key, m->dedup_len);
    const struct dedup_hit *found = e ? &e->hit : elsewhere;
    bool stays = found && found->until_ms != INT64_MAX && !message_leaves(m);
    if (!found || stays || found->id.seq != message_seq(m))
        return false;
    struct dedup_hit hit = *found;
    forget(q, key, m->dedup_len);
    if (q->reports)
        entry_add(q, key, m->dedup_len, &hit, true);
    return true;
}

void queue_dedup_committed(struct queue *q, const char *key, size_t len, uint64_t seq, bool dropped)
{
    struct dedup_entry *e = entry_of(q, key, len);
    if (e && e->hit.id.seq == seq && e->dropped == dropped)
        entry_free(q, e);
}

uint32_t dedup_sweep(struct queue *q, uint32_t max, struct instant now)
{
    uint32_t moved = 0;
    for (struct order_node *n; moved < max && (n = order_first(&q->dedup_until)); moved++) {
        if (n->key > now.wall_ms)
            break;
        entry_free(q, entry_at(n));
    }
    return moved;
}

int64_t dedup_due(const struct queue *q, int64_t wall_ms)
{
    const struct order_node *first = order_first(&q->dedup_until);
    return first && first->key < wall_ms ? first->key : wall_ms;
}

void dedup_check(const struct queue *q)
{
    uint64_t ending = 0;
    size_t at = 0;
    map_check(&q->dedup);
    order_check(&q->dedup_until);
    for (const struct dedup_entry *e; (e = map_each(&q->dedup, &at));) {
        assert(entry_at(&e->node) == e);
        assert(e->hit.id.queue == q->id);
        assert(e->node.key == e->hit.until_ms);
        assert((e->node.height > 0) == (e->hit.until_ms != INT64_MAX));
        ending += e->node.height > 0;
    }
    assert(q->dedup_until.count == ending);
}

void dedup_clear(struct queue *q)
{
    size_t at = 0;
    for (struct dedup_entry *e; (e = map_each(&q->dedup, &at));)
        entry_end(e);
    map_fini(&q->dedup);
}
