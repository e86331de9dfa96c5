"""Priorities at run time: escalation of one and of many, aging, promised waits, limits of what is
in flight, and the explanation of a message's place. Shares are in test_policy.py."""

import time

import pytest

from test_waiting import payloads, until_waiting, wait_in_line
from wire import AT_ONCE, until

TWO = [{"name": "paid", "number": 1}, {"name": "free"}]


def escalate(queue, message, priority, **fields):
    return queue.client.post(queue.message_path(message) + "/priority",
                             {"priority": priority, **fields})


def position(queue, message):
    answer = queue.client.get(queue.message_path(message) + "/position")
    assert answer.status == 200, answer
    return answer.json


def many(queue, **fields):
    return queue.client.post(queue.path + "/messages/priority", fields)


# Escalation

def test_an_escalated_message_is_the_next_claim(queue):
    for number in range(3):
        queue.put(f"urgent {number}", priority=9)
    late = queue.put("late", priority=0)
    old = queue.put("old", priority=0, dequeue_at=0)
    assert escalate(queue, old, 9).status == 200
    assert queue.take_one()["payload"] == "old", "it is the oldest of its new level"
    assert escalate(queue, late, 9).status == 200
    assert queue.take_payloads(4) == ["urgent 0", "urgent 1", "urgent 2", "late"]


def test_who_when_and_why_are_kept_and_shown(queue):
    message = queue.put("x", priority=2)
    before = queue.show(message).json
    answer = escalate(queue, message, 7, actor="ann", reason="vip ☎")
    assert (answer.status, answer["priority"], answer["level"]) == (200, 7, "7")
    shown = queue.show(message).json
    assert answer.json == shown
    assert {k: shown["escalated"][k] for k in ("from", "actor", "reason")} == {
        "from": 2, "actor": "ann", "reason": "vip ☎"}
    assert shown["escalated"]["at"] >= before["enqueued_at"]
    assert shown["ready_at"] == before["ready_at"], "it keeps its age"
    assert queue.stats()["totals"]["escalated"] == 1


def test_an_escalation_can_go_down_and_the_same_level_changes_nothing(queue):
    message = queue.put("x", priority=9)
    assert escalate(queue, message, 9, actor="ann").status == 200
    assert "escalated" not in queue.show(message).json
    assert escalate(queue, message, 0).status == 200
    queue.put("y", priority=5)
    assert queue.take_payloads(2) == ["y", "x"]


def test_a_scheduled_message_can_be_urgent_but_later(queue):
    message = queue.put("later", priority=0, delay_seconds=3600)
    answer = escalate(queue, message, 9)
    assert (answer["state"], answer["priority"]) == ("scheduled", 9)
    queue.put("now", priority=1)
    assert queue.take_payloads(1) == ["now"]
    assert position(queue, message)["blocked_by"] == ["delay"]


def test_only_what_waits_can_be_escalated(queue):
    queue.configure(max_attempts=1)
    message = queue.put("x")
    held = queue.take_one()
    assert escalate(queue, message, 9).refusal == (409, "not-pending")
    queue.nack(held)
    assert escalate(queue, message, 9).refusal == (409, "not-pending")
    queue.post("dead/purge")
    assert escalate(queue, message, 9).refusal == (404, "message-not-found")


@pytest.mark.parametrize("body, field", [
    ({}, "/priority"), ({"priority": None}, "/priority"), ({"priority": 77}, "/priority"),
    ({"priority": "no such"}, "/priority"), ({"priority": [1]}, "/priority"),
    ({"priority": 9, "actor": ""}, "/actor"), ({"priority": 9, "actor": "a" * 129}, "/actor"),
    ({"priority": 9, "reason": "r" * 1025}, "/reason"), ({"priority": 9, "why": "x"}, "/why"),
])
def test_nonsense_is_refused_by_its_field(queue, body, field):
    message = queue.put("x")
    answer = queue.client.post(queue.message_path(message) + "/priority", body)
    assert answer.status == 422 and answer["field"] == field, answer
    assert queue.show(message)["priority"] == 5


def test_names_and_numbers_both_ways(queue):
    queue.configure(levels=TWO)
    message = queue.put("x", priority="free")
    assert escalate(queue, message, "paid")["priority"] == 1
    assert escalate(queue, message, "free")["priority"] == "free"
    assert escalate(queue, message, 1)["level"] == "paid"


def test_a_level_comes_back_as_its_own_after_everything(queue):
    queue.configure(max_attempts=2, retry=AT_ONCE)
    message = queue.put("x", priority=1)
    escalate(queue, message, 8)
    assert queue.nack(queue.take_one())["state"] == "ready"
    assert queue.show(message)["priority"] == 8
    assert queue.nack(queue.take_one())["state"] == "dead"
    queue.post("dead/redrive")
    again = queue.take_one()
    assert again["priority"] == 8
    assert queue.nack(again, delay_seconds=0.01)["state"] == "scheduled"
    assert queue.take_one(wait_seconds=20)["priority"] == 8


# Many

def fill(queue):
    for number in range(10):
        queue.put(f"m{number}", priority=number % 3,
                  metadata={"tenant": "acme" if number % 2 else "other", "n": number})


@pytest.mark.parametrize("filter, count", [
    ({}, 10), ({"priority": 0}, 4), ({"metadata": {"tenant": "acme"}}, 5),
    ({"priority": 0, "metadata": {"tenant": "acme"}}, 2), ({"metadata": {"n": 3.0}}, 1),
    ({"metadata": {"n": "3"}}, 0), ({"metadata": {"tenant": "acme", "n": 4}}, 0),
    ({"older_than_seconds": 3600}, 0), ({"older_than_seconds": 0}, 10),
])
def test_a_filter_says_which(queue, filter, count):
    fill(queue)
    answer = many(queue, filter=filter, priority=9, dry_run=True)
    assert answer.json == {"matched": count, "changed": 0, "dry_run": True}
    assert queue.stats()["depth_by_priority"]["9"] == 0
    assert many(queue, filter=filter, priority=9).json == {"matched": count, "changed": count}
    assert queue.stats()["depth_by_priority"]["9"] == count
    again = {"matched": 10, "changed": 0} if filter == {} else None
    assert again is None or many(queue, filter=filter, priority=9).json == again


@pytest.mark.parametrize("to", [9, 5, 0])
def test_each_is_counted_once_wherever_it_goes(queue, to):
    """Also by who finds it again at its new level while the rest is still being looked for."""
    queue.put_all([{"payload": "x", "priority": n % 10} for n in range(2000)])
    queue.put_all([{"payload": "x", "priority": n % 10, "delay_seconds": 3600} for n in range(20)])
    assert many(queue, filter={}, priority=to).json == {"matched": 2020, "changed": 1818}
    assert many(queue, filter={"priority": to}, priority=7, dry_run=True)["matched"] == 2020


def test_many_thousand_are_changed_and_nothing_is_lost(queue):
    queue.put_all([{"payload": str(n), "priority": n % 4} for n in range(5000)])
    assert many(queue, filter={"priority": 0}, priority=7).json == {
        "matched": 1250, "changed": 1250}
    got = queue.take_payloads(5000)
    assert got[:1250] == [str(n) for n in range(0, 5000, 4)]
    assert sorted(map(int, got)) == list(range(5000))


@pytest.mark.parametrize("body, field", [
    ({"priority": 1}, "/filter"), ({"filter": {}}, "/priority"),
    ({"filter": {"prio": 1}, "priority": 1}, "/filter/prio"),
    ({"filter": {"priority": 99}, "priority": 1}, "/filter/priority"),
    ({"filter": {"metadata": "x"}, "priority": 1}, "/filter/metadata"),
    ({"filter": {"older_than_seconds": -1}, "priority": 1}, "/filter/older_than_seconds"),
    ({"filter": [], "priority": 1}, "/filter"), ({"filter": {}, "priority": 99}, "/priority"),
    ({"filter": {}, "priority": 1, "dry_run": "yes"}, "/dry_run"),
])
def test_a_filter_that_makes_no_sense_changes_nothing(queue, body, field):
    fill(queue)
    answer = queue.client.post(queue.path + "/messages/priority", body)
    assert answer.status == 422 and answer["field"] == field, answer
    assert queue.stats()["totals"]["escalated"] == 0


# Aging

def aging(queue, **level):
    queue.configure(levels=[{"name": "high"}, {"name": "mid"}, {"name": "low", **level}])


def test_a_message_that_has_waited_counts_as_more_urgent(queue):
    aging(queue, age_after_seconds=0.05)
    old = queue.put("old", priority="low")
    until(lambda: queue.stats()["aged"] == 1)
    queue.put("young", priority="mid")
    assert queue.show(old)["effective_level"] == "mid"
    assert position(queue, old)["messages_ahead"] == 0
    claimed = queue.take_one()
    assert (claimed["payload"], claimed["level"], claimed["effective_level"]) == (
        "old", "low", "mid")
    assert queue.stats()["totals"]["aged"] == 1
    assert queue.take_one()["effective_level"] == "mid"
    queue.put("high", priority="high")
    queue.release(claimed)
    assert queue.take_payloads(2) == ["high", "old"], "one step, not to the top"


def test_age_counts_from_when_it_is_ready(queue):
    aging(queue, age_after_seconds=3600)
    old = queue.put("old", priority="low", dequeue_at=0)
    assert queue.show(old)["effective_level"] == "mid", "it was said to be that old"
    later = queue.put("later", priority="low", delay_seconds=3600)
    assert "effective_level" not in queue.show(later).json


def test_thresholds_change_at_run_time(queue):
    aging(queue, age_after_seconds=3600)
    message = queue.put("x", priority="low")
    assert queue.stats()["aged"] == 0
    aging(queue, age_after_seconds=0.001)
    until(lambda: queue.show(message)["effective_level"] == "mid")
    aging(queue, age_after_seconds=None)
    assert queue.show(message)["effective_level"] == "low"


def test_a_promised_wait_goes_before_everything_and_what_comes_late_is_counted(queue):
    aging(queue, max_wait_seconds=0.02)
    queue.configure(policy="weighted")
    queue.put("promised", priority="low")
    until(lambda: queue.stats()["late"] == 1)
    for number in range(5):
        queue.put(f"high {number}", priority="high")
    claimed = queue.take_one()
    assert (claimed["payload"], claimed["effective_level"]) == ("promised", "high")
    totals = queue.stats()["totals"]
    assert (totals["late"], totals["aged"]) == (1, 1)


# Limits

def test_a_queue_at_its_limit_gives_nothing_and_a_settled_message_makes_room(server, queue):
    queue.configure(max_in_flight=2, retry=AT_ONCE)
    queue.put_all([{"payload": str(n)} for n in range(5)])
    held = queue.take(max=10)
    assert len(held) == 2
    assert queue.take() == []
    line = wait_in_line(server, queue, 2)
    queue.ack(held[0])
    assert payloads(line[0].answer()) == ["2"]
    until_waiting(queue, 1)
    queue.nack(held[1])
    assert payloads(line[1].answer()) == ["1"]
    for connection in line:
        connection.close()


def test_a_level_at_its_limit_is_passed_over(server, queue):
    queue.configure(levels=[{"name": "top", "max_in_flight": 1}, {"name": "rest"}])
    for number in range(3):
        queue.put(f"top {number}", priority="top")
        queue.put(f"rest {number}", priority="rest")
    held = queue.take(max=3)
    assert [m["payload"] for m in held] == ["top 0", "rest 0", "rest 1"]
    assert queue.take(min_priority="top") == []
    waits = queue.put("top last", priority="top")
    assert position(queue, waits)["blocked_by"] == ["limit"]
    [urgent] = wait_in_line(server, queue, 1, min_priority="top")
    queue.ack(held[1])
    queue.ack(held[0])
    assert payloads(urgent.answer()) == ["top 1"], "freed capacity wakes who waits for it"
    urgent.close()


def test_a_lease_that_ends_makes_room(server, queue):
    queue.configure(max_in_flight=1, retry=AT_ONCE)
    queue.put_all([{"payload": "a"}, {"payload": "b"}])
    queue.take_one(visibility_timeout_seconds=0.05)
    [waiting] = wait_in_line(server, queue, 1)
    assert payloads(waiting.answer()) == ["a"]
    waiting.close()


def test_a_raised_limit_wakes_those_who_wait(server, queue):
    queue.configure(max_in_flight=1)
    queue.put_all([{"payload": "a"}, {"payload": "b"}])
    queue.take_one()
    [waiting] = wait_in_line(server, queue, 1)
    queue.configure(max_in_flight=None)
    assert payloads(waiting.answer()) == ["b"]
    waiting.close()


# Position

def test_position_counts_what_goes_first(queue):
    queue.put_all([{"payload": "u", "priority": 9}] * 3 + [{"payload": "n"}] * 4)
    last = queue.put("last")
    found = position(queue, last)
    assert (found["state"], found["messages_ahead"], found["exact"]) == ("ready", 7, True)
    assert found["blocked_by"] == [] and found["estimated_start"] is None
    queue.take_payloads(4)
    found = position(queue, last)
    assert found["messages_ahead"] == 3
    assert found["claims_per_second"] > 0 and found["estimated_start"] >= found["ready_at"]
    queue.post("pause")
    found = position(queue, last)
    assert found["blocked_by"] == ["pause"] and found["estimated_start"] is None
    queue.post("resume")
    queue.take_payloads(3)
    held = queue.take_one()
    assert position(queue, last) == {
        "message_id": last, "state": "leased", "priority": 5, "level": "5"}
    queue.ack(held)
    gone = queue.client.get(queue.message_path(last) + "/position")
    assert gone.refusal == (404, "message-not-found")


def claimed_as_positions_say(queue, ids):
    queue.take_payloads(4)
    expected = {}
    for message in ids:
        found = position(queue, message)
        if found["state"] == "ready":
            assert found["exact"]
            expected[message] = found["messages_ahead"]
    got = []
    while claimed := queue.take():
        got.append(claimed[0]["message_id"])
    assert [expected[message] for message in got] == list(range(len(ids) - 4))


def test_position_under_weights_is_what_then_happens(queue):
    queue.configure(profile="tiers")
    names = ["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND"]
    ids = queue.put_all([{"payload": "x", "priority": name} for name in names for _ in range(9)])
    claimed_as_positions_say(queue, ids)


@pytest.mark.parametrize("policy", ["strict", "weighted"])
@pytest.mark.parametrize("aged, promised", [(True, False), (False, True), (True, True)])
def test_position_with_ages_and_promises_is_what_then_happens(queue, policy, aged, promised):
    """No message comes of age within 100 s."""
    ages, promise = [{}, {}], {}
    if aged:
        ages = [{"age_after_seconds": 1000}, {"age_after_seconds": 2000}]
    if promised:
        promise = {"max_wait_seconds": 8000}
    queue.configure(policy=policy, levels=[
        {"name": "a", "weight": 5}, {"name": "b", "weight": 2, **ages[0], **promise},
        {"name": "c", "weight": 1, **ages[1]}])
    now = int(time.time() * 1000)
    ids = queue.put_all([
        {"payload": "x", "priority": name, "dequeue_at": now - (100 + 400 * n) * 1000 - rank}
        for n in range(20) for rank, name in enumerate("abc")])
    claimed_as_positions_say(queue, ids)


# Configuration

@pytest.mark.parametrize("level, field", [
    ({"weight": 0}, "weight"), ({"weight": -1}, "weight"), ({"weight": 0.0005}, "weight"),
    ({"weight": 1.2345}, "weight"), ({"weight": "1"}, "weight"), ({"weight": 2e6}, "weight"),
    ({"age_after_seconds": 0}, "age_after_seconds"),
    ({"age_after_seconds": -5}, "age_after_seconds"),
    ({"max_wait_seconds": 0}, "max_wait_seconds"), ({"max_in_flight": 0}, "max_in_flight"),
    ({"max_in_flight": 1.5}, "max_in_flight"), ({"ages": 1}, "ages"),
])
def test_levels_that_make_no_sense_are_refused(queue, level, field):
    answer = queue.client.put(queue.path, {"levels": [{"name": "a", **level}]})
    assert answer.status == 422 and answer["field"] == f"/levels/0/{field}", answer


def test_what_get_shows_can_be_put_back(queue):
    levels = [{"name": "a", "number": 3, "weight": 0.5, "age_after_seconds": None,
               "max_wait_seconds": None, "max_in_flight": 7},
              {"name": "b", "number": None, "weight": 2.125, "age_after_seconds": 1.5,
               "max_wait_seconds": 60, "max_in_flight": None}]
    made = queue.configure(levels=levels, policy="weighted", max_in_flight=9)
    assert made["levels"] == levels and made["policy"] == "weighted"
    assert made["max_in_flight"] == 9
    assert queue.configure(**made) == made
    assert queue.client.put(queue.path, {"policy": "fair"}).refusal == (422, "invalid-field")


def test_profiles_bring_their_policy(queue):
    tiers = queue.configure(profile="tiers")
    assert tiers["policy"] == "weighted"
    assert [level["weight"] for level in tiers["levels"]] == [8, 4, 2, 1, 0.5]
    assert [level["age_after_seconds"] for level in tiers["levels"]] == [
        None, None, None, 1800, 3600]
    environments = queue.configure(profile="environments", drop_levels=True)
    assert environments["policy"] == "weighted"
    assert [level["weight"] for level in environments["levels"]] == [4, 3, 2, 1]
    assert queue.enqueue("x", priority="prod").refusal == (422, "unknown-priority")
    assert queue.configure(profile="levels", drop_levels=True)["policy"] == "strict"


# Restart

def test_escalation_and_configuration_survive_a_restart(start):
    server = start(engine="local")
    queue = server.queue("q")
    made = queue.configure(levels=[{"name": "a", "weight": 3, "max_wait_seconds": 9},
                                   {"name": "b", "age_after_seconds": 7, "max_in_flight": 2}],
                           policy="weighted", max_in_flight=5)
    message = queue.put("x", priority="b")
    escalate(queue, message, "a", actor="ann", reason="because")
    shown = queue.show(message).json
    totals = queue.stats()["totals"]
    server.kill()
    server.start()
    queue = server.queue("q")
    assert queue.client.get(queue.path).json == made
    assert queue.show(message).json == shown
    assert queue.stats()["totals"] == totals
