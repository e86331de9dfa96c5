"""One experiment: a server, clients that load it and write down what they see, faults in between,
and in the end an account of every message."""

import json
import os
import random
import threading
import time

import checker
from clients import Client, Worker
from history import OK, Ended, Enqueue, History, Mark, Rules
from watcher import Watcher
from wire import Queue, until

SOAK = bool(os.environ.get("TRIAGE_SOAK"))
STUCK_SECONDS = 60


def short_or_long(short, long):
    return long if SOAK else short


def new_seed():
    return os.environ.get("TRIAGE_SEED") or str(random.SystemRandom().randrange(10**9))


class Plan:
    """How a queue is configured. Levels are named, most urgent first."""

    def __init__(self, names=None, leases=(1, 2), ttl=True, window=None, **config):
        self.names = names or [str(number) for number in range(9, -1, -1)]
        self.leases = leases
        self.ttl = ttl  # some messages have a time to live
        self.window = window  # of a queue whose partitions are not in one order
        self.config = {"max_attempts": 6, "retry": {"backoff": "none"}, **config}

    def priority(self, rank):
        name = self.names[rank]
        return int(name) if name.isdigit() else name

    def rules(self, queue, answer):
        """From what the server says that it does."""
        levels = answer["levels"]
        assert [level["name"] for level in levels] == self.names, answer
        limits = [answer.get("max_in_flight")] + [level.get("max_in_flight") for level in levels]
        return Rules(queue, len(levels), answer["policy"], [level["weight"] for level in levels],
                     any(level.get("age_after_seconds") for level in levels), any(limits),
                     answer["max_attempts"], answer["dedup"]["window_seconds"],
                     answer["dedup"]["scope"], answer["expired"], self.window)


def usual_plans():
    """A queue of each kind; the weighted one is strict where the server has no weights yet."""
    return {"ten-levels": Plan(),
            "live-keys": Plan(dedup={"scope": "live"}),
            "by-weight": Plan(["production", "staging", "qa", "development"],
                              profile="environments")}


class Experiment:
    def __init__(self, server, fault, seed=None, plans=None, worker_count=6, **worker_options):
        self.server = server
        self.fault = fault
        self.seed = seed or new_seed()
        self.random = random.Random(f"{self.seed}/{fault}")
        self.plans = plans or usual_plans()
        self.history = History()
        self.workers = [Worker(f"w{number}", self.seed, self.history, self.plans, **worker_options)
                        for number in range(worker_count)]
        self.watcher = Watcher(self.history, self.plans)
        self.threads = []
        self.tried = 0
        self.unjudged = ()  # checks of promises that do not hold here
        self.counts = True  # the engine keeps its totals through all that is done to it
        self.verdict = None

    def configure(self):
        for name, plan in self.plans.items():
            queue = Queue(self.server.client(), name)
            answer = queue.configure(**plan.config)
            self.history.add(plan.rules(name, answer))
            queue.client.close()

    def everybody(self):
        """Who is at work, each in a thread: what to call, and with what."""
        return [(each, each.run, self.server.address) for each in [*self.workers, self.watcher]]

    def begin(self):
        everybody = self.everybody()
        for each, *_ in everybody:
            each.stopped = False
        self.threads = [threading.Thread(target=run, args=args) for _, run, *args in everybody]
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join()
        self.threads = []
        for each, *_ in self.everybody():
            if each.errors:
                raise each.errors[0]

    def end_load(self, at_least=0):
        """Ends when so many enqueues were acknowledged: a slow machine needs longer for them."""
        until(lambda: sum(e.outcome == OK for e in self.history.of(Enqueue)) >= at_least)
        for each, *_ in self.everybody():
            each.stop()
        self.join()

    def work(self, seconds):
        """Not a wait for anything: how long it takes until something happens is the experiment."""
        time.sleep(seconds)

    def mark(self, what, partition=None):
        self.history.add(Mark(what, time.monotonic(), partition))

    def restart(self):
        self.server.start()
        self.mark("restart")

    def client(self):
        return Client(self.history, self.plans, self.server.address)

    # The end.

    def drain(self, name):
        """Takes everything that is left, and waits for what is scheduled or leased to somebody;
        for much longer than any lease of a worker, but not for ever."""
        client = self.client()
        stats, last = client.stats(name), time.monotonic()
        while left_in(stats) and time.monotonic() < last + STUCK_SECONDS:
            claim = client.claim(name, max=100, wait=1)
            if claim.deliveries:
                client.ack_all(name, claim.deliveries)
                last = time.monotonic()
            stats = client.stats(name)
        client.find_dead(name)
        self.history.add(Ended(name, time.monotonic(), stats, self.counts))
        client.close()

    def conclude(self):
        """Drains every queue, judges the history, reports and insists."""
        for name in self.plans:
            self.drain(name)
        return self.judge()

    def judge(self):
        self.verdict = checker.check(self.history)
        for name in self.unjudged:
            self.verdict.wrongs[name].clear()
        self.report()
        if not self.verdict.clean:
            path = os.path.join(self.server.folder, "history")
            self.history.save(path)
            raise AssertionError(f"{self.fault}, seed {self.seed} (TRIAGE_SEED={self.seed} repeats "
                                 f"it; the history is in {path}): {self.verdict}")
        return self.verdict

    def report(self):
        report(self.fault, self.tried, self.verdict)


def left_in(stats):
    return stats["ready"] + stats["scheduled"] + stats["in_flight"]


def report(fault, tried, verdict):
    """One line for the table that `make soak` prints."""
    counts = {name: getattr(verdict, name) for name in verdict.COUNTS}
    line = {"fault": fault, "tried": tried, **counts, "caught": verdict.caught,
            "wrong": sum(map(len, verdict.wrongs.values()))}
    print(f"{fault}: {tried} tried, {verdict}")
    if path := os.environ.get("TRIAGE_FAULT_REPORT"):
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")
