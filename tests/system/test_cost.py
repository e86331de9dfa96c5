"""What a message costs, counted and not timed: instructions of the whole server, and system calls.
A change that makes a message dearer by more than the tolerance has to say so here.

The counts are of a release build with Debian's compiler and libraries. The same script gives the
same count within two percent, whatever else the machine is doing."""

import json
import re
import subprocess

import pytest

from server import Server
from wire import Connection, request_bytes

FEW, MANY = 100, 500
TOLERANCE = 1.10
# For one message that is enqueued, claimed and acknowledged by one client, call after call, so
# that each call is a group of its own; and for one of a hundred that are enqueued as a batch.
INSTRUCTIONS = {("memory", "one by one"): 36_000, ("local", "one by one"): 135_000,
                ("memory", "batch"): 3_300, ("local", "batch"): 13_000}
# read and epoll_wait and write of each of the three calls; with a store also what wakes its
# thread and is woken by it, the write of the log and the sync.
SYSTEM_CALLS = {"memory": 3 * 3, "local": 3 * 12}


class Watched(Server):
    """A server under a program that counts what it does."""

    def __init__(self, folder, watcher, **options):
        folder.mkdir()
        super().__init__(folder, **options)
        self.watcher = watcher

    def command(self):
        return [*self.watcher, *super().command()]


def post(path, body):
    return request_bytes("POST", path, json.dumps(body).encode(),
                         {"Content-Type": "application/json"})


def one_by_one(connection, count):
    path = "/v1/queues/q/messages"
    for _ in range(count):
        connection.send(post(path, {"payload": "x" * 256}))
        assert connection.answer().status == 201
        connection.send(post(path + "/claim", {}))
        [message] = connection.answer()["messages"]
        connection.send(request_bytes("DELETE", f"{path}/{message['message_id']}",
                                      headers={"X-Receipt-Handle": message["receipt_handle"]}))
        assert connection.answer().status == 204


def batch(connection, count):
    for _ in range(count // 100):
        connection.send(post("/v1/queues/q/messages/batch",
                             {"messages": [{"payload": "x" * 256}] * 100}))
        assert connection.answer().status == 200


SCRIPTS = {"one by one": one_by_one, "batch": batch}


def instructions(folder, engine, script, count):
    server = Watched(folder, ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"],
                     engine=engine).start()
    try:
        connection = Connection(server.address)
        SCRIPTS[script](connection, count)
        connection.close()
        server.stop()
    finally:
        server.end()
    return int(server.log.find(r"Collected : (\d+)")[1])


@pytest.mark.parametrize("engine, script", INSTRUCTIONS)
def test_instructions(tmp_path, engine, script):
    few = instructions(tmp_path / "few", engine, script, FEW)
    many = instructions(tmp_path / "many", engine, script, MANY)
    each = (many - few) / (MANY - FEW)
    expected = INSTRUCTIONS[engine, script]
    print(f"{engine}, {script}: {each:,.0f} instructions a message, {each / expected:.2f} "
          "of what is allowed for")
    assert each < expected * TOLERANCE


@pytest.mark.parametrize("engine", SYSTEM_CALLS)
def test_system_calls(tmp_path, engine):
    def counted(name, count):
        out = tmp_path / f"{name}.strace"
        server = Watched(tmp_path / name, ["strace", "-f", "-c", "-o", str(out)],
                         engine=engine).start()
        try:
            connection = Connection(server.address)
            one_by_one(connection, count)
            connection.close()
            subprocess.run(["kill", "-TERM", child_of(server.process.pid)], check=True)
            assert server.wait() == 0, server.log
        finally:
            server.end()
        return int(re.search(r"^\s*100\.00\s+\S+\s+(?:\S+\s+)?(\d+)\s", out.read_text(), re.M)[1])

    each = (counted("many", MANY) - counted("few", FEW)) / (MANY - FEW)
    print(f"{engine}: {each:.1f} system calls a message")
    assert each < SYSTEM_CALLS[engine] * TOLERANCE


def child_of(pid):
    """strace keeps signals from its child's group to itself."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()[0]
