"""Random sequences of everything the API can do, from a seed.

A sequence is a list of steps; a step is (name, arguments) and nothing but JSON, so that it can be
kept, replayed and cut down. A step does not know any id: ["message", 3] is the fourth message that
was stored, ["delivery", 0] the first that was claimed. What is behind them is found out on each
arrangement for itself, which is how two of them can be compared.

Time is either far away (FAR seconds and more) or waited for: a step that depends on the clock
carries the wait in itself, and nobody looks in between. So a sequence has the same outcome twice,
however slow the machine is. That is also why no schedule here becomes due: how often one is due
while a step waits is not the same twice; `system/test_schedules.py` and `faults/test_schedules.py`
have those."""

import json
import random

FAR = 3600
SOON = 0.2  # seconds; what comes so soon is waited for at once
BRIEF = 0.005  # seconds; a wait in which nothing can come: everybody else waits for the answer
INSTANT = 0.01  # … and sixteen of these in a row, too

LEVELS = ["a", "b", "c", "d", "e", "f"]
PROFILES = {"levels": list(range(10)), "tiers": ["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND"],
            "environments": ["production", "staging", "qa", "development"],
            "timeline": ["timeline"]}
PAYLOADS = ["x", "", "two words", "ünï ☃", "\u0000\u001b[2J", "line\nline", "a" * 5000,
            None, 7, {"k": [1, 2, {"n": None}]}, ["list"], True]
METADATA = [{}, {"tenant": "acme"}, {"tenant": "umbrella", "n": 1}, {"flag": True, "none": None}]
REASONS = ["broken", "ü", ""]
# Of a second queue: none of these is as urgent as any level that the first one can have, so that a
# claim of both never has to ask who came first in the same millisecond.
SIDE_LEVELS = [f"s{n}" for n in range(12)]
SIDE_PRIORITIES = SIDE_LEVELS[1:-1]


class Generator:
    """Keeps a rough idea of what is there, so that most steps have something to work on."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.priorities = list(range(10))
        self.stored = 0
        self.ready = 0
        self.delivered = 0

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, values):
        return self.random.choice(values)

    def priority(self):
        return self.pick(self.priorities) if self.chance(0.95) else self.pick(["nobody", 77, -1])

    def message(self):
        if self.chance(0.03) or self.stored == 0:
            return ["message", 9999]
        return ["message", self.random.randrange(self.stored)]

    def delivery(self):
        """Mostly one of the last: those are still leased."""
        if self.chance(0.03) or self.delivered == 0:
            return ["delivery", 9999]
        back = min(self.delivered, 1 + int(self.random.expovariate(0.3)))
        return ["delivery", self.delivered - back]

    def fields(self):
        """Of an enqueue, without a payload."""
        fields = {}
        if self.chance(0.7):
            fields["priority"] = self.priority()
        if self.chance(0.15):
            fields["metadata"] = self.pick(METADATA)
        if self.chance(0.15):
            fields["dedup_key"] = f"key{self.random.randrange(4)}"
        if self.chance(0.05):
            fields["ttl_seconds"] = self.pick([FAR, 2 * FAR, 0, -1])
        if self.chance(0.15):
            name, values = self.pick([
                ("delay_seconds", [0, FAR, 5 * FAR, -1, 1e12]),
                ("delay_until", ["2001-01-01T00:00:00Z", "2199-01-01T00:00:00Z", "soon"]),
                ("dequeue_at", [0, 1, -5, 1000, 4102444800000, 10 ** 15])])
            fields[name] = self.pick(values)
        return fields

    def body(self):
        if self.chance(0.1):
            return {"payload_base64": self.pick(["AAH/", "", "not base64", "eA=="]), **self.fields()}
        return {"payload": self.pick(PAYLOADS), **self.fields()}

    def count_stored(self, count):
        self.stored += count
        self.ready += count

    # The steps

    def enqueue(self):
        self.count_stored(1)
        return {"body": self.body()}

    def enqueue_bytes(self):
        self.count_stored(1)
        query = self.fields()
        metadata = query.pop("metadata", {})
        if self.chance(0.5):
            query.update((f"metadata.{key}", value) for key, value in metadata.items())
        elif metadata:
            query["metadata"] = json.dumps(metadata)
        return {"bytes": self.pick(["plain", "ff00fe", ""]), "query": query}

    def batch(self):
        count = self.random.randint(1, 8)
        self.count_stored(count)
        return {"messages": [self.body() for _ in range(count)], "lines": self.chance(0.3)}

    def claim(self):
        fields = {}
        if self.chance(0.7):
            fields["max"] = self.pick([1, 2, 3, 5, 10, 100, 0, 101])
        if self.chance(0.15):
            fields["min_priority"] = self.priority()
        if self.chance(0.3):
            fields["visibility_timeout_seconds"] = self.pick([FAR, 43200, 43201, -1])
        if self.chance(0.15):
            fields["wait_seconds"] = self.pick([0, BRIEF, -1, 61])
        count = min(self.ready, fields.get("max", 1))
        self.delivered += max(0, count)
        self.ready -= max(0, count)
        return {"fields": fields}

    def claim_by_get(self):
        """One, with everything in the query; or refused, as a picture in a page would be."""
        query = {}
        if self.chance(0.3):
            query["min_priority"] = self.priority()
        if self.chance(0.3):
            query["visibility_timeout_seconds"] = self.pick([FAR, 43200, 43201])
        if self.chance(0.3):
            query["wait_seconds"] = self.pick([0, BRIEF])
        self.delivered += min(self.ready, 1)
        self.ready -= min(self.ready, 1)
        return {"query": query, "marked": self.chance(0.9)}

    def claim_many(self):
        """Of the queue and a second one, into which something is put before."""
        fields = {"max": self.pick([1, 2, 5, 10, 100])}
        if self.chance(0.4):
            fields["order"] = self.pick(["urgency", "listed", "nonsense"])
        if self.chance(0.1):
            fields["min_priority"] = self.priority()
        if self.chance(0.2):
            fields["wait_seconds"] = BRIEF
        side = [self.pick(SIDE_PRIORITIES) for _ in range(self.random.randint(0, 4))]
        count = min(self.ready + len(side), fields["max"])
        self.delivered += count
        self.ready -= min(self.ready, count)
        return {"fields": fields, "side": side, "side_first": self.chance(0.5)}

    def ack(self):
        return {"delivery": self.delivery()}

    def ack_batch(self):
        return {"deliveries": [self.delivery() for _ in range(self.random.randint(1, 5))]}

    def settle_batch(self):
        verb = self.pick(["nack", "release", "extend"])
        fields = {}
        if verb == "nack" and self.chance(0.5):
            fields = {"delay_seconds": self.pick([0, FAR, -1]), "reason": self.pick(REASONS)}
        if verb == "extend":
            fields = {"visibility_timeout_seconds": self.pick([FAR, 43200, 43201])}
        deliveries = [self.delivery() for _ in range(self.random.randint(1, 5))]
        return {"verb": verb, "deliveries": deliveries, "fields": fields}

    def nack(self):
        fields = {}
        if self.chance(0.5):
            fields["delay_seconds"] = self.pick([0, 0, FAR, -1])
        if self.chance(0.5):
            fields["reason"] = self.pick(REASONS)
        if self.chance(0.1):
            fields["dead"] = self.pick([True, True, False, None, 1])
        self.ready += 1
        return {"delivery": self.delivery(), "fields": fields}

    def release(self):
        self.ready += 1
        return {"delivery": self.delivery()}

    def extend(self):
        return {"delivery": self.delivery(), "seconds": self.pick([FAR, 43200, 43201, 2 * FAR])}

    def show(self):
        return {"message": self.message()}

    def position(self):
        return {"message": self.message()}

    def cancel(self):
        return {"message": self.message()}

    def escalate(self):
        fields = {"priority": self.priority()}
        if self.chance(0.4):
            fields["actor"] = "ann"
        if self.chance(0.4):
            fields["reason"] = self.pick(REASONS)
        return {"message": self.message(), "fields": fields}

    def escalate_many(self):
        wanted = {}
        if self.chance(0.5):
            wanted["priority"] = self.priority()
        if self.chance(0.4):
            wanted["metadata"] = self.pick(METADATA)
        if self.chance(0.2):
            wanted["older_than_seconds"] = self.pick([0, FAR])
        body = {"filter": wanted, "priority": self.priority()}
        if self.chance(0.3):
            body["dry_run"] = True
        if self.chance(0.3):
            body["actor"] = "ann"
        if self.chance(0.3):
            body["reason"] = self.pick(REASONS)
        return {"body": body}

    def act(self):
        """On all that match, at once or in portions, of which each goes on where the last one ended."""
        what = self.pick(["messages/cancel", "messages/promote", "dead/redrive", "dead/purge"])
        wanted = {}
        if self.chance(0.4):
            wanted["priority"] = self.priority()
        if self.chance(0.5):
            wanted["metadata"] = self.pick(METADATA)
        if self.chance(0.2):
            wanted["older_than_seconds"] = self.pick([0, FAR])
        if self.chance(0.3):
            wanted["payload_contains"] = self.pick(["x", "line", "aaa"])
        if self.chance(0.5 if what.startswith("dead") else 0.05):
            wanted["reason"] = self.pick(REASONS + ["nacked"])
        body = {"filter": wanted}
        if self.chance(0.3):
            body["dry_run"] = True
        if self.chance(0.3):
            body["max"] = self.pick([1, 2, 100])
        if self.chance(0.3):
            body["look_max"] = self.pick([1, 3, 100])
        if what == "dead/redrive" and self.chance(0.3):
            body["priority"] = self.priority()
        self.ready += 1
        return {"what": what, "body": body}

    def promote(self):
        return {"message": self.message()}

    def level(self, name):
        level = {"name": name}
        if self.chance(0.3):
            level["number"] = self.random.randint(-3, 12)
        if self.chance(0.6):
            level["weight"] = self.pick([1, 2, 3, 0.5, 10])
        if self.chance(0.15):
            level["age_after_seconds"] = self.pick([FAR, None])
        if self.chance(0.15):
            level["max_wait_seconds"] = self.pick([FAR, None])
        if self.chance(0.35):
            level["max_in_flight"] = self.pick([1, 2, 3, None])
        return level

    def levels(self):
        names = self.random.sample(LEVELS, self.random.randint(1, len(LEVELS)))
        self.priorities = names
        return [self.level(name) for name in names]

    def tried(self, make):
        """What a change would make, and nothing is changed: the levels are those that were."""
        before = self.priorities
        arguments = make()
        self.priorities = before
        return arguments

    def try_configure(self):
        return self.tried(self.configure)

    def try_patch(self):
        return self.tried(self.patch)

    def configure(self):
        body = {}
        if self.chance(0.25):
            body["profile"] = self.pick(list(PROFILES))
            self.priorities = PROFILES[body["profile"]]
        if self.chance(0.4):
            body["levels"] = self.levels()
        if body and self.chance(0.9):
            body["drop_levels"] = self.pick([True, True, True, "empty", "empty", False])
        return {"body": {**body, **self.options()}}

    def patch(self):
        """Single levels by their names, of which some are not there any more."""
        levels = {}
        for name in self.random.sample(self.priorities, min(2, len(self.priorities))):
            levels[str(name)] = {k: v for k, v in self.level("").items() if k != "name"}
        body = {"levels": levels} if self.chance(0.8) else {}
        return {"body": {**body, **self.options()}}

    def options(self):
        """Fields of a configuration beside its levels."""
        body = {}
        options = {
            "policy": ["strict", "weighted"],
            "default_priority": self.priorities,
            "visibility_timeout_seconds": [FAR, 2 * FAR],
            "max_attempts": [1, 2, 3, 5],
            "retry": [{"backoff": "none"}, {"backoff": "fixed", "base_seconds": FAR},
                      {"backoff": "exponential", "base_seconds": FAR, "max_seconds": 9 * FAR}],
            "ttl_seconds": [None, FAR],
            "expired": ["drop", "dead"],
            "dedup": [{"window_seconds": FAR, "scope": "window"}, {"scope": "live"}],
            "max_depth": [None, 3, 10, 50],
            "max_bytes": [None, 100, 20000],
            "max_in_flight": [None, 2, 5],
            "history_seconds": [0, FAR, 2 * FAR],
            "paused": [True, False, False],
            "alerts": [{"dead_letters": 2}, {"dead_letters": None}],
        }
        for name, values in options.items():
            if self.chance(0.15):
                body[name] = self.pick(values)
        return body

    def show_config(self):
        return {}

    def stats(self):
        return {}

    def list_queues(self):
        return {"limit": self.pick([1, 1, 100, 1000, 1001])}

    def browse(self):
        query = {"limit": self.pick([1, 2, 7, 1000])}
        if self.chance(0.7):
            query["state"] = self.pick(["scheduled", "ready", "leased", "dead", "done", "gone"])
        if self.chance(0.3):
            query["level"] = self.priority()
        if self.chance(0.3):
            name, value = self.pick([("tenant", "acme"), ("n", 1), ("flag", True), ("none", "null")])
            query["meta." + name] = value
        if self.chance(0.2):
            query["payload_contains"] = self.pick(["x", "ü", "line\nline", "nothing"])
        if self.chance(0.2):
            query["older_than"] = self.pick([0, FAR])
        if self.chance(0.2):
            query["reason"] = self.pick(REASONS)
        if self.chance(0.3):
            query["payload"] = False
        return {"query": query}

    def export(self):
        return {"limit": self.pick([1, 2, 7, 1000]), "dead": self.chance(0.2)}

    def move(self):
        """Out of the queue by an export, and back by an import; levels by their place, of which one may
        go into another."""
        places = [self.random.randrange(6), self.random.randrange(6)]
        return {"places": places if self.chance(0.4) else None}

    def pause(self):
        return {}

    def resume(self):
        return {}

    def purge(self):
        self.ready = 0
        return {}

    def delete_queue(self):
        return {"force": self.chance(0.6)}

    def dead_list(self):
        return {"limit": self.pick([1, 2, 100])}

    def dead_show(self):
        return {"message": self.message()}

    def dead_drop(self):
        return {"message": self.message()}

    def dead_purge(self):
        return {}

    def redrive(self):
        body = {}
        if self.chance(0.4):
            body["ids"] = [self.message() for _ in range(self.random.randint(1, 3))]
        if self.chance(0.4):
            body["max"] = self.pick([1, 2, 100])
        if self.chance(0.3):
            body["priority"] = self.priority()
        if self.chance(0.3):
            body["per_second"] = self.pick([1000, 5000, 0, -1])
        self.ready += 1
        return {"body": body}

    def die(self):
        """Some become dead letters, so that there are some to mend."""
        self.ready -= min(self.ready, 2)
        return {"fields": {"max": 2}}

    def amend(self):
        body = self.pick([{"payload": self.pick(["mended", {"mended": [1]}, ""])},
                          {"payload_base64": self.pick(["AAH/", "", "not base64"])}])
        if self.chance(0.3):
            body["priority"] = self.priority()
        if self.chance(0.3):
            body["metadata"] = {"mended": True}
        self.ready += 1
        return {"message": self.message(), "body": body,
                "bytes": self.pick(["mended", "ff00fe", ""]) if self.chance(0.2) else None}

    # Rules that change under what is there: of the levels that the queue has by then, by their place

    def claims(self):
        return [self.claim()["fields"] for _ in range(self.random.randint(1, 5))]

    def spread(self):
        """Levels of one batch, by their place."""
        count = self.random.randint(0, 12)
        self.count_stored(count)
        return [self.random.randrange(6) for _ in range(count)]

    def tune(self):
        """Weights and limits, and who is served by them."""
        rules = []
        for _ in range(6):
            rule = {}
            if self.chance(0.7):
                rule["weight"] = self.pick([1, 2, 3, 4, 8])
            if self.chance(0.4):
                rule["max_in_flight"] = self.pick([1, 2, 3, None])
            rules.append(rule)
        return {"rules": rules, "policy": self.pick(["strict", "weighted", "weighted"]),
                "batch": self.spread(), "before": self.claims(), "late": self.spread(),
                "after": self.claims()}

    def remake(self):
        """The queue is deleted and made again by one server, behind the back of the others: as often
        as it takes until one of them has not heard of the first before the second."""
        self.ready = 0
        return {"times": 4, "batch": self.spread(), "claims": self.claims()}

    # Schedules

    def schedule(self):
        return self.pick(["nightly", "a.b", "Z_1"])

    def schedule_set(self):
        """Due far away: what is put then is for other tests."""
        rule = self.pick([{"cron": "0 0 29 2 *"}, {"cron": "0 0 29 FEB */7", "time_zone": "Asia/Tokyo"},
                          {"every_seconds": 366 * 86400}, {"cron": "0 0 31 2 *"},
                          {"cron": "@yearly", "time_zone": "No/Where"}, {}])
        extra = {}
        if self.chance(0.3):
            extra["missed"] = self.pick(["skip", "once", "all", "none"])
        if self.chance(0.3):
            extra["grace_seconds"] = self.pick([1, 2.5, 86400, 0])
        if self.chance(0.3):
            extra["paused"] = self.chance(0.5)
        return {"schedule": self.schedule(), "body": {**self.body(), **rule, **extra}}

    def schedule_show(self):
        return {"schedule": self.schedule(), "next": self.pick([0, 1, 5, 100, 101])}

    def schedule_list(self):
        return {"limit": self.pick([1, 2, 100])}

    def schedule_delete(self):
        return {"schedule": self.schedule()}

    # Steps that wait for the clock

    def grow_old(self):
        """All that is there has waited as long as some levels' rules ask, which then are taken back.
        There is one time for all promises: which of two ends first is not the clock's to say."""
        rules = [{"age_after_seconds": self.pick([INSTANT, INSTANT, FAR, None]),
                  "max_wait_seconds": self.pick([INSTANT, FAR, None, None])} for _ in range(6)]
        return {"rules": rules, "policy": self.pick(["strict", "weighted"]),
                "batch": self.spread(), "restart": self.chance(0.5),
                "claims": [{"max": self.pick([2, 3, 5])}, *self.claims()]}

    def become_ready(self):
        self.count_stored(1)
        return {"body": {"payload": "soon", "priority": self.priority(), "delay_seconds": SOON}}

    def expire(self):
        self.stored += 1
        return {"body": {"payload": "short", "priority": self.priority(), "ttl_seconds": SOON}}

    def lose_lease(self):
        self.delivered += 1
        return {"fields": {"max": self.pick([1, 2]), "visibility_timeout_seconds": SOON}}

    def forget(self):
        """A history that is short for a while: what was done before is not kept any more."""
        return {"later": self.pick([0, FAR])}

    def restart(self):
        """Where there is something to restart; the rest goes on as if nothing had happened."""
        return {}

    def step(self):
        names = list(WEIGHTS)
        name = self.random.choices(names, [WEIGHTS[n] for n in names])[0]
        return [name, getattr(self, name)()]


WEIGHTS = {
    "enqueue": 20, "enqueue_bytes": 2, "batch": 10, "claim": 18, "claim_by_get": 3, "claim_many": 3, "ack": 8,
    "ack_batch": 3, "nack": 6, "settle_batch": 3, "die": 1.5, "amend": 2,
    "release": 3, "extend": 2, "show": 4, "position": 5, "cancel": 3, "escalate": 4,
    "escalate_many": 2, "configure": 6, "try_configure": 1, "patch": 3, "try_patch": 1, "show_config": 1, "stats": 4, "list_queues": 1, "export": 2,
    "browse": 3, "act": 2.5, "promote": 1.5,
    "move": 0.7, "pause": 0.7, "resume": 2, "purge": 0.4, "delete_queue": 0.4, "dead_list": 2,
    "dead_show": 1, "dead_drop": 0.5, "dead_purge": 0.3, "redrive": 1.5, "become_ready": 0.5,
    "expire": 0.4, "lose_lease": 0.4, "forget": 0.3, "restart": 0.7, "tune": 1.5, "grow_old": 1,
    "remake": 1, "schedule_set": 2, "schedule_show": 1,
    "schedule_list": 0.7, "schedule_delete": 0.5,
}


def sequence(seed, length):
    generator = Generator(seed)
    return [generator.step() for _ in range(length)]
