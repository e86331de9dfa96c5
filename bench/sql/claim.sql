WITH claimed AS (
    SELECT id FROM priority_queue
    WHERE queue_name = 'bench'
      AND status = 'pending'
      AND scheduled_at <= now()
      AND (locked_until IS NULL OR locked_until < now())
    ORDER BY priority ASC, enqueued_at ASC
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE priority_queue pq
SET status = 'processing', locked_until = now() + interval '5 minutes', attempts = attempts + 1
FROM claimed
WHERE pq.id = claimed.id
RETURNING pq.id, pq.payload, pq.priority, pq.attempts \gset
UPDATE priority_queue SET status = 'completed' WHERE id = :id;
