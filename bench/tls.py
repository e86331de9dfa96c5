#!/usr/bin/python3
"""What TLS costs: requests with and without it, handshakes, and connections that are idle.

  bench/tls.py [--seconds N] [--handshakes N] [--connections N]

Starts a server with the memory engine on free loopback ports. Load comes from wrk, handshakes from
Python's ssl; rounds of plain and TLS take turns. Rates are of this machine with the client beside
the server; processor time is the server's alone, so that ratios of it hold elsewhere too."""

import argparse
import os
import re
import ssl
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "system"))

from certificates import CURVE, Authority  # noqa: E402
from server import Server  # noqa: E402
from wire import Connection, request_bytes  # noqa: E402

INFO = request_bytes("GET", "/v1/info")
RSA = ("-newkey", "rsa:2048", "-nodes")
ENQUEUE = """
wrk.method, wrk.path = "POST", "/v1/queues/q/messages"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"payload":"' .. string.rep("x", 256) .. '"}'
"""


class Measured(Server):
    def __init__(self, folder, pair):
        super().__init__(folder, engine="memory", listen_tls="127.0.0.1:0", tls_cert=pair.cert,
                         tls_key=pair.key)
        self.start()
        found = self.log.wait_for(r'address=127\.0\.0\.1:(\d+) .*tls=on')
        self.tls_address = ("127.0.0.1", int(found[1]))

    def place(self, secure):
        return self.tls_address if secure else self.address

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) * 1024


def wrk(server, secure, seconds, path="/v1/info", script=None):
    """Requests a second, and microseconds of the server's processor for one."""
    scheme, port = "https" if secure else "http", server.place(secure)[1]
    before = server.cpu()
    out = subprocess.run(["wrk", "-t1", "-c64", f"-d{seconds}s", *(["-s", script] if script else []),
                          f"{scheme}://127.0.0.1:{port}{path}"], capture_output=True, text=True,
                         check=True).stdout
    assert "Non-2xx" not in out, out
    count = int(re.search(r"(\d+) requests in", out)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    return rate, (server.cpu() - before) * 1e6 / count


def handshakes(server, authority, count, resumed):
    """Microseconds of the server's processor for a connection with a handshake and one request."""
    def many():
        context, session = authority.context(), None
        for _ in range(count // 2):
            one = Connection(server.tls_address, tls=context, session=session)
            one.send(INFO)
            one.answer()
            if resumed:
                session = one.socket.session
            one.close()

    before = server.cpu()
    threads = [threading.Thread(target=many) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return (server.cpu() - before) * 1e6 / count


def plain_connections(server, count):
    before = server.cpu()
    for _ in range(count):
        one = Connection(server.address)
        one.send(INFO)
        one.answer()
        one.close()
    return (server.cpu() - before) * 1e6 / count


def idle(server, authority, count, secure):
    """Bytes of the server for a connection that has made a request and is idle."""
    context = authority.context() if secure else None
    warm = [Connection(server.place(secure), tls=context) for _ in range(20)]
    before, held = server.rss(), []
    for _ in range(count):
        held.append(Connection(server.place(secure), tls=context))
        held[-1].send(INFO)
        held[-1].answer()
    grown = server.rss() - before
    for each in held + warm:
        each.close()
    return grown / count


def report_requests(server, seconds, folder):
    script = os.path.join(folder, "enqueue.lua")
    with open(script, "w") as file:
        file.write(ENQUEUE)
    print("\n| requests, 64 connections | plain | TLS | ratio of rates | processor time of the server |")
    print("|---|---|---|---|---|")
    for name, options in (("GET /v1/info", {}), ("enqueue, 256 bytes", {"script": script})):
        rounds = [(wrk(server, False, seconds, **options), wrk(server, True, seconds, **options))
                  for _ in range(3)]
        (plain, plain_us), (tls, tls_us) = (sorted(r[i] for r in rounds)[1] for i in (0, 1))
        print(f"| {name} | {plain:,.0f}/s | {tls:,.0f}/s | {tls / plain:.2f} | "
              f"{plain_us:.1f} → {tls_us:.1f} µs, × {tls_us / plain_us:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--handshakes", type=int, default=2000)
    parser.add_argument("--connections", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(folder)
        servers = {"ECDSA P-256": CURVE, "RSA 2048": RSA}
        rows = []
        for name, key in servers.items():
            server = Measured(folder, authority.issue("localhost", key))
            if key is CURVE:
                print(f"Python {sys.version.split()[0]}, {ssl.OPENSSL_VERSION}")
                small = [idle(server, authority, args.connections, s) for s in (False, True)]
                report_requests(server, args.seconds, folder)
                bare = plain_connections(server, args.handshakes)
            rows += [(name, "full" if not r else "resumed",
                      handshakes(server, authority, args.handshakes, r)) for r in (False, True)]
            server.stop()
    print("\n| connection with one request, TLS 1.3 | processor time of the server | for one core |")
    print(f"|---|---|---|\n| plain | {bare:.0f} µs | {1e6 / bare:,.0f}/s |")
    for name, kind, us in rows:
        print(f"| {name}, {kind} handshake | {us:.0f} µs | {1e6 / us:,.0f}/s |")
    print(f"\nAn idle connection: plain {small[0] / 1024:.1f} KiB, TLS {small[1] / 1024:.1f} KiB "
          f"(resident memory, {args.connections} connections).")


if __name__ == "__main__":
    main()
