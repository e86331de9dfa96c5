"""Browsing: messages are looked for without being claimed, with the same result on every engine and
over several cells."""

import re

import pytest

from server import Server, tokens_file
from test_cells import cells
from wire import AT_ONCE, until

ARRANGEMENTS = ["memory", "local", "local-tiny", "postgres", "cells"]
STATES = ["scheduled", "ready", "leased", "dead", "done"]


@pytest.fixture(scope="module", params=ARRANGEMENTS)
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    options = {"engine": request.param}
    if request.param == "local-tiny":  # nearly every message is on the disk alone
        options = {"engine": "local", "memory_limit": "4K"}
    if request.param == "cells":
        options["flags"] = cells(["memory:", f"local:{folder}/cell"])
    shared = Server(folder, **options).start()
    try:
        yield shared
        shared.stop()
    finally:
        shared.end()


def pages(queue, **query):
    """All that match, page after page."""
    found = []
    while True:
        answer = queue.client.get(queue.path + "/messages/browse", **query)
        assert answer.status == 200, answer
        assert len(answer["messages"]) <= int(query.get("limit", 100))
        found += answer["messages"]
        if answer["next"] is None:
            return found
        query["after"] = answer["next"]


def ids(messages):
    return sorted(message["message_id"] for message in messages)


def some_of_each_state(queue):
    """{state: ids}, six of each, with other levels and other metadata every time."""
    queue.configure(profile="levels", max_attempts=1, retry=AT_ONCE, history_seconds=3600)
    there = {state: [] for state in STATES}
    for state in ("leased", "dead", "done", "scheduled", "ready"):
        for n in range(6):
            fields = {"priority": n % 3, "metadata": {"n": n, "even": n % 2 == 0, "who": f"w{n}"}}
            if state == "scheduled":
                fields["delay_seconds"] = 3600
            message = queue.put(f"payload of {state} {n}", **fields)
            there[state].append(message)
            if state in ("leased", "dead", "done"):
                taken = queue.take_one(visibility_timeout_seconds=600, wait_seconds=30)
                assert taken["message_id"] == message
            if state == "dead":
                queue.nack(taken, reason=f"reason {n % 2}")
            if state == "done":
                queue.ack(taken)
    return there


def test_every_state_can_be_browsed_alone(queue):
    there = some_of_each_state(queue)
    for state in STATES:
        found = pages(queue, state=state)
        assert ids(found) == sorted(there[state]), state
        assert {message["state"] for message in found} == {state}
    alive = [m for state in STATES if state != "done" for m in there[state]]
    assert ids(pages(queue)) == sorted(alive)
    assert queue.stats()["ready"] == 6  # nothing was claimed


def test_pages_of_any_size_show_each_message_once(queue):
    there = some_of_each_state(queue)
    for limit in (1, 2, 5, 100):
        for state in STATES:
            assert ids(pages(queue, state=state, limit=limit)) == sorted(there[state]), state
        assert len(pages(queue, limit=limit)) == 24


def test_conditions_hold_together(queue):
    there = some_of_each_state(queue)
    assert ids(pages(queue, state="ready", level=1)) == sorted(there["ready"][1::3])
    assert ids(pages(queue, state="leased", level=2)) == sorted(there["leased"][2::3])
    assert ids(pages(queue, **{"meta.who": "w4"})) == sorted(
        there[state][4] for state in STATES if state != "done")
    assert ids(pages(queue, **{"meta.even": "true", "state": "scheduled"})) == sorted(
        there["scheduled"][::2])
    assert ids(pages(queue, **{"meta.n": "3", "meta.even": "false", "state": "dead"})) == [
        there["dead"][3]]
    assert pages(queue, **{"meta.n": "3", "meta.even": "true"}) == []
    assert ids(pages(queue, payload_contains="of ready 5")) == [there["ready"][5]]
    assert ids(pages(queue, payload_contains="of done", state="done", level=0)) == sorted(
        there["done"][::3])
    assert ids(pages(queue, state="dead", reason="reason 1")) == sorted(there["dead"][1::2])
    assert pages(queue, state="dead", reason="reason") == []
    assert pages(queue, older_than=3600) == []
    assert len(pages(queue, older_than=0)) == 24


def test_what_is_looked_for_is_found_behind_thousands_of_others(queue):
    queue.put_all([{"payload": "straw", "metadata": {"kind": "straw"}} for _ in range(3000)])
    needle = queue.put("needle", metadata={"kind": "needle"})
    queue.put_all([{"payload": "straw", "metadata": {"kind": "straw"}} for _ in range(500)])
    leased = queue.take_one(visibility_timeout_seconds=600)["message_id"]
    assert ids(pages(queue, **{"meta.kind": "needle"}, payload=False)) == [needle]
    assert ids(pages(queue, payload_contains="needle")) == [needle]
    assert ids(pages(queue, state="leased")) == [leased]


def test_a_call_looks_at_so_many_messages_and_says_how_to_go_on(queue):
    queue.put_all([{"payload": "straw"} for _ in range(3000)])
    answer = queue.client.get(queue.path + "/messages/browse", payload_contains="needle")
    assert answer["messages"] == [] and answer["looked_at"] < 3000 and answer["next"]
    looked, calls = answer["looked_at"], 1
    while answer["next"]:
        answer = queue.client.get(queue.path + "/messages/browse", payload_contains="needle",
                                  after=answer["next"])
        looked, calls = looked + answer["looked_at"], calls + 1
    assert looked == 3000 and calls == 2


def lists(client):
    """How many operations have listed messages."""
    text = client.get("/metrics").body.decode()
    return int(re.search(r'^triage_engine_ops_total\{verb="list"\} (\d+)$', text, re.M)[1])


def test_payloads_that_are_looked_through_are_few_at_a_time(queue):
    big = "ab" * (128 * 1024 - 100)
    for _ in range(3):
        queue.put_all([{"payload": big} for _ in range(8)])
    found = queue.put(big + "c")
    queue.put_all([{"payload": big} for _ in range(8)])
    part = "ab" * 100 + "c"
    assert ids(pages(queue, payload_contains=part, payload=False)) == [found]
    before = lists(queue.client)
    answer = queue.client.get(queue.path + "/messages/browse", payload_contains="abac")
    assert answer["messages"] == [] and answer["looked_at"] == 33 and answer["next"] is None
    until(lambda: lists(queue.client) - before >= 33 / 5)
    before = lists(queue.client)
    dry = queue.client.post(queue.path + "/messages/cancel",
                            {"filter": {"payload_contains": part}, "dry_run": True})
    assert dry["matched"] == 1 and dry["looked_at"] == 33 and dry["sample"] == [found]
    until(lambda: lists(queue.client) - before >= 33 / 5)


def test_a_payload_is_shown_unless_it_is_not_wanted(queue):
    queue.put("secret", metadata={"a": 1})
    [shown] = pages(queue)
    [bare] = pages(queue, payload=False)
    assert shown["payload"] == "secret" and shown["metadata"] == bare["metadata"] == {"a": 1}
    assert "payload" not in bare
    assert {k: v for k, v in shown.items() if k != "payload"} == bare


def test_what_cannot_be_asked_for_is_refused(queue):
    queue.put("x")
    for query, field in [({"state": "gone"}, "/state"), ({"limit": 0}, "/limit"),
                         ({"limit": 1001}, "/limit"), ({"after": "x"}, "/after"),
                         ({"after": "7-99-0-1"}, "/after"), ({"older_than": -1}, "/older_than"),
                         ({"payload_contains": ""}, "/payload_contains"),
                         ({"payload_contains": "x" * 257}, "/payload_contains"),
                         ({"payload": "maybe"}, "/payload"), ({"colour": "red"}, "/colour")]:
        answer = queue.client.get(queue.path + "/messages/browse", **query)
        assert answer.status == 422 and answer.json["field"] == field, answer
    answer = queue.client.get(queue.path + "/messages/browse", level="NO-SUCH")
    assert answer.refusal == (422, "unknown-priority") and answer.json["field"] == "/level", answer
    answer = queue.client.get("/v1/queues/not-there/messages/browse")
    assert answer.refusal == (404, "queue-not-found"), answer


def test_a_token_that_may_not_read_may_not_browse(start, tmp_path):
    tokens = tokens_file(tmp_path, [("reader", "r-token", "read"),
                                    ("producer", "p-token", "produce"),
                                    ("consumer", "c-token", "consume")])
    server = start(engine="memory", tokens_file=tokens)
    status = {name: server.client(token=f"{name}-token").get("/v1/queues/q/messages/browse").status
              for name in "rpc"}
    assert status == {"r": 404, "p": 403, "c": 403}
