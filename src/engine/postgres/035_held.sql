-- How long leases are held, for those who count it: a receipt begins with the time of its claim, and
-- whoever gives a message back is told its level, as after an ack.

-- Sixteen bytes for each of n receipts: the time in milliseconds modulo 2^40, then random ones. A
-- random UUID has six bits that are not, hence the digest of two.
CREATE OR REPLACE FUNCTION triage.receipts(n int) RETURNS bytea
LANGUAGE sql VOLATILE STRICT PARALLEL SAFE
RETURN (SELECT string_agg(substr(int8send(triage.now_ms()), 4, 5)
                          || substr(sha256(uuid_send(gen_random_uuid())
                                           || uuid_send(gen_random_uuid())), 1, 11), ''::bytea)
        FROM generate_series(1, n));

-- Nack (p_release false) and release. p_delay_ms NULL: the queue's backoff.
CREATE OR REPLACE FUNCTION triage.engine_return(p_queue int, p_version int, p_seq bigint[],
    p_slot smallint[], p_ready_ms bigint[], p_receipt bytea[], p_release boolean,
    p_delay_ms bigint, p_reason text, p_now bigint DEFAULT NULL) RETURNS SETOF triage.settled
LANGUAGE plpgsql ROWS 100
SET search_path = triage, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    q triage.queue := triage.queue_at(p_queue, p_version);
    now_ms bigint := coalesce(p_now, triage.now_ms());
    places int[];
    seqs bigint[];
    slots jsonb;
    states jsonb;
BEGIN
    -- The first of two items for one message is the one that counts.
    SELECT array_agg(v.place), array_agg(v.seq), jsonb_object_agg(v.seq, v.slot)
    INTO places, seqs, slots
    FROM (SELECT DISTINCT ON (r.seq) r.seq, r.slot, i.place::int AS place
          FROM unnest(p_seq, p_slot, p_ready_ms, p_receipt) WITH ORDINALITY
                  i (seq, slot, ready_ms, receipt, place)
              CROSS JOIN LATERAL (
                  SELECT * FROM triage.leased l WHERE l.seq = i.seq
                  OFFSET 0 FOR UPDATE) r
          WHERE r.receipt = i.receipt AND r.until_ms > now_ms AND r.queue = p_queue
              AND r.born_slot = i.slot AND r.born_ms = i.ready_ms
          ORDER BY r.seq, i.place) v;
    SELECT jsonb_object_agg(g.seq, g.state) INTO states
    FROM triage.give_back(q, seqs, CASE WHEN p_release THEN 'release' ELSE 'nack' END, p_delay_ms,
                          p_reason, now_ms) g;
    RETURN QUERY
    SELECT i.place::int, r.refusal, CASE WHEN r.refusal IS NULL THEN states->>i.seq::text END,
        CASE WHEN r.refusal IS NULL THEN (slots->>i.seq::text)::smallint END, NULL::bigint
    FROM unnest(p_seq, p_slot, p_ready_ms) WITH ORDINALITY i (seq, slot, ready_ms, place)
        CROSS JOIN LATERAL (
            SELECT CASE WHEN i.place::int = ANY (places) THEN NULL
                ELSE triage.refusal(p_queue, i.seq, i.slot, i.ready_ms) END AS refusal) r;
END $$;
