"""The postgres engine when its database dies, loses its connections, waits for somebody or for a
standby that is not there, and hands over to that standby: nothing acknowledged is lost, nothing is
stored twice, nothing hangs for ever, and afterwards the server goes on by itself."""

import contextlib
import itertools
import threading

import pytest

from database import Postgres, Session
from experiment import Experiment, short_or_long
from history import DECLINED, UNKNOWN, Claim, Enqueue, Remove, Settle
from proxy import CUTS, Proxy
from wire import Connection, request_bytes, until

SETTINGS = {"engine": "postgres", "postgres_timeout_seconds": 1}
UNAVAILABLE = (503, "engine-unavailable")


@pytest.fixture
def postgres():
    own = Postgres().start()
    own.create("triage")
    yield own
    own.end()


@pytest.fixture(scope="module")
def lasting():
    """For tests that leave the database as they found it."""
    own = Postgres(max_connections=200).start()
    yield own
    own.end()


numbers = itertools.count(1)


@pytest.fixture
def sql(lasting):
    """A session on an empty database."""
    name = lasting.create(f"triage{next(numbers)}")
    with Session(lasting.connect(name)) as s:
        s.name = name
        yield s


@pytest.fixture
def proxy(lasting):
    own = Proxy(lasting)
    yield own
    own.close()


class Ask:
    """A request whose answer is waited for elsewhere."""

    def __init__(self, call):
        self.answer = None
        self.thread = threading.Thread(target=self.run, args=(call,))
        self.thread.start()

    def run(self, call):
        self.answer = call()

    def done(self):
        return not self.thread.is_alive()


@contextlib.contextmanager
def away(experiment):
    """The database is, from the beginning of this to its end: then the server goes on by itself.
    Meanwhile nobody sees to delays and leases."""
    experiment.mark("stopped")
    yield
    client = experiment.server.client()
    until(lambda: client.put("/v1/queues/none", {}).status < 300)
    client.close()
    experiment.mark("resumed")


def goes_on(queue):
    """The server serves again, without anybody's help."""
    until(lambda: queue.enqueue("it goes on").status == 201)


# A database that dies.


def test_a_database_that_is_killed_loses_nothing(postgres, start):
    """For longer than requests wait for it."""
    experiment = Experiment(start(postgres=postgres.conninfo("triage"), **SETTINGS),
                            "database killed")
    experiment.configure()
    experiment.begin()
    client = experiment.server.client()
    for _ in range(short_or_long(3, 100)):
        experiment.work(experiment.random.uniform(0.1, 0.6))
        with away(experiment):
            postgres.kill()
            refused = until(lambda: (a := client.put("/v1/queues/none", {})).status >= 300 and a)
            assert refused.refusal == UNAVAILABLE and int(refused.headers["retry-after"]) > 0
            postgres.start()
        experiment.tried += 1
    experiment.end_load(at_least=50)
    assert experiment.conclude().acknowledged >= 50


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_restart_of_the_database_refuses_nobody(postgres, start, how):
    """Every connection is lost, that of each shard's second link too, perhaps long after. What did
    not happen is run again while it has time, and what may have happened is found out."""
    server = start(engine="postgres", postgres=postgres.conninfo("triage"), shards=2)
    experiment = Experiment(server, f"database restarted ({how})")
    experiment.configure()
    experiment.begin()
    for _ in range(short_or_long(2, 50)):
        experiment.work(experiment.random.uniform(0.3, 1.0))
        with away(experiment):
            postgres.restart(how)
        experiment.tried += 1
    experiment.work(1)
    experiment.end_load(at_least=50)
    refused = [r for kind in (Enqueue, Claim, Settle, Remove) for r in experiment.history.of(kind)
               if r.outcome in (DECLINED, UNKNOWN)]
    assert not refused, (len(refused), refused[:5])
    experiment.conclude()


# A connection that is cut.


@pytest.mark.parametrize("where", CUTS)
def test_what_is_cut_at_its_commit_happens_once(lasting, sql, proxy, start, where):
    """One cut each: the server finds out what became of the transaction, and answers rightly."""
    queue = start(postgres=proxy.conninfo(sql.name), **SETTINGS).queue("q")
    queue.configure(max_attempts=5)
    proxy.arm(where, "engine_put")
    ident = queue.put("once")
    assert proxy.count == 1
    proxy.arm(where, "engine_claim")
    [message] = queue.take(max=10, visibility_timeout_seconds=600)
    assert proxy.count == 2 and (message["message_id"], message["attempt"]) == (ident, 1)
    assert queue.take(max=10) == []
    proxy.arm(where, "engine_ack")
    assert queue.ack(message).status == 204
    assert proxy.count == 3 and queue.ack(message).status in (404, 409)
    totals = queue.stats()["totals"]
    assert (totals["enqueued"], totals["claimed"], totals["acked"]) == (1, 1, 1)


@pytest.mark.parametrize("where", CUTS)
def test_what_is_cut_again_and_again_is_not_acknowledged(lasting, sql, proxy, start, where):
    """No transaction gets through its COMMIT: nobody can know, so the answer is 503. Afterwards
    what was committed is there, once."""
    queue = start(postgres=proxy.conninfo(sql.name), **SETTINGS).queue("q")
    queue.configure(max_attempts=5)
    proxy.arm(where, times=10**6)
    answer = queue.enqueue("perhaps")
    assert answer.refusal == UNAVAILABLE and "retry-after" in answer.headers
    proxy.disarm()
    goes_on(queue)
    payloads = sorted(message["payload"] for message in queue.take(max=10))
    assert payloads == ["it goes on"] + ["perhaps"] * (where == "after COMMIT")


def test_connections_cut_under_load_lose_nothing(lasting, sql, proxy, start):
    experiment = Experiment(start(engine="postgres", postgres=proxy.conninfo(sql.name)),
                            "connection cut at COMMIT")
    experiment.configure()
    experiment.begin()
    for number in range(short_or_long(24, 2000)):
        experiment.work(experiment.random.uniform(0.01, 0.1))
        count = proxy.count
        proxy.arm(list(CUTS)[number % len(CUTS)], "engine_", experiment.random.choice((1, 1, 2, 3)))
        until(lambda: proxy.count > count)
        experiment.tried += 1
    proxy.disarm()
    experiment.end_load(at_least=50)
    assert experiment.conclude().acknowledged >= 50


# A database that does not answer.


def test_a_lock_that_somebody_holds_is_not_waited_for_without_end(lasting, sql, start):
    server = start(postgres=lasting.conninfo(sql.name), **SETTINGS)
    queue = server.queue("q")
    queue.configure()
    ident = queue.put("before")
    sql.run("BEGIN")
    sql.run("LOCK TABLE triage.ready")
    assert queue.enqueue("during").refusal == UNAVAILABLE
    assert queue.claim().refusal == UNAVAILABLE
    assert server.log.wait_for("gave up, nothing was changed.*lock timeout")
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    until(lambda: sql.one(waiting) == 0)  # nobody is left behind in the database
    sql.run("ROLLBACK")
    goes_on(queue)
    assert [m["message_id"] for m in queue.take()] == [ident]
    assert queue.stats()["totals"]["enqueued"] == 2


def test_a_statement_timeout_of_the_database_is_an_answer(lasting, sql, start):
    """One that the operator set. It also ends the wait for a lock, and changes nothing else."""
    sql.run(f'ALTER DATABASE "{sql.name}" SET statement_timeout = 300')
    server = start(engine="postgres", postgres=lasting.conninfo(sql.name))
    queue = server.queue("q")
    queue.configure()
    sql.run("BEGIN")
    sql.run("LOCK TABLE triage.ready")
    assert queue.enqueue("during").refusal == UNAVAILABLE
    assert server.log.wait_for("gave up, nothing was changed.*statement timeout")
    sql.run("ROLLBACK")
    goes_on(queue)
    assert not server.log.find("connection lost")


def busy(sql):
    """What other sessions do on this database right now."""
    return sql.one("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                   "state = 'active' AND pid <> pg_backend_pid()")


def make_slow(sql, seconds, function="engine_get"):
    """Whoever calls it waits, not for a lock."""
    sql.run(f"CREATE FUNCTION triage.slow() RETURNS text LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM pg_sleep({seconds}); RETURN ''; END $$")
    source = sql.one("SELECT pg_get_functiondef(%s::regproc)", f"triage.{function}")
    sql.run(source.replace("\nBEGIN\n", "\nBEGIN PERFORM triage.slow();\n", 1))


def test_the_database_ends_what_takes_too_long_and_the_connection_stays(lasting, sql, start):
    server = start(postgres=lasting.conninfo(sql.name), **SETTINGS)
    queue = server.queue("q")
    ident = queue.put("x")
    make_slow(sql, 3600)
    assert queue.show(ident).refusal == UNAVAILABLE
    assert server.log.wait_for("gave up, nothing was changed.*statement timeout")
    until(lambda: busy(sql) == 0)
    goes_on(queue)
    assert not server.log.find("connection lost")


def test_a_server_that_is_gone_leaves_no_statement_behind(lasting, sql, start):
    server = start(postgres=lasting.conninfo(sql.name), **SETTINGS)
    queue = server.queue("q")
    ident = queue.put("x")
    make_slow(sql, 3600)
    connection = Connection(server.address)
    connection.send(request_bytes("GET", queue.message_path(ident)))
    until(lambda: busy(sql) == 1)
    server.kill()
    until(lambda: busy(sql) == 0)
    connection.close()


def test_a_group_that_takes_too_long_is_cancelled(lasting, sql, start):
    """Each statement is within its limit, and all of them together are not."""
    server = start(postgres=lasting.conninfo(sql.name), **SETTINGS)
    queue = server.queue("q")
    ident = queue.put("x")
    make_slow(sql, 0.5)

    def cancelled():
        with open(f"{lasting.folder}/log", encoding="utf-8") as log:
            return "canceling statement due to user request" in log.read()

    def ask_together():
        asks = [Ask(lambda: server.queue("q").show(ident)) for _ in range(8)]
        until(lambda: all(ask.done() for ask in asks))
        assert {ask.answer.status for ask in asks} <= {200, 503}
        return cancelled()

    until(ask_together)
    until(lambda: busy(sql) == 0)
    goes_on(queue)


def test_an_export_that_takes_too_long_takes_nobody_with_it(lasting, sql, start):
    """Requests gather behind a lock, an export among them; it fails, and they do not."""
    server = start(postgres=lasting.conninfo(sql.name), engine="postgres",
                   postgres_timeout_seconds=8)
    queue = server.queue("q")
    queue.put("x")
    make_slow(sql, 3600, "engine_browse")

    def submit(verb, call):
        name = 'triage_engine_ops_total{verb="%s"}' % verb
        before = server.metrics().get(name, 0)
        ask = Ask(call)
        until(lambda: server.metrics()[name] > before)
        return ask

    def gather():
        """The answers; none when this machine took longer than the first may wait for a lock."""
        sql.run("BEGIN")
        sql.run("LOCK TABLE triage.tally")
        asks = [submit("put", lambda: server.queue("q").enqueue("first")),
                submit("put", lambda: server.queue("q").enqueue("before")),
                submit("list", lambda: server.client().get(queue.path + "/export")),
                submit("put", lambda: server.queue("q").enqueue("behind"))]
        in_time = not asks[0].done()
        sql.run("ROLLBACK")
        until(lambda: all(ask.done() for ask in asks))
        return in_time and [ask.answer.status for ask in asks]

    assert until(gather) == [201, 201, 503, 201]


def test_an_export_whose_client_has_gone_asks_for_no_more(lasting, sql, start):
    server = start(engine="postgres", postgres=lasting.conninfo(sql.name))
    queue = server.queue("q")
    queue.put_all([{"payload": "x"}] * 200)
    pages = 'triage_engine_ops_total{verb="list"}'
    assert queue.client.get(queue.path + "/export").status == 200
    whole = server.metrics()[pages]
    assert whole > 2
    sql.run("BEGIN")
    sql.run("LOCK TABLE triage.ready")
    connection = Connection(server.address)
    connection.send(request_bytes("GET", queue.path + "/export"))
    until(lambda: server.metrics()[pages] == whole + 1)
    connection.close()
    until(lambda: server.metrics()["triage_http_hangups_total"] == 1)
    sql.run("ROLLBACK")
    goes_on(queue)
    assert server.metrics()[pages] == whole + 1


# What the database refuses, and what it never got to do.


POISON = """CREATE FUNCTION triage.poisoned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF position('poison'::bytea IN NEW.payload) > 0 THEN
        RAISE EXCEPTION 'not this one' USING ERRCODE = '{0}'; END IF;
    RETURN NEW; END $$;
    CREATE TRIGGER poisoned BEFORE INSERT ON triage.ready FOR EACH ROW
        EXECUTE FUNCTION triage.poisoned()"""


@pytest.mark.parametrize("state", ["22023", "23505", "23514", "54000", "P0001"])
def test_what_the_database_refuses_fails_alone(lasting, sql, start, state):
    server = start(engine="postgres", postgres=lasting.conninfo(sql.name))
    server.queue("q").configure()
    sql.run(POISON.format(state))
    sql.run("BEGIN")
    sql.run("LOCK TABLE triage.ready")  # all that comes meanwhile is one group or two
    words = [f"m{n}" for n in range(62)] + ["poison one", "poison two"]
    asks = {word: Ask(lambda word=word: server.queue("q").enqueue(word)) for word in words}
    until(lambda: server.metrics()['triage_engine_ops_total{verb="put"}'] == len(words))
    sql.run("ROLLBACK")
    until(lambda: all(ask.done() for ask in asks.values()))
    refused = {word for word, ask in asks.items() if ask.answer.status != 201}
    assert refused == {"poison one", "poison two"}
    for word in refused:
        assert asks[word].answer.refusal == (422, "engine-refused")
        assert "log" in asks[word].answer["detail"]
    taken = server.queue("q").take(max=100)
    assert sorted(m["payload"] for m in taken) == sorted(set(words) - refused)
    assert server.log.find("the database refused.*not this one")
    assert not server.log.find("connection lost")


def test_what_is_missing_in_the_database_is_nobodys_fault(lasting, sql, start):
    """Then no op is to blame, and all of them may be tried again."""
    server = start(engine="postgres", postgres=lasting.conninfo(sql.name))
    queue = server.queue("q")
    queue.configure()
    sql.run("ALTER TABLE triage.ready RENAME TO elsewhere")
    assert queue.enqueue("x").refusal == UNAVAILABLE
    sql.run("ALTER TABLE triage.elsewhere RENAME TO ready")
    goes_on(queue)


@pytest.mark.parametrize("function", ["engine_put_many", "engine_put_at", "engine_ack_many",
                                      "engine_move", "engine_cancel", "engine_purge", "engine_count",
                                      "engine_view", "engine_claim", "engine_queue_set",
                                      "engine_queues", "engine_sweep"])
def test_an_answer_that_is_too_short_is_no_success_and_not_the_end(lasting, sql, start, function):
    """Whatever a function of the database gives back: here it is no row at all."""
    server = start(engine="postgres", postgres=lasting.conninfo(sql.name))
    queue = server.queue("q")
    ident = queue.put("before")
    message = queue.take_one()
    waiting = queue.put("waiting", delay_seconds=3600)
    signature, result = sql.row(
        "SELECT oid::regprocedure::text, pg_get_function_result(oid) FROM pg_proc "
        "WHERE proname = %s AND pronamespace = 'triage'::regnamespace", function)
    arguments = sql.one("SELECT pg_get_function_arguments(%s::regprocedure)", signature)
    sql.run(f"ALTER FUNCTION {signature} RENAME TO elsewhere")
    result = result if result.startswith(("SETOF", "TABLE")) else f"SETOF {result}"
    sql.run(f"CREATE FUNCTION triage.{function}({arguments}) RETURNS {result} LANGUAGE plpgsql AS "
            "$$ #variable_conflict use_column\nBEGIN RETURN; END $$")
    answers = [queue.enqueue("x"), queue.enqueue("x", dedup_key="key"),
               queue.ack(message), queue.cancel(waiting),
               queue.client.post(queue.message_path(ident) + "/priority", {"priority": 1}),
               queue.client.post(queue.path + "/purge"), queue.claim(),
               queue.client.put(queue.path, {}),
               queue.client.get(queue.path + "/stats"), server.queue("new").enqueue("x")]
    assert any(answer.status == 503 for answer in answers) or function in (
        "engine_view", "engine_claim", "engine_queues", "engine_sweep"), answers
    assert server.running(), server.log
    sql.run(f"DROP FUNCTION {signature}")
    sql.run(f"ALTER FUNCTION {signature.replace(function, 'elsewhere')} RENAME TO {function}")
    goes_on(queue)


def test_what_was_lost_before_its_commit_is_run_again(lasting, sql, start):
    server = start(engine="postgres", postgres=lasting.conninfo(sql.name))
    queue = server.queue("q")
    queue.configure()
    sql.run("BEGIN")
    sql.run("LOCK TABLE triage.ready")
    ask = Ask(lambda: queue.enqueue("once"))
    until(lambda: sql.rows("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE "
                           "datname = current_database() AND wait_event_type = 'Lock'"))
    sql.run("ROLLBACK")
    until(ask.done)
    assert ask.answer.status == 201
    assert [m["payload"] for m in server.queue("q").take(max=10)] == ["once"]


def test_a_job_that_ends_its_connection_again_and_again_is_given_up(lasting, sql, start):
    server = start(engine="postgres", postgres=lasting.conninfo(sql.name))
    queue = server.queue("q")
    ident = queue.put("x")
    sql.run("""CREATE OR REPLACE FUNCTION triage.engine_get(p_queue int, p_seq bigint,
        p_slot smallint, p_ready_ms bigint) RETURNS SETOF triage.everything LANGUAGE sql AS $$
        SELECT NULL::triage.everything WHERE pg_terminate_backend(pg_backend_pid()) $$""")
    assert queue.show(ident).refusal == UNAVAILABLE
    goes_on(queue)


# A primary and its synchronous standby.


class Pair:
    """Two databases. What is committed on the first is on the second before it is answered."""

    def __init__(self):
        self.primary = Postgres(fsync="off").start()
        self.standby = Postgres(source=self.primary, fsync="off")
        self.all = self.primary, self.standby
        self.join()

    def conninfo(self, database):
        hosts = ",".join(each.folder for each in self.all)
        return f"host={hosts} dbname={database} user=postgres target_session_attrs=read-write"

    def join(self):
        """The standby, which has just been copied, is waited for from now on."""
        self.standby.start()
        with Session(self.primary.connect()) as s:
            s.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
            s.run("SELECT pg_reload_conf()")
            until(lambda: s.one("SELECT sync_state FROM pg_stat_replication "
                                "WHERE state = 'streaming'") == "sync")

    def fail_over(self):
        """The primary is killed, and the standby takes over. It has nobody to wait for."""
        self.primary.kill()
        if not self.standby.running():
            self.standby.start()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def mend(self):
        """What was killed is the standby of the other now."""
        self.standby.copy(self.primary)
        self.join()

    def end(self):
        for each in self.all:
            each.end()


@pytest.fixture(scope="module")
def two():
    own = Pair()
    yield own
    own.end()


@pytest.fixture
def pair(two):
    """With a standby, and an empty database."""
    if not two.standby.running():
        two.mend()
    two.name = two.primary.create(f"triage{next(numbers)}")
    return two


ENDINGS = {"cancelled": "pg_cancel_backend", "terminated": "pg_terminate_backend"}


def end_waits(session, how):
    session.run(f"SELECT {ENDINGS[how]}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


@pytest.mark.parametrize("how", ENDINGS)
def test_a_wait_for_the_standby_that_is_ended_acknowledges_nothing(pair, start, how):
    """PostgreSQL then calls the transaction committed, with a warning. It is on one machine."""
    queue = start(postgres=pair.conninfo(pair.name), **SETTINGS).queue("q")
    queue.configure()
    pair.standby.kill()
    with Session(pair.primary.connect()) as s:
        ask = Ask(lambda: queue.enqueue("perhaps", dedup_key="d"))
        until(lambda: end_waits(s, how) or ask.done())
        assert ask.answer.refusal == UNAVAILABLE
    pair.standby.start()
    again = until(lambda: (a := queue.enqueue("perhaps", dedup_key="d")).status < 300 and a)
    assert again["deduplicated"] and [m["payload"] for m in queue.take(max=10)] == ["perhaps"]


def test_a_standby_that_is_gone_stops_writing_until_it_is_back(pair, start):
    """Nobody ends the waits: the server gives them up after a time, and cannot know."""
    queue = start(postgres=pair.conninfo(pair.name), **SETTINGS).queue("q")
    queue.configure()
    pair.standby.kill()
    assert queue.enqueue("perhaps").refusal == UNAVAILABLE
    pair.standby.start()
    goes_on(queue)
    assert sorted(m["payload"] for m in queue.take(max=10)) == ["it goes on", "perhaps"]


def test_failing_over_to_a_standby_loses_nothing(pair, start):
    experiment = Experiment(start(engine="postgres", postgres=pair.conninfo(pair.name)), "failover")
    experiment.configure()
    experiment.begin()
    for number in range(short_or_long(1, 40)):
        if number:
            pair.mend()
        experiment.work(experiment.random.uniform(0.3, 1.0))
        with away(experiment):
            pair.fail_over()
        experiment.tried += 1
    experiment.work(0.3)
    experiment.end_load(at_least=50)
    assert experiment.conclude().acknowledged >= 50


@pytest.mark.parametrize("how", ENDINGS)
def test_what_only_the_lost_primary_had_was_not_acknowledged(pair, start, how):
    """Under load the standby goes, then the waits for it are ended, then the primary goes; the
    standby takes over as it was when it went."""
    experiment = Experiment(start(postgres=pair.conninfo(pair.name), **SETTINGS),
                            f"failover, waits {how}")
    experiment.configure()
    experiment.begin()
    experiment.work(0.5)
    with away(experiment):
        pair.standby.kill()
        with Session(pair.primary.connect()) as s:
            for _ in range(short_or_long(20, 500)):
                end_waits(s, how)
                experiment.work(0.02)
                experiment.tried += 1
        pair.fail_over()
    experiment.work(0.3)
    experiment.end_load(at_least=50)
    assert experiment.conclude().acknowledged >= 50
