"""The long forms of tests/system: a thousand deaths under load, ten thousand who wait."""

import os
import subprocess
import sys

import pytest

SYSTEM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system")


@pytest.mark.parametrize("file", ["test_crash.py", "test_waiting.py"])
def test_the_long_form_of(file):
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider",
               os.path.join(SYSTEM, file)]
    done = subprocess.run(command, env={**os.environ, "TRIAGE_SOAK": "1"}, stdin=subprocess.DEVNULL)
    assert done.returncode == 0
