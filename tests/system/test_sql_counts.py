"""The counts and floors behind the SQL interface on a real PostgreSQL: right whatever commits late,
works at once or is held open, and claims that cost the same all the while."""

import random
import threading

from sql import assert_conserved


def test_what_commits_late_is_not_overlooked(q, make):
    """The floors move on while a transaction that enqueued before is still open."""
    slow = make(like=q)
    slow.run("BEGIN")
    slow.put("late")
    q.put("1")
    q.put("2")
    for _ in range(3):
        q.count_up()
    assert q.payloads() == ["1"]
    slow.run("COMMIT")
    assert q.payloads() == ["late"]
    assert q.payloads() == ["2"]


def test_what_comes_back_is_not_overlooked(q):
    q.put("first")
    q.put("second")
    first = q.claim()[0]
    q.count_up()
    assert q.nack(first) == "ready"
    q.count_up()
    assert q.payloads(2) == ["first", "second"]


def test_counting_up_inside_a_transaction_that_goes_on(q):
    q.run("BEGIN")
    q.put("1")
    q.count_up()
    q.put("2")
    q.run("COMMIT")
    assert q.stats()["ready"] == 2
    q.count_up()
    assert q.stats()["ready"] == 2
    assert q.payloads(2) == ["1", "2"]


def test_an_old_snapshot_may_use_the_queues_too(q, make):
    other = make(like=q)
    q.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert q.one("SELECT 1") == 1
    other.put("unseen")
    other.count_up()
    q.put("own")
    assert q.payloads(5) == ["own"]
    q.run("COMMIT")
    assert q.payloads(5) == ["unseen"]


def buffers(q, sql, *args):
    plan = q.one("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, *args)
    return plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]


def claim_cost(q):
    """Pages touched by a claim of ten, in a session that has its plans; the least of a few."""
    at = q.at(None)
    least = 10**9
    for _ in range(4):
        at.put(*[b"x"] * 10, slot=9)
        least = min(least, buffers(q, "SELECT * FROM triage.engine_claim(%s, %s, '{9}', 10,"
                                      " NULL, triage.receipts(10))", q.id, q.version))
    return least


def test_a_claim_costs_the_same_with_many_scheduled_and_dead_messages(q):
    before = claim_cost(q)
    for table in ("scheduled", "dead"):
        extra = ", 0" if table == "dead" else ""
        q.run(f"INSERT INTO triage.{table} SELECT nextval('triage.seq'), 2^46, 2^46, 0, %s, 0, 0, 0,"
              f" 0, 'x'{', NULL' * 9}{extra} FROM generate_series(1, 20000)", q.id)
        q.run("INSERT INTO triage.tally (queue, slot, " + table + ", enqueued)"
              " VALUES (%s, 0, 20000, 20000)", q.id)
    q.count_up()
    assert claim_cost(q) <= before * 1.1 + 5


def test_a_claim_costs_the_same_while_a_transaction_is_held_open(q, make):
    before = claim_cost(q)
    holder = make(like=q)
    holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.one("SELECT 1")
    writer = make(like=q)
    writer.run("BEGIN")
    writer.put("under way", priority="0")  # has a transaction id, so that the snapshots' ends differ
    at = q.at(None)
    for _ in range(25):
        at.put(*[b"x"] * 200, slot=9)
        at.ack(at.claim(slots=(9,), want=200))
        q.count_up()
    after = claim_cost(q)
    writer.run("COMMIT")
    holder.run("COMMIT")
    assert after <= before * 1.1 + 20  # 5,000 dead rows are some 170 pages


def least_buffers(q, sql, *args):
    return min(buffers(q, sql, *args) for _ in range(4))


def test_a_sweep_costs_the_same_beside_old_marks_and_while_a_transaction_is_held_open(q, make):
    """Sweeps come twice a second. Marks are kept for an hour, and tallies that were summed up for as
    long as somebody might see them."""
    sweep = "SELECT * FROM triage.engine_sweep(1000)"
    before = least_buffers(q, sweep)
    holder = make(like=q)
    holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.one("SELECT 1")
    q.run("INSERT INTO triage.mark SELECT gen_random_uuid(), triage.now_ms() FROM"
          " generate_series(1, 20000)")
    for _ in range(20):
        q.run("INSERT INTO triage.tally (queue, slot, enqueued) SELECT %s, 0, 0 FROM"
              " generate_series(1, 1000)", q.id)
        q.count_up()
    q.run("ANALYZE triage.tally, triage.mark")
    after = least_buffers(q, sweep)
    holder.run("COMMIT")
    assert after <= before * 1.1 + 40  # 20,000 rows are some 300 pages, and as many of an index


def test_random_work_keeps_the_counts_and_the_order(make):
    """Everything at once in invented time, against a list of what should be where."""
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    q = make(max_attempts=2, expired=rng.choice(["drop", "dead"]),
             retry={"backoff": rng.choice(["none", "fixed"]), "jitter": 0})
    now, held = 10_000, []
    try:
        for _ in range(150):
            now += rng.randrange(400)
            at = q.at(now)
            match rng.randrange(9):
                case 0 | 1 | 2:
                    at.put(*[b"x" * rng.choice([1, 3000])] * rng.randrange(1, 5),
                           slot=rng.randrange(3), delay=rng.choice([0, 0, 900]),
                           ttl=rng.choice([None, None, 1500]), ready=rng.choice([None, None, 5]))
                case 3 | 4:
                    got = at.claim(slots=(0, 1, 2), want=rng.randrange(1, 6),
                                   lease=rng.choice([500, 5000]))
                    for slot in range(3):
                        places = [(m["ready_ms"], m["seq"]) for m in got if m["slot"] == slot]
                        assert places == sorted(places)
                    held += got
                case 5:
                    at.ack(held[:2])
                    held = held[2:]
                case 6:
                    verb = rng.choice([at.nack, at.release])
                    verb(held[:3])
                    held = held[3:]
                case 7:
                    at.sweep()
                case 8:
                    q.run(rng.choice(["SELECT triage.redrive(%s)", "SELECT triage.purge_dead(%s)",
                                      "SELECT triage.count_up((triage.queue_named(%s)).id, 0)"]),
                          q.queue)
            if rng.randrange(10) == 0:
                assert_conserved(q)
        assert_conserved(q)
    except AssertionError:
        print("seed", seed)
        raise


def test_counts_add_up_when_many_work_at_once(q, make):
    workers = [make(like=q) for _ in range(6)]

    def work(own, seed):
        rng = random.Random(seed)
        for n in range(40):
            if n % 2:
                own.put(priority=str(rng.randrange(10)))
            for m in own.claim(2):
                rng.choice([own.ack, own.nack])(m)
            if n % 10 == seed:
                own.one("SELECT triage.count_up(%s, 0)", own.id)
                own.run("SELECT triage.sweep()")

    threads = [threading.Thread(target=work, args=(w, n)) for n, w in enumerate(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert_conserved(q)
    q.count_up()
    assert_conserved(q)
    assert q.stats()["totals"]["enqueued"] == 6 * 20


def test_sweepers_share_the_work(q, make):
    q.at(0).put(*[b"x"] * 60)
    q.at(0).claim(want=60, lease=10)
    first, second = make(like=q), make(like=q)
    first.run("BEGIN")
    assert first.at(10).sweep(20) == 20
    assert second.at(10).sweep(100) == 40
    first.run("COMMIT")
    assert q.stats()["ready"] == 60
