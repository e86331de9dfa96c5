"""Shares through the whole server: exact over whole cycles whoever claims, one or fifty consumers,
one message or many at a time; and still so when policies, weights and limits change under load."""

import threading
from collections import Counter

import pytest

from test_waiting import claim_bytes, close_all, payloads, until_waiting, wait_in_line
from wire import AT_ONCE, Connection, Queue, conserved

TIERS = {"CRITICAL": 16, "HIGH": 8, "NORMAL": 4, "LOW": 2, "BACKGROUND": 1}
ENVIRONMENTS = {"production": 4, "staging": 3, "qa": 2, "development": 1}


def fill(queue, counts):
    """So many messages at each level; payloads name level and number."""
    queue.put_all([{"payload": f"{level} {number}", "priority": level}
                   for level, count in counts.items() for number in range(count)])


def times(shares, cycles, spare=0):
    return {level: share * cycles + spare for level, share in shares.items()}


class Consumers:
    """Threads that claim together; together they get as many as is said, or all there is."""

    def __init__(self, server, queue, count, max_each, total=None, ack=False):
        self.server, self.name = server, queue.name
        self.max_each, self.ack = max_each, ack
        self.left = total  # None: until nothing is there
        self.lock = threading.Lock()
        self.got = []  # payloads
        self.errors = []
        self.threads = [threading.Thread(target=self.run) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def reserve(self):
        with self.lock:
            if self.left is None:
                return self.max_each
            want = min(self.max_each, self.left)
            self.left -= want
            return want

    def run(self):
        client = self.server.client()
        try:
            queue = Queue(client, self.name)
            while want := self.reserve():
                messages = queue.take(max=want)
                if self.left is not None:
                    assert len(messages) == want, "everything is backlogged"
                if not messages:
                    assert queue.stats()["ready"] == 0, "there was something"
                    return
                if self.ack:
                    assert queue.ack_all(messages).status == 200
                with self.lock:
                    self.got += [message["payload"] for message in messages]
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            client.close()

    def working(self):
        """Whether any still claims; fails if one of them failed."""
        assert not self.errors, self.errors
        return any(thread.is_alive() for thread in self.threads)

    def join(self):
        for thread in self.threads:
            thread.join()
        assert not self.working()
        assert len(set(self.got)) == len(self.got), "something was given twice"
        return self.got


def levels_of(got):
    return Counter(payload.split()[0] for payload in got)


@pytest.mark.parametrize("consumers", [1, 50])
@pytest.mark.parametrize("max_each, cycles", [(1, 100), (7, 300), (100, 1000)])
def test_tiers_share_exactly(server, queue, consumers, max_each, cycles):
    queue.configure(profile="tiers")
    fill(queue, times(TIERS, cycles, spare=50))
    got = Consumers(server, queue, consumers, max_each, total=31 * cycles).join()
    assert levels_of(got) == times(TIERS, cycles)


@pytest.mark.parametrize("consumers, max_each", [(1, 10), (50, 1), (50, 10)])
def test_environments_share_exactly(server, queue, consumers, max_each):
    queue.configure(profile="environments")
    fill(queue, times(ENVIRONMENTS, 100, spare=50))
    got = Consumers(server, queue, consumers, max_each, total=1000).join()
    assert levels_of(got) == times(ENVIRONMENTS, 100)


@pytest.mark.parametrize("empty", ["CRITICAL", "NORMAL", "BACKGROUND"])
def test_the_share_of_an_empty_level_goes_to_the_others_in_proportion(server, queue, empty):
    queue.configure(profile="tiers")
    others = {level: share for level, share in TIERS.items() if level != empty}
    fill(queue, times(others, 20, spare=50))
    got = Consumers(server, queue, 10, 5, total=20 * sum(others.values())).join()
    assert levels_of(got) == times(others, 20)


def test_within_a_level_the_oldest_goes_first(queue):
    queue.configure(profile="tiers")
    fill(queue, times(TIERS, 4))
    got = queue.take_payloads(31 * 4)
    for level, share in TIERS.items():
        assert [p for p in got if p.startswith(level)] == [f"{level} {n}" for n in range(4 * share)]


def test_urgent_consumers_have_shares_of_their_own(server, queue):
    queue.configure(profile="tiers")
    fill(queue, times(TIERS, 40, spare=50))
    for _ in range(24 * 5):
        queue.take_one(min_priority="HIGH")
    got = queue.take_payloads(31 * 10)
    assert levels_of(got) == times(TIERS, 10), "as if nobody else had claimed"


def test_no_claim_is_empty_while_something_is_ready(queue):
    """Not even when all that was more urgent has outlived its time to live a moment ago."""
    queue.configure(visibility_timeout_seconds=3600)
    for _ in range(3):
        queue.put_all([{"payload": "short", "priority": 9, "ttl_seconds": 1}] * 5000)
        queue.put_all([{"payload": "long"}] * 100)
        claimed = ["short"]
        while claimed == ["short"]:
            claimed = [message["payload"] for message in queue.take()]
        assert claimed == ["long"], "there was something"
        queue.post("purge")


# Changes under load

WEIGHTS = [{"a": 1, "b": 1, "c": 1}, {"a": 5, "b": 3, "c": 1}, {"a": 0.5, "b": 2, "c": 1.5}]


def levels_by(weights, **fields):
    return [{"name": name, "weight": weight, **fields} for name, weight in weights.items()]


def assert_shares(counts, weights):
    """So many claims in a row, begun and ended anywhere in a cycle."""
    cycle = {name: int(weight * 2) for name, weight in weights.items()}
    total = sum(counts.values())
    assert total > 0
    for name, share in cycle.items():
        exact = total * share / sum(cycle.values())
        assert abs(counts[name] - exact) <= share + 1, (counts, weights)


def claimed_while(queue, consumers, claims):
    """What was claimed by others, by level, over at least so many claims: two looks at the depth,
    each of one moment."""
    before = after = queue.stats()
    while after["totals"]["claimed"] - before["totals"]["claimed"] < claims:
        assert consumers.working(), "there was not enough for so many"
        after = queue.stats()
    depths = before["depth_by_priority"], after["depth_by_priority"]
    return {name: depths[0][name] - depths[1][name] for name in depths[0]}


@pytest.mark.parametrize("max_each", [1, 10])
def test_new_weights_hold_at_once_and_nothing_is_lost(server, queue, max_each):
    each = 3000
    queue.configure(levels=levels_by(WEIGHTS[0]), policy="weighted")
    fill(queue, dict.fromkeys("abc", each))
    consumers = Consumers(server, queue, 8, max_each, ack=True)
    for weights in WEIGHTS[1:] + WEIGHTS[:1]:
        queue.configure(levels=levels_by(weights))
        counts = claimed_while(queue, consumers, 400)
        assert all(queue.stats()["depth_by_priority"].values()), "still backlogged"
        assert_shares(counts, weights)
    got = consumers.join()
    assert levels_of(got) == dict.fromkeys("abc", each)
    stats = queue.stats()
    assert stats["totals"]["acked"] == 3 * each and conserved(stats)


def test_any_change_of_the_rules_under_load_loses_nothing(server, queue):
    """Policies, weights, thresholds and limits, while many claim: each message is given once."""
    each = 2000
    queue.configure(levels=levels_by(WEIGHTS[0]), policy="strict")
    fill(queue, dict.fromkeys("abc", each))
    consumers = Consumers(server, queue, 8, 5, ack=True)
    rules = [
        {"policy": "weighted"},
        {"levels": levels_by(WEIGHTS[1], age_after_seconds=1)},
        {"levels": levels_by(WEIGHTS[2], max_wait_seconds=1)},
        {"policy": "strict", "levels": list(reversed(levels_by(WEIGHTS[1], max_wait_seconds=None)))},
        {"policy": "weighted", "levels": levels_by(WEIGHTS[1], age_after_seconds=2)},
    ]
    rounds = 0
    while consumers.working():
        queue.configure(**rules[rounds % len(rules)])
        rounds += 1
    got = consumers.join()
    assert rounds > len(rules)
    assert levels_of(got) == dict.fromkeys("abc", each)
    assert conserved(queue.stats())


def test_a_limit_is_never_exceeded_by_many_consumers(server, queue):
    queue.configure(levels=[{"name": "a", "max_in_flight": 3}, {"name": "b"}], max_in_flight=10,
                    policy="weighted")
    fill(queue, {"a": 200, "b": 200})
    most = Counter()
    stop = threading.Event()

    def watch():
        with_client = Queue(server.client(), queue.name)
        while not stop.is_set():
            most["all"] = max(most["all"], with_client.stats()["in_flight"])
        with_client.client.close()

    watcher = threading.Thread(target=watch)
    watcher.start()
    lock = threading.Lock()
    got = []

    def consume():
        own = Queue(server.client(), queue.name)
        while messages := own.take(max=4, wait_seconds=1):
            with lock:
                got.extend(message["payload"] for message in messages)
            assert sum(m["level"] == "a" for m in messages) <= 3
            assert own.ack_all(messages).status == 200
        own.client.close()

    threads = [threading.Thread(target=consume) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    watcher.join()
    assert most["all"] <= 10
    assert len(got) == len(set(got)) == 400


# Freed capacity

def wait_one_more(server, queue, waiting):
    connection = Connection(server.address)
    connection.send(claim_bytes(queue, wait_seconds=60))
    until_waiting(queue, waiting)
    return connection


def test_freed_capacity_wakes_the_first_in_line_that_may_use_it(server, queue):
    queue.configure(levels=[{"name": "a", "max_in_flight": 1}, {"name": "b", "max_in_flight": 1}])
    fill(queue, {"a": 3, "b": 3})
    held = {m["level"]: m for m in queue.take(max=10)}
    assert len(held) == 2
    urgent = wait_in_line(server, queue, 1, min_priority="a")
    anyone = [wait_one_more(server, queue, 2), wait_one_more(server, queue, 3)]
    assert queue.ack(held["b"]).status == 204
    assert payloads(anyone[0].answer()) == ["b 1"], "the first in line does not take it"
    assert queue.stats()["waiting_consumers"] == 2
    assert queue.ack(held["a"]).status == 204
    assert payloads(urgent[0].answer()) == ["a 1"]
    assert queue.stats()["waiting_consumers"] == 1
    close_all(urgent + anyone)
    until_waiting(queue, 0)


@pytest.mark.parametrize("settle", ["ack", "nack", "release"])
def test_every_way_to_end_a_lease_wakes_one_who_waits(server, queue, settle):
    queue.configure(max_in_flight=1, retry=AT_ONCE)
    queue.put_all([{"payload": "first"}, {"payload": "second"}])
    held = queue.take_one()
    line = wait_in_line(server, queue, 2)
    answer = getattr(queue, settle)(held)
    assert answer.status in (200, 204)
    want = "second" if settle == "ack" else "first"
    assert payloads(line[0].answer()) == [want]
    until_waiting(queue, 1)
    close_all(line)
    until_waiting(queue, 0)
