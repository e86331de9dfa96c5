"""One queue over several stores, and one of them breaks: its database is killed, stopped, cut off or has
another clock, its disk hangs; or a server is killed. Nothing is lost or doubled, no old receipt is
taken. Meanwhile the others go on; afterwards the messages of that cell are there with their receipts,
places and ages. How long the others stood still is printed and not judged."""

import contextlib
import functools
import itertools
import os
import shutil
import signal
import time

import pytest

from bounds import HEARD_SECONDS
from clients import Client
from database import Postgres, Session, children
from experiment import Experiment, Plan, short_or_long
from history import OK, Claim, Enqueue
from hosts import BOTH, FROM_CELL, TO_CELL, remote_databases
from proxy import Proxy
from shim import HANG, SYNC, Shim
from test_storm import Storm
from watcher import Watcher
from wire import until

CELLS = "abc"
# Longer than a busy machine keeps a look at a cell waiting, and far below what a believed head costs.
WINDOW_SECONDS = 3.0
TIMEOUT_SECONDS = 2  # of a statement; what was sent to a cell that is gone is unknown after that
PATIENCE_SECONDS = 5  # of a worker: then it goes on elsewhere, and does not know
LEASE_SECONDS = 3600  # of what is held while something is broken

numbers = itertools.count(1)


def flags(stores):
    return [f"--cell={name}={store}" for name, store in zip(CELLS, stores)]


@pytest.fixture(scope="module")
def trio():
    """Three databases that each test leaves as it found them."""
    made = [Postgres(max_connections=100, fsync="off").start() for _ in CELLS]
    yield made
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def distant():
    with remote_databases(len(CELLS), fsync="off") as made:
        yield made


def on_databases(start, databases, count=2):
    """Servers on a fresh database in each."""
    name = f"triage{next(numbers)}"
    for one in databases:
        one.create(name)
    stores = flags(f"postgres:{one.conninfo(name)}" for one in databases)
    return [start(engine="cells", flags=stores, postgres_timeout_seconds=TIMEOUT_SECONDS)
            for _ in range(count)]


def plans(window):
    """As in the storm: shares by weight are not judged, they hold for each server by itself."""
    return {"ten-levels": Plan(window=window),
            "live-keys": Plan(window=window, dedup={"scope": "live"}),
            "by-weight": Plan(["production", "staging", "qa", "development"], window=window,
                              profile="environments", max_in_flight=100_000)}


class Kept:
    """A queue that nobody touches while something is broken: messages in every cell, and receipts."""

    def __init__(self, server, count=60):
        queue = server.queue("kept")
        queue.configure(max_attempts=5)
        self.cells, self.times = [], []
        for n in range(count):
            answer = queue.enqueue(n, dedup_key=f"kept {n}", priority=n % 4)
            assert answer.status == 201, answer
            self.cells.append(answer["partition"])
            self.times.append(answer["enqueued_at"])
        assert set(self.cells) == set(range(len(CELLS)))
        self.held = [queue.take_one(visibility_timeout_seconds=LEASE_SECONDS) for _ in range(12)]
        queue.client.close()

    def check(self, server):
        """Receipts are good, once; what waited comes most urgent first, in its order in each cell."""
        queue = server.queue("kept")
        for message in self.held:
            assert queue.ack(message).status == 204
            assert queue.ack(message).status in (404, 409)
        rest = [queue.take_one(visibility_timeout_seconds=LEASE_SECONDS)
                for _ in range(len(self.cells) - len(self.held))]
        assert queue.take(max=10) == []
        got = [m["payload"] for m in rest]
        assert sorted(got + [m["payload"] for m in self.held]) == list(range(len(self.cells)))
        assert [m["priority"] for m in rest] == sorted((m["priority"] for m in rest), reverse=True)
        for cell in range(len(CELLS)):
            mine = [n for n in got if self.cells[n] == cell]
            assert mine == sorted(mine, key=lambda n: (-(n % 4), n)), (cell, mine)
        for message in rest:
            assert message["attempt"] == 1 and message["enqueued_at"] == self.times[message["payload"]]
            assert queue.ack(message).status == 204
        queue.client.close()


class OverCells(Storm):
    """Workers on all servers, who go on with the next one when theirs is gone."""

    def __init__(self, servers, fault, window=WINDOW_SECONDS, **worker_options):
        Experiment.__init__(self, servers[0], fault, plans=plans(window), worker_count=8,
                            client=functools.partial(Client, deadline=PATIENCE_SECONDS),
                            **worker_options)
        self.servers = servers
        self.connect, self.sql_workers = None, []
        self.watchers = [Watcher(self.history, self.plans) for _ in servers]
        self.stalls = []

    def set_up(self):
        self.configure()
        if len(self.servers) > 1:
            self.mark("several")
        self.kept = Kept(self.server)
        self.begin()

    def client_of(self, server):
        return Client(self.history, self.plans, server.address)

    def absent(self):
        """The cells that each server takes to be away."""
        return [server.metrics()["triage_engine_cells_away"] for server in self.servers
                if server.running()]

    @contextlib.contextmanager
    def away(self, cell):
        """The cell is broken from the beginning of this to its end; what it was asked and may still
        fail with comes to an end too."""
        start = time.monotonic()
        self.mark("away", cell)
        yield
        until(lambda: not any(self.absent()))
        self.mark("back", cell)
        self.tried += 1
        self.stalls.append((start, time.monotonic()))

    def goes_on(self, seen=True):
        """Every server sees that a cell is away; then it stores and delivers what has no part in it."""
        until(lambda: not seen or all(self.absent()))
        now = time.monotonic()
        until(lambda: self.advanced(now))

    def advanced(self, since):
        log = self.history.log[-2000:]
        return any(isinstance(r, Enqueue) and r.sent > since and r.outcome == OK and not r.dedup
                   for r in log) and \
            any(isinstance(r, Claim) and r.sent > since and r.deliveries for r in log)

    def finish(self, at_least=100):
        self.end_load(at_least=at_least)
        for server in self.servers:
            assert server.running(), f"it died:\n{server.log}"
        verdict = self.conclude()
        self.kept.check(self.servers[-1])
        self.say()
        assert verdict.acknowledged >= at_least and verdict.counted >= 10
        for server in self.servers:
            server.end()

    def say(self):
        """The longest time without an answer that stored or delivered, in each round."""
        def longest(times, start, end):
            inside = [start, *sorted(t for t in times if start < t < end), end]
            return max(b - a for a, b in zip(inside, inside[1:]))
        puts = [r.came for r in self.history.of(Enqueue) if r.outcome == OK and not r.dedup]
        claims = [r.came for r in self.history.of(Claim) if r.deliveries]
        for start, end in self.stalls:
            print(f"{self.fault}: {end - start:.1f} s; longest stall of enqueues without a key "
                  f"{longest(puts, start, end):.2f} s, of deliveries {longest(claims, start, end):.2f} s")


def rounds(short, long):
    return range(short_or_long(short, long))


def test_without_a_fault_nothing_is_wrong(trio, start):
    experiment = OverCells(on_databases(start, trio), "none (cells)")
    experiment.set_up()
    experiment.work(short_or_long(2, 60))
    experiment.finish(at_least=500)


# A cell that dies.


@pytest.mark.parametrize("cell", [0, 2], ids=["the first", "another"])
def test_the_database_of_a_cell_is_killed(trio, start, cell):
    """Without the first no queue can be made or configured; everything else goes on."""
    experiment = OverCells(on_databases(start, trio), f"cell {cell} killed")
    experiment.set_up()
    for _ in rounds(2, 60):
        experiment.work(experiment.random.uniform(0.1, 0.6))
        with experiment.away(cell):
            trio[cell].kill()
            experiment.goes_on()
            if cell == 0:
                refused = experiment.server.client().put("/v1/queues/another", {})
                assert refused.refusal == (503, "engine-unavailable")
            trio[cell].start()
    experiment.finish()


def signal_all(database, which):
    postmaster = database.postmaster()
    for pid in [postmaster, *children(postmaster)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, which)


def test_a_cell_is_stopped_for_seconds(trio, start):
    """Longer than a statement may take: what it was asked in between, it does when it goes on."""
    experiment = OverCells(on_databases(start, trio), "cell stopped")
    experiment.set_up()
    for number in rounds(2, 60):
        cell = experiment.random.randrange(len(trio))
        experiment.work(experiment.random.uniform(0.1, 0.6))
        with experiment.away(cell):
            signal_all(trio[cell], signal.SIGSTOP)
            try:
                experiment.goes_on(seen=number % 2 == 0)
            finally:
                signal_all(trio[cell], signal.SIGCONT)
    experiment.finish()


def test_a_server_is_killed(trio, start):
    servers = on_databases(start, trio)
    experiment = OverCells(servers, "server killed (cells)")
    experiment.set_up()
    experiment.rage(short_or_long(3, 300))
    experiment.finish()


# A clock that is off.


class Clocked(Postgres):
    """A database with a wall clock of its own."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.shim = Shim(self)
        if os.getuid() == 0:
            shutil.chown(self.shim.path, "postgres")

    def control(self, *args):
        words = [f"{name}={value}" for name, value in self.env.items()]
        self.program("/usr/bin/env", *words, os.path.join(self.bin, "pg_ctl"), "-D",
                     self.data, "-w", *args)


@pytest.mark.parametrize("off_ms", [50, -50])
def test_the_clock_of_a_cell_is_off(trio, start, off_ms):
    """From the beginning: within a cell times are in order, whatever its clock."""
    third = Clocked(max_connections=100, fsync="off")
    try:
        third.shim.set(clock_ms=off_ms)
        third.start()
        with Session(third.connect()) as s:
            assert abs(float(s.one("SELECT extract(epoch FROM clock_timestamp())")) * 1000
                       - time.time() * 1000 - off_ms) < 45
        experiment = OverCells(on_databases(start, [*trio[:2], third]), f"clock of a cell {off_ms:+} ms")
        experiment.set_up()
        experiment.work(short_or_long(2, 60))
        experiment.tried += 1
        experiment.finish(at_least=300)
    finally:
        third.end()


# The network between.


@pytest.mark.parametrize("how", [TO_CELL, FROM_CELL, BOTH])
def test_the_way_to_a_cell_is_cut(distant, start, how):
    experiment = OverCells(on_databases(start, distant), f"network cut, {how}")
    experiment.set_up()
    for _ in rounds(1, 40):
        cell = experiment.random.randrange(len(distant))
        link = distant[cell].link
        experiment.work(experiment.random.uniform(0.1, 0.6))
        with experiment.away(cell):
            link.cut(how)
            try:
                assert not distant[cell].reached()
                experiment.goes_on()
            finally:
                link.mend(how)
    experiment.finish()


# What was sent and not answered.


def test_what_a_cell_did_not_answer_is_sent_to_no_other(trio, start):
    """It was committed there, and nobody heard of it: elsewhere it would be there twice."""
    name = trio[0].create(f"triage{next(numbers)}")
    trio[1].create(name)
    proxy = Proxy(trio[0])
    try:
        stores = flags([f"postgres:{proxy.conninfo(name)}", f"postgres:{trio[1].conninfo(name)}"])
        queue = start(engine="cells", flags=stores,
                      postgres_timeout_seconds=TIMEOUT_SECONDS).queue("q")
        queue.configure()
        until(lambda: queue.enqueue("first", dedup_key=os.urandom(8).hex())["partition"] == 0)
        proxy.arm("after COMMIT", times=10**6)  # nor can anybody find out
        said = [queue.enqueue(n).status for n in range(10)]
        proxy.disarm()
        assert proxy.count > 0 and set(said) <= {201, 503}
        until(lambda: queue.client.get("/metrics").body.find(b"triage_engine_cells_away 0") > 0)
        got = []
        while messages := queue.take(max=100):
            got += [m["payload"] for m in messages if m["payload"] != "first"]
        assert len(got) == len(set(got)), got
        assert {n for n in range(10) if said[n] == 201} <= set(got)
    finally:
        proxy.close()


# What others put into a cell.


def test_what_another_server_put_into_another_cell_is_seen(trio, start):
    """One server has plenty in one cell, and takes it; the other puts what is more urgent into all."""
    servers = on_databases(start, trio)
    experiment = OverCells(servers, "puts beside claims")
    experiment.workers = []
    experiment.configure()
    experiment.mark("several")
    consumer, producer = (experiment.client_of(server) for server in servers)
    producer.put_all("ten-levels", [(f"low-{n}", 9, "", {}) for n in range(400)])
    end = time.monotonic() + short_or_long(6, 60)
    number = 0
    while time.monotonic() < end:
        number += 1
        producer.put("ten-levels", f"high-{number}", number % 9, dedup_key=f"key {number}")
        for _ in range(3):
            claim = consumer.claim("ten-levels", lease=LEASE_SECONDS)
            consumer.ack_all("ten-levels", claim.deliveries)
        if number % 100 == 0:
            producer.put_all("ten-levels", [(f"low-{number}-{n}", 9, "", {}) for n in range(200)])
    experiment.conclude()


# One server, three disks.


@pytest.fixture
def disks(start, make, tmp_path):
    """A server on three local cells, and what is between it and the second one's disk."""
    server = make(engine="cells", flags=flags(f"local:{tmp_path}/{n}" for n in range(len(CELLS))))
    data, server.data = server.data, f"{tmp_path}/1"
    shim = Shim(server)
    server.data = data
    server.start()
    return server, shim


def test_one_server_on_three_disks_is_killed(disks):
    """The order is exact over all cells."""
    server, _ = disks
    experiment = OverCells([server], "kill -9 (three local cells)", window=None)
    experiment.set_up()
    experiment.rage(short_or_long(3, 300))
    experiment.finish()


def test_one_of_three_disks_hangs(disks):
    server, shim = disks
    experiment = OverCells([server], "disk of a cell hangs", window=None)
    experiment.set_up()
    for _ in rounds(2, 60):
        experiment.work(experiment.random.uniform(0.1, 0.6))
        with experiment.away(1):
            shim.arm(HANG, 1, kinds=SYNC, every=True)
            try:
                experiment.goes_on()
            finally:
                shim.disarm()
    experiment.finish()
