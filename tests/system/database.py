"""A real PostgreSQL server in a temporary folder, reached over its socket."""

import atexit
import glob
import itertools
import os
import re
import runpy
import shutil
import signal
import subprocess
import tempfile
import types

import psycopg2

from wire import until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS = sorted(glob.glob(os.path.join(ROOT, "src/engine/postgres/[0-9]*.sql")))
embed = types.SimpleNamespace(**runpy.run_path(os.path.join(ROOT, "tools/embed-sql")))
LIMITS = embed.limits(os.path.join(ROOT, "src/base/limits.h"))


def programs():
    """Where initdb and pg_ctl are: Debian keeps them out of the path, by version."""
    folders = glob.glob("/usr/lib/postgresql/*/bin")
    return max(folders, key=lambda f: int(f.split("/")[4])) if folders else ""


def as_postgres(*command, env=None):
    """PostgreSQL does not run as root. `env` is added to the environment."""
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    return subprocess.run([*user, *command], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, cwd="/", env={**os.environ, **(env or {})})


def own_folder():
    folder = tempfile.mkdtemp(prefix="triage-postgres-")
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    return folder


def stat(pid):
    """(state, parent) of a process, or None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            words = f.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return words[0], int(words[1])


def alive(pid):
    return (stat(pid) or "Z")[0] not in "ZX"  # who is dead may wait to be buried


def children(parent):
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if (stat(pid) or (None, None))[1] == parent]


class Postgres:
    def __init__(self, source=None, **settings):
        """An empty one; or, of another one that runs, the standby, which still has to be started."""
        self.folder = own_folder()
        self.data = os.path.join(self.folder, "data")
        self.bin = programs()
        self.env = {}  # of the server, from its next start on
        self.settings = {"listen_addresses": "", "unix_socket_directories": self.folder, **settings}
        if source:
            self.copy(source)
            return
        self.program("initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "--no-locale",
                     "-E", "UTF8", "--no-sync")
        self.configure()

    def copy(self, source):
        """Whatever was here is replaced by a standby of the source."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.program("pg_basebackup", "-h", source.folder, "-U", "postgres", "-R", "-c", "fast",
                     "--no-sync", "-D", self.data)
        self.configure()

    def configure(self):
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="ascii") as f:
            for name, value in self.settings.items():
                f.write(f"{name} = '{value}'\n")

    def program(self, name, *args):
        as_postgres(os.path.join(self.bin, name), *args, env=self.env)

    def control(self, *args):
        self.program("pg_ctl", "-D", self.data, "-w", *args)

    def start(self):
        self.control("-l", os.path.join(self.folder, "log"), "start")
        return self

    def stop(self):
        self.control("-m", "immediate", "stop")

    def restart(self, how):
        """fast: every transaction is rolled back; immediate: as after a crash."""
        self.control("-m", how, "-l", os.path.join(self.folder, "log"), "restart")

    def promote(self):
        self.control("promote")

    def postmaster(self):
        try:
            with open(os.path.join(self.data, "postmaster.pid"), encoding="ascii") as f:
                return int(f.readline())
        except FileNotFoundError:
            return None

    def running(self):
        postmaster = self.postmaster()
        return postmaster is not None and alive(postmaster)

    def kill(self):
        """SIGKILL for all of it, and gone when this returns."""
        pids = [self.postmaster()]
        pids += children(pids[0])
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        until(lambda: not any(map(alive, pids)))
        for lock in (os.path.join(self.data, "postmaster.pid"),
                     os.path.join(self.folder, ".s.PGSQL.5432.lock")):
            os.remove(lock)  # the next one would mind, as long as the dead are not buried

    def end(self):
        if self.running():
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database="postgres", user="postgres"):
        return psycopg2.connect(host=self.folder, dbname=database, user=user)

    def conninfo(self, database):
        return f"host={self.folder} dbname={database} user=postgres"

    def create(self, database):
        with Session(self.connect()) as s:
            s.run("SET synchronous_commit = remote_apply")  # a standby shows it too
            s.run(f'CREATE DATABASE "{database}"')
        return database


class Pooler:
    """A PgBouncer before a server: each transaction gets whichever connection is free."""

    def __init__(self, postgres):
        self.folder = own_folder()
        config = os.path.join(self.folder, "pgbouncer.ini")
        with open(config, "w", encoding="ascii") as f:
            f.write(f"""[databases]
* = host={postgres.folder} user=postgres
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {self.folder}
auth_type = any
pool_mode = transaction
default_pool_size = 4
logfile = {self.folder}/log
""")
        user = "postgres" if os.getuid() == 0 else None
        self.process = subprocess.Popen(["/usr/sbin/pgbouncer", "-q", config], user=user, cwd="/",
                                        stderr=subprocess.DEVNULL)
        until(lambda: os.path.exists(os.path.join(self.folder, ".s.PGSQL.6432")))

    def conninfo(self, database):
        return f"host={self.folder} port=6432 dbname={database} user=postgres"

    def end(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


ours = []  # the server that the tests of this process share, once somebody needs it
numbers = itertools.count(1)


def shared():
    if not ours:
        ours.append(Postgres(max_connections=200, fsync="off").start())
        atexit.register(ours[0].end)
    return ours[0]


def fresh():
    """The connection string of a database that is empty."""
    database = shared().create(f"triage{next(numbers)}")
    return f"host={shared().folder} dbname={database} user=postgres"


class Session:
    """A connection that answers with values. Each call is a transaction unless begin() was."""

    def __init__(self, db):
        self.db = db
        self.db.autocommit = True
        self.cursor = db.cursor()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.db.close()

    def run(self, sql, *args):
        self.cursor.execute(sql, args or None)
        return self.cursor.rowcount

    def rows(self, sql, *args):
        self.cursor.execute(sql, args or None)
        return self.cursor.fetchall()

    def row(self, sql, *args):
        rows = self.rows(sql, *args)
        return rows[0] if rows else None

    def one(self, sql, *args):
        row = self.row(sql, *args)
        return row[0] if row else None

    def records(self, sql, *args):
        self.cursor.execute(sql, args or None)
        names = [c.name for c in self.cursor.description]
        return [dict(zip(names, row)) for row in self.cursor.fetchall()]

    def refusal(self, sql, *args):
        """The SQLSTATE and the name of the refusal that this must end in."""
        try:
            self.cursor.execute(sql, args or None)
        except psycopg2.Error as e:
            return e.pgcode, e.diag.constraint_name
        raise AssertionError("was not refused")


def install(db, steps=STEPS):
    """What a server does at start: one transaction, the steps that are missing."""
    db.autocommit = False
    cursor = db.cursor()
    cursor.execute(embed.filled_in(STEPS[0], LIMITS))
    cursor.execute("SELECT coalesce(max(step), 0) FROM triage.version")
    done = cursor.fetchone()[0]
    applied = 0
    for path in steps[1:]:
        step = int(re.match(r"\d+", os.path.basename(path))[0])
        if step > done:
            cursor.execute(embed.filled_in(path, LIMITS))
            cursor.execute("INSERT INTO triage.version (step) VALUES (%s)", (step,))
            applied += 1
    db.commit()
    return applied
