"""The manners of the command line client: levels by name, nothing lost without a yes, words of its
own, suggestions, times as people say them, payloads that play with nobody."""

import datetime
import json
import os
import pty
import subprocess

import pytest

from server import TRIAGE, tokens_file
from test_cli import DONE, REFUSED, USAGE, Shell, on_terminal, shell  # noqa: F401 (a fixture)
from wire import DEADLINE

EMPTY = 4


def bury(queue, payload="poison", **fields):
    """A dead letter of this queue; its id."""
    queue.configure(max_attempts=1)
    queue.put(payload, **fields)
    message = queue.take_one()
    queue.nack(message, reason="it broke")
    return message["message_id"]


# Levels


def test_levels_have_their_names_beside_their_numbers(shell, queue):
    queue.configure(profile="tiers", policy="strict", max_attempts=1)
    shell.ok("enqueue", queue.name, "x", "--priority", "1")
    shell.ok("enqueue", queue.name, "y", "--priority", "CRITICAL")
    ident, level, attempt, receipt, payload = shell.claim()
    assert (level, attempt, payload) == ("CRITICAL (0)", "1", "y")
    shell.ok("nack", queue.name, ident, receipt)
    assert "CRITICAL (0)" in shell.ok("dead", "list", queue.name)
    assert "CRITICAL (0)" in shell.ok("dead", "show", queue.name, ident)
    table = shell.ok("stats", queue.name).split("levels, most urgent first:\n")[1].splitlines()
    assert [row.split("  ")[0] for row in table] == \
        ["level", "CRITICAL (0)", "HIGH (1)", "NORMAL (2)", "LOW (3)", "BACKGROUND (4)"]
    assert table[2].split()[-5:-1] == ["1", "0", "0", "0"]  # ready, scheduled, in flight, dead; then an age
    assert table[1].split()[-5:-1] == ["0", "0", "0", "1"]
    shown = shell.ok("queue", "get", queue.name)
    assert "NORMAL (2)" in shown.split("levels, most urgent first:")[0], "the default's name"
    assert "CRITICAL (0)" in shown.split("levels, most urgent first:")[1]


def test_a_level_whose_name_is_its_number_is_said_once(shell, queue):
    shell.ok("enqueue", queue.name, "x", "--priority", "9")
    assert shell.claim()[1] == "9"


def test_a_level_without_a_number_is_its_name(shell, queue):
    queue.configure(profile="environments")
    shell.ok("enqueue", queue.name, "x", "--priority", "qa")
    assert shell.claim()[1] == "qa"


# What cannot be taken back


def at_terminal(shell, answer, *words):
    """The exit status and what was seen, of a command at a terminal where somebody types."""
    own, its = pty.openpty()
    process = subprocess.Popen([TRIAGE, "--server", shell.url, *words], stdin=its, stdout=its,
                               stderr=its)
    os.close(its)
    seen = b""
    try:
        while data := os.read(own, 65536):
            if b"[y/N]" in data:
                os.write(own, answer + b"\n")
            seen += data
    except OSError:
        pass
    os.close(own)
    return process.wait(DEADLINE), seen


@pytest.mark.parametrize("words", [["queue", "purge"], ["queue", "delete"], ["dead", "purge"]])
def test_nothing_is_dropped_without_a_yes(shell, queue, words):
    bury(queue)
    if words[0] == "queue":
        shell.ok("dead", "purge", queue.name, "--yes")
    if words == ["queue", "purge"]:
        queue.put("waits")
    before = queue.stats()
    refused = shell.run(*words, queue.name)
    assert refused.returncode == USAGE and b"--yes" in refused.stderr and not refused.stdout
    status, seen = at_terminal(shell, b"n", *words, queue.name)
    assert status == REFUSED and b"?" in seen
    after = queue.stats()
    assert [before[k] for k in ("ready", "dlq_depth")] == [after[k] for k in ("ready", "dlq_depth")]
    status, _ = at_terminal(shell, b"y", *words, queue.name)
    assert status == DONE
    left = queue.client.get(queue.path + "/stats")
    assert left.status == 404 or (left.json["ready"], left.json["dlq_depth"]) == (0, 0)


# Words


@pytest.mark.parametrize("words, meant", [
    (["calim", "q"], b"triage claim"), (["list"], b"triage queues"), (["ls"], b"triage queues"),
    (["peek", "q"], b"triage show"), (["queue", "ls"], b"triage queue list"),
    (["schedule", "ls", "q"], b"triage schedule list"),
    (["schedule", "add", "q"], b"triage schedule set"),
    (["schedule", "remove", "q"], b"triage schedule delete"),
    (["queue", "peek", "q"], b"triage show"), (["consume", "q"], b"triage work"),
    (["retry", "q"], b"triage dead redrive"), (["cron"], b"triage schedule"),
    (["queue", "creat", "q"], b"triage queue create"), (["dead", "lsit", "q"], b"triage dead list"),
    (["claim", "q", "--wiat", "5s"], b"--wait"), (["enqueue", "q", "--prio=5"], b"--priority"),
    (["stats", "q", "--jsn"], b"--json")])
def test_a_word_that_is_not_known_gets_a_suggestion(shell, words, meant):
    done = shell.run(*words)
    assert done.returncode == USAGE and b"did you mean" in done.stderr and meant in done.stderr


def test_a_word_that_is_like_nothing_gets_none(shell):
    assert b"did you mean" not in shell.run("frobnicate").stderr
    assert b"did you mean" not in shell.run("claim", "q", "--frobnicate").stderr


def test_queue_create_makes_a_queue_once(shell, queue):
    assert shell.ok("queue", "create", queue.name, "profile=tiers") == f"created {queue.name}"
    again = shell.run("queue", "create", queue.name, "profile=levels")
    assert again.returncode == REFUSED and b"queue set" in again.stderr
    assert shell.json("queue", "get", queue.name)["profile"] == "tiers"
    assert queue.name in shell.ok("queue", "list", "--prefix", queue.name)


def test_complaints_are_in_the_words_of_the_command_line(shell, queue):
    name = queue.name
    said = {}
    said["absent"] = shell.run("stats", name).stderr.decode()
    assert f"`triage queue create {name}`" in said["absent"]
    shell.ok("enqueue", name, "x")
    said["delete"] = shell.run("queue", "delete", name, "--yes").stderr.decode()
    assert "--force" in said["delete"]
    said["priority"] = shell.run("enqueue", name, "x", "--priority", "77").stderr.decode()
    assert f"`triage queue get {name}`" in said["priority"] and "(--priority)" in said["priority"]
    said["wait"] = shell.run("claim", name, "--wait", "5h").stderr.decode()
    assert "--wait must be" in said["wait"]
    said["delay"] = shell.run("enqueue", name, "x", "--delay", "9999999h").stderr.decode()
    assert "--delay must be" in said["delay"]
    said["schedule"] = shell.run("schedule", "delete", name, "nosuch").stderr.decode()
    assert f"`triage schedule list {name}` lists them" in said["schedule"]
    said["every"] = shell.run("schedule", "set", name, "s", "--every", "500ms").stderr.decode()
    assert "--every: whole seconds" in said["every"]
    said["long"] = shell.run("schedule", "set", name, "s", "--every", "99999h").stderr.decode()
    assert "--every must be" in said["long"] and "(--every)" in said["long"]
    said["both"] = shell.run("schedule", "set", name, "s", "--every", "5s", "--cron",
                             "@daily").stderr.decode()
    assert "--cron and --every exclude each other" in said["both"]
    said["pairs"] = shell.run("nack", name, "a", "b", "c", "d").stderr.decode()
    assert "(the ID of pair 2)" in said["pairs"] and "/receipts" not in said["pairs"]
    said["levels"] = shell.run("queue", "set", name, "profile=tiers").stderr.decode()
    assert "give drop_levels=true" in said["levels"] and "level.NAME.FIELD" in said["levels"]
    said["used"] = shell.run("queue", "set", name, "profile=tiers",
                             "drop_levels=true").stderr.decode()
    for text in said["levels"], said["used"]:
        assert "give drop_levels=empty" in text and "{" not in text
    shell.ok("queue", "set", name, "profile=tiers", "drop_levels=empty")
    said["typo"] = shell.run("queue", "set", name, "level.CRITCAL.weight=2").stderr.decode()
    assert 'no level "CRITCAL"' in said["typo"] and "did you mean the level CRITICAL?" in said["typo"]
    said["min"] = shell.run("work", name, name + "-b", "--min-priority", "77", "--", "true"
                            ).stderr.decode()
    assert "(--min-priority)" in said["min"] and f"`triage queue get {name}`" in said["min"]
    said["name"] = shell.run("work", name, "no name", "--", "true").stderr.decode()
    assert "QUEUE has something in place 2" in said["name"] and "(QUEUE)" in said["name"]
    for words in (["dead", "list", name], ["queues"]):
        said[words[0]] = shell.run(*words, "--limit", "0").stderr.decode()
        assert "--limit must be" in said[words[0]] and "(--limit)" in said[words[0]]
    said["escalate"] = shell.run("escalate", name, "99", "--all").stderr.decode()
    assert "(PRIORITY)" in said["escalate"] and f"`triage queue get {name}`" in said["escalate"]
    said["due"] = shell.run("schedule", "set", name, "s", "--every", "5s", "-p", "77", "x"
                            ).stderr.decode()
    assert f"`triage queue get {name}`" in said["due"] and "(--priority)" in said["due"]
    said["weight"] = shell.run("queue", "set", name, "level.LOW.weight=0").stderr.decode()
    assert "(level.LOW.weight)" in said["weight"]
    for key in ("min", "name", "dead", "queues", "escalate", "due", "weight"):
        assert "(field" not in said[key], said[key]
    for text in said.values():
        assert not any(word in text for word in ("/v1/", "?force", "_seconds", "PUT ", "GET ")), text


def test_a_missing_token_and_a_missing_role_are_explained(start, tmp_path):
    server = start(engine="memory", tokens_file=tokens_file(tmp_path, [
        ("maker", "t-maker", "produce")]))
    url = "http://%s:%d" % server.address

    def said(*words, token, stdin=b""):
        env = {**os.environ, "TRIAGE_TOKEN": token}
        done = subprocess.run([TRIAGE, "--server", url, *words], input=stdin, env=env,
                              capture_output=True, timeout=DEADLINE)
        assert done.returncode == REFUSED, done
        return done.stderr.decode()

    assert "$TRIAGE_TOKEN" in said("stats", "mail", token="guess")
    maker = server.queue("mail", token="t-maker")
    assert "the role read" in said("show", "mail", maker.put("x"), "--payload", token="t-maker")
    head, foot = b'{"configuration":{"profile":"levels"}}\n', b'{"exported":1}\n'
    line = b'{"message_id":"msg_00000080g6gy284gn0000000000g","state":"ready","priority":9,' \
        b'"level":"9","attempts":0,"enqueued_at":"2026-11-15T21:32:50.216Z",' \
        b'"dequeue_at":1794778370216,"metadata":{},"payload":"x"}\n'
    for exported in (line, head + line + foot):
        told = said("import", "mail", "-", token="t-maker", stdin=exported)
        assert "the role admin" in told and "the role read" not in told


# Claims that scripts read


def test_an_empty_queue_exits_with_four_when_asked_to(shell, queue):
    queue.configure()
    assert shell.run("claim", queue.name).returncode == DONE
    empty = shell.run("claim", queue.name, "--fail-empty")
    assert (empty.returncode, empty.stdout) == (EMPTY, b"")
    assert shell.run("--json", "claim", queue.name, "--fail-empty").returncode == EMPTY
    queue.put("x")
    assert shell.run("claim", queue.name, "--fail-empty").returncode == DONE


FORGED = "x\nmsg_0\t9\t1\trh_0\tforged\x1b[2J\u202e\x9b\r"


def test_one_message_is_one_line_whatever_is_in_it(shell, queue):
    queue.put(FORGED)
    [line] = shell.ok("claim", queue.name).splitlines()
    assert line.split("\t")[4] == "x\\nmsg_0\\t9\\t1\\trh_0\\tforged\\x1b[2J\\u202e\\x9b\\r"


def test_bytes_are_base64_unless_they_are_asked_for(shell, queue):
    for _ in range(2):
        shell.ok("enqueue", queue.name, "-", stdin=b"\xff\x00")
    assert shell.claim()[4] == "base64:/wA="
    assert shell.run("claim", queue.name, "--raw").stdout.split(b"\t", 4)[4] == b"\xff\x00\n"


def test_tables_spell_control_characters_out(shell, queue):
    ident = bury(queue, FORGED, metadata={"k": "\x1b[2J\n"})
    message = queue.client.get(f"{queue.path}/dead/{ident}").json
    assert message["payload"] == FORGED
    for words in (["dead", "list"], ["dead", "show", ident], ["show", ident]):
        words = [*words[:len(words) - (words[-1] == ident)], queue.name,
                 *([ident] if words[-1] == ident else [])]
        for seen in (shell.run(*words).stdout, on_terminal(shell, *words)[1].replace(b"\r\n", b"\n")):
            assert not any(c in seen for c in (b"\x1b", b"\r", b"\xc2\x9b", b"\xe2\x80\xae")), seen


# Payloads


@pytest.mark.parametrize("payload", [b"two\nlines\n", b"no newline", b"", b"\xff\x00\x1b[2J", b'{"a": 1}'])
def test_payload_alone_is_byte_for_byte(shell, queue, payload):
    ident = shell.ok("enqueue", queue.name, "-", stdin=payload)
    assert shell.run("show", queue.name, ident, "--payload").stdout == payload
    queue.configure(max_attempts=1)
    queue.nack(queue.take_one())
    assert shell.run("dead", "show", queue.name, ident, "--payload").stdout == payload


def test_show_prints_the_payload_as_it_was_behind_the_rest(shell, queue):
    text = "Dear Ann,\n\n\tso long.\n" + "long " * 200 + "\nBob"
    ident = bury(queue, text, metadata={"tenant": "acme"})
    shown = shell.ok("dead", "show", queue.name, ident)
    members, payload = shown.split("\n\npayload:\n", 1)
    assert payload == text and "acme" in members and "Ann" not in members
    assert json.loads(shell.ok("--json", "dead", "show", queue.name, ident))["payload"] == text


def test_a_schedule_is_shown_with_its_payload(shell, queue):
    text = "Dear Ann,\n\tso long."
    shell.ok("schedule", "set", queue.name, "letter", text, "--cron", "@yearly")
    members, payload = shell.ok("schedule", "show", queue.name, "letter").split("\n\npayload:\n", 1)
    assert payload == text and "next_due_at" in members
    assert shell.run("schedule", "show", queue.name, "letter", "--payload").stdout == text.encode()


def edit(shell, editor, *words):
    env = {**os.environ, "EDITOR": editor}
    env.pop("VISUAL", None)
    return subprocess.run([TRIAGE, "--server", shell.url, "dead", "edit", shell.queue.name, *words],
                          env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=DEADLINE)


def test_dead_edit_redrives_what_the_editor_made_of_it(shell, queue):
    ident = bury(queue, "pay 42 EURO", metadata={"tenant": "acme"}, priority=7)
    done = edit(shell, "sed -i s/EURO/EUR/", ident)
    assert done.returncode == DONE, done
    message = queue.take_one()
    assert message["message_id"] == done.stdout.decode().strip() != ident
    assert (message["payload"], message["metadata"], message["priority"], message["attempt"]) == \
        ("pay 42 EUR", {"tenant": "acme"}, 7, 1)
    assert queue.stats()["dlq_depth"] == 0
    again = edit(shell, "sed -i s/EURO/EUR/", ident)
    assert again.returncode == REFUSED and b"404 message-not-found" in again.stderr


def test_dead_edit_keeps_json_json_and_bytes_bytes(shell, queue):
    ident = bury(queue, {"resize": 42, "to": "ann"})
    refused = edit(shell, "sed -i s/42/,/", ident)
    assert refused.returncode != DONE and b"JSON" in refused.stderr
    kept = refused.stderr.decode().split("is in ")[1].split(";")[0]
    with open(kept) as file:
        assert "resize" in file.read(), "what was written by hand is not lost"
    os.unlink(kept)
    assert queue.stats()["dlq_depth"] == 1
    assert edit(shell, "sed -i s/42/43/", ident).returncode == DONE
    assert queue.take_one()["payload"] == {"resize": 43, "to": "ann"}


def test_dead_edit_takes_a_file_and_another_priority(shell, queue, tmp_path):
    ident = bury(queue, "old")
    new = tmp_path / "new"
    new.write_bytes(b"\xff\x00")
    shell.ok("dead", "edit", queue.name, ident, "--file", new, "--priority", "9")
    message = queue.take_one()
    assert (message["payload_base64"], message["priority"]) == ("/wA=", 9)


@pytest.mark.parametrize("editor", ["true", "false"])
def test_what_is_not_changed_stays_a_dead_letter(shell, queue, editor):
    ident = bury(queue, "as it is")
    done = edit(shell, editor, ident)
    assert done.returncode == REFUSED and done.stderr and not done.stdout
    assert queue.stats()["dlq_depth"] == 1 and queue.stats()["ready"] == 0


# Times


def test_times_are_given_as_people_say_them(shell, queue):
    env = {**os.environ, "TZ": "CET-1"}

    def ready_at(option, said):
        done = subprocess.run([TRIAGE, "--server", shell.url, "enqueue", queue.name, "x", option, said],
                              env=env, capture_output=True, timeout=DEADLINE)
        assert done.returncode == DONE, done
        shown = shell.json("show", queue.name, done.stdout.decode().strip())
        return datetime.datetime.fromisoformat(shown["ready_at"])

    def hours_from_now(at):
        return (at - datetime.datetime.now(datetime.timezone.utc)).total_seconds() / 3600

    assert 1 < hours_from_now(ready_at("--at", "+2h")) <= 2
    tomorrow = ready_at("--at", "tomorrow 09:00")
    assert (tomorrow.hour, tomorrow.minute) == (8, 0) and 0 < hours_from_now(tomorrow) <= 48
    exact = "2999-04-09T15:00:00+00:00"
    assert ready_at("--at", "2999-04-09 16:00").isoformat() == exact
    assert ready_at("--at", "2999-04-09T15:00:00Z").isoformat() == exact
    assert ready_at("--dequeue-at", "1999-04-09 16:00").isoformat() == "1999-04-09T15:00:00+00:00"
    assert ready_at("--dequeue-at", "1000").isoformat() == "1970-01-01T00:00:01+00:00"
    refused = shell.run("enqueue", queue.name, "x", "--at", "soon")
    assert refused.returncode == USAGE and b"tomorrow 09:00" in refused.stderr


# Many receipts at once


def test_many_receipts_are_settled_with_one_command(shell, queue):
    for n in range(6):
        queue.put(n)
    taken = queue.take(max=6)
    pairs = [word for m in taken for word in (m["message_id"], m["receipt_handle"])]
    lines = shell.ok("extend", queue.name, *pairs, "90s").splitlines()
    assert [line.split("\t")[0] for line in lines] == pairs[::2] and "T" in lines[0].split("\t")[1]
    assert shell.ok("nack", queue.name, *pairs[:4], "--delay", "1h", "--reason", "no") == \
        "\n".join(f"{ident}\tscheduled" for ident in pairs[0:4:2])
    shell.ok("release", queue.name, *pairs[4:8])
    shell.ok("ack", queue.name, *pairs[8:])
    late = shell.run("ack", queue.name, *pairs[:2], *pairs[8:10])
    assert late.returncode == REFUSED and late.stderr.count(b"receipt-expired") == 1
    assert late.stderr.count(b"message-not-found") == 1
    stats = queue.stats()
    assert (stats["scheduled"], stats["ready"], stats["totals"]["acked"]) == (2, 2, 2)
    assert shell.run("ack", queue.name, *pairs[:3]).returncode == USAGE


# What a handler is told


def test_a_handler_has_metadata_in_its_environment(shell, queue):
    queue.configure(profile="tiers")
    queue.put("x", priority="HIGH", metadata={"tenant": "acme", "trace-id": "abc", "n": 7, "odd key": "no",
                                              "dotted.key": "no"})
    out = shell.ok("work", queue.name, "--once", "--", "sh", "-c", "cat >/dev/null; env")
    have = dict(line.split("=", 1) for line in out.splitlines() if line.startswith("TRIAGE_"))
    assert {name: value for name, value in have.items() if name.startswith("TRIAGE_META_")} == \
        {"TRIAGE_META_TENANT": "acme", "TRIAGE_META_TRACE_ID": "abc", "TRIAGE_META_N": "7"}
    assert json.loads(have["TRIAGE_METADATA"])["odd key"] == "no"
    assert (have["TRIAGE_PRIORITY"], have["TRIAGE_LEVEL"], have["TRIAGE_QUEUE"]) == \
        ("1", "HIGH", queue.name)
