-- Schedules: messages that a queue gets again and again. When the next one is due is in the row of
-- the schedule, and servers reckon it (the calendar is theirs). A due time is fired by one
-- statement of a server: the message and the next due time are one transaction, and of several
-- servers that try, one finds the due time still there.

CREATE TABLE triage.schedule (
    queue int NOT NULL,
    name text COLLATE "C" NOT NULL CHECK (name ~ '^[A-Za-z0-9._-]{1,100}$'),
    cron text NOT NULL,           -- or empty, and then
    every_seconds bigint NOT NULL CHECK (every_seconds >= 0),
    time_zone text NOT NULL,      -- of the cron line
    missed text NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    grace_ms bigint NOT NULL CHECK (grace_ms >= 0),
    paused boolean NOT NULL,
    next_ms bigint NOT NULL,      -- @TIME_MS_MAX@: never, while it is paused
    last_ms bigint NOT NULL,      -- -@TIME_MS_MAX@: it never was
    count bigint NOT NULL,        -- due times that had a message
    made_up int NOT NULL,         -- missed ones in a row that were made up for
    show_ms bigint NOT NULL,      -- when to tell servers that it is due: next_ms, or later
    priority_kind smallint NOT NULL, -- 0 the queue's default, 1 a number, 2 a name
    priority_number bigint NOT NULL,
    priority_name text NOT NULL,
    delay_ms bigint NOT NULL,
    ttl_ms bigint NOT NULL,       -- -1: the queue's own
    kind smallint NOT NULL,       -- 0 text, 1 JSON, 2 bytes
    payload bytea NOT NULL,
    metadata text NOT NULL,       -- JSON, or empty
    dedup_key bytea NOT NULL,     -- or empty
    PRIMARY KEY (queue, name)
) WITH (fillfactor = 50);
CREATE INDEX schedule_show ON triage.schedule (show_ms);

-- A search for due schedules begins where the last one ended, as with delays (009_sweep.sql),
-- because before that place stand the dead rows of earlier due times. So show_ms is never set to a
-- time that is over.
INSERT INTO triage.sweeping VALUES ('schedule', 60000, -140737488355328, 0);

CREATE FUNCTION triage.engine_schedule_delete(p_queue int, p_version int, p_name text)
RETURNS text
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
BEGIN
    PERFORM triage.queue_kept(p_queue, p_version);
    DELETE FROM triage.schedule s WHERE s.queue = p_queue AND s.name = p_name;
    RETURN CASE WHEN NOT FOUND THEN 'schedule-not-found' END;
END $$;

-- One of this name, or up to p_limit of them behind p_after.
CREATE FUNCTION triage.engine_schedule_list(p_queue int, p_name text, p_after text, p_limit int)
RETURNS SETOF triage.schedule
LANGUAGE sql STABLE
SET search_path = triage, pg_temp AS $$
    SELECT * FROM triage.schedule s
    WHERE s.queue = p_queue AND (p_name IS NULL OR s.name = p_name)
        AND (p_after IS NULL OR s.name > p_after COLLATE "C")
    ORDER BY s.name LIMIT p_limit
$$;

-- The schedules that are due, and the time by the database's clock.
CREATE FUNCTION triage.engine_schedules_due(p_max int, p_now bigint DEFAULT NULL)
RETURNS TABLE (now_ms bigint, schedule triage.schedule)
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off AS $$
DECLARE
    at_ms bigint := coalesce(p_now, triage.now_ms());
    start_ms bigint := triage.sweep_from('schedule', at_ms);
    shown int;
BEGIN
    RETURN QUERY
    SELECT at_ms, s FROM triage.schedule s
    WHERE s.show_ms <= at_ms AND s.show_ms >= start_ms AND s.next_ms <= at_ms
    ORDER BY s.show_ms LIMIT p_max;
    GET DIAGNOSTICS shown = ROW_COUNT;
    IF shown < p_max THEN
        PERFORM triage.sweep_done('schedule', start_ms, at_ms);
    END IF;
END $$;

-- When the next schedule is due; NULL: none will be. Schedules that are due already were shown, and
-- the next regular sweep looks at them again.
CREATE FUNCTION triage.engine_schedules_next(p_now bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = triage, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    RETURN (SELECT s.show_ms FROM triage.schedule s
            WHERE s.show_ms > coalesce(p_now, triage.now_ms()) AND s.show_ms < @TIME_MS_MAX@
            ORDER BY s.show_ms LIMIT 1);
END $$;

-- The name is free at once; what the queue held is removed by sweeping, in portions. A queue with
-- schedules is not empty, and they go when it does.
CREATE OR REPLACE FUNCTION triage.engine_queue_delete(p_queue int, p_if_empty boolean) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7425, p_queue); -- whoever puts something in has committed
    IF p_if_empty AND (EXISTS (SELECT FROM triage.counts(p_queue) c
                               WHERE c.ready + c.scheduled + c.leased + c.dead > 0)
                       OR EXISTS (SELECT FROM triage.schedule s WHERE s.queue = p_queue)) THEN
        RETURN 'queue-not-empty';
    END IF;
    UPDATE triage.queue SET deleted = true, version = version + 1, updated_at = now()
    WHERE id = p_queue AND NOT deleted;
    IF NOT FOUND THEN
        RETURN 'queue-not-found';
    END IF;
    DELETE FROM triage.schedule s WHERE s.queue = p_queue;
    PERFORM pg_notify('triage', 'queues');
    RETURN NULL;
END $$;

-- Roles that were given rights on the older tables get the same rights on the new ones: so a server
-- whose role does not own the schema goes on working after a migration.
CREATE FUNCTION triage.rights_like(p_table text, p_like text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT g.grantee, g.privilege_type FROM information_schema.role_table_grants g
        WHERE g.table_schema = 'triage' AND g.table_name = p_like AND g.grantee <> current_user
            AND g.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    LOOP
        EXECUTE format('GRANT %s ON triage.%I TO %s', given.privilege_type, p_table,
            CASE given.grantee WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(given.grantee) END);
    END LOOP;
END $$;

SELECT triage.rights_like('schedule', 'queue');
