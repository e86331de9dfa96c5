"""`triaged --check`: every mistake in the settings and in the files that they name, before a start
finds the first; and nothing is changed, whoever else is running."""

import os
import subprocess

import pytest

from certificates import Authority
from server import TRIAGED, Server, environment


def check(*flags, **variables):
    done = subprocess.run([TRIAGED, "--check", *map(str, flags)], stdin=subprocess.DEVNULL,
                          capture_output=True, env={**environment(), **variables})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def mistakes(*flags, **variables):
    """What it names, when there is something to name."""
    status, out, err = check(*flags, **variables)
    lines = [line.removeprefix("triaged: ") for line in err.splitlines()]
    assert (status, out) == (2, "") and lines[-1].endswith("a server would not start"), err
    found = [line for line in lines[:-1] if not line.startswith("note: ")]
    assert lines[-1].startswith(f"{len(found)} mistake"), err
    return found


def config(folder, *lines):
    path = folder / "triage.conf"
    path.write_text("\n".join(["[server]", *lines, ""]))
    return path


def snapshot(folder):
    """All that a look could have changed."""
    return {path: (st.st_ino, st.st_size, st.st_mtime_ns, st.st_mode)
            for path in sorted(folder.rglob("*")) for st in [path.stat()]}


def test_good_settings_are_good(tmp_path):
    path = config(tmp_path, f"data = {tmp_path}/data", "shards = 2")
    status, out, err = check("--config", path)
    assert (status, out) == (0, "triaged: no mistake found; engine local\n")
    assert "would be created" in err and not (tmp_path / "data").exists()


def test_what_is_probably_a_mistake_is_noted(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    status, _, err = check("--data", data, TRIAGE_SERVER="http://here", TRIAGE_META_X="1")
    assert (status, err) == (0, "")
    (data / "holiday.jpg").touch()
    status, _, err = check("--data", data, TRIAGE_LISTN="127.0.0.1:1")
    assert status == 0
    assert "note: TRIAGE_LISTN in the environment is no setting" in err
    assert f"note: {data} is not empty and no data directory" in err and "holiday.jpg" in err


def test_every_mistake_is_named_with_its_place(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("# who\nops - admin\nmail x produce\nops - read\nread - all\n")
    path = config(tmp_path, "shards = many", "no setting at all", "engin = local",
                  "engine = floppy", "allowed_hosts = https://queue.example", "listen = here:1",
                  f"tls_cert = {tmp_path}/cert", f"tls_key = {tmp_path}/key",
                  f"tls_client_ca = {tmp_path}/ca", f"tokens_file = {tokens}",
                  f"listen_unix = {tmp_path}/no/socket", "[client]", "x = 1")
    found = mistakes("--config", path, "--durability", "maybe", "--data", tmp_path / "a" / "b",
                     TRIAGE_MAX_QUEUES="-1")
    expected = [
        f'{path}, line 2: shards takes NUMBER, not "many"',
        f"{path}, line 3: expected KEY = VALUE",
        f'{path}, line 4: there is no setting "engin"',
        f"{path}, line 5: engine takes memory|local|postgres",
        f"{path}, line 14: there is no section [client]",
        "TRIAGE_MAX_QUEUES: max_queues takes NUMBER",
        f"{path}, line 7: listen takes an address in numbers",
        "--durability: durability takes fsync",
        f"{path}, line 6: allowed_hosts takes NAME",
        f"{path}, line 12: listen_unix: cannot make a socket {tmp_path}/no/socket",
        f"{path}, line 8: tls_cert: cannot use the certificate {tmp_path}/cert",
        f"{path}, line 9: tls_key: cannot use the key {tmp_path}/key",
        f"{path}, line 10: tls_client_ca: cannot read the authorities of clients in {tmp_path}/ca",
        f"{tokens}: line 3 of the tokens file: the digest",
        f"{tokens}: line 4 of the tokens file: another token has this name",
        f"{tokens}: line 5 of the tokens file: the roles",
        f"--data: data: {tmp_path}/a is not there; create the folder",
    ]
    assert len(found) == len(expected), found
    for line, words in zip(found, expected):
        assert line.startswith(words), (line, words)


@pytest.mark.parametrize("flags, meant", [
    (["--chek"], "did you mean --check?"), (["--chek", "--shards", "2"], "did you mean --check?"),
    (["--durabilty", "os"], "did you mean --durability?"), (["--shard=2"], "did you mean --shards?"),
    (["--log_levle", "info"], "did you mean --log-level?"), (["--frobnicate"], "see triaged --help"),
])
def test_the_nearest_flag_is_named(flags, meant):
    [found] = mistakes("--engine", "memory", *flags)
    assert found.startswith(f"{flags[0].split('=')[0].replace('_', '-')}: there is no setting ")
    assert found.endswith(meant)


def test_the_nearest_setting_is_named(tmp_path):
    path = config(tmp_path, "engine = memory", "max_conections = 5")
    assert mistakes("--config", path) == [
        f'{path}, line 3: there is no setting "max_conections"; did you mean max_connections?']
    assert mistakes("--engine", "memory", "--shards", "--log-level", "info") == [
        "--shards needs a value; see triaged --help"]


def test_what_is_out_of_range_is_named_with_its_place(tmp_path):
    path = config(tmp_path, "engine = memory", "shards = 65", "listen = 127.0.0.1:0",
                  "listen = nonsense", f"tls_cert = {tmp_path}/cert")
    expected = [
        f'{path}, line 5: listen takes ADDR:PORT, as in 127.0.0.1:7420, not "nonsense"',
        f"{path}, line 6: tls_cert and tls_key go together, and tls_key is not set",
        f"{path}, line 3: shards takes 1 to 64, not 65",
        "TRIAGE_NET_THREADS: net_threads takes 0 to 64, not 65",
        "--max-connections: max_connections takes 1 to 4294967295, not 0",
    ]
    flags = ["--config", path, "--max-connections=0"]
    missing = f"{path}, line 6: tls_cert: cannot read {tmp_path}/cert: No such file or directory"
    found = mistakes(*flags, TRIAGE_NET_THREADS="65")
    assert found == expected + [missing]
    start = subprocess.run([TRIAGED, *flags], stdin=subprocess.DEVNULL, capture_output=True,
                           env={**environment(), "TRIAGE_NET_THREADS": "65"})
    assert start.returncode == 2
    assert start.stderr.decode().splitlines() == [f"triaged: {words}" for words in expected]


def test_a_value_is_told_with_the_source_that_counts(tmp_path):
    path = config(tmp_path, "engine = memory", "shards = 2")
    [found] = mistakes("--config", path, TRIAGE_SHARDS="65")
    assert found.startswith("TRIAGE_SHARDS: ")


def test_one_mistake_is_told_once(tmp_path):
    [found] = mistakes("--engine", "memory", "--listen", "example.com:80")
    assert found.startswith("--listen: listen takes an address in numbers")
    [found] = mistakes("--engine", "memory", "--listen", "0.0.0.0:80")
    assert found.startswith("--listen: on 0.0.0.0 other machines")


def test_a_start_tells_each_mistake_in_a_line_of_its_own(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("mail x produce\nread - all\n")
    server = Server(tmp_path, engine="memory", tokens_file=tokens)
    server.start_refused()
    for number, words in (1, "the digest"), (2, "the roles"):
        assert server.log.find(f'level=error .*file={tokens} reason="line {number} of the tokens '
                               f'file: {words}[^"]*" setting="[^"]*"$'), str(server.log)
    server = Server(tmp_path, engine="memory", flags=[
        "--listen-tls", "127.0.0.1:0", "--tls-cert", tmp_path / "c", "--tls-key", tmp_path / "k"])
    server.start_refused()
    for key in "cert", "key":
        assert server.log.find(f'level=error .*reason="tls_{key}: [^"]*" setting="--tls-{key}"')


@pytest.mark.parametrize("flags", [["--engine", "floppy"], ["--allowed-hosts", "https://x"],
                                   ["--shards", "0"], ["nonsense"]])
def test_a_start_ends_with_the_same_status(tmp_path, flags):
    status, said = Server(tmp_path, flags=flags).start_refused()
    assert status == 2, said
    assert len(mistakes(*flags, "--data", tmp_path / "data")) == 1


def test_a_mistake_in_a_named_file_ends_a_start_as_a_check(tmp_path):
    """systemd tries other ends again, for ever."""
    (tmp_path / "tokens").write_text("ops - king\n")
    (tmp_path / "pem").write_text("nonsense\n")
    for settings in ({"tokens_file": tmp_path / "tokens"}, {"tokens_file": tmp_path / "missing"},
                     {"tls_cert": tmp_path / "pem", "tls_key": tmp_path / "pem"}):
        status, said = Server(tmp_path, engine="memory", **settings).start_refused()
        assert status == 2, said


def test_beside_a_running_server_nothing_changes(start, tmp_path_factory):
    server = start(engine="local")
    server.queue("q").put("x")
    folder = tmp_path_factory.getbasetemp() / os.path.basename(server.folder)
    before = snapshot(folder)
    status, _, err = check("--data", server.data)
    assert status == 0 and f"{server.data} is in use by a running triaged" in err
    assert snapshot(folder) == before
    server.restart()
    assert server.queue("q").take_one()["payload"] == "x"
    server.stop()
    status, _, err = check("--data", server.data)
    assert (status, err) == (0, "")


@pytest.mark.parametrize("damage, words", [
    (lambda data: (data / "FORMAT").write_text("99\n"), "use a newer triaged"),
    (lambda data: (data / "FORMAT").write_text("x\n"), "does not hold a format number"),
    (lambda data: (data / "KEY").unlink(), "put it back"),
])
def test_a_directory_that_no_server_takes(start, damage, words, tmp_path):
    server = Server(tmp_path).start()
    server.stop()
    damage(tmp_path / "data")
    [found] = mistakes("--data", server.data)
    assert found.startswith("--data: data: ") and words in found


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "data").write_text("")
    [found] = mistakes("--data", tmp_path / "data")
    assert "is no folder" in found


def test_a_tokens_file_that_is_not_there_or_empty(tmp_path):
    [found] = mistakes("--engine", "memory", "--tokens-file", tmp_path / "tokens")
    assert str(tmp_path / "tokens") in found and "No such file" in found
    (tmp_path / "tokens").write_text("# nobody yet\n")
    [found] = mistakes("--engine", "memory", "--tokens-file", tmp_path / "tokens")
    assert "no token in it" in found


def test_certificates_are_read(tmp_path):
    authority = Authority(tmp_path)
    ours, other = authority.issue("localhost"), authority.issue("other")
    flags = ["--engine", "memory", "--listen-tls", "127.0.0.1:0"]
    status, _, err = check(*flags, "--tls-cert", ours.cert, "--tls-key", ours.key)
    assert status == 0, err
    [found] = mistakes(*flags, "--tls-cert", ours.cert, "--tls-key", other.key)
    assert other.key in found
    old = authority.issue_for_seconds("old", 0)
    status, _, err = check(*flags, "--tls-cert", old.cert, "--tls-key", old.key)
    assert status == 0 and "not valid now" in err


def test_a_database_is_not_asked(tmp_path):
    status, _, err = check("--engine", "postgres", "--postgres", "host=/nowhere dbname=x")
    assert status == 0 and "the database is not asked" in err
    [found] = mistakes("--engine", "postgres", "--postgres", "hots=x")
    assert found.startswith("--postgres: postgres: ") and "hots" in found


@pytest.mark.parametrize("flags", [
    ["--listen", "localhost:7420"], ["--auto-create", "yes"], ["--insecure", "false"],
    ["--allowed-hosts", "a b"], ["--allowed-hosts", "a:80, b"],
])
def test_other_spellings_that_are_taken(flags):
    status, _, err = check("--engine", "memory", *flags)
    assert status == 0, err
