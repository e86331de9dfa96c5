"""Runs a sequence on `memory` and on another arrangement, compares every answer and the final
state, and cuts a sequence that tells them apart down to the shortest that still does.

    tests/differential/compare.py ARRANGEMENT [--seeds 1-3000] [--length 60]

Prints each difference as curl lines, with both answers. A server that dies is a difference, too. The
exit status is 1 when there was one.

SIGTERM ends it as an error would: the count is printed, and servers and PostgreSQL end."""

import argparse
import itertools
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

from arrangements import ARRANGEMENTS, Died, Reference  # noqa: E402
from steps import sequence  # noqa: E402
from world import World  # noqa: E402

numbers = itertools.count(1)


class Difference:
    def __init__(self, steps, at, expected, found, lines):
        self.steps = steps
        self.at = at  # of the step, or len(steps) for the final state
        self.expected = expected
        self.found = found
        self.lines = lines

    def __str__(self):
        return "\n".join([self.lines, f"# memory: {json.dumps(self.expected)}",
                          f"# here:   {json.dumps(self.found)}"])


def outcomes(arrangement, steps, queue):
    """Yields (answer, world) of each step, and of the final state. When a server has died that is the
    last answer, and the arrangement begins anew."""
    world = World(arrangement, queue)
    try:
        for step in steps:
            yield world.run(step), world
        state = world.final_state()
        arrangement.check()
        yield state, world
    except Died as death:
        arrangement.renew()
        yield death.outcome, world


def first_unlike(expected, found):
    """Of two lists of answers the first that differ; of others they themselves."""
    if isinstance(expected, list) and isinstance(found, list):
        for left, right in zip(expected, found):
            if left != right and isinstance(left, list):
                return left, right
    return expected, found


def leave_out_estimates(expected, found):
    """A position far back is an estimate, and how far back is for each engine to say."""
    if isinstance(expected, list) and isinstance(found, list):
        for left, right in zip(expected, found):
            leave_out_estimates(left, right)
    elif isinstance(expected, dict) and isinstance(found, dict):
        if False in (expected.get("exact"), found.get("exact")):
            for document in (expected, found):
                document["exact"] = document["messages_ahead"] = None


def compare(memory, other, steps):
    """The first difference, or None. Each run has a queue of its own."""
    queue = f"d{os.getpid()}.{next(numbers)}"
    pairs = zip(outcomes(memory, steps, queue), outcomes(other, steps, queue))
    for at, ((expected, _), (found, world)) in enumerate(pairs):
        leave_out_estimates(expected, found)
        if expected != found:
            expected, found = first_unlike(expected, found)
            return Difference(steps, at, expected, found, world.written_down())
    return None


def shrink(memory, other, difference):
    """Leaves out ever smaller pieces, as long as some difference is left."""
    steps = difference.steps[:difference.at + 1]
    size = max(1, len(steps) // 2)
    while size:
        at = 0
        while at < len(steps):
            shorter = steps[:at] + steps[at + size:]
            found = compare(memory, other, shorter)
            if found:
                difference, steps = found, shorter[:found.at + 1]
            else:
                at += size
        size = size // 2
    return difference


def explore(memory, other, seed, length):
    found = compare(memory, other, sequence(seed, length))
    return shrink(memory, other, found) if found else None


def end_by_signal(number, _):
    sys.exit(128 + number)


def explore_all(memory, other, name, seeds, length, done):
    for seed in seeds:
        found = explore(memory, other, seed, length)
        done.append(bool(found))
        if found:
            print(f"\n# seed {seed}: {name} differs\n{found}", flush=True)
        if sys.stderr.isatty() or len(done) % 100 == 0:
            print(f"\r{len(done)} sequences, {sum(done)} differences",
                  end="" if sys.stderr.isatty() else "\n", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arrangement", choices=ARRANGEMENTS)
    parser.add_argument("--seeds", default="1-100")
    parser.add_argument("--length", type=int, default=60)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    signal.signal(signal.SIGTERM, end_by_signal)
    done, started = [], []  # whether each sequence has a difference
    try:
        for make in (Reference, ARRANGEMENTS[options.arrangement]):
            started.append(make())
        explore_all(*started, options.arrangement, seeds, options.length, done)
    finally:
        print(f"{options.arrangement}: {len(done)} sequences, {sum(done)} with a difference",
              flush=True)
        for each in started:
            each.end()
    sys.exit(1 if any(done) else 0)


if __name__ == "__main__":
    main()
