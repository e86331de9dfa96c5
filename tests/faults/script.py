"""A short life of a queue, the same each time: every verb, every kind of record, enough bytes that
files are rotated, flushed and dropped, and lines that are longer than the memory they may use."""

from experiment import Experiment, Plan

LEASE = 0.4  # seconds; what a death leaves leased is waited for
SETTINGS = {"memory_limit": "64K"}


def plans():
    return {"s": Plan(leases=(LEASE,), max_attempts=2, history_seconds=60)}


def life(client):
    """Goes on until the server is gone, or to the end."""
    try:
        for turn in range(3):
            one_turn(client, turn)
    except (ConnectionError, TimeoutError):
        return False
    return True


def one_turn(client, turn):
    def key(name):
        return f"{turn}{name}"

    for number in range(4):
        client.put("s", key(f"a{number}"), number, "x" * 1000)
    client.count("s")
    client.put_all("s", [(key(f"b{number}"), number % 3, "y" * 4000, {}) for number in range(20)])
    client.put_all("s", [(key(f"c{number}"), 9, "z" * 100_000, {}) for number in range(10)])
    client.put("s", key("d1"), 5, dedup_key=key("d"))
    client.put("s", key("d2"), 5, dedup_key=key("d"))
    client.put("s", key("t"), 5, ttl_seconds=3600)
    client.put("s", key("later"), 0, delay_seconds=0.3)
    big = client.put("s", key("big"), 9, "z" * 200_000)
    taken = client.claim("s", max=8, lease=LEASE).deliveries
    client.count("s")
    verbs = [("nack", {}), ("nack", {"delay_seconds": 0.1}), ("release", {}),
             ("extend", {"visibility_timeout_seconds": LEASE})]
    for delivery, (verb, fields) in zip(taken, verbs):
        client.settle("s", verb, delivery, **fields)
    for delivery in taken[3:6]:
        client.ack("s", delivery)
    client.ack_all("s", taken[6:])
    client.ack("s", taken[0]) if taken else None
    client.cancel("s", key("big"), big.id)
    client.count("s")
    for _ in range(2):  # the second failure of a message is its last
        for delivery in client.claim("s", max=2, lease=LEASE).deliveries:
            client.settle("s", "nack", delivery)
    client.claim("s", max=3, lease=LEASE)
    client.count("s")
    client.ack_all("s", client.claim("s", max=10, lease=LEASE).deliveries)


def new_experiment(server, fault):
    return Experiment(server, fault, plans=plans(), worker_count=0)
