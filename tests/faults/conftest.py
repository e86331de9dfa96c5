"""Fixtures for servers that are about to suffer. What they are spoken to with is in ../system."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "system"))

import pytest

from disks import disks  # a fixture
from server import Server


ENGINES = ["memory", "local", "postgres"]  # those that every fault which leaves the data alone is tried on


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


# What a server of each is made with: also one that reads nearly everything back from disk, and
# several threads.
ARRANGEMENTS = {**{engine: {"engine": engine} for engine in ENGINES},
                "local, 64 KiB": {"engine": "local", "memory_limit": "64K"},
                "local, two shards": {"engine": "local", "shards": 2},
                "postgres, two shards": {"engine": "postgres", "shards": 2}}


@pytest.fixture(params=ARRANGEMENTS)
def arrangement(request):
    return request.param, ARRANGEMENTS[request.param]


@pytest.fixture(params=[e for e in ENGINES if e != "postgres"])
def engine_here(request):
    """One that goes by the clock of the server's own machine."""
    return request.param


@pytest.fixture
def make(tmp_path_factory):
    """Servers for one test, not yet started: make(engine="memory", max_queues=3)."""
    servers = []

    def make_one(**options):
        servers.append(Server(tmp_path_factory.mktemp("server"), **options))
        return servers[-1]

    yield make_one
    for each in servers:
        each.end()


@pytest.fixture
def start(make):
    return lambda **options: make(**options).start()
