/* What the tables and their indexes weigh, and how much of it is dead. One shard of the process
 * reads it with a sweep every few seconds, so that reading the metrics costs the database nothing.
 * The view triage.bloat says the same to people; here it is not used, because a server's role need
 * not be allowed to read it. */
#include "engine/postgres/impl.h"

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

static int table_named(const PGresult *r, int row)
{
    for (int table = 0; table < ENGINE_TABLE_COUNT; table++) {
        if (cell_is(r, row, 0, engine_table_names[table]))
            return table;
    }
    return -1;
}

void tables_answer(struct pg *pg, const struct pg_call *c)
{
    struct engine_counters *counters = &pg->base.counters;
    for (int row = 0; row < PQntuples(c->result); row++) {
        int table = table_named(c->result, row);
        if (table < 0)
            continue;
        counters->table_dead_rows[table] = (uint64_t)cell_int(c->result, row, 1);
        counters->table_bytes[table] = (uint64_t)cell_int(c->result, row, 2);
        counters->table_index_bytes[table] = (uint64_t)cell_int(c->result, row, 3);
        counters->oldest_transaction_ms = (uint64_t)cell_int(c->result, row, 4);
    }
    counters->table_looks++;
}
