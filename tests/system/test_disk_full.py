"""A full disk stops enqueues and nothing else, and ends without a restart. The disk is a tmpfs
of its own, small enough to fill."""

import os
import subprocess

import pytest

from wire import conserved, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small tmpfs")

PAYLOAD = "x" * 100_000


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here: " + mounted.stderr.strip())
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(queue):
    """Enqueues until the disk is full; the ids of what was acknowledged, and the refusal."""
    stored = []
    for _ in range(2000):
        answer = queue.enqueue(PAYLOAD)
        if answer.status != 201:
            return stored, answer
        stored.append(answer["message_id"])
    raise AssertionError("the disk never got full")


def refused_in_a_batch(queue):
    """A compaction that has ended may have left room for some more."""
    batch = queue.client.post(queue.path + "/messages/batch", {"messages": [{"payload": PAYLOAD}]})
    error = batch.json if batch.status == 507 else batch["results"][0].get("error")
    return error and "storage-full" in error["type"]


def accepted(queue, payload):
    """Once there is room; until then nothing but refusals."""
    def tried():
        answer = queue.enqueue(payload)
        assert answer.status in (201, 503, 507), answer
        return answer.status == 201
    until(tried)


def make_ballast(folder, megabytes):
    path = folder / "ballast"
    path.write_bytes(bytes(megabytes << 20))
    return path


@pytest.fixture
def server(start, small_disk):
    """With the default reserve: a third of so small a disk."""
    return start(data=small_disk / "data")


def test_a_full_disk_refuses_enqueues_while_claims_and_acks_go_on(server):
    queue = server.queue("q")
    stored, refused = fill(queue)
    assert refused.refusal == (507, "storage-full")
    assert len(stored) > 50
    until(lambda: refused_in_a_batch(queue))

    taken = queue.take(max=10)
    assert [m["message_id"] for m in taken] == stored[:10]
    assert queue.ack(taken[0]).status == 204
    assert all("error" not in r for r in queue.ack_all(taken[1:5])["results"])
    assert queue.nack(taken[5]).status == 200
    assert queue.extend(taken[6], 60).status == 200
    assert queue.release(taken[7]).status == 200
    assert server.client().get("/healthz").status == 200
    stats = queue.stats()
    assert stats["totals"]["acked"] == 5 and conserved(stats)


def test_enqueues_resume_when_there_is_room_again(server, small_disk):
    ballast = make_ballast(small_disk, 16)
    queue = server.queue("q")
    stored, refused = fill(queue)
    assert refused.refusal == (507, "storage-full")
    ballast.unlink()
    accepted(queue, "again")
    assert queue.stats()["ready"] == len(stored) + 1
    assert queue.take_one()["message_id"] == stored[0]


def test_draining_makes_room(server):
    """Each time: a first drain may find a compaction under way that makes room by itself."""
    queue = server.queue("q")
    for _ in range(3):
        stored, _ = fill(queue)
        finished = []
        while messages := queue.take(max=10):
            assert all("error" not in r for r in queue.ack_all(messages)["results"])
            finished += [m["message_id"] for m in messages]
        assert finished == stored
        accepted(queue, "again")
        assert queue.ack(queue.take_one()).status == 204


def test_a_drained_disk_gets_room_while_nobody_asks(server):
    """No enqueue comes that could wake anybody."""
    queue = server.queue("q")
    fill(queue)
    while messages := queue.take(max=100):
        assert all("error" not in r for r in queue.ack_all(messages)["results"])
    until(lambda: queue.client.get("/readyz")["status"] == "ready")
    queue.put("again")


def test_a_kill_while_the_disk_is_full_loses_nothing_acknowledged(server, small_disk):
    ballast = make_ballast(small_disk, 16)
    queue = server.queue("q")
    stored, _ = fill(queue)
    held = queue.take(max=3)
    assert queue.ack(held[0]).status == 204
    server.kill()
    ballast.unlink()
    server.start()
    queue = server.queue("q")
    assert queue.ack(held[1]).status == 204
    seen = []
    while messages := queue.take(max=10):
        seen += [m["message_id"] for m in messages]
    lost = set(stored[3:]) - set(seen)
    assert not lost and len(seen) == len(set(seen))
    assert not {held[0]["message_id"], held[1]["message_id"]} & set(seen)
    queue.put("again")


def test_a_disk_that_is_full_to_the_last_byte_loses_nothing_acknowledged(start, small_disk):
    """With next to no reserve the store itself runs into the end of the disk. The server may then
    refuse everything, and may stop: what it has acknowledged is there after a restart with room."""
    server = start(data=small_disk / "data", disk_reserve="64K")
    ballast = make_ballast(small_disk, 40)
    queue = server.queue("q")
    stored = []
    try:
        for _ in range(2000):
            answer = queue.enqueue(PAYLOAD)
            assert answer.status in (201, 503, 507), answer
            if answer.status != 201:
                assert answer.problem in ("storage-full", "engine-unavailable")
                break
            stored.append(answer["message_id"])
    except ConnectionError:
        pass
    server.end()
    ballast.unlink()
    server.start()
    queue = server.queue("q")
    present = []
    while messages := queue.take(max=10):
        present += [m["message_id"] for m in messages]
    assert len(stored) > 20
    assert not set(stored) - set(present)
    assert len(present) == len(set(present))
    queue.put("again")
