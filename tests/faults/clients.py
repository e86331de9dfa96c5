"""Clients that write down what they see. `Client` makes recorded calls; `Worker` makes many of
them as its seed tells it, and lives through the deaths of servers: what it held when one died it
uses after the restart, for receipts survive."""

import json
import random
import time
import zlib

from history import (DECLINED, OK, REFUSED, UNKNOWN, Claim, Counts, Delivery, Enqueue, Found, Move,
                     Remove, Settle)
from watcher import of_stats
from wire import DEADLINE, Connection, request_bytes, with_query

OLD_RECEIPTS = 50  # used or expired, kept to be tried again
NO_QUEUE = {"ready": 0, "scheduled": 0, "in_flight": 0, "dlq_depth": 0,
            "totals": {"enqueued": 0, "acked": 0, "expired": 0, "cancelled": 0}}


def sealed(key, filler):
    """A payload that shows when it was cut, mixed up or changed."""
    text = f"{key} {filler}"
    return f"{zlib.crc32(text.encode()):08x} {text}"


def opened(payload):
    """The key, or None when this is not what anybody sent."""
    try:
        checksum, text = payload.split(" ", 1)
        return text.split(" ", 1)[0] if int(checksum, 16) == zlib.crc32(text.encode()) else None
    except (ValueError, AttributeError):
        return None


def refusal(problem):
    """The server says when it does not know; any other refusal has changed nothing."""
    if problem["type"] == "urn:triage:engine-unavailable":
        return UNKNOWN
    return DECLINED if problem["status"] == 503 else REFUSED


class Client:
    """Recorded calls over one connection. After an answer that never came the connection is gone,
    and the next call raises ConnectionError: connect() again."""

    def __init__(self, history, plans, address=None, deadline=DEADLINE):
        self.history = history
        self.plans = plans
        self.deadline = deadline
        self.connection = None
        if address:
            self.connect(address)

    def connect(self, address):
        self.close()
        self.connection = Connection(address, self.deadline)

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def ask(self, method, path, body=None, headers=None, query=None):
        """(answer or None when it never came, time before, time after)."""
        if not self.connection:
            raise ConnectionError("not connected")
        data = json.dumps(body).encode() if body is not None else b""
        headers = {"Content-Type": "application/json", **(headers or {})} if data else headers
        sent = time.monotonic()
        try:
            self.connection.send(request_bytes(method, with_query(path, query or {}), data,
                                               headers))
            answer = self.connection.answer()
        except (ConnectionError, TimeoutError):
            self.close()
            return None, sent, time.monotonic()
        came = time.monotonic()
        if answer.status == 503:  # "try again later": the history need not be full of refusals
            time.sleep(0.02)
        return answer, sent, came

    @staticmethod
    def outcome(answer):
        if answer is None:
            return UNKNOWN
        return OK if answer.status < 300 else refusal(answer.json)

    def put(self, queue, key, rank, filler="", **fields):
        message = self.message(queue, key, rank, filler, fields)
        answer, sent, came = self.ask("POST", f"/v1/queues/{queue}/messages", message)
        return self.stored(queue, key, rank, fields, answer and answer.json, self.outcome(answer),
                           sent, came)

    def put_all(self, queue, drafts):
        """Drafts are (key, rank, filler, fields)."""
        messages = [self.message(queue, *draft) for draft in drafts]
        answer, sent, came = self.ask("POST", f"/v1/queues/{queue}/messages/batch",
                                      {"messages": messages})
        whole = self.outcome(answer)
        results = answer["results"] if whole == OK else [{}] * len(drafts)
        batch = self.history.next_batch()
        return [self.stored(queue, key, rank, fields, result,
                            whole if "error" not in result else refusal(result["error"]),
                            sent, came, batch, index)
                for index, ((key, rank, _, fields), result) in enumerate(zip(drafts, results))]

    def message(self, queue, key, rank, filler, fields):
        return {"payload": sealed(key, filler), "priority": self.plans[queue].priority(rank),
                **fields}

    def stored(self, queue, key, rank, fields, result, outcome, sent, came, batch=None, index=0):
        result = result if outcome == OK else {}
        return self.history.add(Enqueue(
            queue, key, rank, sent, came, outcome, result.get("message_id"),
            fields.get("delay_seconds", 0.0), fields.get("ttl_seconds"), fields.get("dedup_key"),
            result.get("deduplicated", False), batch, index, result.get("partition")))

    def claim(self, queue, max=1, wait=0, lease=60, max_rank=None):
        plan = self.plans[queue]
        fields = {"max": max, "wait_seconds": wait, "visibility_timeout_seconds": lease}
        if max_rank is not None:
            fields["min_priority"] = plan.priority(max_rank)
        answer, sent, came = self.ask("POST", f"/v1/queues/{queue}/messages/claim", fields)
        claim = Claim(queue, max, wait, lease, sent, came, self.outcome(answer), [], max_rank)
        for message in answer["messages"] if claim.outcome == OK else []:
            claim.deliveries.append(Delivery(
                opened(message.get("payload")), message["message_id"], message["attempt"],
                message["receipt_handle"], plan.names.index(message["level"])))
        return self.history.add(claim)

    def settle(self, queue, verb, delivery, **fields):
        """nack, release, extend."""
        answer, sent, came = self.ask(
            "POST", f"/v1/queues/{queue}/messages/{delivery.id}/{verb}",
            {"receipt_handle": delivery.receipt, **fields})
        outcome = self.outcome(answer)
        state = answer.json.get("state") if outcome == OK else None
        return self.history.add(Settle(
            queue, verb, delivery.receipt, sent, came, outcome,
            fields.get("visibility_timeout_seconds", 0.0), fields.get("delay_seconds", 0.0), state))

    def ack(self, queue, delivery):
        answer, sent, came = self.ask("DELETE", f"/v1/queues/{queue}/messages/{delivery.id}",
                                      headers={"X-Receipt-Handle": delivery.receipt})
        return self.history.add(Settle(queue, "ack", delivery.receipt, sent, came,
                                       self.outcome(answer)))

    def ack_all(self, queue, deliveries):
        receipts = [{"message_id": d.id, "receipt_handle": d.receipt} for d in deliveries]
        answer, sent, came = self.ask("POST", f"/v1/queues/{queue}/messages/ack",
                                      {"receipts": receipts})
        whole = self.outcome(answer)
        results = answer["results"] if whole == OK else [{}] * len(deliveries)
        return [self.history.add(Settle(queue, "ack", delivery.receipt, sent, came,
                                        whole if "error" not in result else
                                        refusal(result["error"])))
                for delivery, result in zip(deliveries, results)]

    def cancel(self, queue, key, ident):
        answer, sent, came = self.ask("DELETE", f"/v1/queues/{queue}/messages/{ident}",
                                      query={"cancel": True})
        return self.history.add(Remove(queue, "cancel", key, sent, came, self.outcome(answer)))

    def escalate(self, queue, key, ident, rank):
        answer, sent, came = self.ask("POST", f"/v1/queues/{queue}/messages/{ident}/priority",
                                      {"priority": self.plans[queue].priority(rank)})
        return self.history.add(Move(queue, key, rank, sent, came, self.outcome(answer)))

    def first_dead(self, queue):
        """(key, id) of a dead letter, or None."""
        answer, _, _ = self.ask("GET", f"/v1/queues/{queue}/dead", query={"limit": 1})
        if self.outcome(answer) != OK or not answer["messages"]:
            return None
        return opened(answer["messages"][0].get("payload")), answer["messages"][0]["message_id"]

    def redrive(self, queue, key, ident):
        answer, sent, came = self.ask("POST", f"/v1/queues/{queue}/dead/redrive", {"ids": [ident]})
        outcome = self.outcome(answer)
        if outcome == OK and answer["redriven"] == 0:
            outcome = REFUSED  # somebody else was first
        return self.history.add(Remove(queue, "redrive", key, sent, came, outcome))

    def find_dead(self, queue):
        query = {"limit": 100}
        while True:
            answer, _, _ = self.ask("GET", f"/v1/queues/{queue}/dead", query=query)
            if answer and answer.status == 404:
                return
            if answer is None or answer.status != 200:
                raise ConnectionError(f"no dead letters: {answer}")
            for dead in answer["messages"]:
                self.history.add(Found(queue, opened(dead.get("payload")), dead["attempts"],
                                       dead["reason"]))
            if not answer["messages"]:
                return
            query["after"] = answer["messages"][-1]["message_id"]

    def stats(self, queue):
        answer, _, _ = self.ask("GET", f"/v1/queues/{queue}/stats")
        if answer and answer.status == 404:
            return NO_QUEUE
        if answer is None or answer.status != 200:
            raise ConnectionError(f"no stats: {answer}")
        return answer.json


    def count(self, queue):
        """The numbers as they are now, to be judged with the rest."""
        answer, sent, came = self.ask("GET", f"/v1/queues/{queue}/stats")
        if answer and answer.status == 200:
            self.history.add(Counts(queue, "stats", sent, came, of_stats(answer.json)))


class Worker:
    """One client that does a little of everything."""

    def __init__(self, name, seed, history, plans, backlog=300, timed=True, moves=False,
                 client=Client):
        self.name = name
        self.random = random.Random(f"{seed}/{name}")
        self.client = client(history, plans)
        self.plans = plans
        self.backlog = backlog  # messages it believes are waiting, before it only takes away
        self.timed = timed  # also what runs by the wall clock: delays, times to live
        self.moves = moves  # also what changes places: escalation, redrive; order is judged less
        self.count = 0
        self.waiting = 0
        self.held = []  # (queue, delivery): receipts to use
        self.old = []  # … that were used, or ran out
        self.own = []  # (queue, key, id): messages that it may cancel
        self.retries = []  # (queue, dedup key) of enqueues to be tried again
        self.errors = []
        self.stopped = False

    def run(self, address):
        """Works until the server is gone, or stop()."""
        try:
            self.client.connect(address)
            while not self.stopped:
                self.step()
        except (ConnectionError, TimeoutError):
            pass
        except Exception as error:  # a bug in the test, or an answer nobody expects
            self.errors.append(error)
        finally:
            self.client.close()

    def stop(self):
        self.stopped = True

    def step(self):
        holds = bool(self.held)
        verbs = [(self.claim, 3), (self.ack, 4 * holds), (self.ack_batch, 2 * (len(self.held) > 5)),
                 (self.nack, holds), (self.extend, holds), (self.release, holds / 2),
                 (self.use_old, 0.4 * bool(self.old)), (self.cancel, 0.2 * bool(self.own))]
        if self.moves:
            verbs += [(self.escalate, 0.5 * bool(self.own)), (self.redrive, 0.3), (self.look, 0.5)]
        if self.waiting < self.backlog:
            verbs += [(self.put, 4), (self.put_batch, 1)]
        functions, weights = zip(*verbs)
        self.random.choices(functions, weights)[0]()

    def pick_queue(self):
        return self.random.choice(list(self.plans))

    def draft(self, queue):
        self.count += 1
        fields = {}
        chance = self.random.random()
        if chance < 0.1:
            fields["dedup_key"] = f"{self.name}-d{self.count}"
        elif chance < 0.15 and self.timed:
            fields["delay_seconds"] = 0.2
        elif chance < 0.18 and self.timed and self.plans[queue].ttl:
            fields["ttl_seconds"] = self.random.choice((0.5, 3600))
        rank = self.random.randrange(len(self.plans[queue].names))
        filler = "x" * self.random.choice((10, 200, 200, 3000))
        return f"{self.name}-{self.count}", rank, filler, fields

    def put(self):
        if self.retries and self.random.random() < 0.1:
            queue, dedup = self.retries.pop(self.random.randrange(len(self.retries)))
            key, rank, filler, _ = self.draft(queue)
            fields = {"dedup_key": dedup}
        else:
            queue = self.pick_queue()
            key, rank, filler, fields = self.draft(queue)
        self.waiting += 1
        done = self.client.put(queue, key, rank, filler, **fields)
        if done.dedup and (done.outcome == UNKNOWN or self.random.random() < 0.5):
            self.retries.append((queue, done.dedup))
        if done.outcome == OK and not done.deduplicated:
            self.own = self.own[-20:] + [(queue, key, done.id)]

    def put_batch(self):
        queue = self.pick_queue()
        drafts = [self.draft(queue) for _ in range(self.random.randint(2, 20))]
        self.waiting += len(drafts)
        self.client.put_all(queue, drafts)

    def claim(self):
        queue = self.pick_queue()
        names = self.plans[queue].names
        claim = self.client.claim(
            queue, max=self.random.choice((1, 1, 10)), wait=self.random.choice((0, 0, 0.02)),
            lease=self.random.choice(self.plans[queue].leases),
            max_rank=self.random.randrange(len(names)) if self.random.random() < 0.1 else None)
        self.held += [(queue, delivery) for delivery in claim.deliveries]

    def pick(self):
        queue, delivery = self.held.pop(self.random.randrange(len(self.held)))
        self.old = self.old[-OLD_RECEIPTS:] + [(queue, delivery)]
        return queue, delivery

    def ack(self):
        queue, delivery = self.pick()
        self.waiting -= 1
        self.client.ack(queue, delivery)

    def ack_batch(self):
        queue = self.held[0][0]
        mine = [delivery for where, delivery in self.held if where == queue]
        self.held = [held for held in self.held if held[0] != queue]
        self.waiting -= len(mine)
        self.client.ack_all(queue, mine)

    def nack(self):
        queue, delivery = self.pick()
        later = self.timed and self.random.random() < 0.5
        self.client.settle(queue, "nack", delivery, reason="not today",
                           **({"delay_seconds": 0.2} if later else {}))

    def release(self):
        queue, delivery = self.pick()
        self.client.settle(queue, "release", delivery)

    def extend(self):
        queue, delivery = self.random.choice(self.held)
        self.client.settle(queue, "extend", delivery,
                           visibility_timeout_seconds=self.random.choice(self.plans[queue].leases))

    def use_old(self):
        queue, delivery = self.random.choice(self.old)
        if self.random.random() < 0.5:
            self.client.ack(queue, delivery)
        else:
            self.client.settle(queue, "nack", delivery)

    def cancel(self):
        queue, key, ident = self.own.pop(self.random.randrange(len(self.own)))
        self.client.cancel(queue, key, ident)

    def escalate(self):
        queue, key, ident = self.random.choice(self.own)
        self.client.escalate(queue, key, ident, self.random.randrange(len(self.plans[queue].names)))

    def redrive(self):
        queue = self.pick_queue()
        if dead := self.client.first_dead(queue):
            self.client.redrive(queue, *dead)

    def look(self):
        self.client.count(self.pick_queue())
