"""Nothing that is large is done in one turn of the event loop, and nobody can tell but by the time it
takes: tails that a thread reads, very many queues."""

import json
import re
import threading

import pytest

from wire import Connection, Queue, request_bytes

COUNT = 6_000
PADDING = "." * 500  # far more than the memory limit in all


def metric(api, name):
    found = re.search(rf"^{name} ([0-9.]+)$", api.get("/metrics").body.decode(), re.M)
    assert found, name
    return float(found[1])


def fill(queue, count=COUNT, **fields):
    queue.put_all([{"payload": f"{i}{PADDING}", **fields} for i in range(count)])


def number(payload):
    return int(payload.removesuffix(PADDING))


def test_claims_that_do_not_wait_find_all_of_a_tail_in_order(start):
    server = start(memory_limit="1M")
    queue = server.queue("tail")
    fill(queue)
    assert [number(p) for p in queue.take_payloads(COUNT)] == list(range(COUNT))
    assert queue.take() == []
    assert metric(server.client(), "triage_engine_refills_total") > 0
    server.stop()


def test_many_consumers_share_a_tail_and_miss_nothing(start):
    server = start(memory_limit="1M")
    fill(server.queue("tail"))
    seen = [[] for _ in range(8)]

    def consume(mine):
        queue = server.queue("tail")
        while messages := queue.take(max=7):
            mine += [number(m["payload"]) for m in messages]

    threads = [threading.Thread(target=consume, args=(mine,)) for mine in seen]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for mine in seen:
        assert mine == sorted(mine)
    assert sorted(n for mine in seen for n in mine) == list(range(COUNT))
    server.stop()


def test_what_is_cancelled_while_a_tail_is_read_does_not_come(start):
    server = start(memory_limit="1M")
    queue = server.queue("tail")
    ids = queue.put_all([{"payload": f"{i}{PADDING}"} for i in range(COUNT)])
    cancelled = set(range(1, COUNT, 5))
    refused = set()

    def cancel():
        mine = server.queue("tail")
        for i in sorted(cancelled, reverse=True):
            answer = mine.cancel(ids[i])
            if answer.status == 409:  # claimed already
                refused.add(i)
            else:
                assert answer.status == 204, answer

    other = threading.Thread(target=cancel)
    other.start()
    took = []
    while messages := queue.take(max=20):
        took += [number(m["payload"]) for m in messages]
    other.join()
    assert took == sorted(set(range(COUNT)) - (cancelled - refused))
    server.stop()


def claims_of_a_tail(server, name, count, messages=300, **fields):
    """So many claims under way at once on these messages. Each takes more than a read brings."""
    queue = server.queue(name)
    queue.configure()
    fill(queue, messages)
    body = json.dumps({"max": 100, **fields}).encode()
    line = [Connection(server.address) for _ in range(count)]
    for connection in line:
        connection.send(request_bytes("POST", queue.path + "/messages/claim", body))
    return queue, line


def test_a_claim_that_does_not_wait_is_answered_when_its_queue_is_configured_meanwhile(start):
    server = start(memory_limit="4K", durability="os")
    for number in range(5):
        queue, line = claims_of_a_tail(server, f"tail-{number}", 5)
        queue.configure(max_attempts=7)
        assert [len(each.answer()["messages"]) for each in line] == [100, 100, 100, 0, 0]
    server.stop()


def test_a_wait_that_ends_while_a_tail_is_read_finds_what_is_there(start):
    server = start(memory_limit="4K", durability="os")
    for number in range(5):
        _, line = claims_of_a_tail(server, f"tail-{number}", 3, wait_seconds=0.001)
        assert [len(each.answer()["messages"]) for each in line] == [100, 100, 100]
    server.stop()


@pytest.mark.parametrize("wait", [0, 60])
def test_a_stop_while_a_tail_is_read_does_not_say_that_there_is_nothing(start, wait):
    server = start(memory_limit="4K", durability="os")
    _, line = claims_of_a_tail(server, "tail", 30, messages=3000, wait_seconds=wait)
    assert len(line[0].answer()["messages"]) == 100
    server.terminate()
    answers = [each.answer() for each in line[1:]]
    assert all(a.refusal == (503, "draining") if a.status != 200 else a["messages"]
               for a in answers), answers
    assert server.wait() == 0


def test_a_stop_while_a_tail_is_read_is_clean(start):
    server = start(memory_limit="1M")
    queue = server.queue("tail")
    fill(queue)
    for _ in range(5):
        queue.take(max=100)
    server.stop()


# What one answer has at most: the bytes after which it gets no further message, and one message, every
# byte of which takes six as JSON. An answer is written in one turn, so its size is the turn's work.
FULL = 1 << 20
MESSAGE = 6 * (256 << 10) + (64 << 10)
LARGE = "x" * (256 << 10)
ENGINES = ["memory", "local", "postgres"]


def put_large(queue, count, payload=LARGE):
    for at in range(0, count, 20):
        queue.put_all([{"payload": payload, "metadata": {"n": n}}
                       for n in range(at, min(at + 20, count))])


def claim_bytes(queue, **fields):
    return request_bytes("POST", queue.path + "/messages/claim",
                         json.dumps({"max": 100, **fields}).encode())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("payload, fit", [(LARGE, 4), ("\x01" * 200_000, 1), ("x" * 1000, 40)],
                         ids=["large", "escaped", "small"])
def test_a_claim_gets_as_many_as_an_answer_has_room_for(start, engine, payload, fit):
    server = start(engine=engine)
    queue = server.queue("large")
    put_large(queue, 40, payload)
    connection = Connection(server.address)
    seen = []
    while len(seen) < 40:
        connection.send(claim_bytes(queue))
        answer = connection.answer()
        assert len(answer.body) < FULL + MESSAGE
        assert 1 <= len(answer["messages"]) <= fit
        seen += [m["metadata"]["n"] for m in answer["messages"]]
    assert seen == list(range(40))
    assert all(m["attempt"] == 1 for m in answer["messages"])
    assert queue.take() == []
    server.stop()


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_claims_of_one_moment_that_do_not_wait_all_get_something(start, engine):
    server = start(engine=engine)
    queue = server.queue("large")
    put_large(queue, 64)
    line = [Connection(server.address) for _ in range(8)]
    for connection in line:
        connection.send(claim_bytes(queue) * 2)
    answers = [each.answer() for _ in range(2) for each in line]
    assert [len(a["messages"]) for a in answers] == [4] * 16
    assert sorted(m["metadata"]["n"] for a in answers for m in a["messages"]) == list(range(64))
    server.stop()


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_claims_that_wait_are_served_from_one_large_batch(start, engine):
    server = start(engine=engine)
    queue = server.queue("large")
    queue.configure()
    line = [Connection(server.address) for _ in range(8)]
    for connection in line:
        connection.send(claim_bytes(queue, wait_seconds=60))
    put_large(queue, 20)
    put_large(queue, 20)
    seen = [m for each in line for m in each.answer()["messages"]]
    while more := queue.take():
        seen += more
    assert sorted(m["metadata"]["n"] for m in seen) == sorted(2 * list(range(20)))
    server.stop()


def test_a_claim_of_several_queues_ends_when_its_answer_is_full(start):
    server = start(engine="memory")
    queues = [server.queue(name) for name in ("one", "two", "three")]
    for queue in queues:
        put_large(queue, 3)
    taken = []
    for expected in (4, 4, 1, 0):
        answer = server.client().post("/v1/claim", {"queues": ["one", "two", "three"], "max": 100})
        assert len(answer.json["messages"]) == expected
        taken += [(m["queue"], m["metadata"]["n"]) for m in answer.json["messages"]]
    assert sorted(taken) == sorted((q.name, n) for q in queues for n in range(3))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_page_ends_when_its_answer_is_full_and_the_next_one_goes_on(start, engine):
    server = start(engine=engine)
    queue = server.queue("large")
    put_large(queue, 20)
    seen, cursor = [], None
    while cursor is not None or not seen:
        page = server.client().get(queue.path + "/export", **({"after": cursor} if cursor else {}))
        assert len(page.body) < FULL + MESSAGE
        seen += [json.loads(line)["metadata"]["n"] for line in page.body.splitlines()]
        cursor = page.headers.get("x-next-cursor")
    assert sorted(seen) == list(range(20))


@pytest.mark.parametrize("engine", ENGINES)
def test_dead_letters_are_listed_in_pages_that_fit(start, engine):
    server = start(engine=engine)
    queue = server.queue("large")
    queue.configure(max_attempts=1)
    put_large(queue, 10)
    while messages := queue.take(max=100):
        for m in messages:
            server.client().post(f"{queue.path}/messages/{m['message_id']}/nack",
                                 {"receipt_handle": m["receipt_handle"]})
    seen, after = [], None
    while after is not None or not seen:
        page = server.client().get(queue.path + "/dead", limit=1000,
                                   **({"after": after} if after else {}))
        assert len(page.body) < FULL + MESSAGE
        seen += [m["metadata"]["n"] for m in page.json["messages"]]
        after = page.json["next"]
    assert seen == list(range(10))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_batch_is_stored_whole_and_what_comes_behind_it_is_answered_next(start, engine):
    server = start(engine=engine)
    queue = server.queue("large")
    body = json.dumps({"messages": [{"payload": "x" * 20_000, "metadata": {"n": n}} if n % 100 else {}
                                    for n in range(1000)]}).encode()
    connection = Connection(server.address)
    connection.send(request_bytes("POST", queue.path + "/messages/batch", body) +
                    request_bytes("GET", "/healthz") +
                    request_bytes("POST", queue.path + "/messages/batch", body[:-1]) +
                    request_bytes("GET", queue.path + "/stats"))
    results = connection.answer()["results"]
    assert len(results) == 1000
    assert [n for n, r in enumerate(results) if "error" in r] == list(range(0, 1000, 100))
    assert connection.answer().status == 200
    assert connection.answer().refusal == (400, "malformed-json")
    assert connection.answer()["ready"] == 990
    seen = []
    while messages := queue.take(max=100):
        seen += [m["metadata"]["n"] for m in messages]
    assert seen == [n for n in range(1000) if n % 100]
    server.stop()


def test_a_large_import_with_a_level_that_is_not_there_stores_nothing(start):
    server = start(engine="local")
    queue = server.queue("large")
    put_large(queue, 8)
    api = server.client()
    lines, cursor = b"", ""
    while cursor is not None:
        page = api.get(queue.path + "/export", **({"after": cursor} if cursor else {}))
        lines += page.body
        cursor = page.headers.get("x-next-cursor")
    other = server.queue("other")
    other.configure()
    kind = {"Content-Type": "application/x-ndjson"}
    strange = lines + re.sub(rb'"level":"[^"]*"', b'"level":"NONE"', lines.splitlines()[0])
    answer = api.request("POST", other.path + "/messages/import", strange, kind)
    assert answer.refusal == (422, "unknown-priority")
    assert other.stats()["ready"] == 0
    answer = api.request("POST", other.path + "/messages/import", lines, kind)
    assert [r["known"] for r in answer.json["results"]] == [False] * 8
    assert other.stats()["ready"] == 8
    server.stop()


def test_very_many_queues_are_all_shown(start):
    server = start(engine="memory", metrics_queues=0)
    api = server.client()
    names = [f"queue-{i:04}" for i in range(501)]
    for name in names:
        Queue(api, name).put(name)
    listed, after = [], ""
    while after is not None:
        page = api.get("/v1/queues", limit=200, after=after).json
        listed += [row["name"] for row in page["queues"]]
        after = page["next"]
    assert listed == names
    text = api.get("/metrics").body.decode()
    ready = re.findall(r'^triage_queue_ready\{queue="([^"]+)"\} 1$', text, re.M)
    assert sorted(ready) == names


def test_the_turns_of_the_loops_are_counted(start):
    server = start(engine="memory")
    api = server.client()
    before = metric(api, "triage_loop_turns_total")
    for _ in range(20):
        api.get("/healthz")
    assert metric(api, "triage_loop_turns_total") >= before + 20
    assert metric(api, "triage_loop_turn_seconds_max") > 0
    assert metric(api, "triage_loop_slow_turns_total") >= 0
