"""HTTP as bytes: pipelining, pieces, chunks, and heads that are malformed or hostile."""

import json

import pytest

from wire import Connection, request_bytes, until


@pytest.fixture
def raw(server):
    connection = Connection(server.address)
    yield connection
    connection.close()


def test_a_hundred_pipelined_requests_are_answered_in_order(raw, queue):
    requests = b"".join(
        request_bytes("POST", queue.path + "/messages", json.dumps({"payload": str(n)}).encode(),
                      {"Content-Type": "application/json", "X-Request-Id": f"number-{n}"})
        for n in range(100))
    raw.send(requests)
    for number in range(100):
        answer = raw.answer()
        assert answer.status == 201
        assert answer.headers["x-request-id"] == f"number-{number}"
    assert queue.take_payloads(100) == [str(n) for n in range(100)]


def test_a_slow_answer_holds_back_the_quick_ones_behind_it(raw, queue):
    queue.configure()
    raw.send(request_bytes("POST", queue.path + "/messages/claim", b'{"wait_seconds":30}')
             + request_bytes("GET", "/healthz", headers={"X-Request-Id": "behind"}))
    until(lambda: queue.stats()["waiting_consumers"] == 1)
    queue.put("now")
    assert raw.answer()["messages"][0]["payload"] == "now"
    assert raw.answer().headers["x-request-id"] == "behind"


def test_expect_100_continue(raw, queue):
    body = b'{"payload":"patient"}'
    head = request_bytes("POST", queue.path + "/messages", body,
                         {"Content-Type": "application/json", "Expect": "100-continue"})
    raw.send(head[:-len(body)])
    assert raw.answer().status == 100
    raw.send(body)
    assert raw.answer().status == 201


def test_expect_100_continue_is_refused_before_a_body_that_is_too_large(raw, queue):
    raw.send(f"POST {queue.path}/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000\r\n"
             "Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
    assert raw.answer().refusal == (413, "payload-too-large")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(raw, queue):
    raw.send(f"POST {queue.path}/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000\r\n"
             "Content-Type: application/json\r\n\r\n".encode())
    answer = raw.answer()
    assert answer.refusal == (413, "payload-too-large") and "at most 160" in answer["detail"]
    assert raw.at_end()


def chunked_head(path):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n").encode()


def test_chunked_bodies(raw, queue):
    body = b'{"payload": "in pieces"}'
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece)
                      for piece in (body[:1], body[1:9], body[9:])) + b"0\r\n\r\n"
    raw.send(chunked_head(queue.path + "/messages") + chunks)
    assert raw.answer().status == 201
    for byte in chunked_head(queue.path + "/messages") + chunks:
        raw.send(bytes([byte]))
    assert raw.answer().status == 201
    assert queue.take_payloads(2) == ["in pieces"] * 2


@pytest.mark.parametrize("chunks", [
    b"zz\r\n", b"-1\r\n", b"\r\n", b"5 \r\nhello\r\n", b"5;x=y\r\nhello\r\n", b"5\nhello\r\n",
    b"5\r\nhelloX\r\n", b"0\r\nTrailer: x\r\n\r\n", b"fffffffffffffffff\r\n", b"0x5\r\nhello\r\n"])
def test_malformed_chunks(raw, queue, chunks):
    raw.send(chunked_head(queue.path + "/messages") + chunks)
    answer = raw.answer()
    assert answer.status in (400, 413) and answer.problem
    assert raw.at_end()


def test_a_chunk_that_is_too_large_is_refused_before_it_is_read(raw, queue):
    raw.send(chunked_head(queue.path + "/messages") + b"7000000\r\n")
    answer = raw.answer()
    assert answer.refusal == (413, "payload-too-large") and "at most 160" in answer["detail"]


def test_http_1_0_closes_unless_asked_to_stay(server):
    closing = Connection(server.address)
    closing.send(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert closing.answer().status == 200
    assert closing.at_end()
    staying = Connection(server.address)
    staying.send(b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert staying.answer().headers["connection"].lower() == "keep-alive"
    staying.send(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert staying.answer().status == 200
    assert staying.at_end()


def test_connection_close_is_honoured(raw):
    raw.send(request_bytes("GET", "/healthz", headers={"Connection": "close"}))
    answer = raw.answer()
    assert answer.status == 200 and answer.headers["connection"].lower() == "close"
    assert raw.at_end()


def test_a_request_may_come_byte_by_byte(raw, queue):
    for byte in request_bytes("POST", queue.path + "/messages", b'{"payload":"slow"}',
                              {"Content-Type": "application/json"}):
        raw.send(bytes([byte]))
    assert raw.answer().status == 201


def test_a_client_that_closes_its_sending_half_still_gets_its_answer(raw, queue):
    raw.send(request_bytes("POST", queue.path + "/messages", b'{"payload":"bye"}',
                           {"Content-Type": "application/json"}))
    raw.half_close()
    assert raw.answer().status == 201
    assert raw.at_end()


POST = b"POST /v1/queues/smuggled/messages HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("request_head", [
    pytest.param(POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", id="CL+TE"),
    pytest.param(POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", id="two lengths"),
    pytest.param(POST + b"Content-Length: 3, 3\r\n\r\nabc", id="a list of lengths"),
    pytest.param(POST + b"Content-Length: +3\r\n\r\nabc", id="signed length"),
    pytest.param(POST + b"Content-Length: 0x3\r\n\r\nabc", id="hexadecimal length"),
    pytest.param(POST + b"Content-Length: -1\r\n\r\n", id="negative length"),
    pytest.param(POST + b"Content-Length: 99999999999999999999\r\n\r\n", id="overflowing length"),
    pytest.param(POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", id="two codings"),
    pytest.param(POST + b"Transfer-Encoding: identity\r\n\r\n", id="unknown coding"),
    pytest.param(POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n", id="coding after a tab"),
    pytest.param(GET + b"A: b\r\n folded\r\n\r\n", id="folded line"),
    pytest.param(b" " + GET + b"\r\n", id="leading space"),
    pytest.param(b"GET /healthz HTTP/1.1\nHost: x\n\n", id="bare line feeds"),
    pytest.param(GET + b"A: b\nC: d\r\n\r\n", id="one bare line feed"),
    pytest.param(GET + b"A: b\rC: d\r\n\r\n", id="bare carriage return"),
    pytest.param(GET + b"A : b\r\n\r\n", id="space before the colon"),
    pytest.param(GET + b": b\r\n\r\n", id="header without a name"),
    pytest.param(GET + b"no colon\r\n\r\n", id="header without a colon"),
    pytest.param(GET + b"A: b\x00c\r\n\r\n", id="NUL in a value"),
    pytest.param(GET + b"A\x00: b\r\n\r\n", id="NUL in a name"),
    pytest.param(b"GET /heal\x00thz HTTP/1.1\r\nHost: x\r\n\r\n", id="NUL in the path"),
    pytest.param(b"GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n", id="two spaces"),
    pytest.param(b"GET /healthz\r\nHost: x\r\n\r\n", id="no version"),
    pytest.param(b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n", id="HTTP/2"),
    pytest.param(b"GET /healthz HTTP/1.1\r\n\r\n", id="no Host"),
    pytest.param(GET + b"Host: y\r\n\r\n", id="two hosts"),
    pytest.param(b"get /healthz HTTP/1.1\r\nHost: x\r\n\r\n", id="method in lower case"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", id="TLS"),
    pytest.param(b"GET healthz HTTP/1.1\r\nHost: x\r\n\r\n", id="relative path"),
    pytest.param(b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="overlong path"),
])
def test_malformed_heads_are_refused_and_end_the_connection(raw, request_head):
    raw.send(request_head)
    assert raw.answer().refusal == (400, "malformed-request")
    assert raw.at_end()


@pytest.mark.parametrize("request_head", [
    pytest.param(GET + b"A: " + b"b" * 20000 + b"\r\n\r\n", id="one long header"),
    pytest.param(GET + b"".join(b"H%d: x\r\n" % i for i in range(200)) + b"\r\n",
                 id="many headers"),
    pytest.param(b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", id="endless path"),
])
def test_heads_that_are_too_large_are_refused(raw, request_head):
    raw.send(request_head)
    assert raw.answer().refusal == (431, "headers-too-large")
    assert raw.at_end()


def test_what_follows_a_malformed_request_is_never_run(raw, queue):
    queue.configure()
    raw.send(POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
             + request_bytes("POST", queue.path + "/messages", b'{"payload":"smuggled"}'))
    assert raw.answer().status == 400
    assert raw.at_end()
    assert queue.stats()["totals"]["enqueued"] == 0


def test_a_consumer_that_hangs_up_while_waiting_leaves_the_message_unharmed(server, queue):
    queue.configure()
    for _ in range(5):
        leaver = Connection(server.address)
        leaver.send(request_bytes("POST", queue.path + "/messages/claim", b'{"wait_seconds":60}'))
        until(lambda: queue.stats()["waiting_consumers"] == 1)
        leaver.close()
        until(lambda: queue.stats()["waiting_consumers"] == 0)
    queue.put("x")
    message = queue.take_one(wait_seconds=30)
    assert message["attempt"] == 1


def test_a_hangup_that_races_with_the_message_does_not_lose_it(server, queue):
    """The consumer leaves as the message arrives: whoever gets it next gets a first attempt, or
    gets nothing before the lease of the one who left, which then was a real delivery."""
    queue.configure(visibility_timeout_seconds=1)
    for number in range(20):
        leaver = Connection(server.address)
        leaver.send(request_bytes("POST", queue.path + "/messages/claim", b'{"wait_seconds":60}'))
        until(lambda: queue.stats()["waiting_consumers"] == 1)
        leaver.close()
        queue.put(str(number))
        message = queue.take_one(wait_seconds=30)
        assert message["payload"] == str(number)
        assert queue.ack(message).status == 204
