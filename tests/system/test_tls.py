"""TLS: who is trusted, who is let in by a certificate, what strangers get, and certificates and
tokens that change while the server serves."""

import os
import random
import signal
import socket
import ssl
import subprocess
import threading

import pytest

from certificates import Authority
from server import TRIAGE, environment
from wire import DEADLINE, Client, Connection, Gone, Queue, request_bytes, until

TLS_ADDRESS = r'msg="listening" address=127\.0\.0\.1:(\d+) .*tls=on'
INFO = request_bytes("GET", "/v1/info")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority):
    return authority.issue("server")


@pytest.fixture
def secure(start, pair):
    """Starts a server that also has a port for TLS: secure(tls_client_ca=...)."""

    def start_secure(**settings):
        server = start(engine="memory", listen_tls="127.0.0.1:0",
                       **{"tls_cert": pair.cert, "tls_key": pair.key, **settings})
        server.tls_address = ("127.0.0.1", int(server.log.wait_for(TLS_ADDRESS)[1]))
        return server

    return start_secure


def url(server):
    return "https://localhost:%d" % server.tls_address[1]


def reload(server, line, count=1):
    """SIGHUP, until the log has this line for the count-th time."""
    server.process.send_signal(signal.SIGHUP)
    until(lambda: sum(line in each for each in list(server.log.lines)) >= count)


def counter(server, name):
    return server.metrics()[f"triage_http_{name}_total"]


def curl(server, *args):
    return subprocess.run(["curl", "-sS", "--max-time", str(DEADLINE), *args, url(server) + "/v1/info"],
                          capture_output=True, timeout=DEADLINE)


def test_clients_check_the_certificate_and_are_served(secure, authority, tmp_path):
    server = secure()
    assert b'"triage"' in curl(server, "--cacert", authority.cert).stdout
    assert curl(server).returncode == 60
    stranger = Authority(tmp_path)
    assert curl(server, "--cacert", stranger.cert).returncode == 60
    queue = Queue(Client(server.tls_address, tls=authority.context()), "q")
    payload = random.Random(1).randbytes(100000).hex()
    ids = queue.put_all([{"payload": f"{i} {payload}"} for i in range(12)])
    taken = []
    while len(taken) < 12:  # an answer has about a megabyte
        some = queue.take(max=12)
        assert some
        taken += some
    assert [m["message_id"] for m in taken] == ids
    assert all(m["payload"].endswith(payload) for m in taken)
    assert queue.ack_all(taken).status == 200
    server.stop()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_are_refused(secure, authority, version):
    server = secure()
    context = authority.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError, match="(?i)protocol version|unsupported protocol|alert"):
        Connection(server.tls_address, tls=context)
    assert until(lambda: counter(server, "handshakes_failed")) == 1
    assert counter(server, "handshakes") == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_ciphers_have_forward_secrecy_and_sessions_resume_on_every_thread(secure, authority, version):
    server = secure(net_threads=3)
    context = authority.context(version=version)
    first = Connection(server.tls_address, tls=context)
    first.send(INFO)
    assert first.answer().status == 200
    name, _, _ = first.socket.cipher()
    assert "GCM" in name or "CHACHA20" in name
    assert version == ssl.TLSVersion.TLSv1_3 or name.startswith("ECDHE")
    reload(server, "certificate loaded", 2)
    for _ in range(24):
        again = Connection(server.tls_address, tls=context, session=first.socket.session)
        again.send(INFO)
        assert again.answer().status == 200
        assert again.socket.session_reused
        again.close()
    assert counter(server, "handshakes_resumed") == 24


def test_http_2_alone_is_not_spoken(secure, authority):
    server = secure()
    context = authority.context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    assert Connection(server.tls_address, tls=context).socket.selected_alpn_protocol() == "http/1.1"
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError):
        Connection(server.tls_address, tls=context)


def test_plain_http_on_the_tls_port_gets_a_clear_answer(secure):
    server = secure()
    answer = Client(server.tls_address).get("/v1/info")
    assert answer.refusal == (400, "malformed-request")
    assert "https://" in answer["detail"]
    hello = Connection(server.address)
    hello.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(16) + b"\r\n\r\n")
    answer = hello.answer()
    assert answer.refusal == (400, "malformed-request") and "http://" in answer["detail"]


# Client certificates

TOKEN = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"


def write_tokens(path, text):
    """As careful people do it: whole, or not at all."""
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
    return str(path)


def test_the_name_in_a_certificate_is_the_name_of_a_token(secure, authority, tmp_path):
    tokens = write_tokens(tmp_path / "tokens", f"mailer - produce mail-\nboss {TOKEN} admin\n")
    server = secure(tls_client_ca=authority.cert, tokens_file=tokens)
    mailer, nobody, boss = (authority.context(authority.issue(name))
                            for name in ("mailer", "nobody", "boss"))

    def client(context, **options):
        return Client(server.tls_address, tls=context, **options)

    own, other = Queue(client(mailer), "mail-1"), Queue(client(mailer), "other")
    assert own.enqueue("a").status == 201
    assert other.enqueue("a").refusal == (403, "forbidden")
    assert own.claim().refusal == (403, "forbidden")
    assert Queue(client(boss), "mail-1").take_one()["payload"] == "a"
    refused = client(nobody).get("/v1/info")
    assert refused.refusal == (403, "forbidden") and "certificate" in refused["detail"]
    assert client(authority.context()).get("/v1/info").status == 401
    # A token that was sent is what counts, right or wrong.
    assert client(mailer, token="secret").get("/v1/queues/mail-1/stats").status == 200
    assert client(mailer, token="guess").get("/v1/info").status == 401
    # A line without a digest has no secret that could be sent.
    for guess in ("-", "", "0" * 64):
        assert Client(server.address, token=guess).get("/v1/info").status == 401


def test_a_certificate_of_another_authority_is_refused(secure, authority, tmp_path):
    server = secure(tls_client_ca=authority.cert)
    stranger = Authority(tmp_path).issue("boss")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connection = Connection(server.tls_address, tls=authority.context(stranger))
        connection.send(INFO)
        connection.answer()
    assert Client(server.tls_address, tls=authority.context()).get("/v1/info").status == 200


def test_who_must_show_a_certificate_and_has_none_is_refused(secure, authority):
    server = secure(tls_client_ca=authority.cert, tls_client_required="on")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connection = Connection(server.tls_address, tls=authority.context())
        connection.send(INFO)
        connection.answer()
    known = authority.context(authority.issue("somebody"))
    assert Client(server.tls_address, tls=known).get("/v1/info").status == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_does_not_outlive_the_authority_that_vouched_for_its_client(
        secure, authority, tmp_path, version):
    trusted = tmp_path / "trusted.pem"
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    with open(old.cert) as file:
        trusted.write_text(file.read())
    tokens = write_tokens(tmp_path / "tokens", "boss - admin\n")
    server = secure(tls_client_ca=trusted, tokens_file=tokens)
    context = authority.context(old.issue("boss"), version)
    first = Connection(server.tls_address, tls=context)
    first.send(INFO)
    assert first.answer().status == 200
    with open(new.cert) as file:
        trusted.write_text(file.read())
    reload(server, "certificate loaded", 2)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        again = Connection(server.tls_address, tls=context, session=first.socket.session)
        again.send(INFO)
        again.answer()


# Changes while it serves

def copy_pair(source, cert, key):
    for path, target in ((source.cert, cert), (source.key, key)):
        with open(path) as file:
            target.write_text(file.read())


def serial(server, authority):
    connection = Connection(server.tls_address, tls=authority.context())
    try:
        return int(connection.socket.getpeercert()["serialNumber"], 16)
    finally:
        connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_does_not_outlive_the_certificate_of_its_client(secure, authority, version):
    server = secure(tls_client_ca=authority.cert, tls_client_required="on")

    def ask(context, session=None):
        connection = Connection(server.tls_address, tls=context, session=session)
        connection.send(INFO)
        assert connection.answer().status == 200
        return connection.socket

    def begin():
        """The machine may be so slow that the first ones expire before they are used."""
        for seconds in (5, 30, 200):
            context = authority.context(authority.issue_for_seconds("boss", seconds), version)
            try:
                return context, ask(context).session
            except (ssl.SSLError, ConnectionError):
                pass

    def expired():
        try:
            ask(context)
        except (ssl.SSLError, ConnectionError):
            return True

    context, session = begin()
    resumed = ask(context, session)
    assert resumed.session_reused
    until(expired)
    for ticket in (session, resumed.session):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(context, ticket)


def test_certificates_change_under_load_and_no_request_fails(secure, authority, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    pairs = [authority.issue("one"), authority.issue("two")]
    copy_pair(pairs[0], cert, key)
    server = secure(tls_cert=cert, tls_key=key, net_threads=2)
    failures, counts, stop = [], [0, 0], threading.Event()

    def ask(which, keep):
        context = authority.context()
        client = Client(server.tls_address, tls=context)
        while not stop.is_set():
            try:
                answer = client.get("/v1/info")
                assert answer.status == 200
                counts[which] += 1
            except BaseException as failure:
                failures.append(failure)
                return
            if not keep:
                client.close()

    threads = [threading.Thread(target=ask, args=(i % 2, i % 2 == 0)) for i in range(4)]
    for thread in threads:
        thread.start()
    first = serial(server, authority)
    for i in range(50):
        copy_pair(pairs[(i + 1) % 2], cert, key)
        seen = sum(counts)
        reload(server, "certificate loaded", i + 2)
        until(lambda: failures or sum(counts) > seen)
    copy_pair(pairs[1], cert, key)
    reload(server, "certificate loaded", 52)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert serial(server, authority) != first
    server.stop()


def test_bad_files_leave_everything_as_it_was(secure, authority, tmp_path):
    cert, key, tokens = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "tokens"
    copy_pair(authority.issue("one"), cert, key)
    write_tokens(tokens, f"boss {TOKEN} admin\n")
    server = secure(tls_cert=cert, tls_key=key, tokens_file=tokens)
    before = serial(server, authority)
    cert.write_text("nonsense")
    write_tokens(tokens, "boss nonsense admin\n")
    reload(server, "settings read")
    assert server.log.find(f'level=error msg="the certificate stays as it was".*{cert}')
    assert server.log.find('level=error msg="cannot read the tokens".*line 1')
    assert server.log.find('level=error msg="the tokens stay as they were"')
    other = authority.issue("two")
    copy_pair(other, cert, key)
    copy_pair(authority.issue("three"), cert, tmp_path / "unused")
    write_tokens(tokens, "# nobody\n")
    reload(server, "settings read", 2)
    assert server.log.find(f'msg="the certificate stays as it was".*{key}.*mismatch')
    assert server.log.find('msg="cannot read the tokens".*no token')
    assert serial(server, authority) == before
    client = Client(server.tls_address, tls=authority.context(), token="secret")
    assert client.get("/v1/info").status == 200


def shut(key):
    done = subprocess.run(["openssl", "pkey", "-aes128", "-passout", "pass:x"], check=True,
                          input=key.read_bytes(), capture_output=True, timeout=DEADLINE)
    key.write_bytes(done.stdout)


@pytest.mark.parametrize("damage, reason", [
    (lambda cert, key: cert.unlink(), "cert.pem.*No such file"),
    (lambda cert, key: cert.write_text("nonsense"), "cannot use the certificate .*cert.pem"),
    (lambda cert, key: key.unlink(), "key.pem.*No such file"),
    (lambda cert, key: key.write_text(""), "cannot use the key .*key.pem"),
    (lambda cert, key: shut(key), "cannot use the key .*key.pem: it has a passphrase"),
    (lambda cert, key: cert.write_bytes(key.read_bytes()), "cert.pem: there is no such thing in PEM"),
])
def test_a_bad_certificate_refuses_to_start_in_a_clear_sentence(authority, tmp_path, damage, reason):
    from server import Server
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    copy_pair(authority.issue("one"), cert, key)
    damage(cert, key)
    server = Server(tmp_path, engine="memory", listen_tls="127.0.0.1:0", tls_cert=cert, tls_key=key)
    status, _ = server.start_refused()
    assert status == 2 and server.log.find(f'level=error msg="cannot set up TLS" reason=".*{reason}')


def test_a_key_that_everybody_can_read_is_warned_about(secure, authority, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    copy_pair(authority.issue("one"), cert, key)
    key.chmod(0o644)
    assert secure(tls_cert=cert, tls_key=key).log.find(f"level=warn .*everybody.* file={key}")
    key.chmod(0o640)
    assert not secure(tls_cert=cert, tls_key=key).log.find("msg=.everybody")


@pytest.mark.parametrize("settings, words", [
    ({"listen_tls": "127.0.0.1:0"}, "listen_tls takes tls_cert and tls_key"),
    ({"tls_cert": "x"}, "tls_cert and tls_key go together"),
    ({"tls_client_ca": "x"}, "tls_client_ca takes tls_cert and tls_key"),
    ({"tls_cert": "x", "tls_key": "x", "tls_client_required": "on"},
     "tls_client_required takes tls_client_ca"),
])
def test_half_of_a_configuration_is_refused(tmp_path, settings, words):
    from server import Server
    status, log = Server(tmp_path, engine="memory", **settings).start_refused()
    assert status == 2 and words in log


def test_tokens_change_and_calls_under_way_keep_theirs(start, tmp_path):
    tokens = write_tokens(tmp_path / "tokens", f"boss {TOKEN} admin\n")
    server = start(engine="memory", tokens_file=tokens, shards=2, net_threads=2)
    old = server.client(token="secret")
    waiting = Connection(server.address)
    waiting.send(request_bytes("POST", "/v1/queues/q/messages/claim", b'{"wait_seconds": 60}',
                               {"Authorization": "Bearer secret",
                                "Content-Type": "application/json"}))
    until(lambda: server_waits(old))
    # sha256 of "another"
    digest = subprocess.run(["sha256sum"], input=b"another", capture_output=True).stdout[:64]
    write_tokens(tmp_path / "tokens", f"chief {digest.decode()} admin\n")
    reload(server, "tokens loaded")
    for _ in range(20):  # on every thread
        assert server.client(token="secret").get("/v1/info").refusal == (401, "unauthenticated")
        assert server.client(token="another").get("/v1/info").status == 200
    assert old.get("/v1/info").status == 401
    assert server.queue("q", token="another").put("hello")
    assert waiting.answer()["messages"][0]["payload"] == "hello"
    server.stop()


def server_waits(client):
    page = client.get("/metrics").body.decode()
    return "\ntriage_broker_waiting 1\n" in page


def test_the_log_level_changes_and_only_sigterm_ends(start):
    server = start(engine="memory", log_level="info")
    server.settings["log_level"] = "debug"
    server.command()
    reload(server, "settings read\" log_level=debug")
    server.settings["log_level"] = "loud"
    server.command()
    reload(server, "the log level stays as it was")
    server.settings["log_level"] = "error"
    server.command()
    server.process.send_signal(signal.SIGHUP)
    server.stop()
    assert not server.log.find("log_level=error") and not server.log.find("draining")


# Strangers

def test_sighup_does_not_end_a_drain(start):
    server = start(engine="memory", drain_seconds=600)
    last = Connection(server.address)
    last.send(b"POST /v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\n"
              b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{")
    until(lambda: server.metrics()["triage_http_bytes_in_total"] > 0)
    server.terminate()
    server.log.wait_for('msg="draining"')
    server.process.send_signal(signal.SIGHUP)
    last.send(b"}")
    assert last.answer().refusal == (503, "draining")
    assert server.wait() == 0


def test_renegotiation_is_not_had(secure, authority):
    server = secure()
    asked = subprocess.Popen(["openssl", "s_client", "-connect", "127.0.0.1:%d" % server.tls_address[1],
                              "-tls1_2", "-CAfile", authority.cert], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until(lambda: counter(server, "handshakes") == 1)
        out, _ = asked.communicate(b"R\n", timeout=DEADLINE)
    finally:
        asked.kill()
    assert b"RENEGOTIATING" in out
    assert counter(server, "handshakes") == 1
    assert Client(server.tls_address, tls=authority.context()).get("/v1/info").status == 200


def client_hello():
    """The first flight of a client, as bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def test_garbage_does_no_harm(secure, authority):
    """Random bytes, hellos with a few bytes changed, and hellos that end in the middle."""
    server = secure()
    chance = random.Random(4711)
    hello = client_hello()
    for i in range(400):
        data = bytearray(chance.randbytes(chance.randrange(1, 3000)) if i % 4 == 0 else hello)
        for _ in range(chance.randrange(0, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if i % 4 == 2:
            del data[chance.randrange(1, len(data)):]
        stranger = socket.create_connection(server.tls_address, timeout=DEADLINE)
        try:
            stranger.sendall(data)
            if i % 3:
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(65536):
                    pass
        except OSError:
            pass
        stranger.close()
    client = Client(server.tls_address, tls=authority.context())
    assert client.get("/v1/info").status == 200
    client.close()
    until(lambda: server.metrics()["triage_http_connections_open"] <= 2)
    server.stop()


def test_records_that_are_damaged_behind_the_handshake_end_the_connection(secure, authority):
    server = secure()
    connection = Connection(server.tls_address, tls=authority.context())
    raw = socket.socket(fileno=os.dup(connection.socket.fileno()))
    raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises((ssl.SSLError, Gone, ConnectionError)):
        connection.receive()
        connection.receive()
    assert until(lambda: counter(server, "handshakes_failed")) == 1
    raw.close()


# The command line client

def triage(*args, **env):
    return subprocess.run([TRIAGE, *args], capture_output=True, timeout=DEADLINE,
                          env={**environment(), **env})


def test_the_client_verifies_and_shows_its_certificate(secure, authority, tmp_path):
    tokens = write_tokens(tmp_path / "tokens", "mailer - produce,consume\n")
    server = secure(tls_client_ca=authority.cert, tokens_file=tokens)
    mine = authority.issue("mailer")
    refused = triage("--server", url(server), "enqueue", "q", "hello")
    assert refused.returncode == 3 and b"--cacert" in refused.stderr
    unknown = triage("--server", url(server), "--cacert", authority.cert, "enqueue", "q", "hello")
    assert unknown.returncode == 1 and b"TRIAGE_TOKEN" in unknown.stderr
    half = triage("--server", url(server), "--cacert", authority.cert, "--cert", mine.cert, "queues")
    assert half.returncode == 3 and b"--key" in half.stderr
    plain = triage("--server", f"https://127.0.0.1:{server.address[1]}", "queues")
    assert plain.returncode == 3 and b"http://" in plain.stderr
    done = triage("--server", url(server), "--cacert", authority.cert, "--cert", mine.cert,
                  "--key", mine.key, "enqueue", "q", "hello")
    assert done.returncode == 0, done
    done = triage("claim", "q", TRIAGE_SERVER=url(server), TRIAGE_CACERT=authority.cert,
                  TRIAGE_CERT=mine.cert, TRIAGE_KEY=mine.key)
    assert done.returncode == 0 and b"hello" in done.stdout
    triage("--server", url(server), "--cacert", authority.cert, "--cert", mine.cert, "--key", mine.key,
           "enqueue", "other", "hello")
    done = triage("--server", url(server), "--cacert", authority.cert, "--cert", mine.cert,
                  "--key", mine.key, "work", "other", "--once", "--", "sh", "-c",
                  f"{TRIAGE} enqueue next from-a-command")
    assert done.returncode == 0, done  # its command shows the same certificate
    done = triage("claim", "next", TRIAGE_SERVER=url(server), TRIAGE_CACERT=authority.cert,
                  TRIAGE_CERT=mine.cert, TRIAGE_KEY=mine.key)
    assert b"from-a-command" in done.stdout, done
