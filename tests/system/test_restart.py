"""What a restart keeps, by SIGTERM or by kill -9, and what a server refuses to start on."""

import os
import re
import tempfile
import threading

import pytest

from frames import make_format_two
from server import Server
from wire import AT_ONCE, Connection, conserved, request_bytes, until


def test_sigterm_answers_those_who_wait_and_exits_with_zero(start):
    server = start()
    queue = server.queue("q")
    queue.configure()
    line = []
    for _ in range(20):
        line.append(Connection(server.address))
        line[-1].send(request_bytes("POST", queue.path + "/messages/claim",
                                    b'{"wait_seconds":60}'))
    until(lambda: queue.stats()["waiting_consumers"] == 20)
    server.stop()
    for connection in line:
        answer = connection.answer()
        assert answer.status == 200 and answer["messages"] == []
        assert connection.at_end()


def test_sigterm_loses_nothing_that_was_answered(start):
    server = start()
    queue = server.queue("q")
    enqueue = request_bytes("POST", queue.path + "/messages", b'{"payload":"x"}',
                            {"Content-Type": "application/json"})
    connection = Connection(server.address)
    connection.send(enqueue * 50)
    first = connection.answer()
    server.terminate()
    stored = 0
    try:
        while True:
            stored += first.status == 201
            first = connection.answer()
    except ConnectionError:
        pass
    assert server.wait() == 0
    server.start()
    assert server.queue("q").stats()["ready"] >= stored >= 1


@pytest.mark.parametrize("engine", ["memory", "local"])
def test_sigterm_under_requests_drains_every_thread(start, engine):
    """Shards and connections have threads of their own; none ends while another may need it. A
    request that is lost between them would keep the server until drain_seconds are over."""
    server = start(engine=engine, flags=["--shards", "2", "--net-threads", "2"], drain_seconds=300)
    idle = server.queue("idle")
    idle.configure()
    waiting = Connection(server.address)
    waiting.send(request_bytes("POST", idle.path + "/messages/claim", b'{"wait_seconds":60}'))
    until(lambda: idle.stats()["waiting_consumers"] == 1)
    answered = [0] * 16
    requests = b"".join(
        request_bytes("POST", f"/v1/queues/q{number}/messages", b'{"payload":"x"}',
                      {"Content-Type": "application/json"}) +
        request_bytes("GET", f"/v1/queues/q{number}/stats") for number in range(8))

    def produce(number):
        connection = Connection(server.address)
        try:
            while True:
                connection.send(requests)
                for _ in range(16):
                    answered[number] += connection.answer().status == 201
        except ConnectionError:
            connection.close()

    threads = [threading.Thread(target=produce, args=(number,), daemon=True)
               for number in range(len(answered))]
    for thread in threads:
        thread.start()
    until(lambda: all(count >= 5 for count in answered))
    server.stop()
    for thread in threads:
        thread.join()
    answer = waiting.answer()
    assert answer.status == 200 and answer["messages"] == []
    if engine == "local":
        server.start()
        ready = sum(server.queue(f"q{number}").stats()["ready"] for number in range(8))
        assert ready >= sum(answered)


def test_sigterm_while_leases_run_out(start):
    """A client that never sends the rest of its request holds up the end until drain_seconds are
    over; leases that run out meanwhile wait for the next start."""
    server = start(drain_seconds=1)
    queue = server.queue("q")
    queue.put_all([{"payload": "x"}] * 1000)
    for number in range(100):
        queue.take(max=10, visibility_timeout_seconds=0.9 + number / 100)
    slow = Connection(server.address)
    slow.send(request_bytes("POST", queue.path + "/messages", b'{"payload":"x"}')[:-5])
    server.stop()
    server.start()
    until(lambda: server.queue("q").stats()["ready"] == 1000)


def test_a_second_server_on_the_same_data_refuses_and_harms_nothing(start, tmp_path):
    first = start()
    first.queue("q").put("x")
    second = Server(tmp_path, data=first.data)
    status, log = second.start_refused()
    assert status > 0
    assert first.data in log and re.search("lock|in use|another|already", log), log
    assert first.queue("q").take_one()["payload"] == "x"
    first.stop()


def test_two_servers_with_memory_do_not_mind_each_other(start):
    one, two = start(engine="memory"), start(engine="memory")
    one.queue("q").put("x")
    assert two.client().get("/v1/queues")["queues"] == []


def test_data_of_a_newer_format_is_refused(start):
    server = start()
    server.queue("q").put("x")
    server.stop()
    path = os.path.join(server.data, "FORMAT")
    with open(path) as file:
        ours = file.read()
    number = int(re.search(r"\d+", ours)[0])
    with open(path, "w") as file:
        file.write(ours.replace(str(number), str(number + 1)))
    status, log = server.start_refused()
    assert status > 0
    assert str(number + 1) in log and "format" in log.lower(), log
    with open(path, "w") as file:
        file.write(ours)
    assert server.start().queue("q").take_one()["payload"] == "x"


# The secret that the log is sealed with, and directories from before there was one.


def key_of(server):
    return os.path.join(server.data, "KEY")


def test_the_secret_is_its_owners_alone_and_stays(start):
    server, other = start(), start()
    with open(key_of(server)) as file:
        secret = file.read()
    assert os.stat(key_of(server)).st_mode & 0o777 == 0o600
    assert re.fullmatch("[0-9a-f]{64} [0-9a-f]{16}\n", secret)
    server.restart()
    with open(key_of(server)) as file, open(key_of(other)) as others:
        assert file.read() == secret != others.read()
    assert not server.log.find("can read the secret")
    os.chmod(key_of(server), 0o644)
    server.restart()
    assert server.log.find(r'level=warn .*can read the secret.* remedy="chmod 600"')


def damaged(secret):
    return secret[:5] + ("1" if secret[5] == "0" else "0") + secret[6:]


@pytest.mark.parametrize("change", [None, damaged, lambda secret: secret[:40],
                                    lambda secret: secret + "x", lambda secret: ""])
def test_without_its_secret_a_directory_is_refused_and_nothing_is_made_up(start, change):
    server = start()
    server.queue("q").put("x")
    server.kill()
    with open(key_of(server)) as file:
        secret = file.read()
    if change:
        with open(key_of(server), "w") as file:
            file.write(change(secret))
    else:
        os.unlink(key_of(server))
    status, log = server.start_refused()
    assert status > 0 and key_of(server) in log, log
    assert os.path.exists(key_of(server)) == bool(change)
    with open(key_of(server), "w") as file:
        file.write(secret)
    assert server.start().queue("q").take_one()["payload"] == "x"


def test_without_its_secret_and_its_number_a_directory_is_refused(start):
    """It looks new, but for its log."""
    server = start()
    server.queue("q").put("x")
    server.kill()
    os.unlink(key_of(server))
    os.unlink(os.path.join(server.data, "FORMAT"))
    status, log = server.start_refused()
    assert status > 0 and key_of(server) in log, log


def test_the_secret_of_another_directory_does_not_open_the_log(start):
    server, other = start(), start()
    server.queue("q").put("x")
    server.kill()
    with open(key_of(other)) as other_key, open(key_of(server), "w") as file:
        file.write(other_key.read())
    status, log = server.start_refused()
    assert status > 0 and os.path.join(server.data, "log") in log, log


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_directory_of_the_format_before_is_taken_over(start, end):
    server = start()
    queue = server.queue("q")
    for payload in ["first", "second", "x" * 200_000]:
        queue.put(payload)
    getattr(server, end)()
    make_format_two(server.data)
    queue = server.start().queue("q")
    queue.put("fourth")
    with open(os.path.join(server.data, "FORMAT")) as file:
        assert int(file.read()) == 3
    server.restart()
    queue = server.queue("q")
    assert queue.take_payloads(4) == ["first", "second", "x" * 200_000, "fourth"]
    assert queue.take() == [] and conserved(queue.stats())


def test_damage_in_a_log_of_the_format_before_is_refused_and_named(start):
    server, _, _ = killed_with_three(start)
    make_format_two(server.data)
    path, data = log_segment(server)
    overwrite(path, data.index(b"in the middle"), b"IN")
    status, log = server.start_refused()
    assert status > 0 and re.search(re.escape(path) + r" offset \d+", log), log


def log_segment(server):
    """The segment that the last records went to, and its bytes up to the last that is not zero."""
    folder = os.path.join(server.data, "log")
    newest, bytes_of = None, b""
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read().rstrip(b"\0")
        if b"the last one" in data:
            newest, bytes_of = os.path.join(folder, name), data
    return newest, bytes_of


def killed_with_three(start):
    server = start()
    queue = server.queue("q")
    for payload in ["first", "in the middle", "the last one"]:
        queue.put(payload)
    server.kill()
    return server, *log_segment(server)


def overwrite(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def test_damage_in_the_log_is_refused_and_named(start):
    server, path, data = killed_with_three(start)
    place = data.index(b"in the middle")
    overwrite(path, place, b"IN")
    status, log = server.start_refused()
    assert status > 0 and re.search(re.escape(path) + r" offset \d+", log), log
    overwrite(path, place, b"in")
    assert server.start().queue("q").take_payloads(3) == ["first", "in the middle", "the last one"]


def test_a_torn_write_at_the_end_of_the_log_is_cut_off(start):
    server, path, data = killed_with_three(start)
    overwrite(path, data.index(b"the last one"), bytes(4096))
    server.start().queue("q").put("again")
    server.restart()
    queue = server.queue("q")
    assert queue.take_payloads(3) == ["first", "in the middle", "again"]
    assert queue.take(max=1) == [] and conserved(queue.stats())


def test_a_data_directory_that_cannot_be_written_is_refused(tmp_path):
    """Root may write everywhere, so the directory is one that the kernel itself keeps."""
    server = Server(tmp_path, data="/proc/triage-data")
    status, log = server.start_refused()
    assert status > 0 and "/proc/triage-data" in log


def test_a_data_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    status, log = Server(tmp_path, data=tmp_path / "file").start_refused()
    assert status > 0 and str(tmp_path / "file") in log


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_read_only_data_directory_is_refused_to_an_ordinary_user():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        os.chmod(folder, 0o755)
        data = os.path.join(folder, "data")
        os.mkdir(data, mode=0o555)
        server = Server(folder, data=data)
        server.user = 65534
        status, log = server.start_refused()
        assert status > 0 and data in log


@pytest.mark.parametrize("flags, word", [
    (["--engine", "floppy"], "floppy"), (["--durability", "maybe"], "maybe"),
    (["--log-level", "loud"], "loud"), (["--nonsense"], "nonsense"),
    (["--listen", "nowhere:x"], "nowhere"),
    (["--config", "/nonexistent/conf"], "/nonexistent/conf"),
])
def test_wrong_flags_are_named(tmp_path, flags, word):
    status, log = Server(tmp_path, flags=flags).start_refused()
    assert status > 0 and word in log


@pytest.mark.parametrize("settings", [
    {"max_conections": 5}, {"max_connections": "many"}, {"auto_create": "perhaps"},
    {"tokens_file": "/nonexistent/tokens"}, {"default_profile": "nonsense"}])
def test_wrong_settings_are_named(tmp_path, settings):
    status, log = Server(tmp_path, **settings).start_refused()
    [key] = settings
    assert status > 0 and (key in log or str(settings[key]) in log), log


def test_a_port_that_is_taken_is_named(start, tmp_path):
    first = start(engine="memory")
    address = "%s:%d" % first.address
    status, log = Server(tmp_path, engine="memory", flags=["--listen", address]).start_refused()
    assert status > 0 and address in log


# Kill -9.


def test_receipts_taken_before_the_kill_still_work_after_it(start):
    server = start()
    queue = server.queue("q")
    queue.configure(retry=AT_ONCE)
    queue.put_all([{"payload": letter} for letter in "abcde"])
    a, b, c, d, e = queue.take(max=5)
    server.restart()
    queue = server.queue("q")
    assert queue.take() == [], "all five are still leased"
    assert queue.ack(a).status == 204
    assert queue.nack(b).json["state"] == "ready"
    assert queue.extend(c, 60).status == 200
    assert queue.release(d).status == 200
    assert queue.ack_all([e])["results"][0].get("error") is None
    assert [m["payload"] for m in queue.take(max=5)] == ["b", "d"]
    assert queue.ack(c).status == 204


def test_a_lease_runs_on_while_the_server_is_down(start):
    server = start()
    queue = server.queue("q")
    queue.put("x")
    message = queue.take_one(visibility_timeout_seconds=1)
    server.restart()
    queue = server.queue("q")
    again = queue.take_one(wait_seconds=30)
    assert again["attempt"] == 2
    assert queue.ack(message).refusal == (409, "receipt-expired")
    assert queue.ack(again).status == 204


def test_attempts_and_reasons_survive(start):
    server = start()
    server.queue("q").configure(max_attempts=3, retry=AT_ONCE)
    server.queue("q").put("poison")
    for attempt, state in ((1, "ready"), (2, "ready"), (3, "dead")):
        queue = server.queue("q")
        message = queue.take_one()
        assert message["attempt"] == attempt
        assert queue.nack(message, reason=f"failed {attempt}").json["state"] == state
        server.restart()
    [dead] = server.queue("q").dead()
    assert (dead["payload"], dead["reason"], dead["attempts"]) == ("poison", "failed 3", 3)
    assert server.queue("q").post("dead/redrive")["redriven"] == 1
    server.restart()
    assert server.queue("q").take_one()["attempt"] == 1


def test_delays_survive_and_still_pass(start):
    server = start()
    queue = server.queue("q")
    queue.put("soon", delay_seconds=1)
    far = queue.put("far", delay_seconds=3600)
    server.restart()
    queue = server.queue("q")
    assert queue.take_one(wait_seconds=30)["payload"] == "soon"
    assert queue.show(far)["state"] == "scheduled"


def test_dedup_keys_survive(start):
    server = start()
    first = server.queue("q").put("x", dedup_key="k")
    server.queue("live").configure(dedup={"scope": "live"})
    second = server.queue("live").put("x", dedup_key="k")
    server.restart()
    assert server.queue("q").enqueue("y", dedup_key="k")["message_id"] == first
    queue = server.queue("live")
    assert queue.enqueue("y", dedup_key="k")["message_id"] == second
    assert queue.ack(queue.take_one()).status == 204
    server.restart()
    assert server.queue("live").put("z", dedup_key="k") != second


def test_order_and_priority_survive(start):
    server = start()
    queue = server.queue("q")
    queue.configure(retry=AT_ONCE)
    queue.put_all([{"payload": f"{p}{n}", "priority": p} for n in range(3) for p in (1, 9, 5)])
    returned = queue.take_one()
    queue.nack(returned)
    server.restart()
    queue = server.queue("q")
    queue.put("93", priority=9)
    assert queue.take_payloads(10) == ["90", "91", "92", "93", "50", "51", "52", "10", "11", "12"]


def test_configuration_and_pause_survive(start):
    server = start()
    queue = server.queue("q")
    queue.configure(levels=[{"name": "red"}, {"name": "blue"}], default_priority="blue",
                    max_attempts=7, retry={"backoff": "fixed", "base_seconds": 2},
                    visibility_timeout_seconds=11, ttl_seconds=1000, expired="dead",
                    dedup={"window_seconds": 9, "scope": "live"}, max_depth=50,
                    history_seconds=5)
    queue.put("x", priority="red")
    assert queue.post("pause").status in (200, 204)
    before = queue.client.get(queue.path).json
    server.restart()
    queue = server.queue("q")
    assert queue.client.get(queue.path).json == before
    assert queue.take() == []
    assert queue.post("resume").status in (200, 204)
    server.restart()
    assert server.queue("q").take_one()["level"] == "red"


def test_totals_survive(start):
    server = start()
    queue = server.queue("q")
    queue.configure(max_attempts=1)
    queue.put_all([{"payload": n} for n in range(10)])
    queue.put("k", dedup_key="k")
    queue.enqueue("k", dedup_key="k")
    taken = queue.take(max=5)
    queue.ack(taken[0])
    queue.nack(taken[1])
    queue.cancel(queue.put("c"))
    before = queue.stats()
    server.restart()
    after = server.queue("q").stats()
    for name in ("totals", "ready", "scheduled", "in_flight", "dlq_depth", "depth_by_priority"):
        assert after[name] == before[name], name
    assert conserved(after)


def test_payloads_of_every_kind_survive(start):
    server = start()
    queue = server.queue("q")
    payloads = ["", "grüße \x00 🚦", {"a": [1, 2.5, None]}, 17, None, "x" * 262144]
    for payload in payloads:
        queue.put(payload, metadata={"k": "v"})
    server.restart()
    taken = server.queue("q").take(max=10)
    assert [m["payload"] for m in taken] == payloads
    assert all(m["metadata"] == {"k": "v"} for m in taken)


def test_what_was_finished_does_not_come_back(start):
    server = start()
    queue = server.queue("q")
    queue.put_all([{"payload": n} for n in range(100)])
    taken = queue.take(max=50)
    assert all("error" not in r for r in queue.ack_all(taken)["results"])
    cancelled = queue.put("cancelled")
    queue.cancel(cancelled)
    server.client().delete("/v1/queues/q2")
    server.queue("gone").put("x")
    assert server.client().delete("/v1/queues/gone", force=True).status == 204
    server.restart()
    queue = server.queue("q")
    assert queue.take_payloads(50) == list(range(50, 100))
    assert queue.take() == []
    assert server.client().get("/v1/queues/gone").refusal == (404, "queue-not-found")


def test_a_purge_of_many_survives(start):
    server = start()
    queue = server.queue("q")
    queue.put_all([{"payload": n} for n in range(3000)])
    assert queue.post("purge")["purged"] == 3000
    kept = queue.put("kept")
    server.restart()
    queue = server.queue("q")
    assert [m["message_id"] for m in queue.take(max=5)] == [kept]
    assert conserved(queue.stats())


def test_memory_forgets_by_design(start):
    server = start(engine="memory")
    server.queue("q").put("x")
    server.restart()
    assert server.client().get("/v1/queues")["queues"] == []


def test_a_server_stops_cleanly_as_soon_as_it_is_there(start):
    for _ in range(30):
        start(engine="memory").stop()


@pytest.mark.parametrize("durability", ["fsync", "os", "interval:20"])
def test_a_clean_stop_keeps_everything_whatever_the_durability(start, durability):
    server = start(flags=["--durability", durability])
    queue = server.queue("q")
    queue.put_all([{"payload": n} for n in range(200)])
    assert server.client().get("/v1/info")["durability"] == durability
    server.stop()
    server.start()
    assert server.queue("q").take_payloads(200) == list(range(200))


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_kill_nine_keeps_everything_with_fsync_and_with_os(start, durability):
    server = start(flags=["--durability", durability])
    server.queue("q").put_all([{"payload": n} for n in range(200)])
    server.restart()
    assert server.queue("q").take_payloads(200) == list(range(200))
