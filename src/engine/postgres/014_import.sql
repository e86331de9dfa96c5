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
