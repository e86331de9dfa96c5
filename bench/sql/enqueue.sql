\set level random(0, 4)
INSERT INTO priority_queue (queue_name, payload, priority, scheduled_at)
VALUES ('bench', :body, :level, COALESCE(NULL, now()))
RETURNING id;
