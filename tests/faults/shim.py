"""The other side of shim.c: builds it, loads it into a server, and tells it what to do."""

import atexit
import errno
import functools
import mmap
import os
import shutil
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

FIELDS = ("calls", "at", "every", "action", "error", "kinds", "fired", "allocations",
          "fail_allocation", "clock_ms")
FOLDER_MAX, LAST_MAX = 1024, 64
SIZE = 8 * len(FIELDS) + 2 * FOLDER_MAX + LAST_MAX

KILL_BEFORE, KILL_AFTER, FAIL, HALF, CUT_BEFORE, CUT_AFTER, HANG = range(1, 8)
WRITE, SYNC, NAME, RESIZE, READ = 1, 2, 4, 8, 16
ALL = WRITE | SYNC | NAME | RESIZE  # that change a file


@functools.cache
def library():
    """Built once for each run of the tests."""
    folder = tempfile.mkdtemp(prefix="triage-shim-")
    os.chmod(folder, 0o755)  # a database loads it as another user
    atexit.register(shutil.rmtree, folder)
    path = os.path.join(folder, "shim.so")
    subprocess.run(["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-Wall", "-Wno-nonnull", "-o",
                    path, os.path.join(HERE, "shim.c"), "-ldl"], check=True)
    return path


class Shim:
    """Put it into a server before it starts: shim = Shim(server). Where there is a power to cut,
    `power` is a folder on the file system to shut down."""

    def __init__(self, server, power=""):
        self.path = os.path.join(server.folder, "page")
        with open(self.path, "wb") as file:
            file.write(bytes(SIZE))
        os.chmod(self.path, 0o666)
        with open(self.path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), SIZE)
        at = 8 * len(FIELDS)
        for text in map(os.fsencode, (server.data, power)):
            self.page[at:at + len(text)] = text
            at += FOLDER_MAX
        self.set(kinds=ALL)
        server.env = {"LD_PRELOAD": library(), "FAULT_PAGE": self.path}

    def set(self, **values):
        for name, value in values.items():
            struct.pack_into("q", self.page, 8 * FIELDS.index(name), value)

    def get(self, name):
        return struct.unpack_from("q", self.page, 8 * FIELDS.index(name))[0]

    def arm(self, action, at, kinds=ALL, every=False, error=errno.EIO):
        """Acts on the at-th call of these kinds from now on."""
        self.set(at=0)
        self.set(calls=0, kinds=kinds, every=every, error=error, action=action, fired=0)
        self.set(at=at)

    def disarm(self):
        self.set(at=0, fail_allocation=0)
        self.set(action=0)

    @property
    def last(self):
        at = 8 * len(FIELDS) + 2 * FOLDER_MAX
        return bytes(self.page[at:at + LAST_MAX]).split(b"\0")[0].decode()
