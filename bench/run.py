#!/usr/bin/python3
"""Measures Triage beside its peers, on this machine, in one run.

Starts real servers on free loopback ports with data in a temporary folder, puts the load of
`triage bench` on them (of pgbench on PostgreSQL), and prints a table. Bars and aims never fail the
run; the exit status is 1 when something broke, and 0 otherwise.

  servers.py    a process under measurement
  peers.py      the other servers; postgres.py the one that takes more
  loads.py      what is asked of a server, and what came out
  context.py    where things are, rounds that take turns
  scenarios.py  what is measured, with backlogs.py, databases.py and cells.py
  report.py     tables, JSON, docs/benchmarks.md
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

import peers
import report
from context import Bench
from scenarios import SCENARIOS
from servers import Broken

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "benchmarks.md")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="shorter rounds, smaller backlogs")
    parser.add_argument("--scenario", nargs="+", metavar="NAME", default=[],
                        help="some of the scenarios, in this order")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    parser.add_argument("--write-docs", metavar="FILE", nargs="?", const=PAGE,
                        help="write a page about it, docs/benchmarks.md")
    parser.add_argument("--from-json", metavar="FILE",
                        help="measure nothing: take the results of an earlier run")
    parser.add_argument("--folder", default=os.path.join(ROOT, "build"),
                        help="where the data goes, in a temporary folder: a real disk")
    parser.add_argument("--triaged", default=os.path.join(ROOT, "build", "triaged"))
    parser.add_argument("--triage", default=os.path.join(ROOT, "build", "triage"))
    args = parser.parse_args()
    names = {s.name: s for s in SCENARIOS}
    unknown = [name for name in args.scenario if name not in names]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(names)}")
    args.scenarios = [names[name] for name in args.scenario] or \
        [s for s in SCENARIOS if not s.long]
    return parser, args


def command_line(args):
    words = [word for word, given in (("--quick", args.quick), ("--write-docs", args.write_docs))
             if given]
    words += ["--scenario", *args.scenario] if args.scenario else []
    return "make bench" + (f' BENCH_ARGS="{" ".join(words)}"' if words else "")


def show_machine(bench, machine, versions):
    results = bench.results
    results.begin("machine", "the disk")
    results.say(f"  {machine['cores']} cores, {machine['cpu']}, Linux {machine['kernel']},"
                f" {machine['file_system']}, load {machine['load_before']} before the start")
    results.say("  " + ", ".join(f"{name} {version or 'NOT INSTALLED'}"
                                 for name, version in versions.items()))
    disk = peers.fsync_probe(bench.tool("fsync_probe"), bench.folder)
    for name in ("p50", "p99"):
        results.fact(f"write 4 KiB and fdatasync, {name}", disk[f"{name}_us"] / 1000, "ms")


def run_scenarios(bench):
    for scenario in bench.args.scenarios:
        bench.results.begin(scenario.name, scenario.about)
        bench.results.records[-1]["beside"] = scenario.beside
        start = time.monotonic()
        try:
            scenario.run(bench)
        except Broken as e:
            bench.results.fail(str(e))
        except Exception as e:  # the other scenarios of a long run are worth having
            traceback.print_exc()
            bench.results.fail(f"{type(e).__name__}: {e}")
        bench.results.say(f"  ({time.monotonic() - start:.0f} s)")


def measure(args):
    """The run in its JSON form, also when it is cut short by a signal."""
    folder = tempfile.mkdtemp(prefix="bench-", dir=args.folder)
    os.chmod(folder, 0o755)  # PostgreSQL runs as a user of its own
    bench = Bench(args, folder)
    machine, versions = report.machine(folder), peers.versions(args.triaged)
    start, complete = time.monotonic(), False
    try:
        show_machine(bench, machine, versions)
        run_scenarios(bench)
        complete = True
    except KeyboardInterrupt:
        bench.results.say("  interrupted")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - start
    bench.results.summarize(seconds)
    return {"command": command_line(args), "quick": args.quick, "seconds": round(seconds, 1),
            "complete": complete, "machine": machine, "versions": versions,
            "records": bench.results.records, "broken": bench.results.broken}


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    parser, args = parse_args()
    if args.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:18} {scenario.about}" + (" (long)" if scenario.long else ""))
        return 0
    # So that `with` and `finally` end the servers on a signal too.
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    if args.from_json:
        with open(args.from_json) as f:
            run = json.load(f)
    else:
        for program in (args.triaged, args.triage):
            if not os.access(program, os.X_OK):
                parser.error(f"{program} is not there; `make build` makes it")
        run = measure(args)
    if args.json:
        report.write_json(args.json, run)
    if args.write_docs and run["complete"]:
        with open(args.write_docs, "w") as f:
            f.write(report.page(run))
        print(f"wrote {os.path.relpath(args.write_docs)}")
    if not run["complete"]:
        return 130
    return 1 if run["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
