"""What an operator sees of cells: partitions, states, clocks; and for how long a message may be passed
over by something less urgent in another cell, which docs/scaling.md has in a table."""

import os
import re
import threading
import time

import pytest

import bounds
from conftest import ENGINES
from server import ROOT, tokens_file
from test_cells import cells, databases, spread, stores, three, two  # fixtures, some of them
from wire import until

COUNTS = ("ready", "scheduled", "in_flight", "bytes")


def partitions(queue):
    """Those of the stats, which add up to the whole in the same answer."""
    stats = queue.client.get(queue.path + "/stats", partitions=True).json
    for name in COUNTS:
        assert sum(p[name] for p in stats["partitions"]) == stats[name], (name, stats)
    assert sum(p["dead"] for p in stats["partitions"]) == stats["dlq_depth"]
    assert max(p["oldest_message_age_seconds"] for p in stats["partitions"]) == \
        stats["oldest_message_age_seconds"]
    return stats["partitions"]


def of_cells(server, name):
    """{cell: value} of a metric."""
    found = {re.fullmatch(rf'triage_{name}{{cell="(.*)"}}', key): value
             for key, value in server.metrics().items()}
    return {match[1]: value for match, value in found.items() if match}


def test_stats_have_the_numbers_of_each_partition(three):
    queue = three.queue("q")
    queue.configure(max_attempts=1)
    where = spread(queue, 30)
    for message in queue.take(max=9)[:4]:
        assert queue.nack(message).status == 200
    for n in range(6):
        queue.put(n, dedup_key=f"later {n}", delay_seconds=3600)
    seen = partitions(queue)
    assert [(p["partition"], p["cell"], p["state"]) for p in seen] == \
        [(n, "abc"[n], "ok") for n in range(3)]
    for p in seen:
        held = p["ready"] + p["in_flight"] + p["dead"]
        assert held == where.count(p["partition"])
    assert sum(p["dead"] for p in seen) == 4
    assert sum(p["in_flight"] for p in seen) == 5
    assert sum(p["scheduled"] for p in seen) == 6
    assert "partitions" not in queue.stats()


def test_partitions_add_up_while_others_work(two):
    here, there = (server.queue("q") for server in two)
    here.configure()
    over = threading.Event()

    def work(queue):
        for n in range(10000):
            if over.is_set():
                return
            queue.put(n, dedup_key=f"{queue.client} {n}")
            queue.ack(queue.take_one(wait_seconds=60))

    workers = [threading.Thread(target=work, args=[server.queue("q")]) for server in two]
    for worker in workers:
        worker.start()
    try:
        for _ in range(50):
            assert [p["cell"] for p in partitions(here)] == ["a", "b"]
    finally:
        over.set()
        for worker in workers:
            worker.join()


@pytest.mark.parametrize("engine", ENGINES)
def test_other_engines_have_one_partition(start, engine):
    server = start(engine=engine)
    queue = server.queue("q")
    queue.put("x")
    [only] = partitions(queue)
    assert (only["partition"], only["cell"], only["state"], only["ready"]) == (0, None, "ok", 1)
    assert "cells" not in server.client().get("/v1/info").json


def test_what_is_asked_for_has_to_be_true_or_false(three):
    queue = three.queue("q")
    queue.configure()
    assert queue.client.get(queue.path + "/stats", partitions="perhaps").status == 422
    assert queue.client.get(queue.path + "/stats", others=True).status == 422


def test_a_cell_that_is_away_is_named_wherever_one_looks(start, databases, tmp_path):
    tokens = tokens_file(tmp_path, [("ops", "t-ops", "read"), ("app", "t-app", "read mail.")])
    server = start(engine="cells", flags=stores(databases), tokens_file=tokens)
    ops, app, nobody = (server.client(token=token) for token in ("t-ops", "t-app", None))
    assert [c["state"] for c in ops.get("/v1/info")["cells"]] == ["ok", "ok"]
    assert ops.get("/readyz")["status"] == "ready"
    databases[1].kill()
    until(lambda: ops.get("/readyz")["status"] == "degraded")
    shown = ops.get("/readyz")
    assert shown.status == 200
    assert [(c["cell"], c["state"]) for c in shown["cells"]] == [("a", "ok"), ("b", "away")]
    # First the connection that was cut is the reason, then each try to make another.
    until(lambda: databases[1].folder in ops.get("/readyz")["cells"][1]["reason"])
    info = app.get("/v1/info")
    assert [(c["cell"], c["engine"], c["state"]) for c in info["cells"]] == \
        [("a", "postgres", "ok"), ("b", "postgres", "away")]
    for stranger in (nobody.get("/readyz"), app.get("/readyz"), info):
        assert databases[1].folder not in stranger.body.decode()
    assert nobody.get("/readyz")["status"] == "degraded" and "cells" not in nobody.get("/readyz").json
    databases[1].start()
    until(lambda: ops.get("/readyz")["status"] == "ready")


def test_metrics_and_stats_tell_which_cell_is_away(two, databases):
    queue = two[0].queue("q")
    queue.configure()
    where = spread(queue, 20)
    assert of_cells(two[0], "cell_up") == {"a": 1, "b": 1}
    until(lambda: all(of_cells(two[0], "cell_commits_total").values()))
    assert all(of_cells(two[0], "cell_committed_ops_total").values())
    assert all(of_cells(two[0], "cell_commit_seconds_total").values())
    assert sum(p["ready"] for p in partitions(queue)) == 20
    databases[1].kill()
    until(lambda: of_cells(two[0], "cell_up") == {"a": 1, "b": 0})
    seen = partitions(queue)
    assert [p["state"] for p in seen] == ["ok", "away"]
    assert [p["ready"] for p in seen] == [where.count(0), where.count(1)]
    databases[1].start()
    until(lambda: of_cells(two[0], "cell_up") == {"a": 1, "b": 1})
    until(lambda: [p["state"] for p in partitions(queue)] == ["ok", "ok"])


# How long a message may be passed over

HEADING = "### How long a message may be passed over\n"


def put_into(queue, cell, payload, **fields):
    """Into the cell of this number: its key says so."""
    while True:
        answer = queue.enqueue(payload, dedup_key=os.urandom(8).hex(), **fields)
        assert answer.status == 201, answer
        if answer["partition"] == cell:
            return
        assert queue.client.delete(queue.message_path(answer["message_id"]), cancel=True).status == 204


def test_the_table_has_the_bound_that_the_tests_go_by():
    with open(os.path.join(ROOT, "docs", "scaling.md"), encoding="utf-8") as file:
        table = file.read().split(HEADING)[1].split("\n#")[0]
    [row] = [line for line in table.splitlines() if line.startswith("| all cells answer")]
    assert f"| {bounds.PASSED_OVER_SECONDS} s |" in row


def test_what_another_server_put_is_not_passed_over_for_longer(two):
    """The consumer's server is told nothing, because nobody waits there; and each claim comes after
    a pause, in which it did not look."""
    here, there = (server.queue("q") for server in two)
    here.configure()
    for n in range(12):
        put_into(here, 0, "may wait", priority=1)
    for n in range(10):
        assert there.take_one()["payload"] == "may wait"
        put_into(here, 1, f"urgent {n}", priority=9)
        time.sleep(bounds.PASSED_OVER_SECONDS)  # which is what the promise is about
        assert there.take_one()["payload"] == f"urgent {n}"


def test_what_is_passed_over_is_measured(two):
    here, there = (server.queue("q") for server in two)
    here.configure()
    over = threading.Event()

    def claim():
        queue = two[1].queue("q")
        while not over.is_set():
            queue.take(max=1)

    def feed():
        queue = two[0].queue("q")
        while not over.is_set():
            queue.put_all([{"payload": "may wait", "priority": 1} for _ in range(50)])
            until(lambda: over.is_set() or queue.stats()["ready"] < 500)

    workers = [threading.Thread(target=work) for work in (claim, feed)]
    for worker in workers:
        worker.start()

    def passed_over():
        for _ in range(4):
            here.put("urgent", priority=9, dedup_key=os.urandom(8).hex())
        return two[1].metrics()["triage_engine_cells_passed_over_total"] > 0

    try:
        until(passed_over)
    finally:
        over.set()
        for worker in workers:
            worker.join()
    until(lambda: two[1].metrics()['triage_cells_order_window_seconds{quantile="1"}'] > 0)
    shown = two[1].metrics()
    half, most, longest = (shown[f'triage_cells_order_window_seconds{{quantile="{q}"}}']
                           for q in ("0.5", "0.99", "1"))
    assert half <= most <= longest
