"""Several servers on one database: each serves what the others made, filled, configured and deleted."""

import json
import threading
import time

import pytest

import database
from bounds import LOOKED_AT_EACH_SECOND
from test_waiting import claim_bytes, payloads, until_waiting
from wire import Connection, until


@pytest.fixture
def two(start):
    """Two servers on one empty database."""
    first = start(engine="postgres")
    return first, start(engine="postgres", postgres=first.settings["postgres"])


def sql(server):
    name = server.settings["postgres"].split("dbname=")[1].split()[0]
    return database.Session(database.shared().connect(name))


def wait_on(server, queue):
    connection = Connection(server.address)
    connection.send(claim_bytes(queue, wait_seconds=60))
    until_waiting(queue, 1)
    return connection


def test_a_consumer_on_one_server_gets_what_is_enqueued_on_the_other(two):
    here, there = two
    here.queue("q").configure(profile="tiers")
    for number in range(20):
        consumer = wait_on(there, there.queue("q"))
        here.queue("q").put(f"m{number}", priority="HIGH")
        assert payloads(consumer.answer()) == [f"m{number}"]
        consumer.close()


def test_one_message_wakes_one_consumer(two):
    here, there = two
    there.queue("q").configure()
    line = [Connection(there.address) for _ in range(5)]
    for number, connection in enumerate(line):
        connection.send(claim_bytes(there.queue("q"), wait_seconds=60))
        until_waiting(there.queue("q"), number + 1)
    here.queue("q").put("only one")
    assert payloads(line[0].answer()) == ["only one"]
    until_waiting(there.queue("q"), 4)
    for connection in line:
        connection.close()


def test_who_waited_in_vain_looks_once_more_behind_a_claim_under_way(start):
    """What was counted for the first in line is left when it gets something more urgent."""
    server = start(engine="postgres")
    queue = server.queue("q")
    queue.configure()
    first = wait_on(server, queue)
    second = Connection(server.address)
    with sql(server) as s:
        s.run("BEGIN")
        s.run("SELECT triage.enqueue('q', 'urgent'::text, '9')")
        s.run("LOCK TABLE triage.level")  # claims look there first, and wait
        second.send(claim_bytes(queue, wait_seconds=1))
        until(lambda: server.metrics()["triage_broker_waiting"] == 2)
        queue.put("patient", priority=0)
        until(lambda: server.metrics()["triage_broker_waiting"] == 0)
        s.run("COMMIT")
    assert payloads(first.answer()) == ["urgent"]
    assert payloads(second.answer()) == ["patient"]
    first.close()
    second.close()


def test_who_does_not_wait_gets_what_was_acknowledged_elsewhere_while_others_wait_here(two):
    """Somebody who waits for something else keeps the queue looked at; that is not news of it."""
    here, there = two
    here.queue("q").configure()
    stop = threading.Event()

    def wait_for_urgent():
        while not stop.is_set():
            assert there_too.take(min_priority=9, wait_seconds=0.02) == []

    there_too = there.queue("q")
    thread = threading.Thread(target=wait_for_urgent)
    thread.start()
    try:
        missed = []
        for number in range(100):
            here.queue("q").put(f"m{number}", priority=1)
            if [m["payload"] for m in there.queue("q").take()] != [f"m{number}"]:
                missed.append(number)
                until(lambda: there.queue("q").take())
    finally:
        stop.set()
        thread.join()
    assert missed == []


def test_configuration_reaches_every_server(two):
    here, there = two
    made = here.queue("q").configure(profile="tiers", max_attempts=7)
    assert there.client().get("/v1/queues/q").json == made
    changed = there.queue("q").configure(policy="strict")
    until(lambda: here.client().get("/v1/queues/q").json == changed)
    there.queue("q").put("x", priority="LOW")
    [message] = here.queue("q").take()
    assert (message["level"], message["payload"]) == ("LOW", "x")
    assert here.client().delete("/v1/queues/q", force=True).status == 204
    until(lambda: there.client().get("/v1/queues/q").status == 404)


def at_once(*jobs):
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("which", [(0, 0), (0, 1)], ids=["one server", "two"])
def test_changes_of_a_configuration_do_not_undo_each_other(two, which):
    """Each is made from what was there before, and written as a whole."""
    first, second = (two[which[n]].queue("q") for n in (0, 1))
    first.configure()
    assert second.client.get(second.path).status == 200
    for number in range(1, 21):
        at_once(lambda: first.configure(max_attempts=number),
                lambda: second.configure(visibility_timeout_seconds=number))
        with sql(two[0]) as s:
            now = s.one("SELECT triage.config('q')")
        assert (now["max_attempts"], now["visibility_timeout_seconds"]) == (number, number)


@pytest.mark.parametrize("which", [(0, 0), (0, 1)], ids=["one server", "two"])
def test_patches_of_one_level_do_not_undo_each_other(two, which):
    first, second = (two[which[n]].queue("q") for n in (0, 1))
    first.configure(profile="tiers")
    assert second.client.get(second.path).status == 200

    def patch(queue, name, number):
        answer = queue.client.request("PATCH", queue.path, {"levels": {name: {"weight": number}}})
        assert answer.status == 200, answer

    for number in range(1, 21):
        at_once(lambda: patch(first, "CRITICAL", number), lambda: patch(second, "LOW", number),
                lambda: put_order(two[0], number))
        with sql(two[0]) as s:
            now = s.one("SELECT triage.config('q')")
        weights = {level["name"]: level["weight"] for level in now["levels"]}
        assert (weights["CRITICAL"], weights["LOW"], weights["HIGH"]) == (number, number, number)


def put_order(server, number):
    """A level by SQL, in a transaction of its own."""
    with sql(server) as s:
        s.run("SELECT triage.configure('q', %s)", json.dumps({"levels": {"HIGH": {"weight": number}}}))


def test_levels_that_another_server_gave_the_queue_are_known_to_an_import(two):
    here, there = two
    here.queue("from").configure(profile="tiers")
    here.queue("from").put("x", priority="LOW")
    lines = here.client().get("/v1/queues/from/export").body
    for number in range(20):
        name = f"to{number}"
        here.queue(name).put("first")
        assert there.client().get(f"/v1/queues/{name}").status == 200
        here.queue(name).configure(profile="tiers", drop_levels="empty")
        answer = there.client().request("POST", f"/v1/queues/{name}/messages/import", lines,
                                        {"Content-Type": "application/x-ndjson"})
        assert answer.status == 200 and "message_id" in answer["results"][0], answer
        assert there.queue(name).show(answer["results"][0]["message_id"])["level"] == "LOW"


@pytest.mark.parametrize("change", [
    lambda server: server.queue("q").configure(max_depth=5),
    lambda server: sql(server).run("""SELECT triage.configure('q', '{"max_depth": 5}')"""),
], ids=["HTTP", "SQL"])
def test_a_change_that_waits_for_another_is_made_from_what_that_one_left(start, change):
    server = start(engine="postgres")
    server.queue("q").configure()
    with sql(server) as s, sql(server) as watch:
        s.run("BEGIN")
        s.run("""SELECT triage.configure('q', '{"max_attempts": 7}')""")
        thread = threading.Thread(target=change, args=(server,))
        thread.start()
        until(lambda: watch.one("SELECT count(*) FROM pg_stat_activity WHERE "
                                "wait_event_type = 'Lock' AND datname = current_database()") == 1)
        s.run("COMMIT")
        thread.join()
        now = s.one("SELECT triage.config('q')")
    assert (now["max_attempts"], now["max_depth"]) == (7, 5)


def test_a_name_that_is_deleted_and_made_again_elsewhere_is_the_new_queue_here(two):
    """Many rounds: the other server hears of both at once, or of the new one before the old."""
    here, there = two
    client, name = there.client(), "/v1/queues/q"
    for number in range(60):
        here.queue("q").put(f"m{number}")
        until(lambda: client.get(name).status == 200)
        assert here.client().delete(name, force=True).status == 204
        here.queue("q").put(f"again{number}")
        client.get(name)
        assert there.running(), f"the server died:\n{there.log}"
        assert here.client().delete(name, force=True).status == 204
    here.queue("q").put("last")
    until(lambda: [m["payload"] for m in (there.queue("q").claim().json.get("messages") or [])]
          == ["last"])
    assert not there.log.find("level=(warn|error)"), there.log


def test_requests_are_for_the_queue_that_has_the_name_now(two):
    """Nothing is waited for: that the other server has heard of it cannot be told from outside."""
    here, there = two[0].queue("q"), two[1].queue("q")
    client = there.client
    for number in range(20):
        old = here.put("old")
        assert client.get(there.path).json["name"] == "q"
        assert here.client.delete(here.path, force=True).status == 204
        assert there.show(old).status == 404
        assert there.enqueue(f"new{number}").status == 201
        assert here.client.delete(here.path, force=True).status == 204
        assert client.get(there.path).status == 404
        assert client.get(there.path + "/stats").status == 404
        here.put("another")
        assert there.configure(max_attempts=number + 1)["max_attempts"] == number + 1
        assert there.take_payloads(1) == ["another"]
        assert client.delete(there.path, force=True).status == 204
        assert here.enqueue("last").status == 201
        assert client.delete(there.path, force=True).status == 204


def test_enqueues_go_on_while_their_queue_is_deleted_again_and_again(two):
    refused = []

    def put(server):
        client = server.client()
        answers = [client.post("/v1/queues/q/messages", {"payload": "x"}) for _ in range(150)]
        refused.extend(answer.json for answer in answers if answer.status != 201)

    def remove(server):
        client = server.client()
        for _ in range(40):
            client.delete("/v1/queues/q", force=True)
            assert client.get("/v1/queues").status == 200

    at_once(*(lambda s=s: put(s) for s in [*two, *two]), *(lambda s=s: remove(s) for s in two))
    assert refused == []
    for server in two:
        assert server.running(), server.log


def test_lists_and_metrics_have_what_others_made(two):
    here, there = two
    for number in range(1, 6):
        here.queue(f"q{number}").put("x")
        shown = there.client().get("/v1/queues").json["queues"]
        assert [(q["name"], q["ready"]) for q in shown] == [
            (f"q{n}", 1) for n in range(1, number + 1)]
    until(lambda: any('queue="q5"' in name for name in there.metrics()))
    assert here.client().delete("/v1/queues/q3", force=True).status == 204
    shown = there.client().get("/v1/queues").json["queues"]
    assert [q["name"] for q in shown] == ["q1", "q2", "q4", "q5"]


def test_lists_and_stats_agree_however_many_queues_there_are(two):
    """Also of what another server did a moment ago to one of many queues."""
    here, there = two
    with sql(here) as s:
        s.run("SELECT triage.configure('q' || n) FROM generate_series(100, 399) n")
    listed = lambda: {q["name"]: q for q in there.client().get("/v1/queues", limit=1000)["queues"]}
    assert len(listed()) == 300
    for number in range(100, 400, 25):
        queue = here.queue(f"q{number}")
        queue.put("x")
        message = queue.take_one()
        assert listed()[queue.name]["in_flight"] == 1
        assert queue.ack(message).status == 204
        shown, stats = listed()[queue.name], there.queue(queue.name).stats()
        assert (shown["ready"], shown["in_flight"]) == (0, 0)
        assert (stats["ready"], stats["in_flight"]) == (0, 0)


def whole_list(server):
    """{name: how many are ready} of all queues."""
    ready, query = {}, {"limit": 1000}
    while True:
        page = server.client().get("/v1/queues", **query).json
        ready.update((queue["name"], queue["ready"]) for queue in page["queues"])
        if page["next"] is None:
            return ready
        query["after"] = page["next"]


def put_into_all(server, count):
    with sql(server) as s:
        s.run("SELECT triage.enqueue('q' || n, 'x'::text) FROM generate_series(1, %s) n", count)


def test_a_list_has_all_that_others_changed_however_much_that_is(two):
    """More than the database tells of at a time."""
    here, there = two
    with sql(here) as s:
        s.run("SELECT triage.configure('q' || n) FROM generate_series(1, 1300) n")
    assert len(whole_list(there)) == 1300
    for number in (1, 2):
        put_into_all(here, 1300)
        shown = whole_list(there)
        assert {name for name, ready in shown.items() if ready != number} == set()


def test_metrics_come_to_have_what_others_did_to_each_of_many_queues(start):
    """Nobody uses them here, nor asks for a list."""
    server = start(engine="postgres", shards=1, metrics_queues=0)
    put_into_all(server, 600)
    until(lambda: queues_ready(server) == (600, 600))
    put_into_all(server, 600)
    deadline = time.monotonic() + 10 * 600 / LOOKED_AT_EACH_SECOND
    while (found := queues_ready(server)) != (600, 1200):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def queues_ready(server):
    """How many queues the metrics have, and how many messages are ready in them."""
    depths = [value for name, value in server.metrics().items()
              if name.startswith("triage_queue_ready{")]
    return len(depths), sum(depths)


def test_totals_do_not_begin_at_zero_after_a_restart(start):
    """A scraper would take that for a reset, and count everything twice."""
    server = start(engine="postgres")
    server.queue("q").put("x")
    server.restart()
    assert server.metrics()['triage_queue_enqueued_total{queue="q"}'] == 1


def test_who_waits_for_a_queue_is_let_in_when_another_server_makes_it(two):
    here, there = two
    consumer = Connection(there.address)
    consumer.send(claim_bytes(there.queue("q"), wait_seconds=60))
    until(lambda: there.metrics()["triage_broker_waiting"] == 1)
    here.queue("q").configure()
    assert [q["name"] for q in there.client().get("/v1/queues").json["queues"]] == ["q"]
    here.queue("q").put("for you")
    assert payloads(consumer.answer()) == ["for you"]
    consumer.close()


def test_a_change_is_judged_by_what_another_server_configured(two):
    here, there = two
    assert there.client().get("/v1/queues").status == 200
    for number in range(5):
        levels = [{"name": f"fresh{number}"}, {"name": "rest"}]
        here.queue("q").configure(levels=levels, drop_levels=True)
        patched = there.client().request("PATCH", "/v1/queues/q", {
            "levels": {f"fresh{number}": {"weight": 7}}})
        assert patched.status == 200, patched
        fewer = [{"name": f"again{number}"}]
        here.queue("q").configure(levels=fewer, drop_levels=True)
        refused = there.client().put("/v1/queues/q", {"levels": [{"name": "other"}]})
        assert refused.status == 409 and f"again{number}" in refused["detail"]


def test_a_schedule_may_name_a_level_that_another_server_made(two):
    here, there = two
    assert there.client().get("/v1/queues").status == 200
    for number in range(5):
        here.client().delete("/v1/queues/q/schedules/nightly")  # it keeps its level from going
        here.queue("q").configure(levels=[{"name": f"fresh{number}"}], drop_levels=True)
        answer = there.client().put("/v1/queues/q/schedules/nightly", {
            "cron": "0 0 29 2 *", "payload": "x", "priority": f"fresh{number}"})
        assert answer.status in (200, 201), answer


def test_a_claim_goes_by_what_others_configured(two):
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure()
    for number in range(20):
        here.post("pause")
        assert there.client.get(there.path).json["paused"]
        here.put(f"m{number}")
        assert there.take() == []
        here.post("resume")
        [message] = there.take()
        assert message["payload"] == f"m{number}"
        assert there.ack(message).status == 204
        level = f"level{number}"
        here.configure(levels=[{"name": level}, {"name": "other"}], policy="weighted",
                       drop_levels=True)
        here.put("x", priority=level)
        assert there.take_payloads(1, min_priority=level) == ["x"]
        assert here.client.delete(here.path, force=True).status == 204
        here.configure()


def test_a_claim_right_behind_a_pause_on_another_server_gets_nothing(two):
    """Nothing is read in between that would tell the other server of it."""
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure()
    assert there.take() == []
    for number in range(40):
        here.put(f"m{number}")
        assert here.post("pause").status == 200
        assert there.take() == [], number
        assert there.take(wait_seconds=0.01) == [], number
        assert here.post("resume").status == 200
        [message] = there.take()
        assert message["payload"] == f"m{number}"
        assert there.ack(message).status == 204


def test_a_claim_right_behind_a_resume_on_another_server_gets_the_message(two):
    """However short it waits: the wait may be over before the news have come."""
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure()
    for number in range(20):
        assert here.post("pause").status == 200
        assert there.take() == [], number
        here.put(f"m{number}")
        assert here.post("resume").status == 200
        [message] = there.take(wait_seconds=0.001)
        assert message["payload"] == f"m{number}"
        assert there.ack(message).status == 204


def test_a_change_of_many_is_for_what_others_enqueued_too(two):
    here, there = two
    here.queue("q").configure()
    assert there.client().get("/v1/queues/q").status == 200
    for number in range(1, 4):
        here.queue("q").put("x", priority=1)
        answer = there.client().post("/v1/queues/q/messages/priority",
                                     {"filter": {"priority": 1}, "priority": 9})
        assert answer.json == {"matched": 1, "changed": 1}
        assert here.queue("q").stats()["depth_by_priority"]["9"] == number


def test_what_one_server_is_asked_it_does_to_what_the_others_put_there(two):
    """Although nothing told it that there is anything."""
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure(max_attempts=1)
    assert there.client.get(there.path).status == 200
    here.put("purged")
    assert there.post("purge")["purged"] == 1
    here.put("dead")
    here.nack(here.take_one())
    assert there.post("dead/redrive")["redriven"] == 1
    here.nack(here.take_one())
    assert there.client.delete(there.path).refusal == (409, "queue-not-empty")
    assert there.post("dead/purge")["purged"] == 1
    here.put("kept")
    assert there.client.delete(there.path).refusal == (409, "queue-not-empty")
    assert [m["payload"] for m in here.take()] == ["kept"]


def waits_for_lock(session):
    return session.one("SELECT count(*) FROM pg_locks WHERE NOT granted AND database ="
                       " (SELECT oid FROM pg_database WHERE datname = current_database())") > 0


def deleting(server, answers, **query):
    """A client that deletes the queue q, and waits for its answer."""
    thread = threading.Thread(
        target=lambda: answers.append(server.client().delete("/v1/queues/q", **query)))
    thread.start()
    return thread


def test_a_queue_that_is_just_being_filled_is_not_deleted(start):
    server = start(engine="postgres")
    server.queue("q").configure()
    answers = []
    with sql(server) as s, sql(server) as onlooker:
        s.run("BEGIN")
        s.run("SELECT triage.enqueue('q', 'kept'::text)")
        thread = deleting(server, answers)
        until(lambda: answers or waits_for_lock(onlooker))
        s.run("COMMIT")
        thread.join()
        assert answers[0].refusal == (409, "queue-not-empty")
        assert [m["payload"] for m in server.queue("q").take()] == ["kept"]
        assert onlooker.refusal("SELECT triage.drop_queue('q')")[1] == "queue-not-empty"


def test_a_queue_whose_delete_failed_is_still_there(start):
    server = start(engine="postgres", postgres_timeout_seconds=2)
    queue = server.queue("q")
    queue.configure()
    answers = []
    with sql(server) as s:
        s.run("BEGIN")
        s.run("SELECT triage.enqueue('q', 'gone'::text)")
        deleting(server, answers, force=True).join()
        assert answers[0].refusal == (503, "engine-unavailable")
        assert [q["name"] for q in server.client().get("/v1/queues")["queues"]] == ["q"]
        s.run("COMMIT")
    queue.put("kept")
    assert sorted(m["payload"] for m in queue.take(max=2)) == ["gone", "kept"]
    assert server.client().delete("/v1/queues/q", force=True).status == 204
    assert server.client().get("/v1/queues")["queues"] == []


def test_depths_show_on_servers_that_do_not_use_the_queue(two):
    here, there = two
    here.queue("q").configure()
    assert there.client().get("/v1/queues/q").status == 200
    here.queue("q").put("x")
    until(lambda: there.metrics().get('triage_queue_ready{queue="q"}') == 1)
    assert there.client().get("/v1/queues")["queues"][0]["ready"] == 1


def test_shares_hold_over_two_servers_together(two):
    here, there = two
    queue = here.queue("q")
    queue.configure(profile="environments")
    names = ["production", "staging", "qa", "development"]
    queue.put_all([{"payload": "x", "priority": name} for name in names for _ in range(400)])
    got = {name: 0 for name in names}
    lock = threading.Lock()

    def consume(server):
        own = server.queue("q")
        for _ in range(25):
            for message in own.take(max=10):
                with lock:
                    got[message["level"]] += 1

    threads = [threading.Thread(target=consume, args=(server,)) for server in two]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, share in zip(names, (0.4, 0.3, 0.2, 0.1)):
        assert abs(got[name] - 500 * share) <= 10, got


def test_each_configuration_fills_the_buckets_once(two):
    """Although the server that made it is notified of it like the others."""
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure()
    for number in range(6):
        here.configure(drop_levels=True, levels=[{"name": "a", "weight": 2}, {"name": "b", "weight": 1}],
                       policy="weighted", max_attempts=number + 1)
        here.put_all([{"payload": name, "priority": name} for name in "aaaabb"])
        assert "".join(here.take_payloads(1)[0] for _ in range(6)) == "aabaab"
        there.configure(policy="strict")
        there.put_all([{"payload": name, "priority": name} for name in "babaa"])
        assert here.take_payloads(5) == ["a", "a", "a", "b", "b"]


def test_a_level_at_its_limit_is_passed_over_on_every_server(two):
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure(levels=[{"name": "b", "max_in_flight": 2}, {"name": "c", "max_in_flight": 2},
                           {"name": "d"}, {"name": "e"}])
    here.put_all([{"payload": f"{name}{i}", "priority": name} for name in "bc" for i in range(4)])
    assert [m["payload"] for m in there.take(max=10)] == ["b0", "b1", "c0", "c1"]
    here.put_all([{"payload": name.upper(), "priority": name} for name in "cde"])
    assert [m["payload"] for m in there.take(max=2)] == ["D", "E"]
    assert here.take(max=2) == []


def counts_as(queue, ident):
    return queue.client.get(f"{queue.path}/messages/{ident}/position")["effective_level"]


def test_ages_count_on_a_server_that_has_not_met_the_queue(two):
    for policy in ("strict", "weighted"):
        here, there = two[0].queue(policy), two[1].queue(policy)
        here.configure(policy=policy, levels=[
            {"name": "a"}, {"name": "b", "age_after_seconds": 0.1},
            {"name": "c", "max_wait_seconds": 0.1}])
        aging = here.put("b0", priority="b")
        here.put("a0", priority="a")
        here.put_all([{"payload": f"c{i}", "priority": "c"} for i in range(3)])
        until(lambda: here.stats()["late"] == 3 and counts_as(here, aging) == "a")
        assert there.take_payloads(2) == ["c0", "c1"]
        assert there.take_payloads(1) == ["c2"]
        assert there.take_payloads(2) == ["b0", "a0"]


def test_of_one_batch_the_oldest_is_the_first_to_come(two):
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure(levels=[{"name": "a"}, {"name": "b", "age_after_seconds": 0.01},
                           {"name": "c", "age_after_seconds": 0.01}])
    ids = here.put_all([{"payload": name, "priority": name[0]}
                        for name in ("c1", "b2", "c3", "b4")])
    until(lambda: counts_as(here, ids[2]) == counts_as(here, ids[3]) == "a")
    assert there.take_payloads(4) == ["c1", "b2", "c3", "b4"]


def test_levels_are_those_that_others_configured(two):
    here, there = two[0].queue("q"), two[1].queue("q")
    here.configure(levels=[{"name": "a", "age_after_seconds": 0.01},
                           {"name": "b", "age_after_seconds": 0.01}])
    here.put("x", priority="b")
    until(lambda: there.stats()["aged"] == 1)
    here.configure(levels=[{"name": "new"}, {"name": "b", "age_after_seconds": None}],
                   drop_levels=True)
    assert there.stats()["aged"] == 0
    assert there.post("messages/priority", filter={}, priority="new")["changed"] == 1
    assert here.take_payloads(1, min_priority="new") == ["x"]
    assert here.client.delete(here.path, force=True).status == 204
    assert there.client.post(f"{there.path}/messages/priority",
                             {"filter": {}, "priority": "nobody"}).status == 404


def test_a_killed_server_leaves_its_messages_to_the_other(two):
    here, there = two
    queue = here.queue("q")
    queue.configure(visibility_timeout_seconds=1)
    ids = queue.put_all([{"payload": str(n)} for n in range(50)])
    assert len(queue.take(max=20)) == 20
    here.kill()
    other, got = there.queue("q"), set()
    while len(got) < len(ids):
        batch = other.take(max=100, wait_seconds=20)
        assert batch, "the leases of the killed one did not end"
        for message in batch:
            assert other.ack(message).status == 204
            got.add(message["message_id"])
    assert got == set(ids)
