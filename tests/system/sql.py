"""The SQL interface as the tests speak it: a session with a queue of its own, the functions
that a server calls at a time that is invented, and what must hold of a queue after any of them."""

import collections
import json

import psycopg2

from database import Session


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
        self.one("SELECT set_config('triage.now_ms', %s, false)", str(ms))
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

    def claim(self, slots=(0,), want=1, lease=None):
        return self.sql.records(
            "SELECT * FROM triage.engine_claim(%s, %s, %s::smallint[], %s, %s,"
            " triage.receipts(%s), %s)",
            self.sql.id, self.sql.version, list(slots), want, lease, want, self.ms)

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
