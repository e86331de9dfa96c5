"""The history of queues: what their numbers were, as the server remembers."""

import subprocess
import time
from datetime import datetime, timedelta, timezone

import pytest

from server import TRIAGE, environment
from wire import until

GAUGES = {"ready", "scheduled", "in_flight", "dead", "oldest_seconds"}
RATES = {"enqueued_per_second", "claimed_per_second", "acked_per_second", "failed_per_second"}


def moment(seconds=0):
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def history(queue, **query):
    answer = queue.client.get(queue.path + "/history", **query)
    assert answer.status == 200, answer
    assert answer.headers["cache-control"] == "no-store"
    return answer.json


def comes(queue, condition, **query):
    """The history, as soon as it is so."""
    found = {}

    def look():
        found.update(history(queue, **query))
        return condition(found["series"])

    until(look)
    return found


def test_numbers_and_rates_are_remembered_second_by_second(queue):
    began = moment(-5)
    for i in range(5):
        queue.put(str(i))
    comes(queue, lambda s: 5 in s["ready"], **{"from": began, "step": 1})
    message = queue.take_one()
    queue.ack(message)
    queue.nack(queue.take_one(), delay_seconds=1000)
    found = comes(queue, lambda s: s["ready"][-1] == 3 and s["scheduled"][-1] == 1,
                  **{"from": began, "step": 1})
    series = found["series"]
    assert set(series) == GAUGES | RATES
    assert found["queue"] == queue.name and found["step_seconds"] == 1
    assert series["ready"][0] is None  # nothing was known then
    assert len({len(points) for points in series.values()}) == 1
    assert max(points for points in series["ready"] if points is not None) == 5
    for name, most in (("acked_per_second", 1), ("failed_per_second", 1),
                       ("claimed_per_second", 2)):
        assert sum(rate or 0 for rate in series[name]) == most, (name, series[name])
    assert series["oldest_seconds"][-1] >= 0


def test_a_level_has_its_own(queue):
    queue.configure(profile="environments")
    levels = [level["level"] for level in queue.stats()["levels"]]
    for count, level in enumerate((levels[0], levels[-1]), 1):
        for _ in range(count):
            queue.put("a", priority=level)
    found = comes(queue, lambda s: s["ready"][-1] == 2, level=levels[-1])
    assert set(found["series"]) == GAUGES
    comes(queue, lambda s: s["ready"][-1] == 1, level=levels[0])
    comes(queue, lambda s: s["ready"][-1] == 0, level=levels[1])
    comes(queue, lambda s: s["ready"][-1] == 3)


def test_series_are_chosen_by_name(queue):
    queue.put("a")
    found = queue.client.request("GET", queue.path + "/history?series=ready&series=acked_per_second")
    assert set(found["series"]) == {"ready", "acked_per_second"}


def test_points_lie_at_whole_steps_and_older_ones_farther_apart(queue):
    queue.put("a")
    for back, least in ((1800, 1), (5 * 3600, 10), (3 * 86400, 60), (30 * 86400, 900)):
        found = history(queue, **{"from": moment(-back), "step": 3600 if back > 86400 else 600})
        first = datetime.fromisoformat(found["from"].replace("Z", "+00:00")).timestamp()
        assert first % found["step_seconds"] == 0
        by_itself = history(queue, **{"from": moment(-back)})
        assert by_itself["step_seconds"] % least == 0
        assert len(by_itself["series"]["ready"]) <= 362


@pytest.mark.parametrize("query", [
    {"from": "yesterday"}, {"step": 0}, {"step": "x"}, {"series": "wrong"},
    {"from": "2026-01-01T00:00:00Z", "to": "2025-01-01T00:00:00Z"},
    {"to": "2020-01-01T00:00:00Z", "from": "2020-01-01T00:00:00Z"},
    {"step": 100000}])
def test_a_bad_question_is_refused(queue, query):
    queue.put("a")
    assert queue.client.get(queue.path + "/history", **query).refusal == (422, "invalid-field")


def test_more_points_than_an_answer_may_have_are_refused(queue):
    queue.put("a")
    refused = queue.client.get(queue.path + "/history", **{"from": moment(-3000), "step": 1})
    assert refused.refusal == (422, "invalid-field")


def test_an_unknown_level_and_an_unknown_queue_are_refused(queue):
    queue.put("a")
    assert queue.client.get(queue.path + "/history", level="NONE").refusal == \
        (422, "unknown-priority")
    assert queue.client.get("/v1/queues/not-there/history").refusal == (404, "queue-not-found")


def test_a_deleted_queue_leaves_none_to_its_successor(queue, api):
    queue.put("a")
    comes(queue, lambda s: 1 in s["ready"])
    api.delete(queue.path, force=True)
    queue.put("b", delay_seconds=1000)
    found = comes(queue, lambda s: 1 in s["scheduled"])
    assert 1 not in found["series"]["ready"]


def test_none_is_kept_without_memory(start):
    server = start(engine="memory", history_memory=0)
    queue = server.queue("mail")
    queue.put("a")
    time.sleep(2.1)  # two rounds, if there were any
    assert set(history(queue)["series"]["ready"]) == {None}


def test_all_queues_of_all_shards_are_remembered(start):
    server = start(engine="memory", shards=3)
    client = server.client()
    for i in range(700):
        assert client.post(f"/v1/queues/q{i}/messages", {"payload": "x"}).status == 201
    for i in (0, 1, 350, 698, 699):
        comes(server.queue(f"q{i}"), lambda s: s["ready"][-1] == 1)


def triage(server, *words):
    env = {**environment(), "TRIAGE_SERVER": "http://127.0.0.1:%d" % server.address[1]}
    return subprocess.run([TRIAGE, *words], env=env, capture_output=True, text=True)


def test_the_command_draws_it(server, queue):
    queue.put("a")
    comes(queue, lambda s: s["ready"][-1] == 1)
    shown = triage(server, "history", queue.name)
    assert shown.returncode == 0, shown.stderr
    line = next(line for line in shown.stdout.splitlines() if line.startswith("ready "))
    assert line.split()[1:4] == ["1", "1", "1"] and line.endswith("█")
    assert '"series":{' in triage(server, "history", queue.name, "--json").stdout
    assert triage(server, "history", queue.name, "--step", "100d").returncode != 0
