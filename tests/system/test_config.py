"""Configurations by patch: a level by its name, a field by its name; what nobody named stays. What
is shown of one queue can be given to another, to a simulation, and kept in a file."""

import json
import os
import pty
import subprocess

import pytest

from server import TRIAGE
from test_cli import DONE, REFUSED, UNREACHED, USAGE, Shell

DIFFERS = 5


@pytest.fixture
def shell(server, queue):
    return Shell(server, queue)


def patch(queue, body, **query):
    return queue.client.request("PATCH", queue.path, body, query=query)


def level(document, name):
    [found] = [each for each in document["levels"] if each["name"] == name]
    return found


def names(document):
    return [each["name"] for each in document["levels"]]


def test_a_patch_changes_one_field_of_one_level(queue):
    before = queue.configure(profile="tiers")
    answer = patch(queue, {"levels": {"CRITICAL": {"weight": 16}}, "max_attempts": 7})
    assert answer.status == 200
    wanted = json.loads(json.dumps(before))
    level(wanted, "CRITICAL")["weight"] = 16
    assert answer.json == {**wanted, "max_attempts": 7}
    assert queue.client.get(queue.path).json == answer.json


def test_a_profile_that_is_named_again_leaves_weights_and_aging_alone(queue):
    queue.configure(profile="tiers")
    patch(queue, {"levels": {"CRITICAL": {"weight": 16}, "LOW": {"age_after_seconds": 60}},
                  "policy": "strict", "default_priority": "LOW"})
    now = queue.configure(profile="tiers", max_attempts=8)
    assert (now["profile"], now["max_attempts"]) == ("tiers", 8)
    assert (now["policy"], now["default_priority"]) == ("strict", 3)
    assert level(now, "CRITICAL")["weight"] == 16
    assert level(now, "LOW")["age_after_seconds"] == 60
    # With a level beside its own they still come from it.
    more = queue.configure(levels=[*({"name": name} for name in names(now)), {"name": "LATER"}])
    assert more["profile"] == "custom"
    again = queue.configure(profile="tiers", drop_levels=True)
    assert again == now


@pytest.mark.parametrize("body, status, name, field", [
    ({"levels": {"CRITCAL": {"weight": 16}}}, 422, "unknown-priority", "/levels/CRITCAL"),
    ({"levels": {"LOW": {"wait": 16}}}, 422, "unknown-field", "/levels/LOW/wait"),
    ({"levels": {"LOW": {"weight": 0}}}, 422, "invalid-field", "/levels/LOW/weight"),
    ({"levels": {"LOW": {"number": 0}}}, 422, "invalid-field", "/levels"),
    ({"levels": [{"name": "LOW"}]}, 409, "levels-dropped", "/levels"),
    ({"drop_levels": "all"}, 422, "invalid-field", "/drop_levels"),
    ({"max_attemts": 1}, 422, "unknown-field", "/max_attemts"),
])
def test_a_patch_that_makes_no_sense_changes_nothing(queue, body, status, name, field):
    before = queue.configure(profile="tiers")
    answer = patch(queue, body)
    assert answer.refusal == (status, name) and answer["field"] == field
    assert queue.client.get(queue.path).json == before


def test_a_patch_makes_no_queue(api, queue):
    assert patch(queue, {"max_attempts": 7}).refusal == (404, "queue-not-found")
    assert api.get(queue.path).status == 404


def test_a_put_of_fewer_levels_says_what_it_would_drop(queue):
    queue.configure(profile="tiers")
    fewer = {"levels": [{"name": "CRITICAL"}, {"name": "HIGH"}]}
    answer = queue.client.put(queue.path, fewer)
    assert answer.refusal == (409, "levels-dropped")
    assert all(name in answer["detail"] for name in ("NORMAL", "LOW", "BACKGROUND", "drop_levels"))
    assert queue.client.put(queue.path, {"profile": "levels"}).refusal == (409, "levels-dropped")
    made = queue.configure(**fewer, drop_levels=True)
    assert [each["weight"] for each in made["levels"]] == [8, 4], "they were not named"


def test_a_dry_run_changes_nothing_and_makes_nothing(api, queue):
    answer = api.request("PUT", queue.path, {"profile": "tiers"}, query={"dry_run": True})
    assert answer.status == 200 and answer["profile"] == "tiers"
    assert api.get(queue.path).status == 404
    before = queue.configure(profile="tiers")
    answer = patch(queue, {"max_attempts": 9}, dry_run=True)
    assert answer.json == {**before, "max_attempts": 9}
    assert api.get(queue.path).json == before


def test_levels_that_hold_messages_stay_until_they_are_empty(queue):
    queue.put("normal")
    least = queue.put("least", priority=0)
    for query in ({"dry_run": True}, {}):
        now = queue.client.request("PUT", queue.path, {"profile": "tiers", "drop_levels": "empty"},
                                   query=query).json
        assert names(now) == ["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND", "5", "0-old"]
    queue.put("most", priority=0)
    assert queue.show(least)["level"] == "0-old"
    assert queue.stats()["depth_by_priority"] == {"0": 1, "1": 0, "2": 0, "3": 0, "4": 0, "5": 1,
                                                  "0-old": 1}
    queue.configure(policy="strict")
    for payload in ("most", "normal", "least"):
        message = queue.take_one()
        assert message["payload"] == payload
        assert queue.ack(message).status == 204
    now = queue.configure(profile="tiers", drop_levels="empty")
    assert (now["profile"], len(now["levels"])) == ("tiers", 5)


def test_a_number_means_one_level(queue):
    queue.configure(levels=[{"name": "1"}, {"name": "x", "number": 5}])
    assert queue.show(queue.put("x", priority=1))["level"] == "1"
    answer = queue.client.put(queue.path, {"levels": [{"name": "1"}, {"name": "x", "number": 1}]})
    assert answer.refusal == (422, "invalid-field")
    answer = patch(queue, {"levels": {"1": {"number": 2}, "x": {"number": 1}}})
    assert answer.refusal == (422, "invalid-field")


def test_what_is_shown_of_a_queue_can_be_put_to_another(server, queue):
    queue.configure(profile="tiers", alerts={"dead_letters": 3}, ttl_seconds=1.5)
    shown = patch(queue, {"levels": {"LOW": {"weight": 3}}}).json
    other = server.queue(queue.name + ".other")
    assert other.configure(**shown) == {**shown, "name": other.name}


# The command line


def test_set_names_a_level_and_its_field(shell, queue):
    shell.ok("queue", "set", queue.name, "profile=tiers", "level.LOW.weight=2")
    shell.ok("queue", "set", queue.name, "level.CRITICAL.weight=16", "max_attempts=7",
             "level.LOW.age_after_seconds=null")
    now = shell.json("queue", "get", queue.name)
    assert (level(now, "CRITICAL")["weight"], level(now, "LOW")["weight"]) == (16, 2)
    assert (level(now, "LOW")["age_after_seconds"], now["max_attempts"]) == (None, 7)
    shell.ok("queue", "set", queue.name, 'levels=[{"name": "a.b"}]', "drop_levels=true")
    shell.ok("queue", "set", queue.name, "level.a.b.weight=4")
    assert level(shell.json("queue", "get", queue.name), "a.b")["weight"] == 4


@pytest.mark.parametrize("words, status, says", [
    (["level.LOW=5"], USAGE, "level.NAME.FIELD"),
    (["level.LOW.weight=2", "levels=[]"], USAGE, "one or the other"),
    (["level.NOBODY.weight=2"], REFUSED, 'no level "NOBODY"'),
    (['levels=[{"name":"LOW"}]'], REFUSED, "drop_levels"),
])
def test_set_refuses_with_the_way_out(shell, queue, words, status, says):
    queue.configure(profile="tiers")
    done = shell.run("queue", "set", queue.name, *words)
    assert done.returncode == status and says in done.stderr.decode()
    done = shell.run("queue", "set", queue.name + "x", "level.LOW.weight=2")
    assert done.returncode == REFUSED and b"queue-not-found" in done.stderr, "a typo makes no queue"


@pytest.mark.parametrize("names, default", [("a", "a"), ("ab", "b"), ("abc", "b"), ("abcd", "c")])
def test_a_default_level_that_goes_is_not_the_most_urgent_then(api, queue, names, default):
    levels = [{"name": name} for name in names]
    queue.configure(levels=levels)
    assert api.get(queue.path)["default_priority"] == default
    queue.configure(levels=levels + [{"name": "last"}], default_priority="last")
    queue.configure(levels=levels, drop_levels=True)
    assert api.get(queue.path)["default_priority"] == default


@pytest.fixture
def repository(shell, queue, tmp_path):
    """Two queues, and the file that they were written to."""
    shell.ok("queue", "set", queue.name + ".a", "profile=tiers")
    shell.ok("queue", "set", queue.name + ".b", "max_attempts=5", "paused=true")
    file = tmp_path / "queues.json"
    file.write_text(shell.ok("queue", "dump", "--prefix", queue.name + ".") + "\n")
    return file


def change(file, edit):
    document = json.loads(file.read_text())
    edit(document["queues"])
    file.write_text(json.dumps(document))


def test_a_dump_is_applied_without_a_change(shell, queue, repository):
    queues = json.loads(repository.read_text())["queues"]
    assert [each["name"] for each in queues] == [queue.name + ".a", queue.name + ".b"]
    assert "paused" not in queues[1]
    assert shell.json("queue", "apply", repository)["changed"] == 0
    assert shell.run("queue", "apply", repository, "--dry-run").returncode == DONE
    assert shell.json("queue", "get", queue.name + ".b")["paused"] is True


def test_apply_shows_what_differs_and_then_changes_it(shell, queue, repository):
    def edit(queues):
        level(queues[0], "CRITICAL")["weight"] = 20
        queues[0]["default_priority"] = "HIGH"
        queues[1]["retry"]["backoff"] = "fixed"
        queues.append({"name": queue.name + ".c", "profile": "environments"})
    change(repository, edit)
    dry = shell.run("queue", "apply", repository, "--dry-run")
    assert dry.returncode == DIFFERS
    said = dry.stdout.decode()
    assert "levels.CRITICAL.weight: 8 -> 20" in said and "profile: \"tiers\" ->" not in said
    assert "default_priority: NORMAL (2) -> HIGH (1)" in said
    assert 'retry.backoff: "exponential" -> "fixed"' in said and f"{queue.name}.c: new" in said
    assert shell.run("queue", "get", queue.name + ".c").returncode == REFUSED
    assert level(shell.json("queue", "get", queue.name + ".a"), "CRITICAL")["weight"] == 8
    report = shell.json("queue", "apply", repository)
    assert [each["state"] for each in report["queues"]] == ["changes", "changes", "new"]
    assert {"field": "levels.CRITICAL.weight", "from": 8, "to": 20} in report["queues"][0]["changes"]
    assert report["changed"] == 3
    assert level(shell.json("queue", "get", queue.name + ".a"), "CRITICAL")["weight"] == 20
    assert shell.json("queue", "get", queue.name + ".c")["profile"] == "environments"
    assert shell.json("queue", "apply", repository)["changed"] == 0, "once is enough"


def test_apply_drops_levels_only_after_a_yes(shell, queue, repository):
    change(repository, lambda queues: queues[0].update(
        levels=[each for each in queues[0]["levels"] if each["name"] != "LOW"]))
    change(repository, lambda queues: queues[1].update(max_attempts=6))
    done = shell.run("queue", "apply", repository)
    assert done.returncode == REFUSED and b"LOW" in done.stderr and b"--yes" in done.stderr
    assert shell.json("queue", "get", queue.name + ".b")["max_attempts"] == 5, "all or nothing"
    assert shell.run("queue", "apply", repository, "--dry-run").returncode == DIFFERS
    assert shell.run("queue", "apply", repository, "--yes").returncode == DONE
    assert "LOW" not in names(shell.json("queue", "get", queue.name + ".a"))


@pytest.mark.parametrize("answer, status", [(b"n\n", REFUSED), (b"y\n", DONE)])
def test_apply_asks_on_a_terminal(shell, queue, repository, answer, status):
    change(repository, lambda queues: queues[0].update(
        levels=[each for each in queues[0]["levels"] if each["name"] != "LOW"]))
    ours, theirs = pty.openpty()
    done = subprocess.Popen([TRIAGE, "--server", shell.url, "queue", "apply", repository],
                            stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 4096)
    os.write(ours, answer)
    assert done.wait() == status
    os.close(ours)
    assert ("LOW" in names(shell.json("queue", "get", queue.name + ".a"))) == (status == REFUSED)


def test_apply_changes_nothing_when_one_of_them_is_refused(shell, queue, repository):
    def edit(queues):
        queues[0]["max_attempts"] = 9
        queues[1]["max_attempts"] = 0
    change(repository, edit)
    done = shell.run("queue", "apply", repository)
    assert done.returncode == REFUSED and (queue.name + ".b").encode() in done.stderr
    assert b"nothing was changed" in done.stderr
    assert shell.json("queue", "get", queue.name + ".a")["max_attempts"] == 5


def test_apply_takes_one_queue_as_it_is_shown(shell, queue, tmp_path):
    queue.configure(profile="tiers")
    file = tmp_path / "one.json"
    file.write_text(shell.ok("--json", "queue", "get", queue.name))
    assert shell.json("queue", "apply", file)["changed"] == 0
    assert shell.json("queue", "apply", "-", stdin=file.read_bytes())["changed"] == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"queues": {}}', '{"queues": [{}]}',
                                  '{"queues": [{"name": "a"}, {"name": "a"}]}',
                                  '{"queues": [], "more": 1}'])
def test_apply_says_what_a_file_looks_like(shell, text):
    done = shell.run("queue", "apply", "-", stdin=text.encode())
    assert done.returncode == USAGE and done.stderr


def test_apply_without_a_server(repository):
    done = subprocess.run([TRIAGE, "--server", "http://127.0.0.1:1", "queue", "apply", repository],
                          capture_output=True)
    assert done.returncode == UNREACHED


def test_what_is_shown_of_a_queue_can_be_simulated(shell, queue, tmp_path):
    queue.configure(profile="tiers")
    patch(queue, {"levels": {"CRITICAL": {"weight": 16}}})
    workload = {"queue": shell.json("queue", "get", queue.name), "consumers": 1,
                "duration_seconds": 10,
                "arrivals": {"CRITICAL": {"per_second": 1, "service_seconds": 0.1}}}
    file = tmp_path / "load.json"
    file.write_text(json.dumps(workload))
    bounds = shell.json("simulate", file)["bounds"]
    assert [each["quota"] for each in bounds] == [32, 8, 4, 2, 1]
