"""Limits of a queue over several databases, used by two servers: never exceeded, and the share of a
cell goes where it is needed."""

import threading

import pytest

import database
from test_cells import place, spread, stores
from wire import until


@pytest.fixture(scope="module")
def shared():
    made = [database.Postgres().start() for _ in range(3)]
    yield made
    for one in made:
        one.end()


@pytest.fixture
def pair(start, shared):
    """Two servers on three databases."""
    return [start(engine="cells", flags=stores(shared)) for _ in range(2)]


def held_in(databases, name):
    """How many messages of a queue are in flight, as the databases say."""
    return count(databases, "triage.leased", name)


def count(databases, table, name):
    sql = (f"SELECT count(*) FROM {table} m JOIN triage.queue q ON q.id = m.queue "
           f"WHERE q.name = '{name}' AND NOT q.deleted")
    total = 0
    for one in databases:
        with one.connect("postgres") as conn, conn.cursor() as cursor:
            cursor.execute(sql)
            total += cursor.fetchone()[0]
        conn.close()
    return total


def settled(queue, message):
    """Acknowledged, also while a cell is silent for a moment."""
    return until(lambda: queue.ack(message).status in (204, 404, 409, 410))


def take_somehow(queue):
    """What a claim gets. It may be refused while its server has not noticed that a cell is away."""
    answer = queue.claim(max=10)
    assert answer.status == 200 or answer.refusal == (503, "engine-unavailable"), answer
    return answer["messages"] if answer.status == 200 else []


def run_all(jobs):
    errors = []

    def guarded(job):
        try:
            job()
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


class Held:
    """What consumers surely hold: from the answer to a claim until the ack is sent."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now = {}
        self.most = {}
        self.done = []

    def took(self, message):
        with self.lock:
            for key in (None, message["priority"]):
                self.now[key] = self.now.get(key, 0) + 1
                self.most[key] = max(self.most.get(key, 0), self.now[key])

    def gives(self, message):
        with self.lock:
            for key in (None, message["priority"]):
                self.now[key] -= 1
            self.done.append(message["payload"])


def test_consumers_of_two_servers_never_hold_more_than_the_limits(pair):
    queue = pair[0].queue("flight")
    levels = [{"name": "9", "number": 9, "max_in_flight": 2}, {"name": "1", "number": 1}]
    queue.configure(levels=levels, max_in_flight=5, default_priority=1)
    held = Held()
    partitions = spread(queue, 90, priority=lambda n: 9 if n % 2 else 1)
    assert set(partitions) == {0, 1, 2}

    def consumer(server):
        mine = server.queue("flight")
        while len(held.done) < 90:
            for message in mine.take(max=3):
                held.took(message)
                held.gives(message)
                assert settled(mine, message)
    run_all([lambda s=s: consumer(s) for s in pair * 3])
    assert sorted(held.done) == list(range(90))
    assert held.most[None] <= 5
    assert held.most[9] <= 2


def test_producers_of_two_servers_never_store_more_than_the_depth(pair, shared):
    queue = pair[0].queue("deep")
    queue.configure(max_depth=37)
    stored = []

    def producer(server, keyed):
        mine = server.queue("deep")
        for n in range(30):
            key = {"dedup_key": f"{id(mine)} {n}"} if keyed else {}
            answer = mine.enqueue(n, **key)
            assert answer.status in (201, 429, 503), answer  # 503: a cell was silent for a second
            stored.extend([n] if answer.status == 201 else [])
    run_all([lambda s=s, k=k: producer(s, k) for s in pair for k in (False, True)])
    assert len(stored) <= count(shared, "triage.ready", "deep") <= 37
    until(lambda: queue.enqueue("more").status == 429)
    assert count(shared, "triage.ready", "deep") == 37
    for message in queue.take(max=7):
        assert settled(queue, message)
    other = pair[1].queue("deep")
    until(lambda: [other.enqueue("again").status for _ in range(8)][-1] == 429
          and count(shared, "triage.ready", "deep") == 37)


def test_bytes_are_limited_over_all_cells(pair):
    queue, other = (server.queue("bytes") for server in pair)
    queue.configure(max_bytes=10_000)
    statuses = [q.enqueue("x" * 998, dedup_key=str(n)).status
                for n in range(12) for q in (queue, other)]
    assert set(statuses) <= {201, 429, 200}
    assert queue.stats()["bytes"] <= 10_000
    assert statuses.count(429) > 0


def test_a_limit_of_one_goes_to_where_messages_are(pair):
    """Each of them is delivered, whichever cell it is in, and no two at a time."""
    queue = pair[0].queue("one")
    queue.configure(max_in_flight=1)
    partitions = spread(queue, 24)
    assert set(partitions) == {0, 1, 2}
    got = []
    while len(got) < 24:
        for server in pair:
            mine = server.queue("one")
            messages = mine.take(max=5)
            assert len(messages) <= 1
            if messages:
                assert pair[0].queue("one").take() == []
                assert pair[1].queue("one").take() == []
                assert settled(mine, messages[0])
                got.append(messages[0]["payload"])
    assert sorted(got) == list(range(24))


def test_a_limit_in_use_goes_to_what_is_more_urgent(pair):
    """One consumer has all that the limit allows, each time that it asks."""
    queue = pair[0].queue("urgent")
    queue.configure(max_in_flight=1)
    place(queue, "a", levels=["0"])
    place(queue, "b", levels=["9"])
    assert all(queue.enqueue("low", priority=0)["partition"] == 0 for _ in range(20))
    seen = []

    def work():
        message = queue.take_one(max=1, wait_seconds=30)
        assert settled(queue, message)
        seen.append(message["payload"])
        if message["payload"] == "low":
            assert queue.enqueue("low", priority=0).status == 201
    for _ in range(10):
        work()
    assert all(queue.enqueue("urgent", priority=9)["partition"] == 1 for _ in range(3))
    while seen.count("urgent") < 3:
        work()
        assert len(seen) < 1500, "its cell never gets the share"


def test_a_lower_limit_holds_when_it_is_answered(pair, shared):
    queue, other = (server.queue("lower") for server in pair)
    queue.configure(max_in_flight=20)
    spread(queue, 40)
    held = queue.take(max=10)
    held += other.take(max=2)
    assert len(held) == 12
    other.configure(max_in_flight=5)
    assert queue.take() == [] and other.take() == []
    for message in held[:7]:
        assert settled(queue, message)
    assert queue.take() == [] and other.take() == []
    assert settled(queue, held[7])
    more = []

    def one_more():
        more.extend(queue.take() + other.take())
        return more
    until(one_more)
    assert len(more) == 1
    assert held_in(shared, "lower") == 5
    queue.configure(max_in_flight=None)
    until(lambda: more.extend(queue.take(max=100)) or len(more) == 28)
    queue.configure(max_in_flight=3)
    assert other.take() == []


def test_a_cell_that_is_away_keeps_its_share(start):
    databases = [database.Postgres().start() for _ in range(3)]
    try:
        pair = [start(engine="cells", flags=stores(databases)) for _ in range(2)]
        queue = pair[0].queue("away")
        queue.configure(max_in_flight=6)
        partitions = spread(queue, 60)
        held = [m for _ in range(6) for m in queue.take()]
        assert len(held) == 6 and pair[1].queue("away").take() == []
        databases[2].kill()
        lost = [m for m in held if partitions[m["payload"]] == 2]
        here = [m for m in held if partitions[m["payload"]] != 2]
        until(lambda: pair[0].metrics()["triage_engine_cells_away"] == 1)
        got = []
        reached = 60 - sum(p == 2 for p in partitions)

        def goes_on():
            for message in here:
                assert settled(queue, message)
                got.append(message["payload"])
            here[:] = [m for server in pair for m in take_somehow(server.queue("away"))]
            assert len(here) + len(lost) <= 6
            assert all(partitions[m["payload"]] != 2 for m in here)
            return len(got) == reached
        if len(lost) < 6:
            until(goes_on)
        databases[2].start()

        def ends():
            for message in here + lost:
                if queue.ack(message).status == 204:
                    got.append(message["payload"])
            lost.clear()
            here[:] = [m for server in pair for m in take_somehow(server.queue("away"))]
            assert len(here) <= 6
            return len(set(got)) == 60
        until(ends)
    finally:
        for one in databases:
            one.end()
