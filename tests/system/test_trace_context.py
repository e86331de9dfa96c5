"""A trace context (the header traceparent) goes from an enqueue to the claim, on every engine, and
through the client. What is wrong with it harms no message."""

import contextlib
import json
import os
import subprocess

import psycopg2
import pytest

from server import TRIAGE
from wire import DEADLINE

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00"


def enqueue(queue, body, context, path="messages", **headers):
    answer = queue.client.request("POST", f"{queue.path}/{path}", body,
                                  headers={"traceparent": context, **headers})
    assert answer.status in (200, 201), answer
    return answer


def test_a_context_comes_back_with_the_claim(queue):
    enqueue(queue, {"payload": "a", "metadata": {"tenant": "acme"}}, CONTEXT)
    enqueue(queue, {"payload": "b"}, CONTEXT)
    queue.put("c")
    for payload, metadata in (("a", {"traceparent": CONTEXT, "tenant": "acme"}),
                              ("b", {"traceparent": CONTEXT}), ("c", {})):
        message = queue.take_one()
        assert (message["payload"], message["metadata"]) == (payload, metadata)
        assert message.get("traceparent") == metadata.get("traceparent")


def test_a_context_stays_over_attempts_and_death(queue):
    queue.configure(max_attempts=2)
    enqueue(queue, {"payload": "a"}, CONTEXT)
    for _ in range(2):
        message = queue.take_one()
        assert message["traceparent"] == CONTEXT
        queue.nack(message, delay_seconds=0)
    [dead] = queue.dead()
    assert dead["metadata"] == {"traceparent": CONTEXT}


def test_bytes_and_batches_have_contexts_too(queue):
    enqueue(queue, b"\xff", CONTEXT, **{"Content-Type": "application/octet-stream"})
    assert queue.take_one()["traceparent"] == CONTEXT
    enqueue(queue, {"messages": [{"payload": 1}, {"payload": 2, "metadata": {"traceparent": OTHER}}]},
            CONTEXT, "messages/batch")
    enqueue(queue, b'{"payload": 3}\n', CONTEXT, "messages/batch",
            **{"Content-Type": "application/x-ndjson"})
    assert [queue.take_one()["traceparent"] for _ in range(3)] == [CONTEXT, OTHER, CONTEXT]


@pytest.mark.parametrize("context", ["", "00-1-2-3", CONTEXT.upper(), CONTEXT + "-x", "x" * 3000,
                                     CONTEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)])
def test_a_malformed_context_is_left_out(queue, context):
    enqueue(queue, {"payload": "a"}, context)
    message = queue.take_one()
    assert message["metadata"] == {} and "traceparent" not in message


def test_a_context_never_takes_room_from_metadata(queue):
    large = {"a": "x" * 4080}
    many = {f"k{i}": i for i in range(64)}
    for metadata in (large, many):
        enqueue(queue, {"payload": "a", "metadata": metadata}, CONTEXT)
        message = queue.take_one()
        assert message["metadata"] == metadata and "traceparent" not in message


def test_a_payload_that_looks_like_a_context_is_none(queue):
    queue.put("a", metadata={"note": f'"traceparent":"{CONTEXT}"'})
    assert "traceparent" not in queue.take_one()


def triage(server, *arguments, **variables):
    address = "http://%s:%d" % server.address
    done = subprocess.run([TRIAGE, "--server", address, *arguments], capture_output=True,
                          env={**os.environ, **variables}, timeout=DEADLINE)
    assert done.returncode == 0, done
    return done.stdout.decode()


def test_the_client_takes_a_context_from_its_environment_and_hands_it_to_handlers(server, queue):
    triage(server, "enqueue", queue.name, "a", TRACEPARENT=CONTEXT)
    triage(server, "enqueue", queue.name, "b", TRACEPARENT="not\nthis")
    assert triage(server, "work", queue.name, "--once", "--", "sh", "-c",
                  "cat >/dev/null; echo $TRACEPARENT", TRACEPARENT=OTHER) == CONTEXT + "\n"
    shown = json.loads(triage(server, "claim", queue.name, "--json"))
    assert "traceparent" not in shown["messages"][0]


def test_sql_and_http_have_the_same_context(server, queue):
    if server.engine != "postgres":
        pytest.skip("SQL is the engine postgres")
    with contextlib.closing(psycopg2.connect(server.settings["postgres"])) as db, db.cursor() as sql:
        db.autocommit = True
        queue.configure()
        enqueue(queue, {"payload": "a"}, CONTEXT)
        sql.execute("SELECT metadata->>'traceparent' FROM triage.claim(%s)", (queue.name,))
        assert sql.fetchone() == (CONTEXT,)
        sql.execute("SELECT triage.enqueue(%s, 'b', metadata => %s)",
                    (queue.name, json.dumps({"n": 1, "traceparent": OTHER})))
    assert queue.take_one(wait_seconds=20)["traceparent"] == OTHER
