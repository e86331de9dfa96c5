"""The postgres engine as a user meets it: several servers on one database, SQL beside HTTP, and a
database that dies, restarts, or is newer than the server."""

import subprocess
import threading

import psycopg2
import pytest

import database
from server import TRIAGED, Server, environment
from test_waiting import claim_bytes, payloads, until_waiting
from wire import Connection, until


@pytest.fixture
def two(start):
    """Two servers on one empty database."""
    first = start(engine="postgres")
    return first, start(engine="postgres", postgres=first.settings["postgres"])


def sql(server):
    name = server.settings["postgres"].split("dbname=")[1].split()[0]
    return database.Session(database.shared().connect(name))


def wait_on(server, queue):
    connection = Connection(server.address)
    connection.send(claim_bytes(queue, wait_seconds=60))
    until_waiting(queue, 1)
    return connection


def test_a_consumer_on_one_server_gets_what_is_enqueued_on_the_other(two):
    here, there = two
    here.queue("q").configure(profile="tiers")
    for number in range(20):
        consumer = wait_on(there, there.queue("q"))
        here.queue("q").put(f"m{number}", priority="HIGH")
        assert payloads(consumer.answer()) == [f"m{number}"]
        consumer.close()


def test_one_message_wakes_one_consumer(two):
    here, there = two
    there.queue("q").configure()
    line = [Connection(there.address) for _ in range(5)]
    for number, connection in enumerate(line):
        connection.send(claim_bytes(there.queue("q"), wait_seconds=60))
        until_waiting(there.queue("q"), number + 1)
    here.queue("q").put("only one")
    assert payloads(line[0].answer()) == ["only one"]
    until_waiting(there.queue("q"), 4)
    for connection in line:
        connection.close()


def test_who_waited_in_vain_looks_once_more_behind_a_claim_under_way(start):
    """What was counted for the first in line is left when it gets something more urgent."""
    server = start(engine="postgres")
    queue = server.queue("q")
    queue.configure()
    first = wait_on(server, queue)
    second = Connection(server.address)
    with sql(server) as s:
        s.run("BEGIN")
        s.run("SELECT triage.enqueue('q', 'urgent'::text, '9')")
        s.run("LOCK TABLE triage.level")  # claims look there first, and wait
        second.send(claim_bytes(queue, wait_seconds=1))
        until(lambda: server.metrics()["triage_broker_waiting"] == 2)
        queue.put("patient", priority=0)
        until(lambda: server.metrics()["triage_broker_waiting"] == 0)
        s.run("COMMIT")
    assert payloads(first.answer()) == ["urgent"]
    assert payloads(second.answer()) == ["patient"]
    first.close()
    second.close()


def test_configuration_reaches_every_server(two):
    here, there = two
    made = here.queue("q").configure(profile="tiers", max_attempts=7)
    assert there.client().get("/v1/queues/q").json == made
    changed = there.queue("q").configure(policy="strict")
    until(lambda: here.client().get("/v1/queues/q").json == changed)
    there.queue("q").put("x", priority="LOW")
    [message] = here.queue("q").take()
    assert (message["level"], message["payload"]) == ("LOW", "x")
    assert here.client().delete("/v1/queues/q", force=True).status == 204
    until(lambda: there.client().get("/v1/queues/q").status == 404)


def test_a_change_of_many_is_for_what_others_enqueued_too(two):
    here, there = two
    here.queue("q").configure()
    assert there.client().get("/v1/queues/q").status == 200
    for number in range(1, 4):
        here.queue("q").put("x", priority=1)
        answer = there.client().post("/v1/queues/q/messages/priority",
                                     {"filter": {"priority": 1}, "priority": 9})
        assert answer.json == {"matched": 1, "changed": 1}
        assert here.queue("q").stats()["depth_by_priority"]["9"] == number


def test_what_one_server_is_asked_it_does_to_what_the_others_put_there(two):
    """Although nothing told it that there is anything."""
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure(max_attempts=1)
    assert there.client.get(there.path).status == 200
    here.put("purged")
    assert there.post("purge")["purged"] == 1
    here.put("dead")
    here.nack(here.take_one())
    assert there.post("dead/redrive")["redriven"] == 1
    here.nack(here.take_one())
    assert there.client.delete(there.path).refusal == (409, "queue-not-empty")
    assert there.post("dead/purge")["purged"] == 1
    here.put("kept")
    assert there.client.delete(there.path).refusal == (409, "queue-not-empty")
    assert [m["payload"] for m in here.take()] == ["kept"]


def waits_for_lock(session):
    return session.one("SELECT count(*) FROM pg_locks WHERE NOT granted AND database ="
                       " (SELECT oid FROM pg_database WHERE datname = current_database())") > 0


def deleting(server, answers, **query):
    """A client that deletes the queue q, and waits for its answer."""
    thread = threading.Thread(
        target=lambda: answers.append(server.client().delete("/v1/queues/q", **query)))
    thread.start()
    return thread


def test_a_queue_that_is_just_being_filled_is_not_deleted(start):
    server = start(engine="postgres")
    server.queue("q").configure()
    answers = []
    with sql(server) as s, sql(server) as onlooker:
        s.run("BEGIN")
        s.run("SELECT triage.enqueue('q', 'kept'::text)")
        thread = deleting(server, answers)
        until(lambda: answers or waits_for_lock(onlooker))
        s.run("COMMIT")
        thread.join()
        assert answers[0].refusal == (409, "queue-not-empty")
        assert [m["payload"] for m in server.queue("q").take()] == ["kept"]
        assert onlooker.refusal("SELECT triage.drop_queue('q')")[1] == "queue-not-empty"


def test_a_queue_whose_delete_failed_is_still_there(start):
    server = start(engine="postgres", postgres_timeout_seconds=2)
    queue = server.queue("q")
    queue.configure()
    answers = []
    with sql(server) as s:
        s.run("BEGIN")
        s.run("SELECT triage.enqueue('q', 'gone'::text)")
        deleting(server, answers, force=True).join()
        assert answers[0].refusal == (503, "engine-unavailable")
        assert [q["name"] for q in server.client().get("/v1/queues")["queues"]] == ["q"]
        s.run("COMMIT")
    queue.put("kept")
    assert sorted(m["payload"] for m in queue.take(max=2)) == ["gone", "kept"]
    assert server.client().delete("/v1/queues/q", force=True).status == 204
    assert server.client().get("/v1/queues")["queues"] == []


def test_depths_show_on_servers_that_do_not_use_the_queue(two):
    here, there = two
    here.queue("q").configure()
    assert there.client().get("/v1/queues/q").status == 200
    here.queue("q").put("x")
    until(lambda: there.metrics().get('triage_queue_ready{queue="q"}') == 1)
    assert there.client().get("/v1/queues")["queues"][0]["ready"] == 1


def test_shares_hold_over_two_servers_together(two):
    here, there = two
    queue = here.queue("q")
    queue.configure(profile="environments")
    names = ["production", "staging", "qa", "development"]
    queue.put_all([{"payload": "x", "priority": name} for name in names for _ in range(400)])
    got = {name: 0 for name in names}
    lock = threading.Lock()

    def consume(server):
        own = server.queue("q")
        for _ in range(25):
            for message in own.take(max=10):
                with lock:
                    got[message["level"]] += 1

    threads = [threading.Thread(target=consume, args=(server,)) for server in two]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, share in zip(names, (0.4, 0.3, 0.2, 0.1)):
        assert abs(got[name] - 500 * share) <= 10, got


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


def test_a_killed_server_leaves_its_messages_to_the_other(two):
    here, there = two
    queue = here.queue("q")
    queue.configure(visibility_timeout_seconds=1)
    ids = queue.put_all([{"payload": str(n)} for n in range(50)])
    assert len(queue.take(max=20)) == 20
    here.kill()
    other, got = there.queue("q"), set()
    while len(got) < len(ids):
        batch = other.take(max=100, wait_seconds=20)
        assert batch, "the leases of the killed one did not end"
        for message in batch:
            assert other.ack(message).status == 204
            got.add(message["message_id"])
    assert got == set(ids)


@pytest.fixture
def own_database():
    """A PostgreSQL server of its own, to be stopped and started."""
    own = database.Postgres().start()
    own.create("triage")
    yield own
    own.end()


def test_a_database_that_is_restarted_is_found_again(own_database, start):
    conninfo = f"host={own_database.folder} dbname=triage user=postgres"
    server = start(engine="postgres", postgres=conninfo)
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
        assert s.row("SELECT current_setting('synchronous_commit'), "
                     "current_setting('lock_timeout')") == ("on", "0")
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
    ("host=/nowhere dbname=x", "--postgres"), ("host={0} dbname=absent user=postgres", "createdb"),
    ("hots={0}", "invalid connection option"), ("", "--postgres"),
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
