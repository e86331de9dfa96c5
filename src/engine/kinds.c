/* Which engines there are. The one file that knows them by name: those above it open an engine by
 * its kind, and the engines do not know of one another. */
#include "engine/engine.h"
#include "engine/local/local.h"
#include "engine/memory.h"
#include "engine/postgres/postgres.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *kind;
    engine_opener *open;
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
