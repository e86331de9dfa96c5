"""`triage move`: a queue goes from one server to another while producers and consumers stay at the
old address. Nothing is lost, nothing comes twice, whoever is killed on the way."""

import collections
import json
import random
import socket
import threading

import pytest

from certificates import Authority
from server import tokens_file
from test_cli import DONE, REFUSED, USAGE, Shell
from test_cells import cells
from test_moving import CONFIG, by_text, fill
from wire import DEADLINE, Gone, Queue, until

NAME = "moving"


class Door:
    """An address that stays the same when the server behind it comes back at another one. It can
    lose answers: the request is carried out, and nobody is told."""

    def __init__(self, server):
        self.server = server
        self.losing = []  # parts of requests whose next answer is lost, once each
        self.lost = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                inside, _ = self.socket.accept()
            except OSError:
                return
            try:
                outside = socket.create_connection(self.server.address, DEADLINE)
            except OSError:
                inside.close()
                continue
            doomed = threading.Event()
            for args in ((inside, outside, self.watch(doomed)), (outside, inside, doomed.is_set)):
                threading.Thread(target=self.pump, args=args, daemon=True).start()

    def watch(self, doomed):
        def look(data):
            part = next((part for part in self.losing if part in data), None)
            if part:
                self.losing.remove(part)
                doomed.set()
        return look

    def pump(self, source, sink, judge):
        try:
            while data := source.recv(1 << 16):
                if judge.__name__ == "look":
                    judge(data)
                elif judge():
                    self.lost += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.socket.close()


@pytest.fixture
def door():
    doors = []

    def make(server):
        doors.append(Door(server))
        return doors[-1]

    yield make
    for each in doors:
        each.close()


class Side:
    """A server and the queue on it. Every look takes a new connection: the server may be another
    one by now."""

    def __init__(self, server):
        self.server = server

    @property
    def queue(self):
        return self.server.queue(NAME)

    @property
    def shell(self):
        return Shell(self.server, self.queue)

    def lines(self):
        return [json.loads(line) for line in self.shell.ok("export", NAME).splitlines()]

    def state(self):
        answer = self.queue.client.get(self.queue.path + "/move")
        assert answer.status == 200, answer
        return answer.json

    def begin(self, url, **fields):
        return self.queue.post("move", to=url, **fields)


class Flood:
    """Claims to be an empty server of Triage. Answers to claims begin, and end when they may."""

    def __init__(self, size):
        self.size = size
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        file = client.makefile("rwb")
        try:
            while line := file.readline():
                length = 0
                while (header := file.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                file.read(length)
                self.answer(file, line)
        except OSError:
            pass

    def answer(self, file, line):
        verb, path, _ = line.split(b" ", 2)
        status, body = b"201 Created", b"{}"
        if verb == b"GET":
            status, body = b"404 Not Found", b'{"type":"urn:triage:queue-not-found"}'
        if path.endswith(b"/claim"):
            status, body = b"200 OK", b'{"messages":[%s]}' % (b" " * self.size)
        file.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
        file.write(body[:-1])
        file.flush()
        if path.endswith(b"/claim"):
            self.begun.release()
            self.may_end.wait(DEADLINE)
        file.write(body[-1:])
        file.flush()

    def close(self):
        self.may_end.set()
        self.socket.close()


TARGETS = {
    "postgres": lambda tmp_path: {"engine": "postgres"},
    "local": lambda tmp_path: {"engine": "local"},
    "cells": lambda tmp_path: {"engine": "cells", "flags": cells(
        f"local:{tmp_path}/cell{n}" for n in range(2))},
}


@pytest.fixture(params=["local-postgres", "local-cells", "memory-local"])
def two(start, request, tmp_path):
    old, new = request.param.split("-")
    return Side(start(engine=old, webhook_local="on")), Side(start(**TARGETS[new](tmp_path)))


@pytest.fixture
def pair(start):
    """The cheapest two."""
    return (Side(start(engine="local", webhook_local="on")), Side(start(engine="memory")))


def url_of(side):
    return "http://%s:%d" % side.server.address


def moved(old):
    until(lambda: old.state()["state"] == "empty")


def move(old, new):
    assert old.begin(url_of(new)).status == 202
    moved(old)


def test_everything_is_as_it_was(two):
    """Dead letters, attempts, delays, times to live, escalations, places, payloads; and what is
    leased stays until it comes back."""
    old, new = two
    fill(old.queue)
    head, *lines, _ = old.lines()
    held = next(line for line in lines if line["state"] == "leased")
    assert old.begin(url_of(new)).status == 202
    until(lambda: old.state()["moved"] == 65)
    assert old.state()["in_flight"] == 1 and old.state()["state"] == "moving"
    head_now, *lines_now, _ = new.lines()
    assert head_now == head
    assert by_text(lines_now) == by_text(line for line in lines if line is not held)
    again = old.queue.enqueue("twice", dedup_key="order-1")
    assert again.status == 200 and again["deduplicated"], "a key of the old server"
    there = new.queue.enqueue("twice", dedup_key="order-2")
    assert there.status == 200 and there["deduplicated"], "a key that came along"
    assert old.queue.stats()["totals"]["enqueued"] == 66


def test_what_is_leased_is_settled_where_it_is(two):
    old, new = two
    old.queue.configure(**{**CONFIG, "max_attempts": 9})
    for n in range(4):
        old.queue.put(n)
    mine = old.queue.take(max=4)
    assert old.begin(url_of(new)).status == 202
    assert old.queue.ack(mine[0]).status == 204
    assert old.queue.extend(mine[1], 500).status == 200
    assert old.queue.nack(mine[1], reason="later").json == {"state": "ready"}
    assert old.queue.release(mine[2]).json == {"state": "ready"}
    assert old.queue.nack(mine[3], delay_seconds=3600).json == {"state": "scheduled"}
    moved(old)
    assert new.queue.stats()["scheduled"] == 1
    back = {m["payload"]: m["attempt"] for m in old.queue.take(max=9)}
    assert back == {1: 2, 2: 1}, "the attempts came along"


def test_consumers_go_on_at_the_old_address(two):
    """Every way to settle a message of the new server, one by one and in batches."""
    old, new = two
    old.queue.configure(**{**CONFIG, "max_attempts": 9})
    move(old, new)
    for n in range(8):
        old.queue.put(n)
    assert old.queue.stats()["totals"]["enqueued"] == 0
    assert new.queue.stats()["ready"] == 8
    a, b, c, d, *rest = old.queue.take(max=8, visibility_timeout_seconds=100)
    assert old.queue.ack(a).status == 204
    assert old.queue.ack(a).refusal == (404, "message-not-found")
    extended = old.queue.extend(b, 500)
    assert extended.status == 200 and set(extended.json) == {"visible_at", "urgent_waiting"}
    assert old.queue.nack(b, reason="no", delay_seconds=3600).json == {"state": "scheduled"}
    assert old.queue.release(c).json == {"state": "ready"}
    assert old.queue.nack(c).refusal == (409, "receipt-expired")
    acks = old.queue.ack_all([d, a, rest[0]])
    assert [("error" in each, each.get("state")) for each in acks["results"]] == \
           [(False, "done"), (True, None), (False, "done")]
    receipts = [{k: m[k] for k in ("message_id", "receipt_handle")} for m in rest[1:]]
    answer = old.queue.post("messages/extend", receipts=receipts, visibility_timeout_seconds=50)
    assert [set(each) for each in answer["results"]] == [{"message_id", "visible_at"}] * 3
    answer = old.queue.post("messages/nack", receipts=receipts, reason="broken")
    assert [each["state"] for each in answer["results"]] == ["ready"] * 3
    stats = new.queue.stats()
    assert (stats["ready"], stats["scheduled"], stats["totals"]["acked"]) == (4, 1, 3)


def test_producers_go_on_at_the_old_address(two):
    """Payloads of every kind, levels by number and name, delays, places, times to live, metadata;
    and refusals are the new server's."""
    old, new = two
    fill(old.queue)
    old.queue.put("here", dedup_key="both")
    assert old.begin(url_of(new)).status == 202
    put = old.queue.put
    put("fresh", priority=9, metadata={"a": "b\n"})
    put({"json": [2, None]}, priority="low", ttl_seconds=100.5)
    put("much later", delay_seconds=1000)
    put("placed", dequeue_at=-7)
    old.queue.client.request("POST", old.queue.path + "/messages", bytes(range(256)),
                             {"Content-Type": "application/octet-stream"}, {"priority": 9})
    there = {json.dumps(line.get("payload", line.get("payload_base64"))): line
             for line in new.lines()[1:-1]}
    assert there['"fresh"']["level"] == "high" and there['"fresh"']["metadata"] == {"a": "b\n"}
    assert there['{"json": [2, null]}']["level"] == "low"
    assert "expires_at" in there['{"json": [2, null]}']
    assert there['"much later"']["state"] == "scheduled" and there['"placed"']["dequeue_at"] == -7
    refused = old.queue.enqueue("nowhere", priority="none")
    assert refused.refusal == (422, "unknown-priority")
    answer = old.queue.client.post(old.queue.path + "/messages/batch", {"messages": [
        {"payload": 1}, {"payload": 2, "dedup_key": "both"}, {"nonsense": 1},
        {"payload": 3, "priority": "none"}, {"payload": 4, "dedup_key": "new"},
        {"payload": 5, "dedup_key": "new"}]})
    kinds = ["error" if "error" in r else "again" if r.get("deduplicated") else "stored"
             for r in answer["results"]]
    assert kinds == ["stored", "again", "error", "error", "stored", "again"]


def test_who_waits_at_the_old_server_gets_a_message_of_the_new_one(pair):
    old, new = pair
    old.queue.configure(**CONFIG)
    got = []
    waiting = threading.Thread(target=lambda: got.extend(old.queue.take(wait_seconds=60)))
    waiting.start()
    until(lambda: old.queue.stats()["waiting_consumers"] == 1)
    move(old, new)
    until(lambda: new.queue.stats()["waiting_consumers"] == 1)
    new.queue.put("at last")
    waiting.join(DEADLINE)
    assert [m["payload"] for m in got] == ["at last"]
    assert old.queue.ack(got[0]).status == 204


def test_a_consumer_that_hangs_up_takes_nothing(pair):
    old, new = pair
    old.queue.configure(**CONFIG)
    move(old, new)
    client = old.server.client()
    wait = threading.Thread(target=lambda: pytest.raises(
        Exception, client.post, old.queue.path + "/messages/claim", {"wait_seconds": 60}))
    wait.start()
    until(lambda: new.queue.stats()["waiting_consumers"] == 1)
    client.connection.socket.shutdown(socket.SHUT_RDWR)
    until(lambda: new.queue.stats()["waiting_consumers"] == 0)
    wait.join(DEADLINE)
    old.queue.put("x")
    assert new.queue.stats()["ready"] == 1


def test_schedules_go_along(two):
    old, new = two
    old.queue.configure(**CONFIG)
    for name in ("often", "never"):
        answer = old.queue.client.put(f"{old.queue.path}/schedules/{name}", {
            "every_seconds": 1 if name == "often" else 86400, "priority": "high",
            "payload": name, "metadata": {"of": name}, "missed": "all"})
        assert answer.status == 201, answer
    old.queue.take_one(wait_seconds=30)
    assert old.begin(url_of(new)).status == 202
    until(lambda: old.state()["schedules"] == 0)
    shown = new.queue.client.get(new.queue.path + "/schedules/never")
    assert (shown["every_seconds"], shown["level"], shown["missed"]) == (86400, "high", "all")
    until(lambda: new.queue.stats()["totals"]["enqueued"] >= 3)
    times = [json.loads(json.dumps(line["metadata"]))["due_at"] for line in new.lines()[1:-1]
             if line.get("payload") == "often"]
    assert len(times) >= 3
    answer = old.queue.client.put(f"{old.queue.path}/schedules/often", {
        "every_seconds": 1, "payload": 1})
    assert answer.refusal == (409, "queue-moved")


def test_answers_that_are_lost_do_not_double_anything(two, door):
    """An import was stored and the old server never heard of it: it sends the page again, and the
    new server knows it."""
    old, new = two
    gate = door(new.server)
    old.queue.configure(**CONFIG)
    old.queue.put_all([{"payload": n} for n in range(1500)])
    gate.losing += [b"/messages/import"] * 3
    assert old.begin(gate.url).status == 202
    moved(old)
    assert gate.lost == 3
    stats = new.queue.stats()
    assert (stats["ready"], stats["totals"]["enqueued"]) == (1500, 1500)
    assert new.queue.take_payloads(1500) == list(range(1500))


def test_answers_of_the_new_server_count_like_others(start):
    """What the new server answers is in the memory of the old one until its client has it. There
    is room for it, or it is refused, before or while it comes."""
    budget, size = 128 << 20, 8 << 20
    server = start(engine="memory", webhook_local="on", buffers_limit=budget)
    queue, flood, number = server.queue(NAME), Flood(size), 40
    held = lambda: server.metrics()["triage_http_budget_bytes"]
    try:
        queue.configure(**CONFIG)
        assert queue.post("move", to=flood.url).status == 202
        claims = [socket.create_connection(server.address, DEADLINE) for _ in range(number)]
        for each in claims:
            each.sendall(b"POST %s/messages/claim HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
                         % queue.path.encode())
        until(lambda: held() > budget / 2)
        until(lambda: server.metrics()["triage_http_refused_answers_total"] > 0)
        assert held() <= budget
        flood.may_end.set()
        answers = [each.recv(12) for each in claims]
        # An address above its share also loses connections.
        assert set(answers) <= {b"HTTP/1.1 200", b"HTTP/1.1 503", b""}, collections.Counter(answers)
        for each in claims:
            each.close()
        until(lambda: held() < 1 << 20)
        assert server.queue(NAME).claim().json == {"messages": []}
    finally:
        flood.close()
    server.stop()


def test_an_enqueue_is_acknowledged_after_the_target_did(pair, door):
    """The new server is away: nothing is stored here instead, and the producer may try again."""
    old, new = pair
    gate = door(new.server)
    old.queue.configure(**CONFIG)
    assert old.begin(gate.url).status == 202
    moved(old)
    gate.losing.append(b"/messages/batch")
    answer = old.queue.enqueue("unsure", dedup_key="k")
    assert answer.refusal == (503, "target-unavailable") and "retry-after" in answer.headers
    assert old.queue.enqueue("unsure", dedup_key="k")["deduplicated"], "it was stored there"
    new.server.kill()
    for answer in (old.queue.enqueue("x"), old.queue.claim(), old.queue.post(
            "messages/batch", messages=[{"payload": 1}])):
        assert answer.refusal == (503, "target-unavailable"), answer
    assert old.queue.stats()["totals"]["enqueued"] == 0


def test_a_restart_does_not_make_it_the_old_servers_queue_again(two):
    old, new = two
    if old.server.engine == "memory":
        pytest.skip("it forgets everything")
    old.queue.configure(**CONFIG)
    old.queue.put_all([{"payload": n, "dedup_key": str(n)} for n in range(300)])
    held = old.queue.take_one()
    assert old.begin(url_of(new)).status == 202
    old.server.restart()
    assert old.queue.enqueue("again", dedup_key="7")["deduplicated"]
    old.queue.put("after")
    assert old.queue.ack(held).status == 204
    moved(old)
    stats = new.queue.stats()
    assert stats["totals"]["enqueued"] == 300, "299, and the one after"
    old.server.stop()


class Load:
    """Producers and consumers at the old address, who write down what they were told."""

    def __init__(self, server, producers=2, consumers=3):
        self.server = server
        self.lock = threading.Lock()
        self.stored, self.unsure, self.acked, self.maybe = set(), set(), [], set()
        self.over = threading.Event()
        self.next = 0
        self.threads = [threading.Thread(target=self.run, args=(work,), daemon=True)
                        for work in [self.produce] * producers + [self.consume] * consumers]
        for thread in self.threads:
            thread.start()

    def run(self, work):
        while not self.over.is_set():
            try:
                queue = self.server.queue(NAME)
                while not self.over.is_set():
                    work(queue)
            except (OSError, Gone, AssertionError):
                self.over.wait(0.05)

    def produce(self, queue):
        with self.lock:
            self.next += 1
            number = self.next
            self.unsure.add(number)
        answer = queue.enqueue(number, priority=random.choice(["high", "mid", "low"]))
        assert answer.status in (201, 503), answer
        if answer.status == 201:
            with self.lock:
                self.unsure.discard(number)
                self.stored.add(number)

    def consume(self, queue):
        answer = queue.claim(max=5, wait_seconds=1)
        assert answer.status in (200, 503), answer
        for message in answer["messages"] if answer.status == 200 else ():
            with self.lock:
                self.maybe.add(message["payload"])
            if queue.ack(message).status == 204:
                with self.lock:
                    self.acked.append(message["payload"])

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(DEADLINE)


def account(load, new, before):
    """Drains the new server, and says what became of every message."""
    queue = new.queue

    def left():  # of one moment: a lease that runs out between two looks would be in neither
        stats = queue.stats()
        return stats["ready"] + stats["scheduled"] + stats["in_flight"]

    while left():
        messages = queue.take(max=100, wait_seconds=1, visibility_timeout_seconds=3600)
        if messages:
            results = queue.ack_all(messages)["results"]
            assert [each.get("state") for each in results] == ["done"] * len(messages), results
        load.acked += [message["payload"] for message in messages]
    twice = {n for n, times in collections.Counter(load.acked).items() if times > 1}
    lost = (load.stored | before) - set(load.acked) - load.maybe
    made_up = set(load.acked) - load.stored - load.unsure - before
    assert (twice, lost, made_up) == (set(), set(), set())


@pytest.mark.parametrize("target", ["local", "postgres"])
def test_a_move_under_load_with_both_servers_killed_again_and_again(start, door, tmp_path, target):
    old = Side(start(engine="local", webhook_local="on"))
    new = Side(start(**TARGETS[target](tmp_path)))
    gate = door(new.server)
    old.queue.configure(**{**CONFIG, "visibility_timeout_seconds": 4, "max_attempts": 100})
    before = {-n for n in range(1, 4001)}
    old.queue.put_all([{"payload": n, "priority": "low"} for n in before])
    load = Load(old.server)
    until(lambda: len(load.acked) > 20)
    assert old.begin(gate.url).status == 202
    for victim in (old, new, old, new, new, old):
        done, stored = len(load.acked), len(load.stored)
        victim.server.restart()
        until(lambda: len(load.acked) > done + 20 and len(load.stored) > stored + 20)
    until(lambda: old.state()["schedules"] == 0 and old.state()["ready"] == 0)
    load.end()
    moved(old)
    account(load, new, before)
    assert old.shell.run("move", NAME, "--end", "--yes").returncode == DONE
    assert old.queue.client.get(old.queue.path).status == 404


def test_the_command(pair):
    old, new = pair
    old.queue.configure(**CONFIG)
    old.queue.put_all([{"payload": n} for n in range(10)])
    held = old.queue.take_one()
    assert old.shell.json("move", NAME)["state"] == "none"
    begun = old.shell.start("move", NAME, "--to", url_of(new))
    until(lambda: new.server.client().get(new.queue.path).status == 200
          and new.queue.stats()["ready"] == 9)
    assert begun.poll() is None, "it waits for the one that is leased"
    refused = old.shell.run("move", NAME, "--end", "--yes")
    assert refused.returncode == REFUSED and b"queue-not-empty" in refused.stderr
    assert old.queue.ack(held).status == 204
    out, _ = begun.communicate(timeout=DEADLINE)
    assert begun.returncode == DONE and b"empty" in out
    assert old.shell.run("move", NAME, "--end").returncode == USAGE, "nobody can be asked"
    old.shell.ok("move", NAME, "--end", "--yes")
    assert old.queue.client.get(old.queue.path).status == 404
    assert old.shell.run("move", NAME, "--to", "x", "--end").returncode == USAGE


def test_a_cancelled_move_and_the_way_back(start):
    """The old server takes messages again; what had moved comes back with a move of its own."""
    old, new = (Side(start(engine="local", webhook_local="on")) for _ in range(2))
    old.queue.configure(**CONFIG)
    old.queue.put("a")
    move(old, new)
    refused = new.begin(url_of(old))
    assert refused.refusal == (409, "move-refused"), "messages would go round in circles"
    old.shell.ok("move", NAME, "--cancel")
    assert old.state()["to"] is None
    old.queue.put("b")
    assert (old.queue.stats()["ready"], new.queue.stats()["ready"]) == (1, 1)
    move(new, old)
    assert {m["payload"] for m in new.queue.take(max=9)} == {"a", "b"}
    assert old.queue.stats()["in_flight"] == 2
    until(lambda: new.shell.run("move", NAME, "--end", "--yes").returncode == DONE)


def test_a_move_that_is_cancelled_on_the_way_doubles_nothing(start):
    """The page under way is waited for: no message is on both servers."""
    old, new = (Side(start(engine="local", webhook_local="on")) for _ in range(2))
    old.queue.configure(**CONFIG)
    old.queue.put_all([{"payload": n} for n in range(5000)])
    for _ in range(3):
        before = old.queue.stats()["ready"]
        assert old.begin(url_of(new)).status == 202
        until(lambda: old.queue.stats()["ready"] < before)
        old.shell.ok("move", NAME, "--cancel")
    left = old.queue.stats()["ready"]
    assert left + new.queue.stats()["ready"] == 5000
    there = old.queue.take_payloads(left) if left else []
    there += new.queue.take_payloads(5000 - left)
    assert sorted(there) == list(range(5000))


def test_what_a_queue_that_moves_does_not_do(pair):
    old, new = pair
    old.queue.configure(**CONFIG)
    message = old.queue.put("x")
    other = old.server.queue("other")
    other.put("of another queue")
    move(old, new)
    client, path = old.queue.client, old.queue.path
    lines = b"\n".join(json.dumps(line).encode() for line in new.lines()[1:-1])
    refused = [client.put(path, {"max_attempts": 7}), client.delete(path), old.queue.post("purge"),
               old.queue.post("pause"), old.queue.cancel(message), old.queue.post("dead/redrive"),
               client.request("POST", path + "/messages/import", lines,
                              {"Content-Type": "application/x-ndjson"})]
    assert [answer.refusal for answer in refused] == [(409, "queue-moved")] * len(refused)
    assert url_of(new) in refused[0]["detail"]
    answer = client.post("/v1/claim", {"queues": [NAME, "other"]})
    assert [m["payload"] for m in answer["messages"]] == ["of another queue"]


def test_where_a_queue_may_move(pair, start):
    """As for webhooks: not to this machine, unless the operator allows it. And only to a server
    that takes it."""
    old, new = pair
    shy = Side(start(engine="memory"))
    for side in (old, shy):
        side.queue.configure(**CONFIG)
        side.queue.put("x")
    answer = shy.begin(url_of(new))
    assert answer.refusal == (503, "target-unavailable") and "webhook_local" in answer["detail"]
    for wrong in ("ftp://x", "http://", "http://u:p@h", "http://h?x", "http://h#x", "x" * 300, 7):
        assert old.begin(wrong).refusal == (422, "invalid-field"), wrong
    assert old.queue.post("move").refusal == (422, "invalid-field")
    assert old.begin(url_of(new), token="a\nb").refusal == (422, "invalid-field")
    assert old.begin(url_of(old)).refusal == (409, "move-refused")
    assert old.server.queue("none").post("move", to=url_of(new)).refusal == \
        (404, "queue-not-found")
    new.queue.put("a queue with other levels")
    answer = old.begin(url_of(new))
    assert answer.refusal == (409, "move-refused") and "levels" in answer["detail"]
    database = Side(start(engine="postgres", webhook_local="on"))
    database.queue.put("x")
    assert database.begin(url_of(new)).refusal == (409, "move-refused")
    for side in (old, shy):
        assert side.state()["to"] is None and side.queue.stats()["ready"] == 1
    assert old.begin(url_of(database)).refusal == (409, "move-refused"), "other levels, too"


def test_tokens_and_tls(start, tmp_path):
    """The token for the other server goes nowhere but there; and the other server is who its
    certificate says."""
    authority, secret = Authority(tmp_path), "s3cret-of-the-new-one"
    mine = authority.issue("localhost")
    tokens = tokens_file(tmp_path, [("boss", secret, "admin"), ("reader", "r", "read")])
    server = start(engine="memory", tokens_file=tokens, tls_cert=mine.cert, tls_key=mine.key,
                   flags=["--listen-tls", "127.0.0.1:0"])
    port = server.log.wait_for(r"address=127\.0\.0\.1:(\d+) .* tls=on")[1]
    url = f"https://localhost:{port}"
    for trusted in (False, True):
        more = {"webhook_cacert": authority.cert} if trusted else {}
        old = Side(start(engine="local", webhook_local="on", **more))
        old.queue.configure(**CONFIG)
        old.queue.put("x")
        if not trusted:
            assert old.begin(url, token=secret).refusal == (503, "target-unavailable")
            continue
        for token in ("wrong", "r", None):
            answer = old.begin(url, token=token)
            assert answer.refusal == (409, "move-refused") and "token" in answer["detail"]
        assert old.begin(url, token=secret).status == 202
        moved(old)
        old.queue.put("y")
        assert old.begin(url).status == 202, "again, with the token that it has"
        assert old.queue.put("z")
        shown = [old.state(), old.queue.client.get(old.queue.path).json, old.queue.stats(),
                 old.shell.ok("export", NAME), old.shell.ok("queue", "dump")]
        assert secret not in json.dumps(shown) and secret not in str(old.server.log)
        boss = Queue(server.client(token=secret), NAME)
        assert [boss.take_one()["payload"] for _ in range(3)] == ["x", "y", "z"]


def test_only_an_administrator_moves_queues(start, tmp_path):
    roles = ("admin", "produce", "consume", "read")
    tokens = tokens_file(tmp_path, [(role, role, role) for role in roles])
    server = start(engine="memory", tokens_file=tokens)
    said = {}
    for role in roles:
        client = server.client(token=role)
        path = "/v1/queues/q/move"
        said[role] = [client.post(path, {"to": "http://h"}).status, client.delete(path).status,
                      client.get(path).status]
    assert said == {"admin": [404, 404, 404], "produce": [403] * 3, "consume": [403] * 3,
                    "read": [403, 403, 404]}
