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


def test_very_many_queues_are_all_shown(start):
    server = start(engine="memory")
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
