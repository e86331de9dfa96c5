"""Death before and after every call that changes a file, of a scripted life and of the recovery
from it; and the same calls failing instead. Windows of microseconds that a random kill misses."""

import errno
import os
import re
import shutil
from collections import Counter

import pytest

import script
from frames import make_format_two
from scene import Scene, boundaries
from shim import ALL, FAIL, HALF, KILL_AFTER, KILL_BEFORE, SYNC, WRITE

DEATHS = {"before": KILL_BEFORE, "after": KILL_AFTER}


@pytest.mark.parametrize("moment", DEATHS)
def test_death_at_every_call_of_a_life(make, moment):
    scene = Scene(make, f"kill {moment} each file call")
    count = scene.count_calls()
    assert count > 100, "the script is too short, or the shim sees nothing"
    for number in boundaries(count, 12):
        experiment = scene.fresh()
        scene.shim.arm(DEATHS[moment], number)
        scene.play(experiment)
        scene.judge(experiment, f"call {number} of {count} ({scene.shim.last})")
    scene.close()


@pytest.mark.parametrize("what, prepare", [("recovery", lambda folder: None),
                                           ("a takeover", make_format_two)],
                         ids=["recovery", "takeover"])
@pytest.mark.parametrize("moment", DEATHS)
def test_death_at_every_call_of_a_recovery(make, moment, what, prepare, tmp_path):
    """From a folder that a death in the middle left; then also the recovery dies. A folder of the
    format before is sealed in the same go, and has its new number last of all."""
    scene = Scene(make, f"kill {moment} each file call of {what}")
    count = scene.count_calls()
    first = scene.fresh()
    scene.shim.arm(KILL_AFTER, int(count * 0.8))
    scene.play(first)
    scene.server.wait()
    kept = tmp_path / "kept"
    shutil.copytree(scene.server.data, kept)
    prepare(kept)

    def put_back():
        scene.server.end()
        shutil.rmtree(scene.server.data)
        shutil.copytree(kept, scene.server.data)
        experiment = script.new_experiment(scene.server, scene.fault)
        experiment.history.log = list(first.history.log)
        return experiment

    put_back()
    scene.shim.arm(0, 0)
    scene.server.start()
    count = scene.shim.get("calls")
    for number in boundaries(count, 6):
        experiment = put_back()
        scene.shim.arm(DEATHS[moment], number)
        scene.server.comes_up()
        scene.judge(experiment, f"call {number} of {count} ({scene.shim.last})")
    scene.close()


@pytest.mark.parametrize("kind, error", [(SYNC, errno.EIO), (WRITE, errno.EIO),
                                         (WRITE, errno.ENOSPC), (ALL, errno.EIO)])
def test_a_call_that_fails_is_never_a_success(make, kind, error):
    """Whatever fails: what was answered is there. A failed sync ends the server; it does not go
    on, and does not try again. With `every`, all that follow fail too."""
    names = {SYNC: "sync", WRITE: "write", ALL: "file call"}
    scene = Scene(make, f"failing {names[kind]} ({errno.errorcode[error]})")
    scene.fresh()
    scene.server.start()
    scene.shim.arm(0, 0, kinds=kind)
    experiment = scene.fresh()
    assert scene.play(experiment)
    count = scene.shim.get("calls")
    for number in boundaries(count, 8):
        experiment = scene.fresh()
        scene.shim.arm(FAIL, number, kinds=kind, every=number % 2 == 0, error=error)
        done = scene.play(experiment)
        if scene.shim.get("fired") and kind == SYNC and scene.shim.last == "fdatasync" and done:
            assert scene.server.wait() != 0, f"it went on after a failed sync:\n{scene.server.log}"
        scene.judge(experiment, f"call {number} of {count} ({scene.shim.last})")
    scene.close()


def test_short_writes_are_completed(make):
    """Every write does half of its work, as a kernel may: nobody notices."""
    scene = Scene(make, "short writes")
    experiment = scene.fresh()
    scene.shim.arm(HALF, 1, kinds=WRITE, every=True)
    assert scene.play(experiment), str(scene.server.log)
    scene.server.kill()
    assert scene.shim.get("fired") > 50
    scene.judge(experiment, "every write")
    scene.close()


def test_the_name_of_a_new_data_directory_is_synced(make, tmp_path):
    """ext4 syncs it along with the first file in it, so that no power loss there would show this."""
    server = make()
    trace = tmp_path / "trace"
    command = server.command
    server.command = lambda: ["strace", "-D", "-f", "-y", "-o", str(trace),
                              "-e", "trace=mkdir,fsync,rename", "-e", "signal=none", *command()]
    if not server.comes_up():
        assert re.search("ptrace|PTRACE|Operation not permitted", str(server.log)), str(server.log)
        pytest.skip("strace may not trace here")
    server.end()
    lines = trace.read_text(errors="replace").splitlines()

    def first(pattern):
        return next(at for at, line in enumerate(lines) if re.search(pattern, line))

    made = first(rf'mkdir\("{re.escape(server.data)}"')
    named = first(rf"fsync\(\d+<{re.escape(os.path.dirname(server.data))}>")
    assert made < named < first(rf'rename\("{re.escape(server.data)}/FORMAT.new"')


CHANGES = "write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,sync_file_range,ftruncate," \
          "truncate,fallocate,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,link," \
          "linkat,sendfile,copy_file_range,splice,io_uring_enter"


def test_no_call_escapes_the_shim(make, tmp_path):
    """strace sees what the kernel is asked for; the shim, which also counts the opens that make a
    file, has to have counted as much."""
    scene = Scene(make, "none (strace)")
    scene.fresh()
    trace = tmp_path / "trace"
    command = scene.server.command
    env, scene.server.env = scene.server.env, {"FAULT_PAGE": scene.shim.path}
    scene.server.command = lambda: ["strace", "-D", "-f", "-y", "-o", str(trace), "-E",
                                    "LD_PRELOAD=" + env["LD_PRELOAD"], "-e", "trace=" + CHANGES,
                                    "-e", "signal=none", *command()]
    scene.shim.arm(0, 0)
    try:
        done = scene.play(script.new_experiment(scene.server, scene.fault))
    finally:
        scene.server.command, scene.server.env = command, env
    if not done and re.search("ptrace|PTRACE|Operation not permitted", str(scene.server.log)):
        pytest.skip("strace may not trace here")
    assert done, str(scene.server.log)
    counted = scene.shim.get("calls")
    scene.server.end()  # and with it strace, whose last line is the end of the log
    lines = [line for line in trace.read_text(errors="replace").splitlines()
             if scene.server.data in line and "resumed>" not in line]
    assert len(lines) > 100
    assert counted + 2 >= len(lines), Counter(re.search(r"(\w+)\(", line)[1] for line in lines)
