"""Fixtures for conversations with real servers. Most tests share one server per engine and take
a queue of their own; tests that configure, stop or kill a server start theirs with `start`. Those
of the SQL interface share a database per file, and take sessions on it with `q`, `make` or
`connect`."""

import itertools
import re

import pytest

from database import Postgres, Session, install
from server import Server
from sql import Sql, assert_conserved
from wire import AT_ONCE, Queue, conserved

ENGINES = ["memory", "local", "postgres"]


@pytest.fixture(scope="module", params=ENGINES)
def server(request, tmp_path_factory):
    """A server that the tests of a module share, once for each engine. The module's SETTINGS, if it
    has any, are the server's."""
    settings = getattr(request.module, "SETTINGS", {})
    shared = Server(tmp_path_factory.mktemp(request.param), engine=request.param,
                    **settings).start()
    try:
        yield shared
        assert shared.running(), f"the server died:\n{shared.log}"
        assert not shared.log.find('level=(warn|error) msg="postgres'), shared.log
        shared.stop()
    finally:
        shared.end()


@pytest.fixture
def api(server):
    client = server.client()
    yield client
    client.close()


numbers = itertools.count(1)


@pytest.fixture
def queue(api, request):
    """A queue that no other test uses; it is created by its first enqueue. Whatever a test does
    to it, its numbers add up in the end."""
    word = re.sub(r"[^A-Za-z0-9]+", "-", request.node.originalname)
    own = Queue(api, f"{word[:60]}-{next(numbers)}")
    yield own
    stats = api.get(own.path + "/stats")
    assert stats.status == 404 or conserved(stats.json), stats


@pytest.fixture
def start(tmp_path_factory):
    """Starts servers for one test: start(engine="memory", max_queues=3)."""
    servers = []

    def start_one(**options):
        servers.append(Server(tmp_path_factory.mktemp("server"), **options))
        return servers[-1].start()

    yield start_one
    for each in servers:
        each.end()


@pytest.fixture(scope="module")
def postgres():
    """A PostgreSQL server with our schema in it, and no server of ours."""
    server = Postgres(fsync="off", max_connections=120, autovacuum="off").start()
    try:
        server.create("triage")
        install(server.connect("triage"))
        yield server
    finally:
        server.end()


@pytest.fixture
def connect(postgres):
    sessions = []

    def connect_one(user="postgres"):
        sessions.append(Session(postgres.connect("triage", user)))
        return sessions[-1]

    yield connect_one
    for s in sessions:
        s.db.close()


@pytest.fixture
def make(postgres):
    """Sessions with a queue: make(profile="tiers"); make(like=q) shares q's queue. What failed in
    it is ready again at once, unless `retry` is given."""
    made = []

    def make_one(like=None, **config):
        name = like.queue if like else f"q{next(numbers)}"
        config = config if like else {"retry": AT_ONCE, **config}
        made.append(Sql(postgres.connect("triage"), name, **config))
        return made[-1]

    yield make_one
    for q in {m.id: m for m in made}.values():
        assert_conserved(q)
    for q in made:
        q.db.close()


@pytest.fixture
def q(make):
    return make()
