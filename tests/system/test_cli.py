"""The command line client against a real server: what it prints, and the status it exits with."""

import hashlib
import json
import os
import pty
import signal
import socket
import socketserver
import subprocess
import sys
import threading

import pytest

from server import TRIAGE
from wire import AT_ONCE, DEADLINE, Queue, until

DONE, REFUSED, USAGE, UNREACHED = 0, 1, 2, 3


class Shell:
    def __init__(self, server, queue):
        self.url = "http://%s:%d" % server.address
        self.queue = queue

    def start(self, *words, **options):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([TRIAGE, "--server", self.url, *map(str, words)],
                                stdin=subprocess.DEVNULL, **{**pipes, **options})

    def run(self, *words, stdin=b""):
        """The finished command; output as text."""
        return subprocess.run([TRIAGE, "--server", self.url, *map(str, words)], input=stdin,
                              capture_output=True, timeout=DEADLINE)

    def ok(self, *words, stdin=b""):
        done = self.run(*words, stdin=stdin)
        assert done.returncode == DONE, done
        return done.stdout.decode().removesuffix("\n")

    def json(self, *words, stdin=b""):
        return json.loads(self.ok("--json", *words, stdin=stdin))

    def claim(self, *words):
        """(id, priority, attempt, receipt, payload) of one message."""
        return self.ok("claim", self.queue.name, *words).split("\t")


@pytest.fixture
def shell(server, queue):
    return Shell(server, queue)


def test_enqueue_prints_the_id_and_takes_every_option(shell, queue):
    name = queue.name
    plain = shell.ok("enqueue", name, "hello")
    assert plain.startswith("msg_")
    rich = shell.json("enqueue", name, "rich", "--priority", "9", "--dedup", "k", "--ttl", "1h",
                      "--meta", "tenant=acme", "--meta", "trace=a=b")["message_id"]
    assert shell.json("enqueue", name, "again", "--dedup", "k")["deduplicated"] is True
    late = shell.ok("enqueue", name, "late", "--delay", "10m")
    piped = shell.ok("enqueue", name, "-", stdin=b"from\nstdin\n")
    implied = shell.ok("enqueue", name, stdin=b"\xff\x00bytes")
    shown = shell.json("show", name, rich)
    assert (shown["priority"], shown["payload"]) == (9, "rich")
    assert shown["metadata"] == {"tenant": "acme", "trace": "a=b"}
    assert shell.json("show", name, late)["state"] == "scheduled"
    assert shell.json("show", name, piped)["payload"] == "from\nstdin\n"
    assert "payload_base64" in shell.json("show", name, implied)


def test_claim_ack_nack_extend_and_release(shell, queue):
    name = queue.name
    first = shell.ok("enqueue", name, "one", "--priority", "8")
    shell.ok("enqueue", name, "two", "--priority", "2")
    ident, priority, attempt, receipt, payload = shell.claim()
    assert (ident, priority, attempt, payload) == (first, "8", "1", "one")
    assert "T" in shell.ok("extend", name, ident, receipt, "60s")
    shell.ok("release", name, ident, receipt)
    ident, _, attempt, receipt, _ = shell.claim()
    assert (ident, attempt) == (first, "1")
    assert shell.ok("nack", name, ident, receipt, "--reason", "no", "--delay", "0s") == "ready"
    ident, _, attempt, receipt, _ = shell.claim("--min-priority", "8", "--visibility", "20s")
    assert (ident, attempt) == (first, "2")
    assert shell.ok("nack", name, ident, receipt, "--delay", "1h") == "scheduled"
    assert shell.claim("--min-priority", "8") == [""]
    ident, _, _, receipt, payload = shell.claim("--max", "5", "--wait", "1s")
    assert payload == "two"
    shell.ok("ack", name, ident, receipt)
    refused = shell.run("ack", name, ident, receipt)
    assert refused.returncode == REFUSED and refused.stderr


def test_show_cancel_stats_and_queues(shell, queue):
    name = queue.name
    ident = shell.ok("enqueue", name, "x")
    assert "ready" in shell.ok("show", name, ident)
    assert shell.json("stats", name)["ready"] == 1
    assert "ready" in shell.ok("stats", name)
    assert name in shell.ok("queues", "--prefix", name)
    assert [q["name"] for q in shell.json("queues", "--prefix", name)["queues"]] == [name]
    shell.ok("cancel", name, ident)
    assert shell.run("show", name, ident).returncode == REFUSED
    assert shell.json("stats", name)["totals"]["cancelled"] == 1


def test_browse_finds_by_options_page_after_page(shell, queue):
    ids = queue.put_all([{"payload": f"number {n}", "metadata": {"odd": n % 2 == 1, "n": n}}
                         for n in range(1200)])
    later = queue.put("later", delay_seconds=3600)
    lines = shell.ok("browse", queue.name, "--state", "ready", "--meta", "odd=true").splitlines()
    assert len([line for line in lines if line.startswith("msg_")]) == 600
    [page] = [shell.json("browse", queue.name, "--limit", "1", "--meta", "n=7", "--meta", "odd=true")]
    assert [m["message_id"] for m in page["messages"]] == [ids[7]] and "payload" not in page["messages"][0]
    shown = shell.ok("browse", queue.name, "--contains", "later", "--payload")
    assert later in shown and "later" in shown.split()
    assert shell.ok("browse", queue.name, "--older-than", "1h") == ""
    for words in (["--meta", "odd"], ["--state", "gone"], ["--level", "none"]):
        assert shell.run("browse", queue.name, *words).returncode != DONE


def test_many_are_cancelled_promoted_redriven_and_purged_by_options(shell, queue):
    queue.configure(max_attempts=3, retry=AT_ONCE)
    name = queue.name
    queue.put_all([{"payload": f"number {n}", "metadata": {"who": f"w{n % 2}"}} for n in range(6)])
    later = [queue.put("later", delay_seconds=3600) for _ in range(3)]
    assert shell.run("cancel", name).returncode == USAGE  # which ones?
    assert shell.run("cancel", name, later[0], "--all").returncode == USAGE
    assert shell.run("cancel", name, "--meta", "who=w0").returncode == USAGE  # without --yes
    assert shell.ok("cancel", name, "--meta", "who=w0", "-n") == "3 matched, 0 cancelled"
    assert shell.ok("cancel", name, "--meta", "who=w0", "--yes") == "3 matched, 3 cancelled"
    shell.ok("cancel", name, later[0])
    shell.ok("promote", name, later[1])
    assert shell.ok("promote", name, "--contains", "late") == "1 matched, 1 promoted"
    assert queue.stats()["ready"] == 5
    for n, message in enumerate(queue.take(max=5)):
        words = [message["message_id"], message["receipt_handle"]]
        assert shell.ok("nack", name, *words, "--dead", "--reason", f"r{n % 2}") == "dead"
    assert shell.ok("dead", "redrive", name, "--reason", "r0", "-n") == "3 matched, 0 redriven"
    assert shell.ok("dead", "redrive", name, "--reason", "r0", "--max", 2) == "2 matched, 2 redriven"
    assert shell.ok("dead", "purge", name, "--reason", "r1", "--yes") == "2 matched, 2 purged"
    assert len(queue.dead()) == 1
    assert shell.json("dead", "redrive", name, "--all")["redriven"] == 1


def test_queue_set_get_pause_resume_purge_and_delete(shell, queue):
    name = queue.name
    assert "created" in shell.ok("queue", "set", name, "max_attempts=5", "retry.backoff=fixed")
    assert "changed" in shell.ok("queue", "set", name, "visibility_timeout_seconds=9")
    config = shell.json("queue", "get", name)
    assert (config["max_attempts"], config["visibility_timeout_seconds"]) == (5, 9)
    assert config["retry"]["backoff"] == "fixed"
    assert "max_attempts" in shell.ok("queue", "get", name)
    shell.ok("enqueue", name, "x")
    shell.ok("queue", "pause", name)
    assert shell.claim() == [""]
    shell.ok("queue", "resume", name)
    assert shell.run("queue", "delete", name, "--yes").returncode == REFUSED
    assert shell.json("queue", "purge", name, "--yes") == {"purged": 1}
    shell.ok("queue", "delete", name, "--yes")
    assert shell.run("queue", "get", name).returncode == REFUSED
    shell.ok("enqueue", name, "x")
    shell.ok("queue", "delete", name, "--force")


def test_a_configuration_that_was_shown_can_be_set_again(shell, queue, tmp_path):
    name = queue.name
    shell.ok("queue", "set", name, "profile=tiers", "policy=strict", "max_attempts=4")
    file = tmp_path / "config.json"
    file.write_text(shell.ok("--json", "queue", "get", name))
    shell.ok("queue", "set", name, "max_attempts=9", "ttl_seconds=60")
    shell.ok("queue", "set", name, "--file", file)
    assert shell.json("queue", "get", name) == json.loads(file.read_text())


def test_dead_list_show_redrive_and_purge(shell, queue):
    name = queue.name
    shell.ok("queue", "set", name, "max_attempts=1")
    dead = []
    for payload in ("one", "two", "three"):
        dead.append(shell.ok("enqueue", name, payload))
        ident, _, _, receipt, _ = shell.claim()
        assert shell.ok("nack", name, ident, receipt, "--reason", "because " + payload) == "dead"
    listed = shell.ok("dead", "list", name)
    assert all(ident in listed for ident in dead) and "because two" in listed
    assert len(shell.json("dead", "list", name, "--limit", "2")["messages"]) == 2
    assert shell.json("dead", "show", name, dead[0])["payload"] == "one"
    assert shell.json("dead", "redrive", name, dead[1])["redriven"] == 1
    assert shell.claim()[4] == "two"
    assert shell.json("dead", "redrive", name, "--max", "1", "--priority", "9")["redriven"] == 1
    assert shell.claim()[1] == "9"
    assert shell.json("dead", "purge", name, "--yes") == {"purged": 1}


def test_export_and_import_make_the_same_queue_again(shell, queue, tmp_path):
    name, copy = queue.name, queue.name + "-copy"
    payloads = ["text", "grüße\n\t\"quoted\"", {"json": [1, None]}, 5, None, ""]
    for number, payload in enumerate(payloads):
        queue.put(payload, priority=number, metadata={"n": str(number)})
    queue.put("later", delay_seconds=3600)
    queue.client.request("POST", queue.path + "/messages", bytes(range(256)),
                         {"Content-Type": "application/octet-stream"}, {"priority": 9})
    backup = tmp_path / "backup.ndjson"
    shell.ok("export", name, "--output", backup)
    head, *lines, foot = map(json.loads, backup.read_text().splitlines())
    assert head["configuration"]["profile"] == "levels"
    assert len(lines) == 8 and foot == {"exported": 8}
    assert queue.stats()["ready"] == 7, "an export claims nothing"
    assert shell.json("import", copy, backup)["stored"] == 8

    other = type(queue)(queue.client, copy)
    assert other.stats()["scheduled"] == 1

    def facts(messages):
        return [(m.get("payload"), m.get("payload_base64"), m["priority"], m["metadata"])
                for m in messages]

    assert facts(other.take(max=100)) == facts(queue.take(max=100))


def test_dead_letters_can_be_exported_too(shell, queue):
    queue.configure(max_attempts=1)
    queue.put("poison")
    queue.nack(queue.take_one(), reason="it broke")
    queue.put("alive")
    [line] = shell.ok("export", queue.name, "--dead").splitlines()
    exported = json.loads(line)
    assert (exported["payload"], exported["reason"]) == ("poison", "it broke")
    lines = [json.loads(line) for line in shell.ok("export", queue.name).splitlines()[1:-1]]
    assert {line["payload"]: line["state"] for line in lines} == {"poison": "dead",
                                                                 "alive": "ready"}


def test_import_reports_the_lines_that_were_refused(shell, queue, tmp_path):
    file = tmp_path / "mixed.ndjson"
    file.write_text('{"payload": 1}\n{"payload": 2, "priority": 99}\n\n{broken\n{"payload": 3}\n')
    done = shell.run("--json", "import", queue.name, file)
    assert done.returncode == REFUSED
    counts = json.loads(done.stdout)
    assert (counts["stored"], counts["failed"]) == (2, 2)
    assert b"line 2" in done.stderr and b"line 4" in done.stderr
    assert queue.take_payloads(2) == [1, 3]


def test_many_messages_go_through_import_and_export(shell, queue, tmp_path):
    file = tmp_path / "many.ndjson"
    file.write_text("".join(json.dumps({"payload": n}) + "\n" for n in range(3500)))
    assert shell.json("import", queue.name, file)["stored"] == 3500
    exported = shell.ok("export", queue.name).splitlines()[1:-1]
    assert sorted(json.loads(line)["payload"] for line in exported) == list(range(3500))


# Exit statuses.


@pytest.mark.parametrize("words", [
    [], ["nonsense"], ["enqueue"], ["claim"], ["claim", "q", "--max", "many"],
    ["claim", "q", "--nonsense"], ["ack", "q", "id"], ["queue", "nonsense", "q"],
    ["extend", "q", "id", "rh", "soon"], ["enqueue", "q", "x", "--meta", "noequals"],
    ["work", "q"], ["import", "q", "/nonexistent/file"]])
def test_wrong_usage_exits_with_two_and_says_why(shell, words):
    done = shell.run(*words)
    assert done.returncode == USAGE and done.stderr and not done.stdout


@pytest.mark.parametrize("words, name", [
    (["ack"], b"QUEUE"), (["ack", "q"], b"ID"), (["ack", "q", "id"], b"RECEIPT"),
    (["import", "q"], b"FILE.ndjson|-"), (["queue", "set"], b"QUEUE")])
def test_an_operand_that_is_missing_is_named(shell, words, name):
    assert name + b" is missing" in shell.run(*words).stderr


def test_a_refusal_exits_with_one_and_names_the_reason(shell, queue):
    done = shell.run("stats", queue.name + "-absent")
    assert done.returncode == REFUSED and b"queue" in done.stderr and not done.stdout
    done = shell.run("enqueue", queue.name, "x", "--priority", "99")
    assert done.returncode == REFUSED and b"priority" in done.stderr


def test_a_server_that_is_not_there_exits_with_three():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d" % held.getsockname()[1]
        done = subprocess.run([TRIAGE, "--server", url, "queues"], capture_output=True, timeout=DEADLINE)
    assert done.returncode == UNREACHED and url.encode() in done.stderr


def test_a_socket_that_is_not_there_is_named_and_no_port(tmp_path):
    done = subprocess.run([TRIAGE, "--server", f"unix:{tmp_path}/none", "queues"],
                          capture_output=True, timeout=DEADLINE)
    assert done.returncode == UNREACHED
    assert b"No such file" in done.stderr and b"port" not in done.stderr


def test_the_server_may_come_from_the_environment(shell):
    done = subprocess.run([TRIAGE, "queues"], capture_output=True, timeout=DEADLINE,
                          env={**os.environ, "TRIAGE_SERVER": shell.url})
    assert done.returncode == DONE


@pytest.mark.parametrize("words", [["--help"], ["enqueue", "--help"], ["queue", "set", "--help"],
                                   ["dead", "--help"], ["work", "--help"], ["--version"]])
def test_help_goes_to_standard_output(shell, words):
    done = shell.run(*words)
    assert done.returncode == DONE and done.stdout and not done.stderr


def bench(shell, *words):
    return shell.json("bench", "--queue", shell.queue.name, "--connections", 4, *words)


def test_bench_fills_and_drains_in_batches(shell, queue):
    filled = bench(shell, "--mix", "enqueue", "--count", 1000, "--batch", 100, "--payload", 2000)
    assert filled["messages"] == queue.stats()["ready"] == 1000
    assert filled["operations"]["enqueue"]["requests"] == 10
    [message] = queue.take()
    assert len(message["payload"]) == 2000
    drained = bench(shell, "--mix", "claim", "--batch", 50)
    assert drained["messages"] == drained["operations"]["ack"]["messages"] == 999
    assert drained["operations"]["claim"]["requests"] >= 20
    assert queue.stats()["totals"]["acked"] == 999
    for name in ("p50_ms", "p99_ms", "p99_9_ms"):
        assert drained["operations"]["claim"][name] > 0
    assert not drained["errors"] and drained["unanswered"] == 0


def test_bench_spreads_over_queues(shell, api, queue):
    bench(shell, "--mix", "enqueue", "--count", 40, "--queues", 4)
    depths = [api.get(f"/v1/queues/{queue.name}-{n}/stats")["ready"] for n in range(4)]
    assert sum(depths) == 40 and all(depths)


def test_bench_counts_the_cpu_time_of_a_family_of_processes(shell):
    """A shell whose child does the work stands for a database with a process per connection."""
    burn = "print(flush=True)\nwhile True: pass"
    parent = subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{burn}' & echo; wait"],
                              stdout=subprocess.PIPE, start_new_session=True)
    try:
        parent.stdout.readline()
        parent.stdout.readline()
        own = os.getpid()
        report = bench(shell, "--mix", "enqueue", "--duration", "500ms", "--warmup", "0s", "--pid",
                       own, "--pid", parent.pid)
        alone = bench(shell, "--mix", "enqueue", "--count", 10, "--pid", own)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
    used_ms = report["server_cpu_us"] * report["messages"] / 1000
    assert used_ms > 20 and alone["server_cpu_us"] is not None
    assert bench(shell, "--mix", "enqueue", "--count", 1)["server_cpu_us"] is None


def test_bench_refuses_what_is_no_process(shell):
    done = shell.run("bench", "--pid", "12x")
    assert done.returncode == USAGE and b"--pid is the number of a process" in done.stderr


def test_bench_sends_the_token(start, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"root {hashlib.sha256(b'secret').hexdigest()} admin\n")
    server = start(engine="memory", tokens_file=tokens)
    words = [TRIAGE, "--server", "http://%s:%d" % server.address, "bench", "--count", "20",
             "--connections", "2"]
    environment = {**os.environ, "TRIAGE_TOKEN": "secret"}
    done = subprocess.run(words, env=environment, capture_output=True, timeout=DEADLINE)
    assert done.returncode == DONE and b"errors      none" in done.stdout, done
    environment["TRIAGE_TOKEN"] = "guess"
    done = subprocess.run(words, env=environment, capture_output=True, timeout=DEADLINE)
    assert done.returncode == REFUSED and b"401 unauthenticated: " in done.stderr, done


# work: a command for every message.


def finish(process, signum=signal.SIGINT):
    process.send_signal(signum)
    out, err = process.communicate(timeout=DEADLINE)
    return process.returncode, out.decode(), err.decode()


def test_work_acks_what_succeeds(shell, queue, tmp_path):
    for number in range(5):
        queue.put(f"job {number}", metadata={"tenant": "acme"})
    folder = tmp_path / "out"
    folder.mkdir()
    script = f'cat > {folder}/"$TRIAGE_MESSAGE_ID"; env | grep ^TRIAGE_ > {folder}/env'
    worker = shell.start("work", queue.name, "-j", "2", "--", "sh", "-c", script)
    until(lambda: queue.stats()["totals"]["acked"] == 5)
    status, _, _ = finish(worker)
    assert status == DONE
    facts = dict(line.split("=", 1) for line in (folder / "env").read_text().splitlines())
    (folder / "env").unlink()
    assert sorted(p.read_text() for p in folder.iterdir()) == [f"job {n}" for n in range(5)]
    assert facts["TRIAGE_QUEUE"] == queue.name and facts["TRIAGE_ATTEMPT"] == "1"
    stats = queue.stats()
    assert stats["in_flight"] == stats["ready"] == 0


def test_work_on_several_queues_settles_each_message_where_it_came_from(shell, api, tmp_path):
    mine = [Queue(api, f"several-{n}") for n in range(3)]
    for number, priority in enumerate((1, 9, 5)):
        mine[number].configure(max_attempts=1)
        mine[number].put(str(priority), priority=priority)
    out = tmp_path / "out"
    script = f'echo "$TRIAGE_QUEUE $(cat)" >> {out}; test "$TRIAGE_PRIORITY" != 5'
    names = [queue.name for queue in mine]
    assert shell.start("work", *names, "--max-messages", "3", "--", "sh", "-c",
                       script).wait(DEADLINE) == DONE
    assert out.read_text().split() == ["several-1", "9", "several-2", "5", "several-0", "1"]
    totals = [queue.stats()["totals"] for queue in mine]
    assert [each["acked"] for each in totals] == [1, 1, 0]
    assert [each["nacked"] for each in totals] == [0, 0, 1]


def test_work_in_order_takes_the_first_queue_that_has_something(shell, api, tmp_path):
    first, second = (Queue(api, f"order-{n}") for n in range(2))
    first.put("patient", priority=0)
    second.put("urgent", priority=9)
    out = tmp_path / "out"
    assert shell.start("work", first.name, second.name, "--in-order", "--drain", "--", "sh", "-c",
                       f"cat >> {out}; echo >> {out}").wait(DEADLINE) == DONE
    assert out.read_text().split() == ["patient", "urgent"]


def test_work_drains_what_its_own_commands_gave_back(shell, queue, tmp_path):
    """While a command runs, free slots find nothing; that is no reason to stop."""
    queue.configure(max_attempts=3, retry={"backoff": "none"})
    queue.put("x")
    gate, runs = tmp_path / "gate", tmp_path / "runs"
    os.mkfifo(gate)
    with shell.start("work", queue.name, "-j", 4, "--drain", "--", "sh", "-c",
                     f"echo >> {runs}; read -r go < {gate}; exit 1") as worker:
        for n in range(3):
            until(lambda: runs.exists() and len(runs.read_text()) > n)
            gate.write_text("go\n")
        assert worker.wait(DEADLINE) == DONE
    assert queue.stats()["dlq_depth"] == 1


def test_work_nacks_what_fails_with_status_and_last_line(shell, queue):
    queue.configure(max_attempts=1)
    queue.put("x")
    worker = shell.start("work", queue.name, "--", "sh", "-c",
                         "cat >/dev/null; echo first >&2; echo it broke >&2; exit 7")
    until(lambda: queue.stats()["dlq_depth"] == 1)
    finish(worker)
    [dead] = queue.dead()
    assert "7" in dead["reason"] and "it broke" in dead["reason"]


def test_work_extends_leases_while_the_command_runs(shell, queue, tmp_path):
    queue.configure(visibility_timeout_seconds=1, max_attempts=5)
    queue.put("long")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    worker = shell.start("work", queue.name, "--", "sh", "-c", f"cat >/dev/null; cat {gate}")
    until(lambda: queue.stats()["in_flight"] == 1)
    marker = queue.put("marker", delay_seconds=2.5)
    until(lambda: queue.stats()["scheduled"] == 0)
    assert queue.cancel(marker).status == 204
    stats = queue.stats()
    assert stats["totals"]["lease_expired"] == 0 and stats["in_flight"] == 1
    gate.write_text("go on\n")
    until(lambda: queue.stats()["totals"]["acked"] == 1)
    status, _, _ = finish(worker)
    assert status == DONE


def test_work_lets_running_commands_finish_after_ctrl_c(shell, queue, tmp_path):
    queue.put("one")
    gate, done = tmp_path / "gate", tmp_path / "done"
    os.mkfifo(gate)
    worker = shell.start("work", queue.name, "--", "sh", "-c",
                         f"cat >/dev/null; cat {gate}; echo finished > {done}",
                         start_new_session=True)
    until(lambda: queue.stats()["in_flight"] == 1)
    opened = os.open(gate, os.O_WRONLY)  # returns once the command reads
    os.killpg(worker.pid, signal.SIGINT)  # as a terminal does
    queue.put("two")
    os.write(opened, b"go on\n")
    os.close(opened)
    out, err = worker.communicate(timeout=DEADLINE)
    assert worker.returncode == DONE, err
    assert done.read_text() == "finished\n"
    stats = queue.stats()
    assert (stats["totals"]["acked"], stats["ready"], stats["in_flight"]) == (1, 1, 0)


def test_work_nacks_when_the_command_is_killed(shell, queue):
    queue.configure(max_attempts=1)
    queue.put("x")
    worker = shell.start("work", queue.name, "--", "sh", "-c", "cat >/dev/null; kill -9 $$")
    until(lambda: queue.stats()["dlq_depth"] == 1)
    finish(worker)
    [dead] = queue.dead()
    assert "9" in dead["reason"] or "kill" in dead["reason"].lower()


def test_a_worker_that_is_killed_leaves_its_message_to_the_next(shell, queue, tmp_path):
    queue.configure(visibility_timeout_seconds=1)
    queue.put("x")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    worker = shell.start("work", queue.name, "--", "sh", "-c", f"cat {gate}",
                         start_new_session=True)
    until(lambda: queue.stats()["in_flight"] == 1)
    opened = os.open(gate, os.O_WRONLY)
    worker.kill()
    worker.wait()
    message = queue.take_one(wait_seconds=30)
    assert (message["payload"], message["attempt"]) == ("x", 2)
    os.close(opened)  # lets the orphan end
    worker.communicate()


class Deaf(socketserver.ThreadingTCPServer):
    """Stands before a server and passes everything on, but the first `lost` extends: those arrive
    nowhere, and their connections stay open without an answer."""

    allow_reuse_address = daemon_threads = True
    block_on_close = False

    def __init__(self, server, lost):
        super().__init__(("127.0.0.1", 0), DeafConnection)
        self.server = server
        self.left = lost
        self.lost = threading.Semaphore(0)
        self.passed = threading.Semaphore(0)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def loses(self, data):
        if b"/extend " not in data:
            return False
        self.left -= 1
        (self.lost if self.left >= 0 else self.passed).release()
        return self.left >= 0


class DeafConnection(socketserver.BaseRequestHandler):
    def handle(self):
        with socket.create_connection(self.server.server.address) as onward:
            threading.Thread(target=self.copy, args=(onward, self.request), daemon=True).start()
            while data := self.request.recv(65536):
                if self.server.loses(data):
                    while self.request.recv(65536):
                        pass
                    return
                onward.sendall(data)

    @staticmethod
    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass


@pytest.fixture
def deaf(server):
    made = []

    def make(lost):
        made.append(Deaf(server, lost))
        return made[-1]

    yield make
    for each in made:
        each.shutdown()
        each.server_close()


def work_until(shell, queue, gate, deaf, event):
    """A worker behind `deaf`, whose command ends when the event has come."""
    os.mkfifo(gate)
    queue.put("long")
    host, port = deaf.server_address
    worker = shell.start("--server", f"http://{host}:{port}", "work", queue.name, "--visibility",
                         "12", "--", "sh", "-c", f"cat >/dev/null; cat {gate}")
    with open(gate, "w") as opened:  # returns once the command reads
        assert event.acquire(timeout=DEADLINE)
        opened.write("go on\n")
    until(lambda: queue.stats()["in_flight"] == 0)
    totals = queue.stats()["totals"]
    assert (totals["acked"], totals["claimed"], totals["lease_expired"]) == (1, 1, 0)
    status, _, err = finish(worker)
    assert status == DONE, err


def test_work_acks_at_once_though_an_extend_was_lost(shell, queue, tmp_path, deaf):
    """The command ends while the answer to an extend is still waited for."""
    proxy = deaf(lost=1)
    work_until(shell, queue, tmp_path / "gate", proxy, proxy.lost)


def test_work_extends_again_when_an_extend_was_lost(shell, queue, tmp_path, deaf):
    proxy = deaf(lost=1)
    work_until(shell, queue, tmp_path / "gate", proxy, proxy.passed)


def on_terminal(shell, *words):
    """What a command writes when its output is a terminal."""
    own, its = pty.openpty()
    process = shell.start(*words, stdout=its, stderr=its)
    os.close(its)
    seen = b""
    try:
        while data := os.read(own, 65536):
            seen += data
    except OSError:  # how a terminal that everybody has closed ends
        pass
    os.close(own)
    return process.wait(DEADLINE), seen


ESCAPES = "\x1b]0;title\x07\x1b[2Jgone\x9b31m\x7f\u2014 end"


def test_a_payload_does_not_play_with_the_terminal(shell, queue):
    for _ in range(2):
        queue.put(ESCAPES, metadata={"k": "\x9b2J"})
    status, seen = on_terminal(shell, "claim", queue.name)
    assert status == DONE
    assert b"\\x1b]0;title\\x07\\x1b[2Jgone\\x9b31m\\x7f\xe2\x80\x94 end" in seen
    status, json_seen = on_terminal(shell, "--json", "claim", queue.name)
    assert status == DONE and b"gone" in json_seen
    for text in (seen, json_seen):
        assert not any(c in text.replace(b"\r\n", b"") for c in (b"\x1b", b"\x07", b"\xc2\x9b", b"\x7f"))


def test_a_pipe_gets_the_payload_as_it_is_when_asked_to(shell, queue):
    queue.put(ESCAPES)
    assert shell.claim("--raw")[-1] == ESCAPES
