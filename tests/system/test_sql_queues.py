"""Queues through the SQL interface on a real PostgreSQL: their configuration, limits and policies."""

import collections
import json
import threading

import psycopg2
import pytest


# Configuration


def test_configuration_reads_back_as_it_was_given(make):
    q = make(profile="tiers", max_attempts=7, retry={"backoff": "fixed"}, ttl_seconds=1.5)
    c = q.one("SELECT triage.config(%s)", q.queue)
    assert c | {"profile": "tiers", "policy": "weighted", "max_attempts": 7, "ttl_seconds": 1.5,
                "visibility_timeout_seconds": 300, "max_depth": None} == c
    assert c["retry"] == {"backoff": "fixed", "base_seconds": 1, "max_seconds": 300, "jitter": 0.1}
    assert [level["age_after_seconds"] for level in c["levels"]] == [None, None, None, 1800, 3600]
    for bad, name in (({"typo": 1}, "unknown-field"), ({"policy": "best"}, "invalid-field"),
                      ({"max_attempts": 0}, "invalid-field"), ({"levels": []}, "invalid-field"),
                      ({"retry": {"backof": "none"}}, "unknown-field"),
                      ({"levels": [{"name": "a"}, {"name": "a"}]}, "invalid-field"),
                      ({"default_priority": "x"}, "unknown-priority")):
        assert q.refusal("SELECT triage.configure(%s, %s)", q.queue, json.dumps(bad)) == (
            "TR422", name)
    assert q.one("SELECT triage.config(%s)", q.queue) == c


def test_levels_keep_their_messages_by_name(make):
    q = make(levels=[{"name": "a"}, {"name": "b"}])
    q.put("in a", priority="a")
    q.put("in b", priority="b")
    assert q.refusal("SELECT triage.configure(%s, %s)", q.queue,
                     '{"levels": [{"name": "b"}], "drop_levels": true}') == ("TR409", "level-in-use")
    q.run("SELECT triage.configure(%s, %s)", q.queue,
          '{"levels": [{"name": "new"}, {"name": "b"}, {"name": "a"}]}')
    assert q.payloads(2) == ["in b", "in a"]


def test_a_level_is_changed_by_its_name_and_none_is_dropped_unasked(make):
    q = make(profile="tiers")
    before = q.one("SELECT triage.config(%s)", q.queue)

    def configure(**config):
        return q.one("SELECT triage.configure(%s, %s)", q.queue, json.dumps(config))

    def refusal(**config):
        return q.refusal("SELECT triage.configure(%s, %s)", q.queue, json.dumps(config))

    assert configure(profile="tiers") == before
    assert refusal(levels=[{"name": "LOW"}]) == ("TR409", "levels-dropped")
    assert refusal(profile="levels") == ("TR409", "levels-dropped")
    assert refusal(levels={"LO": {"weight": 1}}) == ("TR422", "unknown-priority")
    assert refusal(levels={"LOW": 1}) == ("TR422", "invalid-field")
    assert refusal(levels={"LOW": {"number": 0}}) == ("TR422", "invalid-field")
    assert refusal(drop_levels="all") == ("TR422", "invalid-field")
    assert q.one("SELECT triage.config(%s)", q.queue) == before
    now = configure(levels={"LOW": {"weight": 3}})
    assert [level["weight"] for level in now["levels"]] == [8, 4, 2, 3, 0.5]
    assert (now["profile"], now["default_priority"], now["levels"][3]["age_after_seconds"]) == (
        "tiers", "2", 1800)
    assert configure(profile="tiers", max_attempts=8) == {**now, "max_attempts": 8}
    assert configure(levels=[*({"name": l["name"]} for l in now["levels"]), {"name": "LATER"}],
                     policy="strict", default_priority="LOW")["profile"] == "custom"
    again = configure(profile="tiers", drop_levels=True)
    assert again == {**now, "max_attempts": 8, "policy": "strict", "default_priority": "3"}
    configure(policy="weighted", default_priority="NORMAL")
    now = configure(levels=[{"name": "LOW"}, {"name": "HIGH", "weight": 9}], drop_levels=True)
    assert [(level["name"], level["weight"]) for level in now["levels"]] == [("LOW", 3), ("HIGH", 9)]
    assert now["default_priority"] == "1", "HIGH: the middle of two is the less urgent"


def test_what_is_shown_of_a_queue_can_be_given_to_another(make):
    q = make(profile="tiers", max_attempts=7, alerts={"dead_letters": 3}, ttl_seconds=1.5)
    q.run("SELECT triage.pause(%s)", q.queue)
    for config in ({}, {"levels": {"LOW": {"weight": 3}}}):
        shown = q.one("SELECT triage.configure(%s, %s)", q.queue, json.dumps(config))
        other = make()
        assert other.one("SELECT triage.configure(%s, %s)", other.queue, json.dumps(
            {**shown, "drop_levels": True})) == {**shown, "name": other.queue}


def test_levels_that_hold_messages_stay_under_another_name_where_theirs_is_a_number(make):
    q = make()
    q.put("normal")
    q.put("least", priority="0")
    now = q.one("SELECT triage.configure(%s, %s)", q.queue,
                '{"profile": "tiers", "policy": "strict", "drop_levels": "empty"}')
    assert [level["name"] for level in now["levels"]] == [
        "CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND", "5", "0-old"]
    q.put("most", priority="0")
    assert q.payloads(3) == ["most", "normal", "least"]


def test_a_message_whose_level_vanished_meanwhile_joins_the_default(make):
    q = make(levels=[{"name": "a"}, {"name": "b"}])
    other = make(like=q)
    q.run("BEGIN")
    q.put("stray", priority="b")
    other.run("SELECT triage.configure(%s, %s)", q.queue,
              '{"levels": [{"name": "a"}], "drop_levels": true}')
    q.run("COMMIT")
    q.run("SELECT triage.engine_sweep(100, triage.now_ms() + 1000)")
    assert q.payloads() == ["stray"]


def test_a_deleted_queue_is_gone_at_once_and_swept_later(make):
    q = make()
    for n in range(5):
        q.put(str(n), **({"delay": "1 hour"} if n % 2 else {}))
    q.put("L" * 3000)
    held = q.claim(1, visibility_timeout="0")
    assert q.refusal("SELECT triage.drop_queue(%s)", q.queue) == ("TR409", "queue-not-empty")
    q.run("SELECT triage.drop_queue(%s, force => true)", q.queue)
    assert q.refusal("SELECT triage.ack(%s, 'rh_')", held[0]["message_id"]) == (
        "TR404", "message-not-found")
    for _ in range(5):
        q.run("SELECT triage.sweep()")
    for table in ("ready", "scheduled", "leased", "tally", "lane", "counted"):
        assert q.one(f"SELECT count(*) FROM triage.{table} WHERE queue = %s", q.id) == 0
    assert q.one("SELECT count(*) FROM triage.queue WHERE id = %s", q.id) == 0
    q.run("SELECT triage.enqueue(%s, 'fresh')", q.queue)
    assert q.one("SELECT id FROM triage.queue WHERE name = %s", q.queue) > q.id


def test_a_server_with_an_old_configuration_in_mind_is_told_so(q):
    old = q.version
    q.run("SELECT triage.configure(%s, '{\"max_attempts\": 5}')", q.queue)
    assert q.refusal("SELECT * FROM triage.engine_claim(%s, %s, '{0}', 1, NULL,"
                     " triage.receipts(1))", q.id, old)[0] == "TRCFG"


# Limits


def test_a_full_queue_refuses(make):
    q = make(max_depth=2)
    q.put()
    q.put()
    assert q.refusal("SELECT triage.enqueue(%s, 'x')", q.queue) == ("TR429", "queue-full")
    m = q.claim()[0]
    q.put()
    assert q.nack(m) == "ready"  # what was in stays in
    q = make(max_bytes=10)
    assert q.refusal("SELECT triage.enqueue(%s, %s)", q.queue, "x" * 11) == (
        "TR413", "payload-too-large")
    q.put("x" * 6)
    assert q.refusal("SELECT triage.enqueue(%s, %s)", q.queue, "x" * 5) == ("TR429", "queue-full")


def test_a_limit_holds_when_many_enqueue_at_once(make):
    q = make(max_depth=20)
    sessions = [make(like=q) for _ in range(6)]

    def fill(own):
        for _ in range(10):
            try:
                own.put()
            except psycopg2.Error as e:
                assert e.pgcode == "TR429"

    threads = [threading.Thread(target=fill, args=(s,)) for s in sessions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert q.stats()["ready"] == 20


def test_a_level_at_its_limit_is_skipped_and_a_queue_at_its_limit_stops(make):
    q = make(levels=[{"name": "a", "max_in_flight": 1}, {"name": "b"}], max_in_flight=3)
    for _ in range(3):
        q.put("a", priority="a")
        q.put("b", priority="b")
    got = q.claim(6)
    assert [m["payload"] for m in got] == ["a", "b", "b"]
    assert q.claim() == []
    q.ack(got[0])
    assert q.payloads(6) == ["a"]


# Policies


def fill(q, counts):
    for name, n in counts.items():
        q.run("SELECT count(*) FROM triage.enqueue_many(%s, %s, %s)", q.queue, [name] * n, name)


TIERS = {"CRITICAL": 16, "HIGH": 8, "NORMAL": 4, "LOW": 2, "BACKGROUND": 1}


@pytest.mark.parametrize("batch", [1, 7])
def test_shares_are_exact_over_whole_cycles(make, batch):
    q = make(profile="tiers")
    fill(q, {name: 200 for name in TIERS})
    got = collections.Counter()
    while got.total() < 31 * 7:
        got.update(q.payloads(min(batch, 31 * 7 - got.total())))
    assert got == {name: 7 * n for name, n in TIERS.items()}


def test_shares_hold_over_two_sessions_together(make):
    q = make(profile="environments")
    other = make(like=q)
    fill(q, {name: 300 for name in ("production", "staging", "qa", "development")})
    got = collections.Counter(p for n in range(200) for p in (q, other)[n % 3 == 0].payloads())
    for name, share in (("production", 4), ("staging", 3), ("qa", 2), ("development", 1)):
        assert abs(got[name] - 200 * share / 10) <= 200 * 0.02


def test_shares_hold_over_sessions_of_one_claim_each(make):
    q = make(profile="environments")
    fill(q, {name: 400 for name in ("production", "staging", "qa", "development")})
    q.run("SELECT setseed(0.25)")
    got = collections.Counter()
    for _ in range(400):
        q.run("SELECT set_config(%s, '', false)", f"triage.tokens_{q.id}")
        got.update(q.payloads())
    assert 20 <= got["development"] <= 60 and 125 <= got["production"] <= 195, got


def test_weighted_is_never_idle_while_something_is_ready(make):
    q = make(profile="tiers")
    fill(q, {"BACKGROUND": 40})
    assert len([p for _ in range(40) for p in q.payloads()]) == 40


def test_a_head_that_waited_counts_as_more_urgent(make):
    levels = [{"name": "a"}, {"name": "b", "age_after_seconds": 60},
              {"name": "c", "age_after_seconds": 30}]
    q = make(levels=levels)
    now = q.one("SELECT triage.now_ms()")
    q.put("a", priority="a")
    q.put("b", priority="b")
    q.put("fresh c", priority="c", dequeue_at=now - 5_000)
    q.put("as b", priority="c", dequeue_at=now - 40_000)
    q.put("as a", priority="c", dequeue_at=now - 95_000)
    got = q.claim(5)
    assert [(m["payload"], m["effective_level"]) for m in got] == [
        ("as a", "a"), ("a", "a"), ("as b", "b"), ("b", "b"), ("fresh c", "c")]
    assert {m["level"] for m in got if "as" in m["payload"]} == {"c"}
