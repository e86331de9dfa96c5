"""What a queue does beyond order: delays, leases, retries and the rest, each as a
short conversation, on every engine."""

import base64
import json
import re
import time
from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest

from test_dead import kill
from wire import AT_ONCE, Queue, until


def seconds_from_now(seconds):
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


# Delays.


@pytest.mark.parametrize("delay", [
    lambda: {"delay_seconds": 0.5},
    lambda: {"delay_until": seconds_from_now(0.5).strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
    lambda: {"dequeue_at": int(time.time() * 1000) + 500},
], ids=["delay_seconds", "delay_until", "dequeue_at"])
def test_a_delay_holds_a_message_back(queue, delay):
    not_before = time.time() + 0.45
    message = queue.put("later", **delay())
    assert queue.take() == []
    assert queue.show(message)["state"] == "scheduled"
    assert queue.stats()["scheduled"] == 1
    assert queue.take_one(wait_seconds=30)["message_id"] == message
    assert time.time() >= not_before


def test_a_delay_in_the_past_is_no_delay(queue):
    queue.put("x", delay_until="2001-01-01T00:00:00Z")
    assert queue.take_one()["payload"] == "x"


def test_a_delay_may_be_given_with_an_offset_from_utc(queue):
    east = timezone(timedelta(hours=5, minutes=30))
    queue.put("past", delay_until=seconds_from_now(-60).astimezone(east).isoformat())
    queue.put("future", delay_until=seconds_from_now(3600).astimezone(east).isoformat())
    assert [m["payload"] for m in queue.take(max=5)] == ["past"]


# Time to live.


def test_an_expired_message_is_dropped_and_counted(queue):
    queue.put("milk", ttl_seconds=0.2)
    queue.put("honey")
    until(lambda: queue.stats()["totals"]["expired"] == 1)
    assert [m["payload"] for m in queue.take(max=5)] == ["honey"]


def test_an_expired_message_becomes_a_dead_letter_when_the_queue_says_so(queue):
    queue.configure(ttl_seconds=0.2, expired="dead")
    message = queue.put("milk")
    until(lambda: queue.stats()["dlq_depth"] == 1)
    [dead] = queue.dead()
    assert (dead["message_id"], dead["reason"], dead["attempts"]) == (message, "expired", 0)
    assert dead["payload"] == "milk"


def test_a_scheduled_message_expires_too(queue):
    queue.put("x", delay_seconds=3600, ttl_seconds=0.2)
    until(lambda: queue.stats()["totals"]["expired"] == 1)
    assert queue.stats()["scheduled"] == 0


def test_a_claimed_message_does_not_expire_under_its_consumer(queue):
    queue.put("x", ttl_seconds=1)
    message = queue.take_one()
    queue.put("marker", ttl_seconds=1)
    until(lambda: queue.stats()["totals"]["expired"] == 1)
    assert queue.ack(message).status == 204


# Deduplication.


def test_the_same_key_within_the_window_is_the_same_message(queue):
    first = queue.enqueue("one", dedup_key="order-1")
    again = queue.enqueue("two", dedup_key="order-1")
    assert (first.status, again.status) == (201, 200)
    assert again["deduplicated"] is True and again["message_id"] == first["message_id"]
    queue.put("three", dedup_key="order-2")
    message = queue.take_one()
    assert message["payload"] == "one"
    queue.ack(message)
    assert queue.enqueue("four", dedup_key="order-1").status == 200, "also after its ack"
    assert queue.stats()["totals"]["deduplicated"] == 2


def test_after_the_window_the_key_is_free_again(queue):
    queue.configure(dedup={"window_seconds": 0.3})
    first = queue.put("one", dedup_key="k")
    queue.put("marker", delay_seconds=0.5, priority=9)
    assert queue.take_one(wait_seconds=30, min_priority=9)["payload"] == "marker"
    assert queue.put("two", dedup_key="k") != first


def test_a_live_key_is_taken_as_long_as_its_message_exists(queue):
    queue.configure(dedup={"window_seconds": 0, "scope": "live"})
    first = queue.put("one", dedup_key="k")
    message = queue.take_one()
    assert queue.enqueue("two", dedup_key="k")["message_id"] == first
    assert queue.ack(message).status == 204
    assert queue.put("three", dedup_key="k") != first


def test_a_live_key_is_free_after_a_cancel(queue):
    queue.configure(dedup={"scope": "live"})
    first = queue.put("one", dedup_key="k")
    assert queue.cancel(first).status == 204
    assert queue.put("two", dedup_key="k") != first


def test_a_key_belongs_to_its_queue(api, queue):
    other = Queue(api, queue.name + "-other")
    assert queue.put("x", dedup_key="k") and other.put("x", dedup_key="k")


def test_a_batch_may_repeat_a_key_inside_itself(queue):
    answer = queue.client.post(queue.path + "/messages/batch", {"messages": [
        {"payload": "a", "dedup_key": "k"}, {"payload": "b", "dedup_key": "k"}]})
    first, second = answer["results"]
    assert second["deduplicated"] and first["message_id"] == second["message_id"]


# Leases.


def test_a_claimed_message_is_invisible_until_its_lease_ends(queue):
    queue.put("x")
    first = queue.take_one(visibility_timeout_seconds=1)
    assert first["visibility_timeout"] == 1
    assert queue.take() == []
    assert queue.stats()["in_flight"] == 1
    second = queue.take_one(wait_seconds=30)
    assert second["attempt"] == 2
    assert queue.ack(first).refusal == (409, "receipt-expired")
    assert queue.ack(second).status == 204
    totals = queue.stats()["totals"]
    assert (totals["lease_expired"], totals["redelivered"], totals["claimed"]) == (1, 1, 2)


def test_a_late_ack_is_refused_even_when_nobody_else_has_the_message(queue):
    queue.put("x")
    message = queue.take_one(visibility_timeout_seconds=0)
    assert queue.ack(message).refusal == (409, "receipt-expired")


def test_an_ack_twice_is_an_unknown_message(queue):
    queue.put("x")
    message = queue.take_one()
    assert queue.ack(message).status == 204
    assert queue.ack(message).refusal in ((404, "message-not-found"), (409, "receipt-expired"))


def test_a_receipt_opens_only_its_own_message(queue):
    queue.put_all([{"payload": "a"}, {"payload": "b"}])
    a, b = queue.take(max=2)
    swapped = {**a, "receipt_handle": b["receipt_handle"]}
    assert queue.ack(swapped).refusal == (409, "receipt-expired")
    nonsense = {**a, "receipt_handle": "rh_nonsense"}
    assert queue.ack(nonsense).status in (400, 409, 422)
    assert queue.ack(a).status == 204 and queue.ack(b).status == 204


def test_a_nack_without_backoff_makes_the_message_ready_at_once(queue):
    queue.configure(retry=AT_ONCE)
    queue.put("x")
    message = queue.take_one()
    assert queue.nack(message).json["state"] == "ready"
    assert queue.take_one()["attempt"] == 2
    assert queue.stats()["totals"]["nacked"] == 1


def test_a_nack_with_a_delay_schedules_it(queue):
    queue.put("x")
    message = queue.take_one()
    assert queue.nack(message, delay_seconds=0.3).json["state"] == "scheduled"
    assert queue.take() == []
    assert queue.take_one(wait_seconds=30)["attempt"] == 2


def test_a_release_does_not_count_the_attempt(queue):
    queue.configure(max_attempts=1)
    queue.put("x")
    for _ in range(3):
        message = queue.take_one()
        assert message["attempt"] == 1
        assert queue.release(message).status == 200
    assert queue.ack(message).refusal == (409, "receipt-expired")
    assert queue.stats()["ready"] == 1


def test_extend_prolongs_a_lease(queue):
    queue.put("x")
    message = queue.take_one(visibility_timeout_seconds=1)
    answer = queue.extend(message, 60)
    assert answer.status == 200 and answer["urgent_waiting"] is False
    visible_at = datetime.fromisoformat(answer["visible_at"].replace("Z", "+00:00"))
    assert seconds_from_now(30) < visible_at < seconds_from_now(90)
    queue.put("marker", delay_seconds=1.2)
    assert queue.take_one(wait_seconds=30)["payload"] == "marker"
    assert queue.ack(message).status == 204


def test_extend_can_also_cut_a_lease_short(queue):
    queue.put("x")
    message = queue.take_one()
    assert queue.extend(message, 0).status == 200
    assert queue.take_one(wait_seconds=30)["attempt"] == 2


def test_extend_tells_of_more_urgent_work_that_nobody_waits_for(queue):
    queue.put("long", priority=3)
    message = queue.take_one()
    queue.put("less", priority=2)
    assert queue.extend(message, 30)["urgent_waiting"] is False
    queue.put("more", priority=9)
    assert queue.extend(message, 30)["urgent_waiting"] is True


def test_backoff_grows_between_attempts(queue):
    queue.configure(max_attempts=4, retry={"backoff": "exponential", "base_seconds": 0.2,
                                           "max_seconds": 0.3, "jitter": 0})
    queue.put("x")
    for attempt in (1, 2, 3):
        message = queue.take_one(wait_seconds=30)
        assert message["attempt"] == attempt
        assert queue.nack(message).json["state"] == "scheduled"
        assert queue.take() == []
    last = queue.take_one(wait_seconds=30)
    assert queue.nack(last).json["state"] == "dead"


def test_a_nack_may_choose_its_own_delay_over_the_backoff(queue):
    queue.configure(retry={"backoff": "fixed", "base_seconds": 300, "max_seconds": 300})
    queue.put("x")
    assert queue.nack(queue.take_one(), delay_seconds=0).json["state"] == "ready"
    assert queue.nack(queue.take_one()).json["state"] == "scheduled"


# Looking and taking away.


def test_history_keeps_what_is_done_for_a_while(queue):
    queue.configure(history_seconds=60)
    queue.put("x")
    message = queue.take_one()
    assert queue.ack(message).status == 204
    shown = queue.show(message)
    assert shown.status == 200 and shown["state"] == "done"
    assert queue.take() == []


def test_what_a_shorter_history_forgot_does_not_come_back(queue):
    queue.configure(history_seconds=60)
    queue.put("x")
    message = queue.take_one()
    queue.ack(message)
    for seconds in (0, 60, 3600):
        queue.configure(history_seconds=seconds)
        assert queue.show(message).refusal == (404, "message-not-found")
        assert queue.ack(message).refusal == (404, "message-not-found")
    queue.put("y")
    other = queue.take_one()
    queue.ack(other)
    assert queue.show(other)["state"] == "done"
    assert queue.show(message).status == 404


def test_without_history_what_is_done_is_gone(queue):
    queue.put("x")
    message = queue.take_one()
    queue.ack(message)
    assert queue.show(message).refusal == (404, "message-not-found")


def test_showing_a_message_claims_nothing(queue):
    message = queue.put({"a": [1, 2]}, metadata={"tenant": "acme"}, priority=2)
    for _ in range(3):
        shown = queue.show(message)
        assert shown["state"] == "ready" and shown["attempts"] == 0
        assert shown["payload"] == {"a": [1, 2]} and shown["metadata"] == {"tenant": "acme"}
    taken = queue.take_one()
    assert taken["attempt"] == 1
    shown = queue.show(message)
    assert shown["state"] == "leased" and shown["attempts"] == 1
    assert "receipt_handle" not in shown.json, "looking does not give the key away"


def test_a_cancelled_message_is_gone(queue):
    ready, scheduled = queue.put("a"), queue.put("b", delay_seconds=3600)
    assert queue.cancel(ready).status == 204
    assert queue.cancel(scheduled).status == 204
    assert queue.cancel(ready).refusal == (404, "message-not-found")
    assert queue.take() == []
    assert queue.stats()["totals"]["cancelled"] == 2


def test_a_purge_drops_ready_and_scheduled_and_nothing_else(queue):
    queue.configure(max_attempts=1)
    kill(queue, "dead")
    queue.put("held")
    held = queue.take_one()
    queue.put_all([{"payload": n} for n in range(2500)])
    queue.put("later", delay_seconds=3600)
    assert queue.post("purge").json == {"purged": 2501}
    stats = queue.stats()
    assert (stats["ready"], stats["scheduled"]) == (0, 0)
    assert (stats["in_flight"], stats["dlq_depth"]) == (1, 1)
    assert queue.ack(held).status == 204
    assert queue.post("purge").json == {"purged": 0}


def test_a_paused_queue_takes_messages_and_gives_none(queue):
    queue.put("x")
    assert queue.post("pause").status in (200, 204)
    assert queue.take() == [] and queue.take(wait_seconds=0.2) == []
    queue.put("y")
    assert queue.post("resume").status in (200, 204)
    assert queue.take_payloads(2) == ["x", "y"]


def test_what_was_claimed_before_a_pause_can_be_finished(queue):
    queue.put("x")
    message = queue.take_one()
    queue.post("pause")
    assert queue.ack(message).status == 204


# Batches.


def test_a_batch_answers_each_message_in_order_and_stores_the_valid_ones(queue):
    answer = queue.client.post(queue.path + "/messages/batch", {"messages": [
        {"payload": "a", "priority": 3}, {"payload": "b", "priority": 99}, {"nonsense": 1},
        {"payload": "c", "delay_seconds": -1}, {"payload": "d" * 262145}, {"payload": "e"}]})
    assert answer.status == 200
    results = answer["results"]
    kinds = [r["error"]["type"].split(":")[-1] if "error" in r else "stored" for r in results]
    assert kinds[0] == kinds[5] == "stored"
    assert kinds[1] == "unknown-priority" and kinds[3] == "invalid-field"
    assert kinds[2] in ("unknown-field", "invalid-field") and kinds[4] == "payload-too-large"
    assert results[1]["error"]["status"] == 422
    assert sorted(queue.take_payloads(2)) == ["a", "e"]
    assert queue.stats()["totals"]["enqueued"] == 2


def test_a_thousand_lines_of_ndjson(queue):
    lines = [json.dumps({"payload": n, "priority": n % 10}) for n in range(1000)]
    lines[500] = "{broken"
    answer = queue.client.request("POST", queue.path + "/messages/batch", "\n".join(lines).encode(),
                                  {"Content-Type": "application/x-ndjson"})
    assert answer.status == 200
    results = answer["results"]
    assert len(results) == 1000
    assert results[500]["error"]["type"] == "urn:triage:malformed-json"
    assert sum("message_id" in r for r in results) == 999
    assert len({r["message_id"] for r in results if "message_id" in r}) == 999


def test_the_largest_batch_with_many_keys_of_metadata(queue):
    metadata = {f"key-{n}": n for n in range(64)}
    ids = queue.put_all([{"payload": n, "metadata": metadata} for n in range(1000)])
    assert len(set(ids)) == 1000
    assert queue.take_one()["metadata"] == metadata


def test_a_json_payload_may_have_as_many_values_as_fit(queue):
    payload = [1] * 130_000
    queue.client.request("POST", queue.path + "/messages",
                         b'{"payload":[' + b",".join([b"1"] * 130_000) + b"]}",
                         {"Content-Type": "application/json"})
    assert queue.take_one()["payload"] == payload


def test_a_batch_ack_answers_each_in_order(queue):
    queue.put_all([{"payload": n} for n in range(3)])
    a, b, c = queue.take(max=3)
    queue.nack(b)
    answer = queue.ack_all([a, b, {**c, "message_id": "msg_nonsense"}, c])
    assert answer.status == 200
    kinds = [r["error"]["type"].split(":")[-1] if "error" in r else "done"
             for r in answer["results"]]
    assert kinds == ["done", "receipt-expired", "message-not-found", "done"]
    assert queue.stats()["totals"]["acked"] == 2


# Limits.


def test_a_batch_fills_a_queue_exactly_to_its_limit(queue):
    queue.configure(max_depth=10)
    answer = queue.client.post(queue.path + "/messages/batch",
                               {"messages": [{"payload": n} for n in range(15)]})
    kinds = Counter("stored" if "message_id" in r else r["error"]["type"].split(":")[-1]
                    for r in answer["results"])
    assert kinds == {"stored": 10, "queue-full": 5}


def test_bytes_are_limited_too(queue):
    queue.configure(max_bytes=10_000)
    stored = 0
    while (answer := queue.enqueue("x" * 1000)).status == 201:
        stored += 1
        assert stored <= 10
    assert answer.refusal == (429, "queue-full")
    assert stored >= 5
    queue.ack(queue.take_one())
    queue.put("x" * 500)


def test_a_limit_may_be_lifted(queue):
    queue.configure(max_depth=1)
    queue.put("a")
    assert queue.enqueue("b").status == 429
    assert queue.configure(max_depth=None)["max_depth"] is None
    queue.put("b")


# Payloads and metadata.


def test_bytes_come_back_byte_for_byte(queue):
    every_byte = bytes(range(256)) * 3
    encoded = base64.b64encode(every_byte).decode()
    assert queue.client.post(queue.path + "/messages", {"payload_base64": encoded}).status == 201
    message = queue.take_one()
    assert base64.b64decode(message["payload_base64"]) == every_byte
    assert "payload" not in message


@pytest.mark.parametrize("payload", [
    "", "plain", "\x00\x01\x1f \" \\ / \u007f \u2028", "grüße 漢字 🚦", "x" * 100_000,
    {}, [], {"a": {"b": [1, 2.5, None, True, "ü"]}}, [[]], 0, -1.5, 12345678901234567890, True,
    False, None], ids=lambda p: repr(p)[:20])
def test_payloads_come_back_as_they_were_given(queue, payload):
    queue.put(payload)
    assert queue.take_one()["payload"] == payload


def test_a_json_payload_keeps_its_text(queue):
    text = b'{"payload": {"b": 1.50, "a": 10000000000000000000001, "c": [ ]}}'
    answer = queue.client.request("POST", queue.path + "/messages", text,
                                  {"Content-Type": "application/json"})
    assert answer.status == 201
    assert b"10000000000000000000001" in queue.claim().body


def test_metadata_comes_back_as_given(queue):
    metadata = {"tenant": "acme", "trace_id": "abc-123", "grüße": "漢字"}
    queue.put("x", metadata=metadata)
    queue.put("y")
    first, second = queue.take(max=2)
    assert first["metadata"] == metadata
    assert not second.get("metadata")


# Configuration at run time.


def test_a_changed_visibility_timeout_counts_from_the_next_claim(queue):
    queue.put_all([{"payload": 1}, {"payload": 2}])
    assert queue.take_one()["visibility_timeout"] == 30
    queue.configure(visibility_timeout_seconds=5)
    assert queue.take_one()["visibility_timeout"] == 5


def test_a_profile_change_is_refused_while_a_level_it_lacks_holds_messages(queue):
    queue.put("x", priority=7)
    answer = queue.client.put(queue.path, {"profile": "tiers", "policy": "strict",
                                           "drop_levels": True})
    assert answer.refusal == (409, "level-in-use")
    assert queue.take_one()["priority"] == 7


def test_a_dead_letter_also_holds_its_level(queue):
    queue.configure(levels=[{"name": "red"}, {"name": "blue"}], max_attempts=1,
                    default_priority="red")
    kill(queue, "x", priority="red")
    answer = queue.client.put(queue.path, {"levels": [{"name": "blue"}], "drop_levels": True})
    assert answer.refusal == (409, "level-in-use")


def test_a_deleted_queue_starts_afresh(api, queue):
    queue.configure(max_attempts=9)
    old = queue.put("x", dedup_key="k")
    assert api.delete(queue.path, force=True).status == 204
    new = queue.put("y", dedup_key="k")
    assert new != old
    assert queue.show(old).refusal == (404, "message-not-found")
    assert api.get(queue.path)["max_attempts"] == 5
    assert queue.stats()["totals"]["enqueued"] == 1


def test_auto_create_can_be_turned_off(start):
    server = start(engine="memory", auto_create="off")
    queue = server.queue("q")
    assert queue.enqueue("x").refusal == (404, "queue-not-found")
    queue.configure()
    queue.put("x")


def test_the_default_profile_is_a_setting(start):
    server = start(engine="memory", default_profile="timeline")
    queue = server.queue("q")
    queue.put("x")
    assert server.client().get(queue.path)["profile"] == "timeline"


# Numbers.


def test_stats_tell_where_every_message_is(queue):
    queue.configure(max_attempts=1)
    kill(queue, "dead", priority=3)
    for n in range(6):
        queue.put(n, priority=8 if n % 2 else 2)
    queue.put("later", delay_seconds=3600)
    queue.put("gone", dedup_key="k", priority=9)
    queue.enqueue("gone", dedup_key="k", priority=9)
    queue.ack(queue.take_one())
    queue.take_one()
    stats = queue.stats()
    depth = stats["depth_by_priority"]
    assert list(depth) == [str(n) for n in range(9, -1, -1)], "every level, most urgent first"
    assert {level: n for level, n in depth.items() if n} == {"8": 2, "2": 3}
    assert (stats["ready"], stats["scheduled"], stats["in_flight"]) == (5, 1, 1)
    assert stats["dlq_depth"] == 1 and stats["waiting_consumers"] == 0
    assert stats["oldest_message_age_seconds"] >= 0
    assert stats["totals"] == {
        "enqueued": 9, "claimed": 3, "acked": 1, "nacked": 1, "lease_expired": 0, "expired": 0,
        "dead": 1, "deduplicated": 1, "redelivered": 0, "cancelled": 0, "aged": 0, "late": 0,
        "escalated": 0}


SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*"'
                    r'(?:,[a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*")*\})? (\S+)')


def parse_metrics(text):
    """Prometheus' text format, strictly: {(name, labels): value}."""
    assert text.endswith("\n")
    types, helped, samples = {}, set(), {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped.add(line.split(" ", 3)[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types and kind in ("counter", "gauge", "histogram", "summary")
            types[name] = kind
        elif line and not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in types or family in types, f"{name} has no type"
            assert (name, labels) not in samples, f"{line} twice"
            samples[name, labels] = float(value)
    assert set(types) == helped
    for name, kind in types.items():
        assert kind != "counter" or name.endswith("_total"), name
    return samples


def metrics_of(api, queue):
    """The samples of a queue that are not about a level or a state."""
    page = api.get("/metrics")
    assert page.status == 200 and page.headers["content-type"].startswith("text/plain")
    return {name: value for (name, labels), value in parse_metrics(page.body.decode()).items()
            if labels and f'queue="{queue.name}"' in labels and "level" not in labels
            and "priority" not in labels and "state" not in labels}


def test_metrics_are_prometheus_text_and_agree_with_the_stats(api, queue, server):
    queue.configure(max_attempts=1)
    kill(queue, "dead")
    queue.put_all([{"payload": n} for n in range(5)])
    queue.put("later", delay_seconds=3600)
    queue.take_one()
    totals = queue.stats()["totals"]

    def differ():
        own = metrics_of(api, queue)
        return {total: value for total in ("enqueued", "claimed", "acked", "nacked", "dead")
                for name, value in own.items()
                if name.endswith(f"_{total}_total") and value != totals[total]}

    if server.engine == "postgres":  # whose metrics are as old as the last look at the database
        until(lambda: not differ())
    assert metrics_of(api, queue) and differ() == {}


def test_a_reason_with_a_nul_harms_nobody(queue):
    """Nor the requests that share a transaction with it."""
    queue.put("x")
    assert queue.nack(queue.take_one(), reason="a\0b", delay_seconds=0).status == 200
    assert queue.take_one()["attempt"] == 2
