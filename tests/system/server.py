"""A real triaged on a port of its own, started, stopped and killed by a test."""

import hashlib
import os
import re
import resource
import signal
import subprocess
import threading

import database
from wire import DEADLINE, Client, Queue

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("TRIAGE_BUILD", "build"))
TRIAGED = os.path.join(BUILD, "triaged")
TRIAGE = os.path.join(BUILD, "triage")

LISTENING = re.compile(r'msg="listening".* address=127\.0\.0\.1:(\d+)')
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|runtime error:|WARNING: ThreadSanitizer")


def allow_many_files():
    """The tests and the servers they start hold thousands of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def environment():
    """Without the settings that TRIAGE_… variables would make."""
    return {k: v for k, v in os.environ.items() if not k.startswith("TRIAGE_")}


def tokens_file(tmp_path, lines):
    """A file for the setting of that name, from (name, token, "roles prefix")."""
    path = tmp_path / "tokens"
    path.write_text("".join(
        f"{name} {hashlib.sha256(token.encode()).hexdigest()} {rest}\n"
        for name, token, rest in lines))
    return path


class Log:
    """What a process says on standard error, line by line, for those who wait for a line."""

    def __init__(self, stream):
        self.lines = []
        self.ended = False
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, args=(stream,), daemon=True)
        self.reader.start()

    def read(self, stream):
        for line in stream:
            with self.changed:
                self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                self.changed.notify_all()
        stream.close()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def find(self, pattern):
        return next((m for m in map(re.compile(pattern).search, self.lines) if m), None)

    def wait_for(self, pattern):
        """The first match, or None when the process ended without such a line."""
        with self.changed:
            in_time = self.changed.wait_for(lambda: self.ended or self.find(pattern), DEADLINE)
            assert in_time, f"no {pattern!r} in:\n{self}"
            return self.find(pattern)

    def __str__(self):
        return "\n".join(self.lines)


class Server:
    def __init__(self, folder, engine="local", data=None, flags=(), **settings):
        self.folder = str(folder)
        self.engine = engine
        self.data = str(data or os.path.join(self.folder, "data"))
        self.flags = list(flags)
        self.settings = settings
        if engine == "postgres":
            self.settings.setdefault("postgres_timeout_seconds", int(DEADLINE))
            if "postgres" not in settings:
                self.settings["postgres"] = database.fresh()
        self.user = None  # another user id to run as, for who is root
        self.env = {}  # beside the tests' own environment
        self.process = None
        self.log = None
        self.address = None

    def command(self):
        config = os.path.join(self.folder, "triage.conf")
        with open(config, "w") as file:
            file.write("[server]\n")
            file.writelines(f"{key} = {value}\n" for key, value in self.settings.items())
        return [TRIAGED, "--config", config, "--listen", "127.0.0.1:0", "--data", self.data,
                "--engine", self.engine, *self.flags]

    def spawn(self):
        allow_many_files()
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        user=self.user, env={**environment(), **self.env})
        self.log = Log(self.process.stderr)

    def comes_up(self):
        """Whether it starts; its log says why not."""
        self.spawn()
        listening = self.log.wait_for(LISTENING)
        if listening:
            self.address = ("127.0.0.1", int(listening[1]))
        return bool(listening)

    def start(self):
        assert self.comes_up(), f"triaged did not start:\n{self.log}"
        return self

    def start_refused(self):
        """For a server that must not start: its exit status, and what it said."""
        self.spawn()
        try:
            started = self.log.wait_for(LISTENING)
            assert not started, f"triaged started:\n{self.log}"
            return self.wait(), str(self.log)
        finally:
            self.end()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        status = self.process.wait(DEADLINE)
        self.log.reader.join(DEADLINE)
        assert not self.log.find(SANITIZER), str(self.log)
        return status

    def stop(self):
        """SIGTERM, and everything that a clean end means."""
        self.terminate()
        status = self.wait()
        assert status == 0, f"exit status {status}:\n{self.log}"

    def kill(self):
        self.process.kill()
        self.wait()

    def restart(self):
        """Kills it in the middle of whatever it does, and starts it on the same data. One that has
        died by itself before that is a fault."""
        assert self.running(), f"it had died, status {self.process.poll()}:\n{self.log}"
        self.kill()
        return self.start()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def end(self):
        """After a test, whatever became of it."""
        if self.running():
            self.kill()

    def client(self, **options):
        return Client(self.address, **options)

    def queue(self, name, **options):
        return Queue(self.client(**options), name)

    def metrics(self):
        """{'name{label="x"}': value} of the whole /metrics page."""
        answer = self.client().get("/metrics")
        assert answer.status == 200, answer
        samples = {}
        for line in answer.body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples
