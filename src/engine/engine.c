#include "engine/engine.h"
#include "base/mem.h"
#include "base/tag.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *const engine_verb_names[ENGINE_VERB_COUNT] = {
    [ENGINE_QUEUE_OPEN] = "queue_open",
    [ENGINE_QUEUE_SET] = "queue_set",
    [ENGINE_QUEUE_DELETE] = "queue_delete",
    [ENGINE_QUEUE_PLACE] = "queue_place",
    [ENGINE_QUEUE_SHARE] = "queue_share",
    [ENGINE_PUT] = "put",
    [ENGINE_IMPORT] = "import",
    [ENGINE_CLAIM] = "claim",
    [ENGINE_ACK] = "ack",
    [ENGINE_NACK] = "nack",
    [ENGINE_RELEASE] = "release",
    [ENGINE_EXTEND] = "extend",
    [ENGINE_CANCEL] = "cancel",
    [ENGINE_ESCALATE] = "move",
    [ENGINE_PROMOTE] = "promote",
    [ENGINE_LEAVE] = "leave",
    [ENGINE_LEFT] = "left",
    [ENGINE_COUNT] = "count",
    [ENGINE_HEADS] = "heads",
    [ENGINE_GET] = "get",
    [ENGINE_PURGE] = "purge",
    [ENGINE_LIST] = "list",
    [ENGINE_DEAD_LIST] = "dead_list",
    [ENGINE_DEAD_REDRIVE] = "dead_redrive",
    [ENGINE_DEAD_DROP] = "dead_drop",
    [ENGINE_SCHEDULE_SET] = "schedule_set",
    [ENGINE_SCHEDULE_DELETE] = "schedule_delete",
    [ENGINE_SCHEDULE_LIST] = "schedule_list",
    [ENGINE_FIRE] = "fire",
    [ENGINE_PLACEMENT] = "placement",
    [ENGINE_SWEEP] = "sweep",
};

static_assert(sizeof(engine_verb_names) / sizeof(engine_verb_names[0]) == ENGINE_VERB_COUNT,
              "each verb has its name");

void engine_close(struct engine *shards[], uint32_t shard_count)
{
    assert(shard_count > 0);
    for (uint32_t i = 0; i < shard_count; i++) {
        assert(shards[i]->in_flight == 0);
        assert(!shards[i]->outer); /* whoever stands around it closes it */
        assert(shards[i]->ops == shards[0]->ops);
    }
    shards[0]->ops->close(shards, shard_count);
}

uint32_t engine_shard_of(const char *queue, size_t len, uint32_t shard_count)
{
    assert(shard_count > 0);
    return shard_count == 1 ? 0 : (uint32_t)(XXH3_64bits(queue, len) % shard_count);
}

bool durability_parse(const char *text, enum durability *d, int64_t *interval_ms)
{
    if (strcmp(text, "fsync") == 0) {
        *d = DURABILITY_FSYNC;
        return true;
    }
    if (strcmp(text, "os") == 0) {
        *d = DURABILITY_OS;
        return true;
    }
    if (strncmp(text, "interval:", 9) != 0)
        return false;
    char *end;
    long ms = strtol(text + 9, &end, 10);
    if (end == text + 9 || *end || ms < 1 || ms > 60000)
        return false;
    *d = DURABILITY_INTERVAL;
    *interval_ms = ms;
    return true;
}

/* What op.h says the caller guarantees, as far as it costs no walk. */
static inline void assert_asked(const struct engine_op *op)
{
    if (op->verb == ENGINE_CLAIM) {
        assert(op->claim.plan->want <= CLAIM_MAX);
        assert(op->claim.plan->step_count <= PLAN_STEPS_MAX);
        assert(op->claim.plan->max_rank < LEVEL_COUNT_MAX);
    }
    if (op->verb == ENGINE_PUT) {
        assert(op->put.count > 0);
        assert(op->put.items[0].only_known == op->put.items[op->put.count - 1].only_known);
    }
    if (op->verb == ENGINE_QUEUE_PLACE) {
        assert(op->place.epoch > 0);
        assert(op->place.epoch <= INT64_MAX);
        assert(op->place.map_len <= PLACE_MAP_MAX);
    }
    if (op->verb == ENGINE_QUEUE_SHARE) {
        const struct queue_share *next = op->share.next;
        assert(op->share.used);
        assert(!next || (next->epoch > 0 && next->epoch <= INT64_MAX));
        assert(!next || next->note_len <= PLACE_MAP_MAX);
    }
}

/* What op.h says of every answer. */
static inline void assert_answered(const struct engine_op *op)
{
    if (op->verb == ENGINE_CLAIM) {
        assert(op->claim.found <= op->claim.plan->want);
        assert(op->status == STATUS_OK || op->claim.found == 0);
    }
}

#define OP_UNDER_WAY TAG('o', 'p', 'u', 'w')
#define OP_DONE      TAG('o', 'p', 'd', 'n')

/* An op is submitted once and finished once. A wrapper passes it on meanwhile, to the engine inside
 * and back from there. */
static inline void op_begin(const struct engine *e, struct engine_op *op)
{
    if (e->outer)
        tag_check(op->tag, OP_UNDER_WAY);
    else
        assert(op->tag != OP_UNDER_WAY);
    op->tag = OP_UNDER_WAY;
}

void engine_submit(struct engine *e, struct engine_op *op, struct instant now)
{
    assert(op->verb < ENGINE_VERB_COUNT);
    assert(op->done);
    assert_asked(op);
    op_begin(e, op);
    assert(op->queue || op->verb == ENGINE_SWEEP || op->verb == ENGINE_QUEUE_SET ||
           op->verb == ENGINE_QUEUE_OPEN || op->verb == ENGINE_PLACEMENT);
    e->counters.ops[op->verb]++;
    e->in_flight++;
    op->next = NULL;
    op->outdated = false;
    e->ops->submit(e, op, now);
}

void engine_flush(struct engine *e)
{
    e->ops->flush(e);
}

uint32_t engine_poll(struct engine *e)
{
    uint64_t under_way = e->in_flight;
    uint32_t count = e->ops->poll(e);
    assert(count > 0 || e->in_flight >= under_way); /* what was finished was told */
    return count;
}

int64_t engine_next_due_ms(struct engine *e, struct instant now)
{
    int64_t due_ms = e->ops->next_due_ms(e, now);
    assert(due_ms >= 0);
    return due_ms;
}

struct engine_queue *engine_queue_find(struct engine *e, const char *name, size_t len)
{
    return e->ops->queue_find(e, name, len);
}

struct engine_queue *engine_queue_each(struct engine *e, size_t *at)
{
    return e->ops->queue_each(e, at);
}

void engine_cell_each(struct engine *e, engine_cell_visit *visit, void *ctx)
{
    if (e->ops->cell_each)
        e->ops->cell_each(e, visit, ctx);
}

void engine_partition_each(struct engine *e, struct engine_queue *q, engine_partition_visit *visit,
                           void *ctx)
{
    const struct engine_partition only = {.state = "ok", .view = engine_queue_moment(q)};
    if (e->ops->partition_each)
        e->ops->partition_each(e, q, visit, ctx);
    else
        visit(ctx, &only);
}

enum status engine_health(struct engine *e, struct buf *detail)
{
    return e->ops->health(e, detail);
}

enum status engine_backup(struct engine *e, struct engine_backup *b)
{
    b->path[0] = '\0';
    if (e->ops->backup)
        return e->ops->backup(e, b);
    buf_printf(&b->error, "The engine %s has no files to copy; %s.", e->kind->name,
               e->kind->no_backup);
    return STATUS_BACKUP_UNAVAILABLE;
}

void engine_check(struct engine *e)
{
    if (e->ops->check)
        e->ops->check(e);
}

void engine_backup_progress(struct engine *e, struct engine_backup_progress *p)
{
    *p = (struct engine_backup_progress){0};
    if (e->ops->backup_progress)
        e->ops->backup_progress(e, p);
}

uint32_t engine_queue_id(atomic_uint *next, const struct engine_op *op)
{
    unsigned free = atomic_load(next), id;
    do
        id = op->set.celled ? free + (op->set.cell - free) % QUEUE_CELLS : free;
    while (!atomic_compare_exchange_weak(next, &free, id + 1));
    return id;
}

bool engine_place_refuses(const struct queue_place *place, const struct engine_op *op)
{
    bool put = op->verb == ENGINE_PUT;
    assert(put || op->verb == ENGINE_IMPORT);
    for (uint32_t i = 1; put && i < op->put.count; i++)
        assert(op->put.items[i].only_known == op->put.items[0].only_known);
    uint64_t epoch = put ? op->put.epoch : op->import.epoch;
    if (!put && op->import.anyway)
        return false;
    return epoch < place->epoch || (place->closed && !engine_only_known(op));
}

bool engine_stays(const struct engine_op *op)
{
    const struct queue_place *place = op->queue->place;
    return place && (!place->closed || place->epoch > op->leave.epoch);
}

struct queue_place *queue_place_new(uint64_t epoch, bool closed, const char *map, uint32_t map_len)
{
    assert(map_len <= PLACE_MAP_MAX);
    struct queue_place *p = mem_alloc(sizeof(*p) + map_len);
    *p = (struct queue_place){.epoch = epoch, .closed = closed, .map_len = map_len};
    if (map_len > 0)
        memcpy(p->map, map, map_len);
    return p;
}

struct queue_share *queue_share_new(void)
{
    struct queue_share *s = mem_zalloc(sizeof(*s));
    s->epoch = 1;
    return s;
}

struct queue_share *queue_share_copy(const struct queue_share *share)
{
    if (!share)
        return NULL;
    struct queue_share *s = mem_alloc(sizeof(*s) + share->note_len);
    memcpy(s, share, sizeof(*s) + share->note_len);
    return s;
}

void engine_finish(struct engine *e, struct engine_op *op)
{
    assert(e->in_flight > 0);
    tag_check(op->tag, OP_UNDER_WAY);
    e->in_flight--;
    if (e->outer) {
        e->outer->ops->finished(e->outer, op);
        return;
    }
    assert_answered(op);
    op->tag = OP_DONE;
    op->done(op);
}

void cursor_format(const struct list_cursor *c, char out[CURSOR_TEXT_MAX])
{
    static_assert(CURSOR_TEXT_MAX > 2 * 8 + 2 * 16 + 3, "four numbers in hexadecimal");
    snprintf(out, CURSOR_TEXT_MAX, "%" PRIx32 "-%" PRIx32 "-%" PRIx64 "-%" PRIx64, c->phase,
             c->slot, (uint64_t)c->ready_ms, c->seq);
}

bool cursor_parse(const char *text, size_t len, struct list_cursor *c)
{
    char copy[CURSOR_TEXT_MAX];
    uint64_t ready;
    int used = 0;
    if (len >= sizeof(copy))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (sscanf(copy, "%8" SCNx32 "-%8" SCNx32 "-%16" SCNx64 "-%16" SCNx64 "%n", &c->phase, &c->slot,
               &ready, &c->seq, &used) != 4 ||
        (size_t)used != len)
        return false;
    c->ready_ms = (int64_t)ready;
    return true;
}
