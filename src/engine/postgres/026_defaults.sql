-- The defaults of a new queue. A failed attempt is repeated after a second, and then each time
-- after twice as long. An attempt that is repeated at once fails for the same reason: a short
-- outage of something that workers need would make dead letters of all their messages. Queues that
-- exist keep their configuration.

-- A ready-made profile as engine_queue_set() takes it; NULL when there is none of that name.
CREATE OR REPLACE FUNCTION triage.profile(p_name text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object('profile', p_name, 'policy', policy, 'default_rank', default_rank,
        'visibility_ms', visibility_ms, 'levels', levels) || '{
        "paused": false, "max_attempts": 5, "backoff": "exponential", "backoff_base_ms": 1000,
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
