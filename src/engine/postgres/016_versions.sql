-- A configuration is changed as a whole, and made from one that was read before. When somebody else
-- has changed it in between, that change must not be undone.

-- engine_queue_set() of a queue that is there, for a server that made p_config from p_version: one
-- that is not the latest any more is refused with TRCFG.
CREATE FUNCTION triage.engine_queue_change(p_id int, p_version int, p_name text, p_config jsonb,
    OUT id int, OUT created boolean, OUT status text, OUT level_name text, OUT config jsonb)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
BEGIN
    PERFORM FROM triage.queue q WHERE q.id = p_id FOR UPDATE;
    PERFORM triage.queue_at(p_id, p_version);
    SELECT s.* INTO id, created, status, level_name, config
    FROM triage.engine_queue_set(p_id, p_name, p_config) s;
END $$;
