"""Load, kill -9, restart, again; and in the end an account of every message.

Several clients enqueue (alone and in batches), claim, ack, nack and extend as fast as they can
while the server is killed at a random moment. What they hold when it dies they use after the
restart: receipts survive. The seed decides every choice a client makes and every moment of
death; how far the server got by then is up to the machine."""

import json
import random
import threading
import time
import zlib

from history import OK, REFUSED, UNKNOWN, History, check
from wire import Connection, request_bytes

WORKER_COUNT = 6
QUEUES = ("crash-a", "crash-b", "crash-c")
LEASES = (1, 2)  # seconds
STUCK_SECONDS = 10
BACKLOG_MAX = 2_000  # messages the clients believe are waiting, before they only take away


class Worker:
    """One client. It lives through all cycles; run() is one of them."""

    def __init__(self, number, seed, histories):
        self.number = number
        self.random = random.Random(f"{seed}/{number}")
        self.histories = histories
        self.put_count = 0
        self.waiting = 0  # enqueued minus acked, as far as it knows
        self.held = []  # (queue, message_id, delivery): receipts to use
        self.connection = None
        self.errors = []

    def run(self, address):
        try:
            self.connection = Connection(address)
            while True:
                self.step()
        except (ConnectionError, TimeoutError):
            pass
        except Exception as error:  # a bug in the test, or an answer nobody expects
            self.errors.append(error)
        finally:
            if self.connection:
                self.connection.close()

    def step(self):
        verbs = [(self.claim, 3), (self.ack, 4 if self.held else 0),
                 (self.ack_batch, 2 if len(self.held) > 5 else 0),
                 (self.nack, 1 if self.held else 0), (self.extend, 1 if self.held else 0)]
        if self.waiting < BACKLOG_MAX / WORKER_COUNT:
            verbs += [(self.put, 4), (self.put_batch, 1)]
        functions, weights = zip(*verbs)
        self.random.choices(functions, weights)[0]()

    def ask(self, path, body, method="POST", headers=None):
        """(answer or None when it never came, time before, time after)."""
        sent = time.monotonic()
        data = json.dumps(body).encode() if body is not None else b""
        headers = {"Content-Type": "application/json", **(headers or {})}
        try:
            self.connection.send(request_bytes(method, path, data, headers))
            answer = self.connection.answer()
        except (ConnectionError, TimeoutError):
            return None, sent, time.monotonic()
        return answer, sent, time.monotonic()

    @staticmethod
    def outcome(answer):
        if answer is None or answer.status >= 500:
            return UNKNOWN
        return OK if answer.status < 300 else REFUSED

    @staticmethod
    def go_on(answer):
        """The next operation needs a server; without one the cycle is over."""
        if answer is None:
            raise ConnectionError

    def new_message(self):
        self.put_count += 1
        key = f"{self.number}-{self.put_count}"
        filler = "x" * self.random.choice((10, 200, 200, 3000))
        return key, {"payload": sealed(key, filler), "priority": self.random.randrange(10)}

    def put(self):
        queue = self.random.choice(QUEUES)
        key, message = self.new_message()
        answer, _, _ = self.ask(f"/v1/queues/{queue}/messages", message)
        self.histories[queue].enqueue(key, self.outcome(answer))
        self.waiting += 1
        self.go_on(answer)

    def put_batch(self):
        queue = self.random.choice(QUEUES)
        keys, messages = zip(*(self.new_message() for _ in range(self.random.randint(2, 20))))
        answer, _, _ = self.ask(f"/v1/queues/{queue}/messages/batch", {"messages": messages})
        results = answer["results"] if self.outcome(answer) == OK else [None] * len(keys)
        for key, result in zip(keys, results):
            stored = result and "message_id" in result
            self.histories[queue].enqueue(key, OK if stored else UNKNOWN)
        self.waiting += len(keys)
        self.go_on(answer)

    def claim(self):
        queue = self.random.choice(QUEUES)
        lease = self.random.choice(LEASES)
        fields = {"max": self.random.choice((1, 1, 10)), "visibility_timeout_seconds": lease}
        answer, sent, came = self.ask(f"/v1/queues/{queue}/messages/claim", fields)
        self.go_on(answer)
        assert answer.status in (200, 503), answer
        for message in answer["messages"] if answer.status == 200 else []:
            delivery = self.histories[queue].deliver(
                opened(message["payload"]), message["attempt"], message["receipt_handle"], lease,
                sent, came)
            self.held.append((queue, message["message_id"], delivery))

    def pick(self):
        return self.held.pop(self.random.randrange(len(self.held)))

    def ack(self):
        queue, ident, delivery = self.pick()
        answer, sent, came = self.ask(f"/v1/queues/{queue}/messages/{ident}", None, "DELETE",
                                      {"X-Receipt-Handle": delivery.receipt})
        History.use(delivery, "ack", self.outcome(answer), sent, came)
        self.waiting -= 1
        self.go_on(answer)

    def ack_batch(self):
        queue = self.held[0][0]
        mine = [held for held in self.held if held[0] == queue]
        self.held = [held for held in self.held if held[0] != queue]
        receipts = [{"message_id": ident, "receipt_handle": delivery.receipt}
                    for _, ident, delivery in mine]
        answer, sent, came = self.ask(f"/v1/queues/{queue}/messages/ack", {"receipts": receipts})
        whole = self.outcome(answer)
        results = answer["results"] if whole == OK else [None] * len(mine)
        for (_, _, delivery), result in zip(mine, results):
            outcome = whole if result is None else REFUSED if "error" in result else OK
            History.use(delivery, "ack", outcome, sent, came)
        self.waiting -= len(mine)
        self.go_on(answer)

    def nack(self):
        queue, ident, delivery = self.pick()
        body = {"receipt_handle": delivery.receipt, "reason": "not today"}
        if self.random.random() < 0.5:
            body["delay_seconds"] = 0.2
        answer, sent, came = self.ask(f"/v1/queues/{queue}/messages/{ident}/nack", body)
        History.use(delivery, "nack", self.outcome(answer), sent, came)
        self.go_on(answer)

    def extend(self):
        queue, ident, delivery = held = self.pick()
        lease = self.random.choice(LEASES)
        body = {"receipt_handle": delivery.receipt, "visibility_timeout_seconds": lease}
        answer, sent, came = self.ask(f"/v1/queues/{queue}/messages/{ident}/extend", body)
        History.use(delivery, "extend", self.outcome(answer), sent, came, lease)
        self.held.append(held)
        self.go_on(answer)


def sealed(key, filler):
    """A payload that shows when it was cut, mixed up or changed."""
    text = f"{key} {filler}"
    return f"{zlib.crc32(text.encode()):08x} {text}"


def opened(payload):
    checksum, text = payload.split(" ", 1)
    assert int(checksum, 16) == zlib.crc32(text.encode()), f"corrupted: {payload[:100]!r}"
    return text.split(" ", 1)[0]


def cycle(server, workers, seconds):
    """Loads the running server and kills it after that time."""
    threads = [threading.Thread(target=worker.run, args=(server.address,)) for worker in workers]
    for thread in threads:
        thread.start()
    time.sleep(seconds)  # not a wait for anything: the moment of death is the experiment
    server.kill()
    for thread in threads:
        thread.join()


def left_in(stats):
    return stats["ready"] + stats["scheduled"] + stats["in_flight"]


def drain(queue, history):
    """Takes everything that is left, and waits for what is scheduled or leased to somebody; for
    much longer than any lease of a worker, but not for ever."""
    stats, last = queue.stats(), time.monotonic()
    while left_in(stats) > 0 and time.monotonic() < last + STUCK_SECONDS:
        sent = time.monotonic()
        messages = queue.take(max=100, wait_seconds=1, visibility_timeout_seconds=60)
        came = time.monotonic()
        for message in messages:
            delivery = history.deliver(opened(message["payload"]), message["attempt"],
                                       message["receipt_handle"], 60, sent, came)
            answer = queue.ack(message)
            History.use(delivery, "ack", Worker.outcome(answer), came, time.monotonic())
            last = time.monotonic()
        stats = queue.stats()
    return stats


def find_dead(queue, history):
    query = {"limit": 100}
    while page := queue.dead(**query):
        for dead in page:
            history.leave(opened(dead["payload"]))
        query["after"] = page[-1]["message_id"]


def run(server, seed, cycle_count, report=print):
    """The whole experiment; the verdicts by queue, and the stats at the end."""
    report(f"crash test: seed {seed}, {cycle_count} cycles (TRIAGE_SEED={seed} repeats it)")
    moments = random.Random(f"{seed}/moments")
    histories = {name: History() for name in QUEUES}
    workers = [Worker(number, seed, histories) for number in range(WORKER_COUNT)]
    for name in QUEUES:
        server.queue(name).configure(max_attempts=6)
    for _ in range(cycle_count):
        cycle(server, workers, moments.uniform(0.1, 0.4))
        for worker in workers:
            if worker.errors:
                raise worker.errors[0]
        server.start()
    verdicts, stats = {}, {}
    for name in QUEUES:
        queue = server.queue(name)
        stats[name] = drain(queue, histories[name])
        find_dead(queue, histories[name])
        verdicts[name] = check(histories[name])
        report(f"{name}: {verdicts[name]}")
    return verdicts, stats
