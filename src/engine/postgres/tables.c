/* How large the tables and their indexes are, and how much of them is dead. One shard of the
 * process reads this with a sweep every few seconds, so reading the metrics costs the database
 * nothing. The view triage.bloat shows the same to people. It is not used here, because the role of
 * a server may not be allowed to read it. */
#include "engine/postgres/impl.h"

#include <assert.h>

#define TABLES_MS 5000

void tables_ask(struct pg *pg, struct pg_job *job)
{
    bool early = pg->tables_mono_ms > 0 && job->now.mono_ms - pg->tables_mono_ms < TABLES_MS;
    if (pg->shard != 0 || pg->shared->invented_time || early)
        return;
    pg->tables_mono_ms = job->now.mono_ms;
    call_add(job, CALL_TABLES, NULL, 0,
             "SELECT relname::text, n_dead_tup, pg_table_size(relid), pg_indexes_size(relid), "
             "(SELECT (extract(epoch FROM max(now() - xact_start)) * 1000)::bigint "
             "FROM pg_stat_activity WHERE datname = current_database() "
             "AND pid <> pg_backend_pid()) "
             "FROM pg_stat_user_tables WHERE schemaname = 'triage'");
}

static const char *const names[] = {
    "ready", "scheduled", "leased",  "dead", "history", "body",
    "dedup", "tally",     "counted", "lane", "mark",
};

#define TABLE_COUNT (sizeof(names) / sizeof(names[0]))
#define OF_TABLES   .label = "table", .labels = names, .label_count = TABLE_COUNT, .of_store = true

const struct engine_counter tables_counters[TABLES_COUNTERS] = {
    {.name = "table_dead_rows",
     .type = ENGINE_GAUGE,
     .help = "Deleted rows that vacuum has not taken away.",
     .after = "table_looks_total",
     OF_TABLES},
    {.name = "table_bytes",
     .type = ENGINE_GAUGE,
     .help = "What the table takes.",
     .after = "table_looks_total",
     OF_TABLES},
    {.name = "table_index_bytes",
     .type = ENGINE_GAUGE,
     .help = "What its indexes take.",
     .after = "table_looks_total",
     OF_TABLES},
    {.name = "oldest_transaction_seconds",
     .type = ENGINE_GAUGE,
     .unit = ENGINE_MILLI,
     .help = "Age of the oldest transaction in the database.",
     .of_store = true},
    {.name = "table_looks_total",
     .type = ENGINE_COUNTER,
     .help = "How often these were read from the database."},
};

/* Their places in engine_counters.own, in the order of the table above. */
enum {
    DEAD_ROWS = 0,
    BYTES = DEAD_ROWS + TABLE_COUNT,
    INDEX_BYTES = BYTES + TABLE_COUNT,
    OLDEST_TRANSACTION = INDEX_BYTES + TABLE_COUNT, /* how long dead rows could not be removed */
    LOOKS,
};
static_assert(LOOKS < ENGINE_OWN_MAX, "each has a place");

static int table_named(const PGresult *r, int row)
{
    for (size_t table = 0; table < TABLE_COUNT; table++) {
        if (cell_is(r, row, 0, names[table]))
            return (int)table;
    }
    return -1;
}

void tables_answer(struct pg *pg, const struct pg_call *c)
{
    uint64_t *own = pg->base.counters.own;
    for (int row = 0; row < PQntuples(c->result); row++) {
        int table = table_named(c->result, row);
        if (table < 0)
            continue;
        own[DEAD_ROWS + table] = (uint64_t)cell_int(c->result, row, 1);
        own[BYTES + table] = (uint64_t)cell_int(c->result, row, 2);
        own[INDEX_BYTES + table] = (uint64_t)cell_int(c->result, row, 3);
        own[OLDEST_TRANSACTION] = (uint64_t)cell_int(c->result, row, 4);
    }
    own[LOOKS]++;
}
