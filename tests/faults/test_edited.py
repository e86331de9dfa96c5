"""A database that says what no server of ours can have put there: tables that were edited by hand, with
and without their constraints, and functions that were replaced. The server names what it cannot read
in its log, answers what is asked about it with 503 or leaves it out, goes on with the rest, and
never ends by an assertion."""

import psycopg2
import pytest

import database
from database import Session
from wire import until

UNAVAILABLE = (503, "engine-unavailable")


@pytest.fixture
def db():
    return database.fresh()


@pytest.fixture
def server(start, db):
    """With a queue that nobody does anything to."""
    own = start(engine="postgres", postgres=db)
    own.queue("fine").configure(history_seconds=60)
    return own


@pytest.fixture
def sql(db, server):
    with Session(psycopg2.connect(db)) as s:
        unbind(s)
        yield s


def unbind(s):
    """Takes away what keeps odd values out of the tables."""
    for table, name in s.rows("SELECT conrelid::regclass::text, conname FROM pg_constraint"
                              " WHERE connamespace = 'triage'::regnamespace AND contype <> 'p'"
                              " ORDER BY contype = 'u'"):
        s.run(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name} CASCADE")
    for table, column in s.rows(
            "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class c"
            " ON c.oid = attrelid WHERE c.relnamespace = 'triage'::regnamespace AND c.relkind = 'r'"
            " AND attnum > 0 AND attnotnull AND attidentity = '' AND NOT EXISTS (SELECT FROM"
            " pg_index i WHERE i.indrelid = attrelid AND i.indisprimary AND attnum = ANY (i.indkey))"):
        s.run(f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL")


def works(server):
    """What was not touched goes on."""
    fine = server.queue("fine")
    message = fine.put("x")
    taken = fine.take(max=10)
    assert message in [m["message_id"] for m in taken]
    for each in taken:
        fine.ack(each)
    assert fine.show(message)["state"] == "done"
    assert server.running()


def ask_everything(queue, message):
    """Whatever it answers."""
    queue.show(message)
    queue.client.get(queue.message_path(message) + "/position")
    queue.client.get(queue.path + "/stats")
    queue.client.get(queue.path + "/export")
    queue.client.get(queue.path + "/dead")
    queue.client.get("/v1/queues")
    queue.post("messages/priority", filter={}, priority=9)
    for claimed in queue.claim(max=10).json.get("messages", []):
        queue.ack(claimed)
    queue.cancel(message)
    queue.post("dead/redrive")
    queue.enqueue("more")
    queue.client.get("/metrics")


BIG = 2 ** 63 - 1
EDITS = [f"{column} = {value}" for column, values in {
    "slot": [77, -1, "NULL"], "born_slot": [16, "NULL"], "kind": [9, -1, "NULL"],
    "ready_ms": [BIG, -BIG, "NULL"], "born_ms": [BIG, "NULL"], "enqueued_ms": [BIG, -BIG, "NULL"],
    "seq": [-1, 0, BIG], "attempts": [-5, 2 ** 31 - 1, "NULL"], "queue": [0, -7, 4711],
    "payload": ["NULL", "'\\xc3'", "decode(repeat('00', 300000), 'hex')"], "large": [-1, 2 ** 31 - 1],
    "metadata": ["repeat('x', 100000)"], "dedup_key": ["decode(repeat('ff', 70000), 'hex')"],
    "expire_ms": [BIG, -BIG], "escalated_ms": [BIG], "reason": ["repeat('r', 70000)"],
    "escalated_from": [99],
}.items() for value in values]


def place(queue, table):
    """A message in the table of that name."""
    if table == "scheduled":
        return queue.put("x", delay_seconds=3600)
    message = queue.put("x")
    if table in ("leased", "dead", "history"):
        claimed = queue.take_one()
        if table == "dead":
            queue.nack(claimed)
        elif table == "history":
            queue.ack(claimed)
    return message


@pytest.mark.parametrize("table", ["ready", "scheduled", "leased", "dead", "history"])
def test_messages_with_odd_values_are_named_and_the_rest_goes_on(server, sql, table):
    for number, edit in enumerate(EDITS):
        queue = server.queue(f"q{number}")
        queue.configure(max_attempts=1, history_seconds=60)
        message = place(queue, table)
        sql.run(f"UPDATE triage.{table} SET {edit} WHERE queue ="
                f" (SELECT id FROM triage.queue WHERE name = 'q{number}')")
        ask_everything(queue, message)
        assert server.running(), edit
        sql.run(f"DELETE FROM triage.{table} WHERE queue NOT IN (SELECT id FROM triage.queue)")
    assert server.log.find(rf"a message cannot be read.*table=triage\.{table} .*column=kind")
    works(server)


def test_a_message_that_cannot_be_read_is_left_out_of_a_claim(server, sql):
    queue = server.queue("q")
    odd = queue.put("odd")
    queue.put("good")
    sql.run("UPDATE triage.ready SET kind = 9 WHERE payload = 'odd'")
    assert [m["payload"] for m in queue.take(max=10)] == ["good"]
    assert queue.show(odd).refusal == UNAVAILABLE
    assert server.log.find(r"a message cannot be read.*table=triage.leased queue=q seq=\d+ "
                           r"column=kind")
    works(server)


@pytest.mark.parametrize("table", ["ready", "scheduled", "leased", "dead", "history"])
@pytest.mark.parametrize("column", ["payload", "dedup_key"])
def test_what_is_no_text_is_never_told_as_text(server, sql, table, column):
    """Answers are JSON whatever the table has: as bytes it is told in base64."""
    queue = server.queue("q")
    queue.configure(max_attempts=1, history_seconds=60)
    odd = place(queue, table)
    sql.run(f"UPDATE triage.{table} SET {column} = '\\x6180ff'")
    assert queue.show(odd).refusal == UNAVAILABLE
    for path in ("export", "export?state=dead", "dead"):
        answer = queue.client.get(f"{queue.path}/{path}")
        answer.body.decode("utf-8")
        assert answer.status == 200 or answer.refusal == UNAVAILABLE
    if table == "ready":
        good = queue.put("good")
        assert [m["message_id"] for m in queue.take(max=10)] == [good]
    assert server.log.find(rf"a message cannot be read.* queue=q seq=\d+ column={column}")
    if column == "payload":
        sql.run(f"UPDATE triage.{'leased' if table == 'ready' else table} SET kind = 2")
        assert queue.show(odd)["payload_base64"] == "YYD/"
    works(server)


CONFIGURATIONS = {
    "queue": ["visibility_ms = -1", f"visibility_ms = {BIG}", "visibility_ms = NULL",
              "max_attempts = 0", "backoff_jitter = 'NaN'", "backoff_jitter = 17",
              "policy = 'lottery'", "policy = NULL", f"ttl_ms = {BIG}", "history_ms = -5",
              f"history_since_ms = {BIG}", "default_rank = 14", "default_rank = -1",
              "pauses = '{}'", "pauses = '[{\"from_ms\": \"x\"}]'", "pauses = '[7]'",
              f"pauses = '[{{\"from_ms\": {BIG}, \"until_ms\": 3}}]'", "profile = repeat('p', 99)",
              "alert_webhook = repeat('w', 9999)", "max_depth = -4", "dedup_scope = ''",
              "name = 'a/b c'", "name = ''", "name = repeat('n', 3000)"],
    "level": ["weight = 0", "weight = 'NaN'", "weight = 1e300", "slot = 3", "slot = -1", "slot = 99",
              "name = 'same'", "name = ''", "name = repeat('n', 99)", "age_ms = -1",
              f"max_wait_ms = {BIG}", "max_in_flight = -1", f"number = {BIG}"],
}


def edit_configuration(s, table, edit, name="q"):
    s.run(f"UPDATE triage.{table} SET {edit} WHERE {'id' if table == 'queue' else 'queue'} ="
          " (SELECT min(id) FROM triage.queue WHERE name = %s)", name)


def tell(s):
    s.run("UPDATE triage.queue SET version = version + 1 WHERE name <> 'fine'")
    s.run("SELECT pg_notify('triage', 'queues')")


@pytest.mark.parametrize("table", CONFIGURATIONS)
def test_configurations_that_cannot_be_read_are_named(server, sql, table):
    for number, edit in enumerate(CONFIGURATIONS[table]):
        name = f"q{number}"
        queue = server.queue(name)
        message = queue.put("x")
        named = len([line for line in server.log.lines if "cannot be read" in line])
        edit_configuration(sql, table, edit, name)
        tell(sql)
        until(lambda: len([line for line in server.log.lines if "cannot be read" in line]) > named)
        ask_everything(queue, message)
        assert server.running(), edit
        sql.run("DELETE FROM triage.queue WHERE name <> 'fine'")
        sql.run("SELECT pg_notify('triage', 'queues')")
    assert server.log.find(r"configuration cannot be read.*table=triage.queue id=\d+ column=")
    works(server)


def test_a_queue_whose_configuration_cannot_be_read_is_unavailable_until_it_is_mended(server, sql):
    queue = server.queue("q")
    queue.put("x")
    sql.run("UPDATE triage.queue SET max_attempts = 0 WHERE name = 'q'")
    tell(sql)
    assert server.log.wait_for("configuration cannot be read")
    assert queue.enqueue("y").refusal == UNAVAILABLE
    works(server)
    sql.run("UPDATE triage.queue SET max_attempts = 3 WHERE name = 'q'")
    tell(sql)
    assert queue.take_payloads(1) == ["x"]


def test_two_queues_of_one_name_do_not_end_the_server(server, sql):
    for name in ("q", "other"):
        server.queue(name).put("x")
    sql.run("DROP INDEX triage.queue_name")
    sql.run("UPDATE triage.queue SET name = 'q' WHERE name = 'other'")
    tell(sql)
    for _ in range(3):
        ask_everything(server.queue("q"), server.queue("fine").put("z"))
        ask_everything(server.queue("other"), server.queue("fine").put("z"))
        tell(sql)
    works(server)


@pytest.mark.parametrize("table", CONFIGURATIONS)
def test_a_server_starts_beside_configurations_that_cannot_be_read(make, db, server, sql, table):
    for number, edit in enumerate(CONFIGURATIONS[table]):
        server.queue(f"q{number}").put("x")
        edit_configuration(sql, table, edit, f"q{number}")
    server.stop()
    second = make(engine="postgres", postgres=db).start()
    assert second.log.find("configuration cannot be read")
    ask_everything(second.queue("q0"), second.queue("fine").put("z"))
    works(second)


def replace(s, name, columns):
    """A function that answers with something else."""
    oid, arguments, result, count = s.row(
        "SELECT oid::int, pg_get_function_arguments(oid), pg_get_function_result(oid), pronargs"
        " FROM pg_proc WHERE proname = %s AND pronamespace = 'triage'::regnamespace", name)
    s.run(f"ALTER FUNCTION {s.one('SELECT %s::regprocedure::text', oid)} RENAME TO real_function")
    numbers = ", ".join(f"${n + 1}" for n in range(count))
    s.run(f"CREATE FUNCTION triage.{name}({arguments}) RETURNS {result} LANGUAGE sql AS"
          f" $$ SELECT {columns} FROM triage.real_function({numbers}) AS r $$")
    return oid


def restore(s, name, oid):
    s.run(f"DROP FUNCTION triage.{name}")
    s.run(f"ALTER FUNCTION {s.one('SELECT %s::regprocedure::text', oid)} RENAME TO {name}")


PUT = "r.place, r.status, {slot}, {ready}, {seq}, r.enqueued_ms, r.deduplicated"
GOOD_PUT = {"slot": "r.slot", "ready": "r.ready_ms", "seq": "r.seq"}
PUTS = [PUT.format(**{**GOOD_PUT, **change}) for change in (
        {"slot": "77::smallint"}, {"slot": "NULL::smallint"}, {"ready": f"{BIG}"}, {"seq": "-1::bigint"},
        {"seq": "NULL::bigint"}, {"seq": f"{BIG}"})] + [
    "r.place + 1, r.status, r.slot, r.ready_ms, r.seq, r.enqueued_ms, r.deduplicated",
    "r.place, 'lost', r.slot, r.ready_ms, r.seq, r.enqueued_ms, r.deduplicated",
    "NULL::int, NULL::text, NULL::smallint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::boolean"]
ANSWERS = {
    "engine_put_many": PUTS,
    "engine_put_at": PUTS,
    "engine_ack_many": ["r.place, r.status, 'gone'::text, r.slot, r.until_ms",
                        "r.place, r.status, NULL::text, r.slot, r.until_ms",
                        "r.place, r.status, r.state, 99::smallint, r.until_ms",
                        "0, r.status, r.state, r.slot, r.until_ms"],
}


def ask_function(queue, name, claimed, key):
    """A message with a dedup key goes by engine_put_at."""
    if name == "engine_ack_many":
        return queue.ack(claimed)
    return queue.enqueue("y", **({"dedup_key": key} if name == "engine_put_at" else {}))


@pytest.mark.parametrize("name", ANSWERS)
def test_functions_that_answer_something_else_are_named(server, sql, name):
    queue = server.queue("q")
    queue.configure(max_attempts=9)
    for number, columns in enumerate(ANSWERS[name]):
        message = queue.put("x")
        claimed = queue.take_one(visibility_timeout_seconds=600)
        oid = replace(sql, name, columns)
        answer = ask_function(queue, name, claimed, f"key-{number}")
        assert answer.refusal == UNAVAILABLE, columns
        assert server.running(), columns
        restore(sql, name, oid)
        queue.post("purge")
        queue.ack(claimed)
        assert queue.show(message).status == 404
    assert server.log.find(rf"an answer cannot be read.*triage\.{name}.*column=")
    works(server)


OTHERS = {
    "engine_view": ["{}"],
    "engine_queues": ["-1, r.version, r.config", "NULL::int, r.version, r.config",
                      "r.id, r.version, 'null'::jsonb", "r.id, r.version, '[]'::jsonb",
                      "r.id, r.version, '{\"name\": 7}'::jsonb", "r.id, r.version, NULL::jsonb",
                      "1, r.version, r.config"],
    "engine_sweep": ["-1, -1", "NULL::int, NULL::int", "0, 2147483647"],
    "engine_purge": ["-1, -1::bigint", "NULL::int, NULL::bigint", "2147483647, 5::bigint"],
}


def columns_of(s, name):
    """Of a function that returns a table: each with its sign turned around."""
    result = s.one("SELECT pg_get_function_result(oid) FROM pg_proc WHERE proname = %s AND"
                   " pronamespace = 'triage'::regnamespace", name)
    names = [column.split()[0] for column in result[len("TABLE("):-1].split(", ")]
    return ", ".join(f"r.{n}" if n == "slot" else f"-r.{n} - 1" for n in names)


@pytest.mark.parametrize("name", OTHERS)
def test_nothing_that_a_function_says_ends_the_server(server, sql, name):
    queue = server.queue("q")
    queue.configure(max_attempts=9)
    for columns in OTHERS[name]:
        message = queue.put("x")
        oid = replace(sql, name, columns_of(sql, name) if columns == "{}" else columns)
        sql.run("SELECT pg_notify('triage', 'queues')")
        ask_everything(queue, message)
        queue.post("purge")
        assert server.running(), columns
        restore(sql, name, oid)
        tell(sql)
        until(lambda: queue.enqueue("z").status == 201)
    works(server)


ODD_SCHEDULES = {
    "kind": [-1, 255, None], "priority_kind": [-3, 99, None], "every_seconds": [-5, 2**62, 0, None],
    "next_ms": [-2**62, 2**62, None], "last_ms": [2**62, None], "count": [-1, None],
    "made_up": [-7, 2**31 - 1], "grace_ms": [-1, 2**62], "delay_ms": [-1, 2**62],
    "ttl_ms": [-9, 2**62], "missed": ["never", None], "cron": ["nonsense", None],
    "time_zone": ["No/Where", None], "priority_name": ["x" * 5000, None],
    "metadata": ["{", "x" * 100000, None], "payload": [None], "dedup_key": [b"k" * 1000, None],
}


@pytest.mark.parametrize("column", ODD_SCHEDULES)
def test_schedules_with_odd_values_do_not_end_the_server(server, sql, column):
    queue = server.queue("odd")
    path = queue.path + "/schedules/tick"
    for value in ODD_SCHEDULES[column]:
        assert queue.client.put(path, {"every_seconds": 1, "payload": "x", "metadata": {"a": 1},
                                       "dedup_key": "k"}).status in (200, 201)
        sql.run(f"UPDATE triage.schedule SET {column} = %s", value)
        queue.client.get(path, next=3)
        queue.client.get(queue.path + "/schedules")
        sql.run("UPDATE triage.schedule SET next_ms = 0, show_ms = 0 WHERE %s <> 'next_ms'", column)
        queue.client.get(path)
        works(server)
        queue.client.delete(path)
        sql.run("DELETE FROM triage.schedule")
