"""Disks that a test may fill, cut the power of, or break: small file systems of its own. They need
root and mount(2); where that is not to be had the test that wants one is skipped, by name and with
the reason."""

import ctypes
import errno
import fcntl
import os
import random
import struct
import subprocess

import pytest

from experiment import new_seed

LIBC = ctypes.CDLL(None)
PAGE = 4096
WRITE_AND_WAIT = 7  # all three flags of sync_file_range
SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), of ext4 and xfs
WITHOUT_LOG = 2  # nothing that is not on the disk yet gets there


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")


class Disk:
    """One mounted file system."""

    def __init__(self, folder, what, *options):
        self.folder = str(folder)
        self.what, self.options = str(what), options
        self.mounted = False
        os.makedirs(self.folder, exist_ok=True)

    @property
    def data(self):
        """For a server's data directory."""
        return os.path.join(self.folder, "data")

    def mount(self):
        run("mount", *self.options, self.what, self.folder)
        self.mounted = True
        return self

    def unmount(self):
        """With nobody using it any more, the loop device is free when this returns."""
        if self.mounted:
            run("umount", self.folder)
            self.mounted = False

    def end(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.folder], capture_output=True)
            self.mounted = False

    def fill(self, leave):
        """Ballast that leaves so many bytes free, or fewer when others write as well."""
        free = os.statvfs(self.folder)
        size = free.f_bavail * free.f_frsize - leave
        try:
            with open(os.path.join(self.folder, "ballast"), "ab", buffering=0) as file:
                while size > 0:
                    size -= file.write(bytes(min(size, 1 << 20)))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def free(self):
        os.unlink(os.path.join(self.folder, "ballast"))

    def cut(self):
        """Power loss: what was not synced is gone, and every later write fails."""
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(fd)

    def power_on(self):
        self.unmount()
        return self.mount()


def tmpfs(folder, megabytes):
    return Disk(folder, "tmpfs", "-t", "tmpfs", "-o", f"size={megabytes}m")


def ext4(folder, image, megabytes, sparse=True):
    """On a loop device over an image."""
    with open(image, "wb") as file:
        file.truncate(megabytes << 20)
        if not sparse:
            file.write(bytes(megabytes << 20))
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", image)
    return Disk(folder, image, "-t", "ext4", "-o", "loop")


class CachedDisk(Disk):
    """A file system on a disk with a cache of its own. When the power goes, what was not synced is
    lost, be it written past the page cache, but for what the disk had put in its place already: here
    a block and there a block, in no order.

    That disk is a file on another file system, whose power is cut: a sync above is a sync of this
    file, a mere write stays in its page cache, and sync_file_range() writes out parts of that. The
    file has all its blocks from the start, so that a block is in its place once it is written."""

    def __init__(self, folder, below, megabytes):
        self.below = below.mount()
        try:
            above = ext4(folder, os.path.join(below.folder, "disk"), megabytes, sparse=False)
            run("sync", "-f", below.folder)
        except OSError:  # nobody will have it to end it
            below.end()
            raise
        super().__init__(folder, above.what, *above.options)
        self.chance = random.Random(new_seed())
        self.shares = (0, 0.1, 0.5, 0.9)  # of its cache, that the disk may have written

    def mount(self):
        if not self.below.mounted:
            self.below.mount()
        return super().mount()

    def unmount(self):
        super().unmount()
        self.below.unmount()

    def end(self):
        super().end()
        self.below.end()

    def cut(self):
        """Only below: a file system that is shut down has its disk write out the cache."""
        self.write_some()
        self.below.cut()

    def write_some(self):
        share = self.chance.choice(self.shares)
        fd = os.open(self.what, os.O_RDONLY)
        at, size = 0, os.fstat(fd).st_size
        while share and at < size:
            some = PAGE * self.chance.choice((1, 1, 1, 2, 8, 64))
            if self.chance.random() < share:
                LIBC.sync_file_range(fd, ctypes.c_int64(at), ctypes.c_int64(some), WRITE_AND_WAIT)
            at += some
        os.close(fd)


def cached_ext4(folder, image, megabytes):
    return CachedDisk(folder, ext4(f"{folder}-below", image, megabytes + 32), megabytes)


@pytest.fixture
def disks(tmp_path):
    """disks(ext4, "image", 64) mounts one, or skips the test by name with the reason."""
    mounted = []

    def mount(kind, *rest):
        folder = tmp_path / f"disk{len(mounted)}"
        if os.geteuid() != 0:
            pytest.skip("not done: mounting a disk of its own needs root")
        try:
            disk = kind(folder, *rest).mount()
        except OSError as error:
            pytest.skip(f"not done: this machine does not let a test mount a disk: {error}")
        mounted.append(disk)
        return disk

    yield mount
    for disk in reversed(mounted):
        disk.end()
