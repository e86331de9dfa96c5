"""Where things are in a run, which servers there can be, and how they are measured."""

import contextlib
import os
import subprocess

import loads
import peers
import postgres
from loads import Load
from report import Results
from servers import Broken, Server, Unable, triage_ready

HERE = os.path.dirname(os.path.abspath(__file__))
FILL_MAX = 400_000  # messages before a round of claims
FILL_BATCH = 200  # few enough for a peer that syncs each of them
SLOW_FACTOR = 8  # how much longer a round may be for one that finished nothing
ENGINES = ["memory", "local", "postgres"]
DURABILITIES = ["fsync", "interval:50", "os"]


class Settings:
    """What --quick makes smaller."""

    def __init__(self, quick):
        self.duration = 0.7 if quick else 3
        self.warmup = 0.3 if quick else 1
        self.rounds = 3  # odd: the median is one of them
        self.fill_seconds = 1 if quick else 2
        self.deep = 1_000_000 if quick else 10_000_000
        self.depth = 10_000 if quick else 100_000  # and 10 and 100 times that
        self.claim_rounds = 5 if quick else 12
        self.future = 1_000_000
        self.cold = 1_000_000
        self.restart = 1_000_000
        self.waiting = 1_000_000
        self.poll_count = 500 if quick else 2000
        self.settle_seconds = 5 if quick else 20
        self.minute = 10 if quick else 60


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.settings = Settings(args.quick)
        self.folder = folder
        self.count = 0
        self.tools = {}
        self.results = Results()
        self.progress = self.results.progress

    # Servers, each with a fresh folder.

    def fresh(self, name):
        self.count += 1
        path = os.path.join(self.folder, f"{self.count:03}-{name}")
        os.mkdir(path, 0o755)
        return path

    def triaged(self, engine="local", durability="fsync", name=None, **settings):
        folder = self.fresh("triaged")
        flags = [word for key, value in settings.items()
                 for word in ("--" + key.replace("_", "-"), value)]

        def command(port):
            return [self.args.triaged, "--listen", f"127.0.0.1:{port}", "--engine", engine,
                    "--data", folder, "--durability", durability, "--log-level", "warn", *flags]

        return Server(name or "Triage", "http", command, triage_ready, folder)

    def engine(self, name, database=None, joins=False):
        """Triage on an engine of ENGINES; postgres wants a Database, and may join who is on it."""
        if name == "postgres":
            return postgres.TriageOnPostgres(self.args.triaged, self.fresh("triaged"), database,
                                             joins)
        return self.triaged(engine=name, name=f"Triage, {name}")

    def has_engine(self, name):
        """Whether this build has it; the run says so when it has not."""
        done = subprocess.run([self.args.triaged, "--help"], capture_output=True, text=True,
                              check=True)
        line = next(text for text in done.stdout.splitlines() if "--engine" in text)
        if name in line.split()[-1].split("|"):
            return True
        self.results.note(f"--engine {name} is not in this build and left out")
        return False

    def has_postgres(self):
        why = postgres.missing()
        if why:
            self.results.note(f"PostgreSQL is left out: {why}")
        return why is None

    def database(self):
        return postgres.Database(self.fresh("postgres"))

    def tool(self, name, *libraries):
        """A C program of this folder, compiled once."""
        if name not in self.tools:
            path = os.path.join(self.folder, name)
            source = os.path.join(HERE, name + ".c")
            subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", path, source, *libraries],
                           check=True)
            self.tools[name] = path
        return self.tools[name]

    def ceiling(self):
        """[("bare", server)], or nothing, which is said, where it cannot be compiled."""
        try:
            program = self.tool("bare_http", "-luv", "-lhttp_parser")
        except (OSError, subprocess.CalledProcessError):
            self.results.note("bare HTTP is left out: it does not compile (libhttp-parser-dev?)")
            return []
        return [("bare", peers.BareHttp(self.fresh("bare"), program))]

    def peers(self, names=None):
        """(name, server) of those peers, or of all; a missing one is named in the output."""
        found, absent = [], []
        for name, (program, make), setting, _ in peers.PEERS:
            if names is not None and name not in names:
                continue
            why = peers.missing(program)
            if why and why not in absent:
                absent.append(why)
                self.results.note(f"{why}: left out")
            if not why:
                found.append((name, make(self.fresh(name), setting)))
        if (names is None or "postgres-sql" in names) and self.has_postgres():
            found.append(("postgres-sql", postgres.SeedSql(self.fresh("postgres"))))
        return found

    # Load.

    def generate(self, server, load, timed=True, factor=1):
        times = ["--duration", f"{self.settings.duration * factor * 1000:.0f}ms", "--warmup",
                 f"{self.settings.warmup * 1000:.0f}ms"] if timed else []
        report, wrong = loads.run_generator(self.args.triage, server, load.words(), times)
        for why in wrong:
            self.results.fail(why)
        return report

    def measure(self, server, load):
        """One round. Claims find a backlog that is put there first."""
        if hasattr(server, "measure"):
            return server.measure(load, self.settings.duration, self.settings.warmup)
        if load.mix == "claim":
            self.generate(server, Load("enqueue", 4, FILL_BATCH, load.payload, queue=load.queue,
                                       options=("--count", FILL_MAX, "--duration",
                                                f"{self.settings.fill_seconds}s")), timed=False)
        report = self.generate(server, load)
        if report.messages == 0:  # a batch took longer than the round
            report = self.generate(server, load, factor=SLOW_FACTOR)
        return report

    def fill(self, server, queue, count, priorities, *options):
        load = Load("enqueue", 4, min(count, 1000), queue=queue, priorities=str(priorities),
                    options=("--count", count, *options))
        report = self.generate(server, load, timed=False)
        if report.messages < count:
            raise Broken(f"{server.name} took {report.messages} of {count} messages")
        return report

    def take_turns(self, subjects, load):
        """The same load on each server in turn, several times, so that what else goes on in the
        machine hits all alike: {name: reports}."""
        found = {name: [] for name, _ in subjects}
        for turn in range(self.settings.rounds):
            for name, server in subjects:
                if found[name] is None:
                    continue
                self.progress.show(f"{load.mix}, round {turn + 1} of {self.settings.rounds}:"
                                   f" {server.name}")
                try:
                    found[name].append(self.measure(server, load))
                except Unable as e:
                    found[name] = None
                    self.results.note(f"{server.name} {e}: left out")
                except Broken as e:
                    found[name] = None
                    self.results.fail(str(e))
        return {name: reports for name, reports in found.items() if reports}

    def beside(self, subjects, load, title="", reference="triage"):
        """Rounds in turn, a table, and the median report of each by name."""
        with contextlib.ExitStack() as stack:
            for _, server in subjects:
                self.progress.show(f"starting {server.name}")
                stack.enter_context(server)
            return self.compare(subjects, load, title, reference)

    def compare(self, subjects, load, title="", reference="triage"):
        """The same, on servers that run."""
        found = {name: loads.median(reports)
                 for name, reports in self.take_turns(subjects, load).items()}
        self.results.table(title)
        for name, server in subjects:
            if name in found:
                self.results.row(server.name, found[name], found.get(reference))
        return found
