"""A real PostgreSQL server in a temporary folder, reached over its socket."""

import atexit
import glob
import itertools
import os
import re
import shutil
import subprocess
import tempfile

import psycopg2

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS = sorted(glob.glob(os.path.join(ROOT, "src/engine/postgres/[0-9]*.sql")))


def programs():
    """Where initdb and pg_ctl are: Debian keeps them out of the path, by version."""
    folders = glob.glob("/usr/lib/postgresql/*/bin")
    return max(folders, key=lambda f: int(f.split("/")[4])) if folders else ""


def as_postgres(*command):
    """PostgreSQL does not run as root."""
    user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    return subprocess.run([*user, *command], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, cwd="/")


class Postgres:
    def __init__(self, **settings):
        self.folder = tempfile.mkdtemp(prefix="triage-postgres-")
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres")
        self.data = os.path.join(self.folder, "data")
        self.bin = programs()
        as_postgres(os.path.join(self.bin, "initdb"), "-D", self.data, "-A", "trust", "-U",
                    "postgres", "--no-locale", "-E", "UTF8")
        settings = {"listen_addresses": "", "unix_socket_directories": self.folder, **settings}
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="ascii") as f:
            for name, value in settings.items():
                f.write(f"{name} = '{value}'\n")

    def start(self):
        as_postgres(os.path.join(self.bin, "pg_ctl"), "-D", self.data, "-w", "-l",
                    os.path.join(self.folder, "log"), "start")
        return self

    def stop(self):
        as_postgres(os.path.join(self.bin, "pg_ctl"), "-D", self.data, "-w", "-m", "immediate",
                    "stop")

    def end(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database="postgres", user="postgres"):
        return psycopg2.connect(host=self.folder, dbname=database, user=user)

    def create(self, database):
        with Session(self.connect()) as s:
            s.db.autocommit = True
            s.run(f'CREATE DATABASE "{database}"')
        return database


ours = []  # the server that the tests of this process share, once somebody needs it
numbers = itertools.count(1)


def shared():
    if not ours:
        ours.append(Postgres(max_connections=200).start())
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


def install(db):
    """What a server does at start: one transaction, the steps that are missing."""
    db.autocommit = False
    cursor = db.cursor()
    with open(STEPS[0], encoding="utf-8") as f:
        cursor.execute(f.read())
    cursor.execute("SELECT coalesce(max(step), 0) FROM triage.version")
    done = cursor.fetchone()[0]
    applied = 0
    for path in STEPS[1:]:
        step = int(re.match(r"\d+", os.path.basename(path))[0])
        if step > done:
            with open(path, encoding="utf-8") as f:
                cursor.execute(f.read())
            cursor.execute("INSERT INTO triage.version (step) VALUES (%s)", (step,))
            applied += 1
    db.commit()
    return applied
