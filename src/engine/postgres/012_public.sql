-- The SQL interface: what an application calls, inside its own transaction. Documented in
-- docs/sql.md. A refusal is an exception, so that a transaction that acks too late does not commit
-- its work either; its SQLSTATE is TR and the HTTP status, its constraint name the problem's name.
-- The functions that take values of an application are in 015_ranges.sql.

-- Where no server is running, claims sweep too: once a second in each session when nobody else has
-- swept lately, and when there was too little to claim. (Not more often, because rows that were swept
-- in a long transaction cannot be claimed by others before it ends.)
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

-- Acks many at once. One row for each, in order: whether it was done, or why not. A refusal of one
-- stops no other.
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

-- The lease ends that much from now; returns when.
CREATE FUNCTION triage.extend(message_id text, receipt_handle text, visibility_timeout interval)
RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    id record := triage.id_of(message_id);
    done triage.settled;
BEGIN
    IF triage.to_ms(visibility_timeout) NOT BETWEEN 0 AND @LEASE_SECONDS_MAX@ * 1000 THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              'visibility_timeout is 0 to @LEASE_SECONDS_MAX@ seconds');
    END IF;
    done := triage.engine_extend((id.q).id, (id.q).version, ARRAY[id.seq], ARRAY[id.slot],
        ARRAY[id.ready_ms], ARRAY[triage.receipt_parse(receipt_handle)],
        triage.to_ms(visibility_timeout));
    PERFORM triage.expect(done.status, message_id);
    RETURN triage.from_ms(done.until_ms);
END $$;

-- Every member that is asked for is there with the same value.
CREATE FUNCTION triage.has_members(p_metadata text, p_wanted jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    have jsonb := coalesce(triage.json_of(p_metadata), '{}');
BEGIN
    RETURN NOT EXISTS (SELECT FROM jsonb_each(p_wanted) w WHERE have->w.key IS DISTINCT FROM w.value);
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

-- Drops dead letters for good.
CREATE FUNCTION triage.purge_dead(queue text, max int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(purge_dead.queue);
BEGIN
    RETURN (triage.engine_dead_drop(q.id, q.version, NULL, NULL, NULL, purge_dead.max, 0,
                                    281474976710656)).dropped;
END $$;

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
