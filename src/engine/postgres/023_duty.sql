-- Duties: what one server does for all servers on the database, such as sending alerts. The server
-- that has a duty renews it before its time is over. If it does not, the next server that asks gets
-- the duty.
CREATE TABLE triage.duty (
    name text PRIMARY KEY,
    node uuid NOT NULL,
    until_ms bigint NOT NULL
);
INSERT INTO triage.duty VALUES ('alerts', '00000000-0000-0000-0000-000000000000', 0);

-- Takes a duty that is free, or renews one's own, for another p_ms; false when another server has
-- it. Nobody waits here: if a transaction holds the row, another server is taking the duty.
CREATE FUNCTION triage.engine_duty(p_name text, p_node uuid, p_ms bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint := triage.now_ms();
BEGIN
    PERFORM FROM triage.duty d
    WHERE d.name = p_name AND (d.node = p_node OR d.until_ms <= now_ms)
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE triage.duty d SET node = p_node, until_ms = now_ms + p_ms WHERE d.name = p_name;
    RETURN true;
END $$;

SELECT triage.rights_like('duty', 'queue');
