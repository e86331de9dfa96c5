-- Places: which part of a larger queue a queue is. Servers that spread a queue over several
-- databases set one in each of them. A put that was made by an older place is refused here, in its
-- own transaction.

ALTER TABLE triage.queue
    ADD COLUMN IF NOT EXISTS place_epoch bigint NOT NULL DEFAULT 0 -- it has none
        CHECK (place_epoch >= 0),
    ADD COLUMN IF NOT EXISTS place_closed boolean NOT NULL DEFAULT false, -- no new messages come in
    ADD COLUMN IF NOT EXISTS place_map text NOT NULL DEFAULT '' -- the servers' own
        CHECK (octet_length(place_map) <= @PLACE_MAP_MAX@);

-- Sets the place of a queue, if it is newer; `stale`: it is not. The other columns say which place
-- the queue has then, and engine_config() has it too. Whoever puts something in has committed, or
-- sees the new place. The version stays, because the configuration does.
CREATE OR REPLACE FUNCTION triage.engine_queue_place(p_queue int, p_epoch bigint, p_closed boolean,
    p_map text, OUT status text, OUT stale boolean, OUT place_epoch bigint, OUT place_closed boolean,
    OUT place_map text)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7425, p_queue);
    UPDATE triage.queue q SET place_epoch = p_epoch, place_closed = p_closed, place_map = p_map
    WHERE q.id = p_queue AND NOT q.deleted AND q.place_epoch < p_epoch;
    stale := NOT FOUND;
    SELECT q.place_epoch, q.place_closed, q.place_map INTO place_epoch, place_closed, place_map
    FROM triage.queue q WHERE q.id = p_queue AND NOT q.deleted;
    IF NOT FOUND THEN
        status := 'queue-not-found';
    ELSIF NOT stale THEN
        PERFORM pg_notify('triage', 'queues');
    END IF;
END $$;

-- Whether the place of a queue refuses what is put by this epoch. NULL: nothing is refused.
CREATE OR REPLACE FUNCTION triage.place_refuses(q triage.queue, p_epoch bigint) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(p_epoch < q.place_epoch OR p_epoch IS NOT NULL AND q.place_closed, false)
$$;

-- The epoch of those who know of no places: only a closed one refuses them.
CREATE OR REPLACE FUNCTION triage.any_epoch() RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT 9223372036854775807 $$;

-- The answer to a put that a place refuses. One without items is refused, too: with one row.
CREATE OR REPLACE FUNCTION triage.put_moved(p_count int) RETURNS SETOF triage.put_result
LANGUAGE sql IMMUTABLE ROWS 100 AS $$
    SELECT n, 'moved', NULL::smallint, NULL::bigint, NULL::bigint, NULL::bigint, false
    FROM generate_series(1, greatest(p_count, 1)) n
$$;

-- Stores the items of the arrays. ready_ms NULL: delay_ms from now. ttl_ms NULL: the queue's own;
-- 0: none. An array that is NULL has only NULLs. One row for each item, in order. p_epoch: see
-- place_refuses().
CREATE OR REPLACE FUNCTION triage.engine_put_at(p_queue int, p_version int, p_slot smallint[],
    p_payload bytea[], p_kind smallint[], p_metadata text[], p_key bytea[], p_ready_ms bigint[],
    p_delay_ms bigint[], p_ttl_ms bigint[], p_now bigint, p_epoch bigint)
RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_kept(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
BEGIN
    IF q.place_epoch > 0 AND triage.place_refuses(q, p_epoch) THEN
        RETURN QUERY SELECT * FROM triage.put_moved(cardinality(p_slot));
        RETURN;
    END IF;
    IF p_key IS NULL AND q.max_depth = 0 AND q.max_bytes = 0 THEN
        RETURN QUERY
        WITH item AS MATERIALIZED (
            SELECT i.place, i.slot, i.payload, i.kind, i.metadata, nextval('triage.seq') AS seq,
                CASE WHEN octet_length(i.payload) > 2000 THEN octet_length(i.payload) END AS large,
                coalesce(i.ready_ms, now_ms + coalesce(i.delay_ms, 0)) AS ready_ms,
                now_ms + nullif(coalesce(i.ttl_ms, q.ttl_ms), 0) AS expire_ms
            FROM unnest(p_slot, p_payload, p_kind, p_metadata, p_ready_ms, p_delay_ms, p_ttl_ms)
                WITH ORDINALITY
                i (slot, payload, kind, metadata, ready_ms, delay_ms, ttl_ms, place)),
        large AS (
            INSERT INTO triage.body (seq, payload)
            SELECT i.seq, i.payload FROM item i WHERE i.large IS NOT NULL),
        now_ready AS (
            INSERT INTO triage.ready (seq, ready_ms, born_ms, enqueued_ms, queue, attempts, slot,
                born_slot, kind, payload, large, metadata, expire_ms)
            SELECT i.seq, i.ready_ms, i.ready_ms, now_ms, q.id, 0, i.slot, i.slot, i.kind,
                CASE WHEN i.large IS NULL THEN i.payload END, i.large, i.metadata, i.expire_ms
            FROM item i WHERE i.ready_ms <= now_ms),
        later AS (
            INSERT INTO triage.scheduled (seq, ready_ms, born_ms, enqueued_ms, queue, attempts,
                slot, born_slot, kind, payload, large, metadata, expire_ms)
            SELECT i.seq, i.ready_ms, i.ready_ms, now_ms, q.id, 0, i.slot, i.slot, i.kind,
                CASE WHEN i.large IS NULL THEN i.payload END, i.large, i.metadata, i.expire_ms
            FROM item i WHERE i.ready_ms > now_ms),
        counted AS (
            INSERT INTO triage.tally (low_ms, queue, slot, ready, scheduled, bytes, enqueued)
            SELECT min(i.ready_ms) FILTER (WHERE i.ready_ms <= now_ms), q.id, i.slot,
                count(*) FILTER (WHERE i.ready_ms <= now_ms),
                count(*) FILTER (WHERE i.ready_ms > now_ms),
                sum(triage.size_of(NULL, i.payload, i.metadata)), count(*)
            FROM item i GROUP BY i.slot)
        SELECT i.place::int, NULL::text, i.slot, i.ready_ms, i.seq, now_ms, false FROM item i;
    ELSE
        RETURN QUERY SELECT * FROM triage.put_careful(q, p_slot, p_payload, p_kind, p_metadata,
            p_key, p_ready_ms, p_delay_ms, p_ttl_ms, now_ms);
    END IF;
    IF EXISTS (SELECT FROM triage.waiting w WHERE w.queue = p_queue AND w.until_ms > now_ms)
        AND EXISTS (SELECT FROM unnest(p_slot, p_ready_ms, p_delay_ms) t (slot, ready_ms, delay_ms)
                    WHERE coalesce(ready_ms, now_ms + coalesce(delay_ms, 0)) <= now_ms) THEN
        PERFORM pg_notify('triage', p_queue::text);
    END IF;
END $$;

-- For servers of the version before, which know of no places.
CREATE OR REPLACE FUNCTION triage.engine_put(p_queue int, p_version int, p_slot smallint[],
    p_payload bytea[], p_kind smallint[], p_metadata text[], p_key bytea[], p_ready_ms bigint[],
    p_delay_ms bigint[], p_ttl_ms bigint[], p_now bigint DEFAULT NULL)
RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM triage.engine_put_at(p_queue, p_version, p_slot, p_payload, p_kind,
        p_metadata, p_key, p_ready_ms, p_delay_ms, p_ttl_ms, p_now, 0);
END $$;

-- For which messages the dedup keys stand: a put that stores nothing. A closed place does not
-- refuse it. One row for each item, in order.
CREATE OR REPLACE FUNCTION triage.engine_known(p_queue int, p_version int, p_slot smallint[],
    p_key bytea[], p_now bigint, p_epoch bigint) RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_kept(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
BEGIN
    IF p_epoch < q.place_epoch THEN
        RETURN QUERY SELECT * FROM triage.put_moved(cardinality(p_slot));
        RETURN;
    END IF;
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.place, i.slot AS meant, k.slot, k.ready_ms, k.seq, k.enqueued_ms
        FROM unnest(p_slot, p_key) WITH ORDINALITY i (slot, key, place)
        LEFT JOIN LATERAL (
            SELECT * FROM triage.dedup d
            WHERE d.queue = p_queue AND d.key = i.key AND coalesce(d.until_ms > now_ms, true)
            OFFSET 0) k ON true),
    counted AS (
        INSERT INTO triage.tally (queue, slot, deduplicated)
        SELECT p_queue, i.meant, count(*) FROM item i WHERE i.seq IS NOT NULL GROUP BY i.meant)
    SELECT i.place::int, CASE WHEN i.seq IS NULL THEN 'message-not-found' END, i.slot, i.ready_ms,
        i.seq, i.enqueued_ms, i.seq IS NOT NULL
    FROM item i ORDER BY i.place;
END $$;

-- Stores the items of the arrays as they were elsewhere. p_ended_ms NULL: it is not dead.
-- p_expire_ms NULL: it has no time to live. One row for each item, in order; `deduplicated`: it was
-- imported before. p_epoch: see place_refuses().
CREATE OR REPLACE FUNCTION triage.engine_import_at(p_queue int, p_version int, p_slot smallint[],
    p_payload bytea[], p_kind smallint[], p_metadata text[], p_key bytea[], p_ready_ms bigint[],
    p_enqueued_ms bigint[], p_expire_ms bigint[], p_attempts int[], p_ended_ms bigint[],
    p_reason text[], p_escalated_ms bigint[], p_escalated_by text[], p_escalated_why text[],
    p_escalated_from smallint[], p_origin bytea[], p_known_ms bigint,
    p_now bigint, p_epoch bigint)
RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_kept(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    puts triage.put_result[];
    overdue bigint[];
BEGIN
    IF q.place_epoch > 0 AND triage.place_refuses(q, p_epoch) THEN
        RETURN QUERY SELECT * FROM triage.put_moved(cardinality(p_slot));
        RETURN;
    END IF;
    puts := ARRAY(
        SELECT p FROM triage.import_identify(q, p_slot, p_key, p_ready_ms, p_enqueued_ms, p_origin,
                                             p_known_ms, now_ms) p ORDER BY p.place);
    WITH item AS MATERIALIZED (
        SELECT i.payload, i.ended_ms, i.ended_ms IS NOT NULL AS is_dead,
            i.ended_ms IS NULL AND i.ready_ms <= now_ms AS is_ready,
            (puts[i.place].seq, i.ready_ms, i.ready_ms, i.enqueued_ms, q.id, i.attempts, i.slot,
             i.slot, i.kind, CASE WHEN octet_length(i.payload) <= 2000 THEN i.payload END,
             CASE WHEN octet_length(i.payload) > 2000 THEN octet_length(i.payload) END, i.metadata,
             i.key, i.expire_ms, i.reason, i.escalated_ms, i.escalated_by, i.escalated_why,
             i.escalated_from)::triage.ready AS m
        FROM unnest(p_slot, p_payload, p_kind, p_metadata, p_key, p_ready_ms, p_enqueued_ms,
                    p_expire_ms, p_attempts, p_ended_ms, p_reason, p_escalated_ms, p_escalated_by,
                    p_escalated_why, p_escalated_from) WITH ORDINALITY
            i (slot, payload, kind, metadata, key, ready_ms, enqueued_ms, expire_ms, attempts,
               ended_ms, reason, escalated_ms, escalated_by, escalated_why, escalated_from, place)
        WHERE NOT puts[i.place].deduplicated),
    large AS (
        INSERT INTO triage.body (seq, payload)
        SELECT (i.m).seq, i.payload FROM item i WHERE (i.m).large IS NOT NULL),
    dead AS (INSERT INTO triage.dead SELECT (i.m).*, i.ended_ms FROM item i WHERE i.is_dead),
    now_ready AS (INSERT INTO triage.ready SELECT (i.m).* FROM item i WHERE i.is_ready),
    later AS (
        INSERT INTO triage.scheduled
        SELECT (i.m).* FROM item i WHERE NOT i.is_ready AND NOT i.is_dead),
    counted AS (
        INSERT INTO triage.tally (low_ms, queue, slot, ready, scheduled, dead, died, bytes,
            enqueued)
        SELECT min((i.m).ready_ms) FILTER (WHERE i.is_ready), q.id, (i.m).slot,
            count(*) FILTER (WHERE i.is_ready),
            count(*) FILTER (WHERE NOT i.is_ready AND NOT i.is_dead),
            count(*) FILTER (WHERE i.is_dead), count(*) FILTER (WHERE i.is_dead),
            coalesce(sum(triage.size_of((i.m).large, (i.m).payload, (i.m).metadata))
                     FILTER (WHERE NOT i.is_dead), 0), count(*)
        FROM item i GROUP BY (i.m).slot)
    SELECT array_agg((i.m).seq) INTO overdue
    FROM item i WHERE NOT i.is_dead AND (i.m).expire_ms <= now_ms;
    IF overdue IS NOT NULL THEN
        PERFORM triage.end_pending(q, overdue,
            CASE q.expired WHEN 'dead' THEN 'dead' ELSE 'expired' END, now_ms);
    END IF;
    PERFORM triage.notify(p_queue, now_ms);
    RETURN QUERY SELECT p.* FROM unnest(puts) p;
END $$;

-- For servers of the version before.
CREATE OR REPLACE FUNCTION triage.engine_import(p_queue int, p_version int, p_slot smallint[],
    p_payload bytea[], p_kind smallint[], p_metadata text[], p_key bytea[], p_ready_ms bigint[],
    p_enqueued_ms bigint[], p_expire_ms bigint[], p_attempts int[], p_ended_ms bigint[],
    p_reason text[], p_escalated_ms bigint[], p_escalated_by text[], p_escalated_why text[],
    p_escalated_from smallint[], p_origin bytea[], p_known_ms bigint,
    p_now bigint DEFAULT NULL)
RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM triage.engine_import_at(p_queue, p_version, p_slot, p_payload,
        p_kind, p_metadata, p_key, p_ready_ms, p_enqueued_ms, p_expire_ms, p_attempts, p_ended_ms,
        p_reason, p_escalated_ms, p_escalated_by, p_escalated_why, p_escalated_from, p_origin,
        p_known_ms, p_now, 0);
END $$;

-- Fires the due time p_due. Puts the message of the arrays, as engine_put() does, unless p_at (the
-- due time that the message is for) is not later than the last one that had a message; p_at NULL:
-- there is no message to put. No place refuses it. `stale`: p_due is no longer the next due time, or
-- another server is firing it. The row is never waited for, because whoever holds it may wait for a lock of this
-- transaction.
CREATE OR REPLACE FUNCTION triage.engine_fire(p_queue int, p_version int, p_name text, p_due bigint,
    p_next bigint, p_at bigint, p_made_up int, p_slot smallint[], p_payload bytea[],
    p_kind smallint[], p_metadata text[], p_key bytea[], p_delay_ms bigint[], p_ttl_ms bigint[],
    p_now bigint DEFAULT NULL,
    OUT known boolean, OUT stale boolean, OUT puts boolean, OUT put triage.put_result)
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    s triage.schedule;
BEGIN
    PERFORM triage.queue_kept(p_queue, p_version);
    SELECT * INTO s FROM triage.schedule t WHERE t.queue = p_queue AND t.name = p_name
    FOR UPDATE SKIP LOCKED;
    known := s.queue IS NOT NULL
        OR EXISTS (SELECT FROM triage.schedule t WHERE t.queue = p_queue AND t.name = p_name);
    stale := s.next_ms IS DISTINCT FROM p_due;
    puts := false;
    IF stale THEN
        RETURN;
    END IF;
    IF p_at > s.last_ms THEN
        SELECT * INTO put FROM triage.engine_put_at(p_queue, p_version, p_slot, p_payload, p_kind,
            p_metadata, p_key, NULL, p_delay_ms, p_ttl_ms, p_now, NULL);
        puts := true;
    END IF;
    IF put.status IS NOT NULL THEN
        UPDATE triage.schedule t SET show_ms = coalesce(p_now, triage.now_ms()) + 1000
        WHERE t.queue = p_queue AND t.name = p_name;
        RETURN;
    END IF;
    UPDATE triage.schedule t SET next_ms = p_next,
        show_ms = greatest(p_next, coalesce(p_now, triage.now_ms())), made_up = p_made_up,
        last_ms = CASE WHEN puts THEN p_at ELSE t.last_ms END, count = t.count + puts::int
    WHERE t.queue = p_queue AND t.name = p_name;
END $$;

-- The SQL interface

CREATE OR REPLACE FUNCTION triage.expect_put(q triage.queue, p_status text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_status = 'queue-full' THEN
        PERFORM triage.refuse(429, p_status, format('queue %s is at its limit', q.name));
    ELSIF p_status = 'moved' THEN
        PERFORM triage.refuse(503, p_status, format('queue %s takes no messages here', q.name));
    ELSIF p_status IS NOT NULL THEN
        PERFORM triage.refuse(413, p_status, 'larger than all that the queue may hold');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION triage.enqueue_one(p_queue text, p_payload bytea, p_kind smallint,
    p_priority text, p_delay interval, p_delay_until timestamptz, p_dequeue_at bigint,
    p_dedup_key text, p_ttl interval, p_metadata jsonb) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue;
    l triage.level;
    put triage.put_result;
BEGIN
    PERFORM triage.check_payload(p_payload);
    IF num_nonnulls(p_delay, p_delay_until, p_dequeue_at, p_ttl) > 0 THEN
        PERFORM triage.check_times(p_delay, p_delay_until, p_dequeue_at, p_ttl);
    END IF;
    IF p_dedup_key IS NOT NULL THEN
        PERFORM triage.check_bytes('dedup_key', p_dedup_key, 1, @DEDUP_KEY_MAX@);
    END IF;
    IF p_metadata IS NOT NULL THEN
        PERFORM triage.check_metadata(p_metadata);
    END IF;
    q := triage.queue_ensure(p_queue);
    l := triage.level_named(q, p_priority);
    put := triage.engine_put_at(q.id, q.version, ARRAY[l.slot], ARRAY[p_payload], ARRAY[p_kind],
        ARRAY[p_metadata::text],
        CASE WHEN p_dedup_key IS NOT NULL THEN ARRAY[convert_to(p_dedup_key, 'UTF8')] END,
        ARRAY[coalesce(p_dequeue_at, triage.to_ms(p_delay_until))], ARRAY[triage.to_ms(p_delay)],
        ARRAY[triage.to_ms(p_ttl)], NULL, triage.any_epoch());
    PERFORM triage.expect_put(q, put.status);
    RETURN triage.id_format(q.id, put.slot, put.ready_ms, put.seq);
END $$;

-- Many payloads at once, all with the same priority and delay; their ids, in order.
CREATE OR REPLACE FUNCTION triage.enqueue_many(queue text, payloads text[],
    priority text DEFAULT NULL, delay interval DEFAULT NULL, ttl interval DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue;
    l triage.level;
    n int := cardinality(payloads);
    put record;
BEGIN
    PERFORM triage.check_payload(convert_to(p, 'UTF8')) FROM unnest(payloads) p;
    PERFORM triage.check_times(delay, NULL, NULL, ttl);
    q := triage.queue_ensure(enqueue_many.queue);
    l := triage.level_named(q, priority);
    FOR put IN
        SELECT * FROM triage.engine_put_at(q.id, q.version, array_fill(l.slot, ARRAY[n]),
            ARRAY(SELECT convert_to(p, 'UTF8') FROM unnest(payloads) WITH ORDINALITY t (p, at)
                  ORDER BY at),
            array_fill(0::smallint, ARRAY[n]), array_fill(NULL::text, ARRAY[n]), NULL,
            array_fill(NULL::bigint, ARRAY[n]), array_fill(triage.to_ms(delay), ARRAY[n]),
            array_fill(triage.to_ms(ttl), ARRAY[n]), NULL, triage.any_epoch()) ORDER BY place
    LOOP
        PERFORM triage.expect_put(q, put.status);
        RETURN NEXT triage.id_format(q.id, put.slot, put.ready_ms, put.seq);
    END LOOP;
END $$;
