"""Many receipts in one call, dead letters that go back with another payload, and levels that are
shown with number and name in one order."""

import threading

import pytest

from wire import AT_ONCE, until


def settle(queue, verb, messages, **fields):
    answer = queue.client.post(f"{queue.path}/messages/{verb}", {
        "receipts": [{"message_id": m["message_id"], "receipt_handle": m["receipt_handle"]}
                     for m in messages], **fields})
    assert answer.status == 200, answer
    return answer


def dead(queue, payload="poison", **fields):
    """A dead letter, as a claim showed it."""
    queue.configure(max_attempts=1)
    queue.put(payload, **fields)
    message = queue.take_one()
    queue.nack(message, reason="it broke")
    return message


# Many receipts


def test_many_are_nacked_with_one_reason_and_one_delay(queue):
    queue.configure(max_attempts=2, retry=AT_ONCE)
    ids = [queue.put(n) for n in range(3)]
    first = queue.take(max=3)
    results = settle(queue, "nack", first, reason="smtp is down", delay_seconds=3600)["results"]
    assert results == [{"message_id": ident, "state": "scheduled"} for ident in ids]
    assert {queue.show(ident)["reason"] for ident in ids} == {"smtp is down"}
    queue.put("now")
    again = queue.take_one()
    assert settle(queue, "nack", [again])["results"][0]["state"] == "ready"
    assert settle(queue, "nack", queue.take(max=1))["results"][0]["state"] == "dead"


def test_many_are_released_and_no_attempt_counts(queue):
    for n in range(3):
        queue.put(n)
    results = settle(queue, "release", queue.take(max=3))["results"]
    assert [r["state"] for r in results] == ["ready"] * 3
    assert [m["attempt"] for m in queue.take(max=3)] == [1] * 3


def test_many_leases_are_extended_together(queue):
    for n in range(3):
        queue.put(n, priority=1)
    taken = queue.take(max=3, visibility_timeout_seconds=30)
    answer = settle(queue, "extend", taken, visibility_timeout_seconds=600)
    assert answer["urgent_waiting"] is False
    assert len({r["visible_at"] for r in answer["results"]}) == 1
    queue.put("urgent", priority=9)
    assert settle(queue, "extend", taken, visibility_timeout_seconds=600)["urgent_waiting"] is True


def test_each_entry_has_its_own_result_and_stops_no_other(queue):
    for n in range(3):
        queue.put(n)
    one, two, three = queue.take(max=3)
    queue.ack(one)
    wrong = {"message_id": two["message_id"], "receipt_handle": three["receipt_handle"]}
    for verb, fields in (("nack", {}), ("release", {}), ("extend", {"visibility_timeout_seconds": 60})):
        answer = queue.client.post(f"{queue.path}/messages/{verb}", {
            "receipts": [{k: one[k] for k in ("message_id", "receipt_handle")}, wrong,
                         {"message_id": "msg_x", "receipt_handle": "rh_x"}, {"message_id": "msg_x"}],
            **fields})
        problems = [r["error"]["type"].split(":")[-1] for r in answer["results"]]
        assert problems == ["message-not-found", "receipt-expired", "message-not-found",
                            "receipt-missing"], verb
    assert queue.stats()["in_flight"] == 2, "a refusal changes nothing"


def test_the_same_receipt_twice_counts_once(queue):
    queue.put("x")
    [message] = queue.take()
    first, second = settle(queue, "nack", [message, message])["results"]
    assert first["state"] == "scheduled" and second["error"]["status"] == 409
    assert queue.stats()["totals"]["nacked"] == 1


@pytest.mark.parametrize("verb, body, field", [
    ("nack", {}, "/receipts"), ("release", {"receipts": []}, "/receipts"),
    ("extend", {"receipts": [{"message_id": "msg_x", "receipt_handle": "rh_x"}]},
     "/visibility_timeout_seconds"),
    ("nack", {"receipts": [{}], "delay_seconds": -1}, "/delay_seconds"),
    ("release", {"receipts": [{}], "reason": "x"}, "/reason"),
    ("nack", {"receipts": [{}] * 1001}, "/receipts")])
def test_what_is_wrong_with_a_batch_is_named(queue, verb, body, field):
    queue.configure()
    answer = queue.client.post(f"{queue.path}/messages/{verb}", body)
    assert (answer.status, answer.json["field"]) == (422, field)


def test_a_waiting_consumer_gets_what_a_batch_gives_back(queue, server):
    queue.put("x")
    taken = queue.take()
    waiting = server.queue(queue.name)
    got = []
    consumer = threading.Thread(target=lambda: got.extend(waiting.take(wait_seconds=60)))
    consumer.start()
    until(lambda: queue.stats()["waiting_consumers"] == 1)
    settle(queue, "release", taken)
    consumer.join()
    assert [m["payload"] for m in got] == ["x"]


# Another payload for a dead letter


def amend(queue, message_id, **body):
    return queue.client.post(f"{queue.path}/dead/{message_id}/redrive", body)


def test_a_dead_letter_goes_back_with_another_payload(queue):
    before = dead(queue, "old", priority=7, metadata={"tenant": "acme"}, dedup_key="k", dequeue_at=1000)
    queue.put("younger", priority=7)
    answer = amend(queue, before["message_id"], payload={"new": 1})
    assert answer.status == 200 and answer["redriven"] == 1
    after = queue.take_one()  # from its old place, before what came later
    assert after["message_id"] == answer["message_id"] != before["message_id"]
    assert (after["payload"], after["priority"], after["attempt"], after["metadata"]) == \
        ({"new": 1}, 7, 1, {"tenant": "acme"})
    assert after["enqueued_at"] == before["enqueued_at"]
    stats = queue.stats()
    assert (stats["dlq_depth"], stats["ready"]) == (0, 1)
    assert amend(queue, before["message_id"], payload="again").status == 404


def test_metadata_and_priority_can_be_changed_with_it(queue):
    before = dead(queue, metadata={"tenant": "acme"})
    answer = amend(queue, before["message_id"], payload_base64="/wA=", priority=9,
                   metadata={"mended": True})
    assert answer.status == 200
    after = queue.take_one()
    assert (after["payload_base64"], after["priority"], after["metadata"]) == \
        ("/wA=", 9, {"mended": True})


def test_nothing_is_a_payload_too(queue):
    before = dead(queue, "old")
    assert amend(queue, before["message_id"], payload="").status == 200
    assert queue.take_one()["payload"] == ""


def test_bytes_are_taken_as_they_are(queue):
    before = dead(queue)
    answer = queue.client.request("POST", f"{queue.path}/dead/{before['message_id']}/redrive",
                                  b"\xff\x00", {"Content-Type": "application/octet-stream"})
    assert answer.status == 200
    assert queue.take_one()["payload_base64"] == "/wA="


@pytest.mark.parametrize("body, status", [
    ({}, 422), ({"payload": "x", "payload_base64": "eA=="}, 422), ({"payload": "x", "priority": 77}, 422),
    ({"payload": "x", "ttl_seconds": 1}, 422), ({"payload": "x" * 262_145}, 413),
    ({"payload": "x", "metadata": "none"}, 422)])
def test_a_refused_change_leaves_the_dead_letter(queue, body, status):
    before = dead(queue)
    assert amend(queue, before["message_id"], **body).status == status
    stats = queue.stats()
    assert (stats["dlq_depth"], stats["ready"]) == (1, 0)
    assert queue.client.get(f"{queue.path}/dead/{before['message_id']}")["payload"] == "poison"


def test_only_a_dead_letter_can_get_another_payload(queue):
    alive = queue.put("alive")
    assert amend(queue, alive, payload="x").status == 404
    assert amend(queue, "msg_00000080g6gy284gn0000000000g", payload="x").status == 404
    assert queue.take_payloads(1) == ["alive"] and queue.stats()["totals"]["enqueued"] == 1


def test_many_who_mend_one_dead_letter_make_one_message(queue, server):
    """All of them store theirs, one of them gets the dead letter, and the others withdraw."""
    for _ in range(5):
        before = dead(queue)
        queue.client.post(queue.path + "/pause")
        answers = []

        def mend(n):
            client = server.client()
            answers.append(client.post(f"{queue.path}/dead/{before['message_id']}/redrive",
                                       {"payload": f"by {n}"}))
            client.close()

        threads = [threading.Thread(target=mend, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        queue.client.post(queue.path + "/resume")
        assert sorted(answer.status for answer in answers) == [200, 404, 404, 404]
        [winner] = [answer["message_id"] for answer in answers if answer.status == 200]
        message = queue.take_one()
        assert message["message_id"] == winner
        assert queue.take() == []
        queue.ack(message)


def mend_all(server, ids, mended):
    """Mends one dead letter after the other; `mended` gets what was answered, by the old id. Ends
    when the server does."""
    client = server.client()
    try:
        for ident in ids:
            answer = client.post(f"/v1/queues/q/dead/{ident}/redrive", {"payload": "mended " + ident})
            assert answer.status == 200, answer
            mended[ident] = answer["message_id"]
    except (OSError, ConnectionError):
        pass


def test_no_dead_letter_is_lost_when_the_server_is_killed_while_it_is_mended(start):
    """After the kill each is there as it was, or as it was made, or as both; and what was answered
    is there as it was made alone."""
    server = start(engine="local")
    queue = server.queue("q")
    queue.configure(max_attempts=1)
    ids = queue.put_all([{"payload": n} for n in range(200)])
    for _ in range(2):
        settle(queue, "nack", queue.take(max=100))
    mended = {}
    threads = [threading.Thread(target=mend_all, args=(server, ids[n::4], mended)) for n in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(mended) > 40)
    server.kill()
    for thread in threads:
        thread.join()
    server.start()
    queue = server.queue("q")
    dead = {m["message_id"] for m in queue.client.get("/v1/queues/q/dead", limit=1000)["messages"]}
    made = {}
    while messages := queue.take(max=100):
        made.update({m["payload"].removeprefix("mended "): m["message_id"] for m in messages})
    assert dead | set(made) == set(ids)
    assert not dead & set(mended) and all(made[ident] == mended[ident] for ident in mended)


# Numbers and names


def test_a_level_is_shown_by_number_and_name_in_one_order(queue):
    queue.configure(profile="tiers", policy="strict", max_attempts=1)
    ident = queue.put("x", priority="LOW")
    queue.client.post(f"{queue.path}/messages/{ident}/priority", {"priority": 0})
    shown = queue.show(ident).json
    assert (shown["priority"], shown["level"]) == (0, "CRITICAL")
    assert (shown["escalated"]["from"], shown["escalated"]["from_level"]) == (3, "LOW")
    position = queue.client.get(f"{queue.path}/messages/{ident}/position").json
    claimed = queue.take_one()
    queue.nack(claimed)
    buried = queue.client.get(f"{queue.path}/dead").json["messages"][0]
    for document in (shown, position, claimed, buried):
        keys = list(document)
        assert keys.index("level") == keys.index("priority") + 1
        assert (document["priority"], document["level"]) == (0, "CRITICAL")


def test_stats_have_every_level_most_urgent_first(queue):
    queue.configure(levels=[{"name": "paid", "number": 7}, {"name": "free", "number": 9},
                            {"name": "bulk"}], max_attempts=1)
    queue.put("a", priority=9)
    queue.put("b", priority="bulk", delay_seconds=3600)
    queue.put("c", priority="paid")
    queue.nack(queue.take_one())
    queue.put("d", priority="paid")
    queue.take_one()
    levels = queue.stats()["levels"]
    assert all(level.pop("oldest_message_age_seconds") >= 0 for level in levels)
    assert levels == [
        {"priority": 7, "level": "paid", "ready": 0, "scheduled": 0, "in_flight": 1, "dead": 1},
        {"priority": 9, "level": "free", "ready": 1, "scheduled": 0, "in_flight": 0, "dead": 0},
        {"priority": "bulk", "level": "bulk", "ready": 0, "scheduled": 1, "in_flight": 0, "dead": 0}]
