"""What is done to all messages that match a filter: cancelled, promoted, redriven, dropped; and to one
message by its id. On every engine and over several cells."""

from test_browse import ids, pages, server  # noqa: F401
from wire import AT_ONCE


def fill(queue, count=40, **fields):
    queue.configure(profile="levels", max_attempts=1, retry=AT_ONCE)
    return queue.put_all([{"payload": f"number {n}", "priority": n % 3,
                           "metadata": {"tenant": f"t{n % 4}"}, **fields} for n in range(count)])


def kill_all(queue, reasons):
    """Each takes the next message; its reason is what `reasons` says of its payload."""
    while messages := queue.take(max=100, visibility_timeout_seconds=600):
        for message in messages:
            assert queue.nack(message, reason=reasons(message["payload"])).json["state"] == "dead"


def test_all_that_match_are_cancelled_and_no_others(queue):
    there = fill(queue)
    answer = queue.post("messages/cancel", filter={"metadata": {"tenant": "t1"}}).json
    assert (answer["matched"], answer["cancelled"], answer["next"]) == (10, 10, None)
    assert sorted(answer["sample"]) == sorted(there[1::4])
    assert ids(pages(queue)) == sorted(set(there) - set(there[1::4]))
    answer = queue.post("messages/cancel", filter={"priority": 2, "metadata": {"tenant": "t0"}}).json
    assert answer["cancelled"] == len(gone := [m for n, m in enumerate(there)
                                               if n % 3 == 2 and n % 4 == 0])
    assert ids(pages(queue)) == sorted(set(there) - set(there[1::4]) - set(gone))
    assert queue.post("messages/cancel", filter={"payload_contains": "number 39"}).json[
        "cancelled"] == 1
    assert queue.post("messages/cancel", filter={"older_than_seconds": 3600}).json["matched"] == 0
    left = queue.stats()["ready"]
    assert queue.post("messages/cancel", filter={}).json["cancelled"] == left
    assert queue.stats()["totals"]["cancelled"] == 40


def test_a_dry_run_counts_and_changes_nothing(queue):
    there = fill(queue)
    answer = queue.post("messages/cancel", filter={}, dry_run=True).json
    assert (answer["matched"], answer["cancelled"], answer["dry_run"]) == (40, 0, True)
    assert len(answer["sample"]) == 10 and set(answer["sample"]) <= set(there)
    assert queue.stats()["ready"] == 40


def test_leased_and_dead_messages_are_not_cancelled(queue):
    fill(queue, 6)
    kept = queue.take(max=2, visibility_timeout_seconds=600)
    queue.nack(kept[0])
    assert queue.post("messages/cancel", filter={}).json["cancelled"] == 4
    stats = queue.stats()
    assert (stats["ready"], stats["in_flight"], stats["dlq_depth"]) == (0, 1, 1)


def test_what_is_promoted_is_ready_at_once_and_keeps_its_level(queue):
    there = fill(queue, 20, delay_seconds=3600)
    waits = queue.put("ready before", priority=0)
    assert queue.take(max=1, min_priority=1) == []
    answer = queue.post("messages/promote", filter={"priority": 2}).json
    assert (answer["matched"], answer["promoted"]) == (6, 6)
    assert ids(queue.take(max=100)) == sorted(there[2::3] + [waits])
    assert queue.stats()["scheduled"] == 14
    assert queue.post("messages/promote", filter={}).json["promoted"] == 14
    taken = queue.take(max=100)
    assert [m["priority"] for m in taken] == sorted((m["priority"] for m in taken), reverse=True)
    assert queue.post("messages/promote", filter={}).json["matched"] == 0


def test_a_consumer_that_waits_gets_what_is_promoted(queue):
    queue.put("later", delay_seconds=3600)
    with_wait = queue.client.__class__(queue.client.address)
    try:
        import threading
        got = []
        waiter = threading.Thread(target=lambda: got.append(with_wait.post(
            queue.path + "/messages/claim", {"wait_seconds": 60})))
        waiter.start()
        assert queue.post("messages/promote", filter={}).json["promoted"] == 1
        waiter.join()
        assert [m["payload"] for m in got[0]["messages"]] == ["later"]
    finally:
        with_wait.close()


def test_dead_letters_are_redriven_and_dropped_by_their_reason(queue):
    there = fill(queue)
    kill_all(queue, lambda payload: "timeout" if int(payload.split()[1]) % 2 else "refused")
    dry = queue.post("dead/redrive", filter={"reason": "timeout"}, dry_run=True).json
    assert (dry["matched"], dry["redriven"]) == (20, 0)
    answer = queue.post("dead/redrive", filter={"reason": "timeout", "metadata": {"tenant": "t1"}},
                        priority=9).json
    assert (answer["matched"], answer["redriven"]) == (10, 10)
    assert ids(pages(queue, state="ready", level=9)) == sorted(there[1::4])
    answer = queue.post("dead/purge", filter={"reason": "refused"}).json
    assert (answer["matched"], answer["purged"]) == (20, 20)
    assert ids(pages(queue, state="dead")) == sorted(there[3::4])
    assert queue.post("dead/purge", filter={"reason": "refused"}).json["matched"] == 0


def test_a_job_in_portions_does_everything_once(queue):
    there = fill(queue, 300)
    done, calls, after = [], 0, {}
    while True:
        answer = queue.post("messages/cancel", filter={"metadata": {"tenant": "t2"}}, max=10,
                            look_max=70, **after).json
        assert answer["looked_at"] <= 70 and answer["cancelled"] == answer["matched"] <= 10
        done, calls = done + answer["sample"], calls + 1
        queue.put("later", metadata={"tenant": "t2"}, priority=0)  # is no part of it
        if answer["next"] is None:
            break
        after = {"after": answer["next"]}
    assert sorted(done) == sorted(there[2::4]) and calls > 7
    assert len(pages(queue, **{"meta.tenant": "t2"})) == calls


def test_what_makes_no_sense_is_refused(queue):
    queue.put("x")
    for what, body, field in [
            ("messages/cancel", {}, "/filter"), ("messages/promote", {"dry_run": True}, "/filter"),
            ("messages/cancel", {"filter": {"reason": "x"}}, "/filter/reason"),
            ("messages/cancel", {"filter": {"payload_contains": ""}}, "/filter/payload_contains"),
            ("messages/cancel", {"filter": {}, "after": "0-0-0-1"}, "/after"),
            ("messages/cancel", {"filter": {}, "after": "0-0-0-1~"}, "/after"),
            ("messages/cancel", {"filter": {}, "after": "7-99-0-1~5"}, "/after"),
            ("messages/cancel", {"filter": {}, "max": 0}, "/max"),
            ("messages/cancel", {"filter": {"priority": 77}}, "/filter/priority"),
            ("dead/purge", {"dry_run": True}, "/filter"), ("dead/purge", {"max": 3}, "/max"),
            ("dead/redrive", {"look_max": 3}, "/filter"),
            ("dead/redrive", {"filter": {}, "per_second": 1}, "/per_second"),
            ("dead/redrive", {"filter": {}, "ids": ["msg_00000080g6gy2k2x5r000000000g"]}, "/ids")]:
        answer = queue.client.post(f"{queue.path}/{what}", body)
        assert answer.status in (400, 422) and answer.json["field"] == field, (what, body, answer)
    assert queue.stats()["ready"] == 1


def test_one_message_is_promoted_by_its_id(queue):
    later = queue.put("later", delay_seconds=3600)
    answer = queue.client.post(queue.message_path(later) + "/promote", {})
    assert (answer.status, answer["state"], answer["message_id"]) == (200, "ready", later)
    assert queue.client.post(queue.message_path(later) + "/promote", {})["state"] == "ready"
    taken = queue.take_one()
    assert taken["message_id"] == later and taken["attempt"] == 1
    answer = queue.client.post(queue.message_path(later) + "/promote", {})
    assert answer.refusal == (409, "not-pending"), answer
    queue.ack(taken)
    answer = queue.client.post(queue.message_path(later) + "/promote", {})
    assert answer.refusal == (404, "message-not-found"), answer


def test_a_nack_gives_a_message_up_at_once(queue):
    queue.configure(max_attempts=5, retry=AT_ONCE)
    one, two, three = (queue.put(n) for n in range(3))
    taken = {m["message_id"]: m for m in queue.take(max=3, visibility_timeout_seconds=600)}
    answer = queue.nack(taken[one], dead=True, reason="never again")
    assert answer.json == {"state": "dead"}
    answer = queue.nack(taken[two], dead=False, reason="again")
    assert answer.json == {"state": "ready"}
    answer = queue.client.post(queue.path + "/messages/nack", {
        "dead": True, "receipts": [{k: taken[three][k] for k in ("message_id", "receipt_handle")}]})
    assert answer["results"][0]["state"] == "dead"
    assert {d["message_id"]: (d["reason"], d["attempts"]) for d in queue.dead()} == {
        one: ("never again", 1), three: ("nacked", 1)}
