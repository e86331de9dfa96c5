"""What one address can take from the others: memory, places for waiting claims, connections.
Attackers come from 127.0.0.2 and the addresses behind it, the client that works from 127.0.0.1."""

import contextlib
import selectors
import socket
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest

from server import TRIAGED
from wire import Connection, request_bytes, until

ATTACKER = "127.0.0.2"
THREADS = [{"shards": 2}, {"net_threads": 2}, {"shards": 2, "net_threads": 2}]


def named(threads):
    return " ".join(f"{key}={value}" for key, value in threads.items())


def claim_bytes(queue, query):
    return request_bytes("GET", f"{queue.path}/messages?{query}",
                         headers={"X-Requested-With": "test_limits"})


def wait_bytes(queue):
    return claim_bytes(queue, "wait_seconds=60")


@pytest.mark.parametrize("threads", THREADS, ids=named)
def test_a_waiting_claim_ends_with_its_connection(start, threads):
    """Whichever thread owns the queue, and before its time is up: a claim that began to wait
    earlier and still does is the witness."""
    server = start(engine="memory", **threads)
    queues = [server.queue(name) for name in "abcd"]
    for queue in queues:
        queue.configure()
    waiting = "triage_broker_waiting"
    witness = Connection(server.address)
    witness.send(wait_bytes(server.queue("witness")))
    until(lambda: server.metrics()[waiting] == 1)
    connections = [Connection(server.address) for _ in range(20)]
    for connection in connections:
        connection.send(b"".join(map(wait_bytes, queues)) * 4)
    until(lambda: server.metrics()[waiting] == 1 + 20 * 16)
    for connection in connections:
        connection.close()
    until(lambda: server.metrics()[waiting] <= 1)
    server.queue("witness").put("still there")
    assert witness.answer()["messages"], "the claims ended by themselves, and this one with them"
    for queue in queues:
        assert queue.put("for somebody who is there")
        assert queue.take_one()
    server.stop()


BUDGET = 128 << 20


def resident(server, field="VmRSS"):
    with open(f"/proc/{server.process.pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))


def assert_grew_little(server, before, field="VmRSS", by=1.5):
    """By the budget, and what an allocator loses. The sanitizers' own keep what was freed."""
    with open(TRIAGED, "rb") as file:
        sanitized = b"Sanitizer" in file.read()
    if not sanitized:
        assert resident(server, field) < before + by * BUDGET


def deaf(server, request, source=ATTACKER):
    """Somebody who asks and does not read. The kernel is to take little for it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.bind((source, 0))
    connection.connect(server.address)
    connection.sendall(request)
    return connection


def fill(queue, count):
    """Messages whose every byte takes six in an answer."""
    for _ in range(count):
        answer = queue.client.request("POST", queue.path + "/messages", b"\x01" * 262144,
                                      {"Content-Type": "application/octet-stream"})
        assert answer.status == 201, answer


def exhaust(server, queue):
    """Clients that claim and do not read, until their address gets no more. The queue has more
    than all of them may hold."""
    ask = claim_bytes(queue, "max=100")
    readers = []

    def refused():
        readers.append(deaf(server, ask))
        refusals = server.metrics()["triage_http_refused_answers_total"]
        assert refusals or queue.stats()["ready"], "everything is held"
        return refusals

    until(refused)
    return readers


def works(queue):
    """What an honest client does all day, also with bodies of megabytes."""
    queue.put("small")
    message = queue.take_one()
    assert queue.ack(message).status == 204
    queue.put_all([{"payload": "x" * 200_000}] * 10)
    messages = []
    while len(messages) < 10:  # a claim gets as many as there is room for
        messages += (more := queue.take(max=10 - len(messages)))
        assert more
    assert queue.ack_all(messages).status == 200


def test_answers_that_nobody_reads_have_a_limit(start):
    """What is claimed for them is claimed: so the room is looked for first."""
    server = start(engine="memory", buffers_limit=BUDGET)
    large, honest = server.queue("large"), server.queue("honest")
    large.configure(visibility_timeout_seconds=3600)
    fill(large, 240)
    before = resident(server)
    readers = exhaust(server, large)
    metrics = server.metrics()
    assert metrics["triage_http_budget_limit_bytes"] == BUDGET
    assert BUDGET / 2 < metrics["triage_http_budget_bytes"] <= BUDGET
    assert_grew_little(server, before, "VmHWM", 1.1)  # an answer is there twice for a moment
    works(honest)
    stats = large.stats()
    assert stats["ready"] + stats["in_flight"] == 240
    for each in readers:
        each.close()
    until(lambda: server.metrics()["triage_http_budget_bytes"] < 1 << 20)
    assert large.take(max=10)
    server.stop()


def test_a_claim_without_room_leases_nothing(start):
    server = start(engine="memory", buffers_limit=BUDGET)
    large = server.queue("large", source=ATTACKER)
    large.configure()
    fill(large, 160)
    readers = exhaust(server, large)
    leased = large.stats()["in_flight"]
    answer = large.claim(max=5)
    assert answer.refusal == (503, "overloaded") and answer.headers["retry-after"], answer
    assert large.stats()["in_flight"] == leased
    for each in readers:
        each.close()
    until(lambda: server.metrics()["triage_http_budget_bytes"] < 1 << 20)
    assert large.take(max=5)
    server.stop()


def test_histories_that_nobody_reads_have_a_limit(start):
    """They are counted as soon as they are made, not when they are sent."""
    server = start(engine="memory", buffers_limit=BUDGET)
    queue = server.queue("watched")
    queue.put("x")
    before = resident(server)
    since = datetime.now(timezone.utc) - timedelta(seconds=990)
    question = request_bytes("GET", queue.path + since.strftime(
        "/history?step=1&from=%Y-%m-%dT%H:%M:%SZ"))
    readers = [deaf(server, question * 64) for _ in range(80)]
    until(lambda: server.metrics()["triage_http_refused_answers_total"] > 0)
    assert server.metrics()["triage_http_budget_bytes"] <= BUDGET
    assert_grew_little(server, before, by=2)  # an answer is there twice for a moment
    for each in readers:
        each.close()
    works(queue)
    server.stop()


def test_bodies_that_stop_do_not_starve_the_others(start):
    """Eight times 60 MiB of a body, and then silence."""
    server = start(engine="memory", buffers_limit=BUDGET)
    honest = server.queue("honest")
    honest.configure()
    before = resident(server)
    head = (b"POST /v1/queues/x/messages/batch HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
    senders = []
    for _ in range(8):
        senders.append(deaf(server, head))
        try:
            senders[-1].sendall(b" " * (60 << 20))
        except ConnectionError:
            pass  # it had heard enough
    works(honest)
    metrics = server.metrics()
    assert metrics["triage_http_refused_bodies_total"] > 0
    assert metrics["triage_http_budget_bytes"] <= BUDGET
    assert_grew_little(server, before)
    until(lambda: server.metrics()["triage_http_budget_bytes"] < 1 << 20)
    assert server.metrics()["triage_http_timeouts_body_total"] > 0
    for each in senders:
        each.close()
    server.stop()


def test_many_addresses_that_hold_a_little_each_have_the_same_limit(start):
    """None of them holds enough to have a share. There are more than it takes to fill the budget."""
    server = start(engine="memory", buffers_limit=BUDGET)
    before = resident(server)
    head = (b"POST /v1/queues/x/messages HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 30000\r\n\r\n")
    crowd = [deaf(server, head + b" " * 29000, f"127.1.{i // 250}.{i % 250 + 1}")
             for i in range(5000)]
    until(lambda: server.metrics()["triage_http_bytes_in_total"] > 5000 * 29000)
    assert server.metrics()["triage_http_budget_bytes"] <= 1.1 * BUDGET  # 164 MB were sent
    assert_grew_little(server, before)
    for each in crowd:
        each.close()
    works(server.queue("honest"))
    server.stop()


def test_who_has_more_than_a_share_gives_way(start):
    """The first takes all it may. When a second wants its share, the first is cut off."""
    server = start(engine="memory", buffers_limit=BUDGET, shards=2)
    large = server.queue("large")
    large.configure()
    fill(large, 200)
    first = exhaust(server, large)
    second = Connection(server.address, source="127.0.0.3")
    body = b'{"messages":[' + b",".join([b'{"payload":"' + b"x" * 250_000 + b'"}'] * 160) + b"]}"
    whole = request_bytes("POST", "/v1/queues/second/messages/batch", body,
                          {"Content-Type": "application/json"})
    second.send(whole)  # more than is left, and less than its share
    answer = second.answer()
    assert answer.status == 200 and len(answer["results"]) == 160, answer
    assert server.metrics()["triage_http_shed_connections_total"] > 0
    for connection in first:
        connection.close()
    server.stop()


@pytest.mark.parametrize("threads", [{}, *THREADS], ids=named)
def test_claims_that_wait_have_a_limit(start, threads):
    server = start(engine="memory", max_waiting=800, **threads)
    queue = server.queue("q")
    queue.configure()
    crowd = [Connection(server.address, source=ATTACKER) for _ in range(20)]
    for connection in crowd:
        connection.send(wait_bytes(queue) * 64)
    until(lambda: server.metrics()["triage_http_refused_waiting_total"] > 0)
    metrics = server.metrics()
    assert metrics["triage_http_waiting_open"] <= 720
    assert metrics["triage_broker_waiting"] <= 720
    assert metrics["triage_http_budget_bytes"] > 500 * 8192
    other = server.queue("other")
    waiter = Connection(server.address)
    waiter.send(wait_bytes(other))
    until(lambda: other.client.get("/metrics") and other.put("found"))
    assert waiter.answer()["messages"][0]["payload"] == "found"
    for connection in crowd:
        connection.close()
    until(lambda: server.metrics()["triage_broker_waiting"] == 0)
    until(lambda: server.metrics()["triage_http_waiting_open"] == 0)
    server.stop()


def test_a_claim_that_finds_no_place_to_wait_is_told_the_way_out(start):
    server = start(engine="memory", max_waiting=8)
    queue = server.queue("q", source=ATTACKER)
    queue.configure()
    crowd = Connection(server.address, source=ATTACKER)
    crowd.send(wait_bytes(queue) * 7)
    until(lambda: server.metrics()["triage_broker_waiting"] == 7)
    answer = queue.claim(wait_seconds=60)
    assert answer.refusal == (503, "overloaded"), answer
    assert answer.headers["retry-after"] and "wait_seconds" in answer["detail"]
    assert queue.take() == []
    crowd.close()
    server.stop()


class Renewing:
    """Somebody who keeps `connections` with `claims` that wait on each, for ever: what is answered
    is asked again, and what is closed is opened again."""

    def __init__(self, server, queue, source, connections, claims):
        self.server, self.source, self.ask, self.claims = server, source, wait_bytes(queue), claims
        self.selector = selectors.DefaultSelector()
        self.ended = threading.Event()
        for _ in range(connections):
            self.open()
        self.thread = threading.Thread(target=self.renew)
        self.thread.start()

    def open(self):
        one = socket.create_connection(self.server.address, source_address=(self.source, 0))
        self.selector.register(one, selectors.EVENT_READ)
        with contextlib.suppress(OSError):
            one.sendall(self.ask * self.claims)

    def renew(self):
        while not self.ended.is_set():
            for key, _ in self.selector.select(0.05):
                try:
                    answers = key.fileobj.recv(1 << 20).count(b"HTTP/1.1 ")
                    key.fileobj.sendall(self.ask * answers)
                except OSError:
                    answers = 0
                if not answers:
                    self.selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self.open()
            time.sleep(0.05)

    def end(self):
        self.ended.set()
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()


@pytest.mark.parametrize("threads", [{}, *THREADS], ids=named)
def test_waits_above_a_share_end_for_those_who_have_less(start, threads):
    """Two addresses take every place and ask again for whatever they lose. A third gets its share
    all the same, and its waits are left alone."""
    server = start(engine="memory", max_waiting=800, **threads)
    queue, honest = server.queue("q"), server.queue("honest")
    queue.configure()
    honest.configure()
    crowd = [Renewing(server, queue, source, 14, 60) for source in (ATTACKER, "127.0.0.3")]
    until(lambda: server.metrics()["triage_http_waiting_open"] > 780)
    waiters = [Connection(server.address) for _ in range(200)]
    refused = list(waiters)
    while refused:
        for waiter in refused:
            waiter.send(wait_bytes(honest))
        time.sleep(0.5)  # as Retry-After says, and somewhat hasty
        refused = [w for w in refused if told(w) and w.answer().refusal == (503, "overloaded")]
    until(lambda: honest.stats()["waiting_consumers"] == 200)
    assert server.metrics()["triage_http_ended_waits_total"] > 0
    assert server.metrics()["triage_http_waiting_open"] <= 1000
    honest.put_all([{"payload": "found"}] * 200)
    for waiter in waiters:
        assert waiter.answer()["messages"][0]["payload"] == "found"
    for each in crowd:
        each.end()
    server.stop()


def told(connection):
    """Whether something came for it."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.socket, selectors.EVENT_READ)
        return bool(connection.pending or selector.select(0))


def test_a_wait_that_ends_early_ends_with_an_empty_answer(start):
    """And takes nothing along: what comes at the same moment goes to somebody."""
    server = start(engine="memory", max_waiting=16, shards=2)
    queue = server.queue("q")
    queue.configure()
    first = Connection(server.address, source=ATTACKER)
    first.send(wait_bytes(queue) * 14)
    until(lambda: server.metrics()["triage_broker_waiting"] == 14)
    second = Connection(server.address)
    second.send(wait_bytes(server.queue("other")) * 2)
    answer = first.answer()
    assert answer.status == 200 and answer["messages"] == []
    until(lambda: server.metrics()["triage_http_waiting_open"] == 15)
    queue.put_all([{"payload": "x"}] * 13)
    for _ in range(13):
        assert first.answer()["messages"]
    stats = queue.stats()
    assert (stats["ready"], stats["in_flight"]) == (0, 13)
    server.stop()


@pytest.mark.parametrize("threads", [{}, {"net_threads": 2}], ids=named)
def test_connections_that_only_wait_give_way(start, threads):
    """Two addresses fill the server with claims that wait. Everybody else is let in."""
    server = start(engine="memory", max_connections=80, **threads)
    queue = server.queue("q")
    queue.configure()
    crowd = [Renewing(server, queue, source, 70, 1) for source in (ATTACKER, "127.0.0.3")]
    until(lambda: server.metrics()["triage_http_connections_refused_total"] > 100)
    for i in range(4, 12):
        guest = server.queue("guest", source=f"127.0.0.{i}")
        assert guest.client.get("/healthz").status == 200
        works(guest)
    assert server.metrics()["triage_http_shed_connections_total"] > 0
    for each in crowd:
        each.end()
    server.stop()


def test_an_address_has_so_many_connections(start):
    server = start(engine="memory", max_connections_per_address=5)
    crowd = [Connection(server.address, source=ATTACKER) for _ in range(5)]
    for connection in crowd:
        connection.send(request_bytes("GET", "/healthz"))
        assert connection.answer().status == 200
    late = Connection(server.address, source=ATTACKER)
    answer = late.answer()
    assert answer.refusal == (503, "overloaded") and "address" in answer["detail"]
    assert late.at_end()
    works(server.queue("honest"))
    assert server.metrics()["triage_http_refused_connections_total"] == 1
    crowd[0].close()
    until(lambda: server.metrics()["triage_http_connections_open"] <= 5)
    again = Connection(server.address, source=ATTACKER)
    again.send(request_bytes("GET", "/healthz"))
    assert again.answer().status == 200
    server.stop()
