-- What needs no receipt: looking, escalating, cancelling, purging, dead letters.

CREATE VIEW triage.everything AS
    SELECT 'ready'::text AS state, m.*, NULL::bigint AS until_ms, NULL::bigint AS lease_ms,
        NULL::bytea AS receipt, NULL::bigint AS ended_ms FROM triage.ready m
    UNION ALL SELECT 'scheduled', m.*, NULL, NULL, NULL, NULL FROM triage.scheduled m
    UNION ALL SELECT 'leased', m.*, NULL FROM triage.leased m
    UNION ALL SELECT 'dead', m.seq, m.ready_ms, m.born_ms, m.enqueued_ms, m.queue, m.attempts,
        m.slot, m.born_slot, m.kind, m.payload, m.large, m.metadata, m.dedup_key, m.expire_ms,
        m.reason, m.escalated_ms, m.escalated_by, m.escalated_why, m.escalated_from,
        NULL, NULL, NULL, m.ended_ms
        FROM triage.dead m
    UNION ALL SELECT 'done', m.seq, m.ready_ms, m.born_ms, m.enqueued_ms, m.queue, m.attempts,
        m.slot, m.born_slot, m.kind, m.payload, m.large, m.metadata, m.dedup_key, m.expire_ms,
        m.reason, m.escalated_ms, m.escalated_by, m.escalated_why, m.escalated_from,
        NULL, NULL, NULL, m.ended_ms
        FROM triage.history m;

-- The message with its payload, wherever that is.
CREATE FUNCTION triage.with_body(m triage.everything) RETURNS triage.everything
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF m.payload IS NULL THEN
        m.payload := (SELECT b.payload FROM triage.body b WHERE b.seq = m.seq);
    END IF;
    RETURN m;
END $$;

CREATE FUNCTION triage.without_body(m triage.everything) RETURNS triage.everything
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    m.payload := NULL;
    RETURN m;
END $$;

-- The pages of engine_list() with p_slots.
CREATE FUNCTION triage.list_pending(p_queue int, p_phase int, p_slot smallint, p_ready_ms bigint,
                                    p_seq bigint, p_limit int, p_slots smallint[])
RETURNS TABLE (phase int, message triage.everything)
LANGUAGE plpgsql STABLE ROWS 100 AS $$
DECLARE
    after_ms bigint := CASE WHEN p_slot < 0 THEN -140737488355328 ELSE p_ready_ms END;
    after_seq bigint := p_seq;
    found int := 0;
    more int;
BEGIN
    IF p_phase = 0 THEN
        FOR lane IN coalesce(array_position(p_slots, p_slot), 1)..cardinality(p_slots) LOOP
            RETURN QUERY
            SELECT 0, triage.without_body(m) FROM triage.everything m
            WHERE m.state = 'ready' AND m.queue = p_queue AND m.slot = p_slots[lane]
                AND (m.ready_ms, m.seq) > (after_ms, after_seq)
            ORDER BY m.ready_ms, m.seq LIMIT p_limit - found;
            GET DIAGNOSTICS more = ROW_COUNT;
            found := found + more;
            IF found >= p_limit THEN
                RETURN;
            END IF;
            after_ms := -140737488355328;
            after_seq := 0;
        END LOOP;
    END IF;
    RETURN QUERY
    SELECT 1, triage.without_body(m) FROM triage.everything m
    WHERE m.state = 'scheduled' AND m.queue = p_queue AND m.slot = ANY (p_slots)
        AND m.seq > CASE WHEN p_phase = 1 THEN p_seq ELSE 0 END
    ORDER BY m.seq LIMIT p_limit - found;
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
            g.born_slot, g.kind, g.payload, g.large, g.metadata, g.dedup_key, g.expire_ms, 'expired',
            g.escalated_ms, g.escalated_by, g.escalated_why, g.escalated_from, p_now
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

-- Cancels a scheduled or ready message. NULL, or the name of the refusal.
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

-- Gives messages another level. They keep their age. One row for each message, in order: the refusal,
-- or NULL; whether it had another level before, and which; and its state.
CREATE FUNCTION triage.engine_move(p_queue int, p_version int, p_seq bigint[], p_slot smallint[],
    p_ready_ms bigint[], p_to smallint, p_actor text, p_reason text, p_now bigint DEFAULT NULL)
RETURNS TABLE (place int, status text, changed boolean, state text, from_slot smallint)
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    was_ready bigint[];
    was_scheduled bigint[];
    slots jsonb;
    more jsonb;
BEGIN
    WITH old AS MATERIALIZED (
        SELECT DISTINCT ON (r.seq) r.seq, r.slot, r.ready_ms,
            triage.size_of(r.large, r.payload, r.metadata) AS size
        FROM unnest(p_seq, p_slot, p_ready_ms) i (seq, slot, ready_ms)
            CROSS JOIN LATERAL (
                SELECT * FROM triage.ready m WHERE m.seq = i.seq OFFSET 0 FOR UPDATE) r
        WHERE r.queue = p_queue AND r.born_slot = i.slot AND r.born_ms = i.ready_ms),
    other AS (SELECT * FROM old WHERE old.slot <> p_to),
    moved AS (
        UPDATE triage.ready m SET escalated_from = m.slot, slot = p_to, escalated_ms = now_ms,
            escalated_by = nullif(p_actor, ''), escalated_why = nullif(p_reason, '')
        WHERE m.seq = ANY (ARRAY(SELECT o.seq FROM other o))),
    counted AS (
        INSERT INTO triage.tally (low_ms, queue, slot, ready, bytes, escalated)
        SELECT NULL, p_queue, o.slot, -count(*), -sum(o.size), NULL FROM other o GROUP BY o.slot
        UNION ALL
        SELECT min(o.ready_ms), p_queue, p_to, count(*), sum(o.size), count(*) FROM other o
        HAVING count(*) > 0)
    SELECT array_agg(old.seq), coalesce(jsonb_object_agg(old.seq, old.slot), '{}')
    INTO was_ready, slots FROM old;
    WITH old AS MATERIALIZED (
        SELECT DISTINCT ON (r.seq) r.seq, r.slot,
            triage.size_of(r.large, r.payload, r.metadata) AS size
        FROM unnest(p_seq, p_slot, p_ready_ms) i (seq, slot, ready_ms)
            CROSS JOIN LATERAL (
                SELECT * FROM triage.scheduled m WHERE m.seq = i.seq OFFSET 0 FOR UPDATE) r
        WHERE r.queue = p_queue AND r.born_slot = i.slot AND r.born_ms = i.ready_ms),
    other AS (SELECT * FROM old WHERE old.slot <> p_to),
    moved AS (
        UPDATE triage.scheduled m SET escalated_from = m.slot, slot = p_to, escalated_ms = now_ms,
            escalated_by = nullif(p_actor, ''), escalated_why = nullif(p_reason, '')
        WHERE m.seq = ANY (ARRAY(SELECT o.seq FROM other o))),
    counted AS (
        INSERT INTO triage.tally (queue, slot, scheduled, bytes, escalated)
        SELECT p_queue, o.slot, -count(*), -sum(o.size), NULL FROM other o GROUP BY o.slot
        UNION ALL
        SELECT p_queue, p_to, count(*), sum(o.size), count(*) FROM other o HAVING count(*) > 0)
    SELECT array_agg(old.seq), coalesce(jsonb_object_agg(old.seq, old.slot), '{}')
    INTO was_scheduled, more FROM old;
    slots := slots || more;
    IF was_ready IS NOT NULL THEN
        PERFORM triage.notify(p_queue, now_ms);
    END IF;
    RETURN QUERY
    SELECT i.place::int,
        CASE WHEN slots ? i.seq::text THEN NULL
            WHEN triage.refusal(p_queue, i.seq, i.slot, i.ready_ms) = 'message-not-found'
                THEN 'message-not-found'
            ELSE 'not-pending' END,
        coalesce((slots->>i.seq::text)::smallint <> p_to, false),
        CASE WHEN i.seq = ANY (was_ready) THEN 'ready'
            WHEN i.seq = ANY (was_scheduled) THEN 'scheduled' END,
        (slots->>i.seq::text)::smallint
    FROM unnest(p_seq, p_slot, p_ready_ms) WITH ORDINALITY i (seq, slot, ready_ms, place);
END $$;

-- How many ready messages stand before each place. Counted up to 10,000, estimated beyond.
CREATE FUNCTION triage.engine_count(p_queue int, p_slot smallint[], p_ready_ms bigint[],
                                    p_seq bigint[])
RETURNS TABLE (place int, before bigint, exact boolean)
LANGUAGE plpgsql STABLE ROWS 16
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    floors bigint[] := triage.floors(p_queue);
    most CONSTANT int := 10000;
    item record;
    total bigint;
    first_ms bigint;
    last_ms bigint;
BEGIN
    FOR item IN SELECT * FROM unnest(p_slot, p_ready_ms, p_seq) WITH ORDINALITY
        i (slot, ready_ms, seq, at)
    LOOP
        place := item.at;
        exact := true;
        SELECT coalesce(sum(c.ready), 0) INTO total FROM triage.counts(p_queue) c
        WHERE c.slot = item.slot;
        IF item.ready_ms = 9223372036854775807 THEN
            before := total;
            RETURN NEXT;
            CONTINUE;
        END IF;
        SELECT count(*) INTO before FROM (
            SELECT FROM triage.ready r
            WHERE r.queue = p_queue AND r.slot = item.slot AND r.ready_ms >= floors[item.slot + 1]
                AND (r.ready_ms, r.seq) < (item.ready_ms, item.seq)
            ORDER BY r.ready_ms, r.seq LIMIT most) n;
        IF before = most THEN
            exact := false;
            SELECT r.ready_ms INTO first_ms FROM triage.ready r
            WHERE r.queue = p_queue AND r.slot = item.slot AND r.ready_ms >= floors[item.slot + 1]
            ORDER BY r.ready_ms, r.seq LIMIT 1;
            SELECT r.ready_ms INTO last_ms FROM triage.ready r
            WHERE r.queue = p_queue AND r.slot = item.slot
            ORDER BY r.ready_ms DESC, r.seq DESC LIMIT 1;
            before := greatest(most, round(total * (least(item.ready_ms, last_ms) - first_ms)::float8
                                           / greatest(last_ms - first_ms, 1))::bigint);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- Cancels up to p_max scheduled and ready messages with seq < p_before; p_before NULL means all
-- that there are now. Returns how many, and p_before for the next portion.
CREATE FUNCTION triage.engine_purge(p_queue int, p_version int, p_max int, p_before bigint,
    p_now bigint DEFAULT NULL, OUT purged int, OUT before bigint)
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    seqs bigint[];
    floors bigint[] := triage.floors(p_queue);
BEGIN
    before := coalesce(p_before, (SELECT n.last_value + n.is_called::int FROM triage.seq n));
    seqs := ARRAY(
        SELECT head.seq
        FROM unnest(floors) WITH ORDINALITY f (floor_ms, place)
            CROSS JOIN LATERAL (
                SELECT r.seq FROM triage.ready r
                WHERE r.queue = p_queue AND r.slot = f.place - 1 AND r.ready_ms >= f.floor_ms
                    AND r.seq < before
                ORDER BY r.ready_ms, r.seq LIMIT p_max FOR UPDATE SKIP LOCKED) head
        LIMIT p_max);
    seqs := seqs || ARRAY(
        SELECT s.seq FROM triage.scheduled s WHERE s.queue = p_queue AND s.seq < before
        ORDER BY s.seq LIMIT p_max - cardinality(seqs) FOR UPDATE SKIP LOCKED);
    purged := triage.end_pending(q, seqs, 'cancelled', coalesce(p_now, triage.now_ms()));
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
            g.dedup_key, NULL, g.reason, g.escalated_ms, g.escalated_by, g.escalated_why, g.escalated_from
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

-- Drops dead letters for good. The parameters choose them as above.
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
