"""Where the server listens: several places at once, sockets in the file system, and sockets that
somebody else opened for it, as systemd does."""

import fcntl
import os
import re
import socket
import stat
import subprocess
import sys

import pytest

from certificates import Authority
from server import TRIAGE, TRIAGED, Log, Server, environment
from wire import DEADLINE, Client, Connection, Gone, Queue, request_bytes, until


def addresses(log):
    return re.findall(r'msg="listening" address=(\S+)', str(log))


def ports(server, count):
    until(lambda: len(addresses(server.log)) == count)
    return [int(a.rsplit(":", 1)[1]) for a in addresses(server.log) if a.startswith("127")]


@pytest.mark.parametrize("net_threads", [0, 2])
def test_one_server_listens_in_many_places(start, tmp_path, net_threads):
    path = str(tmp_path / "triage.sock")
    server = start(engine="memory", net_threads=net_threads,
                   flags=["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0",
                          "--listen-unix", path])
    places = [("127.0.0.1", port) for port in ports(server, 4)] + [path]
    assert len(set(places)) == 4
    for place in places:
        assert Queue(Client(place), "q").put(str(place))
    assert server.queue("q").stats()["ready"] == 4
    told = subprocess.run([TRIAGE, "--server", f"unix:{path}", "stats", "q", "--json"],
                          capture_output=True, env=environment(), timeout=DEADLINE)
    assert b'"ready":4' in told.stdout, told
    server.stop()
    for place in places:
        with pytest.raises(OSError):
            Connection(place)


def test_a_later_source_takes_the_place_of_an_earlier_one(tmp_path):
    path = str(tmp_path / "s.sock")
    server = Server(tmp_path, engine="memory", listen="127.0.0.1:1", listen_unix=tmp_path / "file")
    server.env = {"TRIAGE_LISTEN_UNIX": f"{path},{path}2"}
    try:
        server.start()  # with --listen
        until(lambda: len(addresses(server.log)) == 3)
        assert addresses(server.log)[1:] == [f"unix:{path}", f"unix:{path}2"]
    finally:
        server.end()


def test_the_default_address_is_for_servers_that_were_told_no_other(tmp_path):
    path = str(tmp_path / "s.sock")
    process = subprocess.Popen([TRIAGED, "--engine", "memory", "--listen-unix", path],
                               stderr=subprocess.PIPE, env=environment())
    try:
        log = Log(process.stderr)
        assert log.wait_for('msg="listening"')
        assert Client(path).get("/v1/info").status == 200
        assert addresses(log) == [f"unix:{path}"]
    finally:
        process.kill()
        process.wait()


def test_a_socket_file_is_for_user_and_group_and_goes_with_its_server(tmp_path, start):
    path = tmp_path / "triage.sock"
    first = start(engine="memory", listen_unix=path)
    assert first.log.wait_for("address=unix:")
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    # While somebody answers there, nobody else takes it.
    status, log = Server(tmp_path, engine="memory", listen_unix=path).start_refused()
    assert status == 1 and f"unix:{path}" in log
    assert Client(str(path)).get("/v1/info").status == 200
    # What a killed server left behind is in nobody's way.
    first.kill()
    assert path.exists()
    second = start(engine="memory", listen_unix=path)
    assert second.log.wait_for("address=unix:")
    assert Client(str(path)).get("/v1/info").status == 200
    second.stop()
    assert not path.exists()


@pytest.mark.parametrize("path, reason", [
    ("{folder}/file", "the file is no socket"),
    ("{folder}/missing/socket", "no such file"),
    ("{folder}/" + "x" * 110, "name too long"),
])
def test_a_path_that_is_no_place_for_a_socket_is_refused(tmp_path, path, reason):
    (tmp_path / "file").write_text("precious")
    path = path.format(folder=tmp_path)
    if len(path) > 127:
        path = "/" + "x" * 110
    status, log = Server(tmp_path, engine="memory", listen_unix=path).start_refused()
    assert status == 1 and reason in log
    assert (tmp_path / "file").read_text() == "precious"


# Sockets from systemd

ACTIVATE = """
import os, sys
for i, fd in enumerate(map(int, sys.argv[1].split(","))):
    os.dup2(fd, 3 + i)
os.environ["LISTEN_PID"] = str(os.getpid() + int(sys.argv[2]))
os.execv(sys.argv[3], sys.argv[3:])
"""


class Activated:
    """triaged as systemd starts it: with sockets that listen already, from descriptor 3 on."""

    def __init__(self, sockets, names=None, flags=(), pid_off=0):
        high = [fcntl.fcntl(s.fileno(), fcntl.F_DUPFD, 100) for s in sockets]
        env = {**environment(), "LISTEN_FDS": str(len(high))}
        if names:
            env["LISTEN_FDNAMES"] = names
        self.process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATE, ",".join(map(str, high)), str(pid_off), TRIAGED,
             "--engine", "memory", *flags],
            pass_fds=high, stderr=subprocess.PIPE, env=env)
        for fd in high:
            os.close(fd)
        self.log = Log(self.process.stderr)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def listening(path=None, address="127.0.0.1"):
    if path is None:
        return socket.create_server((address, 0))
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    made.listen(100)
    return made


def test_sockets_from_systemd_are_used_and_left_to_it(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    path = str(tmp_path / "own.sock")
    with listening() as plain, listening() as tls, listening(path) as unix:
        flags = ["--net-threads", "2", "--tls-cert", pair.cert, "--tls-key", pair.key]
        early = Connection(plain.getsockname())  # before the server is there
        early.send(request_bytes("GET", "/v1/info"))
        with Activated([plain, tls, unix], "web:tls:local", flags) as server:
            assert early.answer().status == 200
            until(lambda: len(addresses(server.log)) == 3)
            assert addresses(server.log)[2] == f"unix:{path}"
            for _ in range(8):
                assert Client(plain.getsockname()).get("/v1/info").status == 200
                assert Client(path).get("/v1/info").status == 200
                secure = Client(tls.getsockname(), tls=authority.context())
                assert secure.get("/v1/info").status == 200
            server.process.terminate()
            assert server.process.wait(DEADLINE) == 0
        assert os.path.exists(path)
        # Whoever comes now waits for the next one.
        late = Connection(plain.getsockname())
        late.send(request_bytes("GET", "/v1/info"))
        with Activated([plain], flags=["--shards", "2"]):
            assert late.answer().status == 200


def test_sockets_that_are_meant_for_another_process_are_not_touched():
    with listening() as plain:
        with Activated([plain], pid_off=1) as server:
            # No listener of its own either: somebody meant to give it one.
            assert server.process.wait(DEADLINE) == 1
            assert server.log.wait_for("nowhere to listen")


@pytest.mark.parametrize("make, reason", [
    (lambda: socket.socket(), "does not listen"),
    (lambda: socket.socket(type=socket.SOCK_DGRAM), "does not listen"),
])
def test_what_is_no_listening_socket_is_refused(make, reason):
    with make() as odd, Activated([odd]) as server:
        assert server.process.wait(DEADLINE) == 1
        assert server.log.wait_for(reason)


def test_a_socket_for_tls_without_a_certificate_is_refused():
    with listening() as plain, Activated([plain], "tls") as server:
        assert server.process.wait(DEADLINE) == 2
        assert server.log.wait_for("takes tls_cert and tls_key")


@pytest.mark.parametrize("name, lock, starts", [
    ("web", ["--tls-client-required", "on"], False),  # a lock on another door
    ("tls", [], False),
    ("tls", ["--tls-client-required", "on"], True),
    ("web", ["--insecure", "on"], True),
])
def test_a_socket_that_other_machines_reach_wants_a_lock_of_its_own(tmp_path, name, lock, starts):
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    flags = ["--listen-tls", "127.0.0.1:0", "--tls-cert", pair.cert, "--tls-key", pair.key,
             "--tls-client-ca", authority.cert, *lock]
    with listening(address="0.0.0.0") as door, Activated([door], name, flags) as server:
        if starts:
            until(lambda: len(addresses(server.log)) == 2)
            return
        assert server.process.wait(DEADLINE) == 2
        assert server.log.wait_for("other machines could do everything")


def test_a_peer_that_leaves_a_unix_socket_is_noticed(start, tmp_path):
    path = str(tmp_path / "s.sock")
    server = start(engine="memory", listen_unix=path)
    assert server.log.wait_for("address=unix:")
    queue = server.queue("q")
    waiting = Connection(path)
    waiting.send(request_bytes("POST", "/v1/queues/q/messages/claim", b'{"wait_seconds":60}',
                               {"Content-Type": "application/json"}))
    until(lambda: server.metrics()["triage_broker_waiting"] == 1)
    waiting.close()
    until(lambda: server.metrics()["triage_broker_waiting"] == 0)
    queue.put("for somebody else")
    assert queue.take_one()["payload"] == "for somebody else"
    with pytest.raises(Gone):
        half = Connection(path)
        half.half_close()
        half.answer()
