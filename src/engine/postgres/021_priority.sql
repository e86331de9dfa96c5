-- A priority as a number too: SELECT triage.enqueue('mail', 'x', priority => 1).
--
-- Where the priority comes before everything that has a default, a function of the same name takes
-- it as a bigint, which has to be given: so no call fits two of them. A literal in quotes and a NULL
-- are text to PostgreSQL, and go where they went.
CREATE FUNCTION triage.enqueue(queue text, payload text, priority bigint,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue(queue, payload, priority::text, delay, delay_until, dequeue_at, dedup_key,
                          ttl, metadata)
$$;

CREATE FUNCTION triage.enqueue(queue text, payload jsonb, priority bigint,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue(queue, payload, priority::text, delay, delay_until, dequeue_at, dedup_key,
                          ttl, metadata)
$$;

CREATE FUNCTION triage.enqueue(queue text, payload bytea, priority bigint,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue(queue, payload, priority::text, delay, delay_until, dequeue_at, dedup_key,
                          ttl, metadata)
$$;

CREATE FUNCTION triage.enqueue_many(queue text, payloads text[], priority bigint,
    delay interval DEFAULT NULL, ttl interval DEFAULT NULL) RETURNS SETOF text
LANGUAGE sql AS $$
    SELECT triage.enqueue_many(queue, payloads, priority::text, delay, ttl)
$$;

CREATE FUNCTION triage.escalate(message_id text, priority bigint, actor text DEFAULT NULL,
                                reason text DEFAULT NULL) RETURNS void
LANGUAGE sql AS $$
    SELECT triage.escalate(message_id, priority::text, actor, reason)
$$;

CREATE FUNCTION triage.escalate_many(queue text, priority bigint, filter jsonb DEFAULT '{}',
    actor text DEFAULT NULL, reason text DEFAULT NULL, dry_run boolean DEFAULT false,
    OUT matched bigint, OUT changed bigint)
LANGUAGE sql AS $$
    SELECT * FROM triage.escalate_many(queue, priority::text, filter, actor, reason, dry_run)
$$;

-- Where other parameters with a default come before the priority, a second function would make
-- claim('mail', 10) ambiguous. So these two functions replace the old ones, and take a priority of
-- any type: to anycompatible a literal in quotes and a NULL are text. The roles that may call them
-- stay the same: their rights are remembered here and given back below.
SELECT set_config('triage.rights_' || p.proname, p.proacl::text, true)
FROM pg_proc p
WHERE p.oid IN (to_regprocedure('triage.claim(text, int, text, interval)'),
                to_regprocedure('triage.redrive(text, text[], int, text)'));

-- A claim in SQL that first plans and then takes is not always in strict order. Example: a lease
-- ends in between, and its message comes back to its place. The plan counted on one message of that
-- level. Now it takes the one that came back, and the other one is left behind less urgent ones. So
-- where the order is strict and nothing ages, the claim uses the function of servers, which is one
-- statement.
DROP FUNCTION IF EXISTS triage.claim(text, int, text, interval);
CREATE FUNCTION triage.claim(queue text, max int DEFAULT 1,
    min_priority anycompatible DEFAULT NULL::text, visibility_timeout interval DEFAULT NULL)
RETURNS TABLE (message_id text, receipt_handle text, payload text, payload_bytes bytea,
    priority text, level text, effective_level text, attempt int, enqueued_at timestamptz,
    visible_at timestamptz, metadata jsonb)
LANGUAGE plpgsql SECURITY DEFINER ROWS 10
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_named(claim.queue);
    now_ms bigint := triage.now_ms();
    lease_ms bigint := triage.to_ms(visibility_timeout);
    max_rank int := 15;
    in_order boolean;  -- the policy is strict, and nothing ages
    plain boolean;     -- … and no plan was needed yet
    lanes smallint[];  -- by rank
    slots smallint[];  -- what is planned: one for each message
    ranks int[];       -- as what each of these counts; of a plain claim, what each lane is
    want int;
    found int := 0;
    tired boolean := false;
    without smallint[] := '{}';
    d triage.delivered;
    served smallint[];
BEGIN
    IF claim.max NOT BETWEEN 1 AND @CLAIM_MAX@ THEN
        PERFORM triage.refuse(422, 'invalid-field', 'max is 1 to @CLAIM_MAX@');
    ELSIF lease_ms NOT BETWEEN 0 AND @LEASE_SECONDS_MAX@ * 1000 THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              'visibility_timeout is 0 to @LEASE_SECONDS_MAX@ seconds');
    END IF;
    IF min_priority IS NOT NULL THEN
        max_rank := (triage.level_named(q, min_priority::text)).rank;
    END IF;
    SELECT q.policy = 'strict' AND bool_and(l.age_ms = 0 AND l.max_wait_ms = 0),
        array_agg(l.slot ORDER BY l.rank) FILTER (WHERE l.rank <= max_rank),
        array_agg(l.rank ORDER BY l.rank)
    INTO in_order, lanes, ranks
    FROM triage.level l WHERE l.queue = q.id;
    plain := in_order;
    PERFORM triage.sweep_by_the_way(now_ms, false);
    WHILE NOT q.paused AND found < claim.max LOOP
        want := claim.max - found;
        IF NOT plain THEN
            SELECT p.slots, p.effective INTO slots, ranks
            FROM triage.plan(q, max_rank, want, without, now_ms) p;
            want := cardinality(slots);
        END IF;
        served := '{}';
        FOR d IN
            SELECT * FROM triage.engine_claim(q.id, q.version, lanes, want, lease_ms,
                triage.receipts(want), now_ms)
            WHERE plain
            UNION ALL
            SELECT * FROM triage.claim_units(q, slots, ARRAY(SELECT generate_series(1, want)), want,
                lease_ms, triage.receipts(want), now_ms)
            WHERE NOT plain AND want > 0
        LOOP
            served := served || d.slot;
            found := found + 1;
            message_id := triage.id_format(q.id, d.born_slot, d.born_ms, d.seq);
            receipt_handle := triage.receipt_format(d.receipt);
            payload := CASE WHEN d.kind < 2 THEN triage.text_of(d.payload) END;
            payload_bytes := d.payload;
            SELECT triage.priority_of(l), l.name INTO priority, level
            FROM triage.level l WHERE l.queue = q.id AND l.slot = d.slot;
            SELECT l.name INTO effective_level
            FROM triage.level l WHERE l.queue = q.id AND l.rank = ranks[d.step];
            attempt := d.attempts;
            enqueued_at := triage.from_ms(d.enqueued_ms);
            visible_at := triage.from_ms(d.until_ms);
            metadata := triage.json_of(d.metadata);
            RETURN NEXT;
        END LOOP;
        -- What comes back from now on would stand behind less urgent ones in this answer.
        EXIT WHEN in_order AND found > 0;
        IF plain THEN
            plain := false; -- what others hold was in the way: plan around it
        ELSIF want = 0 THEN
            EXIT WHEN tired;
            tired := true;
            PERFORM triage.sweep_by_the_way(now_ms, true);
        ELSE
            -- What gave less than was planned has no more for us: others hold it, or a limit does.
            without := without || ARRAY(
                SELECT p FROM unnest(slots) p GROUP BY p
                HAVING count(*) > (SELECT count(*) FROM unnest(served) s WHERE s = p));
        END IF;
    END LOOP;
END $$;

DROP FUNCTION IF EXISTS triage.redrive(text, text[], int, text);
-- Dead letters back to ready: these, or up to `max` from the oldest on. Their attempts start again.
CREATE FUNCTION triage.redrive(queue text, message_ids text[] DEFAULT NULL, max int DEFAULT 1000,
                               priority anycompatible DEFAULT NULL::text) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(redrive.queue);
    seqs bigint[];
    slots smallint[];
    readies bigint[];
BEGIN
    IF message_ids IS NOT NULL THEN
        SELECT array_agg(p.seq), array_agg(p.slot), array_agg(p.ready_ms)
        INTO seqs, slots, readies
        FROM unnest(message_ids) i CROSS JOIN LATERAL triage.id_parse(i) p WHERE p.queue = q.id;
        seqs := coalesce(seqs, '{}');
    END IF;
    RETURN (triage.engine_redrive(q.id, q.version, seqs, slots, readies, redrive.max, 0,
        281474976710656, CASE WHEN priority IS NOT NULL
                         THEN (triage.level_named(q, priority::text)).slot END)).redriven;
END $$;

DO $$
DECLARE
    f record;
    holder oid;
BEGIN
    FOR f IN SELECT p.oid::regprocedure AS name, p.proowner AS owner, r.rights::aclitem[] AS rights
             FROM pg_proc p, nullif(current_setting('triage.rights_' || p.proname, true), '') r (rights)
             WHERE p.oid IN ('triage.claim'::regproc, 'triage.redrive'::regproc)
                 AND r.rights IS NOT NULL
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f.name);
        FOR holder IN SELECT a.grantee FROM aclexplode(f.rights) a WHERE a.grantee <> f.owner
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f.name,
                CASE holder WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(holder)) END);
        END LOOP;
    END LOOP;
END $$;

-- The levels of a queue, most urgent first, and what stands in each.
CREATE FUNCTION triage.levels(queue text)
RETURNS TABLE (priority text, level text, ready bigint, scheduled bigint, in_flight bigint,
    dead bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(levels.queue);
BEGIN
    RETURN QUERY
    SELECT triage.priority_of(l), l.name, coalesce(v.ready, 0), coalesce(v.scheduled, 0),
        coalesce(v.leased, 0), coalesce(v.dead, 0)
    FROM triage.level l LEFT JOIN triage.engine_view(q.id) v ON v.slot = l.slot
    WHERE l.queue = q.id
    ORDER BY l.rank;
END $$;
