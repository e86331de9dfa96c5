#!/usr/bin/python3
"""How long the turns of the event loop are while the server does what is large: a tail that expires,
a backlog that is drained, purged, moved, listed, deleted; ten thousand queues. Beside each, what
somebody sees who only asks /healthz.

    bench/turns.py [--count 200000] [--queues 10000] [--engine local] [scenario …]

Wall time is what clients feel, and on a busy machine mostly others' work; `by itself` is processor
time. A turn that waited gave the processor away in the middle, for a lock or a disk. TRIAGE_BUILD names another build folder, TRIAGED another program."""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "system"))

import server as servers  # noqa: E402
from wire import Client, Connection, request_bytes  # noqa: E402

SLOW = re.compile(r'msg="slow turn" took_us=(\d+) cpu_us=(\d+) waits=(\d+)')
BATCH = 1000


class Prober(threading.Thread):
    """Asks /healthz on a connection of its own until it is told to end."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.client = Client(address)
        self.took = []
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(0.002):
            begun = time.monotonic()
            self.client.request("GET", "/healthz")
            self.took.append((time.monotonic() - begun) * 1000)

    def end(self):
        self.over.set()
        self.join()
        took = sorted(self.took) or [0]
        return statistics.median(took), took[int(len(took) * 0.99)], took[-1]


def post(client, path, body=None, method="POST"):
    answer = client.request(method, path, json.dumps(body).encode() if body is not None else b"",
                            {"Content-Type": "application/json"})
    assert answer.status < 300, answer
    return answer


def fill(client, queue, count, **fields):
    for at in range(0, count, BATCH):
        n = min(BATCH, count - at)
        post(client, f"/v1/queues/{queue}/messages/batch",
             {"messages": [{"payload": f"message {at + i}", **fields} for i in range(n)]})


def depth(client, queue):
    return client.request("GET", f"/v1/queues/{queue}/stats").json


def drain(client, queue, count, ack=True):
    left = count
    while left > 0:
        claimed = post(client, f"/v1/queues/{queue}/messages/claim", {"max": 100}).json["messages"]
        if not claimed:
            return count - left
        left -= len(claimed)
        if ack:
            post(client, f"/v1/queues/{queue}/messages/ack",
                 {"receipts": [{k: m[k] for k in ("message_id", "receipt_handle")} for m in claimed]})
    return count


def expire(c, n, queues):
    """a tail expires"""
    ttl = max(2, n // 20000)
    fill(c, "q", n, ttl_seconds=ttl)
    yield
    while depth(c, "q")["ready"] > 0:
        time.sleep(0.02)


def bury(c, n, queues):
    """a tail expires to dead letters, which are dropped"""
    post(c, "/v1/queues/q", {"expired": "dead"}, "PUT")
    fill(c, "q", n, ttl_seconds=max(2, n // 20000))
    yield
    while depth(c, "q")["ready"] > 0:
        time.sleep(0.02)
    post(c, "/v1/queues/q/dead/purge", {})


def redrive(c, n, queues):
    """dead letters are redriven"""
    post(c, "/v1/queues/q", {"expired": "dead"}, "PUT")
    fill(c, "q", n, ttl_seconds=1)
    while depth(c, "q")["ready"] > 0:
        time.sleep(0.02)
    yield
    post(c, "/v1/queues/q/dead/redrive", {})


def redrive_large(c, n, queues):
    """payloads of 256 KiB die at once, are redriven, die again, are redriven by their ids and dropped"""
    post(c, "/v1/queues/q", {"max_attempts": 1}, "PUT")
    fill_large(c, "x" * 262_144, 400)
    yield
    for again in ("all", "by ids", "dropped"):
        empty(c, lease=1)
        while depth(c, "q")["dlq_depth"] < 400:
            time.sleep(0.02)
        if again == "all":
            post(c, "/v1/queues/q/dead/redrive", {})
        elif again == "by ids":
            post(c, "/v1/queues/q/dead/redrive", {"ids": dead_ids(c)})
    post(c, "/v1/queues/q/dead/purge", {})


def dead_ids(c):
    ids, cursor = [], None
    while not ids or cursor:
        page = c.request("GET", "/v1/queues/q/dead", query={"limit": 1000, **({"after": cursor} if cursor else {})}).json
        ids += [m["message_id"] for m in page["messages"]]
        cursor = page.get("next")
    return ids


def fill_up(c, n, queues):
    """a tail fills"""
    yield
    fill(c, "q", n)


def drain_tail(c, n, queues):
    """a tail is drained"""
    fill(c, "q", n)
    yield
    assert drain(c, "q", n) == n


def claim_beside_puts(c, n, queues):
    """a tail is drained while another fills"""
    fill(c, "q", n)
    other = Client(c.address)
    filler = threading.Thread(target=fill, args=(other, "other", n))
    yield
    filler.start()
    assert drain(c, "q", n) == n
    filler.join()


def due(c, n, queues):
    """all of a tail becomes ready at once"""
    at = time.time() + max(3, n // 20000)
    fill(c, "q", n, dequeue_at=int(at * 1000))
    yield
    while depth(c, "q")["scheduled"] > 0:
        time.sleep(0.02)


def purge(c, n, queues):
    """a tail is purged"""
    fill(c, "q", n)
    yield
    post(c, "/v1/queues/q/purge", {})


def escalate(c, n, queues):
    """all of a tail gets another level"""
    fill(c, "q", n)
    yield
    post(c, "/v1/queues/q/messages/priority", {"filter": {}, "priority": 0})


def export(c):
    pages, cursor = [], None
    while not pages or cursor:
        page = c.request("GET", "/v1/queues/q/export",
                         query={"limit": 1000, **({"after": cursor} if cursor else {})})
        pages.append(page.body)
        cursor = page.headers.get("x-next-cursor")
    return pages


def listing(c, n, queues):
    """a tail is listed"""
    fill(c, "q", n)
    yield
    export(c)


def delete(c, n, queues):
    """a queue with all of it is deleted"""
    fill(c, "q", n)
    yield
    c.request("DELETE", "/v1/queues/q", query={"force": True})
    time.sleep(1)


def many_queues(c, n, queues):
    """ten thousand queues are listed, measured and counted"""
    for i in range(queues):
        post(c, f"/v1/queues/q{i}/messages", {"payload": 1})
    yield
    for path in ("/v1/queues", "/metrics", "/v1/stats"):
        for _ in range(3):
            c.request("GET", path)


def batch(client, payloads, after=""):
    body = json.dumps({"messages": [{"payload": p} for p in payloads]}) + after
    return client.request("POST", "/v1/queues/q/messages/batch", body.encode(),
                          {"Content-Type": "application/json"})


def fill_large(c, payload, count):
    for _ in range(0, count, 20):
        assert batch(c, [payload] * 20).status == 200


def empty(c, lines=1, lease=3600):
    """Claims of 100 until nothing is left, `lines` of them at a time."""
    body = json.dumps({"max": 100, "visibility_timeout_seconds": lease}).encode()
    line = [Connection(c.address) for _ in range(lines)]
    while True:
        for each in line:
            each.send(request_bytes("POST", "/v1/queues/q/messages/claim", body))
        if not sum([len(each.answer()["messages"]) for each in line]):
            return


def claim_escaped(c, n, queues):
    """payloads of 200 kB that take six times as much as JSON are claimed"""
    fill_large(c, "\x01" * 200_000, 200)
    yield
    empty(c)


def claim_large(c, n, queues):
    """payloads of 256 KiB are claimed"""
    fill_large(c, "x" * 262_144, 400)
    yield
    empty(c)


def claim_crowd(c, n, queues):
    """the same by sixteen clients at once"""
    fill_large(c, "x" * 262_144, 800)
    yield
    empty(c, 16)


def export_large(c, n, queues):
    """payloads of 200 kB are exported"""
    fill_large(c, "x" * 200_000, 400)
    yield
    export(c)


def batch_escaped(c, n, queues):
    """a batch of 30 MB, every byte of whose payloads is escaped"""
    yield
    for _ in range(3):
        assert batch(c, ["\x01" * 5_000] * 1000).status == 200


def batch_large(c, n, queues):
    """a batch of 60 MB"""
    yield
    for _ in range(3):
        assert batch(c, ["x" * 60_000] * 1000).status == 200


def batch_refused(c, n, queues):
    """a batch of 60 MB that is refused for its last byte"""
    yield
    for _ in range(3):
        assert batch(c, ["x" * 60_000] * 1000, after="!").status == 400


def import_large(c, n, queues):
    """60 MB are imported"""
    fill_large(c, "x" * 60_000, 1000)
    lines = b"".join(export(c))
    post(c, "/v1/queues/other", {}, "PUT")
    yield
    answer = c.request("POST", "/v1/queues/other/messages/import", lines,
                       {"Content-Type": "application/x-ndjson"})
    assert answer.status == 200, answer


SCENARIOS = {f.__name__: f for f in (expire, bury, redrive, redrive_large, fill_up, drain_tail, claim_beside_puts, due,
                                     purge, escalate, listing, delete, many_queues, claim_escaped, claim_large,
                                     claim_crowd, export_large, batch_escaped, batch_large, batch_refused,
                                     import_large)}


def run(scenario, args, limit):
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        s = servers.Server(folder, engine=args.engine, memory_limit=limit, max_queues=args.queues + 10, shards=1,
                           flags=["--log-level", "debug"] if args.debug else [])
        s.start()
        client = Client(s.address)
        steps = scenario(client, args.count, args.queues)
        next(steps)
        before = len(s.log.lines)
        prober = Prober(s.address)
        prober.start()
        begun = time.monotonic()
        try:
            next(steps, None)
            took = time.monotonic() - begun
            median, p99, worst = prober.end()
            metrics = client.request("GET", "/metrics").body.decode()
            refills = re.search(r"triage_engine_refills_total (\d+)", metrics)
            slow = [tuple(map(int, m.groups())) for m in map(SLOW.search, s.log.lines[before:]) if m]
            print(f"{scenario.__name__:18} {limit:>5} {took:7.1f} s  healthz p50 {median:6.1f} "
                  f"p99 {p99:7.1f} max {worst:7.1f} ms   turns > 10 ms: {len(slow):4} "
                  f"longest {max([w for w, _, _ in slow], default=0) / 1000:7.1f} ms, by itself "
                  f"{max([u for _, u, _ in slow], default=0) / 1000:6.1f} ms; of them waited "
                  f"{sum(n > 1 for _, _, n in slow)}  reads {refills[1]}",
                  flush=True)
        finally:
            s.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--limits", default="1M")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--folder", default=None)
    parser.add_argument("--no-debug", dest="debug", action="store_false")
    parser.add_argument("scenario", nargs="*")
    args = parser.parse_args()
    if os.environ.get("TRIAGED"):
        servers.TRIAGED = os.environ["TRIAGED"]
    for name in args.scenario or SCENARIOS:
        for limit in args.limits.split(","):
            run(SCENARIOS[name], args, limit)


if __name__ == "__main__":
    main()
