"""Cells whose databases have clocks that differ: first come, first served, and aging, as if there were
one clock. The shim shifts what each database takes for the time."""

import os
import re
import time

import pytest

from database import Postgres
from shim import Shim
from wire import until

AHEAD_MS = (130, 0, -170)
APART_SECONDS = 0.02  # between messages: far less than the clocks differ, and more than they are known to
LATE_SECONDS = 0.01  # how well they have to be known


class Cells:
    def __init__(self):
        self.databases = [Postgres(fsync="off") for _ in AHEAD_MS]
        self.shims = [Shim(database) for database in self.databases]
        for database, shim, ahead_ms in zip(self.databases, self.shims, AHEAD_MS):
            shim.set(clock_ms=ahead_ms, kinds=0)
            database.start()

    def flags(self):
        return [f"--cell={name}=postgres:{database.conninfo('postgres')}"
                for name, database in zip("abc", self.databases)]

    def end(self):
        for database in self.databases:
            database.end()


@pytest.fixture
def cells():
    made = Cells()
    yield made
    made.end()


def offsets(server):
    found = [(re.fullmatch(r'triage_cell_clock_offset_seconds{cell="(.)"}', name), value)
             for name, value in server.metrics().items()]
    return [value for match, value in sorted((m[1], v) for m, v in found if m)]


def know(server, ahead_ms):
    """Waits until the server knows the clocks."""
    until(lambda: all(abs(seen - ms / 1000) < LATE_SECONDS
                      for seen, ms in zip(offsets(server), ahead_ms)))


def put_into(queue, cell, payload, **fields):
    while True:
        answer = queue.enqueue(payload, dedup_key=os.urandom(8).hex(), **fields)
        assert answer.status == 201, answer
        if answer["partition"] == cell:
            return
        assert queue.client.delete(queue.message_path(answer["message_id"]), cancel=True).status == 204


def put_all_ways(queue, ways):
    """One message after the other, into these cells."""
    for number, cell in enumerate(ways):
        put_into(queue, cell, number)
        time.sleep(APART_SECONDS)


def taken(queue, count):
    """One after the other. The stats have the server look at all heads before each claim: of a
    partition that it has just claimed from it knows only that the next message is a later one."""
    payloads = []
    for left in range(count, 0, -1):
        assert queue.stats()["ready"] == left
        payloads.append(queue.take_one()["payload"])
    return payloads


WAYS = [2, 0, 1, 0, 2, 1, 1, 2, 0, 0, 1, 2]


def test_what_came_first_goes_first_whatever_the_clocks_say(start, cells):
    server = start(engine="cells", flags=cells.flags())
    know(server, AHEAD_MS)
    queue = server.queue("q")
    put_all_ways(queue, WAYS)
    assert taken(queue, len(WAYS)) == list(range(len(WAYS)))


def test_a_clock_that_is_set_while_the_server_runs_is_followed(start, cells):
    server = start(engine="cells", flags=cells.flags())
    know(server, AHEAD_MS)
    cells.shims[0].set(clock_ms=-AHEAD_MS[0])
    know(server, (-AHEAD_MS[0], *AHEAD_MS[1:]))
    queue = server.queue("q")
    put_all_ways(queue, WAYS)
    assert taken(queue, len(WAYS)) == list(range(len(WAYS)))


def test_ages_are_compared_as_if_there_were_one_clock(start, cells):
    """A message that counts as urgent by its age stands among the urgent ones by that age."""
    server = start(engine="cells", flags=cells.flags())
    know(server, AHEAD_MS)
    for old in range(3):
        for young in range(3):
            queue = server.queue(f"q{old}{young}")
            queue.configure(levels=[{"name": "high"}, {"name": "low", "age_after_seconds": 0.5}])
            put_into(queue, old, "old", priority="low")
            time.sleep(APART_SECONDS)
            put_into(queue, young, "young", priority="high")
            time.sleep(0.5)
            assert taken(queue, 2) == ["old", "young"], (old, young)
