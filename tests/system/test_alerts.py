"""Alerts: a threshold that is crossed is said once in the log, in the metrics and to a webhook, and
once more when it is over."""

import json
import queue as queues
import ssl
import subprocess
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import database
from server import Server
from wire import DEADLINE, until

SETTINGS = {"webhook_local": "on"}  # where the receivers of these tests are


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
        self.scheme = "http"
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def speak_tls(self, certificate, key):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.handle_error = lambda *_: None  # a client that does not trust us hangs up
        self.scheme = "https"

    @property
    def port(self):
        return self.server.server_port

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server.server_port}/hook?key=s3cret"

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


def test_what_is_over_never_overtakes_what_began(server, queue, receiver):
    receiver.answers = [500]
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    assert receiver.next()["state"] == "raised"
    assert queue.post("dead/purge").status == 200
    assert [receiver.next()["state"], receiver.next()["state"]] == ["raised", "cleared"]


def test_a_silent_receiver_delays_its_own_alerts_alone(start, receiver):
    server = start(engine="memory", **SETTINGS)
    receiver.silent.set()
    for number in range(40):
        queue = server.queue(f"silent{number}")
        queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
        bury(queue, 1)
    receiver.next()
    other = Receiver()
    try:
        queue = server.queue("other")
        queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": other.url})
        bury(queue, 1)
        assert other.next()["state"] == "raised"
    finally:
        other.close()
    given_up = [line for line in server.log.lines if "webhook given up" in line]
    assert len(given_up) < 40, "it was not sent behind those of the silent one"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "0.0.0.0", "2130706433",
                                  "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "[fe80::1]",
                                  "[fd00:ec2::254]"])
def test_a_webhook_does_not_reach_this_machine_unless_it_may(start, receiver, host):
    server = start(engine="memory")
    queue = server.queue("q")
    url = f"http://{host}:{receiver.port}/"
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": url})
    bury(queue, 1)
    assert server.log.wait_for('msg="webhook given up" queue=q reason=".*webhook_local is off"')
    assert receiver.posts.empty()


ELSEWHERE = "http://[2001:db8::1]/hook?key=s3cret"  # an address that nobody has


def behind_a_proxy(tmp_path, receiver, **settings):
    server = Server(tmp_path, engine="memory", **settings)
    server.env = {"http_proxy": f"http://127.0.0.1:{receiver.port}"}
    server.start()
    queue = server.queue("q")
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": ELSEWHERE})
    bury(queue, 1)
    return server


def test_a_proxy_does_not_stand_in_for_the_receiver(tmp_path, receiver):
    """The address of a proxy says nothing about where the webhook goes."""
    server = behind_a_proxy(tmp_path, receiver)
    try:
        line = server.log.wait_for('msg="webhook given up" queue=q reason="(.*)"')
        assert "webhook_local" not in line[1], "it was the proxy that was judged"
        assert receiver.posts.empty()
    finally:
        server.end()


def test_a_proxy_is_used_where_webhooks_may_go_anywhere(tmp_path, receiver):
    server = behind_a_proxy(tmp_path, receiver, **SETTINGS)
    try:
        assert receiver.posts.get(timeout=DEADLINE)[0] == ELSEWHERE
    finally:
        server.end()


@pytest.mark.parametrize("trusted", [True, False])
def test_a_receivers_certificate_is_verified(start, receiver, tmp_path, trusted):
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
                    "-days", "2", "-subj", "/CN=receiver", "-addext",
                    "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    receiver.speak_tls(certificate, key)
    trust = {"webhook_cacert": certificate} if trusted else {}
    server = start(engine="memory", **SETTINGS, **trust)
    queue = server.queue("q")
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    if trusted:
        assert receiver.next()["state"] == "raised"
    else:
        assert server.log.wait_for('msg="webhook given up" queue=q reason=".*certificate')
        assert receiver.posts.empty()


def test_a_receiver_that_is_not_there_is_given_up(start, receiver):
    server = start(engine="memory", **SETTINGS)
    queue = server.queue("q")
    receiver.close()
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    assert server.log.wait_for(r'msg="webhook given up" queue=q reason="')
    assert server.metrics()["triage_broker_webhooks_lost_total"] == 1
    server.stop()


def test_a_silent_receiver_holds_up_neither_work_nor_the_end(start, receiver):
    server = start(engine="memory", **SETTINGS)
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
    server = start(engine="memory", shards=2, net_threads=1, **SETTINGS)
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
    server = start(engine="local", **SETTINGS)
    queue = server.queue("q")
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    bury(queue, 1)
    assert receiver.next()["state"] == "raised"
    server.restart()
    assert receiver.next()["state"] == "raised"
    server.stop()


# Several servers on one database


@pytest.fixture
def two(start):
    first = start(engine="postgres", **SETTINGS)
    return first, start(engine="postgres", postgres=first.settings["postgres"], shards=2,
                        **SETTINGS)


def sends(server):
    return server.metrics()["triage_alerts_sender"] == 1


def sender(servers):
    """The one that sends, and the others; it may take a moment until there is one."""
    until(lambda: any(sends(server) for server in servers))
    [speaks] = [server for server in servers if sends(server)]
    return speaks, [server for server in servers if server is not speaks]


def until_all_show(servers, name, raised):
    for server in servers:
        until(lambda: gauge(server, server.queue(name), "dead_letters") == raised)


def test_of_two_servers_one_sends(two, receiver):
    """Both know of every alert; each change is posted once."""
    queue = two[1].queue("q")
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    sender(two)
    for _ in range(3):
        bury(queue, 1)
        until_all_show(two, "q", 1)
        assert receiver.next()["state"] == "raised"
        queue.post("dead/purge")
        until_all_show(two, "q", 0)
        assert receiver.next()["state"] == "cleared"
    assert receiver.posts.empty()


def test_when_the_sender_is_killed_the_other_sends(two, receiver):
    """What it had raised comes again, because nobody knows whether it was still sent."""
    queue = two[0].queue("q")
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    speaks, [other] = sender(two)
    assert speaks.log.wait_for('level=info msg="sends alerts"')
    bury(queue, 1)
    assert receiver.next()["state"] == "raised"
    until_all_show([other], "q", 1)
    speaks.kill()
    assert receiver.next()["state"] == "raised"
    assert sends(other) and other.log.wait_for('level=info msg="sends alerts"')
    other.queue("q").post("dead/purge")
    assert receiver.next()["state"] == "cleared"
    assert receiver.posts.empty()


def test_what_happens_while_nobody_sends_is_not_lost(two, receiver):
    queue = two[0].queue("q")
    queue.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    late = two[0].queue("late")
    late.configure(max_attempts=1, alerts={"dead_letters": 1, "webhook": receiver.url})
    speaks, [other] = sender(two)
    bury(queue, 1)
    assert receiver.next()["state"] == "raised"
    until_all_show([other], "q", 1)
    speaks.kill()
    other.queue("q").post("dead/purge")
    bury(other.queue("late"), 1)
    until_all_show([other], "q", 0)
    until_all_show([other], "late", 1)
    told = {(post["queue"], post["state"]) for post in (receiver.next(), receiver.next())}
    assert told == {("q", "cleared"), ("late", "raised")}


def test_a_queue_that_sql_made_and_filled_has_alerts(two, receiver):
    name = two[0].settings["postgres"].split("dbname=")[1].split()[0]
    config = {"max_attempts": 1, "alerts": {"dead_letters": 1, "webhook": receiver.url}}
    with database.Session(database.shared().connect(name)) as s:
        s.run("SELECT triage.configure('by-sql', %s)", json.dumps(config))
        s.run("SELECT triage.enqueue('by-sql', 'x'::text)")
        s.run("SELECT triage.nack(message_id, receipt_handle) FROM triage.claim('by-sql')")
    assert (receiver.next()["queue"], receiver.posts.empty()) == ("by-sql", True)
    until_all_show(two, "by-sql", 1)


def test_metrics_by_scope_add_up(two):
    """What is in the store is asked of one server, the rest of all of them."""
    two[0].queue("q").put("x")
    until(lambda: all('triage_queue_ready{queue="q"}' in server.metrics() for server in two))

    def names(scope):
        text = two[0].client().get("/metrics", scope=scope).body.decode()
        return {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line[0] != "#"}

    store, server = names("store"), names("server")
    assert not store & server
    assert store | server == names("all")
    assert "triage_queue_ready" in store and "triage_queue_enqueued_total" in store
    assert "triage_queue_waiting_consumers" in server and "triage_alerts_sender" in server
    answer = two[0].client().get("/metrics", scope="queue")
    assert answer.refusal == (422, "invalid-field") and "store" in answer["detail"]


@pytest.mark.parametrize("url", ["ftp://host/x", "host:80", "http://a b/", "http://" + "x" * 600, 5])
def test_a_webhook_is_an_http_url(queue, url):
    answer = queue.client.put(queue.path, {"alerts": {"webhook": url}})
    assert answer.refusal == (422, "invalid-field")
    assert answer["field"] == "/alerts/webhook"
