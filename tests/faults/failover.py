"""The recipes of docs/scaling.md for a database that has a standby, taken from the page and run as a
reader would: with ports of their own, in a folder of their own."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess

import psycopg2

from database import alive, as_postgres, children, own_folder, programs
from server import ROOT
from wire import DEADLINE, until

PAGE = os.path.join(ROOT, "docs", "scaling.md")


def blocks():
    """{file name: text} of every block of the page that names a file."""
    with open(PAGE, encoding="utf-8") as page:
        return dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page.read(), re.M | re.S))


BLOCKS = blocks()


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def descendants(pid):
    """It and all that it has started."""
    return [pid, *(each for child in children(pid) for each in descendants(child))]


def kill(pids):
    """SIGKILL, and gone when this returns."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)))


class Folder:
    """Where a reader has put the scripts of the page, and runs them as a user that is not root."""

    def __init__(self, ports, scripts):
        """`ports` are those on the page that are replaced by free ones."""
        self.path = own_folder()
        self.ports = dict(zip(ports, free_ports(len(ports))))
        for name in scripts:
            with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
                file.write(self.mine(BLOCKS[name]))

    def mine(self, text):
        return re.sub(r"\b\d{4}\b", lambda n: str(self.ports.get(int(n[0]), n[0])), text)

    def command(self, script, *args):
        user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        return [*user, "sh", "-eu", os.path.join(self.path, script), *map(str, args)]

    def surroundings(self):
        return {"cwd": self.path, "stdin": subprocess.DEVNULL,
                "env": {"PATH": programs() + os.pathsep + os.environ["PATH"], "LANG": "C.UTF-8",
                        "HOME": self.path, "XDG_RUNTIME_DIR": self.path}}

    def run(self, script, *args):
        # What a script leaves running keeps its output open: a file, so that nobody waits for its end.
        log = os.path.join(self.path, script + ".out")
        with open(log, "w+", encoding="utf-8") as out:
            done = subprocess.run(self.command(script, *args), stdout=out, stderr=out,
                                  timeout=DEADLINE, **self.surroundings())
            out.seek(0)
            said = out.read()
        assert done.returncode == 0, (script, args, said)
        return said

    def start(self, script, *args):
        with open(os.path.join(self.path, "-".join(map(str, (script, *args)))), "a") as out:
            return subprocess.Popen(self.command(script, *args), stdout=out, stderr=out,
                                    **self.surroundings())

    def conninfo(self, block):
        return self.mine(re.search(r"^postgres = (.*)$", BLOCKS[block], re.M)[1])

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


def pid_in(file):
    """The process that a file names; None when there is none."""
    try:
        with open(file, encoding="ascii") as lines:
            pid = int(lines.readline())
    except (FileNotFoundError, ValueError):
        return None
    return pid if alive(pid) else None


def kill_all_of(pid_files):
    """The processes that they name and all that those have started; and the files, which the next ones
    would mind as long as the dead are not buried."""
    kill([each for file in pid_files if (pid := pid_in(file)) for each in descendants(pid)])
    for file in pid_files:
        with contextlib.suppress(FileNotFoundError):
            os.remove(file)


class Cell:
    """A primary and its standby, known by their folders, `one` and `two`."""

    def __init__(self, conninfo):
        self.primary, self.standby = "one", "two"
        self.conninfo = conninfo
        self.alone = False  # the standby is the primary now, and has none itself

    def on_primary(self, *statements):
        """What the one that takes writes says to the last one; None while there is none."""
        try:
            with contextlib.closing(psycopg2.connect(
                    self.conninfo, target_session_attrs="read-write", connect_timeout=5)) as db:
                db.autocommit = True
                with db.cursor() as cursor:
                    for sql in statements:
                        cursor.execute(sql)
                    return cursor.fetchone()
        except psycopg2.OperationalError:
            return None

    def await_standby(self):
        until(lambda: self.on_primary("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' "
                                      "AND sync_state IN ('sync', 'quorum')"))

    def take_over(self):
        """The primary was killed: the standby is the next one."""
        self.promote()
        self.primary, self.standby = self.standby, self.primary
        self.alone = True

    def mend(self):
        """What was killed is the standby of the other, if it is not yet."""
        if self.alone:
            self.follow()
            self.alone = False
        self.await_standby()
        [port] = until(lambda: self.on_primary("SELECT inet_server_port()"))
        self.primary, self.standby = ("one", "two") if port == self.port["one"] else ("two", "one")


class ByHand(Cell):
    """Streaming replication; a script promotes the standby."""

    name = "promoted by hand"

    def __init__(self):
        self.folder = Folder((5431, 5432), ("primary.sh", "follow.sh", "promote.sh", "pair.sh"))
        super().__init__(self.folder.conninfo("pair.conf"))
        self.port = {"one": self.folder.ports[5431], "two": self.folder.ports[5432]}
        self.folder.run("pair.sh")
        self.await_standby()

    def kill(self, node):
        kill_all_of([os.path.join(self.folder.path, node, "postmaster.pid")])

    def start(self, node):
        """What was killed, as it was."""
        data = os.path.join(self.folder.path, node)
        as_postgres(os.path.join(programs(), "pg_ctl"), "-D", data, "-w", "-l", data + ".log",
                    "start")

    def promote(self):
        self.folder.run("promote.sh", self.standby, self.port[self.standby])

    def follow(self):
        self.folder.run("follow.sh", self.standby, self.port[self.standby],
                        self.port[self.primary])

    def end(self):
        for node in ("one", "two"):
            self.kill(node)
        self.folder.remove()


class ByMonitor(Cell):
    """pg_auto_failover; its monitor has the standby promoted."""

    name = "pg_auto_failover"

    def __init__(self):
        self.folder = Folder((6430, 6431, 6432), ("monitor.sh", "node.sh", "auto.sh"))
        super().__init__(self.folder.conninfo("auto.conf"))
        self.port = {"one": self.folder.ports[6431], "two": self.folder.ports[6432]}
        self.started = []
        self.folder.run("auto.sh")
        self.await_standby()

    def pid_file(self, node):
        """Of the process that starts the others of a node."""
        return os.path.join(f"{self.folder.path}/pg_autoctl{self.folder.path}", node,
                            "pg_autoctl.pid")

    def states(self):
        """{node: (its state, the state it shall have)}, as the monitor sees them; none while it does not
        answer."""
        try:
            with contextlib.closing(psycopg2.connect(
                    host="127.0.0.1", port=self.folder.ports[6430], user="autoctl_node",
                    dbname="pg_auto_failover", connect_timeout=5)) as db, db.cursor() as cursor:
                cursor.execute("SELECT nodename, reportedstate::text, goalstate::text "
                               "FROM pgautofailover.node")
                return {name: tuple(states) for name, *states in cursor.fetchall()}
        except psycopg2.OperationalError:
            return {}

    def await_standby(self):
        """Only a standby that the monitor has seen in good health takes over."""
        super().await_standby()
        until(lambda: sorted(self.states().values()) == [("primary", "primary"),
                                                         ("secondary", "secondary")])

    def kill(self, node):
        """As if the machine had lost its power: nobody is left to start it again."""
        kill_all_of([self.pid_file(node),
                     os.path.join(self.folder.path, node, "postmaster.pid")])

    def given_up(self):
        """Whether the monitor promotes nobody. On a busy machine the standby may have seemed to lag
        just before the primary died."""
        return self.states().get(self.standby) == ("catchingup", "catchingup")

    def take_over(self):
        """The monitor sees to it. If it has given up, somebody starts the old primary again."""
        until(lambda: self.on_primary("SELECT 1") or self.given_up())
        if self.on_primary("SELECT 1"):
            super().take_over()
            return
        print(f"{self.name}: no healthy standby; {self.primary} is started again", flush=True)
        self.started.append(self.folder.start("node.sh", self.primary, self.port[self.primary]))

    def promote(self):
        """The monitor has."""

    def follow(self):
        self.started.append(self.folder.start("node.sh", self.standby, self.port[self.standby]))

    def end(self):
        for node in ("monitor", "one", "two"):
            self.kill(node)
        for process in self.started:
            process.wait(DEADLINE)
        self.folder.remove()
