"""A server with the shim in it that lives the life of script.py again and again, each time with
another thing going wrong."""

import os
import shutil
import subprocess
from collections import Counter

import script
from checker import Verdict, check
from experiment import SOAK, report
from history import Rules
from shim import Shim


class Scene:
    """A server with the shim in it, on a folder that each take finds fresh."""

    def __init__(self, make, fault, data=None, power=""):
        self.fault = fault
        self.server = make(data=data, **script.SETTINGS)
        self.shim = Shim(self.server, power)
        self.total = Verdict()
        self.tried = 0
        self.calls = Counter()
        self.failures = []  # told in the end, so that every take is tried

    def fresh(self):
        self.server.end()
        shutil.rmtree(self.server.data, ignore_errors=True)
        subprocess.run(["sync", "-f", os.path.dirname(self.server.data)], check=True)
        return script.new_experiment(self.server, self.fault)

    def play(self, experiment, started=lambda: None):
        """Starts the server and lives; wherever it ends. Returns whether it came to the end."""
        if not self.server.comes_up():
            return False
        started()
        try:
            experiment.configure()
            client = experiment.client()
        except (ConnectionError, TimeoutError, AssertionError):
            return False
        done = script.life(client)
        client.close()
        return done

    def count_calls(self):
        """How many there are from the first start to the end of the script."""
        experiment = self.fresh()
        self.shim.arm(0, 0)
        assert self.play(experiment)
        return self.shim.get("calls")

    def judge(self, experiment, what):
        """After whatever happened: start again, take everything out, account for it."""
        self.calls[self.shim.last] += 1
        self.tried += 1
        self.shim.disarm()
        self.server.end()
        if not self.server.comes_up():
            self.failures.append(f"{what}: {self.server.log}")
            return
        if not experiment.history.of(Rules):  # it died before there was a queue
            experiment.configure()
        for name in experiment.plans:
            experiment.drain(name)
        verdict = check(experiment.history)
        self.total.add(verdict)
        if not verdict.clean:
            path = os.path.join(self.server.folder, f"history-{self.tried}")
            experiment.history.save(path)
            self.failures.append(f"{what} (history in {path}): {verdict}")

    def close(self):
        report(self.fault, self.tried, self.total)
        print("  by call:", {call: count for call, count in self.calls.items() if call})
        self.server.end()
        assert not self.failures, f"{self.fault}: {len(self.failures)} of {self.tried} takes\n" \
            + "\n".join(self.failures[:5])


def boundaries(count, wanted):
    """All of them in the long run, else some of each part."""
    if SOAK or count <= wanted:
        return range(1, count + 1)
    step = count / wanted
    return sorted({int(1 + number * step) for number in range(wanted)})
