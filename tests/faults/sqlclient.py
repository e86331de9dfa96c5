"""A client that writes down what it sees, and speaks SQL instead of HTTP: the functions that
`docs/sql.md` lists, on a session of its own. A Worker can be given one."""

import time

import psycopg2

from clients import Client, opened, sealed
from database import Session
from history import (DECLINED, OK, REFUSED, UNKNOWN, Claim, Counts, Delivery, Enqueue, Move, Remove,
                     Settle)
from watcher import of_stats

UNDONE = ("40001", "40P01", "55P03", "57014")  # met somebody, or waited too long: rolled back
LATER = 1.0  # seconds: servers hear of delays that others make when they look next


class SqlClient(Client):
    def connect(self, connect):
        self.close()
        self.connection = Session(connect())

    def close(self):
        if self.connection:
            self.connection.db.close()
            self.connection = None

    def call(self, sql, *args):
        """(outcome, rows, time before, time after)."""
        if not self.connection:
            raise ConnectionError("not connected")
        sent = time.monotonic()
        outcome, rows = OK, []
        try:
            rows = self.connection.rows(sql, *args)
        except psycopg2.Error as error:
            state = error.pgcode or ""
            outcome = REFUSED if state.startswith("TR") else DECLINED if state in UNDONE else UNKNOWN
            if outcome == UNKNOWN and state:
                raise
            if outcome == UNKNOWN:
                self.close()
        return outcome, rows, sent, time.monotonic()

    def priority(self, queue, rank):
        return str(self.plans[queue].priority(rank))

    def put(self, queue, key, rank, filler="", **fields):
        delay = LATER if "delay_seconds" in fields else None
        ttl = fields.get("ttl_seconds")
        outcome, rows, sent, came = self.call(
            "SELECT triage.enqueue(%s, %s::text, priority => %s, delay => make_interval(secs => %s),"
            " ttl => make_interval(secs => %s))", queue, sealed(key, filler),
            self.priority(queue, rank), delay, ttl)
        ident = rows[0][0] if outcome == OK else None
        return self.history.add(Enqueue(queue, key, rank, sent, came, outcome, ident, delay or 0.0,
                                        ttl))

    def put_all(self, queue, drafts):
        """They share one level."""
        rank = drafts[0][1]
        payloads = [sealed(key, filler) for key, _, filler, _ in drafts]
        outcome, rows, sent, came = self.call(
            "SELECT triage.enqueue_many(%s, %s, %s)", queue, payloads, self.priority(queue, rank))
        batch = self.history.next_batch()
        return [self.history.add(Enqueue(queue, key, rank, sent, came, outcome,
                                         rows[index][0] if rows else None, batch=batch,
                                         index=index))
                for index, (key, *_) in enumerate(drafts)]

    def claim(self, queue, max=1, wait=0, lease=60, max_rank=None):
        least = None if max_rank is None else self.priority(queue, max_rank)
        outcome, rows, sent, came = self.call(
            "SELECT payload, message_id, attempt, receipt_handle, level FROM triage.claim(%s, "
            "max => %s, min_priority => %s, visibility_timeout => make_interval(secs => %s))",
            queue, max, least, lease)
        names = self.plans[queue].names
        found = [Delivery(opened(payload), ident, attempt, receipt, names.index(level))
                 for payload, ident, attempt, receipt, level in rows]
        return self.history.add(Claim(queue, max, 0, lease, sent, came, outcome, found, max_rank))

    def settle(self, queue, verb, delivery, **fields):
        lease = fields.get("visibility_timeout_seconds", 0.0)
        delay = LATER if "delay_seconds" in fields else 0.0
        more = {"nack": ", delay => make_interval(secs => %s), reason => 'not today'",
                "extend": ", make_interval(secs => %s)", "release": ""}[verb]
        args = {"nack": (delay or None,), "extend": (lease,), "release": ()}[verb]
        outcome, rows, sent, came = self.call(f"SELECT triage.{verb}(%s, %s{more})::text",
                                              delivery.id, delivery.receipt, *args)
        state = rows[0][0] if rows and verb != "extend" else None
        return self.history.add(Settle(queue, verb, delivery.receipt, sent, came, outcome, lease,
                                       delay, state))

    def ack(self, queue, delivery):
        outcome, _, sent, came = self.call("SELECT triage.ack(%s, %s)", delivery.id,
                                           delivery.receipt)
        return self.history.add(Settle(queue, "ack", delivery.receipt, sent, came, outcome))

    def ack_all(self, queue, deliveries):
        outcome, rows, sent, came = self.call(
            "SELECT message_id, status FROM triage.ack_many(%s, %s)",
            [d.id for d in deliveries], [d.receipt for d in deliveries])
        said = {}  # of a message that was taken twice there are two
        for ident, status in rows:
            said.setdefault(ident, []).append(status)
        return [self.history.add(Settle(
            queue, "ack", d.receipt, sent, came,
            REFUSED if outcome == OK and said[d.id].pop(0) != "done" else outcome))
            for d in deliveries]

    def cancel(self, queue, key, ident):
        outcome, _, sent, came = self.call("SELECT triage.cancel(%s)", ident)
        return self.history.add(Remove(queue, "cancel", key, sent, came, outcome))

    def escalate(self, queue, key, ident, rank):
        outcome, _, sent, came = self.call("SELECT triage.escalate(%s, %s)", ident,
                                           self.priority(queue, rank))
        return self.history.add(Move(queue, key, rank, sent, came, outcome))

    def first_dead(self, queue):
        _, rows, _, _ = self.call("SELECT payload, original_id FROM triage.dead_letters "
                                  "WHERE queue_name = %s LIMIT 1", queue)
        return (opened(rows[0][0]), rows[0][1]) if rows else None

    def redrive(self, queue, key, ident):
        outcome, rows, sent, came = self.call("SELECT triage.redrive(%s, ARRAY[%s])", queue, ident)
        if outcome == OK and rows[0][0] == 0:
            outcome = REFUSED
        return self.history.add(Remove(queue, "redrive", key, sent, came, outcome))

    def count(self, queue):
        outcome, rows, sent, came = self.call("SELECT triage.stats(%s)", queue)
        if outcome == OK:
            self.history.add(Counts(queue, "stats", sent, came, of_stats(rows[0][0])))
