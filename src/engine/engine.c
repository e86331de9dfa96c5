#include "engine/engine.h"
#include "engine/local/local.h"
#include "engine/memory.h"
#include "engine/postgres/postgres.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const struct {
    const char *kind;
    engine_opener *open;
    enum status (*migrate)(const struct engine_options *options, struct buf *report); /* or NULL */
} kinds[] = {
    {"memory", memory_open, NULL},
    {"local", local_open, NULL},
    {"postgres", postgres_open, postgres_migrate},
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
    return i < KIND_COUNT ? kinds[i].open(options, shard_count, shards, error)
                          : STATUS_INVALID_FIELD;
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

void engine_finish(struct engine *e, struct engine_op *op)
{
    assert(e->in_flight > 0);
    e->in_flight--;
    op->done(op);
}
