-- Configuring queues from SQL. The shape is that of the HTTP interface: seconds, and null for
-- "none". What is public from here on may be called by whoever may use the schema; it runs with the
-- rights of the schema's owner, so that nobody else needs any on the tables.

-- A ready-made profile as engine_queue_set() takes it; NULL when there is none of that name.
CREATE FUNCTION triage.profile(p_name text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('profile', p_name, 'policy', policy, 'default_rank', default_rank,
        'visibility_ms', visibility_ms, 'levels', levels) || '{
        "paused": false, "max_attempts": 3, "backoff": "none", "backoff_base_ms": 1000,
        "backoff_max_ms": 300000, "backoff_jitter": 0.1, "ttl_ms": 0, "expired": "drop",
        "dedup_window_ms": 300000, "dedup_scope": "window", "max_depth": 0, "max_bytes": 0,
        "max_in_flight": 0, "history_ms": 0, "alert_dead_letters": 0,
        "alert_oldest_ready_seconds": 0, "alert_webhook": ""}'
    FROM (VALUES
        ('levels', 'strict', 4, 30000,
         (SELECT jsonb_agg(jsonb_build_object('name', n::text, 'number', n, 'weight', n + 1))
          FROM generate_series(9, 0, -1) n)),
        ('tiers', 'weighted', 2, 300000, '[
            {"name": "CRITICAL", "number": 0, "weight": 8},
            {"name": "HIGH", "number": 1, "weight": 4},
            {"name": "NORMAL", "number": 2, "weight": 2},
            {"name": "LOW", "number": 3, "weight": 1, "age_ms": 1800000},
            {"name": "BACKGROUND", "number": 4, "weight": 0.5, "age_ms": 3600000}]'),
        ('environments', 'weighted', 0, 30000, '[
            {"name": "production", "weight": 4}, {"name": "staging", "weight": 3},
            {"name": "qa", "weight": 2}, {"name": "development", "weight": 1}]'),
        ('timeline', 'strict', 0, 30000, '[{"name": "timeline", "number": 0, "weight": 1}]')
    ) AS p (name, policy, default_rank, visibility_ms, levels)
    WHERE name = p_name
$$;

-- What a level is called where priorities are shown.
CREATE FUNCTION triage.priority_of(p_level triage.level) RETURNS text
LANGUAGE sql IMMUTABLE RETURN coalesce(p_level.number::text, p_level.name);

-- The level that a number or name means; NULL: the queue's default.
CREATE FUNCTION triage.level_named(q triage.queue, p_priority text) RETURNS triage.level
LANGUAGE plpgsql STABLE AS $$
DECLARE
    l triage.level;
BEGIN
    SELECT * INTO l FROM triage.level
    WHERE queue = q.id AND (p_priority IS NULL AND rank = q.default_rank
                            OR name = p_priority OR number::text = p_priority)
    ORDER BY name = p_priority DESC LIMIT 1;
    IF NOT FOUND THEN
        PERFORM triage.refuse(422, 'unknown-priority',
                              format('queue %s has no priority %s', q.name, p_priority));
    END IF;
    RETURN l;
END $$;

CREATE FUNCTION triage.queue_named(p_name text) RETURNS triage.queue
LANGUAGE plpgsql STABLE AS $$
DECLARE
    q triage.queue;
BEGIN
    SELECT * INTO q FROM triage.queue WHERE name = p_name AND NOT deleted;
    IF NOT FOUND THEN
        PERFORM triage.refuse(404, 'queue-not-found', format('there is no queue %s', p_name));
    END IF;
    RETURN q;
END $$;

-- Seconds or a count of the HTTP interface, times p_unit; null is 0.
CREATE FUNCTION triage.config_number(p_config jsonb, p_field text, p_unit int, p_old jsonb)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF NOT p_config ? p_field THEN
        RETURN p_old;
    END IF;
    IF jsonb_typeof(p_config->p_field) NOT IN ('number', 'null')
        OR (p_config->>p_field)::numeric < 0 THEN
        PERFORM triage.refuse(422, 'invalid-field', format('%s must be a number', p_field));
    END IF;
    RETURN to_jsonb(round(coalesce((p_config->>p_field)::numeric, 0) * p_unit)::bigint);
END $$;

CREATE FUNCTION triage.config_levels(p_levels jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    levels jsonb;
BEGIN
    IF jsonb_typeof(p_levels) <> 'array' OR jsonb_array_length(p_levels) NOT BETWEEN 1 AND 16 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'levels must be 1 to 16, most urgent first');
    END IF;
    SELECT jsonb_agg(jsonb_build_object('name', l->>'name', 'number', l->'number',
               'weight', coalesce(l->'weight', '1'),
               'age_ms', triage.config_number(l, 'age_after_seconds', 1000, '0'),
               'max_wait_ms', triage.config_number(l, 'max_wait_seconds', 1000, '0'),
               'max_in_flight', triage.config_number(l, 'max_in_flight', 1, '0')) ORDER BY place)
    INTO levels
    FROM jsonb_array_elements(p_levels) WITH ORDINALITY n (l, place);
    RETURN levels;
END $$;

-- The configuration `p_old` with the fields of p_config changed, both within one of their shapes.
CREATE FUNCTION triage.config_change(p_old jsonb, p_config jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    c jsonb := p_old;
    unknown text;
    retry jsonb := coalesce(p_config->'retry', '{}');
    dedup jsonb := coalesce(p_config->'dedup', '{}');
    alerts jsonb := coalesce(p_config->'alerts', '{}');
    rank int;
BEGIN
    SELECT key INTO unknown FROM (
        SELECT key, 'profile levels policy default_priority visibility_timeout_seconds
            max_attempts retry ttl_seconds expired dedup max_depth max_bytes max_in_flight
            history_seconds alerts' AS known FROM jsonb_object_keys(p_config) key
        UNION ALL SELECT 'retry.' || key, 'retry.backoff retry.base_seconds retry.max_seconds
            retry.jitter' FROM jsonb_object_keys(retry) key
        UNION ALL SELECT 'dedup.' || key, 'dedup.window_seconds dedup.scope'
            FROM jsonb_object_keys(dedup) key
        UNION ALL SELECT 'alerts.' || key, 'alerts.dead_letters alerts.oldest_ready_seconds
            alerts.webhook' FROM jsonb_object_keys(alerts) key) k
    WHERE key <> ALL (regexp_split_to_array(known, '\s+')) LIMIT 1;
    IF unknown IS NOT NULL THEN
        PERFORM triage.refuse(422, 'unknown-field', format('%s is not known', unknown));
    END IF;
    IF p_config ? 'levels' THEN
        c := c || jsonb_build_object('profile', 'custom', 'default_rank', 0,
                                     'levels', triage.config_levels(p_config->'levels'));
    END IF;
    IF p_config ? 'default_priority' THEN
        SELECT place - 1 INTO rank
        FROM jsonb_array_elements(c->'levels') WITH ORDINALITY n (l, place)
        WHERE p_config->>'default_priority' IN (l->>'name', l->>'number')
        ORDER BY l->>'name' = p_config->>'default_priority' DESC LIMIT 1;
        IF rank IS NULL THEN
            PERFORM triage.refuse(422, 'unknown-priority',
                                  'default_priority is none of the levels');
        END IF;
        c := c || jsonb_build_object('default_rank', rank);
    END IF;
    RETURN c || jsonb_build_object(
        'policy', coalesce(p_config->'policy', c->'policy'),
        'visibility_ms',
            triage.config_number(p_config, 'visibility_timeout_seconds', 1000, c->'visibility_ms'),
        'max_attempts', triage.config_number(p_config, 'max_attempts', 1, c->'max_attempts'),
        'backoff', coalesce(retry->'backoff', c->'backoff'),
        'backoff_base_ms', triage.config_number(retry, 'base_seconds', 1000, c->'backoff_base_ms'),
        'backoff_max_ms', triage.config_number(retry, 'max_seconds', 1000, c->'backoff_max_ms'),
        'backoff_jitter', coalesce(retry->'jitter', c->'backoff_jitter'),
        'ttl_ms', triage.config_number(p_config, 'ttl_seconds', 1000, c->'ttl_ms'),
        'expired', coalesce(p_config->'expired', c->'expired'),
        'dedup_window_ms',
            triage.config_number(dedup, 'window_seconds', 1000, c->'dedup_window_ms'),
        'dedup_scope', coalesce(dedup->'scope', c->'dedup_scope'),
        'max_depth', triage.config_number(p_config, 'max_depth', 1, c->'max_depth'),
        'max_bytes', triage.config_number(p_config, 'max_bytes', 1, c->'max_bytes'),
        'max_in_flight', triage.config_number(p_config, 'max_in_flight', 1, c->'max_in_flight'),
        'history_ms', triage.config_number(p_config, 'history_seconds', 1000, c->'history_ms'),
        'alert_dead_letters',
            triage.config_number(alerts, 'dead_letters', 1, c->'alert_dead_letters'),
        'alert_oldest_ready_seconds', triage.config_number(alerts, 'oldest_ready_seconds', 1,
                                                           c->'alert_oldest_ready_seconds'),
        'alert_webhook', CASE WHEN alerts ? 'webhook'
                         THEN to_jsonb(coalesce(alerts->>'webhook', ''))
                         ELSE c->'alert_webhook' END);
END $$;

-- Public: the whole configuration of a queue, in the shape of the HTTP interface.
CREATE FUNCTION triage.config(queue text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(config.queue);
BEGIN
    RETURN jsonb_build_object('name', q.name, 'profile', q.profile,
        'levels', (SELECT jsonb_agg(jsonb_build_object('name', l.name, 'number', l.number,
                       'weight', l.weight,
                       'age_after_seconds', (nullif(l.age_ms, 0) / 1000.0)::float8,
                       'max_wait_seconds', (nullif(l.max_wait_ms, 0) / 1000.0)::float8,
                       'max_in_flight', nullif(l.max_in_flight, 0)) ORDER BY l.rank)
                   FROM triage.level l WHERE l.queue = q.id),
        'policy', q.policy,
        'default_priority', (SELECT triage.priority_of(l) FROM triage.level l
                             WHERE l.queue = q.id AND l.rank = q.default_rank),
        'paused', q.paused, 'visibility_timeout_seconds', (q.visibility_ms / 1000.0)::float8,
        'max_attempts', q.max_attempts,
        'retry', jsonb_build_object('backoff', q.backoff,
            'base_seconds', (q.backoff_base_ms / 1000.0)::float8,
            'max_seconds', (q.backoff_max_ms / 1000.0)::float8, 'jitter', q.backoff_jitter),
        'ttl_seconds', (nullif(q.ttl_ms, 0) / 1000.0)::float8, 'expired', q.expired,
        'dedup', jsonb_build_object('window_seconds', (q.dedup_window_ms / 1000.0)::float8,
                                    'scope', q.dedup_scope),
        'max_depth', nullif(q.max_depth, 0), 'max_bytes', nullif(q.max_bytes, 0),
        'max_in_flight', nullif(q.max_in_flight, 0),
        'history_seconds', (q.history_ms / 1000.0)::float8,
        'alerts', jsonb_build_object('dead_letters', nullif(q.alert_dead_letters, 0),
            'oldest_ready_seconds', nullif(q.alert_oldest_ready_seconds, 0),
            'webhook', nullif(q.alert_webhook, '')));
END $$;

-- Creates the queue when it is not there: by the given profile, or else by the setting
-- triage.default_profile of the session, role or database, or else as `levels`.
CREATE FUNCTION triage.queue_ensure(p_name text, p_profile text DEFAULT NULL) RETURNS triage.queue
LANGUAGE plpgsql AS $$
DECLARE
    q triage.queue;
    base jsonb;
    name text := coalesce(p_profile, nullif(current_setting('triage.default_profile', true), ''),
                          'levels');
BEGIN
    SELECT * INTO q FROM triage.queue t WHERE t.name = p_name AND NOT t.deleted;
    IF FOUND THEN
        RETURN q;
    END IF;
    IF p_name !~ '^[A-Za-z0-9._-]{1,100}$' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'a queue is named by [A-Za-z0-9._-]{1,100}');
    END IF;
    base := triage.profile(name);
    IF base IS NULL THEN
        PERFORM triage.refuse(422, 'invalid-field', format('there is no profile %s', name));
    END IF;
    PERFORM FROM triage.engine_queue_set(NULL, p_name, base);
    RETURN triage.queue_named(p_name);
END $$;

-- Public: creates a queue or changes its configuration. What is left out keeps its value, or has
-- its default at creation.
CREATE FUNCTION triage.configure(queue text, config jsonb DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    fresh boolean := NOT EXISTS (SELECT FROM triage.queue t
                                 WHERE t.name = configure.queue AND NOT t.deleted);
    q triage.queue := triage.queue_ensure(configure.queue, configure.config->>'profile');
    base jsonb := triage.engine_config(q.id);
    given jsonb := configure.config;
    profile jsonb;
    done record;
BEGIN
    IF given ? 'profile' AND NOT fresh AND given->>'profile' <> q.profile THEN
        profile := triage.profile(given->>'profile');
        IF profile IS NULL THEN
            PERFORM triage.refuse(422, 'invalid-field', 'there is no such profile');
        END IF;
        base := base || jsonb_build_object('profile', profile->'profile',
            'levels', profile->'levels', 'policy', profile->'policy',
            'default_rank', profile->'default_rank');
    END IF;
    IF given - 'profile' <> '{}' OR profile IS NOT NULL THEN
        BEGIN
            done := triage.engine_queue_set(q.id, q.name, triage.config_change(base, given));
        EXCEPTION WHEN check_violation OR not_null_violation OR invalid_text_representation
            OR unique_violation OR numeric_value_out_of_range THEN
            PERFORM triage.refuse(422, 'invalid-field', SQLERRM);
        END;
        IF done.status = 'level-in-use' THEN
            PERFORM triage.refuse(409, 'level-in-use',
                                  format('level %s still holds messages', done.level_name));
        END IF;
    END IF;
    RETURN triage.config(configure.queue);
END $$;

CREATE FUNCTION triage.pause_set(p_queue text, p_paused boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    q triage.queue := triage.queue_named(p_queue);
BEGIN
    UPDATE triage.queue SET paused = p_paused, version = version + 1, updated_at = now()
    WHERE id = q.id AND paused <> p_paused;
    IF FOUND THEN
        PERFORM pg_notify('triage', 'queues');
    END IF;
END $$;

-- Public: claims from a paused queue are empty; enqueues go on.
CREATE FUNCTION triage.pause(queue text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT triage.pause_set(queue, true) $$;

CREATE FUNCTION triage.resume(queue text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT triage.pause_set(queue, false) $$;

-- Public: removes a queue; one that is not empty only when forced.
CREATE FUNCTION triage.drop_queue(queue text, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(drop_queue.queue);
BEGIN
    IF triage.engine_queue_delete(q.id, NOT force) = 'queue-not-empty' THEN
        PERFORM triage.refuse(409, 'queue-not-empty', format('queue %s holds messages', q.name));
    END IF;
END $$;
