"""The other servers of a run. A new one is a function here and a line in PEERS."""

import json
import os
import re
import shutil
import subprocess

import postgres
from servers import Server, tcp_ready


def redis(folder, appendfsync):
    append = ["--appendonly", "no"]
    if appendfsync:
        append = ["--appendonly", "yes", "--appendfsync", appendfsync]

    def command(port):
        return ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", folder,
                "--save", "", "--daemonize", "no", *append]

    name = f"Redis, AOF {appendfsync}" if appendfsync else "Redis, no AOF"
    return Server(name, "redis", command, tcp_ready, folder)


def beanstalkd(folder, fsync_ms):
    log = [] if fsync_ms is None else ["-b", folder, f"-f{fsync_ms}"]
    names = {None: "no log", 0: "fsync each"}

    def command(port):
        return ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-z", str(512 * 1024), *log]

    name = f"beanstalkd, {names.get(fsync_ms, f'fsync {fsync_ms} ms')}"
    return Server(name, "beanstalk", command, tcp_ready, folder)


class BareHttp(Server):
    """HTTP on the same event loop that does nothing: the ceiling. It chooses its own port."""

    def __init__(self, folder, program):
        super().__init__("bare HTTP", "http-bare", lambda _: [program], self.said, folder)

    def said(self, _):
        with open(self.log, "rb") as log:
            line = log.readline()
        if not line.endswith(b"\n"):
            return False
        self.port = int(line)
        return tcp_ready(self.port)


REDIS = ("redis-server", redis)
BEANSTALKD = ("beanstalkd", beanstalkd)

# name, (program, function of a folder and a setting), the setting, whether it is as durable as
# Triage: on the disk before the answer.
PEERS = [
    ("redis-always", REDIS, "always", True),
    ("redis-everysec", REDIS, "everysec", False),
    ("redis-off", REDIS, None, False),
    ("beanstalkd-each", BEANSTALKD, 0, True),
    ("beanstalkd-50ms", BEANSTALKD, 50, False),
    ("beanstalkd-off", BEANSTALKD, None, False),
]
DURABLE = [name for name, _, _, durable in PEERS if durable]


def missing(program):
    return None if shutil.which(program) else f"{program} is not installed"


def version_of(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else None


def versions(triaged):
    found = {
        "Triage": version_of([triaged, "--version"]),
        "Redis": version_of(["redis-server", "--version"]),
        "beanstalkd": version_of(["beanstalkd", "-v"]),
    }
    folder = postgres.program_folder()
    found["PostgreSQL"] = version_of([os.path.join(folder, "postgres"), "--version"]) \
        if folder else None
    return found


def fsync_probe(program, folder):
    done = subprocess.run([program, folder], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
