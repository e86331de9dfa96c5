"""The benchmark script: it leaves nothing behind, and the page it writes says what the run said."""

import glob
import json
import os
import signal
import subprocess
import sys

import pytest

from server import ROOT, TRIAGE, TRIAGED
from wire import DEADLINE, until

sys.path.append(os.path.join(ROOT, "bench"))
from postgres import in_transactions, report_between  # noqa: E402

RUN = os.path.join(ROOT, "bench", "run.py")


def bench(*words, **options):
    return subprocess.Popen([sys.executable, RUN, "--triaged", TRIAGED, "--triage", TRIAGE,
                             *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **options)


def processes_that_mention(text):
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                if text.encode() in f.read():
                    found.append(path)
        except OSError:
            pass
    return found


def run_of(**changes):
    """A run in its JSON form, with one table of two servers."""
    def row(name, rate):
        return {"kind": "row", "scenario": "mixed", "name": name, "rate": rate,
                "rate_ratio": rate / 1000, "p50_ms": 1.5, "p99_ms": 2.5, "p99_9_ms": None,
                "cpu_us": 10.0, "cpu_ratio": 1.0, "own_cpu_us": 1.0, "marks": []}

    marks = [{"kind": "bar", "text": "1x Redis", "reached": True},
             {"kind": "aim", "text": "2x Redis", "reached": False}]
    return {
        "command": "make bench", "quick": False, "seconds": 61.0, "complete": True,
        "machine": {"cpu": "a processor", "cores": 2, "memory_gib": 4.0, "kernel": "6.1",
                    "system": "Debian", "file_system": "ext4", "load_before": 0.1,
                    "date": "2026-01-02"},
        "versions": {"Triage": "0.1.0", "Redis": None},
        "records": [
            {"kind": "scenario", "scenario": "mixed", "about": "all of it", "beside": True},
            {"kind": "table", "scenario": "mixed", "title": "", "marks": []},
            row("Triage", 1000.0), row("Redis", 250.0),
            {"kind": "marks", "scenario": "mixed", "marks": marks},
            {"kind": "scenario", "scenario": "memory", "about": "bytes", "beside": False},
            {"kind": "fact", "scenario": "memory", "name": "Triage", "value": 123.4,
             "unit": "bytes", "note": "1.00x, 10 waiting", "marks": []},
        ],
        "broken": [], **changes}


def test_a_run_that_is_interrupted_leaves_nothing_behind(tmp_path):
    run = bench("--quick", "--scenario", "restart", "--folder", tmp_path, "--json",
                tmp_path / "run.json")
    try:
        assert "filling" in run.stderr.readline()
        until(lambda: len(processes_that_mention(str(tmp_path))) >= 2)
        run.send_signal(signal.SIGINT)
        out, _ = run.communicate(timeout=DEADLINE)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130 and "interrupted" in out
    assert os.listdir(tmp_path) == ["run.json"]
    assert json.loads((tmp_path / "run.json").read_text())["complete"] is False
    assert processes_that_mention(str(tmp_path)) == []


def test_the_page_is_written_from_a_run(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(run_of()))
    page = tmp_path / "page.md"
    out, err = bench("--from-json", tmp_path / "run.json", "--write-docs", page).communicate()
    text = page.read_text()
    assert "| Redis | 250 | 0.25x | 1.500 | 2.500 | - | 10.00 | 1.00x | 1.00 |" in text, out + err
    assert "| Redis | 0.25x | 1.00x | - |" in text and "| Triage | 1.00x | 1.00x | 123 (1.00x) |" in text
    assert "Not reached in this run:\n\n- `mixed`: aim 2x Redis: not reached\n" in text
    assert "bar 1x Redis: ok" in text and "Redis not installed" in text and "`make bench`" in text


def test_a_run_that_was_cut_short_writes_no_page(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(run_of(complete=False)))
    page = tmp_path / "page.md"
    process = bench("--from-json", tmp_path / "run.json", "--write-docs", page)
    process.communicate()
    assert process.returncode == 130 and not page.exists()


def test_an_unknown_scenario_is_refused():
    process = bench("--scenario", "nonsense")
    _, err = process.communicate()
    assert process.returncode == 2 and "no scenario nonsense" in err


def test_pgbench_is_counted_between_samples():
    """Ten transactions a second of 50 ms, for two seconds; one sample every half second."""
    log = [(100.05 + i / 10, 0.05) for i in range(20)]
    samples = [(99.5 + i / 2, 7 + i, 1 + i / 10) for i in range(6)]
    report = report_between(log, samples, warmup=0.4)
    assert report.messages == 10 and report.rate == pytest.approx(10)  # from 100.5 to 101.5
    assert report.p50_ms == report.p99_9_ms == pytest.approx(50)
    assert report.server_cpu_us == pytest.approx(200_000)
    assert report.own_cpu_us == pytest.approx(20_000)


def test_a_driver_sends_each_statement_in_a_transaction_of_its_own():
    script = "\\set a 1\nUPDATE t\nSET x = 1 RETURNING id \\gset\nDELETE FROM t;\n"
    assert in_transactions(script).split("\n") == [
        "\\set a 1", "BEGIN;", "UPDATE t", "SET x = 1 RETURNING id \\gset", "COMMIT;",
        "BEGIN;", "DELETE FROM t;", "COMMIT;", ""]
