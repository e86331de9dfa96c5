"""Damage again, and what can be done about it: `triaged check` finds and names it, or it is
harmless; `triaged salvage` and `triage import` bring every readable message to another server, with
its bytes, and invent none. Neither changes anything in the directory."""

import hashlib
import json
import os
import random
import shutil
import subprocess
from functools import partial

import pytest

from clients import opened
from experiment import new_seed, short_or_long
from frames import ALIGN, frames_in, old_frame, sealed_frame
from history import Enqueue
from server import TRIAGE, TRIAGED, environment
from test_damage import FRESH, Damage, Folder, Spots

# Files that hold no messages: without them nothing is lost.
LISTS = ("CURRENT", "MANIFEST", "OPTIONS", "IDENTITY", "LOCK", "LOG", "FORMAT", "END")


def triaged(*words):
    return subprocess.run([TRIAGED, *map(str, words)], capture_output=True, text=True,
                          env=environment())


def fingerprint(folder):
    """Everything that could change."""
    found = {}
    for base, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(base, name)
            seen = os.lstat(path)
            with_bytes = os.path.isfile(path)
            digest = hashlib.sha256(open(path, "rb").read()).hexdigest() if with_bytes else None
            found[os.path.relpath(path, folder)] = (seen.st_mode, seen.st_mtime_ns, seen.st_size,
                                                    seen.st_ino, seen.st_nlink, digest)
    return found


class Rescue:
    """What check and salvage say of a directory."""

    def __init__(self, data, out):
        self.out = str(out)
        shutil.rmtree(self.out, ignore_errors=True)
        before = fingerprint(data)
        self.check = triaged("check", data)
        self.salvage = triaged("salvage", data, "-o", self.out)
        assert fingerprint(data) == before, "something was changed"
        assert self.check.returncode in (0, 1), self.check
        assert self.salvage.returncode == self.check.returncode, (self.check, self.salvage)
        self.clean = self.check.returncode == 0
        self.said = self.check.stdout

    def lines(self):
        found = []
        for name in sorted(os.listdir(self.out)):
            with open(os.path.join(self.out, name)) as file:
                found += [json.loads(line) for line in file]
        return [line for line in found if "message_id" in line]

    def messages(self):
        """Their keys, by id; None for a payload that nobody sent."""
        return {line["message_id"]: opened(line["payload"]) for line in self.lines()}

    def commands(self):
        return [line.split("#")[0].split() for line in self.salvage.stdout.splitlines()
                if line.startswith("triage ")]


@pytest.fixture
def folder(make, tmp_path):
    return Folder(make, tmp_path)


class Rescued:
    """Goes through damages, and judges each."""

    def __init__(self, folder, make, tmp_path, what):
        self.folder, self.make, self.out = folder, make, tmp_path / "salvaged"
        self.data = folder.server.data
        self.damage = Damage(folder, what)
        folder.put_back()
        whole = Rescue(self.data, self.out)
        assert whole.clean, whole.said
        self.whole = whole.messages()
        assert len(self.whole) > 200
        self.sent = {e.key for e in folder.experiment.history.of(Enqueue)}
        self.found = self.harmless = 0

    def judge(self, name, detail, keeps=0.0):
        """Of the file that was damaged just now; so large a share of all messages is left."""
        where = f"{self.damage.what} of {name} {detail}"
        rescue = Rescue(self.data, self.out)
        messages = rescue.messages()
        assert None not in messages.values(), where
        assert set(messages.values()) <= self.sent, where
        assert all(self.whole[ident] == key for ident, key in messages.items()
                   if ident in self.whole), where
        lost = set(self.whole) - set(messages)
        if rescue.clean:
            self.harmless += 1
            keys = {self.whole[ident] for ident in lost}
            assert not lost or Damage.is_an_end(keys, FRESH), f"{where}: {len(lost)} lost, unsaid"
        else:
            self.found += 1
            named = os.path.basename(name) in rescue.said or self.data in rescue.said
            assert named, f"{where}: {rescue.said}"
            assert len(self.whole) - len(lost) >= keeps * len(self.whole), \
                f"{where}: {len(lost)} lost\n{rescue.said}"
            if os.path.basename(name).startswith(LISTS):
                assert not lost, f"{where}: {rescue.said}"
        return rescue

    def starts(self, experiment, name, detail, cut_allowed):
        """What check calls clean, a server takes."""
        refused = self.damage.refused
        self.damage.judge(experiment, name, detail, cut_allowed)
        assert self.damage.refused == refused, f"check did not find {self.damage.what} of {name} " \
            f"{detail}:\n{self.folder.server.log}"

    def import_all(self, rescue):
        """By the very commands that salvage printed."""
        server = self.make().start()
        url = f"http://127.0.0.1:{server.address[1]}"
        commands = rescue.commands()
        assert commands, rescue.salvage.stdout
        for _, *words in commands:
            words = ["rest" if word == "NAME" else word for word in words]
            done = subprocess.run([TRIAGE, "--server", url, *words], capture_output=True, text=True,
                                  env=environment())
            assert done.returncode == 0, (words, done)
        client, arrived = server.client(), []
        for queue in ("d", "rest"):
            answer = client.get(f"/v1/queues/{queue}/export", limit=1000)
            if answer.status == 200:
                arrived += [opened(json.loads(line)["payload"])
                            for line in answer.body.decode().splitlines()]
        assert sorted(arrived) == sorted(set(rescue.messages().values()))
        server.stop()

    def close(self):
        print(f"{self.damage.what}: {self.found} found, {self.harmless} harmless")
        assert self.found > 0


def test_flipped_bits_are_found_and_the_rest_is_saved(folder, make, tmp_path):
    chance = random.Random(new_seed())
    rescued = Rescued(folder, make, tmp_path, "flipped bit")
    imported = set()
    for name in folder.files:
        spots = Spots(os.path.join(folder.kept, name), chance)
        for at in spots.choose(short_or_long(4, 200)):
            experiment = folder.put_back()
            bit = 1 << chance.randrange(8)
            with open(os.path.join(rescued.data, name), "r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ bit]))
            detail = f"at {at} of {spots.size}, bit {bit}"
            rescue = rescued.judge(name, detail, keeps=0.3)
            kind = os.path.splitext(name)[1]
            if rescue.clean:
                rescued.starts(experiment, name, detail, cut_allowed=1)
            elif kind not in imported:
                imported.add(kind)
                rescued.import_all(rescue)
    rescued.close()


def test_cut_files_are_found_and_the_rest_is_saved(folder, make, tmp_path):
    chance = random.Random(new_seed())
    rescued = Rescued(folder, make, tmp_path, "cut file")
    for name in folder.files:
        spots = Spots(os.path.join(folder.kept, name), chance)
        for left in spots.choose(short_or_long(2, 100)):
            experiment = folder.put_back()
            os.truncate(os.path.join(rescued.data, name), left)
            rescue = rescued.judge(name, f"to {left} of {spots.size}")
            if rescue.clean:
                rescued.starts(experiment, name, f"to {left}", cut_allowed=FRESH)
    rescued.close()


def test_missing_files_are_found_and_the_rest_is_saved(folder, make, tmp_path):
    rescued = Rescued(folder, make, tmp_path, "missing file")
    imported = False
    for name in folder.files:
        experiment = folder.put_back()
        os.unlink(os.path.join(rescued.data, name))
        rescue = rescued.judge(name, "")
        if rescue.clean:
            rescued.starts(experiment, name, "", cut_allowed=FRESH)
        elif not imported and name.endswith(".sst"):
            imported = True
            rescued.import_all(rescue)
    rescued.close()


def test_everything_at_once_still_gives_what_is_readable(folder, make, tmp_path):
    """A bit in every table and every part of the log."""
    chance = random.Random(new_seed())
    rescued = Rescued(folder, make, tmp_path, "flipped bits")
    folder.put_back()
    for name in folder.files:
        if name.endswith((".sst", ".wal")):
            spots = Spots(os.path.join(folder.kept, name), chance)
            for at in spots.choose(1):
                with open(os.path.join(rescued.data, name), "r+b") as file:
                    file.seek(at)
                    byte = file.read(1)[0]
                    file.seek(at)
                    file.write(bytes([byte ^ 1]))
    rescue = rescued.judge("all of them", "")
    rescued.import_all(rescue)
    rescued.close()


def test_a_whole_directory_comes_back_whole(folder, make, tmp_path):
    """Salvage of what is not damaged: states, attempts and dead letters as an export has them."""
    folder.put_back()
    server = folder.server.start()
    client = server.client()
    exported = {json.loads(line)["message_id"]: json.loads(line) for line in
                client.get("/v1/queues/d/export", limit=1000).body.decode().splitlines()}
    head = client.get("/v1/queues/d").json
    server.stop()
    rescue = Rescue(server.data, tmp_path / "salvaged")
    assert rescue.clean, rescue.said
    assert {line["message_id"]: line for line in rescue.lines()} == exported
    with open(tmp_path / "salvaged" / "d.ndjson") as file:
        lines = [json.loads(line) for line in file]
    head.pop("name")
    assert lines[0] == {"queue": "d", "configuration": head}
    assert lines[-1] == {"exported": len(exported)}


def test_a_running_server_is_not_looked_at(folder):
    folder.server.start()
    for words in (["check"], ["salvage", "-o", folder.server.folder + "/out"]):
        done = triaged(words[0], folder.server.data, *words[1:])
        assert done.returncode == 2 and "in use" in done.stderr
    assert not os.path.exists(folder.server.folder + "/out")


def test_salvage_writes_nothing_over_and_nothing_into_the_directory(folder, tmp_path):
    folder.put_back()
    before = fingerprint(folder.server.data)
    there = tmp_path / "there"
    there.mkdir()
    for out in (there, folder.server.data + "/out", folder.server.data + "/log/out"):
        done = triaged("salvage", folder.server.data, "-o", out)
        assert done.returncode == 2, done
    (tmp_path / "file").write_text("mine")
    done = triaged("salvage", folder.server.data, "-o", tmp_path / "file", "--queue", "d")
    assert done.returncode == 2 and (tmp_path / "file").read_text() == "mine"
    assert fingerprint(folder.server.data) == before
    done = triaged("salvage", folder.server.data, "-o", "-", "--queue", "d")
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 200
    done = triaged("salvage", folder.server.data, "-o", "-", "--queue", "nobody")
    assert done.returncode == 2 and done.stdout == ""
    for words in (["check"], ["salvage", folder.server.data], ["check", "/nowhere"],
                  ["salvage", folder.server.data, "-o", "-"]):
        assert triaged(*words).returncode == 2


def test_deleted_queues_stay_deleted(make, tmp_path):
    """Whether the deletion is in the log or in a table, and the messages before it in either."""
    server = make(memory_limit="64K").start()
    for turn in range(2):
        for name in ("gone", "kept"):
            queue = server.queue(name)
            for n in range(300):
                queue.put("x" * 500, priority=n % 10)
        if turn == 0:
            server.stop()
            server.start()
        assert server.client().delete("/v1/queues/gone", force=True).status in (200, 204)
        for ending in (server.kill, server.start, server.stop):
            ending()
            if not server.running():
                rescue = Rescue(server.data, tmp_path / "salvaged")
                assert rescue.clean, rescue.said
                assert os.listdir(tmp_path / "salvaged") == ["kept.ndjson"]
                assert len(rescue.lines()) == 300 * (turn + 1)
        server.start()


def tables_of(server):
    """Of a server that is down: each table and its bytes. What was in the log is in tables by now."""
    store = os.path.join(server.data, "store")
    paths = [os.path.join(store, name) for name in os.listdir(store) if name.endswith(".sst")]
    return [(path, open(path, "rb").read()) for path in paths]


def stored(server, *messages):
    """The bytes of these messages, each for a queue of its own, and the tables that have them."""
    server.start()
    for number, payload in enumerate(messages):
        answer = server.client().request("POST", f"/v1/queues/q{number}/messages", payload,
                                         {"Content-Type": "application/octet-stream"})
        assert answer.status == 201, answer
    server.restart()
    server.stop()
    return [(path, data) for path, data in tables_of(server) if messages[-1] in data]


def test_a_payload_that_looks_like_a_table_is_no_table(make, tmp_path):
    """Somebody has a server of his own, and sends what he found in its tables. Here the table that
    it came into is cut behind it."""
    forged = b"a message that nobody sent"
    [(_, table)] = stored(make(), forged)
    server = make()
    [(path, data)] = stored(server, b"a message", table + bytes(50_000))
    os.truncate(path, data.index(table) + len(table) + 10_000)
    rescue = Rescue(server.data, tmp_path / "salvaged")
    assert not rescue.clean
    assert forged.decode() not in json.dumps(rescue.lines())


def test_a_queue_that_was_deleted_does_not_stand_in_the_way_of_the_one_with_its_name(make, tmp_path):
    """The table that says what was deleted has lost the place where it says so."""
    server = make().start()
    server.queue("mail").put("old")
    server.restart()
    server.stop()  # in tables
    server.start()
    assert server.client().delete("/v1/queues/mail", force=True).status == 204
    server.queue("mail").put("new")
    server.queue("post").put("other")
    server.restart()
    server.stop()
    for path, data in tables_of(server):
        at = data.rfind(b"rocksdb.range_del")
        if at > 0:
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(b"R")
    rescue = Rescue(server.data, tmp_path / "salvaged")
    assert "queue mail (number 1) was deleted, and has records" in rescue.said
    assert sorted(line["payload"] for line in rescue.lines()) == ["new", "other"]


def segments_of(server):
    log = os.path.join(server.data, "log")
    paths = sorted(os.path.join(log, name) for name in os.listdir(log))
    return [(path, open(path, "rb").read()) for path in paths]


def record_of(server, payload):
    """The record of the log of such a server that stores this payload."""
    server.start()
    server.queue("other").put(payload)
    server.kill()
    [body] = [body for _, data in segments_of(server) for *_, body in frames_in(data)
              if payload.encode() in body]
    return body


def at_every_place(frame):
    """A payload that has the frame at a multiple of ALIGN, wherever in a segment it comes to lie."""
    size = (len(frame) + ALIGN) // ALIGN * ALIGN + 1
    return frame.ljust(size, b"\0") * ALIGN


FORGED = "a message that nobody sent"
FORGERIES = {"unsealed": old_frame, "sealed with nothing": partial(sealed_frame, bytes(32))}


def take_key(server):
    os.unlink(os.path.join(server.data, "KEY"))


def damage_beginnings(server):
    for path, data in segments_of(server):
        if any(data):
            with open(path, "r+b") as file:
                file.write(b"\xff")


@pytest.mark.parametrize("damage", [take_key, damage_beginnings])
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_payload_cannot_speak_for_a_damaged_log(make, tmp_path, forgery, damage):
    record = record_of(make(), FORGED)
    frame = FORGERIES[forgery](3, 0x4141414141414141, 1 << 40, (1 << 40) - 1, 0, record)
    server = make().start()
    server.queue("other").put("mine")
    answer = server.client().request("POST", "/v1/queues/evil/messages", at_every_place(frame),
                                     {"Content-Type": "application/octet-stream"})
    assert answer.status == 201, answer
    server.kill()
    damage(server)
    rescue = Rescue(server.data, tmp_path / "salvaged")
    found = [line["payload"] for line in rescue.lines() if "payload" in line]
    assert not rescue.clean
    assert found == ([] if damage is take_key else ["mine"]), rescue.said


def copied(server, backups):
    """A backup: nothing of it is in the log behind its end."""
    assert server.client().post("/v1/admin/backup", {"directory": "copy"}).status == 201
    server.kill()
    return str(backups / "copy")


def stopped(server, backups):
    server.stop()
    return server.data


def without_last_segment(log, newest):
    os.unlink(os.path.join(log, newest))


def with_a_bit_flipped(log, newest):
    with open(os.path.join(log, newest), "r+b") as file:
        at = file.read().rindex(b"the last one")
        file.seek(at)
        file.write(b"T")


@pytest.mark.parametrize("ended", [copied, stopped])
@pytest.mark.parametrize("harm", [without_last_segment, with_a_bit_flipped])
def test_the_end_of_a_log_that_was_ended_is_not_lost_unsaid(make, tmp_path, ended, harm):
    """After a crash it could be a write that was torn; a clean stop and a backup know better."""
    backups = tmp_path / "backups"
    backups.mkdir()
    server = make(backup_dir=backups, disk_reserve="1M").start()
    for n in range(20):
        server.queue("q").put(f"number {n}")
    server.queue("q").put("the last one")
    data = ended(server, backups)
    log = os.path.join(data, "log")
    [newest] = [name for name in os.listdir(log)
                if b"the last one" in open(os.path.join(log, name), "rb").read()]
    assert Rescue(data, tmp_path / "whole").clean
    harm(log, newest)
    rescue = Rescue(data, tmp_path / "harmed")
    assert not rescue.clean and ("END" in rescue.said or "no log" in rescue.said), rescue.said
    status, said = make(data=data).start_refused()
    assert status != 0 and ("END" in said or "no log" in said), said


def test_an_ending_that_cannot_be_read_is_named_and_harms_nothing(make, tmp_path):
    server = make().start()
    server.queue("q").put("hello")
    server.stop()
    with open(os.path.join(server.data, "END"), "a") as file:
        file.write("7")
    rescue = Rescue(server.data, tmp_path / "salvaged")
    assert not rescue.clean and "END is damaged" in rescue.said
    assert [line["payload"] for line in rescue.lines()] == ["hello"]
    assert server.start().client().get("/v1/queues/q/stats")["ready"] == 1
