"""The checker of the crash test has to catch what it is there for, and nothing else."""

from history import OK, REFUSED, UNKNOWN, History, check


def a_history(*keys):
    history = History()
    for key in keys:
        history.enqueue(key, OK)
    return history


def deliver(history, key, attempt=1, at=0.0, lease=10.0):
    return history.deliver(key, attempt, f"rh_{key}_{attempt}", lease, at, at + 0.01)


def use(delivery, verb, at, outcome=OK, lease=0.0):
    History.use(delivery, verb, outcome, at, at + 0.01, lease)


def test_a_message_that_is_enqueued_delivered_and_acked_is_fine():
    history = a_history("a")
    use(deliver(history, "a"), "ack", at=1)
    verdict = check(history)
    assert verdict.clean and verdict.finished == 1


def test_a_lost_message_is_caught():
    history = a_history("a", "b")
    use(deliver(history, "a"), "ack", at=1)
    assert check(history).lost == ["b"]


def test_a_message_that_was_delivered_but_never_finished_is_lost_too():
    history = a_history("a")
    deliver(history, "a")
    assert check(history).lost == ["a"]


def test_a_dead_letter_is_not_lost():
    history = a_history("a")
    history.leave("a")
    assert check(history).clean


def test_an_enqueue_of_unknown_outcome_may_be_there_or_not():
    history = History()
    history.enqueue("a", UNKNOWN)
    history.enqueue("b", UNKNOWN)
    use(deliver(history, "a"), "ack", at=1)
    verdict = check(history)
    assert verdict.clean and (verdict.unknown, verdict.recovered) == (2, 1)


def test_an_unexpected_message_is_caught():
    history = a_history("a")
    use(deliver(history, "a"), "ack", at=1)
    use(deliver(history, "ghost"), "ack", at=1)
    assert check(history).unexpected == ["ghost"]


def test_a_refused_enqueue_must_not_be_delivered():
    history = History()
    history.enqueue("a", REFUSED)
    use(deliver(history, "a"), "ack", at=1)
    assert check(history).unexpected == ["a"]


def test_a_resurrected_message_is_caught():
    history = a_history("a")
    use(deliver(history, "a"), "ack", at=1)
    deliver(history, "a", attempt=2, at=20)
    assert len(check(history).resurrected) == 1


def test_an_ack_of_unknown_outcome_explains_a_redelivery_and_an_absence():
    history = a_history("a", "b")
    use(deliver(history, "a"), "ack", at=1, outcome=UNKNOWN)
    use(deliver(history, "a", attempt=2, at=20), "ack", at=21)
    use(deliver(history, "b"), "ack", at=1, outcome=UNKNOWN)
    assert check(history).clean


def test_a_doubly_leased_message_is_caught():
    history = a_history("a")
    deliver(history, "a", at=0, lease=10)
    use(deliver(history, "a", attempt=2, at=5), "ack", at=6)
    assert len(check(history).doubled) == 1


def test_two_deliveries_with_one_attempt_number_are_caught():
    history = a_history("a")
    deliver(history, "a", at=0, lease=1)
    use(deliver(history, "a", attempt=1, at=5), "ack", at=6)
    assert len(check(history).doubled) == 1


def test_a_lease_that_ran_out_or_was_given_back_explains_a_redelivery():
    history = a_history("a", "b", "c")
    deliver(history, "a", at=0, lease=4)
    use(deliver(history, "a", attempt=2, at=5), "ack", at=6)
    use(deliver(history, "b", at=0), "nack", at=1)
    use(deliver(history, "b", attempt=2, at=2), "ack", at=3)
    use(deliver(history, "c", at=0), "nack", at=1, outcome=UNKNOWN)
    use(deliver(history, "c", attempt=2, at=2), "ack", at=3)
    assert check(history).clean


def test_an_extended_lease_holds_longer():
    history = a_history("a")
    use(deliver(history, "a", at=0, lease=4), "extend", at=3, lease=10)
    use(deliver(history, "a", attempt=2, at=6), "ack", at=7)
    assert len(check(history).doubled) == 1


def test_an_extension_of_unknown_outcome_may_have_shortened_the_lease():
    history = a_history("a")
    use(deliver(history, "a", at=0, lease=100), "extend", at=3, outcome=UNKNOWN, lease=1)
    use(deliver(history, "a", attempt=2, at=6), "ack", at=7)
    assert check(history).clean


def test_a_late_ack_that_was_accepted_is_caught():
    history = a_history("a")
    use(deliver(history, "a", at=0, lease=4), "ack", at=9)
    assert len(check(history).stale) == 1


def test_a_refused_ack_under_a_living_lease_is_caught():
    history = a_history("a")
    first = deliver(history, "a", at=0, lease=10)
    use(first, "ack", at=1, outcome=REFUSED)
    use(deliver(history, "a", attempt=2, at=20), "ack", at=21)
    assert len(check(history).dropped) == 1


def test_a_refused_ack_after_an_unknown_one_or_a_late_one_is_fine():
    history = a_history("a", "b")
    first = deliver(history, "a", at=0)
    use(first, "ack", at=1, outcome=UNKNOWN)
    use(first, "ack", at=2, outcome=REFUSED)
    use(deliver(history, "b", at=0, lease=1), "ack", at=5, outcome=REFUSED)
    use(deliver(history, "b", attempt=2, at=6), "ack", at=7)
    assert check(history).clean
