"""The scenario about one queue over several databases, each of which has a quarter of a core: so that two
cores show what four databases do. Server and load generator are not held back."""

import contextlib
import os
import signal
import statistics
import threading
import time

from databases import Wire
from loads import Load
from postgres import Database, TriageOnPostgres
from report import ahead_of, aim
from servers import Broken, Server, children, triage_ready

SHARE, PERIOD_US = 0.25, 10_000  # short, so that a database that used up its share stops for few ms
GROUPS = "/sys/fs/cgroup"
COUNTS = {1: "one", 2: "two", 4: "four"}
PRODUCERS = CONSUMERS = 6
URGENCIES = 10
# Enough that each of four databases has large groups, and ten messages a request: then the databases
# are what is short, not the cores beside them.
LOADS = [("enqueue, 256 connections, batches of 10", Load("enqueue", 256, 10)),
         ("claim and ack, 256 connections, batches of 10", Load("claim", 256, 10))]


# Control groups.


class Quota:
    """A control group with a share of a core, of either version."""

    def __init__(self, name):
        v1 = os.path.join(GROUPS, "cpu")
        self.old = os.path.exists(os.path.join(v1, "cpu.cfs_quota_us"))
        self.path = os.path.join(v1 if self.old else GROUPS, f"triage-bench-{os.getpid()}-{name}")
        os.mkdir(self.path)
        if self.old:
            self.write("cpu.cfs_period_us", PERIOD_US)
            self.write("cpu.cfs_quota_us", int(PERIOD_US * SHARE))
        else:
            self.write("cpu.max", f"{int(PERIOD_US * SHARE)} {PERIOD_US}")

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def add(self, pid):
        self.write("cgroup.procs", pid)

    def end(self):
        with contextlib.suppress(OSError):  # the last process may not be buried yet
            os.rmdir(self.path)


def missing():
    """What keeps processor time from being shared out here, or None."""
    if os.getuid() != 0:
        return "control groups need root"
    try:
        Quota("try").end()
    except OSError as e:
        return f"no control group: {e}"
    return None


class Held(Database):
    """A database with its share of a core."""

    def __init__(self, folder, name):
        super().__init__(folder)
        self.quota = Quota(name)

    def start(self, wait=True):
        super().start(wait)
        for pid in [self.process.pid, *children(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                self.quota.add(pid)
        return self

    def kill(self):
        """All of it at once, as a machine that is gone."""
        for pid in [self.process.pid, *children(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __exit__(self, *_):
        try:
            super().__exit__()
        finally:
            self.quota.end()


class TriageOnCells(Server):
    """`triaged --engine cells`; the databases' processor time is its own. The first one on a set of
    databases makes what it needs in them; others join."""

    def __init__(self, triaged, folder, databases, store, joins=False):
        self.databases, self.store, self.joins = databases, store, joins

        def command(port):
            words = [triaged, "--listen", f"127.0.0.1:{port}", "--engine", "cells"]
            for name, db in zip("abcdefgh", databases):
                words += ["--cell", f"{name}=postgres:host=127.0.0.1 port={db.port} user=postgres"
                                    f" dbname={store}"]
            return words

        super().__init__(f"Triage, {len(databases)} cells", "http", command, triage_ready, folder)

    @property
    def pids(self):
        return [self.process.pid, *(pid for db in self.databases for pid in db.pids)]

    def start(self, wait=True):
        for db in self.databases if not self.joins else []:
            db.psql("postgres", "-c", f"CREATE DATABASE {self.store}")
        return super().start(wait)

    def metric(self, name):
        wire = Wire(self)
        wire.send("GET", "/metrics")
        text = wire.http.getresponse().read().decode()
        wire.http.close()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                   if line.startswith(name))


# Clients with a history.


class Crowd:
    """Producers and consumers, a connection each, that write down what they did and when."""

    def __init__(self, producers_on, consumers_on):
        self.puts, self.claims = [], []  # (sent, came, rank, id, partition), (sent, came, ids)
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(work, server, n))
                        for work, server, count in ((self.produce, producers_on, PRODUCERS),
                                                    (self.consume, consumers_on, CONSUMERS))
                        for n in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, work, server, number):
        while not self.over.is_set():
            with contextlib.suppress(Broken, OSError):
                wire, at = Wire(server), 0
                while not self.over.is_set():
                    at += 1
                    work(wire, number * 7 + at)

    def produce(self, wire, at):
        rank = at % URGENCIES
        sent = time.monotonic()
        answer = wire.call("POST", "/v1/queues/crowd/messages",
                           {"payload": "x" * 256, "priority": URGENCIES - 1 - rank})
        self.puts.append((sent, time.monotonic(), rank, answer["message_id"], answer["partition"]))

    def consume(self, wire, _):
        sent = time.monotonic()
        messages = wire.call("POST", "/v1/queues/crowd/messages/claim", {"max": 1})["messages"]
        if not messages:
            time.sleep(0.001)
            return
        self.claims.append((sent, time.monotonic(), [m["message_id"] for m in messages]))
        wire.call("POST", "/v1/queues/crowd/messages/ack", {"receipts": [
            {key: m[key] for key in ("message_id", "receipt_handle")} for m in messages]})

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def windows(puts, claims):
    """For each delivery, in seconds: for how long before its claim was sent something more urgent had
    certainly been ready in another partition; 0 when there was nothing."""
    taken = {ident: sent for sent, _, ids in claims for ident in ids}
    of = {ident: (rank, partition) for _, _, rank, ident, partition in puts}
    waiting, found, at = [], [], 0
    puts = sorted(puts, key=lambda put: put[1])
    for sent, came, ids in sorted(claims):
        while at < len(puts) and puts[at][1] <= sent:
            waiting.append(puts[at])
            at += 1
        waiting = [put for put in waiting if taken.get(put[3], came) >= sent]
        for rank, partition in (of[ident] for ident in ids if ident in of):
            passed = [put[1] for put in waiting if put[2] < rank and put[4] != partition
                      and taken.get(put[3], came) >= came and put[3] not in ids]
            found.append(sent - min(passed) if passed else 0.0)
    return found


def longest_gap(times, start, end):
    inside = [start, *sorted(t for t in times if start < t < end), end]
    return max(b - a for a, b in zip(inside, inside[1:]))


# What is measured.


def judge(bench, found):
    for count, least in ((2, 1.85), (4, 3.4)):
        bench.results.judge(*ahead_of(found, "one", least, aim, ours=COUNTS[count]))
    bench.results.judge(*ahead_of(found, "postgres", 0.95, aim, ours="one"))


def scaling(bench, databases):
    with contextlib.ExitStack() as stack:
        plain = TriageOnPostgres(bench.args.triaged, bench.fresh("triaged"), databases[0])
        subjects = [("postgres", stack.enter_context(plain))]
        for count, name in COUNTS.items():
            server = TriageOnCells(bench.args.triaged, bench.fresh("triaged"), databases[:count],
                                   f"triage_{name}")
            subjects.append((name, stack.enter_context(server)))
        for title, load in LOADS:
            judge(bench, bench.compare(subjects, load, title, reference="one"))


def order_window(bench, databases):
    """Producers on one server, consumers on the other."""
    with contextlib.ExitStack() as stack:
        here, there = (stack.enter_context(TriageOnCells(
            bench.args.triaged, bench.fresh("triaged"), databases, "triage_order", joins))
            for joins in (False, True))
        Wire(here).call("PUT", "/v1/queues/crowd", {})
        bench.progress.step("order across two cells")
        crowd = Crowd(here, there)
        time.sleep(max(5, 3 * bench.settings.duration))
        crowd.end()
    found_ms = sorted(1000 * w for w in windows(crowd.puts, crowd.claims))
    if not found_ms:
        raise Broken("nothing was delivered")
    p99, longest = found_ms[len(found_ms) * 99 // 100], found_ms[-1]
    note = f"{len(found_ms)} deliveries"
    bench.results.fact("W, p50", statistics.median(found_ms), "ms", note=note)
    bench.results.fact("W, p99", p99, "ms", [aim(f"p99 of W <= 5 ms, {p99:.1f} ms", p99 <= 5)])
    bench.results.fact("W, longest", longest, "ms",
                       [aim(f"W never above 50 ms, {longest:.1f} ms", longest <= 50)])


def cell_killed(bench, databases):
    """The last of them; this ends what is measured on it."""
    with TriageOnCells(bench.args.triaged, bench.fresh("triaged"), databases, "triage_killed") as server:
        Wire(server).call("PUT", "/v1/queues/crowd", {})
        bench.progress.step("a cell is killed")
        crowd = Crowd(server, server)
        time.sleep(2)
        start = time.monotonic()
        databases[-1].kill()
        time.sleep(6)
        end = time.monotonic()
        crowd.end()
    for what, times in (("enqueues without a key", [put[1] for put in crowd.puts]),
                        ("claims", [claim[1] for claim in crowd.claims])):
        gap = longest_gap(times, start, end)
        bench.results.fact(f"a cell of {len(databases)} killed: longest stall of {what}", gap, "s",
                           [aim(f"2 s, {gap:.2f} s", gap <= 2)])


def cells(bench):
    """one queue over 1, 2 and 4 databases of a quarter core each, beside one without cells"""
    if not bench.has_postgres() or not bench.has_engine("cells"):
        return
    if why := missing():
        bench.results.note(f"cells are left out: {why}")
        return
    with contextlib.ExitStack() as stack:
        databases = [stack.enter_context(Held(bench.fresh("postgres"), n))
                     for n in range(max(COUNTS))]
        scaling(bench, databases)
        order_window(bench, databases[:2])
        cell_killed(bench, databases[:2])
