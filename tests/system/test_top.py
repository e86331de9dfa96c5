"""`triage top` as people meet it: in a terminal of any size, with keys, with a server that goes away,
with names that want to play with the terminal; and as scripts meet it."""

import http.server
import json
import re
import signal
import subprocess
import threading

import pytest

from server import TRIAGE, Server, environment
from terminal import Terminal
from wire import DEADLINE

UP, DOWN, RIGHT, PAGE_DOWN, HOME, END, ESCAPE = ("\x1b[A", "\x1b[B", "\x1b[C", "\x1b[6~", "\x1b[H",
                                                 "\x1b[F", "\x1b")
FAST = ("--interval", "100ms")
KEYS = "? help"  # of the last line, when it has nothing else to say


def url(server):
    return "http://%s:%d" % server.address


@pytest.fixture
def top():
    """Starts `triage top` in a terminal: top(server, *options, rows=24, cols=80)."""
    opened = []

    def open_one(server, *options, command=None, **settings):
        where = server if isinstance(server, str) else url(server)
        words = [TRIAGE, "--server", where, "top", *options]
        opened.append(Terminal(command(words) if command else words, **settings))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def run(server, *options, **settings):
    where = server if isinstance(server, str) else url(server)
    return subprocess.run([TRIAGE, "--server", where, "top", *options], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=DEADLINE, env=environment(), **settings)


def kill_some(queue, count):
    """Puts messages and makes them dead letters."""
    queue.configure(max_attempts=1)
    queue.put_all([{"payload": "x"}] * count)
    for message in queue.take(max=count):
        assert queue.nack(message).status == 200


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A server with some trouble, which tests look at and do not change."""
    server = Server(tmp_path_factory.mktemp("busy"), engine="memory").start()
    kill_some(server.queue("letters"), 3)
    kill_some(server.queue("bills"), 1)
    server.queue("deep").put_all([{"payload": "x", "delay_seconds": 86400}] * 1000)
    server.queue("halted").configure(paused=True)
    for i in range(96):
        server.queue(f"idle.{i:02}").configure()
    yield server
    server.end()


def names(screen):
    """Of the rows of the list, in their order."""
    return [line[2:].split()[0] for line in screen.lines[3:-1] if line.strip()]


@pytest.mark.parametrize("rows, cols", [(24, 80), (50, 200), (10, 40), (5, 20), (1, 1)])
def test_the_worst_queues_are_on_top_at_every_size(busy, top, rows, cols):
    terminal = top(busy, *FAST, rows=rows, cols=cols)
    if rows < 5:
        terminal.until(lambda screen: "#" not in screen.text)
    else:
        terminal.until(lambda screen: names(screen)[:2] == ["letters", "bills"][:rows - 4])
    if rows > 20:
        assert names(terminal.screen)[:4] == ["letters", "bills", "deep", "halted"]
        assert re.search(r"^  letters +3 +- +0 +0 ", terminal.screen.text, re.M)
        assert re.search(r"^P halted ", terminal.screen.text, re.M), "paused ones have a mark"
        terminal.shows("100 queues  1 paused", "4 dead", "in 0.0/s  out 0.0/s")
        assert KEYS in terminal.screen.line(rows - 1) and "…" not in terminal.screen.line(rows - 1)
    terminal.type("q")
    assert terminal.end() == 0 and terminal.is_as_before


def test_rates_are_those_since_the_look_before(start, top):
    server = start(engine="memory")
    queue = server.queue("mail")
    queue.configure()
    terminal = top(server, *FAST)
    terminal.until(lambda screen: re.search(r"^  mail +0 +- +0 +0 +0\.0 +0\.0 ", screen.text, re.M))
    queue.put_all([{"payload": "x"}] * 500)
    terminal.until(lambda screen: re.search(r"^  mail +0 +\d+s +500 +0 +[1-9]\d* +0\.0 ", screen.text, re.M))
    queue.ack_all(queue.take(max=100))
    terminal.until(lambda screen: re.search(r"^  mail +0 +\d+s +400 +0 +0\.0 +[1-9][\d.]* ", screen.text, re.M))


def test_keys_put_the_queues_in_another_order(busy, top):
    terminal = top(busy, *FAST)
    terminal.until(lambda screen: names(screen)[:1] == ["letters"])
    for key, first in (("2", "bills"), ("9", "deep"), ("1", "letters"), (">", "bills"), ("<", "letters"),
                       ("i", "idle.95")):
        terminal.type(key)
        terminal.until(lambda screen: names(screen)[:1] == [first])


def test_the_cursor_goes_to_both_ends_and_only_pages_are_asked_for(top):
    with Stranger([f"q{i:05}" for i in range(5000)]) as stranger:
        terminal = top(stranger.url, *FAST)
        terminal.until(lambda screen: (screen.chosen or "").startswith("  q00000"))
        for key, chosen in ((DOWN, "q00001"), ("j", "q00002"), ("k", "q00001"), (PAGE_DOWN, "q00021"),
                            (END, "q04999"), (UP, "q04998"), (HOME, "q00000")):
            terminal.type(key)
            terminal.until(lambda screen: (screen.chosen or "").startswith("  " + chosen))
        limits = [int(re.search(r"limit=(\d+)", path)[1]) for path in stranger.paths]
        assert max(limits) <= 3 * 20, "a page, and one on each side"


def test_a_search_follows_what_is_typed(busy, top):
    terminal = top(busy, *FAST)
    terminal.until(names)
    terminal.type("/IDLE.9")
    terminal.until(lambda screen: names(screen) == [f"idle.9{i}" for i in range(6)])
    terminal.type("x")
    terminal.shows("No queue has this in its name.", "Search: IDLE.9x")
    terminal.type("\x7f\n")
    terminal.until(lambda screen: len(names(screen)) == 6 and KEYS in screen.text)
    terminal.type(ESCAPE)
    terminal.until(lambda screen: names(screen)[0] == "letters")


def test_what_is_done_is_asked_first_and_names_the_queue_and_the_number(start, top):
    server = start(engine="memory")
    queue = server.queue("mail")
    kill_some(queue, 3)
    terminal = top(server, *FAST)
    terminal.until(lambda screen: names(screen) == ["mail"])
    terminal.type("r")
    terminal.shows("Make 3 dead letters of mail ready again? [y/N]")
    terminal.type("n")
    terminal.shows("nothing was done")
    assert queue.stats()["dlq_depth"] == 3
    terminal.type("r")
    terminal.shows("[y/N]")
    terminal.type("y")
    terminal.shows("mail: 3 ready again")
    assert (queue.stats()["dlq_depth"], queue.stats()["ready"]) == (0, 3)
    terminal.until(lambda screen: re.search(r"^  mail +0 +\d+s +3 ", screen.text, re.M))
    terminal.type("r")
    terminal.shows("mail has no dead letters")
    terminal.type("p")
    terminal.shows("Pause mail?")
    assert queue.stats()["paused"] is False
    terminal.type("y")
    terminal.shows("mail is paused")
    assert queue.stats()["paused"] is True
    terminal.until(lambda screen: "P mail" in screen.text)
    terminal.type("p")
    terminal.shows("Resume mail?")
    terminal.type("y")
    terminal.shows("mail goes on")
    assert queue.stats()["paused"] is False


def test_only_the_dead_letters_that_were_counted_are_redriven(start, top):
    server = start(engine="memory")
    queue = server.queue("mail")
    kill_some(queue, 2)
    terminal = top(server, *FAST)
    terminal.until(lambda screen: names(screen) == ["mail"])
    terminal.type("r")
    terminal.shows("Make 2 dead letters of mail ready again? [y/N]")
    kill_some(queue, 1)
    terminal.type("y")
    terminal.shows("mail: 2 ready again")
    assert queue.stats()["dlq_depth"] == 1


def test_a_queue_is_opened_and_its_levels_are_escalated(start, top):
    server = start(engine="memory")
    queue = server.queue("mail")
    queue.configure(profile="tiers")
    queue.put_all([{"payload": "x", "priority": level} for level in ("HIGH", "LOW") for _ in range(4)])
    terminal = top(server, *FAST)
    terminal.until(lambda screen: names(screen) == ["mail"])
    terminal.type("\n")
    terminal.shows("policy weighted", "ready 8")  # HIGH weighs 4, LOW 1
    terminal.until(lambda screen: re.search(r"^HIGH +4 +\d+s +80\.0% ", screen.text, re.M))
    assert re.search(r"^LOW +4 +\d+s +20\.0% ", terminal.screen.text, re.M)
    assert re.search(r"^NORMAL +0 +- +- ", terminal.screen.text, re.M)
    terminal.type(DOWN * 3 + "e")
    terminal.shows("Escalate what is in LOW to: < NORMAL >")
    terminal.type(UP)
    terminal.shows("< HIGH >")
    terminal.type(UP)
    terminal.shows("< CRITICAL >")
    terminal.type("\n")
    terminal.shows("Escalate 4 messages of mail from LOW to CRITICAL? [y/N]")
    terminal.type("y")
    terminal.shows("mail: 4 escalated to CRITICAL")
    terminal.until(lambda screen: re.search(r"^CRITICAL +4 +\d+s +66\.7% ", screen.text, re.M))
    by_level = {level["level"]: level["ready"] for level in queue.stats()["levels"]}
    assert (by_level["CRITICAL"], by_level["HIGH"], by_level["LOW"]) == (4, 4, 0)
    terminal.type("e\n")  # nothing is left there
    terminal.shows("mail has nothing to escalate in LOW")
    terminal.type(ESCAPE)
    terminal.until(lambda screen: screen.row_of("QUEUE") == 2)


def test_a_queue_that_is_deleted_leads_back_to_the_list(start, top):
    server = start(engine="memory")
    queue = server.queue("mail")
    queue.configure()
    terminal = top(server, *FAST)
    terminal.until(lambda screen: names(screen) == ["mail"])
    terminal.type(RIGHT)
    terminal.shows("policy strict")
    assert server.client().delete(queue.path).status == 204
    terminal.shows("mail is gone", "There are no queues.")


def test_a_screen_of_another_size_is_drawn_anew(busy, top):
    terminal = top(busy, *FAST)
    terminal.until(lambda screen: len(names(screen)) == 20)
    for rows, cols in ((50, 200), (12, 60), (24, 80)):
        terminal.resize(rows, cols)
        terminal.until(lambda screen: "#" not in screen.text and len(names(screen)) == rows - 4)
        assert "idle.00" in terminal.screen.text
    terminal.type(END)
    terminal.until(lambda screen: "idle.95" in (screen.chosen or ""))
    terminal.resize(9, 80)
    terminal.until(lambda screen: "#" not in screen.text and "idle.95" in (screen.chosen or ""))


class Stranger:
    """A server that is none of ours: it answers with the names that it was given."""

    def __init__(self, listed, levels=()):
        stranger = self
        self.paths = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                stranger.paths.append(self.path)
                body = json.dumps(stranger.answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.listed, self.levels = listed, levels
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path):
        if "/v1/queues/" in path:
            return {"ready": 1, "levels": [{"level": name, "ready": 1, "weight": 1, "name": name}
                                           for name in self.levels]}
        skip, limit = (int(re.search(rf"{word}=(\d+)", path)[1]) for word in ("skip", "limit"))
        return {"queues": [{"name": name, "ready": 1} for name in self.listed[skip:skip + limit]],
                "all": {"queues": len(self.listed)}}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


HOSTILE = ["\x1b[2J\x1b[31mred", "tab\tnew\nline\rback", "bell\x07", "c1\x9b31m", "right\u202eleft", "zero\u200bwidth",
           "combi\u0301ning", "中文", "x" * 100, "\x1b]0;title\x07", "é", "nul\x7f", "🎉 party", "\ufeffbom"]


@pytest.mark.parametrize("rows, cols", [(24, 80), (50, 200)])
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_names_of_strangers_cannot_play_with_the_terminal(top, rows, cols, locale):
    with Stranger(HOSTILE, levels=HOSTILE[:12]) as stranger:
        terminal = top(stranger.url, *FAST, rows=rows, cols=cols, LC_ALL=locale)
        terminal.shows("\\x1b[2J\\x1b[31mr", "tab\\tnew\\nline", "bell\\x07", "c1\\x9b31m", "right\\u202eleft")
        terminal.shows("combi\\u0301ning" if cols == 200 else "combi\\u0301")
        terminal.shows("中文" if locale == "C.UTF-8" else "\\u4e2d\\u6587")
        assert all(len(line) <= cols for line in terminal.screen.lines)
        terminal.type("p")
        terminal.shows("Pause \\x1b[2J\\x1b[31mred?")
        terminal.type("n\n")
        terminal.shows("LEVEL", "tab\\tnew\\nline")
        terminal.type("q")
        assert terminal.end() == 0 and terminal.is_as_before
    assert b"\x1b" not in run(stranger.url, "--once", "--interval", "0s").stdout


def test_hostile_names_are_escaped_in_text_and_in_json(top):
    with Stranger(HOSTILE) as stranger:
        text = run(stranger.url, "--once", "--interval", "0s", "--limit", "100").stdout
        assert b"\\x1b[2J" in text and not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", text)
        answer = json.loads(run(stranger.url, "--json", "--once", "--interval", "0s").stdout)
        assert [row["name"] for row in answer["queues"]] == HOSTILE


def test_a_server_that_goes_away_is_named_and_found_again(start, top, tmp_path):
    socket = str(tmp_path / "triage.sock")
    server = start(engine="local", listen_unix=socket)
    server.queue("mail").put("x")
    terminal = top("unix:" + socket, *FAST, cols=200)
    terminal.until(lambda screen: names(screen) == ["mail"])
    server.kill()
    terminal.shows(f"unix:{socket} does not answer", "Trying again", "mail")
    server.start()
    terminal.until(lambda screen: "does not answer" not in screen.text and KEYS in screen.text)
    terminal.until(lambda screen: names(screen) == ["mail"])
    server.stop()
    terminal.shows("does not answer")
    terminal.type("q")
    assert terminal.end() == 0 and terminal.is_as_before


def test_a_refusal_is_shown_in_the_servers_words(start, top):
    server = start(engine="memory")
    server.queue("mail").configure()
    terminal = top(server, *FAST, "--prefix", "a/b", cols=200)
    terminal.shows("422 invalid-field", "must be the name of a queue, or a part of one.")


def test_what_is_frozen_stays_and_goes_on_afterwards(start, top):
    server = start(engine="memory")
    queue = server.queue("mail")
    queue.configure()
    terminal = top(server, *FAST)
    terminal.until(lambda screen: names(screen) == ["mail"])
    terminal.type(" ")
    terminal.shows("FROZEN")
    queue.put("x")
    clock = terminal.screen.line(0)
    terminal.until(lambda screen: screen.line(0) != clock)  # it is alive
    assert re.search(r"^  mail +0 +- +0 ", terminal.screen.text, re.M)
    terminal.type(" ")
    terminal.until(lambda screen: re.search(r"^  mail +0 +\d+s +1 ", screen.text, re.M))


@pytest.mark.parametrize("how, status", [("q", 0), (signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM),
                                         (signal.SIGHUP, -signal.SIGHUP), (signal.SIGABRT, -signal.SIGABRT),
                                         (signal.SIGQUIT, -signal.SIGQUIT), ("\x03", 0)])
def test_however_it_ends_the_terminal_is_as_before(busy, top, how, status):
    terminal = top(busy, *FAST)
    terminal.until(lambda screen: names(screen)[:1] == ["letters"])
    assert terminal.screen.modes == {"1049": True, "25": False, "7": False}
    if isinstance(how, str):
        terminal.type(how)
    else:
        terminal.process.send_signal(how)
    ended = terminal.end()
    assert terminal.is_as_before
    assert ended == status or (how in (signal.SIGABRT, signal.SIGQUIT) and ended != 0)


def test_it_is_suspended_and_goes_on(busy, top):
    """Ctrl-Z gives the terminal to the shell, and `fg` takes it back."""
    def in_a_shell(words):
        line = " ".join(words)
        return ["bash", "--norc", "-mc", f"{line}; stty size; echo STOPPED >&2; read word; fg; echo $word-END"]

    terminal = top(busy, *FAST, command=in_a_shell)
    terminal.until(lambda screen: names(screen)[:1] == ["letters"])
    terminal.type("\x1a")
    terminal.until(lambda screen: screen.modes == {"1049": False, "25": True, "7": True})
    terminal.screen.resize(24, 80)
    terminal.type("and\n")
    terminal.until(lambda screen: screen.modes["1049"] and names(screen)[:1] == ["letters"])
    assert "#" not in terminal.screen.text
    terminal.type(DOWN)
    terminal.until(lambda screen: "bills" in (screen.chosen or ""))
    terminal.type("q")
    assert terminal.end() == 0 and terminal.is_as_before


def test_a_look_that_changes_nothing_sends_next_to_nothing(top):
    with Stranger([f"q{i:03}" for i in range(100)]) as stranger:
        terminal = top(stranger.url, *FAST, rows=50, cols=200)
        terminal.until(lambda screen: len(names(screen)) == 46)
        terminal.until(lambda screen: len(stranger.paths) > 3)
        before, looks = terminal.written, len(stranger.paths)
        terminal.until(lambda screen: len(stranger.paths) >= looks + 20)
        assert terminal.written - before < 40 * 20, "of a page of 10,000 places the clock alone changes"


def test_help_is_a_page_and_any_key_leaves_it(busy, top):
    terminal = top(busy, *FAST)
    terminal.type("?")
    terminal.shows("Keys of triage top", "Any key goes on.", "Space  freeze")
    terminal.type(" ")
    terminal.until(lambda screen: names(screen)[:1] == ["letters"])
    assert "FROZEN" not in terminal.screen.text


def test_without_a_terminal_it_says_what_to_do(busy, top):
    done = run(busy)
    assert done.returncode == 2 and b"--once" in done.stderr and done.stdout == b""
    terminal = top(busy, TERM="dumb")
    assert terminal.end() == 2 and terminal.is_as_before


def test_one_look_as_text(busy):
    done = run(busy, "--once", *FAST, "--limit", "3")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and len(lines) == 6, lines
    assert [line.split()[0] for line in lines[3:]] == ["letters", "bills", "deep"]
    assert "0.0" in lines[3].split(), "two looks have rates"
    alone = run(busy, "--once", "--interval", "0s", "--sort", "name", "--reverse", "--match", "IDLE").stdout.decode()
    assert alone.splitlines()[3].split()[0] == "idle.95" and "in -/s" in alone
    assert "96 queues" in alone and len(alone.splitlines()) == 3 + 20


def test_looks_as_lines_of_json(busy):
    with subprocess.Popen([TRIAGE, "--server", url(busy), "--json", "top", *FAST, "--limit", "2"],
                          stdout=subprocess.PIPE, env=environment()) as stream:
        first, second = (json.loads(stream.stdout.readline()) for _ in range(2))
        stream.kill()
    assert [row["name"] for row in second["queues"]] == ["letters", "bills"]
    assert first["all"]["in_per_second"] is None and second["all"]["in_per_second"] == 0
    assert second["all"]["queues"] == 100 and second["queues"][0]["dead"] == 3
    assert "totals" in second["queues"][0] and first["at"] < second["at"]


def test_a_server_that_is_away_ends_one_look_and_not_a_stream(start):
    server = start(engine="memory")
    server.stop()
    done = run(server, "--once")
    assert done.returncode == 3 and b"does not answer" in done.stderr
    with subprocess.Popen([TRIAGE, "--server", url(server), "--json", "top", *FAST],
                          stdout=subprocess.PIPE, env=environment()) as stream:
        for _ in range(2):
            assert "does not answer" in json.loads(stream.stdout.readline())["error"]
        stream.kill()


@pytest.mark.parametrize("words", [["--sort", "size"], ["--interval", "10ms"], ["--interval", "2h"],
                                   ["--limit", "0", "--once"], ["--limit", "1001", "--once"], ["queue"],
                                   ["--match", "x" * 101]])
def test_options_out_of_range_are_refused(words):
    done = run("http://127.0.0.1:1", *words)
    assert done.returncode == 2 and done.stderr.startswith(b"triage: ") and not done.stdout
