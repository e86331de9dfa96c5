/* Draining: what consumers do not fetch from a partition that is closed moves to the others.
 *
 *   leaving   what has begun to leave is found; by whom it was begun does not matter
 *   list      a page of the partition: scheduled and dead messages, and ready ones that nobody
 *             fetched for a while
 *   leave     they begin to leave: from now on they are nobody's
 *   import    each is imported where it goes to, with its past
 *   left      those that have arrived end in the drained partition
 *
 * A message is in one place at a time. One that is leaving is named by a receipt whose first bytes
 * are the number of the queue that it goes to, and an import knows what it has imported before: so
 * whoever goes on with it, once or several times, brings it to the same place once. A server that
 * dies leaves messages that are leaving, which the next round finds. A target that is away, full or
 * slow only makes them wait.
 *
 * One server begins new messages, the speaker; but it would do no harm if two did. A page at a time
 * is under way for a queue, in portions that hold up nobody.
 *
 * Known limit: an import is known for a week (IMPORT_KNOWN_MS). If nobody goes on with a message
 * that has arrived for longer than that, it arrives a second time. Known limit: a message on its
 * way to a queue that somebody has deleted in its store stays on its way. PLACEMENT_REMOVE takes
 * care not to. */
#include "base/mem.h"
#include "base/random.h"
#include "engine/cells/impl.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_MAX   64
#define PAGE_BYTES (1024 * 1024) /* to which nothing is added once it has so many */
#define DRAIN_MS   250           /* how often queues are looked at */
#define REST_MS    1000          /* after a page that did not arrive as a whole, or the last one */
#define REST_TIMES 3             /* a pass that found nothing: so many times as long as it took */
#define READY_MS   60000         /* a ready message that nobody fetched for so long moves, too */
#define ROUNDS_MAX 16            /* queues that are begun in one look */

struct leaver {
    struct leave_item item;
    struct import_item import; /* owned; a body: it is leaving */
};

struct drain {
    struct whole *whole;
    struct partition *from;
    uint64_t epoch;            /* of the placement by which the page was chosen */
    struct list_cursor cursor; /* where the next page begins */
    bool more;                 /* there is one */
    bool listed;               /* the page is of the list, and not of those that were leaving */
    bool failed;
    uint64_t moved;     /* in this pass */
    int64_t started_ms; /* mono: the pass */
    size_t bytes;
    uint32_t count, under_way;
    struct leaver entries[PAGE_MAX];
};

static struct drain *drain_at(const struct cell_part *p)
{
    return p->partition->whole->drain;
}

static void find_leaving(struct drain *d);
static void next_page(struct drain *d);

static void page_clear(struct drain *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        import_item_fini(&d->entries[i].import);
    d->count = 0;
    d->bytes = 0;
}

void drain_free(struct drain *d)
{
    if (d)
        page_clear(d);
    free(d);
}

static void due_by(struct cells_engine *c, int64_t mono_ms)
{
    c->drain_due_ms = mono_ms < c->drain_due_ms ? mono_ms : c->drain_due_ms;
}

/* The round is over. Consumers may have waited for what has moved, or for room in flight. */
static void rest(struct drain *d, int64_t rest_ms)
{
    struct whole *w = d->whole;
    w->drain_due_ms = w->cells->now.mono_ms + rest_ms;
    due_by(w->cells, w->drain_due_ms);
    w->drain = NULL;
    drain_free(d);
    if (w->retired || w->deleting)
        return;
    whole_merge(w);
    whole_tell(w);
}

static void fail(struct drain *d)
{
    rest(d, REST_MS);
}

/* To be called before each step: the partition may be gone, or away. */
static bool goes_on(struct drain *d)
{
    bool ok = !d->failed && !d->whole->cells->closing && d->from->q && partition_serves(d->from) &&
              d->from->seat >= 0;
    if (!ok)
        fail(d);
    return ok;
}

static enum seat_state state_of(const struct partition *p)
{
    return p->seat < 0 ? SEAT_OUT : p->whole->placement.seats[p->seat].state;
}

static struct cell_part *part_for(struct drain *d, struct partition *p, enum engine_verb verb,
                                  part_done *done)
{
    struct cell_part *part = part_new_alone(d->whole->cells, p->cell, p);
    part->op.verb = verb;
    part->done = done;
    return part;
}

/* Receipts */

static uint32_t target_of(const struct leaver *e)
{
    const uint8_t *r = e->item.receipt;
    return (uint32_t)r[0] << 24 | (uint32_t)r[1] << 16 | (uint32_t)r[2] << 8 | r[3];
}

static void name_target(struct leaver *e, uint32_t queue)
{
    uint8_t *r = e->item.receipt;
    random_bytes(r, RECEIPT_BYTES);
    r[0] = (uint8_t)(queue >> 24);
    r[1] = (uint8_t)(queue >> 16);
    r[2] = (uint8_t)(queue >> 8);
    r[3] = (uint8_t)queue;
}

/* Left: the last step */

static void on_left(struct cell_part *p)
{
    struct drain *d = drain_at(p);
    const struct leave_item *items = p->items;
    uint64_t ended = 0;
    for (uint32_t i = 0; !p->op.status && i < p->op.leave.count; i++)
        ended += items[i].status == STATUS_OK; /* the others another server has ended */
    d->moved += ended;
    d->whole->cells->base.counters.own[COUNT_MOVED] += ended;
    d->failed = d->failed || p->op.status;
    page_clear(d);
    if (goes_on(d))
        next_page(d);
}

static void end_page(struct drain *d)
{
    uint32_t arrived = 0;
    if (!d->from->q || !partition_serves(d->from)) {
        fail(d);
        return;
    }
    struct leave_item *items = mem_alloc(PAGE_MAX * sizeof(*items));
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->entries[i].import.status == STATUS_OK)
            items[arrived++] = d->entries[i].item;
    }
    d->failed = d->failed || arrived < d->count; /* the others are found in the next round */
    if (arrived == 0) {
        free(items);
        fail(d);
        return;
    }
    struct cell_part *part = part_for(d, d->from, ENGINE_LEFT, on_left);
    part->items = items;
    part->op.leave.items = items;
    part->op.leave.count = arrived;
    part_submit(part);
}

/* Import */

static void imported(struct cell_part *p)
{
    struct drain *d = drain_at(p);
    const struct import_item *items = p->items;
    for (uint32_t i = 0; i < p->op.import.count; i++) {
        struct import_item *to = &d->entries[p->places[i]].import;
        *to = items[i];
        if (p->op.status)
            to->status = p->op.status;
    }
    whole_merge(d->whole);
    if (--d->under_way == 0)
        end_page(d);
}

static void import_into(struct drain *d, struct partition *to)
{
    struct cell_part *part = part_for(d, to, ENGINE_IMPORT, imported);
    struct import_item *items = part->items = mem_alloc(PAGE_MAX * sizeof(*items));
    part->places = mem_alloc(PAGE_MAX * sizeof(part->places[0]));
    uint32_t count = 0;
    uint64_t seq = whole_take_seqs(d->whole, d->count);
    for (uint32_t i = 0; i < d->count; i++) {
        if (target_of(&d->entries[i]) != to->q->id)
            continue;
        d->entries[i].import.draft.seq_min = seq + i;
        items[count] = d->entries[i].import;
        part->places[count++] = i;
    }
    part->op.import.items = items;
    part->op.import.count = count;
    part->op.import.anyway = true; /* it may have arrived before the target was closed */
    part_submit(part);
}

static bool has_entry_for(const struct drain *d, const struct partition *p)
{
    for (uint32_t i = 0; i < d->count; i++) {
        if (target_of(&d->entries[i]) == p->q->id)
            return true;
    }
    return false;
}

static void import_page(struct drain *d)
{
    const struct whole *w = d->whole;
    d->under_way = 1; /* until all are submitted */
    for (uint32_t i = 0; i < d->count; i++)
        d->entries[i].import.status = STATUS_ENGINE_UNAVAILABLE;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        struct partition *p = (struct partition *)&w->partitions[i];
        if (p == d->from || !partition_serves(p) || !has_entry_for(d, p))
            continue;
        d->under_way++;
        import_into(d, p);
    }
    if (--d->under_way == 0)
        end_page(d);
}

/* Leave */

/* A message that is leaving now, as it is. */
static void take(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                 struct instant now)
{
    struct drain *d = drain_at(part_of(op));
    (void)now;
    for (uint32_t i = 0; i < d->count; i++) {
        struct leaver *e = &d->entries[i];
        if (e->item.id.seq == message_seq(m) && !e->import.draft.body)
            import_item_of(m, q->id, &q->config, &e->import);
    }
}

/* Those that did not leave are no part of the page: somebody else was faster. */
static void keep_those_that_leave(struct drain *d)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->entries[i].import.draft.body)
            d->entries[kept++] = d->entries[i];
    }
    d->count = kept;
}

static void on_leave(struct cell_part *p)
{
    struct drain *d = drain_at(p);
    keep_those_that_leave(d);
    d->failed = d->failed || p->op.status;
    if (!goes_on(d))
        return;
    if (d->count > 0)
        import_page(d);
    else
        next_page(d);
}

static void begin_to_leave(struct drain *d)
{
    struct cell_part *part = part_for(d, d->from, ENGINE_LEAVE, on_leave);
    struct leave_item *items = part->items = mem_alloc(PAGE_MAX * sizeof(*items));
    for (uint32_t i = 0; i < d->count; i++)
        items[i] = d->entries[i].item;
    part->op.leave.items = items;
    part->op.leave.count = d->count;
    part->op.leave.epoch = d->epoch;
    part->op.visit = take;
    part_submit(part);
}

/* List */

static bool should_leave(const struct message *m, struct instant now)
{
    return m->state == MESSAGE_SCHEDULED || m->state == MESSAGE_DEAD ||
           (m->state == MESSAGE_READY && now.wall_ms - m->ready_ms > READY_MS);
}

/* Where new messages like this one go; NULL: not now. */
static struct partition *target_for(const struct drain *d, const struct message *m, uint32_t queue)
{
    const struct whole *w = d->whole;
    const struct import_item item = {.origin = message_identity(m, queue),
                                     .enqueued_ms = m->enqueued_ms,
                                     .draft = {.body = m->body,
                                               .payload_len = m->payload_len,
                                               .metadata_len = m->metadata_len,
                                               .dedup_len = m->dedup_len}};
    char key[IMPORT_KEY_BYTES];
    import_key(&item, key);
    uint32_t bucket = m->dedup_len > 0 ? bucket_of(message_dedup_key(m), m->dedup_len)
                                       : bucket_of(key, sizeof(key));
    struct partition *p = place_partition(w, w->placement.buckets[bucket]);
    return p && p != d->from && partition_serves(p) && state_of(p) == SEAT_OPEN ? p : NULL;
}

static void choose(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                   struct instant now)
{
    struct drain *d = drain_at(part_of(op));
    struct partition *to = should_leave(m, now) ? target_for(d, m, q->id) : NULL;
    d->bytes += message_body_len(m);
    if (to && d->count < PAGE_MAX) {
        struct leaver *e = &d->entries[d->count++];
        *e = (struct leaver){.item.id = message_identity(m, q->id)};
        name_target(e, to->q->id);
    }
    if (d->bytes >= PAGE_BYTES)
        op->list.limit = op->list.found + 1;
}

static void on_list(struct cell_part *p)
{
    struct drain *d = drain_at(p);
    d->failed = d->failed || p->op.status;
    d->more = !d->failed && p->op.list.more;
    d->cursor = d->more ? p->op.list.next : (struct list_cursor){0};
    if (!goes_on(d))
        return;
    if (d->count > 0)
        begin_to_leave(d);
    else
        next_page(d);
}

static void list_page(struct drain *d)
{
    struct cell_part *part = part_for(d, d->from, ENGINE_LIST, on_list);
    d->listed = true;
    d->bytes = 0;
    d->epoch = d->whole->placement.epoch;
    part->op.list.after = d->cursor;
    part->op.list.limit = PAGE_MAX;
    part->op.visit = choose;
    part_submit(part);
}

/* A pass that found nothing is not repeated at once: it looks at everything that is there. */
static void end_pass(struct drain *d)
{
    int64_t took_ms = d->whole->cells->now.mono_ms - d->started_ms;
    rest(d, REST_MS + (d->moved > 0 ? 0 : took_ms * REST_TIMES));
}

static bool speaks(const struct cells_engine *c)
{
    return engine_speaks(c->cells[0].engine, c->now);
}

static void next_page(struct drain *d)
{
    bool begins = state_of(d->from) == SEAT_DRAINING && speaks(d->whole->cells);
    if (!d->listed && d->from->unsure) /* there may be more of those */
        find_leaving(d);
    else if (begins && (!d->listed || d->more))
        list_page(d);
    else
        end_pass(d);
}

/* What is leaving already */

static void find(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                 struct instant now)
{
    struct drain *d = drain_at(part_of(op));
    (void)now;
    if (d->count == PAGE_MAX || !m->delivery)
        return;
    struct leaver *e = &d->entries[d->count++];
    *e = (struct leaver){.item.id = message_identity(m, q->id)};
    memcpy(e->item.receipt, m->delivery->receipt, RECEIPT_BYTES);
    import_item_of(m, q->id, &q->config, &e->import);
}

static void found(struct cell_part *p)
{
    struct drain *d = drain_at(p);
    d->failed = d->failed || p->op.status;
    if (!d->failed && d->count == 0)
        d->from->unsure = false;
    if (!goes_on(d))
        return;
    if (d->count > 0)
        import_page(d);
    else
        next_page(d);
}

static void find_leaving(struct drain *d)
{
    struct cell_part *part = part_for(d, d->from, ENGINE_LEAVE, found);
    d->listed = false;
    part->op.leave.limit = PAGE_MAX;
    part->op.visit = find;
    part_submit(part);
}

/* When */

static bool is_wanted(const struct partition *p)
{
    if (p->seat < 0 || !partition_serves(p))
        return false;
    const struct seat *seat = &p->whole->placement.seats[p->seat];
    return p->unsure ? seat->drained || seat->state == SEAT_DRAINING
                     : seat->state == SEAT_DRAINING && speaks(p->whole->cells);
}

static bool holds_any(const struct partition *p)
{
    const struct queue_view *v = engine_queue_moment(p->q);
    return v->ready + v->scheduled + v->leased + v->dead > 0;
}

/* Partitions take turns; NULL: there is nothing to do. */
static struct partition *partition_to_drain(struct whole *w)
{
    uint32_t count = w->cells->cell_count;
    for (uint32_t n = 0; n < count; n++) {
        struct partition *p = &w->partitions[(w->drain_next + n) % count];
        if (is_wanted(p) && holds_any(p))
            return p;
    }
    return NULL;
}

static void begin(struct whole *w, struct partition *from)
{
    struct drain *d = w->drain = mem_zalloc(sizeof(*d));
    w->drain_next = from->cell->number + 1;
    d->whole = w;
    d->from = from;
    d->started_ms = w->cells->now.mono_ms;
    from->unsure = true; /* another server may have died meanwhile */
    find_leaving(d);
}

void drain_look(struct whole *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->placement.seat_count; i++)
        any = any || w->placement.seats[i].state == SEAT_DRAINING || w->placement.seats[i].drained;
    for (uint32_t i = 0; any && i < w->cells->cell_count; i++)
        w->partitions[i].unsure = true;
    if (any)
        due_by(w->cells, w->cells->drained_ms + DRAIN_MS);
}

void wholes_drain(struct cells_engine *c)
{
    size_t at = 0;
    uint32_t begun = 0;
    if (c->cell_count == 1 || c->closing || c->now.mono_ms - c->drained_ms < DRAIN_MS)
        return;
    c->drained_ms = c->now.mono_ms;
    c->drain_due_ms = INT64_MAX;
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));) {
        struct partition *from =
            w->drain || w->deleting || w->hidden ? NULL : partition_to_drain(w);
        if (!from)
            continue;
        bool due = w->drain_due_ms <= c->now.mono_ms;
        if (due && begun++ < ROUNDS_MAX)
            begin(w, from);
        else
            due_by(c, due ? c->now.mono_ms + DRAIN_MS : w->drain_due_ms);
    }
}
