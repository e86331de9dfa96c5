-- Queues and their configuration.

-- How functions of this schema refuse. The name is that of the HTTP interface, and the SQLSTATE
-- is TR and the HTTP status.
CREATE FUNCTION triage.refuse(p_status int, p_name text, p_detail text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: %', p_name, p_detail USING ERRCODE = 'TR' || p_status, CONSTRAINT = p_name;
END $$;

CREATE FUNCTION triage.notify(p_queue int, p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM triage.waiting w WHERE w.queue = p_queue AND w.until_ms > p_now) THEN
        PERFORM pg_notify('triage', p_queue::text);
    END IF;
END $$;

-- A server says for which queues its consumers wait, and for how long this holds.
CREATE FUNCTION triage.engine_wait(p_node uuid, p_queues int[], p_ms bigint,
                                   p_now bigint DEFAULT NULL) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO triage.waiting (queue, node, until_ms)
    SELECT q, p_node, coalesce(p_now, triage.now_ms()) + p_ms FROM unnest(p_queues) q
    ON CONFLICT (queue, node) DO UPDATE SET until_ms = excluded.until_ms
$$;

-- Groups of a server whose commit may go unheard of: marked in the transaction, asked for later.
CREATE FUNCTION triage.engine_mark(p_token uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO triage.mark VALUES (p_token, triage.now_ms());
END $$;

CREATE FUNCTION triage.engine_marked(p_token uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$ SELECT EXISTS (SELECT FROM triage.mark WHERE token = p_token) $$;

-- Levels keep their slots by name; new ones get the lowest that are free. Returns the name of a
-- level that would vanish although it holds messages, and then changes nothing; else NULL.
CREATE FUNCTION triage.levels_set(p_queue int, p_levels jsonb) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    lost text;
    kept jsonb;
    taken int[];
    next_slot int;
    each record;
BEGIN
    SELECT l.name INTO lost
    FROM triage.level l JOIN triage.counts(p_queue) c ON c.slot = l.slot
    WHERE l.queue = p_queue AND c.ready + c.scheduled + c.leased + c.dead > 0
        AND NOT EXISTS (SELECT FROM jsonb_array_elements(p_levels) n WHERE n->>'name' = l.name)
    ORDER BY l.rank LIMIT 1;
    IF lost IS NOT NULL THEN
        RETURN lost;
    END IF;
    SELECT coalesce(jsonb_object_agg(l.name, l.slot), '{}'), coalesce(array_agg(l.slot::int), '{}')
    INTO kept, taken
    FROM triage.level l
    WHERE l.queue = p_queue
        AND EXISTS (SELECT FROM jsonb_array_elements(p_levels) n WHERE n->>'name' = l.name);
    DELETE FROM triage.level WHERE queue = p_queue;
    FOR each IN SELECT l.*, place - 1 AS rank
        FROM jsonb_array_elements(p_levels) WITH ORDINALITY n (value, place),
            jsonb_to_record(n.value) AS l (name text, number bigint, weight float8, age_ms bigint,
                                           max_wait_ms bigint, max_in_flight bigint)
        ORDER BY place
    LOOP
        next_slot := (kept->>each.name)::int;
        IF next_slot IS NULL THEN
            next_slot := (SELECT min(s) FROM generate_series(0, 15) s WHERE s <> ALL (taken));
            taken := taken || next_slot;
        END IF;
        INSERT INTO triage.level (queue, rank, slot, name, number, weight, age_ms, max_wait_ms,
            max_in_flight)
        VALUES (p_queue, each.rank, next_slot, each.name, each.number, coalesce(each.weight, 1),
                coalesce(each.age_ms, 0), coalesce(each.max_wait_ms, 0),
                coalesce(each.max_in_flight, 0));
    END LOOP;
    RETURN NULL;
END $$;

-- A queue's configuration: the columns of triage.queue, and "levels", most urgent first.
CREATE FUNCTION triage.engine_config(p_queue int) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(q) - '{deleted,created_at,updated_at}'::text[]
        || jsonb_build_object('levels', (SELECT jsonb_agg(to_jsonb(l) - '{queue,rank}'::text[]
                                                          ORDER BY l.rank)
                                         FROM triage.level l WHERE l.queue = q.id))
    FROM triage.queue q WHERE q.id = p_queue AND NOT q.deleted
$$;

-- Every queue there is, for a server that starts or was told that they changed.
CREATE FUNCTION triage.engine_queues() RETURNS TABLE (id int, version int, config jsonb)
LANGUAGE sql STABLE AS $$
    SELECT q.id, q.version, triage.engine_config(q.id)
    FROM triage.queue q WHERE NOT q.deleted ORDER BY q.id
$$;

-- The queue of this name; no row when there is none.
CREATE FUNCTION triage.engine_queue_open(p_name text) RETURNS TABLE (id int, config jsonb)
LANGUAGE sql STABLE AS $$
    SELECT q.id, triage.engine_config(q.id) FROM triage.queue q
    WHERE q.name = p_name AND NOT q.deleted
$$;

-- Creates a queue (p_id NULL) or changes it. The configuration is shaped as engine_config() gives
-- it, and whole. `created` is false when the queue was there already: then nothing was changed.
CREATE FUNCTION triage.engine_queue_set(p_id int, p_name text, p_config jsonb,
    OUT id int, OUT created boolean, OUT status text, OUT level_name text, OUT config jsonb)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
DECLARE
    next triage.queue;
BEGIN
    next := jsonb_populate_record(NULL::triage.queue, p_config);
    created := p_id IS NULL;
    IF created THEN
        INSERT INTO triage.queue AS q (name, profile, policy, default_rank, paused, pauses, visibility_ms,
            max_attempts, backoff, backoff_base_ms, backoff_max_ms, backoff_jitter, ttl_ms, expired,
            dedup_window_ms, dedup_scope, max_depth, max_bytes, max_in_flight, history_ms,
            alert_dead_letters, alert_oldest_ready_seconds, alert_webhook)
        VALUES (p_name, next.profile, next.policy, next.default_rank, coalesce(next.paused, false),
            coalesce(next.pauses, '[]'),
            next.visibility_ms, next.max_attempts, next.backoff, next.backoff_base_ms,
            next.backoff_max_ms, next.backoff_jitter, next.ttl_ms, next.expired,
            next.dedup_window_ms, next.dedup_scope, next.max_depth, next.max_bytes,
            coalesce(next.max_in_flight, 0), next.history_ms, next.alert_dead_letters,
            next.alert_oldest_ready_seconds, next.alert_webhook)
        ON CONFLICT (name) WHERE NOT deleted DO NOTHING
        RETURNING q.id INTO id;
        IF id IS NULL THEN -- another was faster
            created := false;
            SELECT q.id INTO id FROM triage.queue q WHERE q.name = p_name AND NOT q.deleted;
            config := triage.engine_config(id);
            RETURN;
        END IF;
        INSERT INTO triage.counted
        VALUES (id, 1, triage.now_ms(), pg_snapshot_xmax(pg_current_snapshot()),
            triage.running(pg_current_snapshot()), array_fill(140737488355327, ARRAY[16]));
    ELSE
        SELECT q.id INTO id FROM triage.queue q WHERE q.id = p_id AND NOT q.deleted FOR UPDATE;
        IF id IS NULL THEN
            status := 'queue-not-found';
            RETURN;
        END IF;
    END IF;
    level_name := triage.levels_set(id, p_config->'levels');
    IF level_name IS NOT NULL THEN
        status := 'level-in-use';
        RETURN;
    END IF;
    IF NOT created THEN
        UPDATE triage.queue q SET version = q.version + 1, updated_at = now(),
            profile = next.profile, policy = next.policy, default_rank = next.default_rank,
            paused = coalesce(next.paused, q.paused),
            pauses = coalesce(next.pauses, q.pauses), visibility_ms = next.visibility_ms,
            max_attempts = next.max_attempts, backoff = next.backoff,
            backoff_base_ms = next.backoff_base_ms, backoff_max_ms = next.backoff_max_ms,
            backoff_jitter = next.backoff_jitter, ttl_ms = next.ttl_ms, expired = next.expired,
            dedup_window_ms = next.dedup_window_ms, dedup_scope = next.dedup_scope,
            max_depth = next.max_depth, max_bytes = next.max_bytes,
            max_in_flight = coalesce(next.max_in_flight, 0), history_ms = next.history_ms,
            alert_dead_letters = next.alert_dead_letters,
            alert_oldest_ready_seconds = next.alert_oldest_ready_seconds,
            alert_webhook = next.alert_webhook
        WHERE q.id = p_id;
    END IF;
    config := triage.engine_config(id);
    PERFORM pg_notify('triage', 'queues');
END $$;

-- The name is free at once; what the queue held is removed by sweeping, in portions.
CREATE FUNCTION triage.engine_queue_delete(p_queue int, p_if_empty boolean) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7425, p_queue); -- whoever puts something in has committed
    IF p_if_empty AND EXISTS (SELECT FROM triage.counts(p_queue) c
                              WHERE c.ready + c.scheduled + c.leased + c.dead > 0) THEN
        RETURN 'queue-not-empty';
    END IF;
    UPDATE triage.queue SET deleted = true, version = version + 1, updated_at = now()
    WHERE id = p_queue AND NOT deleted;
    IF NOT FOUND THEN
        RETURN 'queue-not-found';
    END IF;
    PERFORM pg_notify('triage', 'queues');
    RETURN NULL;
END $$;

-- The queue's row, for one call of a server. A server that has an older configuration in mind is
-- told so (TRCFG) before anything is done, reads it anew and repeats the group.
CREATE FUNCTION triage.queue_at(p_queue int, p_version int) RETURNS triage.queue
LANGUAGE plpgsql STABLE AS $$
DECLARE
    q triage.queue;
BEGIN
    SELECT * INTO q FROM triage.queue WHERE id = p_queue;
    IF q.id IS NULL OR q.deleted OR q.version <> p_version THEN
        RAISE EXCEPTION 'the configuration of queue % is not version % any more', p_queue, p_version
            USING ERRCODE = 'TRCFG';
    END IF;
    RETURN q;
END $$;

-- The same for whoever puts something in: the queue stays until the end of the transaction.
CREATE FUNCTION triage.queue_kept(p_queue int, p_version int) RETURNS triage.queue
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7425, p_queue);
    RETURN triage.queue_at(p_queue, p_version);
END $$;
