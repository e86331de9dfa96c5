-- The tables. Each state of a message is a table of its own, and a message is a row that moves
-- from one to the next:
--
--   scheduled ──> ready ──> leased ──> history (if kept)
--                   ^          │
--                   └──────────┴─────> dead
--
-- So the table that a claim reads holds ready messages only: neither a million messages for next
-- week nor a million dead letters are in its way. Rows are inserted and deleted and hardly ever
-- updated. Payloads too large to copy from table to table stay where they are, in `body`.
--
-- Deleted rows stay in an index for as long as any transaction might see them. So a claim does not
-- read `ready` from the front, but from a floor that 003_counts.sql keeps.

CREATE SEQUENCE triage.seq AS bigint MAXVALUE 281474976710655; -- six bytes of a message's id

CREATE TABLE triage.queue (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- never used again
    name text NOT NULL CHECK (name ~ '^[A-Za-z0-9._-]{1,100}$'),
    version int NOT NULL DEFAULT 1, -- of the configuration; grows with each change
    deleted boolean NOT NULL DEFAULT false, -- its rows are still being removed
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    profile text NOT NULL,
    policy text NOT NULL CHECK (policy IN ('strict', 'weighted')),
    default_rank smallint NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    pauses jsonb NOT NULL DEFAULT '[]', -- the latest: [{"from_ms", "until_ms"}], nobody's age
    visibility_ms bigint NOT NULL CHECK (visibility_ms >= 0),
    max_attempts int NOT NULL CHECK (max_attempts > 0),
    backoff text NOT NULL CHECK (backoff IN ('none', 'fixed', 'exponential')),
    backoff_base_ms bigint NOT NULL CHECK (backoff_base_ms >= 0),
    backoff_max_ms bigint NOT NULL CHECK (backoff_max_ms >= 0),
    backoff_jitter float8 NOT NULL CHECK (backoff_jitter BETWEEN 0 AND 1),
    ttl_ms bigint NOT NULL CHECK (ttl_ms >= 0), -- 0: none. So for every limit below.
    expired text NOT NULL CHECK (expired IN ('drop', 'dead')),
    dedup_window_ms bigint NOT NULL CHECK (dedup_window_ms >= 0),
    dedup_scope text NOT NULL CHECK (dedup_scope IN ('window', 'live')),
    max_depth bigint NOT NULL CHECK (max_depth >= 0),
    max_bytes bigint NOT NULL CHECK (max_bytes >= 0),
    max_in_flight bigint NOT NULL CHECK (max_in_flight >= 0),
    history_ms bigint NOT NULL CHECK (history_ms >= 0),
    alert_dead_letters bigint NOT NULL CHECK (alert_dead_letters >= 0),
    alert_oldest_ready_seconds bigint NOT NULL CHECK (alert_oldest_ready_seconds >= 0),
    alert_webhook text NOT NULL
);
CREATE UNIQUE INDEX queue_name ON triage.queue (name) WHERE NOT deleted;

-- Most urgent first. The slot is what messages remember: it stays with the level's name.
CREATE TABLE triage.level (
    queue int NOT NULL REFERENCES triage.queue ON DELETE CASCADE,
    rank smallint NOT NULL CHECK (rank BETWEEN 0 AND 15),
    slot smallint NOT NULL CHECK (slot BETWEEN 0 AND 15),
    name text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 64),
    number bigint, -- what the API shows; orders nothing
    weight float8 NOT NULL CHECK (weight > 0),
    age_ms bigint NOT NULL DEFAULT 0 CHECK (age_ms >= 0),
    max_wait_ms bigint NOT NULL DEFAULT 0 CHECK (max_wait_ms >= 0),
    max_in_flight bigint NOT NULL DEFAULT 0 CHECK (max_in_flight >= 0),
    PRIMARY KEY (queue, rank),
    UNIQUE (queue, slot),
    UNIQUE (queue, name)
);

CREATE TABLE triage.ready (
    seq bigint NOT NULL,
    ready_ms bigint NOT NULL, -- since when, or from when on, it is ready: its place and its age
    born_ms bigint NOT NULL,  -- ready_ms and slot as they were at first, and as the id has them
    enqueued_ms bigint NOT NULL,
    queue int NOT NULL,
    attempts int NOT NULL, -- deliveries so far
    slot smallint NOT NULL,
    born_slot smallint NOT NULL,
    kind smallint NOT NULL, -- 0 text, 1 JSON, 2 bytes
    payload bytea,          -- NULL: in triage.body, and then
    large int,              -- is how many bytes it has
    metadata text,          -- JSON
    dedup_key bytea,
    expire_ms bigint, -- the end of its time to live
    reason text,      -- why the last attempt failed
    escalated_ms bigint,
    escalated_by text,
    escalated_why text,
    escalated_from smallint -- the slot it had before
);
CREATE TABLE triage.scheduled (LIKE triage.ready);
CREATE TABLE triage.leased (
    LIKE triage.ready,
    until_ms bigint NOT NULL,
    lease_ms bigint NOT NULL, -- how long it was granted for
    receipt bytea NOT NULL
);
CREATE TABLE triage.dead (LIKE triage.ready, ended_ms bigint NOT NULL);
CREATE TABLE triage.history (LIKE triage.ready, ended_ms bigint NOT NULL);

CREATE UNIQUE INDEX ready_place ON triage.ready (queue, slot, ready_ms, seq);
CREATE UNIQUE INDEX ready_seq ON triage.ready (seq);
CREATE INDEX ready_expire ON triage.ready (expire_ms) WHERE expire_ms IS NOT NULL;
CREATE INDEX scheduled_due ON triage.scheduled (ready_ms, seq);
CREATE UNIQUE INDEX scheduled_seq ON triage.scheduled (seq);
CREATE INDEX scheduled_queue ON triage.scheduled (queue, seq);
CREATE INDEX scheduled_expire ON triage.scheduled (expire_ms) WHERE expire_ms IS NOT NULL;
CREATE UNIQUE INDEX leased_seq ON triage.leased (seq);
CREATE INDEX leased_until ON triage.leased (until_ms);
CREATE UNIQUE INDEX dead_seq ON triage.dead (seq);
CREATE INDEX dead_queue ON triage.dead (queue, seq);
CREATE UNIQUE INDEX history_seq ON triage.history (seq);
CREATE INDEX history_ended ON triage.history (queue, ended_ms);
CREATE INDEX history_queue ON triage.history (queue, seq);

-- Payloads of more than 2,000 bytes, written once.
CREATE TABLE triage.body (
    seq bigint PRIMARY KEY,
    payload bytea NOT NULL
);

CREATE TABLE triage.dedup (
    queue int NOT NULL,
    key bytea NOT NULL,
    seq bigint NOT NULL, -- the message it stands for: seq, slot and ready_ms of its id
    slot smallint NOT NULL,
    ready_ms bigint NOT NULL,
    enqueued_ms bigint NOT NULL,
    until_ms bigint, -- NULL: for as long as the message exists
    PRIMARY KEY (queue, key)
);
CREATE INDEX dedup_until ON triage.dedup (until_ms) WHERE until_ms IS NOT NULL;

-- What each transaction changed, to be summed up: see 003_counts.sql.
CREATE TABLE triage.tally (
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    low_ms bigint, -- the oldest place it filled in `ready`
    queue int NOT NULL,
    slot smallint NOT NULL,
    ready int, scheduled int, leased int, dead int, bytes bigint,
    enqueued int, claimed int, acked int, nacked int, released int, lease_expired int,
    expired int, died int, deduplicated int, redelivered int, cancelled int, redriven int,
    aged int, late int, escalated int
);
CREATE INDEX tally_queue ON triage.tally (queue, tx);
CREATE INDEX tally_low ON triage.tally (queue, tx) WHERE low_ms IS NOT NULL;

-- The last summing up of a queue is the row with the highest version. Each summing up is a new row
-- and never an update, so that it is found at the end of the index and not behind dead rows.
CREATE TABLE triage.counted (
    queue int NOT NULL,
    version bigint NOT NULL,
    at_ms bigint NOT NULL,
    seen_max xid8 NOT NULL, -- in it are all transactions before this one
    running xid8[] NOT NULL, -- but for these, which were under way
    floors bigint[] NOT NULL, -- by slot + 1: nothing ready is older, but for what the tally says
    PRIMARY KEY (queue, version)
);
CREATE TABLE triage.lane (
    queue int NOT NULL,
    version bigint NOT NULL,
    slot smallint NOT NULL,
    ready bigint NOT NULL, scheduled bigint NOT NULL, leased bigint NOT NULL, dead bigint NOT NULL,
    bytes bigint NOT NULL, -- of payload and metadata, scheduled and ready
    enqueued bigint NOT NULL, claimed bigint NOT NULL, acked bigint NOT NULL,
    nacked bigint NOT NULL, released bigint NOT NULL, lease_expired bigint NOT NULL,
    expired bigint NOT NULL, died bigint NOT NULL, deduplicated bigint NOT NULL,
    redelivered bigint NOT NULL, cancelled bigint NOT NULL, redriven bigint NOT NULL,
    aged bigint NOT NULL, late bigint NOT NULL, escalated bigint NOT NULL,
    PRIMARY KEY (queue, version, slot)
);

-- How far the sweeping of each kind has come: nothing is due before floor_ms, except rows that were
-- committed late. These are found by the next full pass.
CREATE TABLE triage.sweeping (
    kind text PRIMARY KEY,
    slack_ms bigint NOT NULL, -- how far back a pass begins
    floor_ms bigint NOT NULL,
    full_ms bigint NOT NULL -- when the last full pass was
) WITH (fillfactor = 20);
-- A lease is mostly longer than the transaction that grants it, so that hardly any lease is over
-- before it is committed. A short delay may well be.
INSERT INTO triage.sweeping
SELECT kind, slack_ms, -140737488355328, 0
FROM (VALUES ('lease', 1000), ('delay', 60000), ('ttl-ready', 5000), ('ttl-scheduled', 5000),
             ('dedup', 1000)) k (kind, slack_ms);

-- Which servers have consumers waiting for which queue. Only these are notified, because a commit
-- that notifies waits for every other commit that does.
CREATE UNLOGGED TABLE triage.waiting (
    queue int NOT NULL,
    node uuid NOT NULL,
    until_ms bigint NOT NULL,
    PRIMARY KEY (queue, node)
) WITH (fillfactor = 20);

-- Groups that were committed, for servers that lost the connection before they heard so.
CREATE TABLE triage.mark (
    token uuid PRIMARY KEY,
    at_ms bigint NOT NULL
);
CREATE INDEX mark_at ON triage.mark (at_ms);

-- Vacuum comes often, and never gives pages back to the system: that would take a lock on the table,
-- and the pages are wanted again at once.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['ready', 'scheduled', 'leased', 'tally', 'lane', 'counted', 'mark',
                                'dedup', 'body', 'sweeping', 'waiting', 'dead', 'history']
    LOOP
        EXECUTE format(
            'ALTER TABLE triage.%I SET (autovacuum_vacuum_scale_factor = 0.01,
                autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_scale_factor = 0.2,
                autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2,
                autovacuum_analyze_threshold = 50000, vacuum_truncate = off)', name);
    END LOOP;
END $$;
