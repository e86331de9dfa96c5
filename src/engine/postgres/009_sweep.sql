-- Sweeps let time pass: leases end, delays pass, times to live run out, keys and history are
-- forgotten, tallies are summed up. Any number of servers sweep at once; each takes rows that no
-- other has locked, a portion at a time, and none is in charge.
--
-- Rows that are due stand at the front of an index, behind dead rows that were due before and that
-- some transaction may still see. So each kind of sweep starts a little before the place where the
-- last pass ended (`sweeping`). Once a minute it starts from the very beginning, to find rows that
-- were committed late.

CREATE FUNCTION triage.sweep_from(p_kind text, p_now bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    -- Also from the beginning when the clock was set back.
    RETURN (SELECT CASE WHEN s.full_ms > p_now - 60000 AND s.floor_ms < p_now THEN s.floor_ms
                ELSE -140737488355328 END
            FROM triage.sweeping s WHERE s.kind = p_kind);
END $$;

-- Notes that a pass which began at p_from has found everything.
CREATE FUNCTION triage.sweep_done(p_kind text, p_from bigint, p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    is_full boolean := p_from = -140737488355328;
BEGIN
    PERFORM FROM triage.sweeping s
    WHERE s.kind = p_kind AND (is_full OR s.floor_ms < p_now - s.slack_ms - 1000)
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE triage.sweeping SET floor_ms = p_now - slack_ms,
            full_ms = CASE WHEN is_full THEN p_now ELSE full_ms END
        WHERE kind = p_kind;
    END IF;
END $$;

CREATE FUNCTION triage.sweep_leases(p_max int, p_now bigint)
RETURNS TABLE (queue int, moved int)
LANGUAGE plpgsql AS $$
DECLARE
    start_ms bigint := triage.sweep_from('lease', p_now);
    each record;
    q triage.queue;
    total int := 0;
BEGIN
    FOR each IN
        SELECT l.queue, array_agg(l.seq) AS seqs
        FROM (SELECT d.queue, d.seq FROM triage.leased d
              WHERE d.until_ms <= p_now AND d.until_ms >= start_ms
              ORDER BY d.until_ms LIMIT p_max FOR UPDATE SKIP LOCKED) l
        GROUP BY l.queue ORDER BY l.queue
    LOOP
        SELECT * INTO q FROM triage.queue WHERE id = each.queue;
        IF q.id IS NULL OR q.deleted THEN
            DELETE FROM triage.leased l WHERE l.seq = ANY (each.seqs);
            PERFORM triage.forget(each.queue, each.seqs, NULL, NULL);
        ELSE
            PERFORM FROM triage.give_back(q, each.seqs, 'lease', NULL, 'lease expired', p_now);
        END IF;
        queue := each.queue;
        moved := cardinality(each.seqs);
        total := total + moved;
        RETURN NEXT;
    END LOOP;
    IF total < p_max THEN
        PERFORM triage.sweep_done('lease', start_ms, p_now);
    END IF;
END $$;

CREATE FUNCTION triage.sweep_delays(p_max int, p_now bigint)
RETURNS TABLE (queue int, moved int)
LANGUAGE plpgsql AS $$
DECLARE
    start_ms bigint := triage.sweep_from('delay', p_now);
    each record;
    total int := 0;
BEGIN
    FOR each IN
        WITH gone AS (
            DELETE FROM triage.scheduled
            WHERE ctid = ANY (ARRAY(SELECT d.ctid FROM triage.scheduled d
                                    WHERE d.ready_ms <= p_now AND d.ready_ms >= start_ms
                                    ORDER BY d.ready_ms, d.seq LIMIT p_max
                                    FOR UPDATE SKIP LOCKED))
            RETURNING *),
        now_ready AS (INSERT INTO triage.ready SELECT * FROM gone),
        counted AS (
            INSERT INTO triage.tally (low_ms, queue, slot, ready, scheduled)
            SELECT min(g.ready_ms), g.queue, g.slot, count(*), -count(*)
            FROM gone g GROUP BY g.queue, g.slot)
        SELECT g.queue, count(*)::int AS moved FROM gone g GROUP BY g.queue
    LOOP
        PERFORM triage.notify(each.queue, p_now);
        queue := each.queue;
        moved := each.moved;
        total := total + moved;
        RETURN NEXT;
    END LOOP;
    IF total < p_max THEN
        PERFORM triage.sweep_done('delay', start_ms, p_now);
    END IF;
END $$;

-- p_kind: 'ttl-ready' or 'ttl-scheduled'.
CREATE FUNCTION triage.sweep_ttl(p_kind text, p_max int, p_now bigint)
RETURNS TABLE (queue int, moved int)
LANGUAGE plpgsql AS $$
DECLARE
    start_ms bigint := triage.sweep_from(p_kind, p_now);
    each record;
    q triage.queue;
    total int := 0;
BEGIN
    FOR each IN
        SELECT d.queue, array_agg(d.seq) AS seqs
        FROM (SELECT r.* FROM (
                  SELECT m.queue, m.seq FROM triage.ready m
                  WHERE p_kind = 'ttl-ready' AND m.expire_ms <= p_now
                      AND m.expire_ms >= start_ms
                  ORDER BY m.expire_ms LIMIT p_max FOR UPDATE SKIP LOCKED) r
              UNION ALL
              SELECT s.* FROM (
                  SELECT m.queue, m.seq FROM triage.scheduled m
                  WHERE p_kind = 'ttl-scheduled' AND m.expire_ms <= p_now
                      AND m.expire_ms >= start_ms
                  ORDER BY m.expire_ms LIMIT p_max FOR UPDATE SKIP LOCKED) s) d
        GROUP BY d.queue ORDER BY d.queue
    LOOP
        SELECT * INTO q FROM triage.queue WHERE id = each.queue;
        CONTINUE WHEN q.id IS NULL; -- what it held is being removed
        moved := triage.end_pending(q, each.seqs,
            CASE q.expired WHEN 'dead' THEN 'dead' ELSE 'expired' END, p_now);
        queue := each.queue;
        total := total + moved;
        RETURN NEXT;
    END LOOP;
    IF total < p_max THEN
        PERFORM triage.sweep_done(p_kind, start_ms, p_now);
    END IF;
END $$;

CREATE FUNCTION triage.sweep_dedup(p_max int, p_now bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    start_ms bigint := triage.sweep_from('dedup', p_now);
    total int;
BEGIN
    DELETE FROM triage.dedup
    WHERE ctid = ANY (ARRAY(SELECT d.ctid FROM triage.dedup d
                            WHERE d.until_ms <= p_now AND d.until_ms >= start_ms
                            ORDER BY d.until_ms LIMIT p_max FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS total = ROW_COUNT;
    IF total < p_max THEN
        PERFORM triage.sweep_done('dedup', start_ms, p_now);
    END IF;
    RETURN total;
END $$;

-- Removes a portion of what a deleted queue still holds, and at the end the queue itself.
CREATE FUNCTION triage.sweep_deleted(p_queue int, p_max int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    seqs bigint[];
BEGIN
    WITH gone_ready AS (
        DELETE FROM triage.ready WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM triage.ready WHERE queue = p_queue LIMIT p_max FOR UPDATE SKIP LOCKED))
        RETURNING seq),
    gone_scheduled AS (
        DELETE FROM triage.scheduled WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM triage.scheduled WHERE queue = p_queue LIMIT p_max
            FOR UPDATE SKIP LOCKED)) RETURNING seq),
    gone_dead AS (
        DELETE FROM triage.dead WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM triage.dead WHERE queue = p_queue LIMIT p_max FOR UPDATE SKIP LOCKED))
        RETURNING seq),
    gone_history AS (
        DELETE FROM triage.history WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM triage.history WHERE queue = p_queue LIMIT p_max
            FOR UPDATE SKIP LOCKED)) RETURNING seq)
    SELECT array_agg(g.seq) INTO seqs
    FROM (SELECT seq FROM gone_ready UNION ALL SELECT seq FROM gone_scheduled
          UNION ALL SELECT seq FROM gone_dead UNION ALL SELECT seq FROM gone_history) g;
    IF seqs IS NOT NULL THEN
        PERFORM triage.forget(p_queue, seqs, NULL, NULL);
        RETURN;
    END IF;
    DELETE FROM triage.dedup WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM triage.dedup WHERE queue = p_queue LIMIT p_max FOR UPDATE SKIP LOCKED));
    IF NOT FOUND THEN
        DELETE FROM triage.tally WHERE queue = p_queue;
        DELETE FROM triage.lane WHERE queue = p_queue;
        DELETE FROM triage.counted WHERE queue = p_queue;
        DELETE FROM triage.queue WHERE id = p_queue;
    END IF;
END $$;

-- A message that was enqueued while its level was being dropped has a slot that no level has. It
-- joins the default level.
CREATE FUNCTION triage.sweep_stray(p_queue int, p_now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    q triage.queue;
    strays smallint[];
    m record;
BEGIN
    strays := ARRAY(
        SELECT c.slot FROM triage.counts(p_queue) c
        WHERE c.ready + c.scheduled > 0
            AND NOT EXISTS (SELECT FROM triage.level l
                            WHERE l.queue = p_queue AND l.slot = c.slot));
    IF cardinality(strays) = 0 THEN
        RETURN;
    END IF;
    SELECT * INTO q FROM triage.queue WHERE id = p_queue AND NOT deleted;
    SELECT array_agg(e.seq) AS seqs, array_agg(e.born_slot) AS slots, array_agg(e.born_ms) AS born
    INTO m
    FROM (SELECT seq, born_slot, born_ms FROM triage.ready
          WHERE queue = p_queue AND slot = ANY (strays)
          UNION ALL
          SELECT seq, born_slot, born_ms FROM triage.scheduled
          WHERE queue = p_queue AND slot = ANY (strays)
          LIMIT 1000) e;
    PERFORM FROM triage.engine_move(p_queue, q.version, m.seqs, m.slots, m.born,
        (SELECT l.slot FROM triage.level l WHERE l.queue = p_queue AND l.rank = q.default_rank),
        'triage', 'its level is gone', p_now);
END $$;

-- When the next delay, lease or time to live ends; NULL: there is none.
CREATE FUNCTION triage.engine_due(p_now bigint DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = triage, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    now_ms bigint := coalesce(p_now, triage.now_ms());
BEGIN
    RETURN least(
        (SELECT s.ready_ms FROM triage.scheduled s
         WHERE s.ready_ms >= triage.sweep_from('delay', now_ms)
         ORDER BY s.ready_ms, s.seq LIMIT 1),
        (SELECT l.until_ms FROM triage.leased l
         WHERE l.until_ms >= triage.sweep_from('lease', now_ms)
         ORDER BY l.until_ms LIMIT 1),
        (SELECT r.expire_ms FROM triage.ready r
         WHERE r.expire_ms >= triage.sweep_from('ttl-ready', now_ms)
         ORDER BY r.expire_ms LIMIT 1),
        (SELECT s.expire_ms FROM triage.scheduled s
         WHERE s.expire_ms >= triage.sweep_from('ttl-scheduled', now_ms)
         ORDER BY s.expire_ms LIMIT 1));
END $$;
