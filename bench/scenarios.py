"""What is measured. A scenario is a function of the Bench whose first line of documentation says
what it is; SCENARIOS at the end lists them."""

import contextlib
import dataclasses
import http.client
import json
import signal
import time

import loads
from context import DURABILITIES, ENGINES
from loads import Load
from peers import DURABLE
from report import aim, bar
from servers import Broken, http_call

MIB = 1024 * 1024
REFILL = 250  # messages put back at once while claims are measured
DEEP = 10_000_000  # messages for which the bars of memory and of the cost of a claim are set
BEANSTALKD_BYTES, REDIS_BYTES = 459, 501  # per waiting message, measured before this was built


def ratio_of(found, field, ours, theirs):
    if ours not in found or theirs not in found:
        return None
    return getattr(found[ours], field) / getattr(found[theirs], field)


def ahead_of(found, name, least, kind=bar, what="messages/s"):
    """A mark: at least so many times the throughput of that peer, when it took part."""
    ratio = ratio_of(found, "rate", "triage", name)
    return [] if ratio is None else [kind(f"{least:g}x {what} of {name}, {ratio:.2f}x",
                                          ratio >= least)]


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


def at(text, count, set_for):
    """The bar's text, which tells when the run is smaller than what the bar was set for."""
    return text if count >= set_for else f"{text} (set for {set_for:,})"


# Beside the peers.

def enqueue(bench):
    """one message per request, 64 connections"""
    subjects = [("bare", bench.bare()), ("triage", bench.triaged()), *bench.peers()]
    found = bench.beside(subjects, Load("enqueue"))
    bench.results.judge(*ahead_of(found, "redis-always", 2), *share_of_bare(found),
                        *cheaper_than_redis(found))


def enqueue_256(bench):
    """one message per request, 256 connections"""
    subjects = [("bare", bench.bare()), ("triage", bench.triaged()), *bench.peers()]
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
    for name in found:
        if name == "triage":
            continue
        durable = name in DURABLE
        bench.results.judge(*(ahead_of(found, name, 1) if durable else []),
                            *ahead_of(found, name, 2 if durable else 1, aim))
    bench.results.judge(*cheaper_than_redis(found))


def memory(bench):
    """resident bytes per waiting message, payloads of 256 bytes"""
    count = bench.settings.waiting
    subjects = [("triage", bench.triaged()),
                ("small", bench.triaged(memory_limit="16M", name="Triage, memory_limit 16M")),
                ("memory", bench.engine("memory")),
                *bench.peers(["redis-off", "beanstalkd-off", "postgres-sql"])]
    for name, server in subjects:
        bench.progress.step(f"filling {server.name} with {count:,}")
        with server:
            if name == "postgres-sql":
                server.fill(count)
                bench.results.note(f"{server.name}: {server.bytes_on_disk() / count:.0f} bytes in"
                                   " tables and indexes; its memory is a cache of a fixed size")
                continue
            before = server.memory()
            bench.fill(server, "waiting", count, "0-9")
            server.settle(bench.settings.settle_seconds)
            each = (server.memory() - before) / count
        least = min(BEANSTALKD_BYTES, REDIS_BYTES) / 2
        marks = [aim(f"below {least:.0f} bytes, half of beanstalkd's {BEANSTALKD_BYTES}",
                     each < least)] if name in ("triage", "small") else []
        bench.results.fact(server.name, each, "bytes", marks, f"{count:,} waiting")


# Depth.

def claim_costs(bench, servers, queue, priority):
    """CPU time in us of one claim, for each server and round. What is claimed is put back in
    batches, so that the depths stay; acks are left out, since they would only dilute the
    difference."""
    costs = [[] for _ in servers]
    load = Load("claim", queue=queue, priorities=str(priority),
                options=("--no-ack", "--refill", REFILL, "--duration", "600ms", "--warmup",
                         "150ms"))
    for server in servers:
        http_call(server.port, "PUT", f"/v1/queues/{queue}", {"visibility_timeout_seconds": 3600})
    turns = list(zip(servers, costs))
    for i in range(bench.settings.claim_rounds):
        turns.reverse()  # so that neither server always comes first
        for server, found in turns:
            bench.progress.show(f"claims, round {i + 1} of {bench.settings.claim_rounds}")
            bench.fill(server, queue, REFILL, priority)  # what the last round may still owe
            report = bench.generate(server, load, timed=False)
            if report.more["empty"] > report.messages / 100:
                raise Broken(f"{server.name}: {report.more['empty']} claims found nothing")
            found.append(report.server_cpu_us)
    return costs


def show_costs(bench, names, costs, ratio_max, text):
    """By the best round of each: what else goes on in the machine can only add to it. The worst
    round is shown too; where they are far apart the ratio says little."""
    for name, cost in zip(names, costs):
        bench.results.fact(f"server CPU per claim, {name}", min(cost), "us",
                           note=f"best of {len(cost)} rounds, worst {max(cost):.2f}")
    ratio = min(costs[1]) / min(costs[0])
    bench.results.fact(f"ratio, {names[1]}", ratio, "x", [bar(text, ratio <= ratio_max)])


def deep(bench):
    """a deep backlog of cold messages: memory, and the cost of a claim beside that of a small one"""
    count = bench.settings.deep
    with bench.triaged() as small, bench.triaged() as big:
        bench.fill(small, "deep", 1000, 0)
        empty = big.memory()
        bench.progress.step(f"filling with {count:,}")
        report = bench.fill(big, "deep", count, 0, "--duration", "150s")
        bench.results.fact(f"fill with {count:,}, batches of 1,000", report.rate, "/s")
        big.settle(bench.settings.settle_seconds)
        resident = big.memory()
        note = f"{empty / MIB:.0f} when empty, {big.memory('VmHWM') / MIB:.0f} at the highest"
        bench.results.fact(f"resident with {count:,}", resident / MIB, "MiB",
                           [bar(at("512 MiB", count, DEEP), resident < 512 * MIB)], note)
        costs = claim_costs(bench, [small, big], "deep", 0)
    show_costs(bench, ["1,000 ready", f"{count:,} ready"], costs, 1.3, at("1.3x", count, DEEP))


# What is asked at every depth. Each leaves the depth as it was.
DEPTH_LOADS = [
    ("enqueue", Load("enqueue", queue="depth", options=("--count", 20_000))),
    ("enqueue, batches of 100", Load("enqueue", 32, 100, queue="depth",
                                     options=("--count", 100_000))),
    ("claim and ack", Load("claim", queue="depth", options=("--count", 20_000))),
    ("claim and ack, batches of 100", Load("claim", 32, 100, queue="depth",
                                           options=("--count", 100_000))),
    ("mixed", Load("mixed", queue="depth", options=("--count", 10_000))),
]


def at_depth(bench, server, load):
    """One run of a counted load, with its messages put there before or taken away after it."""
    count = load.options[1]
    if load.mix == "claim":
        bench.fill(server, "depth", count, "0-9")
    report = bench.generate(server, load, timed=False)
    if load.mix == "enqueue":
        bench.generate(server, Load("claim", 32, 100, queue="depth", options=("--count", count)),
                       timed=False)
    return report


def depth(bench):
    """every request at 10 and 100 times the depth, as a ratio of processor time per message"""
    counts = [bench.settings.depth * factor for factor in (1, 10, 100)]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(bench.triaged()) for _ in counts]
        for server, count in zip(servers, counts):
            bench.progress.step(f"filling with {count:,}")
            bench.fill(server, "depth", count, "0-9")
        for server in servers:
            server.settle(bench.settings.settle_seconds)
        for title, load in DEPTH_LOADS:
            found = [[] for _ in counts]
            for turn in range(bench.settings.rounds):
                for server, count, reports in zip(servers, counts, found):
                    bench.progress.show(f"{title}, round {turn + 1}, {count:,} deep")
                    reports.append(at_depth(bench, server, load))
            depth_table(bench, title, counts, found)


def depth_table(bench, title, counts, found):
    """By the best round of each, for the same reason as the cost of a claim."""
    best = [min(reports, key=lambda r: r.server_cpu_us) for reports in found]
    bench.results.table(title)
    for count, report in zip(counts, best):
        bench.results.row(f"{count:,} deep", report, best[0])
    ratio = best[2].server_cpu_us / best[0].server_cpu_us
    bench.results.judge(aim(f"no cost growth (1.3x at 100 times the depth), {ratio:.2f}x",
                            ratio <= 1.3))


def future_costs(bench, make, name):
    count = bench.settings.future
    with contextlib.ExitStack() as stack:
        none, many = (stack.enter_context(make()) for _ in range(2))
        bench.fill(none, "later", 1000, 0)
        bench.fill(many, "later", 1000, 0)
        bench.progress.step(f"filling {many.name} with {count:,} of tomorrow")
        bench.fill(many, "later", count, 9, "--delay", "24h")
        many.settle(bench.settings.settle_seconds)
        costs = claim_costs(bench, [none, many], "later", 0)
    show_costs(bench, [f"{name}, none", f"{name}, {count:,} of tomorrow"], costs, 1.1, "1.1x")


def future(bench):
    """claims at priority 0 beside urgent messages dated tomorrow, on each engine"""
    for name in ENGINES:
        if name != "postgres":  # it has a scenario of its own
            future_costs(bench, lambda name=name: bench.engine(name), name)


def cold(bench):
    """messages that do not fit in memory_limit = 16M: filled, then drained in batches of 100"""
    count = bench.settings.cold
    filled, drained = {}, {}
    sizes = ["16M", "256M"]
    for size in sizes:
        with bench.triaged(memory_limit=size, name=f"Triage, memory_limit {size}") as server:
            empty = server.memory()
            bench.progress.step(f"filling {server.name} with {count:,}")
            filled[size] = bench.fill(server, "cold", count, "0-9")
            server.settle(bench.settings.settle_seconds)
            bench.results.fact(f"resident with {count:,}, memory_limit {size}",
                               server.memory() / MIB, "MiB", note=f"{empty / MIB:.0f} when empty")
            drained[size] = bench.generate(
                server, Load("claim", 32, 100, queue="cold", options=("--duration", "120s")),
                timed=False)
            if drained[size].messages != count:
                raise Broken(f"{drained[size].messages} of {count} came back")
    for title, found in (("fill, batches of 1,000", filled), ("drain, batches of 100", drained)):
        bench.results.table(title)
        for size in sizes:
            bench.results.row(f"Triage, memory_limit {size}", found[size], found["256M"])


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
    subjects = [("triage", bench.triaged()), *bench.peers([n for n in DURABLE | {"redis-off"}
                                                           if n != "postgres-sql"])]
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


def first_claim(port, limit_seconds=60):
    limit = time.monotonic() + limit_seconds
    while time.monotonic() < limit:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, body = http_call(port, "POST", "/v1/queues/kept/messages/claim", {"max": 1})
            if status == 200 and json.loads(body)["messages"]:
                return
        time.sleep(0.002)
    raise Broken(f"no claim succeeded within {limit_seconds} s of the restart")


def restart(bench):
    """with 1,000,000 messages, from exec to the first claim"""
    with bench.triaged() as server:
        bench.progress.step(f"filling with {bench.settings.restart:,}")
        bench.fill(server, "kept", bench.settings.restart, "0-9")
        for sig in (signal.SIGTERM, signal.SIGKILL):
            before = time.monotonic()
            server.stop(sig, 60)
            stopped = time.monotonic() - before
            before = time.monotonic()
            server.start(wait=False)
            first_claim(server.port)
            took = time.monotonic() - before
            bench.results.fact(f"after {sig.name}", took, "s", [bar("2 s", took < 2)],
                               f"stopped in {stopped:.2f} s")


# Settings of Triage.

EACH_LOADS = [("enqueue, 64 connections", Load("enqueue")),
              ("claim and ack, 64 connections", Load("claim")),
              ("mixed, 64 connections", Load("mixed"))]


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


# Triage on PostgreSQL beside SQL on the same PostgreSQL.

@contextlib.contextmanager
def one_database(bench):
    """[("triage", …), ("postgres-sql", …)] on one database server, Triage only when it can."""
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(bench.database())
        subjects = []
        if bench.has_engine("postgres"):
            subjects.append(("triage", stack.enter_context(bench.engine("postgres", database))))
        sql = postgres_sql(bench, database)
        subjects.append(("postgres-sql", stack.enter_context(sql)))
        yield subjects


def postgres_sql(bench, database):
    from postgres import SeedSql
    return SeedSql(bench.fresh("sql"), database)


def postgres(bench):
    """Triage's engine beside a queue in one table, on one database server, 64 clients"""
    if not bench.has_postgres():
        return
    with one_database(bench) as subjects:
        for title, load in EACH_LOADS:
            found = bench.compare(subjects, load, title)
            wanted = ahead_of(found, "postgres-sql", 5) if load.mix != "mixed" else []
            bench.results.judge(*wanted)


def postgres_future(bench):
    """claims beside 1,000,000 urgent messages dated tomorrow, on one database server"""
    if not bench.has_postgres():
        return
    with one_database(bench) as subjects:
        sql = dict(subjects)["postgres-sql"]
        none = sql_claims(bench, sql, 0)
        many = sql_claims(bench, sql, bench.settings.future)
        bench.results.table("dequeue and complete")
        bench.results.row("SQL queue, none", none, none)
        bench.results.row(f"SQL queue, {bench.settings.future:,} of tomorrow", many, none)
        if "triage" in dict(subjects):
            ours = dict(subjects)["triage"]
            near = triage_claims(bench, ours, 0)
            far = triage_claims(bench, ours, bench.settings.future)
            bench.results.row("Triage, none", near, near)
            cost = far.server_cpu_us / near.server_cpu_us
            bench.results.row(f"Triage, {bench.settings.future:,} of tomorrow", far, near,
                              [bar(f"1.1x, {cost:.2f}x the cpu", cost <= 1.1)])


def sql_claims(bench, sql, ahead):
    """Eight clients are enough to keep both cores busy, and a dequeue that reads every row takes
    long enough with them."""
    sql.empty()
    if ahead:
        bench.progress.step(f"filling the table with {ahead:,} of tomorrow")
        sql.fill(ahead, 0, "1 day")
    sql.fill(50_000, 4)
    sql.database.psql("seed", "-c", "VACUUM ANALYZE priority_queue")
    return sql.pgbench(["claim.sql"], 8, 256, max(bench.settings.duration, 5),
                       bench.settings.warmup)


def triage_claims(bench, server, ahead):
    if ahead:
        bench.progress.step(f"filling {server.name} with {ahead:,} of tomorrow")
        bench.fill(server, "later", ahead, 9, "--delay", "24h")
        server.settle(bench.settings.settle_seconds)
    reports = []
    for _ in range(bench.settings.rounds):
        bench.fill(server, "later", 20_000, 0)
        reports.append(bench.generate(server, Load("claim", 8, queue="later",
                                                   options=("--count", 20_000)), timed=False))
    return min(reports, key=lambda r: r.server_cpu_us)


def held_transaction(bench):
    """mixed for five minutes while a REPEATABLE READ transaction is held open, minute by minute"""
    if not bench.has_postgres():
        return
    minute = bench.settings.minute
    with one_database(bench) as subjects:
        for name, server in subjects:
            on_sql = name == "postgres-sql"
            database = server.database
            if on_sql:
                server.fill(1000)
            with database.held_transaction("seed" if on_sql else "triage"):
                minutes = [one_minute(bench, server, on_sql, minute, i + 1) for i in range(5)]
            bench.results.table(server.name)
            for i, report in enumerate(minutes):
                bench.results.row(f"{'minute' if minute == 60 else f'{minute} s'} {i + 1}", report,
                                  minutes[0])
            kept = minutes[-1].rate / minutes[0].rate
            marks = [] if on_sql else [bar(f"80 % in the last minute, {kept:.0%}", kept >= 0.8)]
            bench.results.fact(f"{server.name}: last minute to first", kept, "x", marks)


def one_minute(bench, server, on_sql, seconds, which):
    bench.progress.step(f"{server.name}, {seconds} s, {which} of 5")
    if on_sql:
        return server.pgbench(["enqueue.sql", "claim.sql"], 64, 256, seconds, 0.5)
    load = Load("mixed", options=("--duration", f"{seconds}s", "--warmup", "500ms"))
    return bench.generate(server, load, timed=False)


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
    Scenario(memory),
    Scenario(deep),
    Scenario(depth),
    Scenario(future),
    Scenario(cold),
    Scenario(polls),
    Scenario(queues),
    Scenario(payload_16k),
    Scenario(payload_256k),
    Scenario(restart),
    Scenario(durability),
    Scenario(engines),
    Scenario(postgres),
    Scenario(postgres_future),
    Scenario(held_transaction, long=True),
]
