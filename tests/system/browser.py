"""Debian's Chromium, driven through chromedriver by plain WebDriver calls, and a web server for the
pages it visits."""

import http.server
import json
import os
import shutil
import subprocess
import threading
import urllib.error
import urllib.request

from wire import DEADLINE

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage"]


class Browser:
    """`names` are host names that lead to this machine."""

    def __init__(self, folder, names=()):
        rules = ", ".join(f"MAP {name} 127.0.0.1" for name in names)
        args = [*FLAGS, f"--user-data-dir={folder}/profile", f"--host-resolver-rules={rules}"]
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                       env={**os.environ, "HOME": str(folder)})
        self.url = None
        try:
            self.base = f"http://127.0.0.1:{self.port()}"
            options = {"binary": CHROMIUM, "args": args}
            session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": options,
                "timeouts": {"script": DEADLINE * 1000, "pageLoad": DEADLINE * 1000}}}})
            self.url = f"/session/{session['sessionId']}"
        except BaseException:
            self.driver.kill()
            raise

    def port(self):
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                return int(line.rstrip(".\n").rsplit(" ", 1)[1])
        raise AssertionError("chromedriver did not start")

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def visit(self, address):
        self.call("POST", self.url + "/url", {"url": address})

    def run(self, script, *args):
        """What an async function with this body returns, in the page that is shown."""
        wrapped = ("const done = arguments[arguments.length - 1];"
                   "(async (...args) => {" + script + "})(...arguments)"
                   ".then(value => done({value}), error => done({error: String(error)}))")
        return self.call("POST", self.url + "/execute/async", {"script": wrapped, "args": args})

    def close(self):
        try:
            if self.url:
                self.call("DELETE", self.url)
        finally:
            self.driver.terminate()
            self.driver.wait(DEADLINE)


class Site:
    """Serves one page, whatever is asked, under every name that leads here."""

    def __init__(self, page=b"<!doctype html><title>a page</title><body></body>"):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
