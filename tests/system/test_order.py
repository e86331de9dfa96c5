"""Promise 4: the most urgent level first, and within a level first in, first out."""

import random
import threading
import time
from collections import Counter

import pytest

from wire import AT_ONCE, Queue, until


def shuffled_levels(each, seed=7):
    """Messages of all ten levels in random order; the payload says level and number in it."""
    levels = [level for level in range(10) for _ in range(each)]
    random.Random(seed).shuffle(levels)
    counts = Counter()
    messages = []
    for level in levels:
        messages.append({"payload": f"{level}:{counts[level]:05d}", "priority": level})
        counts[level] += 1
    return messages


def in_order(messages):
    """9 to 0, and by number within each."""
    return sorted((m["payload"] for m in messages), key=lambda p: (-int(p[0]), p))


@pytest.mark.parametrize("claim_max", [1, 7, 100])
def test_ten_levels_come_out_from_nine_to_zero_and_in_order_within_each(queue, claim_max):
    messages = shuffled_levels(each=30)
    for message in messages[:100]:
        queue.put(message["payload"], priority=message["priority"])
    queue.put_all(messages[100:])
    claimed = []
    while batch := queue.take(max=claim_max):
        claimed += [message["payload"] for message in batch]
    assert claimed == in_order(messages)


@pytest.mark.parametrize("claim_max", [1, 5])
def test_fifty_consumers_at_once_each_see_the_order_and_share_everything(server, queue, claim_max):
    messages = shuffled_levels(each=100)
    queue.put_all(messages)
    claimed = [[] for _ in range(50)]
    together = threading.Barrier(50)

    def consume(mine):
        own = Queue(server.client(), queue.name)
        together.wait()
        while batch := own.take(max=claim_max):
            mine.extend(batch)
        own.client.close()

    threads = [threading.Thread(target=consume, args=(mine,)) for mine in claimed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    place = {payload: at for at, payload in enumerate(in_order(messages))}
    for mine in claimed:
        places = [place[message["payload"]] for message in mine]
        assert places == sorted(places)
    everything = Counter(m["payload"] for mine in claimed for m in mine)
    assert everything == Counter(m["payload"] for m in messages)
    assert all(m["attempt"] == 1 for mine in claimed for m in mine)


def test_the_most_urgent_of_a_hundred_thousand_is_the_very_next_claim(queue):
    backlog = [{"payload": "x", "priority": n % 9} for n in range(100_000)]
    queue.put_all(backlog)
    assert queue.take_one()["priority"] == 8
    queue.put("urgent", priority=9)
    assert queue.take_one()["payload"] == "urgent"
    assert queue.take_one()["priority"] == 8
    stats = queue.stats()
    assert stats["ready"] == 99_998 and stats["in_flight"] == 3
    assert queue.client.delete(queue.path, force=True).status == 204


def test_what_comes_back_keeps_its_place(queue):
    queue.configure(max_attempts=10, retry=AT_ONCE)
    queue.put_all([{"payload": letter} for letter in "abc"])
    first = queue.take_one()
    assert queue.nack(first).status == 200
    second = queue.take_one()
    assert (second["payload"], second["attempt"]) == ("a", 2)
    assert queue.release(second).status == 200
    assert queue.take_payloads(3) == ["a", "b", "c"]


def test_what_comes_back_from_an_expired_lease_keeps_its_place_and_level(queue):
    queue.configure(max_attempts=10, retry=AT_ONCE)
    queue.put("urgent", priority=9)
    queue.put_all([{"payload": "later", "priority": 9}, {"payload": "low", "priority": 1}])
    assert queue.take_one(visibility_timeout_seconds=0)["payload"] == "urgent"
    until(lambda: queue.stats()["ready"] >= 3)
    message = queue.take_one()
    assert (message["payload"], message["priority"], message["attempt"]) == ("urgent", 9, 2)


def test_a_delayed_message_stands_where_it_became_ready(queue):
    queue.put("delayed", delay_seconds=0.3)
    queue.put("first")
    assert queue.take_one()["payload"] == "first"
    delayed = queue.take_one(wait_seconds=20)
    assert delayed["payload"] == "delayed"


def test_a_timeline_is_ordered_by_dequeue_at_however_long_past(queue):
    queue.configure(profile="timeline")
    now_ms = int(time.time() * 1000)
    times = {"yesterday": now_ms - 86_400_000, "epoch": 0, "negative": -5_000,
             "long ago": -10_000_000_000, "a second ago": now_ms - 1000,
             "in a day": now_ms + 86_400_000}
    for payload, at in times.items():
        queue.put(payload, dequeue_at=at)
    queue.put("now")
    assert queue.take_payloads(6) == \
        ["long ago", "negative", "epoch", "yesterday", "a second ago", "now"]
    assert queue.take() == []
    assert queue.stats()["scheduled"] == 1


def test_equal_times_of_a_timeline_stay_in_order_of_arrival(queue):
    queue.configure(profile="timeline")
    queue.put_all([{"payload": str(n), "dequeue_at": -7} for n in range(50)])
    assert queue.take_payloads(50) == [str(n) for n in range(50)]


def test_min_priority_serves_that_level_and_more_urgent_ones(queue):
    queue.put_all([{"payload": str(n), "priority": n} for n in range(10)])
    assert [m["payload"] for m in queue.take(max=100, min_priority=7)] == ["9", "8", "7"]
    assert queue.take(max=100, min_priority=7) == []
    assert [m["payload"] for m in queue.take(max=2)] == ["6", "5"]
    assert [m["payload"] for m in queue.take(max=100, min_priority="0")] == list("43210")


def test_min_priority_counts_by_urgency_where_zero_is_the_most_urgent(queue):
    queue.configure(profile="tiers", policy="strict")
    queue.put_all([{"payload": name, "priority": name}
                   for name in ("BACKGROUND", "NORMAL", "CRITICAL", "HIGH")])
    taken = queue.take(max=100, min_priority="NORMAL")
    assert [m["payload"] for m in taken] == ["CRITICAL", "HIGH", "NORMAL"]


def test_levels_of_ones_own_are_served_most_urgent_first(queue):
    queue.configure(levels=[{"name": "now", "number": 3}, {"name": "soon", "number": 700},
                            {"name": "later"}], default_priority="later")
    queue.put("default")
    queue.put("by number", priority=700)
    queue.put("by name", priority="now")
    taken = queue.take(max=3)
    assert [m["payload"] for m in taken] == ["by name", "by number", "default"]
    assert [m["level"] for m in taken] == ["now", "soon", "later"]
    assert [m["priority"] for m in taken] == [3, 700, "later"]


def test_levels_can_be_reordered_while_messages_wait(queue):
    queue.configure(levels=[{"name": "red"}, {"name": "blue"}], default_priority="blue")
    queue.put("r", priority="red")
    queue.put("b", priority="blue")
    queue.configure(levels=[{"name": "green"}, {"name": "blue"}, {"name": "red"}])
    queue.put("g", priority="green")
    assert queue.take_payloads(3) == ["g", "b", "r"]
