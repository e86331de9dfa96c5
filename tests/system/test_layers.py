"""The shape of the program, as the build holds it: what a layer sees, what a program links, and that a
name means one thing in the whole tree."""

import collections
import glob
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from server import BUILD, DEADLINE, ROOT

SRC = os.path.join(ROOT, "src")

# For each layer of meson.build an include that is lawful, and some that point up or sideways.
LAYERS = {
    "base": ("base/buf.h", ["core/queue.h", "term/cli.h"]),
    "core": ("base/map.h", ["engine/engine.h", "broker/broker.h"]),
    "engine": ("core/queue.h", ["engine/local/local.h", "engine/postgres/impl.h",
                                "broker/broker.h"]),
    "local": ("engine/resident.h", ["engine/postgres/postgres.h", "broker/broker.h"]),
    "postgres": ("engine/engine.h", ["engine/local/local.h", "engine/resident.h",
                                     "broker/broker.h"]),
    "registry": ("engine/local/local.h", ["engine/local/impl.h", "engine/postgres/impl.h",
                                       "broker/broker.h"]),
    "broker": ("engine/engine.h", ["engine/local/local.h", "engine/postgres/postgres.h",
                                   "engine/resident.h", "net/server.h", "api/call.h"]),
    "net": ("base/buf.h", ["core/message.h", "broker/broker.h", "api/api.h"]),
    "documents": ("engine/engine.h", ["api/call.h", "broker/broker.h", "net/server.h"]),
    "cells": ("engine/engine.h", ["engine/local/local.h", "engine/postgres/postgres.h",
                                  "engine/resident.h", "broker/broker.h"]),
    "api": ("broker/broker.h", ["engine/local/local.h", "triaged/settings.h", "term/cli.h"]),
    "term": ("base/buf.h", ["core/message.h", "cli/client.h"]),
    "triaged": ("api/api.h", ["engine/local/local.h", "cli/client.h", "term/args.h"]),
    "cli": ("term/cli.h", ["engine/engine.h", "api/problem.h", "loadgen/loadgen.h",
                           "simulate/simulate.h"]),
    "loadgen": ("term/cli.h", ["core/message.h", "cli/client.h", "net/server.h"]),
    "simulate": ("api/config.h", ["broker/broker.h", "api/call.h", "cli/client.h",
                                  "loadgen/loadgen.h"]),
}


@pytest.fixture(scope="module")
def compilers():
    """For each layer how its sources are compiled, without the source and what is written."""
    with open(os.path.join(BUILD, "compile_commands.json")) as file:
        entries = json.load(file)
    found = {}
    for entry in entries:
        layer = re.match(r"lib(\w+)\.a\.p/src_", entry["output"])
        if layer and layer[1] not in found:
            words = shlex.split(entry["command"])
            for option in ("-o", "-c", "-MQ", "-MF"):
                at = words.index(option)
                del words[at:at + 2]
            words.remove("-MD")
            found[layer[1]] = [*words, "-fsyntax-only", "-x", "c", "-"]
    return found


def compile_include(compiler, header):
    return subprocess.run(compiler, cwd=BUILD, input=f'#include "{header}"\n', text=True,
                          capture_output=True, timeout=DEADLINE)


def test_every_layer_is_looked_at(compilers):
    assert set(compilers) == set(LAYERS)


@pytest.mark.parametrize("layer", LAYERS)
def test_an_include_that_points_up_does_not_compile(compilers, layer):
    lawful, unlawful = LAYERS[layer]
    done = compile_include(compilers[layer], lawful)
    assert done.returncode == 0, done.stderr
    for header in unlawful:
        assert os.path.exists(os.path.join(SRC, header))
        done = compile_include(compilers[layer], header)
        assert done.returncode != 0, f"{layer} sees {header}"
        assert re.search(f"{header}['\":].*(No such file|not found)", done.stderr)


def sources(pattern="*.[ch]"):
    return glob.glob(os.path.join(SRC, "**", pattern), recursive=True)


def code(path):
    """The text without its comments."""
    with open(path) as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def test_every_include_names_its_folder():
    """One that is found from the folder of its own file would get around what a layer sees."""
    wrong = [(path, header) for path in sources()
             for header in re.findall(r'#include "([^"]+)"', code(path))
             if ".." in header or not os.path.exists(os.path.join(SRC, header))]
    assert not wrong


def test_a_struct_has_its_tag_alone():
    places = collections.defaultdict(list)
    for path in sources():
        for tag in re.findall(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", code(path)):
            places[tag].append(os.path.relpath(path, SRC))
    assert len(places) > 300
    assert {tag: where for tag, where in places.items() if len(where) > 1} == {}


def test_a_function_has_its_name_alone():
    objects = glob.glob(os.path.join(BUILD, "*.p", "src_*.o"))
    out = subprocess.run(["nm", "-A", "-g", "--defined-only", *objects], capture_output=True,
                         text=True, check=True, timeout=DEADLINE).stdout
    places = collections.defaultdict(set)
    for line in out.splitlines():
        path, name = line.split(":")[0], line.split()[-1]
        places[name].add(os.path.relpath(path, BUILD))
    assert len(places) > 900
    del places["main"]
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def linked(program):
    return subprocess.run(["ldd", os.path.join(BUILD, program)], capture_output=True, text=True,
                          check=True, timeout=DEADLINE).stdout


@pytest.mark.parametrize("program", ("triage", "triage-bench", "triage-simulate"))
def test_the_server_alone_links_a_store(program):
    for library in ("librocksdb", "libpq", "libuv", "libjemalloc"):
        assert library not in linked(program)
        assert library in linked("triaged")


def test_a_program_is_found_beside_triage_or_in_the_path(tmp_path):
    alone = shutil.copy(os.path.join(BUILD, "triage"), tmp_path)
    for command in ("bench", "simulate"):
        for path, status in (("/nowhere", 1), (BUILD, 0)):
            done = subprocess.run([alone, command, "--help"], env={"PATH": path}, text=True,
                                  capture_output=True, timeout=DEADLINE)
            assert done.returncode == status
            if status == 0:
                assert done.stdout.startswith(f"usage: triage {command} ")
            else:
                assert done.stderr == (f"triage: cannot run triage-{command}, which belongs beside "
                                       "triage or in the PATH: No such file or directory\n")
