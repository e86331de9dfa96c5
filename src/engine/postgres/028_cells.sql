-- Queues of a database that is one cell of several.

-- Creates a queue with an id that is p_cell modulo 1024, so that the queues of several databases have
-- different ids. The answer is that of engine_queue_set(). The lock keeps others from drawing an id
-- between the moment in which the sequence is read and that in which it is set.
CREATE OR REPLACE FUNCTION triage.engine_queue_make(p_name text, p_config jsonb, p_cell int,
    OUT id int, OUT created boolean, OUT status text, OUT level_name text, OUT config jsonb)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
DECLARE
    ids regclass := pg_get_serial_sequence('triage.queue', 'id');
    last bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM triage.queue q WHERE q.name = p_name AND NOT q.deleted) THEN
        LOCK TABLE triage.queue IN SHARE ROW EXCLUSIVE MODE;
        last := nextval(ids);
        PERFORM setval(ids, last + (p_cell + 1023 - last % 1024) % 1024);
    END IF;
    SELECT q.id, q.created, q.status, q.level_name, q.config
    INTO id, created, status, level_name, config
    FROM triage.engine_queue_set(NULL, p_name, p_config) q;
END $$;
