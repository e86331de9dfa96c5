"""A queue moves from one server to another, with export and import: nothing of it is lost, and
nothing comes twice."""

import base64
import hashlib
import json

import pytest

from test_cli import DONE, REFUSED, USAGE, Shell
from wire import AT_ONCE, until

CONFIG = {
    "levels": [{"name": "high", "number": 9, "weight": 8}, {"name": "mid", "weight": 2},
               {"name": "low", "number": 1, "weight": 1}],
    "policy": "strict", "default_priority": "mid", "max_attempts": 3, "retry": AT_ONCE,
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
        ({"reason": "r" * 1025}, "/reason"), ({"level": ""}, "/level"),
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


TIERS = ["BACKGROUND", "LOW", "NORMAL", "HIGH", "CRITICAL"]


def export_of_tiers(old, tmp_path, edit=None):
    """A message of each level, the least urgent first."""
    old.queue.configure(profile="tiers", policy="strict")
    for name in TIERS:
        old.queue.put(name, priority=name)
    lines = old.lines()
    if edit:
        for line in lines:
            edit(line)
    file = tmp_path / "tiers.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def drain(queue, count):
    return [queue.take_one()["payload"] for _ in range(count)]


def test_levels_that_the_queue_does_not_have_are_refused_before_anything_is_stored(two, tmp_path):
    """Producers made it before the import did: BACKGROUND is 4 there, and 4 is more than 0."""
    old, new = two
    new.queue.put("first")
    file = export_of_tiers(old, tmp_path)
    done = new.shell.run("import", "moving", file)
    said = done.stderr.decode()
    assert done.returncode == REFUSED, done
    assert "nothing was stored" in said and "--map" in said and "--configure" in said
    assert all(name in said for name in TIERS)
    assert new.queue.stats()["totals"]["enqueued"] == 1
    new.shell.run("import", "moving", file, "--map", "LOW=3")
    assert new.queue.stats()["totals"]["enqueued"] == 1, "four of them still have no place"


def test_levels_are_mapped_by_hand(two, tmp_path):
    old, new = two
    new.queue.put("first")
    file = export_of_tiers(old, tmp_path)
    maps = [word for pair in ("CRITICAL=9", "HIGH=8", "NORMAL=5", "LOW=3", "BACKGROUND=0")
            for word in ("--map", pair)]
    assert new.shell.json("import", "moving", file, *maps)["stored"] == 5
    assert set(drain(new.queue, 2)) == {"CRITICAL", "HIGH"}
    assert set(drain(new.queue, 2)) == {"first", "NORMAL"}
    assert drain(new.queue, 2) == ["LOW", "BACKGROUND"]
    for wrong in ("LOW", "=3", "LOW=", "LOW=77", "CRITCAL=9"):
        done = new.shell.run("import", "moving", file, *maps, "--map", wrong)
        assert done.returncode == USAGE and wrong.encode() in done.stderr, done
    assert b"CRITICAL, HIGH, NORMAL, LOW, BACKGROUND" in done.stderr, "those that the file has"


def test_a_level_of_the_file_may_be_named_by_its_number(two, tmp_path):
    old, new = two
    file = export_of_tiers(old, tmp_path)
    new.queue.configure(profile="tiers")
    maps = ["--map", "3=HIGH", "--map", "4=1"]
    assert new.shell.json("import", "moving", file, *maps)["stored"] == 5
    levels = {m["payload"]: m["level"] for m in new.queue.take(max=10)}
    assert levels == {**{name: name for name in TIERS}, "LOW": "HIGH", "BACKGROUND": "HIGH"}


def test_levels_of_an_old_export_may_be_named(two, tmp_path):
    """Its lines have numbers alone, its head has the names."""
    old, new = two
    file = export_of_tiers(old, tmp_path, lambda line: line.pop("level", None))
    new.queue.put("first")
    refused = new.shell.run("import", "moving", file).stderr.decode()
    assert all(name in refused for name in TIERS) and "only a number" not in refused
    maps = [word for pair in ("CRITICAL=9", "HIGH=8", "NORMAL=5", "LOW=3", "4=0")
            for word in ("--map", pair)]
    assert new.shell.json("import", "moving", file, *maps)["stored"] == 5
    levels = {m["payload"]: m["level"] for m in new.queue.take(max=10)}
    assert levels == {"first": "5", "CRITICAL": "9", "HIGH": "8", "NORMAL": "5", "LOW": "3",
                      "BACKGROUND": "0"}


def test_a_mistake_on_the_command_line_reports_no_numbers(two, tmp_path):
    old, new = two
    file = export_of_tiers(old, tmp_path)
    new.queue.put("first")
    done = new.shell.run("import", "moving", file, "--map", "CRITCAL=9")
    assert done.returncode == USAGE and done.stdout == b"", done


def test_a_queue_that_fills_is_configured_with_its_levels_merged(two, tmp_path):
    old, new = two
    new.queue.put("first")
    new.queue.put("zero", priority=0)
    file = export_of_tiers(old, tmp_path)
    done = new.shell.run("import", "moving", file, "--configure")
    assert done.returncode == DONE and b"0-old" in done.stderr, done
    assert b"0 is CRITICAL now and was 0, 1 is HIGH now and was 1" in done.stderr
    new.queue.put("urgent", priority=0)
    assert drain(new.queue, 8) == ["CRITICAL", "urgent", "HIGH", "NORMAL", "LOW", "BACKGROUND",
                                   "first", "zero"]
    assert new.shell.json("import", "moving", file, "--configure")["known"] == 5
    assert new.shell.json("queue", "get", "moving")["profile"] == "custom", "all are leased"


def test_a_line_goes_by_the_name_of_its_level_whatever_its_number(two, tmp_path):
    old, new = two
    new.queue.configure(policy="strict", levels=[
        {"name": name, "number": number} for number, name in enumerate(TIERS)][::-1])
    file = export_of_tiers(old, tmp_path)
    assert new.shell.json("import", "moving", file)["stored"] == 5
    assert drain(new.queue, 5) == TIERS[::-1]


def test_an_old_export_has_no_names(two, tmp_path):
    """Its head has: the number is that of the queue it comes from."""
    old, new = two
    file = export_of_tiers(old, tmp_path, lambda line: line.pop("level", None))
    assert new.shell.json("import", "same", file)["stored"] == 5
    assert drain(new.server.queue("same"), 5) == TIERS[::-1]
    new.queue.put("first")
    assert new.shell.run("import", "moving", file).returncode == REFUSED
    headless = "\n".join(file.read_text().splitlines()[1:-1]).encode()
    done = new.shell.run("import", "same", "-", stdin=headless)
    assert done.returncode == REFUSED and b"--map" in done.stderr, "nobody knows what 4 is"
    assert new.queue.stats()["totals"]["enqueued"] == 1


def test_where_a_message_was_escalated_from_goes_by_name_too(two, tmp_path):
    old, new = two
    old.queue.configure(profile="tiers")
    message = old.queue.put("x", priority="BACKGROUND")
    old.queue.client.post(old.queue.message_path(message) + "/priority", {"priority": "HIGH"})
    new.queue.put("first")
    text = old.shell.ok("export", "moving").encode()
    new.shell.ok("import", "moving", "-", "--map", "HIGH=8", stdin=text)
    [line] = [each for each in new.lines() if each.get("payload") == "x"]
    assert (line["level"], line["escalated"]["from_level"]) == ("8", "8"), "BACKGROUND is not here"
    new.shell.ok("import", "other", "-", stdin=text)
    [line] = [json.loads(each) for each in new.shell.ok("export", "other").splitlines()][1:-1]
    assert (line["escalated"]["from"], line["escalated"]["from_level"]) == (4, "BACKGROUND")


def test_the_api_refuses_an_import_of_strange_levels_as_a_whole(two, tmp_path):
    old, new = two
    old.queue.configure(levels=[{"name": "9"}, {"name": "LOW", "number": 3}])
    old.queue.put("known", priority="9")
    old.queue.put("strange", priority=3)
    new.queue.put("first")
    lines = "\n".join(json.dumps(line) for line in old.lines()[1:-1]).encode()

    def send(**query):
        return new.queue.client.request("POST", new.queue.path + "/messages/import", lines,
                                        {"Content-Type": "application/x-ndjson"}, query)

    answer = send()
    assert answer.refusal == (422, "unknown-priority")
    assert "LOW" in answer["detail"] and "map.LOW=" in answer["detail"]
    assert new.queue.stats()["totals"]["enqueued"] == 1
    assert send(**{"map.LOW": 77}).refusal == (422, "unknown-priority")
    assert send(**{"mop.LOW": 3}).refusal == (422, "unknown-field")
    results = send(**{"map.LOW": 2})["results"]
    assert [new.queue.show(each["message_id"])["level"] for each in results] == ["9", "2"]


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


# None of them can have come from a list: a phase, a level, a time or a number that there is not.
CURSORS = ["80000000-0-0-0", "ffffffff-0-0-0", "5-0-0-0", "0-10-0-0", "2-ffffffff-0-0",
           "0-0-7fffffffffffffff-0", "0-0-8000000000000000-1", "0-0-0-1000000000000",
           "0-0-0-ffffffffffffffff", "4-0-0-ffffffffffffffff"]


@pytest.mark.parametrize("state", [{}, {"state": "dead"}])
@pytest.mark.parametrize("cursor", CURSORS)
def test_a_cursor_that_no_list_gave_is_refused_and_starts_no_query(queue, cursor, state):
    queue.put("x")
    answer = queue.client.get(queue.path + "/export", after=cursor, **state)
    assert answer.refusal == (422, "invalid-field") and answer["field"] == "/after", answer
    assert "start from the beginning" in answer["detail"]


def test_every_cursor_that_a_list_gives_is_taken_back(queue):
    queue.configure(profile="tiers", max_attempts=1, history_seconds=3600)
    for number in range(12):
        queue.put("x" * (number * 500), priority=["CRITICAL", "LOW"][number % 2],
                  **({"delay_seconds": 600} if number > 8 else {}))
    queue.nack(queue.take_one())
    queue.ack(queue.take_one())
    queue.take_one()
    for state in ({}, {"state": "dead"}):
        ids, after = [], {}
        while True:
            page = queue.client.get(queue.path + "/export", limit=1, **after, **state)
            assert page.status == 200, page
            ids += [json.loads(line)["message_id"] for line in page.body.splitlines()]
            if not (cursor := page.headers.get("x-next-cursor")):
                break
            after = {"after": cursor}
        assert len(ids) == len(set(ids)) == (1 if state else 11)
