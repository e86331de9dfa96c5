"""/metrics: histograms of what waits and works take, which queues are shown, the two formats."""

import re
import shutil
import subprocess
import time

import pytest

from wire import until

BUCKET = re.compile(r'(\w+)_bucket\{(.*?),?le="([^"]+)"\} (\d+)(?: # (.*))?')
WAIT, LEASE = "triage_queue_wait_seconds", "triage_queue_lease_seconds"


def page(client, accept=None, **query):
    headers = {"Accept": accept} if accept else {}
    answer = client.request("GET", "/metrics", headers=headers, query=query)
    assert answer.status == 200, answer
    return answer.body.decode()


def histograms(text, name):
    """{labels: [(bound, count)]} of one family, with its own count as the last."""
    found = {}
    for family, labels, bound, count, _ in BUCKET.findall(text):
        if family == name:
            found.setdefault(labels, []).append((float(bound), int(count)))
    return found


def of_level(text, name, queue, level):
    return histograms(text, name).get(f'queue="{queue}",level="{level}"')


def count_within(buckets, seconds):
    return max(count for bound, count in buckets if bound <= seconds)


def queues_shown(text, name="triage_queue_ready"):
    return set(re.findall(rf'^{name}{{queue="([^"]+)"', text, re.M))


@pytest.fixture
def few(start):
    return start(engine="memory", metrics_queues=3)


def test_waits_and_leases_are_counted_by_level(start):
    server = start()
    q = server.queue("q")
    q.configure(profile="tiers")
    q.put("now", priority="HIGH")
    q.put("now", priority="NORMAL")
    q.put("now", priority="NORMAL")
    first, second, third = (q.take_one() for _ in range(3))
    q.ack(first)
    q.nack(second, delay_seconds=3600)
    q.release(third)
    text = page(server.client())
    for name in (WAIT, LEASE):
        assert of_level(text, name, "q", "HIGH")[-1] == (float("inf"), 1)
        assert of_level(text, name, "q", "NORMAL")[-1] == (float("inf"), 2)
        assert of_level(text, name, "q", "LOW") is None  # only levels that were used
    bounds = [bound for bound, _ in of_level(text, WAIT, "q", "NORMAL")]
    assert bounds[0] == 0.001 and bounds[-2] == 86400 and bounds == sorted(bounds)
    assert server.metrics()[f'{WAIT}_count{{queue="q",level="NORMAL"}}'] == 2


def test_a_wait_begins_when_the_message_is_ready_and_a_lease_when_it_is_claimed(start):
    """A message that has been ready since 1970, held for more than 60 ms and extended meanwhile."""
    server = start(engine="memory")
    q = server.queue("q")
    q.configure(profile="tiers")
    q.put("old", dequeue_at=1)  # ready since 1970
    message = q.take_one()
    text = page(server.client())
    assert count_within(of_level(text, WAIT, "q", "NORMAL"), 86400) == 0
    assert of_level(text, WAIT, "q", "NORMAL")[-1][1] == 1
    q.extend(message, 600)
    began = time.monotonic()
    until(lambda: time.monotonic() > began + 0.06)
    q.ack(message)
    leases = of_level(page(server.client()), LEASE, "q", "NORMAL")
    assert leases[-1][1] == 1 and count_within(leases, 0.05) == 0 and count_within(leases, 600) == 1


def test_an_empty_claim_counts_nothing(few):
    few.queue("q").configure()
    assert few.queue("q").take() == []
    assert histograms(page(few.client()), WAIT) == {}


def test_requests_are_timed_by_route_and_claims_that_wait_apart(few):
    q = few.queue("q")
    q.put("a")
    q.take_one()
    q.take(wait_seconds=1)
    routes = histograms(page(few.client()), "triage_http_request_duration_seconds")
    enqueue, claim = ('method="POST",route="/v1/queues/{queue}/messages",waits="%s"',
                      'method="POST",route="/v1/queues/{queue}/messages/claim",waits="%s"')
    assert routes[enqueue % "no"][-1][1] == 1 and enqueue % "yes" not in routes
    assert routes[claim % "no"][-1][1] == 1 and routes[claim % "yes"][-1][1] == 1
    assert count_within(routes[claim % "yes"], 0.5) == 0  # it waited for a second


def test_turns_and_commits_are_histograms(start):
    server = start(engine="local")
    server.queue("q").put("a")
    text = page(server.client())
    metrics = server.metrics()
    for name, least in (("triage_loop_turn_seconds", 1),
                        ("triage_engine_commit_duration_seconds", 1),
                        ("triage_engine_log_write_seconds", 1)):
        [buckets] = histograms(text, name).values()
        assert buckets[-1][1] >= least, name
    assert metrics["triage_engine_commit_duration_seconds_sum"] == pytest.approx(
        metrics["triage_engine_commit_seconds_total"])


def test_a_filter_chooses_queues(few):
    for name in ("mail", "mail-slow", "sms", "x1"):
        few.queue(name).put("a")
    client = few.client()
    assert queues_shown(page(client, queue="sms")) == {"sms"}
    assert queues_shown(page(client, queue="mail*")) == {"mail", "mail-slow"}
    assert queues_shown(client.get("/metrics?queue=sms&queue=x*").body.decode()) == {"sms", "x1"}
    assert queues_shown(page(client, queue="none")) == set()
    assert client.get("/metrics", queue="a b").refusal == (422, "invalid-field")
    assert client.get("/metrics", queue="a*b").refusal == (422, "invalid-field")
    assert client.get("/metrics?scope=all&scope=all").refusal == (422, "invalid-field")


def test_the_queues_with_most_to_do_are_shown_and_the_rest_is_one(few):
    for i in range(6):
        for _ in range(i + 1):
            few.queue(f"q{i}").put("a")
        few.queue(f"q{i}").ack(few.queue(f"q{i}").take_one())
    text = page(few.client())
    assert queues_shown(text) == {"q3", "q4", "q5", "(other)"}
    metrics = few.metrics()
    assert metrics['triage_queue_enqueued_total{queue="(other)"}'] == 1 + 2 + 3
    assert metrics['triage_queue_ready{queue="(other)"}'] == 0 + 1 + 2
    assert metrics['triage_queue_level_ready{queue="(other)",level=""}'] == 3
    assert of_level(text, WAIT, "(other)", "")[-1][1] == 3
    assert sum(value for key, value in metrics.items()
               if key.startswith("triage_queue_enqueued_total")) == 21


def test_a_queue_with_an_alert_is_shown_first(few):
    for i in range(6):
        few.queue(f"q{i}").put_all([{"payload": n} for n in range(200)])
    few.queue("sick").configure(max_attempts=1, alerts={"dead_letters": 1})
    few.queue("sick").put("a")
    few.queue("sick").nack(few.queue("sick").take_one())
    until(lambda: 'triage_queue_alert{queue="sick",kind="dead_letters"} 1' in page(few.client()))


def test_openmetrics_has_exemplars_and_an_end(few):
    few.client().request("PUT", "/v1/queues/q", {}, headers={"X-Request-Id": "the-one"})
    answer = few.client().request("GET", "/metrics", headers={
        "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"})
    text = answer.body.decode()
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n") and text.count("# EOF") == 1
    exemplars = [e for *_, e in BUCKET.findall(text) if e]
    assert any(re.fullmatch(r'\{request_id="the-one"\} \d+\.\d{6} \d+\.\d{3}', e) for e in exemplars)
    families = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    assert len(families) == len({name for name, _ in families})
    for name, kind in families:
        if kind == "counter":
            assert not name.endswith("_total")
            assert not re.search(rf"^{name}[{{ ]", text, re.M), name
    plain = page(few.client())
    assert " # {" not in plain and "# EOF" not in plain


@pytest.mark.parametrize("engine", ["memory", "local", "postgres", "cells"])
def test_promtool_finds_no_fault(start, engine):
    promtool = shutil.which("promtool")
    assert promtool, "Debian's package prometheus is missing: tools/setup test"
    server = start(engine=engine, flags=["--cell=a=memory", "--cell=b=memory"] if engine == "cells" else [])
    server.queue("q").put("a")
    server.queue("q").ack(server.queue("q").take_one())
    done = subprocess.run([promtool, "check", "metrics"], input=page(server.client()),
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
