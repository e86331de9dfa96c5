"""Messages through the SQL interface on a real PostgreSQL: enqueued, claimed, known by a key, and
handled without a receipt."""

import collections
import json
import threading

import psycopg2
import pytest

from sql import assert_conserved
from wire import until


# Enqueueing and claiming


def test_an_enqueue_that_rolls_back_never_existed(q, make):
    other = make(like=q)
    q.run("BEGIN")
    q.put("never")
    assert other.claim() == []
    q.run("ROLLBACK")
    assert other.claim() == []
    assert other.stats()["totals"]["enqueued"] == 0
    q.run("BEGIN")
    q.put("now")
    q.run("COMMIT")
    assert other.payloads() == ["now"]


def test_work_and_its_acknowledgement_commit_together(q, make):
    other = make(like=q)
    q.put("once")
    for end, left in (("ROLLBACK", 1), ("COMMIT", 0)):
        q.run("BEGIN")
        m = q.claim()[0]
        assert m["attempt"] == 1
        assert other.claim() == []
        q.ack(m)
        q.run(end)
        assert q.stats()["ready"] == left


def test_payloads_come_back_as_they_went_in(q):
    q.put("täxt")
    q.run("SELECT triage.enqueue(%s, %s::jsonb)", q.queue, '{"b": [1]}')
    q.run("SELECT triage.enqueue(%s, %s)", q.queue, psycopg2.Binary(b"\0\xff"))
    q.put("L" * 200_000)
    got = q.claim(4)
    assert [m["payload"] for m in got] == ["täxt", '{"b": [1]}', None, "L" * 200_000]
    assert bytes(got[2]["payload_bytes"]) == b"\0\xff"


def test_most_urgent_first_and_first_in_first_out(q):
    for n in range(30):
        q.put(f"{n}", priority=str(n % 3))
    assert q.payloads(30) == [str(n) for p in (2, 1, 0) for n in range(30) if n % 3 == p]


def test_what_comes_back_during_a_claim_leaves_nothing_urgent_behind(q, make):
    """A claim of three stops where it has looked and not yet taken, and an urgent message comes
    back to its place."""
    other, gate = make(like=q), make(like=q)
    q.put("first", priority="9")
    [first] = q.claim()
    q.put("second", priority="9")
    for n in range(3):
        q.put(f"later{n}", priority="1")
    receipts = q.one("SELECT pg_get_functiondef('triage.receipts'::regproc)")
    q.run("CREATE OR REPLACE FUNCTION triage.receipts(n int) RETURNS bytea LANGUAGE sql VOLATILE "
          "STRICT AS $$ SELECT pg_advisory_xact_lock_shared(99); SELECT substr(sha256("
          "uuid_send(gen_random_uuid())) || sha256(uuid_send(gen_random_uuid())), 1, 16 * n) $$")
    try:
        gate.run("SELECT pg_advisory_lock(99)")
        got = []
        claim = threading.Thread(target=lambda: got.extend(other.payloads(3)))
        claim.start()
        until(lambda: gate.one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
                               "objid = 99 AND NOT granted"))
        q.nack(first)
        gate.run("SELECT pg_advisory_unlock(99)")
        claim.join()
        assert got == ["first", "second", "later0"]
    finally:
        q.run(receipts)


def test_a_past_or_negative_time_sorts_earlier(make):
    q = make(profile="timeline")
    for ms in (5, -7, 0, -2**47 + 1):
        q.put(str(ms), dequeue_at=ms)
    q.count_up()
    q.put("-8", dequeue_at=-8)
    assert q.payloads(9) == [str(-2**47 + 1), "-8", "-7", "0", "5"]


def test_min_priority_serves_urgent_levels_alone(q):
    q.put("low", priority="1")
    assert q.claim(min_priority="5") == []
    q.put("high", priority="7")
    assert q.payloads(5, min_priority="5") == ["high"]


def test_a_paused_queue_gives_nothing_and_takes_everything(q):
    q.run("SELECT triage.pause(%s)", q.queue)
    q.put()
    assert q.claim() == []
    q.run("SELECT triage.resume(%s)", q.queue)
    assert len(q.claim()) == 1


def test_a_pause_is_noted_with_its_time_and_ends_with_it(q):
    def pauses():
        return q.one("SELECT pauses FROM triage.queue WHERE id = %s", q.id)

    q.run("SELECT triage.pause(%s), triage.pause(%s)", q.queue, q.queue)
    [pause] = pauses()
    assert pause["until_ms"] == 2**63 - 1
    q.run("SELECT triage.resume(%s), triage.resume(%s)", q.queue, q.queue)
    [ended] = pauses()
    assert pause["from_ms"] == ended["from_ms"] <= ended["until_ms"] < 2**63 - 1


def test_the_oldest_pauses_become_one_of_their_length(q):
    noted = []
    for number in range(20):
        for paused, ms in ((True, 1000 * number), (False, 1000 * number + 100)):
            noted = q.one("SELECT triage.pauses_noted(%s, %s, %s)", json.dumps(noted), paused, ms)
    assert len(noted) == 16
    assert sum(p["until_ms"] - p["from_ms"] for p in noted) == 20 * 100
    assert noted[0]["until_ms"] == 4100 and noted[1] == {"from_ms": 5000, "until_ms": 5100}
    back = q.one("SELECT triage.pauses_noted(%s, true, 7)", json.dumps(noted))  # the clock was set
    assert back[-1]["from_ms"] == noted[-1]["until_ms"]


def test_bad_input_is_refused_by_name(q):
    assert q.refusal("SELECT triage.enqueue(%s, 'x', priority => 'nope')", q.queue) == (
        "TR422", "unknown-priority")
    assert q.refusal("SELECT triage.enqueue('a b', 'x')") == ("TR422", "invalid-field")
    assert q.refusal("SELECT triage.enqueue(%s, %s)", q.queue, "x" * 262145) == (
        "TR413", "payload-too-large")
    assert q.refusal("SELECT * FROM triage.claim('no-such-queue')") == ("TR404", "queue-not-found")
    assert q.refusal("SELECT triage.cancel('msg_nonsense')") == ("TR404", "message-not-found")
    assert q.refusal("SELECT triage.enqueue(%s, 'x', delay => '1s', dequeue_at => 1)", q.queue) == (
        "TR422", "invalid-field")


def test_every_message_goes_to_one_of_many_consumers(q, make):
    q.run("SELECT count(*) FROM triage.enqueue_many(%s, %s)", q.queue, [str(n) for n in range(600)])
    got, consumers = [], [make(like=q) for _ in range(8)]

    def consume(own):
        while batch := own.claim(7):
            got.extend(batch)
            for m in batch:
                own.ack(m)

    threads = [threading.Thread(target=consume, args=(c,)) for c in consumers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    while batch := q.claim(100):
        got.extend(batch)
    assert sorted(int(m["payload"]) for m in got) == list(range(600))


# Dedup


def test_a_key_inside_its_window_gives_the_first_message(make):
    q = make(dedup={"window_seconds": 60})
    first = q.put("1", dedup_key="k")
    assert q.put("2", dedup_key="k") == first
    assert q.put("3", dedup_key="other") != first
    q.ack(q.claim()[0])
    assert q.put("4", dedup_key="k") == first
    assert q.stats()["totals"]["deduplicated"] == 2
    q.run("UPDATE triage.dedup SET until_ms = 0 WHERE queue = %s", q.id)
    assert q.put("5", dedup_key="k") != first


def test_a_live_key_goes_with_its_message(make):
    q = make(dedup={"scope": "live"}, max_attempts=1)
    first = q.put("1", dedup_key="k")
    assert q.put("2", dedup_key="k") == first
    m = q.claim()[0]
    assert q.put("3", dedup_key="k") == first
    assert q.nack(m) == "dead"
    assert q.put("4", dedup_key="k") == first
    assert q.one("SELECT triage.purge_dead(%s)", q.queue) == 1
    second = q.put("5", dedup_key="k")
    assert second != first
    q.run("SELECT triage.cancel(%s)", second)
    third = q.put("6", dedup_key="k")
    q.ack(q.claim()[0])
    assert q.put("7", dedup_key="k") not in (first, second, third)


def test_one_of_many_at_once_gets_the_key(q, make):
    sessions = [make(like=q) for _ in range(6)]
    ids = []
    threads = [threading.Thread(target=lambda s=s: ids.append(s.put(dedup_key="same")))
               for s in sessions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(ids)) == 1
    assert q.stats()["totals"] | {"enqueued": 1, "deduplicated": 5} == q.stats()["totals"]


# Without a receipt


def test_escalation_takes_effect_at_once_keeps_the_age_and_is_recorded(q):
    q.put("old", priority="1")
    urgent = q.put("young", priority="1")
    late = q.put("late", priority="1", delay="1 hour")
    q.count_up()
    for each in (urgent, late):
        q.run("SELECT triage.escalate(%s, '9', 'ops', 'customer waits')", each)
    row = q.row("SELECT status, priority, escalated_by, escalated_why, escalated_at > enqueued_at"
                " FROM triage.messages WHERE message_id = %s", late)
    assert row == ("scheduled", "9", "ops", "customer waits", True)
    m = q.claim()[0]
    assert (m["message_id"], m["level"]) == (urgent, "9")
    assert q.refusal("SELECT triage.escalate(%s, '1')", urgent) == ("TR409", "not-pending")
    assert q.refusal("SELECT triage.escalate(%s, '77')", late) == ("TR422", "unknown-priority")


@pytest.mark.parametrize("filter, count", [
    ({}, 10), ({"priority": 0}, 4), ({"priority": "1"}, 3), ({"metadata": {"tenant": "acme"}}, 5),
    ({"priority": 0, "metadata": {"tenant": "acme"}}, 2), ({"metadata": {"n": 3.0}}, 1),
    ({"metadata": {"n": "3"}}, 0), ({"metadata": {"tenant": "acme", "n": 4}}, 0),
    ({"metadata": {"all": False}}, 0), ({"metadata": {"all": True}}, 10), ({"metadata": {}}, 10),
    ({"older_than_seconds": 3600}, 0), ({"older_than_seconds": 0}, 10),
    ({"priority": None, "older_than_seconds": None, "metadata": None}, 10),
])
def test_many_are_escalated_by_a_filter(q, filter, count):
    """As the HTTP interface does it: tests/system/test_priority.py."""
    for n in range(10):
        q.put(str(n), priority=str(n % 3), delay="1 hour" if n % 4 == 3 else None, metadata=json.dumps(
            {"tenant": "acme" if n % 2 else "other", "n": n, "all": True}))
    call = ("SELECT matched, changed FROM triage.escalate_many(%s, '9', %s, 'ops', 'vip',"
            " dry_run => %s)")
    assert q.row(call, q.queue, json.dumps(filter), True) == (count, 0)
    assert q.stats()["depth_by_priority"]["9"] == 0
    assert q.row(call, q.queue, json.dumps(filter), False) == (count, count)
    assert q.rows("SELECT DISTINCT priority, escalated_by, escalated_why FROM triage.messages"
                  " WHERE queue_name = %s AND escalated_at IS NOT NULL", q.queue) == (
                      [("9", "ops", "vip")] if count else [])


@pytest.mark.parametrize("to", ["9", "5", "0"])
def test_thousands_are_escalated_once_and_keep_their_age(q, to):
    for priority in ("9", "5", "0"):
        q.run("SELECT triage.enqueue_many(%s, %s, %s)", q.queue,
              [f"{priority}-{n}" for n in range(1500)], priority)
    q.run("SELECT triage.enqueue(%s, 'later'::text, delay => '1 hour')", q.queue)
    assert q.row("SELECT * FROM triage.escalate_many(%s, %s)", q.queue, to) == (
        4501, 3000 + (to != "5"))
    q.count_up()
    got = [payload for _ in range(45) for payload in q.payloads(100)]
    assert got == [f"{priority}-{n}" for priority in ("9", "5", "0") for n in range(1500)]


def test_who_rolls_back_escalated_none(q):
    q.put(priority="1")
    q.run("BEGIN")
    assert q.row("SELECT * FROM triage.escalate_many(%s, '9')", q.queue) == (1, 1)
    q.run("ROLLBACK")
    assert q.stats()["depth_by_priority"]["1"] == 1


@pytest.mark.parametrize("filter, name", [
    ({"prio": 1}, "unknown-field"), ([], "invalid-field"), ({"priority": 99}, "unknown-priority"),
    ({"metadata": 1}, "invalid-field"), ({"older_than_seconds": -1}, "invalid-field"),
    ({"older_than_seconds": "x"}, "invalid-field"),
])
def test_a_filter_that_makes_no_sense_is_refused(q, filter, name):
    call = "SELECT triage.escalate_many(%s, %s, %s)"
    assert q.refusal(call, q.queue, "9", json.dumps(filter)) == ("TR422", name)
    assert q.refusal(call, q.queue, "77", "{}") == ("TR422", "unknown-priority")
    assert q.refusal(call, q.queue, None, "{}") == ("TR422", "invalid-field")


def test_cancel_takes_only_what_waits(q):
    ready, later = q.put(), q.put(delay="1 hour")
    held = q.put(priority="9")
    m = q.claim()[0]
    assert m["message_id"] == held
    q.run("SELECT triage.cancel(%s), triage.cancel(%s)", ready, later)
    assert q.refusal("SELECT triage.cancel(%s)", held) == ("TR409", "not-pending")
    assert q.refusal("SELECT triage.cancel(%s)", ready) == ("TR404", "message-not-found")
    assert q.stats()["totals"]["cancelled"] == 2


def test_purge_drops_what_waits_and_nothing_else(q):
    for n in range(30):
        q.put(priority=str(n % 10), **({"delay": "1 hour"} if n % 3 else {}))
    q.claim(3)
    assert q.one("SELECT triage.purge(%s)", q.queue) == 27
    assert q.stats()["in_flight"] == 3


def test_redrive_by_id_and_to_another_priority(make):
    q = make(max_attempts=1)
    ids = [q.put(str(n)) for n in range(4)]
    for m in q.claim(4):
        q.nack(m)
    assert q.one("SELECT triage.redrive(%s, %s, priority => '9')", q.queue, [ids[2], "msg_x"]) == 1
    m = q.claim()[0]
    assert (m["message_id"], m["level"], m["attempt"]) == (ids[2], "9", 1)
    assert q.one("SELECT triage.redrive(%s, max => 2)", q.queue) == 2
    assert q.payloads(9) == ["0", "1"]


def test_a_large_payload_is_written_once(q):
    q.put("L" * 100_000)
    seq = q.one("SELECT seq FROM triage.ready WHERE queue = %s", q.id)
    where = "SELECT ctid::text, xmin::text FROM triage.body WHERE seq = %s"
    before = q.row(where, seq)
    q.nack(q.claim()[0], delay="0")
    m = q.claim()[0]
    assert q.row(where, seq) == before
    assert m["payload"] == "L" * 100_000
    q.ack(m)
    assert q.row(where, seq) is None


def test_history_is_kept_for_its_time(make):
    q = make()
    q.at(500)
    q.run("SELECT triage.configure(%s, '{\"history_seconds\": 1}')", q.queue)
    q.at(1000).put(b"x", b"L" * 5000)
    got = q.at(1000).claim(want=2)
    q.at(2000).ack(got)
    assert [r["status"] for r in q.at(2000).ack(got)] == ["receipt-expired"] * 2
    q.at(2999).sweep()
    assert q.one("SELECT count(*) FROM triage.messages WHERE queue_name = %s AND status = 'done'",
                 q.queue) == 2
    assert [r["status"] for r in q.at(3000).ack(got)] == ["message-not-found"] * 2
    assert q.one("SELECT count(*) FROM triage.messages WHERE queue_name = %s", q.queue) == 0
    q.at(3000).sweep()
    assert q.one("SELECT count(*) FROM triage.history WHERE queue = %s", q.id) == 0
    assert q.one("SELECT count(*) FROM triage.body WHERE seq IN %s",
                 tuple(m["seq"] for m in got)) == 0


def test_a_listing_shows_everything_once(make):
    q = make(max_attempts=1, history_seconds=60)
    for n in range(25):
        q.put(str(n), priority=str(n % 4), **({"delay": "1 hour"} if n % 5 == 0 else {}))
    got = q.claim(9)
    for m in got[:3]:
        q.nack(m)
    for m in got[3:6]:
        q.ack(m)
    seen, at = [], (0, -1, -2**47, 0)
    while page := q.records("SELECT phase, (message).* FROM triage.engine_list(%s, %s,"
                            " %s::smallint, %s, %s, 4)", q.id, *at):
        seen += [(m["state"], m["seq"]) for m in page]
        last = page[-1]
        at = (last["phase"], last["slot"], last["ready_ms"], last["seq"])
    assert len(set(s for _, s in seen)) == len(seen) == 25
    assert collections.Counter(s for s, _ in seen) == {
        "ready": 11, "scheduled": 5, "leased": 3, "done": 3, "dead": 3}


# A priority by its name or by its number


def test_a_priority_is_taken_as_a_number_and_as_a_name(make):
    q = make(profile="tiers", policy="strict")
    for payload in ("%s", "%s::jsonb", "convert_to(%s, 'UTF8')"):
        for priority in ("1", "'1'", "'HIGH'", "1::smallint", "1::bigint"):
            q.run(f"SELECT triage.enqueue(%s, {payload}, priority => {priority})", q.queue, '"x"')
    assert q.one("SELECT triage.enqueue(%s, 'x', 1)", q.queue)
    assert {(m["priority"], m["level"]) for m in q.claim(16)} == {("1", "HIGH")}
    for priority in ("NULL", "default"):
        q.put("the queue's own", **({} if priority == "default" else {"priority": None}))
    assert [m["level"] for m in q.claim(16)] == ["NORMAL"] * 2
    q.run("SELECT triage.enqueue_many(%s, ARRAY['a', 'b'], 0)", q.queue)
    q.run("SELECT triage.enqueue_many(%s, ARRAY['c'], priority => 'CRITICAL')", q.queue)
    assert [m["level"] for m in q.claim(16)] == ["CRITICAL"] * 3
    for refused in ("7", "'SOON'", "-1"):
        with pytest.raises(psycopg2.Error, match="priority") as e:
            q.run(f"SELECT triage.enqueue(%s, 'x', priority => {refused})", q.queue)
        assert e.value.pgcode == "TR422"


def test_a_claim_may_name_the_least_urgent_level_either_way(make):
    q = make(profile="tiers", policy="strict")
    for priority in (0, 1, 3):
        q.put(str(priority), priority=priority)
    assert q.payloads(5, min_priority=0) == ["0"]
    assert q.payloads(5, min_priority="HIGH") == ["1"]
    assert q.records("SELECT * FROM triage.claim(%s, min_priority => 2)", q.queue) == []
    # As drivers give a number: two, four and eight bytes, and a text that is none.
    for number in ("1::smallint", "1", "'1'"):
        assert len(q.records(f"SELECT * FROM triage.claim(%s, {number})", q.queue)) <= 1
    q.put("last", priority=4)
    assert q.one("SELECT payload FROM triage.claim(%s, 1, NULL)", q.queue) == "last"


def test_escalations_and_redrives_take_numbers_too(make):
    q = make(profile="tiers", policy="strict", max_attempts=1)
    one = q.put("one", priority="LOW")
    q.run("SELECT triage.escalate(%s, 1)", one)
    q.run("SELECT triage.escalate(%s, priority => 'CRITICAL', actor => 'ann')", one)
    assert q.records("SELECT * FROM triage.escalate_many(%s, 1, '{\"priority\": 0}')",
                     q.queue) == [{"matched": 1, "changed": 1}]
    assert q.claim()[0]["level"] == "HIGH"
    q.run("SELECT triage.purge(%s)", q.queue)
    two = q.put("two")
    m = q.claim()[0]
    q.run("SELECT triage.nack(%s, %s)", m["message_id"], m["receipt_handle"])
    assert q.one("SELECT triage.redrive(%s, '{%s}')" % ("%s", two), q.queue) == 1
    m = q.claim()[0]
    q.run("SELECT triage.nack(%s, %s)", m["message_id"], m["receipt_handle"])
    assert q.one("SELECT triage.redrive(%s, priority => 0)", q.queue) == 1
    assert q.claim()[0]["level"] == "CRITICAL"


def test_levels_are_listed_most_urgent_first(make):
    q = make(levels=[{"name": "paid", "number": 7}, {"name": "free", "number": 9}, {"name": "bulk"}])
    q.put(priority=9)
    q.put(priority="bulk", delay="1 hour")
    rows = q.records("SELECT * FROM triage.levels(%s)", q.queue)
    assert [(r["priority"], r["level"], r["ready"], r["scheduled"]) for r in rows] == \
        [("7", "paid", 0, 0), ("9", "free", 1, 0), ("bulk", "bulk", 0, 1)]


PUT_MANY = ("SELECT * FROM triage.engine_put_many(%s, %s, %s, %s::smallint[], %s::bytea[],"
            " %s::smallint[], NULL, NULL, %s::bigint[], %s::bigint[], %s::bigint[], %s)")


def put_many(q, queues, items, version=None, epochs=None):
    """Items are (queue, slot, payload, delay, ttl)."""
    to, slots, payloads, delays, ttls = zip(*items)
    return q.records(PUT_MANY, [x.id for x in queues],
                     [x.version if version is None else version for x in queues],
                     [x.id for x in to], list(slots), [psycopg2.Binary(p) for p in payloads],
                     [0] * len(items), list(delays), list(ttls), epochs, None)


def test_many_queues_in_one_call(make):
    a, b = make(), make()
    listener = make(like=a)
    listener.run("LISTEN triage")
    listener.run("SELECT triage.engine_wait(gen_random_uuid(), %s, 60000)", [a.id, b.id])
    large = b"x" * 5000
    put = put_many(a, [a, b], [(b, 0, b"first", None, None), (a, 9, large, None, 60_000),
                               (b, 0, b"second", None, None), (a, 0, b"later", 3_600_000, None)])
    assert [row["place"] for row in put] == [1, 2, 3, 4]
    assert len({row["seq"] for row in put}) == 4
    assert b.payloads(5) == ["first", "second"]
    [got] = a.claim(5)
    assert got["payload"] == large.decode()
    assert a.stats()["scheduled"] == 1
    assert a.one("SELECT count(*) FROM triage.leased WHERE queue = %s AND expire_ms IS NOT NULL",
                 a.id) == 1
    assert_conserved(a)
    assert_conserved(b)
    listener.db.poll()
    assert sorted(n.payload for n in listener.db.notifies) == sorted([str(a.id), str(b.id)])


def test_one_stale_configuration_refuses_the_whole_call(make):
    a, b = make(), make()
    b.run("SELECT triage.configure(%s, '{\"max_attempts\": 3}')", b.queue)
    with pytest.raises(psycopg2.Error) as refused:
        put_many(a, [a, b], [(a, 0, b"x", None, None), (b, 0, b"y", None, None)], version=1)
    assert refused.value.pgcode == "TRCFG"
    assert a.stats()["ready"] == b.stats()["ready"] == 0


def test_a_place_refuses_only_what_is_for_its_queue(make):
    """Each item has the epoch that it was put by. What is refused leaves nothing behind, and wakes
    nobody."""
    a, old, closed = make(), make(), make()
    old.run("SELECT triage.engine_queue_place(%s, 3, false, '')", old.id)
    closed.run("SELECT triage.engine_queue_place(%s, 1, true, '')", closed.id)
    listener = make(like=a)
    listener.run("LISTEN triage")
    listener.run("SELECT triage.engine_wait(gen_random_uuid(), %s, 60000)",
                 [a.id, old.id, closed.id])
    items = [(old, 0, b"x" * 5000, None, None), (a, 0, b"first", None, None),
             (closed, 0, b"x", None, None), (old, 0, b"second", 3_600_000, None),
             (closed, 0, b"x", 1, None), (a, 0, b"third", None, None)]
    put = put_many(a, [a, old, closed], items, epochs=[2, None, 9, 3, 9, 7])
    assert [row["place"] for row in put] == [1, 2, 3, 4, 5, 6]
    assert [row["status"] for row in put] == ["moved", None, "moved", None, "moved", None]
    assert [row["seq"] is None for row in put] == [True, False, True, False, True, False]
    assert a.payloads(5) == ["first", "third"]
    assert (old.stats()["ready"], old.stats()["scheduled"]) == (0, 1)
    assert closed.stats()["ready"] == closed.stats()["scheduled"] == 0
    for q in (a, old, closed):
        assert_conserved(q)
    listener.db.poll()
    assert [n.payload for n in listener.db.notifies] == [str(a.id)]
    [row] = put_many(a, [old], [(old, 0, b"y", None, None)])
    assert row["status"] == "moved"  # no epoch is the oldest


def test_acks_of_many_queues_in_one_call(make):
    """Each item is looked for in its own queue; a queue that keeps a history keeps its own."""
    a, b = make(), make(history_seconds=60)
    for q in (a, b):
        q.put("1", dedup_key="key")
        q.put("x" * 5000)
    held = [(q, m) for q in (a, b) for m in q.at(None).claim(slots=range(16), want=5)]
    asked = [(b, held[0][1]), *held, (a, held[0][1])]
    done = a.records(
        "SELECT * FROM triage.engine_ack_many(%s, %s, %s, %s::bigint[], %s::smallint[],"
        " %s::bigint[], %s::bytea[])", [a.id, b.id], [a.version, b.version],
        [q.id for q, _ in asked],
        *[[m[name] for _, m in asked] for name in ("seq", "born_slot", "born_ms", "receipt")])
    assert [row["place"] for row in done] == [1, 2, 3, 4, 5, 6]
    none = "message-not-found"
    assert [row["status"] for row in done] == [none, None, None, None, None, none]
    for q, kept in ((a, 0), (b, 2)):
        assert q.one("SELECT count(*) FROM triage.history WHERE queue = %s", q.id) == kept
        large = [m["seq"] for of, m in held if of is q]
        assert q.one("SELECT count(*) FROM triage.body WHERE seq = ANY (%s)", large) == kept / 2
    assert_conserved(a)
    assert_conserved(b)
