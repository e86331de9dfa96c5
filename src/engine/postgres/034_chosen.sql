-- Messages that somebody has chosen: cancelled, made ready before their time, given up at once.

-- The scheduled and ready messages among these ids.
CREATE OR REPLACE FUNCTION triage.pending_chosen(p_queue int, p_seq bigint[], p_slot smallint[],
    p_ready_ms bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(DISTINCT r.seq), '{}')
    FROM unnest(p_seq, p_slot, p_ready_ms) i (seq, slot, ready_ms)
        CROSS JOIN LATERAL (
            (SELECT m.seq, m.queue, m.born_slot, m.born_ms FROM triage.ready m
             WHERE m.seq = i.seq OFFSET 0)
            UNION ALL
            (SELECT m.seq, m.queue, m.born_slot, m.born_ms FROM triage.scheduled m
             WHERE m.seq = i.seq OFFSET 0)) r
    WHERE r.queue = p_queue AND r.born_slot = i.slot AND r.born_ms = i.ready_ms
$$;

-- Cancels those of these messages that are scheduled or ready. Returns how many.
CREATE OR REPLACE FUNCTION triage.engine_cancel_some(p_queue int, p_version int, p_seq bigint[],
    p_slot smallint[], p_ready_ms bigint[], p_now bigint DEFAULT NULL) RETURNS int
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN triage.end_pending(triage.queue_at(p_queue, p_version),
                              triage.pending_chosen(p_queue, p_seq, p_slot, p_ready_ms), 'cancelled',
                              coalesce(p_now, triage.now_ms()));
END $$;

-- Makes those of these messages ready now that are scheduled. Returns how many.
CREATE OR REPLACE FUNCTION triage.engine_promote(p_queue int, p_version int, p_seq bigint[], p_slot smallint[],
    p_ready_ms bigint[], p_now bigint DEFAULT NULL) RETURNS int
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    chosen bigint[] := triage.pending_chosen(p_queue, p_seq, p_slot, p_ready_ms);
    promoted int;
BEGIN
    WITH gone AS (
        DELETE FROM triage.scheduled WHERE seq = ANY (chosen) RETURNING *),
    now_ready AS (
        INSERT INTO triage.ready
        SELECT g.seq, least(g.ready_ms, now_ms), g.born_ms, g.enqueued_ms, g.queue, g.attempts,
            g.slot, g.born_slot, g.kind, g.payload, g.large, g.metadata, g.dedup_key, g.expire_ms,
            g.reason, g.escalated_ms, g.escalated_by, g.escalated_why, g.escalated_from
        FROM gone g),
    counted AS (
        INSERT INTO triage.tally (low_ms, queue, slot, ready, scheduled)
        SELECT min(least(g.ready_ms, now_ms)), p_queue, g.slot, count(*), -count(*)
        FROM gone g GROUP BY g.slot)
    SELECT count(*) INTO promoted FROM gone;
    IF promoted > 0 THEN
        PERFORM triage.notify(p_queue, now_ms);
    END IF;
    RETURN promoted;
END $$;

-- Ends the leases of these messages, which the caller has locked. p_why: 'nack', 'release' or
-- 'lease'. A delay below 0: there is no other attempt. Returns the state that each is in now.
CREATE OR REPLACE FUNCTION triage.give_back(q triage.queue, p_seq bigint[], p_why text, p_delay_ms bigint,
    p_reason text, p_now bigint) RETURNS TABLE (seq bigint, state text)
LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    large bigint[];
    keyed bigint[];
    keys bytea[];
    seqs bigint[];
    states text[];
    failed boolean := p_why <> 'release';
    spent boolean := failed AND coalesce(p_delay_ms < 0, false);
BEGIN
    WITH gone AS (
        DELETE FROM triage.leased WHERE leased.seq = ANY (p_seq) RETURNING *),
    timed AS MATERIALIZED (
        SELECT g.*, CASE WHEN NOT failed THEN 0
            ELSE coalesce(p_delay_ms, triage.backoff_ms(q, g.attempts)) END AS delay_ms
        FROM gone g),
    fate AS MATERIALIZED (
        SELECT t.*, CASE
                WHEN spent OR failed AND t.attempts >= q.max_attempts THEN 'dead'
                WHEN t.expire_ms <= p_now AND q.expired = 'dead' THEN 'dead'
                WHEN t.expire_ms <= p_now THEN 'expired'
                WHEN t.delay_ms > 0 THEN 'scheduled'
                ELSE 'ready' END AS state,
            t.attempts - (NOT failed)::int AS attempts_left,
            CASE WHEN spent OR failed AND t.attempts >= q.max_attempts THEN p_reason
                WHEN t.expire_ms <= p_now THEN 'expired'
                WHEN failed THEN p_reason ELSE t.reason END AS why
        FROM timed t),
    ready AS (
        INSERT INTO triage.ready
        SELECT f.seq, f.ready_ms, f.born_ms, f.enqueued_ms, f.queue, f.attempts_left, f.slot,
            f.born_slot, f.kind, f.payload, f.large, f.metadata, f.dedup_key, f.expire_ms, f.why,
            f.escalated_ms, f.escalated_by, f.escalated_why, f.escalated_from
        FROM fate f WHERE f.state = 'ready'),
    scheduled AS (
        INSERT INTO triage.scheduled
        SELECT f.seq, p_now + f.delay_ms, f.born_ms, f.enqueued_ms, f.queue, f.attempts_left,
            f.slot, f.born_slot, f.kind, f.payload, f.large, f.metadata, f.dedup_key, f.expire_ms, f.why,
            f.escalated_ms, f.escalated_by, f.escalated_why, f.escalated_from
        FROM fate f WHERE f.state = 'scheduled'),
    dead AS (
        INSERT INTO triage.dead
        SELECT f.seq, f.ready_ms, f.born_ms, f.enqueued_ms, f.queue, f.attempts_left, f.slot,
            f.born_slot, f.kind, f.payload, f.large, f.metadata, f.dedup_key, f.expire_ms, f.why,
            f.escalated_ms, f.escalated_by, f.escalated_why, f.escalated_from, p_now
        FROM fate f WHERE f.state = 'dead'),
    counted AS (
        INSERT INTO triage.tally (low_ms, queue, slot, leased, ready, scheduled, bytes, dead, died,
            expired, nacked, released, lease_expired)
        SELECT min(f.ready_ms) FILTER (WHERE f.state = 'ready'), q.id, f.slot, -count(*),
            count(*) FILTER (WHERE f.state = 'ready'),
            count(*) FILTER (WHERE f.state = 'scheduled'),
            sum(triage.size_of(f.large, f.payload, f.metadata))
                FILTER (WHERE f.state IN ('ready', 'scheduled')),
            nullif(count(*) FILTER (WHERE f.state = 'dead'), 0),
            nullif(count(*) FILTER (WHERE f.state = 'dead'), 0),
            nullif(count(*) FILTER (WHERE f.state = 'expired'), 0),
            CASE p_why WHEN 'nack' THEN count(*) END,
            CASE p_why WHEN 'release' THEN count(*) END,
            CASE p_why WHEN 'lease' THEN count(*) END
        FROM fate f GROUP BY f.slot)
    SELECT array_agg(f.seq), array_agg(f.state),
        array_agg(f.seq) FILTER (WHERE f.state = 'expired' AND f.payload IS NULL),
        array_agg(f.seq) FILTER (WHERE f.state = 'expired' AND f.dedup_key IS NOT NULL),
        array_agg(f.dedup_key) FILTER (WHERE f.state = 'expired' AND f.dedup_key IS NOT NULL)
    INTO seqs, states, large, keyed, keys
    FROM fate f;
    PERFORM triage.forget(q.id, large, keyed, keys);
    IF 'ready' = ANY (states) THEN
        PERFORM triage.notify(q.id, p_now);
    END IF;
    RETURN QUERY SELECT * FROM unnest(seqs, states);
END $$;
