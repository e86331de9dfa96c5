-- How many there are, and where to begin.
--
-- A row that counts would be locked by everybody and leave a dead version behind each time. So a
-- transaction notes what it changed in rows of its own (`tally`), commits them with the change,
-- and now and then somebody sums them up (`lane`). What is true is always the sum of both.
--
-- The same rows keep the floors. Reading from the front of an index means stepping over every row
-- deleted there that an open transaction might still see: one transaction that is held open for
-- minutes makes that hundreds of thousands. But whoever puts something in `ready` notes how old it
-- is (low_ms). So whoever sums up knows, lane by lane, that nothing older than the present head is
-- left, and nothing can come in below without a tally that says so, visible exactly when it is.
--
--   floor of a lane = least(lane.floor_ms, low_ms of what is not yet summed up)
--
-- Tallies that were summed up are dead rows too, and are stepped around in the same spirit:
-- `counted` has the snapshot of the last summing up, and what is left to sum are the transactions
-- that it could not see, those behind its end and the few that were under way.

CREATE FUNCTION triage.uncounted(p_queue int) RETURNS SETOF triage.tally
LANGUAGE sql STABLE ROWS 200 AS $$
    SELECT t.*
    FROM triage.counted c JOIN triage.tally t ON t.queue = c.queue AND t.tx >= c.seen_max
    WHERE c.queue = p_queue
    UNION ALL
    SELECT t.*
    FROM triage.counted c CROSS JOIN unnest(c.running) AS r (tx)
        JOIN triage.tally t ON t.queue = c.queue AND t.tx = r.tx
    WHERE c.queue = p_queue AND r.tx < c.seen_max
$$;

-- The floors of a queue's lanes; that of a slot is at slot + 1.
CREATE FUNCTION triage.floors(p_queue int) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(floor_ms ORDER BY slot)
    FROM (SELECT slot, min(floor_ms) AS floor_ms
          FROM (SELECT slot, floor_ms FROM triage.lane WHERE queue = p_queue
                UNION ALL
                SELECT slot, low_ms FROM triage.uncounted(p_queue) WHERE low_ms IS NOT NULL) f
          GROUP BY slot) lanes
$$;

-- What a queue holds and what went through it, by slot.
CREATE FUNCTION triage.counts(p_queue int) RETURNS SETOF triage.lane
LANGUAGE sql STABLE ROWS 16 AS $$
    SELECT p_queue, slot, min(floor_ms),
        sum(ready)::bigint, sum(scheduled)::bigint, sum(leased)::bigint, sum(dead)::bigint,
        sum(bytes)::bigint, sum(enqueued)::bigint, sum(claimed)::bigint, sum(acked)::bigint,
        sum(nacked)::bigint, sum(released)::bigint, sum(lease_expired)::bigint,
        sum(expired)::bigint, sum(died)::bigint, sum(deduplicated)::bigint,
        sum(redelivered)::bigint, sum(cancelled)::bigint, sum(redriven)::bigint
    FROM (SELECT slot, floor_ms, ready, scheduled, leased, dead, bytes, enqueued, claimed, acked,
              nacked, released, lease_expired, expired, died, deduplicated, redelivered, cancelled,
              redriven
          FROM triage.lane WHERE queue = p_queue
          UNION ALL
          SELECT slot, low_ms, ready, scheduled, leased, dead, bytes, enqueued, claimed, acked,
              nacked, released, lease_expired, expired, died, deduplicated, redelivered, cancelled,
              redriven
          FROM triage.uncounted(p_queue)) parts
    GROUP BY slot
$$;

-- Sums up a queue's tally and raises its floors. False when somebody else is at it, or when the
-- caller's snapshot is too old for it.
CREATE FUNCTION triage.count_up(p_queue int, p_now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    seen pg_snapshot;
    sums triage.lane[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'
        OR NOT pg_try_advisory_xact_lock(7421, p_queue) THEN
        RETURN false;
    END IF;
    -- In this order. What commits after the snapshot stays for the next time; a head is looked for
    -- only when the low_ms of what can be seen are in hand.
    seen := pg_current_snapshot();
    WITH gone AS (
        DELETE FROM triage.tally
        WHERE ctid = ANY (ARRAY(SELECT t.ctid
                                FROM triage.counted c
                                    JOIN triage.tally t ON t.queue = c.queue AND t.tx >= c.seen_max
                                WHERE c.queue = p_queue
                                UNION ALL
                                SELECT t.ctid
                                FROM triage.counted c CROSS JOIN unnest(c.running) AS r (tx)
                                    JOIN triage.tally t ON t.queue = c.queue AND t.tx = r.tx
                                WHERE c.queue = p_queue AND r.tx < c.seen_max))
        RETURNING *)
    SELECT array_agg(s::triage.lane) INTO sums
    FROM (SELECT p_queue, slot, min(low_ms),
              coalesce(sum(ready), 0)::bigint, coalesce(sum(scheduled), 0)::bigint,
              coalesce(sum(leased), 0)::bigint, coalesce(sum(dead), 0)::bigint,
              coalesce(sum(bytes), 0)::bigint, coalesce(sum(enqueued), 0)::bigint,
              coalesce(sum(claimed), 0)::bigint, coalesce(sum(acked), 0)::bigint,
              coalesce(sum(nacked), 0)::bigint, coalesce(sum(released), 0)::bigint,
              coalesce(sum(lease_expired), 0)::bigint, coalesce(sum(expired), 0)::bigint,
              coalesce(sum(died), 0)::bigint, coalesce(sum(deduplicated), 0)::bigint,
              coalesce(sum(redelivered), 0)::bigint, coalesce(sum(cancelled), 0)::bigint,
              coalesce(sum(redriven), 0)::bigint
          FROM gone GROUP BY slot) s;
    UPDATE triage.counted SET seen_max = pg_snapshot_xmax(seen), at_ms = p_now,
        running = ARRAY(SELECT pg_snapshot_xip(seen) UNION ALL SELECT pg_current_xact_id())
    WHERE queue = p_queue;
    UPDATE triage.lane l SET
        floor_ms = coalesce((SELECT r.ready_ms FROM triage.ready r
                             WHERE r.queue = p_queue AND r.slot = l.slot
                                 AND r.ready_ms >= least(l.floor_ms, s.floor_ms)
                             ORDER BY r.ready_ms, r.seq LIMIT 1), 140737488355327),
        ready = l.ready + s.ready, scheduled = l.scheduled + s.scheduled,
        leased = l.leased + s.leased, dead = l.dead + s.dead, bytes = l.bytes + s.bytes,
        enqueued = l.enqueued + s.enqueued, claimed = l.claimed + s.claimed,
        acked = l.acked + s.acked, nacked = l.nacked + s.nacked,
        released = l.released + s.released, lease_expired = l.lease_expired + s.lease_expired,
        expired = l.expired + s.expired, died = l.died + s.died,
        deduplicated = l.deduplicated + s.deduplicated,
        redelivered = l.redelivered + s.redelivered, cancelled = l.cancelled + s.cancelled,
        redriven = l.redriven + s.redriven
    FROM unnest(sums) s
    WHERE l.queue = p_queue AND l.slot = s.slot;
    RETURN true;
END $$;

-- What a server keeps of a queue: how many, and since when the head of each level waits.
CREATE FUNCTION triage.engine_view(p_queue int)
RETURNS TABLE (slot smallint, head_ms bigint, ready bigint, scheduled bigint, leased bigint,
    dead bigint, bytes bigint, enqueued bigint, claimed bigint, acked bigint, nacked bigint,
    released bigint, lease_expired bigint, expired bigint, died bigint, deduplicated bigint,
    redelivered bigint, cancelled bigint, redriven bigint)
LANGUAGE sql STABLE ROWS 16
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
    SELECT c.slot,
        (SELECT r.ready_ms FROM triage.ready r
         WHERE r.queue = p_queue AND r.slot = c.slot AND r.ready_ms >= c.floor_ms
         ORDER BY r.ready_ms, r.seq LIMIT 1),
        c.ready, c.scheduled, c.leased, c.dead, c.bytes, c.enqueued, c.claimed, c.acked, c.nacked,
        c.released, c.lease_expired, c.expired, c.died, c.deduplicated, c.redelivered, c.cancelled,
        c.redriven
    FROM triage.counts(p_queue) c
$$;

-- The heads alone, for lanes that have one.
CREATE FUNCTION triage.engine_heads(p_queue int) RETURNS TABLE (slot smallint, head_ms bigint)
LANGUAGE sql STABLE ROWS 16
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
    SELECT (f.place - 1)::smallint, r.ready_ms
    FROM unnest(triage.floors(p_queue)) WITH ORDINALITY f (floor_ms, place)
        CROSS JOIN LATERAL (SELECT r.ready_ms FROM triage.ready r
            WHERE r.queue = p_queue AND r.slot = f.place - 1 AND r.ready_ms >= f.floor_ms
            ORDER BY r.ready_ms, r.seq LIMIT 1) r
$$;
