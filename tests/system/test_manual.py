"""What is made from the tables of --help: pages of the manual, and completion in shells. Nothing of
--help is missing in either."""

import os
import re
import shutil
import subprocess

import pytest

from server import BUILD, ROOT, TRIAGE, TRIAGED, environment
from wire import DEADLINE

COMPLETION = os.path.join(ROOT, "packaging", "completion", "triage.bash")


def said(*command, status=0, **variables):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=DEADLINE,
                          stdin=subprocess.DEVNULL, env={**environment(), **variables})
    assert done.returncode == status, done
    return done.stdout


def offers(*words, program=TRIAGE):
    """What the last word may become."""
    *before, word = words
    return [line.split("\t")[0] for line in said(program, "--complete=" + word, *before).splitlines()]


def options(text):
    """The long options that a --help has lines for."""
    return set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z-]*)", text, re.M))


COMMANDS = offers("")
FAMILIES = {name: offers(name, "") for name in ("queue", "dead", "schedule", "cells")}
WORDS = [[name] for name in COMMANDS if name not in FAMILIES] + \
        [[name, verb] for name, verbs in FAMILIES.items() for verb in verbs]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The manual as `make install` makes it: {"triage-claim.1": its file}."""
    folder = tmp_path_factory.mktemp("man")
    said(os.path.join(ROOT, "tools", "manuals"), BUILD, folder)
    return {os.path.basename(path): path for each in ("man1", "man5", "man8")
            for path in map(str, (folder / each).iterdir())}


def read(page):
    """The page as text, wide enough for every line; the formatter has nothing to complain of."""
    done = subprocess.run(["groff", "-man", "-Tutf8", "-P-cbou", "-ww", "-rLL=300n", page], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.replace("\u2212", "-").replace("\u2010", "-")


needs_groff = pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")


@needs_groff
def test_every_command_has_a_page_and_every_option_is_in_it(pages):
    for words in WORDS:
        text = read(pages[f"triage-{words[0]}.1"])
        known = options(said(TRIAGE, *words, "--help"))
        missing = [option for option in known if not re.search(rf"{option}\b", text)]
        assert not missing, (words, missing)
        assert words[-1] in text
    text = read(pages["triage.1"])
    assert options(said(TRIAGE, "--help")) <= set(re.findall(r"--[a-z]+", text))
    assert all(name in text for name in COMMANDS)
    assert set(pages) == {"triage.1", "triaged.8", "triage.conf.5"} | {f"triage-{name}.1" for name in COMMANDS}


@needs_groff
def test_every_setting_is_in_the_pages_of_the_server(pages):
    flags = options(said(TRIAGED, "--help"))
    server, file = read(pages["triaged.8"]), read(pages["triage.conf.5"])
    assert len(flags) > 30
    for flag in flags:
        assert re.search(rf"^ +{flag}\b", server, re.M), flag
        if flag not in ("--config", "--check", "--version", "--help"):
            assert re.search(rf"^ +{flag[2:].replace('-', '_')} \S", file, re.M), flag
    assert "triaged salvage DIR -o FOLDER" in server


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_man_has_nothing_to_warn_of(pages):
    for page in pages.values():
        done = subprocess.run(["man", "-l", "--warnings", page], capture_output=True, text=True,
                              env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"})
        assert done.returncode == 0 and done.stderr == "", (page, done.stderr)
        assert "NAME" in done.stdout and " - " in done.stdout


def test_every_option_of_help_is_offered():
    for words in WORDS:
        missing = options(said(TRIAGE, *words, "--help")) - set(offers(*words, "--"))
        assert not missing, (words, missing)
        assert "--server" in offers(*words, "--"), "what every command takes"
    assert options(said(TRIAGE, "--help")) == set(offers("--"))
    assert options(said(TRIAGED, "--help")) <= set(offers("--", program=TRIAGED))


def test_words_are_offered_where_they_fit():
    assert offers("cl") == ["claim"] and "claim" in offers("")
    assert offers("queue", "pa") == ["pause"] and offers("queue", "nonsense", "") == []
    assert offers("enqueue", "q", "--pri") == ["--priority"]
    assert offers("backup", "") == offers("import", "q", "") == offers("queue", "set", "q", "--file", "") == [":files"]
    assert offers("work", "q", "--", "") == [":files"]
    assert offers("claim", "--max", "") == [] and offers("nonsense", "") == []
    assert offers("--log-level", "", program=TRIAGED) == ["error", "warn", "info", "debug"]
    assert offers("--engine", "l", program=TRIAGED) == ["local"]
    assert offers("--tokens-file", "", program=TRIAGED) == offers("check", "", program=TRIAGED) == [":files"]
    assert offers("s", program=TRIAGED) == ["salvage"]


def complete(line, program=TRIAGE, **variables):
    """What a real bash completes the line to."""
    words = line.split(" ")
    script = f"""
        . {COMPLETION}
        COMP_WORDS=({' '.join(f"'{word}'" for word in [program, *words[1:]])})
        COMP_CWORD={len(words) - 1} COMP_LINE="{program}{line[line.index(' '):]}" COMP_POINT=${{#COMP_LINE}}
        complete -p triage triaged >/dev/null || exit 1
        _triage
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return said("bash", "--norc", "-c", script, **variables).split()


def test_bash_completes(start):
    server = start(engine="memory")
    for name in ("mail.in", "mail.out", "orders"):
        server.queue(name).configure()
    where = {"TRIAGE_SERVER": "http://%s:%d" % server.address}
    assert complete("triage cla") == ["claim"]
    assert complete("triage queue re") == ["resume"]
    assert complete("triage claim mail --wa") == ["--wait"]
    assert complete("triage claim ma", **where) == ["mail.in", "mail.out"]
    assert complete("triage work mail.in o", **where) == ["orders"]
    assert complete("triage claim mail.in ", **where) == []
    assert complete("triage top ", **where) == []
    assert complete("triaged --insec", program=TRIAGED) == ["--insecure"]


def test_bash_finds_the_server_that_the_line_names(start):
    """bash takes the address apart at its colons."""
    server = start(engine="memory")
    server.queue("mail").configure()
    pieces = ["triage", "--server", "http", ":", "//127.0.0.1", ":", str(server.address[1]), "claim", ""]
    line = f"{TRIAGE} --server http://127.0.0.1:{server.address[1]} claim "
    script = f"""
        . {COMPLETION}
        COMP_WORDS=({' '.join(f"'{word}'" for word in [TRIAGE, *pieces[1:]])})
        COMP_CWORD={len(pieces) - 1} COMP_LINE='{line}' COMP_POINT={len(line)}
        _triage
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert said("bash", "--norc", "-c", script).split() == ["mail"]


def test_a_server_that_does_not_answer_offers_nothing():
    assert complete("triage claim ma", TRIAGE_SERVER="http://127.0.0.1:1") == []


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(start):
    server = start(engine="memory")
    server.queue("mail").configure()
    script = f"""
        _files() {{ print FILES }}
        _describe() {{ print -l -- "${{(@P)2}}" }}
        words=({TRIAGE} claim m) CURRENT=3
        . {os.path.join(ROOT, "packaging", "completion", "_triage")}
    """
    shown = said("zsh", "-f", "-c", script, TRIAGE_SERVER="http://%s:%d" % server.address)
    assert shown.split(":")[0] == "mail"


def test_make_install_puts_them_in_place():
    plan = subprocess.run(["make", "-n", "install", "PREFIX=/usr", "DESTDIR=/tmp/x"], cwd=ROOT, text=True,
                          capture_output=True).stdout
    for part in ("tools/manuals build /tmp/x/usr/share/man",
                 "/tmp/x/usr/share/bash-completion/completions/triage",
                 "/tmp/x/usr/share/zsh/site-functions/_triage"):
        assert part in plan
