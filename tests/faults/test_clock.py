"""The wall clock is set, forwards and back, by seconds and by years, while clients work: leases do
not move. What runs by the wall clock (delays, times to live, dedup windows) follows it, as people
mean it to; the checker leaves that out of account from then on."""

import pytest

from experiment import Experiment, Plan, short_or_long
from history import REFUSED
from shim import Shim
from wire import conserved, until

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
    experiment.end_load(at_least=100)
    shim.set(clock_ms=0)
    assert experiment.conclude().acknowledged >= 100


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
        [first] = client.claim("q", max=1, lease=600).deliveries  # a restart may take long
        [second] = client.claim("q", max=1, lease=0.8).deliveries
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


FILLER = 600  # in a tiny memory they are on the disk only, all but the first few


class Ahead:
    """A server whose clock is two hours ahead for a while, and everything that is in a queue then:
    at once, delayed, overdue by the wrong clock alone, as it was born and after a failed attempt.
    What is ready when the clock is mended is ready for good; what is not waits for its own time."""

    def __init__(self, make, memory_limit, filler):
        self.server = make(memory_limit=memory_limit)
        self.shim = Shim(self.server)
        self.filler = filler
        queue = self.server.start().queue("q")
        queue.put("fails")
        queue.nack(queue.take_one(), delay_seconds=3600)
        queue.put("delayed", delay_seconds=3600)
        self.shim.set(clock_ms=2 * HOUR)
        queue.put_all([{"payload": f"filler{n}", "metadata": {"pad": "p" * 200}}
                       for n in range(filler)])
        queue.put("at once")
        queue.put("in four hours", delay_seconds=2 * 3600)
        until(lambda: queue.stats()["ready"] == filler + 3)

    def mend(self):
        self.shim.set(clock_ms=0)
        queue = self.server.queue("q")
        queue.put("in an hour", delay_seconds=3600)
        queue.put("now")

    def check(self, *more):
        queue = self.server.queue("q")
        until(lambda: queue.stats()["ready"] == self.filler + 3 + len(more))
        stats = queue.stats()
        assert stats["scheduled"] == 1 + len(more) and conserved(stats), stats
        taken = queue.take_payloads(self.filler + 3 + len(more),
                                    visibility_timeout_seconds=3600)
        fillers = [f"filler{n}" for n in range(self.filler)]
        assert sorted(taken) == sorted(["fails", "delayed", "at once", *fillers, *more])
        assert [payload for payload in taken if payload.startswith("filler")] == fillers
        assert queue.take() == []
        self.shim.set(clock_ms=HOUR + HOUR // 2)
        until(lambda: queue.stats()["ready"] == len(more))
        assert queue.take_payloads(len(more), visibility_timeout_seconds=3600) == \
            ["in an hour"][:len(more)]
        self.shim.set(clock_ms=4 * HOUR + SECOND)
        assert queue.take_one(wait_seconds=60)["payload"] == "in four hours"


@pytest.mark.parametrize("memory_limit, filler", [("128M", 10), ("64K", FILLER)],
                         ids=["in memory", "on the disk"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_was_ready_before_the_clock_was_mended_stays_ready(make, end, memory_limit, filler):
    scene = Ahead(make, memory_limit, filler)
    scene.mend()
    for _ in range(3):
        getattr(scene.server, end)()
        scene.server.start()
    scene.check("now")


@pytest.mark.parametrize("memory_limit, filler", [("128M", 10), ("64K", FILLER)],
                         ids=["in memory", "on the disk"])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_was_ready_stays_ready_when_the_clock_is_mended_while_nobody_looks(
        make, end, memory_limit, filler):
    scene = Ahead(make, memory_limit, filler)
    getattr(scene.server, end)()
    scene.shim.set(clock_ms=0)
    for _ in range(2):
        scene.server.start()
        getattr(scene.server, end)()
    scene.server.start()
    scene.check()
