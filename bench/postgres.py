"""PostgreSQL: the server, a queue in one table with its SQL put through pgbench, and Triage's
engine on the same server.

The SQL (sql/) runs as single statements that commit by themselves, prepared once: the kindest form
for it. A program that uses a driver as it comes sends more: see SeedSql.as_sent. Latencies are those
of whole scripts: claim.sql is a dequeue and its completion.
"""

import contextlib
import copy
import glob
import math
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

from loads import Report
from servers import Broken, Server, Unable, child_setup, family_cpu_seconds, free_port, tcp_ready, \
    triage_ready

SQL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sql")
FILL_CLAIMS = 60_000  # rows for one round of claims
FILL_SPARE = 1000  # rows that keep a claim beside a fresh enqueue from finding nothing
# Durable as it comes; checkpoints rare enough not to fall into some rounds and not into others.
SETTINGS = {"max_connections": 300, "shared_buffers": "512MB", "max_wal_size": "8GB",
            "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}


def program_folder():
    """Where Debian puts initdb and postgres: the newest version's folder, or None."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    return os.path.dirname(max(found, key=lambda p: int(p.split("/")[4]))) if found else None


def owner():
    """PostgreSQL does not run as root: Debian's user for it, or nobody else when we are not."""
    if os.getuid() != 0:
        return None
    entry = pwd.getpwnam("postgres")
    return entry.pw_uid, entry.pw_gid


def missing():
    """What keeps PostgreSQL from being measured here, or None."""
    if not program_folder():
        return "postgresql is not installed"
    if not shutil.which("pgbench"):
        return "pgbench is not installed"
    try:
        owner()
    except KeyError:
        return "there is no user postgres, and it does not run as root"
    return None


def reachable(folder, user):
    """Whether that user may enter the folder, whatever is above it."""
    done = subprocess.run(["test", "-x", folder], check=False, user=user[0], group=user[1],
                          extra_groups=[])
    return done.returncode == 0


class Database(Server):
    """A fresh PostgreSQL with trust on loopback and its files in a folder of its own."""

    def __init__(self, folder):
        self.programs = program_folder()
        super().__init__("PostgreSQL", "postgres", self.arguments, self.answers, folder,
                         user=owner())
        self.elsewhere = None

    def arguments(self, port):
        settings = [word for key, value in SETTINGS.items() for word in ("-c", f"{key}={value}")]
        return [os.path.join(self.programs, "postgres"), "-D", self.data, "-p", str(port),
                *settings]

    def answers(self, port):
        ready = [os.path.join(self.programs, "pg_isready"), "-q", "-h", "127.0.0.1", "-p",
                 str(port)]
        return tcp_ready(port) and subprocess.run(ready, check=False).returncode == 0

    def start(self, wait=True):
        place = self.folder
        if self.user:
            if not reachable(place, self.user):
                self.elsewhere = place = tempfile.mkdtemp(prefix="bench-postgres-")
                print(f"  PostgreSQL's files are in {os.path.dirname(place)}: its user may not"
                      " enter the folder of the others")
            os.chown(place, *self.user)
        self.data = os.path.join(place, "data")
        self.port = free_port()
        as_owner = {"user": self.user[0], "group": self.user[1], "extra_groups": []} \
            if self.user else {}
        done = subprocess.run(
            [os.path.join(self.programs, "initdb"), "-D", self.data, "-U", "postgres", "-A",
             "trust", "-E", "UTF8", "--locale=C"], cwd=place, capture_output=True, text=True,
            check=False, preexec_fn=child_setup, **as_owner)
        if done.returncode != 0:
            raise Broken(f"initdb: {done.stderr.strip()}")
        return super().start(wait)

    def stop(self, sig=signal.SIGINT, seconds=30):
        """SIGTERM would wait for clients to leave."""
        return super().stop(sig, seconds)

    def __exit__(self, *_):
        try:
            super().__exit__()
        finally:
            if self.elsewhere:
                shutil.rmtree(self.elsewhere, ignore_errors=True)

    def psql_command(self, database):
        return ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p",
                str(self.port), "-U", "postgres", "-d", database]

    def psql(self, database, *words):
        done = subprocess.run([*self.psql_command(database), *words], capture_output=True,
                              text=True, check=False, preexec_fn=child_setup)
        if done.returncode != 0:
            raise Broken(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    @contextlib.contextmanager
    def held_transaction(self, database):
        """A transaction that has read and stays open, as a forgotten session does."""
        with subprocess.Popen(self.psql_command(database), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, preexec_fn=child_setup) as session:
            try:
                session.stdin.write("BEGIN ISOLATION LEVEL REPEATABLE READ;\n"
                                    "SELECT count(*) FROM pg_class;\n")
                session.stdin.flush()
                session.stdout.readline()
                yield
                if session.poll() is not None:
                    raise Broken("the transaction that was to be held ended early")
            finally:
                session.kill()


class SeedSql:
    """The queue in one table. Looks like a server to whoever measures it."""

    def __init__(self, folder, database=None):
        self.name = "PostgreSQL, SQL queue"
        self.folder = folder
        self.owns_database = database is None
        self.database = database or Database(folder)
        self.driver = False

    def as_sent(self):
        """The same queue used by way of a driver with its defaults: nothing is prepared, and each
        statement comes between a BEGIN and a COMMIT that the server is asked for one by one."""
        other = copy.copy(self)
        other.name = "SQL queue, driver's defaults"
        other.driver = True
        return other

    @property
    def pids(self):
        return self.database.pids

    def __enter__(self):
        if self.owns_database:
            self.database.__enter__()
        try:
            self.database.psql("postgres", "-c", "CREATE DATABASE seed")
            self.database.psql("seed", "-f", os.path.join(SQL, "schema.sql"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.owns_database:
            self.database.__exit__()
        else:
            self.database.psql("postgres", "-c", "DROP DATABASE IF EXISTS seed WITH (FORCE)")

    def body(self, payload):
        """A JSON text of so many bytes: the column is jsonb."""
        return '{"data":"' + "x" * (payload - 11) + '"}'

    def fill(self, count, level=-1, delay="0 s", payload=256):
        self.database.psql("seed", "-v", f"body={self.body(payload)}", "-v", f"count={count}", "-v",
                           f"level={level}", "-v", f"delay={delay}", "-f",
                           os.path.join(SQL, "fill.sql"))

    def empty(self):
        self.database.psql("seed", "-c", "TRUNCATE priority_queue")

    def bytes_on_disk(self):
        return int(self.database.psql(
            "seed", "-c", "SELECT pg_total_relation_size('priority_queue')"))

    def measure(self, load, duration, warmup):
        if load.batch > 1:
            raise Unable("has no batches")
        if load.queues > 1:
            raise Unable("is measured with one queue")
        if load.mix != "enqueue":
            self.empty()
            self.fill(FILL_CLAIMS if load.mix == "claim" else FILL_SPARE, payload=load.payload)
        scripts = {"enqueue": ["enqueue.sql"], "claim": ["claim.sql"],
                   "mixed": ["enqueue.sql", "claim.sql"]}
        return self.pgbench(scripts[load.mix], load.connections, load.payload, duration, warmup)

    def script(self, folder, names):
        """pgbench takes one file for a transaction: the parts one after the other."""
        path = os.path.join(folder, "script.sql")
        with open(path, "w") as out:
            for name in names:
                with open(os.path.join(SQL, name)) as part:
                    text = part.read()
                out.write(in_transactions(text) if self.driver else text)
        return path

    def pgbench(self, scripts, clients, payload, duration, warmup):
        """Counts what ended after the warmup, which begins with the first transaction: before it
        the clients connect. The processor time is that of the same span, from samples."""
        with tempfile.TemporaryDirectory(prefix="pgbench-") as folder:
            mode, quote = ("simple", "'") if self.driver else ("prepared", "")
            command = ["pgbench", "-n", "-M", mode, "-h", "127.0.0.1", "-p",
                       str(self.database.port), "-U", "postgres", "-c", str(clients), "-j", "2",
                       "-T", str(math.ceil(warmup + duration)), "-D",
                       f"body={quote}{self.body(payload)}{quote}",
                       "-f", self.script(folder, scripts), "-l", "--log-prefix",
                       os.path.join(folder, "log"), "seed"]
            with open(os.path.join(folder, "output"), "w+") as output:
                process = subprocess.Popen(command, stdout=output, stderr=output,
                                           preexec_fn=child_setup)
                try:
                    samples = self.samples_until_end(process)
                finally:
                    process.kill()
                    process.wait()
                output.seek(0)
                text = output.read()
            if process.returncode != 0 or "aborted" in text:
                raise Broken(f"pgbench: {text.strip()[-400:]}")
            return report_between(read_log(folder), samples, warmup)

    def samples_until_end(self, process):
        """(wall time, the database's processor time, pgbench's), five times a second."""
        samples = []
        while process.poll() is None:
            with contextlib.suppress(OSError):  # it may end in between
                samples.append((time.time(), family_cpu_seconds(self.database.process.pid),
                                family_cpu_seconds(process.pid)))
            time.sleep(0.2)
        return samples


def in_transactions(script):
    """Every statement of a script between BEGIN and COMMIT."""
    lines, inside = [], False
    for line in script.splitlines():
        begins = not inside and not line.startswith("\\")
        inside = inside or begins
        ends = inside and line.endswith((";", "\\gset"))
        lines += ["BEGIN;"] * begins + [line] + ["COMMIT;"] * ends
        inside = inside and not ends
    return "\n".join(lines) + "\n"


def read_log(folder):
    """(end, duration) of every transaction, in seconds."""
    found = []
    for path in glob.glob(os.path.join(folder, "log*")):
        with open(path) as log:
            for line in log:
                _, _, took_us, _, seconds, micros = line.split()[:6]
                found.append((int(seconds) + int(micros) / 1e6, int(took_us) / 1e6))
    return found


def report_between(log, samples, warmup):
    """Of a span between two samples, from the end of the warmup to the last one before the
    last transaction ended."""
    if not log:
        raise Broken("pgbench finished no transaction")
    begin, last = min(end - took for end, took in log) + warmup, max(end for end, _ in log)
    inside = [s for s in samples if begin <= s[0] <= last]
    if len(inside) < 2:
        inside = [samples[0], samples[-1]]
    start, end = inside[0], inside[-1]
    took_ms = sorted(took * 1000 for at, took in log if start[0] <= at < end[0])
    count = len(took_ms)
    quantiles = [took_ms[min(count - 1, int(count * q))] if count else None
                 for q in (0.5, 0.99, 0.999)]
    each = [(after - before) * 1e6 / count if count else None
            for before, after in zip(start[1:], end[1:])]
    return Report(count / (end[0] - start[0]), count, *quantiles, *each)


class TriageOnPostgres(Server):
    """`triaged --engine postgres`; its processor time is its own and the database's. The first one
    on a database makes it and drops it; others join."""

    def __init__(self, triaged, folder, database, joins=False):
        self.database = database
        self.joins = joins

        def command(port):
            return [triaged, "--listen", f"127.0.0.1:{port}", "--engine", "postgres", "--postgres",
                    f"host=127.0.0.1 port={database.port} user=postgres dbname=triage"]

        super().__init__("Triage, postgres", "http", command, triage_ready, folder)

    @property
    def pids(self):
        return [self.process.pid, *self.database.pids]

    def start(self, wait=True):
        if not self.joins:
            self.database.psql("postgres", "-c", "CREATE DATABASE triage")
        return super().start(wait)

    def __exit__(self, *_):
        try:
            super().__exit__()
        finally:
            if not self.joins:
                self.database.psql("postgres", "-c", "DROP DATABASE IF EXISTS triage WITH (FORCE)")
