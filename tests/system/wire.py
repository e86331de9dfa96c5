"""HTTP as the tests speak it: one socket, the bytes as they go, and a client that reads like a
conversation. It is strict on purpose: an answer that is not well-formed HTTP/1.1 fails the test,
and nothing is ever tried again in silence."""

import json
import socket
import time
from urllib.parse import quote, urlencode

DEADLINE = 600.0  # seconds; only a test that would fail anyway ever waits for so long


def until(condition):
    """Asks until the condition holds, for what the server tells only those who ask."""
    deadline = time.monotonic() + DEADLINE
    while not (result := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.003)
    return result


class Gone(ConnectionError):
    """The server closed the connection before the whole answer was there."""


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers  # names in lower case
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def problem(self):
        """The name of the refusal, from a problem document that is whole."""
        document = self.json
        assert self.headers["content-type"].startswith("application/problem+json"), self
        assert document["status"] == self.status and document["title"] and document["detail"], self
        assert document["type"].startswith("urn:triage:"), self
        return document["type"].removeprefix("urn:triage:")

    @property
    def refusal(self):
        """What most tests want to know: (409, "receipt-expired")."""
        return self.status, self.problem

    def __getitem__(self, key):
        return self.json[key]

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:500]!r}>"


class Connection:
    """One socket: bytes out, answers in. The address is of TCP, or a path; `tls` is a context."""

    def __init__(self, address, deadline=DEADLINE, tls=None, session=None, source=None):
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(deadline)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout=deadline,
                                                   source_address=(source, 0) if source else None)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost",
                                          session=session)
        self.pending = bytearray()

    def send(self, data):
        self.socket.sendall(data)

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def close(self):
        self.socket.close()

    def receive(self):
        more = self.socket.recv(262144)
        if not more:
            raise Gone(f"closed after {bytes(self.pending[:200])!r}")
        self.pending += more

    def at_end(self):
        """Waits for the server to close, and says whether nothing else came before that."""
        try:
            return not self.pending and self.socket.recv(1) == b""
        except ConnectionResetError:
            return not self.pending

    def answer(self, bodiless=False):
        """The next answer; an interim one (100) comes as its own."""
        while (end := self.pending.find(b"\r\n\r\n")) < 0:
            self.receive()
        status, headers = parse_head(bytes(self.pending[:end]))
        length = 0
        streams = headers.get("transfer-encoding") == "chunked"  # its body is for who follows it
        if not bodiless and not streams and status >= 200 and status not in (204, 304):
            length = int(headers["content-length"])
        whole = end + 4 + length
        while len(self.pending) < whole:
            self.receive()
        body = bytes(self.pending[end + 4:whole])
        del self.pending[:whole]
        return Answer(status, headers, body)


def parse_head(head):
    lines = head.decode("latin-1").split("\r\n")
    version, status, _ = lines[0].split(" ", 2)
    assert version == "HTTP/1.1", lines[0]
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        assert colon and name == name.strip() and name.lower() not in headers, line
        headers[name.lower()] = value.strip()
    return int(status), headers


def request_bytes(method, path, body=b"", headers=None):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    headers = dict(headers or {})
    if method == "POST":
        headers.setdefault("Content-Type", "application/json")
    elif method == "GET":
        headers.setdefault("X-Requested-With", "tests")  # for those that claim
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def with_query(path, query):
    fields = {k: str(v).lower() if isinstance(v, bool) else v for k, v in query.items()}
    return path + ("?" + urlencode(fields, quote_via=quote) if fields else "")


class Client:
    """Keeps one connection and opens another when the server has said `Connection: close`."""

    def __init__(self, address, token=None, deadline=DEADLINE, tls=None, source=None):
        self.address = address
        self.token = token
        self.deadline = deadline
        self.tls = tls
        self.source = source  # the address it comes from: 127.0.0.2 is another client
        self.connection = None

    def request(self, method, path, body=None, headers=None, query=None):
        headers = dict(headers or {})
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is None:
            data = b""
        elif isinstance(body, bytes):
            data = body
        else:
            data = json.dumps(body).encode()
        if data:
            headers.setdefault("Content-Type", "application/json")
        if not self.connection:
            self.connection = Connection(self.address, self.deadline, self.tls,
                                         source=self.source)
        try:
            target = with_query(path, query or {})
            self.connection.send(request_bytes(method, target, data, headers))
            answer = self.connection.answer(bodiless=method == "HEAD")
        except BaseException:
            self.close()
            raise
        assert "x-request-id" in answer.headers, answer
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def get(self, path, **query):
        return self.request("GET", path, query=query)

    def post(self, path, body=None, **query):
        return self.request("POST", path, body, query=query)

    def put(self, path, body=None):
        return self.request("PUT", path, body)

    def delete(self, path, receipt=None, **query):
        headers = {"X-Receipt-Handle": receipt} if receipt else None
        return self.request("DELETE", path, headers=headers, query=query)

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None


AT_ONCE = {"backoff": "none"}  # `retry` of a queue whose failures are ready again at once


class Queue:
    """One queue through one client. Verbs return answers; put, take and the like insist on
    success and return what was asked for."""

    def __init__(self, client, name):
        self.client = client
        self.name = name
        self.path = f"/v1/queues/{name}"

    def configure(self, **fields):
        answer = self.client.put(self.path, fields)
        assert answer.status in (200, 201), answer
        return answer.json

    def enqueue(self, payload, **fields):
        return self.client.post(self.path + "/messages", {"payload": payload, **fields})

    def put(self, payload, **fields):
        answer = self.enqueue(payload, **fields)
        assert answer.status == 201, answer
        return answer["message_id"]

    def put_all(self, messages):
        """Puts any number of messages in batches and returns their ids."""
        ids = []
        for at in range(0, len(messages), 1000):
            answer = self.client.post(self.path + "/messages/batch",
                                      {"messages": messages[at:at + 1000]})
            assert answer.status == 200, answer
            ids += [result["message_id"] for result in answer["results"]]
        return ids

    def claim(self, **fields):
        return self.client.post(self.path + "/messages/claim", fields)

    def take(self, **fields):
        answer = self.claim(**fields)
        assert answer.status == 200, answer
        return answer["messages"]

    def take_one(self, **fields):
        """The next message, which has to be there within the wait."""
        messages = self.take(**fields)
        assert len(messages) == 1, messages
        return messages[0]

    def take_payloads(self, count, **fields):
        """The payloads of the next `count` messages, in order of claiming."""
        payloads = []
        while len(payloads) < count:
            messages = self.take(max=min(100, count - len(payloads)), **fields)
            assert messages, f"only {len(payloads)} of {count} came"
            payloads += [message["payload"] for message in messages]
        return payloads

    def message_path(self, message):
        ident = message if isinstance(message, str) else message["message_id"]
        return f"{self.path}/messages/{ident}"

    def ack(self, message):
        return self.client.delete(self.message_path(message), receipt=message["receipt_handle"])

    def ack_all(self, messages):
        receipts = [{k: m[k] for k in ("message_id", "receipt_handle")} for m in messages]
        return self.client.post(self.path + "/messages/ack", {"receipts": receipts})

    def settle(self, verb, message, **fields):
        return self.client.post(f"{self.message_path(message)}/{verb}",
                                {"receipt_handle": message["receipt_handle"], **fields})

    def nack(self, message, **fields):
        return self.settle("nack", message, **fields)

    def release(self, message):
        return self.settle("release", message)

    def extend(self, message, seconds):
        return self.settle("extend", message, visibility_timeout_seconds=seconds)

    def show(self, message):
        return self.client.get(self.message_path(message))

    def cancel(self, message):
        return self.client.delete(self.message_path(message), cancel=True)

    def stats(self):
        answer = self.client.get(self.path + "/stats")
        assert answer.status == 200, answer
        return answer.json

    def dead(self, **query):
        answer = self.client.get(self.path + "/dead", **query)
        assert answer.status == 200, answer
        return answer["messages"]

    def post(self, what, **fields):
        return self.client.post(f"{self.path}/{what}", fields)


def conserved(stats):
    """Promise 2: nothing appears and nothing vanishes."""
    totals = stats["totals"]
    present = stats["ready"] + stats["scheduled"] + stats["in_flight"] + stats["dlq_depth"]
    gone = totals["acked"] + totals["expired"] + totals["cancelled"]
    return totals["enqueued"] == present + gone
