-- Configurations by patch: a level is changed by its name, what it does not name stays, and levels
-- that nobody named are not dropped without being asked for.

-- Where a level goes on in a new list of levels, from 1 on: at the one that is its heir (`heir_of`
-- is 1 + its slot), or at the one of its name. NULL: it does not.
CREATE FUNCTION triage.heir_place(p_level triage.level, p_levels jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT n.place
    FROM jsonb_array_elements(p_levels) WITH ORDINALITY n (l, place),
        coalesce((n.l->>'heir_of')::int, 0) heir
    WHERE heir = p_level.slot + 1 OR heir = 0 AND n.l->>'name' = p_level.name
    ORDER BY heir DESC LIMIT 1
$$;

-- The levels that hold messages, by rank.
CREATE FUNCTION triage.levels_used(p_queue int) RETURNS SETOF triage.level
LANGUAGE sql STABLE AS $$
    SELECT l.* FROM triage.level l JOIN triage.counts(p_queue) c ON c.slot = l.slot
    WHERE l.queue = p_queue AND c.ready + c.scheduled + c.leased + c.dead > 0
    ORDER BY l.rank
$$;

-- Levels keep their slots by name or as heirs; new ones get the lowest that are free. Returns the
-- name of a level that would vanish although it holds messages, and then changes nothing; else NULL.
CREATE OR REPLACE FUNCTION triage.levels_set(p_queue int, p_levels jsonb) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    lost text := (SELECT l.name FROM triage.levels_used(p_queue) l
                  WHERE triage.heir_place(l, p_levels) IS NULL ORDER BY l.rank LIMIT 1);
    kept jsonb; -- slots, by place
    taken int[];
    next_slot int;
    each record;
BEGIN
    IF lost IS NOT NULL THEN
        RETURN lost;
    END IF;
    SELECT coalesce(jsonb_object_agg(h.place, h.slot), '{}'), coalesce(array_agg(h.slot::int), '{}')
    INTO kept, taken
    FROM (SELECT triage.heir_place(l, p_levels) AS place, l.slot
          FROM triage.level l WHERE l.queue = p_queue) h
    WHERE h.place IS NOT NULL;
    DELETE FROM triage.level WHERE queue = p_queue;
    FOR each IN SELECT l.*, place
        FROM jsonb_array_elements(p_levels) WITH ORDINALITY n (value, place),
            jsonb_to_record(n.value) AS l (name text, number bigint, weight float8, age_ms bigint,
                                           max_wait_ms bigint, max_in_flight bigint)
        ORDER BY place
    LOOP
        next_slot := (kept->>each.place::text)::int;
        IF next_slot IS NULL THEN
            next_slot := (SELECT min(s) FROM generate_series(0, 15) s WHERE s <> ALL (taken));
            taken := taken || next_slot;
        END IF;
        INSERT INTO triage.level (queue, rank, slot, name, number, weight, age_ms, max_wait_ms,
            max_in_flight)
        VALUES (p_queue, each.place - 1, next_slot, each.name, each.number,
                coalesce(each.weight, 1), coalesce(each.age_ms, 0), coalesce(each.max_wait_ms, 0),
                coalesce(each.max_in_flight, 0));
    END LOOP;
    RETURN NULL;
END $$;

-- A level as engine_config() has it, in the shape of the HTTP interface.
CREATE FUNCTION triage.level_shown(p_level jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('name', p_level->'name', 'number', p_level->'number',
        'weight', p_level->'weight',
        'age_after_seconds', nullif((p_level->>'age_ms')::numeric, 0) / 1000,
        'max_wait_seconds', nullif((p_level->>'max_wait_ms')::numeric, 0) / 1000,
        'max_in_flight', nullif((p_level->>'max_in_flight')::bigint, 0))
$$;

CREATE FUNCTION triage.levels_shown(p_levels jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_agg(triage.level_shown(l) ORDER BY place)
    FROM jsonb_array_elements(p_levels) WITH ORDINALITY n (l, place)
$$;

-- The whole list that is meant by `levels` of a change: of an array each level takes what it does
-- not name from the one of its name, an object changes those that it names. p_old is as
-- engine_config() has it.
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

-- Whether a number or a name could mean both.
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

-- p_next with the levels behind it that hold messages and that it lacks, with the weight of its
-- last one: weights count among one another. A number of p_next's levels means these alone: a level
-- that stays gives up its number, and has another name where its own is that number.
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
            'with those that hold messages there would be more than @LEVEL_COUNT_MAX@ levels');
    END IF;
    RETURN outcome;
END $$;

-- Of a change what is no part of the configuration.
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

-- The configuration `p_base` of a queue, as engine_config() has it, with what `p_given` says of its
-- levels and of all else. With p_inherits a level takes what it does not name from p_base.
CREATE FUNCTION triage.config_patch(p_base jsonb, p_given jsonb, p_inherits boolean) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    given jsonb := p_given;
    outcome jsonb;
    rank int;
BEGIN
    IF given->'default_priority' = 'null' THEN
        given := given - 'default_priority';
    END IF;
    IF given ? 'levels' THEN
        given := given || jsonb_build_object('levels', triage.levels_meant(given->'levels',
            CASE WHEN p_inherits THEN p_base->'levels' ELSE '[]' END));
    END IF;
    outcome := triage.config_change(p_base, given);
    PERFORM triage.check_config(given, outcome), triage.check_distinct(outcome->'levels');
    IF NOT given ? 'levels' THEN
        RETURN outcome;
    ELSIF NOT given ? 'default_priority' THEN -- that of its name, or the middle one, of two the later
        rank := (SELECT n.place - 1
                 FROM jsonb_array_elements(outcome->'levels') WITH ORDINALITY n (l, place)
                 WHERE n.l->'name' = p_base->'levels'->(p_base->>'default_rank')::int->'name');
        outcome := outcome || jsonb_build_object('default_rank',
            coalesce(rank, jsonb_array_length(outcome->'levels') / 2));
    END IF;
    IF triage.levels_shown(outcome->'levels')
        = triage.levels_shown(triage.profile(p_base->>'profile')->'levels') THEN
        outcome := outcome || jsonb_build_object('profile', p_base->'profile');
    END IF;
    RETURN outcome;
END $$;

-- Public: creates a queue or changes its configuration. What is left out keeps its value, or has
-- its default at creation. What config() gives of another queue can be given.
CREATE OR REPLACE FUNCTION triage.configure(queue text, config jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    fresh boolean := NOT EXISTS (SELECT FROM triage.queue t
                                 WHERE t.name = configure.queue AND NOT t.deleted);
    given jsonb := configure.config - '{name,paused,drop_levels}'::text[];
    q triage.queue;
    base jsonb;
    changes boolean;
    dropped text;
    done record;
BEGIN
    PERFORM triage.check_change(configure.config);
    IF given->>'profile' = 'custom' AND given ? 'levels' THEN
        given := given - 'profile';
    END IF;
    q := triage.queue_ensure(configure.queue, given->>'profile');
    PERFORM FROM triage.queue t WHERE t.id = q.id FOR UPDATE; -- before it is read: others may change it
    base := triage.engine_config(q.id);
    changes := given - 'profile' <> '{}';
    IF given ? 'profile' AND given->>'profile' <> q.profile THEN
        changes := true;
        IF triage.profile(given->>'profile') IS NULL THEN
            PERFORM triage.refuse(422, 'invalid-field', 'there is no such profile');
        END IF;
        base := base || jsonb_object_agg(key, value) FROM jsonb_each(triage.profile(given->>'profile'))
            WHERE key IN ('profile', 'levels', 'policy', 'default_rank');
    END IF;
    IF changes THEN
        BEGIN
            base := triage.config_patch(base, given, NOT fresh OR given ? 'profile');
            IF configure.config->>'drop_levels' = 'empty' THEN
                base := base || jsonb_build_object('levels',
                                                   triage.levels_kept(q.id, base->'levels'));
            ELSIF NOT fresh AND configure.config->'drop_levels' IS DISTINCT FROM 'true' THEN
                SELECT string_agg(l.name, ', ' ORDER BY l.rank) INTO dropped FROM triage.level l
                WHERE l.queue = q.id AND triage.heir_place(l, base->'levels') IS NULL;
                IF dropped IS NOT NULL THEN
                    PERFORM triage.refuse(409, 'levels-dropped', format(
                        'name every level, or add "drop_levels": true; it would drop %s', dropped));
                END IF;
            END IF;
            done := triage.engine_queue_set(q.id, q.name, base);
        EXCEPTION WHEN check_violation OR not_null_violation OR invalid_text_representation
            OR unique_violation OR numeric_value_out_of_range OR invalid_parameter_value THEN
            PERFORM triage.refuse(422, 'invalid-field', SQLERRM);
        END;
        IF done.status = 'level-in-use' THEN
            PERFORM triage.refuse(409, 'level-in-use',
                                  format('level %s still holds messages', done.level_name));
        END IF;
    END IF;
    IF configure.config ? 'paused' THEN
        PERFORM triage.pause_set(q.name, (configure.config->>'paused')::boolean);
    END IF;
    RETURN triage.config(configure.queue);
END $$;
