"""The HTTP contract, call by call and refusal by refusal, as a client meets it."""

import base64
import re
import subprocess

import pytest

from server import ROOT, tokens_file
from wire import Connection, Queue, request_bytes, until

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


# Success: one conversation for each call.


def test_a_queue_is_created_then_changed_then_shown(api, queue):
    created = api.put(queue.path, {"max_attempts": 5})
    assert created.status == 201
    assert created["max_attempts"] == 5
    changed = api.put(queue.path, {"visibility_timeout_seconds": 7})
    assert changed.status == 200
    shown = api.get(queue.path)
    assert shown.status == 200
    assert shown["max_attempts"] == 5, "a field left out keeps its value"
    assert shown["visibility_timeout_seconds"] == 7


def test_a_new_queue_has_the_documented_defaults(api, queue):
    assert api.put(queue.path, {}).status == 201
    config = api.get(queue.path).json
    assert config["profile"] == "levels"
    assert [level["number"] for level in config["levels"]] == list(range(9, -1, -1))
    assert [level["name"] for level in config["levels"]] == list("9876543210")
    assert config["policy"] == "strict"
    assert config["default_priority"] == 5
    assert config["visibility_timeout_seconds"] == 30
    assert config["max_attempts"] == 5
    assert config["retry"] == {"backoff": "exponential", "base_seconds": 1, "max_seconds": 300,
                               "jitter": 0.1}
    assert config["ttl_seconds"] is None and config["expired"] == "drop"
    assert config["dedup"] == {"window_seconds": 300, "scope": "window"}
    assert config["max_depth"] is None and config["max_bytes"] is None
    assert config["history_seconds"] == 0


@pytest.mark.parametrize("profile, names, default", [
    ("tiers", ["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND"], "NORMAL"),
    ("environments", ["production", "staging", "qa", "development"], None),
])
def test_a_profile_brings_its_levels(api, queue, profile, names, default):
    config = queue.configure(profile=profile, policy="strict")
    assert config["profile"] == profile
    assert [level["name"] for level in config["levels"]] == names
    if default:
        assert config["default_priority"] in (default, names.index(default))


def test_tiers_hold_leases_for_five_minutes(queue):
    config = queue.configure(profile="tiers", policy="strict")
    assert config["visibility_timeout_seconds"] == 300


def test_queues_are_listed_by_prefix_in_pages(api, queue):
    names = [f"{queue.name}.{letter}" for letter in "abcde"]
    for name in names:
        Queue(api, name).put("x")
    seen, query = [], {"prefix": queue.name + ".", "limit": 2}
    while True:
        page = api.get("/v1/queues", **query)
        assert page.status == 200 and len(page["queues"]) <= 2
        seen += page["queues"]
        if len(page["queues"]) < 2:
            break
        query["after"] = page["queues"][-1]["name"]
    assert [entry["name"] for entry in seen] == names
    assert all(entry["depth"] == 1 for entry in seen)


def fill(queue, dead=0, leased=0, scheduled=0, ready=0):
    """So many of each, with nothing that time changes."""
    queue.configure(max_attempts=1, visibility_timeout_seconds=43200)
    queue.put_all([{"payload": "x"}] * (dead + leased + ready))
    taken = queue.take(max=dead + leased) if dead + leased else []
    for message in taken[:dead]:
        assert queue.nack(message).status == 200
    queue.put_all([{"payload": "x", "delay_seconds": 86400}] * scheduled)


def test_queues_are_listed_by_trouble_and_by_each_of_their_counts(api, queue):
    stem = queue.name + "."
    fill(Queue(api, stem + "calm"))
    fill(Queue(api, stem + "few-dead"), dead=1, scheduled=9)
    fill(Queue(api, stem + "deep"), scheduled=7)
    fill(Queue(api, stem + "busy"), leased=3, scheduled=2)
    fill(Queue(api, stem + "idle"), leased=2, scheduled=2)
    fill(Queue(api, stem + "many-dead"), dead=4)

    def names(**query):
        answer = api.get("/v1/queues", prefix=stem, **query)
        assert answer.status == 200, answer
        return [row["name"].removeprefix(stem) for row in answer["queues"]]

    trouble = ["many-dead", "few-dead", "deep", "busy", "idle", "calm"]
    assert names(sort="trouble") == trouble
    assert names(sort="trouble", reverse=True) == trouble[::-1]
    assert names(sort="trouble", limit=2, skip=1) == trouble[1:3]
    assert names(sort="trouble", skip=6) == names(skip=6) == []
    assert names(sort="name", skip=2, limit=2) == names()[2:4] == sorted(trouble)[2:4]
    assert names(sort="depth")[:2] == names(sort="scheduled")[:2] == ["few-dead", "deep"]
    assert names(sort="in_flight")[:2] == ["busy", "idle"]
    assert names(sort="dead")[:2] == ["many-dead", "few-dead"]
    assert names(sort="ready") == names(sort="oldest") == sorted(trouble), "equal ones by name"
    assert sorted(names(sort="claims")[-2:]) == ["calm", "deep"], "the only ones without a claim"
    assert names(contains="DEAD", sort="dead") == ["many-dead", "few-dead"]
    assert names(contains="no-such") == []
    assert api.get("/v1/queues", prefix=stem, sort="trouble", limit=2)["next"] is None
    assert api.get("/v1/queues", prefix=stem, limit=2)["next"] == stem + "calm"
    for wrong in ({"sort": "size"}, {"skip": -1}, {"contains": "a/b"}, {"details": "perhaps"}):
        assert api.get("/v1/queues", **wrong).refusal == (422, "invalid-field"), wrong


def test_a_list_with_details_has_what_the_stats_have_and_the_sums(api, queue):
    first, second = Queue(api, queue.name + ".a"), Queue(api, queue.name + ".b")
    fill(first, dead=1, leased=2, scheduled=3, ready=4)
    fill(second, ready=5, leased=1)
    assert second.post("pause").status == 200
    answer = api.get("/v1/queues", prefix=queue.name + ".", limit=1, details=True, sort="dead")
    [row], stats, together = answer["queues"], first.stats(), answer["all"]
    assert (row["waiting_consumers"], row["bytes"]) == (0, stats["bytes"])
    assert row["totals"] == stats["totals"] and row["claims_per_second"] > 0
    assert (together["queues"], together["paused"]) == (2, 1)
    assert (together["dead"], together["in_flight"], together["scheduled"], together["ready"],
            together["depth"]) == (1, 3, 3, 9, 12)
    assert together["totals"]["enqueued"] == 16 and together["totals"]["claimed"] == 4
    plain = api.get("/v1/queues", prefix=queue.name + ".")
    assert "all" not in plain.json and "totals" not in plain["queues"][0]


def test_each_level_tells_the_age_of_its_oldest_message(queue):
    queue.configure(levels=[{"name": "urgent"}, {"name": "later"}])
    queue.put("x", priority="later")
    until(lambda: queue.stats()["oldest_message_age_seconds"] >= 1)
    queue.put("y", priority="urgent")
    stats = queue.stats()
    ages = [level["oldest_message_age_seconds"] for level in stats["levels"]]
    assert ages[1] >= 1 and ages[0] < ages[1], stats
    queue.take(max=2)
    assert [each["oldest_message_age_seconds"] for each in queue.stats()["levels"]] == [0, 0]


def test_an_empty_queue_is_deleted_and_gone(api, queue):
    api.put(queue.path, {})
    assert api.delete(queue.path).status == 204
    assert api.get(queue.path).refusal == (404, "queue-not-found")


def test_a_message_is_enqueued_shown_claimed_and_acknowledged(queue):
    enqueued = queue.enqueue("hello", priority=9, metadata={"tenant": "acme"})
    assert enqueued.status == 201
    assert enqueued["message_id"].startswith("msg_")
    assert enqueued["partition"] == 0
    assert TIME.fullmatch(enqueued["enqueued_at"])

    shown = queue.show(enqueued["message_id"])
    assert shown.status == 200
    assert (shown["state"], shown["priority"], shown["payload"]) == ("ready", 9, "hello")

    claim = queue.claim()
    assert claim.headers["cache-control"] == "no-store"
    [message] = claim["messages"]
    assert message["message_id"] == enqueued["message_id"]
    assert message["payload"] == "hello"
    assert (message["priority"], message["level"], message["effective_level"]) == (9, "9", "9")
    assert message["receipt_handle"].startswith("rh_")
    assert message["enqueued_at"] == enqueued["enqueued_at"]
    assert message["attempt"] == 1
    assert message["visibility_timeout"] == 30
    assert message["metadata"] == {"tenant": "acme"}

    gone = queue.ack(message)
    assert gone.status == 204 and gone.body == b""
    assert queue.show(message).refusal == (404, "message-not-found")


def test_claiming_by_get_takes_the_same_fields_from_the_query(api, queue):
    queue.put("low", priority=1)
    queue.put("high", priority=8)
    answer = api.get(queue.path + "/messages", max=5, min_priority=8,
                     visibility_timeout_seconds=77)
    assert answer.status == 200 and answer.headers["cache-control"] == "no-store"
    assert [m["payload"] for m in answer["messages"]] == ["high"]
    assert answer["messages"][0]["visibility_timeout"] == 77


def test_an_empty_queue_answers_with_an_empty_list(queue):
    queue.configure()
    assert queue.take() == []


def test_a_body_of_bytes_is_the_payload_itself(api, queue):
    body = bytes(range(256))
    answer = api.request("POST", queue.path + "/messages", body,
                         {"Content-Type": "application/octet-stream"}, {"priority": 3})
    assert answer.status == 201
    message = queue.take_one()
    assert base64.b64decode(message["payload_base64"]) == body
    assert message["priority"] == 3


def test_info_names_version_engine_and_durability(api, server):
    info = api.get("/v1/info")
    assert info.status == 200
    assert info["engine"] == server.engine
    assert re.match(r"\d+\.\d+", info["version"])
    assert "durability" in info.json


def test_health_and_readiness(api):
    assert api.get("/healthz").status == 200
    assert api.get("/readyz").status == 200


def test_the_contract_is_served_as_it_is_in_the_tree(api):
    served = api.get("/openapi.yaml")
    assert served.status == 200
    with open(ROOT + "/docs/openapi.yaml", "rb") as file:
        assert served.body == file.read()


def test_the_root_shows_the_dashboard(api):
    page = api.get("/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")


def test_head_is_answered_like_get_without_a_body(api):
    head = api.request("HEAD", "/healthz")
    assert head.status == 200
    assert api.get("/healthz").headers["content-length"] == head.headers["content-length"]


def test_head_claims_nothing(api, queue):
    queue.put("x")
    assert api.request("HEAD", queue.path + "/messages").status == 405
    assert queue.stats()["ready"] == 1


def test_every_answer_carries_the_request_id_the_client_chose(api):
    named = api.request("GET", "/healthz", headers={"X-Request-Id": "order-42"})
    assert named.headers["x-request-id"] == "order-42"
    first, second = api.get("/healthz"), api.get("/healthz")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


def test_a_request_id_cannot_smuggle_headers(server):
    connection = Connection(server.address)
    connection.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a b\xff\"<script>\r\n\r\n")
    answer = connection.answer()
    assert re.fullmatch(r"[A-Za-z0-9_.:/+=-]+", answer.headers["x-request-id"])
    connection.close()


# Refusals: every row of the table of errors.


def test_malformed_json(api, queue):
    for body in (b"{", b'{"payload": }', b"[1,]", b'{"payload": "\xff"}', b'{"payload":1} x', b""):
        answer = api.request("POST", queue.path + "/messages", body,
                             {"Content-Type": "application/json"})
        assert answer.refusal == (400, "malformed-json"), body


def test_a_json_document_may_not_repeat_a_key(api, queue):
    answer = api.request("POST", queue.path + "/messages", b'{"payload":"a","payload":"b"}')
    assert answer.refusal == (400, "malformed-json")


def test_malformed_request(api):
    for target in ("/v1/queues?prefix=%zz", "/v1/queues?prefix=%ff", "/v1/queues?limit=%"):
        assert api.request("GET", target).refusal == (400, "malformed-request"), target


def test_receipt_missing(api, queue):
    message = queue.put("x")
    assert api.delete(queue.message_path(message)).refusal == (400, "receipt-missing")
    for verb in ("nack", "release", "extend"):
        answer = api.post(f"{queue.message_path(message)}/{verb}", {})
        assert answer.refusal == (400, "receipt-missing"), verb
        answer = api.post(f"{queue.message_path(message)}/{verb}", {"receipt_handle": None})
        assert answer.refusal == (400, "receipt-missing"), verb
    assert queue.show(message)["state"] == "ready"


@pytest.mark.parametrize("entry, status, name, field", [
    (5, 422, "invalid-field", ""), ({"message_id": 5}, 422, "invalid-field", "/message_id"),
    ({}, 422, "invalid-field", "/message_id"), ({"z": 1}, 422, "unknown-field", "/z"),
    ({"message_id": "x"}, 400, "receipt-missing", "/receipt_handle"),
    ({"message_id": "x", "receipt_handle": "y"}, 404, "message-not-found", "/message_id")])
def test_an_entry_of_a_batch_of_acks_is_refused_in_its_place(queue, entry, status, name, field):
    queue.put("x")
    message = queue.take_one()
    good = {key: message[key] for key in ("message_id", "receipt_handle")}
    answer = queue.post("messages/ack", receipts=[good, entry])
    done, refused = answer["results"]
    assert done["state"] == "done"
    error = refused["error"]
    assert (error["type"], error["status"]) == ("urn:triage:" + name, status)
    assert error["field"] == "/receipts/1" + field and error["detail"]


def test_null_is_taken_as_left_out_of_a_claim(queue):
    queue.put("x")
    assert len(queue.take(max=None, wait_seconds=None, min_priority=None,
                          visibility_timeout_seconds=None)) == 1


def test_a_receipt_and_a_cancel_exclude_each_other(api, queue):
    queue.put("x")
    message = queue.take_one()
    answer = api.delete(queue.message_path(message), message["receipt_handle"], cancel="true")
    assert answer.refusal == (422, "invalid-field") and answer["field"] == "/cancel"
    assert queue.ack(message).status == 204


def test_queue_not_found(api, queue):
    absent = queue.path
    message = "/messages/msg_0000000000000000000000000000"
    for method, path, body in [
        ("GET", "", None), ("DELETE", "", None), ("GET", "/stats", None), ("POST", "/purge", None),
        ("POST", "/pause", None), ("POST", "/resume", None), ("GET", "/dead", None),
        ("POST", "/dead/redrive", {}), ("POST", "/dead/purge", None),
        ("GET", message, None),
        ("POST", message + "/nack", {"receipt_handle": "rh_" + "0" * 26}),
    ]:
        answer = api.request(method, absent + path, body)
        assert answer.refusal == (404, "queue-not-found"), (method, path)


def test_message_not_found(api, queue):
    queue.configure()
    for unknown in ("msg_nonsense", "msg_0000000000000000000000000000"):
        assert api.get(queue.message_path(unknown)).refusal == (404, "message-not-found")
        answer = api.delete(queue.message_path(unknown), receipt="rh_" + "0" * 26)
        assert answer.refusal == (404, "message-not-found")
        answer = api.delete(queue.message_path(unknown), cancel=True)
        assert answer.refusal == (404, "message-not-found")
        assert api.get(f"{queue.path}/dead/{unknown}").refusal == (404, "message-not-found")


def test_a_message_is_unknown_in_another_queue(api, queue):
    other = Queue(api, queue.name + "-other")
    message = queue.put("x")
    other.configure()
    assert other.show(message).refusal == (404, "message-not-found")


def test_route_not_found(api):
    for path in ("/v2/queues", "/v1", "/v1/queues/a/b", "/v1/queues/a/messages/b/c/d", "/nothing"):
        assert api.get(path).refusal == (404, "route-not-found"), path


def test_method_not_allowed_names_those_that_are(api, queue):
    answer = api.request("PUT", queue.path + "/messages", {})
    assert answer.refusal == (405, "method-not-allowed")
    allowed = {verb.strip() for verb in answer.headers["allow"].split(",")}
    assert {"GET", "POST"} <= allowed and "PUT" not in allowed
    assert api.request("PATCH", queue.path + "/messages").refusal == (405, "method-not-allowed")
    assert api.post("/healthz").refusal == (405, "method-not-allowed")


def test_receipt_expired(queue):
    queue.configure(max_attempts=10)
    queue.put("x")
    old = queue.take_one(visibility_timeout_seconds=0)
    new = queue.take_one(wait_seconds=20)
    assert new["attempt"] == 2 and new["receipt_handle"] != old["receipt_handle"]
    assert queue.ack(old).refusal == (409, "receipt-expired")
    assert queue.nack(old).refusal == (409, "receipt-expired")
    assert queue.release(old).refusal == (409, "receipt-expired")
    assert queue.extend(old, 30).refusal == (409, "receipt-expired")
    assert queue.ack(new).status == 204


def test_not_pending(queue):
    queue.put("x")
    message = queue.take_one()
    assert queue.cancel(message).refusal == (409, "not-pending")
    assert queue.ack(message).status == 204


def test_queue_not_empty(api, queue):
    queue.put("x")
    assert api.delete(queue.path).refusal == (409, "queue-not-empty")
    assert api.delete(queue.path, force=True).status == 204
    assert api.get(queue.path).refusal == (404, "queue-not-found")


def test_level_in_use(api, queue):
    queue.configure(levels=[{"name": "red"}, {"name": "blue"}], default_priority="blue")
    message = queue.put("x", priority="red")
    less = {"levels": [{"name": "blue"}], "drop_levels": True}
    for query in ({"dry_run": True}, {}):
        answer = api.request("PUT", queue.path, less, query=query)
        assert answer.refusal == (409, "level-in-use")
        assert "red" in answer["detail"]
    assert queue.cancel(message).status == 204
    assert api.put(queue.path, less).status == 200


def test_payload_too_large(api, queue):
    assert queue.enqueue("x" * 262144).status == 201
    assert queue.enqueue("x" * 262145).refusal == (413, "payload-too-large")
    much = base64.b64encode(bytes(262145)).decode()
    answer = api.post(queue.path + "/messages", {"payload_base64": much})
    assert answer.refusal == (413, "payload-too-large")
    answer = api.request("POST", queue.path + "/messages", bytes(262145),
                         {"Content-Type": "application/octet-stream"})
    assert answer.refusal == (413, "payload-too-large")
    assert queue.stats()["totals"]["enqueued"] == 1


def test_unsupported_media_type(api, queue):
    for content_type in ("text/plain", "application/xml", "application/jsonx"):
        answer = api.request("POST", queue.path + "/messages", b'{"payload":1}',
                             {"Content-Type": content_type})
        assert answer.refusal == (415, "unsupported-media-type"), content_type


def test_json_may_say_its_character_set(api, queue):
    answer = api.request("POST", queue.path + "/messages", b'{"payload":1}',
                         {"Content-Type": "application/json; charset=utf-8"})
    assert answer.status == 201


@pytest.mark.parametrize("path, body, field", [
    ("/messages", {}, "/payload"),
    ("/messages", {"payload": "a", "payload_base64": "YQ=="}, None),
    ("/messages", {"payload_base64": "not base64!"}, "/payload_base64"),
    ("/messages", {"payload_base64": 7}, "/payload_base64"),
    ("/messages", {"payload": "a", "delay_seconds": -1}, "/delay_seconds"),
    ("/messages", {"payload": "a", "delay_seconds": "1"}, "/delay_seconds"),
    ("/messages", {"payload": "a", "delay_seconds": 1e12}, "/delay_seconds"),
    ("/messages", {"payload": "a", "delay_until": "tomorrow"}, "/delay_until"),
    ("/messages", {"payload": "a", "delay_until": "2026-02-30T00:00:00Z"}, "/delay_until"),
    ("/messages", {"payload": "a", "dequeue_at": 1.5}, "/dequeue_at"),
    ("/messages", {"payload": "a", "dequeue_at": 2**62}, "/dequeue_at"),
    ("/messages", {"payload": "a", "delay_seconds": 1, "dequeue_at": 1}, None),
    ("/messages", {"payload": "a", "ttl_seconds": -5}, "/ttl_seconds"),
    ("/messages", {"payload": "a", "dedup_key": "k" * 257}, "/dedup_key"),
    ("/messages", {"payload": "a", "dedup_key": 5}, "/dedup_key"),
    ("/messages", {"payload": "a", "metadata": [1]}, "/metadata"),
    ("/messages", {"payload": "a", "metadata": {"k": "v" * 5000}}, "/metadata"),
    ("/messages/batch", {"messages": []}, "/messages"),
    ("/messages/batch", {"messages": [{"payload": 1}] * 1001}, "/messages"),
    ("/messages/batch", {}, "/messages"),
    ("/messages/claim", {"max": 0}, "/max"),
    ("/messages/claim", {"max": 101}, "/max"),
    ("/messages/claim", {"max": "1"}, "/max"),
    ("/messages/claim", {"wait_seconds": 61}, "/wait_seconds"),
    ("/messages/claim", {"wait_seconds": -1}, "/wait_seconds"),
    ("/messages/claim", {"visibility_timeout_seconds": 43201}, "/visibility_timeout_seconds"),
    ("/messages/ack", {"receipts": []}, "/receipts"),
    ("/dead/redrive", {"max": -1}, "/max"),
])
def test_invalid_fields_are_named(api, queue, path, body, field):
    queue.configure()
    answer = api.post(queue.path + path, body)
    assert answer.refusal == (422, "invalid-field")
    if field:
        assert answer["field"] == field
    assert queue.stats()["totals"]["enqueued"] == 0


@pytest.mark.parametrize("config, field", [
    ({"profile": "nonsense"}, "/profile"),
    ({"policy": "nonsense"}, "/policy"),
    ({"max_attempts": 0}, "/max_attempts"),
    ({"visibility_timeout_seconds": 50000}, "/visibility_timeout_seconds"),
    ({"levels": []}, "/levels"),
    ({"levels": [{"name": str(i)} for i in range(17)]}, "/levels"),
    ({"levels": [{"name": "a"}, {"name": "a"}]}, None),
    ({"levels": [{"name": "a", "weight": 0}]}, None),
    ({"levels": [{"name": ""}]}, None),
    ({"retry": {"backoff": "often"}}, "/retry/backoff"),
    ({"retry": {"jitter": 2}}, "/retry/jitter"),
    ({"dedup": {"scope": "forever"}}, "/dedup/scope"),
    ({"expired": "burn"}, "/expired"),
    ({"ttl_seconds": -1}, "/ttl_seconds"),
    ({"max_depth": -1}, "/max_depth"),
])
def test_invalid_configurations_are_named_and_create_nothing(api, queue, config, field):
    answer = api.put(queue.path, config)
    assert answer.refusal == (422, "invalid-field")
    if field:
        assert answer["field"].startswith(field)
    assert api.get(queue.path).refusal == (404, "queue-not-found")


@pytest.mark.parametrize("name", ["a b", "a%2Fb", "%00", "q" * 101, "caf%C3%A9", "a:b", ".", "..", "%2e."])
def test_queue_names_are_letters_digits_dots_dashes_and_underscores(api, name):
    answer = api.request("PUT", "/v1/queues/" + name.replace(" ", "%20"), {})
    assert answer.status in (400, 404, 422) and answer.problem


def test_queue_names_may_use_all_of_their_hundred_characters(api, queue):
    name = (queue.name + "._-Az09" + "q" * 100)[:100]
    assert api.put(f"/v1/queues/{name}", {}).status == 201
    assert api.get(f"/v1/queues/{name}").status == 200


def test_unknown_fields_are_refused(api, queue):
    queue.configure()
    message = queue.put("x")
    for path, body in [
        ("/messages", {"payload": "x", "prioritty": 3}), ("/messages/claim", {"wait": 3}),
        ("/messages/batch", {"messages": [{"payload": 1}], "more": 1}),
        ("/dead/redrive", {"all": True}),
        (f"/messages/{message}/nack", {"receipt_handle": "rh_" + "0" * 26, "delay": 1}),
    ]:
        answer = api.post(queue.path + path, body)
        assert answer.refusal == (422, "unknown-field"), path
        assert answer["field"], path
    for config in ({"visibility_timeout": 3}, {"retry": {"base": 1}}, {"dedup": {"window": 1}},
                   {"levels": [{"name": "a", "wait": 1}]}):
        assert api.put(queue.path, config).refusal == (422, "unknown-field"), config
    assert queue.stats()["totals"]["enqueued"] == 1


def test_unknown_query_parameters_are_refused(api, queue):
    queue.configure()
    answer = api.get(queue.path + "/messages", maximum=3)
    assert answer.refusal == (422, "unknown-field")
    answer = api.post(queue.path + "/messages", {"payload": 1}, priority=3)
    assert answer.refusal == (422, "unknown-field") and "body" in answer["detail"]
    answer = api.post(queue.path + "/pause", {"a": 1})
    assert (answer["field"], answer["detail"]) == ("/a", "No field is taken here.")


@pytest.mark.parametrize("metadata", ["{}", '{"b":2}'])
def test_metadata_of_a_query_is_given_in_one_way(api, queue, metadata):
    answer = api.request("POST", queue.path + "/messages", b"x",
                         {"Content-Type": "application/octet-stream"},
                         {"metadata.a": 1, "metadata": metadata})
    assert answer.refusal == (422, "invalid-field") and answer["field"] == "/metadata"


def test_unknown_priority(api, queue):
    queue.configure()
    for priority in (10, -1, "urgent", 2**40):
        answer = queue.enqueue("x", priority=priority)
        assert answer.refusal == (422, "unknown-priority"), priority
        assert answer["field"] == "/priority"
    assert queue.claim(min_priority="urgent").refusal == (422, "unknown-priority")
    assert api.put(queue.path, {"default_priority": "urgent"}).status == 422


def test_queue_full(queue):
    queue.configure(max_depth=2)
    queue.put("a")
    queue.put("b")
    answer = queue.enqueue("c")
    assert answer.refusal == (429, "queue-full")
    assert int(answer.headers["retry-after"]) >= 1
    queue.ack(queue.take_one())
    queue.put("c")


def test_tokens_open_what_their_roles_allow(start, tmp_path):
    tokens = tokens_file(tmp_path, [
        ("root", "t-admin", "admin"), ("shop", "t-produce", "produce"),
        ("worker", "t-consume", "consume"), ("chart", "t-read", "read"),
        ("team", "t-team", "produce,consume team-")])
    server = start(engine="memory", tokens_file=tokens)

    def act(token, name="jobs"):
        return server.queue(name, token=token)

    anonymous = server.client().get("/v1/queues")
    assert anonymous.refusal == (401, "unauthenticated")
    assert "www-authenticate" in anonymous.headers
    assert server.client(token="guess").get("/v1/queues").refusal == (401, "unauthenticated")
    assert server.client().get("/healthz").status == 200

    act("t-admin").configure(max_attempts=2)
    forbidden = (403, "forbidden")
    assert act("t-produce").client.put("/v1/queues/jobs", {}).refusal == forbidden
    act("t-produce").put("work")
    refused = act("t-produce").claim()
    assert refused.refusal == forbidden and "role consume" in refused["detail"]
    assert act("t-read").enqueue("x").refusal == forbidden
    assert act("t-read").stats()["ready"] == 1
    assert act("t-consume").enqueue("x").refusal == forbidden
    message = act("t-consume").take_one()
    assert act("t-read").ack(message).refusal == forbidden
    assert act("t-consume").ack(message).status == 204

    act("t-team", "team-a").put("ours")
    assert act("t-team", "jobs").enqueue("theirs").refusal == forbidden
    refused = act("t-team", "jobs").claim()
    assert refused.refusal == forbidden and '"team-"' in refused["detail"]


def test_rate_limited(start):
    server = start(engine="memory", rate_limit=5)
    client = server.client()
    for _ in range(200):
        answer = client.post("/v1/queues/q/messages", {"payload": "x"})
        if answer.status != 201:
            break
    assert answer.refusal == (429, "rate-limited")
    assert int(answer.headers["retry-after"]) >= 1
    assert client.get("/healthz").status == 200


def test_quota_exceeded(start):
    server = start(engine="memory", max_queues=2)
    server.queue("one").put("x")
    server.queue("two").put("x")
    for answer in (server.queue("three").enqueue("x"), server.client().put("/v1/queues/four", {})):
        assert answer.refusal == (429, "quota-exceeded")
        assert int(answer.headers["retry-after"]) >= 1
    server.queue("two").put("y")
    assert server.client().delete("/v1/queues/one", force=True).status == 204
    server.queue("three").put("x")


def test_overloaded_by_too_many_requests_at_once(start):
    server = start(engine="local", inbox_max=1)
    enqueue = request_bytes("POST", "/v1/queues/q/messages", b'{"payload":"x"}',
                            {"Content-Type": "application/json"})
    connection = Connection(server.address)
    connection.send(enqueue * 200)
    answers = [connection.answer() for _ in range(200)]
    connection.close()
    stored = sum(answer.status == 201 for answer in answers)
    refused = [answer for answer in answers if answer.status != 201]
    assert stored >= 1 and refused
    for answer in refused:
        assert answer.refusal == (503, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1
    assert server.queue("q").stats()["ready"] == stored


def test_overloaded_by_too_many_connections(start):
    server = start(engine="memory", max_connections=2, net_threads=1)
    kept = [server.client() for _ in range(2)]
    for client in kept:
        assert client.get("/healthz").status == 200
    answer = Connection(server.address).answer()
    assert answer.refusal == (503, "overloaded")
    kept.pop().close()
    assert kept[0].get("/healthz").status == 200


def test_draining_refuses_new_work_and_answers_waiting_claims(start):
    server = start(engine="local")
    server.queue("q").configure()
    half = Connection(server.address)
    enqueue = request_bytes("POST", "/v1/queues/q/messages", b'{"payload":"late"}',
                            {"Content-Type": "application/json"})
    half.send(enqueue[:-5])
    waiting = Connection(server.address)
    claim = request_bytes("POST", "/v1/queues/q/messages/claim", b'{"wait_seconds":60}')
    waiting.send(claim)
    probe = server.queue("q")
    until(lambda: probe.stats()["waiting_consumers"] == 1)
    probe.client.close()
    server.terminate()
    drained = waiting.answer()
    assert drained.status == 200 and drained["messages"] == []
    half.send(enqueue[-5:])
    refused = half.answer()
    assert refused.refusal == (503, "draining")
    assert int(refused.headers["retry-after"]) >= 1
    assert server.wait() == 0


def strace_inject(server, what):
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + what,
                               "-e", f"inject={what}:error=EIO", "-p", str(server.process.pid)],
                              stderr=subprocess.PIPE)
    with open(f"/proc/{server.process.pid}/status") as file:
        while "TracerPid:\t0" in file.read():
            if tracer.poll() is not None:
                pytest.skip("no ptrace here: " + tracer.stderr.read().decode().strip())
            file.seek(0)
    return tracer


def test_engine_unavailable_when_the_disk_does_not_take_a_write(start):
    server = start(engine="local")
    queue = server.queue("q")
    kept = queue.put("before")
    tracer = strace_inject(server, "fdatasync,fsync,sync_file_range")
    try:
        answer = queue.enqueue("during")
        assert answer.refusal == (503, "engine-unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert server.client().get("/readyz").refusal == (503, "engine-unavailable")
        assert server.client().get("/healthz").status == 200
    finally:
        tracer.terminate()
        tracer.wait()
    server.kill()
    server.start()
    assert queue.name in [q["name"] for q in server.client().get("/v1/queues")["queues"]]
    assert server.queue("q").show(kept).status == 200
