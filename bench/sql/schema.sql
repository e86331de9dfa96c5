-- A queue in one table, as it is commonly taught: the most urgent pending row is found by an index
-- on the pending rows, and locked with SKIP LOCKED.
CREATE TABLE priority_queue (
    id           bigserial PRIMARY KEY,
    queue_name   varchar(100) NOT NULL,
    payload      jsonb NOT NULL,
    priority     smallint NOT NULL DEFAULT 2 CHECK (priority BETWEEN 0 AND 4),
    status       varchar(20) NOT NULL DEFAULT 'pending',
    attempts     int NOT NULL DEFAULT 0,
    max_attempts int NOT NULL DEFAULT 3,
    scheduled_at timestamptz NOT NULL DEFAULT now(),
    locked_until timestamptz,
    enqueued_at  timestamptz NOT NULL DEFAULT now(),
    escalated_at timestamptz,
    escalated_by varchar(100)
);
CREATE INDEX ON priority_queue (queue_name, priority, enqueued_at) WHERE status = 'pending';
CREATE INDEX ON priority_queue (locked_until) WHERE status = 'processing';
