"""Consumers start before producers: a claim waits for a queue that does not exist yet, and gets its
first message. The queue is made by that message, never by a claim."""

import signal
import time

import pytest

from test_waiting import claim_bytes, close_all, payloads, until_waiting
from wire import Connection, until


def all_waiting(server):
    """Claims that wait in the whole server: a queue that is not there has no stats."""
    return server.metrics()["triage_broker_waiting"]


def wait_for_queue(server, queue, count, **fields):
    line = []
    for number in range(count):
        before = all_waiting(server)
        line.append(Connection(server.address))
        line[-1].send(claim_bytes(queue, wait_seconds=60, **fields))
        until(lambda: all_waiting(server) == before + 1)
    return line


def is_there(queue):
    return queue.client.get(queue.path).status == 200


def test_without_a_wait_there_is_nothing_and_no_queue_is_made(queue):
    assert queue.take(max=10) == []
    assert not is_there(queue)


def test_those_who_wait_get_the_first_messages_in_the_order_in_which_they_came(server, queue):
    line = wait_for_queue(server, queue, 3)
    assert not is_there(queue)
    for number, connection in enumerate(line):
        queue.put(f"message {number}")
        assert payloads(connection.answer()) == [f"message {number}"]
    assert queue.stats()["totals"]["claimed"] == 3
    close_all(line)


def test_a_batch_that_makes_the_queue_serves_all_who_wait(server, queue):
    line = wait_for_queue(server, queue, 2, max=2)
    queue.put_all([{"payload": str(n)} for n in range(3)])
    assert [payloads(connection.answer()) for connection in line] == [["0", "1"], ["2"]]
    close_all(line)


def test_a_configuration_that_makes_the_queue_takes_the_waiting_along(server, queue):
    line = wait_for_queue(server, queue, 2, min_priority="HIGH")
    queue.configure(profile="tiers")
    until_waiting(queue, 2)
    queue.put("not for them", priority="LOW")
    queue.put("for the first", priority="CRITICAL")
    assert payloads(line[0].answer()) == ["for the first"]
    close_all(line)
    until_waiting(queue, 0)


def test_a_wait_for_a_level_that_the_new_queue_lacks_is_refused_by_name(server, queue):
    [connection] = wait_for_queue(server, queue, 1, min_priority="NOWHERE")
    queue.configure(profile="tiers")
    answer = connection.answer()
    assert answer.refusal == (422, "unknown-priority")
    assert answer["field"] == "/min_priority"
    connection.close()


def test_a_wait_ends_empty_when_no_queue_comes(server, queue):
    before = all_waiting(server)
    assert queue.take(wait_seconds=1) == []
    assert all_waiting(server) == before
    assert not is_there(queue)


def test_one_who_hangs_up_is_forgotten(server, queue):
    before = all_waiting(server)
    gone, other = wait_for_queue(server, queue, 2)
    gone.close()
    until(lambda: all_waiting(server) == before + 1)
    queue.put("x")
    [message] = other.answer()["messages"]
    assert message["attempt"] == 1
    other.close()


@pytest.mark.parametrize("engine", ["memory", "local", "postgres"])
def test_a_server_that_stops_lets_them_go(engine, start):
    server = start(engine=engine)
    [connection] = wait_for_queue(server, server.queue("nowhere"), 1)
    server.stop()
    assert payloads(connection.answer()) == []
    connection.close()


@pytest.mark.parametrize("shards", [1, 3])
def test_with_more_than_one_thread_nothing_is_different(shards, start):
    server = start(engine="memory", shards=shards, net_threads=2)
    queues = [server.queue(f"queue-{n}") for n in range(6)]
    lines = [wait_for_queue(server, queue, 1) for queue in queues]
    for number, (queue, [connection]) in enumerate(zip(queues, lines)):
        queue.put(str(number))
        assert payloads(connection.answer()) == [str(number)]
        connection.close()


def test_where_queues_are_not_made_by_enqueueing_it_is_refused_at_once(start):
    server = start(engine="memory", auto_create="off")
    answer = server.queue("nowhere").claim(wait_seconds=60)
    assert answer.refusal == (404, "queue-not-found")


def test_a_queue_that_another_server_makes_is_found(start):
    here = start(engine="postgres")
    there = start(engine="postgres", postgres=here.settings["postgres"])
    line = wait_for_queue(here, here.queue("shared"), 2)
    there.queue("shared").put("first")
    assert payloads(line[0].answer()) == ["first"]
    there.queue("shared").put("second")
    assert payloads(line[1].answer()) == ["second"]
    close_all(line)


def test_who_hangs_up_as_its_time_ends_leaves_the_others_in_line(start):
    """The server sleeps while both happen, and finds them together."""
    server = start(engine="memory")
    queue = server.queue("later")
    short = Connection(server.address)
    short.send(claim_bytes(queue, wait_seconds=2))
    until(lambda: all_waiting(server) == 1)
    line = wait_for_queue(server, queue, 1)
    server.process.send_signal(signal.SIGSTOP)
    short.close()
    time.sleep(2.1)
    server.process.send_signal(signal.SIGCONT)
    until(lambda: all_waiting(server) == 1)
    queue.put("for who stayed")
    assert payloads(line[0].answer()) == ["for who stayed"]
    close_all(line)
