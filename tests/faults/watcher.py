"""Somebody who asks for the numbers of every queue all the time, wherever they are shown: stats,
the list of queues, the metrics. Whatever else happens, `sums.py` judges every answer."""

import re
import time

from history import Counts
from wire import DEADLINE, Connection, request_bytes

PAUSE = 0.004  # seconds between questions: the load is the workers', not ours
STATES = ("ready", "scheduled", "in_flight", "dead")
TOTALS = ("enqueued", "acked", "expired", "cancelled")
SAMPLE = re.compile(rb'^triage_queue_(\w+)\{queue="([^"]+)"\} (\d+)$', re.M)


def of_stats(stats):
    """The same names wherever the numbers come from."""
    return {"ready": stats["ready"], "scheduled": stats["scheduled"],
            "in_flight": stats["in_flight"], "dead": stats["dlq_depth"],
            "levels": sum(stats["depth_by_priority"].values()),
            **{name: stats["totals"][name] for name in TOTALS}}


def of_list(page):
    return {each["name"]: {**{name: each[name] for name in STATES}, "depth": each["depth"]}
            for each in page["queues"]}


def of_metrics(text):
    queues = {}
    for name, queue, value in SAMPLE.findall(text):
        queues.setdefault(queue.decode(), {})[name.decode()] = int(value)
    return {queue: {**{name: found[name] for name in STATES},
                    **{name: found[f"{name}_total"] for name in TOTALS}}
            for queue, found in queues.items()}


class Watcher:
    def __init__(self, history, queues):
        self.history = history
        self.queues = list(queues)
        self.stopped = False
        self.errors = []
        self.answers = 0

    def run(self, address):
        """Asks until the server is gone, or stop()."""
        connection = None
        try:
            connection = Connection(address, DEADLINE)
            while not self.stopped:
                self.look(connection)
        except (ConnectionError, TimeoutError):
            pass
        except Exception as error:  # a bug in the test, or an answer nobody expects
            self.errors.append(error)
        finally:
            if connection:
                connection.close()

    def stop(self):
        self.stopped = True

    def look(self, connection):
        """Once everywhere."""
        for queue in self.queues:
            self.ask(connection, "stats", f"/v1/queues/{queue}/stats",
                     lambda answer, queue=queue: {queue: of_stats(answer.json)})
        self.ask(connection, "list", "/v1/queues?limit=1000", lambda answer: of_list(answer.json))
        self.ask(connection, "metrics", "/metrics", lambda answer: of_metrics(answer.body))

    def ask(self, connection, source, path, read):
        if self.stopped:
            return
        sent = time.monotonic()
        connection.send(request_bytes("GET", path))
        answer = connection.answer()
        came = time.monotonic()
        assert answer.status in (200, 404, 429, 503), f"{path}: {answer}"
        if answer.status == 200:
            for queue, counts in read(answer).items():
                if queue in self.queues:
                    self.history.add(Counts(queue, source, sent, came, counts))
                    self.answers += 1
        time.sleep(PAUSE)
