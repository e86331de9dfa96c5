-- Counts of messages, and floors: where a claim begins to read.
--
-- Counts. A row with a count would be locked by everybody, and each update would leave a dead version
-- behind. So a transaction writes down what it changed in rows of its own (`tally`), and commits them
-- with the change. Now and then somebody sums them up (`lane`). The count is always the sum of both.
--
-- Floors. Whoever reads from the front of an index steps over every deleted row there that an open
-- transaction might still see: one transaction that is held open for minutes makes that hundreds of
-- thousands. So each lane has a floor, before which nothing is ready. Whoever puts a message in
-- `ready` writes its ready time into the tally (low_ms), which becomes visible at the same moment as
-- the message. A summing up finds the present head of each lane, and raises the floor to it.
--
--   floor of a lane = least(counted.floors[slot + 1], low_ms of what is not yet summed up)
--
-- Tallies that were summed up are dead rows too, and are not read again: `counted` has the snapshot
-- of the last summing up. Left to sum are the tallies of transactions that it could not see: those
-- behind its end, and the few that were under way.
--
-- OFFSET 0 at the end of a subquery, here and in other files, keeps the planner from changing the
-- order of execution. It would rather walk a table that looks empty than look up a hundred keys in
-- it, and no statistics tell it how many dead rows there are.

-- The transactions whose tallies a summing up by this transaction cannot see, although they are
-- before the end of its snapshot: those under way, and itself, since it may still add tallies.
CREATE FUNCTION triage.running(p_seen pg_snapshot) RETURNS xid8[]
LANGUAGE sql VOLATILE
RETURN ARRAY(SELECT tx
             FROM (SELECT pg_snapshot_xip(p_seen) UNION ALL SELECT pg_current_xact_id()) t (tx)
             WHERE tx < pg_snapshot_xmax(p_seen));

CREATE FUNCTION triage.last_count(p_queue int) RETURNS triage.counted
LANGUAGE plpgsql STABLE AS $$
DECLARE
    c triage.counted;
BEGIN
    SELECT * INTO c FROM triage.counted WHERE queue = p_queue ORDER BY version DESC LIMIT 1;
    RETURN c;
END $$;

-- The floors of a queue's lanes; that of a slot is at slot + 1.
CREATE FUNCTION triage.floors(p_queue int) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    c triage.counted := triage.last_count(p_queue);
    low record;
BEGIN
    FOR low IN
        SELECT t.slot, min(t.low_ms) AS low_ms
        FROM (SELECT slot, low_ms FROM triage.tally
              WHERE queue = p_queue AND tx >= c.seen_max AND low_ms IS NOT NULL
              UNION ALL
              SELECT r.slot, r.low_ms
              FROM unnest(c.running) late (tx) CROSS JOIN LATERAL (
                  SELECT slot, low_ms FROM triage.tally
                  WHERE queue = p_queue AND tx = late.tx AND low_ms IS NOT NULL OFFSET 0) r) t
        GROUP BY t.slot
    LOOP
        c.floors[low.slot + 1] := least(c.floors[low.slot + 1], low.low_ms);
    END LOOP;
    RETURN c.floors;
END $$;

-- What a queue holds and what went through it, by slot: the last summing up and what came since.
CREATE FUNCTION triage.counts_since(c triage.counted) RETURNS SETOF triage.lane
LANGUAGE plpgsql STABLE ROWS 16 AS $$
BEGIN
    RETURN QUERY
    SELECT c.queue, c.version + 1, slot,
        coalesce(l.ready, 0) + coalesce(t.ready, 0) AS ready,
        coalesce(l.scheduled, 0) + coalesce(t.scheduled, 0) AS scheduled,
        coalesce(l.leased, 0) + coalesce(t.leased, 0) AS leased,
        coalesce(l.dead, 0) + coalesce(t.dead, 0) AS dead,
        coalesce(l.bytes, 0) + coalesce(t.bytes, 0) AS bytes,
        coalesce(l.enqueued, 0) + coalesce(t.enqueued, 0) AS enqueued,
        coalesce(l.claimed, 0) + coalesce(t.claimed, 0) AS claimed,
        coalesce(l.acked, 0) + coalesce(t.acked, 0) AS acked,
        coalesce(l.nacked, 0) + coalesce(t.nacked, 0) AS nacked,
        coalesce(l.released, 0) + coalesce(t.released, 0) AS released,
        coalesce(l.lease_expired, 0) + coalesce(t.lease_expired, 0) AS lease_expired,
        coalesce(l.expired, 0) + coalesce(t.expired, 0) AS expired,
        coalesce(l.died, 0) + coalesce(t.died, 0) AS died,
        coalesce(l.deduplicated, 0) + coalesce(t.deduplicated, 0) AS deduplicated,
        coalesce(l.redelivered, 0) + coalesce(t.redelivered, 0) AS redelivered,
        coalesce(l.cancelled, 0) + coalesce(t.cancelled, 0) AS cancelled,
        coalesce(l.redriven, 0) + coalesce(t.redriven, 0) AS redriven,
        coalesce(l.aged, 0) + coalesce(t.aged, 0) AS aged,
        coalesce(l.late, 0) + coalesce(t.late, 0) AS late,
        coalesce(l.escalated, 0) + coalesce(t.escalated, 0) AS escalated
    FROM (SELECT * FROM triage.lane WHERE queue = c.queue AND version = c.version) l
        FULL JOIN (
          SELECT t.slot,
              sum(t.ready) AS ready, sum(t.scheduled) AS scheduled, sum(t.leased) AS leased,
              sum(t.dead) AS dead, sum(t.bytes)::bigint AS bytes, sum(t.enqueued) AS enqueued,
              sum(t.claimed) AS claimed, sum(t.acked) AS acked, sum(t.nacked) AS nacked,
              sum(t.released) AS released, sum(t.lease_expired) AS lease_expired,
              sum(t.expired) AS expired, sum(t.died) AS died, sum(t.deduplicated) AS deduplicated,
              sum(t.redelivered) AS redelivered, sum(t.cancelled) AS cancelled,
              sum(t.redriven) AS redriven, sum(t.aged) AS aged, sum(t.late) AS late,
              sum(t.escalated) AS escalated
          FROM (SELECT * FROM triage.tally
                WHERE queue = c.queue AND tx >= c.seen_max
                UNION ALL
                SELECT r.*
                FROM unnest(c.running) late (tx) CROSS JOIN LATERAL (
                    SELECT * FROM triage.tally
                    WHERE queue = c.queue AND tx = late.tx OFFSET 0) r) t
          GROUP BY t.slot) t USING (slot);
END $$;

CREATE FUNCTION triage.counts(p_queue int) RETURNS SETOF triage.lane
LANGUAGE plpgsql STABLE ROWS 16 AS $$
BEGIN
    RETURN QUERY SELECT * FROM triage.counts_since(triage.last_count(p_queue));
END $$;

-- Sums up a queue's tally and raises its floors. False when somebody else is at it, or when the
-- caller's snapshot is too old for it.
CREATE FUNCTION triage.count_up(p_queue int, p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    old triage.counted;
    next triage.counted;
    seen pg_snapshot;
    lows bigint[];
    low_slots smallint[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR NOT pg_try_advisory_xact_lock(7421, p_queue) THEN
        RETURN false;
    END IF;
    old := triage.last_count(p_queue);
    -- In this order. What commits after the snapshot stays for the next time, and heads are looked
    -- for only when the low_ms of all that is to go are in hand.
    seen := pg_current_snapshot();
    next := (p_queue, old.version + 1, p_now, pg_snapshot_xmax(seen), triage.running(seen),
             old.floors);
    WITH gone AS (
        DELETE FROM triage.tally
        WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM triage.tally t
                                WHERE t.queue = p_queue AND t.tx >= old.seen_max)
                          || ARRAY(SELECT r.at
                                   FROM unnest(old.running) late (tx) CROSS JOIN LATERAL (
                                       SELECT t.ctid AS at FROM triage.tally t
                                       WHERE t.queue = p_queue AND t.tx = late.tx OFFSET 0) r))
        RETURNING *),
    sums AS (
        SELECT g.slot, min(g.low_ms) AS low_ms,
            sum(g.ready) AS ready, sum(g.scheduled) AS scheduled, sum(g.leased) AS leased,
            sum(g.dead) AS dead, sum(g.bytes)::bigint AS bytes, sum(g.enqueued) AS enqueued,
            sum(g.claimed) AS claimed, sum(g.acked) AS acked, sum(g.nacked) AS nacked,
            sum(g.released) AS released, sum(g.lease_expired) AS lease_expired,
            sum(g.expired) AS expired, sum(g.died) AS died, sum(g.deduplicated) AS deduplicated,
            sum(g.redelivered) AS redelivered, sum(g.cancelled) AS cancelled,
            sum(g.redriven) AS redriven, sum(g.aged) AS aged, sum(g.late) AS late,
            sum(g.escalated) AS escalated
        FROM gone g GROUP BY g.slot),
    counted AS (
        INSERT INTO triage.lane
        SELECT p_queue, next.version, slot,
            coalesce(l.ready, 0) + coalesce(s.ready, 0),
            coalesce(l.scheduled, 0) + coalesce(s.scheduled, 0),
            coalesce(l.leased, 0) + coalesce(s.leased, 0),
            coalesce(l.dead, 0) + coalesce(s.dead, 0), coalesce(l.bytes, 0) + coalesce(s.bytes, 0),
            coalesce(l.enqueued, 0) + coalesce(s.enqueued, 0),
            coalesce(l.claimed, 0) + coalesce(s.claimed, 0),
            coalesce(l.acked, 0) + coalesce(s.acked, 0),
            coalesce(l.nacked, 0) + coalesce(s.nacked, 0),
            coalesce(l.released, 0) + coalesce(s.released, 0),
            coalesce(l.lease_expired, 0) + coalesce(s.lease_expired, 0),
            coalesce(l.expired, 0) + coalesce(s.expired, 0),
            coalesce(l.died, 0) + coalesce(s.died, 0),
            coalesce(l.deduplicated, 0) + coalesce(s.deduplicated, 0),
            coalesce(l.redelivered, 0) + coalesce(s.redelivered, 0),
            coalesce(l.cancelled, 0) + coalesce(s.cancelled, 0),
            coalesce(l.redriven, 0) + coalesce(s.redriven, 0),
            coalesce(l.aged, 0) + coalesce(s.aged, 0), coalesce(l.late, 0) + coalesce(s.late, 0),
            coalesce(l.escalated, 0) + coalesce(s.escalated, 0)
        FROM (SELECT * FROM triage.lane WHERE queue = p_queue AND version = old.version) l
            FULL JOIN sums s USING (slot))
    SELECT array_agg(s.slot), array_agg(s.low_ms) INTO low_slots, lows FROM sums s;
    FOR i IN 1..coalesce(cardinality(lows), 0) LOOP
        next.floors[low_slots[i] + 1] := least(next.floors[low_slots[i] + 1], lows[i]);
    END LOOP;
    next.floors := ARRAY(
        SELECT coalesce((SELECT r.ready_ms FROM triage.ready r
                         WHERE r.queue = p_queue AND r.slot = f.place - 1
                             AND r.ready_ms >= f.floor_ms
                         ORDER BY r.ready_ms, r.seq LIMIT 1), 140737488355327)
        FROM unnest(next.floors) WITH ORDINALITY f (floor_ms, place) ORDER BY f.place);
    INSERT INTO triage.counted SELECT next.*;
    DELETE FROM triage.lane WHERE queue = p_queue AND version = old.version;
    DELETE FROM triage.counted WHERE queue = p_queue AND version = old.version;
    RETURN true;
END $$;

-- The view of a queue that a server keeps: counts, and since when the head of each level waits.
CREATE FUNCTION triage.engine_view(p_queue int)
RETURNS TABLE (slot smallint, head_ms bigint, ready bigint, scheduled bigint, leased bigint,
    dead bigint, bytes bigint, enqueued bigint, claimed bigint, acked bigint, nacked bigint,
    released bigint, lease_expired bigint, expired bigint, died bigint, deduplicated bigint,
    redelivered bigint, cancelled bigint, redriven bigint, aged bigint, late bigint,
    escalated bigint, next_seq bigint)
LANGUAGE plpgsql STABLE ROWS 16
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    floors bigint[] := triage.floors(p_queue);
BEGIN
    RETURN QUERY
    SELECT c.slot,
        (SELECT r.ready_ms FROM triage.ready r
         WHERE r.queue = p_queue AND r.slot = c.slot AND r.ready_ms >= floors[c.slot + 1]
         ORDER BY r.ready_ms, r.seq LIMIT 1),
        c.ready, c.scheduled, c.leased, c.dead, c.bytes, c.enqueued, c.claimed, c.acked, c.nacked,
        c.released, c.lease_expired, c.expired, c.died, c.deduplicated, c.redelivered, c.cancelled,
        c.redriven, c.aged, c.late, c.escalated,
        (SELECT n.last_value + n.is_called::int FROM triage.seq n)
    FROM triage.counts(p_queue) c;
END $$;
