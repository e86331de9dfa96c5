"""Dead letters: how a message becomes one, and what can be done about it, on every engine."""

import json

from wire import AT_ONCE, until


def kill(queue, payload, reason="no", **fields):
    message_id = queue.put(payload, **fields)
    message = queue.take_one()
    assert message["message_id"] == message_id
    assert queue.nack(message, reason=reason).json["state"] == "dead"
    return message_id


def test_attempts_used_up_make_a_dead_letter_with_its_reason(queue):
    queue.configure(max_attempts=2, retry=AT_ONCE)
    message = queue.put("poison", priority=7, metadata={"k": "v"})
    assert queue.nack(queue.take_one(), reason="first").json["state"] == "ready"
    assert queue.nack(queue.take_one(), reason="exploded").json["state"] == "dead"
    assert queue.take() == []
    [listed] = queue.dead()
    shown = queue.client.get(f"{queue.path}/dead/{message}")
    assert shown.status == 200
    for dead in (listed, shown.json):
        assert dead["message_id"] == message and dead["payload"] == "poison"
        assert dead["reason"] == "exploded" and dead["attempts"] == 2
        assert dead["metadata"] == {"k": "v"} and dead["priority"] == 7
        assert dead["original_enqueued_at"] <= dead["died_at"]
    stats = queue.stats()
    assert stats["dlq_depth"] == 1 and stats["totals"]["dead"] == 1
    assert queue.show(message)["state"] == "dead"


def test_leases_that_run_out_use_up_attempts_too(queue):
    queue.configure(max_attempts=2, retry=AT_ONCE)
    queue.put("x")
    queue.take_one(visibility_timeout_seconds=0)
    queue.take_one(visibility_timeout_seconds=0, wait_seconds=30)
    until(lambda: queue.stats()["dlq_depth"] == 1)
    [dead] = queue.dead()
    assert dead["attempts"] == 2 and dead["reason"]


def test_dead_letters_are_listed_in_pages(queue):
    queue.configure(max_attempts=1)
    killed = [kill(queue, str(n)) for n in range(7)]
    seen, query = [], {"limit": 3}
    while page := queue.dead(**query):
        assert len(page) <= 3
        seen += [dead["message_id"] for dead in page]
        query["after"] = seen[-1]
    assert seen == killed


def test_a_redrive_starts_attempts_again_and_keeps_the_priority(queue):
    queue.configure(max_attempts=1)
    kill(queue, "x", priority=7)
    assert queue.post("dead/redrive").json == {"redriven": 1}
    message = queue.take_one()
    assert (message["payload"], message["attempt"], message["priority"]) == ("x", 1, 7)
    assert queue.dead() == []


def test_a_redrive_may_choose_ids_number_and_priority(queue):
    queue.configure(max_attempts=1)
    a, b, c, d = (kill(queue, letter) for letter in "abcd")
    assert queue.post("dead/redrive", ids=[c])["redriven"] == 1
    assert queue.take_one()["payload"] == "c"
    assert queue.post("dead/redrive", max=1, priority=9)["redriven"] == 1
    message = queue.take_one()
    assert (message["payload"], message["priority"]) == ("a", 9)
    assert queue.post("dead/redrive", priority=77).status == 422
    assert queue.post("dead/redrive", ids=[a])["redriven"] == 0, "it is alive"
    assert [dead["message_id"] for dead in queue.dead()] == [b, d]


def test_a_redrive_of_many_ids_and_of_large_letters_is_whole(queue):
    """It is done in portions: of so many ids, of so many bytes."""
    queue.configure(max_attempts=1)
    ids = queue.put_all([{"payload": f"{n} " + "x" * 200_000} for n in range(37)])
    while messages := queue.take(max=20):
        for each in messages:
            assert queue.nack(each).json["state"] == "dead"
    alive = queue.put("alive")
    assert queue.post("dead/redrive", ids=[*ids[:35], alive, ids[3]])["redriven"] == 35
    assert [each["message_id"] for each in queue.dead()] == ids[35:]
    assert queue.post("dead/redrive")["redriven"] == 2
    assert queue.dead() == []
    taken = []
    while messages := queue.take(max=20):
        taken += [each["payload"].split()[0] for each in messages]
    assert taken == [*map(str, range(37)), "alive"]


def test_a_redrive_may_be_slowed_down(queue):
    queue.configure(max_attempts=1)
    for n in range(5):
        kill(queue, str(n))
    assert queue.post("dead/redrive", per_second=50)["redriven"] == 5
    assert sorted(queue.take_payloads(5, wait_seconds=30)) == list("01234")


def test_lists_show_payloads_of_any_size(api, queue):
    sizes = [1, 2_000, 2_001, 100_000]
    queue.configure(max_attempts=1)
    queue.put_all([{"payload": "x" * size} for size in sizes])
    lines = api.get(queue.path + "/export").body.splitlines()
    assert [len(json.loads(line)["payload"]) for line in lines] == sizes
    for message in queue.take(max=10):
        assert queue.nack(message).status == 200
    dead = api.get(queue.path + "/dead", limit=10)["messages"]
    assert [len(message["payload"]) for message in dead] == sizes


def test_dead_letters_can_be_dropped_one_by_one_or_all(queue):
    queue.configure(max_attempts=1)
    a, b, c = (kill(queue, letter) for letter in "abc")
    assert queue.client.delete(f"{queue.path}/dead/{b}").status == 204
    assert queue.client.delete(f"{queue.path}/dead/{b}").refusal == (404, "message-not-found")
    assert [dead["message_id"] for dead in queue.dead()] == [a, c]
    assert queue.post("dead/purge").json == {"purged": 2}
    assert queue.dead() == [] and queue.stats()["dlq_depth"] == 0


def test_a_dead_letter_cannot_be_acknowledged_or_cancelled(queue):
    queue.configure(max_attempts=1)
    queue.put("x")
    message = queue.take_one()
    queue.nack(message)
    assert queue.ack(message).status in (404, 409)
    assert queue.cancel(message).refusal == (409, "not-pending")
