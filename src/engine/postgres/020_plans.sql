-- Claims by a plan that is right whatever the lanes hold. A server may know less than the database
-- does: others have put messages in, time has passed, a limit is reached. So the plan only says which
-- messages count as which rank; which messages there are is found out here.

-- Takes the token of a message that a step in turn has found. Steps without tokens cost nothing. A
-- step is served without tokens only when no step with a message has any: then all are refilled.
CREATE FUNCTION triage.tokens_spend(p_tokens int[], p_quota int[], p_steps int[]) RETURNS int[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    tokens int[] := p_tokens;
BEGIN
    FOR i IN 1..coalesce(cardinality(p_steps), 0) LOOP
        IF tokens[p_steps[i]] = 0 THEN
            tokens := p_quota;
        END IF;
        tokens[p_steps[i]] := tokens[p_steps[i]] - 1;
    END LOOP;
    RETURN tokens;
END $$;

-- Follows a plan without taking anything: the slots to take from, one for each message, and the step
-- that each is for. The parameters are those of engine_claim_plan(); p_room[slot + 1] is how many a
-- slot may still give. A slot is looked at when the plan first comes to it.
CREATE FUNCTION triage.plan_units(p_queue int, p_max int[], p_tokens int[], p_quota int[],
    p_step int[], p_slot smallint[], p_until bigint[], p_bias bigint[], p_room bigint[], p_want int,
    OUT unit smallint[], OUT step int[])
LANGUAGE plpgsql AS $$
DECLARE
    floors bigint[] := triage.floors(p_queue);
    steps int := cardinality(p_max);
    tokens int[] := p_tokens;
    given int[] := array_fill(0, ARRAY[steps]);
    lane_first int[] := array_fill(NULL::int, ARRAY[steps]); -- by step
    lane_last int[] := array_fill(NULL::int, ARRAY[steps]);
    closed boolean[] := array_fill(false, ARRAY[steps]); -- it has nothing more
    heads_ms bigint[] := '{}';
    heads_seq bigint[] := '{}';
    next int[] := array_fill(NULL::int, ARRAY[16]); -- by slot + 1: its next head; NULL: not looked at
    stop int[] := array_fill(NULL::int, ARRAY[16]); -- … and where its heads end
    some_ms bigint[];
    some_seq bigint[];
    s int := 1; -- the step
    place int;
    head int;
    best int; -- the lane
    best_ms bigint;
    best_seq bigint;
BEGIN
    unit := '{}';
    step := '{}';
    FOR l IN 1..cardinality(p_step) LOOP
        lane_first[p_step[l]] := coalesce(lane_first[p_step[l]], l);
        lane_last[p_step[l]] := l;
    END LOOP;
    WHILE cardinality(unit) < p_want LOOP
        IF p_tokens[s] IS NULL THEN
            EXIT WHEN s > steps;
        ELSE
            s := NULL; -- whose turn it is: the most tokens, or the most that it would be refilled to
            FOR i IN 1..steps LOOP
                CONTINUE WHEN closed[i] OR p_tokens[i] IS NULL;
                IF s IS NULL OR tokens[i] > tokens[s]
                    OR tokens[i] = 0 AND tokens[s] = 0 AND p_quota[i] > p_quota[s] THEN
                    s := i;
                END IF;
            END LOOP;
            EXIT WHEN s IS NULL;
        END IF;
        best := NULL;
        IF given[s] < p_max[s] THEN
            FOR l IN lane_first[s]..lane_last[s] LOOP
                place := p_slot[l] + 1;
                IF next[place] IS NULL THEN
                    SELECT array_agg(h.ready_ms), array_agg(h.seq) INTO some_ms, some_seq
                    FROM (SELECT r.ready_ms, r.seq FROM triage.ready r
                          WHERE r.queue = p_queue AND r.slot = p_slot[l]
                              AND r.ready_ms >= floors[place]
                          ORDER BY r.ready_ms, r.seq
                          LIMIT least(p_want - cardinality(unit), p_room[place])) h;
                    next[place] := cardinality(heads_ms) + 1;
                    heads_ms := heads_ms || some_ms;
                    heads_seq := heads_seq || some_seq;
                    stop[place] := cardinality(heads_ms) + 1;
                END IF;
                head := next[place];
                CONTINUE WHEN head = stop[place] OR heads_ms[head] > p_until[l];
                IF best IS NULL OR heads_ms[head] + p_bias[l] < best_ms
                    OR heads_ms[head] + p_bias[l] = best_ms AND heads_seq[head] < best_seq THEN
                    best := l;
                    best_ms := heads_ms[head] + p_bias[l];
                    best_seq := heads_seq[head];
                END IF;
            END LOOP;
        END IF;
        IF best IS NOT NULL THEN
            place := p_slot[best] + 1;
            next[place] := next[place] + 1;
            given[s] := given[s] + 1;
            unit := unit || p_slot[best];
            step := step || s;
            IF tokens[s] = 0 THEN
                tokens := p_quota;
            END IF;
            tokens[s] := tokens[s] - 1;
        ELSIF p_tokens[s] IS NULL THEN
            s := s + 1;
        ELSE
            closed[s] := true;
        END IF;
    END LOOP;
END $$;

-- Leases up to p_want messages: at most p_max[s] from the lanes whose p_step is s, whichever head has
-- the smallest (ready_ms + p_bias, seq), of messages ready by p_until; never more than
-- p_room[slot + 1] of a lane, unless that is NULL. A level at its limit gives none, and so does a
-- queue.
--
-- Steps without tokens come first, one after the other. Those with tokens share the rest: each
-- message is from the step with the most of those that have something, and costs one; when none
-- of them has any, all have p_quota again. Which step each message is from tells the caller what is
-- left. p_bucket: under this name what is left is kept for the next call of the same transaction,
-- which then goes on from there; NULL when there is no other.
--
-- p_lease_ms NULL: the queue's own. p_receipts: 16 random bytes for each message wanted.
CREATE FUNCTION triage.engine_claim_plan(p_queue int, p_version int, p_max int[], p_tokens int[],
    p_quota int[], p_step int[], p_slot smallint[], p_until bigint[], p_bias bigint[],
    p_room bigint[], p_bucket text, p_want int, p_lease_ms bigint, p_receipts bytea,
    p_now bigint DEFAULT NULL)
RETURNS SETOF triage.delivered
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    room bigint[] := triage.room(q);
    most int[] := p_max;
    tokens int[] := p_tokens;
    buckets jsonb := '{}';
    want int;
    found int := 0;
    planned record;
    round record;
    served int[];
    each triage.delivered;
    dry smallint;
BEGIN
    IF p_room IS NOT NULL THEN
        room := ARRAY(SELECT least(room[i], p_room[i]) FROM generate_series(1, 17) i ORDER BY i);
    END IF;
    IF p_bucket IS NOT NULL THEN
        buckets := coalesce(nullif(current_setting('triage.buckets', true), ''), '{}');
        IF buckets ? p_bucket THEN
            tokens := (buckets->>p_bucket)::int[];
        END IF;
    END IF;
    want := least(p_want, room[17]);
    WHILE found < want LOOP
        planned := triage.plan_units(p_queue, most, tokens, p_quota, p_step, p_slot, p_until, p_bias,
                                     room, want - found);
        EXIT WHEN planned.unit = '{}';
        round := triage.claim_round(q, planned.unit, planned.step, found,
            coalesce(p_lease_ms, q.visibility_ms), p_receipts, now_ms);
        RETURN QUERY SELECT * FROM unnest(round.got);
        found := found + coalesce(cardinality(round.got), 0);
        served := ARRAY(SELECT g.step FROM unnest(round.got) g ORDER BY g.place);
        tokens := triage.tokens_spend(tokens, p_quota, served);
        EXIT WHEN served = planned.step;
        -- Somebody else was faster, or a time to live was over. A slot that gave less than was there
        -- has no more for us: others hold it.
        FOREACH each IN ARRAY coalesce(round.got, '{}') LOOP
            most[each.step] := most[each.step] - 1;
            room[each.slot + 1] := room[each.slot + 1] - 1;
        END LOOP;
        FOR dry IN
            SELECT p FROM unnest(planned.unit) p GROUP BY p
            HAVING count(*) > (SELECT count(*) FROM unnest(round.got) g WHERE g.slot = p)
                + (SELECT count(*) FROM unnest(round.over) o WHERE o = p)
        LOOP
            room[dry + 1] := 0;
        END LOOP;
    END LOOP;
    IF p_bucket IS NOT NULL THEN
        PERFORM set_config('triage.buckets',
                           (buckets || jsonb_build_object(p_bucket, tokens::text))::text, true);
    END IF;
END $$;

-- engine_claim_plan() without tokens, which servers of the version before call.
CREATE OR REPLACE FUNCTION triage.engine_claim_lanes(p_queue int, p_version int, p_max int[],
    p_step int[], p_slot smallint[], p_until bigint[], p_bias bigint[], p_room bigint[], p_want int,
    p_lease_ms bigint, p_receipts bytea, p_now bigint DEFAULT NULL)
RETURNS SETOF triage.delivered
LANGUAGE sql ROWS 100 AS $$
    SELECT * FROM triage.engine_claim_plan(p_queue, p_version, p_max,
        array_fill(NULL::int, ARRAY[cardinality(p_max)]), NULL, p_step, p_slot, p_until, p_bias,
        p_room, NULL, p_want, p_lease_ms, p_receipts, p_now)
$$;

-- engine_claim_plan() for strict order: all messages of one lane before any of the next. One statement
-- does it, unless the queue has limits, aging or promised waits, or there are expired messages.
CREATE OR REPLACE FUNCTION triage.engine_claim(p_queue int, p_version int, p_slot smallint[], p_want int,
    p_lease_ms bigint, p_receipts bytea, p_now bigint DEFAULT NULL)
RETURNS SETOF triage.delivered
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    lease bigint := coalesce(p_lease_ms, q.visibility_ms);
    lanes int := cardinality(p_slot);
    floors bigint[];
BEGIN
    IF q.max_in_flight > 0
        OR EXISTS (SELECT FROM triage.level l WHERE l.queue = p_queue
                   AND (l.max_in_flight > 0 OR l.age_ms > 0 OR l.max_wait_ms > 0))
        OR EXISTS (SELECT FROM triage.ready r WHERE r.expire_ms <= now_ms
                   AND r.expire_ms >= triage.sweep_from('ttl-ready', now_ms)) THEN
        RETURN QUERY
        SELECT * FROM triage.engine_claim_lanes(p_queue, p_version,
            array_fill(p_want, ARRAY[lanes]), ARRAY(SELECT generate_series(1, lanes)), p_slot,
            array_fill(9223372036854775807, ARRAY[lanes]), array_fill(0::bigint, ARRAY[lanes]),
            NULL, p_want, p_lease_ms, p_receipts, p_now);
        RETURN;
    END IF;
    floors := triage.floors(p_queue);
    RETURN QUERY
    WITH taken AS (
        DELETE FROM triage.ready
        WHERE ctid = ANY (ARRAY(
            SELECT head.ctid
            FROM unnest(p_slot) lane (slot) CROSS JOIN LATERAL (
                SELECT r.ctid FROM triage.ready r
                WHERE r.queue = p_queue AND r.slot = lane.slot
                    AND r.ready_ms >= floors[lane.slot + 1]
                ORDER BY r.ready_ms, r.seq LIMIT p_want FOR UPDATE SKIP LOCKED) head
            LIMIT p_want))
        RETURNING *),
    placed AS MATERIALIZED (
        SELECT t.*, array_position(p_slot, t.slot) AS step, (row_number() OVER (
            ORDER BY array_position(p_slot, t.slot), t.ready_ms, t.seq))::int AS place
        FROM taken t),
    leased AS (
        INSERT INTO triage.leased
        SELECT p.seq, p.ready_ms, p.born_ms, p.enqueued_ms, p.queue, p.attempts + 1, p.slot,
            p.born_slot, p.kind, p.payload, p.large, p.metadata, p.dedup_key, p.expire_ms, p.reason,
            p.escalated_ms, p.escalated_by, p.escalated_why, p.escalated_from,
            now_ms + lease, lease, substr(p_receipts, 16 * p.place - 15, 16)
        FROM placed p),
    counted AS (
        INSERT INTO triage.tally (queue, slot, ready, leased, bytes, claimed, redelivered)
        SELECT p_queue, p.slot, -count(*), count(*),
            -sum(triage.size_of(p.large, p.payload, p.metadata)), count(*),
            nullif(count(*) FILTER (WHERE p.attempts > 0), 0)
        FROM placed p GROUP BY p.slot)
    SELECT p.place, p.step, p.slot, p.ready_ms, p.born_slot, p.born_ms, p.seq, p.enqueued_ms,
        p.expire_ms, p.attempts + 1, p.kind,
        CASE WHEN p.large IS NULL THEN p.payload
            ELSE (SELECT b.payload FROM triage.body b WHERE b.seq = p.seq) END,
        p.metadata, p.dedup_key, p.reason, substr(p_receipts, 16 * p.place - 15, 16),
        now_ms + lease, lease
    FROM placed p;
END $$;
