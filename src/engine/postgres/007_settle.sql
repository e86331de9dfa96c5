-- The verbs that need a receipt: ack, nack, release, extend; and what the end of a lease does.
--
-- Items come as arrays: the id's seq, slot and first ready time, and the receipt. Each gets a
-- row back, in order.

CREATE TYPE triage.settled AS (
    place int,
    status text,       -- NULL: done
    state text,        -- in which the message is now
    slot smallint,     -- of the message, for ack and extend
    until_ms bigint    -- for extend
);

CREATE FUNCTION triage.backoff_ms(q triage.queue, p_attempts int) RETURNS bigint
LANGUAGE sql VOLATILE
RETURN CASE q.backoff WHEN 'none' THEN 0 ELSE
    round(least(q.backoff_max_ms,
                CASE q.backoff WHEN 'fixed' THEN q.backoff_base_ms
                    ELSE q.backoff_base_ms * 2.0 ^ least(p_attempts - 1, 60) END)::numeric
          * (1 + q.backoff_jitter * (2 * random() - 1))::numeric)::bigint END;

-- Ends the leases of these messages, which the caller has locked. p_why: 'nack', 'release' or
-- 'lease'. Returns the state that each is in now.
CREATE FUNCTION triage.give_back(q triage.queue, p_seq bigint[], p_why text, p_delay_ms bigint,
    p_reason text, p_now bigint) RETURNS TABLE (seq bigint, state text)
LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    large bigint[];
    keyed bigint[];
    keys bytea[];
    seqs bigint[];
    states text[];
    failed boolean := p_why <> 'release';
BEGIN
    WITH gone AS (
        DELETE FROM triage.leased WHERE leased.seq = ANY (p_seq) RETURNING *),
    timed AS MATERIALIZED (
        SELECT g.*, CASE WHEN NOT failed THEN 0
            ELSE coalesce(p_delay_ms, triage.backoff_ms(q, g.attempts)) END AS delay_ms
        FROM gone g),
    fate AS MATERIALIZED (
        SELECT t.*, CASE
                WHEN failed AND t.attempts >= q.max_attempts THEN 'dead'
                WHEN t.expire_ms <= p_now AND q.expired = 'dead' THEN 'dead'
                WHEN t.expire_ms <= p_now THEN 'expired'
                WHEN t.delay_ms > 0 THEN 'scheduled'
                ELSE 'ready' END AS state,
            t.attempts - (NOT failed)::int AS attempts_left,
            CASE WHEN failed AND t.attempts >= q.max_attempts THEN p_reason
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

-- Nack (p_release false) and release. p_delay_ms NULL: the queue's backoff.
CREATE FUNCTION triage.engine_return(p_queue int, p_version int, p_seq bigint[],
    p_slot smallint[], p_ready_ms bigint[], p_receipt bytea[], p_release boolean,
    p_delay_ms bigint, p_reason text, p_now bigint DEFAULT NULL) RETURNS SETOF triage.settled
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    places int[];
    seqs bigint[];
    states jsonb;
BEGIN
    -- The first of two items for one message is the one that counts.
    SELECT array_agg(v.place), array_agg(v.seq) INTO places, seqs
    FROM (SELECT DISTINCT ON (r.seq) r.seq, i.place::int AS place
          FROM unnest(p_seq, p_slot, p_ready_ms, p_receipt) WITH ORDINALITY
                  i (seq, slot, ready_ms, receipt, place)
              CROSS JOIN LATERAL (
                  SELECT * FROM triage.leased l WHERE l.seq = i.seq
                  OFFSET 0 FOR UPDATE) r
          WHERE r.receipt = i.receipt AND r.until_ms > now_ms AND r.queue = p_queue
              AND r.born_slot = i.slot AND r.born_ms = i.ready_ms
          ORDER BY r.seq, i.place) v;
    SELECT jsonb_object_agg(g.seq, g.state) INTO states
    FROM triage.give_back(q, seqs, CASE WHEN p_release THEN 'release' ELSE 'nack' END, p_delay_ms,
                          p_reason, now_ms) g;
    RETURN QUERY
    SELECT i.place::int, r.refusal, CASE WHEN r.refusal IS NULL THEN states->>i.seq::text END,
        NULL::smallint, NULL::bigint
    FROM unnest(p_seq, p_slot, p_ready_ms) WITH ORDINALITY i (seq, slot, ready_ms, place)
        CROSS JOIN LATERAL (
            SELECT CASE WHEN i.place::int = ANY (places) THEN NULL
                ELSE triage.refusal(p_queue, i.seq, i.slot, i.ready_ms) END AS refusal) r;
END $$;

-- The leases end p_lease_ms from now.
CREATE FUNCTION triage.engine_extend(p_queue int, p_version int, p_seq bigint[],
    p_slot smallint[], p_ready_ms bigint[], p_receipt bytea[], p_lease_ms bigint,
    p_now bigint DEFAULT NULL) RETURNS SETOF triage.settled
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    item record;
    found_slot smallint;
BEGIN
    FOR item IN SELECT * FROM unnest(p_seq, p_slot, p_ready_ms, p_receipt) WITH ORDINALITY
        i (seq, slot, ready_ms, receipt, place)
    LOOP
        UPDATE triage.leased l SET until_ms = now_ms + p_lease_ms, lease_ms = p_lease_ms
        WHERE l.seq = item.seq AND l.receipt = item.receipt
            AND l.until_ms + 0 > now_ms -- not by leased_until, which looks as good to the planner
            AND l.queue = q.id AND l.born_slot = item.slot AND l.born_ms = item.ready_ms
        RETURNING l.slot INTO found_slot;
        IF FOUND THEN
            RETURN NEXT (item.place, NULL, 'leased', found_slot,
                         now_ms + p_lease_ms)::triage.settled;
        ELSE
            RETURN NEXT (item.place, triage.refusal(q.id, item.seq, item.slot, item.ready_ms),
                         NULL, NULL, NULL)::triage.settled;
        END IF;
    END LOOP;
END $$;
