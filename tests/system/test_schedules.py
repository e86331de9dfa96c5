"""Schedules over HTTP: set, looked at, changed, deleted; what their messages are; what is refused.
That each due time has one message whatever dies is for ../faults/test_schedules.py."""

import os
import subprocess
from datetime import datetime, timedelta, timezone

import psycopg2
import pytest

import database
from server import TRIAGED, tokens_file
from test_cli import REFUSED, USAGE, Shell
from wire import Queue, until


def time_of(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.fixture
def schedules(queue, api):
    """A schedule of a queue by its name: schedules("nightly", cron="…")."""
    def set_one(name, status=None, **fields):
        answer = api.put(f"{queue.path}/schedules/{name}", {"payload": "x", **fields})
        assert answer.status in ([status] if status else [200, 201]), answer
        return answer.json if answer.status < 300 else answer
    return set_one


def test_a_due_time_brings_a_message_to_who_waits(schedules, queue):
    state = schedules("tick", every_seconds=1, payload={"a": [1]}, priority=9,
                      metadata={"tenant": "acme"})
    message = queue.take_one(wait_seconds=20)
    assert message["payload"] == {"a": [1]} and message["priority"] == 9
    assert message["metadata"] == {"schedule": "tick", "due_at": state["next_due_at"],
                                   "tenant": "acme"}
    assert time_of(message["enqueued_at"]) >= time_of(state["next_due_at"])


def test_an_unknown_field_is_told_those_that_are_taken(schedules):
    refused = schedules("tick", status=422, every_seconds=1, wehn=1)
    assert "every_seconds" in refused["detail"] and "metadata." in refused["detail"]
    assert "delay_until" not in refused["detail"] and "dequeue_at" not in refused["detail"]
    assert "one time" in schedules("tick", status=422, every_seconds=1, dequeue_at=1)["detail"]


def test_what_is_set_is_shown(schedules, queue, api):
    fields = {"cron": "0 3 * * MON-FRI", "time_zone": "Europe/Berlin", "missed": "all",
              "grace_seconds": 2.5, "paused": False, "priority": 7, "delay_seconds": 1.5,
              "ttl_seconds": 60, "dedup_key": "k", "metadata": {"a": 1}, "payload": "go"}
    path = queue.path + "/schedules/nightly"
    first = api.put(path, fields)
    assert first.status == 201, first
    assert api.put(path, fields).status == 200
    shown = api.get(path).json
    assert shown == first.json
    for name, value in fields.items():
        assert shown[name] == value, name
    assert shown["name"] == "nightly" and shown["count"] == 0 and shown["last_due_at"] is None
    assert shown["waits_for"] is None
    assert len(shown["next"]) == 5 and shown["next"][0] == shown["next_due_at"]
    for due in map(time_of, shown["next"]):
        assert due.weekday() < 5 and due.hour in (1, 2) and due.minute == 0
    assert len(api.get(path, next=17)["next"]) == 17
    assert api.get(path, next=0)["next"] == []


def test_defaults(schedules):
    shown = schedules("s", cron="@hourly")
    assert (shown["time_zone"], shown["missed"], shown["grace_seconds"], shown["paused"]) == \
        ("UTC", "once", 60, False)
    assert shown["metadata"] == {} and "priority" not in shown


def test_the_list_has_them_by_name_in_pages(schedules, queue, api):
    for name in ("b", "c", "a"):
        schedules(name, every_seconds=3600)
    page = api.get(queue.path + "/schedules", limit=2).json
    assert [s["name"] for s in page["schedules"]] == ["a", "b"] and page["next"] == "b"
    assert "payload" not in page["schedules"][0]
    page = api.get(queue.path + "/schedules", after="b").json
    assert [s["name"] for s in page["schedules"]] == ["c"] and page["next"] is None


def test_a_deleted_one_is_gone_and_its_messages_stay(schedules, queue, api):
    schedules("tick", every_seconds=1)
    until(lambda: queue.stats()["ready"] > 0)
    assert api.delete(queue.path + "/schedules/tick").status == 204
    ready = queue.stats()["ready"]
    for answer in (api.get(queue.path + "/schedules/tick"),
                   api.delete(queue.path + "/schedules/tick")):
        assert answer.status == 404 and answer.problem == "schedule-not-found"
    schedules("other", every_seconds=1)
    until(lambda: api.get(queue.path + "/schedules/other")["count"] >= 2)
    assert queue.stats()["ready"] == ready + api.get(queue.path + "/schedules/other")["count"] \
        or queue.stats()["ready"] > ready


def test_a_paused_one_is_never_due_and_misses_nothing(schedules, queue, api):
    paused = schedules("tick", every_seconds=1, missed="all", paused=True)
    assert paused["next_due_at"] is None and paused["next"] == []
    schedules("clock", every_seconds=1, payload="clock")
    until(lambda: api.get(queue.path + "/schedules/clock")["count"] >= 2)
    resumed = schedules("tick", every_seconds=1, missed="all")
    assert time_of(resumed["next_due_at"]) > datetime.now(timezone.utc) - timedelta(seconds=30)
    until(lambda: api.get(queue.path + "/schedules/tick")["count"] >= 1)
    due = [m["metadata"]["due_at"] for m in queue.take(max=100) if m["payload"] == "x"]
    assert all(time_of(d) >= time_of(resumed["next_due_at"]) for d in due)


def test_a_paused_queue_still_gets_its_messages(schedules, queue, api):
    schedules("tick", every_seconds=1)
    assert api.post(queue.path + "/pause", {}).status == 200
    count = api.get(queue.path + "/schedules/tick")["count"]
    until(lambda: api.get(queue.path + "/schedules/tick")["count"] > count)
    assert queue.take() == []


def test_a_dedup_key_keeps_one_that_is_not_done_from_being_put_again(queue, api, schedules):
    queue.configure(dedup={"scope": "live"})
    schedules("tick", every_seconds=1, dedup_key="one-at-a-time")
    until(lambda: api.get(queue.path + "/schedules/tick")["count"] >= 3)
    assert queue.stats()["ready"] == 1


def test_a_queue_with_schedules_is_not_empty(schedules, queue, api):
    schedules("nightly", cron="0 3 * * *")
    refused = api.delete(queue.path)
    assert refused.status == 409 and refused.problem == "queue-not-empty"
    assert api.delete(queue.path, force=True).status == 204
    assert api.get(queue.path + "/schedules/nightly").problem == "queue-not-found"
    queue.configure()
    assert api.get(queue.path + "/schedules")["schedules"] == []


@pytest.mark.parametrize("field, fields", [
    ("cron", {}),
    ("cron", {"cron": "@hourly", "every_seconds": 5}),
    ("cron", {"cron": "* * * *"}),
    ("cron", {"cron": "0 24 * * *"}),
    ("cron", {"cron": "0 0 31 2 *"}),
    ("cron", {"cron": "0 0 30 FEB *"}),
    ("cron", {"cron": "x" * 201}),
    ("cron", {"cron": 5}),
    ("every_seconds", {"every_seconds": 0}),
    ("every_seconds", {"every_seconds": 0.5}),
    ("every_seconds", {"every_seconds": -1}),
    ("every_seconds", {"every_seconds": 31622401}),
    ("time_zone", {"cron": "@hourly", "time_zone": "Mars/Olympus"}),
    ("time_zone", {"cron": "@hourly", "time_zone": "../../etc/passwd"}),
    ("time_zone", {"cron": "@hourly", "time_zone": "/etc/localtime"}),
    ("time_zone", {"every_seconds": 5, "time_zone": "Europe/Berlin"}),
    ("missed", {"every_seconds": 5, "missed": "some"}),
    ("grace_seconds", {"every_seconds": 5, "grace_seconds": 0}),
    ("grace_seconds", {"every_seconds": 5, "grace_seconds": 86401}),
    ("paused", {"every_seconds": 5, "paused": "yes"}),
    ("payload", {"every_seconds": 5, "payload": "x" * 32769}),
    ("metadata", {"every_seconds": 5, "metadata": {"schedule": "mine"}}),
    ("metadata", {"every_seconds": 5, "metadata": {"due_at": "mine"}}),
    ("metadata", {"every_seconds": 5, "metadata": {"a": "x" * 3840}}),
    ("metadata", {"every_seconds": 5, "metadata": {f"k{i}": i for i in range(63)}}),
    ("delay_until", {"every_seconds": 5, "delay_until": "2030-01-01T00:00:00Z"}),
    ("dequeue_at", {"every_seconds": 5, "dequeue_at": 5}),
    ("priority", {"every_seconds": 5, "priority": "none-such"}),
    ("nonsense", {"every_seconds": 5, "nonsense": 1}),
])
def test_what_is_refused_names_the_field(queue, api, field, fields):
    path = queue.path + "/schedules/s"
    answer = api.put(path, {"payload": "x", **fields})
    assert answer.status in (413, 422), answer
    assert answer["field"] == "/" + field and answer["detail"], answer
    assert api.get(path).status == 404


def test_names_are_those_of_queues(queue, api):
    for name in ("a b", "x" * 101, "ä", "a%2Fb"):
        answer = api.put(f"{queue.path}/schedules/{name.replace(' ', '%20').replace('ä', '%C3%A4')}",
                         {"payload": "x", "every_seconds": 5})
        assert answer.status == 422 and answer["field"] == "/name", answer
    assert api.put(f"{queue.path}/schedules/{'x' * 100}",
                   {"payload": "x", "every_seconds": 5000}).status == 201


def test_the_largest_there_can_be_is_fired(schedules, queue):
    shown = schedules("n" * 100, every_seconds=1, payload="p" * 32768,
                      metadata={"m": "x" * 3800}, dedup_key="d" * 256)
    message = queue.take_one(wait_seconds=20)
    assert message["payload"] == "p" * 32768
    assert message["metadata"]["due_at"] == shown["next_due_at"]


def test_a_number_keeps_its_level_when_numbers_change_their_meaning(schedules, queue, api):
    """0 is the least urgent of `levels` and the most urgent of `tiers`."""
    least = schedules("least", every_seconds=1, priority=0)
    assert (least["priority"], least["level"]) == (0, "0")
    schedules("plain", every_seconds=3600)
    for query in ({"dry_run": True}, {}):
        now = queue.client.request("PUT", queue.path, {"profile": "tiers", "drop_levels": "empty"},
                                   query=query)
        assert now.status == 200 and now["levels"][-1]["name"] == "0-old", now
    shown = api.get(queue.path + "/schedules/least").json
    assert (shown["priority"], shown["level"]) == ("0-old", "0-old")
    plain = api.get(queue.path + "/schedules/plain").json
    assert "priority" not in plain and plain["level"] == "NORMAL"
    rows = api.get(queue.path + "/schedules")["schedules"]
    assert [(r["name"], r["level"]) for r in rows] == [("least", "0-old"), ("plain", "NORMAL")]
    count = shown["count"]
    until(lambda: api.get(queue.path + "/schedules/least")["count"] > count)
    api.delete(queue.path + "/schedules/least")
    levels = {m["level"] for m in queue.take(max=100)}
    assert levels == {"0-old"}
    assert schedules("new", every_seconds=3600, priority=0)["level"] == "CRITICAL"


def test_a_level_that_a_schedule_names_is_not_dropped(schedules, queue, api):
    schedules("nightly", cron="0 3 * * *", priority=7)
    for query in ({"dry_run": True}, {}):
        refused = queue.client.request("PUT", queue.path, {"profile": "tiers", "drop_levels": True},
                                       query=query)
        assert refused.refusal == (409, "level-in-use")
        assert '"nightly"' in refused["detail"] and '"7"' in refused["detail"]
    schedules("nightly", cron="0 3 * * *")
    assert queue.configure(profile="tiers", drop_levels=True)["profile"] == "tiers"


@pytest.mark.parametrize("engine", ["local", "postgres"])
def test_a_level_that_was_carried_on_is_there_after_a_crash(start, engine):
    server = start(engine=engine)
    queue = server.queue("q")
    queue.configure()
    path = "/v1/queues/q/schedules/least"
    server.client().put(path, {"every_seconds": 3600, "payload": "x", "priority": 0})
    queue.configure(profile="tiers", drop_levels="empty")
    server.kill()
    server.start()
    assert server.client().get(path)["level"] == "0-old"


def test_sql_carries_levels_on_and_names_the_schedule(start):
    server = start(engine="postgres")
    queue = server.queue("q")
    queue.configure()
    path = "/v1/queues/q/schedules/least"
    server.client().put(path, {"every_seconds": 1, "payload": "x", "priority": 0})
    db = psycopg2.connect(server.settings["postgres"])
    db.autocommit = True
    with db.cursor() as c:
        with pytest.raises(psycopg2.Error) as refused:
            c.execute("SELECT triage.configure('q', '{\"profile\": \"tiers\", \"drop_levels\": true}')")
        assert refused.value.pgcode == "TR409"
        assert "0" in str(refused.value)
        c.execute("SELECT triage.configure('q', '{\"profile\": \"tiers\", \"drop_levels\": \"empty\"}')")
        c.execute("SELECT priority, level FROM triage.schedules")
        assert c.fetchall() == [("0-old", "0-old")]
    until(lambda: server.client().get(path).json["level"] == "0-old")
    count = server.client().get(path)["count"]
    until(lambda: server.client().get(path)["count"] > count)
    assert server.client().get(path)["waits_for"] is None


def test_numbers_of_an_older_schema_get_their_names(start):
    conninfo = database.fresh()
    server = start(engine="postgres", postgres=conninfo)
    server.queue("q").configure()
    server.client().put("/v1/queues/q/schedules/least",
                        {"every_seconds": 3600, "payload": "x", "priority": 0})
    server.stop()
    with psycopg2.connect(conninfo) as db, db.cursor() as c: # as the step before left it
        c.execute("UPDATE triage.schedule SET priority_kind = 1, priority_name = ''")
    server.start()
    server.queue("q").configure(profile="tiers", drop_levels="empty")
    assert server.client().get("/v1/queues/q/schedules/least")["level"] == "0-old"


def test_without_auto_create_the_queue_has_to_be_there(start):
    server = start(engine="memory", auto_create="false")
    answer = server.client().put("/v1/queues/q/schedules/s", {"payload": "x", "every_seconds": 5})
    assert answer.status == 404 and answer.problem == "queue-not-found"


def test_who_may(start, tmp_path):
    tokens = tokens_file(tmp_path, [("root", "a", "admin"), ("app", "p", "produce,consume"),
                                    ("eye", "r", "read")])
    server = start(engine="memory", tokens_file=tokens)
    root, app, eye = (server.client(token=t) for t in "apr")
    path, body = "/v1/queues/q/schedules/s", {"payload": "x", "every_seconds": 5000}
    for other in (app, eye):
        assert other.put(path, body).status == 403
    assert root.put(path, body).status == 201
    assert app.get(path).status == 403 and app.get("/v1/queues/q/schedules").status == 403
    assert eye.get(path).status == 200 and eye.get("/v1/queues/q/schedules").status == 200
    for other in (app, eye):
        assert other.delete(path).status == 403
    assert root.delete(path).status == 204


def test_another_server_on_the_database_sees_and_changes_them(start):
    one = start(engine="postgres")
    two = start(engine="postgres", postgres=one.settings["postgres"])
    path = "/v1/queues/q/schedules/s"
    first = one.client().put(path, {"payload": "x", "cron": "0 3 * * *"}).json
    assert two.client().get(path).json == first
    changed = two.client().put(path, {"payload": "y", "cron": "0 4 * * *"})
    assert changed.status == 200
    assert one.client().get(path).json == changed.json
    assert one.client().delete(path).status == 204
    assert two.client().get(path).status == 404


# The command line

@pytest.fixture
def shell(server, queue):
    return Shell(server, queue)


def test_the_command_line_sets_shows_pauses_and_deletes(shell, queue, api):
    name, path = queue.name, queue.path + "/schedules/digest"
    said = shell.ok("schedule", "set", name, "digest", "--cron", "0 7 * * MON-FRI", "--time-zone",
                    "Europe/Berlin", "--missed", "skip", "--grace", "5m", "-p", "9", "--ttl", "1h",
                    "--delay", "2s", "--dedup", "k", "--meta", "tenant=acme", "go")
    shown = api.get(path).json
    assert said.splitlines() == ["created digest"] + [f"  due {t}" for t in shown["next"]]
    assert {k: shown[k] for k in ("cron", "time_zone", "missed", "grace_seconds", "priority",
                                  "ttl_seconds", "delay_seconds", "dedup_key", "metadata",
                                  "payload", "paused")} == {
        "cron": "0 7 * * MON-FRI", "time_zone": "Europe/Berlin", "missed": "skip",
        "grace_seconds": 300, "priority": 9, "ttl_seconds": 3600, "delay_seconds": 2,
        "dedup_key": "k", "metadata": {"tenant": "acme"}, "payload": "go", "paused": False}
    assert shell.ok("schedule", "set", name, "tick", "--every", "90m", "--json-payload",
                    '{"a": 1}').startswith("created tick")
    shell.ok("queue", "set", name, "profile=tiers", "drop_levels=empty")
    shell.ok("schedule", "set", name, "last", "--every", "2d", "-p", "4", "x")
    assert ["level", "BACKGROUND", "(4)"] in [
        line.split() for line in shell.ok("schedule", "show", name, "last").splitlines()]
    assert [line.split()[:2] for line in shell.ok("schedule", "list", name).splitlines()] == [
        ["name", "level"], ["digest", "9"], ["last", "BACKGROUND"], ["tick", "NORMAL"]]
    shell.ok("schedule", "delete", name, "last")
    shown = api.get(path).json
    listed = shell.ok("schedule", "list", name).splitlines()
    assert listed[0].split()[0] == "name" and [l.split()[0] for l in listed[1:]] == ["digest", "tick"]
    assert shell.json("schedule", "show", name, "tick")["every_seconds"] == 5400
    assert "due" not in shell.ok("schedule", "pause", name, "digest")
    assert api.get(path)["paused"] is True and api.get(path)["payload"] == "go"
    shell.ok("schedule", "resume", name, "digest")
    assert api.get(path).json == shown
    shell.ok("schedule", "delete", name, "digest")
    assert shell.run("schedule", "show", name, "digest").returncode == REFUSED
    for words in (["set", name, "x", "go"], ["set", name, "x", "--every", "1s", "--cron", "@daily"],
                  ["next", "0 0 31 2 *"], ["next", "@daily", "--time-zone", "Mars/Olympus"]):
        assert shell.run("schedule", *words).returncode == USAGE, words


def test_due_times_of_a_line_need_no_server(shell):
    said = shell.ok("schedule", "next", "30 2 * * *", "--time-zone", "Europe/Berlin", "-n", "3",
                    "--after", "2027-03-27T00:00:00Z")
    assert said.splitlines() == ["Sat 2027-03-27 02:30 +01:00  2027-03-27T01:30:00.000Z",
                                 "Sun 2027-03-28 03:00 +02:00  2027-03-28T01:00:00.000Z",
                                 "Mon 2027-03-29 02:30 +02:00  2027-03-29T00:30:00.000Z"]


# Elsewhere, and afterwards

DEFINITION = {"cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "all",
              "grace_seconds": 7, "paused": False, "priority": 3, "delay_seconds": 1,
              "ttl_seconds": 2, "dedup_key": "k", "metadata": {"a": 1}, "payload": {"b": [2]}}
OTHER = {"every_seconds": 3600, "time_zone": "UTC", "missed": "once", "grace_seconds": 60,
         "paused": True, "metadata": {}, "payload_base64": "AAH/"}


def fill(server):
    queue = server.queue("mail")
    for name, definition in (("nightly", DEFINITION), ("other", OTHER)):
        sent = {k: v for k, v in definition.items() if k != "time_zone" or "cron" in definition}
        assert queue.client.put(queue.path + f"/schedules/{name}", sent).status == 201
    queue.put("a message")
    return queue


def definitions(server):
    client = server.client()
    rows = client.get("/v1/queues/mail/schedules")["schedules"]
    shown = {r["name"]: client.get(f"/v1/queues/mail/schedules/{r['name']}").json for r in rows}
    return {name: {k: s.get(k) for k in (DEFINITION if name == "nightly" else OTHER)}
            for name, s in shown.items()}


BOTH = {"nightly": DEFINITION, "other": OTHER}


@pytest.mark.parametrize("old, new", [("local", "postgres"), ("postgres", "memory")])
def test_they_move_with_their_queue(start, tmp_path, old, new):
    here, there = start(engine=old), start(engine=new)
    queue = fill(here)
    file = tmp_path / "mail.ndjson"
    Shell(here, queue).ok("export", "mail", "-o", file)
    assert '{"schedule":"nightly","definition":{' in file.read_text()
    assert Shell(there, queue).ok("import", "mail", file) == "stored 1"
    assert definitions(there) == BOTH
    # One that is there stays as it is, unless asked.
    changed = there.client().put("/v1/queues/mail/schedules/nightly",
                                 {"cron": "0 4 * * *", "payload": "mine"})
    assert changed.status == 200
    assert there.client().delete("/v1/queues/mail/schedules/other").status < 300
    again = Shell(there, queue).run("import", "mail", file)
    assert again.returncode == 0 and b"2 schedules of the file were not set" in again.stderr
    assert b"--configure" in again.stderr
    assert definitions(there).keys() == {"nightly"}
    assert definitions(there)["nightly"]["cron"] == "0 4 * * *"
    Shell(there, queue).ok("import", "mail", file, "--configure")
    assert definitions(there) == BOTH


def test_a_backup_has_them_with_all_they_know(start, tmp_path):
    backups = tmp_path / "backups"
    backups.mkdir()
    server = start(backup_dir=backups, disk_reserve="1M")
    client = server.client()
    fill(server)
    client.put("/v1/queues/mail/schedules/tick", {"every_seconds": 1, "payload": "x"})
    until(lambda: client.get("/v1/queues/mail/schedules/tick")["count"] >= 2)
    assert client.post("/v1/admin/backup", {"directory": "one"}).status == 201
    before = client.get("/v1/queues/mail/schedules/tick").json
    server.stop()
    restored = start(data=backups / "one")
    assert {k: v for k, v in definitions(restored).items() if k != "tick"} == BOTH
    after = restored.client().get("/v1/queues/mail/schedules/tick").json
    assert after["count"] >= 2 and time_of(after["last_due_at"]) >= time_of(
        before["last_due_at"]) - timedelta(seconds=60)
    restored.stop()
    check = subprocess.run([TRIAGED, "check", backups / "one"], capture_output=True, text=True)
    assert check.returncode == 0, check


def test_a_damaged_directory_gives_them_back(start, tmp_path):
    """check names what is damaged; salvage writes the schedules that are left, for import."""
    server = start(engine="local")
    fill(server)
    server.stop()
    out = tmp_path / "salvaged"
    done = subprocess.run([TRIAGED, "salvage", server.data, "-o", out], capture_output=True,
                          text=True)
    assert done.returncode == 0, done
    other = start(engine="memory")
    Shell(other, other.queue("mail")).ok("import", "mail", out / "mail.ndjson")
    assert definitions(other) == BOTH


def test_sql_sees_them(start):
    server = start(engine="postgres")
    fill(server)
    with psycopg2.connect(server.settings["postgres"]) as db, db.cursor() as c:
        c.execute("SELECT name, cron, every_seconds, time_zone, missed, paused, priority, count,"
                  " next_due_at IS NULL, payload FROM triage.schedules WHERE queue_name = 'mail'"
                  " ORDER BY name")
        assert c.fetchall() == [
            ("nightly", "0 3 * * *", None, "Europe/Berlin", "all", False, "3", 0, False,
             '{"b": [2]}'),
            ("other", None, 3600, "UTC", "once", True, None, 0, True, None)]


def test_a_server_that_does_not_own_the_schema_goes_on(start):
    """Its role was given what it needs before there were schedules."""
    conninfo = database.fresh()
    older = [step for step in database.STEPS if os.path.basename(step) < "022"]
    database.install(psycopg2.connect(conninfo), older)
    with psycopg2.connect(conninfo) as db, db.cursor() as c:
        c.execute("SELECT count(*) FROM pg_roles WHERE rolname = 'limited'")
        if c.fetchone() == (0,):
            c.execute("CREATE ROLE limited LOGIN")
        c.execute("GRANT USAGE ON SCHEMA triage TO limited;"
                  "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA triage TO limited;"
                  "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA triage TO limited")
    migrated = subprocess.run([TRIAGED, "migrate", "--engine", "postgres", "--postgres", conninfo],
                              capture_output=True, text=True)
    assert migrated.returncode == 0, migrated
    limited = start(engine="postgres", postgres=conninfo.replace("user=postgres", "user=limited"))
    fill(limited)
    limited.client().put("/v1/queues/mail/schedules/tick", {"every_seconds": 1, "payload": "x"})
    until(lambda: limited.client().get("/v1/queues/mail/schedules/tick")["count"] >= 2)
    limited.stop()


def test_those_that_cannot_be_fired_do_not_keep_others_from_it(api, queue):
    """More than a sweep shows, and all of them for a queue that is full."""
    queue.configure(max_depth=1)
    queue.put("full")
    for i in range(120):
        path = f"{queue.path}/schedules/s{i}"
        assert api.put(path, {"payload": "x", "every_seconds": 1}).status == 201
    rows = api.get(queue.path + "/schedules", limit=1)["schedules"]
    until(lambda: api.get(f"{queue.path}/schedules/{rows[0]['name']}")["waits_for"]
          == "queue-full")
    other = Queue(api, queue.name + "-other")
    tick = {"payload": "y", "every_seconds": 1}
    assert api.put(other.path + "/schedules/tick", tick).status == 201
    assert other.take_one(wait_seconds=20)["payload"] == "y"
