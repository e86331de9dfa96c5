/* The engines that there are, and what is done with one by its name. */
#include "engine/cells/cells.h"
#include "engine/engine.h"
#include "engine/local/local.h"
#include "engine/memory.h"
#include "engine/postgres/postgres.h"
#include "engine/trace.h"

#include <assert.h>
#include <string.h>

#define KINDS_MAX 8

static const struct engine_kind *kinds[KINDS_MAX + 1] = {
    &memory_kind,
    &local_kind,
    &postgres_kind,
    &cells_kind,
};

const struct engine_kind *engine_kind_at(size_t i)
{
    assert(i <= KINDS_MAX);
    return kinds[i];
}

const struct engine_kind *engine_kind_find(const char *name)
{
    for (size_t i = 0; kinds[i]; i++) {
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    }
    return NULL;
}

void engine_kind_add(const struct engine_kind *kind)
{
    size_t count = 0;
    assert(!engine_kind_find(kind->name));
    while (kinds[count])
        count++;
    assert(count < KINDS_MAX);
    assert(kind->open);
    kinds[count] = kind;
}

void engine_kind_names(struct buf *out, const char *between)
{
    for (size_t i = 0; kinds[i]; i++)
        buf_printf(out, "%s%s", i > 0 ? between : "", kinds[i]->name);
}

/* NULL, with a sentence, when there is none. */
static const struct engine_kind *kind_of(const struct engine_options *options, struct buf *error)
{
    const struct engine_kind *kind = engine_kind_find(options->kind);
    if (kind)
        return kind;
    buf_printf(error, "there is no engine \"%s\"; choose one of ", options->kind);
    engine_kind_names(error, " ");
    return NULL;
}

/* What callers count on is there. */
static void check_shard(const struct engine *e, const struct engine_kind *kind)
{
    const struct engine_ops *ops = e->ops;
    assert(e->kind->name == kind->name); /* its capabilities may be those of its options */
    assert(ops->submit);
    assert(ops->flush);
    assert(ops->poll);
    assert(ops->next_due_ms);
    assert(ops->queue_find);
    assert(ops->queue_each);
    assert(ops->health);
    assert(ops->close);
    assert(e->in_flight == 0);
    assert(!e->outer);
    assert(!ops->backup == !ops->backup_progress);
    assert(ops->backup || kind->no_backup);
}

enum status engine_open(const struct engine_options *options, uint32_t shard_count,
                        struct engine *shards[], struct buf *error)
{
    assert(shard_count > 0);
    const struct engine_kind *kind = kind_of(options, error);
    if (!kind)
        return STATUS_INVALID_FIELD;
    enum status status = kind->open(options, shard_count, shards, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < shard_count; i++)
        check_shard(shards[i], kind);
    if (options->trace)
        trace_wrap(shards, shard_count);
    return STATUS_OK;
}

enum status engine_migrate(const struct engine_options *options, struct buf *report)
{
    const struct engine_kind *kind = kind_of(options, report);
    if (!kind)
        return STATUS_INVALID_FIELD;
    if (kind->migrate)
        return kind->migrate(options, report);
    buf_printf(report, "the engine %s brings itself up to date when it is opened", kind->name);
    return STATUS_OK;
}

enum status engine_inspect(const char *path, struct engine_inspection *i, struct buf *error)
{
    for (size_t k = 0; kinds[k]; k++) {
        if (kinds[k]->inspect)
            return kinds[k]->inspect(path, i, error);
    }
    buf_lit(error, "no engine has files of its own to look at");
    return STATUS_INVALID_FIELD;
}

void engine_preview(const struct engine_options *options, struct engine_preview *p)
{
    const struct engine_kind *kind = engine_kind_find(options->kind);
    if (kind && kind->preview)
        kind->preview(options, p);
}

static const struct engine_value *value_of(const struct engine_options *o, const char *name)
{
    for (uint32_t i = 0; i < o->value_count; i++) {
        if (strcmp(o->values[i].name, name) == 0)
            return &o->values[i];
    }
    return NULL;
}

const char *engine_option_text(const struct engine_options *o, const char *name)
{
    const struct engine_value *v = value_of(o, name);
    return v && v->text ? v->text : "";
}

uint64_t engine_option_number(const struct engine_options *o, const char *name)
{
    const struct engine_value *v = value_of(o, name);
    return v ? v->number : 0;
}
