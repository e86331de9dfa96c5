-- For reading: the messages as one table, the dead letters, the queues, and how much of our tables
-- is dead. A view is as fresh as its query; nothing here claims or locks anything.

CREATE VIEW triage.messages AS
    SELECT triage.id_format(e.queue, e.born_slot, e.born_ms, e.seq) AS message_id,
        q.name AS queue_name,
        CASE WHEN e.kind < 2 THEN triage.text_of(coalesce(e.payload, b.payload)) END AS payload,
        coalesce(e.payload, b.payload) AS payload_bytes,
        triage.priority_of(l) AS priority, l.name AS level, e.state AS status, e.attempts,
        q.max_attempts, triage.from_ms(e.ready_ms) AS scheduled_at,
        triage.from_ms(e.until_ms) AS locked_until, triage.from_ms(e.enqueued_ms) AS enqueued_at,
        triage.from_ms(e.expire_ms) AS expires_at, triage.from_ms(e.ended_ms) AS ended_at,
        triage.from_ms(e.escalated_ms) AS escalated_at, e.escalated_by, e.escalated_why,
        e.reason AS last_failure, triage.json_of(e.metadata) AS metadata,
        coalesce(triage.text_of(e.dedup_key), encode(e.dedup_key, 'escape')) AS dedup_key
    FROM triage.everything e
        JOIN triage.queue q ON q.id = e.queue AND NOT q.deleted
        LEFT JOIN triage.level l ON l.queue = e.queue AND l.slot = e.slot
        LEFT JOIN triage.body b ON b.seq = e.seq AND e.payload IS NULL;

CREATE VIEW triage.dead_letters AS
    SELECT message_id AS original_id, queue_name, payload, payload_bytes, priority, level, attempts,
        last_failure AS failure_reason, enqueued_at AS original_enqueued_at, ended_at AS moved_at,
        metadata
    FROM triage.messages WHERE status = 'dead';

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
