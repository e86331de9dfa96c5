"""Backups as users meet them: who may ask for one, under which names, what the answer says, and
the way back. Under load, and cut off: tests/faults/test_live_backup.py."""

import hashlib
import json
import os
import pty
import shutil
import subprocess

import pytest

from server import TRIAGE, TRIAGED, environment
from wire import conserved

PATH = "/v1/admin/backup"


@pytest.fixture
def backups(tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


@pytest.fixture
def served(start, backups):
    server = start(backup_dir=backups, disk_reserve="1M")
    server.queue("mail").put("hello")
    return server


def triage(server, *words, token=None):
    url = f"http://127.0.0.1:{server.address[1]}"
    env = {**environment(), **({"TRIAGE_TOKEN": token} if token else {})}
    return subprocess.run([TRIAGE, "--server", url, *map(str, words)], capture_output=True,
                          text=True, env=env)


def test_a_backup_is_a_data_directory_and_restores_by_taking_its_place(served, backups):
    queue = served.queue("mail")
    queue.put("again", priority=9)
    held = queue.client.post("/v1/queues/mail/messages/claim", {"visibility_timeout_seconds": 600})
    answer = served.client().post(PATH, {"directory": "one"})
    assert answer.status == 201
    assert answer["directory"] == str(backups / "one")
    assert answer["bytes"] > 0 and answer["took_ms"] >= 0 and answer["moment"].endswith("Z")
    queue.put("too late")
    served.stop()
    shutil.rmtree(served.data)
    os.rename(backups / "one", served.data)
    served.start()
    stats = served.client().get("/v1/queues/mail/stats").json
    assert (stats["ready"], stats["in_flight"]) == (1, 1) and conserved(stats)
    message = held["messages"][0]  # its receipt is good in the copy as well
    done = served.client().delete(f"/v1/queues/mail/messages/{message['message_id']}",
                                  receipt=message["receipt_handle"])
    assert done.status in (200, 204)


def test_a_backup_keeps_what_only_its_owner_may_read(served, backups):
    assert served.client().post(PATH, {"directory": "one"}).status == 201
    assert os.stat(backups / "one" / "KEY").st_mode & 0o777 == 0o600
    assert os.stat(backups / "one").st_mode & 0o007 == 0


@pytest.mark.parametrize("name", ["", ".", "..", "../evil", "a/b", ".hidden", "x.partial", "a b",
                                  "/etc/evil", "/evil", "é", "x" * 129, "a\u0000b", 7, None, []])
def test_names_that_lead_elsewhere_are_refused(served, backups, name):
    answer = served.client().post(PATH, {"directory": name})
    assert answer.status == 422 and answer["field"] == "/directory", answer
    assert list(backups.iterdir()) == []
    assert not (backups.parent / "evil").exists()


def test_nothing_that_is_there_is_written_over_or_through(served, backups, tmp_path):
    (backups / "folder").mkdir()
    (backups / "file").write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (backups / "link").symlink_to(elsewhere)
    (backups / "dangling").symlink_to(tmp_path / "nowhere")
    (backups / "late.partial").symlink_to(elsewhere)
    for name in ("folder", "file", "link", "dangling", "late"):
        answer = served.client().post(PATH, {"directory": name})
        assert answer.status == 422 and "there" in answer["detail"], answer
    assert list(elsewhere.iterdir()) == [] and list((backups / "folder").iterdir()) == []
    assert (backups / "file").read_text() == "mine" and not (tmp_path / "nowhere").exists()


def test_a_path_in_the_folder_is_as_good_as_a_name(served, backups):
    for path in (f"{backups}/one", f"{backups}//two"):
        answer = served.client().post(PATH, {"directory": path})
        assert answer.status == (201 if path.endswith("/one") else 422), answer


def test_a_folder_that_is_missing_is_named(start, tmp_path):
    server = start(backup_dir=tmp_path / "missing")
    answer = server.client().post(PATH, {"directory": "one"})
    assert answer.status == 409 and "missing" in answer["detail"], answer


def test_without_the_setting_no_backup_is_made(start):
    answer = start().client().post(PATH, {"directory": "/tmp/one"})
    assert answer.status == 409 and answer["type"] == "urn:triage:backup-unavailable"
    assert "backup_dir" in answer["detail"]


@pytest.mark.parametrize("engine, way", [("memory", "local"), ("postgres", "pg_basebackup")])
def test_an_engine_without_files_says_what_to_do_instead(start, backups, engine, way):
    server = start(engine=engine, backup_dir=backups)
    answer = server.client().post(PATH, {"directory": "one"})
    assert answer.status == 409 and answer["type"] == "urn:triage:backup-unavailable"
    assert way in answer["detail"]
    assert server.client().get(PATH).json == {"running": False, "made": 0, "failed": 0}


def test_only_admins_of_all_queues_make_backups(start, backups, tmp_path):
    tokens = tmp_path / "tokens"
    lines = [("root", "admin", ""), ("part", "admin", "mail"),
             ("worker", "produce,consume,read", "")]
    tokens.write_text("".join(f"{name} {hashlib.sha256(name.encode()).hexdigest()} {roles} "
                              f"{prefix}\n" for name, roles, prefix in lines))
    server = start(backup_dir=backups, tokens_file=tokens, disk_reserve="1M")
    assert server.client().post(PATH, {"directory": "one"}).status == 401
    for name in ("part", "worker"):
        client = server.client(token=name)
        assert client.post(PATH, {"directory": "one"}).status == 403
        assert client.get(PATH).status == 403
    assert list(backups.iterdir()) == []
    assert server.client(token="root").post(PATH, {"directory": "one"}).status == 201
    done = triage(server, "backup", "two", token="worker")
    assert done.returncode == 1 and "403" in done.stderr


def test_a_web_page_cannot_ask_for_one(served, backups):
    """What a form or a script of another site may send without asking the server first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = served.client().request("POST", PATH, b'{"directory":"one"}',
                                         {"Content-Type": kind})
        assert answer.status == 415
    assert served.client().request("POST", PATH, b"", {}).status == 422
    assert list(backups.iterdir()) == []


def test_the_call_tells_what_was_made(served):
    client = served.client()
    assert client.get(PATH).json == {"running": False, "made": 0, "failed": 0}
    made = client.post(PATH, {"directory": "one"})
    assert client.post(PATH, {"directory": "one"}).status == 422
    told = client.get(PATH).json
    assert told == {"running": False, "made": 1, "failed": 1, "last_moment": made["moment"]}


def test_the_command_prints_where_it_is(served, backups):
    done = triage(served, "backup", backups / "cli")
    assert done.returncode == 0, done
    assert str(backups / "cli") in done.stdout and "moment" in done.stdout
    done = triage(served, "--json", "backup", "cli2")
    assert json.loads(done.stdout)["directory"] == str(backups / "cli2")
    done = triage(served, "backup", "../up")
    assert done.returncode == 1 and "new name in" in done.stderr
    assert triage(served, "backup").returncode == 2
    assert "backup_dir" in triage(served, "backup", "--help").stdout


def test_the_command_works_on_a_terminal(served, backups):
    """Where it also looks how far the server is."""
    leader, follower = pty.openpty()
    url = f"http://127.0.0.1:{served.address[1]}"
    done = subprocess.run([TRIAGE, "--server", url, "backup", "tty"], stdout=subprocess.PIPE,
                          stderr=follower, env=environment())
    os.close(follower)
    os.close(leader)
    assert done.returncode == 0 and (backups / "tty" / "FORMAT").exists()


def test_check_and_salvage_tell_their_use(served, backups):
    for word in ("check", "salvage"):
        done = subprocess.run([TRIAGED, word, "--help"], capture_output=True, text=True)
        assert done.returncode == 0 and f"triaged {word} DIR" in done.stdout
    assert served.client().post(PATH, {"directory": "one"}).status == 201
    done = subprocess.run([TRIAGED, "check", backups / "one"], capture_output=True, text=True)
    assert done.returncode == 0 and "all well: 1 messages in 1 queues" in done.stdout
