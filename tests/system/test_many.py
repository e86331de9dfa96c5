"""One claim over several queues: the most urgent of all of them first, or as they are listed; never
more than was asked for; one wait for all of them; and nothing is lost on the way."""

import itertools
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from server import tokens_file
from test_waiting import payloads
from wire import Connection, Queue, conserved, request_bytes, until

SETTINGS = {"shards": 3}  # queues of one claim belong to several threads

numbers = itertools.count(1)


@pytest.fixture
def queues(api, request):
    """Queues of this test alone; whatever is done to them, their numbers add up in the end."""
    made = []

    def make(*configurations):
        for configuration in configurations:
            made.append(Queue(api, f"many-{next(numbers)}"))
            made[-1].configure(**configuration)
        return made[-len(configurations):]

    yield make
    for queue in made:
        stats = api.get(queue.path + "/stats")
        assert stats.status == 404 or conserved(stats.json), stats


def tick():
    """Until the next millisecond: what comes then is younger."""
    before = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == before:
        pass


def claim_many(api, queues, **fields):
    return api.post("/v1/claim", {"queues": [q.name for q in queues], **fields})


def take_many(api, queues, **fields):
    answer = claim_many(api, queues, **fields)
    assert answer.status == 200, answer
    return answer["messages"]


def many_bytes(names, **fields):
    body = json.dumps({"queues": names, **fields}).encode()
    return request_bytes("POST", "/v1/claim", body)


def wait_on_many(server, queues, **fields):
    """A connection that waits for all of them."""
    before = [q.stats()["waiting_consumers"] for q in queues]
    connection = Connection(server.address)
    connection.send(many_bytes([q.name for q in queues], wait_seconds=60, **fields))
    for queue, count in zip(queues, before):
        until(lambda: queue.stats()["waiting_consumers"] == count + 1)
    return connection


def until_nobody_waits(queues):
    for queue in queues:
        until(lambda: queue.stats()["waiting_consumers"] == 0)


# Order


def test_the_most_urgent_message_of_all_queues_comes_first(api, queues):
    a, b, c = queues({}, {}, {})
    for queue, priority in ((a, 3), (b, 9), (c, 5), (a, 8), (b, 1)):
        queue.put(f"{priority}", priority=priority)
    got = take_many(api, [a, b, c], max=100)
    assert [m["payload"] for m in got] == ["9", "8", "5", "3", "1"]
    assert [m["queue"] for m in got] == [b.name, a.name, c.name, a.name, b.name]


def test_one_after_the_other_is_the_same_order(api, queues):
    a, b = queues({}, {"profile": "tiers"})
    a.put_all([{"payload": "a", "priority": p} for p in (0, 9, 4)])
    b.put_all([{"payload": "b", "priority": p} for p in ("LOW", "CRITICAL")])
    got = [take_many(api, [a, b])[0] for _ in range(5)]
    assert take_many(api, [a, b]) == []
    ends = [m["payload"] for m in got]
    assert set(ends[:2]) == {"a", "b"} and set(ends[3:]) == {"a", "b"} and ends[2] == "a"


def test_of_the_same_urgency_the_oldest_comes_first(api, queues):
    a, b = queues({}, {})
    for number in range(6):
        (a, b)[number % 2].put(str(number), priority=7)
        tick()
    assert [m["payload"] for m in take_many(api, [b, a], max=4)] == ["0", "1", "2", "3"]
    assert [m["payload"] for m in take_many(api, [b, a], max=4)] == ["4", "5"]


def test_ends_count_the_same_however_many_levels_there_are(api, queues):
    """Two levels and ten: the first of each, then what lies between, then the last of each."""
    two = {"levels": [{"name": "now"}, {"name": "later"}]}
    one = {"levels": [{"name": "all"}]}
    a, b, c = queues(two, {}, one)
    for queue, priority in ((b, 0), (a, "later"), (c, "all"), (b, 4), (b, 5), (b, 9), (a, "now")):
        queue.put(str(priority), priority=priority)
        tick()
    got = [m["payload"] for m in take_many(api, [a, b, c], max=10)]
    assert got == ["9", "now", "5", "all", "4", "0", "later"]


def test_what_has_aged_counts_as_what_it_is_now(api, queues):
    aging = {"levels": [{"name": "high"}, {"name": "low", "age_after_seconds": 0.05}]}
    a, b = queues(aging, {"levels": [{"name": "high"}, {"name": "mid"}, {"name": "low"}]})
    old = a.put("aged", priority="low")
    b.put("mid", priority="mid")
    until(lambda: a.show(old)["effective_level"] == "high")
    assert [m["payload"] for m in take_many(api, [b, a], max=2)] == ["aged", "mid"]


def test_a_promise_goes_before_everything(api, queues):
    promised = {"levels": [{"name": "a"}, {"name": "b", "max_wait_seconds": 0.05}]}
    a, b = queues({}, promised)
    a.put("urgent", priority=9)
    late = b.put("promised", priority="b")
    until(lambda: b.show(late)["effective_level"] == "a")
    assert [m["payload"] for m in take_many(api, [a, b], max=2)] == ["promised", "urgent"]


def test_weights_inside_a_queue_are_kept(api, queues):
    """A queue is as urgent as its most urgent message; which one goes is the queue's affair."""
    levels = [{"name": "high", "weight": 2}, {"name": "low", "weight": 1}]
    a, b = queues({"levels": levels, "policy": "weighted"},
                  {"levels": [{"name": "x"}, {"name": "mid"}, {"name": "z"}]})
    a.put_all([{"payload": "high", "priority": "high"}] * 4)
    a.put_all([{"payload": "low", "priority": "low"}] * 2)
    b.put_all([{"payload": "mid", "priority": "mid"}] * 2)
    got = [m["payload"] for m in take_many(api, [a, b], max=8)]
    assert sorted(got) == ["high"] * 4 + ["low"] * 2 + ["mid"] * 2
    assert got.index("low") < got.index("mid"), got  # its turn, while high ones were there
    assert got[-1] == "low" or got[-1] == "mid"


def test_listed_order_empties_the_first_before_the_second(api, queues):
    a, b, c = queues({}, {}, {})
    a.put("least", priority=0)
    b.put_all([{"payload": f"b{n}", "priority": n} for n in range(3)])
    c.put("urgent", priority=9)
    got = take_many(api, [b, a, c], order="listed", max=4)
    assert [m["payload"] for m in got] == ["b2", "b1", "b0", "least"]
    assert [m["payload"] for m in take_many(api, [b, a, c], order="listed")] == ["urgent"]


def test_min_priority_is_for_all_of_them(api, queues):
    a, b, tiers = queues({}, {}, {"profile": "tiers"})
    a.put("low", priority=2)
    b.put("high", priority=8)
    assert [m["payload"] for m in take_many(api, [a, b], min_priority=7, max=5)] == ["high"]
    answer = claim_many(api, [a, tiers], min_priority=7)
    assert answer.refusal == (422, "unknown-priority")
    assert tiers.name in answer["detail"] and answer["field"] == "/min_priority"


def test_a_number_has_to_mean_the_same_level_everywhere(api, queues):
    """1 is next to least in the one and next to most urgent in the other."""
    a, tiers = queues({}, {"profile": "tiers"})
    a.put("low", priority=2)
    tiers.put("high", priority="HIGH")
    answer = claim_many(api, [tiers, a], min_priority=1, max=5)
    assert answer.refusal == (422, "unknown-priority") and answer["field"] == "/min_priority"
    for word in (tiers.name, a.name, '"HIGH"', '"1"', "name"):
        assert word in answer["detail"]
    assert [m["payload"] for m in take_many(api, [tiers], min_priority=1)] == ["high"]
    more, = queues({"levels": [{"name": "HIGH", "number": 9}, {"name": "LOW"}]})
    more.put("here", priority="HIGH")
    more.put("not", priority="LOW")
    assert [m["payload"] for m in take_many(api, [tiers, more], min_priority="HIGH", max=5)] == [
        "here"]


# How many


@pytest.mark.parametrize("order", ["urgency", "listed"])
def test_never_more_than_was_asked_for(api, queues, order):
    mine = queues(*[{} for _ in range(5)])
    for queue in mine:
        queue.put_all([{"payload": "x", "priority": n % 10} for n in range(20)])
    left = 100
    while left:
        got = take_many(api, mine, max=7, order=order)
        assert len(got) == min(7, left)
        left -= len(got)
    assert sum(q.stats()["in_flight"] for q in mine) == 100


def test_a_paused_queue_and_a_full_one_are_passed_over(api, queues):
    a, b, c = queues({}, {"max_in_flight": 1}, {})
    for queue in (a, b, c):
        queue.put_all([{"payload": queue.name, "priority": 5}] * 2)
    a.post("pause")
    got = [m["payload"] for m in take_many(api, [a, b, c], max=10)]
    assert sorted(got) == sorted([b.name, c.name, c.name])
    a.post("resume")
    assert len(take_many(api, [a, b, c], max=10)) == 2


def test_receipts_are_good_on_the_queues_own_paths(api, queues):
    a, b = queues({}, {})
    a.put("a")
    b.put("b")
    by_name = {q.name: q for q in (a, b)}
    for message in take_many(api, [a, b], max=2):
        assert by_name[message["queue"]].ack(message).status == 204
    assert a.stats()["totals"]["acked"] == b.stats()["totals"]["acked"] == 1


# Waiting


def test_the_first_queue_that_has_something_ends_the_wait(server, queues):
    mine = queues({}, {}, {})
    for queue in mine:
        consumer = wait_on_many(server, mine)
        queue.put(queue.name)
        answer = consumer.answer()
        assert payloads(answer) == [queue.name]
        assert answer["messages"][0]["queue"] == queue.name
        until_nobody_waits(mine)
        consumer.close()


def test_who_came_first_is_served_first_whatever_else_it_waits_for(server, queues):
    a, b = queues({}, {})
    line = [wait_on_many(server, qs) for qs in ([a], [a, b], [b, a], [b])]
    a.put("1")
    assert payloads(line[0].answer()) == ["1"]
    a.put("2")
    assert payloads(line[1].answer()) == ["2"]
    b.put("3")
    assert payloads(line[2].answer()) == ["3"]
    a.put("nobody waits for this one any more")
    b.put("4")
    assert payloads(line[3].answer()) == ["4"]
    until_nobody_waits([a, b])
    for connection in line:
        connection.close()


def test_many_messages_at_once_serve_each_who_waits_once(server, queues):
    mine = queues({}, {}, {})
    line = [wait_on_many(server, mine) for _ in range(9)]
    for queue in mine:
        queue.put_all([{"payload": f"{queue.name} {n}"} for n in range(4)])
    got = [payloads(connection.answer()) for connection in line]
    assert all(len(each) == 1 for each in got)
    assert len({each[0] for each in got}) == 9
    until_nobody_waits(mine)
    assert sum(q.stats()["ready"] for q in mine) == 3
    for connection in line:
        connection.close()


def test_two_queues_at_once_serve_who_waits_once(server, api, queues):
    """Both messages are in one packet, so that both turns may come before anybody is told."""
    mine = queues({}, {}, {}, {})
    by_name = {q.name: q for q in mine}
    producer = Connection(server.address)
    body = json.dumps({"payload": "x"}).encode()
    for _ in range(20):
        consumer = wait_on_many(server, mine)
        producer.send(b"".join(request_bytes("POST", q.path + "/messages", body) for q in mine))
        first = consumer.answer()["messages"]
        assert all(producer.answer().status == 201 for _ in mine)
        until_nobody_waits(mine)
        rest = take_many(api, mine, max=9)
        assert (len(first), len(rest)) == (1, 3)
        for message in first + rest:
            by_name[message["queue"]].ack(message)
        consumer.close()
    producer.close()


def test_a_wait_ends_empty(api, queues):
    mine = queues({}, {})
    assert take_many(api, mine, wait_seconds=0.05) == []
    until_nobody_waits(mine)


def test_waiting_costs_nothing(server, api, queues):
    """No request of any kind is made to the broker while nothing comes."""
    if server.engine == "postgres":
        pytest.skip("a database is looked at now and then, whoever waits")
    mine = queues({}, {}, {})
    consumer = wait_on_many(server, mine)

    def asked():
        numbers = server.metrics()
        return [numbers[f'triage_broker_requests_total{{kind="{k}"}}'] for k in
                ("claim", "look", "claim_many")]

    before = asked()
    for _ in range(100):
        api.get("/healthz")
    assert asked() == before
    mine[2].put("x")
    assert payloads(consumer.answer()) == ["x"]
    consumer.close()


def test_a_queue_that_is_not_there_is_waited_for(server, api, queues):
    [a] = queues({})
    absent = Queue(api, f"absent-{next(numbers)}")
    assert take_many(api, [absent, a]) == []
    consumer = Connection(server.address)
    consumer.send(many_bytes([a.name, absent.name], wait_seconds=60))
    until(lambda: a.stats()["waiting_consumers"] == 1)
    absent.put("made")
    assert payloads(consumer.answer()) == ["made"]
    consumer.close()


def test_who_hangs_up_leaves_no_trace(server, queues):
    mine = queues({}, {}, {})
    for _ in range(20):
        wait_on_many(server, mine).close()
        until_nobody_waits(mine)
    for queue in mine:
        queue.put("still here")
    assert len(take_many(mine[0].client, mine, max=9)) == 3


def test_who_hangs_up_while_it_takes_gives_everything_back(server, queues):
    """Hung up at any moment: what is leased then was in an answer that was on its way."""
    mine = queues({}, {}, {})
    for queue in mine:
        queue.put_all([{"payload": str(n), "priority": n % 10} for n in range(30)])
    for number in range(60):
        connection = Connection(server.address)
        connection.send(many_bytes([q.name for q in mine], max=10,
                                   visibility_timeout_seconds=1))
        if number % 3:
            time.sleep(number / 100_000)
        connection.close()
    until(lambda: sum(q.stats()["ready"] for q in mine) == 90)
    assert len(take_many(mine[0].client, mine, max=100)) == 90


def test_a_crowd_loses_nothing(server, queues):
    """Consumers of one queue and of several, some of which hang up; each message ends once."""
    mine = queues({}, {"policy": "weighted"}, {"profile": "tiers"}, {"max_in_flight": 3})
    count, done, wrong, lock = 300, [], [], threading.Lock()

    def consume(seed):
        choose = random.Random(seed)
        client = server.client()
        while len(done) < count and not wrong:
            some = choose.sample(mine, choose.randint(1, len(mine)))
            fields = {"max": choose.randint(1, 4), "wait_seconds": 0.2,
                      "visibility_timeout_seconds": 2}
            if choose.random() < 0.15:
                rude = Connection(server.address)
                rude.send(many_bytes([q.name for q in some], **fields))
                rude.close()
                continue
            if choose.random() < 0.2:
                messages = Queue(client, some[0].name).take(**fields)
                messages = [{**m, "queue": some[0].name} for m in messages]
            else:
                messages = take_many(client, some, **fields)
            if len(messages) > fields["max"]:
                wrong.append(messages)
            for message in messages:
                if Queue(client, message["queue"]).ack(message).status == 204:
                    with lock:
                        done.append(message["message_id"])
        client.close()

    choose = random.Random(4711)
    with ThreadPoolExecutor() as pool:
        crowd = [pool.submit(consume, seed) for seed in range(8)]
        for number in range(count):
            choose.choice(mine).put(str(number))
        for consumer in crowd:
            consumer.result()
    assert not wrong, "more than was asked for"
    assert len(done) == len(set(done)) == count
    until_nobody_waits(mine)
    assert sum(q.stats()["totals"]["acked"] for q in mine) == count


# Refusals


@pytest.mark.parametrize("body,field,words", [
    ({}, "/queues", "missing"),
    ({"queues": []}, "/queues", "1 to 32"),
    ({"queues": ["a"] * 33}, "/queues", "1 to 32"),
    ({"queues": ["a", "b", "a"]}, "/queues", '"a" twice'),
    ({"queues": ["a", ".."]}, "/queues", "at 1"),
    ({"queues": "a"}, "/queues", "array"),
    ({"queues": ["a"], "order": "random"}, "/order", "listed"),
    ({"queues": ["a"], "max": 101}, "/max", "100"),
])
def test_a_mistake_is_named(api, body, field, words):
    answer = api.post("/v1/claim", body)
    assert answer.refusal == (422, "invalid-field"), answer
    assert answer["field"] == field and words in answer["detail"], answer


def test_where_queues_are_not_made_by_enqueueing_an_unknown_one_is_named(start):
    server = start(engine="memory", auto_create="off", shards=2)
    server.queue("here").configure()
    answer = server.client().post("/v1/claim", {"queues": ["here", "nowhere"], "wait_seconds": 60})
    assert answer.refusal == (404, "queue-not-found")
    assert '"nowhere"' in answer["detail"]
    until(lambda: server.queue("here").stats()["waiting_consumers"] == 0)


def test_a_token_has_to_be_good_for_all_of_them(start, tmp_path):
    """And what it is not good for may exist or not: it is not told."""
    tokens = tokens_file(tmp_path, [("root", "r", "admin"), ("mail", "m", "consume mail"),
                                    ("reader", "l", "read")])
    server = start(engine="memory", tokens_file=tokens)
    Queue(server.client(token="r"), "mail.in").put("x")
    Queue(server.client(token="r"), "secret").configure()
    mail = server.client(token="m")
    for name in ("secret", "nothing"):
        answer = mail.post("/v1/claim", {"queues": ["mail.none", name]})
        assert answer.refusal == (403, "forbidden")
        assert f'"{name}"' in answer["detail"] and '"mail"' in answer["detail"]
    assert server.client(token="l").post("/v1/claim", {"queues": ["mail"]}).status == 403
    assert len(mail.post("/v1/claim", {"queues": ["mail", "mail.in"]})["messages"]) == 1


def test_every_line_takes_a_place_to_wait_in(start):
    server = start(engine="memory", max_waiting=8)
    server.queue("q").configure()
    names = [f"q{n}" for n in range(9)]
    client = server.client()
    answer = client.post("/v1/claim", {"queues": names, "wait_seconds": 1})
    assert answer.refusal == (503, "overloaded")
    assert client.post("/v1/claim", {"queues": names}).status == 200
    assert client.post("/v1/claim", {"queues": names[:3], "wait_seconds": 0.01}).status == 200


# The end


@pytest.mark.parametrize("engine", ["memory", "local", "postgres"])
def test_a_server_that_stops_lets_them_go(engine, start):
    server = start(engine=engine, shards=3)
    mine = [server.queue(f"q{n}") for n in range(5)]
    for queue in mine:
        queue.configure()
    consumers = [wait_on_many(server, mine) for _ in range(3)]
    server.stop()
    for consumer in consumers:
        assert payloads(consumer.answer()) == []
        consumer.close()


def test_tails_on_disk_are_in_order_too(start):
    """With next to no memory, the oldest of a queue is on disk when it is asked for."""
    server = start(engine="local", memory_limit="4K", shards=2)
    a, b = server.queue("a"), server.queue("b")
    for number in range(200):
        (a, b)[number % 2].put(f"{number:03}" + "x" * 300, priority=number // 50)
        tick()
    got = []
    while len(got) < 200:
        messages = take_many(a.client, [a, b], max=9)
        assert messages
        got += [int(m["payload"][:3]) for m in messages]
    assert got == [*range(150, 200), *range(100, 150), *range(50, 100), *range(50)]


def test_two_servers_on_one_database(start):
    here = start(engine="postgres", shards=2)
    there = start(engine="postgres", postgres=here.settings["postgres"])
    mine = [here.queue(f"q{n}") for n in range(3)]
    for queue in mine:
        queue.configure()
    for number in range(9):
        consumer = wait_on_many(here, mine)
        there.queue(f"q{number % 3}").put(str(number))
        assert payloads(consumer.answer()) == [str(number)]
        consumer.close()
    for number, priority in enumerate((1, 9, 5)):
        there.queue(f"q{number}").put(str(priority), priority=priority)
    got = take_many(here.client(), mine, max=5)
    assert [m["payload"] for m in got] == ["9", "5", "1"]


def test_those_who_wait_are_no_load(start):
    server = start(engine="memory", inbox_max=10)
    queue = server.queue("a")
    queue.configure()
    line = [wait_on_many(server, [queue]) for _ in range(30)]
    queue.put("x")
    assert payloads(line[0].answer()) == ["x"]
    for connection in line:
        connection.close()
