-- Enqueueing.
--
-- The usual case is one INSERT for all messages. In a queue with limits, or with a dedup key, they go
-- one after the other. In a queue with limits enqueues also take turns, so that a limit holds exactly
-- at every commit.

CREATE TYPE triage.put_result AS (
    place int,           -- of the item in the call, from 1 on
    status text,         -- NULL: stored, or deduplicated; else why not
    slot smallint,       -- the id: slot, ready_ms, seq
    ready_ms bigint,
    seq bigint,
    enqueued_ms bigint,
    deduplicated boolean
);

CREATE FUNCTION triage.put_careful(q triage.queue, p_slot smallint[], p_payload bytea[],
    p_kind smallint[], p_metadata text[], p_key bytea[], p_ready_ms bigint[], p_delay_ms bigint[],
    p_ttl_ms bigint[], p_now bigint) RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    depth bigint := 0;
    bytes bigint := 0;
    size bigint;
    item record;
    hit triage.dedup;
    put triage.put_result;
BEGIN
    IF q.max_depth > 0 OR q.max_bytes > 0 THEN
        PERFORM pg_advisory_xact_lock(7422, q.id);
        SELECT coalesce(sum(c.ready + c.scheduled), 0), coalesce(sum(c.bytes), 0) INTO depth, bytes
        FROM triage.counts(q.id) c;
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
        ELSIF hit.seq IS NULL AND (q.max_depth > 0 AND depth >= q.max_depth
                                   OR q.max_bytes > 0 AND bytes + size > q.max_bytes) THEN
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

-- Takes a dedup key for a message. If another message has the key, returns that one.
CREATE FUNCTION triage.dedup_take(p_queue int, p_key bytea, p_seq bigint, p_slot smallint,
    p_ready_ms bigint, p_enqueued_ms bigint, p_until_ms bigint, p_now bigint)
RETURNS triage.dedup
LANGUAGE plpgsql AS $$
DECLARE
    hit triage.dedup;
BEGIN
    LOOP
        INSERT INTO triage.dedup AS d (queue, key, seq, slot, ready_ms, enqueued_ms, until_ms)
        VALUES (p_queue, p_key, p_seq, p_slot, p_ready_ms, p_enqueued_ms, p_until_ms)
        ON CONFLICT (queue, key) DO UPDATE
            SET seq = excluded.seq, slot = excluded.slot, ready_ms = excluded.ready_ms,
                enqueued_ms = excluded.enqueued_ms, until_ms = excluded.until_ms
            WHERE d.until_ms <= p_now;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        SELECT * INTO hit FROM triage.dedup d WHERE d.queue = p_queue AND d.key = p_key;
        IF FOUND THEN
            RETURN hit;
        END IF; -- it went with its message just now
    END LOOP;
END $$;

CREATE FUNCTION triage.put_one(q triage.queue, put triage.put_result, p_payload bytea,
    p_kind smallint, p_metadata text, p_key bytea, p_expire_ms bigint, p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    m triage.ready;
    is_ready boolean := put.ready_ms <= p_now;
BEGIN
    m := (put.seq, put.ready_ms, put.ready_ms, p_now, q.id, 0, put.slot, put.slot, p_kind,
          CASE WHEN octet_length(p_payload) <= 2000 THEN p_payload END,
          CASE WHEN octet_length(p_payload) > 2000 THEN octet_length(p_payload) END, p_metadata, p_key,
          p_expire_ms, NULL, NULL, NULL, NULL, NULL);
    IF m.payload IS NULL THEN
        INSERT INTO triage.body (seq, payload) VALUES (put.seq, p_payload);
    END IF;
    IF is_ready THEN
        INSERT INTO triage.ready SELECT m.*;
    ELSE
        INSERT INTO triage.scheduled SELECT m.*;
    END IF;
    INSERT INTO triage.tally (low_ms, queue, slot, ready, scheduled, bytes, enqueued)
    VALUES (CASE WHEN is_ready THEN put.ready_ms END, q.id, put.slot, is_ready::int,
            (NOT is_ready)::int, triage.size_of(NULL, p_payload, p_metadata), 1);
END $$;
