/* How cells come and go: what the settings say, and an engine for each cell. */
#include "base/log.h"
#include "base/mem.h"
#include "engine/cells/cells.h"
#include "engine/cells/impl.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Settings: a cell in each line, NAME = ENGINE:STORE. */

static bool is_name(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!islower((unsigned char)name[i]) && !isdigit((unsigned char)name[i]) &&
            name[i] != '-' && name[i] != '_')
            return false;
    }
    return len > 0 && len <= CELL_NAME_MAX;
}

static void trim(const char **text, size_t *len)
{
    while (*len > 0 && isspace((unsigned char)**text)) {
        (*text)++;
        (*len)--;
    }
    while (*len > 0 && isspace((unsigned char)(*text)[*len - 1]))
        (*len)--;
}

static const struct site *site_find(const struct cells_shared *shared, const char *name, size_t len)
{
    for (uint32_t i = 0; i < shared->cell_count; i++) {
        if (strlen(shared->sites[i].name) == len && memcmp(shared->sites[i].name, name, len) == 0)
            return &shared->sites[i];
    }
    return NULL;
}

/* The kind that a cell's text begins with; *store is what stands behind the colon. */
static const struct engine_kind *kind_of(const char *text, size_t len, const char **store)
{
    const char *colon = memchr(text, ':', len);
    size_t kind_len = colon ? (size_t)(colon - text) : len;
    *store = colon ? colon + 1 : text + len;
    for (size_t i = 0; engine_kind_at(i); i++) {
        const struct engine_kind *kind = engine_kind_at(i);
        if (kind != &cells_kind && strlen(kind->name) == kind_len &&
            memcmp(kind->name, text, kind_len) == 0)
            return kind;
    }
    return NULL;
}

/* The settings of the server, with the store of this cell in place of its own. */
static void site_options(struct site *s, const struct engine_kind *kind,
                         const struct engine_options *options)
{
    s->values = mem_alloc((options->value_count + 1) * sizeof(s->values[0]));
    uint32_t count = 0;
    for (uint32_t i = 0; i < options->value_count; i++) {
        if (!kind->store || strcmp(options->values[i].name, kind->store) != 0)
            s->values[count++] = options->values[i];
    }
    if (kind->store)
        s->values[count++] = (struct engine_value){.name = kind->store, .text = s->store};
    s->options = *options;
    s->options.kind = kind->name;
    s->options.trace = false;
    s->options.values = s->values;
    s->options.value_count = count;
}

/* NULL, or what is wrong with the line. */
static const char *site_parse(struct cells_shared *shared, const char *line, size_t len,
                              const struct engine_options *options)
{
    const char *equals = memchr(line, '=', len), *name = line, *store;
    size_t name_len = equals ? (size_t)(equals - line) : 0;
    const char *text = equals ? equals + 1 : line + len;
    size_t text_len = (size_t)(line + len - text);
    trim(&name, &name_len);
    trim(&text, &text_len);
    const struct engine_kind *kind = kind_of(text, text_len, &store);
    if (!equals || !is_name(name, name_len))
        return "takes NAME=ENGINE:STORE, with a name of letters a to z, digits, - and _";
    if (site_find(shared, name, name_len))
        return "two cells have this name";
    if (!kind)
        return "the engine of a cell is postgres, local or memory";
    if (kind->store && store == text + text_len)
        return "the cell has no store: write it behind a colon, as in local:/srv/a";
    if (shared->cell_count == CELLS_MAX)
        return "there are too many cells";
    shared->sites = mem_realloc(shared->sites, (shared->cell_count + 1) * sizeof(shared->sites[0]));
    struct site *s = &shared->sites[shared->cell_count++];
    *s = (struct site){0};
    memcpy(s->name, name, name_len);
    s->store = mem_dup(store, (size_t)(text + text_len - store));
    site_options(s, kind, options);
    return NULL;
}

/* Reads all lines; false, with sentences in `error`. */
static bool sites_parse(struct cells_shared *shared, const struct engine_options *options,
                        struct buf *error)
{
    const char *at = engine_option_text(options, "cell");
    size_t before = error->len;
    while (*at) {
        size_t len = strcspn(at, "\n"), rest = len;
        const char *line = at;
        trim(&line, &rest);
        const char *wrong = rest > 0 ? site_parse(shared, line, rest, options) : NULL;
        if (wrong) {
            size_t name_len = strcspn(line, "=\n");
            buf_printf(error, "%scell: \"%.*s\": %s", error->len > before ? "\n" : "",
                       (int)(name_len < rest ? name_len : rest), line, wrong);
        }
        at += len + (at[len] == '\n');
    }
    const char *split = engine_option_text(options, "split");
    if (*split && strcmp(split, "on") != 0 && strcmp(split, "off") != 0)
        buf_printf(error, "%ssplit: is on or off", error->len > before ? "\n" : "");
    if (shared->cell_count == 0 && error->len == before)
        buf_lit(error, "cell: there is none; write NAME = ENGINE:STORE for each into the section "
                       "[cells] of triage.conf, or give --cell NAME=ENGINE:STORE");
    return error->len == before;
}

/* Engines */

static enum status sites_open(struct cells_shared *shared, uint32_t shard_count, struct buf *error)
{
    for (uint32_t i = 0; i < shared->cell_count; i++) {
        struct site *s = &shared->sites[i];
        struct engine **shards = mem_zalloc(shard_count * sizeof(struct engine *));
        struct buf why = {0};
        enum status status = engine_open(&s->options, shard_count, shards, &why);
        if (status) {
            buf_printf(error, "cell %s: %s", s->name, buf_cstr(&why));
            free(shards);
            buf_fini(&why);
            return status;
        }
        buf_fini(&why);
        s->shards = shards;
        log_info("cells: cell", "name=%s number=%u engine=%s", s->name, i, s->options.kind);
    }
    return STATUS_OK;
}

static enum status cells_open(const struct engine_options *options, uint32_t shard_count,
                              struct engine *shards[], struct buf *error)
{
    struct cells_shared *shared = mem_zalloc(sizeof(*shared));
    enum status status = sites_parse(shared, options, error) ? STATUS_OK : STATUS_INVALID_FIELD;
    if (!status)
        status = sites_open(shared, shard_count, error);
    if (status) {
        cells_sites_free(shared, shard_count);
        return status;
    }
    cells_kind_make(shared, &cells_kind);
    shared->split = split_terms_of(options);
    for (uint32_t i = 0; i < shard_count; i++)
        shards[i] = &cells_shard_new(shared, i, options)->base;
    return STATUS_OK;
}

static enum status cells_migrate(const struct engine_options *options, struct buf *report)
{
    struct cells_shared *shared = mem_zalloc(sizeof(*shared));
    enum status status = sites_parse(shared, options, report) ? STATUS_OK : STATUS_INVALID_FIELD;
    for (uint32_t i = 0; !status && i < shared->cell_count; i++) {
        buf_printf(report, "%s%s: ", i > 0 ? "; " : "", shared->sites[i].name);
        status = engine_migrate(&shared->sites[i].options, report);
    }
    cells_sites_free(shared, 0);
    return status;
}

static void cells_preview(const struct engine_options *options, struct engine_preview *p)
{
    struct cells_shared *shared = mem_zalloc(sizeof(*shared));
    if (!sites_parse(shared, options, &p->problems))
        buf_putc(&p->problems, '\n');
    for (uint32_t i = 0; i < shared->cell_count; i++)
        engine_preview(&shared->sites[i].options, p);
    cells_sites_free(shared, 0);
}

static const struct engine_setting settings[] = {
    {.name = "cell",
     .type = ENGINE_LINES,
     .max = 4095,
     .value = "",
     .takes = "NAME=ENGINE:STORE",
     .help = "a cell of the engine cells: postgres:CONNINFO, local:DIR or memory; may be repeated, "
             "and in the file each is a line NAME = ENGINE:STORE of the section [cells]",
     .section = "cells",
     .unused = "the cells are not used"},
    {.name = "split",
     .type = ENGINE_TEXT,
     .max = 3,
     .value = "off",
     .takes = "on|off",
     .help =
         "cells: a partition that is over split_commit_ms or split_depth gives half of its dedup "
         "keys to the cell with the most room"},
    {.name = "split_commit_ms",
     .type = ENGINE_NUMBER,
     .min = 1,
     .max = 60000,
     .value = "50",
     .takes = "MS",
     .help = "a cell is over when its commits take longer on average"},
    {.name = "split_depth",
     .type = ENGINE_NUMBER,
     .min = 1,
     .max = UINT32_MAX,
     .value = "1000000",
     .takes = "COUNT",
     .help = "a partition is over when more messages are ready in it"},
    {.name = "split_after_seconds",
     .type = ENGINE_NUMBER,
     .min = 1,
     .max = 86400,
     .value = "60",
     .takes = "SECONDS",
     .help = "for how long without a pause it is over before it is split"},
    {.name = "split_rest_seconds",
     .type = ENGINE_NUMBER,
     .min = 1,
     .max = 86400,
     .value = "600",
     .takes = "SECONDS",
     .help = "for how long a queue that was split is not split again"},
};

const struct engine_kind cells_kind = {
    .name = "cells",
    .capabilities = ENGINE_DURABLE | ENGINE_SHARED,
    .open = cells_open,
    .migrate = cells_migrate,
    .preview = cells_preview,
    .settings = settings,
    .setting_count = sizeof(settings) / sizeof(settings[0]),
    .counters = cells_counters,
    .counter_count = CELLS_COUNTERS,
    .no_backup = "back up the store of each cell",
};
