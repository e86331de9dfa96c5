"""Databases that can be cut off: each in a network namespace of its own, as on a host of its own, with a
pair of virtual interfaces between it and the servers. It needs root and iproute2; where that is not
to be had the test that wants one is skipped, by name and with the reason."""

import contextlib
import itertools
import os
import socket
import subprocess

import pytest

from database import Postgres, Session

numbers = itertools.count(1)
TO_CELL, FROM_CELL, BOTH = "to the cell", "from the cell", "both ways"


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Link:
    """A namespace, and the link to it: here `near`, there `far`."""

    def __init__(self):
        # Of 198.18.0.0/15, which is for tests; the process number keeps test runs apart.
        place = os.getpid() % 250 * 64 + next(numbers) % 64
        net = f"198.{18 + place // 16384}.{place % 16384 // 64}.{place % 64 * 4}"
        base, last = net.rsplit(".", 1)
        self.here, self.there = (f"{base}.{int(last) + n}" for n in (1, 2))
        self.net = f"{net}/30"
        self.name = f"triage-{os.getpid()}-{place % 64}"
        self.near, self.far = f"tn{place}", f"tf{place}"

    def up(self):
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns",
            self.name)
        # Whatever is sent while the link is down must not leave by another way.
        run("ip", "route", "add", "blackhole", self.net, "metric", "9999")
        run("ip", "addr", "add", f"{self.here}/30", "dev", self.near)
        run("ip", "link", "set", self.near, "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.there}/30", "dev", self.far)
        run("ip", "-n", self.name, "link", "set", self.far, "up")
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        return self

    def end(self):
        for command in (["ip", "netns", "del", self.name],  # the pair goes with it
                        ["ip", "route", "del", "blackhole", self.net, "metric", "9999"]):
            subprocess.run(command, capture_output=True)

    def cut(self, how):
        """What is sent that way is lost without a word: a queue that takes nothing."""
        lose = ["qdisc", "add", "dev"], ["root", "pfifo", "limit", "0"]
        if how in (TO_CELL, BOTH):
            run("tc", *lose[0], self.near, *lose[1])
        if how in (FROM_CELL, BOTH):
            run("tc", "-n", self.name, *lose[0], self.far, *lose[1])

    def mend(self, how):
        if how in (TO_CELL, BOTH):
            run("tc", "qdisc", "del", "dev", self.near, "root")
        if how in (FROM_CELL, BOTH):
            run("tc", "-n", self.name, "qdisc", "del", "dev", self.far, "root")


class Remote(Postgres):
    """A database that servers reach over its link alone, and the test over its socket."""

    def __init__(self, link, **settings):
        self.link = link
        super().__init__(listen_addresses=link.there, **settings)
        with open(os.path.join(self.data, "pg_hba.conf"), "a", encoding="ascii") as f:
            f.write(f"host all all {link.net} trust\n")

    def program(self, name, *args):
        run("ip", "netns", "exec", self.link.name, "runuser", "-u", "postgres", "--",
            os.path.join(self.bin, name), *args)

    def conninfo(self, database):
        return f"host={self.link.there} dbname={database} user=postgres sslmode=disable"

    def reached(self):
        """Whether somebody gets through to it."""
        with contextlib.suppress(OSError):
            socket.create_connection((self.link.there, 5432), 0.5).close()
            return True
        return False


@contextlib.contextmanager
def remote_databases(count, **settings):
    """Skips the test where they cannot be had."""
    if os.getuid() != 0:
        pytest.skip("network namespaces need root")
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            link = Link()
            stack.callback(link.end)
            try:
                link.up()
            except OSError as e:
                pytest.skip(f"no network namespaces: {e}")
            made.append(Remote(link, **settings))
            stack.callback(made[-1].end)
            made[-1].start()
        yield made
