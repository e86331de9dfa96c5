"""Cells that are drained: what consumers do not fetch moves away by itself."""

import json

import pytest

from test_cli import Shell
from test_cells import cells, databases, place, placed, stores, three, two  # noqa: F401
from wire import until

FAR = 3600
COUNTS = ("ready", "scheduled", "in_flight", "dead")


def left(queue, cell):
    at = placed(queue).get(cell)
    return {name: at[name] for name in COUNTS} if at else None


def is_empty(queue, cell):
    return sum(left(queue, cell).values()) == 0


def exported(queue):
    """The lines of all messages by payload, without what changes when a message moves."""
    answer = queue.client.get(queue.path + "/export")
    assert answer.status == 200, answer
    lines = [json.loads(line) for line in answer.body.splitlines()]
    seen = {}
    for line in lines:
        if "payload" not in line:
            continue
        line.pop("message_id")
        assert line["payload"] not in seen, "it is there twice"
        seen[line["payload"]] = line
    return seen


def fill(queue, count):
    """Dated and dead messages, with and without keys, in all cells; what the export says of them."""
    queue.configure(max_attempts=1)
    for n in range(count):
        key = {"dedup_key": f"dead {n}"} if n % 2 else {}
        assert queue.enqueue(f"dead {n}", priority=n % 5, **key).status == 201
    taken = []
    while len(taken) < count:
        taken += queue.take(max=100)
    for message in taken:
        assert queue.nack(message, reason=f"no {message['payload']}").status == 200
    for n in range(count):
        key = {"dedup_key": f"dated {n}"} if n % 2 else {}
        answer = queue.enqueue(f"dated {n}", priority=n % 5, delay_seconds=FAR + n,
                               ttl_seconds=2 * FAR, metadata={"n": n}, **key)
        assert answer.status == 201, answer
    until(lambda: queue.stats()["dlq_depth"] == queue.stats()["scheduled"] == count)
    return exported(queue)


def drained(queue, cell, before):
    """Waits until the cell is empty; nothing is lost, doubled or changed by that."""
    until(lambda: is_empty(queue, cell))
    assert exported(queue) == before


def key_in(queue, partition):
    """Keys whose messages go to a partition. What is put to find that out is taken back."""
    for n in range(1000):
        answer = queue.enqueue("probe", dedup_key=f"probe {n}", delay_seconds=FAR)
        path = queue.message_path(answer["message_id"])
        assert queue.client.delete(path, cancel=True).status == 204
        if answer["partition"] == partition:
            yield f"probe {n}"


@pytest.fixture(params=["local", "memory", "postgres"])
def server(request, start, tmp_path):
    if request.param == "postgres":
        databases = request.getfixturevalue("databases")
        return start(engine="cells", flags=stores(databases))
    names = [f"local:{tmp_path}/{n}" for n in range(2)]
    return start(engine="cells", flags=cells(names if request.param == "local" else ["memory"] * 2))


def test_dated_and_dead_messages_leave_a_cell_that_is_drained(server):
    queue = server.queue("q")
    before = fill(queue, 150)
    assert left(queue, "b")["dead"] > 0 < left(queue, "b")["scheduled"]
    place(queue, "b", state="draining")
    drained(queue, "b", before)
    stats = queue.stats()
    assert (stats["dlq_depth"], stats["scheduled"]) == (150, 150)
    answer = queue.enqueue("again", dedup_key="dated 1")
    assert answer["deduplicated"] and answer["partition"] == 0
    assert queue.client.get(queue.message_path(answer["message_id"])).status == 200


@pytest.fixture(params=["local", "postgres"])
def durable(request, start, tmp_path):
    """A server that can be killed, and another one where the cells can have two."""
    if request.param == "postgres":
        databases = request.getfixturevalue("databases")
        return [start(engine="cells", flags=stores(databases)) for _ in range(2)]
    return [start(engine="cells", flags=cells(f"local:{tmp_path}/{n}" for n in range(2)))]


def test_a_server_that_is_killed_in_the_middle_loses_and_doubles_nothing(durable):
    """Again and again, while messages are on their way: it, or the other one, goes on."""
    queue = durable[0].queue("q")
    before = fill(queue, 400)
    place(queue, "b", state="draining")
    for _ in range(6):
        until(lambda: left(queue, "b")["in_flight"] > 0 or is_empty(queue, "b"))
        durable[0].kill()
        durable[0].start()
        queue = durable[0].queue("q")
    drained(queue, "b", before)


def test_a_message_is_cancelled_redriven_or_moved_and_never_two_of_these(durable):
    queue = durable[-1].queue("q")
    before = fill(queue, 200)
    ids = {}
    for line in queue.client.get(queue.path + "/export").body.splitlines():
        line = json.loads(line)
        if "payload" in line:
            ids[line["payload"]] = line["message_id"]
    place(queue, "b", state="draining")
    gone = set()
    for n in range(0, 200, 2):
        status = queue.client.delete(queue.message_path(ids[f"dated {n}"]), cancel=True).status
        assert status in (204, 404, 409)
        if status == 204:
            gone.add(f"dated {n}")
        queue.post("dead/redrive", ids=[ids[f"dead {n}"]])
    until(lambda: left(queue, "b")["scheduled"] == left(queue, "b")["dead"] == 0)
    until(lambda: left(queue, "b")["in_flight"] == 0)
    assert gone
    assert set(exported(queue)) == set(before) - gone


def test_a_target_that_is_away_only_makes_messages_wait(two, databases):
    queue = two[0].queue("q")
    before = fill(queue, 150)
    place(queue, "b", state="draining")
    databases[0].kill()
    until(lambda: two[0].metrics()["triage_engine_cells_away"] == 1)
    databases[0].start()
    until(lambda: two[0].metrics()["triage_engine_cells_away"] == 0)
    drained(queue, "b", before)


def test_leases_of_a_drained_cell_are_settled_there(server):
    queue = server.queue("q")
    queue.configure()
    for n in range(30):
        assert queue.enqueue(n, dedup_key=f"k{n}").status == 201
    held = []
    while len(held) < 30:
        held += queue.take(max=30)
    place(queue, "b", state="draining")
    assert left(queue, "b")["in_flight"] > 0
    for message in held[:15]:
        assert queue.ack(message).status == 204
    for message in held[15:]:
        assert queue.nack(message, delay_seconds=FAR).status == 200
    until(lambda: is_empty(queue, "b"))
    assert set(exported(queue)) == {m["payload"] for m in held[15:]}


def test_a_cell_that_is_opened_again_keeps_what_it_has_and_takes_more(server):
    queue = server.queue("q")
    before = fill(queue, 200)
    place(queue, "b", state="draining")
    place(queue, "b", state="open")
    until(lambda: left(queue, "b")["in_flight"] == 0)
    assert exported(queue) == before
    assert {queue.enqueue(n, dedup_key=f"n{n}")["partition"] for n in range(40)} == {0, 1}


# A cell as a whole


def whole(server, cell, state, status=204):
    answer = server.client().post("/v1/cells", {"cell": cell, "state": state})
    assert answer.status == status, answer
    return answer


def placements(server):
    return {c["cell"]: c["placement"] for c in server.client().get("/v1/cells")["cells"]}


def test_a_queue_that_is_made_after_the_drain_has_nothing_there(server):
    old = server.queue("old")
    before = fill(old, 60)
    whole(server, "b", "draining")
    assert placements(server) == {"a": "open", "b": "draining"}
    new = server.queue("new")
    new.configure()
    assert {new.enqueue(n, dedup_key=f"k{n}")["partition"] for n in range(40)} == {0}
    assert set(placed(new)) == {"a"}
    until(lambda: placed(old)["b"]["placement"] == "draining")  # without being told to
    drained(old, "b", before)
    assert "as a whole is drained" in place(new, "b", status=409, state="open")["detail"]
    whole(server, "b", "open")
    assert placements(server)["b"] == "open"
    place(new, "b", state="open")
    assert {new.enqueue(n, dedup_key=f"m{n}")["partition"] for n in range(40)} == {0, 1}


def test_a_drained_cell_stays_so_over_restarts_and_for_every_server(durable):
    for server in durable:
        server.queue("first").configure()
    whole(durable[0], "b", "draining")
    until(lambda: all(placements(server)["b"] == "draining" for server in durable))
    for server in durable:
        server.kill()
        server.start()
    for n, server in enumerate(durable):
        assert placements(server)["b"] == "draining"
        queue = server.queue(f"new {n}".replace(" ", "-"))
        assert {queue.enqueue(k, dedup_key=f"k{k}")["partition"] for k in range(40)} == {0}


def test_a_queue_made_by_a_server_that_had_not_heard_is_drained_all_the_same(two):
    """The server was stopped while the cell was drained."""
    import os
    import signal
    two[0].queue("first").configure()
    two[1].queue("first").stats()
    os.kill(two[1].process.pid, signal.SIGSTOP)
    whole(two[0], "b", "draining")
    os.kill(two[1].process.pid, signal.SIGCONT)
    queue = two[1].queue("new")
    for n in range(40):
        assert queue.enqueue(n, dedup_key=f"k{n}", delay_seconds=FAR).status == 201
    until(lambda: "b" not in placed(queue) or
          (placed(queue)["b"]["placement"] == "draining" and is_empty(queue, "b")))
    assert queue.stats()["scheduled"] == 40


def test_what_cannot_be_done_with_a_cell_is_refused(server, start):
    assert whole(server, "nope", "draining", status=404).problem == "cell-not-found"
    assert "drain it first" in whole(server, "b", "removed", status=409)["detail"]
    whole(server, "b", "draining")
    assert "open one first" in whole(server, "a", "draining", status=409)["detail"]
    whole(server, "b", "removed")
    assert placements(server)["b"] == "removed"
    whole(server, "b", "open")
    whole(start(), "a", "draining", status=409)
    answer = server.client().put("/v1/queues/triage.cells", {})
    assert answer.status >= 400
    assert server.client().get("/v1/queues")["queues"] == []


def test_the_commands_drain_show_and_remove_a_cell(start, tmp_path):
    server = start(engine="cells", flags=cells(f"local:{tmp_path}/{n}" for n in range(3)))
    queue = server.queue("q")
    queue.configure(dedup={"scope": "live"})
    shell = Shell(server, queue)
    for n in range(60):
        assert queue.enqueue(n, dedup_key=f"k{n}", delay_seconds=FAR).status == 201
    refused = shell.run("cells", "remove", "b")
    assert refused.returncode == 1 and b"drain it first" in refused.stderr
    held = queue.put("held", dedup_key=next(key_in(queue, 1)))
    message = queue.take_one()
    assert message["message_id"] == held
    waiting = shell.start("cells", "drain", "b", "--wait")
    until(lambda: left(queue, "b") == {"ready": 0, "scheduled": 0, "in_flight": 1, "dead": 0})
    assert waiting.poll() is None
    refused = shell.run("cells", "remove", "b", "--queue", "q")
    assert b"0 ready, 0 scheduled, 1 in flight, 0 dead" in refused.stderr
    server.queue("new").configure()
    assert queue.ack(message).status == 204
    out, said = waiting.communicate()
    assert waiting.returncode == 0
    assert out.decode().splitlines() == ["b is draining", "q: b is draining", "b is empty"]
    assert "in flight" in said.decode()
    assert shell.ok("cells", "remove", "b").splitlines() == ["q: b is removed", "b is removed"]
    rows = {line.split()[0]: line.split() for line in shell.ok("cells").splitlines()}
    assert rows["b"][3:6] == ["removed", "0", "0"]
    assert shell.ok("cells", "open", "b").splitlines() == \
        ["b is open", "new: b is open", "q: b is open"]
    assert queue.stats()["scheduled"] == 60
