-- Pages for somebody who looks for messages: of some states alone, with or without the payloads.

-- A page as of engine_list(): ready (phase 0, by place), scheduled (1), leased (2), kept as history
-- (3), dead (4; each by seq), behind the given place. p_phases has a bit for each phase that is wanted.
-- With p_slots the ready ones are those of these levels, lane by lane in this order: a message that is
-- escalated to the first lane between two pages is not shown again. The other phases show every level,
-- so that a page costs a page.
CREATE OR REPLACE FUNCTION triage.engine_browse(p_queue int, p_phase int, p_slot smallint, p_ready_ms bigint,
    p_seq bigint, p_limit int, p_slots smallint[], p_phases int, p_bare boolean)
RETURNS TABLE (phase int, message triage.everything)
LANGUAGE plpgsql STABLE ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    states CONSTANT text[] := '{ready,scheduled,leased,done,dead}';
    kept_from CONSTANT bigint := triage.history_from(p_queue);
    slots CONSTANT smallint[] := coalesce(p_slots,
        ARRAY(SELECT generate_series(0, @LEVEL_COUNT_MAX@ - 1))::smallint[]);
    after_ms bigint := CASE WHEN p_slot < 0 THEN -140737488355328 ELSE p_ready_ms END;
    after_seq bigint := p_seq;
    found int := 0;
    more int;
BEGIN
    IF p_phase = 0 AND p_phases & 1 <> 0 THEN
        FOR lane IN coalesce(array_position(slots, p_slot), 1)..cardinality(slots) LOOP
            RETURN QUERY
            SELECT 0, CASE WHEN p_bare THEN triage.without_body(m) ELSE triage.with_body(m) END
            FROM triage.everything m
            WHERE m.state = 'ready' AND m.queue = p_queue AND m.slot = slots[lane]
                AND (m.ready_ms, m.seq) > (after_ms, after_seq)
            ORDER BY m.ready_ms, m.seq LIMIT p_limit - found;
            GET DIAGNOSTICS more = ROW_COUNT;
            found := found + more;
            IF found >= p_limit THEN
                RETURN;
            END IF;
            after_ms := -140737488355328;
            after_seq := 0;
        END LOOP;
    END IF;
    FOR at IN greatest(p_phase, 1)..4 LOOP
        CONTINUE WHEN p_phases & (1 << at) = 0;
        RETURN QUERY
        SELECT at, CASE WHEN p_bare THEN triage.without_body(m) ELSE triage.with_body(m) END
        FROM triage.everything m
        WHERE m.state = states[at + 1] AND m.queue = p_queue
            AND m.seq > CASE WHEN at = p_phase THEN p_seq ELSE 0 END
            AND (at <> 3 OR m.ended_ms > kept_from)
        ORDER BY m.seq LIMIT p_limit - found;
        GET DIAGNOSTICS more = ROW_COUNT;
        found := found + more;
        EXIT WHEN found >= p_limit;
    END LOOP;
END $$;
