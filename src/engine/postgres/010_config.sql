-- Configuring queues from SQL. The shape is that of the HTTP interface: seconds, and null for
-- "none". Functions marked "Public" may be called by every role that may use the schema. They run
-- with the rights of the schema's owner, so that other roles need no rights on the tables.

-- How a level is shown as a priority: its number, or else its name.
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
