"""Processes under measurement: started on free loopback ports, watched, and always ended."""

import contextlib
import ctypes
import glob
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import time

READY_SECONDS_MAX = 30
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)
TICKS = os.sysconf("SC_CLK_TCK")


class Broken(Exception):
    """A server did not start, died or refused what it should have done."""


class Unable(Exception):
    """A server has nothing like what is measured: said in the table, and no failure."""


def child_setup():
    """Runs in the child: it dies with this program, and may open as many files as allowed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tcp_ready(port):
    socket.create_connection(("127.0.0.1", port), 1).close()
    return True


def http_call(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def triage_ready(port):
    return http_call(port, "GET", "/readyz")[0] == 200


def stat_fields(pid):
    """The fields of /proc/PID/stat from the third on: the name before them may hold anything."""
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rpartition(")")[2].split()


def children(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path) as f:
            found += [int(word) for word in f.read().split()]
    return found


def process_cpu_seconds(pid):
    """By the clock of the process, in nanoseconds: /proc/PID/stat cuts ticks of 10 ms off each of
    a hundred backends. The number of that clock is the one clock_getcpuclockid(3) computes."""
    return time.clock_gettime((~pid << 3) | 2)


def family_cpu_seconds(pid):
    """Processor time of a process and its children, living and dead."""
    seconds = process_cpu_seconds(pid)
    seconds += sum(int(field) for field in stat_fields(pid)[13:15]) / TICKS
    for child in children(pid):
        with contextlib.suppress(OSError):
            seconds += process_cpu_seconds(child)
    return seconds


class Server:
    """One server. Use as a context: neither it nor its files outlive the block."""

    def __init__(self, name, scheme, command, ready, folder, user=None):
        self.name = name
        self.scheme = scheme  # of the load generator's target
        self.command = command  # a function of the port
        self.ready = ready  # a function of the port: True when it serves
        self.folder = folder
        self.log = folder + ".log"
        self.user = user  # (uid, gid), or None for our own
        self.port = None
        self.process = None

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def pids(self):
        """The processes whose time is the server's."""
        return [self.process.pid]

    def start(self, wait=True):
        self.port = self.port or free_port()
        owner = {}
        if self.user:
            owner = {"user": self.user[0], "group": self.user[1], "extra_groups": []}
        with open(self.log, "ab") as log:
            # A session of its own: Ctrl-C is for us, and we end it in good order.
            self.process = subprocess.Popen(
                self.command(self.port), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, preexec_fn=child_setup, start_new_session=True, **owner)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self):
        limit = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < limit:
            if self.process.poll() is not None:
                raise Broken(f"{self.name} ended with {self.process.returncode}: {self.log_tail()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.ready(self.port):
                    return
            time.sleep(0.02)
        raise Broken(f"{self.name} was not ready after {READY_SECONDS_MAX} s: {self.log_tail()}")

    def log_tail(self):
        with open(self.log, "rb") as log:
            return log.read()[-400:].decode("utf-8", "replace").strip()

    def stop(self, sig=signal.SIGTERM, seconds=20):
        """Ends it, by force when it does not end by itself; returns its exit status."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(sig)
            try:
                self.process.wait(seconds)
            except BaseException as e:
                self.process.kill()
                self.process.wait()
                if not isinstance(e, subprocess.TimeoutExpired):
                    raise
        return self.process.returncode

    def memory(self, field="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
        raise Broken(f"{self.name} has no {field}")

    def cpu_seconds(self):
        return sum(family_cpu_seconds(pid) for pid in self.pids)

    def settle(self, seconds_max):
        """Waits until background work has ended, so that it is not charged to what comes next."""
        limit = time.monotonic() + seconds_max
        while time.monotonic() < limit:
            before = self.cpu_seconds()
            time.sleep(0.5)
            if self.cpu_seconds() - before < 0.03:
                return

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
