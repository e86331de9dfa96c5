#!/usr/bin/python3
"""Measures Triage beside its peers, on this machine, in one run.

Starts real servers on free loopback ports with data in a temporary folder, puts the load of
`triage bench` on them, and prints a table. A number means something only as a ratio in one run:
rounds of Triage and its peers take turns. Bars are shown as ok or MISSED and never fail the run;
the exit status is 1 when something broke, and 0 otherwise.
"""

import argparse
import contextlib
import ctypes
import http.client
import json
import os
import platform
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
READY_SECONDS_MAX = 30
BENCH_SECONDS_MAX = 240
MIB = 1024 * 1024
REFILL = 250  # messages put back at once while claims are measured
LARGE = 10_000_000  # messages for which the bars of memory and of the cost of a claim are set
DELAYED = 1_000_000  # the same for messages dated tomorrow


class Broken(Exception):
    """A server did not start, died or refused what it should have done."""


class Settings:
    """What --quick makes smaller."""

    def __init__(self, quick):
        self.duration = "700ms" if quick else "3s"
        self.warmup = "300ms" if quick else "1s"
        self.rounds = 3  # odd: the median is one of them
        self.large = LARGE // 10 if quick else LARGE
        self.claim_rounds = 5 if quick else 12
        self.delayed = DELAYED // 2 if quick else DELAYED
        self.restart = 1_000_000
        self.poll_count = 500 if quick else 2000
        self.settle_seconds = 5 if quick else 20


# Servers.

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1


def child_setup():
    """Runs in the child: it dies with this program, and may open as many files as allowed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """One process under measurement. Use as a context: it never outlives its block."""

    def __init__(self, name, scheme, command, ready, log):
        self.name = name
        self.scheme = scheme
        self.command = command  # a function of the port
        self.ready = ready
        self.log = log
        self.port = None
        self.process = None

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def pid(self):
        return self.process.pid

    def start(self, wait=True):
        self.port = self.port or free_port()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(self.port), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=child_setup)
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
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def memory(self, field):
        with open(f"/proc/{self.pid}/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
        raise Broken(f"{self.name} has no {field}")

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

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
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()


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


class Bench:
    """Where things are, what is running, and what came out."""

    def __init__(self, args, folder):
        self.args = args
        self.settings = Settings(args.quick)
        self.folder = folder
        self.count = 0
        self.rows = []
        self.broken = []
        self.scenario = None

    # Servers with a fresh folder each.

    def fresh(self, name):
        self.count += 1
        path = os.path.join(self.folder, f"{self.count:02}-{name}")
        os.mkdir(path)
        return path

    def triaged(self, durability="fsync"):
        data = self.fresh("triaged")

        def command(port):
            return [self.args.triaged, "--listen", f"127.0.0.1:{port}", "--data", data,
                    "--durability", durability]

        name = "Triage" if durability == "fsync" else f"Triage {durability}"
        return Server(name, "http", command, triage_ready, data + ".log")

    def redis(self, appendfsync):
        data = self.fresh("redis")
        append = ["--appendonly", "no"]
        if appendfsync != "no AOF":
            append = ["--appendonly", "yes", "--appendfsync", appendfsync]

        def command(port):
            return ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", data,
                    "--save", "", "--daemonize", "no", *append]

        return Server(f"Redis {appendfsync}", "redis", command, tcp_ready, data + ".log")

    def beanstalkd(self, fsync_ms):
        data = self.fresh("beanstalkd")
        binlog = [] if fsync_ms is None else ["-b", data, f"-f{fsync_ms}"]
        name = {None: "no log", 0: "fsync each"}.get(fsync_ms, f"fsync {fsync_ms} ms")

        def command(port):
            return ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), *binlog]

        return Server(f"beanstalkd {name}", "beanstalk", command, tcp_ready, data + ".log")

    # Load.

    def load(self, server, *options, timed=True):
        """One run of the load generator; its report as a dictionary."""
        command = [self.args.triage, "--json", "bench", "--target", server.url,
                   "--pid", str(server.pid)]
        if timed:
            command += ["--duration", self.settings.duration, "--warmup", self.settings.warmup]
        command += [str(o) for o in options]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  timeout=BENCH_SECONDS_MAX, preexec_fn=child_setup)
        except subprocess.TimeoutExpired as e:
            raise Broken(f"{server.name}: no end after {BENCH_SECONDS_MAX} s") from e
        if done.returncode != 0:
            raise Broken(f"{server.name}: {done.stderr.strip() or done.stdout.strip()}; "
                         f"log: {server.log_tail()}")
        report = json.loads(done.stdout)
        for what in ("errors", "lost_connections", "unanswered"):
            if report[what]:
                self.fail(f"{server.name}: {what} {report[what]} {report.get('first_error', '')}")
        return report

    def fill(self, server, queue, count, priorities, *options):
        report = self.load(server, "--mix", "enqueue", "--queue", queue, "--count", count,
                           "--batch", min(count, 1000), "--connections", 4, "--priorities",
                           priorities, *options, timed=False)
        if report["messages"] < count:
            raise Broken(f"{server.name} took {report['messages']} of {count} messages")
        return report

    # Results.

    def fail(self, why):
        self.broken.append(f"{self.scenario}: {why}")
        print(f"  BROKEN  {why}", flush=True)

    def header(self):
        print(f"  {'':34} {'messages/s':>11} {'p50 ms':>8} {'p99 ms':>8} {'p99.9':>8}"
              f" {'cpu us':>8} {'gen us':>7}  bar", flush=True)

    def row(self, name, reports, op, bar=None, ok=None):
        """Prints and keeps the median run, by throughput, of the reports."""
        middle = sorted(reports, key=lambda r: r["messages_per_second"])[len(reports) // 2]
        latency = middle["delivery"] if op == "delivery" else middle["operations"].get(op, {})
        values = {
            "messages_per_second": middle["messages_per_second"],
            "p50_ms": latency.get("p50_ms"),
            "p99_ms": latency.get("p99_ms"),
            "p99_9_ms": latency.get("p99_9_ms"),
            "server_cpu_us": middle["server_cpu_us"],
            "own_cpu_us": middle["own_cpu_us"],
        }
        self.keep(name, values, bar, ok)
        texts = [f"{values['messages_per_second']:11,.0f}"]
        texts += ["       -" if values[k] is None else f"{values[k]:8.3f}"
                  for k in ("p50_ms", "p99_ms", "p99_9_ms")]
        texts += [f"{values['server_cpu_us'] or 0:8.2f}", f"{values['own_cpu_us'] or 0:7.2f}"]
        print(f"  {name:34} {' '.join(texts)}{verdict(bar, ok)}", flush=True)
        return values

    def fact(self, name, value, unit, bar=None, ok=None, note=""):
        self.keep(name, {"value": value, "unit": unit}, bar, ok)
        text = f"{value:,.2f} {unit}" + (f" ({note})" if note else "")
        print(f"  {name:44} {text}{verdict(bar, ok)}", flush=True)

    def keep(self, name, values, bar, ok):
        self.rows.append({"scenario": self.scenario, "name": name, **values, "bar": bar, "ok": ok})


def verdict(bar, ok):
    if bar is None:
        return ""
    return f"  {bar}: {'ok' if ok else 'MISSED'}"


def median_rate(reports):
    return statistics.median(r["messages_per_second"] for r in reports)


def installed(program):
    """Whether the peer is there; says so when it is not, so that nothing is left out in silence."""
    if shutil.which(program):
        return True
    print(f"  {program} is not installed and left out")
    return False


def bar_at(bar, count, set_for):
    """The bar's text, which tells when the run is smaller than what the bar was set for."""
    return bar if count >= set_for else f"{bar} (set for {set_for:,})"


# Scenarios.

def take_turns(bench, servers, options):
    """The same load on each server in turn, several times; a list of reports for each."""
    results = [[] for _ in servers]
    for _ in range(bench.settings.rounds):
        for server, reports in zip(servers, results):
            reports.append(bench.load(server, *options))
    return results


def run_beside(bench, peers, options, op):
    """Triage and its peers in turn: prints the peers, returns Triage's reports and the ratios."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(s) for s in [bench.triaged(), *peers]]
        ours, *theirs = take_turns(bench, servers, options)
    ratios = []
    for server, reports in zip(servers[1:], theirs):
        bench.row(server.name, reports, op)
        ratios.append((server.name, median_rate(ours) / median_rate(reports)))
    return ours, ratios


def enqueue(bench):
    """one message per request, beside Redis"""
    bench.header()
    peers = [bench.redis("always")] if installed("redis-server") else []
    options = ["--mix", "enqueue", "--connections", 64]
    ours, ratios = run_beside(bench, peers, options, "enqueue")
    if ratios:
        ratio = ratios[0][1]
        bench.row("Triage, 64 connections", ours, "enqueue", f"{ratio:.2f}x Redis, bar 2x",
                  ratio >= 2)
    else:
        bench.row("Triage, 64 connections", ours, "enqueue")
    with bench.triaged() as server:
        reports = [bench.load(server, "--mix", "enqueue", "--connections", 256)
                   for _ in range(bench.settings.rounds)]
    rate = median_rate(reports)
    bench.row("Triage, 256 connections", reports, "enqueue", "bar 100 k/s", rate >= 100_000)


def batched(bench):
    """enqueue in batches of 100"""
    bench.header()
    options = ["--mix", "enqueue", "--batch", 100, "--connections", 32]
    peers = [bench.redis("always")] if installed("redis-server") else []
    ours, _ = run_beside(bench, peers, options, "enqueue")
    bench.row("Triage", ours, "enqueue", "bar 300 k/s", median_rate(ours) >= 300_000)


def mixed(bench):
    """enqueue, claim and ack at 64 connections; latency is the claim's"""
    bench.header()
    peers = [bench.redis("always")] if installed("redis-server") else []
    peers += [bench.beanstalkd(0)] if installed("beanstalkd") else []
    ours, ratios = run_beside(bench, peers, ["--mix", "mixed", "--connections", 64], "claim")
    text = ", ".join(f"{ratio:.2f}x {name}" for name, ratio in ratios)
    ahead = all(ratio > 1 for _, ratio in ratios) if ratios else None
    values = bench.row("Triage", ours, "claim", f"{text}, bar 1x" if ratios else None, ahead)
    bench.fact("Triage claim p99", values["p99_ms"], "ms", "bar < 5 ms", values["p99_ms"] < 5)


def claim_costs(bench, places, priority):
    """CPU time in us of one claim, for each place (a server and a queue of it) and round. What is
    claimed is put back in batches, so that the depths stay; acks are left out, since they would
    only dilute the difference."""
    costs = [[] for _ in places]
    for server, queue in places:
        http_call(server.port, "PUT", f"/v1/queues/{queue}", {"visibility_timeout_seconds": 3600})
    turns = [(*place, found) for place, found in zip(places, costs)]
    for i in range(bench.settings.claim_rounds):
        turns.reverse()  # so that none always comes first
        for server, queue, found in turns:
            bench.fill(server, queue, REFILL, priority)  # what the last round may still owe
            report = bench.load(server, "--mix", "claim", "--no-ack", "--refill", REFILL, "--queue",
                                queue, "--priorities", priority, "--connections", 64,
                                "--duration", "600ms", "--warmup", "150ms", timed=False)
            if report["empty"] > report["messages"] / 100:
                raise Broken(f"{server.name}: {report['empty']} claims found nothing")
            found.append(report["server_cpu_us"])
    return costs


def show_costs(bench, names, costs, ratio_max, bar):
    """By the best round of each: what else goes on in the machine can only add to it. The worst
    round is shown too; where they are far apart the ratio says little."""
    for name, cost in zip(names, costs):
        bench.fact(f"server CPU per claim, {name}", min(cost), "us",
                   note=f"best of {len(cost)} rounds, worst {max(cost):.2f}")
    for name, cost in zip(names[1:], costs[1:]):
        ratio = min(cost) / min(costs[0])
        bench.fact("ratio" if len(costs) == 2 else f"ratio, {name}", ratio, "x", bar,
                   ratio <= ratio_max)


def large(bench):
    """many cold messages: memory, and the cost of a claim"""
    count = bench.settings.large
    with bench.triaged() as small, bench.triaged() as big:
        bench.fill(small, "deep", 1000, 0)
        empty = big.memory("VmRSS")
        report = bench.fill(big, "deep", count, 0, "--duration", "150s")
        bench.fact(f"fill with {count:,}, batches of 1,000", report["messages_per_second"], "/s")
        big.settle(bench.settings.settle_seconds)
        resident = big.memory("VmRSS")
        note = f"{empty / MIB:.0f} when empty, {big.memory('VmHWM') / MIB:.0f} at the highest"
        bench.fact(f"resident with {count:,}", resident / MIB, "MiB",
                   bar_at("bar 512 MiB", count, LARGE), resident < 512 * MIB, note)
        costs = claim_costs(bench, [(small, "deep"), (big, "deep")], 0)
    show_costs(bench, ["1,000 ready", f"{count:,} ready"], costs, 1.3,
               bar_at("bar 1.3x", count, LARGE))


def future(bench):
    """claims at priority 0 beside urgent messages dated tomorrow"""
    count = bench.settings.delayed
    with bench.triaged() as none, bench.triaged() as many:
        bench.fill(none, "later", 1000, 0)
        bench.fill(many, "later", 1000, 0)
        bench.fill(many, "later", count, 9, "--delay", "24h")
        many.settle(bench.settings.settle_seconds)
        costs = claim_costs(bench, [(none, "later"), (many, "later")], 0)
    show_costs(bench, ["none delayed", f"{count:,} delayed"], costs, 1.1,
               bar_at("bar 1.1x", count, DELAYED))


POLICIES = {
    "strict": {"policy": "strict"},
    "weighted": {"policy": "weighted"},
    "aged": {"policy": "strict", "age_after_seconds": 1},
    "weighted and aged": {"policy": "weighted", "age_after_seconds": 1},
}


def policies(bench):
    """claims from queues of ten levels: strict, weighted, aged"""
    places = []
    with bench.triaged() as server:
        for rules in POLICIES.values():
            queue = f"q{len(places)}"
            levels = [{"name": str(n), "number": n, "weight": n + 1,
                       "age_after_seconds": rules.get("age_after_seconds") if n < 9 else None}
                      for n in range(9, -1, -1)]
            status, body = http_call(server.port, "PUT", f"/v1/queues/{queue}",
                                     {"levels": levels, "policy": rules["policy"]})
            if status != 201:
                raise Broken(f"{queue}: {body.decode()}")
            bench.fill(server, queue, 10_000, "0-9")
            places.append((server, queue))
        costs = claim_costs(bench, places, "0-9")
    show_costs(bench, list(POLICIES), costs, 1.2, "bar 1.2x")


def first_claim(port, limit_seconds=60):
    limit = time.monotonic() + limit_seconds
    while time.monotonic() < limit:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, body = http_call(port, "POST", "/v1/queues/kept/messages/claim", {"max": 1})
            if status == 200 and json.loads(body)["messages"]:
                return
        time.sleep(0.002)
    raise Broken(f"no claim succeeded within {limit_seconds} s of the restart")


def restart(bench):
    """with 1,000,000 messages, from exec to the first claim"""
    with bench.triaged() as server:
        bench.fill(server, "kept", bench.settings.restart, "0-9")
        for sig in (signal.SIGTERM, signal.SIGKILL):
            before = time.monotonic()
            server.stop(sig, 60)
            stopped = time.monotonic() - before
            before = time.monotonic()
            server.start(wait=False)
            first_claim(server.port)
            took = time.monotonic() - before
            bench.fact(f"after {sig.name}", took, "s", "bar 2 s", took < 2,
                       f"stopped in {stopped:.2f} s")


def polls(bench):
    """10,000 waiting long polls, one message at a time"""
    with bench.triaged() as server:
        report = bench.load(server, "--mix", "poll", "--connections", 10_000, "--count",
                            bench.settings.poll_count, "--rate", 500, timed=False)
    bench.header()
    bench.row("Triage, to delivery", [report], "delivery", "bar p99 < 5 ms",
              report["delivery"]["p99_ms"] < 5)
    extra = report["extra_wakeups"]
    bench.fact("wakeups beyond one a message", extra, "", "bar 0", extra == 0,
               f"{report['waiting']} were waiting")
    if report["messages"] < bench.settings.poll_count:
        bench.fail(f"{report['messages']} of {bench.settings.poll_count} were delivered")


def durability(bench):
    """enqueue at 64 connections under each durability setting"""
    bench.header()
    servers = [bench.triaged(d) for d in ("fsync", "interval:50", "os")]
    if installed("redis-server"):
        servers += [bench.redis(a) for a in ("always", "everysec", "no AOF")]
    if installed("beanstalkd"):
        servers += [bench.beanstalkd(f) for f in (0, 50, None)]
    for server in servers:
        with server:
            report = bench.load(server, "--mix", "enqueue", "--connections", 64)
        bench.row(server.name, [report], "enqueue")


SCENARIOS = [enqueue, batched, mixed, large, future, policies, restart, polls, durability]


# The machine.

def cpu_model():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def compile_tool(bench, name, *libraries):
    path = os.path.join(bench.folder, name)
    source = os.path.join(ROOT, "bench", name + ".c")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", path, source, *libraries], check=True)
    return path


@contextlib.contextmanager
def bare_server(bench):
    path = compile_tool(bench, "bare_http", "-luv", "-lhttp_parser")
    log = os.path.join(bench.folder, "bare_http.log")
    server = Server("bare HTTP", "http-bare", lambda _: [path], None, log)
    try:
        server.start(wait=False)
        limit = time.monotonic() + 5
        while not server.log_tail() and time.monotonic() < limit:
            time.sleep(0.01)
        server.port = int(server.log_tail())
        yield server
    finally:
        server.stop()


def machine(bench):
    """fsync of the disk, and HTTP that does nothing"""
    bench.scenario = "machine"
    print(f"{os.cpu_count()} cores, {cpu_model()}, Linux {platform.release()},"
          f" load {os.getloadavg()[0]:.2f} before the start")
    probe = compile_tool(bench, "fsync_probe")
    done = subprocess.run([probe, bench.folder], capture_output=True, text=True, check=True)
    disk = json.loads(done.stdout)
    bench.keep("write 4 KiB and fdatasync", disk, None, None)
    print(f"write 4 KiB and fdatasync: p50 {disk['p50_us'] / 1000:.3f} ms,"
          f" p99 {disk['p99_us'] / 1000:.3f} ms")
    bench.header()
    with bare_server(bench) as server:
        report = bench.load(server, "--mix", "enqueue", "--connections", 64)
        bench.row("bare HTTP, 64 connections", [report], "enqueue")


# The program.

def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter rounds, smaller backlogs")
    parser.add_argument("--only", metavar="NAME[,NAME]", help="some of the scenarios")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build"),
                        help="where the data goes, in a temporary folder: a real disk")
    parser.add_argument("--triaged", default=os.path.join(ROOT, "build", "triaged"))
    parser.add_argument("--triage", default=os.path.join(ROOT, "build", "triage"))
    args = parser.parse_args()
    names = {s.__name__: s for s in SCENARIOS}
    wanted = args.only.split(",") if args.only else list(names)
    unknown = [n for n in wanted if n not in names]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(names)}")
    args.scenarios = [names[n] for n in wanted]
    return parser, args


def run(bench):
    machine(bench)
    for scenario in bench.args.scenarios:
        bench.scenario = scenario.__name__
        print(f"\n{scenario.__name__}: {scenario.__doc__}", flush=True)
        try:
            scenario(bench)
        except Broken as e:
            bench.fail(str(e))
        except OSError as e:
            bench.fail(f"{type(e).__name__}: {e}")


def summarize(bench, seconds):
    missed = [f"{r['scenario']}: {r['name']}, {r['bar']}" for r in bench.rows if r["ok"] is False]
    print(f"\n{len(bench.rows)} results in {seconds:.0f} s, {len(missed)} bars missed,"
          f" {len(bench.broken)} broken")
    for line in missed:
        print(f"  missed  {line}")
    for line in bench.broken:
        print(f"  broken  {line}")
    if bench.args.json:
        with open(bench.args.json, "w") as f:
            json.dump({"cpu": cpu_model(), "cores": os.cpu_count(), "kernel": platform.release(),
                       "quick": bench.args.quick, "seconds": round(seconds, 1),
                       "results": bench.rows, "broken": bench.broken}, f, indent=1)


def main():
    parser, args = parse_args()
    if args.list:
        for scenario in SCENARIOS:
            print(f"{scenario.__name__:12} {scenario.__doc__}")
        return 0
    for program in (args.triaged, args.triage):
        if not os.access(program, os.X_OK):
            parser.error(f"{program} is not there; `make build` makes it")
    # So that `with` and `finally` end the servers on a signal too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="bench-", dir=args.folder)
    bench = Bench(args, folder)
    start = time.monotonic()
    try:
        run(bench)
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    summarize(bench, time.monotonic() - start)
    return 1 if bench.broken else 0


if __name__ == "__main__":
    sys.exit(main())
