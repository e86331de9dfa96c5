"""Who gets in: what the server decides when it has seen the head of a request, before any of the
body. What a real browser does is in test_browser.py."""

import re
import signal

import pytest

from server import Server, tokens_file
from wire import Connection, request_bytes, until

BATCH = "/v1/queues/q/messages/batch"


def head(path, length, headers=""):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n{headers}\r\n").encode()


@pytest.fixture
def guarded(start, tmp_path):
    return start(engine="memory", tokens_file=tokens_file(tmp_path, [
        ("root", "t-admin", "admin"), ("chart", "t-read", "read")]))


@pytest.mark.parametrize("headers, refusal", [
    ("", (401, "unauthenticated")),
    ("Authorization: Bearer guess\r\n", (401, "unauthenticated")),
    ("Authorization: Bearer t-read\r\n", (403, "forbidden")),
    ("Authorization: Bearer t-admin\r\nOrigin: http://evil.test\r\n", (403, "cross-site")),
    ("Expect: 100-continue\r\n", (401, "unauthenticated"))])
def test_who_may_not_is_told_before_sending_a_body(guarded, headers, refusal):
    connection = Connection(guarded.address)
    connection.send(head(BATCH, 60_000_000, headers))  # and none of the body
    assert connection.answer().refusal == refusal
    connection.half_close()
    assert connection.at_end()


def test_strangers_cannot_make_the_server_hold_bodies(guarded):
    strangers = [Connection(guarded.address) for _ in range(20)]
    for stranger in strangers:
        stranger.send(head(BATCH, 60_000_000) + b"x" * 30_000)
        assert stranger.answer().status == 401
        stranger.send(b"x" * 30_000)
    admin = guarded.client(token="t-admin")
    page = admin.get("/metrics").body.decode()
    held = next(line for line in page.splitlines() if line.startswith("triage_http_buffer_bytes "))
    assert int(held.split()[1]) < 500_000, held
    assert 'triage_requests_refused_total{reason="token"} 20' in page


def test_token_lets_a_body_in_that_comes_in_pieces(guarded):
    connection = Connection(guarded.address)
    body = b'{"messages":[{"payload":"a"}]}'
    whole = head(BATCH, len(body), "Authorization: Bearer t-admin\r\nExpect: 100-continue\r\n")
    connection.send(whole)
    assert connection.answer().status == 100
    for byte in body:
        connection.send(bytes([byte]))
    assert connection.answer().status == 200


def test_bodies_in_pieces_keep_the_route_they_came_in_by(guarded):
    """Each is of another call and another queue, and others are asked in between."""
    calls = [(f"/v1/queues/q{i}/messages{end}", body) for i in range(4)
             for end, body in (("", b'{"payload":"a"}'), ("/batch", b'{"messages":[{"payload":"b"}]}'))]
    connections = [Connection(guarded.address) for _ in calls]
    for at in (None, slice(0, 4), slice(4, None)):
        for (path, body), connection in zip(calls, connections):
            connection.send(body[at] if at else
                            head(path, len(body), "Authorization: Bearer t-admin\r\n"))
        assert guarded.client(token="t-admin").get("/v1/queues").status == 200
    answers = [connection.answer() for connection in connections]
    assert [answer.status for answer in answers] == [201, 200] * 4
    for i in range(4):
        export = guarded.client(token="t-admin").get(f"/v1/queues/q{i}/export").body
        assert sorted(re.findall(rb'"payload":"(.)"', export)) == [b"a", b"b"]


def test_token_that_ends_before_the_body_is_there(guarded, tmp_path):
    connection = Connection(guarded.address)
    body = b'{"payload":"a"}'
    connection.send(head("/v1/queues/q/messages", len(body), "Authorization: Bearer t-admin\r\n"))
    connection.send(body[:5])
    tokens_file(tmp_path, [("other", "t-other", "admin")])
    guarded.process.send_signal(signal.SIGHUP)
    until(lambda: any("tokens loaded" in line for line in list(guarded.log.lines)))
    connection.send(body[5:])
    assert connection.answer().refusal == (401, "unauthenticated")
    assert guarded.client(token="t-other").get("/v1/queues")["queues"] == []


def test_small_refused_body_keeps_the_connection(guarded):
    connection = Connection(guarded.address)
    connection.send(head(BATCH, 20_000))
    assert connection.answer().status == 401
    connection.send(b"x" * 20_000 + request_bytes("GET", "/healthz"))
    assert connection.answer().status == 200


def test_rate_is_counted_once_and_before_the_body(start):
    server = start(engine="memory", rate_limit=1)
    connection = Connection(server.address)
    body = b'{"payload":"a"}'
    connection.send(head("/v1/queues/q/messages", len(body)))
    connection.send(body[:5])
    connection.send(body[5:])
    assert connection.answer().status == 201  # a second look would have been over the limit
    connection.send(head(BATCH, 60_000_000))
    assert connection.answer().refusal == (429, "rate-limited")


@pytest.mark.parametrize("host, status", [
    ("localhost", 200), ("LOCALHOST:1", 200), ("127.0.0.1:7420", 200), ("[::1]:7420", 200),
    ("evil.test", 421), ("evil.test:7420", 421), ("10.0.0.1", 421), ("0.0.0.0", 421), ("", 421),
    ("localhost.evil.test", 421), ("queue.example", 200), ("queue.example:443", 200)])
def test_host_is_a_name_of_this_server(start, host, status):
    server = start(engine="memory", allowed_hosts="queue.example")
    connection = Connection(server.address)
    connection.send(f"GET /v1/queues HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = connection.answer()
    assert answer.status == status, answer
    if status == 421:
        assert answer.problem == "misdirected-request" and "allowed_hosts" in answer["detail"]
        assert server.metrics()['triage_requests_refused_total{reason="host"}'] == 1


@pytest.mark.parametrize("type", [None, "text/plain", "application/x-www-form-urlencoded",
                                  "multipart/form-data; boundary=x"])
def test_post_without_a_documented_type_does_nothing(start, type):
    server = start(engine="memory")
    queue = server.queue("q")
    queue.put("kept")
    for what in ("purge", "pause", "messages/claim", "messages", "dead/purge"):
        line = f"Content-Type: {type}\r\n" if type else ""
        connection = Connection(server.address)
        connection.send(f"POST {queue.path}/{what} HTTP/1.1\r\nHost: localhost\r\n{line}"
                        "Content-Length: 0\r\n\r\n".encode())
        answer = connection.answer()
        assert answer.refusal == (415, "unsupported-media-type")
        assert "Content-Type: application/json" in answer["detail"]
    assert queue.stats()["ready"] == 1 and not queue.client.get(queue.path)["paused"]


def test_claim_by_get_needs_a_header_or_a_token(start, guarded):
    server = start(engine="memory")
    server.queue("q").put("kept")
    claim = b"GET /v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connection = Connection(server.address)
    connection.send(claim)
    answer = connection.answer()
    assert answer.refusal == (403, "cross-site") and "X-Requested-With" in answer["detail"]
    connection.send(claim[:-2] + b"X-Requested-With: curl\r\n\r\n")
    assert connection.answer()["messages"][0]["payload"] == "kept"
    guarded.queue("q", token="t-admin").configure()
    connection = Connection(guarded.address)
    connection.send(claim[:-2] + b"Authorization: Bearer t-admin\r\n\r\n")
    assert connection.answer()["messages"] == []


def test_preflight_is_given_no_leave(start):
    connection = Connection(start(engine="memory").address)
    connection.send(b"OPTIONS /v1/queues/q HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.test"
                    b"\r\nAccess-Control-Request-Method: PUT\r\n\r\n")
    answer = connection.answer()
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_prefix_of_a_token_ends_at_a_boundary(start, tmp_path):
    server = start(engine="memory", tokens_file=tokens_file(tmp_path, [
        ("root", "t-admin", "admin"), ("mail", "t-mail", "produce,consume,read mail"),
        ("team", "t-team", "read,produce team-")]))
    names = ["mail", "mail.in", "mail_in", "mail-in", "mailbox", "mai", "Mail", "team-a", "team"]
    for name in names:
        server.queue(name, token="t-admin").put(name)

    def seen(token):
        """By asking for each, and by asking for all."""
        each = {name for name in names
                if server.client(token=token).get(f"/v1/queues/{name}/export").status == 200}
        listed = {queue["name"] for queue in server.client(token=token).get("/v1/queues")["queues"]}
        assert each == listed
        return each

    assert seen("t-mail") == {"mail", "mail.in", "mail_in", "mail-in"}
    assert seen("t-team") == {"team-a"}
    refused = server.queue("mailbox", token="t-mail").claim()
    assert refused.refusal == (403, "forbidden") and '"mail"' in refused["detail"]
    absent = server.queue("mailroom", token="t-mail").claim(wait_seconds=1)
    assert absent.refusal == (403, "forbidden")
    assert server.client(token="t-mail").get("/metrics").refusal == (403, "forbidden")


def test_tokens_file_is_read_whole_or_not_at_all(tmp_path):
    """The first MiB ends where a token's roles do: its prefix would be cut off."""
    path = tokens_file(tmp_path, [("mail", "t-mail", "admin")])
    line = path.read_text().rstrip("\n")
    path.write_text("#" * ((1 << 20) - len(line) - 1) + "\n" + line + " mail\n")
    status, said = Server(tmp_path, engine="memory", tokens_file=path).start_refused()
    assert status == 2 and "larger than" in said


def test_port_for_the_network_needs_tokens_or_a_decision(tmp_path):
    everywhere = ["--listen", "0.0.0.0:0"]
    status, said = Server(tmp_path, engine="memory", flags=everywhere).start_refused()
    assert status == 2 and "tokens_file" in said and "insecure = on" in said
    for settings in ({"insecure": "on"},
                     {"tokens_file": tokens_file(tmp_path, [("root", "t", "admin")])}):
        server = Server(tmp_path, engine="memory", flags=everywhere, **settings)
        server.spawn()
        try:
            assert server.log.wait_for('msg="listening"')
            warned = server.log.find('msg="everybody who can connect may do everything"')
            assert bool(warned) == ("insecure" in settings)
        finally:
            server.end()


@pytest.mark.parametrize("listen, hosts, warns", [
    ("0.0.0.0:0", {}, True),
    ("0.0.0.0:0", {"allowed_hosts": "queue.example"}, False),
    ("0.0.0.0:0", {"allowed_hosts": "*"}, False),  # somebody has decided so
    ("127.0.0.1:0", {}, False),
])
def test_an_open_server_that_takes_any_host_says_so(tmp_path, listen, hosts, warns):
    server = Server(tmp_path, engine="memory", flags=["--listen", listen], insecure="on", **hosts)
    server.spawn()
    try:
        assert server.log.wait_for('msg="listening"')
        said = [line for line in server.log.lines if 'msg="any Host is taken' in line]
        assert len(said) == warns and all("remedy=allowed_hosts" in line for line in said)
    finally:
        server.end()


def test_mistake_in_allowed_hosts_is_named(tmp_path):
    server = Server(tmp_path, engine="memory", allowed_hosts="https://queue.example")
    status, said = server.start_refused()
    assert status != 0 and "allowed_hosts" in said
