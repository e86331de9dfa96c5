/* Stores messages that were enqueued or imported. A large batch is stored in portions, so that no
 * turn has to copy all of it into a store. Each portion is an op of its own. Clients do not notice,
 * because each item of a batch succeeds or fails by itself, and the messages of a batch stand in
 * its order.
 *
 * An engine with LIVE_VIEW carries out ops in the order of submission: several portions are
 * submitted in a turn, and the next before the first is durable. Other engines may let two PUTs
 * change places while both are under way. There one portion, as large as those of a turn, is
 * submitted when the portion before it is done. */
#include "base/mem.h"
#include "broker/shard.h"

#define PORTION_BYTES (256 * 1024) /* of bodies in one portion, which has at least one message */
#define PORTIONS_MAX  4            /* in one turn; at its end the engine writes them together */

static bool keeps_order(const struct request *r)
{
    return engine_has(r->shard->engine, ENGINE_LIVE_VIEW);
}

static uint32_t count_of(const struct request *r)
{
    return r->kind == REQUEST_PUT ? r->op.put.count : r->op.import.count;
}

static size_t body_len(const struct request *r, uint32_t i)
{
    const struct draft *d =
        r->kind == REQUEST_PUT ? &r->op.put.items[i].draft : &r->op.import.items[i].draft;
    return d->payload_len + d->metadata_len + d->dedup_len;
}

/* The end of the portion that begins at `from`: one past its last item. */
static uint32_t portion_end(const struct request *r, uint32_t from, size_t *bytes)
{
    size_t most = keeps_order(r) ? PORTION_BYTES : PORTIONS_MAX * PORTION_BYTES;
    uint32_t count = count_of(r), end = from;
    *bytes = 0;
    do {
        *bytes += body_len(r, end++);
    } while (end < count && *bytes + body_len(r, end) <= most);
    return end;
}

/* The items from `from` up to `end`, as an op. */
static struct engine_op portion_op(const struct request *r, uint32_t from, uint32_t end)
{
    struct engine_op op = {.verb = r->op.verb, .queue = r->dispatcher->queue};
    if (r->kind == REQUEST_PUT) {
        op.put.items = r->op.put.items + from;
        op.put.count = end - from;
    } else {
        op.import.items = r->op.import.items + from;
        op.import.count = end - from;
    }
    return op;
}

static void refuse_items(const struct request *r, const struct engine_op *op, enum status status)
{
    for (uint32_t i = 0; r->kind == REQUEST_PUT && i < op->put.count; i++)
        op->put.items[i].status = status;
    for (uint32_t i = 0; r->kind == REQUEST_IMPORT && i < op->import.count; i++)
        op->import.items[i].status = status;
}

/* If some portions were stored, each item tells whether it was refused. If none was, the whole
 * request is refused. It is refused as a whole, too, if the engine went away: then it is not known
 * what was stored. */
static void finish(struct request *r)
{
    struct work *w = work_of(r, WORK_STORE);
    assert(w->store.out == 0); /* a portion under way may still be stored */
    assert(w->store.next_item == count_of(r));
    bool told =
        !w->store.refused || (r->count > 0 && w->store.refused != STATUS_ENGINE_UNAVAILABLE);
    struct engine_op all = portion_op(r, 0, count_of(r));
    if (!told)
        refuse_items(r, &all, STATUS_OK); /* the request may be tried again */
    request_conclude(r->shard, r, told ? STATUS_OK : w->store.refused);
}

static void portion_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct work *w = work_of(r, WORK_STORE);
    assert(w->store.out > 0);
    w->store.out--;
    if (!op->status)
        r->count++;
    else if (w->store.refused != STATUS_ENGINE_UNAVAILABLE)
        w->store.refused = op->status;
    if (op->status)
        refuse_items(r, op, op->status);
    dispatch_mark_late(r->dispatcher);
    if (w->store.out > 0)
        return;
    if (w->store.next_item == count_of(r))
        finish(r);
    else if (!keeps_order(r))
        work_set_timer(r->shard, w, r->shard->now.mono_ms);
}

/* Whether the next portion may be under way beside those that are. */
static bool may_submit(const struct request *r)
{
    const struct work *w = work_of(r, WORK_STORE);
    return w->store.next_item < count_of(r) && !shard_is_late(r->shard) &&
           (w->store.out == 0 || keeps_order(r));
}

static void submit_portion(struct request *r)
{
    struct work *w = work_of(r, WORK_STORE);
    struct shard *s = r->shard;
    size_t bytes;
    uint32_t from = w->store.next_item;
    assert(from < count_of(r));
    assert(w->store.portion_count < w->store.portions_max);
    w->store.next_item = portion_end(r, from, &bytes);
    struct engine_op *op = &w->store.portions[w->store.portion_count++];
    *op = portion_op(r, from, w->store.next_item);
    op->done = portion_done;
    op->user = r;
    w->store.out++;
    assert(w->store.out <= w->store.portion_count);
    s->shown += bytes;
    shard_submit(s, op);
}

/* Refuses the items that were not submitted: the queue was deleted, or the engine is away. */
static void give_up_rest(struct request *r, enum status status)
{
    struct work *w = work_of(r, WORK_STORE);
    assert(w->store.next_item < count_of(r)); /* otherwise all items were submitted */
    struct engine_op rest = portion_op(r, w->store.next_item, count_of(r));
    refuse_items(r, &rest, status);
    w->store.refused = status;
    w->store.next_item = count_of(r);
    if (w->store.out == 0)
        finish(r);
}

void store_go_on(struct request *r)
{
    struct work *w = work_of(r, WORK_STORE);
    struct dispatcher *d = r->dispatcher;
    if (d->state != DISPATCHER_OPEN || w->store.refused == STATUS_ENGINE_UNAVAILABLE) {
        give_up_rest(r, w->store.refused ? w->store.refused : STATUS_QUEUE_NOT_FOUND);
        return;
    }
    for (int n = 0; n < PORTIONS_MAX && may_submit(r); n++)
        submit_portion(r);
    if (w->store.next_item < count_of(r) && (w->store.out == 0 || keeps_order(r)))
        work_set_timer(r->shard, w, r->shard->now.mono_ms + 1);
    dispatch_mark(d);
}

static uint32_t portion_count(const struct request *r)
{
    size_t bytes;
    uint32_t portions = 0;
    for (uint32_t from = 0; from < count_of(r); from = portion_end(r, from, &bytes))
        portions++;
    return portions;
}

void store_items(struct dispatcher *d, struct request *r)
{
    assert(r->kind == REQUEST_PUT || r->kind == REQUEST_IMPORT);
    assert(count_of(r) > 0);
    uint32_t portions = portion_count(r);
    if (portions <= 1) {
        shard_pass_on(d, r);
        return;
    }
    work_free(d->shard, r); /* left from a refreshed view */
    struct work *w = work_new(d->shard, r, WORK_STORE);
    w->store.portions = mem_alloc(portions * sizeof(*w->store.portions));
    w->store.portions_max = portions;
    w->store.portion_count = w->store.out = w->store.next_item = 0;
    w->store.refused = STATUS_OK;
    r->count = 0;
    store_go_on(r);
}
