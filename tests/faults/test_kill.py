"""Promise 1 under kill -9: deaths in the middle of load and in the middle of recovery, and nothing
acknowledged is lost, nothing comes from nowhere, nothing comes back from the dead and nobody shares
a lease. And what a server does that is stopped for a while instead."""

import signal
import threading

from experiment import Experiment, short_or_long


def test_without_a_fault_nothing_is_wrong(start, arrangement):
    """The yardstick: what the checker says of a server to which nothing happens."""
    name, options = arrangement
    experiment = Experiment(start(**options), f"none ({name})")
    experiment.configure()
    experiment.begin()
    experiment.work(short_or_long(3, 60))
    experiment.end_load(at_least=1000)
    assert experiment.conclude().acknowledged >= 1000


def test_a_backlog_is_served_by_the_rules(start, engine):
    """Every level is full, and several consumers take one at a time: strict order, or shares by
    weight where the queue has them."""
    experiment = Experiment(start(engine=engine), f"none, backlog ({engine})", worker_count=0)
    experiment.configure()
    client = experiment.client()
    for name, plan in experiment.plans.items():
        levels = len(plan.names)
        client.put_all(name, [(f"{name}-{n}", n % levels, "", {}) for n in range(100 * levels)])
    client.close()

    def consume():
        consumer = experiment.client()
        for name in experiment.plans:
            while (claim := consumer.claim(name)).deliveries:
                consumer.ack_all(name, claim.deliveries)
        consumer.close()

    experiment.begin()  # no workers: somebody who asks for the numbers
    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    experiment.end_load()
    assert experiment.conclude().finished == 2400


def test_nothing_acknowledged_is_lost_by_kill_nine(start):
    rounds = short_or_long(2, 40)  # a fresh history each, so that judging it stays quick
    kinds = ({}, {"memory_limit": "64K"}, {"shards": 2})
    for number in range(rounds):
        experiment = Experiment(start(**kinds[number % len(kinds)]), "kill -9 under load")
        experiment.configure()
        for _ in range(25):
            experiment.begin()
            experiment.work(experiment.random.uniform(0.05, 0.35))
            experiment.server.kill()
            experiment.join()
            experiment.restart()
            experiment.tried += 1
        assert experiment.conclude().acknowledged > 25
        experiment.server.end()


def test_a_kill_in_the_middle_of_recovery_loses_nothing(make):
    """Killed at random while it starts, up to five times in a row, before it may come up."""
    server = make()
    experiment = Experiment(server.start(), "kill -9 during recovery")
    experiment.configure()
    for _ in range(short_or_long(4, 100)):
        experiment.begin()
        experiment.work(experiment.random.uniform(0.1, 0.3))
        server.kill()
        experiment.join()
        for _ in range(experiment.random.randint(1, 5)):
            server.spawn()
            experiment.work(experiment.random.uniform(0.001, 0.05))
            server.kill()
            experiment.tried += 1
        experiment.restart()
    assert experiment.conclude().acknowledged > 10


def test_a_server_that_is_stopped_for_a_while_gives_no_lease_twice(start, engine):
    """Leases run on while it is stopped: who comes late is refused, all others are served."""
    experiment = Experiment(start(engine=engine), f"SIGSTOP ({engine})")
    experiment.configure()
    experiment.begin()
    for _ in range(short_or_long(3, 50)):
        experiment.work(experiment.random.uniform(0.05, 0.3))
        experiment.mark("stopped")
        experiment.server.process.send_signal(signal.SIGSTOP)
        experiment.work(experiment.random.choice((0.1, 0.5, 1.2, 2.5)))
        experiment.server.process.send_signal(signal.SIGCONT)
        experiment.mark("resumed")
        experiment.tried += 1
    experiment.end_load()
    assert experiment.conclude().acknowledged > 10


def test_sigterm_under_load_keeps_what_was_answered(start):
    experiment = Experiment(start(), "SIGTERM under load")
    experiment.configure()
    for _ in range(short_or_long(3, 100)):
        experiment.begin()
        experiment.work(experiment.random.uniform(0.05, 0.3))
        experiment.server.stop()
        experiment.join()
        experiment.restart()
        experiment.tried += 1
    experiment.conclude()
