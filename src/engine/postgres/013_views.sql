-- For reading: the messages as one table, the dead letters, the queues, and how much of our tables
-- is dead. A view is as fresh as its query; nothing here claims or locks anything.

CREATE VIEW triage.queues AS
    SELECT q.name, q.profile, q.policy, q.paused, sum(c.ready) AS ready,
        sum(c.scheduled) AS scheduled, sum(c.leased) AS in_flight, sum(c.dead) AS dead,
        q.created_at, q.updated_at
    FROM triage.queue q LEFT JOIN LATERAL triage.counts(q.id) c ON true
    WHERE NOT q.deleted
    GROUP BY q.id;

-- Dead rows that vacuum has not taken away yet, and what the tables and their indexes weigh. When
-- dead_rows grows and grows, something holds a transaction open: oldest_transaction has its age.
CREATE VIEW triage.bloat AS
    SELECT s.relname AS name, s.n_live_tup AS live_rows, s.n_dead_tup AS dead_rows,
        pg_table_size(s.relid) AS table_bytes, pg_indexes_size(s.relid) AS index_bytes,
        s.last_autovacuum,
        (SELECT max(now() - a.xact_start) FROM pg_stat_activity a
         WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()) AS oldest_transaction
    FROM pg_stat_user_tables s WHERE s.schemaname = 'triage';
