"""Whether a queue that keeps its promises can have shown its clients this history.

Every message is accounted for, and what no such queue can have shown is named:

  lost         an acknowledged enqueue that was never finished, and is not there in the end
  unexpected   a delivery of something that nobody enqueued here, or whose enqueue was refused
  corrupted    a payload that nobody sent
  resurrected  a delivery after an ack or a cancel was confirmed
  doubled      a second delivery before the first one's lease can have ended; a receipt used twice;
               two messages of one enqueue
  stale        an old receipt that was accepted
  dropped      a receipt that was refused while its lease was certainly alive
  uncounted    attempts that do not add up: not counted on, too many, dead before all were used
  misplaced    a delivery at another level than the message was given, or the claim asked for
  inverted     a delivery while a more urgent message was certainly ready
  overtaken    a delivery while an earlier message of the same level was certainly ready
  overlooked   a claim that found nothing while a message was certainly ready: a lost wake-up
  unfair       shares under the weighted policy that are further off than its bound
  repeated     a dedup key that stored two messages inside its window, or matched outside it
  early        a delivery before the delay was over
  outlived     a delivery after the time to live was over
  stuck        what could not be taken out in the end
  miscounted   numbers that disagree with the history
  unbalanced   numbers of one answer that do not add up

Times are the clients': what lies between sending and the answer happened somewhere in between, and
everything is decided in the server's favour. Order is judged in `order.py`, numbers in `sums.py`."""

import functools
import sys
from collections import defaultdict
from dataclasses import dataclass, field

import order
import sums
from history import (DECLINED, OK, REFUSED, SLACK, UNKNOWN, Claim, Counts, Delivery, Ended,
                     Enqueue, Found, History, Mark, Move, Remove, Rules, Settle)

WRONGS = ("lost", "unexpected", "corrupted", "resurrected", "doubled", "stale", "dropped",
          "uncounted", "misplaced", "inverted", "overtaken", "overlooked", "unfair", "repeated",
          "early", "outlived", "stuck", "miscounted", "unbalanced")


@dataclass
class Verdict:
    attempted: int = 0
    acknowledged: int = 0
    unknown: int = 0
    recovered: int = 0  # enqueues of unknown outcome that turned out to have happened
    delivered: int = 0
    finished: int = 0
    ordered: int = 0  # deliveries whose order could be judged
    counted: int = 0  # answers whose numbers were judged
    wrongs: dict = field(default_factory=lambda: {name: [] for name in WRONGS})

    COUNTS = ("attempted", "acknowledged", "unknown", "recovered", "delivered", "finished",
              "ordered", "counted")

    def wrong(self, name, text):
        self.wrongs[name].append(text)

    @property
    def clean(self):
        return not any(self.wrongs.values())

    @property
    def caught(self):
        """The names of the checks that failed."""
        return [name for name in WRONGS if self.wrongs[name]]

    def add(self, other):
        for name in self.COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in WRONGS:
            self.wrongs[name] += other.wrongs[name]

    def __str__(self):
        counts = [f"{getattr(self, name)} {name}" for name in self.COUNTS]
        counts += [f"{len(self.wrongs[name])} {name}" for name in WRONGS]
        shown = [f"\n  {name}: {text}" for name in WRONGS for text in self.wrongs[name][:5]]
        return ", ".join(counts) + "".join(shown)


@dataclass
class Taken:
    """One delivery, the claim that it answered, and what its receipt was used for."""
    delivery: Delivery
    claim: Claim
    uses: list = field(default_factory=list)

    def used(self, verb, *outcomes):
        return [use for use in self.uses if use.verb == verb and use.outcome in outcomes]

    def lease_end(self):
        """(earliest, latest) end of the lease, as far as time alone ends it."""
        earliest = self.claim.sent + self.claim.lease
        latest = self.claim.came + self.claim.lease
        for use in self.used("extend", OK, UNKNOWN):
            first, last = use.sent + use.lease, use.came + use.lease
            if use.outcome == OK:
                earliest, latest = first, last
            else:
                earliest, latest = min(earliest, first), max(latest, last)
        return earliest, latest

    def given_back(self, before):
        """Whether a nack or release may have ended the lease before that time."""
        return any(use.sent < before for verb in ("nack", "release")
                   for use in self.used(verb, OK, UNKNOWN))


@dataclass
class Message:
    enqueue: Enqueue
    taken: list = field(default_factory=list)  # in their order
    removes: list = field(default_factory=list)
    moves: list = field(default_factory=list)
    found: list = field(default_factory=list)

    @property
    def key(self):
        return self.enqueue.key

    @property
    def seen(self):
        return bool(self.taken or self.found)

    @property
    def stored(self):
        """Whether it is known to have been stored."""
        if self.enqueue.deduplicated:
            return False
        return self.enqueue.outcome == OK or (self.enqueue.outcome == UNKNOWN and self.seen)

    def removed(self, verb, *outcomes):
        return [r for r in self.removes if r.verb == verb and r.outcome in outcomes]

    def acks(self, *outcomes):
        return [use for taken in self.taken for use in taken.used("ack", *outcomes)]


def in_turn(a, b):
    """Deliveries in their order: by time, by attempt when their claims were under way at once."""
    if a.claim.came < b.claim.sent or b.claim.came < a.claim.sent:
        return -1 if a.claim.came < b.claim.sent else 1
    return a.delivery.attempt - b.delivery.attempt or (1 if a.claim.came > b.claim.came else -1)


def absences(marks):
    """(partition, from, to) of each time in which a partition was away."""
    found, since = [], {}
    for mark in marks:
        if mark.what == "away":
            since[mark.partition] = mark.at
        elif mark.what == "back":
            found.append((mark.partition, since.pop(mark.partition), mark.at))
    return found + [(partition, at, float("inf")) for partition, at in since.items()]


class Account:
    """All that a history has about one queue."""

    def __init__(self, history, queue):
        self.queue = queue
        self.rules = Rules(queue)
        self.messages = {}
        self.claims, self.counts, self.ended = [], [], None
        self.marks = history.of(Mark)
        self.clock_was_set = any(mark.what == "clock" for mark in self.marks)
        self.several = any(mark.what == "several" for mark in self.marks)
        stopped = [mark.at for mark in self.marks if mark.what == "stopped"]
        resumed = [mark.at for mark in self.marks if mark.what == "resumed"]
        self.pauses = list(zip(stopped, resumed))
        self.absences = absences(self.marks)
        self.strays = []  # deliveries and dead letters with a key that nobody sent here
        mine = [r for r in history.log if not isinstance(r, Mark) and r.queue == queue]
        for record in mine:
            self.take_in(record)
        self.connect([r for r in mine if isinstance(r, (Settle, Remove, Move, Found))])
        self.unknown_claims = sorted((c for c in self.claims if c.outcome == UNKNOWN),
                                     key=lambda c: c.sent)
        self.unheard = defaultdict(int)  # by partition; None is that of an enqueue without an answer
        for partition, start, end in self.absences:
            count = sum(c.sent <= end and c.came >= start for c in self.claims)
            self.unheard[partition] += count
            self.unheard[None] += count

    def take_in(self, record):
        if isinstance(record, Rules):
            self.rules = record
        elif isinstance(record, Enqueue):
            self.messages[record.key] = Message(record)
        elif isinstance(record, Claim):
            self.claims.append(record)
        elif isinstance(record, Counts):
            self.counts.append(record)
        elif isinstance(record, Ended):
            self.ended = record

    def connect(self, records):
        receipts = {}
        self.twice = []  # receipts that were handed out twice
        for claim in self.claims:
            for delivery in claim.deliveries:
                taken = Taken(delivery, claim)
                if delivery.receipt in receipts:
                    self.twice.append(delivery)
                receipts[delivery.receipt] = taken
                if delivery.key in self.messages:
                    self.messages[delivery.key].taken.append(taken)
                else:
                    self.strays.append(delivery)
        for record in records:
            if isinstance(record, Settle):
                if record.receipt in receipts:
                    receipts[record.receipt].uses.append(record)
            elif record.key not in self.messages:
                self.strays.append(record)
            elif isinstance(record, Remove):
                self.messages[record.key].removes.append(record)
            elif isinstance(record, Move):
                self.messages[record.key].moves.append(record)
            else:
                self.messages[record.key].found.append(record)
        for taken in receipts.values():
            taken.uses.sort(key=lambda use: use.sent)
        for message in self.messages.values():
            message.taken.sort(key=functools.cmp_to_key(in_turn))


# One message.


def check_presence(account, message, verdict):
    enqueue = message.enqueue
    if message.seen and (enqueue.outcome in (REFUSED, DECLINED) or enqueue.deduplicated):
        verdict.wrong("unexpected", f"{message.key}, whose enqueue stored nothing: {enqueue}")
    verdict.recovered += enqueue.outcome == UNKNOWN and message.seen
    finished = bool(message.acks(OK, UNKNOWN))
    verdict.finished += finished
    cancelled = message.removed("cancel", OK, UNKNOWN)
    at = account.ended.at if account.ended else float("inf")
    expired = enqueue.ttl is not None and enqueue.sent + enqueue.ttl <= at + SLACK
    if enqueue.outcome == OK and not enqueue.deduplicated and account.ended \
            and not (finished or cancelled or expired or message.found):
        verdict.wrong("lost", enqueue)


def check_ends(message, verdict):
    """Nothing comes back after it was finished or cancelled."""
    for end in message.acks(OK) + message.removed("cancel", OK):
        after = [t.delivery for t in message.taken if t.claim.sent > end.came]
        for what in after + message.found:
            verdict.wrong("resurrected", f"{what} after {end}")


def check_leases(message, verdict):
    for taken, following in zip(message.taken, message.taken[1:]):
        earliest, _ = taken.lease_end()
        if taken.used("ack", OK):
            if following.claim.sent <= taken.used("ack", OK)[0].came:
                verdict.wrong("resurrected", f"{following} while {taken} was acked")
        elif following.claim.came < earliest - SLACK and \
                not taken.given_back(following.claim.came):
            verdict.wrong("doubled", f"{taken} and {following}")


def check_identity(message, verdict):
    """One enqueue is one message."""
    ids = {taken.delivery.id for taken in message.taken}
    if message.enqueue.id is not None and not message.enqueue.deduplicated:
        ids.add(message.enqueue.id)
    if len(ids) > 1:
        verdict.wrong("doubled", f"{message.enqueue} is {sorted(ids)}")


def check_receipts(message, verdict):
    for at, taken in enumerate(message.taken):
        following = message.taken[at + 1:]
        for number, use in enumerate(taken.uses):
            earliest, latest = lease_before(taken, number)
            over = [u for u in taken.uses[:number]
                    if u.verb != "extend" and u.outcome in (OK, UNKNOWN)]
            if use.outcome == OK:
                late = use.sent > latest + SLACK
                used = any(u.outcome == OK and u.came < use.sent for u in over)
                passed_on = any(f.claim.came < use.sent for f in following)
                if late or used or passed_on:
                    verdict.wrong("stale", f"{use} of {taken}")
            elif use.outcome == REFUSED and not over and use.came < earliest - SLACK:
                verdict.wrong("dropped", f"{use} of {taken}")


def lease_before(taken, number):
    """The end of the lease, by what was done with the receipt before that use."""
    return Taken(taken.delivery, taken.claim, taken.uses[:number]).lease_end()


def check_attempts(account, message, verdict):
    """A claim may have been carried out and not heard of: by a client, or by a server whose partition
    was away, which then answered with what the others had."""
    hidden = len(account.unknown_claims) + account.unheard[message.enqueue.partition]
    rules = account.rules
    last = 0
    for at, taken in enumerate(message.taken):
        attempt = taken.delivery.attempt
        before = message.taken[at - 1] if at else None
        released = before and before.used("release", OK, UNKNOWN)
        redriven = message.removed("redrive", OK, UNKNOWN)
        least = last if released else last + 1
        if not redriven and not least <= attempt <= last + 1 + hidden:
            verdict.wrong("uncounted", f"{taken} after attempt {last}")
        if attempt > rules.max_attempts:
            verdict.wrong("uncounted", f"{taken}, with {rules.max_attempts} attempts")
        last = attempt
    for found in message.found:
        if found.reason != "expired" and found.attempts < rules.max_attempts:
            verdict.wrong("uncounted", f"{found}, with {rules.max_attempts} attempts")


def possible_ranks(message, claim):
    """Levels at which the message can have stood when that claim took it."""
    sure = [m for m in message.moves if m.outcome == OK and m.came < claim.sent]
    since = max((m.sent for m in sure), default=None)
    ranks = {m.rank for m in message.moves if m.outcome in (OK, UNKNOWN) and m.sent <= claim.came
             and (since is None or m.came >= since)}
    return ranks if sure else ranks | {message.enqueue.rank}


def check_levels(message, verdict):
    for taken in message.taken:
        if taken.delivery.rank not in possible_ranks(message, taken.claim):
            verdict.wrong("misplaced", f"{taken.delivery}: {message.enqueue}, {message.moves}")
        if taken.claim.max_rank is not None and taken.delivery.rank > taken.claim.max_rank:
            verdict.wrong("misplaced", f"{taken.delivery}: {taken.claim}")


def check_times(message, verdict):
    enqueue = message.enqueue
    redriven = message.removed("redrive", OK, UNKNOWN)
    for at, taken in enumerate(message.taken):
        if enqueue.ttl is not None and not redriven and \
                taken.claim.sent > enqueue.came + enqueue.ttl + SLACK:
            verdict.wrong("outlived", f"{taken}: {enqueue}")
        if taken.claim.came < enqueue.sent + enqueue.delay - SLACK:
            verdict.wrong("early", f"{taken}: {enqueue}")
        before = message.taken[at - 1].used("nack", OK) if at and not redriven else []
        if before and taken.claim.came < before[0].sent + before[0].delay - SLACK:
            verdict.wrong("early", f"{taken} after {before[0]}")


# All messages of a queue.


def first_end(message):
    """The earliest moment at which the message can have ceased to exist."""
    ends = [use.sent for use in message.acks(OK, UNKNOWN)]
    ends += [r.sent for r in message.removed("cancel", OK, UNKNOWN)]
    if message.enqueue.ttl is not None:
        ends.append(message.enqueue.sent + message.enqueue.ttl)
    return min(ends, default=float("inf"))


def check_dedup(account, verdict):
    rules = account.rules
    keys = defaultdict(list)
    for message in account.messages.values():
        if message.enqueue.dedup is not None:
            keys[message.enqueue.dedup].append(message)
    for messages in keys.values():
        messages.sort(key=lambda m: m.enqueue.sent)
        stored = [m for m in messages if m.stored]
        for first, second in zip(stored, stored[1:]):
            until = first_end(first) if rules.dedup_scope == "live" \
                else first.enqueue.sent + rules.dedup_window
            if second.enqueue.came < until - SLACK:
                verdict.wrong("repeated", f"{first.enqueue} and {second.enqueue}")
        for message in messages:
            if message.enqueue.deduplicated:
                check_match(rules, message.enqueue, messages, verdict)


def check_match(rules, enqueue, messages, verdict):
    """An answer that says deduplicated names a message with that key that still counted."""
    for other in (m.enqueue for m in messages):
        named = other.outcome == UNKNOWN or (other.id == enqueue.id and not other.deduplicated)
        counts = rules.dedup_scope == "live" or \
            enqueue.sent <= other.came + rules.dedup_window + SLACK
        if other.outcome in (OK, UNKNOWN) and named and counts and other.sent <= enqueue.came:
            return
    verdict.wrong("repeated", f"{enqueue} matched what is not there")


def within(verdict, what, value, least, most):
    if not least <= value <= most:
        verdict.wrong("miscounted", f"{what}: {value}, not within {least} and {most}")


def check_stats(account, verdict):
    if not account.ended:
        return
    stats, totals = account.ended.stats, account.ended.stats["totals"]
    present = stats["ready"] + stats["scheduled"] + stats["in_flight"]
    if present:
        verdict.wrong("stuck", f"{account.queue}: {stats}")
    gone = totals["acked"] + totals["expired"] + totals["cancelled"]
    if totals["enqueued"] != present + stats["dlq_depth"] + gone:
        verdict.wrong("unbalanced", f"{account.queue} does not add up: {stats}")
    if not account.ended.totals_whole:
        return
    messages = account.messages.values()
    sure = sum(m.stored for m in messages)
    perhaps = sum(m.enqueue.outcome == UNKNOWN and not m.seen for m in messages)
    within(verdict, "enqueued", totals["enqueued"], sure, sure + perhaps)
    acked = sum(bool(m.acks(OK)) for m in messages)
    maybe = sum(bool(m.acks(UNKNOWN)) and not m.acks(OK) for m in messages)
    within(verdict, "acked", totals["acked"], acked, acked + maybe)
    dead = sum(bool(m.found) for m in messages)
    within(verdict, "dead letters", stats["dlq_depth"], dead, dead)


def check_queue(history, queue):
    account = Account(history, queue)
    verdict = Verdict()
    messages = list(account.messages.values())
    verdict.attempted = len(messages)
    verdict.acknowledged = sum(m.enqueue.outcome == OK for m in messages)
    verdict.unknown = sum(m.enqueue.outcome == UNKNOWN for m in messages)
    verdict.delivered = sum(len(c.deliveries) for c in account.claims)
    for stray in account.strays:
        key = stray.key
        verdict.wrong("corrupted" if key is None else "unexpected", stray)
    for delivery in account.twice:
        verdict.wrong("doubled", f"{delivery}, with the receipt of another delivery")
    for message in messages:
        check_presence(account, message, verdict)
        check_ends(message, verdict)
        check_leases(message, verdict)
        check_identity(message, verdict)
        check_receipts(message, verdict)
        check_attempts(account, message, verdict)
        check_levels(message, verdict)
        if not account.clock_was_set:
            check_times(message, verdict)
    if not account.clock_was_set:
        check_dedup(account, verdict)
    check_stats(account, verdict)
    order.check(account, verdict)
    sums.check(account, verdict)
    return verdict


def check(history):
    verdict = Verdict()
    for queue in history.queues():
        verdict.add(check_queue(history, queue))
    return verdict


if __name__ == "__main__":
    result = check(History.load(sys.argv[1]))
    print(result)
    sys.exit(0 if result.clean else 1)
