"""No arrangement can be told from `memory`: random sequences of everything the API can do have the
same answers and leave the same state. The last seed is new each time, and printed."""

import os
import random

import pytest

from arrangements import ARRANGEMENTS, Reference
from compare import explore

LENGTH = 60
SEEDS = range(1, 3001 if os.environ.get("TRIAGE_SOAK") else 21)


@pytest.fixture(scope="module")
def memory():
    reference = Reference()
    yield reference
    reference.end()


@pytest.fixture(scope="module", params=ARRANGEMENTS)
def other(request):
    arrangement = ARRANGEMENTS[request.param]()
    try:
        yield arrangement
        assert arrangement.running(), "a server died"
    finally:
        arrangement.end()


def seeds():
    if os.environ.get("TRIAGE_SEED"):
        return [int(os.environ["TRIAGE_SEED"])]
    return [*SEEDS, random.randrange(10 ** 6, 10 ** 9)]


def test_answers_and_state_are_those_of_memory(memory, other):
    tried = seeds()
    print(f"the fresh seed is {tried[-1]}")
    for seed in tried:
        found = explore(memory, other, seed, LENGTH)
        assert not found, f"seed {seed}:\n{found}"
