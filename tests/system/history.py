"""What clients saw of a queue, and whether a queue that keeps its promises can have shown it.

Every operation is recorded with the time before it was sent and the time after its answer came,
on one clock. An operation whose answer never came is *unknown*: it may have happened or not, and
everything it could explain is held explained. What remains is wrong:

  lost        an acknowledged enqueue that was never finished, and is not there in the end
  unexpected  a delivery of something that nobody enqueued
  resurrected a delivery after an ack was confirmed
  doubled     two deliveries whose leases certainly overlapped, or that share an attempt number
  stale       an ack that was confirmed although the lease had certainly run out
  dropped     an ack that was refused although the lease certainly still held

Times are in seconds. A server may read its clock once for many requests, so that what it takes
for now is a little late: SLACK is how much."""

from collections import defaultdict
from dataclasses import dataclass, field

SLACK = 0.25

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"


@dataclass
class Delivery:
    key: str
    attempt: int
    receipt: str
    lease: float
    sent: float
    came: float
    uses: list = field(default_factory=list)  # what was done with the receipt, in order


@dataclass
class Use:
    verb: str  # "ack", "nack" or "extend"
    outcome: str
    sent: float
    came: float  # for an unknown outcome: when it was given up
    lease: float = 0.0  # "extend": the new length


class History:
    """Operations of one queue. Methods may be called from several threads: each only appends."""

    def __init__(self):
        self.enqueues = []  # (key, outcome)
        self.deliveries = []
        self.left = set()  # keys found dead at the end

    def enqueue(self, key, outcome):
        self.enqueues.append((key, outcome))

    def deliver(self, key, attempt, receipt, lease, sent, came):
        delivery = Delivery(key, attempt, receipt, lease, sent, came)
        self.deliveries.append(delivery)
        return delivery

    @staticmethod
    def use(delivery, verb, outcome, sent, came, lease=0.0):
        delivery.uses.append(Use(verb, outcome, sent, came, lease))

    def leave(self, key):
        self.left.add(key)


@dataclass
class Verdict:
    attempted: int = 0
    acknowledged: int = 0
    unknown: int = 0
    recovered: int = 0  # enqueues of unknown outcome that turned out to have happened
    delivered: int = 0
    finished: int = 0
    lost: list = field(default_factory=list)
    unexpected: list = field(default_factory=list)
    resurrected: list = field(default_factory=list)
    doubled: list = field(default_factory=list)
    stale: list = field(default_factory=list)
    dropped: list = field(default_factory=list)

    WRONGS = ("lost", "unexpected", "resurrected", "doubled", "stale", "dropped")

    @property
    def clean(self):
        return not any(getattr(self, name) for name in self.WRONGS)

    def __str__(self):
        counts = [f"{self.attempted} enqueues sent", f"{self.acknowledged} acknowledged",
                  f"{self.unknown} unknown ({self.recovered} of them stored)",
                  f"{self.delivered} deliveries", f"{self.finished} finished"]
        counts += [f"{len(getattr(self, name))} {name}" for name in self.WRONGS]
        shown = [f"  {name}: {item}" for name in self.WRONGS for item in getattr(self, name)[:5]]
        return ", ".join(counts) + "".join("\n" + line for line in shown)


def lease_end(delivery):
    """(earliest, latest) end of the lease, as far as time alone ends it."""
    earliest = delivery.sent + delivery.lease
    latest = delivery.came + delivery.lease
    for use in delivery.uses:
        if use.verb != "extend" or use.outcome == REFUSED:
            continue
        if use.outcome == OK:
            earliest, latest = use.sent + use.lease, use.came + use.lease
        else:
            earliest = min(earliest, use.sent + use.lease)
            latest = max(latest, use.came + use.lease)
    return earliest, latest


def given_back(delivery, before):
    """Whether a nack may have ended the lease before that time."""
    return any(use.verb == "nack" and use.outcome != REFUSED and use.sent < before
               for use in delivery.uses)


def first_ok_ack(delivery):
    return next((u for u in delivery.uses if u.verb == "ack" and u.outcome == OK), None)


def check(history):
    verdict = Verdict()
    outcomes = dict(history.enqueues)
    verdict.attempted = len(outcomes)
    verdict.acknowledged = sum(o == OK for o in outcomes.values())
    verdict.unknown = sum(o == UNKNOWN for o in outcomes.values())
    verdict.delivered = len(history.deliveries)

    by_key = defaultdict(list)
    for delivery in history.deliveries:
        by_key[delivery.key].append(delivery)

    for key in (set(by_key) | history.left) - set(outcomes):
        verdict.unexpected.append(key)
    for key, outcome in outcomes.items():
        if outcome == REFUSED and key in by_key:
            verdict.unexpected.append(key)
        if outcome == UNKNOWN and key in by_key:
            verdict.recovered += 1
        finished = any(use.verb == "ack" and use.outcome != REFUSED
                       for delivery in by_key[key] for use in delivery.uses)
        verdict.finished += finished
        if outcome == OK and not finished and key not in history.left:
            verdict.lost.append(key)

    for deliveries in by_key.values():
        check_deliveries(sorted(deliveries, key=lambda d: (d.attempt, d.came)), verdict)
    return verdict


def check_deliveries(deliveries, verdict):
    """The deliveries of one message, in order of attempts."""
    for at, delivery in enumerate(deliveries):
        earliest, latest = lease_end(delivery)
        ack = first_ok_ack(delivery)
        if ack and ack.sent > latest + SLACK:
            verdict.stale.append((delivery, ack))
        check_refusals(delivery, earliest, verdict)
        if at + 1 == len(deliveries):
            break
        following = deliveries[at + 1]
        if ack:
            verdict.resurrected.append((delivery, following))
        elif following.attempt == delivery.attempt:
            verdict.doubled.append((delivery, following))
        elif following.came < earliest - SLACK and not given_back(delivery, following.came):
            verdict.doubled.append((delivery, following))


def check_refusals(delivery, earliest, verdict):
    """A receipt that was never used with success has to work while its lease lasts."""
    for at, use in enumerate(delivery.uses):
        unused = all(u.verb == "extend" or u.outcome == REFUSED for u in delivery.uses[:at])
        if use.verb == "ack" and use.outcome == REFUSED and unused \
                and use.came < earliest - SLACK:
            verdict.dropped.append((delivery, use))
