-- Claims by plan. A plan says: so many messages from this level, then so many from that one. The
-- caller makes it: the server, or 011_policy.sql.

CREATE TYPE triage.delivered AS (
    place int,         -- in the order in which they are handed out
    step int,          -- of the plan, from 1 on
    slot smallint,
    ready_ms bigint,
    born_slot smallint, -- the id: queue, born_slot, born_ms, seq
    born_ms bigint,
    seq bigint,
    enqueued_ms bigint,
    expire_ms bigint,
    attempts int,
    kind smallint,
    payload bytea,
    metadata text,
    dedup_key bytea,
    reason text,
    receipt bytea,
    until_ms bigint,
    lease_ms bigint
);

-- Removes what belongs to messages that have ended: large payloads, and dedup keys that live as long
-- as their message.
CREATE FUNCTION triage.forget(p_queue int, p_large bigint[], p_keyed bigint[], p_keys bytea[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_large IS NOT NULL THEN
        DELETE FROM triage.body WHERE seq = ANY (p_large);
    END IF;
    IF p_keyed IS NOT NULL THEN
        DELETE FROM triage.dedup
        WHERE ctid = ANY (ARRAY(SELECT r.at
                                FROM unnest(p_keyed, p_keys) k (seq, key) CROSS JOIN LATERAL (
                                    SELECT d.ctid AS at FROM triage.dedup d
                                    WHERE d.queue = p_queue AND d.key = k.key AND d.seq = k.seq
                                        AND d.until_ms IS NULL OFFSET 0) r));
    END IF;
END $$;

-- How many more messages may be leased: by slot + 1, and at the end for the whole queue; NULL: no
-- limit. In a queue with limits the caller holds a lock until the end of its transaction, so that
-- claims take turns.
CREATE FUNCTION triage.room(q triage.queue) RETURNS bigint[]
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
                          THEN greatest(l.max_in_flight - coalesce(c.leased, 0), 0) END ORDER BY s.slot)
        || CASE WHEN q.max_in_flight > 0
                THEN greatest(q.max_in_flight - coalesce(sum(c.leased), 0)::bigint, 0) END
    INTO room
    FROM generate_series(0, 15) s (slot)
        LEFT JOIN triage.counts(q.id) c ON c.slot = s.slot
        LEFT JOIN triage.level l ON l.queue = q.id AND l.slot = s.slot AND l.max_in_flight > 0;
    RETURN room;
END $$;

-- The ready time of a message that has waited for exactly p_wait_ms by now. Time in which the queue
-- was paused does not count.
CREATE FUNCTION triage.cutoff(q triage.queue, p_now bigint, p_wait_ms bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    at_ms bigint := p_now;
    left_ms bigint := p_wait_ms;
    pause record;
BEGIN
    FOR pause IN SELECT (p->>'from_ms')::bigint AS from_ms, (p->>'until_ms')::bigint AS until_ms
        FROM jsonb_array_elements(q.pauses) WITH ORDINALITY n (p, place) ORDER BY place DESC
    LOOP
        IF pause.until_ms < at_ms THEN
            EXIT WHEN at_ms - pause.until_ms >= left_ms;
            left_ms := left_ms - (at_ms - pause.until_ms);
        END IF;
        at_ms := least(at_ms, pause.from_ms);
    END LOOP;
    RETURN at_ms - left_ms;
END $$;

-- Two ready times for each level, by slot + 1: messages up to the first count as more urgent than
-- their level by now, and messages up to the second have waited longer than the level promises.
-- NULL for levels, and queues, in which no message ever does.
CREATE FUNCTION triage.aged_until(q triage.queue, p_now bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM triage.level l WHERE l.queue = q.id AND l.rank > 0
                   AND (l.age_ms > 0 OR l.max_wait_ms > 0)) THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT greatest(triage.cutoff(q, p_now, nullif(l.age_ms, 0)),
                        triage.cutoff(q, p_now, nullif(l.max_wait_ms - l.max_wait_ms / 8, 0)))
        FROM generate_series(0, 15) s
            LEFT JOIN triage.level l ON l.queue = q.id AND l.slot = s AND l.rank > 0
        ORDER BY s);
END $$;

CREATE FUNCTION triage.late_until(q triage.queue, p_now bigint) RETURNS bigint[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM triage.level l WHERE l.queue = q.id AND l.max_wait_ms > 0) THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT triage.cutoff(q, p_now, nullif(l.max_wait_ms, 0) + 1)
        FROM generate_series(0, 15) s LEFT JOIN triage.level l ON l.queue = q.id AND l.slot = s
        ORDER BY s);
END $$;

-- One round of a claim: takes a message for each unit, as far as there are any. A unit stands for one
-- message of one slot; p_step says which step of the plan it is from. All messages are taken in one
-- statement, slot by slot, and then handed out in the order of the units. Messages whose time to live
-- is over end here instead; `over` has the units that are still without a message.
CREATE FUNCTION triage.claim_round(q triage.queue, p_unit smallint[], p_step int[], p_place int,
    p_lease_ms bigint, p_receipts bytea, p_now bigint,
    OUT got triage.delivered[], OUT over smallint[])
LANGUAGE plpgsql AS $$
DECLARE
    floors bigint[] := triage.floors(q.id);
    first int[];  -- where the units of a slot begin in `units`
    units int[];  -- where in p_unit they are, slot by slot
    aged_by bigint[] := triage.aged_until(q, p_now);
    late_by bigint[] := triage.late_until(q, p_now);
    large bigint[];
    keyed bigint[];
    keys bytea[];
BEGIN
    units := ARRAY(SELECT u.at FROM unnest(p_unit) WITH ORDINALITY u (slot, at)
                   ORDER BY u.slot, u.at);
    first := ARRAY(SELECT count(u) FROM generate_series(0, 15) slot
                       LEFT JOIN unnest(p_unit) u ON u < slot GROUP BY slot ORDER BY slot);
    WITH taken AS (
        DELETE FROM triage.ready
        WHERE ctid = ANY (ARRAY(
            SELECT head.ctid
            FROM (SELECT u AS slot, count(*) AS most FROM unnest(p_unit) u GROUP BY u) step
                CROSS JOIN LATERAL (
                    SELECT r.ctid FROM triage.ready r
                    WHERE r.queue = q.id AND r.slot = step.slot
                        AND r.ready_ms >= floors[step.slot + 1]
                    ORDER BY r.ready_ms, r.seq
                    LIMIT step.most
                    FOR UPDATE SKIP LOCKED) head))
        RETURNING *, coalesce(expire_ms <= p_now, false) AS late),
    nth AS (
        SELECT t.*, units[first[t.slot + 1]
            + row_number() OVER (PARTITION BY t.slot ORDER BY t.ready_ms, t.seq)] AS at
        FROM taken t WHERE NOT t.late),
    placed AS MATERIALIZED (
        SELECT n.*, p_place + (row_number() OVER (ORDER BY n.at))::int AS place,
            p_step[n.at] AS step
        FROM nth n),
    leased AS (
        INSERT INTO triage.leased
        SELECT p.seq, p.ready_ms, p.born_ms, p.enqueued_ms, p.queue, p.attempts + 1, p.slot,
            p.born_slot, p.kind, p.payload, p.large, p.metadata, p.dedup_key, p.expire_ms, p.reason,
            p.escalated_ms, p.escalated_by, p.escalated_why, p.escalated_from,
            p_now + p_lease_ms, p_lease_ms, substr(p_receipts, 16 * p.place - 15, 16)
        FROM placed p),
    dead AS (
        INSERT INTO triage.dead
        SELECT t.seq, t.ready_ms, t.born_ms, t.enqueued_ms, t.queue, t.attempts, t.slot,
            t.born_slot, t.kind, t.payload, t.large, t.metadata, t.dedup_key, t.expire_ms, 'expired',
            t.escalated_ms, t.escalated_by, t.escalated_why, t.escalated_from, p_now
        FROM taken t WHERE t.late AND q.expired = 'dead'),
    counted AS (
        INSERT INTO triage.tally (queue, slot, ready, leased, bytes, claimed, redelivered, dead,
            died, expired, aged, late)
        SELECT q.id, t.slot, -count(*), count(*) FILTER (WHERE NOT t.late),
            -sum(triage.size_of(t.large, t.payload, t.metadata)),
            count(*) FILTER (WHERE NOT t.late),
            nullif(count(*) FILTER (WHERE NOT t.late AND t.attempts > 0), 0),
            nullif(count(*) FILTER (WHERE t.late AND q.expired = 'dead'), 0),
            nullif(count(*) FILTER (WHERE t.late AND q.expired = 'dead'), 0),
            nullif(count(*) FILTER (WHERE t.late AND q.expired = 'drop'), 0),
            nullif(count(*) FILTER (WHERE NOT t.late AND t.ready_ms <= aged_by[t.slot + 1]), 0),
            nullif(count(*) FILTER (WHERE NOT t.late AND t.ready_ms <= late_by[t.slot + 1]), 0)
        FROM taken t GROUP BY t.slot)
    SELECT (SELECT array_agg((p.place, p.step, p.slot, p.ready_ms, p.born_slot, p.born_ms, p.seq,
                p.enqueued_ms, p.expire_ms, p.attempts + 1, p.kind,
                coalesce(p.payload, (SELECT b.payload FROM triage.body b WHERE b.seq = p.seq)),
                p.metadata, p.dedup_key, p.reason, substr(p_receipts, 16 * p.place - 15, 16),
                p_now + p_lease_ms, p_lease_ms)::triage.delivered ORDER BY p.place)
            FROM placed p),
        array_agg(t.slot) FILTER (WHERE t.late),
        array_agg(t.seq) FILTER (WHERE t.late AND q.expired = 'drop' AND t.payload IS NULL),
        array_agg(t.seq) FILTER (WHERE t.late AND q.expired = 'drop' AND t.dedup_key IS NOT NULL),
        array_agg(t.dedup_key) FILTER (WHERE t.late AND q.expired = 'drop'
                                           AND t.dedup_key IS NOT NULL)
    INTO got, over, large, keyed, keys
    FROM taken t;
    IF over IS NOT NULL THEN
        PERFORM triage.forget(q.id, large, keyed, keys);
    END IF;
END $$;

-- The units of a plan, without those for which there is no room.
CREATE FUNCTION triage.units_within(p_unit smallint[], p_step int[], p_room bigint[],
    OUT unit smallint[], OUT step int[])
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    room bigint[] := p_room;
BEGIN
    unit := '{}';
    step := '{}';
    FOR i IN 1..cardinality(p_unit) LOOP
        CONTINUE WHEN room[p_unit[i] + 1] = 0;
        EXIT WHEN room[17] = 0;
        unit := unit || p_unit[i];
        step := step || p_step[i];
        room[p_unit[i] + 1] := room[p_unit[i] + 1] - 1;
        room[17] := room[17] - 1;
    END LOOP;
END $$;

-- Leases a message for each of the first p_want units, as far as there are messages for them.
CREATE FUNCTION triage.claim_units(q triage.queue, p_units smallint[], p_steps int[], p_want int,
    p_lease_ms bigint, p_receipts bytea, p_now bigint) RETURNS SETOF triage.delivered
LANGUAGE plpgsql ROWS 100 AS $$
DECLARE
    room bigint[] := triage.room(q);
    units smallint[] := p_units;
    steps int[] := p_steps;
    more smallint[];
    more_steps int[];
    at int := 1;
    found int := 0;
    round record;
BEGIN
    IF room IS NOT NULL AND units IS NOT NULL THEN
        SELECT * INTO units, steps FROM triage.units_within(units, steps, room);
    END IF;
    WHILE at <= coalesce(cardinality(units), 0) AND found < p_want LOOP
        more := units[at : at + p_want - found - 1];
        more_steps := steps[at : at + p_want - found - 1];
        at := at + cardinality(more);
        WHILE more IS NOT NULL LOOP
            round := triage.claim_round(q, more, more_steps, found,
                coalesce(p_lease_ms, q.visibility_ms), p_receipts, p_now);
            RETURN QUERY SELECT * FROM unnest(round.got);
            found := found + coalesce(cardinality(round.got), 0);
            more_steps := array_fill(more_steps[1], ARRAY[cardinality(more)]);
            more := round.over;
        END LOOP;
    END LOOP;
END $$;
