"""A disk that takes a sync and does not come back with it. Nothing is acknowledged meanwhile, and
nothing else stops: no event loop waits for a commit, whatever was asked of messages that are only
on disk. What was asked is answered when the disk is back, in the order in which it was asked.

Then a disk that does not come back with a read: what needs it waits, and nothing else does."""

import json
import select

import pytest

from shim import FAIL, HANG, READ, SYNC, Shim
from wire import Connection, Queue, request_bytes, until

COUNT = 90  # far more than 4 KiB of memory keep


class Asked:
    """A request whose answer is not waited for."""

    def __init__(self, server, method, path, body=None, headers=None):
        self.connection = Connection(server.address, deadline=120)
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
        self.connection.send(request_bytes(method, path, data, headers))

    def answered(self):
        return bool(select.select([self.connection.socket], [], [], 0)[0])

    def answer(self):
        return self.connection.answer()


def goes_on(server):
    """Twice: what was asked before the first may be met in the same turn of the loop."""
    api = server.client(deadline=60)
    for _ in range(2):
        assert api.get("/healthz").status == 200
        assert [each["name"] for each in api.get("/v1/queues")["queues"]][0] == "other"
        assert api.get("/metrics").status == 200


def prepare(make, **settings):
    """A queue whose messages are on disk alone, and another one."""
    server = make(memory_limit="4K", **settings)
    shim = Shim(server)
    server.start()
    server.queue("other").put("x")
    queue = server.queue("tail")
    queue.configure(history_seconds=3600, max_attempts=1,
                    levels=[{"name": "high"}, {"name": "low"}])
    ids = queue.put_all([{"payload": f"{i:04}" + "." * 500, "priority": "low",
                          "dedup_key": f"key {i}"} for i in range(COUNT)])
    dead = queue.take(max=3)
    for each in dead:
        assert queue.nack(each).status == 200
    return server, shim, queue, ids[3:], dead


def hang(server, shim):
    """From here on the disk has a group with records of the tail, and does not give it back."""
    shim.arm(HANG, 1, kinds=SYNC, every=True)
    under_way = Asked(server, "POST", "/v1/queues/tail/messages",
                      {"payload": "under way" + "." * 500, "priority": "low"})
    until(lambda: shim.get("fired") > 0)
    return under_way


def questions(queue, ids, dead):
    """What reads the store: (method, path, body, headers), and the status of the answer."""
    message = f"{queue.path}/messages/"
    receipt = dead[0]["receipt_handle"]  # of another message
    dead = [each["message_id"] for each in dead]
    return {
        "get": (("GET", message + ids[-1]), 200),
        "get what is not there": (("GET", message + ids[-1][:-3] + "zz0"), 404),
        "list": (("GET", f"{queue.path}/export"), 200),
        "cancel": (("DELETE", message + ids[-2] + "?cancel=true"), 204),
        "escalate": (("POST", message + ids[-3] + "/priority", {"priority": "high"}), 200),
        "ack": (("DELETE", message + ids[-4], None, {"X-Receipt-Handle": receipt}), 409),
        "ack many": (("POST", message + "ack", {"receipts": [
            {"message_id": ids[-5], "receipt_handle": receipt}]}), 200),
        "dedup": (("POST", queue.path + "/messages",
                   {"payload": "again", "priority": "low", "dedup_key": f"key {COUNT - 1}"}), 200),
        "dead letters": (("GET", f"{queue.path}/dead"), 200),
        "a dead letter": (("GET", f"{queue.path}/dead/{dead[0]}"), 200),
        "redrive one": (("POST", f"{queue.path}/dead/redrive", {"ids": [dead[1]]}), 200),
        "redrive all": (("POST", f"{queue.path}/dead/redrive", {}), 200),
        "purge": (("POST", f"{queue.path}/purge", {}), 200),
        "purge the dead": (("POST", f"{queue.path}/dead/purge", {}), 200),
    }


NOBODY = {"message_id": "", "receipt_handle": ""}
QUESTIONS = list(questions(Queue(None, "x"), [""] * 5, [NOBODY] * 3))


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_about_a_tail_stops_the_loop(make, question):
    server, shim, queue, ids, dead = prepare(make)
    request, status = questions(queue, ids, dead)[question]
    under_way = hang(server, shim)
    asked = Asked(server, *request)
    goes_on(server)
    assert not under_way.answered() and not asked.answered()
    shim.disarm()
    assert under_way.answer().status == 201
    answer = asked.answer()
    assert answer.status == status, answer
    server.stop()


def test_ops_of_a_queue_keep_their_order_behind_one_that_waits(make):
    server, shim, queue, ids, _ = prepare(make)
    under_way = hang(server, shim)
    path = f"{queue.path}/messages/{ids[-1]}"
    asked = []
    for request in (("DELETE", path + "?cancel=true"), ("GET", path),
                    ("POST", f"{queue.path}/purge", {}),
                    ("POST", queue.path + "/messages", {"payload": "last"}),
                    ("POST", queue.path + "/messages/claim", {"max": 10})):
        asked.append(Asked(server, *request))
        goes_on(server)
    shim.disarm()
    assert under_way.answer().status == 201
    cancelled, gone, purged, put, claimed = [each.answer() for each in asked]
    assert (cancelled.status, gone.status, put.status) == (204, 404, 201)
    assert purged["purged"] == len(ids)  # the one under way is among them, the cancelled one is not
    assert [m["payload"] for m in claimed["messages"]] == ["last"]
    server.stop()


def test_a_call_that_names_a_message_twice_knows_what_it_has_ended(make):
    """The store has heard of neither end when the call comes to the second."""
    server, shim, queue, ids, dead = prepare(make)
    kept, failed = queue.take(max=2)
    pairs = [[{k: m[k] for k in ("message_id", "receipt_handle")} for m in (each, each, dead[0])]
             for each in (kept, failed)]
    under_way = hang(server, shim)
    asked = [Asked(server, "POST", f"{queue.path}/messages/{verb}", {"receipts": receipts})
             for verb, receipts in zip(("ack", "nack"), pairs)]
    goes_on(server)
    shim.disarm()
    assert under_way.answer().status == 201
    for each in asked:
        results = each.answer()["results"]
        assert [r.get("error", {}).get("status", 200) for r in results] == [200, 409, 409], results
    assert [queue.show(m)["state"] for m in (kept, failed)] == ["done", "dead"]
    server.stop()


def test_a_queue_is_deleted_under_what_waits(make):
    server, shim, queue, ids, _ = prepare(make)
    under_way = hang(server, shim)
    path = f"{queue.path}/messages/{ids[-1]}"
    asked = [Asked(server, "GET", path), Asked(server, "POST", f"{queue.path}/purge", {})]
    goes_on(server)
    deleted = Asked(server, "DELETE", queue.path + "?force=true")
    goes_on(server)
    shim.disarm()
    assert under_way.answer().status == 201
    assert deleted.answer().status == 204
    assert [each.answer().status for each in asked] == [404, 404]
    queue.put("a new one")
    assert queue.stats()["ready"] == 1
    server.stop()


def test_a_server_that_stops_answers_what_waits(make):
    server, shim, queue, ids, _ = prepare(make)
    under_way = hang(server, shim)
    asked = Asked(server, "GET", f"{queue.path}/messages/{ids[-1]}")
    goes_on(server)
    server.terminate()
    shim.disarm()
    assert under_way.answer().status == 201
    assert asked.answer().status == 200
    assert server.wait() == 0


def test_what_waits_is_refused_when_the_disk_fails(make):
    server, shim, queue, ids, _ = prepare(make)
    under_way = hang(server, shim)
    asked = [Asked(server, "GET", f"{queue.path}/messages/{ids[-1]}"),
             Asked(server, "POST", queue.path + "/messages", {"payload": "behind"})]
    goes_on(server)
    shim.set(every=0)  # one sync fails; RocksDB has others to make when it is closed
    shim.set(action=FAIL)
    assert [each.answer().status for each in [under_way, *asked]] == [503] * 3
    assert server.wait() == 1, str(server.log)


def test_a_claim_whose_commit_fails_has_found_nothing(make):
    server, shim, queue, _, _ = prepare(make)
    shim.arm(HANG, 1, kinds=SYNC, every=True)
    claim = Asked(server, "POST", queue.path + "/messages/claim", {"max": 3})
    until(lambda: shim.get("fired") > 0)
    shim.set(every=0)
    shim.set(action=FAIL)
    assert claim.answer().status == 503
    assert server.wait() == 1, str(server.log)  # no assertion ended it


# Reads


CROWD = 40  # more than a block


def prepare_cold(make):
    """The same after a restart: the records are in tables, and the cache has no block of these but
    the one that a start reads; so there are others around it. Some messages were delivered before,
    and their payloads are on disk alone."""
    server, shim, queue, ids, dead = prepare(make)
    queue.put_all([{"payload": "." * 500, "priority": "high"} for _ in range(CROWD)])
    for each in queue.take(max=CROWD):
        assert queue.nack(each).status == 200
    held = queue.take(max=CROWD)[-1]
    ids = ids[CROWD:]
    server.stop()
    server.start()
    queue = server.queue("tail")
    assert queue.stats()["ready"] == len(ids)
    return server, shim, queue, ids, dead, held


def other_work_goes_on(server):
    other = server.queue("other")
    for _ in range(2):
        other.put("y")
        for each in other.take(max=5):
            assert other.ack(each).status == 204


def ask_cold(server, shim, request):
    shim.arm(HANG, 1, kinds=READ, every=True)
    asked = Asked(server, *request)
    until(lambda: shim.get("fired") > 0 or asked.answered())
    return asked


COLD = [each for each in QUESTIONS if each != "get what is not there"]


@pytest.mark.parametrize("question", [*COLD, "get held", "ack held", "import", "export dead"])
def test_no_read_of_the_disk_stops_the_loop(make, question):
    server, shim, queue, ids, dead, held = prepare_cold(make)
    message = f"{queue.path}/messages/{held['message_id']}"
    asks = {**questions(queue, ids, dead),
            "get held": (("GET", message), 200),
            "ack held": (("DELETE", message, None,
                          {"X-Receipt-Handle": held["receipt_handle"]}), 204),
            "export dead": (("GET", f"{queue.path}/export?state=dead"), 200)}
    if question == "import":
        line = server.client().get(f"{queue.path}/export").body.splitlines()[-1]
        asks["import"] = (("POST", f"{queue.path}/messages/import", line + b"\n",
                           {"Content-Type": "application/x-ndjson"}), 200)
    request, status = asks[question]
    asked = ask_cold(server, shim, request)
    assert shim.get("fired") > 0, f"nothing was read: {asked.answer()}"
    goes_on(server)
    other_work_goes_on(server)
    assert not asked.answered()
    shim.disarm()
    answer = asked.answer()
    assert answer.status == status, answer
    assert "triage_engine_loop_reads_total 0\n" in server.client().get("/metrics").body.decode()
    server.stop()


# Time: a lease that runs out, a time to live that ends. Nobody asked, so nobody is parked.


def prepare_outlived(make):
    """Messages in memory whose dedup keys only the disk has. Leases on some of them, which were
    delivered before a restart: the disk has their payloads, too."""
    server = make(memory_limit="4K")
    shim = Shim(server)
    server.start()
    server.queue("other").put("x")
    queue = server.queue("tail")
    queue.configure(max_attempts=1, dedup={"scope": "live"},
                    levels=[{"name": "high"}, {"name": "low"}])
    queue.put_all([{"payload": "." * 500, "priority": "low", "dedup_key": f"low {i}"}
                   for i in range(COUNT)])
    queue.put_all([{"payload": "." * 500, "priority": "high", "dedup_key": f"high {i}"}
                   for i in range(CROWD)])
    leased = queue.take(max=CROWD, visibility_timeout_seconds=3600)
    queue.put_all([{"payload": f"mortal {i}" + "." * 500, "priority": "high",
                    "dedup_key": f"mortal {i}", "ttl_seconds": 1800} for i in range(4)])
    server.stop()
    server.start()
    return server, shim, server.queue("tail"), leased


def jump(shim):
    """Half an hour and more goes by."""
    shim.set(clock_ms=2_000_000)


def let_lease_end(queue, message):
    assert queue.extend(message, 0).status == 200


def ended(queue, **expected):
    totals = queue.stats()["totals"]
    return all(totals[name] == count for name, count in expected.items())


def sweep_cold(server, shim, begin):
    """What begin() makes due is read, and nothing else waits for it."""
    shim.arm(HANG, 1, kinds=READ, every=True)
    begin()
    until(lambda: shim.get("fired") > 0)
    goes_on(server)
    other_work_goes_on(server)


def no_loop_read(server):
    assert "triage_engine_loop_reads_total 0\n" in server.client().get("/metrics").body.decode()


def test_no_time_to_live_that_ends_stops_the_loop(make):
    server, shim, queue, _ = prepare_outlived(make)
    sweep_cold(server, shim, lambda: jump(shim))
    asked = Asked(server, "POST", queue.path + "/messages",
                  {"payload": "again", "priority": "high", "dedup_key": "mortal 3"})
    goes_on(server)
    assert not asked.answered()  # it is behind the end of the one that had the key
    shim.disarm()
    assert asked.answer().status == 201
    assert ended(queue, expired=4)
    no_loop_read(server)
    server.stop()


def test_no_lease_that_runs_out_stops_the_loop(make):
    """It was the last attempt: a dead letter is written, with its payload."""
    server, shim, queue, leased = prepare_outlived(make)
    sweep_cold(server, shim, lambda: let_lease_end(queue, leased[-1]))
    shim.disarm()
    until(lambda: ended(queue, dead=1))
    assert queue.dead()[0]["payload"] == "." * 500
    no_loop_read(server)
    server.stop()


def test_no_outlived_message_that_a_claim_meets_stops_the_loop(make):
    server, shim, queue, _ = prepare_outlived(make)
    claims = []

    def begin():
        jump(shim)
        claims.append(Asked(server, "POST", queue.path + "/messages/claim", {"max": 1}))

    sweep_cold(server, shim, begin)
    assert not claims[0].answered()
    shim.disarm()
    [message] = claims[0].answer()["messages"]
    assert message["payload"] == "." * 500
    assert ended(queue, expired=4)
    no_loop_read(server)
    server.stop()


def test_a_queue_is_deleted_under_a_sweep_that_reads(make):
    server, shim, queue, _ = prepare_outlived(make)
    sweep_cold(server, shim, lambda: jump(shim))
    behind = Asked(server, "POST", queue.path + "/messages", {"payload": "behind"})
    goes_on(server)
    deleted = Asked(server, "DELETE", queue.path + "?force=true")
    goes_on(server)
    shim.disarm()
    assert deleted.answer().status == 204
    assert behind.answer().status in (201, 404)
    queue.put("a new one")
    assert queue.stats()["ready"] == 1
    server.stop()


def test_a_server_stops_under_a_sweep_that_reads(make):
    server, shim, queue, _ = prepare_outlived(make)
    sweep_cold(server, shim, lambda: jump(shim))
    server.terminate()
    shim.disarm()
    assert server.wait() == 0
    server.start()
    until(lambda: ended(server.queue("tail"), expired=4))
    server.stop()
