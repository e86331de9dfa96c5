"""How late something may be, and how old: the table "How late, how old" of docs/engines.md, and the one
in docs/scaling.md. All testers take these numbers from here, and `test_bounds.py` and
`test_cells_seen.py` see to it that the tables have the same."""

TIMER_SECONDS = 0.25  # a lease, a delay or a time to live that ended has been acted on
HEARD_SECONDS = 0.5  # a server of several acts on what another one did, for those who wait
METRICS_SECONDS = 0.5  # metrics have what this server did
METRICS_ELSEWHERE_SECONDS = 5  # … and what others did to a queue that this one does not use
LOOKED_AT_EACH_SECOND = 40  # of these queues, in each shard
PASSED_OVER_SECONDS = 0.05  # … by something less urgent in another cell
