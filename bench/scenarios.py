"""What is measured: SCENARIOS at the end is the list. A scenario is a function of the Bench whose
documentation says what it is. Here are those beside the peers and those about settings; backlogs.py,
databases.py and cells.py have the others."""

import contextlib
import dataclasses

import backlogs
import cells
import databases
from context import DURABILITIES, ENGINES
from loads import EACH_LOADS, Load
from peers import DURABLE, PEERS
from report import ahead_of, aim, bar, ratio_of

MIB = 1024 * 1024


def cheaper_than_redis(found):
    costs = [report.server_cpu_us for name, report in found.items() if name.startswith("redis")]
    if not costs or "triage" not in found:
        return []
    ours = found["triage"].server_cpu_us
    return [aim(f"cpu per message below Redis's, {ours:.1f} us to {min(costs):.1f}",
                ours < min(costs))]


def share_of_bare(found):
    ratio = ratio_of(found, "rate", "triage", "bare")
    return [] if ratio is None else [aim(f"80 % of bare HTTP, {ratio:.0%}", ratio >= 0.8)]


# Beside the peers.

def enqueue(bench):
    """one message per request, 64 connections"""
    subjects = [*bench.ceiling(), ("triage", bench.triaged()), *bench.peers()]
    found = bench.beside(subjects, Load("enqueue"))
    bench.results.judge(*ahead_of(found, "redis-always", 2), *share_of_bare(found),
                        *cheaper_than_redis(found))


def enqueue_256(bench):
    """one message per request, 256 connections"""
    subjects = [*bench.ceiling(), ("triage", bench.triaged()), *bench.peers()]
    found = bench.beside(subjects, Load("enqueue", connections=256))
    rate = found["triage"].rate
    bench.results.judge(bar(f"100 k/s, {rate / 1000:.0f} k/s", rate >= 100_000),
                        *share_of_bare(found))


def enqueue_batched(bench):
    """batches of 100, 32 connections"""
    found = bench.beside([("triage", bench.triaged()), *bench.peers()],
                         Load("enqueue", connections=32, batch=100))
    rate = found["triage"].rate
    bench.results.judge(bar(f"300 k/s, {rate / 1000:.0f} k/s", rate >= 300_000),
                        aim(f"1 M/s, {rate / 1e6:.2f} M/s", rate >= 1e6))


def claim(bench):
    """claim and ack of one message at a time from a backlog, 64 connections; latency is the claim's"""
    bench.beside([("triage", bench.triaged()), *bench.peers()], Load("claim"))


def claim_batched(bench):
    """claims of 100 and acks of 100 from a backlog, 32 connections; latency is the claim's"""
    bench.beside([("triage", bench.triaged()), *bench.peers()],
                 Load("claim", connections=32, batch=100))


def mixed(bench):
    """every connection enqueues, claims and acks in turn, 64 connections; latency is the claim's"""
    found = bench.beside([("triage", bench.triaged()), *bench.peers()], Load("mixed"))
    p99 = found["triage"].p99_ms
    bench.results.judge(bar(f"claim p99 < 5 ms, {p99:.2f} ms", p99 < 5))
    for name, _, _, durable in PEERS:
        bench.results.judge(*(ahead_of(found, name, 1) if durable else []),
                            *ahead_of(found, name, 2 if durable else 1, aim))
    bench.results.judge(*cheaper_than_redis(found))


# Many connections, many queues, large payloads.

def polls(bench):
    """10,000 waiting consumers, one message at a time: the time to its delivery"""
    load = Load("poll", connections=10_000,
                options=("--count", bench.settings.poll_count, "--rate", 500))
    found = {}
    subjects = [("triage", bench.triaged()), *bench.peers(["beanstalkd-off"])]
    for name, server in subjects:
        bench.progress.show(f"waiting on {server.name}")
        with server:
            found[name] = bench.generate(server, load, timed=False)
        if found[name].messages < bench.settings.poll_count:
            bench.results.fail(f"{server.name}: {found[name].messages} of"
                               f" {bench.settings.poll_count} were delivered")
    bench.results.table()
    for name, server in subjects:
        bench.results.row(server.name, found[name], found["triage"])
    ours, extra = found["triage"], found["triage"].more["extra_wakeups"]
    bench.results.judge(bar(f"p99 < 5 ms, {ours.p99_ms:.2f} ms", ours.p99_ms < 5),
                        bar(f"one wakes, {extra} more did", extra == 0))
    bench.results.note("Redis and PostgreSQL are left out: a script cannot wait")


def queues(bench):
    """mixed on 1,000 queues with a connection each, and the same connections on one queue"""
    names = ["redis-always", "beanstalkd-each"]
    many = Load("mixed", connections=1000, queues=1000)
    with contextlib.ExitStack() as stack:
        subjects = [("triage", bench.triaged()), *bench.peers(names)]
        for _, server in subjects:
            stack.enter_context(server)
        one = bench.compare(subjects, Load("mixed", connections=1000), "one queue")
        found = bench.compare(subjects, many, "1,000 queues")
    for name, server in subjects:
        if name in found and name in one:
            bench.results.fact(f"{server.name}: 1,000 queues to one",
                               found[name].rate / one[name].rate, "x")


def payload(bench, size, connections):
    subjects = [("triage", bench.triaged()), *bench.peers([*DURABLE, "redis-off"])]
    found = bench.beside(subjects, Load("mixed", connections=connections, payload=size))
    for name, server in subjects:
        if name in found:
            bench.results.fact(f"{server.name}", found[name].rate * size / MIB, "MiB/s")


def payload_16k(bench):
    """mixed with payloads of 16 KiB, 64 connections"""
    payload(bench, 16 * 1024, 64)


def payload_256k(bench):
    """mixed with payloads of 256 KiB, 16 connections"""
    payload(bench, 256 * 1024, 16)


# Settings of Triage.

def durability(bench):
    """each setting of when an answer may leave"""
    subjects = [(setting, bench.triaged(durability=setting, name=f"Triage, {setting}"))
                for setting in DURABILITIES]
    with contextlib.ExitStack() as stack:
        for _, server in subjects:
            stack.enter_context(server)
        for title, load in EACH_LOADS:
            bench.compare(subjects, load, title, reference="fsync")


def engines(bench):
    """each engine, with its own promise of durability"""
    with contextlib.ExitStack() as stack:
        subjects = []
        for name in ENGINES:
            if not bench.has_engine(name):
                continue
            database = None
            if name == "postgres":
                if not bench.has_postgres():
                    continue
                database = stack.enter_context(bench.database())
            subjects.append((name, stack.enter_context(bench.engine(name, database))))
        for title, load in EACH_LOADS:
            bench.compare(subjects, load, title, reference="local")


@dataclasses.dataclass
class Scenario:
    run: object
    beside: bool = False  # every server takes part: a column of the overview
    long: bool = False  # only when it is asked for by name

    @property
    def name(self):
        return self.run.__name__.replace("_", "-")

    @property
    def about(self):
        return self.run.__doc__


SCENARIOS = [
    Scenario(enqueue, beside=True),
    Scenario(enqueue_256, beside=True),
    Scenario(enqueue_batched, beside=True),
    Scenario(claim, beside=True),
    Scenario(claim_batched, beside=True),
    Scenario(mixed, beside=True),
    Scenario(backlogs.core),
    Scenario(backlogs.memory),
    Scenario(backlogs.deep),
    Scenario(backlogs.depth),
    Scenario(backlogs.future),
    Scenario(backlogs.cold),
    Scenario(backlogs.policies),
    Scenario(polls),
    Scenario(queues),
    Scenario(payload_16k),
    Scenario(payload_256k),
    Scenario(backlogs.restart),
    Scenario(durability),
    Scenario(engines),
    Scenario(databases.postgres),
    Scenario(databases.postgres_future),
    Scenario(databases.two_nodes),
    Scenario(cells.cells),
    Scenario(databases.held_transaction, long=True),
]
