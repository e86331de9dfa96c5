"""Scenarios about Triage on PostgreSQL, beside a queue in one table on the same server."""

import contextlib
import dataclasses
import http.client
import json
import time

from loads import EACH_LOADS, Load
from postgres import SeedSql
from report import aim, ahead_of, bar
from servers import Broken


@contextlib.contextmanager
def one_database(bench):
    """[("triage", …), ("postgres-sql", …)] on one database server, Triage only when it can."""
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(bench.database())
        subjects = []
        if bench.has_engine("postgres"):
            subjects.append(("triage", stack.enter_context(bench.engine("postgres", database))))
        sql = stack.enter_context(SeedSql(bench.fresh("sql"), database))
        yield [*subjects, ("postgres-sql", sql)]


class InBatches:
    """The same server, asked for several messages by each request."""

    def __init__(self, bench, server, batch):
        self.name = f"{server.name}, batches of {batch}"
        self.bench, self.server, self.batch = bench, server, batch

    def measure(self, load, *_):
        return self.bench.measure(self.server, dataclasses.replace(load, batch=self.batch))


def postgres(bench):
    """Triage's engine beside a queue in one table, on one database server, 64 clients"""
    if not bench.has_postgres():
        return
    with one_database(bench) as running:
        subjects = [*running, ("driver", dict(running)["postgres-sql"].as_sent())]
        if "triage" in dict(running):
            ours = dict(running)["triage"]
            subjects += [(f"batches-{n}", InBatches(bench, ours, n)) for n in (10, 100)]
        for title, load in EACH_LOADS:
            found = bench.compare(subjects, load, title)
            if load.mix != "mixed":
                bench.results.judge(*ahead_of(found, "postgres-sql", 5),
                                    *ahead_of(found, "driver", 5, aim),
                                    *ahead_of(found, "postgres-sql", 5, aim, ours="batches-100"))
        bench.compare(running, Load("enqueue", queues=100), "enqueue, 64 connections, 100 queues")


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


class Wire:
    """One connection to a server, for calls whose answer is awaited later."""

    def __init__(self, server):
        self.http = http.client.HTTPConnection("127.0.0.1", server.port, timeout=70)
        self.http.connect()

    def send(self, method, path, body=None):
        self.http.request(method, path, None if body is None else json.dumps(body),
                          {"Content-Type": "application/json"})

    def answer(self):
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise Broken(f"{answer.status}: {text.decode('utf-8', 'replace')[:200]}")
        return json.loads(text)

    def call(self, method, path, body=None):
        self.send(method, path, body)
        return self.answer()


def one_delivery(producer, consumer, watcher):
    """Milliseconds from before the enqueue until the waiting consumer has the message."""
    consumer.send("POST", "/v1/queues/q/messages/claim", {"wait_seconds": 60})
    while watcher.call("GET", "/v1/queues/q/stats")["waiting_consumers"] == 0:
        pass
    start = time.perf_counter()
    producer.send("POST", "/v1/queues/q/messages", {"payload": "x" * 256})
    [message] = consumer.answer()["messages"]
    took_ms = (time.perf_counter() - start) * 1000
    producer.answer()
    consumer.call("POST", "/v1/queues/q/messages/ack", {"receipts": [
        {key: message[key] for key in ("message_id", "receipt_handle")}]})
    return took_ms


def two_nodes(bench):
    """two servers on one database: from an enqueue on one to a consumer that waits on the other"""
    if not bench.has_postgres() or not bench.has_engine("postgres"):
        return
    count = 300 if bench.args.quick else 2000
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(bench.database())
        here = stack.enter_context(bench.engine("postgres", database))
        there = stack.enter_context(bench.engine("postgres", database, joins=True))
        Wire(here).call("PUT", "/v1/queues/q", {})
        for title, of in (("the same server", here), ("the other server", there)):
            wires = Wire(here), Wire(of), Wire(of)
            bench.progress.step(f"{count} messages to a consumer on {title}")
            took_ms = sorted(one_delivery(*wires) for _ in range(count))
            p50, p99 = took_ms[count // 2], took_ms[count * 99 // 100]
            marks = [bar(f"20 ms, {p99:.1f} ms", p99 < 20)] if of is there else []
            bench.results.fact(f"consumer on {title}, p50", p50, "ms")
            bench.results.fact(f"consumer on {title}, p99", p99, "ms", marks)
