"""Each due time has one message, whatever dies: the server at any moment and at every call that
changes a file, one of two servers on one database; and whatever the clock is set to. What was due
while nothing ran is as `missed` says."""

import json
from datetime import datetime

import pytest

from shim import KILL_AFTER, KILL_BEFORE, Shim
from wire import until

DAY_MS = 86_400_000


def seconds(time):
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


def path(name):
    return f"/v1/queues/q/schedules/{name}"


def set_schedule(server, name, **fields):
    answer = server.client().put(path(name), {"payload": name, **fields})
    assert answer.status in (200, 201), answer
    return answer.json


def show(server, name):
    answer = server.client().get(path(name))
    assert answer.status == 200, answer
    return answer.json


def now(server):
    """By the server's clock."""
    queue = server.queue("clock")
    return queue.show(queue.put("x"))["enqueued_at"]


def due_times(server, name):
    """Of all messages that are there, which nobody claims: in order."""
    client, found, after = server.client(), [], {}
    while True:
        page = client.get("/v1/queues/q/export", limit=1000, **after)
        assert page.status == 200, page
        lines = [json.loads(line) for line in page.body.splitlines()]
        found += [seconds(m["metadata"]["due_at"]) for m in lines
                  if m["metadata"]["schedule"] == name]
        if "x-next-cursor" not in page.headers:
            return sorted(found)
        after = {"after": page.headers["x-next-cursor"]}


def assert_each_once(server, name, first, step):
    """One message for every due time from the first to the last that was fired. Meanwhile more
    come: what is counted is what was there before the messages were looked at."""
    state = show(server, name)
    found = due_times(server, name)
    assert len(found) == len(set(found)), "a due time has two messages"
    count = round((seconds(state["last_due_at"]) - seconds(first)) / step) + 1
    assert state["count"] == count
    assert found[:count] == [seconds(first) + step * i for i in range(count)]


def goes_on(server, name, more=1):
    count = show(server, name)["count"]
    until(lambda: show(server, name)["count"] >= count + more)


@pytest.mark.parametrize("engine, flags", [("local", []), ("local", ["--shards", "2"]),
                                           ("postgres", [])], ids=["local", "shards", "postgres"])
def test_a_killed_server_neither_loses_nor_doubles_a_due_time(start, engine, flags):
    server = start(engine=engine, flags=flags)
    first = {name: set_schedule(server, name, every_seconds=1, missed="all")["next_due_at"]
             for name in ("a", "b", "c")}
    for _ in range(5):
        goes_on(server, "a")
        server.restart()
    goes_on(server, "a", 2)
    for name in first:
        assert_each_once(server, name, first[name], 1)
    server.stop()


def test_of_two_servers_on_one_database_one_fires_a_due_time(start):
    one = start(engine="postgres")
    two = start(engine="postgres", postgres=one.settings["postgres"])
    first = {name: set_schedule(one, name, every_seconds=1, missed="all")["next_due_at"]
             for name in ("a", "b")}
    for killed, left in ((one, two), (two, one), (one, two)):
        goes_on(two, "a", 2)
        killed.kill()
        goes_on(left, "a", 2)
        killed.start()
    goes_on(one, "b", 2)
    for name in first:
        assert_each_once(one, name, first[name], 1)
    for server in (one, two):
        server.stop()


@pytest.mark.parametrize("action", [KILL_BEFORE, KILL_AFTER], ids=["before", "after"])
def test_death_at_every_call_of_a_firing(make, action):
    """From one due time to the next, the server dies at each call that changes a file in turn."""
    server = make()
    shim = Shim(server)
    server.start()
    first = set_schedule(server, "a", every_seconds=1, missed="all")["next_due_at"]
    for number in range(1, 9):
        shim.arm(action, number)
        server.wait()  # it fires, and so writes, without being asked
        shim.disarm()
        server.start()
        assert_each_once(server, "a", first, 1) if show(server, "a")["count"] else None
    goes_on(server, "a")
    assert_each_once(server, "a", first, 1)
    server.stop()


@pytest.mark.parametrize("missed, makes_up", [("skip", 0), ("once", 1), ("all", 10)])
def test_what_was_due_while_nothing_ran(make, engine_here, missed, makes_up):
    """The server is stopped, the clock goes on for ten days; on `memory`, which forgets when it is
    stopped, the clock alone does, as that of a machine that slept."""
    server = make(engine=engine_here)
    shim = Shim(server)
    server.start()
    first = seconds(set_schedule(server, "daily", every_seconds=86400,
                                 missed=missed)["next_due_at"])
    if engine_here == "local":
        server.kill()
    shim.set(clock_ms=10 * DAY_MS)
    if engine_here == "local":
        server.start()
    moved_on = lambda: seconds(show(server, "daily")["next_due_at"]) > first + 9.5 * 86400
    until(moved_on)
    found = due_times(server, "daily")
    assert len(found) == makes_up
    expected = {"skip": [], "once": [first + 9 * 86400],
                "all": [first + 86400 * i for i in range(10)]}[missed]
    assert found == expected
    assert show(server, "daily")["count"] == makes_up
    # The clock is mended: nothing is due a second time, up to where it had been.
    shim.set(clock_ms=0)
    set_schedule(server, "other", every_seconds=1)
    goes_on(server, "other", 2)
    assert due_times(server, "daily") == expected
    server.stop()


def test_a_schedule_that_slept_a_year_does_not_flood_its_queue(make):
    server = make()
    shim = Shim(server)
    server.start()
    set_schedule(server, "often", every_seconds=1, missed="all")
    server.kill()
    shim.set(clock_ms=365 * DAY_MS)
    server.start()
    until(lambda: seconds(show(server, "often")["next_due_at"]) > seconds(
        set_schedule(server, "probe", every_seconds=1)["next"][0]) - 3600)
    assert 10000 <= show(server, "often")["count"] < 11000
    found = due_times(server, "often")
    assert len(found) == len(set(found))
    server.stop()


def test_a_full_queue_makes_a_due_time_wait(start, engine):
    server = start(engine=engine)
    queue = server.queue("q")
    queue.configure(max_depth=1)
    first = seconds(set_schedule(server, "a", every_seconds=1, missed="all")["next_due_at"])
    until(lambda: show(server, "a")["waits_for"] == "queue-full")
    # Also when more due times have come behind the one that waits; and it is told once.
    def waits():
        assert show(server, "a")["waits_for"] == "queue-full"
        return seconds(now(server)) > first + 5
    until(waits)
    assert str(server.log).count("a due time waits") == 1
    assert "reason=ok" not in str(server.log)
    state = show(server, "a")
    assert state["count"] == 1 and seconds(state["next_due_at"]) == first + 1
    seen = []
    while len(seen) < 3:
        for message in queue.take(wait_seconds=5):
            seen.append(seconds(message["metadata"]["due_at"]))
            queue.ack(message)
    assert seen == [first, first + 1, first + 2]
    server.stop()
