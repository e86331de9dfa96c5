"""Promise 1 under kill -9: fifty deaths in the middle of load, and nothing acknowledged is lost,
nothing comes from nowhere, nothing comes back from the dead and nobody shares a lease. The same
with a thousand deaths is in tests/soak."""

import os
import random

import crash
from wire import conserved

CYCLE_COUNT = 1000 if os.environ.get("TRIAGE_SOAK") else 50


def test_nothing_acknowledged_is_lost_by_kill_nine(start):
    seed = os.environ.get("TRIAGE_SEED") or str(random.SystemRandom().randrange(10**9))
    verdicts, stats = crash.run(start(engine="local"), seed, CYCLE_COUNT)
    for name, verdict in verdicts.items():
        assert verdict.clean, f"seed {seed}, {name}: {verdict}"
        assert verdict.acknowledged > CYCLE_COUNT, "there was load"
        assert crash.left_in(stats[name]) == 0, f"seed {seed}, {name} is stuck: {stats[name]}"
        assert conserved(stats[name]), f"seed {seed}, {name}: {stats[name]}"
