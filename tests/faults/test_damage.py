"""Damage to the files of a server that is down: flipped bits, cut ends, files that are gone. Every
file of the data directory is tried, whatever its name. What may follow is said by `Damage.judge`:
a refusal that names it, or an answer that is right. Wrong bytes and silent losses may not."""

import os
import random
import shutil

import pytest

from checker import Verdict, check
from experiment import Experiment, Plan, new_seed, report, short_or_long
from history import Enqueue

FRESH = 40  # enqueues after the last start, one by one: what a torn end of the log may cut


def files_below(folder):
    found = []
    for base, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(base, name), folder) for name in names]
    return sorted(found)


class Folder:
    """A data directory with something of every kind in it: in tables, in the log, hot and cold,
    leased, dead, done and kept, with dedup keys. Built once; every damage starts from a copy."""

    def __init__(self, make, tmp_path):
        self.server = make(memory_limit="64K")
        self.kept = str(tmp_path / "kept")
        self.experiment = self.new_experiment()
        self.server.start()
        self.live()
        self.server.kill()
        shutil.copytree(self.server.data, self.kept)
        self.files = files_below(self.kept)

    def new_experiment(self):
        plans = {"d": Plan(max_attempts=2, history_seconds=3600)}
        return Experiment(self.server, "damage", plans=plans, worker_count=0)

    def live(self):
        self.experiment.configure()
        client = self.experiment.client()
        client.put_all("d", [(f"old{n}", n % 10, "o" * 2000, {}) for n in range(150)])
        client.put("d", "key", 3, dedup_key="k")
        client.ack_all("d", client.claim("d", max=20).deliveries)
        for _ in range(2):
            for delivery in client.claim("d", max=3).deliveries:
                client.settle("d", "nack", delivery, reason="bad luck")
        client.close()
        for turn in range(2):  # into the tables, and a second one of each
            self.server.stop()
            self.server.start()
            client = self.experiment.client()
            client.put_all("d", [(f"mid{turn}-{n}", n % 10, "m" * 500, {}) for n in range(50)])
            client.close()
        self.server.stop()
        self.server.start()
        client = self.experiment.client()
        for n in range(FRESH):
            client.put("d", f"new{n}", n % 10, "n" * 100)
        client.close()

    def put_back(self):
        self.server.end()
        shutil.rmtree(self.server.data)
        shutil.copytree(self.kept, self.server.data)
        experiment = self.new_experiment()
        experiment.history.log = list(self.experiment.history.log)
        return experiment


class Damage:
    def __init__(self, folder, what):
        self.folder, self.server, self.what = folder, folder.server, what
        self.total, self.tried = Verdict(), 0
        self.refused = self.intact = self.cut = 0

    def judge(self, experiment, name, detail, cut_allowed):
        self.tried += 1
        where = f"{self.what} of {name} {detail}"
        if not self.server.comes_up():
            status = self.server.wait()
            assert status > 0, f"{where}: exit status {status}:\n{self.server.log}"
            self.named(name, where)
            return
        try:
            for queue in experiment.plans:
                experiment.drain(queue)
        except (ConnectionError, TimeoutError):
            status = self.server.wait()
            assert status > 0, f"{where}: exit status {status}:\n{self.server.log}"
            self.named(name, where)
            return
        verdict = check(experiment.history)
        lost = {enqueue.key for enqueue in verdict.wrongs["lost"]}
        if lost and self.is_an_end(lost, cut_allowed):
            self.cut += 1
            experiment.history.log = [record for record in experiment.history.log
                                      if not isinstance(record, Enqueue) or record.key not in lost]
            verdict = check(experiment.history)
        else:
            self.intact += 1
        self.total.add(verdict)
        assert verdict.clean, f"{where}: {verdict}\n{self.server.log}"

    @staticmethod
    def is_an_end(lost, cut_allowed):
        """The last enqueues before the death, without a gap."""
        return len(lost) <= cut_allowed and \
            lost == {f"new{n}" for n in range(FRESH - len(lost), FRESH)}

    def named(self, name, where):
        said = str(self.server.log)
        assert os.path.basename(name) in said or self.server.data in said, f"{where}:\n{said}"
        self.refused += 1

    def close(self):
        print(f"  {self.refused} refused by name, {self.intact} harmless, {self.cut} cut the end")
        report(self.what, self.tried, self.total)


@pytest.fixture
def folder(make, tmp_path):
    return Folder(make, tmp_path)


def path_of(folder, name):
    return os.path.join(folder.server.data, name)


class Spots:
    """Places in a file, mostly such where something is: much of the log is zeros."""

    def __init__(self, path, chance):
        with open(path, "rb") as file:
            whole = file.read()
        self.size = len(whole)
        self.written = [at for at, byte in enumerate(whole) if byte]
        self.chance = chance

    def choose(self, count):
        for _ in range(min(self.size, count)):
            anywhere = not self.written or self.chance.random() < 0.2
            yield self.chance.randrange(self.size) if anywhere else self.chance.choice(self.written)


def test_flipped_bits_are_found_and_named(folder):
    """Only in the very last record can a flip be taken for a write that was torn by the death."""
    chance = random.Random(new_seed())
    damage = Damage(folder, "flipped bit")
    for name in folder.files:
        spots = Spots(os.path.join(folder.kept, name), chance)
        for at in spots.choose(short_or_long(5, 400)):
            experiment = folder.put_back()
            bit = 1 << chance.randrange(8)
            with open(path_of(folder, name), "r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ bit]))
            damage.judge(experiment, name, f"at {at} of {spots.size}, bit {bit}", cut_allowed=1)
    damage.close()
    assert damage.refused > 0


def test_cut_files_are_found_or_lose_the_end_alone(folder):
    chance = random.Random(new_seed())
    damage = Damage(folder, "cut file")
    for name in folder.files:
        spots = Spots(os.path.join(folder.kept, name), chance)
        for left in spots.choose(short_or_long(3, 200)):
            experiment = folder.put_back()
            os.truncate(path_of(folder, name), left)
            damage.judge(experiment, name, f"to {left} of {spots.size}", cut_allowed=FRESH)
    damage.close()


def test_torn_ends_are_cut_off(folder):
    """Bytes behind the end that nobody finished writing: zeros, noise, the start of a record."""
    chance = random.Random(new_seed())
    damage = Damage(folder, "torn end")
    for name in folder.files:
        with open(os.path.join(folder.kept, name), "rb") as file:
            whole = file.read()
        for tail in (bytes(100), chance.randbytes(100), whole[:40])[:short_or_long(2, 3)]:
            experiment = folder.put_back()
            with open(path_of(folder, name), "ab") as file:
                file.write(tail)
            damage.judge(experiment, name, f"plus {tail[:8].hex()}…", cut_allowed=1)
    damage.close()


def test_missing_files_are_named_or_not_needed(folder):
    """The newest file of the log is as good as one that was cut at its start."""
    damage = Damage(folder, "missing file")
    for name in folder.files:
        experiment = folder.put_back()
        os.unlink(path_of(folder, name))
        damage.judge(experiment, name, "", cut_allowed=FRESH)
    damage.close()
