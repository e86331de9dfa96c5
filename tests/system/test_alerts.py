"""Alerts: a threshold that is crossed is said once in the log, in the metrics and to a webhook, and
once more when it is over."""

import json
import queue as queues
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from wire import DEADLINE, until


class Receiver:
    """Where webhooks go: keeps what was posted, and answers as it is told."""

    def __init__(self):
        self.posts = queues.Queue()
        self.answers = []  # statuses of the next answers; 204 when there are none left
        self.silent = threading.Event()  # set: no answer at all
        self.released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.posts.put((self.path, self.headers["Content-Type"], json.loads(body)))
                if receiver.silent.is_set():
                    receiver.released.wait(DEADLINE)
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/hook?key=s3cret"

    def next(self):
        path, content_type, document = self.posts.get(timeout=DEADLINE)
        assert (path, content_type) == ("/hook?key=s3cret", "application/json")
        return document

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


def bury(queue, count):
    for number in range(count):
        queue.put(f"bad {number}")
    for message in queue.take(max=count):
        assert queue.nack(message)["state"] == "dead"


def gauge(server, queue, kind):
    return server.metrics().get(f'triage_queue_alert{{queue="{queue.name}",kind="{kind}"}}')


def lines(server, queue, message):
    """Once there are any: the log is read by a thread of its own."""
    start = f'msg="{message}" queue={queue.name} '
    return until(lambda: [line for line in server.log.lines if start in line])


def test_dead_letters_raise_an_alert_and_a_purge_clears_it(server, queue, receiver):
    queue.configure(max_attempts=1, alerts={"dead_letters": 2, "webhook": receiver.url})
    assert gauge(server, queue, "dead_letters") == 0
    assert gauge(server, queue, "oldest_ready_seconds") is None, "only what has a threshold"
    bury(queue, 3)
    raised = receiver.next()
    assert datetime.fromisoformat(raised.pop("at").replace("Z", "+00:00"))
    assert raised.pop("value") >= 2
    assert raised == {"queue": queue.name, "alert": "dead_letters", "threshold": 2,
                      "state": "raised"}
    assert gauge(server, queue, "dead_letters") == 1

    assert queue.post("dead/purge").status == 200
    cleared = receiver.next()
    assert (cleared["state"], cleared["alert"], cleared["value"]) == ("cleared", "dead_letters", 0)
    assert gauge(server, queue, "dead_letters") == 0
    assert receiver.posts.empty()
    [line] = lines(server, queue, "alert")
    assert "level=warn" in line and " kind=dead_letters value=" in line and "threshold=2" in line
    assert len(lines(server, queue, "alert cleared")) == 1
    assert "s3cret" not in str(server.log)


def test_an_old_message_raises_an_alert_until_it_is_claimed(server, queue, receiver):
    queue.configure(alerts={"oldest_ready_seconds": 1, "webhook": receiver.url})
    queue.put("waiting")
    raised = receiver.next()
    assert (raised["alert"], raised["state"]) == ("oldest_ready_seconds", "raised")
    assert raised["value"] >= 1 and raised["threshold"] == 1
    assert gauge(server, queue, "oldest_ready_seconds") == 1
    queue.ack(queue.take_one())
    assert receiver.next()["state"] == "cleared"


def test_what_is_not_ready_is_not_late(server, queue, receiver):
    queue.configure(max_attempts=1, alerts={"oldest_ready_seconds": 1, "dead_letters": 1,
                                            "webhook": receiver.url})
    queue.put("tomorrow", delay_seconds=86400)
    queue.put("held")
    held = queue.take_one()
    queue.put("marker", delay_seconds=1.2)
    assert queue.take_one(wait_seconds=30)["payload"] == "marker"
    queue.nack(held)
    assert receiver.next()["alert"] == "dead_letters"
    assert gauge(server, queue, "oldest_ready_seconds") == 0


def test_without_a_webhook_the_log_has_it(server, queue):
    queue.configure(max_attempts=1, alerts={"dead_letters": 1})
    bury(queue, 1)
    server.log.wait_for(f'msg="alert" queue={queue.name} kind=dead_letters value=1 threshold=1')
    until(lambda: gauge(server, queue, "dead_letters") == 1)


def test_a_threshold_set_later_and_taken_away(server, queue, receiver):
    queue.configure(max_attempts=1)
    bury(queue, 2)
    queue.configure(alerts={"dead_letters": 2, "webhook": receiver.url})
    assert receiver.next()["state"] == "raised"
    queue.configure(alerts={"dead_letters": None})
    cleared = receiver.next()
    assert (cleared["state"], cleared["threshold"], cleared["value"]) == ("cleared", 2, 2)
    assert gauge(server, queue, "dead_letters") is None


def test_a_queue_that_goes_takes_its_alerts_along(server, queue, receiver):
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    assert receiver.next()["state"] == "raised"
    assert queue.client.delete(queue.path, force=True).status == 204
    assert receiver.next()["state"] == "cleared"


def test_a_receiver_that_stumbles_is_tried_again(server, queue, receiver):
    receiver.answers = [500, 302]
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    first = receiver.next()
    assert first["state"] == "raised"
    assert [receiver.next(), receiver.next()] == [first, first]
    assert queue.post("dead/purge").status == 200
    assert receiver.next()["state"] == "cleared", "the third try was the last"


def test_a_receiver_that_is_not_there_is_given_up(start, receiver):
    server = start(engine="memory")
    queue = server.queue("q")
    receiver.close()
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    assert server.log.wait_for(r'msg="webhook given up" queue=q reason="')
    assert server.metrics()["triage_broker_webhooks_lost_total"] == 1
    server.stop()


def test_a_silent_receiver_holds_up_neither_work_nor_the_end(start, receiver):
    server = start(engine="memory")
    queue = server.queue("q")
    receiver.silent.set()
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    assert receiver.next()["state"] == "raised"
    queue.put("goes on")
    queue.ack(queue.take_one())
    server.stop()
    assert server.log.find('msg="webhook given up" queue=q reason="the server is shutting down"')


def test_more_than_can_wait_are_dropped_and_counted(start, receiver):
    server = start(engine="memory", shards=2, net_threads=1)
    receiver.silent.set()
    queues = [server.queue(f"q{number}") for number in range(130)]
    for queue in queues:
        queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
        bury(queue, 1)
    assert server.log.wait_for('msg="webhook dropped, too many are waiting"')
    receiver.silent.clear()
    receiver.released.set()
    told = set()
    while len(told) < 100:
        told.add(receiver.next()["queue"])
    until(lambda: all(f'triage_queue_alert{{queue="{queue.name}",kind="dead_letters"}} 1\n' in page
                      for page in [server.client().get("/metrics").body.decode()]
                      for queue in queues))
    assert 1 <= server.metrics()["triage_broker_webhooks_lost_total"] <= 30
    server.stop()


def test_what_is_over_its_threshold_is_raised_again_after_a_restart(start, receiver):
    server = start(engine="local")
    queue = server.queue("q")
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    assert receiver.next()["state"] == "raised"
    server.restart()
    assert receiver.next()["state"] == "raised"
    server.stop()


@pytest.mark.parametrize("url", ["ftp://host/x", "host:80", "http://a b/", "http://" + "x" * 600, 5])
def test_a_webhook_is_an_http_url(queue, url):
    answer = queue.client.put(queue.path, {"alerts": {"webhook": url}})
    assert answer.refusal == (422, "invalid-field")
    assert answer["field"] == "/alerts/webhook"
