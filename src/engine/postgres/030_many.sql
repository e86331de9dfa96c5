-- Enqueues and acks of many queues in one call, and sweeping whose cost does not grow with what is
-- kept.
--
-- Starting a statement costs the database as much as a dozen rows. A group of a server over a hundred
-- queues would be a hundred calls.

-- engine_put_many() looks for consumers that wait now. A wait that is announced again is a new version
-- of its row: with this index the versions before it are not read.
CREATE INDEX IF NOT EXISTS waiting_until ON triage.waiting (queue, until_ms);

-- queue_at() for several queues, without their rows. True: some of them have a place.
CREATE OR REPLACE FUNCTION triage.queues_at(p_queues int[], p_versions int[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    stale int;
    placed boolean;
BEGIN
    SELECT min(k.id) FILTER (WHERE q.version IS DISTINCT FROM k.version), bool_or(q.place_epoch > 0)
    INTO stale, placed
    FROM unnest(p_queues, p_versions) k (id, version) LEFT JOIN LATERAL (
        SELECT q.version, q.place_epoch FROM triage.queue q
        WHERE q.id = k.id AND NOT q.deleted OFFSET 0) q ON true;
    IF stale IS NOT NULL THEN
        RAISE EXCEPTION 'the configuration of queue % has changed', stale USING ERRCODE = 'TRCFG';
    END IF;
    RETURN placed;
END $$;

-- queue_kept() for several queues. True: some of them have a place, and keep it until the transaction
-- ends.
CREATE OR REPLACE FUNCTION triage.queues_kept(p_queues int[], p_versions int[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7425, q) FROM unnest(p_queues) q;
    RETURN triage.queues_at(p_queues, p_versions);
END $$;

-- Which items the places of their queues refuse: where they stand in the arrays.
CREATE OR REPLACE FUNCTION triage.places_refuse(p_to int[], p_epoch bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT coalesce(array_agg(i.place), '{}')
    FROM unnest(p_to, p_epoch) WITH ORDINALITY i (queue, epoch, place) CROSS JOIN LATERAL (
        SELECT q AS its FROM triage.queue q WHERE q.id = i.queue OFFSET 0) q
    WHERE triage.place_refuses(q.its, coalesce(i.epoch, 0))
$$;

-- engine_put_at() for messages without dedup keys, to queues without limits. p_queues and p_versions
-- are those queues, each of them once; p_to is the queue of each item. ttl_ms NULL: none. epoch NULL:
-- 0. An item that is refused does not keep the others from being stored.
CREATE OR REPLACE FUNCTION triage.engine_put_many(p_queues int[], p_versions int[], p_to int[],
    p_slot smallint[], p_payload bytea[], p_kind smallint[], p_metadata text[],
    p_ready_ms bigint[], p_delay_ms bigint[], p_ttl_ms bigint[], p_epoch bigint[],
    p_now bigint DEFAULT NULL)
RETURNS SETOF triage.put_result
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now_ms bigint := coalesce(p_now, triage.now_ms());
    moved bigint[] := '{}'; -- items that are refused
BEGIN
    IF triage.queues_kept(p_queues, p_versions) THEN
        moved := triage.places_refuse(p_to, p_epoch);
    END IF;
    RETURN QUERY
    WITH item AS MATERIALIZED (
        SELECT i.place, i.queue, i.slot, i.payload, i.kind, i.metadata,
            CASE WHEN i.place <> ALL (moved) THEN nextval('triage.seq') END AS seq, -- NULL: refused
            CASE WHEN octet_length(i.payload) > 2000 THEN octet_length(i.payload) END AS large,
            coalesce(i.ready_ms, now_ms + coalesce(i.delay_ms, 0)) AS ready_ms,
            now_ms + i.ttl_ms AS expire_ms
        FROM unnest(p_to, p_slot, p_payload, p_kind, p_metadata, p_ready_ms, p_delay_ms, p_ttl_ms)
            WITH ORDINALITY
            i (queue, slot, payload, kind, metadata, ready_ms, delay_ms, ttl_ms, place)),
    large AS (
        INSERT INTO triage.body (seq, payload)
        SELECT i.seq, i.payload FROM item i
        WHERE i.large IS NOT NULL AND i.seq IS NOT NULL),
    now_ready AS (
        INSERT INTO triage.ready (seq, ready_ms, born_ms, enqueued_ms, queue, attempts, slot,
            born_slot, kind, payload, large, metadata, expire_ms)
        SELECT i.seq, i.ready_ms, i.ready_ms, now_ms, i.queue, 0, i.slot, i.slot, i.kind,
            CASE WHEN i.large IS NULL THEN i.payload END, i.large, i.metadata, i.expire_ms
        FROM item i WHERE i.ready_ms <= now_ms AND i.seq IS NOT NULL),
    later AS (
        INSERT INTO triage.scheduled (seq, ready_ms, born_ms, enqueued_ms, queue, attempts, slot,
            born_slot, kind, payload, large, metadata, expire_ms)
        SELECT i.seq, i.ready_ms, i.ready_ms, now_ms, i.queue, 0, i.slot, i.slot, i.kind,
            CASE WHEN i.large IS NULL THEN i.payload END, i.large, i.metadata, i.expire_ms
        FROM item i WHERE i.ready_ms > now_ms AND i.seq IS NOT NULL),
    counted AS (
        INSERT INTO triage.tally (low_ms, queue, slot, ready, scheduled, bytes, enqueued)
        SELECT min(i.ready_ms) FILTER (WHERE i.ready_ms <= now_ms), i.queue, i.slot,
            count(*) FILTER (WHERE i.ready_ms <= now_ms),
            count(*) FILTER (WHERE i.ready_ms > now_ms),
            sum(triage.size_of(NULL, i.payload, i.metadata)), count(*)
        FROM item i WHERE i.seq IS NOT NULL GROUP BY i.queue, i.slot)
    SELECT i.place::int, CASE WHEN i.seq IS NULL THEN 'moved' END, i.slot, i.ready_ms, i.seq,
        now_ms, false
    FROM item i;
    PERFORM pg_notify('triage', heard.queue::text)
    FROM unnest(p_queues) heard (queue) CROSS JOIN LATERAL (
        SELECT FROM triage.waiting w WHERE w.queue = heard.queue AND w.until_ms > now_ms
        LIMIT 1) w
    WHERE EXISTS (SELECT FROM unnest(p_to, p_ready_ms, p_delay_ms) WITH ORDINALITY
                      i (queue, ready_ms, delay_ms, place)
                  WHERE i.queue = heard.queue AND i.place <> ALL (moved)
                      AND coalesce(i.ready_ms, now_ms + coalesce(i.delay_ms, 0)) <= now_ms);
END $$;

-- Acks of messages of several queues. p_queues and p_versions are those queues, each of them once;
-- p_from is the queue of each item.
CREATE OR REPLACE FUNCTION triage.engine_ack_many(p_queues int[], p_versions int[], p_from int[],
    p_seq bigint[], p_slot smallint[], p_ready_ms bigint[], p_receipt bytea[],
    p_now bigint DEFAULT NULL) RETURNS SETOF triage.settled
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    keeping int[]; -- queues that keep a history
    now_ms bigint := coalesce(p_now, triage.now_ms());
    done bigint[];
    done_in int[];
    used bytea[];
    slots smallint[];
    moved boolean; -- some, to another level than the id names
    large bigint[];
    keyed bigint[];
    keyed_in int[];
    keys bytea[];
BEGIN
    PERFORM triage.queues_at(p_queues, p_versions);
    keeping := ARRAY(SELECT q.id FROM triage.queue q
                     WHERE q.id = ANY (p_queues) AND q.history_ms > 0);
    WITH gone AS (
        DELETE FROM triage.leased
        WHERE ctid = ANY (ARRAY(
            SELECT r.at
            FROM unnest(p_from, p_seq, p_slot, p_ready_ms, p_receipt)
                    i (queue, seq, slot, ready_ms, receipt)
                CROSS JOIN LATERAL (
                    SELECT l.ctid AS at, l.* FROM triage.leased l WHERE l.seq = i.seq
                    OFFSET 0 FOR UPDATE) r
            WHERE r.receipt = i.receipt AND r.until_ms > now_ms AND r.queue = i.queue
                AND r.born_slot = i.slot AND r.born_ms = i.ready_ms))
        RETURNING *),
    kept AS (
        INSERT INTO triage.history
        SELECT g.seq, g.ready_ms, g.born_ms, g.enqueued_ms, g.queue, g.attempts, g.slot,
            g.born_slot, g.kind, g.payload, g.large, g.metadata, g.dedup_key, g.expire_ms, g.reason,
            g.escalated_ms, g.escalated_by, g.escalated_why, g.escalated_from,
            greatest(now_ms, q.history_since_ms + 1) -- after all that is forgotten
        FROM gone g CROSS JOIN LATERAL (
            SELECT o.history_since_ms FROM triage.queue o WHERE o.id = g.queue OFFSET 0) q
        WHERE g.queue = ANY (keeping)),
    counted AS (
        INSERT INTO triage.tally (queue, slot, leased, acked)
        SELECT g.queue, g.slot, -count(*), count(*) FROM gone g GROUP BY g.queue, g.slot)
    SELECT array_agg(g.seq), array_agg(g.queue), array_agg(g.receipt), array_agg(g.slot),
        bool_or(g.slot <> g.born_slot),
        array_agg(g.seq) FILTER (WHERE g.payload IS NULL AND g.queue <> ALL (keeping)),
        array_agg(g.seq) FILTER (WHERE g.dedup_key IS NOT NULL),
        array_agg(g.queue) FILTER (WHERE g.dedup_key IS NOT NULL),
        array_agg(g.dedup_key) FILTER (WHERE g.dedup_key IS NOT NULL)
    INTO done, done_in, used, slots, moved, large, keyed, keyed_in, keys
    FROM gone g;
    IF large IS NOT NULL THEN
        PERFORM triage.forget(NULL, large, NULL, NULL);
    END IF;
    IF keyed IS NOT NULL THEN
        PERFORM triage.forget(k.queue, NULL, array_agg(k.seq), array_agg(k.key))
        FROM unnest(keyed_in, keyed, keys) k (queue, seq, key) GROUP BY k.queue;
    END IF;
    IF cardinality(done) = cardinality(p_seq) AND NOT moved THEN
        RETURN QUERY SELECT i.place::int, NULL::text, 'done', i.slot, NULL::bigint
            FROM unnest(p_slot) WITH ORDINALITY i (slot, place);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT i.place::int, r.refusal, CASE WHEN r.refusal IS NULL THEN 'done' END,
        (SELECT d.slot FROM unnest(done, slots) d (seq, slot) WHERE d.seq = i.seq), NULL::bigint
    FROM (SELECT *, row_number() OVER (PARTITION BY i.queue, i.seq, i.receipt ORDER BY i.place) AS nth
          FROM unnest(p_from, p_seq, p_slot, p_ready_ms, p_receipt) WITH ORDINALITY
              i (queue, seq, slot, ready_ms, receipt, place)) i
        CROSS JOIN LATERAL (
            SELECT CASE WHEN i.nth = 1 AND (i.queue, i.seq, i.receipt)
                    IN (SELECT * FROM unnest(done_in, done, used))
                THEN NULL
                -- It was still there when a later item of this call was not yet dealt with.
                WHEN i.place < (SELECT min(x.place)
                                FROM unnest(p_from, p_seq, p_receipt) WITH ORDINALITY
                                    x (queue, seq, receipt, place)
                                WHERE x.queue = i.queue AND x.seq = i.seq
                                    AND (x.queue, x.seq, x.receipt)
                                        IN (SELECT * FROM unnest(done_in, done, used)))
                THEN 'receipt-expired'
                ELSE triage.refusal(i.queue, i.seq, i.slot, i.ready_ms) END AS refusal) r
    ORDER BY i.place;
END $$;

-- Acks of messages of one queue, for SQL and for servers of the version before.
CREATE OR REPLACE FUNCTION triage.engine_ack(p_queue int, p_version int, p_seq bigint[], p_slot smallint[],
    p_ready_ms bigint[], p_receipt bytea[], p_now bigint DEFAULT NULL) RETURNS SETOF triage.settled
LANGUAGE sql ROWS 100 AS $$
    SELECT * FROM triage.engine_ack_many(ARRAY[p_queue], ARRAY[p_version],
        array_fill(p_queue, ARRAY[cardinality(p_seq)]), p_seq, p_slot, p_ready_ms, p_receipt, p_now)
$$;

-- Whether the last summing up found messages in a slot that no level has.
CREATE OR REPLACE FUNCTION triage.has_stray(p_queue int) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM triage.lane n
        WHERE n.queue = p_queue AND n.version = (triage.last_count(p_queue)).version
            AND n.ready + n.scheduled > 0
            AND NOT EXISTS (SELECT FROM triage.level l
                            WHERE l.queue = p_queue AND l.slot = n.slot));
END $$;

-- The parts of a sweep for which one server at a time is enough. If another server is at them, they
-- are skipped. None of them may walk over all that a table holds, or held before a transaction that is
-- still open: they run twice a second.
CREATE OR REPLACE FUNCTION triage.sweep_slowly(p_max int, p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    old_ms bigint := triage.now_ms() - 3600000; -- a variable: the index is not used for a call
    each record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7424, 0) THEN
        RETURN;
    END IF;
    -- LIMIT 1 has the index asked for each queue. A join would read every tally there ever was.
    FOR each IN
        SELECT q.id AS queue
        FROM triage.queue q CROSS JOIN LATERAL triage.last_count(q.id) c CROSS JOIN LATERAL (
            SELECT FROM triage.tally t WHERE t.queue = q.id AND t.tx >= c.seen_max LIMIT 1) t
        WHERE c.at_ms <= p_now - 200
        ORDER BY c.at_ms -- else the first hundred would be summed up each time, and others never
        LIMIT 100
    LOOP
        CONTINUE WHEN NOT triage.count_up(each.queue, p_now);
        IF triage.has_stray(each.queue) THEN
            PERFORM triage.sweep_stray(each.queue, p_now);
        END IF;
    END LOOP;
    FOR each IN SELECT id FROM triage.queue WHERE deleted LIMIT 10 LOOP
        PERFORM triage.sweep_deleted(each.id, p_max);
    END LOOP;
    DELETE FROM triage.mark WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM triage.mark WHERE at_ms < old_ms ORDER BY at_ms LIMIT p_max));
    DELETE FROM triage.waiting WHERE until_ms < p_now - 60000;
END $$;
