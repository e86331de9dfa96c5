"""Load that hurts: crowds that wait, clients that are slow, rude or mad, beside clients that work.
Nobody who works may get an error; afterwards the server has let go of everything. What it costs
them is printed as the ratio of their p99 with and without; time is not judged here.

Who disturbs would do so from another machine, and here shares two cores with those who work: it gets
the time that nobody else wants."""

import json
import os
import random
import socket
import statistics
import subprocess
import threading

import pytest

from experiment import short_or_long
from server import TRIAGE, allow_many_files
from wire import DEADLINE, request_bytes, until

CROWD = short_or_long(1_000, 10_000)
MANY = short_or_long(100, 1_000)
ROUNDS = short_or_long(1, 5)
SECONDS = short_or_long("1s", "4s")


def work(server):
    """What clients that work see: {verb: p99 in milliseconds}. They get no error."""
    url = "http://%s:%d" % server.address
    done = subprocess.run(
        [TRIAGE, "--server", url, "--json", "bench", "--mix", "mixed", "--connections", "16",
         "--rate", "1000", "--duration", SECONDS, "--warmup", "200ms", "--queue", "work"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["errors"] == {} and result["lost_connections"] == 0, result
    return {verb: each["p99_ms"] for verb, each in result["operations"].items()}


class Pest:
    """Something that bothers the server from begin() to end()."""

    def __init__(self, server):
        self.server = server
        self.sockets = []
        self.stopped = threading.Event()
        self.thread = None

    def begin(self):
        self.thread = threading.Thread(target=self.go_on, daemon=True)
        self.thread.start()

    def end(self):
        self.stopped.set()
        if self.thread:
            self.thread.join()
        for each in self.sockets:
            each.close()

    def go_on(self):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread
        while not self.stopped.wait(self.pause):
            self.step()

    pause = 0.0

    def step(self):
        pass

    def connect(self):
        """Without patience: a crowd may be more than the backlog takes at once."""
        each = socket.create_connection(self.server.address, timeout=DEADLINE)
        each.setblocking(False)
        self.sockets.append(each)
        return each

    def reconnect(self, old):
        self.sockets.remove(old)
        old.close()
        return self.connect()


class Idle(Pest):
    def begin(self):
        for _ in range(CROWD):
            self.connect()


class Polls(Pest):
    def begin(self):
        queue = self.server.queue("polled")
        queue.configure()
        for _ in range(CROWD):
            self.connect().send(request_bytes("GET", queue.path + "/messages?wait_seconds=60"))
        until(lambda: queue.stats()["waiting_consumers"] == CROWD)


class SlowSenders(Pest):
    """Heads and bodies, a byte at a time."""
    pause = 0.5

    def begin(self):
        body = b'{"payload":"' + b"x" * 5000 + b'"}'
        self.data = request_bytes("POST", "/v1/queues/slow/messages", body)
        self.sent = {}
        for number in range(MANY):
            start = len(self.data) - 4000 if number % 2 else 10
            self.connect().send(self.data[:start])
            self.sent[self.sockets[-1]] = start
        super().begin()

    def step(self):
        for each, at in list(self.sent.items()):
            try:
                each.send(self.data[at:at + 1])
                self.sent[each] = at + 1
            except OSError:  # it was told to go
                del self.sent[each]
                self.sent[self.reconnect(each)] = 0


class SlowReaders(Pest):
    """Ask for much, and read it by the spoonful."""
    pause = 0.5
    ask = request_bytes("GET", "/openapi.yaml") * 20

    def begin(self):
        for _ in range(MANY // 5):
            self.connect().send(self.ask)
        super().begin()

    def step(self):
        for each in list(self.sockets):
            try:
                if not each.recv(500):
                    self.reconnect(each).send(self.ask)
            except BlockingIOError:
                pass
            except OSError:
                self.reconnect(each).send(self.ask)


class NeverReading(Pest):
    """Ask, and ask again, until nothing more goes out."""
    pause = 0.1
    ask = request_bytes("GET", "/openapi.yaml") * 50

    def begin(self):
        for _ in range(MANY // 5):
            self.connect()
        super().begin()

    def step(self):
        for each in list(self.sockets):
            try:
                each.send(self.ask)
            except BlockingIOError:
                pass
            except OSError:
                self.reconnect(each)


class Flood(Pest):
    """Connections as fast as they can be made; some say something, all leave."""
    says = [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01"]

    def step(self):
        for word in self.says * 5:
            try:
                with socket.create_connection(self.server.address, timeout=DEADLINE) as each:
                    each.sendall(word)
            except OSError:
                pass


class Garbage(Pest):
    """Noise, heads without an end, requests with noise between them."""

    def begin(self):
        self.random = random.Random(1)
        super().begin()

    def step(self):
        good = request_bytes("GET", "/healthz")
        noises = [self.random.randbytes(5000), b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000,
                  b"X" * 50_000, good * 10 + self.random.randbytes(100) + good * 10,
                  b"POST /v1/queues/g/messages HTTP/1.1\r\nHost: localhost\r\n"
                  b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 3000 + self.random.randbytes(50)]
        for noise in noises:
            try:
                with socket.create_connection(self.server.address, timeout=DEADLINE) as each:
                    each.sendall(noise)
                    each.shutdown(socket.SHUT_WR)
                    while each.recv(65536):
                        pass
            except OSError:
                pass


def sockets(server):
    """How many it has; what else it has open are files, of which RocksDB opens more as it goes on."""
    folder = f"/proc/{server.process.pid}/fd"
    count = 0
    for each in os.listdir(folder):
        try:
            count += os.readlink(f"{folder}/{each}").startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            pass
    return count


def resident(server):
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def settled(server):
    """The number of sockets when the ones who left are gone."""
    client = server.client()
    assert client.get("/healthz").status == 200
    count = sockets(server)
    client.close()
    return count


@pytest.mark.parametrize("pest", [Idle, Polls, SlowSenders, SlowReaders, NeverReading, Flood,
                                  Garbage], ids=lambda pest: pest.__name__)
def test_those_who_work_are_not_disturbed(start, pest):
    allow_many_files()
    server = start(engine="local")
    work(server)  # warm: files open, memory there
    before, memory = settled(server), resident(server)
    ratios = []
    most = 0
    for _ in range(ROUNDS):
        quiet = work(server)
        bother = pest(server)
        bother.begin()
        try:
            loud = work(server)
            most = max(most, resident(server))
        finally:
            bother.end()
        ratios.append({verb: loud[verb] / quiet[verb] for verb in quiet})
    until(lambda: settled(server) <= before)
    told = {verb: statistics.median(each[verb] for each in ratios) for verb in ratios[0]}
    print(f"{pest.__name__}: p99 with / without "
          + ", ".join(f"{verb} {ratio:.2f}" for verb, ratio in told.items())
          + f"; {(most - memory) / 2**20:+.1f} MiB")
    if path := os.environ.get("TRIAGE_FAULT_REPORT"):
        with open(path, "a") as file:
            file.write(json.dumps({"load": pest.__name__, "ratios": told,
                                   "bytes": most - memory}) + "\n")
    server.stop()
