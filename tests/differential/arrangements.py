"""Where a sequence can run: each engine, alone and in the arrangements in which it is used. All of
them have to give the same answers as `memory`."""

import os
import subprocess
import tempfile
import time

import database
from bounds import HEARD_SECONDS
from server import Server
from steps import SOON
from wire import Connection, request_bytes

LAST_LINES = 20  # of the log of a server that is gone
WAIT_SECONDS = SOON + 2 * HEARD_SECONDS  # every engine has acted on it then, on a busy machine too


class Died(Exception):
    """A server ended, or its connection did: `outcome` says how, with the end of its log."""

    def __init__(self, outcome):
        super().__init__(outcome)
        self.outcome = outcome


class Arrangement:
    """One or more servers that share their messages. Requests go to them in turn, but for what spends
    tokens of the weighted policy. Each server has its own tokens, full when it starts, so shares
    hold for each server and for all together; but of two servers the next message is not the one
    that `memory`, which is one server, would give. One server therefore gets all claims of a queue
    that is weighted, and `test_servers.py` has the shares of two."""

    def __init__(self, engine, count=1, restarts=False, **settings):
        self.engine = engine
        self.count = count
        self.settings = settings
        self.restarts = restarts
        self.servers, self.clients = [], []
        try:
            self.open()
        except BaseException:  # a signal, too: nobody else knows of what was started
            self.end()
            raise

    def open(self):
        self.folder = tempfile.TemporaryDirectory(prefix="triage-differential-")
        self.servers = []
        self.clients = []
        self.turn = 0
        shared = {"postgres": database.fresh()} if self.engine == "postgres" else {}
        for number in range(self.count):
            folder = os.path.join(self.folder.name, str(number))
            os.makedirs(folder)
            self.servers.append(Server(folder, engine=self.engine, **shared, **self.settings))
            self.servers[-1].start()
        self.connect()

    def renew(self):
        """With nothing of what was there."""
        self.end()
        self.open()

    def connect(self):
        for client in self.clients:
            client.close()
        self.clients = [server.client() for server in self.servers]

    def send(self, request):
        self.turn += not request.follows
        number = 0 if request.spends else self.turn % len(self.clients)
        try:
            return self.exchange(self.clients[number], request)
        except OSError as trouble:
            raise Died(self.how_it_ended(self.servers[number], trouble)) from trouble

    def exchange(self, client, request):
        headers = dict(request.headers)
        if not client.connection:
            client.connection = Connection(client.address, client.deadline)
        client.connection.send(request_bytes(request.method, request.target, request.data or b"",
                                             headers))
        answer = client.connection.answer()
        if answer.headers.get("connection", "").lower() == "close":
            client.close()
        return answer

    def how_it_ended(self, server, trouble="it was gone when nobody looked"):
        """A connection ends before its process has."""
        try:
            status = server.process.wait(5)
        except subprocess.TimeoutExpired:
            status = "it runs"
        server.log.reader.join(0 if status == "it runs" else 5)
        return {"server gone": str(trouble), "status": status,
                "log": server.log.lines[-LAST_LINES:]}

    def check(self):
        for server in self.servers:
            if not server.running():
                raise Died(self.how_it_ended(server))

    def wait(self):
        time.sleep(WAIT_SECONDS)

    def pass_time(self, seconds):
        """Within a step: each for itself."""
        time.sleep(seconds)

    def restart(self, world):
        """Of the server that spends tokens: they begin anew with it."""
        self.check()
        if self.restarts:
            self.servers[0].restart()
            self.connect()

    def running(self):
        return all(server.running() for server in self.servers)

    def end(self):
        for client in self.clients:
            client.close()
        for server in self.servers:
            server.end()
        self.folder.cleanup()


ARRANGEMENTS = {
    "local": lambda: Arrangement("local", restarts=True, durability="os"),
    "local-tiny": lambda: Arrangement("local", restarts=True, durability="os", memory_limit="4K"),
    "local-shards": lambda: Arrangement("local", restarts=True, durability="os", shards=2,
                                        net_threads=1),
    "postgres": lambda: Arrangement("postgres", restarts=True),
    "postgres-two": lambda: Arrangement("postgres", count=2, restarts=True),
}


class Reference(Arrangement):
    """`memory`. It takes each step first, so the other's wait is its own as well."""

    def __init__(self):
        super().__init__("memory")

    def wait(self):
        pass

    def restart(self, world):
        """The shares of the weighted policy begin anew with a process, as they do with a PUT."""
        status, _ = world.ask("GET", world.path)
        if status == 200:
            world.ask("PUT", world.path, {})
