-- Keys and history past their time are removed as fast as they come up: a sweep says how many it
-- removed, so that the caller sweeps again at once when there may be more.

-- Lets time pass for up to p_max messages, and for as many of the history. Which queues changed, and
-- by how many messages; queue 0: what was forgotten, of whichever queues. Less than p_max together:
-- nothing more is due.
CREATE OR REPLACE FUNCTION triage.engine_sweep(p_max int, p_now bigint DEFAULT NULL)
RETURNS TABLE (queue int, moved int)
LANGUAGE plpgsql
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now_ms bigint := coalesce(p_now, triage.now_ms());
    spent int := 0;
    part record;
BEGIN
    FOR part IN SELECT * FROM triage.sweep_leases(p_max, now_ms) LOOP
        queue := part.queue; moved := part.moved; spent := spent + moved;
        RETURN NEXT;
    END LOOP;
    FOR part IN SELECT * FROM triage.sweep_ttl('ttl-ready', p_max - spent, now_ms) LOOP
        queue := part.queue; moved := part.moved; spent := spent + moved;
        RETURN NEXT;
    END LOOP;
    FOR part IN SELECT * FROM triage.sweep_ttl('ttl-scheduled', p_max - spent, now_ms) LOOP
        queue := part.queue; moved := part.moved; spent := spent + moved;
        RETURN NEXT;
    END LOOP;
    FOR part IN SELECT * FROM triage.sweep_delays(p_max - spent, now_ms) LOOP
        queue := part.queue; moved := part.moved; spent := spent + moved;
        RETURN NEXT;
    END LOOP;
    queue := 0;
    moved := triage.sweep_dedup(p_max - spent, now_ms) + triage.sweep_history(p_max, now_ms);
    IF moved > 0 THEN
        RETURN NEXT;
    END IF;
    PERFORM triage.sweep_slowly(p_max, now_ms);
END $$;

-- Public: the same; returns how many it moved, without what it forgot. A server does this by itself.
CREATE OR REPLACE FUNCTION triage.sweep(max int DEFAULT 1000) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT coalesce(sum(s.moved), 0) FROM triage.engine_sweep(sweep.max) s
      WHERE s.queue > 0 $$;
