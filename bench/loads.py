"""What is asked of a server, and what came out of it: the same for every protocol."""

import dataclasses
import json
import subprocess

from servers import Broken, child_setup

SECONDS_MAX = 240
LATENCY_OF = {"enqueue": "enqueue", "claim": "claim", "mixed": "claim", "poll": "delivery"}
LATENCIES = ("p50_ms", "p99_ms", "p99_9_ms")


@dataclasses.dataclass(frozen=True)
class Load:
    """Connections that each send one request after the other. `claim` is claim and ack, and
    `mixed` enqueue, claim and ack; a batch is the number of messages of each request."""
    mix: str
    connections: int = 64
    batch: int = 1
    payload: int = 256
    queues: int = 1
    queue: str = "bench"
    priorities: str = "0-9"
    options: tuple = ()  # further ones of `triage bench`

    def words(self):
        return ["--mix", self.mix, "--connections", self.connections, "--batch", self.batch,
                "--payload", self.payload, "--queues", self.queues, "--queue", self.queue,
                "--priorities", self.priorities, *self.options]


EACH_LOADS = [("enqueue, 64 connections", Load("enqueue")),
              ("claim and ack, 64 connections", Load("claim")),
              ("mixed, 64 connections", Load("mixed"))]


@dataclasses.dataclass
class Report:
    """One run. The processor times are per message, of the server and of the load generator."""
    rate: float
    messages: int
    p50_ms: float = None
    p99_ms: float = None
    p99_9_ms: float = None
    server_cpu_us: float = None
    own_cpu_us: float = None
    more: dict = dataclasses.field(default_factory=dict)  # whatever else the generator says


def median(reports):
    """The run in the middle, by throughput."""
    return sorted(reports, key=lambda r: r.rate)[len(reports) // 2]


def run_generator(triage, server, words, timed=()):
    """One run of `triage bench` against a server; a Report, and a list of what went wrong."""
    command = [triage, "--json", "bench", "--target", server.url, *timed]
    for pid in server.pids:
        command += ["--pid", str(pid)]
    command += [str(word) for word in words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=SECONDS_MAX, preexec_fn=child_setup)
    except subprocess.TimeoutExpired as e:
        raise Broken(f"{server.name}: no end after {SECONDS_MAX} s") from e
    if done.returncode != 0:
        raise Broken(f"{server.name}: {done.stderr.strip() or done.stdout.strip()}; "
                     f"log: {server.log_tail()}")
    found = json.loads(done.stdout)
    # A peer that takes seconds for a batch is slow and not broken.
    faults = ["errors", "lost_connections"] + ["unanswered"] * (server.scheme == "http")
    wrong = [f"{server.name}: {what} {found[what]} {found.get('first_error', '')}"
             for what in faults if found[what]]
    return from_generator(found), wrong


def from_generator(found):
    op = LATENCY_OF[found["mix"]]
    latency = found["delivery"] if op == "delivery" else found["operations"].get(op, {})
    return Report(rate=found["messages_per_second"], messages=found["messages"],
                  server_cpu_us=found["server_cpu_us"], own_cpu_us=found["own_cpu_us"], more=found,
                  **{name: latency.get(name) for name in LATENCIES})
