"""Where a sequence can run: each engine, alone and in the arrangements in which it is used. All of
them have to give the same answers as `memory`."""

import os
import tempfile
import time

import database
from server import Server
from wire import Connection, request_bytes

WAIT_SECONDS = 0.2 + 1.0  # steps.SOON, and the second within which every engine has acted on it


class Arrangement:
    """One or more servers that share their messages. Requests go to them in turn, but for what spends
    tokens of the weighted policy: each server has its own, and `memory` is one server."""

    def __init__(self, engine, count=1, restarts=False, **settings):
        self.folder = tempfile.TemporaryDirectory(prefix="triage-differential-")
        self.restarts = restarts
        self.servers = []
        self.clients = []
        self.turn = 0
        shared = {"postgres": database.fresh()} if engine == "postgres" else {}
        for number in range(count):
            folder = os.path.join(self.folder.name, str(number))
            os.makedirs(folder)
            self.servers.append(Server(folder, engine=engine, **shared, **settings).start())
        self.connect()

    def connect(self):
        for client in self.clients:
            client.close()
        self.clients = [server.client() for server in self.servers]

    def send(self, request):
        self.turn += not request.follows
        client = self.clients[0 if request.spends else self.turn % len(self.clients)]
        headers = dict(request.headers)
        if not client.connection:
            client.connection = Connection(client.address, client.deadline)
        client.connection.send(request_bytes(request.method, request.target, request.data or b"",
                                             headers))
        answer = client.connection.answer()
        if answer.headers.get("connection", "").lower() == "close":
            client.close()
        return answer

    def wait(self):
        time.sleep(WAIT_SECONDS)

    def pass_time(self, seconds):
        """Within a step: each for itself."""
        time.sleep(seconds)

    def restart(self, world):
        """Of the server that spends tokens: they begin anew with it."""
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
