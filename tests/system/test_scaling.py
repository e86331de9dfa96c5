"""The walk through docs/scaling.md: three databases and two servers on one machine, by the commands of the
page, in an empty folder, as a user that is not root."""

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess

import pytest

from database import alive, children, own_folder, programs
from server import BUILD, ROOT, environment
from test_recipes import free_port
from wire import DEADLINE, until

PAGE = os.path.join(ROOT, "docs", "scaling.md")


def block(name):
    with open(PAGE, encoding="utf-8") as page:
        return re.search(rf"^```sh {re.escape(name)}\n(.*?)^```$", page.read(), re.M | re.S)[1]


def postmasters(folder):
    found = []
    for path in glob.glob(os.path.join(folder, "*/postmaster.pid")):
        with open(path, encoding="ascii") as file:
            found.append(int(file.readline()))
    return found


@pytest.fixture
def folder():
    path = own_folder()
    yield path
    pids = [pid for first in postmasters(path) for pid in (first, *children(first))]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)))
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def programs_for_all():
    """The programs where every user can reach them: a build may lie in somebody's home."""
    path = own_folder()
    for name in ("triaged", "triage"):
        shutil.copy(os.path.join(BUILD, name), path)
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def run(script, folder, path, first):
    """What it says. All that it starts ends with it, but for databases."""
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    env = {**environment(), "PATH": path + os.pathsep + os.environ["PATH"],
           "TRIAGE_SERVER": f"http://127.0.0.1:{first}"}
    with open(os.path.join(folder, "said"), "w+", encoding="utf-8") as said:
        process = subprocess.Popen([*user, "bash", "-c", script], cwd=folder, env=env, stdout=said,
                                   stderr=said, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(DEADLINE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        return status, said.read()


def test_three_databases_and_two_servers(folder, programs_for_all):
    ports = {"7420": str(free_port()), "7421": str(free_port())}
    script = "".join(block(name) for name in ("three.sh", "away.sh", "end.sh"))
    script = re.sub(r"\b742[01]\b", lambda port: ports[port[0]], script)
    script = script.replace("/usr/lib/postgresql/15/bin", programs())
    status, said = run(script, folder, programs_for_all, ports["7420"])
    assert status == 0, said
    stored = re.findall(r"(?:^|\})(msg_\w+)$", said, re.M)
    assert len(stored) == 5, said
    assert re.search(rf"^{stored[0]}\t5\t1\trh_\w+\tan order$", said, re.M), said
    assert "triage_engine_cells_away 1" in said
    assert not postmasters(folder)
