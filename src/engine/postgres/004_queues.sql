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

-- A group of a server stores a token in its transaction. If the server loses the connection before it
-- hears of the commit, it asks for the token later.
CREATE FUNCTION triage.engine_mark(p_token uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO triage.mark VALUES (p_token, triage.now_ms());
END $$;

CREATE FUNCTION triage.engine_marked(p_token uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$ SELECT EXISTS (SELECT FROM triage.mark WHERE token = p_token) $$;

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

-- The queue's row, for one call of a server. If the server knows only an older configuration, the
-- call is refused (TRCFG) before anything is done; the server reads it anew and repeats the group.
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

-- The queue's row, for a call that puts messages in: the queue cannot be deleted until the end of the
-- transaction.
CREATE FUNCTION triage.queue_kept(p_queue int, p_version int) RETURNS triage.queue
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7425, p_queue);
    RETURN triage.queue_at(p_queue, p_version);
END $$;
