"""HTTP as bytes: pipelining, pieces, chunks, and heads that are malformed or hostile."""

import json

import pytest

from wire import Connection, request_bytes, until


@pytest.fixture
def raw(server):
    connection = Connection(server.address)
    yield connection
    connection.close()


def enqueue_bytes(queue, payload, **headers):
    body = json.dumps({"payload": payload}).encode()
    return request_bytes("POST", queue.path + "/messages", body,
                         {"Content-Type": "application/json", **headers})


def claim_bytes(queue, wait_seconds):
    return request_bytes("POST", queue.path + "/messages/claim",
                         json.dumps({"wait_seconds": wait_seconds}).encode())


def test_a_hundred_pipelined_requests_are_answered_in_order(raw, queue):
    raw.send(b"".join(enqueue_bytes(queue, str(n), **{"X-Request-Id": f"number-{n}"})
                      for n in range(100)))
    for number in range(100):
        answer = raw.answer()
        assert answer.status == 201
        assert answer.headers["x-request-id"] == f"number-{number}"
    assert queue.take_payloads(100) == [str(n) for n in range(100)]


def test_a_slow_answer_holds_back_the_quick_ones_behind_it(raw, queue):
    queue.configure()
    raw.send(claim_bytes(queue, 30)
             + request_bytes("GET", "/healthz", headers={"X-Request-Id": "behind"}))
    until(lambda: queue.stats()["waiting_consumers"] == 1)
    queue.put("now")
    assert raw.answer()["messages"][0]["payload"] == "now"
    assert raw.answer().headers["x-request-id"] == "behind"


def test_expect_100_continue(raw, queue):
    head, end, body = enqueue_bytes(queue, "patient", Expect="100-continue").partition(b"\r\n\r\n")
    raw.send(head + end)
    assert raw.answer().status == 100
    raw.send(body)
    assert raw.answer().status == 201


def test_expect_100_continue_is_refused_before_a_body_that_is_too_large(raw, queue):
    raw.send(f"POST {queue.path}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99000000\r\n"
             "Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
    assert raw.answer().refusal == (413, "payload-too-large")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(raw, queue):
    raw.send(f"POST {queue.path}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99000000\r\n"
             "Content-Type: application/json\r\n\r\n".encode())
    answer = raw.answer()
    assert answer.refusal == (413, "payload-too-large") and "at most 160" in answer["detail"]
    assert raw.at_end()


def chunked_head(path):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
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
    for byte in enqueue_bytes(queue, "slow"):
        raw.send(bytes([byte]))
    assert raw.answer().status == 201


def test_a_client_that_closes_its_sending_half_still_gets_its_answer(raw, queue):
    raw.send(enqueue_bytes(queue, "bye"))
    raw.half_close()
    assert raw.answer().status == 201
    assert raw.at_end()


POST = (b"POST /v1/queues/smuggled/messages HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\n")
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


MALFORMED = {
    "CL+TE": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "hexadecimal length": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "overflowing length": POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "unknown coding": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "coding after a tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n",
    "folded line": GET + b"A: b\r\n folded\r\n\r\n",
    "leading space": b" " + GET + b"\r\n",
    "bare line feeds": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    "one bare line feed": GET + b"A: b\nC: d\r\n\r\n",
    "bare carriage return": GET + b"A: b\rC: d\r\n\r\n",
    "space before the colon": GET + b"A : b\r\n\r\n",
    "header without a name": GET + b": b\r\n\r\n",
    "header without a colon": GET + b"no colon\r\n\r\n",
    "NUL in a value": GET + b"A: b\x00c\r\n\r\n",
    "NUL in a name": GET + b"A\x00: b\r\n\r\n",
    "NUL in the path": b"GET /heal\x00thz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two spaces": b"GET  /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /healthz\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "no Host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: y\r\n\r\n",
    "method in lower case": b"get /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01",
    "relative path": b"GET healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "overlong path": b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("head", MALFORMED.values(), ids=MALFORMED)
def test_malformed_heads_are_refused_and_end_the_connection(raw, head):
    raw.send(head)
    assert raw.answer().refusal == (400, "malformed-request")
    assert raw.at_end()


TOO_LARGE = {
    "one long header": GET + b"A: " + b"b" * 20000 + b"\r\n\r\n",
    "many headers": GET + b"".join(b"H%d: x\r\n" % i for i in range(200)) + b"\r\n",
    "endless path": b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("head", TOO_LARGE.values(), ids=TOO_LARGE)
def test_heads_that_are_too_large_are_refused(raw, head):
    raw.send(head)
    assert raw.answer().refusal == (431, "headers-too-large")
    assert raw.at_end()


def test_what_follows_a_malformed_request_is_never_run(raw, queue):
    queue.configure()
    raw.send(POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
             + enqueue_bytes(queue, "smuggled"))
    assert raw.answer().status == 400
    assert raw.at_end()
    assert queue.stats()["totals"]["enqueued"] == 0


def wait_and_hang_up(server, queue):
    leaver = Connection(server.address)
    leaver.send(claim_bytes(queue, 60))
    until(lambda: queue.stats()["waiting_consumers"] == 1)
    leaver.close()


def test_a_consumer_that_hangs_up_while_waiting_leaves_the_message_unharmed(server, queue):
    queue.configure()
    for _ in range(5):
        wait_and_hang_up(server, queue)
        until(lambda: queue.stats()["waiting_consumers"] == 0)
    queue.put("x")
    message = queue.take_one(wait_seconds=30)
    assert message["attempt"] == 1


def test_a_hangup_that_races_with_the_message_does_not_lose_it(server, queue):
    """The consumer leaves as the message arrives: whoever gets it next gets a first attempt, or
    gets nothing before the lease of the one who left, which then was a real delivery."""
    queue.configure(visibility_timeout_seconds=1)
    for number in range(20):
        wait_and_hang_up(server, queue)
        queue.put(str(number))
        message = queue.take_one(wait_seconds=30)
        assert message["payload"] == str(number)
        assert queue.ack(message).status == 204
