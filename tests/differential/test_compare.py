"""The tester itself: what it does about a server that dies, and when it is told to end."""

import os
import re
import signal
import subprocess
import sys

import pytest

from arrangements import Arrangement, Reference
from compare import compare, shrink
from database import alive, children
from steps import sequence
from wire import until

HERE = os.path.dirname(os.path.abspath(__file__))


class Fragile(Arrangement):
    """Its server dies of one kind of request, and says so."""

    def __init__(self, dies_of):
        self.dies_of = dies_of
        super().__init__("memory")

    def send(self, request):
        if request.path.endswith(self.dies_of):
            self.servers[0].process.kill()
        return super().send(request)


@pytest.fixture
def memory():
    reference = Reference()
    yield reference
    reference.end()


def test_a_crash_is_a_difference_and_is_cut_down(memory):
    other = Fragile("/purge")
    purge = ["purge", {}]
    try:
        found = compare(memory, other, [*sequence(1, 20), purge, *sequence(2, 5)])
        found = shrink(memory, other, found)
        assert (found.steps, found.at) == ([purge], 0)
        assert found.found["status"] == -signal.SIGKILL
        assert any("listening" in line for line in found.found["log"])
        assert "curl" in str(found) and "no answer" in str(found)
        assert other.running() and memory.running()
    finally:
        other.end()


def test_a_server_that_died_between_two_requests_is_found_at_the_next_restart(memory):
    """A restart would make it look as if nothing had happened."""
    other = Arrangement("local", restarts=True, durability="os")
    try:
        assert not compare(memory, other, [["restart", {}]])
        other.servers[0].kill()
        found = compare(memory, other, [["restart", {}]])
        assert found.found["status"] == -signal.SIGKILL
        assert not compare(memory, other, [["restart", {}]])
    finally:
        other.end()


def listens(pid):
    folder = f"/proc/{pid}/fd"
    try:
        own = {os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)}
    except FileNotFoundError:  # it was closed meanwhile
        return False
    with open("/proc/net/tcp", encoding="ascii") as table:
        sockets = [line.split() for line in table]
    return any(s[3] == "0A" and f"socket:[{s[9]}]" in own for s in sockets[1:])


def test_sigterm_ends_everything_and_the_count_is_told(tmp_path):
    with open(tmp_path / "said", "w+", encoding="utf-8") as said:
        tester = subprocess.Popen([sys.executable, os.path.join(HERE, "compare.py"), "local",
                                   "--seeds", "1-100000"], stdout=said)
        until(lambda: len(children(tester.pid)) == 2 and all(map(listens, children(tester.pid))))
        servers = children(tester.pid)
        tester.terminate()
        assert tester.wait(60) == 128 + signal.SIGTERM
        until(lambda: not any(map(alive, servers)))
        said.seek(0)
        assert re.fullmatch(r"local: \d+ sequences, 0 with a difference\n", said.read())
