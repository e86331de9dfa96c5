#include "engine/engine.h"
#include "engine/local/local.h"
#include "engine/memory.h"
#include "engine/postgres/postgres.h"
#include "engine/trace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const struct {
    const char *kind;
    engine_open_fn *open;
    /* Each may be NULL. */
    enum status (*migrate)(const struct engine_options *options, struct buf *report);
    enum status (*inspect)(const struct engine_options *options, struct engine_inspection *i,
                           struct buf *error);
    void (*preview)(const struct engine_options *options, struct engine_preview *p);
} kinds[] = {
    {"memory", memory_open, NULL, NULL, NULL},
    {"local", local_open, NULL, local_inspect, local_preview},
    {"postgres", postgres_open, postgres_migrate, NULL, postgres_preview},
};

#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

/* KIND_COUNT, with a sentence, when there is none. */
static size_t kind_find(const char *kind, struct buf *error)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i].kind, kind) == 0)
            return i;
    }
    buf_printf(error, "there is no engine \"%s\"; choose one of", kind);
    for (size_t i = 0; i < KIND_COUNT; i++)
        buf_printf(error, " %s", kinds[i].kind);
    return KIND_COUNT;
}

bool engine_known(const char *kind)
{
    struct buf ignored = {0};
    bool known = kind_find(kind, &ignored) < KIND_COUNT;
    buf_fini(&ignored);
    return known;
}

void engine_preview(const struct engine_options *options, struct engine_preview *p)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i].kind, options->kind) == 0 && kinds[i].preview)
            kinds[i].preview(options, p);
    }
}

const char *const engine_verb_names[ENGINE_VERB_COUNT] = {
    [ENGINE_QUEUE_OPEN] = "queue_open",
    [ENGINE_QUEUE_SET] = "queue_set",
    [ENGINE_QUEUE_DELETE] = "queue_delete",
    [ENGINE_PUT] = "put",
    [ENGINE_IMPORT] = "import",
    [ENGINE_CLAIM] = "claim",
    [ENGINE_ACK] = "ack",
    [ENGINE_NACK] = "nack",
    [ENGINE_RELEASE] = "release",
    [ENGINE_EXTEND] = "extend",
    [ENGINE_CANCEL] = "cancel",
    [ENGINE_MOVE] = "move",
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
    [ENGINE_SWEEP] = "sweep",
};

const char *const engine_table_names[ENGINE_TABLE_COUNT] = {
#define X(symbol, name) [ENGINE_TABLE_##symbol] = name,
    ENGINE_TABLES(X)
#undef X
};

enum status engine_open(const struct engine_options *options, uint32_t shard_count,
                        struct engine *shards[], struct buf *error)
{
    assert(shard_count > 0);
    size_t i = kind_find(options->kind, error);
    if (i == KIND_COUNT)
        return STATUS_INVALID_FIELD;
    enum status status = kinds[i].open(options, shard_count, shards, error);
    if (!status && options->trace)
        trace_wrap(shards, shard_count);
    return status;
}

enum status engine_migrate(const struct engine_options *options, struct buf *report)
{
    size_t i = kind_find(options->kind, report);
    if (i == KIND_COUNT)
        return STATUS_INVALID_FIELD;
    if (kinds[i].migrate)
        return kinds[i].migrate(options, report);
    buf_printf(report, "the engine %s brings itself up to date when it is opened", options->kind);
    return STATUS_OK;
}

enum status engine_inspect(const struct engine_options *options, struct engine_inspection *i,
                           struct buf *error)
{
    size_t k = kind_find(options->kind, error);
    if (k == KIND_COUNT)
        return STATUS_INVALID_FIELD;
    if (kinds[k].inspect)
        return kinds[k].inspect(options, i, error);
    buf_printf(error, "the engine %s has no files of its own to look at", options->kind);
    return STATUS_INVALID_FIELD;
}

void engine_close(struct engine *shards[], uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count; i++)
        assert(shards[i]->in_flight == 0);
    shards[0]->ops->close(shards, shard_count);
}

uint32_t engine_shard_of(const char *queue, size_t len, uint32_t shard_count)
{
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

void engine_submit(struct engine *e, struct engine_op *op, struct instant now)
{
    assert(op->verb < ENGINE_VERB_COUNT);
    assert(op->done);
    assert(op->queue || op->verb == ENGINE_SWEEP || op->verb == ENGINE_QUEUE_SET ||
           op->verb == ENGINE_QUEUE_OPEN);
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
    return e->ops->poll(e);
}

int64_t engine_next_due_ms(struct engine *e, struct instant now)
{
    return e->ops->next_due_ms(e, now);
}

struct engine_queue *engine_queue_find(struct engine *e, const char *name, size_t len)
{
    return e->ops->queue_find(e, name, len);
}

struct engine_queue *engine_queue_each(struct engine *e, size_t *at)
{
    return e->ops->queue_each(e, at);
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
    buf_printf(&b->error, "The engine %s has no files to copy; %s.", e->ops->name,
               engine_has(e, ENGINE_DURABLE) ? "back up its database, as with pg_basebackup"
                                             : "use the engine local to keep messages");
    return STATUS_BACKUP_UNAVAILABLE;
}

void engine_backup_progress(struct engine *e, struct engine_backup_progress *p)
{
    *p = (struct engine_backup_progress){0};
    if (e->ops->backup_progress)
        e->ops->backup_progress(e, p);
}

void engine_finish(struct engine *e, struct engine_op *op)
{
    assert(e->in_flight > 0);
    e->in_flight--;
    if (e->outer)
        e->outer->ops->finished(e->outer, op);
    else
        op->done(op);
}

void cursor_format(const struct list_cursor *c, char out[CURSOR_TEXT_MAX])
{
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
