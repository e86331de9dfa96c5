"""How late something may be, and how old: the table "How late, how old" of docs/engines.md. All testers
take these numbers from here, and `test_bounds.py` sees to it that the table has the same."""

TIMER_SECONDS = 0.25  # a lease, a delay or a time to live that ended has been acted on
HEARD_SECONDS = 0.5  # a server of several acts on what another one did, for those who wait
METRICS_SECONDS = 0.5  # metrics have what this server did
METRICS_ELSEWHERE_SECONDS = 5  # … and what others did to a queue that this one does not use
LOOKED_AT_EACH_SECOND = 40  # of these queues, in each shard
