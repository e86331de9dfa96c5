-- Where the first ready messages of some levels stand: up to p_max[i] of the level p_slot[i], item by
-- item and in order.
CREATE FUNCTION triage.engine_heads(p_queue int, p_slot smallint[], p_max int[])
RETURNS TABLE (item int, ready_ms bigint, seq bigint)
LANGUAGE plpgsql STABLE ROWS 1000
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    floors bigint[] := triage.floors(p_queue);
BEGIN
    FOR i IN 1..cardinality(p_slot) LOOP
        RETURN QUERY
        SELECT i, r.ready_ms, r.seq FROM triage.ready r
        WHERE r.queue = p_queue AND r.slot = p_slot[i] AND r.ready_ms >= floors[p_slot[i] + 1]
        ORDER BY r.ready_ms, r.seq LIMIT p_max[i];
    END LOOP;
END $$;
