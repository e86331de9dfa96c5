"""A terminal of a test's own: a program in a pty, and a model of the screen that it draws on.

The model knows what a VT100 knows and `triage top` uses: places, styles, the alternate screen, the
cursor. Anything else is an error: a program that sends it draws something that some terminal does
not understand, or hands on what a stranger wrote."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata

from wire import DEADLINE

SEQUENCE = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])")
MODES = {"1049", "25", "7"}  # the alternate screen, the cursor, wrapping


class Screen:
    def __init__(self, rows, cols):
        self.modes = {"1049": False, "25": True, "7": True}
        self.pending = b""
        self.resize(rows, cols)

    def resize(self, rows, cols):
        """What was there is garbage afterwards, as after a reflow: the program has to draw it."""
        self.rows, self.cols = rows, cols
        self.cells = [["#"] * cols for _ in range(rows)]
        self.styles = [[""] * cols for _ in range(rows)]
        self.row = self.col = 0
        self.style = ""

    def feed(self, data):
        data = self.pending + data
        at = 0
        while at < len(data):
            if data[at] == 0x1b:
                found = SEQUENCE.match(data, at)
                if not found:
                    assert len(data) - at < 16, f"not a known sequence: {data[at:at + 16]!r}"
                    break  # the rest comes with the next bytes
                self.obey(*(part.decode() for part in found.groups()))
                at = found.end()
            elif data[at] < 0x20 or data[at] == 0x7f:
                self.control(data[at])
                at += 1
            else:
                length = 1 if data[at] < 0x80 else 2 if data[at] < 0xe0 else 3 if data[at] < 0xf0 else 4
                if at + length > len(data):
                    break
                self.put(data[at:at + length].decode())
                at += length
        self.pending = data[at:]

    def control(self, byte):
        assert not self.modes["1049"], f"control character {byte:#x} on the screen"
        if byte == 0x0a:
            self.row = min(self.row + 1, self.rows - 1)
        elif byte == 0x0d:
            self.col = 0

    def put(self, character):
        assert unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp"), repr(character)
        if not self.modes["1049"]:
            return
        assert self.row < self.rows and self.col < self.cols, (self.row, self.col, character)
        self.cells[self.row][self.col] = character
        self.styles[self.row][self.col] = self.style
        wide = unicodedata.east_asian_width(character) in "WF"
        if wide:
            self.cells[self.row][self.col + 1] = ""
        self.col = self.col + 1 + wide if character.isascii() else 10 ** 6  # nobody may rely on it

    def obey(self, private, numbers, letter):
        if private:
            assert numbers in MODES and letter in "hl", (numbers, letter)
            self.modes[numbers] = letter == "h"
        elif letter == "H":
            row, col = map(int, numbers.split(";")) if numbers else (1, 1)
            assert row <= self.rows and col <= self.cols, (row, col, "is off the screen")
            self.row, self.col = row - 1, col - 1
        elif letter == "J":
            assert numbers == "2"
            self.cells = [[" "] * self.cols for _ in range(self.rows)]
            self.styles = [[""] * self.cols for _ in range(self.rows)]
        else:
            assert letter == "m", letter
            self.style = numbers

    def line(self, row):
        return "".join(self.cells[row]).rstrip()

    @property
    def lines(self):
        return [self.line(row) for row in range(self.rows)]

    @property
    def text(self):
        return "\n".join(self.lines)

    def row_of(self, word):
        """The first row with this word in it; None when there is none."""
        return next((i for i, line in enumerate(self.lines) if word in line), None)

    @property
    def chosen(self):
        """The line that is drawn in reverse, below the heads of the columns."""
        rows = [i for i in range(self.rows) if "7" in self.styles[i][0].split(";")]
        return self.line(rows[-1]) if len(rows) > 1 else None


def as_a_login_would():
    """The terminal is the program's, and signals do what they do: whoever runs the tests in the
    background has them ignored, and that is inherited."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_DFL)


class Terminal:
    """A program in a pty of its own, the leader of its session."""

    def __init__(self, command, rows=24, cols=80, **environment):
        self.screen = Screen(rows, cols)
        self.master, self.slave = pty.openpty()
        self.set_size(rows, cols)
        self.before = termios.tcgetattr(self.slave)
        self.written = 0
        self.process = subprocess.Popen(
            command, stdin=self.slave, stdout=self.slave, stderr=self.slave,
            start_new_session=True, preexec_fn=as_a_login_would,
            env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment})

    def set_size(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def resize(self, rows, cols):
        self.read(0)
        self.screen.resize(rows, cols)
        self.set_size(rows, cols)  # the kernel tells the program

    def read(self, seconds):
        """Feeds the screen with what has come. True when something did."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the program has ended, and nobody else has the terminal
            return False
        self.written += len(data)
        self.screen.feed(data)
        return bool(data)

    def until(self, condition):
        """Reads until the condition holds for the screen."""
        deadline = time.monotonic() + DEADLINE
        while not (result := condition(self.screen)):
            assert time.monotonic() < deadline, "it never happened:\n" + self.screen.text
            assert self.read(0.05) or self.process.poll() is None, "ended:\n" + self.screen.text
        return result

    def shows(self, *words):
        return self.until(lambda screen: all(word in screen.text for word in words))

    def type(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """The exit status, when the program has ended by itself."""
        deadline = time.monotonic() + DEADLINE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end:\n" + self.screen.text
            self.read(0.05)
        while self.read(0):
            pass
        return self.process.returncode

    @property
    def is_as_before(self):
        """Whether the terminal's modes are what they were, and the screen is given back."""
        now = termios.tcgetattr(self.slave)
        return now == self.before and self.screen.modes == {"1049": False, "25": True, "7": True}

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
