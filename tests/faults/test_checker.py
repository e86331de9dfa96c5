"""The checker has to catch what it is there for, and nothing else: every check fails on a history
that was made bad for it, and the same history without the bad call is clean."""

import pytest

from checker import WRONGS, check
from history import (DECLINED, OK, REFUSED, UNKNOWN, Claim, Counts, Delivery, Ended, Enqueue,
                     Found, History, Mark, Move, Remove, Rules, Settle)

STEP = 0.01  # how long a call takes


class Story:
    """A history, told call by call."""

    def __init__(self, **rules):
        self.history = History()
        self.history.add(Rules("q", **{"max_attempts": 10, **rules}))
        self.receipts = 0

    def put(self, key, at=0.0, outcome=OK, rank=5, same_as=None, **fields):
        ident = f"id-{same_as or key}"
        self.history.add(Enqueue("q", key, rank, at, at + STEP, outcome, id=ident, **fields))
        return self

    def puts(self, keys, at=0.0, **fields):
        for index, key in enumerate(keys):
            self.put(key, at, batch=1, index=index, **fields)
        return self

    def take(self, *keys, at=1.0, attempt=1, lease=10.0, rank=5, outcome=OK, wait=0.0, took=STEP,
             max=10, max_rank=None):
        claim = Claim("q", max, wait, lease, at, at + took, outcome, [], max_rank)
        for key in keys:
            self.receipts += 1
            claim.deliveries.append(
                Delivery(key, f"id-{key}", attempt, f"rh-{self.receipts}", rank))
        self.history.add(claim)
        return self

    def use(self, verb, at, receipt=None, outcome=OK, **fields):
        """Of the last delivery, unless told."""
        receipt = f"rh-{receipt or self.receipts}"
        self.history.add(Settle("q", verb, receipt, at, at + STEP, outcome, **fields))
        return self

    def nack(self, at, **fields):
        return self.use("nack", at, **{"state": "ready", **fields})

    def cancel(self, key, at, outcome=OK):
        self.history.add(Remove("q", "cancel", key, at, at + STEP, outcome))
        return self

    def move(self, key, at, rank, outcome=OK):
        self.history.add(Move("q", key, rank, at, at + STEP, outcome))
        return self

    def redrive(self, key, at):
        self.history.add(Remove("q", "redrive", key, at, at + STEP, OK))
        return self

    def dead(self, key, attempts=10, reason="nacked"):
        self.history.add(Found("q", key, attempts, reason))
        return self

    def count(self, at, source="stats", **counts):
        """The numbers that somebody was shown; what is not said is 0."""
        names = ("ready", "scheduled", "in_flight", "dead")
        names += ("enqueued", "acked", "expired", "cancelled") if source != "list" else ()
        self.history.add(Counts("q", source, at, at + STEP,
                                {**dict.fromkeys(names, 0), **counts}))
        return self

    def mark(self, what, at, partition=None):
        self.history.add(Mark(what, at, partition))
        return self

    def end(self, at=100.0, **stats):
        totals = {"enqueued": stats.pop("enqueued", 0), "acked": stats.pop("acked", 0),
                  "expired": 0, "cancelled": 0}
        self.history.add(Ended("q", at, {"ready": 0, "scheduled": 0, "in_flight": 0,
                                         "dlq_depth": 0, "totals": totals, **stats},
                               totals_whole=bool(totals["enqueued"])))
        return self

    def caught(self):
        return check(self.history).caught

    def clean(self):
        verdict = check(self.history)
        assert verdict.clean, str(verdict)
        return verdict


def story(*keys, **rules):
    told = Story(**rules)
    for number, key in enumerate(keys):
        told.put(key, at=number * 0.1)
    return told


def test_a_message_that_is_enqueued_delivered_and_acked_is_fine():
    verdict = story("a").take("a").use("ack", 2).end(enqueued=1, acked=1).clean()
    assert (verdict.finished, verdict.acknowledged, verdict.delivered) == (1, 1, 1)


BAD = {
    "lost": [
        lambda: story("a", "b").take("a").use("ack", 2).end(),
        lambda: story("a").take("a").end(),
        lambda: Story().put("a", ttl=200.0).end(at=100),  # it had time left
        lambda: story("a").cancel("a", 1, REFUSED).end(),
    ],
    "unexpected": [
        lambda: story("a").take("a").use("ack", 2).take("ghost", at=3).use("ack", 4),
        lambda: Story().put("a", outcome=REFUSED).take("a").use("ack", 2),
        lambda: Story().put("a", outcome=DECLINED).take("a").use("ack", 2),
        lambda: Story().put("a", dedup="k").put("b", at=1, dedup="k", deduplicated=True)
        .take("b", at=2).use("ack", 3),
        lambda: story("a").take("a").use("ack", 2).dead("ghost"),
    ],
    "corrupted": [lambda: story("a").take(None)],
    "resurrected": [
        lambda: story("a").take("a").use("ack", 2).take("a", at=20, attempt=2),
        lambda: story("a").take("a").use("ack", 2).dead("a"),
        lambda: story("a").cancel("a", 1).take("a", at=2).use("ack", 3),
    ],
    "doubled": [
        lambda: story("a").take("a").take("a", at=5, attempt=2).use("ack", 6),
        lambda: story("a").take("a", lease=4).use("extend", 3, lease=10)
        .take("a", at=6, attempt=2).use("ack", 7),
        lambda: story("a").take("a").nack(2, outcome=REFUSED).take("a", at=3, attempt=2),
        lambda: Story().put("a", same_as="b").take("a").use("ack", 2),
    ],
    "stale": [
        lambda: story("a").take("a", lease=4).use("ack", 9),
        lambda: story("a").take("a", lease=4).use("extend", 9, lease=10),
        lambda: story("a").take("a").nack(2).use("ack", 3),
        lambda: story("a").take("a", lease=4).take("a", at=7, attempt=2).use("nack", 8, receipt=1),
    ],
    "dropped": [
        lambda: story("a").take("a").use("ack", 2, outcome=REFUSED).take("a", at=20, attempt=2)
        .use("ack", 21),
        lambda: story("a").take("a", lease=2).use("extend", 2, lease=10)
        .use("ack", 8, outcome=REFUSED),
    ],
    "uncounted": [
        lambda: story("a").take("a", lease=1).take("a", at=5, attempt=1).use("ack", 6),
        lambda: story("a").take("a", attempt=3).use("ack", 2),
        lambda: story("a", max_attempts=1).take("a").nack(2).take("a", at=3, attempt=2),
        lambda: story("a").take("a").use("release", 2).take("a", at=3, attempt=2 + 1),
        lambda: story("a").dead("a", attempts=3),
    ],
    "misplaced": [
        lambda: story("a").take("a").nack(2).take("a", at=3, attempt=2, rank=9).use("ack", 4),
        lambda: story("a").take("a", max_rank=4).use("ack", 2),
        lambda: story("a").move("a", 0.5, 2).take("a").use("ack", 2),
        lambda: story("a").move("a", 0.5, 2, REFUSED).take("a", rank=2).use("ack", 2),
        lambda: story("a").move("a", 0.5, 2).move("a", 0.7, 3).take("a", rank=2).use("ack", 2),
    ],
    "inverted": [
        lambda: Story().put("low", rank=5).put("high", at=1, rank=0).take("low", at=2),
        lambda: Story().put("low", rank=5).put("high", at=0, rank=0).take("high", rank=0, max=1)
        .nack(2).take("low", at=3),
        lambda: Story().put("low", rank=5).put("high", rank=0).take("low", "high"),
        lambda: Story(window=1.0).put("low", rank=5, partition=0)
        .put("high", at=1, rank=0, partition=0).take("low", at=1.5),
        lambda: Story(window=1.0).put("low", rank=5, partition=0)
        .put("high", at=1, rank=0, partition=1).take("low", at=2.5),
        lambda: Story(window=1.0).put("low", rank=5, partition=0)
        .put("high", rank=0, partition=1).mark("away", 1, 1).mark("back", 5, 1).take("low", at=7),
    ],
    "overtaken": [
        lambda: story("a", "b").take("b"),
        lambda: story("a", "b").take("b", "a"),
        lambda: Story().puts(["a", "b", "c"]).take("a").take("c", at=2),
        lambda: Story().puts(["a", "b"]).take("b", "a"),
        lambda: story("a", "b").take("a").nack(2).take("b", at=3),
        lambda: story("a", "b").take("a", lease=1).take("b", at=4),
        lambda: story("a", "b", policy="weighted", weights=[1] * 10).take("b"),
        lambda: Story(window=1.0).put("a", partition=0).put("b", at=1, partition=0)
        .take("b", at=1.5),
        lambda: Story(window=1.0).put("a", partition=0).put("b", at=1, partition=0)
        .take("b", "a", at=1.5),
    ],
    "overlooked": [
        lambda: story("a").take(),
        lambda: story("a").take(at=-1, wait=5.0, took=5.01),
        lambda: story("a").take("a").nack(2).take(at=3),
        lambda: story("a").mark("several", 0).take(at=2, wait=0.5, took=0.51),
        lambda: story("a").mark("several", 0).take(at=0.3),
        lambda: Story(window=1.0).put("a", partition=0).mark("away", 0.5, 1).mark("back", 5, 1)
        .take(at=2),
        lambda: Story(window=1.0).put("a", partition=0).mark("away", 0.5, 0).mark("back", 2, 0)
        .take(at=3),
    ],
    "repeated": [
        lambda: Story().put("a", dedup="k").put("b", at=1, dedup="k"),
        lambda: Story().put("a", dedup="k").put("b", at=1, dedup="other", deduplicated=True),
        lambda: Story(dedup_window=5.0).put("a", dedup="k")
        .put("b", at=9, dedup="k", deduplicated=True),
        lambda: Story().put("a", outcome=UNKNOWN, dedup="k").put("b", at=1, dedup="k")
        .take("a", at=2).use("ack", 3).take("b", at=4).use("ack", 5),
        lambda: Story(dedup_scope="live").put("a", dedup="k").take("a")
        .put("b", at=2, dedup="k"),
    ],
    "early": [
        lambda: Story().put("a", delay=5.0).take("a", at=2).use("ack", 3),
        lambda: story("a").take("a").nack(2, delay=5.0, state="scheduled")
        .take("a", at=3, attempt=2).use("ack", 4),
    ],
    "outlived": [lambda: Story().put("a", ttl=1.0).take("a", at=2).use("ack", 3)],
    "stuck": [lambda: Story().put("a", outcome=UNKNOWN).end(ready=1)],
    "miscounted": [
        lambda: story("a").take("a").use("ack", 2).end(enqueued=2, acked=2),
        lambda: story("a").take("a").use("ack", 2).end(enqueued=1, acked=1)
        .count(at=0.5, enqueued=0),  # it was there
        lambda: story("a").take("a").use("ack", 2).end(enqueued=1, acked=1)
        .count(at=3, in_flight=1, enqueued=1),  # it was acked
        lambda: story("a").take("a").use("ack", 2).end(enqueued=1, acked=1)
        .count(at=3, source="list", in_flight=1),
        lambda: story("a").take("a").use("ack", 2).end(enqueued=1, acked=1)
        .count(at=-1, enqueued=1, ready=1),  # nobody had begun
        lambda: Story().put("a", outcome=UNKNOWN).take("a").use("ack", 2).end(enqueued=1, acked=1)
        .count(at=0.5, enqueued=1, ready=1).count(at=0.7, enqueued=0),  # totals do not go back
    ],
    "unbalanced": [
        lambda: story("a").take("a").use("ack", 2).end(enqueued=1, acked=0),
        lambda: story("a").count(at=0.5, enqueued=1),
        lambda: story("a").count(at=0.5, source="metrics", enqueued=1, ready=1, in_flight=1),
        lambda: story("a").count(at=0.5, enqueued=1, ready=1, levels=0),
        lambda: story("a").count(at=0.5, source="list", ready=1, depth=2),
        lambda: story("a").count(at=0.5, source="list", ready=1, depth=0),
    ],
    "unfair": [],  # below
}


@pytest.mark.parametrize("wrong, number", [(w, n) for w in BAD for n in range(len(BAD[w]))])
def test_a_bad_history_is_caught(wrong, number):
    assert wrong in BAD[wrong][number]().caught()


def test_every_check_has_a_bad_history():
    assert set(BAD) == set(WRONGS)


GOOD = {
    "an enqueue of unknown outcome may be there or not": lambda:
        Story().put("a", outcome=UNKNOWN).put("b", outcome=UNKNOWN).take("a").use("ack", 2).end(),
    "a dead letter is not lost": lambda: story("a").dead("a").end(),
    "a cancel of unknown outcome explains an absence, and a delivery": lambda:
        story("a", "b").cancel("a", 1, UNKNOWN).cancel("b", 1, UNKNOWN).take("b", at=2)
        .use("ack", 3).end(),
    "an ack of unknown outcome explains a redelivery, and an absence": lambda:
        story("a", "b").take("a").use("ack", 2, outcome=UNKNOWN).take("b", at=3)
        .use("ack", 4, outcome=UNKNOWN).take("a", at=20, attempt=2).use("ack", 21).end(),
    "a lease that ran out explains a redelivery": lambda:
        story("a").take("a", lease=4).take("a", at=6, attempt=2).use("ack", 7).end(),
    "a nack or a release explains a redelivery, known or not": lambda:
        story("a").take("a").nack(2).take("a", at=3, attempt=2).use("release", 4)
        .take("a", at=5, attempt=2).nack(6, outcome=UNKNOWN).take("a", at=7, attempt=3)
        .use("ack", 8).end(),
    "an extension of unknown outcome may have shortened the lease": lambda:
        story("a").take("a", lease=100).use("extend", 3, lease=1, outcome=UNKNOWN)
        .take("a", at=6, attempt=2).use("ack", 7).end(),
    "a refused ack after an unknown one, or a late one, is fine": lambda:
        story("a").take("a", lease=4).use("ack", 2, outcome=UNKNOWN).use("ack", 3, outcome=REFUSED)
        .take("a", at=6, attempt=2, lease=4).use("ack", 12, outcome=REFUSED)
        .take("a", at=13, attempt=3).use("ack", 14).end(),
    "a call that was not looked at says nothing": lambda:
        Story().put("a", outcome=DECLINED).put("b").take("b").use("ack", 2, outcome=DECLINED)
        .use("ack", 3).end(),
    "a claim of unknown outcome explains a gap in the attempts": lambda:
        story("a").take(outcome=UNKNOWN).take("a", at=20, attempt=2).use("ack", 21).end(),
    "a claim of unknown outcome may have taken what was first": lambda:
        story("a", "b").take(outcome=UNKNOWN).take("b", at=2).use("ack", 3)
        .take(at=4).take("a", at=20, attempt=2).use("ack", 21).end(),
    "order is only judged when it is certain": lambda:
        Story().put("b", at=0).put("a", at=0.005, rank=0).take("b", at=0.012, took=0.5)
        .take("a", at=0.3, rank=0).use("ack", 1).use("ack", 1, receipt=1).end(),
    "a message that was nacked with a delay has lost its place": lambda:
        story("a", "b").take("a").nack(2, delay=1.0, state="scheduled").take("b", at=4)
        .use("ack", 5).take("a", at=6, attempt=2).use("ack", 7).end(),
    "a claim for urgent levels alone leaves the others": lambda:
        Story().put("low", rank=5).take(max_rank=2).take("low", at=2).use("ack", 3).end(),
    "a message that came when the wait was over need not be found": lambda:
        Story().take(at=0, wait=5.0, took=5.01).put("a", at=5).take("a", at=6).use("ack", 7).end(),
    "a time to live explains an absence": lambda: Story().put("a", ttl=1.0).end(),
    "a dedup key counts again after its window": lambda:
        Story(dedup_window=5.0).put("a", dedup="k")
        .put("b", at=1, dedup="k", deduplicated=True, same_as="a")
        .put("c", at=6, dedup="k").take("a", "c", at=7)
        .use("ack", 8).use("ack", 8, receipt=1).end(),
    "when the wall clock is set, what runs by it is not judged": lambda:
        Story().mark("clock", 1).put("a", ttl=1.0, delay=5.0).put("b", at=1).take("a", at=2)
        .use("ack", 3).take("b", at=4).use("ack", 5).end(),
    "a delay that ends while the server is stopped is seen to later": lambda:
        Story().mark("stopped", 1).mark("resumed", 9).put("low", at=0.2, rank=5)
        .put("high", at=0.5, rank=0, delay=1.0).take("low", at=9.1).use("ack", 9.2)
        .take("high", at=9.3, rank=0).use("ack", 9.4).end(),
    "an answer that came late, after the next one's, was the earlier": lambda:
        story("a").take("a", at=1, took=5.0, lease=2).take("a", at=5.9, attempt=2)
        .use("ack", 7).use("ack", 7, receipt=1, outcome=REFUSED).end(),
    "numbers of one moment, before or after what was under way, and metrics a little later": lambda:
        story("a", "b").count(at=0.5, enqueued=2, ready=2).take("a", took=0.5)
        .count(at=1.2, enqueued=2, ready=2).count(at=1.3, enqueued=2, ready=1, in_flight=1)
        .use("ack", 2).take("b", at=3).use("ack", 4)
        .count(at=4, source="list", in_flight=1).count(at=5, source="list")
        .count(at=5, source="metrics", enqueued=2, ready=1, acked=1).end(enqueued=2, acked=2),
    "a message that was given another level is there, or perhaps, and order is not judged": lambda:
        story("a", "b", "c").move("b", 0.5, 2).move("c", 0.5, 3, UNKNOWN).take("b", rank=2)
        .use("ack", 2).take("c", at=3).use("ack", 4).take("a", at=5).use("ack", 6).end(),
    "what comes in during a claim may stand in any place of its answer": lambda:
        Story().put("a", at=1.1).put("b", at=1.2).take("b", "a", at=1, took=0.5).use("ack", 2)
        .use("ack", 2, receipt=1).end(),
    "one of several servers need not have heard yet what another was given": lambda:
        story("a").mark("several", 0).take(at=0.3, wait=0.1, took=0.11)
        .take("a", at=2).use("ack", 3).end(),
    "what is more urgent elsewhere need not be known within the window": lambda:
        Story(window=1.0).put("low", rank=5, partition=0).put("high", at=1, rank=0, partition=1)
        .take("low", at=1.5).use("ack", 2).take("high", at=3, rank=0).use("ack", 4).end(),
    "partitions have no order of time among each other": lambda:
        Story(window=1.0).put("a", partition=0).put("b", at=1, partition=1)
        .take("b", at=3).use("ack", 4).take("a", at=5).use("ack", 6).end(),
    "a partition that was away may have carried out a claim that nobody heard of": lambda:
        Story(window=1.0).put("a", partition=0).mark("away", 0.5, 0).take(at=1).mark("back", 2, 0)
        .take("a", at=20, attempt=2).use("ack", 21).end(),
    "so may the partition of an enqueue without an answer": lambda:
        Story(window=1.0).put("a", outcome=UNKNOWN).mark("away", 0.5, 0).take(at=1)
        .mark("back", 2, 0).take("a", at=20, attempt=2).use("ack", 21).end(),
    "what is away is not passed over, nor counted": lambda:
        Story(window=1.0).put("low", rank=5, partition=0).put("high", rank=0, partition=1)
        .mark("away", 1, 1).mark("back", 5, 1).take("low", at=4).use("ack", 4.2)
        .take(at=4.4).count(at=4.5, enqueued=1, acked=1).take("high", at=7, rank=0)
        .use("ack", 8).end(enqueued=2, acked=2),
    "a redriven message starts again": lambda:
        story("a", max_attempts=1).take("a").nack(2, state="dead").redrive("a", 3)
        .take("a", at=4).use("ack", 5).end(),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_explained_is_fine(name):
    GOOD[name]().clean()


def weighted(pattern, count):
    """Two backlogged levels of weights 2 and 1, delivered in this pattern."""
    told = Story(policy="weighted", weights=[2.0, 1.0], levels=2, max_attempts=3)
    for number in range(count * 2):
        told.put(f"0-{number}", at=-10 + number / 1000, rank=0)
        told.put(f"1-{number}", at=-10 + number / 1000, rank=1)
    taken = [0, 0]
    for number in range(count):
        rank = pattern[number % len(pattern)]
        told.take(f"{rank}-{taken[rank]}", at=number * 0.02, rank=rank, max=1)
        taken[rank] += 1
    return told


def test_shares_by_weight_are_fine():
    weighted([0, 0, 1], 60).clean()
    weighted([0, 1, 0], 61).clean()


@pytest.mark.parametrize("pattern", [[0, 1], [0], [0, 0, 0, 1]])
def test_unfair_shares_are_caught(pattern):
    assert weighted(pattern, 60).caught() == ["unfair"]


def test_a_history_can_be_saved_and_judged_again(tmp_path):
    told = story("a", "b").take("b").mark("restart", 5)
    told.history.save(tmp_path / "history")
    loaded = History.load(tmp_path / "history")
    assert loaded.log == told.history.log
    assert check(loaded).caught == ["overtaken"]
