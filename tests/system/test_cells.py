"""Cells as a user meets them: one queue over several stores."""

import os
import signal

import pytest

import database
from test_servers import wait_on
from test_waiting import payloads
from wire import Connection, request_bytes, until


def cells(stores):
    return [f"--cell={name}={store}" for name, store in zip("abcdefgh", stores)]


@pytest.fixture
def three(start, tmp_path):
    """A server with three cells of its own disk."""
    return start(engine="cells", flags=cells(f"local:{tmp_path}/{n}" for n in range(3)))


@pytest.fixture
def databases():
    made = [database.Postgres().start() for _ in range(2)]
    yield made
    for one in made:
        one.end()


def stores(databases):
    return cells(f"postgres:{one.conninfo('postgres')}" for one in databases)


@pytest.fixture
def two(start, databases):
    """Two servers on two databases."""
    flags = stores(databases)
    return [start(engine="cells", flags=flags) for _ in range(2)]


def spread(queue, count, **fields):
    """Messages with a key each, so that every cell has some; their partitions."""
    partitions = []
    for n in range(count):
        answer = queue.enqueue(n, dedup_key=f"key {n}",
                               **{name: value(n) for name, value in fields.items()})
        assert answer.status == 201, answer
        partitions.append(answer["partition"])
    return partitions


def taken(queue, count, **fields):
    messages = []
    for _ in range(count):
        messages += queue.take(max=1, **fields)
    return messages


def test_one_queue_is_over_all_cells_and_in_order(three):
    queue = three.queue("q")
    partitions = spread(queue, 60, priority=lambda n: n % 3)
    assert set(partitions) == {0, 1, 2}
    assert queue.stats()["ready"] == 60
    got = [m["payload"] for m in taken(queue, 60)]
    assert got == sorted(range(60), key=lambda n: (-(n % 3), n))
    assert queue.take() == []


def test_a_batch_is_in_order_too(three):
    queue = three.queue("q")
    spread(queue, 60, priority=lambda n: n % 3)
    got = [m["payload"] for m in queue.take(max=100)]
    assert got == sorted(range(60), key=lambda n: (-(n % 3), n))


def test_a_key_is_known_in_whichever_cell_it_is(three):
    queue = three.queue("q")
    first = [queue.enqueue(n, dedup_key=f"k{n}") for n in range(30)]
    again = [queue.enqueue(n, dedup_key=f"k{n}") for n in range(30)]
    assert all(a["deduplicated"] for a in again)
    assert [a["message_id"] for a in again] == [a["message_id"] for a in first]
    assert queue.stats()["ready"] == 30


def test_nothing_is_lost_by_kill_nine(three):
    queue = three.queue("q")
    spread(queue, 40)
    held = queue.take(max=10)
    for message in queue.take(max=10):
        assert queue.ack(message).status == 204
    three.kill()
    three.start()
    queue = three.queue("q")
    stats = queue.stats()
    assert (stats["ready"], stats["in_flight"], stats["totals"]["acked"]) == (20, 10, 10)
    for message in held:
        assert queue.ack(message).status == 204
    assert sorted(m["payload"] for m in queue.take(max=100)) == list(range(20, 40))


def test_messages_are_listed_cancelled_and_purged_everywhere(three):
    queue = three.queue("q")
    spread(queue, 50)
    lines = queue.client.get(queue.path + "/export").body.splitlines()
    assert len(lines) == 50
    ident = queue.put("one")
    assert queue.client.delete(queue.message_path(ident), cancel=True).status == 204
    assert queue.post("purge").json["purged"] == 50
    assert queue.stats()["ready"] == 0


def test_dead_letters_of_all_cells_come_in_pages(three):
    queue = three.queue("q")
    queue.configure(max_attempts=1)
    spread(queue, 30)
    for message in queue.take(max=100):
        assert queue.nack(message).status == 200
    seen, after = [], {}
    while after is not None:
        page = queue.client.get(queue.path + "/dead", limit=7, **after).json
        seen += [m["payload"] for m in page["messages"]]
        after = {"after": page["next"]} if page["next"] else None
    assert sorted(seen) == list(range(30))
    assert queue.post("dead/redrive").json["redriven"] == 30
    assert queue.stats()["ready"] == 30


def test_limits_hold_over_all_cells(three):
    queue = three.queue("q")
    queue.configure(max_in_flight=5)
    spread(queue, 20)
    assert len(queue.take(max=100)) == 5
    assert queue.take() == []


def test_two_servers_serve_one_queue_over_two_databases(two):
    here, there = (server.queue("q") for server in two)
    here.configure()
    partitions = spread(here, 40, priority=lambda n: n % 4)
    assert set(partitions) == {0, 1}
    got = taken(there, 20) + taken(here, 20)
    assert [m["priority"] for m in got] == [3] * 10 + [2] * 10 + [1] * 10 + [0] * 10
    for message in got:
        assert here.ack(message).status == 204
    until(lambda: there.stats()["totals"]["acked"] == 40)


def test_who_waits_gets_what_comes_into_any_cell(two):
    here, there = (server.queue("q") for server in two)
    here.configure()
    for n in range(20):
        consumer = wait_on(two[1], there)
        assert here.enqueue(n, dedup_key=f"key {n}").status == 201
        assert payloads(consumer.answer()) == [n]
        consumer.close()


def test_a_cell_that_dies_stops_nothing_else(two, databases):
    """And comes back with everything that it had: places, leases, receipts."""
    queue = two[0].queue("q")
    queue.configure()
    partitions = spread(queue, 60)
    held = taken(queue, 10)
    databases[1].kill()
    lost = sum(p == 1 for p in partitions)
    in_time = []

    def goes_on():
        answer = queue.claim(max=1)
        in_time.extend(answer["messages"] if answer.status == 200 else [])
        return len(in_time) + len(held) >= 60 - lost
    until(goes_on)
    assert all(partitions[m["payload"]] == 0 for m in in_time)
    until(lambda: queue.enqueue("new").status == 201)
    databases[1].start()

    def comes_back():
        answer = queue.claim(max=1)
        in_time.extend(answer["messages"] if answer.status == 200 else [])
        return len(in_time) + len(held) == 61
    until(comes_back)
    got = held + in_time
    assert sorted(str(m["payload"]) for m in got) == sorted(["new", *map(str, range(60))])
    for message in got:
        assert queue.ack(message).status == 204
    until(lambda: queue.stats()["totals"]["acked"] == 61)


def test_a_queue_is_made_while_another_than_the_first_cell_is_away(two, databases):
    """It gets its partition there when the cell is back."""
    until(lambda: two[0].metrics()["triage_engine_cells_away"] == 0)
    databases[1].kill()
    until(lambda: two[0].metrics()["triage_engine_cells_away"] == 1)
    queue = two[0].queue("new")
    answer = queue.enqueue("first")
    assert (answer.status, answer["partition"]) == (201, 0)
    databases[1].start()

    def there():
        answer = queue.enqueue("x", dedup_key=os.urandom(8).hex())
        return answer.status == 201 and answer["partition"] == 1
    until(there)


def test_a_database_becomes_the_first_cell_by_configuration_alone(start, databases):
    alone = start(engine="postgres", postgres=databases[0].conninfo("postgres"))
    queue = alone.queue("q")
    old = [queue.put(n) for n in range(10)]
    held = queue.take(max=3)
    alone.stop()
    server = start(engine="cells", flags=stores(databases))
    queue = server.queue("q")
    for message in held:
        assert queue.ack(message).status == 204
    assert [m["message_id"] for m in taken(queue, 7)] == old[3:]
    until(lambda: queue.enqueue("x", dedup_key=os.urandom(8).hex())["partition"] == 1)


def test_a_cell_that_cannot_be_read_is_named(start, tmp_path):
    server = start(engine="cells", flags=cells([f"local:{tmp_path}/a"]))
    server.stop()
    server.flags = ["--cell", "a=nothing:x", "--cell", "B=memory"]
    status, said = server.start_refused()
    assert status != 0
    assert "cell: 'a': the engine of a cell is postgres, local or memory" in said
    assert "cell: 'B': takes NAME=ENGINE:STORE" in said


def test_schedules_are_set_shown_and_fired(three):
    queue = three.queue("q")
    queue.configure()
    path = queue.path + "/schedules/tick"
    answer = queue.client.put(path, {"every_seconds": 1, "payload": "tick"})
    assert answer.status == 201, answer
    assert queue.client.get(path).json["payload"] == "tick"
    assert [s["name"] for s in queue.client.get(queue.path + "/schedules").json["schedules"]] == ["tick"]
    assert queue.take_one(wait_seconds=60)["payload"] == "tick"
    assert queue.client.delete(path).status == 204


def test_a_queue_is_deleted_everywhere_while_others_use_it(three):
    queue = three.queue("q")
    for round in range(10):
        spread(queue, 9)
        answers = queue.client.delete(queue.path, force=True)
        assert answers.status == 204, answers
        assert queue.client.get(queue.path).status == 404
    spread(queue, 9)
    assert queue.stats()["totals"]["enqueued"] == 9


def test_a_store_that_stood_alone_is_joined_by_another(start, tmp_path):
    """The first queue of each has the same number in both, unless somebody sees to it."""
    alone = start(engine="local", data=tmp_path / "0")
    alone.queue("q").put("old")
    alone.stop()
    server = start(engine="cells", flags=cells(f"local:{tmp_path}/{n}" for n in range(2)))
    queue = server.queue("q")
    until(lambda: queue.enqueue("x", dedup_key=os.urandom(8).hex())["partition"] == 1)
    while messages := queue.take(max=10):
        for message in messages:
            assert queue.ack(message).status == 204
    stats = queue.stats()
    assert stats["totals"]["acked"] == stats["totals"]["enqueued"] > 1


# Placements


def place(queue, cell, status=204, **change):
    answer = queue.client.post(queue.path + "/placement", {"cell": cell, **change})
    assert answer.status == status, answer
    return answer


def placed(queue):
    answer = queue.client.get(queue.path + "/placement")
    assert answer.status == 200, answer
    return {p["cell"]: p for p in answer["partitions"]}


def test_a_drained_cell_gets_no_messages_and_can_be_removed_and_opened_again(three):
    queue = three.queue("q")
    queue.configure(dedup={"scope": "live"})
    spread(queue, 60)
    place(queue, "b", state="draining")
    assert placed(queue)["b"]["placement"] == "draining" and placed(queue)["b"]["buckets"] == 0
    held = placed(queue)["b"]["ready"]
    assert held > 0
    assert set(spread(three.queue("other"), 60)) == {0, 1, 2}
    again = [queue.enqueue(n, dedup_key=f"new {n}")["partition"] for n in range(60)]
    again += [queue.enqueue(n)["partition"] for n in range(20)]
    assert set(again) == {0, 2}
    refused = place(queue, "b", status=409, state="removed")
    assert "still holds" in refused["detail"]
    got = taken(queue, 140)
    assert len(got) == 140
    for message in got:
        assert queue.ack(message).status == 204
    place(queue, "b", state="removed")
    assert set(placed(queue)) == {"a", "c"}
    three.restart()
    queue = three.queue("q")
    assert set(placed(queue)) == {"a", "c"}
    place(queue, "b", state="open")
    assert set(placed(queue)) == {"a", "b", "c"}
    assert set(queue.enqueue(n, dedup_key=f"third {n}")["partition"] for n in range(60)) == {0, 1, 2}


def test_a_key_whose_bucket_has_moved_is_still_known(three):
    queue = three.queue("q")
    first = [queue.enqueue(n, dedup_key=f"k{n}") for n in range(40)]
    assert {a["partition"] for a in first} == {0, 1, 2}
    place(queue, "c", buckets="0-255")
    again = [queue.enqueue(n, dedup_key=f"k{n}") for n in range(40)]
    assert [a["message_id"] for a in again] == [a["message_id"] for a in first]
    assert {queue.enqueue(n, dedup_key=f"new {n}")["partition"] for n in range(20)} == {2}
    three.kill()
    three.start()
    queue = three.queue("q")
    batch = queue.client.post(queue.path + "/messages/batch",
                              {"messages": [{"payload": n, "dedup_key": f"k{n}"} for n in range(40)]})
    assert [a["message_id"] for a in batch["results"]] == [a["message_id"] for a in first]
    assert queue.stats()["ready"] == 60


def test_a_cell_with_keys_that_are_still_known_stays(three):
    queue = three.queue("q")
    message = next(m for m in (queue.enqueue(n, dedup_key=f"k{n}") for n in range(40))
                   if m["partition"] == 1)
    place(queue, "b", state="draining")
    for one in taken(queue, 40):
        assert queue.ack(one).status == 204
    assert "dedup keys are still known" in place(queue, "b", status=409, state="removed")["detail"]
    known = [queue.enqueue(n, dedup_key=f"k{n}") for n in range(40)]
    assert message["message_id"] in {answer["message_id"] for answer in known}


def test_a_placement_has_a_size(three):
    queue = three.queue("q")
    queue.configure()
    name = "n" * 64
    answers = [queue.client.post(queue.path + "/placement",
                                 {"cell": cell, "levels": [f"{n:02}{cell}{name}"[:64] for n in range(250)]})
               for cell in "abc"]
    assert {a.status for a in answers} <= {422, 409}
    assert three.running()


def test_levels_go_to_the_cells_that_want_them(three):
    queue = three.queue("q")
    queue.configure()
    place(queue, "a", levels=["9", "8"])
    assert placed(queue)["a"]["levels"] == ["9", "8"]
    assert {queue.enqueue(n, priority=9 - n % 2)["partition"] for n in range(10)} == {0}
    assert 0 not in {queue.enqueue(n, priority=n % 8)["partition"] for n in range(16)}
    place(queue, "a", levels=None)
    assert placed(queue)["a"]["levels"] is None


def test_what_cannot_be_placed_so_is_refused(three, start):
    queue = three.queue("q")
    queue.configure()
    assert place(queue, "nope", status=404, state="open").problem == "cell-not-found"
    place(queue, "a", status=422)
    place(queue, "a", status=422, levels=["9\0x"])
    place(queue, "a", status=422, state="open", buckets="1")
    place(queue, "a", status=409, buckets="256")
    place(queue, "a", status=409, state="removed")
    place(queue, "a", state="draining")
    place(queue, "b", state="draining")
    assert "open one first" in place(queue, "c", status=409, state="draining")["detail"]
    place(queue, "a", status=409, buckets="0")
    alone = start().queue("q")
    alone.configure()
    place(alone, "a", status=409, state="open")


def test_cells_are_listed_with_what_they_hold(three):
    spread(three.queue("q"), 30)
    spread(three.queue("r"), 30)
    cells = three.client().get("/v1/cells")["cells"]
    assert [c["cell"] for c in cells] == ["a", "b", "c"]
    assert sum(c["ready"] for c in cells) == 60
    assert all(c["partitions"] == c["open"] == 2 and c["state"] == "ok" for c in cells)


def split_of(server, cell):
    cells = server.client().get("/v1/cells")["cells"]
    return next((c["split"], c["split_detail"]) for c in cells if c["cell"] == cell)


def test_nothing_is_split_unless_it_is_asked_for(three):
    assert {split_of(three, cell) for cell in "abc"} == {("off", "")}


def test_a_partition_that_is_too_deep_gives_half_of_its_keys_away(start):
    """After that it rests. Nothing that is stored moves, and a known key is known."""
    server = start(engine="cells", flags=cells(["memory"] * 2) + [
        "--split", "on", "--split-depth", "40", "--split-after-seconds", "1",
        "--split-rest-seconds", "3600"])
    queue = server.queue("q")
    queue.configure(dedup={"window_seconds": 3600})
    place(queue, "a", buckets="0-255")
    assert split_of(server, "a") == ("calm", "")
    keys = [f"key {n}" for n in range(100)]
    for key in keys:
        assert queue.enqueue(key, dedup_key=key)["partition"] == 0
    until(lambda: placed(queue)["b"]["buckets"] == 128)
    assert placed(queue)["a"]["ready"] == 100
    assert all(queue.enqueue(key, dedup_key=key)["deduplicated"] for key in keys)
    new = [queue.enqueue(key, dedup_key=f"new {key}")["partition"] for key in keys]
    assert set(new) == {0, 1}
    until(lambda: split_of(server, "a")[0] == "rests")
    state, detail = split_of(server, "a")
    assert "messages are ready (split_depth 40)" in detail, detail
    assert "Last: 128 buckets of q went to b" in detail, detail
    assert placed(queue)["b"]["buckets"] == 128
    said = [line for line in server.log.lines if 'msg="cells: a queue is split"' in line]
    assert len(said) == 1
    assert "queue=q from=a to=b buckets=128 of=256 cause=depth" in said[0], said
    assert len(taken(queue, 200)) == 200


def test_a_partition_without_another_that_has_room_is_not_split(start):
    server = start(engine="cells", flags=cells(["memory"] * 2) + [
        "--split", "on", "--split-depth", "10", "--split-after-seconds", "1"])
    queue = server.queue("q")
    queue.configure()
    for n in range(200):
        queue.enqueue(n, dedup_key=f"key {n}")
    before = placed(queue)
    until(lambda: split_of(server, "a")[0] == "no-room")
    assert "no other cell has room" in split_of(server, "a")[1]
    assert [p["buckets"] for p in placed(queue).values()] == [
        p["buckets"] for p in before.values()]


def test_a_server_that_was_stopped_stores_nothing_in_a_closed_cell(two):
    """Its requests were on the way when the other server closed the cell."""
    here, there = (server.queue("q") for server in two)
    here.configure()
    keys = [f"key {n}" for n in range(40)]
    first = {key: there.enqueue(key, dedup_key=key)["partition"] for key in keys}
    assert set(first.values()) == {0, 1}
    place(here, "a", buckets="0-255")
    place(here, "b", buckets="0-255")
    until(lambda: there.enqueue("x", dedup_key=os.urandom(8).hex())["partition"] == 1)
    before = placed(here)["b"]["ready"]
    connection = Connection(two[1].address)
    os.kill(two[1].process.pid, signal.SIGSTOP)
    try:
        for n in range(30):
            connection.send(request_bytes(
                "POST", there.path + "/messages", b'{"payload": 1, "dedup_key": "late %d"}' % n,
                {"Content-Type": "application/json"}))
        place(here, "b", state="draining")
        until(lambda: placed(here)["b"]["ready"] >= before)
        before = placed(here)["b"]["ready"]
    finally:
        os.kill(two[1].process.pid, signal.SIGCONT)
    answers = [connection.answer() for _ in range(30)]
    connection.close()
    assert {a.status for a in answers} == {201}
    assert {a["partition"] for a in answers} == {0}
    assert placed(here)["b"]["ready"] == before
