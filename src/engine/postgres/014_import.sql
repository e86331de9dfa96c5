-- Imports: messages of another store, with their past.
--
-- Each has a key of its own in `dedup`, which the server makes of its old id, time and content. So the
-- same message is not stored a second time.

-- Which of the items are new: one row for each, with the id that it gets, or has.
CREATE FUNCTION triage.import_identify(q triage.queue, p_slot smallint[], p_key bytea[],
    p_ready_ms bigint[], p_enqueued_ms bigint[], p_origin bytea[], p_known_ms bigint, p_now bigint)
RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    item record;
    hit triage.dedup;
    put triage.put_result;
    until_ms bigint;
BEGIN
    FOR item IN
        SELECT * FROM unnest(p_slot, p_key, p_ready_ms, p_enqueued_ms, p_origin)
            WITH ORDINALITY i (slot, key, ready_ms, enqueued_ms, origin, place)
    LOOP
        put := (item.place, NULL, item.slot, item.ready_ms, nextval('triage.seq'), item.enqueued_ms,
                false);
        hit := triage.dedup_take(q.id, item.origin, put.seq, put.slot, put.ready_ms,
                                 put.enqueued_ms, p_now + p_known_ms, p_now);
        until_ms := CASE q.dedup_scope WHEN 'window' THEN item.enqueued_ms + q.dedup_window_ms END;
        IF hit.seq IS NOT NULL THEN
            put := (item.place, NULL, hit.slot, hit.ready_ms, hit.seq, hit.enqueued_ms, true);
        ELSIF item.key IS NOT NULL AND coalesce(until_ms > p_now, true) THEN
            PERFORM triage.dedup_take(q.id, item.key, put.seq, put.slot, put.ready_ms,
                                      put.enqueued_ms, until_ms, p_now);
        END IF;
        RETURN NEXT put;
    END LOOP;
END $$;

-- Stores the items of the arrays as they were elsewhere. p_ended_ms NULL: it is not dead.
-- p_expire_ms NULL: it has no time to live. One row for each item, in order; `deduplicated`: it was
-- imported before.
CREATE FUNCTION triage.engine_import(p_queue int, p_version int, p_slot smallint[],
    p_payload bytea[], p_kind smallint[], p_metadata text[], p_key bytea[], p_ready_ms bigint[],
    p_enqueued_ms bigint[], p_expire_ms bigint[], p_attempts int[], p_ended_ms bigint[],
    p_reason text[], p_escalated_ms bigint[], p_escalated_by text[], p_escalated_why text[],
    p_escalated_from smallint[], p_origin bytea[], p_known_ms bigint,
    p_now bigint DEFAULT NULL)
RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_kept(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    puts triage.put_result[] := ARRAY(
        SELECT p FROM triage.import_identify(q, p_slot, p_key, p_ready_ms, p_enqueued_ms, p_origin,
                                             p_known_ms, now_ms) p ORDER BY p.place);
    overdue bigint[];
BEGIN
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
