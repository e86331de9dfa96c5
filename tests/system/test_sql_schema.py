"""The schema on a real PostgreSQL, without a server of ours: installing it, who may use it, ids as
a server spells them, and what servers hear through it."""

import select
import threading

import psycopg2

from database import STEPS, Session, install


def test_installing_again_changes_nothing(postgres):
    assert install(postgres.connect("triage")) == 0


def test_two_servers_may_install_at_once(postgres):
    database = postgres.create("twice")
    applied = []
    threads = [threading.Thread(target=lambda: applied.append(install(postgres.connect(database))))
               for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(applied) == [0, 0, 0, len(STEPS) - 1]


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def base32(data):
    """As src/core/message.c spells bytes."""
    bits = "".join(f"{b:08b}" for b in data)
    bits += "0" * (-len(bits) % 5)
    return "".join(ALPHABET[int(bits[i:i + 5], 2)] for i in range(0, len(bits), 5))


def test_ids_and_receipts_are_spelled_as_the_server_spells_them(connect):
    s = connect()
    for queue, slot, ready, seq in [(0, 0, 0, 0), (1, 4, 1775746800000, 1), (7, 3, -1, 99),
                                    (2**31 - 1, 15, 2**47 - 1, 2**48 - 1), (7, 3, 1 - 2**47, 99),
                                    (0x01020304, 5, 0x060708090A0B, 0x0C0D0E0F1011)]:
        text = "msg_" + base32(queue.to_bytes(4, "big") + bytes([slot])
                               + (ready + 2**47).to_bytes(6, "big") + seq.to_bytes(6, "big"))
        assert s.one("SELECT triage.id_format(%s, %s::smallint, %s, %s)", queue, slot, ready,
                     seq) == text
        assert s.row("SELECT * FROM triage.id_parse(%s)", text) == (queue, slot, ready, seq)
        assert s.row("SELECT * FROM triage.id_parse(%s)", text[:-1])[0] is None
        assert s.row("SELECT * FROM triage.id_parse(%s)", text[:-1] + "1")[0] is None
    for receipt in (bytes(16), bytes(range(16)), b"\xff" * 16):
        text = "rh_" + base32(receipt)
        assert s.one("SELECT triage.receipt_format(%s)", psycopg2.Binary(receipt)) == text
        assert bytes(s.one("SELECT triage.receipt_parse(%s)", text)) == receipt
        assert s.one("SELECT triage.receipt_parse(%s)", text[:-1] + "1") is None
    assert len(bytes(s.one("SELECT triage.receipts(3)"))) == 48


def test_whoever_may_use_the_schema_may_use_the_queues(connect):
    admin = connect()
    admin.run("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA triage TO app")
    app = connect("app")
    app.run("SELECT triage.enqueue('for-app', 'hello')")
    m = app.records("SELECT * FROM triage.claim('for-app')")[0]
    app.run("SELECT triage.ack(%s, %s)", m["message_id"], m["receipt_handle"])
    assert app.refusal("SELECT * FROM triage.ready")[0] == "42501"


def notifications(listener):
    got = []
    while select.select([listener.db], [], [], 0.2 if got else 0.05)[0]:
        listener.db.poll()
        got += [n.payload for n in listener.db.notifies]
        listener.db.notifies.clear()
    return got


def test_an_upgrade_keeps_who_may_call_what(postgres):
    """From the step before 021, which replaces functions, to the last. What they were is gone from
    the steps; by their arguments they are known."""
    database = postgres.create("older")
    assert install(postgres.connect(database), [s for s in STEPS if "/021_" > s[s.rindex("/"):]])
    with Session(postgres.connect(database)) as s:
        for older in ("claim(queue text, max int, min_priority text, visibility_timeout interval)",
                      "redrive(queue text, message_ids text[], max int, priority text)"):
            s.run(f"CREATE FUNCTION triage.{older} RETURNS int LANGUAGE sql AS 'SELECT 1'")
        for role in ("taker", "stranger"):
            s.run(f"CREATE ROLE {role}")
            s.run(f"GRANT USAGE ON SCHEMA triage TO {role}")
        s.run("REVOKE ALL ON FUNCTION triage.claim FROM PUBLIC")
        s.run("GRANT EXECUTE ON FUNCTION triage.claim TO taker")
        before = s.one("SELECT proacl::text FROM pg_proc WHERE oid = 'triage.claim'::regproc")
        assert install(postgres.connect(database)) >= 1
        assert s.one("SELECT proacl::text FROM pg_proc WHERE oid = 'triage.claim'::regproc") == before
        assert s.one("SELECT proacl FROM pg_proc WHERE oid = 'triage.redrive'::regproc") is None
        s.run("SELECT triage.enqueue('older', 'waits', priority => '7')")
        s.run("SET ROLE stranger")
        try:
            s.run("SELECT * FROM triage.claim('older')")
            raise AssertionError("a stranger may claim")
        except psycopg2.errors.InsufficientPrivilege:
            pass
        s.run("SET ROLE taker")
        assert s.one("SELECT payload FROM triage.claim('older', min_priority => 7)") == "waits"


def test_one_notification_per_transaction_and_only_for_those_who_wait(q, make):
    listener = make(like=q)
    listener.run("LISTEN triage")
    q.put()
    assert notifications(listener) == []
    listener.run("SELECT triage.engine_wait(gen_random_uuid(), %s, 60000)", [q.id])
    q.put(delay="1 hour")
    assert notifications(listener) == []
    q.run("BEGIN")
    q.put()
    q.put()
    m = q.claim()[0]
    q.nack(m)
    q.run("COMMIT")
    assert notifications(listener) == [str(q.id)]
    q.run("SELECT triage.configure(%s, '{\"max_attempts\": 4}')", q.queue)
    assert notifications(listener) == ["queues"]


def test_a_group_that_was_committed_is_known_by_its_mark(q):
    token = "5c4d6a52-7d7e-4b0e-9a55-0d6a1c1f2e33"
    q.run("BEGIN")
    q.run("SELECT triage.engine_mark(%s)", token)
    q.run("ROLLBACK")
    assert q.one("SELECT triage.engine_marked(%s)", token) is False
    q.run("SELECT triage.engine_mark(%s)", token)
    assert q.one("SELECT triage.engine_marked(%s)", token) is True


def test_bloat_is_visible(q):
    rows = {r["name"]: r for r in q.records("SELECT * FROM triage.bloat")}
    assert {"ready", "leased", "tally"} <= set(rows)
    assert rows["ready"]["index_bytes"] > 0
