"""A database with a standby, as docs/scaling.md has it: the primary is killed under load, the standby
takes over, and the server goes on with it. Nothing acknowledged is lost. How long clients had to wait
is printed."""

import os
import shutil
import statistics
import threading
import time

import pytest

from database import Postgres
from experiment import Experiment, short_or_long
from failover import ByHand, ByMonitor
from wire import until

ORDER = ("inverted", "overtaken", "overlooked", "unfair")
STOCK = 10  # messages that lie in the cell when its primary dies


class Waits:
    """How long after a kill the first message is stored in the first cell, and the first taken out."""

    def __init__(self, server):
        self.server = server
        self.queue = server.queue("waits")
        self.queue.configure(max_attempts=1000)
        self.mine = set()  # messages that lie in the first cell
        self.stored, self.taken = [], []

    def put(self, queue):
        """Whether it went to the first cell: its key says so."""
        answer = queue.enqueue("x", dedup_key=os.urandom(8).hex())
        if answer.status != 201 or answer["partition"] != 0:
            return False
        self.mine.add(answer["message_id"])
        return True

    def stock(self):
        while len(self.mine) < STOCK:
            self.put(self.queue)

    def take(self, queue):
        """Whether one came from the first cell."""
        answer = queue.claim(max=10, visibility_timeout_seconds=1)
        return answer.status == 200 and any(m["message_id"] in self.mine
                                            for m in answer["messages"])

    def measure(self, call, waits):
        queue = self.server.queue("waits")
        until(lambda: call(queue))
        waits.append(time.monotonic() - self.began)
        queue.client.close()

    def begin(self, killed):
        """When the primary is gone; what is answered from now on, another one has stored."""
        self.began = killed
        self.threads = [threading.Thread(target=self.measure, args=pair) for pair in
                        ((self.put, self.stored), (self.take, self.taken))]
        for thread in self.threads:
            thread.start()

    def end(self):
        for thread in self.threads:
            thread.join()
        self.queue.post("purge")
        self.mine.clear()

    def __str__(self):
        return ", ".join(f"{what} after {statistics.median(waits):.1f} s (median), "
                         f"{max(waits):.1f} s (longest)"
                         for what, waits in (("stored", self.stored), ("taken", self.taken)))


class Failover(Experiment):
    """The first cell, or the only database, has a standby."""

    def __init__(self, server, cell):
        super().__init__(server, f"failover, {cell.name} ({server.engine})")
        self.cell = cell
        self.ends = [("stopped",), ("resumed",)]  # of a time in which nobody sees to what is there
        if server.engine == "cells":  # over several databases the order is not exact
            self.unjudged = ORDER
            self.ends = [("away", 0), ("back", 0)]
        self.waits = Waits(server)

    def fail_over(self):
        """Until the server goes on: creating a queue needs the first cell. Meanwhile nobody sees to
        delays and leases there."""
        self.waits.stock()
        self.mark(*self.ends[0])
        killed = time.monotonic()
        self.cell.kill(self.cell.primary)
        self.waits.begin(killed)
        self.cell.take_over()
        self.waits.end()
        client = self.server.client()
        until(lambda: client.put("/v1/queues/none", {}).status < 300)
        client.close()
        until(lambda: not self.server.metrics().get("triage_engine_cells_away"))
        self.mark(*self.ends[1])
        self.tried += 1

    def leave_nothing(self):
        """The database serves the next experiment, too."""
        client = self.server.client()
        for name in (*self.plans, "waits"):
            assert client.delete(f"/v1/queues/{name}", force=True).status == 204
        client.close()

    def run(self, count):
        self.configure()
        self.begin()
        for _ in range(count):
            self.cell.mend()
            self.work(self.random.uniform(0.3, 1.0))
            self.fail_over()
        self.work(0.5)
        self.end_load(at_least=50)
        assert self.conclude().acknowledged >= 50
        print(f"{self.fault}: {self.waits}", flush=True)
        self.leave_nothing()


needs_pg_autoctl = pytest.mark.skipif(not shutil.which("pg_autoctl"),
                                      reason="pg_autoctl is not installed")


@pytest.fixture(scope="module",
                params=[ByHand, pytest.param(ByMonitor, marks=needs_pg_autoctl)],
                ids=["by hand", "pg_auto_failover"])
def cell(request):
    made = request.param()
    yield made
    made.end()


@pytest.fixture
def plain():
    made = Postgres().start()
    yield made
    made.end()


ROUNDS = short_or_long(1, 5)  # a fresh history each, so that judging it stays quick
FAILOVERS = short_or_long(1, 10)


def run(cell, start, **options):
    for _ in range(ROUNDS):
        server = start(**options)
        Failover(server, cell).run(FAILOVERS)
        server.stop()


def test_one_database_fails_over(cell, start):
    run(cell, start, engine="postgres", postgres=cell.conninfo, postgres_timeout_seconds=15)


def test_one_cell_of_two_fails_over(cell, plain, start):
    run(cell, start, engine="cells",
        flags=[f"--cell=a=postgres:{cell.conninfo}",
               f"--cell=b=postgres:{plain.conninfo('postgres')}"])


@pytest.mark.parametrize("cell", [ByHand], ids=["by hand"], indirect=True)
def test_a_server_that_starts_during_a_failover_waits_for_the_primary(cell, start):
    """Of several hosts one is a standby: it may be promoted."""
    cell.mend()
    cell.kill(cell.primary)
    server = start(engine="postgres", postgres=cell.conninfo, postgres_timeout_seconds=15)
    assert server.client().get("/readyz").status == 503
    cell.take_over()
    queue = server.queue("patient")
    until(lambda: queue.enqueue("x").status == 201)
    assert server.client().delete(queue.path, force=True).status == 204


@pytest.mark.parametrize("cell", [ByHand], ids=["by hand"], indirect=True)
def test_without_a_standby_that_confirms_a_failover_loses_messages(cell, start):
    """Why the recipe sets synchronous_standby_names: without it the primary answers alone."""
    cell.mend()
    server = start(engine="postgres", postgres=cell.conninfo, postgres_timeout_seconds=15)
    queue = server.queue("alone")
    queue.put("on both")
    cell.on_primary("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    cell.kill(cell.standby)
    until(lambda: queue.enqueue("on one").status == 201)
    cell.kill(cell.primary)
    cell.start(cell.standby)
    cell.take_over()
    assert [m["payload"] for m in queue.take(max=10)] == ["on both"]
    assert server.client().delete(queue.path, force=True).status == 204
