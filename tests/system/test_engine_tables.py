"""What engines declare in tables of their own reaches every place where people look for it: flags,
triage.conf, the docs, /metrics; and --trace-engine shows what is asked of an engine."""

import os
import re
import subprocess

import pytest

from server import TRIAGED, environment

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def text(*path):
    with open(os.path.join(ROOT, *path)) as file:
        return file.read()


def settings():
    """Key and default of each, as --help has them."""
    done = subprocess.run([TRIAGED, "--help"], capture_output=True, text=True, check=True)
    found = re.findall(r"^  --([a-z-]+) \S.*\n +.*\(default: (.*)\)$", done.stdout, re.M)
    return {flag.replace("-", "_"): default for flag, default in found}


def run(*flags, **variables):
    done = subprocess.run([TRIAGED, "--check", *flags], capture_output=True, text=True,
                          env={**environment(), **variables})
    return done.stderr


def test_every_setting_is_in_the_configuration_file_and_in_the_docs():
    conf, docs = text("packaging", "triage.conf"), text("docs", "operations.md")
    known = settings()
    assert {"data", "memory_limit", "postgres", "postgres_timeout_seconds", "trace_engine"} <= set(known)
    for key, default in known.items():
        line = re.search(rf"^;{key} =(.*)$", conf, re.M)
        assert line, f"{key} is not in triage.conf"
        if key != "postgres":  # which shows how it is written
            assert (line[1].strip() or "none") == default, key
        assert re.search(rf"^\|.*`{key}`", docs, re.M), f"{key} is not in operations.md"


@pytest.mark.parametrize("key, value, complaint", [
    ("postgres_timeout_seconds", "601", "postgres_timeout_seconds takes 1 to 600, not 601"),
    ("postgres_timeout_seconds", "soon", 'postgres_timeout_seconds takes NUMBER, not "soon"'),
    ("memory_limit", "much", 'memory_limit takes BYTES[K|M|G|T], not "much"'),
    ("data", "x" * 512, "data takes DIR, not"),
    ("trace_engine", "maybe", 'trace_engine takes on|off, not "maybe"'),
])
def test_what_an_engine_declares_is_checked_wherever_it_is_given(key, value, complaint):
    flag, variable = "--" + key.replace("_", "-"), "TRIAGE_" + key.upper()
    assert f"{flag}: {complaint}" in run(flag, value)
    assert f"{variable}: {complaint}" in run(**{variable: value})


def test_every_metric_is_in_the_docs_whichever_engine_runs(start):
    docs = text("docs", "operations.md")
    shown = {}
    for engine in ("memory", "local"):
        lines = start(engine=engine).client().get("/metrics").body.decode().splitlines()
        shown[engine] = {line.split()[2] for line in lines if line.startswith("# TYPE")}
        for name in shown[engine]:
            assert f"| `{name}` |" in docs, f"{name} is not in operations.md"
    assert shown["memory"] == shown["local"]
    assert {"triage_engine_refills_total", "triage_engine_table_bytes"} <= shown["memory"]


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_a_trace_has_each_operation_and_its_answer_and_no_payload(start, engine):
    server = start(engine=engine, flags=["--trace-engine"])
    queue = server.queue("q")
    queue.put("a secret")
    queue.take_one()
    server.stop()
    log = str(server.log)
    asked = re.findall(r'msg="engine op" shard=0 op=(\d+) verb=(\w+) queue=(\S*)', log)
    told = re.findall(r'msg="engine answer" shard=0 op=(\d+) verb=(\w+) queue=(\S*) status=ok took_us=\d+',
                      log)
    assert sorted(asked) == sorted(told)
    assert {"queue_set", "put", "claim"} <= {verb for _, verb, _ in asked}
    assert re.search(r"verb=claim queue=q status=ok took_us=\d+ found=1", log)
    assert "secret" not in log


def test_without_a_trace_there_is_none(start):
    server = start()
    server.queue("q").put("x")
    server.stop()
    assert 'msg="engine op"' not in str(server.log)
