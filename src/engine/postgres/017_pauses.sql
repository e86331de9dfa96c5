-- A pause from SQL is noted with its time, as over HTTP, because a message does not age during a
-- pause.

-- The pauses of a queue that is paused, or not any more, at p_now. The latest 16 are kept: the two
-- oldest become one of the same length that ends with the second.
CREATE FUNCTION triage.pauses_noted(p_pauses jsonb, p_paused boolean, p_now bigint) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    open_ms CONSTANT bigint := 9223372036854775807;
    kept jsonb := p_pauses;
    last jsonb := p_pauses->-1;
BEGIN
    IF p_paused THEN
        IF jsonb_array_length(kept) = 16 THEN
            kept := jsonb_set(kept, '{1,from_ms}', to_jsonb((kept->1->>'from_ms')::bigint
                - ((kept->0->>'until_ms')::bigint - (kept->0->>'from_ms')::bigint))) - 0;
        END IF;
        RETURN kept || jsonb_build_object('until_ms', open_ms,
            'from_ms', greatest(p_now, (last->>'until_ms')::bigint));
    ELSIF (last->>'until_ms')::bigint = open_ms THEN
        RETURN jsonb_set(kept, '{-1,until_ms}',
                         to_jsonb(greatest(p_now, (last->>'from_ms')::bigint)));
    END IF;
    RETURN kept;
END $$;

CREATE OR REPLACE FUNCTION triage.pause_set(p_queue text, p_paused boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    q triage.queue := triage.queue_named(p_queue);
BEGIN
    UPDATE triage.queue t SET paused = p_paused, version = t.version + 1, updated_at = now(),
        pauses = triage.pauses_noted(t.pauses, p_paused, triage.now_ms())
    WHERE t.id = q.id AND t.paused <> p_paused;
    IF FOUND THEN
        PERFORM pg_notify('triage', 'queues');
    END IF;
END $$;

-- Public: claims from a paused queue are empty; enqueues go on.
CREATE OR REPLACE FUNCTION triage.pause(queue text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT triage.pause_set(queue, true) $$;

CREATE OR REPLACE FUNCTION triage.resume(queue text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT triage.pause_set(queue, false) $$;
