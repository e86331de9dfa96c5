"""The whole corpus of hostile.py against a real server: refused, the connection closed, what was
smuggled behind it never run, what came before it answered, and the server none the worse."""

import pytest

import hostile
from wire import Connection, Gone, request_bytes

REFUSALS = {400, 405, 408, 411, 413, 414, 417, 431, 501, 505}


@pytest.fixture(scope="module", params=["memory", "local"])
def server(request, tmp_path_factory):
    from server import Server
    one = Server(tmp_path_factory.mktemp("hostile"), engine=request.param).start()
    yield one
    try:
        assert one.running(), f"the server died:\n{one.log}"
        one.stop()
    finally:
        one.end()


def converse(server, data):
    """All answers until the server closes; nothing may be left over."""
    connection = Connection(server.address)
    answers = []
    try:
        try:
            connection.send(data)
            connection.half_close()
        except (ConnectionError, OSError):
            pass  # it had heard enough
        while True:
            answers.append(connection.answer())
    except (Gone, ConnectionError):
        assert not connection.pending, bytes(connection.pending[:200])
    finally:
        connection.close()
    return [answer for answer in answers if answer.status != 100]


def test_no_hostile_request_is_read_two_ways(server):
    count = 0
    queue = server.queue("control")
    queue.configure()
    good = request_bytes("GET", "/healthz", headers={"X-Request-Id": "good"})
    for name, data in hostile.requests():
        count += 1
        answers = converse(server, good + data + hostile.SMUGGLED)
        assert answers and answers[0].headers["x-request-id"] == "good", name
        rest = [answer.status for answer in answers[1:]]
        assert len(rest) <= 1 and set(rest) <= REFUSALS, f"{name}: {answers[1:]}"
    names = [q["name"] for q in server.client().get("/v1/queues")["queues"]]
    assert names == ["control"], "something was smuggled in"
    assert count > 300
    queue.put("the server goes on")
    print(f"{count} hostile requests, none run")


def test_no_hostile_json_is_stored_or_kills(server):
    """A bad body is a refusal and no more: the connection stays."""
    queue = server.queue("json")
    queue.configure()
    connection = Connection(server.address)
    for name, body in hostile.BODIES:
        connection.send(request_bytes("POST", queue.path + "/messages", body,
                                      {"Content-Type": "application/json"}))
        answer = connection.answer()
        assert answer.status in (400, 413, 422), f"{name}: {answer}"
        assert answer.problem, name
        if answer.headers.get("connection") == "close":
            connection.close()
            connection = Connection(server.address)
    batch = [{"payload": "x", "priority": 77}, {"payload": "y", "nonsense": 1}, 5, None, []]
    answer = queue.client.post(queue.path + "/messages/batch", {"messages": batch})
    assert answer.status in (200, 400, 422)
    assert queue.stats()["totals"]["enqueued"] == 0
    queue.client.delete(queue.path)
    print(f"{len(hostile.BODIES)} hostile bodies, none stored")


def test_every_bad_body_is_bad_on_every_route(server):
    """Whatever the route makes of it: an answer, and a server that goes on."""
    queue = server.queue("routes")
    queue.configure()
    paths = ["messages/batch", "messages/claim", "messages/ack", "messages/msg_x/nack",
             "messages/msg_x/extend", "messages/msg_x/release", "messages/nack", "messages/extend",
             "messages/release", "dead/redrive", "dead/msg_00000080g6gy284gn0000000000g/redrive"]
    for path in paths:
        for name, body in hostile.BODIES:
            answer = queue.client.request("POST", f"{queue.path}/{path}", body)
            assert 200 <= answer.status < 500, f"{path}, {name}: {answer}"
    for name, body in hostile.BODIES:
        answer = queue.client.request("PUT", queue.path, body)
        assert 200 <= answer.status < 500, f"{name}: {answer}"
    queue.client.delete(queue.path, force=True)
