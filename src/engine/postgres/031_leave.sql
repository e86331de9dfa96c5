-- Messages that leave for another store. One that is leaving is a leased row without an end
-- (until_ms) whose lease_ms is below 0: nobody can claim, cancel, escalate or redrive it, and no
-- sweep finds it. lease_ms says when it died, if it was a dead letter: see leaving_ms() in
-- core/message.h.

-- Lets messages leave, with receipts of the caller's choice. One that leaves with p_from already
-- gets the new receipt. One row for each item, in order: a status, or the message as it is now.
-- p_epoch: see place_refuses(). Messages leave a closed place only, and by the newest epoch.
CREATE OR REPLACE FUNCTION triage.engine_leave(p_queue int, p_version int, p_seq bigint[],
    p_slot smallint[], p_ready_ms bigint[], p_from bytea[], p_receipt bytea[], p_epoch bigint)
RETURNS TABLE (place int, status text, message triage.everything)
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_kept(p_queue, p_version);
BEGIN
    IF q.place_epoch > 0 AND (NOT q.place_closed OR p_epoch < q.place_epoch) THEN
        RETURN QUERY SELECT n, 'moved', NULL::triage.everything
            FROM generate_series(1, cardinality(p_seq)) n;
        RETURN;
    END IF;
    WITH item AS MATERIALIZED (
        SELECT * FROM unnest(p_seq, p_slot, p_ready_ms, p_from, p_receipt) WITH ORDINALITY
            i (seq, slot, ready_ms, from_receipt, receipt, place)),
    gone_ready AS (
        DELETE FROM triage.ready WHERE ctid = ANY (ARRAY(
            SELECT r.at FROM item i CROSS JOIN LATERAL (
                SELECT m.ctid AS at, m.* FROM triage.ready m WHERE m.seq = i.seq
                OFFSET 0 FOR UPDATE) r
            WHERE r.queue = p_queue AND r.born_slot = i.slot AND r.born_ms = i.ready_ms))
        RETURNING *),
    gone_scheduled AS (
        DELETE FROM triage.scheduled WHERE ctid = ANY (ARRAY(
            SELECT r.at FROM item i CROSS JOIN LATERAL (
                SELECT m.ctid AS at, m.* FROM triage.scheduled m WHERE m.seq = i.seq
                OFFSET 0 FOR UPDATE) r
            WHERE r.queue = p_queue AND r.born_slot = i.slot AND r.born_ms = i.ready_ms))
        RETURNING *),
    gone_dead AS (
        DELETE FROM triage.dead WHERE ctid = ANY (ARRAY(
            SELECT r.at FROM item i CROSS JOIN LATERAL (
                SELECT m.ctid AS at, m.* FROM triage.dead m WHERE m.seq = i.seq
                OFFSET 0 FOR UPDATE) r
            WHERE r.queue = p_queue AND r.born_slot = i.slot AND r.born_ms = i.ready_ms))
        RETURNING *),
    gone AS (
        SELECT 'ready' AS was, r.*, NULL::bigint AS ended_ms FROM gone_ready r
        UNION ALL SELECT 'scheduled', s.*, NULL FROM gone_scheduled s
        UNION ALL SELECT 'dead', d.* FROM gone_dead d),
    leaving AS (
        INSERT INTO triage.leased
        SELECT g.seq, g.ready_ms, g.born_ms, g.enqueued_ms, g.queue, g.attempts, g.slot,
            g.born_slot, g.kind, g.payload, g.large, g.metadata, g.dedup_key, g.expire_ms, g.reason,
            g.escalated_ms, g.escalated_by, g.escalated_why, g.escalated_from, @TIME_MS_MAX@,
            CASE WHEN g.was = 'dead' THEN g.ended_ms - @TIME_MS_MAX@ - 3 ELSE -1 END,
            (SELECT i.receipt FROM item i WHERE i.seq = g.seq ORDER BY i.place LIMIT 1)
        FROM gone g),
    again AS (
        UPDATE triage.leased l SET receipt = i.receipt FROM item i
        WHERE l.seq = i.seq AND l.queue = p_queue AND l.lease_ms < 0
            AND l.receipt = i.from_receipt AND l.receipt <> i.receipt)
    INSERT INTO triage.tally (queue, slot, ready, scheduled, dead, bytes, leased, claimed)
    SELECT p_queue, g.slot, -count(*) FILTER (WHERE g.was = 'ready'),
        -count(*) FILTER (WHERE g.was = 'scheduled'), -count(*) FILTER (WHERE g.was = 'dead'),
        -coalesce(sum(triage.size_of(g.large, g.payload, g.metadata))
                  FILTER (WHERE g.was <> 'dead'), 0),
        count(*), count(*)
    FROM gone g GROUP BY g.slot;
    RETURN QUERY
    SELECT i.place::int, s.status, CASE WHEN s.status IS NULL THEN triage.with_body(m) END
    FROM unnest(p_seq, p_slot, p_ready_ms, p_receipt) WITH ORDINALITY
            i (seq, slot, ready_ms, receipt, place)
        LEFT JOIN LATERAL (
            SELECT * FROM triage.everything e WHERE e.seq = i.seq OFFSET 0) m
            ON m.queue = p_queue AND m.born_slot = i.slot AND m.born_ms = i.ready_ms
                AND m.state = 'leased' AND m.lease_ms < 0
        CROSS JOIN LATERAL (
            SELECT CASE WHEN m.receipt = i.receipt THEN NULL
                WHEN m.seq IS NOT NULL THEN 'receipt-expired'
                WHEN triage.refusal(p_queue, i.seq, i.slot, i.ready_ms) = 'message-not-found'
                    THEN 'message-not-found'
                ELSE 'not-pending' END AS status) s
    ORDER BY i.place;
END $$;

-- Up to p_limit messages that are leaving.
CREATE OR REPLACE FUNCTION triage.engine_leaving(p_queue int, p_limit int)
RETURNS TABLE (place int, status text, message triage.everything)
LANGUAGE plpgsql STABLE ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT (row_number() OVER ())::int, NULL::text, triage.with_body(m)
    FROM (SELECT l.seq FROM triage.leased l
          WHERE l.until_ms = @TIME_MS_MAX@ AND l.queue = p_queue AND l.lease_ms < 0
          LIMIT p_limit) i
        CROSS JOIN LATERAL (
            SELECT * FROM triage.everything e WHERE e.seq = i.seq OFFSET 0) m;
END $$;

-- Messages have arrived elsewhere: they end here, and their dedup keys with them. One row for each
-- item, in order.
CREATE OR REPLACE FUNCTION triage.engine_left(p_queue int, p_version int, p_seq bigint[],
    p_slot smallint[], p_ready_ms bigint[], p_receipt bytea[])
RETURNS TABLE (place int, status text)
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    done bigint[];
    large bigint[];
    keyed bigint[];
    keys bytea[];
BEGIN
    WITH gone AS (
        DELETE FROM triage.leased WHERE ctid = ANY (ARRAY(
            SELECT r.at
            FROM unnest(p_seq, p_slot, p_ready_ms, p_receipt) i (seq, slot, ready_ms, receipt)
                CROSS JOIN LATERAL (
                    SELECT l.ctid AS at, l.* FROM triage.leased l WHERE l.seq = i.seq
                    OFFSET 0 FOR UPDATE) r
            WHERE r.receipt = i.receipt AND r.lease_ms < 0 AND r.queue = p_queue
                AND r.born_slot = i.slot AND r.born_ms = i.ready_ms))
        RETURNING *),
    counted AS (
        INSERT INTO triage.tally (queue, slot, leased, released, cancelled)
        SELECT q.id, g.slot, -count(*), count(*), count(*) FROM gone g GROUP BY g.slot)
    SELECT array_agg(g.seq), array_agg(g.seq) FILTER (WHERE g.payload IS NULL),
        array_agg(g.seq) FILTER (WHERE g.dedup_key IS NOT NULL),
        array_agg(g.dedup_key) FILTER (WHERE g.dedup_key IS NOT NULL)
    INTO done, large, keyed, keys
    FROM gone g;
    PERFORM triage.forget(p_queue, large, NULL, NULL);
    DELETE FROM triage.dedup WHERE ctid = ANY (ARRAY(
        SELECT r.at FROM unnest(keyed, keys) k (seq, key) CROSS JOIN LATERAL (
            SELECT d.ctid AS at FROM triage.dedup d
            WHERE d.queue = p_queue AND d.key = k.key AND d.seq = k.seq OFFSET 0) r));
    RETURN QUERY
    SELECT i.place::int,
        CASE WHEN i.seq = ANY (done) AND i.nth = 1 THEN NULL
            ELSE triage.refusal(p_queue, i.seq, i.slot, i.ready_ms) END
    FROM (SELECT *, row_number() OVER (PARTITION BY t.seq, t.receipt ORDER BY t.place) AS nth
          FROM unnest(p_seq, p_slot, p_ready_ms, p_receipt) WITH ORDINALITY
              t (seq, slot, ready_ms, receipt, place)) i
    ORDER BY i.place;
END $$;
