"""The postgres engine as a user meets it: SQL beside HTTP, poolers and rights, and a database that dies,
restarts, or is newer than the server."""

import os
import subprocess
import threading
import time

import psycopg2
import pytest

import database
from server import TRIAGED, Server, environment, tokens_file
from test_servers import sql, wait_on, waits_for_lock
from test_waiting import payloads
from wire import until


def test_an_enqueue_that_rolls_back_never_existed(start):
    server = start(engine="postgres")
    queue = server.queue("q")
    queue.configure()
    with sql(server) as s:
        s.run("BEGIN")
        s.run("SELECT triage.enqueue('q', 'never'::text)")
        s.run("ROLLBACK")
        assert queue.take() == []
        consumer = wait_on(server, queue)
        s.run("BEGIN")
        s.run("SELECT triage.enqueue('q', 'committed'::text)")
        s.run("COMMIT")
        assert payloads(consumer.answer()) == ["committed"]
        consumer.close()


def test_an_escalation_that_was_done_is_not_refused(start):
    """The answer shows the message, which somebody has taken and ended meanwhile."""
    server = start(engine="postgres")
    queue = server.queue("q")
    ident = queue.put("x", priority=1)
    answers = []
    with sql(server) as s, sql(server) as gate:
        source = s.one("SELECT pg_get_functiondef('triage.engine_get'::regproc)")
        source = source.replace(" STABLE ", " VOLATILE ")  # it sees what is there when it goes on
        s.run(source.replace("\nBEGIN\n", "\nBEGIN PERFORM pg_advisory_xact_lock(99);\n", 1))
        gate.run("SELECT pg_advisory_lock(99)")
        ask = threading.Thread(target=lambda: answers.append(
            queue.client.post(queue.message_path(ident) + "/priority", {"priority": 9})))
        ask.start()
        until(lambda: waits_for_lock(gate))
        [taken] = s.rows("SELECT message_id, receipt_handle, level FROM triage.claim('q')")
        assert taken[2] == "9"
        s.run("SELECT triage.ack(%s, %s)", *taken[:2])
        gate.run("SELECT pg_advisory_unlock(99)")
        ask.join()
    assert [a.status for a in answers] == [204]


def test_what_sql_types_cannot_hold_does_not_stop_a_consumer(start):
    """A zero byte in text, and JSON that is none to PostgreSQL, come as something that it can."""
    server = start(engine="postgres")
    queue = server.queue("q")
    queue.put("a\0b", dedup_key="k\0", metadata={"zero": "\0"})
    assert queue.client.request("POST", queue.path + "/messages",
                                b'{"payload": 1, "metadata": {"n": 1e999999}}').status == 201
    with sql(server) as s:
        for select in ("SELECT payload, payload_bytes, metadata FROM triage.messages"
                       " ORDER BY message_id", "SELECT * FROM (SELECT payload, payload_bytes,"
                       " metadata FROM triage.claim('q', 10)) m"):
            (text, raw, zero), (number, _, far) = s.rows(select)
            assert (text, bytes(raw), zero) == (None, b"a\0b", '{"zero": "\\u0000"}')
            assert (number, far) == ("1", '{"n": 1e999999}')
        assert s.one("SELECT dedup_key FROM triage.messages WHERE payload IS NULL") == "k\\000"


@pytest.fixture
def own_database():
    """A PostgreSQL server of its own, to be stopped and started."""
    own = database.Postgres().start()
    own.create("triage")
    yield own
    own.end()


def test_readyz_tells_strangers_no_address(own_database, start, tmp_path):
    conninfo = f"host={own_database.folder} dbname=triage user=postgres"
    server = start(engine="postgres", postgres=conninfo, tokens_file=tokens_file(
        tmp_path, [("chart", "t-read", "read"), ("shop", "t-shop", "produce"),
                   ("team", "t-team", "read team-")]))
    own_database.stop()
    known = server.client(token="t-read")
    folder = str(own_database.folder)
    until(lambda: (a := known.get("/readyz")).status == 503 and folder in a["detail"])
    for token in (None, "guess", "t-shop", "t-team"):
        answer = server.client(token=token).get("/readyz")
        assert answer.refusal == (503, "engine-unavailable") and "log" in answer["detail"]
        assert folder not in answer.body.decode()
    assert server.log.wait_for("reason=.*" + folder)


def test_a_server_that_starts_before_its_database_waits_for_it(own_database, start):
    """Also for one that has no schema yet."""
    conninfo = own_database.conninfo("triage")
    for payload in ("first", "second"):
        own_database.stop()
        server = start(engine="postgres", postgres=conninfo, postgres_timeout_seconds=1)
        assert server.log.find('level=warn msg="postgres: the database is away" reason=.*--postgres')
        assert server.client().get("/healthz").status == 200
        assert server.client().get("/readyz").refusal == (503, "engine-unavailable")
        assert server.queue("q").enqueue("x").refusal == (503, "engine-unavailable")
        assert server.metrics()["triage_engine_up"] == 0
        own_database.start()
        until(lambda: server.client().get("/readyz").status == 200)
        queue = server.queue("q")
        if payload == "second":  # what was there is known without being asked for
            until(lambda: server.metrics().get('triage_queue_ready{queue="q"}') == 1)
            assert queue.take_payloads(1) == ["first"]
        queue.put(payload)
        server.stop()


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def test_a_server_whose_database_is_away_does_not_spin(own_database, start):
    """A lease that is over asks for a sweep, and goes on asking until there is one."""
    server = start(engine="postgres", postgres=own_database.conninfo("triage"),
                   postgres_timeout_seconds=1)
    queue = server.queue("q")
    queue.put("m")
    queue.take_one(visibility_timeout_seconds=1)
    own_database.stop()
    until(lambda: queue.enqueue("during").status == 503)
    began, used = time.monotonic(), cpu_seconds(server.process.pid)
    time.sleep(3)  # in which a server that does nothing uses nothing; a slow machine gives less
    used = cpu_seconds(server.process.pid) - used
    assert used < (time.monotonic() - began) / 3
    own_database.start()
    assert [m["payload"] for m in queue.take(wait_seconds=60)] == ["m"]
    server.stop()


def test_a_database_that_is_restarted_is_found_again(own_database, start):
    conninfo = f"host={own_database.folder} dbname=triage user=postgres"
    server = start(engine="postgres", postgres=conninfo, postgres_timeout_seconds=1)
    queue, other = server.queue("q"), server.queue("other")
    stored = [queue.put("before")]
    other.configure()
    waiting = wait_on(server, other)
    own_database.stop()
    refused = until(lambda: (a := queue.enqueue("during")).status == 503 and a)
    assert refused.refusal == (503, "engine-unavailable") and "retry-after" in refused.headers
    assert until(lambda: server.client().get("/readyz").status == 503)
    assert queue.claim(wait_seconds=0.1).status == 503  # and not: there is nothing
    assert queue.client.post(queue.path + "/purge").status == 503
    assert "change" in refused["detail"] and "/readyz" in refused["detail"]
    assert "change" not in queue.client.get(queue.path + "/stats")["detail"]
    assert server.metrics()["triage_engine_up"] == 0
    own_database.start()
    answer = until(lambda: (a := queue.enqueue("after")).status == 201 and a)
    stored.append(answer["message_id"])
    assert set(stored) <= {message["message_id"] for message in queue.take(max=10)}
    assert until(lambda: server.metrics()["triage_engine_up"]) == 1
    other.put("those who waited go on")
    assert payloads(waiting.answer()) == ["those who waited go on"]
    waiting.close()
    server.stop()


def test_dead_rows_show_in_the_metrics(start):
    """Somebody holds a transaction open, so that nothing that dies can be taken away."""
    server = start(engine="postgres")
    queue = server.queue("q")
    queue.configure()

    def dead_rows():
        return server.metrics().get('triage_engine_table_dead_rows{table="ready"}', 0)

    with sql(server) as s:
        s.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
        s.one("SELECT count(*) FROM triage.queue")
        queue.put_all([{"payload": "x" * 1000} for _ in range(100)])
        assert len(queue.take(max=100)) == 100
        assert until(dead_rows) >= 100
        metrics = server.metrics()
        assert metrics["triage_engine_oldest_transaction_seconds"] > 0
        assert metrics['triage_engine_table_bytes{table="ready"}'] > 50_000
        assert metrics['triage_engine_table_index_bytes{table="ready"}'] > 0


def test_a_database_of_an_earlier_version_is_brought_up_to_date(own_database, start):
    """What it holds stays. Whoever serves it meanwhile goes on."""
    with database.Session(own_database.connect("triage")) as s:
        database.install(own_database.connect("triage"), database.STEPS[:-1])
        steps = s.one("SELECT max(step) FROM triage.version")
        server = start(engine="postgres", postgres=own_database.conninfo("triage"))
        assert s.one("SELECT max(step) FROM triage.version") > steps
        server.queue("q").put("x")
        assert s.one("SELECT payload FROM triage.claim('q')") == "x"


@pytest.fixture
def pooler():
    own = database.Pooler(database.shared())
    yield own
    own.end()


DEAF = "no notifications come through"


def test_a_pooler_in_transaction_mode_is_good_for_all_but_notifications(pooler, start):
    """And the server says so. What notifications would have told is looked for instead."""
    through = pooler.conninfo(database.shared().create("pooled"))
    here, there = (start(engine="postgres", postgres=through) for _ in range(2))
    made = here.queue("q").configure(profile="tiers")
    assert here.log.wait_for(DEAF) and there.log.wait_for(DEAF)
    assert there.client().get("/v1/queues/q").json == made
    changed = there.queue("q").configure(policy="strict")
    until(lambda: here.client().get("/v1/queues/q").json == changed)
    consumer = wait_on(there, there.queue("q"))
    ident = here.queue("q").put("over there", priority="HIGH")
    [message] = consumer.answer()["messages"]
    assert message["message_id"] == ident
    assert here.queue("q").ack(message).status == 204
    consumer.close()


def test_notifications_may_go_past_the_pooler(pooler, start):
    """No settings of a server stay behind in sessions that others use, either."""
    name = database.shared().create("past-the-pooler")
    direct = f"host={database.shared().folder} dbname={name} user=postgres"
    here, there = (start(engine="postgres", postgres=pooler.conninfo(name), postgres_listen=direct,
                         durability="os") for _ in range(2))
    here.queue("q").configure()
    for number in range(10):
        consumer = wait_on(there, there.queue("q"))
        here.queue("q").put(f"m{number}")
        assert payloads(consumer.answer()) == [f"m{number}"]
        consumer.close()
    with database.Session(psycopg2.connect(pooler.conninfo(name))) as s:
        assert s.row("SELECT current_setting('synchronous_commit'), current_setting('lock_timeout'),"
                     " current_setting('statement_timeout')") == ("on", "0", "0")
    assert not here.log.find(DEAF) and not there.log.find(DEAF)


GRANTS = """GRANT USAGE ON SCHEMA triage TO limited;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA triage TO limited;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA triage TO limited"""


def test_a_role_that_owns_nothing_can_serve(own_database, start, tmp_path):
    """With what docs/engines.md says that it needs; without it the server says where to look."""
    owner = own_database.conninfo("triage")
    limited = owner.replace("user=postgres", "user=limited")
    with database.Session(own_database.connect("triage")) as s:
        s.run("CREATE ROLE limited LOGIN")
        status, log = Server(tmp_path, engine="postgres", postgres=limited).start_refused()
        assert status == 1 and "permission denied" in log and "triaged migrate" in log
        start(engine="postgres", postgres=owner).stop()
        status, log = Server(tmp_path, engine="postgres", postgres=limited).start_refused()
        assert status == 1 and "permission denied" in log and "docs/engines.md" in log
        s.run(GRANTS)
    server = start(engine="postgres", postgres=limited)
    queue = server.queue("q")
    queue.configure(max_attempts=1, dedup={"scope": "live"}, history_seconds=60)
    queue.put("x" * 5000, dedup_key="k")
    queue.put("later", delay_seconds=0.1)
    queue.nack(queue.take_one())
    assert queue.post("dead/redrive")["redriven"] == 1
    for _ in range(2):
        assert queue.ack(queue.take_one(wait_seconds=20)).status == 204
    until(lambda: server.metrics().get("triage_engine_table_looks_total"))
    assert server.client().delete("/v1/queues/q").status == 204
    assert not server.log.find("level=(warn|error)"), server.log


@pytest.mark.parametrize("settings, words", [
    ("host={0} dbname=absent user=postgres", "createdb"),
    ("hots={0}", "invalid connection option"),
])
def test_who_cannot_start_is_told_what_to_do(tmp_path, settings, words):
    conninfo = settings.format(database.shared().folder)
    refused = Server(tmp_path, engine="postgres", postgres=conninfo)
    refused.env = {"PGHOST": "/nowhere"}  # no database of this machine's, whoever runs the test
    status, log = refused.start_refused()
    assert status == 1 and words in log


def test_a_standby_is_refused(own_database, tmp_path):
    standby = database.Postgres(source=own_database).start()
    try:
        status, log = Server(tmp_path, engine="postgres",
                             postgres=standby.conninfo("triage")).start_refused()
        assert status == 1 and "read-only" in log and "name the primary" in log
    finally:
        standby.end()


def test_migrate_is_for_the_engine_that_is_named(tmp_path):
    run = [TRIAGED, "migrate", "--postgres", database.fresh()]
    wrong = subprocess.run(run, env=environment(), stderr=subprocess.PIPE, text=True)
    assert wrong.returncode == 2 and "--engine postgres" in wrong.stderr
    both = [subprocess.Popen(run + ["--engine", "postgres"], env=environment(), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    for process in both:
        assert "the schema is at version" in process.communicate()[0] and process.returncode == 0


def test_a_database_without_its_engine_is_not_used_in_silence(start):
    server = start(engine="memory", postgres="host=/nowhere")
    assert server.log.find('level=warn msg="the database is not used" engine=memory')


def test_a_newer_database_is_refused_by_name(start, tmp_path):
    server = start(engine="postgres")
    with sql(server) as s:
        s.run("INSERT INTO triage.version (step) VALUES (9999)")
    status, log = Server(tmp_path, engine="postgres",
                         postgres=server.settings["postgres"]).start_refused()
    assert status == 1 and "schema version 9999" in log and "newer triaged" in log
