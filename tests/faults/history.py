"""What clients saw of a server: every call with the time before it was sent, the time after its
answer came, on one clock that nobody sets, and its outcome.

An outcome is OK (done, and said so), REFUSED (looked at and not done, and said so), DECLINED (not
even looked at: too busy, or stopping) or UNKNOWN: the answer never came, or said that the server
does not know. An unknown call may have happened or not; what it could explain is held explained.
`checker.py` judges a history; it needs nothing else, so that one checker serves every engine and
every fault. A history can be saved and judged again:

    /usr/bin/python3 tests/faults/checker.py FILE"""

import json
import threading
from dataclasses import asdict, dataclass, field, fields

OK, REFUSED, DECLINED, UNKNOWN = "ok", "refused", "declined", "unknown"
SLACK = 0.05  # seconds by which two clocks on one machine and a rounding may differ


@dataclass(slots=True)
class Enqueue:
    queue: str
    key: str  # names this attempt to enqueue; the payload carries it
    rank: int  # 0 is the most urgent level
    sent: float
    came: float
    outcome: str
    id: str = None
    delay: float = 0.0
    ttl: float = None
    dedup: str = None
    deduplicated: bool = False
    batch: int = None  # of one call, in this order
    index: int = 0
    partition: int = None  # that the answer named


@dataclass(slots=True)
class Delivery:
    key: str  # None when the payload was not what anybody sent
    id: str
    attempt: int
    receipt: str
    rank: int


@dataclass(slots=True)
class Claim:
    queue: str
    max: int
    wait: float
    lease: float
    sent: float
    came: float
    outcome: str
    deliveries: list = field(default_factory=list)
    max_rank: int = None  # takes that level and more urgent ones


@dataclass(slots=True)
class Settle:
    queue: str
    verb: str  # ack, nack, release, extend
    receipt: str
    sent: float
    came: float
    outcome: str
    lease: float = 0.0  # extend: the new lease
    delay: float = 0.0  # nack: before it is ready again
    state: str = None  # that the answer named


@dataclass(slots=True)
class Remove:
    """A cancel of one message, or a redrive of a dead one."""
    queue: str
    verb: str  # cancel, redrive
    key: str
    sent: float
    came: float
    outcome: str


@dataclass(slots=True)
class Move:
    """Another priority for a message that waits."""
    queue: str
    key: str
    rank: int
    sent: float
    came: float
    outcome: str


@dataclass(slots=True)
class Found:
    """What is left in the end: a dead letter."""
    queue: str
    key: str
    attempts: int
    reason: str


@dataclass(slots=True)
class Ended:
    """A queue after everything was taken out of it."""
    queue: str
    at: float
    stats: dict
    totals_whole: bool = True  # the engine keeps its totals over the restarts there were


@dataclass(slots=True)
class Counts:
    """The numbers of a queue, as an answer had them: `watcher.py` has their names."""
    queue: str
    source: str  # stats, list, metrics
    sent: float
    came: float
    counts: dict


@dataclass(slots=True)
class Mark:
    what: str  # restart, clock (the wall clock was set), stopped, resumed, several (servers), away, back
    at: float
    partition: int = None  # away, back: which


@dataclass(slots=True)
class Rules:
    """How a queue is configured, as far as it matters here."""
    queue: str
    levels: int = 10
    policy: str = "strict"
    weights: list = None
    aging: bool = False
    limited: bool = False  # a limit on messages in flight
    max_attempts: int = 3
    dedup_window: float = 300.0
    dedup_scope: str = "window"
    expired: str = "drop"
    window: float = None  # seconds: a queue over several stores (order.py); None: one order


KINDS = {kind.__name__: kind
         for kind in (Enqueue, Claim, Settle, Remove, Move, Found, Ended, Counts, Mark, Rules)}


class History:
    def __init__(self):
        self.log = []  # appending is atomic: many threads write it
        self.batches = 0
        self.lock = threading.Lock()

    def add(self, record):
        self.log.append(record)
        return record

    def next_batch(self):
        with self.lock:
            self.batches += 1
            return self.batches

    def of(self, kind):
        return [record for record in self.log if isinstance(record, kind)]

    def queues(self):
        return sorted({record.queue for record in self.log if not isinstance(record, Mark)})

    def save(self, path):
        with open(path, "w") as file:
            for record in self.log:
                file.write(json.dumps({"kind": type(record).__name__, **asdict(record)}) + "\n")

    @classmethod
    def load(cls, path):
        history = cls()
        with open(path) as file:
            for line in file:
                values = json.loads(line)
                kind = KINDS[values.pop("kind")]
                if kind is Claim:
                    values["deliveries"] = [Delivery(**each) for each in values["deliveries"]]
                assert set(values) == {f.name for f in fields(kind)}
                history.add(kind(**values))
        return history
