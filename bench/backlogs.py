"""Scenarios about what waits: how much memory it takes, and that its number costs nothing."""

import contextlib
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import time

from context import ENGINES
from loads import Load
from report import aim, bar
from servers import Broken, http_call

MIB = 1024 * 1024
REFILL = 250  # messages put back at once while claims are measured
DEEP = 10_000_000  # messages for which the bars of memory and of the cost of a claim are set
BEANSTALKD_BYTES, REDIS_BYTES = 459, 501  # per waiting message, measured before this was built


def core(bench):
    """the core alone, without HTTP and without a disk: what depth and policies add to a claim"""
    build = os.path.dirname(bench.args.triaged)
    archives = [os.path.join(build, f"lib{layer}.a") for layer in ("engine", "core", "base")]
    program = bench.tool("core_bench", "-I", os.path.join(build, os.pardir, "src"), *archives,
                         "-ljemalloc", "-luv", "-lxxhash", "-lpthread", "-lm")
    done = subprocess.run([program, str(bench.settings.deep)], stdout=subprocess.PIPE, text=True,
                          check=False)
    for line in done.stdout.splitlines():
        if found := re.fullmatch(r"(\S.*?)\s+([\d.]+)\s+bar ([\d.]+)\s+\w+", line):
            name, value, most = found[1], float(found[2]), float(found[3])
            bench.results.fact(name, value, "", [bar(f"at most {most:g}", value <= most)])


def at(text, count, set_for):
    """The bar's text, which tells when the run is smaller than what the bar was set for."""
    return text if count >= set_for else f"{text} (set for {set_for:,})"


def memory(bench):
    """resident bytes per waiting message, payloads of 256 bytes"""
    count = bench.settings.waiting
    subjects = [("triage", bench.triaged()),
                ("small", bench.triaged(memory_limit="16M", name="Triage, memory_limit 16M")),
                ("memory", bench.engine("memory")),
                *bench.peers(["redis-off", "beanstalkd-off", "postgres-sql"])]
    least = min(BEANSTALKD_BYTES, REDIS_BYTES) / 2
    reference = None
    for name, server in subjects:
        bench.progress.step(f"filling {server.name} with {count:,}")
        with server:
            if name == "postgres-sql":
                server.fill(count)
                bench.results.note(f"{server.name}: {server.bytes_on_disk() / count:.0f} bytes in"
                                   " tables and indexes; its memory is a cache of a fixed size")
                continue
            before = server.memory()
            bench.fill(server, "waiting", count, "0-9")
            server.settle(bench.settings.settle_seconds)
            each = (server.memory() - before) / count
        reference = reference or each
        marks = [aim(f"below {least:.0f} bytes, half of beanstalkd's {BEANSTALKD_BYTES}",
                     each < least)] if name in ("triage", "small") else []
        bench.results.fact(server.name, each, "bytes", marks,
                           f"{each / reference:.2f}x, {count:,} waiting")


def claim_costs(bench, places, priorities):
    """CPU time in us of one claim, for each place (server, queue) and round. What is claimed is put
    back in batches, so that the depths stay; acks are left out, since they would only dilute the
    difference."""
    costs = [[] for _ in places]
    for server, queue in places:
        http_call(server.port, "PUT", f"/v1/queues/{queue}", {"visibility_timeout_seconds": 3600})
    turns = list(zip(places, costs))
    for i in range(bench.settings.claim_rounds):
        turns.reverse()  # so that none of them always comes first
        for (server, queue), found in turns:
            bench.progress.show(f"claims, round {i + 1} of {bench.settings.claim_rounds}")
            bench.fill(server, queue, REFILL, priorities)  # what the last round may still owe
            load = Load("claim", queue=queue, priorities=str(priorities),
                        options=("--no-ack", "--refill", REFILL, "--duration", "600ms",
                                 "--warmup", "150ms"))
            report = bench.generate(server, load, timed=False)
            if report.more["empty"] > report.messages / 100:
                raise Broken(f"{server.name}: {report.more['empty']} claims found nothing")
            found.append(report.server_cpu_us)
    return costs


def show_costs(bench, names, costs, ratio_max, text):
    """Each beside the first, round by round: what else goes on in the machine meets both of a round,
    and one round in which it rested decides nothing."""
    for name, cost in zip(names, costs):
        bench.results.fact(f"server CPU per claim, {name}", statistics.median(cost), "us",
                           note=f"median of {len(cost)} rounds, {min(cost):.2f} to {max(cost):.2f}")
    for name, cost in zip(names[1:], costs[1:]):
        ratio = statistics.median(own / first for own, first in zip(cost, costs[0]))
        bench.results.fact(f"ratio, {name}", ratio, "x", [bar(text, ratio <= ratio_max)])


def deep(bench):
    """a deep backlog of cold messages: memory, and the cost of a claim beside that of a small one"""
    count = bench.settings.deep
    with bench.triaged() as small, bench.triaged() as big:
        bench.fill(small, "deep", 1000, 0)
        empty = big.memory()
        bench.progress.step(f"filling with {count:,}")
        report = bench.fill(big, "deep", count, 0, "--duration", "150s")
        bench.results.fact(f"fill with {count:,}, batches of 1,000", report.rate, "/s")
        big.settle(bench.settings.settle_seconds)
        resident = big.memory()
        note = f"{empty / MIB:.0f} when empty, {big.memory('VmHWM') / MIB:.0f} at the highest"
        bench.results.fact(f"resident with {count:,}", resident / MIB, "MiB",
                           [bar(at("512 MiB", count, DEEP), resident < 512 * MIB)], note)
        costs = claim_costs(bench, [(small, "deep"), (big, "deep")], 0)
    show_costs(bench, ["1,000 ready", f"{count:,} ready"], costs, 1.3, at("1.3x", count, DEEP))


# What is asked at every depth. Each leaves the depth as it was.
DEPTH_LOADS = [
    ("enqueue", Load("enqueue", queue="depth", options=("--count", 20_000))),
    ("enqueue, batches of 100", Load("enqueue", 32, 100, queue="depth",
                                     options=("--count", 100_000))),
    ("claim and ack", Load("claim", queue="depth", options=("--count", 20_000))),
    ("claim and ack, batches of 100", Load("claim", 32, 100, queue="depth",
                                           options=("--count", 100_000))),
    ("mixed", Load("mixed", queue="depth", options=("--count", 10_000))),
]


def at_depth(bench, server, load):
    """One run of a counted load, with its messages put there before or taken away after it."""
    count = load.options[1]
    if load.mix == "claim":
        bench.fill(server, "depth", count, "0-9")
    report = bench.generate(server, load, timed=False)
    if load.mix == "enqueue":
        bench.generate(server, Load("claim", 32, 100, queue="depth", options=("--count", count)),
                       timed=False)
    return report


def depth(bench):
    """every request at 10 and 100 times the depth, as a ratio of processor time per message"""
    counts = [bench.settings.depth * factor for factor in (1, 10, 100)]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(bench.triaged()) for _ in counts]
        for server, count in zip(servers, counts):
            bench.progress.step(f"filling with {count:,}")
            bench.fill(server, "depth", count, "0-9")
        for server in servers:
            server.settle(bench.settings.settle_seconds)
        for title, load in DEPTH_LOADS:
            found = [[] for _ in counts]
            for turn in range(bench.settings.rounds):
                for server, count, reports in zip(servers, counts, found):
                    bench.progress.show(f"{title}, round {turn + 1}, {count:,} deep")
                    reports.append(at_depth(bench, server, load))
            depth_table(bench, title, counts, found)


def depth_table(bench, title, counts, found):
    """By the best round of each, for the same reason as the cost of a claim."""
    best = [min(reports, key=lambda r: r.server_cpu_us) for reports in found]
    bench.results.table(title)
    for count, report in zip(counts, best):
        bench.results.row(f"{count:,} deep", report, best[0])
    ratio = best[2].server_cpu_us / best[0].server_cpu_us
    bench.results.judge(aim(f"{title}: 1.3x the cpu at most at 100 times the depth, {ratio:.2f}x",
                            ratio <= 1.3))


def future_costs(bench, make, name):
    count = bench.settings.future
    with contextlib.ExitStack() as stack:
        none, many = (stack.enter_context(make()) for _ in range(2))
        bench.fill(none, "later", 1000, 0)
        bench.fill(many, "later", 1000, 0)
        bench.progress.step(f"filling {many.name} with {count:,} of tomorrow")
        bench.fill(many, "later", count, 9, "--delay", "24h")
        many.settle(bench.settings.settle_seconds)
        costs = claim_costs(bench, [(none, "later"), (many, "later")], 0)
    show_costs(bench, [f"{name}, none", f"{name}, {count:,} of tomorrow"], costs, 1.1, "1.1x")


def future(bench):
    """claims at priority 0 beside urgent messages dated tomorrow, on each engine"""
    for name in ENGINES:
        if name != "postgres":  # it has a scenario of its own
            future_costs(bench, lambda name=name: bench.engine(name), name)


def cold(bench):
    """messages that do not fit in memory_limit = 16M: filled, then drained in batches of 100"""
    count = bench.settings.cold
    filled, drained = {}, {}
    sizes = ["16M", "128M"]
    for size in sizes:
        with bench.triaged(memory_limit=size, name=f"Triage, memory_limit {size}") as server:
            empty = server.memory()
            bench.progress.step(f"filling {server.name} with {count:,}")
            filled[size] = bench.fill(server, "cold", count, "0-9")
            server.settle(bench.settings.settle_seconds)
            bench.results.fact(f"resident with {count:,}, memory_limit {size}",
                               server.memory() / MIB, "MiB", note=f"{empty / MIB:.0f} when empty")
            drained[size] = bench.generate(
                server, Load("claim", 32, 100, queue="cold", options=("--duration", "120s")),
                timed=False)
            if drained[size].messages != count:
                raise Broken(f"{drained[size].messages} of {count} came back")
    for title, found in (("fill, batches of 1,000", filled), ("drain, batches of 100", drained)):
        bench.results.table(title)
        for size in sizes:
            bench.results.row(f"Triage, memory_limit {size}", found[size], found["128M"])


def policy_config(policy, age_seconds):
    return {"policy": policy, "default_priority": 5,
            "levels": [{"name": str(n), "number": n, "weight": n + 1,
                        "age_after_seconds": age_seconds} for n in range(9, -1, -1)]}


POLICIES = {"strict": policy_config("strict", None), "weighted": policy_config("weighted", None),
            "strict-aged": policy_config("strict", 1),
            "weighted-aged": policy_config("weighted", 1)}


def policies(bench):
    """claims of one message under each policy, with and without messages that have aged"""
    with bench.triaged() as server:
        for queue, config in POLICIES.items():
            status, body = http_call(server.port, "PUT", f"/v1/queues/{queue}", config)
            if status // 100 != 2:
                raise Broken(f"{queue}: {status} {body.decode()}")
            bench.fill(server, queue, 20_000, "0-9")
        server.settle(bench.settings.settle_seconds)
        costs = claim_costs(bench, [(server, queue) for queue in POLICIES], "0-9")
    show_costs(bench, list(POLICIES), costs, 1.2, "1.2x")


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
        bench.progress.step(f"filling with {bench.settings.restart:,}")
        bench.fill(server, "kept", bench.settings.restart, "0-9")
        for sig in (signal.SIGTERM, signal.SIGKILL):
            before = time.monotonic()
            server.stop(sig, 60)
            stopped = time.monotonic() - before
            before = time.monotonic()
            server.start(wait=False)
            first_claim(server.port)
            took = time.monotonic() - before
            bench.results.fact(f"after {sig.name}", took, "s", [bar("2 s", took < 2)],
                               f"stopped in {stopped:.2f} s")
