"""The SQL interface and the functions behind it, on a real PostgreSQL: what is in
src/engine/postgres, called as psql and any driver would, without a server of ours."""

import collections
import itertools
import json
import random
import select
import threading

import psycopg2
import pytest

from database import STEPS, Postgres, Session, install

FOREVER = 281474976710656


@pytest.fixture(scope="module")
def postgres():
    server = Postgres(fsync="off", max_connections=120, autovacuum="off").start()
    try:
        server.create("triage")
        install(server.connect("triage"))
        yield server
    finally:
        server.end()


@pytest.fixture
def connect(postgres):
    sessions = []

    def connect_one(user="postgres"):
        sessions.append(Session(postgres.connect("triage", user)))
        return sessions[-1]

    yield connect_one
    for s in sessions:
        s.db.close()


names = (f"q{n}" for n in itertools.count(1))


class Sql(Session):
    """A session and a queue of its own."""

    def __init__(self, db, queue, **config):
        super().__init__(db)
        self.queue = queue
        self.run("SELECT triage.configure(%s, %s)", queue, json.dumps(config))
        self.id = self.one("SELECT id FROM triage.queue WHERE name = %s", queue)

    @property
    def version(self):
        return self.one("SELECT version FROM triage.queue WHERE id = %s", self.id)

    def put(self, payload="x", **fields):
        extra = "".join(f", {name} => %s" for name in fields)
        return self.one(f"SELECT triage.enqueue(%s, %s{extra})", self.queue, payload,
                        *fields.values())

    def claim(self, most=1, **fields):
        extra = "".join(f", {name} => %s" for name in fields)
        return self.records(f"SELECT * FROM triage.claim(%s, %s{extra})", self.queue, most,
                            *fields.values())

    def payloads(self, most=1, **fields):
        return [m["payload"] for m in self.claim(most, **fields)]

    def state(self, message_id):
        return self.one("SELECT status FROM triage.messages WHERE message_id = %s", message_id)

    def stats(self):
        return self.one("SELECT triage.stats(%s)", self.queue)

    def ack(self, m):
        self.run("SELECT triage.ack(%s, %s)", m["message_id"], m["receipt_handle"])

    def nack(self, m, **fields):
        extra = "".join(f", {name} => %s" for name in fields)
        return self.one(f"SELECT triage.nack(%s, %s{extra})", m["message_id"],
                        m["receipt_handle"], *fields.values())

    def count_up(self):
        assert self.one("SELECT triage.count_up(%s, triage.now_ms())", self.id)

    def at(self, ms):
        """The engine's functions at an invented time."""
        return Engine(self, ms)


class Engine:
    def __init__(self, sql, ms):
        self.sql, self.ms = sql, ms

    def put(self, *payloads, slot=0, delay=0, ttl=None, ready=None):
        n = len(payloads)
        return self.sql.records(
            "SELECT * FROM triage.engine_put(%s, %s, %s::smallint[], %s::bytea[], %s::smallint[],"
            " %s::text[], NULL, %s::bigint[], %s::bigint[], %s::bigint[], %s)",
            self.sql.id, self.sql.version, [slot] * n, [psycopg2.Binary(p) for p in payloads],
            [0] * n, [None] * n, [ready] * n, [delay] * n, [ttl] * n, self.ms)

    def claim(self, slots=(0,), most=(1,), want=1, lease=None):
        return self.sql.records(
            "SELECT * FROM triage.engine_claim(%s, %s, %s::smallint[], %s, %s, %s,"
            " triage.receipts(%s), %s)",
            self.sql.id, self.sql.version, list(slots), list(most), want, lease, want, self.ms)

    def settle(self, verb, messages, *args):
        extra = ", %s" * len(args)
        return self.sql.records(
            f"SELECT * FROM triage.engine_{verb}(%s, %s, %s::bigint[], %s::smallint[],"
            f" %s::bigint[], %s::bytea[]{extra}, %s)",
            self.sql.id, self.sql.version, [m["seq"] for m in messages],
            [m["born_slot"] for m in messages], [m["born_ms"] for m in messages],
            [m["receipt"] for m in messages], *args, self.ms)

    def ack(self, messages):
        return self.settle("ack", messages)

    def nack(self, messages, delay=None, reason="failed"):
        return self.settle("return", messages, False, delay, reason)

    def release(self, messages):
        return self.settle("return", messages, True, None, None)

    def extend(self, messages, lease):
        return self.settle("extend", messages, lease)

    def sweep(self, most=1000):
        moved = self.sql.rows("SELECT * FROM triage.engine_sweep(%s, %s)", most, self.ms)
        return sum(n for queue, n in moved if queue == self.sql.id)


@pytest.fixture
def make(postgres):
    """Sessions with a queue: make(profile="tiers"); make(like=q) shares q's queue."""
    made = []

    def make_one(like=None, **config):
        name = like.queue if like else next(names)
        made.append(Sql(postgres.connect("triage"), name, **config))
        return made[-1]

    yield make_one
    for q in {m.id: m for m in made}.values():
        assert_conserved(q)
    for q in made:
        q.db.close()


@pytest.fixture
def q(make):
    return make()


TABLES = {"ready": "ready", "scheduled": "scheduled", "leased": "leased", "dead": "dead"}


def assert_conserved(q):
    """The counts are those of the tables, and everything enqueued is somewhere."""
    if q.one("SELECT deleted FROM triage.queue WHERE id = %s", q.id) in (None, True):
        return
    if q.db.status != psycopg2.extensions.STATUS_READY:
        q.db.rollback()
    q.db.autocommit = True
    for slot in range(16):
        seen = q.records("SELECT * FROM triage.engine_view(%s) WHERE slot = %s", q.id, slot)
        seen = seen[0] if seen else collections.defaultdict(int)
        for column, table in TABLES.items():
            real = q.one(f"SELECT count(*) FROM triage.{table} WHERE queue = %s AND slot = %s",
                         q.id, slot)
            assert seen[column] == real, (slot, column)
    s = q.stats()
    t = s["totals"]
    assert t["enqueued"] == (s["ready"] + s["scheduled"] + s["in_flight"] + s["dlq_depth"]
                             + t["acked"] + t["expired"] + t["cancelled"])


# The schema


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


# Enqueueing and claiming


def test_an_enqueue_that_rolls_back_never_existed(q, make):
    other = make(like=q)
    q.run("BEGIN")
    q.put("never")
    assert other.claim() == []
    q.run("ROLLBACK")
    assert other.claim() == []
    assert other.stats()["totals"]["enqueued"] == 0
    q.run("BEGIN")
    q.put("now")
    q.run("COMMIT")
    assert other.payloads() == ["now"]


def test_payloads_come_back_as_they_went_in(q):
    q.put("täxt")
    q.run("SELECT triage.enqueue(%s, %s::jsonb)", q.queue, '{"b": [1]}')
    q.run("SELECT triage.enqueue(%s, %s)", q.queue, psycopg2.Binary(b"\0\xff"))
    q.put("L" * 200_000)
    got = q.claim(4)
    assert [m["payload"] for m in got] == ["täxt", '{"b": [1]}', None, "L" * 200_000]
    assert bytes(got[2]["payload_bytes"]) == b"\0\xff"


def test_most_urgent_first_and_first_in_first_out(q):
    for n in range(30):
        q.put(f"{n}", priority=str(n % 3))
    assert q.payloads(30) == [str(n) for p in (2, 1, 0) for n in range(30) if n % 3 == p]


def test_a_past_or_negative_time_sorts_earlier(make):
    q = make(profile="timeline")
    for ms in (5, -7, 0, -2**47 + 1):
        q.put(str(ms), dequeue_at=ms)
    q.count_up()
    q.put("-8", dequeue_at=-8)
    assert q.payloads(9) == [str(-2**47 + 1), "-8", "-7", "0", "5"]


def test_min_priority_serves_urgent_levels_alone(q):
    q.put("low", priority="1")
    assert q.claim(min_priority="5") == []
    q.put("high", priority="7")
    assert q.payloads(5, min_priority="5") == ["high"]


def test_a_paused_queue_gives_nothing_and_takes_everything(q):
    q.run("SELECT triage.pause(%s)", q.queue)
    q.put()
    assert q.claim() == []
    q.run("SELECT triage.resume(%s)", q.queue)
    assert len(q.claim()) == 1


def test_bad_input_is_refused_by_name(q):
    assert q.refusal("SELECT triage.enqueue(%s, 'x', priority => 'nope')", q.queue) == (
        "TR422", "unknown-priority")
    assert q.refusal("SELECT triage.enqueue('a b', 'x')") == ("TR422", "invalid-field")
    assert q.refusal("SELECT triage.enqueue(%s, %s)", q.queue, "x" * 262145) == (
        "TR413", "payload-too-large")
    assert q.refusal("SELECT * FROM triage.claim('no-such-queue')") == ("TR404", "queue-not-found")
    assert q.refusal("SELECT triage.cancel('msg_nonsense')") == ("TR404", "message-not-found")
    assert q.refusal("SELECT triage.enqueue(%s, 'x', delay => '1s', dequeue_at => 1)", q.queue) == (
        "TR422", "invalid-field")


def test_every_message_goes_to_one_of_many_consumers(q, make):
    q.run("SELECT count(*) FROM triage.enqueue_many(%s, %s)", q.queue, [str(n) for n in range(600)])
    got, consumers = [], [make(like=q) for _ in range(8)]

    def consume(own):
        while batch := own.claim(7):
            got.extend(batch)
            for m in batch:
                own.ack(m)

    threads = [threading.Thread(target=consume, args=(c,)) for c in consumers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    while batch := q.claim(100):
        got.extend(batch)
    assert sorted(int(m["payload"]) for m in got) == list(range(600))


# Receipts


def test_only_the_present_receipt_opens_a_message(q):
    q.put()
    first = q.claim()[0]
    forged = dict(first, receipt_handle="rh_" + "0" * 26)
    for verb in ("ack", "nack", "release"):
        assert q.refusal(f"SELECT triage.{verb}(%s, %s)", forged["message_id"],
                         forged["receipt_handle"]) == ("TR409", "receipt-expired")
    assert q.state(first["message_id"]) == "leased"
    assert q.one("SELECT triage.extend(%s, %s, '1h') > now() + interval '59 minutes'",
                 first["message_id"], first["receipt_handle"])
    assert q.nack(first) == "ready"
    second = q.claim()[0]
    assert second["message_id"] == first["message_id"]
    assert second["receipt_handle"] != first["receipt_handle"]
    assert q.refusal("SELECT triage.ack(%s, %s)", first["message_id"],
                     first["receipt_handle"]) == ("TR409", "receipt-expired")
    q.ack(second)
    assert q.refusal("SELECT triage.ack(%s, %s)", second["message_id"],
                     second["receipt_handle"]) == ("TR404", "message-not-found")


def test_a_receipt_dies_with_its_lease(q):
    at = q.at(1000)
    at.put(b"x")
    m = at.claim(lease=100)
    assert [r["status"] for r in q.at(1100).ack(m)] == ["receipt-expired"]
    assert [r["status"] for r in q.at(1100).extend(m, 100)] == ["receipt-expired"]
    assert [r["status"] for r in q.at(1099).extend(m, 100)] == [None]
    assert [(r["status"], r["state"]) for r in q.at(1198).ack(m)] == [(None, "done")]


def test_each_item_of_a_batch_has_its_own_answer(q):
    at = q.at(1000)
    at.put(b"a", b"b", b"c")
    a, b, c = at.claim(most=(3,), want=3)
    wrong = dict(c, receipt=psycopg2.Binary(bytes(16)))
    gone = dict(a, seq=FOREVER - 1)
    answers = at.ack([a, wrong, gone, a, b])
    assert [r["status"] for r in answers] == [None, "receipt-expired", "message-not-found",
                                              "message-not-found", None]
    assert [r["status"] for r in at.nack([c, c])] == [None, "receipt-expired"]


def test_ack_many_answers_in_kind(q):
    q.put("1")
    q.put("2")
    got = q.claim(2)
    assert q.rows("SELECT status FROM triage.ack_many(%s, %s)",
                  [m["message_id"] for m in got] + ["msg_x"],
                  [m["receipt_handle"] for m in got] + ["rh_x"]) in (
        [("done",), ("done",), ("message-not-found",)],
        [("message-not-found",), ("done",), ("done",)])


# Attempts, delays, time to live


def test_a_nacked_message_keeps_its_place_and_a_failed_one_dies(make):
    q = make(max_attempts=2)
    first = q.put("first")
    q.put("second")
    m = q.claim()[0]
    assert q.nack(m, reason="boom") == "ready"
    m = q.claim()[0]
    assert (m["message_id"], m["attempt"]) == (first, 2)
    assert q.nack(m, reason="bang") == "dead"
    assert q.row("SELECT original_id, failure_reason, attempts, payload FROM triage.dead_letters"
                 " WHERE queue_name = %s", q.queue) == (first, "bang", 2, "first")
    assert q.one("SELECT triage.redrive(%s)", q.queue) == 1
    m = q.claim()[0]
    assert (m["message_id"], m["attempt"]) == (first, 1)


def test_release_counts_no_attempt(q):
    q.put()
    for _ in range(5):
        m = q.claim()[0]
        assert m["attempt"] == 1
        assert q.one("SELECT triage.release(%s, %s)", m["message_id"], m["receipt_handle"]) == "ready"


def test_backoff_grows_and_stops_at_its_maximum(make):
    q = make(max_attempts=9, retry={"backoff": "exponential", "base_seconds": 1, "max_seconds": 5,
                                    "jitter": 0})
    now = 10_000
    q.at(now).put(b"x")
    for wait in (1000, 2000, 4000, 5000, 5000):
        m = q.at(now).claim()
        assert q.at(now).nack(m)[0]["state"] == "scheduled"
        assert q.at(now + wait - 1).sweep() == 0
        now += wait
        assert q.at(now).sweep() == 1
    assert len(q.at(now).claim()) == 1


def test_a_lease_that_ends_counts_as_a_failure(make):
    q = make(max_attempts=2)
    q.at(0).put(b"x")
    for now, dead in ((0, 0), (1000, 1)):
        assert len(q.at(now).claim(lease=1000)) == 1
        assert q.at(now + 999).sweep() == 0
        assert q.at(now + 1000).sweep() == 1
        assert q.stats()["dlq_depth"] == dead
    assert q.one("SELECT failure_reason FROM triage.dead_letters WHERE queue_name = %s",
                 q.queue) == "lease expired"
    assert q.stats()["totals"]["lease_expired"] == 2


def test_a_delayed_message_is_ready_when_its_time_comes_and_not_before(q):
    at = q.at(1000)
    at.put(b"later", delay=500)
    at.put(b"now")
    assert [bytes(m["payload"]) for m in at.claim(most=(5,), want=5)] == [b"now"]
    assert q.at(1499).sweep() == 0
    assert q.at(1500).sweep() == 1
    assert [bytes(m["payload"]) for m in q.at(1500).claim()] == [b"later"]


@pytest.mark.parametrize("fate", ["drop", "dead"])
def test_a_time_to_live_ends_a_waiting_message(make, fate):
    q = make(expired=fate)
    at = q.at(1000)
    at.put(b"ready", ttl=100)
    at.put(b"scheduled", ttl=100, delay=500)
    at.put(b"held", ttl=100, slot=1)
    held = at.claim(slots=(1,))
    assert q.at(1100).claim(slots=(0, 1), most=(5, 5), want=5) == []
    assert q.at(1100).sweep() == 1  # the scheduled one
    assert q.at(1101).release(held)[0]["state"] == ("dead" if fate == "dead" else "expired")
    s = q.stats()
    assert (s["dlq_depth"], s["totals"]["expired"]) == ((3, 0) if fate == "dead" else (0, 3))


def test_claiming_lets_time_pass_where_no_server_does(make):
    q = make(visibility_timeout_seconds=0)
    q.put("again")
    assert q.payloads() == ["again"]
    assert q.payloads() == ["again"]  # its lease of no length is over


# Dedup


def test_a_key_inside_its_window_gives_the_first_message(make):
    q = make(dedup={"window_seconds": 60})
    first = q.put("1", dedup_key="k")
    assert q.put("2", dedup_key="k") == first
    assert q.put("3", dedup_key="other") != first
    q.ack(q.claim()[0])
    assert q.put("4", dedup_key="k") == first
    assert q.stats()["totals"]["deduplicated"] == 2
    q.run("UPDATE triage.dedup SET until_ms = 0 WHERE queue = %s", q.id)
    assert q.put("5", dedup_key="k") != first


def test_a_live_key_goes_with_its_message(make):
    q = make(dedup={"scope": "live"}, max_attempts=1)
    first = q.put("1", dedup_key="k")
    assert q.put("2", dedup_key="k") == first
    m = q.claim()[0]
    assert q.put("3", dedup_key="k") == first
    assert q.nack(m) == "dead"
    assert q.put("4", dedup_key="k") == first
    assert q.one("SELECT triage.purge_dead(%s)", q.queue) == 1
    second = q.put("5", dedup_key="k")
    assert second != first
    q.run("SELECT triage.cancel(%s)", second)
    third = q.put("6", dedup_key="k")
    q.ack(q.claim()[0])
    assert q.put("7", dedup_key="k") not in (first, second, third)


def test_one_of_many_at_once_gets_the_key(q, make):
    sessions = [make(like=q) for _ in range(6)]
    ids = []
    threads = [threading.Thread(target=lambda s=s: ids.append(s.put(dedup_key="same")))
               for s in sessions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(ids)) == 1
    assert q.stats()["totals"] | {"enqueued": 1, "deduplicated": 5} == q.stats()["totals"]


# Limits


def test_a_full_queue_refuses(make):
    q = make(max_depth=2)
    q.put()
    q.put()
    assert q.refusal("SELECT triage.enqueue(%s, 'x')", q.queue) == ("TR429", "queue-full")
    m = q.claim()[0]
    q.put()
    assert q.nack(m) == "ready"  # what was in stays in
    q = make(max_bytes=10)
    assert q.refusal("SELECT triage.enqueue(%s, %s)", q.queue, "x" * 11) == (
        "TR413", "payload-too-large")
    q.put("x" * 6)
    assert q.refusal("SELECT triage.enqueue(%s, %s)", q.queue, "x" * 5) == ("TR429", "queue-full")


def test_a_limit_holds_when_many_enqueue_at_once(make):
    q = make(max_depth=20)
    sessions = [make(like=q) for _ in range(6)]

    def fill(own):
        for _ in range(10):
            try:
                own.put()
            except psycopg2.Error as e:
                assert e.pgcode == "TR429"

    threads = [threading.Thread(target=fill, args=(s,)) for s in sessions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert q.stats()["ready"] == 20


def test_a_level_at_its_limit_is_skipped_and_a_queue_at_its_limit_stops(make):
    q = make(levels=[{"name": "a", "max_in_flight": 1}, {"name": "b"}], max_in_flight=3)
    for _ in range(3):
        q.put("a", priority="a")
        q.put("b", priority="b")
    got = q.claim(6)
    assert [m["payload"] for m in got] == ["a", "b", "b"]
    assert q.claim() == []
    q.ack(got[0])
    assert q.payloads(6) == ["a"]


# Policies


def fill(q, counts):
    for name, n in counts.items():
        q.run("SELECT count(*) FROM triage.enqueue_many(%s, %s, %s)", q.queue, [name] * n, name)


TIERS = {"CRITICAL": 16, "HIGH": 8, "NORMAL": 4, "LOW": 2, "BACKGROUND": 1}


@pytest.mark.parametrize("batch", [1, 7])
def test_shares_are_exact_over_whole_cycles(make, batch):
    q = make(profile="tiers")
    fill(q, {name: 200 for name in TIERS})
    got = collections.Counter()
    while got.total() < 31 * 7:
        got.update(q.payloads(min(batch, 31 * 7 - got.total())))
    assert got == {name: 7 * n for name, n in TIERS.items()}


def test_shares_hold_over_two_sessions_together(make):
    q = make(profile="environments")
    other = make(like=q)
    fill(q, {name: 300 for name in ("production", "staging", "qa", "development")})
    got = collections.Counter(p for n in range(200) for p in (q, other)[n % 3 == 0].payloads())
    for name, share in (("production", 4), ("staging", 3), ("qa", 2), ("development", 1)):
        assert abs(got[name] - 200 * share / 10) <= 200 * 0.02


def test_shares_hold_over_sessions_of_one_claim_each(make):
    q = make(profile="environments")
    fill(q, {name: 400 for name in ("production", "staging", "qa", "development")})
    q.run("SELECT setseed(0.25)")
    got = collections.Counter()
    for _ in range(400):
        q.run("SELECT set_config(%s, '', false)", f"triage.tokens_{q.id}")
        got.update(q.payloads())
    assert 20 <= got["development"] <= 60 and 125 <= got["production"] <= 195, got


def test_weighted_is_never_idle_while_something_is_ready(make):
    q = make(profile="tiers")
    fill(q, {"BACKGROUND": 40})
    assert len([p for _ in range(40) for p in q.payloads()]) == 40


def test_a_head_that_waited_counts_as_more_urgent(make):
    levels = [{"name": "a"}, {"name": "b", "age_after_seconds": 60},
              {"name": "c", "age_after_seconds": 30}]
    q = make(levels=levels)
    now = q.one("SELECT triage.now_ms()")
    q.put("a", priority="a")
    q.put("b", priority="b")
    q.put("fresh c", priority="c", dequeue_at=now - 5_000)
    q.put("as b", priority="c", dequeue_at=now - 40_000)
    q.put("as a", priority="c", dequeue_at=now - 95_000)
    got = q.claim(5)
    assert [(m["payload"], m["effective_level"]) for m in got] == [
        ("as a", "a"), ("a", "a"), ("as b", "b"), ("b", "b"), ("fresh c", "c")]
    assert {m["level"] for m in got if "as" in m["payload"]} == {"c"}


# Without a receipt


def test_escalation_takes_effect_at_once_keeps_the_age_and_is_recorded(q):
    q.put("old", priority="1")
    urgent = q.put("young", priority="1")
    late = q.put("late", priority="1", delay="1 hour")
    q.count_up()
    for each in (urgent, late):
        q.run("SELECT triage.escalate(%s, '9', 'ops', 'customer waits')", each)
    row = q.row("SELECT status, priority, escalated_by, escalated_why, escalated_at > enqueued_at"
                " FROM triage.messages WHERE message_id = %s", late)
    assert row == ("scheduled", "9", "ops", "customer waits", True)
    m = q.claim()[0]
    assert (m["message_id"], m["level"]) == (urgent, "9")
    assert q.refusal("SELECT triage.escalate(%s, '1')", urgent) == ("TR409", "not-pending")
    assert q.refusal("SELECT triage.escalate(%s, '77')", late) == ("TR422", "unknown-priority")


def test_cancel_takes_only_what_waits(q):
    ready, later = q.put(), q.put(delay="1 hour")
    held = q.put(priority="9")
    m = q.claim()[0]
    assert m["message_id"] == held
    q.run("SELECT triage.cancel(%s), triage.cancel(%s)", ready, later)
    assert q.refusal("SELECT triage.cancel(%s)", held) == ("TR409", "not-pending")
    assert q.refusal("SELECT triage.cancel(%s)", ready) == ("TR404", "message-not-found")
    assert q.stats()["totals"]["cancelled"] == 2


def test_purge_drops_what_waits_and_nothing_else(q):
    for n in range(30):
        q.put(priority=str(n % 10), **({"delay": "1 hour"} if n % 3 else {}))
    q.claim(3)
    assert q.one("SELECT triage.purge(%s)", q.queue) == 27
    assert q.stats()["in_flight"] == 3


def test_redrive_by_id_and_to_another_priority(make):
    q = make(max_attempts=1)
    ids = [q.put(str(n)) for n in range(4)]
    for m in q.claim(4):
        q.nack(m)
    assert q.one("SELECT triage.redrive(%s, %s, priority => '9')", q.queue, [ids[2], "msg_x"]) == 1
    m = q.claim()[0]
    assert (m["message_id"], m["level"], m["attempt"]) == (ids[2], "9", 1)
    assert q.one("SELECT triage.redrive(%s, max => 2)", q.queue) == 2
    assert q.payloads(9) == ["0", "1"]


def test_a_large_payload_is_written_once(q):
    q.put("L" * 100_000)
    seq = q.one("SELECT seq FROM triage.ready WHERE queue = %s", q.id)
    where = "SELECT ctid::text, xmin::text FROM triage.body WHERE seq = %s"
    before = q.row(where, seq)
    q.nack(q.claim()[0], delay="0")
    m = q.claim()[0]
    assert q.row(where, seq) == before
    assert m["payload"] == "L" * 100_000
    q.ack(m)
    assert q.row(where, seq) is None


def test_history_is_kept_for_its_time(make):
    q = make(history_seconds=1)
    q.at(1000).put(b"x", b"L" * 5000)
    got = q.at(1000).claim(most=(2,), want=2)
    q.at(2000).ack(got)
    assert [r["status"] for r in q.at(2000).ack(got)] == ["receipt-expired"] * 2
    q.at(2999).sweep()
    assert q.one("SELECT count(*) FROM triage.messages WHERE queue_name = %s AND status = 'done'",
                 q.queue) == 2
    q.at(3000).sweep()
    assert q.one("SELECT count(*) FROM triage.history WHERE queue = %s", q.id) == 0
    assert q.one("SELECT count(*) FROM triage.body WHERE seq IN %s",
                 tuple(m["seq"] for m in got)) == 0


def test_a_listing_shows_everything_once(make):
    q = make(max_attempts=1, history_seconds=60)
    for n in range(25):
        q.put(str(n), priority=str(n % 4), **({"delay": "1 hour"} if n % 5 == 0 else {}))
    got = q.claim(9)
    for m in got[:3]:
        q.nack(m)
    for m in got[3:6]:
        q.ack(m)
    seen, at = [], (0, -1, -2**47, 0)
    while page := q.records("SELECT phase, (message).* FROM triage.engine_list(%s, %s,"
                            " %s::smallint, %s, %s, 4)", q.id, *at):
        seen += [(m["state"], m["seq"]) for m in page]
        last = page[-1]
        at = (last["phase"], last["slot"], last["ready_ms"], last["seq"])
    assert len(set(s for _, s in seen)) == len(seen) == 25
    assert collections.Counter(s for s, _ in seen) == {
        "ready": 11, "scheduled": 5, "leased": 3, "done": 3, "dead": 3}


# Queues


def test_configuration_reads_back_as_it_was_given(make):
    q = make(profile="tiers", max_attempts=7, retry={"backoff": "fixed"}, ttl_seconds=1.5)
    c = q.one("SELECT triage.config(%s)", q.queue)
    assert c | {"profile": "tiers", "policy": "weighted", "max_attempts": 7, "ttl_seconds": 1.5,
                "visibility_timeout_seconds": 300, "max_depth": None} == c
    assert c["retry"] == {"backoff": "fixed", "base_seconds": 1, "max_seconds": 300, "jitter": 0.1}
    assert [level["age_after_seconds"] for level in c["levels"]] == [None, None, None, 1800, 3600]
    for bad, name in (({"typo": 1}, "unknown-field"), ({"policy": "best"}, "invalid-field"),
                      ({"max_attempts": 0}, "invalid-field"), ({"levels": []}, "invalid-field"),
                      ({"retry": {"backof": "none"}}, "unknown-field"),
                      ({"levels": [{"name": "a"}, {"name": "a"}]}, "invalid-field"),
                      ({"default_priority": "x"}, "unknown-priority")):
        assert q.refusal("SELECT triage.configure(%s, %s)", q.queue, json.dumps(bad)) == (
            "TR422", name)
    assert q.one("SELECT triage.config(%s)", q.queue) == c


def test_levels_keep_their_messages_by_name(make):
    q = make(levels=[{"name": "a"}, {"name": "b"}])
    q.put("in a", priority="a")
    q.put("in b", priority="b")
    assert q.refusal("SELECT triage.configure(%s, %s)", q.queue,
                     '{"levels": [{"name": "b"}]}') == ("TR409", "level-in-use")
    q.run("SELECT triage.configure(%s, %s)", q.queue,
          '{"levels": [{"name": "new"}, {"name": "b"}, {"name": "a"}]}')
    assert q.payloads(2) == ["in b", "in a"]


def test_a_message_whose_level_vanished_meanwhile_joins_the_default(make):
    q = make(levels=[{"name": "a"}, {"name": "b"}])
    other = make(like=q)
    q.run("BEGIN")
    q.put("stray", priority="b")
    other.run("SELECT triage.configure(%s, %s)", q.queue, '{"levels": [{"name": "a"}]}')
    q.run("COMMIT")
    q.run("SELECT triage.engine_sweep(100, triage.now_ms() + 1000)")
    assert q.payloads() == ["stray"]


def test_a_deleted_queue_is_gone_at_once_and_swept_later(make):
    q = make()
    for n in range(5):
        q.put(str(n), **({"delay": "1 hour"} if n % 2 else {}))
    q.put("L" * 3000)
    held = q.claim(1, visibility_timeout="0")
    assert q.refusal("SELECT triage.drop_queue(%s)", q.queue) == ("TR409", "queue-not-empty")
    q.run("SELECT triage.drop_queue(%s, force => true)", q.queue)
    assert q.refusal("SELECT triage.ack(%s, 'rh_')", held[0]["message_id"]) == (
        "TR404", "message-not-found")
    for _ in range(5):
        q.run("SELECT triage.sweep()")
    for table in ("ready", "scheduled", "leased", "tally", "lane", "counted"):
        assert q.one(f"SELECT count(*) FROM triage.{table} WHERE queue = %s", q.id) == 0
    assert q.one("SELECT count(*) FROM triage.queue WHERE id = %s", q.id) == 0
    q.run("SELECT triage.enqueue(%s, 'fresh')", q.queue)
    assert q.one("SELECT id FROM triage.queue WHERE name = %s", q.queue) > q.id


def test_a_server_with_an_old_configuration_in_mind_is_told_so(q):
    old = q.version
    q.run("SELECT triage.configure(%s, '{\"max_attempts\": 5}')", q.queue)
    assert q.refusal("SELECT * FROM triage.engine_claim(%s, %s, '{0}', '{1}', 1, NULL,"
                     " triage.receipts(1))", q.id, old)[0] == "TRCFG"


# Counts, floors, and open transactions


def test_what_commits_late_is_not_overlooked(q, make):
    """The floors move on while a transaction that enqueued before is still open."""
    slow = make(like=q)
    slow.run("BEGIN")
    slow.put("late")
    q.put("1")
    q.put("2")
    for _ in range(3):
        q.count_up()
    assert q.payloads() == ["1"]
    slow.run("COMMIT")
    assert q.payloads() == ["late"]
    assert q.payloads() == ["2"]


def test_what_comes_back_is_not_overlooked(q):
    q.put("first")
    q.put("second")
    first = q.claim()[0]
    q.count_up()
    assert q.nack(first) == "ready"
    q.count_up()
    assert q.payloads(2) == ["first", "second"]


def test_counting_up_inside_a_transaction_that_goes_on(q):
    q.run("BEGIN")
    q.put("1")
    q.count_up()
    q.put("2")
    q.run("COMMIT")
    assert q.stats()["ready"] == 2
    q.count_up()
    assert q.stats()["ready"] == 2
    assert q.payloads(2) == ["1", "2"]


def test_an_old_snapshot_may_use_the_queues_too(q, make):
    other = make(like=q)
    q.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert q.one("SELECT 1") == 1
    other.put("unseen")
    other.count_up()
    q.put("own")
    assert q.payloads(5) == ["own"]
    q.run("COMMIT")
    assert q.payloads(5) == ["unseen"]


def buffers(q, sql, *args):
    plan = q.one("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, *args)
    return plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]


def claim_cost(q):
    """Pages touched by a claim of ten, in a session that has its plans; the least of a few."""
    at = q.at(None)
    least = 10**9
    for _ in range(4):
        at.put(*[b"x"] * 10, slot=9)
        least = min(least, buffers(q, "SELECT * FROM triage.engine_claim(%s, %s, '{9}', '{10}', 10,"
                                      " NULL, triage.receipts(10))", q.id, q.version))
    return least


def test_a_claim_costs_the_same_with_many_scheduled_and_dead_messages(q):
    before = claim_cost(q)
    for table in ("scheduled", "dead"):
        extra = ", 0" if table == "dead" else ""
        q.run(f"INSERT INTO triage.{table} SELECT nextval('triage.seq'), 2^46, 2^46, 0, %s, 0, 0, 0,"
              f" 0, 'x'{', NULL' * 9}{extra} FROM generate_series(1, 20000)", q.id)
        q.run("INSERT INTO triage.tally (queue, slot, " + table + ", enqueued)"
              " VALUES (%s, 0, 20000, 20000)", q.id)
    q.count_up()
    assert claim_cost(q) <= before * 1.1 + 5


def test_a_claim_costs_the_same_while_a_transaction_is_held_open(q, make):
    before = claim_cost(q)
    holder = make(like=q)
    holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.one("SELECT 1")
    writer = make(like=q)
    writer.run("BEGIN")
    writer.put("under way", priority="0")  # has a transaction id, so that the snapshots' ends differ
    at = q.at(None)
    for _ in range(25):
        at.put(*[b"x"] * 200, slot=9)
        at.ack(at.claim(slots=(9,), most=(200,), want=200))
        q.count_up()
    after = claim_cost(q)
    writer.run("COMMIT")
    holder.run("COMMIT")
    assert after <= before * 1.1 + 20  # 5,000 dead rows are some 170 pages


def test_random_work_keeps_the_counts_and_the_order(make):
    """Everything at once in invented time, against a list of what should be where."""
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    q = make(max_attempts=2, expired=rng.choice(["drop", "dead"]),
             retry={"backoff": rng.choice(["none", "fixed"]), "jitter": 0})
    now, held = 10_000, []
    try:
        for _ in range(150):
            now += rng.randrange(400)
            at = q.at(now)
            match rng.randrange(9):
                case 0 | 1 | 2:
                    at.put(*[b"x" * rng.choice([1, 3000])] * rng.randrange(1, 5),
                           slot=rng.randrange(3), delay=rng.choice([0, 0, 900]),
                           ttl=rng.choice([None, None, 1500]), ready=rng.choice([None, None, 5]))
                case 3 | 4:
                    got = at.claim(slots=(0, 1, 0, 2), most=(1, 2, 1, 2), want=rng.randrange(1, 6),
                                   lease=rng.choice([500, 5000]))
                    for slot in range(3):
                        places = [(m["ready_ms"], m["seq"]) for m in got if m["slot"] == slot]
                        assert places == sorted(places)
                    held += got
                case 5:
                    at.ack(held[:2])
                    held = held[2:]
                case 6:
                    verb = rng.choice([at.nack, at.release])
                    verb(held[:3])
                    held = held[3:]
                case 7:
                    at.sweep()
                case 8:
                    q.run(rng.choice(["SELECT triage.redrive(%s)", "SELECT triage.purge_dead(%s)",
                                      "SELECT triage.count_up((triage.queue_named(%s)).id, 0)"]),
                          q.queue)
            if rng.randrange(10) == 0:
                assert_conserved(q)
        assert_conserved(q)
    except AssertionError:
        print("seed", seed)
        raise


def test_counts_add_up_when_many_work_at_once(q, make):
    workers = [make(like=q) for _ in range(6)]

    def work(own, seed):
        rng = random.Random(seed)
        for n in range(40):
            if n % 2:
                own.put(priority=str(rng.randrange(10)))
            for m in own.claim(2):
                rng.choice([own.ack, own.nack])(m)
            if n % 10 == seed:
                own.one("SELECT triage.count_up(%s, 0)", own.id)
                own.run("SELECT triage.sweep()")

    threads = [threading.Thread(target=work, args=(w, n)) for n, w in enumerate(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert_conserved(q)
    q.count_up()
    assert_conserved(q)
    assert q.stats()["totals"]["enqueued"] == 6 * 20


def test_sweepers_share_the_work(q, make):
    q.at(0).put(*[b"x"] * 60)
    q.at(0).claim(most=(60,), want=60, lease=10)
    first, second = make(like=q), make(like=q)
    first.run("BEGIN")
    assert first.at(10).sweep(20) == 20
    assert second.at(10).sweep(100) == 40
    first.run("COMMIT")
    assert q.stats()["ready"] == 60


# Notifications and marks


def notifications(listener):
    got = []
    while select.select([listener.db], [], [], 0.2 if got else 0.05)[0]:
        listener.db.poll()
        got += [n.payload for n in listener.db.notifies]
        listener.db.notifies.clear()
    return got


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


def test_work_and_its_acknowledgement_commit_together(q, make):
    other = make(like=q)
    q.put("once")
    for end, left in (("ROLLBACK", 1), ("COMMIT", 0)):
        q.run("BEGIN")
        m = q.claim()[0]
        assert m["attempt"] == 1
        assert other.claim() == []
        q.ack(m)
        q.run(end)
        assert q.stats()["ready"] == left
