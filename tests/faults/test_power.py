"""Power loss. ext4's own shutdown stops everything that is not on the disk from getting there:
data, sizes and names that were not synced are gone after the next mount, and with them most of what
the disk had only in its cache. Unlike kill -9 this notices a missing fsync, of a file or of a folder."""

import mmap
import os
import signal

import pytest

from disks import cached_ext4
from experiment import Experiment, short_or_long
from scene import Scene, boundaries
from shim import CUT_AFTER, CUT_BEFORE
from wire import until


def silence(server):
    """Who has no power answers nobody. That matters, for a sync that is under way when ext4 shuts
    down may return 0 although nothing was written."""
    def states():
        for task in os.listdir(f"/proc/{server.process.pid}/task"):
            with open(f"/proc/{server.process.pid}/task/{task}/stat") as file:
                yield file.read().rpartition(")")[2].split()[0]
    server.process.send_signal(signal.SIGSTOP)
    until(lambda: set(states()) <= set("TD"))


def cut_and_restart(experiment, disk):
    """The machine goes, and with it the process; then both come back."""
    silence(experiment.server)
    disk.cut()
    experiment.server.kill()
    experiment.join()
    disk.power_on()
    experiment.restart()
    experiment.tried += 1


@pytest.mark.parametrize("share", [0, 0.5])
def test_the_disk_itself_keeps_what_was_synced_and_little_else(disks, tmp_path, share):
    """Else nothing below could fail: our log is written past the page cache."""
    disk = disks(cached_ext4, tmp_path / "image", 64)
    disk.shares = (share,)
    path = os.path.join(disk.folder, "file")
    block = mmap.mmap(-1, 4096)  # aligned, as O_DIRECT wants it
    with open(path, "wb") as file:
        file.write(bytes(2100 * len(block)))
        os.fsync(file.fileno())
    block[:] = b"x" * len(block)
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    for at in range(2100):
        os.pwrite(fd, block, at * len(block))
        if at == 99:
            os.fdatasync(fd)
    os.close(fd)
    disk.cut()
    disk.power_on()
    with open(path, "rb") as file:
        kept = file.read()[::len(block)]
    assert kept[:100] == b"x" * 100
    more = kept[100:].count(b"x")
    assert more == 0 if share == 0 else 100 < more < 1900


def test_nothing_acknowledged_is_lost_by_power_loss(start, make, disks, tmp_path):
    rounds = short_or_long(1, 50)
    for number in range(rounds):
        disk = disks(cached_ext4, tmp_path / f"image{number}", 96)
        experiment = Experiment(start(data=disk.data, disk_reserve="16M"),
                                "power loss under load")
        experiment.configure()
        for _ in range(short_or_long(8, 20)):
            experiment.begin()
            experiment.work(experiment.random.uniform(0.03, 0.3))
            cut_and_restart(experiment, disk)
        assert experiment.conclude().acknowledged > 25
        experiment.server.end()
        disk.unmount()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_power_loss_at_every_call_of_a_life(make, disks, tmp_path, moment):
    disk = disks(cached_ext4, tmp_path / "image", 64)
    scene = Scene(make, f"power loss {moment} each file call", disk.data, disk.below.folder)
    count = scene.count_calls()
    action = {"before": CUT_BEFORE, "after": CUT_AFTER}[moment]
    for number in boundaries(count, 8):
        experiment = scene.fresh()
        scene.shim.arm(action, number)
        scene.play(experiment)
        if scene.shim.get("fired"):
            scene.server.wait()
            assert scene.shim.last != "no shutdown"
            disk.power_on()
        scene.judge(experiment, f"call {number} of {count} ({scene.shim.last})")
    scene.close()
