"""Allocations that fail. A small one that does ends the server with a line that says so; it is
built for being started again, not for going on with half a change. So what is checked is what a
restart finds, and that nothing that was answered is missing."""

import resource

import pytest

from experiment import short_or_long
from scene import Scene


def test_the_nth_allocation_fails(make):
    """Spread over start and life: whichever it is, what was answered is there afterwards."""
    scene = Scene(make, "failing allocation")
    scene.count_calls()
    count = scene.shim.get("allocations")
    if count == 0:
        pytest.skip("not done: this build has an allocator of its own")
    assert count > 1000
    tries = short_or_long(15, 1000)
    for number in range(tries):
        experiment = scene.fresh()
        scene.shim.set(allocations=0, fired=0, fail_allocation=1 + number * count // tries)
        scene.play(experiment)
        scene.shim.set(fail_allocation=0)
        if scene.server.running():
            scene.server.kill()
        scene.judge(experiment, f"allocation {number} of {tries}")
    scene.close()


def test_a_server_that_may_not_grow(make):
    """With an address space that ends a little above what it has after its start."""
    scene = Scene(make, "address space limit")
    for number in range(short_or_long(5, 100)):
        experiment = scene.fresh()
        room = (number * 300 % 8000) << 10
        scene.play(experiment, lambda: limit_growth(scene.server.process.pid, room))
        if scene.server.running():
            scene.server.kill()
        scene.judge(experiment, f"{room} bytes above")
    scene.close()


def limit_growth(pid, room):
    with open(f"/proc/{pid}/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    if size > 1 << 40:
        pytest.skip("not done: the address sanitizer has taken the whole address space")
    resource.prlimit(pid, resource.RLIMIT_AS, (size + room, size + room))
