"""Fill, drain, kill, refill: the life of a queue on a disk that is too small for it. While the disk
is full, enqueues are refused and nothing else is; once it is drained, enqueues go on; a kill at any
moment changes neither, and a start finds the disk as full as the kill left it."""

import os
import signal
import threading
import time

from experiment import Experiment, Plan
from history import OK, REFUSED
from wire import DEADLINE

LEASE = 3600  # seconds; nothing here waits for one to end
SIZES = (1_000, 10_000, 30_000, 100_000, 400_000)
BATCH_BYTES = 300_000
MOMENTS = ("filling", "full", "draining", "drained", None, None)  # when it is killed
TURNS_MAX = 100_000  # calls until a disk is full, or has room again


class Filler(threading.Thread):
    """Enqueues until it is refused, or the server is killed."""

    def __init__(self, cycles, size):
        super().__init__()
        self.client, self.draft, self.size = cycles.experiment.client(), cycles.draft, size

    def run(self):
        for _ in range(TURNS_MAX):
            done = self.client.put("q", *self.draft(self.size)[:3])
            if done.outcome != OK:
                break
        self.client.close()


class Drain(threading.Thread):
    """Uses every verb and drains beside the test, which may wait for what the server says meanwhile."""

    def __init__(self, cycles):
        super().__init__()
        self.cycles, self.log = cycles, cycles.server.log
        self.over, self.error = False, None
        self.start()

    def run(self):
        try:
            self.cycles.use_every_verb()
            self.cycles.drain()
        except BaseException as error:
            self.error = error
        with self.log.changed:
            self.over = True
            self.log.changed.notify_all()

    def says(self, pattern):
        """Whether the server says it before all is drained."""
        with self.log.changed:
            assert self.log.changed.wait_for(lambda: self.over or self.log.find(pattern), DEADLINE)
            return not self.over

    def end(self):
        self.join()
        if self.error:
            raise self.error


class Cycles:
    """Of one server on one disk. What must not be refused is asked by one client."""

    def __init__(self, server, disk, fault):
        self.server, self.disk = server, disk
        plans = {"q": Plan(leases=(LEASE,), max_attempts=1000)}
        self.experiment = Experiment(server, fault, plans=plans, worker_count=0)
        self.random = self.experiment.random
        self.experiment.configure()
        self.client = self.experiment.client()
        self.held = []  # deliveries that are leased to us
        self.ended = None  # id of the last message that was acknowledged by itself
        self.count = 0
        self.acked = 0
        self.kills = 0

    def killed_during(self, call):
        """The server dies while the call is under way, or just before or after it."""
        killer = threading.Thread(target=self.server.process.send_signal, args=(signal.SIGKILL,))
        killer.start()
        try:
            call()
        except ConnectionError:
            pass
        killer.join()
        self.server.wait()
        self.kills += 1
        self.server.start()  # on the disk as it is
        self.experiment.mark("restart")
        self.client.connect(self.server.address)

    # Calls. Everything that is not an enqueue has to be done.

    def told(self, what):
        free = self.free()
        self.server.log.reader.join(1)  # if it ends, it has more to say
        return f"{what} on a disk with {free} bytes free, after {self.experiment.tried} " \
            f"cycles, seed {self.experiment.seed}, exit status {self.server.process.poll()}:\n" \
            f"{self.server.log}"

    def insist(self, done):
        assert done.outcome == OK, self.told(done)
        return done

    def free(self):
        disk = os.statvfs(self.disk.folder)
        return disk.f_bavail * disk.f_frsize

    def draft(self, size, rank=None):
        self.count += 1
        key = f"k{self.count}-{threading.get_ident()}"
        return key, self.random.randrange(10) if rank is None else rank, "x" * size, {}

    def put(self, size):
        """One enqueue or several at once; whether all were stored."""
        some = self.random.choice((1, 1 + BATCH_BYTES // size))
        stored = self.client.put_all("q", [self.draft(size) for _ in range(some)])
        for done in stored:
            assert done.outcome in (OK, REFUSED), self.told(done)
        return all(done.outcome == OK for done in stored)

    def put_one(self, size=10):
        return self.client.put("q", *self.draft(size)[:3])

    def take(self, max):
        self.held += self.insist(self.client.claim("q", max=max, lease=LEASE)).deliveries

    # Parts of a cycle.

    def fill(self, moment=None):
        """One client, or several at once: how fast a disk fills up is their choice."""
        size = self.random.choice(SIZES)
        kill_at = self.random.randrange(100) if moment == "filling" else None
        fillers = [Filler(self, size) for _ in range(self.random.choice((0, 0, 3, 8)))]
        for filler in fillers:
            filler.start()
        try:
            for turn in range(TURNS_MAX):
                if turn == kill_at:
                    self.killed_during(lambda: self.put_one(size))
                elif not self.put(size):
                    return
        finally:
            for filler in fillers:
                filler.join()
        raise AssertionError(self.told("never full"))

    def use_every_verb(self):
        """All that a full disk must not refuse."""
        self.take(8)
        for verb, fields in (("nack", {}), ("release", {}), ("nack", {"reason": "not today"}),
                             ("extend", {"visibility_timeout_seconds": LEASE})):
            if self.held:
                self.insist(self.client.settle("q", verb, self.held[-1], **fields))
                if verb != "extend":
                    self.held.pop()
        if self.held:
            last = self.held.pop()
            self.insist(self.client.ack("q", last))
            self.ended = last.id

    def cancel(self, stored):
        """Unless it was claimed, and perhaps acknowledged: all that is more urgent was not enough."""
        claimed = {delivery.id for delivery in self.held} | {self.ended}
        if stored.outcome == OK and stored.id not in claimed:
            self.insist(self.client.cancel("q", stored.key, stored.id))

    def drain(self, moment=None):
        kill_at = self.random.randrange(20) if moment == "draining" else None
        for turn in range(TURNS_MAX):
            if len(self.held) < 50:
                self.take(self.random.choice((10, 100)))
            if not self.held:
                return
            some, self.held = self.held[:50], self.held[50:]
            if turn == kill_at:
                self.killed_during(lambda: self.client.ack_all("q", some))
                for done in self.client.ack_all("q", some):  # now, or before the kill
                    assert done.outcome in (OK, REFUSED), self.told(done)
            else:
                for done in self.client.ack_all("q", some):
                    self.insist(done)
                self.acked += len(some)
        raise AssertionError(self.told("never empty"))

    def await_room(self, moment=None):
        """An enqueue is accepted; until then, nothing but refusals."""
        deadline = time.monotonic() + DEADLINE
        kill_at = self.random.randrange(30) if moment == "drained" else None
        for turn in range(TURNS_MAX):
            if turn == kill_at:
                self.killed_during(self.put_one)
            if self.put(1000):
                return
            assert time.monotonic() < deadline, self.told("no room")
            time.sleep(0.01)
        raise AssertionError(self.told("no room"))

    def cycle(self):
        moment = self.random.choice(MOMENTS)
        least_urgent = self.client.put("q", *self.draft(10, rank=9)[:3])
        self.fill(moment)
        self.use_every_verb()
        self.cancel(least_urgent)
        if moment == "full":
            self.killed_during(self.put_one)
            self.use_every_verb()
        self.drain(moment)
        self.await_room(moment)
        self.experiment.tried += 1

    def conclude(self):
        self.client.close()
        return self.experiment.conclude()
