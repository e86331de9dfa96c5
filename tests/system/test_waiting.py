"""Promise 8: waiting is orderly. First come, first served; one message wakes one consumer; and
those who wait cost nothing. The server's own counters say so, not the clock."""

import os
import selectors

from server import allow_many_files
from wire import Connection, request_bytes, until

WAITING_COUNT = 10_000 if os.environ.get("TRIAGE_SOAK") else 1_000


def claim_bytes(queue, **fields):
    query = "&".join(f"{name}={value}" for name, value in fields.items())
    return request_bytes("GET", f"{queue.path}/messages?{query}")


def wait_in_line(server, queue, count, **fields):
    """Connections that wait for a message, in the order of the list."""
    line = []
    for number in range(count):
        connection = Connection(server.address)
        connection.send(claim_bytes(queue, wait_seconds=60, **fields))
        line.append(connection)
        until_waiting(queue, number + 1)
    return line


def until_waiting(queue, count):
    until(lambda: queue.stats()["waiting_consumers"] == count)


def close_all(connections):
    for connection in connections:
        connection.close()


def payloads(answer):
    assert answer.status == 200
    return [message["payload"] for message in answer["messages"]]


def test_those_who_wait_are_served_in_the_order_in_which_they_came(server, queue):
    queue.configure()
    line = wait_in_line(server, queue, 10)
    for number, connection in enumerate(line):
        queue.put(f"message {number}")
        assert payloads(connection.answer()) == [f"message {number}"]
        until_waiting(queue, 9 - number)
    close_all(line)


def test_one_message_wakes_one_consumer(server, queue):
    queue.configure()
    before = wakeups(server)
    line = wait_in_line(server, queue, 5)
    queue.put("only one")
    assert payloads(line[0].answer()) == ["only one"]
    assert queue.stats()["waiting_consumers"] == 4
    assert wakeups(server) - before == 1
    close_all(line)
    until_waiting(queue, 0)


def test_a_batch_is_shared_by_those_who_wait(server, queue):
    queue.configure()
    line = wait_in_line(server, queue, 3, max=2)
    queue.put_all([{"payload": str(n)} for n in range(5)])
    got = [payloads(connection.answer()) for connection in line]
    assert got == [["0", "1"], ["2", "3"], ["4"]]
    close_all(line)


def test_one_who_waits_for_urgent_work_lets_the_rest_pass(server, queue):
    queue.configure()
    [picky] = wait_in_line(server, queue, 1, min_priority=8)
    other = Connection(server.address)
    other.send(claim_bytes(queue, wait_seconds=60))
    until_waiting(queue, 2)
    queue.put("low", priority=2)
    assert payloads(other.answer()) == ["low"]
    queue.put("high", priority=8)
    assert payloads(picky.answer()) == ["high"]
    close_all([picky, other])


def test_a_delay_that_passes_wakes_one_who_waits(server, queue):
    queue.put("later", delay_seconds=0.3)
    assert queue.take_one(wait_seconds=30)["payload"] == "later"


def test_a_lease_that_ends_wakes_one_who_waits(queue):
    queue.put("x")
    queue.take_one(visibility_timeout_seconds=1)
    assert queue.take_one(wait_seconds=30)["attempt"] == 2


def test_a_nack_a_release_a_redrive_and_a_resume_wake_one_who_waits(server, queue):
    queue.configure(max_attempts=2)
    queue.put("x")
    held = queue.take_one()

    def next_after(action):
        [connection] = wait_in_line(server, queue, 1)
        assert action().status in (200, 204)
        [message] = connection.answer()["messages"]
        connection.close()
        return message

    held = next_after(lambda: queue.release(held))
    assert held["attempt"] == 1
    held = next_after(lambda: queue.nack(held))
    assert held["attempt"] == 2
    assert queue.nack(held).json["state"] == "dead"
    held = next_after(lambda: queue.post("dead/redrive"))
    assert held["attempt"] == 1
    queue.post("pause")
    queue.release(held)
    held = next_after(lambda: queue.post("resume"))
    assert held["attempt"] == 1


def test_a_wait_ends_empty_when_nothing_comes(queue):
    queue.configure()
    assert queue.take(wait_seconds=1) == []
    assert queue.stats()["waiting_consumers"] == 0


def test_deleting_the_queue_ends_the_wait(server, queue):
    queue.configure()
    [connection] = wait_in_line(server, queue, 1)
    assert queue.client.delete(queue.path, force=True).status == 204
    answer = connection.answer()
    assert answer.status == 404 or payloads(answer) == []
    connection.close()


def wakeups(server):
    [value] = [v for k, v in server.metrics().items() if k.split("{")[0].endswith("wakeups_total")]
    return value


def test_a_thousand_wait_and_each_message_wakes_exactly_one(server, queue):
    """They arrive in any order, as connections are spread over threads; every message still
    goes to one of them, once, and nobody else is woken."""
    allow_many_files()
    queue.configure()
    before = wakeups(server)
    line = [Connection(server.address) for _ in range(WAITING_COUNT)]
    for connection in line:
        connection.send(claim_bytes(queue, wait_seconds=60))
    until_waiting(queue, WAITING_COUNT)
    assert wakeups(server) == before, "waiting by itself wakes nobody"

    woken = selectors.DefaultSelector()
    for connection in line:
        woken.register(connection.socket, selectors.EVENT_READ, connection)
    for number in range(10):
        queue.put(str(number))
        [(key, _)] = woken.select(60)
        assert payloads(key.data.answer()) == [str(number)]
        woken.unregister(key.fileobj)
        assert queue.stats()["waiting_consumers"] == WAITING_COUNT - number - 1
    assert wakeups(server) - before == 10
    assert woken.select(0) == []

    close_all(line)
    until_waiting(queue, 0)
    stats = queue.stats()
    assert stats["in_flight"] == 10 and stats["totals"]["claimed"] == 10
