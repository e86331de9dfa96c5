-- The SQL interface: what an application calls, inside its own transaction. Documented in
-- docs/sql.md. A refusal is an exception, so that a transaction that acks too late does not commit
-- its work either; its SQLSTATE is TR and the HTTP status, its constraint name the problem's name.

CREATE FUNCTION triage.enqueue_one(p_queue text, p_payload bytea, p_kind smallint, p_priority text,
    p_delay interval, p_delay_until timestamptz, p_dequeue_at bigint, p_dedup_key text,
    p_ttl interval, p_metadata jsonb) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_ensure(p_queue);
    l triage.level := triage.level_named(q, p_priority);
    put triage.put_result;
BEGIN
    IF p_payload IS NULL THEN
        PERFORM triage.refuse(422, 'invalid-field', 'payload is required');
    ELSIF octet_length(p_payload) > 262144 THEN
        PERFORM triage.refuse(413, 'payload-too-large', 'a payload has at most 262144 bytes');
    ELSIF num_nonnulls(p_delay, p_delay_until, p_dequeue_at) > 1 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'delay, delay_until and dequeue_at: only one');
    ELSIF abs(coalesce(p_dequeue_at, triage.to_ms(p_delay_until))) > 140737488355327 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'a time is out of range');
    ELSIF octet_length(p_dedup_key) NOT BETWEEN 1 AND 256 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'dedup_key has 1 to 256 bytes');
    ELSIF octet_length(p_metadata::text) > 4096 OR jsonb_typeof(p_metadata) <> 'object' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'metadata is an object of at most 4096 bytes');
    END IF;
    put := triage.engine_put(q.id, q.version, ARRAY[l.slot], ARRAY[p_payload], ARRAY[p_kind],
        ARRAY[p_metadata::text],
        CASE WHEN p_dedup_key IS NOT NULL THEN ARRAY[convert_to(p_dedup_key, 'UTF8')] END,
        ARRAY[coalesce(p_dequeue_at, triage.to_ms(p_delay_until))], ARRAY[triage.to_ms(p_delay)],
        ARRAY[triage.to_ms(p_ttl)]);
    IF put.status = 'queue-full' THEN
        PERFORM triage.refuse(429, 'queue-full', format('queue %s is at its limit', q.name));
    ELSIF put.status IS NOT NULL THEN
        PERFORM triage.refuse(413, put.status, 'larger than all that the queue may hold');
    END IF;
    RETURN triage.id_format(q.id, put.slot, put.ready_ms, put.seq);
END $$;

-- Text is kept byte for byte, jsonb as its text, bytea as it is; each comes back as it went in.
CREATE FUNCTION triage.enqueue(queue text, payload text, priority text DEFAULT NULL,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue_one(queue, convert_to(payload, 'UTF8'), 0::smallint, priority, delay,
        delay_until, dequeue_at, dedup_key, ttl, metadata)
$$;

CREATE FUNCTION triage.enqueue(queue text, payload jsonb, priority text DEFAULT NULL,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue_one(queue, convert_to(payload::text, 'UTF8'), 1::smallint, priority,
        delay, delay_until, dequeue_at, dedup_key, ttl, metadata)
$$;

CREATE FUNCTION triage.enqueue(queue text, payload bytea, priority text DEFAULT NULL,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue_one(queue, payload, 2::smallint, priority, delay, delay_until, dequeue_at,
        dedup_key, ttl, metadata)
$$;

-- Many payloads at once, all with the same priority and delay; their ids, in order.
CREATE FUNCTION triage.enqueue_many(queue text, payloads text[], priority text DEFAULT NULL,
    delay interval DEFAULT NULL, ttl interval DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_ensure(enqueue_many.queue);
    l triage.level := triage.level_named(q, priority);
    n int := cardinality(payloads);
    put record;
BEGIN
    FOR put IN
        SELECT * FROM triage.engine_put(q.id, q.version, array_fill(l.slot, ARRAY[n]),
            ARRAY(SELECT convert_to(p, 'UTF8') FROM unnest(payloads) WITH ORDINALITY t (p, at)
                  ORDER BY at),
            array_fill(0::smallint, ARRAY[n]), array_fill(NULL::text, ARRAY[n]), NULL,
            array_fill(NULL::bigint, ARRAY[n]), array_fill(triage.to_ms(delay), ARRAY[n]),
            array_fill(triage.to_ms(ttl), ARRAY[n])) ORDER BY place
    LOOP
        IF put.status IS NOT NULL THEN
            PERFORM triage.refuse(429, put.status, format('queue %s is at its limit', q.name));
        END IF;
        RETURN NEXT triage.id_format(q.id, put.slot, put.ready_ms, put.seq);
    END LOOP;
END $$;

-- Where no server is running, whoever claims lets time pass as well: when nobody has lately, once a
-- second in each session, and when there was too little to claim. (Not more often, because what is
-- swept in a long transaction is not to be had before it ends.)
CREATE FUNCTION triage.sweep_by_the_way(p_now bigint, p_always boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_always
        OR (SELECT s.floor_ms < p_now - s.slack_ms - 2000 FROM triage.sweeping s WHERE s.kind = 'lease')
        AND coalesce(nullif(current_setting('triage.swept_ms', true), '')::bigint, 0)
            < p_now - 1000 THEN
        PERFORM set_config('triage.swept_ms', p_now::text, false);
        PERFORM FROM triage.engine_sweep(100, p_now);
    END IF;
END $$;

CREATE FUNCTION triage.claim(queue text, max int DEFAULT 1, min_priority text DEFAULT NULL,
    visibility_timeout interval DEFAULT NULL)
RETURNS TABLE (message_id text, receipt_handle text, payload text, payload_bytes bytea,
    priority text, level text, effective_level text, attempt int, enqueued_at timestamptz,
    visible_at timestamptz, metadata jsonb)
LANGUAGE plpgsql SECURITY DEFINER ROWS 10
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_named(claim.queue);
    now_ms bigint := triage.now_ms();
    max_rank int := 15;
    found int := 0;
    tired boolean := false;
    without smallint[] := '{}';
    receipts bytea;
    plan record;
    d triage.delivered;
    served smallint[];
BEGIN
    IF claim.max NOT BETWEEN 1 AND 100 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'max is 1 to 100');
    ELSIF triage.to_ms(visibility_timeout) NOT BETWEEN 0 AND 43200000 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'visibility_timeout is 0 to 12 hours');
    END IF;
    IF min_priority IS NOT NULL THEN
        max_rank := (triage.level_named(q, min_priority)).rank;
    END IF;
    PERFORM triage.sweep_by_the_way(now_ms, false);
    WHILE NOT q.paused AND found < claim.max LOOP
        plan := triage.plan(q, max_rank, claim.max - found, without, now_ms);
        IF cardinality(plan.slots) = 0 THEN
            EXIT WHEN tired;
            tired := true;
            PERFORM triage.sweep_by_the_way(now_ms, true);
            CONTINUE;
        END IF;
        served := '{}';
        receipts := triage.receipts(cardinality(plan.slots));
        FOR d IN SELECT * FROM triage.claim_units(q, plan.slots,
            ARRAY(SELECT generate_series(1, cardinality(plan.slots))), cardinality(plan.slots),
            triage.to_ms(visibility_timeout), receipts, now_ms)
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
            FROM triage.level l WHERE l.queue = q.id AND l.rank = plan.effective[d.step];
            attempt := d.attempts;
            enqueued_at := triage.from_ms(d.enqueued_ms);
            visible_at := triage.from_ms(d.until_ms);
            metadata := triage.json_of(d.metadata);
            RETURN NEXT;
        END LOOP;
        -- What gave less than was planned has no more for us: others hold it, or a limit does.
        without := without || ARRAY(
            SELECT p FROM unnest(plan.slots) p GROUP BY p
            HAVING count(*) > (SELECT count(*) FROM unnest(served) s WHERE s = p));
    END LOOP;
END $$;

-- An id's queue and place, or the refusal that it is none.
CREATE FUNCTION triage.id_of(p_id text, OUT q triage.queue, OUT slot smallint, OUT ready_ms bigint,
                             OUT seq bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    id record := triage.id_parse(p_id);
BEGIN
    SELECT * INTO q FROM triage.queue t WHERE t.id = id.queue AND NOT t.deleted;
    IF NOT FOUND THEN
        PERFORM triage.refuse(404, 'message-not-found', format('there is no message %s', p_id));
    END IF;
    slot := id.slot;
    ready_ms := id.ready_ms;
    seq := id.seq;
END $$;

CREATE FUNCTION triage.expect(p_status text, p_id text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF p_status = 'message-not-found' THEN
        PERFORM triage.refuse(404, p_status, format('there is no message %s', p_id));
    ELSIF p_status = 'not-pending' THEN
        PERFORM triage.refuse(409, p_status, format('message %s is not scheduled or ready', p_id));
    ELSIF p_status IS NOT NULL THEN
        PERFORM triage.refuse(409, p_status, format('message %s: its lease ran out, or it is not '
            'leased to the bearer of this receipt', p_id));
    END IF;
END $$;

CREATE FUNCTION triage.ack(message_id text, receipt_handle text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    id record := triage.id_of(message_id);
    done triage.settled;
BEGIN
    done := triage.engine_ack((id.q).id, (id.q).version, ARRAY[id.seq], ARRAY[id.slot],
        ARRAY[id.ready_ms], ARRAY[triage.receipt_parse(receipt_handle)]);
    PERFORM triage.expect(done.status, message_id);
END $$;

-- Many at once: for each whether it was done, or why not, in order. Refuses none of the others.
CREATE FUNCTION triage.ack_many(message_ids text[], receipt_handles text[])
RETURNS TABLE (message_id text, status text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    part record;
BEGIN
    FOR part IN
        SELECT q.id, q.version, array_agg(i.id ORDER BY i.place) AS ids,
            array_agg(p.seq ORDER BY i.place) AS seqs, array_agg(p.slot ORDER BY i.place) AS slots,
            array_agg(p.ready_ms ORDER BY i.place) AS readies,
            array_agg(triage.receipt_parse(i.receipt) ORDER BY i.place) AS receipts
        FROM unnest(message_ids, receipt_handles) WITH ORDINALITY i (id, receipt, place)
            CROSS JOIN LATERAL triage.id_parse(i.id) p
            LEFT JOIN triage.queue q ON q.id = p.queue AND NOT q.deleted
        GROUP BY q.id, q.version
    LOOP
        IF part.id IS NULL THEN
            RETURN QUERY SELECT i, 'message-not-found' FROM unnest(part.ids) i;
        ELSE
            RETURN QUERY SELECT part.ids[a.place], coalesce(a.status, 'done')
                FROM triage.engine_ack(part.id, part.version, part.seqs, part.slots, part.readies,
                                       part.receipts) a;
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION triage.return_one(p_id text, p_receipt text, p_release boolean, p_delay interval,
                                  p_reason text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    id record := triage.id_of(p_id);
    done triage.settled;
BEGIN
    done := triage.engine_return((id.q).id, (id.q).version, ARRAY[id.seq], ARRAY[id.slot],
        ARRAY[id.ready_ms], ARRAY[triage.receipt_parse(p_receipt)], p_release,
        triage.to_ms(p_delay), left(coalesce(nullif(p_reason, ''), 'nacked'), 1024));
    PERFORM triage.expect(done.status, p_id);
    RETURN done.state;
END $$;

-- The state that the message is in now. Without a delay: by the queue's backoff.
CREATE FUNCTION triage.nack(message_id text, receipt_handle text, delay interval DEFAULT NULL,
                            reason text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT triage.return_one(message_id, receipt_handle, false, delay, reason) $$;

-- Back to its place, the attempt not counted.
CREATE FUNCTION triage.release(message_id text, receipt_handle text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT triage.return_one(message_id, receipt_handle, true, NULL, NULL) $$;

-- The lease ends that much from now; returns when.
CREATE FUNCTION triage.extend(message_id text, receipt_handle text, visibility_timeout interval)
RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    id record := triage.id_of(message_id);
    done triage.settled;
BEGIN
    IF triage.to_ms(visibility_timeout) NOT BETWEEN 0 AND 43200000 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'visibility_timeout is 0 to 12 hours');
    END IF;
    done := triage.engine_extend((id.q).id, (id.q).version, ARRAY[id.seq], ARRAY[id.slot],
        ARRAY[id.ready_ms], ARRAY[triage.receipt_parse(receipt_handle)],
        triage.to_ms(visibility_timeout));
    PERFORM triage.expect(done.status, message_id);
    RETURN triage.from_ms(done.until_ms);
END $$;

-- Another priority for a message that is scheduled or ready. It keeps its age.
CREATE FUNCTION triage.escalate(message_id text, priority text, actor text DEFAULT NULL,
                                reason text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    id record := triage.id_of(message_id);
    l triage.level := triage.level_named(id.q, priority);
    moved text;
BEGIN
    SELECT m.status INTO moved
    FROM triage.engine_move((id.q).id, (id.q).version, ARRAY[id.seq], ARRAY[id.slot],
                            ARRAY[id.ready_ms], l.slot, left(actor, 128), left(reason, 1024)) m;
    PERFORM triage.expect(moved, message_id);
END $$;

-- The level that a filter of escalate_many() names, or NULL; and the refusal of one that makes no
-- sense.
CREATE FUNCTION triage.filter_level(q triage.queue, p_filter jsonb) RETURNS smallint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    unknown text := (SELECT min(k) FROM jsonb_object_keys(CASE jsonb_typeof(p_filter)
        WHEN 'object' THEN p_filter ELSE '{"": 0}' END) k
        WHERE k NOT IN ('priority', 'older_than_seconds', 'metadata'));
BEGIN
    IF jsonb_typeof(p_filter) <> 'object' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'filter is an object');
    ELSIF unknown IS NOT NULL THEN
        PERFORM triage.refuse(422, 'unknown-field', format('a filter has no %s', unknown));
    ELSIF jsonb_typeof(p_filter->'older_than_seconds') NOT IN ('null', 'number')
        OR (p_filter->>'older_than_seconds')::numeric < 0 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'older_than_seconds is a number, 0 or more');
    ELSIF jsonb_typeof(p_filter->'metadata') NOT IN ('null', 'object') THEN
        PERFORM triage.refuse(422, 'invalid-field', 'metadata is an object');
    ELSIF p_filter->>'priority' IS NOT NULL THEN
        RETURN (triage.level_named(q, p_filter->>'priority')).slot;
    END IF;
    RETURN NULL;
END $$;

-- Every member that is asked for is there with the same value.
CREATE FUNCTION triage.has_members(p_metadata text, p_wanted jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    have jsonb := coalesce(triage.json_of(p_metadata), '{}');
BEGIN
    RETURN NOT EXISTS (SELECT FROM jsonb_each(p_wanted) w WHERE have->w.key IS DISTINCT FROM w.value);
END $$;

-- Another priority for all scheduled and ready messages of a queue that the filter matches: its
-- shape is that of the HTTP interface. A dry run only counts them.
CREATE FUNCTION triage.escalate_many(queue text, priority text, filter jsonb DEFAULT '{}',
    actor text DEFAULT NULL, reason text DEFAULT NULL, dry_run boolean DEFAULT false,
    OUT matched bigint, OUT changed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(escalate_many.queue);
    goal smallint := (triage.level_named(q, escalate_many.priority)).slot;
    named smallint := triage.filter_level(q, filter);
    -- The goal comes first: what is moved there is not met again.
    slots smallint[] := CASE WHEN named IS NULL THEN goal || ARRAY(
        SELECT l.slot FROM triage.level l WHERE l.queue = q.id AND l.slot <> goal)
        ELSE ARRAY[named] END;
    wanted jsonb := nullif(filter->'metadata', 'null');
    enqueued_by bigint := triage.now_ms()
        - coalesce(((filter->>'older_than_seconds')::numeric * 1000)::bigint, -140737488355328);
    before bigint := (SELECT n.last_value + n.is_called::int FROM triage.seq n);
    page record;
BEGIN
    IF escalate_many.priority IS NULL THEN
        PERFORM triage.refuse(422, 'invalid-field', 'priority is required');
    END IF;
    matched := 0;
    changed := 0;
    SELECT 0 AS phase, -1::smallint AS slot, 0::bigint AS ready_ms, 0::bigint AS seq INTO page;
    LOOP
        WITH listed AS MATERIALIZED (
            SELECT l.phase, (l.m).*, l.at, (l.m).seq < before AND (l.m).enqueued_ms <= enqueued_by
                AND (wanted IS NULL OR triage.has_members((l.m).metadata, wanted)) AS fits
            FROM triage.engine_list(q.id, page.phase, page.slot, page.ready_ms, page.seq, 1000,
                                    slots) WITH ORDINALITY l (phase, m, at)),
        fit AS (
            SELECT count(*) AS found, array_agg(l.seq) AS seqs, array_agg(l.born_slot) AS born_slots,
                array_agg(l.born_ms) AS born_ms
            FROM listed l WHERE l.fits)
        SELECT l.phase, l.slot, l.ready_ms, l.seq, f.found, f.seqs, f.born_slots, f.born_ms INTO page
        FROM listed l, fit f ORDER BY l.at DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        matched := matched + page.found;
        IF page.found > 0 AND NOT dry_run THEN
            changed := changed + (
                SELECT count(*) FROM triage.engine_move(q.id, q.version, page.seqs, page.born_slots,
                    page.born_ms, goal, left(actor, 128), left(reason, 1024)) m WHERE m.changed);
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION triage.cancel(message_id text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    id record := triage.id_of(message_id);
BEGIN
    PERFORM triage.expect(triage.engine_cancel((id.q).id, (id.q).version, id.seq, id.slot,
                                               id.ready_ms), message_id);
END $$;

-- Drops what is scheduled and ready; returns how many that were.
CREATE FUNCTION triage.purge(queue text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(purge.queue);
    before bigint := (SELECT last_value + 1 FROM triage.seq);
    purged bigint := 0;
    part int;
BEGIN
    LOOP
        part := (triage.engine_purge(q.id, q.version, 1000, before)).purged;
        purged := purged + part;
        EXIT WHEN part = 0;
    END LOOP;
    RETURN purged;
END $$;

-- Dead letters back to ready: these, or up to `max` from the oldest on. Their attempts start again.
CREATE FUNCTION triage.redrive(queue text, message_ids text[] DEFAULT NULL, max int DEFAULT 1000,
                               priority text DEFAULT NULL) RETURNS int
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
                         THEN (triage.level_named(q, priority)).slot END)).redriven;
END $$;

-- Dead letters away for good.
CREATE FUNCTION triage.purge_dead(queue text, max int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(purge_dead.queue);
BEGIN
    RETURN (triage.engine_dead_drop(q.id, q.version, NULL, NULL, NULL, purge_dead.max, 0,
                                    281474976710656)).dropped;
END $$;

-- Lets time pass for up to `max` messages; returns how many it moved. A server does this by itself.
CREATE FUNCTION triage.sweep(max int DEFAULT 1000) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT coalesce(sum(s.moved), 0) FROM triage.engine_sweep(sweep.max) s $$;

-- As the HTTP interface gives them, but for the consumers that wait at a server.
CREATE FUNCTION triage.stats(queue text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(stats.queue);
BEGIN
    RETURN (
        SELECT jsonb_build_object(
            'depth_by_priority', (
                SELECT jsonb_object_agg(triage.priority_of(l), coalesce(c.ready, 0))
                FROM triage.level l LEFT JOIN triage.engine_view(q.id) c ON c.slot = l.slot
                WHERE l.queue = q.id),
            'ready', coalesce(sum(v.ready), 0), 'scheduled', coalesce(sum(v.scheduled), 0),
            'in_flight', coalesce(sum(v.leased), 0), 'dlq_depth', coalesce(sum(v.dead), 0),
            'oldest_message_age_seconds',
                greatest((triage.now_ms() - min(v.head_ms)) / 1000, 0),
            'bytes', coalesce(sum(v.bytes), 0), 'paused', q.paused,
            'totals', jsonb_build_object(
                'enqueued', coalesce(sum(v.enqueued), 0), 'claimed', coalesce(sum(v.claimed), 0),
                'acked', coalesce(sum(v.acked), 0), 'nacked', coalesce(sum(v.nacked), 0),
                'released', coalesce(sum(v.released), 0),
                'lease_expired', coalesce(sum(v.lease_expired), 0),
                'expired', coalesce(sum(v.expired), 0), 'dead', coalesce(sum(v.died), 0),
                'deduplicated', coalesce(sum(v.deduplicated), 0),
                'redelivered', coalesce(sum(v.redelivered), 0),
                'cancelled', coalesce(sum(v.cancelled), 0),
                'redriven', coalesce(sum(v.redriven), 0)))
        FROM triage.engine_view(q.id) v);
END $$;
