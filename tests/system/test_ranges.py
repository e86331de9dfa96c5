"""What a value may be: the HTTP interface and the SQL functions of one database take the same values
and refuse the same. Each limit is tried at its end and one step behind it, on both sides."""

import itertools
import json

import psycopg2
import pytest

import database
from database import LIMITS, Session
from server import Server
from wire import AT_ONCE, Queue

DELAY, TTL, LEASE = (LIMITS[n] for n in ("DELAY_SECONDS_MAX", "TTL_SECONDS_MAX",
                                         "LEASE_SECONDS_MAX"))
COUNT, TIME = LIMITS["COUNT_MAX"], LIMITS["TIME_MS_MAX"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A server and a session on its database."""
    server = Server(tmp_path_factory.mktemp("ranges"), engine="postgres").start()
    name = server.settings["postgres"].split("dbname=")[1].split()[0]
    with Session(database.shared().connect(name)) as session:
        yield server, session
    server.stop()


numbers = itertools.count(1)


class Side:
    """Whoever takes the values. A call returns whether they were taken."""

    def __init__(self, both):
        self.server, self.session = both
        self.client = self.server.client()
        self.name = f"q{next(numbers)}"
        self.queue = Queue(self.client, self.name)
        self.queue.configure()

    def leased(self):
        self.queue.put("x")
        return self.queue.take_one()


class Http(Side):
    def judge(self, answer):
        assert answer.status < 300 or answer.status in (413, 422), answer
        return answer.status < 300

    def configure(self, name, config):
        return self.judge(self.client.put(f"/v1/queues/{name or self.name}", config))

    def enqueue(self, payload="x", **fields):
        return self.judge(self.queue.enqueue(payload, **fields))

    def nack(self, **fields):
        return self.judge(self.queue.nack(self.leased(), **fields))

    def extend(self, seconds):
        return self.judge(self.queue.extend(self.leased(), seconds))

    def claim(self, **fields):
        return self.judge(self.queue.claim(**fields))

    def escalate(self, **fields):
        path = self.queue.message_path(self.queue.put("x")) + "/priority"
        return self.judge(self.client.post(path, {"priority": 9, **fields}))

    def escalate_many(self, filter, **fields):
        return self.judge(self.client.post(self.queue.path + "/messages/priority",
                                           {"priority": 9, "filter": filter, **fields}))


class Sql(Side):
    names = {"delay_seconds": "delay", "ttl_seconds": "ttl",
             "visibility_timeout_seconds": "visibility_timeout"}

    def call(self, function, *args, **fields):
        named = [f"{self.names.get(k, k)} => %s" + ("::interval" if k in self.names else "")
                 for k in fields]
        values = [f"{v:.6f} seconds" if k in self.names else json.dumps(v) if k == "metadata" else v
                  for k, v in fields.items()]
        try:
            self.session.run(f"SELECT triage.{function}({', '.join(['%s'] * len(args) + named)})",
                             *args, *values)
        except psycopg2.Error as e:
            assert e.pgcode in ("TR413", "TR422") and e.diag.constraint_name, e
            return False
        return True

    def configure(self, name, config):
        return self.call("configure", name or self.name, json.dumps(config))

    def enqueue(self, payload="x", **fields):
        many = set(fields) <= {"delay_seconds", "ttl_seconds"}
        one = self.call("enqueue", self.name, payload, **fields)
        assert not many or one == self.call("enqueue_many", self.name, ["y", payload], **fields)
        return one

    def nack(self, **fields):
        m = self.leased()
        return self.call("nack", m["message_id"], m["receipt_handle"], **fields)

    def extend(self, seconds):
        m = self.leased()
        return self.call("extend", m["message_id"], m["receipt_handle"],
                         visibility_timeout_seconds=seconds)

    def claim(self, **fields):
        return self.call("claim", self.name, **fields)

    def escalate(self, **fields):
        return self.call("escalate", self.queue.put("x"), "9", **fields)

    def escalate_many(self, filter, **fields):
        return self.call("escalate_many", self.name, "9", json.dumps(filter), **fields)


def level(**fields):
    return {"levels": [{"name": "a", **fields}], "drop_levels": True}


def members(count):
    return {f"k{n}": n for n in range(count)}


def text_of(size):
    """Metadata of so many bytes as JSON text, with a blank behind each colon as both count it."""
    return {"k": "x" * (size - len('{"k": ""}'))}


def url(size):
    return "http://h/" + "x" * (size - 9)


# (what is asked, values that are taken, values that are refused)
VALUES = {
    "payload": (lambda s, v: s.enqueue("x" * v), [0, LIMITS["PAYLOAD_MAX"]],
                [LIMITS["PAYLOAD_MAX"] + 1, 2**20]),
    "delay": (lambda s, v: s.enqueue(delay_seconds=v), [0, 0.5, DELAY],
              [-1, DELAY + 1, 5000 * 366 * 86400]),
    "ttl": (lambda s, v: s.enqueue(ttl_seconds=v), [0.0006, TTL], [0, 0.0004, -1, TTL + 1]),
    "dequeue_at": (lambda s, v: s.enqueue(dequeue_at=v), [-TIME, TIME], [-TIME - 1, TIME + 1]),
    "delay_until": (lambda s, v: s.enqueue(delay_until=v),
                    ["2026-04-09T15:00:00Z", "6429-10-17T02:45:55Z"], ["6429-10-17T02:45:56Z"]),
    "dedup_key": (lambda s, v: s.enqueue(dedup_key="k" * v), [1, LIMITS["DEDUP_KEY_MAX"]],
                  [0, LIMITS["DEDUP_KEY_MAX"] + 1]),
    "metadata bytes": (lambda s, v: s.enqueue(metadata=text_of(v)), [LIMITS["METADATA_MAX"]],
                       [LIMITS["METADATA_MAX"] + 1]),
    "metadata members": (lambda s, v: s.enqueue(metadata=members(v)),
                         [0, LIMITS["METADATA_KEYS_MAX"]], [LIMITS["METADATA_KEYS_MAX"] + 1]),
    "metadata values": (lambda s, v: s.enqueue(metadata={"k": v}), ["x", 1, True, None], [[], {}]),
    "priority": (lambda s, v: s.enqueue(priority=v), ["0", "9"], ["10", "x" * 65]),
    "max": (lambda s, v: s.claim(max=v), [1, LIMITS["CLAIM_MAX"]], [0, LIMITS["CLAIM_MAX"] + 1]),
    "visibility of a claim": (lambda s, v: s.claim(visibility_timeout_seconds=v), [0, LEASE],
                              [-1, LEASE + 1, 10**9]),
    "visibility of an extend": (lambda s, v: s.extend(v), [0, LEASE], [-1, LEASE + 1, 10**9]),
    "nack delay": (lambda s, v: s.nack(delay_seconds=v), [0, DELAY], [-1, DELAY + 1]),
    "nack reason": (lambda s, v: s.nack(reason="ü" * v), [0, LIMITS["REASON_MAX"] // 2],
                    [LIMITS["REASON_MAX"] // 2 + 1]),
    "actor": (lambda s, v: s.escalate(actor="a" * v), [1, LIMITS["ACTOR_MAX"]],
              [0, LIMITS["ACTOR_MAX"] + 1]),
    "reason": (lambda s, v: s.escalate(reason="r" * v), [0, LIMITS["REASON_MAX"]],
               [LIMITS["REASON_MAX"] + 1]),
    "actor of many": (lambda s, v: s.escalate_many({}, actor="a" * v), [1, LIMITS["ACTOR_MAX"]],
                      [0, LIMITS["ACTOR_MAX"] + 1]),
    "older_than": (lambda s, v: s.escalate_many({"older_than_seconds": v}), [0, DELAY, None],
                   [-1, DELAY + 1, "1"]),
    "filter members": (lambda s, v: s.escalate_many({"metadata": members(v)}),
                       [0, LIMITS["METADATA_KEYS_MAX"]], [LIMITS["METADATA_KEYS_MAX"] + 1]),
    "queue": (lambda s, v: s.configure(v, {}), ["x" * LIMITS["QUEUE_NAME_MAX"], "...", "A.b_c-1"],
              ["x" * (LIMITS["QUEUE_NAME_MAX"] + 1), "a~b"]),
    "visibility": (lambda s, v: s.configure(None, {"visibility_timeout_seconds": v}), [0, LEASE],
                   [-1, LEASE + 1, 10**15, None, "1"]),
    "max_attempts": (lambda s, v: s.configure(None, {"max_attempts": v}),
                     [1, LIMITS["ATTEMPTS_MAX"]], [0, LIMITS["ATTEMPTS_MAX"] + 1, 1.5, None]),
    "ttl_seconds": (lambda s, v: s.configure(None, {"ttl_seconds": v}), [0.001, TTL, None],
                    [0, 0.0001, TTL + 1]),
    "base_seconds": (lambda s, v: s.configure(None, {"retry": {**AT_ONCE, "base_seconds": v}}),
                     [0, DELAY], [-1, DELAY + 1, None]),
    "max_seconds": (lambda s, v: s.configure(None, {"retry": {**AT_ONCE, "max_seconds": v}}),
                    [0, DELAY], [-1, DELAY + 1, None]),
    "base_seconds of a new queue": (lambda s, v: s.configure(None, {"retry": {"base_seconds": v}}),
                                    [300], [301]),
    "exponential": (lambda s, v: s.configure(None, {"retry": {
        "backoff": "exponential", "base_seconds": 5, "max_seconds": v}}), [5], [4.9]),
    "jitter": (lambda s, v: s.configure(None, {"retry": {"jitter": v}}), [0, 1], [-0.1, 1.1, "1"]),
    "backoff": (lambda s, v: s.configure(None, {"retry": {"backoff": v}}), ["none", "fixed"],
                ["linear", 1]),
    "window": (lambda s, v: s.configure(None, {"dedup": {"window_seconds": v}}), [0, TTL],
               [-1, TTL + 1, None]),
    "scope": (lambda s, v: s.configure(None, {"dedup": {"scope": v}}), ["window", "live"], ["all"]),
    "expired": (lambda s, v: s.configure(None, {"expired": v}), ["drop", "dead"], ["gone"]),
    "profile": (lambda s, v: s.configure(None, {"profile": v, "drop_levels": True}), ["tiers"],
                ["x", 5, None]),
    "policy": (lambda s, v: s.configure(None, {"policy": v}), ["strict", "weighted"], ["fair"]),
    "max_depth": (lambda s, v: s.configure(None, {"max_depth": v}), [1, COUNT, None],
                  [0, COUNT + 1, 1.5]),
    "max_bytes": (lambda s, v: s.configure(None, {"max_bytes": v}), [1, COUNT, None],
                  [0, COUNT + 1]),
    "max_in_flight": (lambda s, v: s.configure(None, {"max_in_flight": v}),
                      [1, LIMITS["IN_FLIGHT_MAX"], None], [0, LIMITS["IN_FLIGHT_MAX"] + 1]),
    "history": (lambda s, v: s.configure(None, {"history_seconds": v}),
                [0, LIMITS["HISTORY_SECONDS_MAX"]], [-1, LIMITS["HISTORY_SECONDS_MAX"] + 1]),
    "dead_letters": (lambda s, v: s.configure(None, {"alerts": {"dead_letters": v}}),
                     [1, COUNT, None], [0, COUNT + 1]),
    "oldest_ready": (lambda s, v: s.configure(None, {"alerts": {"oldest_ready_seconds": v}}),
                     [1, DELAY, None], [0, DELAY + 1, 1.5]),
    "webhook": (lambda s, v: s.configure(None, {"alerts": {"webhook": v}}),
                [url(LIMITS["WEBHOOK_MAX"]), "https://x", None],
                [url(LIMITS["WEBHOOK_MAX"] + 1), url(600), "ftp://x", "http://", "http://a b",
                 "http://a\nb", ""]),
    "levels": (lambda s, v: s.configure(None, {"levels": [{"name": f"l{n}"} for n in range(v)],
                                                   "drop_levels": True}),
               [1, LIMITS["LEVEL_COUNT_MAX"]], [0, LIMITS["LEVEL_COUNT_MAX"] + 1]),
    "level name": (lambda s, v: s.configure(None, level(name=v)),
                   ["x", "x" * LIMITS["LEVEL_NAME_MAX"], "a\x85b"],
                   ["", "x" * (LIMITS["LEVEL_NAME_MAX"] + 1), "a\tb", 1, None]),
    "level number": (lambda s, v: s.configure(None, level(number=v)),
                     [LIMITS["LEVEL_NUMBER_MAX"], -LIMITS["LEVEL_NUMBER_MAX"], 1.0, None],
                     [LIMITS["LEVEL_NUMBER_MAX"] + 1, -LIMITS["LEVEL_NUMBER_MAX"] - 1, 1.5, "1"]),
    "weight": (lambda s, v: s.configure(None, level(weight=v)), [0.001, 1.234, 1000000],
               [0, 0.0009, 1.2345, 1000001, None]),
    "age_after": (lambda s, v: s.configure(None, level(age_after_seconds=v)), [0.001, DELAY, None],
                  [0, DELAY + 1]),
    "max_wait": (lambda s, v: s.configure(None, level(max_wait_seconds=v)), [0.001, DELAY, None],
                 [0, DELAY + 1]),
    "level in flight": (lambda s, v: s.configure(None, level(max_in_flight=v)),
                        [1, LIMITS["IN_FLIGHT_MAX"], None], [0, LIMITS["IN_FLIGHT_MAX"] + 1]),
    "level field": (lambda s, v: s.configure(None, level(**{v: 1})), ["weight"], ["height"]),
    "level twice": (lambda s, v: s.configure(None, {"drop_levels": True, "levels": [
        {"name": "a", "number": 5}, {"name": "7", "number": v}]}), [4, 7], [5]),
    "level called as a number": (lambda s, v: s.configure(None, {"drop_levels": True, "levels": [
        {"name": v, "number": 8}, {"name": "b", "number": 7}]}), ["8", "9"], ["7", "b"]),
    "level by name": (lambda s, v: s.configure(None, {"levels": v}),
                      [{}, {"9": {}}, {"9": {"weight": 2}, "8": {"number": None}}],
                      [{"x": {}}, {"9": 1}, {"9": {"name": "9"}}, {"9": {"x": 1}},
                       {"9": {"weight": 0}}, {"9": {"number": 8}}, 5, None]),
    "drop_levels": (lambda s, v: s.configure(None, {"drop_levels": v}), [True, False, None, "empty"],
                    ["all", 1]),
    "paused": (lambda s, v: s.configure(None, {"paused": v}), [True, False], [None, 1]),
    "name": (lambda s, v: s.configure(None, {"name": v}), ["other"], [None, 1]),
    "field": (lambda s, v: s.configure(None, v), [{}], [{"x": 1}, {"retry": {"x": 1}}, {"retry": 1}]),
}


@pytest.mark.parametrize("side", [Http, Sql])
@pytest.mark.parametrize("what", VALUES)
def test_http_and_sql_take_the_same_values_and_refuse_the_same(both, side, what):
    ask, taken, refused = VALUES[what]
    own = side(both)
    for value in taken:
        assert ask(own, value), (what, value)
    for value in refused:
        assert not ask(own, value), (what, value)


def test_sql_refuses_what_http_cannot_even_say(both):
    own = Sql(both)
    for delay_until in ("infinity", "-infinity", "294276-12-31"):
        assert not own.call("enqueue", own.name, "x", delay_until=delay_until)
    assert not own.call("enqueue_many", own.name, ["x", None])
    assert not own.call("enqueue", "..", "x") and not own.call("enqueue", ".", "x")
    assert not own.call("enqueue", None, "x") and not own.call("enqueue", own.name, None)
