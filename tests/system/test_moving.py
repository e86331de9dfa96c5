"""A queue moves from one server to another, with export and import: nothing of it is lost, and
nothing comes twice."""

import base64
import hashlib
import json

import pytest

from test_cli import DONE, REFUSED, USAGE, Shell
from wire import until

CONFIG = {
    "levels": [{"name": "high", "number": 9, "weight": 8}, {"name": "mid", "weight": 2},
               {"name": "low", "number": 1, "weight": 1}],
    "policy": "strict", "default_priority": "mid", "max_attempts": 3,
    "visibility_timeout_seconds": 77, "dedup": {"window_seconds": 3600, "scope": "window"},
}


class Place:
    def __init__(self, server, name="moving"):
        self.server = server
        self.queue = server.queue(name)
        self.shell = Shell(server, self.queue)

    def lines(self):
        text = self.shell.ok("export", self.queue.name)
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(params=["local-postgres", "postgres-local", "memory-memory"])
def two(start, request):
    old, new = request.param.split("-")
    return Place(start(engine=old)), Place(start(engine=new))


def fail(queue, times, reason):
    for _ in range(times):
        message = queue.take_one()
        assert queue.nack(message, reason=reason).status == 200


def fill(queue):
    """Something of everything."""
    queue.configure(**CONFIG)
    queue.put("poison", priority=9, metadata={"tenant": "acme", "trace_id": "abc"})
    fail(queue, 3, "it broke")
    queue.put("tried", priority=9, dedup_key="order-1")
    fail(queue, 2, "not yet")
    payloads = ["text", 'grüße\n\t"quoted"\x00', {"json": [1, None]}, 5, None, "", "x" * 100_000]
    for payload in payloads:
        queue.put(payload, priority="mid", metadata={"n": 1})
    queue.client.post(queue.path + "/messages/batch", {"messages": [
        {"payload": f"together {n}", "priority": 1} for n in range(50)]})
    queue.client.request("POST", queue.path + "/messages", bytes(range(256)) * 100,
                         {"Content-Type": "application/octet-stream"}, {"priority": 9})
    queue.put("later", delay_seconds=3600, dedup_key="order-2")
    queue.put("mortal", ttl_seconds=3600)
    queue.put("first", dequeue_at=-5)
    raised = queue.put("raised", priority=1)
    answer = queue.client.post(queue.message_path(raised) + "/priority",
                               {"priority": 9, "actor": "ann", "reason": "vip"})
    assert answer.status == 200, answer
    queue.put("held", priority=9, dequeue_at=-10)
    queue.put("behind it", priority=9, dequeue_at=-10)
    assert queue.take_one()["payload"] == "held"


def essence(line):
    """What must be the same on both sides: all but the id, and a lease, which stays behind."""
    state = "ready" if line["state"] == "leased" else line["state"]
    return {**{k: v for k, v in line.items() if k != "message_id"}, "state": state}


def by_text(lines):
    return sorted((json.dumps(essence(line), sort_keys=True) for line in lines))


def test_everything_is_as_it_was(two, tmp_path):
    old, new = two
    fill(old.queue)
    file = tmp_path / "moving.ndjson"
    old.shell.ok("export", "moving", "--output", file)
    head, *lines, foot = map(json.loads, file.read_text().splitlines())
    assert foot == {"exported": len(lines)} and len(lines) == 66
    assert new.shell.json("import", "moving", file) == {
        "stored": 66, "known": 0, "deduplicated": 0, "failed": 0}
    head_now, *lines_now, _ = new.lines()
    assert head_now == head
    assert by_text(lines_now) == by_text(lines)
    assert new.queue.stats()["dlq_depth"] == 1

    again = new.queue.enqueue("twice", dedup_key="order-1")
    assert again.status == 200 and again["deduplicated"], "the key is still in its window"
    [dead] = new.queue.dead()
    [before] = old.queue.dead()
    assert {k: v for k, v in dead.items() if k != "message_id"} == \
           {k: v for k, v in before.items() if k != "message_id"}
    assert new.queue.post("dead/redrive")["redriven"] == 1

    assert old.queue.post("dead/redrive")["redriven"] == 1
    until(lambda: old.queue.stats()["in_flight"] == 1)
    order = [essence_of_claim(m) for m in new.queue.take(max=100)]
    assert order[0]["payload"] == "held", "it stands where it stood before its lease"
    assert order[1:] == [essence_of_claim(m) for m in old.queue.take(max=100)]


def essence_of_claim(message):
    """Attempts, levels, payloads, times: all that a consumer sees but ids and receipts."""
    return {k: v for k, v in message.items() if k not in ("message_id", "receipt_handle")}


def test_an_import_can_be_repeated(two, tmp_path):
    old, new = two
    fill(old.queue)
    file = tmp_path / "moving.ndjson"
    old.shell.ok("export", "moving", "--output", file)
    new.shell.ok("import", "moving", file)
    done = new.queue.take_one()
    assert new.queue.ack(done).status == 204
    before = new.queue.stats()
    assert new.shell.json("import", "moving", file)["known"] == 66
    after = new.queue.stats()
    assert {k: after[k] for k in ("ready", "scheduled", "in_flight", "dlq_depth", "totals")} == \
           {k: before[k] for k in ("ready", "scheduled", "in_flight", "dlq_depth", "totals")}


def test_through_a_pipe_and_under_another_name(two):
    old, new = two
    fill(old.queue)
    old.shell.ok("queue", "pause", "moving")
    text = old.shell.ok("export", "moving").encode() + b"\n"
    assert new.shell.json("import", "other", "-", stdin=text)["stored"] == 66
    made = new.shell.json("queue", "get", "other")
    assert (made["visibility_timeout_seconds"], made["paused"]) == (77, True)


def test_dead_letters_alone_come_back_dead(two):
    old, new = two
    fill(old.queue)
    new.queue.configure(**CONFIG)
    text = old.shell.ok("export", "moving", "--dead").encode()
    assert new.shell.json("import", "moving", "-", stdin=text)["stored"] == 1
    [dead] = new.queue.dead()
    assert (dead["payload"], dead["reason"], dead["attempts"]) == ("poison", "it broke", 3)
    assert new.queue.take(max=10) == []


def test_several_queues_follow_each_other(two, tmp_path):
    """Each begins with the same numbers, on a server that numbers its messages on from queue to
    queue; and the new server is in use meanwhile."""
    old, new = two
    new.queue.put("first")
    for name in ("one", "two", "three"):
        queue = old.server.queue(name)
        queue.put_all([{"payload": f"{name} {n}"} for n in range(100)])
        file = tmp_path / name
        old.shell.ok("export", name, "--output", file)
        new.server.queue(name).put(f"{name} new")
        assert new.shell.json("import", name, file)["stored"] == 100
        moved = new.server.queue(name).take_payloads(101)
        assert sorted(moved) == sorted([f"{name} {n}" for n in range(100)] + [f"{name} new"])


def test_a_queue_that_is_there_keeps_its_configuration_unless_asked(two, tmp_path):
    old, new = two
    old.queue.configure(**CONFIG)
    old.queue.put("x")
    new.queue.configure(**{**CONFIG, "max_attempts": 9})
    file = tmp_path / "moving.ndjson"
    old.shell.ok("export", "moving", "--output", file)
    done = new.shell.run("import", "moving", file)
    assert done.returncode == DONE and b"--configure" in done.stderr
    assert new.shell.json("queue", "get", "moving")["max_attempts"] == 9
    new.shell.ok("import", "moving", file, "--configure")
    assert new.shell.json("queue", "get", "moving")["max_attempts"] == 3


def test_an_export_without_its_end_is_refused(two, tmp_path):
    old, new = two
    old.queue.configure(**CONFIG)
    old.queue.put("x")
    old.queue.put("y")
    lines = old.shell.ok("export", "moving").splitlines()
    for kept in (lines[:-1], lines[:1] + lines[2:], lines[:2]):
        done = new.shell.run("import", "moving", "-", stdin="\n".join(kept).encode())
        assert done.returncode == USAGE and b"nothing was stored" in done.stderr, done
    assert new.queue.client.get("/v1/queues/moving").status == 404


def test_lines_that_make_no_sense_are_refused_by_number_and_field(two):
    old, new = two
    old.queue.configure(**CONFIG)
    old.queue.put("x")
    _, line, _ = old.lines()
    new.queue.configure(**CONFIG)
    wrong = [
        ({"attempts": -1}, "/attempts"), ({"attempts": 65536}, "/attempts"),
        ({"state": "done"}, "/state"), ({"enqueued_at": "yesterday"}, "/enqueued_at"),
        ({"enqueued_at": None}, "/enqueued_at"), ({"state": "dead"}, "/died_at"),
        ({"reason": "r" * 1025}, "/reason"), ({"priority": 4}, "priority 4"),
        ({"message_id": "msg_1"}, "/message_id"), ({"nonsense": 1}, "/nonsense"),
        ({"escalated": {"from": 9}}, "/escalated"),
        ({"escalated": {"at": "2026-01-01T00:00:00Z", "actor": "a" * 129}}, "/escalated/actor"),
        ({"dequeue_at": 1 << 60}, "/dequeue_at"), ({"payload_base64": "AA=="}, "/payload"),
    ]
    text = "\n".join(json.dumps({**line, **change}) for change, _ in wrong)
    done = new.shell.run("import", "moving", "-", stdin=text.encode())
    said = done.stderr.decode().splitlines()
    assert done.returncode == REFUSED and len(said) == len(wrong), done.stderr.decode()
    for number, (_, field) in enumerate(wrong, 1):
        assert any(f"line {number}:" in each and field in each for each in said), (number, said)
    assert new.queue.stats()["totals"]["enqueued"] == 0


def test_only_an_administrator_may_import(start, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{role} {hashlib.sha256(role.encode()).hexdigest()} {role}\n"
                              for role in ("admin", "produce")))
    server = start(engine="memory", tokens_file=tokens)

    def status(role):
        client = server.client(token=role)
        return client.request("POST", "/v1/queues/q/messages/import", b"{}",
                              {"Content-Type": "application/x-ndjson"}).status

    assert (status("produce"), status("admin")) == (403, 200)


def test_bytes_come_back_as_bytes(two):
    old, new = two
    raw = bytes(range(256)) * 8
    old.queue.client.request("POST", old.queue.path + "/messages", raw,
                             {"Content-Type": "application/octet-stream"})
    text = old.shell.ok("export", "moving").encode()
    new.shell.ok("import", "moving", "-", stdin=text)
    assert base64.b64decode(new.queue.take_one()["payload_base64"]) == raw
