"""The wall clock is set, forwards and back, by seconds and by years, while clients work: leases do
not move. What runs by the wall clock (delays, times to live, dedup windows) follows it, as people
mean it to; the checker leaves that out of account from then on."""

from experiment import Experiment, Plan, short_or_long
from history import REFUSED
from shim import Shim

SECOND, HOUR, YEAR = 1000, 3_600_000, 31_557_600_000
JUMPS = [HOUR, -HOUR, 10 * YEAR, -10 * YEAR, -300, 2 * SECOND, -SECOND, 20 * YEAR, -50 * YEAR]


def test_leases_do_not_move_when_the_wall_clock_is_set(make, engine_here):
    server = make(engine=engine_here)
    shim = Shim(server)
    server.start()
    experiment = Experiment(server, f"wall clock set ({engine_here})", timed=False)
    experiment.configure()
    experiment.mark("clock")
    experiment.begin()
    for number in range(short_or_long(len(JUMPS), 250)):
        experiment.work(experiment.random.uniform(0.05, 0.2))
        shim.set(clock_ms=JUMPS[number % len(JUMPS)])
        experiment.tried += 1
    experiment.end_load()
    shim.set(clock_ms=0)
    assert experiment.conclude().acknowledged > 100


def test_a_lease_survives_a_restart_across_a_jump(make):
    """Leased, killed, the clock set, started: not a moment early, and the receipt still works."""
    server = make()
    shim = Shim(server)
    experiment = Experiment(server, "restart across a jump", worker_count=0,
                            plans={"q": Plan(leases=(1,))})
    server.start()
    experiment.configure()
    experiment.mark("clock")
    for number in range(short_or_long(4, 60)):
        client = experiment.client()
        for letter in "ab":
            client.put("q", f"{number}{letter}", 0)
        first, second = client.claim("q", max=2, lease=0.8).deliveries
        server.kill()
        shim.set(clock_ms=JUMPS[number % len(JUMPS)])
        experiment.restart()
        client = experiment.client()
        client.ack("q", first)
        again = client.claim("q", max=2, wait=3, lease=5)  # not before the lease has ended
        assert [d.key for d in again.deliveries] == [second.key]
        assert client.ack("q", second).outcome == REFUSED
        client.ack_all("q", again.deliveries)
        client.close()
        experiment.tried += 1
    experiment.conclude()


def test_a_claim_looks_past_what_has_just_expired(make, engine_here):
    """The clock jumps over the end of some messages, and a claim comes before anybody noticed."""
    server = make(engine=engine_here)
    shim = Shim(server)
    server.start()
    queue = server.queue("q")
    for priority in (9, 9, 7, 5):
        queue.put("short-lived", priority=priority, ttl_seconds=100)
    queue.put("one", priority=3)
    queue.put("two", priority=1)
    shim.set(clock_ms=HOUR)
    assert [m["payload"] for m in queue.take()] == ["one"]
    assert [m["payload"] for m in queue.take()] == ["two"]
    assert queue.take() == []
    assert queue.stats()["totals"]["expired"] == 4
