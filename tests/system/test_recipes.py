"""Every program of docs/recipes.md, taken from the page and run as a reader would."""

import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import psycopg2
import pytest

import database
from server import BUILD, ROOT, Log, environment
from wire import DEADLINE, until

PAGE = os.path.join(ROOT, "docs", "recipes.md")


def recipes():
    """{file name: text} of every block that names a file."""
    with open(PAGE, encoding="utf-8") as page:
        return dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", page.read(), re.M | re.S))


RECIPES = recipes()


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


WORKERS = [
    pytest.param("worker.py", id="python"),
    pytest.param("worker.mjs", id="node", marks=needs("node")),
    pytest.param("worker.go", id="go", marks=needs("go")),
]


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def url(address):
    return "http://%s:%d" % address


class Kitchen:
    """A folder with the programs of the page, and a way to run them against a server."""

    def __init__(self, folder, server=None):
        self.folder = folder
        self.server = server and url(server.address)
        self.running = []

    def write(self, name, *changes):
        text = RECIPES[name]
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def environment(self):
        own = {**environment(), "PATH": BUILD + os.pathsep + os.environ["PATH"],
               "GOCACHE": str(self.folder / "go"), "GO111MODULE": "off"}
        return {**own, "TRIAGE_SERVER": self.server} if self.server else own

    def start(self, *command):
        process = subprocess.Popen(list(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, env=self.environment(),
                                   start_new_session=True)
        process.out, process.err = Log(process.stdout), Log(process.stderr)
        self.running.append(process)
        return process

    def start_worker(self, name, *changes):
        """On the queue `orders`."""
        path = self.write(name, *changes)
        if name.endswith(".go"):
            self.run("go", "build", "-o", path + ".bin", path)
            return self.start(path + ".bin", "orders")
        return self.start(sys.executable if name.endswith(".py") else "node", path, "orders")

    def run(self, *command):
        done = subprocess.run(list(command), capture_output=True, text=True, cwd=self.folder,
                              timeout=DEADLINE, env=self.environment())
        assert done.returncode == 0, done
        return done.stdout

    def end(self):
        for process in self.running:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(DEADLINE)


@pytest.fixture
def kitchen(tmp_path):
    made = Kitchen(tmp_path)
    yield made
    made.end()


def stop(worker):
    os.killpg(worker.pid, signal.SIGTERM)
    return worker.wait(DEADLINE)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_acks_what_it_did_and_nacks_what_it_could_not(worker, kitchen, start):
    server = start()
    kitchen.server = url(server.address)
    queue = server.queue("orders")
    queue.configure(max_attempts=1)
    queue.put(json.dumps({"amount": 42}))
    queue.put(json.dumps({"nothing": 1}))
    queue.put({"amount": 43})  # a JSON value, as SQL enqueues a jsonb
    running = kitchen.start_worker(worker)
    until(lambda: queue.stats()["totals"]["acked"] == 2 and queue.stats()["dlq_depth"] == 1)
    assert running.out.wait_for("charged 42 for msg_")
    assert running.out.wait_for("charged 43 for msg_")
    assert "amount" in queue.dead()[0]["reason"]
    until(lambda: queue.stats()["waiting_consumers"] > 0)
    assert stop(running) == 0
    until(lambda: queue.stats()["waiting_consumers"] == 0)
    queue.put(json.dumps({"amount": 1}))
    assert queue.stats()["ready"] == 1


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_keeps_its_lease_while_it_works_and_finishes_when_it_is_stopped(worker, kitchen,
                                                                              start, tmp_path):
    server = start()
    kitchen.server = url(server.address)
    gate = tmp_path / "gate"
    waits = {
        "worker.py": ('    print(f"charged', f'    while not os.path.exists("{gate}"):\n'
                      '        time.sleep(0.05)\n    print(f"charged'),
        "worker.mjs": ("  console.log(`charged", '  const fs = await import("node:fs");\n'
                       f'  while (!fs.existsSync("{gate}")) await sleep(50);\n'
                       "  console.log(`charged"),
        "worker.go": ('	fmt.Printf("charged', f'	for _, e := os.Stat("{gate}"); e != nil; '
                      f'_, e = os.Stat("{gate}") {{\n		time.Sleep(50 * time.Millisecond)\n'
                      '	}\n	fmt.Printf("charged'),
    }
    lease = (("leaseSeconds = 30", "leaseSeconds = 12") if worker == "worker.go" else
             ("LEASE_SECONDS = 30", "LEASE_SECONDS = 12"))
    queue = server.queue("orders")
    message = queue.put(json.dumps({"amount": 42}))
    running = kitchen.start_worker(worker, lease, waits[worker])
    until(lambda: queue.stats()["in_flight"] == 1)
    first = queue.show(message).json["visible_at"]
    until(lambda: queue.show(message).json["visible_at"] > first)
    os.killpg(running.pid, signal.SIGTERM)
    gate.touch()
    running.wait(DEADLINE)
    assert running.out.find("charged 42")
    totals = queue.stats()["totals"]
    assert (totals["claimed"], totals["acked"]) == (1, 1)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_waits_for_a_server_that_is_away(worker, kitchen, start):
    port = free_port()
    kitchen.server = f"http://127.0.0.1:{port}"
    running = kitchen.start_worker(worker)
    assert running.err.wait_for("triage: ")
    server = start(flags=["--listen", f"127.0.0.1:{port}"])
    server.queue("orders").put(json.dumps({"amount": 7}))
    assert running.out.wait_for("charged 7 ")
    stop(running)


def test_the_pipeline_packs_every_file(kitchen, start, tmp_path):
    kitchen.server = url(start().address)
    files = tmp_path / "files" / "deep"
    files.mkdir(parents=True)
    for name in ("a.txt", "urgent.txt", "b.txt"):
        (files / name).write_text(name)
    kitchen.run("sh", kitchen.write("pipeline.sh"), str(tmp_path / "files"))
    assert {p.name: gzip.decompress(p.read_bytes()).decode() for p in files.iterdir()} == {
        name + ".gz": name for name in ("a.txt", "urgent.txt", "b.txt")}


def test_payments_go_before_thumbnails(kitchen, start):
    kitchen.server = url(start().address)
    said = kitchen.run("sh", kitchen.write("shop.sh"))
    assert said.splitlines() == ["payment: order 17", "thumbnail: cat.jpg", "thumbnail: dog.jpg"]


def test_every_tenant_has_its_turn(kitchen, start):
    server = start()
    kitchen.server = url(server.address)
    for number in range(30):
        server.queue("thumbs.big").put(f"big {number}")
    for number in range(2):
        server.queue("thumbs.small").put(f"small {number}")
    server.queue("other").put("not theirs")
    said = kitchen.run(sys.executable, kitchen.write("tenants.py"), "thumbs.").splitlines()
    assert len(said) == 32
    assert [line for line in said[:4] if "small" in line] == [
        "thumbs.small small 0", "thumbs.small small 1"]
    assert server.queue("other").stats()["ready"] == 1


def psql(kitchen, conninfo, file):
    return kitchen.run("psql", conninfo, "-X", "-At", "-v", "ON_ERROR_STOP=1", "-f",
                       kitchen.write(file))


def test_an_order_and_its_mail_are_stored_together_or_not_at_all(kitchen, start):
    server = start(engine="postgres")
    psql(kitchen, server.settings["postgres"], "order.sql")
    queue = server.queue("mail")
    assert queue.stats()["ready"] == 1
    psql(kitchen, server.settings["postgres"], "settle.sql")
    with psycopg2.connect(server.settings["postgres"]) as db, db.cursor() as cursor:
        cursor.execute("SELECT id FROM orders")
        assert cursor.fetchall() == [(17,)]
        cursor.execute("SELECT receipt FROM sent")
        assert cursor.fetchall() == [(17,)]
    assert queue.stats()["totals"]["acked"] == 1


def test_a_table_moves_in_one_statement(kitchen, start):
    server = start(engine="postgres")
    fill(server.settings["postgres"])
    psql(kitchen, server.settings["postgres"], "from_table.sql")
    queue = server.queue("jobs")
    assert [m["payload"] for m in queue.take(max=10)] == ["two", "one"]
    assert queue.stats()["scheduled"] == 1


def fill(conninfo):
    with psycopg2.connect(conninfo) as db, db.cursor() as cursor:
        cursor.execute("""
            CREATE TABLE jobs (id bigint PRIMARY KEY, payload text, urgent boolean DEFAULT false,
                               run_at timestamptz, done_at timestamptz);
            INSERT INTO jobs VALUES (1, 'one', false, NULL, NULL), (2, 'two', true, NULL, NULL),
                (3, 'three', false, now() + interval '1 day', NULL),
                (4, 'four', false, NULL, now())""")


def test_a_table_elsewhere_moves_through_import(kitchen, start):
    server = start()
    kitchen.server = url(server.address)
    conninfo = database.fresh()
    fill(conninfo)
    for _ in range(2):  # the second time stores nothing
        kitchen.run("sh", kitchen.write("from_elsewhere.sh"), conninfo)
    assert [m["payload"] for m in server.queue("jobs").take(max=10)] == ["two", "one", "three"]


@pytest.fixture
def peer(kitchen):
    """Starts a server of somebody else's on a port of its own."""
    def start_one(*command):
        port = free_port()
        kitchen.start(*(word.format(port=port) for word in command))

        def answers():
            try:
                socket.create_connection(("127.0.0.1", port), DEADLINE).close()
                return True
            except ConnectionRefusedError:
                return False

        until(answers)
        return port

    return start_one


@needs("beanstalkd")
def test_jobs_of_beanstalkd_move(kitchen, start, peer):
    port = peer("beanstalkd", "-l", "127.0.0.1", "-p", "{port}")
    with socket.create_connection(("127.0.0.1", port), DEADLINE) as old:
        stream = old.makefile("rwb")
        stream.write(b"use mail\r\nput 70000 0 60 4\r\nslow\r\nput 0 0 60 3\r\n\x00\xffx\r\n"
                     b"put 1000 0 60 4\r\nfast\r\n")
        stream.flush()
        assert [stream.readline().split()[0] for _ in range(4)] == [b"USING"] + 3 * [b"INSERTED"]
    server = start()
    kitchen.server = url(server.address)
    program = kitchen.write("from_beanstalkd.py")
    assert kitchen.run(sys.executable, program, f"127.0.0.1:{port}", "mail", "mail") == "3 moved\n"
    assert kitchen.run(sys.executable, program, f"127.0.0.1:{port}", "mail", "mail") == "0 moved\n"
    assert [(m["priority"], m.get("payload", m.get("payload_base64")))
            for m in server.queue("mail").take(max=10)] == [(9, "AP94"), (7, "fast"), (1, "slow")]


@needs("redis-server")
def test_jobs_of_sidekiq_move(kitchen, start, peer, tmp_path):
    port = peer("redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", "",
                "--dir", str(tmp_path))

    def redis(*words):
        return kitchen.run("redis-cli", "-p", str(port), *words)

    def job(jid, queue="default"):
        return json.dumps({"class": "Mail", "args": [jid], "jid": jid, "queue": queue})

    redis("LPUSH", "queue:default", job("a"), job("b"))
    redis("LPUSH", "moving:default", job("c"))  # a move that died
    redis("ZADD", "schedule", "4000000000", job("d"), "4000000000", job("e", "other"))
    server = start()
    kitchen.server = url(server.address)
    program = kitchen.write("from_sidekiq.py")
    said = kitchen.run(sys.executable, program, f"127.0.0.1:{port}", "default", "mail", "7")
    assert said == "4 moved\n"
    queue = server.queue("mail")
    assert [json.loads(m["payload"])["jid"] for m in queue.take(max=10)] == ["c", "a", "b"]
    assert queue.stats()["scheduled"] == 1
    assert redis("KEYS", "*") == "schedule\n" and redis("ZCARD", "schedule") == "1\n"


def test_every_recipe_is_run():
    """A program that is added to the page is added here."""
    with open(__file__, encoding="utf-8") as tests:
        text = tests.read()
    assert [name for name in RECIPES if f'"{name}"' not in text] == []
