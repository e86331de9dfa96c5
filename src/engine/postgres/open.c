/* How shards are opened and closed: the schema is brought up to date, the connections are made, and
 * the queues are read. */
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/postgres/impl.h"
#include "engine/postgres/postgres.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 15000

static void free_shard(struct pg *pg)
{
    for (int i = 0; i < LINKS; i++) {
        if (pg->links[i])
            link_close(pg->links[i]);
    }
    size_t at = 0;
    for (struct pg_queue *q; (q = map_each(&pg->queues, &at)); at = 0) {
        pg_queue_retire(q);
        pg_queue_free(q);
    }
    for (struct pg_queue *q; (q = pg->replaced);) {
        pg->replaced = q->next_replaced;
        pg_queue_free(q);
    }
    map_fini(&pg->queues);
    map_fini(&pg->by_id);
    free(pg->open);
    free(pg);
}

void pg_close(struct pg_shared *shared)
{
    if (shared->listener)
        listener_close(shared->listener);
    for (uint32_t i = 0; i < shared->shard_count; i++) {
        if (shared->shards[i])
            free_shard(shared->shards[i]);
    }
    free(shared->shards);
    free(shared->conninfo);
    free(shared->listen_conninfo);
    free(shared);
}

static struct pg *shard_new(struct pg_shared *shared, uint32_t index, struct buf *error)
{
    struct pg *pg = mem_zalloc(sizeof(*pg));
    pg->base.ops = &postgres_ops;
    pg->base.kind = &postgres_kind;
    pg->shared = shared;
    pg->shard = index;
    pg->due_ms = INT64_MAX;
    for (int i = 0; i < LINKS; i++) {
        pg->links[i] = link_open(pg, error);
        if (!pg->links[i]) {
            free_shard(pg);
            return NULL;
        }
    }
    return pg;
}

static bool run_and_wait(struct pg *pg, struct pg_job *job)
{
    struct pg_job *done;
    link_put(pg->links[0], job);
    while (!(done = link_take(pg->links[0])))
        uv_sleep(1);
    assert(done == job);
    pg_learn_clock(pg, job);
    if (job->fate == JOB_DONE)
        calls_answer(pg, job);
    calls_free(job);
    return job->fate == JOB_DONE;
}

/* Reads the queues and their views before the shards run. The first sweep would read the views,
 * too, but until then totals would be 0, which looks as if they had been reset. */
static enum status load(struct pg *pg, struct buf *error)
{
    static const struct instant invented;
    if (!atomic_load(&pg->shared->prepared)) {
        pg->list_due = true;
        return STATUS_OK;
    }
    struct pg_job *job = job_new(pg->shared->invented_time ? invented : clock_now());
    calls_queues(job);
    enum status status = run_and_wait(pg, job) ? STATUS_OK : STATUS_ENGINE_UNAVAILABLE;
    if (status)
        buf_puts(error, job->error);
    if (!status && pg->told) {
        job->until_ms = 0;
        calls_views(pg, job);
        pg->all_told = !run_and_wait(pg, job);
    }
    size_t at = 0;
    for (struct pg_queue *q; !pg->all_told && (q = map_each(&pg->queues, &at));)
        q->told = false;
    free(job);
    return status;
}

/* Adds what to do about the error, for whoever starts the server. */
static void advise(struct buf *error)
{
    static const struct {
        const char *said, *advice;
    } known[] = {
        {"session is read-only",
         "it is a standby, or read-only by default: name the primary, or all "
         "hosts of which one is it"},
        {"no password supplied", "give one in the connection string, PGPASSWORD or ~/.pgpass"},
        {"permission denied for",
         "the role has to own the schema triage, or be given what "
         "docs/engines.md lists once triaged migrate has run as the owner"},
        {"Is the server running", "--postgres 'host=db1 dbname=triage' would say where it is"},
        {"database \"", "create it with createdb"},
    };
    while (error->len > 0 && error->data[error->len - 1] == '\n')
        error->len--;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strstr(buf_cstr(error), known[i].said)) {
            buf_printf(error, " (%s)", known[i].advice);
            return;
        }
    }
}

static enum status prepare(struct pg_shared *shared, struct buf *error)
{
    PGconn *conn = link_connect(shared->conninfo, error);
    enum status status = conn ? schema_install(conn, error) : STATUS_ENGINE_UNAVAILABLE;
    PQfinish(conn);
    if (status)
        advise(error);
    atomic_store(&shared->prepared, status == STATUS_OK);
    return status;
}

static void preview_conninfo(const char *key, const char *conninfo, struct buf *problems)
{
    char *error = NULL;
    PQconninfoOption *parsed = PQconninfoParse(conninfo, &error);
    if (!parsed)
        buf_printf(problems, "%s: %.*s\n", key, (int)strcspn(error ? error : "no memory", "\n"),
                   error ? error : "no memory");
    PQconninfoFree(parsed);
    PQfreemem(error);
}

/* Checks only that libpq understands the settings. It does not connect. */
static void postgres_preview(const struct engine_options *options, struct engine_preview *p)
{
    static const char *const keys[] = {"postgres", "postgres_listen"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        preview_conninfo(keys[i], engine_option_text(options, keys[i]), &p->problems);
    buf_lit(&p->notes, "the database is not asked; triaged migrate would connect to it\n");
}

static bool names_several_hosts(const char *conninfo)
{
    PQconninfoOption *parsed = PQconninfoParse(conninfo, NULL);
    bool several = false;
    for (const PQconninfoOption *o = parsed; o && o->keyword; o++) {
        bool host = strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "hostaddr") == 0;
        several = several || (host && o->val && strchr(o->val, ','));
    }
    PQconninfoFree(parsed);
    return several;
}

/* Whether the database cannot be reached, or not yet: that passes. An error that a database answers
 * with does not pass by waiting; but one of several hosts that is a standby may be promoted. */
static bool database_is_away(const struct pg_shared *shared, struct buf *error)
{
    PGPing ping = PQping(shared->conninfo);
    bool standby = strstr(buf_cstr(error), "session is read-only") != NULL;
    return !shared->invented_time && (ping == PQPING_NO_RESPONSE || ping == PQPING_REJECT ||
                                      (standby && names_several_hosts(shared->conninfo)));
}

/* Installs the schema in the database, or brings it up to date, and says what was done. */
static enum status postgres_migrate(const struct engine_options *options, struct buf *report)
{
    struct pg_shared shared = {.conninfo = (char *)engine_option_text(options, "postgres"),
                               .sync_commit = true};
    enum status status = prepare(&shared, report);
    if (!status)
        buf_printf(report, "the schema is at version %d", schema_version());
    return status;
}

static enum status postgres_open(const struct engine_options *options, uint32_t shard_count,
                                 struct engine *shards[], struct buf *error)
{
    struct pg_shared *shared = mem_zalloc(sizeof(*shared));
    const char *conninfo = engine_option_text(options, "postgres");
    const char *listen = engine_option_text(options, "postgres_listen");
    int64_t timeout_ms = 1000 * (int64_t)engine_option_number(options, "postgres_timeout_seconds");
    shared->conninfo = mem_dup(conninfo, strlen(conninfo) + 1);
    shared->listen_conninfo =
        *listen ? mem_dup(listen, strlen(listen) + 1) : mem_dup(conninfo, strlen(conninfo) + 1);
    shared->timeout_ms = timeout_ms > 0 ? timeout_ms : TIMEOUT_MS;
    shared->invented_time = options->now.wall_ms != 0;
    shared->sync_commit = options->durability == DURABILITY_FSYNC;
    shared->wake = options->wake;
    shared->wake_ctx = options->wake_ctx;
    shared->shard_count = shard_count;
    shared->shards = mem_zalloc(shard_count * sizeof(struct pg *));
    random_bytes(shared->node, sizeof(shared->node));
    enum status status = prepare(shared, error);
    if (status && database_is_away(shared, error)) {
        log_warn("postgres: the database is away", "reason=\"%s\" consequence=\"%s\"",
                 log_plain(buf_cstr(error)), "the server starts, and waits for it");
        buf_clear(error);
        status = STATUS_OK;
    }
    for (uint32_t i = 0; !status && i < shard_count; i++) {
        shared->shards[i] = shard_new(shared, i, error);
        status = shared->shards[i] ? load(shared->shards[i], error) : STATUS_ENGINE_UNAVAILABLE;
        shards[i] = shared->shards[i] ? &shared->shards[i]->base : NULL;
    }
    if (status) {
        pg_close(shared);
        return status;
    }
    if (!shared->invented_time)
        shared->listener = listener_open(shared);
    return STATUS_OK;
}

static const struct engine_setting settings[] = {
    {.name = "postgres",
     .type = ENGINE_TEXT,
     .max = 1023,
     .value = "",
     .takes = "CONNINFO",
     .help = "database of the postgres engine, as libpq takes it: \"host=db1,db2 dbname=triage\"",
     .unused = "the database is not used"},
    {.name = "postgres_listen",
     .type = ENGINE_TEXT,
     .max = 1023,
     .value = "",
     .takes = "CONNINFO",
     .help = "the same without a pooler, for notifications alone; empty: as postgres"},
    {.name = "postgres_timeout_seconds",
     .type = ENGINE_NUMBER,
     .min = 1,
     .max = 600,
     .value = "15",
     .takes = "NUMBER",
     .help = "how long the database may take for a group of requests before they get 503"},
};

const struct engine_kind postgres_kind = {
    .name = "postgres",
    .capabilities = ENGINE_DURABLE | ENGINE_SHARED,
    .open = postgres_open,
    .migrate = postgres_migrate,
    .preview = postgres_preview,
    .settings = settings,
    .setting_count = sizeof(settings) / sizeof(settings[0]),
    .counters = tables_counters,
    .counter_count = TABLES_COUNTERS,
    .store = "postgres",
    .no_backup = "back up its database, as with pg_basebackup",
};
