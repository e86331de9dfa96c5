"""What a new queue does about a failure, whoever makes the queue: five attempts, and 1, 2, 4 and 8
seconds between them. Times are compared with others of the same clock, never with the test's."""

import json
from datetime import datetime, timedelta

import pytest

from database import install
from wire import AT_ONCE, Queue

RETRY = {"backoff": "exponential", "base_seconds": 1, "max_seconds": 300, "jitter": 0.1}
PROFILES = ["levels", "tiers", "environments", "timeline"]
SLACK = timedelta(milliseconds=2)  # times are shown in whole milliseconds

BIRTHS = {
    "enqueue": lambda api, path: api.post(path + "/messages", {"payload": "x"}),
    "batch": lambda api, path: api.post(path + "/messages/batch", {"messages": [{"payload": "x"}]}),
    "schedule": lambda api, path: api.put(path + "/schedules/s", {"every_seconds": 3600,
                                                                  "payload": "x"}),
    "put": lambda api, path: api.put(path, {}),
    "levels of its own": lambda api, path: api.put(path, {"levels": [{"name": "a"}]}),
    **{profile: lambda api, path, profile=profile: api.put(path, {"profile": profile})
       for profile in PROFILES},
}


def moment(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def assert_about(seconds, since, until, ready_at):
    """The delay began between two moments, and is as long as that, give or take a tenth."""
    assert since + timedelta(seconds=0.9 * seconds) - SLACK <= ready_at
    assert ready_at <= until + timedelta(seconds=1.1 * seconds) + SLACK


def safe(config):
    return (config["max_attempts"], config["retry"]) == (5, RETRY)


@pytest.mark.parametrize("birth", BIRTHS)
def test_whoever_makes_a_queue_makes_a_patient_one(api, queue, birth):
    assert BIRTHS[birth](api, queue.path).status in (200, 201)
    assert safe(api.get(queue.path).json)


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
def test_a_failure_waits_twice_as_long_each_time(api, queue, attempt):
    def now():
        answer = Queue(api, queue.name + "-clock").enqueue("x")
        return moment(answer["enqueued_at"])

    queue.put("x")
    for _ in range(attempt - 1):
        assert queue.nack(queue.take_one(), delay_seconds=0)["state"] == "ready"
    message = queue.take_one()
    before = now()
    assert queue.nack(message)["state"] == "scheduled"
    assert_about(2 ** (attempt - 1), before, now(), moment(queue.show(message)["ready_at"]))
    assert queue.dead() == []


def test_the_fifth_failure_is_the_last(queue):
    queue.put("x")
    for attempt in range(1, 5):
        message = queue.take_one()
        assert message["attempt"] == attempt
        assert queue.nack(message, delay_seconds=0)["state"] == "ready"
    assert queue.nack(queue.take_one())["state"] == "dead"
    assert [dead["attempts"] for dead in queue.dead()] == [5]


def test_what_failed_comes_again_by_itself(queue):
    queue.put("x")
    assert queue.nack(queue.take_one())["state"] == "scheduled"
    assert queue.take() == []
    assert queue.take_one(wait_seconds=30)["attempt"] == 2


def test_a_queue_that_is_there_keeps_what_it_has(api, queue):
    queue.configure(max_attempts=3, retry=AT_ONCE)
    was = api.get(queue.path).json
    queue.put("x")
    assert api.put(queue.path, {}).json == was
    now = queue.configure(profile="tiers", drop_levels="empty")
    assert (now["max_attempts"], now["retry"]) == (3, was["retry"])


# The same from SQL, without a server.


def sql_config(s, name, config):
    return s.one("SELECT triage.configure(%s, %s)", name, json.dumps(config))


@pytest.mark.parametrize("profile", PROFILES)
def test_sql_makes_patient_queues(connect, profile):
    s = connect()
    assert safe(sql_config(s, f"made-{profile}", {"profile": profile}))
    s.run("SELECT set_config('triage.default_profile', %s, false)", profile)
    s.run("SELECT triage.enqueue(%s, 'x'::text)", f"filled-{profile}")
    shown = s.one("SELECT triage.config(%s)", f"filled-{profile}")
    assert safe(shown) and shown["profile"] == profile


def test_sql_fails_later_and_later_and_dies_of_the_fifth(connect):
    s = connect()
    s.run("SELECT triage.enqueue('failing', 'x'::text)")
    for attempt in range(1, 5):
        message, receipt = s.row("SELECT message_id, receipt_handle FROM triage.claim('failing')")
        before = s.one("SELECT clock_timestamp()")
        assert s.one("SELECT triage.nack(%s, %s)", message, receipt) == "scheduled"
        after, ready_at = s.row("SELECT clock_timestamp(), scheduled_at FROM triage.messages "
                                "WHERE message_id = %s", message)
        assert_about(2 ** (attempt - 1), before, after, ready_at)
        s.run("UPDATE triage.scheduled SET ready_ms = triage.now_ms()")  # as if it had passed
    message, receipt = s.row("SELECT message_id, receipt_handle FROM triage.claim('failing')")
    assert s.one("SELECT triage.nack(%s, %s)", message, receipt) == "dead"


def test_the_step_of_the_schema_leaves_queues_as_they_are(postgres, connect):
    s = connect()
    was = sql_config(s, "older", {"max_attempts": 3, "retry": AT_ONCE})
    s.run("DELETE FROM triage.version WHERE step >= 26")
    assert install(postgres.connect("triage")) >= 1
    assert s.one("SELECT triage.config('older')") == was
