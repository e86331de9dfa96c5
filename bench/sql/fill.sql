-- psql -v body=… -v count=… -v level=… -v delay=…: level -1 takes all of them in turn.
INSERT INTO priority_queue (queue_name, payload, priority, scheduled_at, enqueued_at)
SELECT 'bench', :'body'::jsonb, CASE WHEN :level < 0 THEN i % 5 ELSE :level END,
       now() + :'delay', clock_timestamp()
FROM generate_series(1, :count) AS i;
ANALYZE priority_queue;
