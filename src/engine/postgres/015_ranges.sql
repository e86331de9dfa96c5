-- The ranges of values. SQL refuses what the HTTP interface refuses, by the same numbers: a word
-- between two @ is the name of a limit in src/base/limits.h, and the build puts in its number. This
-- file has the public functions that take values from an application. In a database that has older
-- ones these replace them.

-- How long an interval may be, both ends included.
CREATE FUNCTION triage.check_seconds(p_field text, p_value interval, p_least numeric,
                                     p_most numeric) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF extract(epoch FROM p_value) NOT BETWEEN p_least AND p_most THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              format('%s is %s to %s seconds', p_field, p_least, p_most));
    END IF;
END $$;

CREATE FUNCTION triage.check_bytes(p_field text, p_value text, p_least int, p_most int) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF octet_length(p_value) NOT BETWEEN p_least AND p_most THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              format('%s has %s to %s bytes', p_field, p_least, p_most));
    END IF;
END $$;

-- Who escalates, and why.
CREATE FUNCTION triage.check_note(p_actor text, p_reason text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM triage.check_bytes('actor', p_actor, 1, @ACTOR_MAX@);
    PERFORM triage.check_bytes('reason', p_reason, 0, @REASON_MAX@);
END $$;

CREATE FUNCTION triage.check_metadata(p_metadata jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF jsonb_typeof(p_metadata) <> 'object' OR octet_length(p_metadata::text) > @METADATA_MAX@ THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              'metadata is an object of at most @METADATA_MAX@ bytes');
    ELSIF (SELECT count(*) > @METADATA_KEYS_MAX@ FROM jsonb_object_keys(p_metadata)) THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              'metadata has at most @METADATA_KEYS_MAX@ members');
    ELSIF EXISTS (SELECT FROM jsonb_each(p_metadata) m
                  WHERE jsonb_typeof(m.value) IN ('object', 'array')) THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              'metadata has strings, numbers, booleans or null as values');
    END IF;
END $$;

-- The numbers of a configuration. One that may be null must be more than 0 when it is there.
CREATE FUNCTION triage.ranges()
RETURNS TABLE (field text, lowest numeric, highest numeric, whole boolean, nullable boolean)
LANGUAGE sql IMMUTABLE ROWS 20 AS $$
    VALUES ('visibility_timeout_seconds', 0, @LEASE_SECONDS_MAX@, false, false),
        ('max_attempts', 1, @ATTEMPTS_MAX@, true, false),
        ('base_seconds', 0, @DELAY_SECONDS_MAX@, false, false),
        ('max_seconds', 0, @DELAY_SECONDS_MAX@, false, false),
        ('jitter', 0, 1, false, false),
        ('ttl_seconds', 0, @TTL_SECONDS_MAX@, false, true),
        ('window_seconds', 0, @TTL_SECONDS_MAX@, false, false),
        ('max_depth', 1, @COUNT_MAX@, true, true),
        ('max_bytes', 1, @COUNT_MAX@, true, true),
        ('max_in_flight', 1, @IN_FLIGHT_MAX@, true, true),
        ('history_seconds', 0, @HISTORY_SECONDS_MAX@, false, false),
        ('dead_letters', 1, @COUNT_MAX@, true, true),
        ('oldest_ready_seconds', 1, @DELAY_SECONDS_MAX@, true, true),
        ('age_after_seconds', 0, @DELAY_SECONDS_MAX@, false, true),
        ('max_wait_seconds', 0, @DELAY_SECONDS_MAX@, false, true),
        ('older_than_seconds', 0, @DELAY_SECONDS_MAX@, false, true),
        ('number', -@LEVEL_NUMBER_MAX@, @LEVEL_NUMBER_MAX@, true, true),
        ('weight', @WEIGHT_UNIT@, @WEIGHT_MAX@, false, false)
$$;

-- Refuses a field that is out of its range; one that is not there is in it.
CREATE FUNCTION triage.check_number(p_config jsonb, p_field text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    r record;
    value numeric;
BEGIN
    SELECT * INTO r FROM triage.ranges() t WHERE t.field = p_field;
    IF NOT p_config ? p_field OR r.nullable AND jsonb_typeof(p_config->p_field) = 'null' THEN
        RETURN;
    ELSIF jsonb_typeof(p_config->p_field) = 'number' THEN
        value := (p_config->>p_field)::numeric;
        IF value BETWEEN r.lowest AND r.highest AND (NOT r.whole OR value = trunc(value)) THEN
            RETURN;
        END IF;
    END IF;
    PERFORM triage.refuse(422, 'invalid-field', format('%s must be %s from %s to %s%s', p_field,
        CASE WHEN r.whole THEN 'an integer' ELSE 'a number' END, r.lowest, r.highest,
        CASE WHEN r.nullable THEN ', or null' END));
END $$;

-- Seconds or a count of the HTTP interface, times p_unit; null is 0.
CREATE OR REPLACE FUNCTION triage.config_number(p_config jsonb, p_field text, p_unit int,
                                                p_old jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    value bigint;
BEGIN
    IF NOT p_config ? p_field THEN
        RETURN p_old;
    END IF;
    PERFORM triage.check_number(p_config, p_field);
    value := round(coalesce((p_config->>p_field)::numeric, 0) * p_unit);
    IF value = 0 AND p_config->>p_field IS NOT NULL
        AND (SELECT r.nullable FROM triage.ranges() r WHERE r.field = p_field) THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              format('%s must be more than 0, or null for none', p_field));
    END IF;
    RETURN to_jsonb(value);
END $$;

CREATE FUNCTION triage.check_level(p_level jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    unknown text := (SELECT min(k) FROM jsonb_object_keys(p_level) k
        WHERE k NOT IN ('name', 'number', 'weight', 'age_after_seconds', 'max_wait_seconds',
                        'max_in_flight'));
BEGIN
    IF unknown IS NOT NULL THEN
        PERFORM triage.refuse(422, 'unknown-field', format('a level has no %s', unknown));
    ELSIF jsonb_typeof(p_level->'name') IS DISTINCT FROM 'string'
        OR p_level->>'name' ~ '[\x01-\x1f\x7f]' OR octet_length(p_level->>'name') NOT BETWEEN 1 AND @LEVEL_NAME_MAX@ THEN
        PERFORM triage.refuse(422, 'invalid-field', 'a level has a name of 1 to @LEVEL_NAME_MAX@ '
            'bytes, without control characters');
    END IF;
    PERFORM triage.check_number(p_level, 'number'), triage.check_number(p_level, 'weight');
    IF (p_level->>'weight')::numeric % @WEIGHT_UNIT@ <> 0 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'weight has at most three decimals');
    END IF;
END $$;

CREATE OR REPLACE FUNCTION triage.config_levels(p_levels jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    levels jsonb;
    twice text;
BEGIN
    IF jsonb_typeof(p_levels) <> 'array'
        OR jsonb_array_length(p_levels) NOT BETWEEN 1 AND @LEVEL_COUNT_MAX@ THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              'levels must be 1 to @LEVEL_COUNT_MAX@, most urgent first');
    END IF;
    PERFORM triage.check_level(l) FROM jsonb_array_elements(p_levels) l;
    SELECT shown INTO twice
    FROM (SELECT coalesce(trunc((l->>'number')::numeric)::text, l->>'name') AS shown
          FROM jsonb_array_elements(p_levels) l) s
    GROUP BY shown HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              format('levels has two that are called %s', twice));
    END IF;
    SELECT jsonb_agg(jsonb_build_object('name', l->>'name',
               'number', trunc((l->>'number')::numeric), -- 1.0 is whole
               'weight', coalesce(l->'weight', '1'),
               'age_ms', triage.config_number(l, 'age_after_seconds', 1000, '0'),
               'max_wait_ms', triage.config_number(l, 'max_wait_seconds', 1000, '0'),
               'max_in_flight', triage.config_number(l, 'max_in_flight', 1, '0')) ORDER BY place)
    INTO levels
    FROM jsonb_array_elements(p_levels) WITH ORDINALITY n (l, place);
    RETURN levels;
END $$;

-- Checks the fields of a configuration that are not plain numbers. p_given is the change, p_next
-- the configuration that it makes.
CREATE FUNCTION triage.check_config(p_given jsonb, p_next jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    webhook text := p_given#>>'{alerts,webhook}';
BEGIN
    PERFORM triage.check_number(coalesce(p_given->'retry', '{}'), 'jitter');
    IF octet_length(webhook) > @WEBHOOK_MAX@ OR webhook !~ '^https?://[^[:cntrl:] ]+$' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'alerts.webhook must be a URL that starts with '
            'http:// or https://, without blanks and of at most @WEBHOOK_MAX@ bytes');
    ELSIF p_next->>'backoff' = 'exponential'
        AND (p_next->>'backoff_max_ms')::bigint < (p_next->>'backoff_base_ms')::bigint THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              'retry.max_seconds must not be below retry.base_seconds');
    END IF;
END $$;

-- Creates the queue when it is not there: by the given profile, or else by the setting
-- triage.default_profile of the session, role or database, or else as `levels`. A client resolves
-- "." and ".." in a path before it sends it: such a queue could not be reached.
CREATE OR REPLACE FUNCTION triage.queue_ensure(p_name text, p_profile text DEFAULT NULL)
RETURNS triage.queue
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
    IF p_name IS NULL OR p_name IN ('.', '..')
        OR p_name !~ '^[A-Za-z0-9._-]{1,@QUEUE_NAME_MAX@}$' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'a queue is named by '
            '[A-Za-z0-9._-]{1,@QUEUE_NAME_MAX@}, and not "." or ".."');
    END IF;
    base := triage.profile(name);
    IF base IS NULL THEN
        PERFORM triage.refuse(422, 'invalid-field', format('there is no profile %s', name));
    END IF;
    PERFORM FROM triage.engine_queue_set(NULL, p_name, base);
    RETURN triage.queue_named(p_name);
END $$;

-- When a message may be claimed and when it is too late, as an application says it.
CREATE FUNCTION triage.check_times(p_delay interval, p_delay_until timestamptz, p_dequeue_at bigint,
                                   p_ttl interval) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF num_nonnulls(p_delay, p_delay_until, p_dequeue_at) > 1 THEN
        PERFORM triage.refuse(422, 'invalid-field', 'delay, delay_until and dequeue_at: only one');
    ELSIF extract(epoch FROM p_delay_until) * 1000 NOT BETWEEN -@TIME_MS_MAX@ AND @TIME_MS_MAX@
        OR p_dequeue_at NOT BETWEEN -@TIME_MS_MAX@ AND @TIME_MS_MAX@ THEN
        PERFORM triage.refuse(422, 'invalid-field', 'a time is out of range');
    END IF;
    PERFORM triage.check_seconds('delay', p_delay, 0, @DELAY_SECONDS_MAX@);
    PERFORM triage.check_seconds('ttl', p_ttl, 0.0005, @TTL_SECONDS_MAX@);
END $$;

CREATE FUNCTION triage.check_payload(p_payload bytea) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_payload IS NULL THEN
        PERFORM triage.refuse(422, 'invalid-field', 'payload is required');
    ELSIF octet_length(p_payload) > @PAYLOAD_MAX@ THEN
        PERFORM triage.refuse(413, 'payload-too-large',
                              'a payload has at most @PAYLOAD_MAX@ bytes');
    END IF;
END $$;

-- Text is kept byte for byte, jsonb as its text, bytea as it is; each comes back as it went in.
CREATE OR REPLACE FUNCTION triage.enqueue(queue text, payload text, priority text DEFAULT NULL,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue_one(queue, convert_to(payload, 'UTF8'), 0::smallint, priority, delay,
        delay_until, dequeue_at, dedup_key, ttl, metadata)
$$;

CREATE OR REPLACE FUNCTION triage.enqueue(queue text, payload jsonb, priority text DEFAULT NULL,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue_one(queue, convert_to(payload::text, 'UTF8'), 1::smallint, priority,
        delay, delay_until, dequeue_at, dedup_key, ttl, metadata)
$$;

CREATE OR REPLACE FUNCTION triage.enqueue(queue text, payload bytea, priority text DEFAULT NULL,
    delay interval DEFAULT NULL, delay_until timestamptz DEFAULT NULL,
    dequeue_at bigint DEFAULT NULL, dedup_key text DEFAULT NULL, ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
    SELECT triage.enqueue_one(queue, payload, 2::smallint, priority, delay, delay_until, dequeue_at,
        dedup_key, ttl, metadata)
$$;

CREATE OR REPLACE FUNCTION triage.return_one(p_id text, p_receipt text, p_release boolean,
    p_delay interval, p_reason text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    id record := triage.id_of(p_id);
    done triage.settled;
BEGIN
    PERFORM triage.check_seconds('delay', p_delay, 0, @DELAY_SECONDS_MAX@);
    PERFORM triage.check_bytes('reason', p_reason, 0, @REASON_MAX@);
    done := triage.engine_return((id.q).id, (id.q).version, ARRAY[id.seq], ARRAY[id.slot],
        ARRAY[id.ready_ms], ARRAY[triage.receipt_parse(p_receipt)], p_release,
        triage.to_ms(p_delay), coalesce(nullif(p_reason, ''), 'nacked'));
    PERFORM triage.expect(done.status, p_id);
    RETURN done.state;
END $$;

-- The state that the message is in now. Without a delay: by the queue's backoff.
CREATE OR REPLACE FUNCTION triage.nack(message_id text, receipt_handle text,
    delay interval DEFAULT NULL, reason text DEFAULT NULL) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT triage.return_one(message_id, receipt_handle, false, delay, reason) $$;

-- Back to its place, the attempt not counted.
CREATE OR REPLACE FUNCTION triage.release(message_id text, receipt_handle text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = triage, pg_temp
AS $$ SELECT triage.return_one(message_id, receipt_handle, true, NULL, NULL) $$;

-- Another priority for a message that is scheduled or ready. It keeps its age.
CREATE OR REPLACE FUNCTION triage.escalate(message_id text, priority text, actor text DEFAULT NULL,
                                reason text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    id record := triage.id_of(message_id);
    l triage.level := triage.level_named(id.q, priority);
    moved text;
BEGIN
    PERFORM triage.check_note(actor, reason);
    SELECT m.status INTO moved
    FROM triage.engine_move((id.q).id, (id.q).version, ARRAY[id.seq], ARRAY[id.slot],
                            ARRAY[id.ready_ms], l.slot, actor, reason) m;
    PERFORM triage.expect(moved, message_id);
END $$;

-- The level that a filter of escalate_many() names, or NULL; and the refusal of one that makes no
-- sense.
CREATE OR REPLACE FUNCTION triage.filter_level(q triage.queue, p_filter jsonb) RETURNS smallint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    unknown text := (SELECT min(k) FROM jsonb_object_keys(CASE jsonb_typeof(p_filter)
        WHEN 'object' THEN p_filter ELSE '{"": 0}' END) k
        WHERE k NOT IN ('priority', 'older_than_seconds', 'metadata'));
BEGIN
    IF jsonb_typeof(p_filter) <> 'object' THEN
        PERFORM triage.refuse(422, 'invalid-field', 'filter is an object');
    ELSIF unknown IS NOT NULL THEN
        PERFORM triage.refuse(422, 'unknown-field', format('a filter has no %s', unknown));
    ELSIF jsonb_typeof(p_filter->'metadata') NOT IN ('null', 'object') THEN
        PERFORM triage.refuse(422, 'invalid-field', 'metadata is an object');
    ELSIF (SELECT count(*) > @METADATA_KEYS_MAX@
           FROM jsonb_object_keys(nullif(p_filter->'metadata', 'null'))) THEN
        PERFORM triage.refuse(422, 'invalid-field',
                              'metadata has at most @METADATA_KEYS_MAX@ members');
    END IF;
    PERFORM triage.check_number(p_filter, 'older_than_seconds');
    IF p_filter->>'priority' IS NOT NULL THEN
        RETURN (triage.level_named(q, p_filter->>'priority')).slot;
    END IF;
    RETURN NULL;
END $$;

-- Another priority for all scheduled and ready messages of a queue that the filter matches: its
-- shape is that of the HTTP interface. A dry run only counts them.
CREATE OR REPLACE FUNCTION triage.escalate_many(queue text, priority text,
    filter jsonb DEFAULT '{}', actor text DEFAULT NULL, reason text DEFAULT NULL, dry_run boolean DEFAULT false,
    OUT matched bigint, OUT changed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = triage, pg_temp AS $$
DECLARE
    q triage.queue := triage.queue_named(escalate_many.queue);
    goal smallint := (triage.level_named(q, escalate_many.priority)).slot;
    named smallint := triage.filter_level(q, filter);
    -- The goal comes first: what is moved there is not met again.
    slots smallint[] := CASE WHEN named IS NULL THEN goal || ARRAY(
        SELECT l.slot FROM triage.level l WHERE l.queue = q.id AND l.slot <> goal)
        ELSE ARRAY[named] END;
    wanted jsonb := nullif(filter->'metadata', 'null');
    enqueued_by bigint := triage.now_ms()
        - coalesce(((filter->>'older_than_seconds')::numeric * 1000)::bigint, -140737488355328);
    before bigint := (SELECT n.last_value + n.is_called::int FROM triage.seq n);
    page record;
BEGIN
    PERFORM triage.check_note(actor, reason);
    IF escalate_many.priority IS NULL THEN
        PERFORM triage.refuse(422, 'invalid-field', 'priority is required');
    END IF;
    matched := 0;
    changed := 0;
    SELECT 0 AS phase, -1::smallint AS slot, 0::bigint AS ready_ms, 0::bigint AS seq INTO page;
    LOOP
        WITH listed AS MATERIALIZED (
            SELECT l.phase, (l.m).*, l.at, (l.m).seq < before AND (l.m).enqueued_ms <= enqueued_by
                AND (wanted IS NULL OR triage.has_members((l.m).metadata, wanted)) AS fits
            FROM triage.engine_list(q.id, page.phase, page.slot, page.ready_ms, page.seq, 1000,
                                    slots) WITH ORDINALITY l (phase, m, at)),
        fit AS (
            SELECT count(*) AS found, array_agg(l.seq) AS seqs, array_agg(l.born_slot) AS born_slots,
                array_agg(l.born_ms) AS born_ms
            FROM listed l WHERE l.fits)
        SELECT l.phase, l.slot, l.ready_ms, l.seq, f.found, f.seqs, f.born_slots, f.born_ms INTO page
        FROM listed l, fit f ORDER BY l.at DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        matched := matched + page.found;
        IF page.found > 0 AND NOT dry_run THEN
            changed := changed + (
                SELECT count(*) FROM triage.engine_move(q.id, q.version, page.seqs, page.born_slots,
                    page.born_ms, goal, actor, reason) m WHERE m.changed);
        END IF;
    END LOOP;
END $$;
