"""What came out of a run: printed as it comes, kept for --json, and written as a page."""

import dataclasses
import datetime
import json
import os
import platform
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NAME_WIDTH = 32


@dataclasses.dataclass
class Mark:
    """A figure that is to be reached: a bar that the design sets, or an aim beyond it."""
    kind: str  # "bar" or "aim"
    text: str
    reached: bool

    def __str__(self):
        words = {"bar": ("MISSED", "ok"), "aim": ("not reached", "reached")}
        return f"{self.kind} {self.text}: {words[self.kind][bool(self.reached)]}"


def bar(text, reached):
    return Mark("bar", text, reached)


def aim(text, reached):
    return Mark("aim", text, reached)


def ratio_of(found, field, ours, theirs):
    if ours not in found or theirs not in found:
        return None
    return getattr(found[ours], field) / getattr(found[theirs], field)


def ahead_of(found, name, least, kind=bar, what="messages/s", ours="triage"):
    """A mark: at least so many times the throughput of that peer, when it took part."""
    ratio = ratio_of(found, "rate", ours, name)
    who = "" if ours == "triage" else f"{ours}: "
    return [] if ratio is None else [kind(f"{who}{least:g}x {what} of {name}, {ratio:.2f}x",
                                          ratio >= least)]


def number(value, digits=2):
    return "-" if value is None else f"{value:,.{digits}f}"


def ratio(value):
    return "" if value is None else f"{value:.2f}x"


COLUMNS = [  # title, width, text of a row
    ("messages/s", 11, lambda r: number(r["rate"], 0)),
    ("ratio", 7, lambda r: ratio(r["rate_ratio"])),
    ("p50 ms", 9, lambda r: number(r["p50_ms"], 3)),
    ("p99 ms", 9, lambda r: number(r["p99_ms"], 3)),
    ("p99.9 ms", 9, lambda r: number(r["p99_9_ms"], 3)),
    ("cpu us", 8, lambda r: number(r["cpu_us"])),
    ("ratio", 7, lambda r: ratio(r["cpu_ratio"])),
    ("gen us", 7, lambda r: number(r["own_cpu_us"])),
]


class Progress:
    """What is being done, in one line of a terminal that is overwritten; elsewhere only the steps
    that take long, a line each, so that a log stays readable."""

    def __init__(self):
        self.terminal = sys.stderr.isatty()

    def show(self, text):
        if self.terminal:
            print(f"\r\033[K  ... {text}"[:120], end="", file=sys.stderr, flush=True)

    def step(self, text):
        if self.terminal:
            self.show(text)
        else:
            print(f"  ... {text}", file=sys.stderr, flush=True)

    def clear(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Results:
    def __init__(self):
        self.records = []
        self.broken = []
        self.scenario = None
        self.progress = Progress()

    def say(self, text):
        self.progress.clear()
        print(text, flush=True)

    def begin(self, name, about):
        self.scenario = name
        self.records.append({"kind": "scenario", "scenario": name, "about": about})
        self.say(f"\n{name}: {about}")

    def keep(self, kind, marks=(), **values):
        record = {"kind": kind, "scenario": self.scenario, **values,
                  "marks": [dataclasses.asdict(m) for m in marks]}
        self.records.append(record)
        return record

    def table(self, title=""):
        self.keep("table", title=title)
        titles = " ".join(f"{name:>{width}}" for name, width, _ in COLUMNS)
        self.say(f"  {title:{NAME_WIDTH}} {titles}")

    def row(self, name, report, reference=None, marks=()):
        """A run beside the one the others are compared with."""
        def share(field):
            mine, theirs = getattr(report, field), getattr(reference, field, None)
            return mine / theirs if mine is not None and theirs else None

        record = self.keep(
            "row", marks, name=name, rate=report.rate, rate_ratio=share("rate"),
            p50_ms=report.p50_ms, p99_ms=report.p99_ms, p99_9_ms=report.p99_9_ms,
            cpu_us=report.server_cpu_us, cpu_ratio=share("server_cpu_us"),
            own_cpu_us=report.own_cpu_us)
        texts = " ".join(f"{text(record):>{width}}" for _, width, text in COLUMNS)
        self.say(f"  {name:{NAME_WIDTH}} {texts}")
        self.show_marks(marks)

    def fact(self, name, value, unit, marks=(), note=""):
        self.keep("fact", marks, name=name, value=value, unit=unit, note=note)
        self.say(f"  {name:50} {number(value)} {unit}" + (f" ({note})" if note else ""))
        self.show_marks(marks)

    def note(self, text):
        self.keep("note", text=text)
        self.say(f"  {text}")

    def fail(self, why):
        self.broken.append(f"{self.scenario}: {why}")
        self.say(f"  BROKEN  {why}")

    def judge(self, *marks):
        """Marks that belong to several rows."""
        self.keep("marks", marks)
        self.show_marks(marks)

    def show_marks(self, marks):
        for mark in marks:
            self.say(f"      {mark}")

    def marks(self):
        for record in self.records:
            for mark in record.get("marks", []):
                yield record["scenario"], Mark(**mark)

    def summarize(self, seconds):
        figures = sum(record["kind"] in ("row", "fact") for record in self.records)
        open_marks = [(scenario, mark) for scenario, mark in self.marks() if not mark.reached]
        bars = sum(mark.kind == "bar" for _, mark in open_marks)
        self.say(f"\n{figures} figures in {seconds:.0f} s, {bars} bars missed,"
                 f" {len(open_marks) - bars} aims not reached, {len(self.broken)} broken")
        for scenario, mark in open_marks:
            self.say(f"  {scenario}: {mark}")
        for line in self.broken:
            self.say(f"  broken  {line}")


# The machine.

def cpu_model():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def system_name():
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def file_system(folder):
    best, kind = "", "?"
    with open("/proc/mounts") as f:
        for line in f:
            _, mount, found = line.split()[:3]
            if len(mount) >= len(best) and os.path.commonpath([mount, folder]) == mount:
                best, kind = mount, found
    return kind


def machine(folder):
    return {
        "cpu": cpu_model(), "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(), "system": system_name(), "file_system": file_system(folder),
        "load_before": round(os.getloadavg()[0], 2),
        "date": datetime.date.today().isoformat(),
    }


# The page. Everything on it comes from the JSON form of a run, so that it can be written again.

def write_json(path, run):
    with open(path, "w") as f:
        json.dump(run, f, indent=1)
        f.write("\n")


def cells(*texts):
    return "| " + " | ".join(texts) + " |"


def markdown_table(rows):
    lines = [cells("", *(name for name, _, _ in COLUMNS)), cells("---", *["---:"] * len(COLUMNS))]
    lines += [cells(row["name"], *(text(row) for _, _, text in COLUMNS)) for row in rows]
    return lines


def fact_line(record):
    note = f" ({record['note']})" if record["note"] else ""
    return f"- {record['name']}: {number(record['value'])} {record['unit']}{note}"


def scenario_lines(records):
    """One scenario: its rows gathered into tables, the rest as lists, marks after what they are
    about."""
    lines, rows, items = [], [], []

    def flush():
        if rows:
            lines.extend(["", *markdown_table(rows)])
        if items:
            lines.extend(["", *items])
        rows.clear()
        items.clear()

    for record in records:
        if record["kind"] == "row" and not rows:
            flush()
        if record["kind"] == "row":
            rows.append(record)
        elif record["kind"] == "table":
            flush()
            if record["title"]:
                lines.extend(["", f"{record['title']}:"])
        elif record["kind"] == "fact":
            items.append(fact_line(record))
        elif record["kind"] == "note":
            items.append(f"- {record['text']}")
        items.extend(f"- {Mark(**mark)}" for mark in record.get("marks", []))
    flush()
    return lines


def overview_lines(records):
    """A column for each scenario that all servers took part in: throughput as a part of Triage's,
    then processor time and memory per message."""
    sides = [r["scenario"] for r in records if r["kind"] == "scenario" and r.get("beside")]
    rows = [r for r in records if r["kind"] == "row" and r["scenario"] in sides]
    names = list(dict.fromkeys(r["name"] for r in rows))
    by_place = {(r["scenario"], r["name"]): r for r in rows}
    memory = {r["name"]: r for r in records if r["kind"] == "fact" and r["scenario"] == "memory"}

    def cell(scenario, name, field):
        row = by_place.get((scenario, name))
        return ratio(row[field]) if row and row[field] is not None else "-"

    lines = [cells("", *sides, "cpu, mixed", "memory"), cells("---", *["---:"] * (len(sides) + 2))]
    for name in names:
        held = memory.get(name)
        lines.append(cells(name, *(cell(s, name, "rate_ratio") for s in sides),
                           cell("mixed", name, "cpu_ratio"),
                           f"{held['value']:.0f} ({held['note'].split(',')[0]})" if held else "-"))
    return lines if sides else []


def machine_line(run):
    m = run["machine"]
    busy = ": the machine was busy with something else" if m["load_before"] > m["cores"] else ""
    versions = ", ".join(f"{name} {version or 'not installed'}"
                         for name, version in run["versions"].items())
    return (f"{m['cores']} cores ({m['cpu']}), {m['memory_gib']} GiB, {m['system']}, Linux"
            f" {m['kernel']}, {m['file_system']}. The load was {m['load_before']} before the"
            f" start{busy}."
            f" {versions}. Taken on {m['date']}, in {run['seconds'] / 60:.0f} minutes.")


def page(run):
    with open(os.path.join(HERE, "page.md")) as f:
        lines = f.read().rstrip("\n").split("\n")
    lines += ["", "## The run", "", f"`{run['command']}`", "", machine_line(run)]
    if run["quick"]:
        lines += ["", "A quick run: short rounds and small backlogs. Not the figures to quote."]
    lines += ["", "## Overview", "",
              "Throughput beside Triage's in the same rounds (1.00x is as fast), processor time"
              " per message of `mixed`, and resident bytes per waiting message.", "",
              *overview_lines(run["records"])]
    missed = [(r["scenario"], Mark(**m)) for r in run["records"] for m in r.get("marks", [])
              if not m["reached"]]
    lines += ["", "Not reached in this run:" if missed else "Every bar and aim was reached.", ""]
    lines += [f"- `{scenario}`: {mark}" for scenario, mark in missed]
    lines += [f"- broken: {line}" for line in run["broken"]]
    for name in [r["scenario"] for r in run["records"] if r["kind"] == "scenario"]:
        records = [r for r in run["records"] if r["scenario"] == name]
        lines += ["", f"## {name}", "", records[0]["about"][0].upper() + records[0]["about"][1:]
                  + ".", *scenario_lines(records[1:])]
    return collapse(lines)


def collapse(lines):
    """No two empty lines in a row."""
    kept = [line for i, line in enumerate(lines) if line or (i and lines[i - 1])]
    return "\n".join(kept) + "\n"
