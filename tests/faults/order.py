"""Order, as far as a history decides it.

A message is *certainly ready* from the answer that made it so until a claim that can have taken
it was sent. A delivery is judged against what was certainly ready during the whole of its claim:
whatever the server's clock and threads did in between, that message was there to be given. Where
an answer never came, nothing is certain: an unknown claim may have taken anything for a while.

A queue over several stores may have a window W, which the test gives with its plan. Then each
partition is judged by itself, as exactly as a queue that has one. Across partitions only priority is
judged: a delivery is wrong when something more urgent was certainly ready elsewhere from W before
its claim was sent. While a partition is away, nothing of it is certainly ready."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from bounds import HEARD_SECONDS, TIMER_SECONDS
from history import OK, UNKNOWN, SLACK

FOREVER = float("inf")
TICK = 0.001  # seconds: a server counts waits in whole ones of these
HANGUP = 1.0  # seconds after which a claim whose client went away has certainly let go


@dataclass
class Ready:
    """An interval in which a message was certainly ready."""
    message: object
    start: float
    end: float
    in_place: bool  # it stands where its enqueue put it


def noticed(account, due, partition=None):
    """When a delay or a lease that ended then has certainly been seen to: not while the server is
    stopped or the partition away, nor by the first who are served after that."""
    at = due + TIMER_SECONDS
    away = [(start, end) for which, start, end in account.absences
            if partition is None or which == partition]
    for start, end in sorted(account.pauses + away):
        if due < end and at > start:
            at = end + TIMER_SECONDS
    return at


def next_start(account, taken, partition=None):
    """(when it was certainly ready again after this delivery or None, still in its old place)."""
    if taken.used("ack", OK, UNKNOWN) or taken.used("nack", UNKNOWN) or \
            taken.used("release", UNKNOWN):
        return None, False
    for use in taken.used("release", OK):
        return use.came, True
    for use in taken.used("nack", OK):
        if use.delay > 0:
            return noticed(account, use.came + use.delay, partition), False
        return (use.came, True) if use.state == "ready" else (None, False)
    return noticed(account, taken.lease_end()[1], partition), True


def displaced(message):
    """Somebody gave it another place, or may have: it is not judged where it stands."""
    return bool(message.removed("redrive", OK, UNKNOWN)) or \
        any(move.outcome in (OK, UNKNOWN) for move in message.moves)


def raw_start(account, enqueue):
    """When it was certainly ready for the first time."""
    if not enqueue.delay:
        return enqueue.came
    return noticed(account, enqueue.came + enqueue.delay, enqueue.partition)


def raw_intervals(account, message):
    enqueue = message.enqueue
    if enqueue.outcome != OK or enqueue.deduplicated or displaced(message):
        return
    limits = [r.sent for r in message.removed("cancel", OK, UNKNOWN)]
    if enqueue.ttl is not None:
        limits.append(enqueue.sent + enqueue.ttl - SLACK)
    limit = min(limits, default=FOREVER)
    where = enqueue.partition
    start = raw_start(account, enqueue)
    in_place, attempt, released = enqueue.delay == 0, 0, False
    for taken in message.taken:
        unbroken = taken.delivery.attempt == attempt + (0 if released else 1)
        if start is not None and unbroken:
            yield Ready(message, start, min(taken.claim.sent, limit), in_place)
        start, stays = next_start(account, taken, where)
        in_place = in_place and stays
        attempt, released = taken.delivery.attempt, bool(taken.used("release", OK))
        if attempt >= account.rules.max_attempts and not released:
            return
    if start is None:
        return
    sent = [claim.sent for claim in account.unknown_claims]
    later = bisect_left(sent, start - HANGUP)
    if later < len(sent):
        limit = min(limit, sent[later])  # nobody knows whether that one took it for good
    yield Ready(message, start, limit, in_place)


def intervals(account):
    """Without the times around claims of unknown outcome."""
    claims = account.unknown_claims
    sent = [claim.sent for claim in claims]
    longest = max((c.came - c.sent for c in claims), default=0) + HANGUP
    found = []
    for message in account.messages.values():
        for ready in raw_intervals(account, message):
            start = ready.start
            for claim in claims[bisect_left(sent, start - longest):bisect_right(sent, ready.end)]:
                if start < claim.sent:
                    found.append(Ready(message, start, claim.sent, ready.in_place))
                start = max(start, claim.came + HANGUP)
            if start < ready.end:
                found.append(Ready(message, start, ready.end, ready.in_place))
    return [piece for ready in found for piece in without_absences(account, ready)]


def without_absences(account, ready):
    """The pieces of an interval in which its partition was there."""
    start, mine = ready.start, ready.message.enqueue.partition
    for partition, away, back in sorted(account.absences, key=lambda a: a[1]):
        if mine not in (None, partition) or back <= start or away >= ready.end:
            continue
        if start < away:
            yield Ready(ready.message, start, away, ready.in_place)
        start = max(start, back)
    if start < ready.end:
        yield Ready(ready.message, start, ready.end, ready.in_place)


class Latest:
    """The interval with the latest end among those that start by some time (a Fenwick tree)."""

    def __init__(self, starts):
        self.starts = sorted(set(starts))
        self.best = [None] * (len(self.starts) + 1)

    def add(self, ready):
        at = bisect_left(self.starts, ready.start) + 1
        while at < len(self.best):
            if self.best[at] is None or self.best[at].end < ready.end:
                self.best[at] = ready
            at += at & -at

    def find(self, time):
        at, found = bisect_right(self.starts, time), None
        while at > 0:
            if self.best[at] and (found is None or found.end < self.best[at].end):
                found = self.best[at]
            at -= at & -at
        return found


def covering(ready, questions):
    """ready: (k, interval); questions: (k, from, to, what). For each question the interval of a
    smaller k that covers the whole of that time, if there is one: (what, interval)."""
    ready = sorted(ready, key=lambda pair: pair[0])
    latest, at = Latest(r.start for _, r in ready), 0
    for k, start, end, what in sorted(questions, key=lambda q: q[0]):
        while at < len(ready) and ready[at][0] < k:
            latest.add(ready[at][1])
            at += 1
        found = latest.find(start)
        if found and found.end >= end:
            yield what, found


def judged(account):
    """(claim, delivery, message) of everything that was delivered and enqueued here, and stayed
    where it was put."""
    return [(claim, delivery, account.messages[delivery.key]) for claim in account.claims
            for delivery in claim.deliveries if delivery.key in account.messages
            and not displaced(account.messages[delivery.key])]


def apart(account, deliveries, ready):
    """(deliveries, intervals) of each partition where they are judged by themselves; else of all."""
    if account.rules.window is None:
        return [(deliveries, ready)]
    parts = defaultdict(lambda: ([], []))
    for each in deliveries:
        parts[each[2].enqueue.partition][0].append(each)
    for interval in ready:
        parts[interval.message.enqueue.partition][1].append(interval)
    return [part for partition, part in parts.items() if partition is not None]


def check_priority(deliveries, ready, verdict, window=0.0):
    questions = [(message.enqueue.rank, claim.sent - window, claim.came, (claim, delivery))
                 for claim, delivery, message in deliveries]
    for what, interval in covering([(r.message.enqueue.rank, r) for r in ready], questions):
        verdict.wrong("inverted", f"{what[1]} at {what[0].sent}, while {interval} was ready")


def check_fifo(deliveries, ready, verdict):
    by_rank, asked = defaultdict(list), defaultdict(list)
    for interval in ready:
        if interval.in_place:
            enqueue = interval.message.enqueue
            by_rank[enqueue.rank].append((enqueue.came, interval))
    for claim, delivery, message in deliveries:
        enqueue = message.enqueue
        asked[enqueue.rank].append((enqueue.sent, claim.sent, claim.came, (claim, delivery)))
    for rank, questions in asked.items():
        for what, interval in covering(by_rank[rank], questions):
            verdict.wrong("overtaken", f"{what[1]} at {what[0].sent}, while {interval} was ready")


def check_batches(deliveries, ready, verdict):
    """Messages of one batch have no times of their own, but an order."""
    places = {}
    for interval in ready:
        enqueue = interval.message.enqueue
        if interval.in_place and enqueue.batch is not None:
            places.setdefault((enqueue.batch, enqueue.rank), []).append(interval)
    for claim, delivery, message in deliveries:
        enqueue = message.enqueue
        for interval in places.get((enqueue.batch, enqueue.rank), []):
            if interval.message.enqueue.index < enqueue.index and \
                    interval.start <= claim.sent and interval.end >= claim.came:
                verdict.wrong("overtaken", f"{delivery} at {claim.sent}, before {interval}")
                break


def came_meanwhile(account, message, claim):
    """It may have become ready when the claim had already taken something."""
    at = next(at for at, taken in enumerate(message.taken) if taken.claim is claim)
    where = message.enqueue.partition
    last = message.taken[at - 1].delivery.attempt if at else 0
    if message.taken[at].delivery.attempt > last + 1:
        return True  # a claim that nobody heard of had it in between
    if at:
        start = next_start(account, message.taken[at - 1], where)[0]
    else:
        start = raw_start(account, message.enqueue)
    return start is None or start > claim.sent


def check_answers(account, verdict):
    """The messages of one answer stand in the order of the queue, if they were there at the same
    time; those of one partition, where there are several."""
    strict = account.rules.policy == "strict"
    for claim in account.claims:
        known = [account.messages[d.key] for d in claim.deliveries if d.key in account.messages
                 and not displaced(account.messages[d.key])]
        for one, two in zip(known, known[1:]):
            a, b = one.enqueue, two.enqueue
            if came_meanwhile(account, two, claim):
                continue
            if a.partition != b.partition or (account.rules.window is not None
                                              and a.partition is None):
                continue
            if strict and a.rank > b.rank:
                verdict.wrong("inverted", f"{a.key} stands before {b.key} in one answer")
            moved = b.delay or any(t.used("nack", OK, UNKNOWN) for t in two.taken)
            earlier = b.came < a.sent or (a.batch is not None and a.batch == b.batch
                                          and b.index < a.index)
            if a.rank == b.rank and earlier and not moved and not account.clock_was_set:
                verdict.wrong("overtaken", f"{a.key} stands before {b.key} in one answer")


def check_empty(account, ready, verdict):
    """A claim that found nothing decided so when its wait was over, by what its server had heard. One
    that does not wait asks where everybody's messages are."""
    levels = account.rules.levels
    questions = []
    for claim in account.claims:
        heard = HEARD_SECONDS if account.several and claim.wait > 0 else 0
        decided = claim.sent + max(claim.wait - TICK, 0)
        if claim.outcome == OK and not claim.deliveries and claim.came >= decided:
            rank = levels if claim.max_rank is None else claim.max_rank + 1
            questions.append((rank, decided - heard, claim.came, claim))
    for claim, interval in covering([(r.message.enqueue.rank, r) for r in ready], questions):
        verdict.wrong("overlooked", f"{claim} found nothing, while {interval} was ready")


# Shares under the weighted policy.


def union(spans):
    merged = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def stretches(account, ready):
    """(start, end, the levels that had something ready all that time)."""
    covered = defaultdict(list)
    for interval in ready:
        covered[interval.message.enqueue.rank].append((interval.start, interval.end))
    covered = {rank: union(spans) for rank, spans in covered.items()}
    cuts = {time for spans in covered.values() for span in spans for time in span}
    cuts |= {mark.at for mark in account.marks}
    cuts = sorted(cuts)
    for start, end in zip(cuts, cuts[1:]):
        ranks = {rank for rank, spans in covered.items()
                 if any(s <= start and e >= end for s, e in spans)}
        if len(ranks) > 1:
            yield start, end, ranks


def check_shares(account, ready, verdict):
    """Over N deliveries with these levels backlogged and no others, each level has its share
    N w/W, off by at most its weight in a cycle, a batch, and what was under way at the ends."""
    exact = [Fraction(w).limit_denominator(1000) for w in account.rules.weights]
    scale = lcm(*(w.denominator for w in exact))
    weights = [int(w * scale) for w in exact]
    for start, end, ranks in stretches(account, ready):
        inside = [c for c in account.claims if start <= c.sent and c.came <= end]
        across = [c for c in account.claims if c.sent < end and c.came > start
                  and (c.sent < start or c.came > end)]
        got = [d.rank for c in inside for d in c.deliveries]
        whole = sum(weights[rank] for rank in ranks)
        if len(got) < 2 * whole or not set(got) <= ranks or \
                any(c.max_rank is not None for c in inside):
            continue
        slack = max((len(c.deliveries) for c in inside), default=0) + \
            sum(c.max for c in across)
        for rank in ranks:
            share = len(got) * weights[rank] / whole
            if abs(got.count(rank) - share) > weights[rank] + slack:
                verdict.wrong("unfair", f"level {rank} had {got.count(rank)} of {len(got)}, "
                                        f"not {share:.1f} (within {weights[rank] + slack})")


def check(account, verdict):
    ready = intervals(account)
    deliveries = judged(account)
    verdict.ordered += len(deliveries)
    rules = account.rules
    strict = rules.policy == "strict" and not rules.aging and not rules.limited
    for some, there in apart(account, deliveries, ready):
        if strict:
            check_priority(some, there, verdict)
        if not account.clock_was_set and not rules.aging:
            check_fifo(some, there, verdict)
            check_batches(some, there, verdict)
    if strict and rules.window is not None:
        check_priority(deliveries, ready, verdict, rules.window)
    if not rules.aging:
        check_answers(account, verdict)
    if not rules.limited:
        check_empty(account, ready, verdict)
    if rules.policy == "weighted" and not rules.aging and not rules.limited:
        check_shares(account, ready, verdict)
