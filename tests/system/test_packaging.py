"""What packaging/ has for those who watch and scale: every expression of the dashboard and of the
rules is run by a real Prometheus that scrapes a real server; the alerts are tested by promtool;
KEDA's calls are made as KEDA makes them; the demo runs and ends."""

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

from server import BUILD, ROOT, Log, Server, environment, tokens_file
from wire import DEADLINE, until

PACKAGING = os.path.join(ROOT, "packaging")
RULES = os.path.join(PACKAGING, "prometheus", "triage.rules.yml")


def rules():
    with open(RULES, encoding="utf-8") as file:
        return [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]


def dashboard():
    with open(os.path.join(PACKAGING, "grafana", "triage.json"), encoding="utf-8") as file:
        return json.load(file)


def dashboard_expressions():
    """[(panel, expression)] as Grafana would send them, with all queues and jobs chosen."""
    filled = {"$__rate_interval": "1m", "$queue": ".*", "$job": ".*"}
    found = []
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in filled.items():
                expression = expression.replace(name, value)
            found.append((panel["title"], expression))
    return found


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


class Prometheus:
    """Debian's Prometheus, which scrapes one server."""

    def __init__(self, folder, address, client):
        self.client = client
        self.port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms",
                       "evaluation_interval": "500ms"},
            "rule_files": [RULES],
            "scrape_configs": [{"job_name": "triage", "scrape_timeout": "500ms",
                                "static_configs": [{"targets": ["%s:%d" % address]}]}]}))
        self.process = subprocess.Popen(
            [shutil.which("prometheus"), "--config.file", str(config), "--storage.tsdb.path",
             str(folder / "data"), "--web.listen-address", f"127.0.0.1:{self.port}",
             "--enable-feature=exemplar-storage"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.log = Log(self.process.stderr)
        assert self.log.wait_for("Server is ready to receive web requests"), str(self.log)

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error

    def query(self, expression):
        found = self.get("query", query=expression)
        return found["result"]

    def end(self):
        self.process.kill()
        self.process.wait(DEADLINE)


def work(queue):
    """A little of everything that the dashboard shows."""
    for level in ("HIGH", "NORMAL", "LOW"):
        queue.put("a", priority=level)
    message = queue.take_one()
    queue.ack(message)
    queue.nack(queue.take_one(), delay_seconds=0)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    assert shutil.which("prometheus"), "Debian's package prometheus is missing: tools/setup test"
    server = Server(tmp_path_factory.mktemp("server"), engine="local").start()
    prometheus = None
    try:
        queue = server.queue("mail")
        queue.configure(profile="tiers", alerts={"dead_letters": 1})
        prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), server.address, queue)

        def is_seen():
            work(queue)
            return prometheus.query('rate(triage_queue_lease_seconds_count{level="NORMAL"}[1m]) > 0')

        work(queue)
        until(lambda: prometheus.query("triage_queue_lease_seconds_count"))
        until(is_seen)
        yield prometheus
    finally:
        if prometheus:
            prometheus.end()
        server.end()


def test_promtool_tests_the_rules():
    folder = os.path.join(PACKAGING, "prometheus")
    for arguments in (["check", "rules", "triage.rules.yml"], ["test", "rules", "triage.rules.test.yml"]):
        done = subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_and_says_what_is_the_matter():
    with open(os.path.join(PACKAGING, "prometheus", "triage.rules.test.yml"), encoding="utf-8") as file:
        tested = {case["alertname"] for test in yaml.safe_load(file)["tests"]
                  for case in test.get("alert_rule_test", []) if case["exp_alerts"]}
    alerts = {rule["alert"]: rule for rule in rules() if "alert" in rule}
    assert tested == set(alerts)
    for name, rule in alerts.items():
        assert rule["annotations"]["summary"] and rule["labels"]["severity"], name


def test_prometheus_reads_the_server_without_a_fault(watched):
    [target] = watched.get("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert watched.query("up")[0]["value"][1] == "1"


def test_prometheus_keeps_the_request_ids_of_exemplars(watched):
    def kept():
        work(watched.client)
        found = watched.get("query_exemplars", start=0, end=4e9,
                            query="triage_http_request_duration_seconds_bucket")
        return [e["labels"]["request_id"] for series in found for e in series["exemplars"]]
    until(kept)


@pytest.mark.parametrize("panel, expression", dashboard_expressions())
def test_every_expression_of_the_dashboard_finds_something(watched, panel, expression):
    until(lambda: watched.query(expression) or work(watched.client))


def test_the_dashboard_asks_for_queues_and_jobs_that_there_are(watched):
    variables = {v["name"]: v.get("definition") for v in dashboard()["templating"]["list"]}
    for name, value in (("queue", "mail"), ("job", "triage")):
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]).groups()
        assert value in watched.get(f"label/{label}/values", **{"match[]": metric})


def test_every_rule_is_evaluated_and_every_record_has_values(watched):
    def healths():
        return {rule["name"]: rule["health"] for group in watched.get("rules")["groups"]
                for rule in group["rules"]}
    until(lambda: set(healths().values()) == {"ok"})
    assert len(healths()) == len(rules())
    for rule in rules():
        if "record" in rule:
            until(lambda: watched.query(rule["record"]) or work(watched.client))


def test_every_metric_of_packaging_is_a_metric_of_ours(watched):
    known = set(watched.get("label/__name__/values"))
    asked = {name for _, expression in dashboard_expressions()
             for name in re.findall(r"\btriage_\w+", expression)}
    asked |= {name for rule in rules() for name in re.findall(r"\btriage_\w+", rule["expr"])}
    with open(os.path.join(ROOT, "docs", "operations.md"), encoding="utf-8") as file:
        described = set(re.findall(r"^\| `(triage_\w+)`", file.read(), re.M))
    for name in asked:
        assert re.sub(r"_(bucket|sum|count)$", "", name) in described, name
    assert asked - known <= {"triage_cell_up", "triage_engine_oldest_transaction_seconds"}


# KEDA


def triggers():
    with open(os.path.join(PACKAGING, "keda", "scaledobject.yaml"), encoding="utf-8") as file:
        documents = list(yaml.safe_load_all(file))
    [scaled] = [d for d in documents if d["kind"] == "ScaledObject"]
    return {t["name"]: t for t in scaled["spec"]["triggers"]}


def value_at(document, location):
    """What KEDA's metrics-api scaler reads of an answer: a path of GJSON. Of that language it has
    names, and the first element of an array that fits a query."""
    for step in re.findall(r'#\([^)]*\)|[^.]+', location):
        query = re.fullmatch(r'#\((\w+)=="([^"]*)"\)', step)
        if query:
            document = next(e for e in document if e[query[1]] == query[2])
        else:
            document = document[step]
    assert isinstance(document, (int, float)) and not isinstance(document, bool)
    return document


def asks(server, trigger, token):
    """The value that KEDA would have, with the head of its request as KEDA makes it."""
    assert trigger["type"] == "metrics-api" and trigger["metadata"]["authMode"] == "bearer"
    path = urllib.parse.urlsplit(trigger["metadata"]["url"]).path
    answer = server.client(token=token).get(path)
    assert answer.status == 200, answer
    return value_at(answer.json, trigger["metadata"]["valueLocation"])


def pods(trigger, value, pods_now=1):
    """How many the autoscaler would have: an average over pods, or a value of the whole."""
    share = value / float(trigger["metadata"]["targetValue"])
    return math.ceil(share * pods_now if trigger.get("metricType") == "Value" else share)


@pytest.mark.parametrize("engine", ["memory", "local", "postgres"])
def test_keda_reads_depth_age_and_level(start, tmp_path, engine):
    server = start(engine=engine, tokens_file=tokens_file(
        tmp_path, [("boss", "s-boss", "admin,read,produce,consume"), ("keda", "s-keda", "read mail")]))
    queue = server.queue("mail", token="s-boss")
    queue.configure(profile="tiers")
    depth, oldest, urgent = (triggers()[name] for name in ("depth", "oldest", "urgent"))
    assert [asks(server, t, "s-keda") for t in (depth, oldest, urgent)] == [0, 0, 0]
    assert [pods(t, 0) for t in (depth, oldest, urgent)] == [0, 0, 0]
    queue.put_all([{"payload": n, "priority": "LOW"} for n in range(150)])
    queue.put_all([{"payload": n, "priority": "CRITICAL"} for n in range(11)])
    queue.put("old", priority="LOW", dequeue_at=1)
    until(lambda: asks(server, depth, "s-keda") == 162)
    assert pods(depth, asks(server, depth, "s-keda")) == 2
    assert asks(server, urgent, "s-keda") == 11 and pods(urgent, 11) == 3
    assert asks(server, oldest, "s-keda") > 3600 and pods(oldest, 90, pods_now=4) == 6


# The demo


def group_of(pid):
    """Processes that have this one as an ancestor."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass  # it has just ended
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {pid}
        found |= more


def test_the_demo_runs_and_ends_all_it_started():
    demo = subprocess.Popen([sys.executable, os.path.join(ROOT, "tools", "demo"), "--port", "0",
                             "--prometheus", str(free_port())], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={**environment(), "TRIAGE_BUILD": BUILD})
    log = Log(demo.stdout)
    started = set()
    try:
        server = log.wait_for(r"server +http://127\.0\.0\.1:(\d+)/")
        prometheus = log.wait_for(r"prometheus +http://127\.0\.0\.1:(\d+)/")
        assert server and prometheus and log.wait_for("Ctrl-C"), str(log)
        started = group_of(demo.pid)

        def acked():
            url = f"http://127.0.0.1:{prometheus[1]}/api/v1/query?" + urllib.parse.urlencode(
                {"query": "min(triage_queue_acked_total) > 0"})
            try:
                with urllib.request.urlopen(url, timeout=DEADLINE) as answer:
                    return json.load(answer)["data"]["result"]
            except OSError:
                return None  # it is still starting
        until(acked)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(DEADLINE) == 0, str(log)
        assert log.find("everything has ended")
        assert len(started) == 2 and not any(os.path.exists(f"/proc/{pid}") for pid in started)
    finally:
        demo.kill()
        for pid in started:
            if os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGKILL)
