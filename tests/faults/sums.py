"""Numbers, as far as a history decides them. Every answer that has the numbers of a queue is of one
moment, and at every moment

    enqueued = ready + scheduled + in_flight + dead + acked + expired + cancelled

Stats and lists also have what was acknowledged before they were asked for, and nothing that was not
begun when they came; totals never go back, but for what a server that was killed had shown and not
yet answered. Metrics may be a little older than that. A partition that is away counts with what was
known of it: then the sum is judged alone."""

from bisect import bisect_left, bisect_right

from history import OK, SLACK, UNKNOWN

PARTS = ("ready", "scheduled", "in_flight", "dead", "acked", "expired", "cancelled")
PRESENT = ("ready", "scheduled", "in_flight", "dead")
TOTALS = ("enqueued", "acked", "expired", "cancelled")


def check_sum(seen, verdict):
    counts = seen.counts
    if "enqueued" in counts and counts["enqueued"] != sum(counts[part] for part in PARTS):
        verdict.wrong("unbalanced", f"{seen}: {sum(counts[p] for p in PARTS)} accounted for")
    if counts.get("levels", counts["ready"]) != counts["ready"]:
        verdict.wrong("unbalanced", f"{seen}: levels and ready")
    if "depth" in counts and counts["depth"] != counts["ready"] + counts["scheduled"]:
        verdict.wrong("unbalanced", f"{seen}: depth")


class Between:
    """How many of some calls had certainly happened before a time, and how many perhaps by one."""

    def __init__(self, sure, perhaps):
        self.sure, self.perhaps = sorted(sure), sorted(perhaps)

    def least(self, sent):
        return bisect_left(self.sure, sent)

    def most(self, came):
        return bisect_right(self.perhaps, came)


def of_enqueues(account):
    stored = [m.enqueue for m in account.messages.values() if not m.enqueue.deduplicated]
    return Between([e.came for e in stored if e.outcome == OK],
                   [e.sent for e in stored if e.outcome in (OK, UNKNOWN)])


def of_acks(account):
    messages = account.messages.values()
    return Between([min(use.came for use in m.acks(OK)) for m in messages if m.acks(OK)],
                   [min(use.sent for use in m.acks(OK, UNKNOWN)) for m in messages
                    if m.acks(OK, UNKNOWN)])


def of_ends(account):
    """Of all kinds."""
    sure, perhaps = [], []
    for m in account.messages.values():
        ends = m.acks(OK) + m.removed("cancel", OK)
        if ends:
            sure.append(min(end.came for end in ends))
        maybe = [end.sent for end in m.acks(OK, UNKNOWN) + m.removed("cancel", OK, UNKNOWN)]
        if m.enqueue.ttl is not None:
            maybe.append(m.enqueue.sent + m.enqueue.ttl - SLACK)
        if maybe:
            perhaps.append(min(maybe))
    return Between(sure, perhaps)


def within(verdict, seen, what, value, least, most):
    if not least <= value <= most:
        verdict.wrong("miscounted", f"{what} of {seen}: {value}, not within {least} and {most}")


def all_there(account, seen):
    return not any(start <= seen.came and seen.sent <= end for _, start, end in account.absences)


def check_bounds(account, fresh, verdict):
    enqueues, acks, ends = of_enqueues(account), of_acks(account), of_ends(account)
    timed = not account.clock_was_set
    for seen in fresh:
        least, most = enqueues.least(seen.sent), enqueues.most(seen.came)
        if timed:
            present = sum(seen.counts[part] for part in PRESENT)
            within(verdict, seen, "present", present, least - ends.most(seen.came),
                   most - ends.least(seen.sent))
        if "enqueued" in seen.counts:
            within(verdict, seen, "enqueued", seen.counts["enqueued"], least, most)
            within(verdict, seen, "acked", seen.counts["acked"], acks.least(seen.sent),
                   acks.most(seen.came))


def check_backwards(account, fresh, verdict):
    """A total is not less than one that had already been shown when this one was asked for, if
    nobody died in between."""
    shown = sorted((seen for seen in fresh if "enqueued" in seen.counts and not any(
        start <= seen.came and seen.sent <= end for start, end in account.pauses)),
        key=lambda s: s.came)
    asked, at = sorted(shown, key=lambda s: s.sent), 0
    deaths = sorted(mark.at for mark in account.marks if mark.what in ("restart", "resumed"))
    most = dict.fromkeys(TOTALS, 0)
    for seen in asked:
        while deaths and deaths[0] <= seen.sent:
            at = max(at, bisect_left([s.came for s in shown], deaths.pop(0)))
            most = dict.fromkeys(TOTALS, 0)
        while at < len(shown) and shown[at].came < seen.sent:
            for name in TOTALS:
                most[name] = max(most[name], shown[at].counts[name])
            at += 1
        for name in TOTALS:
            if seen.counts[name] < most[name]:
                verdict.wrong("miscounted", f"{name} of {seen} was {most[name]} before")


def check(account, verdict):
    verdict.counted += len(account.counts)
    for seen in account.counts:
        check_sum(seen, verdict)
    if account.ended and account.ended.totals_whole:
        fresh = [seen for seen in account.counts
                 if seen.source != "metrics" and all_there(account, seen)]
        check_bounds(account, fresh, verdict)
        check_backwards(account, fresh, verdict)
