-- What is kept as history, to the millisecond. A done message is there when it was done after
-- `history_since_ms` of its queue and less than `history_ms` ago. Every read goes by this rule; a
-- sweep may remove the row at any later time. A change of history_ms moves history_since_ms to where
-- the shorter of the old and the new one ends: so a message that a queue has forgotten does not come
-- back when the queue is told to keep more.

ALTER TABLE triage.queue ADD COLUMN history_since_ms bigint NOT NULL DEFAULT 0;

-- The database's clock, or the time that a test has set for its transaction.
CREATE FUNCTION triage.time_ms() RETURNS bigint
LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('triage.now_ms', true), '')::bigint, triage.now_ms());

-- The time up to which done messages are no longer kept.
CREATE FUNCTION triage.history_from(p_queue int) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT greatest(q.history_since_ms, triage.time_ms() - q.history_ms)
    FROM triage.queue q WHERE q.id = p_queue
$$;

-- Creates a queue (p_id NULL) or changes it. The configuration is shaped as engine_config() gives
-- it, and whole. `created` is false when the queue was there already: then nothing was changed.
CREATE OR REPLACE FUNCTION triage.engine_queue_set(p_id int, p_name text, p_config jsonb,
    OUT id int, OUT created boolean, OUT status text, OUT level_name text, OUT config jsonb)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
DECLARE
    next triage.queue;
BEGIN
    next := jsonb_populate_record(NULL::triage.queue, p_config);
    created := p_id IS NULL;
    IF created THEN
        INSERT INTO triage.queue AS q (name, profile, policy, default_rank, paused, pauses, visibility_ms,
            max_attempts, backoff, backoff_base_ms, backoff_max_ms, backoff_jitter, ttl_ms, expired,
            dedup_window_ms, dedup_scope, max_depth, max_bytes, max_in_flight, history_ms,
            alert_dead_letters, alert_oldest_ready_seconds, alert_webhook)
        VALUES (p_name, next.profile, next.policy, next.default_rank, coalesce(next.paused, false),
            coalesce(next.pauses, '[]'),
            next.visibility_ms, next.max_attempts, next.backoff, next.backoff_base_ms,
            next.backoff_max_ms, next.backoff_jitter, next.ttl_ms, next.expired,
            next.dedup_window_ms, next.dedup_scope, next.max_depth, next.max_bytes,
            coalesce(next.max_in_flight, 0), next.history_ms, next.alert_dead_letters,
            next.alert_oldest_ready_seconds, next.alert_webhook)
        ON CONFLICT (name) WHERE NOT deleted DO NOTHING
        RETURNING q.id INTO id;
        IF id IS NULL THEN -- another was faster
            created := false;
            SELECT q.id INTO id FROM triage.queue q WHERE q.name = p_name AND NOT q.deleted;
            config := triage.engine_config(id);
            RETURN;
        END IF;
        INSERT INTO triage.counted
        VALUES (id, 1, triage.now_ms(), pg_snapshot_xmax(pg_current_snapshot()),
            triage.running(pg_current_snapshot()), array_fill(140737488355327, ARRAY[16]));
    ELSE
        SELECT q.id INTO id FROM triage.queue q WHERE q.id = p_id AND NOT q.deleted FOR UPDATE;
        IF id IS NULL THEN
            status := 'queue-not-found';
            RETURN;
        END IF;
    END IF;
    level_name := triage.levels_set(id, p_config->'levels');
    IF level_name IS NOT NULL THEN
        status := 'level-in-use';
        RETURN;
    END IF;
    IF NOT created THEN
        UPDATE triage.queue q SET version = q.version + 1, updated_at = now(),
            profile = next.profile, policy = next.policy, default_rank = next.default_rank,
            paused = coalesce(next.paused, q.paused),
            pauses = coalesce(next.pauses, q.pauses), visibility_ms = next.visibility_ms,
            max_attempts = next.max_attempts, backoff = next.backoff,
            backoff_base_ms = next.backoff_base_ms, backoff_max_ms = next.backoff_max_ms,
            backoff_jitter = next.backoff_jitter, ttl_ms = next.ttl_ms, expired = next.expired,
            dedup_window_ms = next.dedup_window_ms, dedup_scope = next.dedup_scope,
            max_depth = next.max_depth, max_bytes = next.max_bytes,
            max_in_flight = coalesce(next.max_in_flight, 0), history_ms = next.history_ms,
            history_since_ms = CASE WHEN next.history_ms = q.history_ms THEN q.history_since_ms
                ELSE greatest(q.history_since_ms,
                    triage.time_ms() - least(next.history_ms, q.history_ms)) END,
            alert_dead_letters = next.alert_dead_letters,
            alert_oldest_ready_seconds = next.alert_oldest_ready_seconds,
            alert_webhook = next.alert_webhook
        WHERE q.id = p_id;
    END IF;
    config := triage.engine_config(id);
    PERFORM pg_notify('triage', 'queues');
END $$;

-- Why an item was refused: there is no such message, or there is and it is not leased to the
-- bearer of this receipt.
CREATE OR REPLACE FUNCTION triage.refusal(p_queue int, p_seq bigint, p_slot smallint, p_ready_ms bigint)
RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN EXISTS (
            SELECT FROM (
                SELECT born_slot, born_ms, queue FROM triage.ready WHERE seq = p_seq
                UNION ALL SELECT born_slot, born_ms, queue FROM triage.scheduled WHERE seq = p_seq
                UNION ALL SELECT born_slot, born_ms, queue FROM triage.leased WHERE seq = p_seq
                UNION ALL SELECT born_slot, born_ms, queue FROM triage.dead WHERE seq = p_seq
                UNION ALL SELECT born_slot, born_ms, queue FROM triage.history WHERE seq = p_seq
                    AND ended_ms > triage.history_from(queue)) m
            WHERE m.born_slot = p_slot AND m.born_ms = p_ready_ms AND m.queue = p_queue)
        THEN 'receipt-expired' ELSE 'message-not-found' END
$$;

-- The message with this id in whatever state, payload and all; no row when there is none.
CREATE OR REPLACE FUNCTION triage.engine_get(p_queue int, p_seq bigint, p_slot smallint, p_ready_ms bigint)
RETURNS SETOF triage.everything
LANGUAGE plpgsql STABLE ROWS 1
SET search_path = triage, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    m triage.everything;
BEGIN
    SELECT * INTO m FROM (SELECT * FROM triage.everything e WHERE e.seq = p_seq OFFSET 0) e
    WHERE e.queue = p_queue AND e.born_slot = p_slot AND e.born_ms = p_ready_ms
        AND (e.state <> 'done' OR e.ended_ms > triage.history_from(p_queue));
    IF FOUND THEN
        m := triage.with_body(m);
        RETURN NEXT m;
    END IF;
END $$;

-- A page of a queue's messages: ready (phase 0, by place), scheduled (1), leased (2), kept as
-- history (3), dead (4; each by seq). Starts behind the given place, which is the last row's of the
-- page before: its phase, slot, ready_ms, seq; at first the slot is -1. With p_slots only ready and
-- scheduled ones of these, lane by lane in this order, and without their payloads: a message that is
-- escalated to the first lane between two pages is not shown again.
CREATE OR REPLACE FUNCTION triage.engine_list(p_queue int, p_phase int, p_slot smallint, p_ready_ms bigint,
                                   p_seq bigint, p_limit int, p_slots smallint[] DEFAULT NULL)
RETURNS TABLE (phase int, message triage.everything)
LANGUAGE plpgsql STABLE ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    states CONSTANT text[] := '{ready,scheduled,leased,done,dead}';
    kept_from CONSTANT bigint := triage.history_from(p_queue);
    found int := 0;
    more int;
BEGIN
    IF p_slots IS NOT NULL THEN
        RETURN QUERY SELECT * FROM triage.list_pending(p_queue, p_phase, p_slot, p_ready_ms, p_seq,
                                                       p_limit, p_slots);
        RETURN;
    END IF;
    FOR at IN p_phase..4 LOOP
        IF at = 0 THEN
            RETURN QUERY
            SELECT 0, triage.with_body(m) FROM triage.everything m
            WHERE m.state = 'ready' AND m.queue = p_queue
                AND (m.slot, m.ready_ms, m.seq) > (p_slot, p_ready_ms, p_seq)
            ORDER BY m.slot, m.ready_ms, m.seq LIMIT p_limit;
        ELSE
            RETURN QUERY
            SELECT at, triage.with_body(m) FROM triage.everything m
            WHERE m.state = states[at + 1] AND m.queue = p_queue
                AND m.seq > CASE WHEN at = p_phase THEN p_seq ELSE 0 END
                AND (at <> 3 OR m.ended_ms > kept_from)
            ORDER BY m.seq LIMIT p_limit - found;
        END IF;
        GET DIAGNOSTICS more = ROW_COUNT;
        found := found + more;
        EXIT WHEN found >= p_limit;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION triage.sweep_history(p_max int, p_now bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    seqs bigint[];
    large bigint[];
BEGIN
    WITH gone AS (
        DELETE FROM triage.history WHERE ctid = ANY (ARRAY(
            SELECT h.ctid FROM triage.queue q CROSS JOIN LATERAL (
                SELECT ctid FROM triage.history
                WHERE queue = q.id AND ended_ms <= greatest(q.history_since_ms, p_now - q.history_ms)
                ORDER BY ended_ms LIMIT p_max FOR UPDATE SKIP LOCKED) h
            LIMIT p_max))
        RETURNING *)
    SELECT array_agg(g.seq), array_agg(g.seq) FILTER (WHERE g.payload IS NULL) INTO seqs, large
    FROM gone g;
    PERFORM triage.forget(NULL, large, NULL, NULL);
    RETURN coalesce(cardinality(seqs), 0);
END $$;

CREATE OR REPLACE VIEW triage.messages AS
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
        LEFT JOIN triage.body b ON b.seq = e.seq AND e.payload IS NULL
    WHERE e.state <> 'done' OR e.ended_ms > triage.history_from(e.queue);

CREATE OR REPLACE VIEW triage.dead_letters AS
    SELECT message_id AS original_id, queue_name, payload, payload_bytes, priority, level, attempts,
        last_failure AS failure_reason, enqueued_at AS original_enqueued_at, ended_at AS moved_at,
        metadata
    FROM triage.messages WHERE status = 'dead';
