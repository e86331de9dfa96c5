"""The stream of events: what changes in queues, for as long as somebody listens."""

import json
import signal
import subprocess

import pytest

from server import TRIAGE, environment, tokens_file
from wire import Connection, parse_head, request_bytes, until


class Stream:
    """A listener. Its events are (name, data); the id of the last one is kept."""

    def __init__(self, server, query="", headers=None, tls=None):
        self.connection = Connection(server.address, tls=tls)
        self.connection.send(request_bytes("GET", "/v1/events" + query, headers=headers))
        self.text, self.id, self.ended = b"", None, False
        while b"\r\n\r\n" not in self.connection.pending:
            self.connection.receive()
        head, _, rest = bytes(self.connection.pending).partition(b"\r\n\r\n")
        self.connection.pending[:] = rest
        self.status, self.headers = parse_head(head)

    def chunk(self):
        pending = self.connection.pending
        while b"\r\n" not in pending:
            self.connection.receive()
        size, _, _ = bytes(pending).partition(b"\r\n")
        start, length = len(size) + 2, int(size, 16)
        while len(pending) < start + length + 2:
            self.connection.receive()
        self.text += bytes(pending[start:start + length])
        del pending[:start + length + 2]
        self.ended = length == 0

    def event(self):
        """The next event; None when the stream has ended as it should."""
        while True:
            while b"\n\n" not in self.text and not self.ended:
                self.chunk()
            if self.ended:
                return None
            block, _, self.text = self.text.partition(b"\n\n")
            fields = dict(line.split(": ", 1) for line in block.decode().split("\n")
                          if line and line[0] != ":")
            self.id = fields.get("id", self.id)
            if "event" in fields:
                return fields["event"], json.loads(fields["data"])

    def until(self, name, queue=None, **data):
        """The next event of this kind that has all this in its data."""
        wanted = dict(data, queue=queue) if queue else data
        while True:
            kind, found = self.event()
            if kind == name and wanted.items() <= found.items():
                return found

    def picture(self):
        """{queue: its numbers}, as a stream begins."""
        assert self.event() == ("snapshot", {})
        found = {}
        while (event := self.event())[0] != "synced":
            if event[0] == "queue":
                found[event[1]["queue"]] = event[1]
        return found

    def close(self):
        self.connection.close()


@pytest.fixture
def listen(server):
    streams = []

    def listen_to(query="", **options):
        streams.append(Stream(server, query, **options))
        return streams[-1]

    yield listen_to
    for each in streams:
        each.close()


def test_a_stream_begins_with_each_queue_and_goes_on_with_what_changes(queue, listen):
    queue.put("one")
    stream = listen(f"?queue={queue.name}&levels=true")
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
    assert stream.headers["cache-control"] == "no-store"
    mine = stream.picture()[queue.name]
    if mine["ready"] == 0:  # of a database, as it was looked at last
        mine = stream.until("queue", queue.name, ready=1)
    assert (mine["ready"], mine["depth"], mine["dead"], mine["totals"]["enqueued"]) == (1, 1, 0, 1)
    assert mine["oldest_ready_at"] and sum(level["ready"] for level in mine["levels"]) == 1
    queue.put("two")
    assert stream.until("queue", queue.name, ready=2)["totals"]["enqueued"] == 2
    queue.take_one()
    stream.until("queue", queue.name, ready=1, in_flight=1)


def test_what_does_not_change_is_not_said_again(queue, listen, api):
    other = api.put(f"/v1/queues/{queue.name}-still", {})
    assert other.status == 201
    queue.put("one")
    stream = listen(f"?prefix={queue.name}")
    assert set(stream.picture()) == {queue.name, queue.name + "-still"}
    for count in range(2, 4):
        queue.put("more")
        while True:
            name, data = stream.event()
            assert (name, data["queue"]) == ("queue", queue.name)
            if data["ready"] == count:
                break


def test_configurations_alerts_and_deleted_queues_are_told(queue, listen, api):
    api.put(queue.path, {"alerts": {"dead_letters": 1}, "max_attempts": 1})
    stream = listen(f"?queue={queue.name}")
    assert stream.picture()[queue.name]["alerts"] == []
    api.request("PATCH", queue.path, {"visibility_timeout_seconds": 77})
    assert stream.until("config")["visibility_timeout_seconds"] == 77
    queue.put("bad")
    message = queue.take_one()
    queue.nack(message)
    raised = stream.until("alert", queue.name, state="raised")
    assert (raised["alert"], raised["value"], raised["threshold"]) == ("dead_letters", 1, 1)
    late = listen(f"?queue={queue.name}")
    assert late.picture()[queue.name]["alerts"] == ["dead_letters"]
    assert api.delete(queue.path + "?force=true").status == 204
    stream.until("deleted", queue.name)
    queue.put("again")
    stream.until("queue", queue.name, ready=1)


def test_a_stream_that_broke_goes_on_with_what_changed_since(queue, listen, api):
    names = [f"{queue.name}-{i}" for i in range(3)]
    for name in names:
        api.put(f"/v1/queues/{name}", {})
    first = listen(f"?prefix={queue.name}-")
    assert set(first.picture()) == set(names)
    assert first.id
    first.close()
    api.post(f"/v1/queues/{names[1]}/messages", {"payload": "x"})
    api.delete(f"/v1/queues/{names[2]}?force=true")
    second = listen(f"?prefix={queue.name}-", headers={"Last-Event-ID": first.id})
    seen = [second.event(), second.event()]
    assert [(kind, data["queue"]) for kind, data in seen] == [("deleted", names[2]),
                                                             ("queue", names[1])]


@pytest.mark.parametrize("unknown", ["0000000000000000-1", "nonsense", "-", "9" * 100])
def test_an_unknown_place_begins_with_the_whole_picture(queue, listen, unknown):
    queue.put("one")
    stream = listen(f"?queue={queue.name}", headers={"Last-Event-ID": unknown})
    assert set(stream.picture()) == {queue.name}


@pytest.mark.parametrize("query", ["?queue=a%20b", "?levels=2", "?wrong=1", "?prefix=%2f"])
def test_a_bad_question_is_refused(api, query):
    assert api.get("/v1/events" + query).status in (400, 422)


def test_another_site_is_not_let_in(api):
    refused = api.request("GET", "/v1/events", headers={"Sec-Fetch-Site": "cross-site",
                                                        "X-Requested-With": ""})
    assert refused.status == 403


def test_a_token_sees_its_queues_alone(start, tmp_path):
    path = tokens_file(tmp_path, [("root", "r00t", "admin"), ("mine", "m1ne", "read mail"),
                                  ("maker", "mak3r", "produce")])
    server = start(engine="memory", tokens_file=path)
    client = server.client(token="r00t")
    for name in ("mail", "mail.in", "mailbox", "other"):
        assert client.put(f"/v1/queues/{name}", {}).status == 201
    mine = Stream(server, headers={"Authorization": "Bearer m1ne"})
    assert set(mine.picture()) == {"mail", "mail.in"}
    client.delete("/v1/queues/other?force=true")
    client.delete("/v1/queues/mail?force=true")
    assert mine.event() == ("deleted", {"queue": "mail"})
    assert Stream(server, headers={"Authorization": "Bearer mak3r"}).status == 403
    assert Stream(server).status == 401


def test_new_tokens_end_the_streams_of_old_ones(start, tmp_path):
    path = tokens_file(tmp_path, [("mine", "m1ne", "read")])
    server = start(engine="memory", tokens_file=path)
    mine = Stream(server, headers={"Authorization": "Bearer m1ne"})
    mine.picture()
    tokens_file(tmp_path, [("other", "0ther", "read")])
    server.process.send_signal(signal.SIGHUP)
    assert mine.event() is None


def test_a_drain_ends_streams_in_good_order(start):
    server = start(engine="memory")
    streams = [Stream(server) for _ in range(5)]
    for each in streams:
        each.picture()
    server.terminate()
    for each in streams:
        assert each.event() is None
        assert each.connection.at_end()
    assert server.wait() == 0


def test_a_stream_takes_a_place_of_a_waiting_claim(start):
    server = start(engine="memory", max_waiting=1)
    stream = Stream(server)
    stream.picture()
    assert server.metrics()["triage_http_waiting_open"] == 1
    assert server.client().get("/v1/events").refusal == (503, "overloaded")
    stream.close()
    until(lambda: server.metrics()["triage_http_waiting_open"] == 0)


def test_streams_see_the_queues_of_all_threads(start):
    server = start(engine="memory", shards=3, net_threads=2)
    client = server.client()
    names = {f"q{i}" for i in range(30)}
    for name in names:
        client.put(f"/v1/queues/{name}", {})
    streams = [Stream(server) for _ in range(4)]
    for each in streams:
        assert set(each.picture()) == names
    for name in names:
        client.post(f"/v1/queues/{name}/messages", {"payload": "x"})
    for each in streams:
        left = set(names)
        while left:
            kind, data = each.event()
            if kind == "queue" and data["ready"] == 1:
                left.discard(data["queue"])


def test_thousands_of_queues_are_told_and_no_turn_is_long(start):
    server = start(engine="memory", max_queues=10000)
    client = server.client()
    for i in range(3000):
        assert client.put(f"/v1/queues/queue-{i:05}-{'x' * 60}", {}).status == 201
    stream = Stream(server)
    assert len(stream.picture()) == 3000
    client.post(f"/v1/queues/queue-00007-{'x' * 60}/messages", {"payload": "x"})
    kind, data = stream.event()
    assert (kind, data["ready"]) == ("queue", 1)


def test_many_streams_look_in_turns_and_each_is_told(start):
    server = start(engine="memory", shards=3, max_queues=10000)
    client = server.client()
    for i in range(1500):
        assert client.put(f"/v1/queues/queue-{i:05}", {}).status == 201
    streams = [Stream(server, "?prefix=queue-0000") for _ in range(24)]
    for each in streams[::2]:
        each.close()  # while its look waits or is under way
    streams = streams[1::2]
    for each in streams:
        assert len(each.picture()) == 10
    for ready in (1, 2):
        client.post("/v1/queues/queue-00007/messages", {"payload": "x"})
        for each in streams:
            each.until("queue", "queue-00007", ready=ready)


def triage(server, *words, **options):
    env = {**environment(), "TRIAGE_SERVER": "http://127.0.0.1:%d" % server.address[1]}
    return subprocess.Popen([TRIAGE, "events", *words], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **options)


def test_the_command_follows_and_ends_well(start):
    server = start(engine="memory")
    client = server.client()
    client.post("/v1/queues/mail/messages", {"payload": "x"})
    command = triage(server, "mail", "--json")
    lines = (json.loads(line) for line in command.stdout)
    assert next(lines) == {"event": "snapshot", "data": {}}
    assert next(lines)["data"]["ready"] == 1
    assert next(lines)["event"] == "synced"
    client.post("/v1/queues/mail/messages", {"payload": "y"})
    assert next(lines)["data"]["ready"] == 2
    command.send_signal(signal.SIGINT)
    assert command.wait() == 0
    assert command.stderr.read() == ""


def test_the_command_shows_a_line_for_people(start):
    server = start(engine="memory")
    client = server.client()
    client.post("/v1/queues/mail/messages", {"payload": "x"})
    command = triage(server)
    line = command.stdout.readline()
    assert line.rstrip().endswith("mail  ready 1  scheduled 0  in flight 0  dead 0"), line
    client.delete("/v1/queues/mail?force=true")
    while not (line := command.stdout.readline()).endswith("mail  deleted\n"):
        assert line
    command.send_signal(signal.SIGINT)
    assert command.wait() == 0


def test_the_command_goes_on_when_the_server_is_back(start):
    server = start(engine="local")
    port = server.address[1]
    client = server.client()
    client.post("/v1/queues/mail/messages", {"payload": "x"})
    command = triage(server, "--json")
    lines = (json.loads(line) for line in command.stdout)
    assert [next(lines)["event"] for _ in range(3)] == ["snapshot", "queue", "synced"]
    server.kill()
    assert "trying again" in command.stderr.readline()
    server.flags = ["--listen", f"127.0.0.1:{port}"]
    server.start()
    assert [next(lines)["event"] for _ in range(3)] == ["snapshot", "queue", "synced"]
    command.send_signal(signal.SIGINT)
    assert command.wait() == 0


def test_the_command_says_when_it_is_not_let_in(start, tmp_path):
    path = tokens_file(tmp_path, [("mine", "m1ne", "read")])
    server = start(engine="memory", tokens_file=path)
    command = triage(server)
    assert command.wait() == 1
    assert "token" in command.stderr.read()
