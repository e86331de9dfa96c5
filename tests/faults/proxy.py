"""A proxy between a server and PostgreSQL that reads along, and cuts a connection exactly where a
test wants it: at the COMMIT of a transaction."""

import os
import socket
import struct
import threading

from database import Session

# Where a connection is cut. What the database has heard of the COMMIT by then, and what becomes of
# the transaction:
CUTS = {
    "before COMMIT": "nothing: rolled back",
    "within COMMIT": "half of the message: rolled back",
    "after COMMIT": "all, and it has answered: committed",
    "backend gone": "its process was ended first: rolled back",
}


def messages(pending):
    """Takes whole messages with a type off the front of a buffer."""
    while len(pending) >= 5:
        length = 1 + struct.unpack_from("!I", pending, 1)[0]
        if len(pending) < length:
            return
        yield bytes(pending[:length])
        del pending[:length]


class Wire:
    """One connection, with a thread for each direction."""

    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = socket.socket(socket.AF_UNIX)
        self.server.connect(os.path.join(proxy.postgres.folder, ".s.PGSQL.5432"))
        self.backend = None
        self.queries = []  # of this transaction
        self.prepared = {}  # by name
        self.swallow = False
        for pump in (self.to_server, self.to_client):
            threading.Thread(target=self.guarded, args=(pump,), daemon=True).start()

    def guarded(self, pump):
        try:
            pump()
        except OSError:
            pass
        self.close()

    def close(self):
        for end in (self.client, self.server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def to_server(self):
        pending = bytearray()
        while len(pending) < 4 or len(pending) < struct.unpack_from("!I", pending)[0]:
            if not (more := self.client.recv(65536)):
                return
            pending += more
        first = struct.unpack_from("!I", pending)[0]
        self.server.sendall(pending[:first])
        del pending[:first]
        while True:
            for message in messages(pending):
                cut = self.look(message)
                if cut and not self.cut(cut, message):
                    return
                self.server.sendall(message)
            if not (more := self.client.recv(65536)):
                return
            pending += more

    def look(self, message):
        """Which cut this message is to suffer, if any."""
        query = self.query_of(message)
        if query is None:
            return None
        if query.startswith("BEGIN"):
            self.queries = []
        self.queries.append(query)
        return self.proxy.next_cut(self.queries) if query == "COMMIT" else None

    def query_of(self, message):
        """The text of a statement: when it comes, or when one that was prepared is bound."""
        kind, words = message[:1], message[5:].split(b"\0", 2)
        if kind == b"P" and words[0]:
            self.prepared[words[0]] = words[1].decode()
        elif kind == b"P":
            return words[1].decode()
        elif kind == b"B" and words[1]:
            return self.prepared[words[1]]
        return None

    def cut(self, where, message):
        """Returns whether the message goes on."""
        if where == "before COMMIT":
            return False
        if where == "within COMMIT":
            self.server.sendall(message[:len(message) // 2])
            return False
        if where == "after COMMIT":
            self.swallow = True
            return True
        with Session(self.proxy.postgres.connect()) as s:
            s.run("SELECT pg_terminate_backend(%s, 60000)", self.backend)
        return True

    def to_client(self):
        pending = bytearray()
        while more := self.server.recv(65536):
            pending += more
            for message in messages(pending):
                if message[:1] == b"K":
                    self.backend = struct.unpack_from("!i", message, 5)[0]
                if self.swallow:
                    if message == b"C" + struct.pack("!I", 11) + b"COMMIT\0":
                        return
                    continue
                self.client.sendall(message)


class Proxy:
    """Listens on a port of 127.0.0.1. Nothing is cut before somebody asks for it."""

    def __init__(self, postgres):
        self.postgres = postgres
        self.lock = threading.Lock()
        self.where, self.calls, self.left = None, "", 0
        self.count = 0  # cuts
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                Wire(self, client)
            except OSError:
                client.close()  # the database is away

    def close(self):
        self.listener.close()

    def conninfo(self, database):
        port = self.listener.getsockname()[1]
        return (f"host=127.0.0.1 port={port} dbname={database} user=postgres sslmode=disable "
                "gssencmode=disable")

    def arm(self, where, calls="", times=1):
        """Cuts there at the COMMITs of the next transactions that call such a function."""
        with self.lock:
            self.where, self.calls, self.left = where, calls, times

    def disarm(self):
        self.arm(None)

    def next_cut(self, queries):
        with self.lock:
            if not self.where or self.left == 0 or not any(self.calls in q for q in queries):
                return None
            self.left -= 1
            self.count += 1
            return self.where
