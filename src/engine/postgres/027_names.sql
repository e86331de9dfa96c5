-- Names that stay. A schedule names a level by its name, because the meaning of a number may change:
-- the name follows the level through changes of the configuration, and a level that a schedule names
-- is in use. And a profile that is named again leaves the weights and the aging of its levels alone.

-- The slot of the level that a schedule names; NULL: there is none of that name, or it goes by the
-- queue's default. A number is a level's number, and else its name.
CREATE OR REPLACE FUNCTION triage.schedule_slot(p triage.schedule) RETURNS smallint
LANGUAGE sql STABLE AS $$
    SELECT l.slot FROM triage.level l
    WHERE l.queue = p.queue AND (p.priority_kind = 2 AND l.name = p.priority_name
        OR p.priority_kind = 1 AND (l.number = p.priority_number
                                    OR l.name = p.priority_number::text))
    ORDER BY l.number = p.priority_number DESC NULLS LAST LIMIT 1
$$;

UPDATE triage.schedule s SET priority_kind = 2, priority_number = 0, priority_name = l.name
FROM triage.level l
WHERE s.priority_kind = 1 AND l.queue = s.queue AND l.slot = triage.schedule_slot(s);

-- The rules for a change of a schedule are in schedule_inherit() of the server. The queue's row is
-- held, so that its levels do not change between reading the number and finding its name.
CREATE OR REPLACE FUNCTION triage.engine_schedule_set(p_queue int, p_version int, p triage.schedule,
    p_now bigint DEFAULT NULL,
    OUT status text, OUT created boolean, OUT schedule triage.schedule)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
DECLARE
    old triage.schedule;
    named text;
BEGIN
    PERFORM FROM triage.queue q WHERE q.id = p_queue FOR SHARE;
    PERFORM triage.queue_kept(p_queue, p_version);
    PERFORM pg_advisory_xact_lock(7426, p_queue); -- the limit holds, and nobody else makes it
    SELECT * INTO old FROM triage.schedule s WHERE s.queue = p_queue AND s.name = p.name FOR UPDATE;
    created := old.queue IS NULL;
    IF created AND (SELECT count(*) FROM triage.schedule s WHERE s.queue = p_queue)
        >= @SCHEDULES_MAX@ THEN
        status := 'quota-exceeded';
        RETURN;
    END IF;
    p.queue := p_queue;
    named := (SELECT l.name FROM triage.level l
              WHERE l.queue = p_queue AND l.slot = triage.schedule_slot(p));
    IF named IS NOT NULL THEN
        p.priority_kind := 2;
        p.priority_number := 0;
        p.priority_name := named;
    END IF;
    p.last_ms := coalesce(old.last_ms, -@TIME_MS_MAX@);
    p.count := coalesce(old.count, 0);
    p.made_up := 0;
    IF p.paused THEN
        p.next_ms := @TIME_MS_MAX@;
    ELSIF NOT old.paused AND (old.cron, old.every_seconds, old.time_zone)
        = (p.cron, p.every_seconds, p.time_zone) THEN
        p.next_ms := old.next_ms;
        p.made_up := old.made_up;
    END IF;
    p.show_ms := greatest(p.next_ms, coalesce(p_now, triage.now_ms()));
    DELETE FROM triage.schedule s WHERE s.queue = p_queue AND s.name = p.name;
    INSERT INTO triage.schedule SELECT p.*;
    schedule := p;
END $$;

-- The levels that hold messages, or that schedules name, by rank.
CREATE OR REPLACE FUNCTION triage.levels_used(p_queue int) RETURNS SETOF triage.level
LANGUAGE sql STABLE AS $$
    SELECT l.* FROM triage.level l LEFT JOIN triage.counts(p_queue) c ON c.slot = l.slot
    WHERE l.queue = p_queue AND (c.ready + c.scheduled + c.leased + c.dead > 0
        OR EXISTS (SELECT FROM triage.schedule s
                   WHERE s.queue = p_queue AND triage.schedule_slot(s) = l.slot))
    ORDER BY l.rank
$$;

-- The first level in use that a new list of levels would drop; NULL: there is none.
CREATE OR REPLACE FUNCTION triage.levels_lost(p_queue int, p_levels jsonb) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT l.name FROM triage.levels_used(p_queue) l
    WHERE triage.heir_place(l, p_levels) IS NULL ORDER BY l.rank LIMIT 1
$$;

-- The schedule that keeps a level in use which holds no messages; NULL: it holds messages.
CREATE OR REPLACE FUNCTION triage.schedule_of_level(p_queue int, p_level text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT s.name FROM triage.schedule s JOIN triage.level l ON l.queue = s.queue
    WHERE s.queue = p_queue AND l.name = p_level AND triage.schedule_slot(s) = l.slot
        AND NOT EXISTS (SELECT FROM triage.counts(p_queue) c
                        WHERE c.slot = l.slot AND c.ready + c.scheduled + c.leased + c.dead > 0)
    ORDER BY s.name LIMIT 1
$$;

-- Sets the levels. A level keeps its slot under its name or as an heir, and schedules then name the
-- heir. New levels get the lowest free slots. If a level in use would be dropped, returns its name
-- and changes nothing; otherwise returns NULL.
CREATE OR REPLACE FUNCTION triage.levels_set(p_queue int, p_levels jsonb) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    lost text := triage.levels_lost(p_queue, p_levels);
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
    UPDATE triage.schedule s
    SET priority_kind = 2, priority_number = 0, priority_name = h.name
    FROM (SELECT l.slot, p_levels->(triage.heir_place(l, p_levels) - 1)::int->>'name' AS name
          FROM triage.level l WHERE l.queue = p_queue) h
    WHERE s.queue = p_queue AND triage.schedule_slot(s) = h.slot
        AND (s.priority_kind, s.priority_name) IS DISTINCT FROM (2, h.name);
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

-- What engine_queue_change() would answer. Nothing is changed.
CREATE OR REPLACE FUNCTION triage.engine_queue_try(p_id int, p_version int, p_config jsonb,
    OUT id int, OUT created boolean, OUT status text, OUT level_name text, OUT config jsonb)
LANGUAGE plpgsql
SET search_path = triage, pg_temp AS $$
BEGIN
    PERFORM triage.queue_at(p_id, p_version);
    id := p_id;
    created := false;
    level_name := triage.levels_lost(p_id, p_config->'levels');
    status := CASE WHEN level_name IS NOT NULL THEN 'level-in-use' END;
    config := triage.engine_config(p_id);
END $$;

DROP FUNCTION IF EXISTS triage.levels_shown(jsonb);

-- The names and numbers of a list of levels. Two lists with the same ones belong to the same
-- profile, whatever their weights.
CREATE OR REPLACE FUNCTION triage.levels_called(p_levels jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_agg(jsonb_build_array(l->'name', coalesce(l->'number', 'null')) ORDER BY place)
    FROM jsonb_array_elements(p_levels) WITH ORDINALITY n (l, place)
$$;

-- What another profile changes in a configuration: its levels, its policy and its default. Both are
-- as engine_config() has them. If the configuration has all levels of the profile already, they
-- keep their values, and the policy and the default stay, too.
CREATE OR REPLACE FUNCTION triage.profile_taken(p_base jsonb, p_profile jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    taken jsonb := (SELECT jsonb_object_agg(key, value) FROM jsonb_each(p_profile)
                    WHERE key IN ('profile', 'levels', 'policy', 'default_rank'));
    kept jsonb; -- the levels of the profile with their values here
    rank int;
BEGIN
    SELECT jsonb_agg(o.l ORDER BY n.place) INTO kept
    FROM jsonb_array_elements(p_profile->'levels') WITH ORDINALITY n (l, place)
        JOIN jsonb_array_elements(p_base->'levels') o (l) ON o.l->'name' = n.l->'name';
    IF triage.levels_called(kept) IS DISTINCT FROM triage.levels_called(p_profile->'levels') THEN
        RETURN taken;
    END IF;
    rank := (SELECT n.place - 1 FROM jsonb_array_elements(kept) WITH ORDINALITY n (l, place)
             WHERE n.l->'name' = p_base->'levels'->(p_base->>'default_rank')::int->'name');
    RETURN taken || jsonb_build_object('levels', kept, 'policy', p_base->'policy',
        'default_rank', coalesce(to_jsonb(rank), p_profile->'default_rank'));
END $$;

-- The configuration `p_base` of a queue, as engine_config() has it, with what `p_given` says of its
-- levels and of all else. With p_inherits a level takes what it does not name from p_base.
CREATE OR REPLACE FUNCTION triage.config_patch(p_base jsonb, p_given jsonb, p_inherits boolean) RETURNS jsonb
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
    IF triage.levels_called(outcome->'levels')
        = triage.levels_called(triage.profile(p_base->>'profile')->'levels') THEN
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
    named_by text;
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
        base := base || triage.profile_taken(base, triage.profile(given->>'profile'));
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
            named_by := triage.schedule_of_level(q.id, done.level_name);
            PERFORM triage.refuse(409, 'level-in-use', CASE WHEN named_by IS NULL
                THEN format('level %s still holds messages', done.level_name)
                ELSE format('schedule %s puts its messages at level %s', named_by, done.level_name)
                END);
        END IF;
    END IF;
    IF configure.config ? 'paused' THEN
        PERFORM triage.pause_set(q.name, (configure.config->>'paused')::boolean);
    END IF;
    RETURN triage.config(configure.queue);
END $$;

-- For reading. Servers fire them; without one they stay due. `level` is where the next message goes.
CREATE OR REPLACE VIEW triage.schedules AS
    SELECT q.name AS queue_name, s.name, nullif(s.cron, '') AS cron,
        nullif(s.every_seconds, 0) AS every_seconds, s.time_zone, s.missed,
        s.grace_ms / 1000.0 AS grace_seconds, s.paused,
        CASE WHEN s.next_ms < @TIME_MS_MAX@ THEN triage.from_ms(s.next_ms) END AS next_due_at,
        CASE WHEN s.last_ms > -@TIME_MS_MAX@ THEN triage.from_ms(s.last_ms) END AS last_due_at,
        s.count,
        CASE WHEN s.kind < 2 THEN triage.text_of(s.payload) END AS payload,
        s.payload AS payload_bytes,
        CASE s.priority_kind WHEN 1 THEN s.priority_number::text
            WHEN 2 THEN coalesce(l.number::text, s.priority_name) END AS priority,
        triage.json_of(nullif(s.metadata, '')) AS metadata, l.name AS level
    FROM triage.schedule s JOIN triage.queue q ON q.id = s.queue AND NOT q.deleted
        LEFT JOIN triage.level l ON l.queue = s.queue
            AND (s.priority_kind = 0 AND l.rank = q.default_rank
                 OR s.priority_kind = 2 AND l.name = s.priority_name);

SELECT triage.rights_like('schedules', 'queues');
