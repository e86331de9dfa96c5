-- Which level a claim from SQL is served from. Servers make their plans themselves; this is the same
-- policy for claims that come without a server.
--
--   strict     the most urgent level that has a ready message; in it the oldest
--   weighted   each level has tokens in proportion to its weight. The level with the most tokens left
--              among those with a ready message is served, on a tie the more urgent one, and a token
--              is taken from it. When none of them has a token left, all levels are refilled
--   aging      a message that waited as long as its level says counts as one level more urgent, after
--              the next level's time as one more. Then the older head goes first. It may spend the
--              tokens of the level that it counts as, of its own level, and of those between
--   max_wait   in the last eighth of this time a message goes before everything, the nearest deadline
--              first
--
-- Each session keeps its own tokens (triage.tokens_N), because a row for all would be locked by all.
-- Shares that hold for each session hold for all together. A new session begins at a random point of
-- the cycle; otherwise consumers that connect for one claim each would only ever see its first.

-- Tokens in whole numbers, by rank + 1: the smallest that keep the proportions, as far as the
-- weights have three decimals.
CREATE FUNCTION triage.tokens_full(p_queue int) RETURNS int[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
    parts bigint[];
    common bigint := 0;
BEGIN
    SELECT array_agg(greatest(round(l.weight * 1000), 1)::bigint ORDER BY l.rank) INTO parts
    FROM triage.level l WHERE l.queue = p_queue;
    FOR i IN 1..cardinality(parts) LOOP
        common := gcd(common, parts[i]);
    END LOOP;
    RETURN ARRAY(SELECT (p / common)::int FROM unnest(parts) WITH ORDINALITY t (p, at) ORDER BY at);
END $$;

-- The level that has the most tokens, of those that are present; 0 when none of them has a token.
CREATE FUNCTION triage.tokens_pick(p_left int[], p_present boolean[]) RETURNS int
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    best int := 0;
BEGIN
    FOR i IN 1..cardinality(p_left) LOOP
        IF p_present[i] AND p_left[i] > 0 AND (best = 0 OR p_left[i] > p_left[best]) THEN
            best := i;
        END IF;
    END LOOP;
    RETURN best;
END $$;

-- The tokens that are left after a random number of steps of the cycle.
CREATE FUNCTION triage.tokens_start(p_full int[]) RETURNS int[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    here int[] := p_full;
    everyone boolean[] := array_fill(true, ARRAY[cardinality(p_full)]);
    pick int;
BEGIN
    FOR i IN 1..least(floor(random() * (SELECT sum(t) FROM unnest(p_full) t)), 1000)::int LOOP
        pick := triage.tokens_pick(here, everyone);
        here[pick] := here[pick] - 1;
    END LOOP;
    RETURN here;
END $$;

-- The rank that a message of this rank counts as, after waiting for so long.
CREATE FUNCTION triage.effective_rank(p_rank int, p_age_ms bigint[], p_waited_ms bigint) RETURNS int
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    rank int := p_rank;
    left_ms bigint := p_waited_ms;
BEGIN
    WHILE rank > 0 AND p_age_ms[rank + 1] > 0 AND left_ms >= p_age_ms[rank + 1] LOOP
        left_ms := left_ms - p_age_ms[rank + 1];
        rank := rank - 1;
    END LOOP;
    RETURN rank;
END $$;

-- How long a message has waited that became ready at this time. Time in which the queue was paused
-- does not count.
CREATE FUNCTION triage.waited_ms(q triage.queue, p_ready_ms bigint, p_now bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF q.pauses = '[]' THEN
        RETURN p_now - p_ready_ms;
    END IF;
    RETURN p_now - p_ready_ms - coalesce((
        SELECT sum(greatest(least((p->>'until_ms')::bigint, p_now)
                            - greatest((p->>'from_ms')::bigint, p_ready_ms), 0))
        FROM jsonb_array_elements(q.pauses) p), 0);
END $$;

-- Plans a claim of up to p_want messages from the ranks 0 … p_max_rank, without the slots of
-- p_without: the slots to take from, one for each message, and the rank at which each counts.
CREATE FUNCTION triage.plan(q triage.queue, p_max_rank int, p_want int, p_without smallint[],
    p_now bigint, OUT slots smallint[], OUT effective int[])
LANGUAGE plpgsql AS $$
DECLARE
    floors bigint[] := triage.floors(q.id);
    name text := 'triage.tokens_' || q.id;
    full_tokens int[];
    tokens int[];
    kept text[];
    level record;
    slot_of smallint[];
    age_ms bigint[];
    max_wait_ms bigint[];
    waited bigint;
    heads jsonb := '[]';     -- by rank: when the first of that level became ready
    next int[];              -- by rank: how many of them are planned for
    present boolean[];       -- by rank: something counts at it
    head_ms bigint;
    counts int;
    best int;
    best_ms bigint;
    best_counts int;
BEGIN
    slots := '{}';
    effective := '{}';
    FOR level IN
        SELECT l.slot, l.age_ms, l.max_wait_ms, CASE WHEN l.rank <= p_max_rank AND l.slot <> ALL (p_without)
            THEN ARRAY(SELECT r.ready_ms FROM triage.ready r
                       WHERE r.queue = q.id AND r.slot = l.slot
                           AND r.ready_ms >= floors[l.slot + 1]
                       ORDER BY r.ready_ms, r.seq LIMIT p_want) ELSE '{}' END AS heads
        FROM triage.level l WHERE l.queue = q.id ORDER BY l.rank
    LOOP
        slot_of := slot_of || level.slot;
        age_ms := age_ms || level.age_ms;
        max_wait_ms := max_wait_ms || level.max_wait_ms;
        heads := heads || jsonb_build_array(level.heads);
        next := next || 0;
    END LOOP;
    IF q.policy = 'weighted' THEN
        kept := string_to_array(current_setting(name, true), ';');
        full_tokens := triage.tokens_full(q.id);
        tokens := CASE WHEN kept[1] = q.version::text THEN kept[2]::int[]
                  ELSE triage.tokens_start(full_tokens) END;
    END IF;
    FOR picked IN 1..p_want LOOP
        best_counts := NULL;
        best := NULL;
        FOR r IN 0..cardinality(slot_of) - 1 LOOP
            CONTINUE WHEN max_wait_ms[r + 1] = 0;
            head_ms := (heads->r->>next[r + 1])::bigint;
            CONTINUE WHEN head_ms IS NULL OR triage.waited_ms(q, head_ms, p_now)
                < max_wait_ms[r + 1] - max_wait_ms[r + 1] / 8;
            IF best IS NULL OR head_ms + max_wait_ms[r + 1] < best_ms THEN
                best := r;
                best_ms := head_ms + max_wait_ms[r + 1];
            END IF;
        END LOOP;
        IF best IS NOT NULL THEN
            slots := slots || slot_of[best + 1];
            effective := effective || 0;
            next[best + 1] := next[best + 1] + 1;
            CONTINUE;
        END IF;
        IF tokens IS NOT NULL THEN
            present := array_fill(false, ARRAY[cardinality(slot_of)]);
            FOR r IN 0..cardinality(slot_of) - 1 LOOP
                head_ms := (heads->r->>next[r + 1])::bigint;
                CONTINUE WHEN head_ms IS NULL;
                FOR counts IN triage.effective_rank(r, age_ms, triage.waited_ms(q, head_ms, p_now))..r LOOP
                    present[counts + 1] := true;
                END LOOP;
            END LOOP;
            EXIT WHEN true <> ALL (present);
            best_counts := triage.tokens_pick(tokens, present) - 1;
            IF best_counts < 0 THEN
                tokens := full_tokens;
                best_counts := triage.tokens_pick(tokens, present) - 1;
            END IF;
            tokens[best_counts + 1] := tokens[best_counts + 1] - 1;
        END IF;
        FOR r IN 0..cardinality(slot_of) - 1 LOOP
            head_ms := (heads->r->>next[r + 1])::bigint;
            CONTINUE WHEN head_ms IS NULL;
            counts := triage.effective_rank(r, age_ms, triage.waited_ms(q, head_ms, p_now));
            IF tokens IS NOT NULL THEN
                CONTINUE WHEN best_counts NOT BETWEEN counts AND r;
                counts := best_counts;
            END IF;
            IF best IS NULL OR counts < best_counts
                OR counts = best_counts AND head_ms < best_ms THEN
                best := r;
                best_ms := head_ms;
                best_counts := counts;
            END IF;
        END LOOP;
        EXIT WHEN best IS NULL;
        slots := slots || slot_of[best + 1];
        effective := effective || best_counts;
        next[best + 1] := next[best + 1] + 1;
    END LOOP;
    IF tokens IS NOT NULL AND cardinality(slots) > 0 THEN
        PERFORM set_config(name, q.version || ';' || tokens::text, false);
    END IF;
END $$;
