/* Ops that name messages by id: the id says in which partition a message is. */
#include "base/mem.h"
#include "engine/cells/impl.h"

#include <stdlib.h>
#include <string.h>

/* CANCEL and GET */
void trip_one(struct trip *t)
{
    struct partition *p = whole_partition(t->whole, t->op->one.id.queue);
    if (p)
        trip_pass(t, p);
    else
        trip_finish(t, STATUS_MESSAGE_NOT_FOUND);
}

/* An array of items with an id each: settle_item and escalate_item, by their sizes and offsets. */
struct shape {
    size_t size, id, status;
    void *(*items)(struct engine_op *op);
    uint32_t (*count)(const struct engine_op *op);
    void (*give)(struct engine_op *op, void *items, uint32_t count);
};

static const struct message_id *id_at(const struct shape *s, const void *items, uint32_t i)
{
    return (const struct message_id *)((const char *)items + i * s->size + s->id);
}

static void set_status(const struct shape *s, void *items, uint32_t i, enum status status)
{
    memcpy((char *)items + i * s->size + s->status, &status, sizeof(status));
}

static void *settle_items(struct engine_op *op)
{
    return op->settle.items;
}

static uint32_t settle_count(const struct engine_op *op)
{
    return op->settle.count;
}

static void settle_give(struct engine_op *op, void *items, uint32_t count)
{
    op->settle.items = items;
    op->settle.count = count;
}

static const struct shape settle_shape = {.size = sizeof(struct settle_item),
                                          .id = offsetof(struct settle_item, id),
                                          .status = offsetof(struct settle_item, status),
                                          .items = settle_items,
                                          .count = settle_count,
                                          .give = settle_give};

static void *escalate_items(struct engine_op *op)
{
    return op->escalate.items;
}

static uint32_t escalate_count(const struct engine_op *op)
{
    return op->escalate.count;
}

static void escalate_give(struct engine_op *op, void *items, uint32_t count)
{
    op->escalate.items = items;
    op->escalate.count = count;
}

static const struct shape escalate_shape = {.size = sizeof(struct escalate_item),
                                            .id = offsetof(struct escalate_item, id),
                                            .status = offsetof(struct escalate_item, status),
                                            .items = escalate_items,
                                            .count = escalate_count,
                                            .give = escalate_give};

static const struct shape *shape_of(const struct engine_op *op)
{
    return op->verb == ENGINE_ESCALATE ? &escalate_shape : &settle_shape;
}

static void back(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!t)
        return;
    const struct shape *s = shape_of(&p->op);
    char *to = s->items(t->op);
    t->op->outdated = t->op->outdated || p->op.outdated;
    for (uint32_t i = 0; i < s->count(&p->op); i++) {
        assert(p->places[i] < s->count(t->op));
        memcpy(to + p->places[i] * s->size, (char *)p->items + i * s->size, s->size);
        if (p->op.status)
            set_status(s, to, p->places[i], p->op.status);
    }
}

static void back_all(struct trip *t)
{
    /* The items that are done stay done: asked for again, they are at that level already. */
    if (t->op->outdated)
        trip_outdated(t);
    else
        trip_finish(t, STATUS_OK);
}

static uint32_t count_in(struct trip *t, const struct shape *s, const struct partition *p)
{
    uint32_t mine = 0;
    for (uint32_t i = 0; i < s->count(t->op); i++)
        mine += whole_partition(t->whole, id_at(s, s->items(t->op), i)->queue) == p;
    return mine;
}

static void send_to(struct trip *t, const struct shape *s, struct partition *p, uint32_t mine)
{
    assert(mine > 0);
    struct cell_part *part = part_copy(t, p);
    char *items = part->items = mem_alloc(mine * s->size);
    part->places = mem_alloc(mine * sizeof(part->places[0]));
    for (uint32_t i = 0, n = 0; i < s->count(t->op); i++) {
        if (whole_partition(t->whole, id_at(s, s->items(t->op), i)->queue) != p)
            continue;
        memcpy(items + n * s->size, (char *)s->items(t->op) + i * s->size, s->size);
        part->places[n++] = i;
    }
    s->give(&part->op, items, mine);
    part->done = back;
    part_submit(part);
}

static void divide(struct trip *t, const struct shape *s)
{
    for (uint32_t i = 0; i < s->count(t->op); i++) {
        struct partition *p = whole_partition(t->whole, id_at(s, s->items(t->op), i)->queue);
        if (!p)
            set_status(s, s->items(t->op), i, STATUS_MESSAGE_NOT_FOUND);
        else if (!partition_serves(p))
            set_status(s, s->items(t->op), i, STATUS_ENGINE_UNAVAILABLE);
    }
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        uint32_t mine = partition_serves(p) ? count_in(t, s, p) : 0;
        if (mine > 0)
            send_to(t, s, p, mine);
    }
    trip_await(t, back_all);
}

static void by_ids(struct trip *t)
{
    const struct shape *s = shape_of(t->op);
    uint32_t count = s->count(t->op);
    struct partition *first =
        count > 0 ? whole_partition(t->whole, id_at(s, s->items(t->op), 0)->queue) : NULL;
    if (first && count_in(t, s, first) == count)
        trip_pass(t, first);
    else
        divide(t, s);
}

void trip_settle(struct trip *t)
{
    by_ids(t);
}

void trip_escalate(struct trip *t)
{
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        const struct partition *p = &t->whole->partitions[i];
        if (p->q && !partition_is_known(p)) {
            trip_outdated(t);
            return;
        }
        if (p->q && levels_rank_of_slot(&p->q->config, t->op->escalate.slot) < 0) {
            trip_finish(t, STATUS_ENGINE_UNAVAILABLE); /* a change is on its way there */
            return;
        }
    }
    by_ids(t);
}
