"""One sequence on one arrangement: steps become requests, and answers become something that can be
compared. What is different on every run (ids, receipts, the time of day) is replaced by what it
stands for: the fourth message, the second delivery, "in an hour"."""

import json
import re
import time
from datetime import datetime, timezone
from urllib.parse import quote, urlencode

from steps import FAR, SIDE_LEVELS, SOON

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
NO_ID = "msg_00000080g6gy2k2x5r000000000g"
NO_RECEIPT = "rh_38fn2zfjefkjp8frx6n27y4arm"

# Between two requests that store something: none shares a millisecond with the one before. A dead
# letter that is mended is a new message at the old place, behind all others of that millisecond.
APART_SECONDS = 0.002
GROWN_OLD_SECONDS = 0.25  # for steps.INSTANT, once for each level that there can be

# The default of a queue that nobody has configured otherwise.
NEW_RETRY = {"backoff": "exponential", "base_seconds": 1, "max_seconds": 300, "jitter": 0.1}

# What says how fast this run was, or names the store: nothing to compare.
IGNORED = {"oldest_message_age_seconds", "claims_per_second", "estimated_start"}


class Request:
    def __init__(self, method, path, body=None, query=None, headers=None, kind="application/json",
                 follows=False):
        self.method = method
        self.path = path
        self.query = {k: str(v).lower() if isinstance(v, bool) else v
                      for k, v in (query or {}).items()}
        self.data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        self.headers = dict(headers or {})
        self.follows = follows  # to the server that had the last one
        self.spends = False  # it uses, or tells of, tokens of the weighted policy
        if self.data is not None:
            self.headers["Content-Type"] = kind

    @property
    def target(self):
        return self.path + ("?" + urlencode(self.query, quote_via=quote) if self.query else "")

    def as_curl(self, base):
        parts = [f"curl -s -X {self.method} '{base}{self.target}'"]
        parts += [f"-H '{name}: {value}'" for name, value in self.headers.items()]
        if self.data is not None:
            text = self.data.decode("utf-8", "backslashreplace").replace("'", "'\\''")
            text = text.replace("a" * 5000, "'$(printf a%.0s {1..5000})'")
            parts.append(f"--data-binary '{text}'")
        return " ".join(parts)


def hours_away(ms):
    """Times are far away or now: whole hours from now tell one from the other."""
    hours = round((ms / 1000 - time.time()) / 3600)
    return "now" if hours == 0 else f"{hours:+d}h" if abs(hours) < 100 else "far"


def plain_time(text):
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return hours_away(moment.replace(tzinfo=timezone.utc).timestamp() * 1000)


def raw(text):
    return b"\xff\x00\xfe" if text == "ff00fe" else text.encode()


def told(answer):
    return f"{answer.status} {answer.body.decode()[:2000].strip()}" if answer else "no answer"


class World:
    """What one run of a sequence knows: its queue, its messages, its deliveries."""

    def __init__(self, arrangement, queue):
        self.arrangement = arrangement
        self.queue = queue
        self.path = f"/v1/queues/{queue}"
        self.messages = []  # ids, in the order in which they were met
        self.names = {}  # id or receipt: what it stands for
        self.deliveries = []  # (id, receipt)
        self.lines = []  # (request as a curl line, its answer), or a remark
        self.shares = False  # the queue is weighted, as far as the last answer tells
        self.later = None  # a configuration that is to be there before the next step
        self.calm = False  # the queue is there, and has no default that goes by the clock

    # Names

    def meet(self, ident):
        if ident not in self.names:
            self.names[ident] = f"message {len(self.messages)}"
            self.messages.append(ident)
        return self.names[ident]

    def meet_delivery(self, message):
        receipt = message["receipt_handle"]
        self.names[receipt] = f"delivery {len(self.deliveries)}"
        self.deliveries.append((message["message_id"], receipt))

    def message(self, reference):
        return self.messages[reference[1]] if reference[1] < len(self.messages) else NO_ID

    def delivery(self, reference):
        index = reference[1]
        return self.deliveries[index] if index < len(self.deliveries) else (NO_ID, NO_RECEIPT)

    # Answers

    def plain(self, value, key=None):
        if key in IGNORED:
            return None
        if isinstance(value, dict):
            return {k: self.plain(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [self.plain(v) for v in value]
        if key == "dequeue_at" and abs(value / 1000 - time.time()) < 86400 * 365:
            return hours_away(value)
        if isinstance(value, str):
            return self.plain_text(value)
        return value

    def plain_text(self, text):
        if text in self.names:
            return self.names[text]
        if TIME.fullmatch(text):
            return plain_time(text)
        return text.replace(self.queue, "QUEUE")

    def send(self, request):
        self.lines.append((request.as_curl("$URL"), None))
        answer = self.arrangement.send(request)
        self.lines[-1] = (self.lines[-1][0], answer)
        return answer

    def written_down(self):
        """Every request as a curl line with its answer; ids are shell variables."""
        text = "\n".join(entry if isinstance(entry, str) else f"{entry[0]}\n#   {told(entry[1])}"
                         for entry in self.lines)
        for ident, name in self.names.items():
            kind, number = name.split()
            text = text.replace(ident, ("$M" if kind == "message" else "$R") + number)
        return text.replace(self.queue, "q")

    def ask(self, method, path, body=None, **options):
        """(status, document) with names in place of ids."""
        request = Request(method, path, body, **options)
        claims = path.endswith("/claim") or (method == "GET" and path.endswith("/messages"))
        request.spends = self.shares and (claims or path.endswith("/position"))
        answer = self.send(request)
        document = json.loads(answer.body) if answer.body.strip() else None
        if path == self.path and answer.status < 300 and "dry_run" not in request.query:
            self.shares = bool(document) and document.get("policy") == "weighted"
        return answer.status, document

    def outcome(self, status, document):
        return [status, self.plain(document)]

    def post(self, path, body=None, **options):
        return self.outcome(*self.ask("POST", self.path + path, {} if body is None else body,
                                      **options))

    def get(self, path, **query):
        return self.outcome(*self.ask("GET", self.path + path, query=query))

    def with_receipt(self, verb, reference, fields):
        ident, receipt = self.delivery(reference)
        return self.post(f"/messages/{ident}/{verb}", {"receipt_handle": receipt, **fields})

    # The steps, by their names

    def run(self, step):
        name, arguments = step
        self.catch_up()
        outcome = getattr(self, "do_" + name)(**arguments)
        self.calm_down()
        return outcome

    def calm_down(self):
        """A new queue repeats what failed about a second later, and leases for half a minute:
        what is ready, or still leased, would depend on the machine. So it repeats at once and
        leases for hours, unless a step has configured something else."""
        status, document = (404, None) if self.calm else self.ask("GET", self.path)
        if status != 200:
            return
        self.calm = True
        changes = {}
        if document["retry"] == NEW_RETRY:
            changes = {"retry": {"backoff": "none"},
                       "max_attempts": min(3, document["max_attempts"])}
        if SOON < document["visibility_timeout_seconds"] < FAR:
            changes["visibility_timeout_seconds"] = FAR
        if changes:
            self.do_patch(changes)

    def catch_up(self):
        """The second half of a step: the wait between both is behind everybody now."""
        if self.later:
            self.do_configure(self.later)
        self.later = None

    def do_enqueue(self, body):
        return self.do_enqueue_to(self.path, body)

    def store(self, path, body, **options):
        self.arrangement.pass_time(APART_SECONDS)
        return self.ask("POST", path, body, **options)

    def do_enqueue_to(self, path, body):
        status, document = self.store(path + "/messages", body)
        if status in (200, 201):
            self.meet(document["message_id"])
        return self.outcome(status, document)

    def do_enqueue_bytes(self, bytes, query):
        status, document = self.store(self.path + "/messages", raw(bytes), query=query,
                                      kind="application/octet-stream")
        if status in (200, 201):
            self.meet(document["message_id"])
        return self.outcome(status, document)

    def stored_all(self, status, document):
        for result in document.get("results", []):
            if "message_id" in result:
                self.meet(result["message_id"])
        return self.outcome(status, document)

    def do_batch(self, messages, lines):
        if lines:
            data = "".join(json.dumps(m) + "\n" for m in messages).encode()
            return self.stored_all(*self.store(self.path + "/messages/batch", data,
                                               kind="application/x-ndjson"))
        return self.stored_all(*self.store(self.path + "/messages/batch", {"messages": messages}))

    def delivered(self, status, document):
        for message in document.get("messages", []):
            self.meet(message["message_id"])
            self.meet_delivery(message)
        return self.outcome(status, document)

    def do_claim(self, fields):
        return self.delivered(*self.ask("POST", self.path + "/messages/claim", fields))

    def do_claim_by_get(self, query, marked):
        headers = {"X-Requested-With": "tests"} if marked else {"Sec-Fetch-Site": "cross-site"}
        return self.delivered(*self.ask("GET", self.path + "/messages", query=query,
                                        headers=headers))

    def do_claim_many(self, fields, side, side_first):
        other = self.queue + "-side"
        self.ask("PUT", f"/v1/queues/{other}", {"levels": [{"name": n} for n in SIDE_LEVELS]})
        for priority in side:
            self.do_enqueue_to(f"/v1/queues/{other}", {"payload": "side", "priority": priority})
        queues = [other, self.queue] if side_first else [self.queue, other]
        return self.delivered(*self.ask("POST", "/v1/claim", {"queues": queues, **fields}))

    def do_ack(self, delivery):
        ident, receipt = self.delivery(delivery)
        return self.outcome(*self.ask("DELETE", f"{self.path}/messages/{ident}",
                                      headers={"X-Receipt-Handle": receipt}))

    def do_ack_batch(self, deliveries):
        pairs = [self.delivery(d) for d in deliveries]
        return self.post("/messages/ack", {"receipts": [
            {"message_id": ident, "receipt_handle": receipt} for ident, receipt in pairs]})

    def do_settle_batch(self, verb, deliveries, fields):
        pairs = [self.delivery(d) for d in deliveries]
        return self.post(f"/messages/{verb}", {"receipts": [
            {"message_id": ident, "receipt_handle": receipt} for ident, receipt in pairs], **fields})

    def do_nack(self, delivery, fields):
        return self.with_receipt("nack", delivery, fields)

    def do_release(self, delivery):
        return self.with_receipt("release", delivery, {})

    def do_extend(self, delivery, seconds):
        return self.with_receipt("extend", delivery, {"visibility_timeout_seconds": seconds})

    def do_show(self, message):
        return self.get(f"/messages/{self.message(message)}")

    def do_position(self, message):
        return self.get(f"/messages/{self.message(message)}/position")

    def do_cancel(self, message):
        return self.outcome(*self.ask("DELETE", f"{self.path}/messages/{self.message(message)}",
                                      query={"cancel": True}))

    def do_escalate(self, message, fields):
        return self.post(f"/messages/{self.message(message)}/priority", fields)

    def do_escalate_many(self, body):
        return self.post("/messages/priority", body)

    def do_act(self, what, body):
        """What is promoted has its place by the time of day: it shares no millisecond with a put. The
        counts of all portions are added up; which came first is the engine's own."""
        self.arrangement.pass_time(APART_SECONDS)
        sums, sample, body = {}, [], dict(body)
        while True:
            status, document = self.ask("POST", f"{self.path}/{what}", body)
            if status != 200:
                return self.outcome(status, document)
            sample += document["sample"] if document["matched"] <= 10 else []
            for name in ("matched", "cancelled", "promoted", "redriven", "purged"):
                sums[name] = sums.get(name, 0) + document.get(name, 0)
            if document["next"] is None:
                break
            body["after"] = document["next"]
        return [200, sums, sorted(self.plain(sample)) if sums["matched"] <= 10 else None]

    def do_promote(self, message):
        self.arrangement.pass_time(APART_SECONDS)
        return self.post(f"/messages/{self.message(message)}/promote")

    def do_configure(self, body):
        self.calm = False  # what the body does not say is as in a new queue
        return self.outcome(*self.ask("PUT", self.path, body))

    def do_patch(self, body):
        return self.outcome(*self.ask("PATCH", self.path, body))

    def do_try_configure(self, body):
        return self.outcome(*self.ask("PUT", self.path, body, query={"dry_run": True}))

    def do_try_patch(self, body):
        return self.outcome(*self.ask("PATCH", self.path, body, query={"dry_run": True}))

    def do_show_config(self):
        return self.get("")

    def do_stats(self):
        return self.get("/stats")

    def do_list_queues(self, limit):
        pages, query = [], {"prefix": self.queue, "limit": limit}
        while True:
            status, document = self.ask("GET", "/v1/queues", query=query)
            pages.append(self.outcome(status, document))
            if status != 200 or document["next"] is None:
                return pages
            query["after"] = document["next"]

    def exported(self, limit, dead=False):
        """All lines, whatever the pages; an export promises no order."""
        lines, query = [], {"limit": limit, **({"state": "dead"} if dead else {})}
        while True:
            answer = self.send(Request("GET", self.path + "/export", query=query))
            if answer.status != 200:
                return answer.status, json.loads(answer.body)
            lines += [json.loads(line) for line in answer.body.splitlines()]
            if "x-next-cursor" not in answer.headers:
                return 200, sorted(lines, key=lambda m: m["message_id"])
            query["after"] = answer.headers["x-next-cursor"]

    def do_browse(self, query):
        """All that match, in the order in which they were met: a browse promises none."""
        found, query = [], dict(query)
        while True:
            status, document = self.ask("GET", self.path + "/messages/browse", query=query)
            if status != 200:
                return self.outcome(status, document)
            found += document["messages"]
            if document["next"] is None:
                return [200, sorted(self.plain(found), key=lambda m: m["message_id"])]
            query["after"] = document["next"]

    def do_export(self, limit, dead):
        status, lines = self.exported(limit, dead)
        if status != 200:
            return self.outcome(status, lines)
        return [200, sorted(self.plain(lines), key=lambda m: m["message_id"])]

    def do_move(self, places):
        """The queue goes and comes back as an export of itself, imported twice. It could not come
        beside what is there: who stands first of two of one millisecond would be luck."""
        status, lines = self.exported(1000)
        config, document = self.ask("GET", self.path)
        if status != 200 or config != 200 or not lines:
            return self.outcome(status, None)
        gone = self.do_delete_queue(True)
        made = self.outcome(*self.ask("PUT", self.path, document))
        lines.sort(key=lambda m: int(self.names.get(m["message_id"], "message -1").split()[1]))
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        names = [level["name"] for level in document["levels"]]
        one, other = (names[place % len(names)] for place in places or (0, 0))
        imports = [self.stored_all(*self.ask("POST", self.path + "/messages/import", data,
                                             query={f"map.{one}": other} if places else {},
                                             kind="application/x-ndjson")) for _ in range(2)]
        return [gone, made, *imports]

    def do_pause(self):
        return self.post("/pause")

    def do_resume(self):
        return self.post("/resume")

    def do_purge(self):
        return self.post("/purge")

    def do_delete_queue(self, force):
        self.calm = False
        return self.outcome(*self.ask("DELETE", self.path, query={"force": force}))

    def do_dead_list(self, limit):
        found, after = [], {}
        while True:
            status, document = self.ask("GET", self.path + "/dead", query={"limit": limit, **after})
            if status != 200:
                return self.outcome(status, document)
            found += document["messages"]
            if document["next"] is None:
                return [200, self.plain(found)]
            after = {"after": document["next"]}

    def do_dead_show(self, message):
        return self.get(f"/dead/{self.message(message)}")

    def do_dead_drop(self, message):
        return self.outcome(*self.ask("DELETE", f"{self.path}/dead/{self.message(message)}"))

    def do_dead_purge(self):
        return self.post("/dead/purge")

    def do_die(self, fields):
        status, document = self.ask("GET", self.path)
        if status != 200:
            return self.outcome(status, document)
        held = len(self.deliveries)
        return [self.do_patch({"max_attempts": 1}), self.do_claim(fields),
                *[self.do_nack(["delivery", number], {"reason": "died"})
                  for number in range(held, len(self.deliveries))],
                self.do_patch({"max_attempts": document["max_attempts"]})]

    def oldest_dead(self):
        _, found = self.ask("GET", self.path + "/dead", query={"limit": 1})
        return found.get("messages", [])

    def do_amend(self, message, body, bytes):
        """The oldest dead letter, and where there is none something dies first; else any message."""
        dead = self.oldest_dead() or (self.do_die({"max": 1}) and self.oldest_dead())
        ident = dead[0]["message_id"] if dead else self.message(message)
        path, rest = f"{self.path}/dead/{ident}/redrive", {"priority": body.get("priority")}
        if bytes is None:
            status, document = self.ask("POST", path, body)
        else:
            status, document = self.ask("POST", path, raw(bytes), kind="application/octet-stream",
                                        query={k: v for k, v in rest.items() if v is not None})
        if status == 200:
            self.meet(document["message_id"])
        return self.outcome(status, document)

    def do_redrive(self, body):
        if "ids" in body:
            body = {**body, "ids": [self.message(reference) for reference in body["ids"]]}
        return self.post("/dead/redrive", body)

    def do_become_ready(self, body):
        first = self.do_enqueue(body)
        self.arrangement.wait()
        return first

    def do_expire(self, body):
        first = self.do_enqueue(body)
        self.arrangement.wait()
        return first

    def do_lose_lease(self, fields):
        first = self.do_claim(fields)
        self.arrangement.wait()
        return first

    # Rules by the place of a level

    def with_rules(self, document, rules):
        return [{**level, **rules[place % len(rules)]}
                for place, level in enumerate(document["levels"])]

    def enqueue_spread(self, document, places):
        """One batch over the levels."""
        names = [level["name"] for level in document["levels"]]
        return self.do_batch([{"payload": f"{place} {i}", "priority": names[place % len(names)]}
                              for i, place in enumerate(places)], False) if places else None

    def do_tune(self, rules, policy, batch, before, late, after):
        status, document = self.ask("GET", self.path)
        if status != 200:
            return self.outcome(status, document)
        return [self.enqueue_spread(document, batch),
                self.do_configure({"levels": self.with_rules(document, rules), "policy": policy}),
                *[self.do_claim(fields) for fields in before],
                self.enqueue_spread(document, late),
                *[self.do_claim(fields) for fields in after]]

    def do_remake(self, times, batch, claims):
        status, document = self.ask("GET", self.path)
        if status != 200:
            return self.outcome(status, document)
        outcomes = []
        for _ in range(times):
            outcomes += [self.do_delete_queue(True),
                         self.outcome(*self.ask("PUT", self.path, document, follows=True)),
                         self.do_show_config()]
        return [*outcomes, self.enqueue_spread(document, batch),
                *[self.do_claim(fields) for fields in claims]]

    def do_grow_old(self, rules, policy, batch, restart, claims):
        status, document = self.ask("GET", self.path)
        if status != 200:
            return self.outcome(status, document)
        outcomes = [self.enqueue_spread(document, batch),
                    self.do_configure({"levels": self.with_rules(document, rules),
                                       "policy": policy, "paused": False})]
        self.lines.append("# wait")
        self.arrangement.pass_time(GROWN_OLD_SECONDS)
        if restart:
            self.do_restart()
        outcomes += [self.do_claim(fields) for fields in claims]
        return [*outcomes, self.do_configure({"levels": document["levels"],
                                              "policy": document["policy"]})]

    # Schedules

    def do_schedule_set(self, schedule, body):
        return self.outcome(*self.ask("PUT", f"{self.path}/schedules/{schedule}", body))

    def do_schedule_show(self, schedule, next):
        return self.get(f"/schedules/{schedule}", next=next)

    def do_schedule_list(self, limit):
        return self.get("/schedules", limit=limit)

    def do_schedule_delete(self, schedule):
        return self.outcome(*self.ask("DELETE", f"{self.path}/schedules/{schedule}"))

    def do_forget(self, later):
        first = self.do_configure({"history_seconds": SOON})
        self.arrangement.wait()
        self.later = {"history_seconds": later}
        return first

    def do_restart(self):
        self.lines.append("# restart")
        self.arrangement.restart(self)
        return None

    # The end

    def final_state(self):
        """Everything that can be seen, and then everything in the order in which it comes out."""
        self.catch_up()
        state = [self.do_show_config(), self.do_stats(), self.do_export(1000, False),
                 self.do_dead_list(100), self.do_schedule_list(100)]
        state += [self.do_schedule_show(name, 3) for name in ("nightly", "a.b", "Z_1")]
        for i in range(min(20, len(self.messages))):
            state += [self.do_position(["message", i]), self.do_show(["message", i])]
        if state[0][0] != 200:
            return state
        self.do_resume()
        while True:
            answer = self.do_claim({"max": 7, "visibility_timeout_seconds": 43200})
            state.append(answer)
            if answer[0] != 200 or not answer[1]["messages"]:
                break
            held = len(self.deliveries)
            self.do_ack_batch([["delivery", held - 1 - i]
                               for i in range(len(answer[1]["messages"]))])
        state.append(self.do_stats())
        return state
