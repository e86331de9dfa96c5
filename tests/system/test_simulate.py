"""`triage simulate`: the page about policies shows what it prints and draws, and nonsense is
refused with the name of the field. No server is needed, so none is started."""

import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

from server import ROOT, TRIAGE
from wire import DEADLINE

DONE, REFUSED, USAGE = 0, 1, 2
PAGE = os.path.join(ROOT, "docs/policies.md")
CELLS_PAGE = os.path.join(ROOT, "docs/scaling.md")
WORKLOADS = sorted(os.listdir(os.path.join(ROOT, "docs/workloads")))
SMALL = {"queue": {"profile": "tiers"}, "consumers": 2, "duration_seconds": 600,
         "arrivals": {"CRITICAL": {"per_second": 10, "service_seconds": 0.1},
                      "LOW": {"per_second": 12, "service_seconds": 0.1}}}


def simulate(*words, stdin=None):
    text = stdin if isinstance(stdin, str) else json.dumps(stdin)
    return subprocess.run([TRIAGE, "simulate", *map(str, words)], input=text, text=True,
                          capture_output=True, timeout=DEADLINE, cwd=ROOT,
                          env={**os.environ, "TRIAGE_SERVER": "http://127.0.0.1:1"})


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_page_shows_what_is_printed_and_drawn(name, tmp_path):
    with open(PAGE, encoding="utf-8") as page:
        text = page.read()
    word = name.removesuffix(".json")
    command = f"$ triage simulate docs/workloads/{name} --plot docs/img/{word}.svg\n"
    shown = re.search(re.escape(command) + r"(.*?)```\n!\[[^\n]*\]\(img/" + word + r"\.svg\)", text,
                      re.S)
    assert shown, f"docs/policies.md does not show {name}"
    drawing = tmp_path / "drawing.svg"
    done = simulate(f"docs/workloads/{name}", "--plot", drawing)
    assert (done.returncode, done.stderr) == (DONE, "")
    assert done.stdout == shown[1]
    with open(os.path.join(ROOT, f"docs/img/{word}.svg"), encoding="utf-8") as kept:
        assert drawing.read_text(encoding="utf-8") == kept.read(), "draw it again"


def test_the_page_shows_two_promises_that_do_not_fit():
    with open(os.path.join(ROOT, "docs/workloads/payments-promise.json"), encoding="utf-8") as file:
        workload = file.read().replace('"weight": 4}', '"weight": 4, "max_wait_seconds": 60}')
    lines = simulate("-", stdin=workload).stdout.splitlines(keepends=True)[2:5]
    with open(PAGE, encoding="utf-8") as page:
        assert "| triage simulate - | sed -n 3,5p\n" + "".join(lines) + "```" in page.read()


def test_every_picture_of_the_page_is_there():
    with open(PAGE, encoding="utf-8") as page:
        pictures = set(re.findall(r"\(img/([^)]*)\)", page.read()))
    assert pictures == set(os.listdir(os.path.join(ROOT, "docs/img")))


def test_a_picture_is_well_formed_whatever_levels_are_called(tmp_path):
    names = ["<&\">", "naïve", "a" * 64, *[f"level {i}" for i in range(13)]]
    workload = {"queue": {"levels": [{"name": n, "max_wait_seconds": 9} for n in names]},
                "consumers": 3, "duration_seconds": 60, "changes": [{"at_seconds": 30, "queue": {}}],
                "arrivals": {n: {"per_second": 1, "service_seconds": 0.2} for n in names}}
    drawing = tmp_path / "drawing.svg"
    assert simulate("-", "--plot", drawing, stdin=workload).returncode == DONE
    root = ElementTree.parse(drawing).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = "".join(root.itertext())
    assert "<&\">" in texts and "naïve" in texts and "change" in texts
    assert "nan" not in drawing.read_text(encoding="utf-8").lower().replace("naïve", "")


def test_json_has_what_the_tables_have():
    done = simulate("-", "--json", stdin=SMALL)
    assert done.returncode == DONE, done
    result = json.loads(done.stdout)
    assert result["cycle"] == 31 and result["policy"] == "weighted" and result["seed"] == 1
    levels = {level["level"]: level for level in result["levels"]}
    assert list(levels) == ["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND"]
    assert sum(level["arrived"] for level in levels.values()) == result["arrived"]
    assert levels["HIGH"]["p50_seconds"] is None
    assert levels["LOW"]["waiting"] > 500 and levels["CRITICAL"]["longest_still_waits"] is False
    bounds = {bound["level"]: bound for bound in result["bounds"]}
    assert bounds["LOW"]["next_in_line_claims"] == 62
    assert bounds["LOW"]["next_in_line_seconds"] == pytest.approx(3.1, abs=0.01)
    assert bounds["LOW"]["ages_to"] == "NORMAL" and bounds["LOW"]["ages_after_seconds"] == 1800
    for name, level in levels.items():
        if level["longest_seconds"] is not None:
            assert level["longest_seconds"] <= bounds[name]["wait_below_seconds"]


def test_the_seed_decides_and_the_option_goes_before_the_file():
    first, again = simulate("-", stdin=SMALL), simulate("-", "--seed", 1, stdin=SMALL)
    other = simulate("-", "--seed", 2, stdin=SMALL)
    same = simulate("-", stdin={**SMALL, "seed": 2})
    assert first.stdout == again.stdout != other.stdout == same.stdout


def without(workload, name):
    return {key: value for key, value in workload.items() if key != name}


@pytest.mark.parametrize("workload, says", [
    ("", "ends"),
    ('{"consumers": 1', "byte"),
    ("[]", "object"),
    ({**SMALL, "consumer": 1}, "there is no field /consumer. Known here: queue, consumers"),
    (without(SMALL, "consumers"), "/consumers: consumers is missing"),
    ({**SMALL, "consumers": 0}, "consumers must be an integer from 1"),
    ({**SMALL, "duration_seconds": 1e12}, "duration_seconds must be a number of seconds"),
    ({**SMALL, "queue": {"profile": "tears"}}, "/queue/profile"),
    ({**SMALL, "arrivals": {"URGENT": {"per_second": 1, "service_seconds": 1}}},
     "/arrivals/URGENT: The queue has no such level; it has CRITICAL"),
    ({**SMALL, "arrivals": {"LOW": {"per_second": -1, "service_seconds": 1}}},
     "/arrivals/LOW/per_second: per_second must be a number from 0"),
    ({**SMALL, "arrivals": {"LOW": {"per_second": 1, "service_seconds": "fast"}}},
     "service_seconds must be"),
])
def test_nonsense_is_refused_by_name(workload, says):
    done = simulate("-", stdin=workload)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.startswith("triage: -: ") and says in done.stderr, done.stderr


def test_files_that_cannot_be_read_or_written(tmp_path):
    missing = simulate(tmp_path / "none.json")
    assert missing.returncode == USAGE and "cannot read" in missing.stderr
    nowhere = simulate("-", "--plot", tmp_path / "none/p.svg", stdin=SMALL)
    assert nowhere.returncode == REFUSED and "cannot write" in nowhere.stderr
    assert simulate().returncode == USAGE
    assert simulate("-", "--seed", "-1", stdin=SMALL).returncode == USAGE


def test_help_has_an_example():
    done = simulate("--help")
    assert done.returncode == DONE and "triage simulate payments.json" in done.stdout


# Over cells

CELLS = {"queue": {"profile": "tiers", "policy": "strict"}, "consumers": 40, "duration_seconds": 1,
         "arrivals": {"CRITICAL": {"per_second": 300, "service_seconds": 0.01},
                      "LOW": {"per_second": 1500, "service_seconds": 0.01}},
         "backlog": {"LOW": 1000}}


def over_cells(*words, workload=CELLS):
    done = simulate("-", "--json", "--cells", 4, "--scaling", 0, *words, stdin=workload)
    assert (done.returncode, done.stderr) == (DONE, ""), done
    result = json.loads(done.stdout)
    assert result.pop("rebuild_processor_seconds") > 0  # the one figure of the machine
    return result


def test_the_page_shows_what_a_failed_cell_does():
    with open(CELLS_PAGE, encoding="utf-8") as page:
        text = page.read()
    workload = re.search(r"```json\n(\{\"queue\".*?)```", text, re.S)[1]
    command, shown = re.search(r"\$ triage simulate orders\.json ([^\n]*)\n(.*?)```", text, re.S).groups()
    done = simulate("-", *command.split(), stdin=workload)
    assert done.returncode == DONE, done
    assert done.stdout.splitlines()[:-1] == shown.splitlines()[:-1]
    assert re.fullmatch(r"A server that knows nothing has the heads of all 8 partitions after "
                        r"[0-9.]+ ms of processor time", done.stdout.splitlines()[-1])


def test_cells_give_the_same_again_and_another_for_another_seed():
    first, again, other = over_cells(), over_cells(), over_cells("--seed", 2)
    assert first == again and first["arrived"] != other["arrived"]
    assert (first["cells"], first["servers"], first["consumers"]) == (4, 2, 40)
    assert sum(level["arrived"] for level in first["levels"]) == first["arrived"]
    assert first["done"] > 1500 and first["looks"] > 0


def test_the_order_window_is_told():
    windows = over_cells(workload={**CELLS, "backlog": {"LOW": 4000}})["between_levels"]
    assert windows["of"] > 5000 and windows["p50_seconds"] == 0
    # Of invented time: a claim goes by heads that are known from at most 40 ms ago, and a look takes its time.
    assert windows["p99_seconds"] <= windows["longest_seconds"] < 0.045
    exact = over_cells("--cells", 1, "--servers", 1)
    assert exact["between_levels"]["passed_over"] == exact["within_level"]["passed_over"] == 0


def test_clocks_that_are_wrong_disturb_the_order_within_a_level():
    right, wrong = (over_cells("--clock-ms", ms)["within_level"] for ms in (0, 200))
    assert wrong["longest_seconds"] > 2 * right["longest_seconds"]


def test_a_failed_cell_keeps_its_messages_and_stops_nobody_else():
    before, away, after = over_cells("--for", "4s", "--fail", "2@0.3+2")["periods"]
    assert [p["period"] for p in (before, away, after)] == ["before", "away", "after"]
    assert before["own"]["longest_seconds"] < 1
    assert away["own"]["claimed"] < 20 < 1000 < away["others"]["claimed"]
    assert after["own"]["longest_seconds"] >= 2
    assert away["refused"] == 0 and away["no_claim_for_seconds"] < 1.5


def test_throughput_is_told_for_each_number_of_cells():
    done = simulate("-", "--json", "--cells", 3, "--scaling", "50ms", "--for", "50ms", stdin=CELLS)
    steps = json.loads(done.stdout)["scaling"]
    assert [step["cells"] for step in steps] == [1, 2, 3]
    assert steps[2]["per_second"] > steps[0]["per_second"] > 0


def test_cells_are_drawn(tmp_path):
    drawing = tmp_path / "cells.svg"
    done = simulate("-", "--cells", 2, "--scaling", 0, "--plot", drawing, stdin=CELLS)
    assert done.returncode == DONE
    assert "CRITICAL" in "".join(ElementTree.parse(drawing).getroot().itertext())


@pytest.mark.parametrize("words, says", [
    (["--cells", 0], "--cells: must be from 1 to 1024"),
    (["--cells", 1025], "--cells: must be from 1 to 1024"),
    (["--cells", 2, "--servers", 0], "--servers: must be from 1"),
    (["--cells", 2, "--delay-us", -1], "--delay-us: must be from 0"),
    (["--cells", 2, "--fail", "2@1+1"], "--fail 2@1+1: takes CELL@AT+FOR"),
    (["--cells", 2, "--fail", "1@0.5"], "takes CELL@AT+FOR"),
])
def test_cells_that_make_no_sense_are_refused(words, says):
    done = simulate("-", *words, stdin=CELLS)
    assert (done.returncode, done.stdout) == (USAGE, "") and says in done.stderr, done.stderr


def test_a_workload_with_changes_has_no_cells():
    done = simulate("-", "--cells", 2, stdin={**CELLS, "changes": [{"at_seconds": 1, "queue": {}}]})
    assert done.returncode == USAGE and "changes" in done.stderr
