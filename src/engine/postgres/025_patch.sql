-- Changes of a configuration: a level is changed by its name, fields that are not named stay as
-- they are, and levels that are not named are dropped only when the change says so.

-- The place of a level in a new list of levels, from 1 on: that of its heir (`heir_of` is 1 + its
-- slot), or that of the level with its name. NULL: the level is dropped.
CREATE FUNCTION triage.heir_place(p_level triage.level, p_levels jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT n.place
    FROM jsonb_array_elements(p_levels) WITH ORDINALITY n (l, place),
        coalesce((n.l->>'heir_of')::int, 0) heir
    WHERE heir = p_level.slot + 1 OR heir = 0 AND n.l->>'name' = p_level.name
    ORDER BY heir DESC LIMIT 1
$$;

-- A level as engine_config() has it, in the shape of the HTTP interface.
CREATE FUNCTION triage.level_shown(p_level jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('name', p_level->'name', 'number', p_level->'number',
        'weight', p_level->'weight',
        'age_after_seconds', nullif((p_level->>'age_ms')::numeric, 0) / 1000,
        'max_wait_seconds', nullif((p_level->>'max_wait_ms')::numeric, 0) / 1000,
        'max_in_flight', nullif((p_level->>'max_in_flight')::bigint, 0))
$$;

-- The whole list that `levels` of a change stands for. In an array, a level takes the fields that
-- it does not name from the old level of its name. An object changes the levels that it names.
-- p_old is as engine_config() has it.
CREATE FUNCTION triage.levels_meant(p_given jsonb, p_old jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    wrong text;
BEGIN
    IF jsonb_typeof(p_given) = 'array' THEN
        RETURN (
            SELECT coalesce(jsonb_agg(CASE WHEN jsonb_typeof(l) = 'object' THEN coalesce(
                (SELECT triage.level_shown(o) FROM jsonb_array_elements(p_old) o
                 WHERE o->'name' = l->'name'), '{}') || l ELSE l END ORDER BY place), '[]')
            FROM jsonb_array_elements(p_given) WITH ORDINALITY n (l, place));
    ELSIF jsonb_typeof(p_given) <> 'object' THEN
        RETURN p_given;
    END IF;
    SELECT key INTO wrong FROM jsonb_object_keys(p_given) key
    WHERE NOT EXISTS (SELECT FROM jsonb_array_elements(p_old) o WHERE o->>'name' = key) LIMIT 1;
    IF FOUND THEN
        PERFORM triage.refuse(422, 'unknown-priority', format('the queue has no level %s', wrong));
    END IF;
    SELECT key INTO wrong FROM jsonb_each(p_given)
    WHERE jsonb_typeof(value) <> 'object' OR value ? 'name' LIMIT 1;
    IF FOUND THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              format('levels.%s must be an object, without a name', wrong));
    END IF;
    RETURN (SELECT jsonb_agg(triage.level_shown(o) || coalesce(p_given->(o->>'name'), '{}')
                             ORDER BY place)
            FROM jsonb_array_elements(p_old) WITH ORDINALITY n (o, place));
END $$;

-- Whether a number or a name could mean both levels.
CREATE FUNCTION triage.levels_clash(a jsonb, b jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(a->>'name' = b->>'name', false) OR coalesce(a->>'number' = b->>'number', false)
        OR coalesce(a->>'number' = b->>'name', false) OR coalesce(a->>'name' = b->>'number', false)
$$;

CREATE FUNCTION triage.check_distinct(p_levels jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    twice record;
BEGIN
    SELECT a.l->>'name' AS one, b.l->>'name' AS other INTO twice
    FROM jsonb_array_elements(p_levels) WITH ORDINALITY a (l, place)
        JOIN jsonb_array_elements(p_levels) WITH ORDINALITY b (l, place) ON a.place < b.place
    WHERE triage.levels_clash(a.l, b.l) LIMIT 1;
    IF FOUND THEN
        PERFORM triage.refuse(422, 'invalid-field', format(
            'levels has two that are called the same: %s and %s', twice.one, twice.other));
    END IF;
END $$;

-- p_next, and after it the levels that it lacks and that hold messages, with the weight of its last
-- level. If a level that stays has the number of a level of p_next, it loses the number. If its
-- name is such a number, it gets another name.
CREATE FUNCTION triage.levels_kept(p_queue int, p_next jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
DECLARE
    outcome jsonb := p_next;
    used triage.level;
    l jsonb;
BEGIN
    FOR used IN SELECT * FROM triage.levels_used(p_queue) u ORDER BY u.rank LOOP
        CONTINUE WHEN triage.heir_place(used, p_next) IS NOT NULL;
        l := to_jsonb(used) - '{queue,rank}'::text[] || jsonb_build_object(
            'heir_of', used.slot + 1, 'weight', p_next->-1->'weight');
        IF EXISTS (SELECT FROM jsonb_array_elements(outcome) n WHERE triage.levels_clash(n, l)) THEN
            l := l || '{"number": null}';
        END IF;
        WHILE EXISTS (SELECT FROM jsonb_array_elements(outcome) n WHERE triage.levels_clash(n, l)) LOOP
            l := l || jsonb_build_object('name', (l->>'name') || '-old');
        END LOOP;
        outcome := outcome || jsonb_build_array(l);
    END LOOP;
    IF jsonb_array_length(outcome) > @LEVEL_COUNT_MAX@ THEN
        PERFORM triage.refuse(409, 'level-in-use',
            'with those in use there would be more than @LEVEL_COUNT_MAX@ levels');
    END IF;
    RETURN outcome;
END $$;

-- Checks the fields of a change that are not part of the configuration.
CREATE FUNCTION triage.check_change(p_given jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF jsonb_typeof(p_given->'profile') <> 'string' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'profile is a name');
    ELSIF jsonb_typeof(p_given->'name') <> 'string' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'name is a text');
    ELSIF jsonb_typeof(p_given->'paused') <> 'boolean' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'paused is true or false');
    ELSIF p_given->'drop_levels' NOT IN ('true', 'false', 'null', '"empty"') THEN
        PERFORM triage.refuse(422, 'invalid-field', 'drop_levels is true, false or "empty"');
    END IF;
END $$;
