-- What needs no receipt: looking, moving between levels, cancelling, purging, dead letters.

CREATE VIEW triage.everything AS
    SELECT 'ready'::text AS state, m.*, NULL::bigint AS until_ms, NULL::bigint AS lease_ms,
        NULL::bytea AS receipt, NULL::bigint AS ended_ms FROM triage.ready m
    UNION ALL SELECT 'scheduled', m.*, NULL, NULL, NULL, NULL FROM triage.scheduled m
    UNION ALL SELECT 'leased', m.*, NULL FROM triage.leased m
    UNION ALL SELECT 'dead', m.seq, m.ready_ms, m.born_ms, m.enqueued_ms, m.queue, m.attempts,
        m.slot, m.born_slot, m.kind, m.payload, m.large, m.metadata, m.dedup_key, m.expire_ms,
        m.reason, m.escalated_ms, m.escalated_by, m.escalated_why, NULL, NULL, NULL, m.ended_ms
        FROM triage.dead m
    UNION ALL SELECT 'done', m.seq, m.ready_ms, m.born_ms, m.enqueued_ms, m.queue, m.attempts,
        m.slot, m.born_slot, m.kind, m.payload, m.large, m.metadata, m.dedup_key, m.expire_ms,
        m.reason, m.escalated_ms, m.escalated_by, m.escalated_why, NULL, NULL, NULL, m.ended_ms
        FROM triage.history m;

-- The message with this id in whatever state, payload and all; no row when there is none.
CREATE FUNCTION triage.engine_get(p_queue int, p_seq bigint, p_slot smallint, p_ready_ms bigint)
RETURNS SETOF triage.everything
LANGUAGE plpgsql STABLE ROWS 1
SET search_path = triage, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    m triage.everything;
BEGIN
    SELECT * INTO m FROM (SELECT * FROM triage.everything e WHERE e.seq = p_seq OFFSET 0) e
    WHERE e.queue = p_queue AND e.born_slot = p_slot AND e.born_ms = p_ready_ms;
    IF FOUND THEN
        m.payload := coalesce(m.payload, (SELECT b.payload FROM triage.body b WHERE b.seq = p_seq));
        RETURN NEXT m;
    END IF;
END $$;

-- A page of a queue's messages: ready (phase 0, by place), scheduled (1), leased (2), kept as
-- history (3), dead (4; each by seq). Starts behind the given place, which is the last row's of the
-- page before: its phase, slot, ready_ms, seq.
CREATE FUNCTION triage.engine_list(p_queue int, p_phase int, p_slot smallint, p_ready_ms bigint,
                                   p_seq bigint, p_limit int)
RETURNS TABLE (phase int, message triage.everything)
LANGUAGE plpgsql STABLE ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    states CONSTANT text[] := '{ready,scheduled,leased,done,dead}';
    found int := 0;
    more int;
BEGIN
    FOR at IN p_phase..4 LOOP
        IF at = 0 THEN
            RETURN QUERY
            SELECT 0, m FROM triage.everything m
            WHERE m.state = 'ready' AND m.queue = p_queue
                AND (m.slot, m.ready_ms, m.seq) > (p_slot, p_ready_ms, p_seq)
            ORDER BY m.slot, m.ready_ms, m.seq LIMIT p_limit;
        ELSE
            RETURN QUERY
            SELECT at, m FROM triage.everything m
            WHERE m.state = states[at + 1] AND m.queue = p_queue
                AND m.seq > CASE WHEN at = p_phase THEN p_seq ELSE 0 END
            ORDER BY m.seq LIMIT p_limit - found;
        END IF;
        GET DIAGNOSTICS more = ROW_COUNT;
        found := found + more;
        EXIT WHEN found >= p_limit;
    END LOOP;
END $$;

-- Ends scheduled and ready messages of a queue: p_fate 'cancelled', 'expired' or 'dead'.
CREATE FUNCTION triage.end_pending(q triage.queue, p_seq bigint[], p_fate text, p_now bigint)
RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    ended int;
    large bigint[];
    keyed bigint[];
    keys bytea[];
BEGIN
    WITH gone_ready AS (
        DELETE FROM triage.ready WHERE seq = ANY (p_seq) RETURNING *),
    gone_scheduled AS (
        DELETE FROM triage.scheduled WHERE seq = ANY (p_seq) RETURNING *),
    gone AS (
        SELECT true AS was_ready, * FROM gone_ready
        UNION ALL SELECT false, * FROM gone_scheduled),
    dead AS (
        INSERT INTO triage.dead
        SELECT g.seq, g.ready_ms, g.born_ms, g.enqueued_ms, g.queue, g.attempts, g.slot,
            g.born_slot, g.kind, g.payload, g.large, g.metadata, g.dedup_key, g.expire_ms,
            'expired', g.escalated_ms, g.escalated_by, g.escalated_why, p_now
        FROM gone g WHERE p_fate = 'dead'),
    counted AS (
        INSERT INTO triage.tally (queue, slot, ready, scheduled, bytes, dead, died, expired,
            cancelled)
        SELECT q.id, g.slot, -count(*) FILTER (WHERE g.was_ready),
            -count(*) FILTER (WHERE NOT g.was_ready),
            -sum(triage.size_of(g.large, g.payload, g.metadata)),
            CASE p_fate WHEN 'dead' THEN count(*) END, CASE p_fate WHEN 'dead' THEN count(*) END,
            CASE p_fate WHEN 'expired' THEN count(*) END,
            CASE p_fate WHEN 'cancelled' THEN count(*) END
        FROM gone g GROUP BY g.slot)
    SELECT count(*), array_agg(g.seq) FILTER (WHERE p_fate <> 'dead' AND g.payload IS NULL),
        array_agg(g.seq) FILTER (WHERE p_fate <> 'dead' AND g.dedup_key IS NOT NULL),
        array_agg(g.dedup_key) FILTER (WHERE p_fate <> 'dead' AND g.dedup_key IS NOT NULL)
    INTO ended, large, keyed, keys
    FROM gone g;
    PERFORM triage.forget(q.id, large, keyed, keys);
    RETURN ended;
END $$;

-- NULL, or why not.
CREATE FUNCTION triage.engine_cancel(p_queue int, p_version int, p_seq bigint, p_slot smallint,
    p_ready_ms bigint, p_now bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    known boolean := triage.refusal(p_queue, p_seq, p_slot, p_ready_ms) = 'receipt-expired';
BEGIN
    IF NOT known THEN
        RETURN 'message-not-found';
    END IF;
    IF triage.end_pending(q, ARRAY[p_seq], 'cancelled', coalesce(p_now, triage.now_ms())) = 0 THEN
        RETURN 'not-pending';
    END IF;
    RETURN NULL;
END $$;

-- Gives messages another level. They keep their age. One status for each, in order; NULL: moved.
CREATE FUNCTION triage.engine_move(p_queue int, p_version int, p_seq bigint[], p_slot smallint[],
    p_ready_ms bigint[], p_to smallint, p_actor text, p_reason text, p_now bigint DEFAULT NULL)
RETURNS TABLE (place int, status text)
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    was_ready bigint[];
    was_scheduled bigint[];
BEGIN
    WITH old AS MATERIALIZED (
        SELECT r.seq, r.slot, r.ready_ms,
            triage.size_of(r.large, r.payload, r.metadata) AS size
        FROM unnest(p_seq, p_slot, p_ready_ms) i (seq, slot, ready_ms)
            CROSS JOIN LATERAL (
                SELECT * FROM triage.ready m WHERE m.seq = i.seq OFFSET 0 FOR UPDATE) r
        WHERE r.queue = p_queue AND r.born_slot = i.slot AND r.born_ms = i.ready_ms),
    moved AS (
        UPDATE triage.ready m SET slot = p_to, escalated_ms = now_ms, escalated_by = p_actor,
            escalated_why = p_reason
        WHERE m.seq = ANY (ARRAY(SELECT old.seq FROM old))),
    counted AS (
        INSERT INTO triage.tally (low_ms, queue, slot, ready, bytes)
        SELECT NULL, p_queue, old.slot, -count(*), -sum(old.size) FROM old GROUP BY old.slot
        UNION ALL
        SELECT min(old.ready_ms), p_queue, p_to, count(*), sum(old.size) FROM old
        HAVING count(*) > 0)
    SELECT array_agg(old.seq) INTO was_ready FROM old;
    WITH old AS MATERIALIZED (
        SELECT r.seq, r.slot,
            triage.size_of(r.large, r.payload, r.metadata) AS size
        FROM unnest(p_seq, p_slot, p_ready_ms) i (seq, slot, ready_ms)
            CROSS JOIN LATERAL (
                SELECT * FROM triage.scheduled m WHERE m.seq = i.seq OFFSET 0 FOR UPDATE) r
        WHERE r.queue = p_queue AND r.born_slot = i.slot AND r.born_ms = i.ready_ms),
    moved AS (
        UPDATE triage.scheduled m SET slot = p_to, escalated_ms = now_ms, escalated_by = p_actor,
            escalated_why = p_reason
        WHERE m.seq = ANY (ARRAY(SELECT old.seq FROM old))),
    counted AS (
        INSERT INTO triage.tally (queue, slot, scheduled, bytes)
        SELECT p_queue, old.slot, -count(*), -sum(old.size) FROM old GROUP BY old.slot
        UNION ALL
        SELECT p_queue, p_to, count(*), sum(old.size) FROM old HAVING count(*) > 0)
    SELECT array_agg(old.seq) INTO was_scheduled FROM old;
    IF was_ready IS NOT NULL THEN
        PERFORM triage.notify(p_queue, now_ms);
    END IF;
    RETURN QUERY
    SELECT i.place::int,
        CASE WHEN i.seq = ANY (was_ready) OR i.seq = ANY (was_scheduled) THEN NULL
            WHEN triage.refusal(p_queue, i.seq, i.slot, i.ready_ms) = 'message-not-found'
                THEN 'message-not-found'
            ELSE 'not-pending' END
    FROM unnest(p_seq, p_slot, p_ready_ms) WITH ORDINALITY i (seq, slot, ready_ms, place);
END $$;

-- Cancels up to p_max scheduled and ready messages with seq < p_before; returns how many.
CREATE FUNCTION triage.engine_purge(p_queue int, p_version int, p_max int, p_before bigint,
                                    p_now bigint DEFAULT NULL) RETURNS int
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    seqs bigint[];
    floors bigint[] := triage.floors(p_queue);
BEGIN
    seqs := ARRAY(
        SELECT head.seq
        FROM unnest(floors) WITH ORDINALITY f (floor_ms, place)
            CROSS JOIN LATERAL (
                SELECT r.seq FROM triage.ready r
                WHERE r.queue = p_queue AND r.slot = f.place - 1 AND r.ready_ms >= f.floor_ms
                    AND r.seq < p_before
                ORDER BY r.ready_ms, r.seq LIMIT p_max FOR UPDATE SKIP LOCKED) head
        LIMIT p_max);
    seqs := seqs || ARRAY(
        SELECT s.seq FROM triage.scheduled s WHERE s.queue = p_queue AND s.seq < p_before
        ORDER BY s.seq LIMIT p_max - cardinality(seqs) FOR UPDATE SKIP LOCKED);
    RETURN triage.end_pending(q, seqs, 'cancelled', coalesce(p_now, triage.now_ms()));
END $$;

-- Which dead letters are meant: these, or in order up to p_max with p_after < seq < p_before.
CREATE FUNCTION triage.dead_chosen(p_queue int, p_seq bigint[], p_slot smallint[],
    p_ready_ms bigint[], p_max int, p_after bigint, p_before bigint) RETURNS tid[]
LANGUAGE plpgsql AS $$
BEGIN
    IF p_seq IS NOT NULL THEN
        RETURN ARRAY(
            SELECT r.at FROM unnest(p_seq, p_slot, p_ready_ms) i (seq, slot, ready_ms)
                CROSS JOIN LATERAL (
                    SELECT d.ctid AS at FROM triage.dead d
                    WHERE d.queue = p_queue AND d.seq = i.seq AND d.born_slot = i.slot
                        AND d.born_ms = i.ready_ms
                    OFFSET 0 FOR UPDATE) r);
    END IF;
    RETURN ARRAY(
        SELECT d.ctid FROM triage.dead d
        WHERE d.queue = p_queue AND d.seq > p_after AND d.seq < p_before
        ORDER BY d.seq LIMIT p_max FOR UPDATE SKIP LOCKED);
END $$;

-- Dead letters back to ready: at their old place, attempts 0, at p_to unless that is NULL. Returns
-- how many, and the highest seq among them.
CREATE FUNCTION triage.engine_redrive(p_queue int, p_version int, p_seq bigint[],
    p_slot smallint[], p_ready_ms bigint[], p_max int, p_after bigint, p_before bigint,
    p_to smallint, p_now bigint DEFAULT NULL, OUT redriven int, OUT last_seq bigint)
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    chosen tid[] := triage.dead_chosen(p_queue, p_seq, p_slot, p_ready_ms, p_max, p_after,
                                          p_before);
BEGIN
    WITH gone AS (
        DELETE FROM triage.dead WHERE ctid = ANY (chosen) RETURNING *),
    back AS (
        INSERT INTO triage.ready
        SELECT g.seq, least(g.ready_ms, now_ms), g.born_ms, g.enqueued_ms, g.queue, 0,
            coalesce(p_to, g.slot), g.born_slot, g.kind, g.payload, g.large, g.metadata,
            g.dedup_key, NULL, g.reason, g.escalated_ms, g.escalated_by, g.escalated_why
        FROM gone g),
    counted AS (
        INSERT INTO triage.tally (low_ms, queue, slot, dead, ready, bytes, redriven)
        SELECT NULL, p_queue, g.slot, -count(*), NULL, NULL, NULL FROM gone g GROUP BY g.slot
        UNION ALL
        SELECT min(least(g.ready_ms, now_ms)), p_queue, coalesce(p_to, g.slot), NULL, count(*),
            sum(triage.size_of(g.large, g.payload, g.metadata)),
            count(*)
        FROM gone g GROUP BY coalesce(p_to, g.slot))
    SELECT count(*), max(g.seq) INTO redriven, last_seq FROM gone g;
    IF redriven > 0 THEN
        PERFORM triage.notify(p_queue, now_ms);
    END IF;
END $$;

-- The same selection; they are gone.
CREATE FUNCTION triage.engine_dead_drop(p_queue int, p_version int, p_seq bigint[],
    p_slot smallint[], p_ready_ms bigint[], p_max int, p_after bigint, p_before bigint,
    OUT dropped int, OUT last_seq bigint)
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    chosen tid[] := triage.dead_chosen(p_queue, p_seq, p_slot, p_ready_ms, p_max, p_after,
                                          p_before);
    large bigint[];
    keyed bigint[];
    keys bytea[];
BEGIN
    WITH gone AS (
        DELETE FROM triage.dead WHERE ctid = ANY (chosen) RETURNING *),
    counted AS (
        INSERT INTO triage.tally (queue, slot, dead, cancelled)
        SELECT p_queue, g.slot, -count(*), count(*) FROM gone g GROUP BY g.slot)
    SELECT count(*), max(g.seq), array_agg(g.seq) FILTER (WHERE g.payload IS NULL),
        array_agg(g.seq) FILTER (WHERE g.dedup_key IS NOT NULL),
        array_agg(g.dedup_key) FILTER (WHERE g.dedup_key IS NOT NULL)
    INTO dropped, last_seq, large, keyed, keys
    FROM gone g;
    PERFORM triage.forget(p_queue, large, keyed, keys);
END $$;
