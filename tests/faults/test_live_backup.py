"""Backups under load. A server that is started on one is where the first was at the moment of the
backup: all that was acknowledged before is there, what was under way may be, and nothing else. And
a backup that is cut off, by whatever, leaves nothing that could be taken for one."""

import os
import signal
import subprocess
import threading
import time
from dataclasses import replace

import pytest

from disks import tmpfs
from experiment import Experiment, short_or_long
from history import UNKNOWN, Claim, Counts, Ended, Enqueue, Found, Mark, Remove, Rules, Settle
from server import TRIAGED, environment
from wire import Connection, request_bytes, until

SETTINGS = {"memory_limit": "64K", "disk_reserve": "1M"}


def as_it_was(history, began, ended):
    """What clients know of a server that is put back to a moment between these two: what they
    asked later never happened, and nobody knows of what was under way."""
    log, receipts = [], {}
    for claim in history.of(Claim):
        receipts.update({d.receipt: d.key for d in claim.deliveries})
    known = {d.receipt for c in history.of(Claim) if c.came < began for d in c.deliveries}
    # A delivery that may never have been was perhaps nacked, and its message is ready later then.
    moved = {receipts.get(s.receipt) for s in history.of(Settle)
             if s.verb == "nack" and s.receipt not in known and s.sent <= ended}
    for record in list(history.log):
        if isinstance(record, Enqueue) and record.key in moved:
            record = replace(record, delay=max(record.delay, 1e-6))
        if isinstance(record, (Found, Ended)):
            continue
        if isinstance(record, (Rules, Mark)) or record.came < began:
            log.append(record)
        elif record.sent <= ended and not isinstance(record, Counts):
            log.append(unknown(record, known, receipts))
    return log


def unknown(record, known, receipts):
    if isinstance(record, Claim):
        return replace(record, outcome=UNKNOWN, deliveries=[])
    if isinstance(record, Enqueue):
        return replace(record, outcome=UNKNOWN, deduplicated=False)
    if isinstance(record, Settle) and record.verb == "ack" and record.receipt not in known:
        # Of a delivery that may never have been: all that is sure is that the message may be gone.
        return Remove(record.queue, "cancel", receipts.get(record.receipt, ""), record.sent,
                      record.came, UNKNOWN)
    return replace(record, outcome=UNKNOWN)


def triaged(*words):
    return subprocess.run([TRIAGED, *map(str, words)], capture_output=True, text=True,
                          env=environment())


def assert_whole(path):
    done = triaged("check", path)
    assert done.returncode == 0, done.stdout + done.stderr


def make_backup(server, name):
    """The answer, and the times around it."""
    client = server.client()
    began = time.monotonic()
    answer = client.post("/v1/admin/backup", {"directory": name})
    client.close()
    return answer, began, time.monotonic()


@pytest.fixture
def backups(tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


def judge(make, first, path, began, ended):
    """Starts a server on the backup and accounts for every message."""
    server = make(data=path, **SETTINGS)
    experiment = Experiment(server, "backup under load", plans=first.plans, worker_count=0)
    experiment.counts = False  # an ack under way is in the totals, or not
    experiment.history.log = as_it_was(first.history, began, ended)
    experiment.restart()
    verdict = experiment.conclude()
    server.stop()
    assert_whole(path)
    return verdict


@pytest.mark.parametrize("shards", [1, 2])
def test_a_backup_under_load_is_the_server_at_one_moment(start, make, backups, shards):
    first = Experiment(start(backup_dir=backups, shards=shards, **SETTINGS), "backup")
    first.configure()
    first.begin()
    made = []
    for number in range(short_or_long(3, 30)):
        first.work(first.random.uniform(0.2, 1))
        answer, began, ended = make_backup(first.server, f"b{number}")
        assert answer.status == 201, answer
        assert answer["directory"] == str(backups / f"b{number}")
        made.append((backups / f"b{number}", began, ended))
    first.end_load(at_least=300)
    first.conclude()
    first.server.stop()
    assert_whole(first.server.data)
    for path, began, ended in made:
        assert_whole(path)
        assert judge(make, first, path, began, ended).attempted > 0


def fill(server, count=20000):
    """Enough in the log that a backup takes a while."""
    client = server.client()
    lines = b"\n".join(b'{"payload":"%s"}' % (b"x" * 2000) for _ in range(500))
    for _ in range(count // 500):
        answer = client.request("POST", "/v1/queues/full/messages/batch", lines,
                                {"Content-Type": "application/x-ndjson"})
        assert answer.status < 300, answer
    client.close()


class Backup(threading.Thread):
    """One that somebody else asks for."""

    def __init__(self, server, name):
        super().__init__()
        self.server, self.name_, self.answer = server, name, None
        self.start()

    def run(self):
        try:
            self.answer = make_backup(self.server, self.name_)[0]
        except (ConnectionError, TimeoutError):
            pass


def test_kill_nine_in_the_middle_of_a_backup_leaves_nothing_that_looks_whole(start, make, backups):
    server = start(backup_dir=backups, **SETTINGS)
    fill(server)
    cut = 0
    for number in range(20):
        partial = backups / f"b{number}.partial"
        backup = Backup(server, f"b{number}")
        until(lambda: (partial / "store").exists() or not backup.is_alive())
        server.kill()
        backup.join()
        if (partial / "store").exists() or (partial / "log").exists():
            cut += 1
            status, said = make(data=partial).start_refused()
            assert status == 1 and "FORMAT does not hold a format number" in said
        elif (backups / f"b{number}").exists():
            assert_whole(backups / f"b{number}")
        else:  # killed before there was anything in it
            assert not partial.exists() or not (partial / "FORMAT").exists() \
                or "unfinished" in (partial / "FORMAT").read_text()
        server.start()
        if cut >= 3:
            break
    assert cut > 0
    client = server.client()
    assert client.get("/v1/queues/full/stats")["ready"] == 20000
    # What was left is in nobody's way, and is not written over.
    left = client.post("/v1/admin/backup", {"directory": next(backups.glob("*.partial")).stem})
    assert left.status == 422 and "cut off" in left["detail"]
    assert client.post("/v1/admin/backup", {"directory": "after"}).status == 201
    assert_whole(backups / "after")


def test_one_backup_is_made_at_a_time(start, backups):
    server = start(backup_dir=backups, **SETTINGS)
    fill(server)
    refused = 0
    for number in range(50):
        both = [Backup(server, f"b{number}-{n}") for n in range(2)]
        for backup in both:
            backup.join()
        for backup in both:
            if backup.answer.status == 409:
                assert backup.answer["type"] == "urn:triage:backup-running"
                assert not (backups / backup.name_).exists()
                refused += 1
            else:
                assert backup.answer.status == 201
                assert_whole(backups / backup.name_)
        if refused:
            break
    assert refused


def test_a_backup_to_another_disk_is_a_copy(start, make, disks):
    disk = disks(tmpfs, 256)
    server = start(backup_dir=disk.folder, **SETTINGS)
    fill(server)
    server.restart()  # into tables
    answer, _, _ = make_backup(server, "far")
    assert answer.status == 201, answer
    far = os.path.join(disk.folder, "far")
    assert not os.path.exists(os.path.join(server.data, "links"))
    tables = [name for name in os.listdir(os.path.join(far, "store")) if name.endswith(".sst")]
    assert tables and all(os.stat(os.path.join(far, "store", name)).st_nlink == 1
                          for name in tables)
    assert_whole(far)
    assert make(data=far).start().client().get("/v1/queues/full/stats")["ready"] == 20000


def test_a_disk_without_room_is_left_as_it_was(start, disks):
    disk = disks(tmpfs, 16)
    server = start(backup_dir=disk.folder, **SETTINGS)
    fill(server)
    answer, _, _ = make_backup(server, "much")
    assert answer.status == 507 and "room" in answer["detail"]
    assert os.listdir(disk.folder) == []
    assert server.client().get("/readyz")["status"] == "ready"


def test_a_disk_that_fills_up_meanwhile_ends_the_backup_and_nothing_else(start, disks):
    disk = disks(tmpfs, 256)
    server = start(backup_dir=disk.folder, **SETTINGS)
    fill(server)
    ended = 0
    for number in range(200):
        partial = os.path.join(disk.folder, f"b{number}.partial")
        backup = Backup(server, f"b{number}")
        while not os.path.exists(partial) and backup.is_alive():
            pass
        server.process.send_signal(signal.SIGSTOP)  # wherever it is: filling takes longer
        disk.fill(leave=0)
        server.process.send_signal(signal.SIGCONT)
        backup.join()
        disk.free()
        assert not os.path.exists(partial)
        whole = os.path.join(disk.folder, f"b{number}")
        if backup.answer.status == 201:
            assert_whole(whole)
            subprocess.run(["rm", "-r", whole], check=True)
            continue
        assert backup.answer.status == 507, backup.answer
        assert not os.path.exists(whole)
        ended += 1
        if ended >= 2:
            break
    assert ended
    assert server.queue("full").put("still here")
    answer, _, _ = make_backup(server, "with-room")
    assert answer.status == 201
    assert_whole(os.path.join(disk.folder, "with-room"))


def test_who_hangs_up_ends_the_backup(start, backups):
    server = start(backup_dir=backups, **SETTINGS)
    fill(server)
    look = server.client()
    ended = 0
    for number in range(50):
        partial = backups / f"b{number}.partial"
        connection = Connection(server.address)
        connection.send(request_bytes("POST", "/v1/admin/backup",
                                      b'{"directory":"b%d"}' % number,
                                      {"Content-Type": "application/json"}))
        until(lambda: partial.exists() or (backups / f"b{number}").exists())
        connection.close()
        until(lambda: not look.get("/v1/admin/backup")["running"])
        assert not partial.exists()
        if (backups / f"b{number}").exists():
            assert_whole(backups / f"b{number}")
            continue
        ended += 1
        break
    assert ended
    assert look.get("/v1/admin/backup")["failed"] == ended


def test_sigterm_ends_the_backup_and_the_server(start, backups):
    server = start(backup_dir=backups, **SETTINGS)
    fill(server)
    for number in range(20):
        partial = backups / f"b{number}.partial"
        backup = Backup(server, f"b{number}")
        until(lambda: partial.exists() or not backup.is_alive())
        server.stop()
        backup.join()
        assert not partial.exists()
        if backup.answer and backup.answer.status == 503:
            return
        server.start()
    raise AssertionError("no backup was ever under way when the server was stopped")
