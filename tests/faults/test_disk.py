"""A disk that fills up and is freed, under load; one that is filled, drained and filled again, with
kills in between; one that others fill to the last byte; and one that really fails, where the kernel keeps
in its cache what it could not write and says so only once."""

import os
import threading
import time

import pytest

from cycles import Cycles, Drain
from disks import ext4, tmpfs
from experiment import Experiment, Plan, short_or_long, usual_plans
from history import OK, REFUSED, UNKNOWN
from test_power import cut_and_restart


def test_a_disk_that_fills_up_and_is_freed(start, disks):
    """Full: enqueues are refused, the rest goes on. Freed: enqueues go on without a restart."""
    disk = disks(tmpfs, 96)
    experiment = Experiment(start(data=disk.data), "disk full and freed", backlog=100)
    experiment.plans["kept"] = Plan()
    for worker in experiment.workers:
        worker.plans = usual_plans()
    experiment.configure()
    experiment.begin()
    client = experiment.client()

    def until_enqueue(outcome):
        number, deadline = 0, time.monotonic() + 30
        while time.monotonic() < deadline:
            number += 1
            done = client.put("ten-levels", f"probe-{experiment.tried}-{outcome}-{number}", 0)
            if done.outcome == outcome:
                return
            assert done.outcome != UNKNOWN, "a full disk is refused before it is met"
        raise AssertionError(f"no enqueue was {outcome}")

    for _ in range(short_or_long(3, 100)):
        client.put_all("kept", [(f"kept-{experiment.tried}-{n}", n, "", {}) for n in range(5)])
        disk.fill(leave=6 << 20)
        until_enqueue(REFUSED)
        first, second, *rest = client.claim("kept", max=5).deliveries
        assert client.ack("kept", first).outcome == OK
        assert client.settle("kept", "nack", second).outcome == OK
        client.ack_all("kept", rest)
        experiment.work(0.2)
        disk.free()
        until_enqueue(OK)
        experiment.tried += 1
    client.close()
    experiment.end_load()
    experiment.conclude()


def small_tmpfs(disks, tmp_path, megabytes):
    return disks(tmpfs, megabytes)


def small_ext4(disks, tmp_path, megabytes):
    return disks(ext4, tmp_path / f"image{len(os.listdir(tmp_path))}", megabytes)


# (a disk, its megabytes, cycles in short and in long, of which so many on the same data). Of the
# long ones 500 in all.
CYCLES = [(small_tmpfs, 24, 2, 150), (small_tmpfs, 64, 4, 200), (small_tmpfs, 200, 1, 50),
          (small_ext4, 64, 2, 100)]


@pytest.mark.parametrize("make_disk, megabytes, short, long", CYCLES)
def test_fill_drain_kill_and_refill(start, disks, tmp_path, make_disk, megabytes, short, long):
    """While it is full, claims, acks, nacks, releases, extends and cancels are done, each of them;
    when it is drained, enqueues go on; and a killed server starts on the disk as it is."""
    left = short_or_long(short, long)
    while left > 0:
        disk = make_disk(disks, tmp_path, megabytes)
        server = start(data=disk.data)
        cycles = Cycles(server, disk, f"fill, drain, kill, refill ({megabytes} MB)")
        for _ in range(min(left, 20)):
            cycles.cycle()
        left -= cycles.experiment.tried
        cycles.conclude()
        server.end()
        disk.end()


class Export(threading.Thread):
    def __init__(self, server):
        super().__init__()
        self.client, self.status = server.client(), None
        self.start()

    def run(self):
        self.status = self.client.get("/v1/queues/q/export", limit=5).status


ACKED_ON_A_FULL_DISK = 1000  # at least, before calls wait


@pytest.mark.parametrize("full", [False, True])
def test_others_fill_the_disk_to_the_last_byte(start, disks, full):
    """They take the reserve as well. What is logged needs no room for a while: the segments are
    there. When they are used up, calls wait for the others to go. Nothing is refused but enqueues,
    and those go on then."""
    for _ in range(short_or_long(1, 20)):
        disk = disks(tmpfs, 64)
        server = start(data=disk.data, **({"memory_limit": "64K"} if full else {}))
        cycles = Cycles(server, disk, "disk filled by others")
        if full:
            cycles.fill()
        else:
            for _ in range(cycles.random.randrange(200)):
                cycles.put(30_000)
        disk.fill(leave=0)
        drain = Drain(cycles)
        if drain.says("wait.* for room"):
            enough = cycles.acked >= ACKED_ON_A_FULL_DISK
            assert enough or not server.log.find("the log waits for room"), cycles.told("waits")
            export = Export(server)  # which has to wait for the disk, and is the only one
            assert server.client().get("/healthz").status == 200
            assert server.running(), cycles.told("gone")
            disk.free()
            drain.end()
            export.join()
            assert export.status == 200
        else:
            drain.end()
            disk.free()
        cycles.await_room()
        cycles.cycle()
        cycles.conclude()
        server.end()
        disk.end()


def test_a_start_on_a_disk_without_room_says_so(start, disks):
    """Others have taken all of it. Nothing is lost by trying."""
    disk = disks(tmpfs, 64)
    server = start(data=disk.data)
    for n in range(50):
        server.queue("q").put(str(n))
    disk.fill(leave=0)
    server.kill()
    for _ in range(short_or_long(3, 50)):
        status, said = server.start_refused()
        assert status == 1 and "make room" in said, (status, said)
    disk.free()
    server.start()
    assert server.client().get("/v1/queues/q/stats")["ready"] == 50


def test_a_disk_that_really_fails_is_not_believed_the_second_time(start, disks, tmp_path):
    """ext4 on a file on a full tmpfs: a sync fails, the next one pretends to succeed, and what was
    never written can be read from the cache. After the failure and a restart on that cache comes
    more work, then a power loss: what was answered at any time is there."""

    for number in range(short_or_long(2, 50)):
        below = disks(tmpfs, 40)
        disk = disks(ext4, os.path.join(below.folder, "image"), 512)
        server = start(data=disk.data, disk_reserve="1M")
        experiment = Experiment(server, "really failing disk", backlog=1000)
        experiment.configure()
        experiment.begin()
        experiment.work(0.1)
        below.fill(leave=experiment.random.randrange(0, 1 << 20))
        status = server.wait()  # it ends by itself
        experiment.join()
        assert status != 0, f"exit status {status}:\n{server.log}"
        below.free()
        if not server.comes_up():  # the file system itself may have given up
            disk.power_on()
            server.start()
        experiment.mark("restart")
        experiment.begin()
        experiment.work(0.2)
        cut_and_restart(experiment, disk)
        experiment.conclude()
        server.end()
        disk.unmount()
        below.unmount()
