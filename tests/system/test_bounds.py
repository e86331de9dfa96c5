"""How late, how old: each row of that table of docs/engines.md, measured. A busy machine is late for
reasons of its own, so the best of some tries counts; what the clocks never keep shows all the same."""

import os
import time

import pytest

import bounds
from conftest import ENGINES
from server import ROOT
from test_servers import sql, two, wait_on  # two is a fixture
from test_waiting import payloads
from wire import AT_ONCE

TRIES = 5
HEADING = "### How late, how old\n"


def best(tries, measure):
    """The shortest of some times."""
    return min(measure(number) for number in range(tries))


def time_until(condition):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + 60, "it never happened"
        time.sleep(0.002)
    return time.monotonic() - began


def rows():
    with open(os.path.join(ROOT, "docs", "engines.md"), encoding="utf-8") as file:
        table = file.read().split(HEADING)[1].split("\n### ")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in cells}


def test_the_table_has_the_numbers_that_the_tests_go_by():
    row = {name.split(" (")[0].strip(): value for name, value in rows().items()}
    [waits] = [v for k, v in row.items() if k.startswith("a claim that waits")]
    assert f"{bounds.HEARD_SECONDS} s at most" in waits[1]
    [ends] = [v for k, v in row.items() if k.startswith("a lease, a delay")]
    assert ends[0] == f"{bounds.TIMER_SECONDS} s"
    assert ends[1].startswith(f"{bounds.TIMER_SECONDS} s by the server")
    assert f"{bounds.HEARD_SECONDS} s by the others" in ends[1]
    [used] = [v for k, v in row.items() if k.startswith("metrics of a queue that this")]
    assert used[1] == f"{bounds.METRICS_SECONDS} s old"
    [others] = [v for k, v in row.items() if k.startswith("metrics of a queue that only")]
    assert others[1] == f"{bounds.METRICS_ELSEWHERE_SECONDS} s old"
    [many] = [v for k, v in row.items() if k.startswith("… that has none")]
    assert f"for every {bounds.LOOKED_AT_EACH_SECOND} of them" in many[1]


SOON = 0.3  # seconds


def lateness_of(queue, put, condition):
    """How long after SOON it was seen to have happened."""
    def measure(number):
        own = type(queue)(queue.client, f"{queue.name}-{number}")
        own.configure(expired="dead", retry=AT_ONCE)
        put(own)
        return time_until(lambda: condition(own)) - SOON
    return best(TRIES, measure)


def lease(queue):
    queue.put("x")
    queue.take_one(visibility_timeout_seconds=SOON)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("put, condition", [
    (lambda q: q.put("x", delay_seconds=SOON), lambda q: q.take()),
    (lambda q: q.put("x", ttl_seconds=SOON), lambda q: q.stats()["dlq_depth"] == 1),
    (lease, lambda q: q.take()),
], ids=["a delay", "a time to live", "a lease"])
def test_what_ends_is_acted_on_in_time(start, engine, put, condition):
    queue = start(engine=engine).queue("q")
    assert lateness_of(queue, put, condition) <= bounds.TIMER_SECONDS


def test_what_a_server_that_is_gone_had_to_mind_others_do(two):
    """Behind its lease; the clock of the one that is left is not asked in between."""
    here, there = two
    there.queue("q").configure(retry=AT_ONCE)
    here.queue("q").put("x")
    here.queue("q").take_one(visibility_timeout_seconds=3)
    began = time.monotonic()
    here.kill()
    late = []
    while not there.queue("q").take():
        late.append(time.monotonic() - began - 3)
        time.sleep(0.01)
    assert not late or late[-1] <= 2 * bounds.HEARD_SECONDS


def test_who_waits_hears_of_what_another_server_did(two):
    here, there = two
    here.queue("q").configure()

    def measure(number):
        consumer = wait_on(there, there.queue("q"))
        here.queue("q").put(f"m{number}")
        began = time.monotonic()
        assert payloads(consumer.answer()) == [f"m{number}"]
        consumer.close()
        return time.monotonic() - began

    assert best(TRIES, measure) <= bounds.HEARD_SECONDS


def enqueued(server, queue):
    return server.metrics().get(f'triage_queue_enqueued_total{{queue="{queue}"}}', 0)


def test_metrics_have_what_was_done_here(two):
    queue = two[0].queue("q")

    def measure(number):
        queue.put("x")
        return time_until(lambda: enqueued(two[0], "q") == number + 1)

    assert best(TRIES, measure) <= bounds.METRICS_SECONDS


def test_metrics_have_what_was_done_elsewhere(two):
    here, there = two
    here.queue("q").configure()
    assert there.client().get("/v1/queues").status == 200
    until_known = time_until(lambda: any('queue="q"' in name for name in there.metrics()))
    assert until_known < 60

    def measure(number):
        with sql(here) as s:
            s.run("SELECT triage.enqueue('q', 'x'::text)")
        return time_until(lambda: enqueued(there, "q") == number + 1)

    assert best(2, measure) <= bounds.METRICS_ELSEWHERE_SECONDS + bounds.HEARD_SECONDS
