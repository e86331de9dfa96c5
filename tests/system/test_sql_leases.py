"""Leases through the SQL interface on a real PostgreSQL: receipts, attempts, and what time does to
a message."""

import psycopg2
import pytest


FOREVER = 281474976710656


# Receipts


def test_only_the_present_receipt_opens_a_message(q):
    q.put()
    first = q.claim()[0]
    forged = dict(first, receipt_handle="rh_" + "0" * 26)
    for verb in ("ack", "nack", "release"):
        assert q.refusal(f"SELECT triage.{verb}(%s, %s)", forged["message_id"],
                         forged["receipt_handle"]) == ("TR409", "receipt-expired")
    assert q.state(first["message_id"]) == "leased"
    assert q.one("SELECT triage.extend(%s, %s, '1h') > now() + interval '59 minutes'",
                 first["message_id"], first["receipt_handle"])
    assert q.nack(first) == "ready"
    second = q.claim()[0]
    assert second["message_id"] == first["message_id"]
    assert second["receipt_handle"] != first["receipt_handle"]
    assert q.refusal("SELECT triage.ack(%s, %s)", first["message_id"],
                     first["receipt_handle"]) == ("TR409", "receipt-expired")
    q.ack(second)
    assert q.refusal("SELECT triage.ack(%s, %s)", second["message_id"],
                     second["receipt_handle"]) == ("TR404", "message-not-found")


def test_a_receipt_dies_with_its_lease(q):
    at = q.at(1000)
    at.put(b"x")
    m = at.claim(lease=100)
    assert [r["status"] for r in q.at(1100).ack(m)] == ["receipt-expired"]
    assert [r["status"] for r in q.at(1100).extend(m, 100)] == ["receipt-expired"]
    assert [r["status"] for r in q.at(1099).extend(m, 100)] == [None]
    assert [(r["status"], r["state"]) for r in q.at(1198).ack(m)] == [(None, "done")]


def test_each_item_of_a_batch_has_its_own_answer(q):
    at = q.at(1000)
    at.put(b"a", b"b", b"c")
    a, b, c = at.claim(want=3)
    wrong = dict(c, receipt=psycopg2.Binary(bytes(16)))
    gone = dict(a, seq=FOREVER - 1)
    answers = at.ack([a, wrong, gone, a, b])
    assert [r["status"] for r in answers] == [None, "receipt-expired", "message-not-found",
                                              "message-not-found", None]
    assert [r["status"] for r in at.nack([c, c])] == [None, "receipt-expired"]


def test_ack_many_answers_in_kind(q):
    q.put("1")
    q.put("2")
    got = q.claim(2)
    assert q.rows("SELECT status FROM triage.ack_many(%s, %s)",
                  [m["message_id"] for m in got] + ["msg_x"],
                  [m["receipt_handle"] for m in got] + ["rh_x"]) in (
        [("done",), ("done",), ("message-not-found",)],
        [("message-not-found",), ("done",), ("done",)])


# Attempts, delays, time to live


def test_a_nacked_message_keeps_its_place_and_a_failed_one_dies(make):
    q = make(max_attempts=2)
    first = q.put("first")
    q.put("second")
    m = q.claim()[0]
    assert q.nack(m, reason="boom") == "ready"
    m = q.claim()[0]
    assert (m["message_id"], m["attempt"]) == (first, 2)
    assert q.nack(m, reason="bang") == "dead"
    assert q.row("SELECT original_id, failure_reason, attempts, payload FROM triage.dead_letters"
                 " WHERE queue_name = %s", q.queue) == (first, "bang", 2, "first")
    assert q.one("SELECT triage.redrive(%s)", q.queue) == 1
    m = q.claim()[0]
    assert (m["message_id"], m["attempt"]) == (first, 1)


def test_release_counts_no_attempt(q):
    q.put()
    for _ in range(5):
        m = q.claim()[0]
        assert m["attempt"] == 1
        assert q.one("SELECT triage.release(%s, %s)", m["message_id"], m["receipt_handle"]) == "ready"


def test_backoff_grows_and_stops_at_its_maximum(make):
    q = make(max_attempts=9, retry={"backoff": "exponential", "base_seconds": 1, "max_seconds": 5,
                                    "jitter": 0})
    now = 10_000
    q.at(now).put(b"x")
    for wait in (1000, 2000, 4000, 5000, 5000):
        m = q.at(now).claim()
        assert q.at(now).nack(m)[0]["state"] == "scheduled"
        assert q.at(now + wait - 1).sweep() == 0
        now += wait
        assert q.at(now).sweep() == 1
    assert len(q.at(now).claim()) == 1


def test_a_lease_that_ends_counts_as_a_failure(make):
    q = make(max_attempts=2)
    q.at(0).put(b"x")
    for now, dead in ((0, 0), (1000, 1)):
        assert len(q.at(now).claim(lease=1000)) == 1
        assert q.at(now + 999).sweep() == 0
        assert q.at(now + 1000).sweep() == 1
        assert q.stats()["dlq_depth"] == dead
    assert q.one("SELECT failure_reason FROM triage.dead_letters WHERE queue_name = %s",
                 q.queue) == "lease expired"
    assert q.stats()["totals"]["lease_expired"] == 2


def test_a_delayed_message_is_ready_when_its_time_comes_and_not_before(q):
    at = q.at(1000)
    at.put(b"later", delay=500)
    at.put(b"now")
    assert [bytes(m["payload"]) for m in at.claim(want=5)] == [b"now"]
    assert q.at(1499).sweep() == 0
    assert q.at(1500).sweep() == 1
    assert [bytes(m["payload"]) for m in q.at(1500).claim()] == [b"later"]


@pytest.mark.parametrize("fate", ["drop", "dead"])
def test_a_time_to_live_ends_a_waiting_message(make, fate):
    q = make(expired=fate)
    at = q.at(1000)
    at.put(b"ready", ttl=100)
    at.put(b"scheduled", ttl=100, delay=500)
    at.put(b"held", ttl=100, slot=1)
    held = at.claim(slots=(1,))
    assert q.at(1100).claim(slots=(0, 1), want=5) == []
    assert q.at(1100).sweep() == 1  # the scheduled one
    assert q.at(1101).release(held)[0]["state"] == ("dead" if fate == "dead" else "expired")
    s = q.stats()
    assert (s["dlq_depth"], s["totals"]["expired"]) == ((3, 0) if fate == "dead" else (0, 3))


def test_claiming_lets_time_pass_where_no_server_does(make):
    q = make(visibility_timeout_seconds=0)
    q.put("again")
    assert q.payloads() == ["again"]
    assert q.payloads() == ["again"]  # its lease of no length is over
