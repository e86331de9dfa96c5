-- Shares: how much of the limits of a larger queue a queue may use. Servers that spread a queue over
-- several databases divide its limits among them. A put or a claim beyond the share is refused here,
-- in its own transaction.

-- most: what the queue may use of max_depth, max_bytes, max_in_flight, and of max_in_flight of the
-- level with slot 0, 1, …; the largest bigint means all.
CREATE TABLE IF NOT EXISTS triage.share (
    queue int PRIMARY KEY,
    epoch bigint NOT NULL CHECK (epoch > 0),
    most bigint[] NOT NULL CHECK (cardinality(most) = 19),
    note text NOT NULL DEFAULT '' -- the servers' own
        CHECK (octet_length(note) <= @PLACE_MAP_MAX@)
);

-- What of the limit at p_place of `most` the queue may use. To be called when the lock is held that
-- the takers of that limit share: then the share stays until the end of the transaction.
CREATE OR REPLACE FUNCTION triage.share_limit(p_queue int, p_place int, p_limit bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT least(p_limit, (SELECT s.most[p_place] FROM triage.share s WHERE s.queue = p_queue))
$$;

-- Sets the share of a queue, if p_epoch is that of the present one plus 1; `stale`: it is not.
-- p_epoch NULL: nothing is set. The other columns say which share the queue has then (epoch NULL:
-- none) and what it holds. Numbers have a blank between them.
--
-- Puts hold the first lock until they are committed, and claims the second, in queues with limits. So
-- `used` is exact, and whoever puts or claims after this sees the new share. The queue's row is held
-- so that no share by an old configuration is set after a new one.
CREATE OR REPLACE FUNCTION triage.engine_queue_share(p_queue int, p_version int, p_epoch bigint,
    p_most bigint[], p_note text,
    OUT stale boolean, OUT epoch bigint, OUT most text, OUT note text, OUT used text)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
BEGIN
    PERFORM triage.queue_at(p_queue, p_version);
    stale := false;
    IF p_epoch IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(7422, p_queue);
        PERFORM pg_advisory_xact_lock(7423, p_queue);
        PERFORM FROM triage.queue q
        WHERE q.id = p_queue AND q.version = p_version AND NOT q.deleted FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the configuration of queue % is not version % any more', p_queue,
                p_version USING ERRCODE = 'TRCFG';
        END IF;
        IF p_epoch = 1 THEN
            INSERT INTO triage.share AS s (queue, epoch, most, note)
            VALUES (p_queue, 1, p_most, p_note) ON CONFLICT DO NOTHING;
        ELSE
            UPDATE triage.share s SET epoch = p_epoch, most = p_most, note = p_note
            WHERE s.queue = p_queue AND s.epoch = p_epoch - 1;
        END IF;
        stale := NOT FOUND;
    END IF;
    SELECT s.epoch, array_to_string(s.most, ' '), s.note INTO epoch, most, note
    FROM triage.share s WHERE s.queue = p_queue;
    SELECT concat_ws(' ', coalesce(sum(c.ready + c.scheduled), 0), coalesce(sum(c.bytes), 0),
                     coalesce(sum(c.leased), 0),
                     string_agg(coalesce(c.leased, 0)::text, ' ' ORDER BY l.slot))
    INTO used
    FROM generate_series(0, 15) l (slot) LEFT JOIN triage.counts(p_queue) c ON c.slot = l.slot;
END $$;

-- As in step 28; a queue that is made as a part of a larger one has a share of nothing, so that it
-- takes nothing before the limits are divided anew.
CREATE OR REPLACE FUNCTION triage.engine_queue_make(p_name text, p_config jsonb, p_cell int,
    OUT id int, OUT created boolean, OUT status text, OUT level_name text, OUT config jsonb)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
DECLARE
    ids regclass := pg_get_serial_sequence('triage.queue', 'id');
    last bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM triage.queue q WHERE q.name = p_name AND NOT q.deleted) THEN
        LOCK TABLE triage.queue IN SHARE ROW EXCLUSIVE MODE;
        last := nextval(ids);
        PERFORM setval(ids, last + (p_cell + 1023 - last % 1024) % 1024);
    END IF;
    SELECT q.id, q.created, q.status, q.level_name, q.config
    INTO id, created, status, level_name, config
    FROM triage.engine_queue_set(NULL, p_name, p_config) q;
    IF created THEN
        INSERT INTO triage.share (queue, epoch, most) VALUES (id, 1, array_fill(0::bigint, ARRAY[19]));
    END IF;
END $$;

-- As in step 6, with the share of the queue.
CREATE OR REPLACE FUNCTION triage.room(q triage.queue) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    room bigint[];
BEGIN
    IF q.max_in_flight = 0
        AND NOT EXISTS (SELECT FROM triage.level l
                        WHERE l.queue = q.id AND l.max_in_flight > 0) THEN
        RETURN NULL;
    END IF;
    PERFORM pg_advisory_xact_lock(7423, q.id);
    SELECT array_agg(CASE WHEN l.max_in_flight > 0
                          THEN greatest(triage.share_limit(q.id, 4 + s.slot, l.max_in_flight)
                                        - coalesce(c.leased, 0), 0) END ORDER BY s.slot)
        || CASE WHEN q.max_in_flight > 0
                THEN greatest(triage.share_limit(q.id, 3, q.max_in_flight)
                              - coalesce(sum(c.leased), 0)::bigint, 0) END
    INTO room
    FROM generate_series(0, 15) s (slot)
        LEFT JOIN triage.counts(q.id) c ON c.slot = s.slot
        LEFT JOIN triage.level l ON l.queue = q.id AND l.slot = s.slot AND l.max_in_flight > 0;
    RETURN room;
END $$;

-- As in step 5, with the share of the queue.
CREATE OR REPLACE FUNCTION triage.put_careful(q triage.queue, p_slot smallint[], p_payload bytea[],
    p_kind smallint[], p_metadata text[], p_key bytea[], p_ready_ms bigint[], p_delay_ms bigint[],
    p_ttl_ms bigint[], p_now bigint) RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    depth bigint := 0;
    bytes bigint := 0;
    most_depth bigint := q.max_depth;
    most_bytes bigint := q.max_bytes;
    size bigint;
    item record;
    hit triage.dedup;
    put triage.put_result;
BEGIN
    IF q.max_depth > 0 OR q.max_bytes > 0 THEN
        PERFORM pg_advisory_xact_lock(7422, q.id);
        SELECT coalesce(sum(c.ready + c.scheduled), 0), coalesce(sum(c.bytes), 0) INTO depth, bytes
        FROM triage.counts(q.id) c;
        most_depth := triage.share_limit(q.id, 1, q.max_depth);
        most_bytes := triage.share_limit(q.id, 2, q.max_bytes);
    END IF;
    FOR item IN
        SELECT *
        FROM unnest(p_slot, p_payload, p_kind, p_metadata, p_key, p_ready_ms, p_delay_ms, p_ttl_ms)
            WITH ORDINALITY
            i (slot, payload, kind, metadata, key, ready_ms, delay_ms, ttl_ms, place)
    LOOP
        put := (item.place, NULL, item.slot,
                coalesce(item.ready_ms, p_now + coalesce(item.delay_ms, 0)), NULL, p_now, false);
        size := triage.size_of(NULL, item.payload, item.metadata);
        hit := NULL;
        IF item.key IS NOT NULL THEN
            SELECT * INTO hit FROM triage.dedup d
            WHERE d.queue = q.id AND d.key = item.key AND coalesce(d.until_ms > p_now, true);
        END IF;
        IF hit.seq IS NULL AND q.max_bytes > 0 AND size > q.max_bytes THEN
            put.status := 'payload-too-large';
        ELSIF hit.seq IS NULL AND (q.max_depth > 0 AND depth >= most_depth
                                   OR q.max_bytes > 0 AND bytes + size > most_bytes) THEN
            put.status := 'queue-full';
        ELSIF hit.seq IS NULL THEN
            put.seq := nextval('triage.seq');
            IF item.key IS NOT NULL AND (q.dedup_scope = 'live' OR q.dedup_window_ms > 0) THEN
                hit := triage.dedup_take(q.id, item.key, put.seq, put.slot, put.ready_ms, p_now,
                    CASE WHEN q.dedup_scope = 'window' THEN p_now + q.dedup_window_ms END, p_now);
            END IF;
        END IF;
        IF hit.seq IS NOT NULL THEN
            put := (item.place, NULL, hit.slot, hit.ready_ms, hit.seq, hit.enqueued_ms, true);
            INSERT INTO triage.tally (queue, slot, deduplicated) VALUES (q.id, item.slot, 1);
        ELSIF put.status IS NULL THEN
            PERFORM triage.put_one(q, put, item.payload, item.kind, item.metadata, item.key,
                                   p_now + nullif(coalesce(item.ttl_ms, q.ttl_ms), 0), p_now);
            depth := depth + 1;
            bytes := bytes + size;
        END IF;
        RETURN NEXT put;
    END LOOP;
END $$;

-- As in step 22; the share goes with its queue.
CREATE OR REPLACE FUNCTION triage.engine_queue_delete(p_queue int, p_if_empty boolean) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7425, p_queue); -- whoever puts something in has committed
    IF p_if_empty AND (EXISTS (SELECT FROM triage.counts(p_queue) c
                               WHERE c.ready + c.scheduled + c.leased + c.dead > 0)
                       OR EXISTS (SELECT FROM triage.schedule s WHERE s.queue = p_queue)) THEN
        RETURN 'queue-not-empty';
    END IF;
    UPDATE triage.queue SET deleted = true, version = version + 1, updated_at = now()
    WHERE id = p_queue AND NOT deleted;
    IF NOT FOUND THEN
        RETURN 'queue-not-found';
    END IF;
    DELETE FROM triage.schedule s WHERE s.queue = p_queue;
    DELETE FROM triage.share s WHERE s.queue = p_queue;
    PERFORM pg_notify('triage', 'queues');
    RETURN NULL;
END $$;

SELECT triage.rights_like('share', 'queue');
