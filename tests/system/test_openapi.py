"""docs/openapi.yaml says formally what the server does: every route is in it, and real answers
fit its schemas."""

import json
import os
import re

import jsonschema
import pytest
import yaml

from server import ROOT

HTTP_METHODS = {"get", "put", "post", "delete"}

QUEUE = "/v1/queues/{queue}"
MESSAGES = QUEUE + "/messages"
CALLS = [
    ("put", QUEUE), ("get", QUEUE), ("get", "/v1/queues"), ("delete", QUEUE),
    ("get", QUEUE + "/schedules"), ("put", QUEUE + "/schedules/{name}"),
    ("get", QUEUE + "/schedules/{name}"), ("delete", QUEUE + "/schedules/{name}"),
    ("post", QUEUE + "/purge"), ("post", QUEUE + "/pause"), ("post", QUEUE + "/resume"),
    ("get", QUEUE + "/stats"), ("post", MESSAGES), ("post", MESSAGES + "/batch"), ("post", MESSAGES + "/import"), ("get", QUEUE + "/export"),
    ("post", MESSAGES + "/claim"), ("get", MESSAGES), ("delete", MESSAGES + "/{id}"),
    ("post", MESSAGES + "/{id}/nack"), ("post", MESSAGES + "/{id}/release"),
    ("post", MESSAGES + "/{id}/extend"), ("post", MESSAGES + "/ack"),
    ("post", MESSAGES + "/nack"), ("post", MESSAGES + "/release"), ("post", MESSAGES + "/extend"),
    ("post", QUEUE + "/dead/{id}/redrive"),
    ("get", MESSAGES + "/{id}"), ("get", QUEUE + "/dead"), ("get", QUEUE + "/dead/{id}"),
    ("post", QUEUE + "/dead/redrive"), ("delete", QUEUE + "/dead/{id}"),
    ("get", MESSAGES + "/{id}/position"), ("post", MESSAGES + "/{id}/priority"),
    ("post", MESSAGES + "/priority"), ("post", QUEUE + "/dead/purge"), ("get", "/healthz"), ("get", "/readyz"), ("get", "/metrics"),
    ("get", "/v1/info"), ("post", "/v1/admin/backup"), ("get", "/v1/admin/backup"), ("get", "/openapi.yaml"), ("get", "/"),
]


@pytest.fixture(scope="module")
def document():
    with open(os.path.join(ROOT, "docs", "openapi.yaml")) as file:
        return yaml.safe_load(file)


def plain(path):
    """Parameters by place, whatever they are called."""
    return re.sub(r"\{\w+\}", "{}", path)


def operations(document):
    return {(method, plain(path)): operation
            for path, methods in document["paths"].items()
            for method, operation in methods.items() if method in HTTP_METHODS}


def test_it_is_openapi_3_1(document):
    assert re.fullmatch(r"3\.1\.\d+", document["openapi"])
    assert document["info"]["title"] and document["info"]["version"]


def test_every_call_is_in_it(document):
    known = operations(document)
    for method, path in CALLS:
        assert (method, plain(path)) in known, f"{method} {path}"


def test_every_call_in_it_is_known_to_the_server(document, server):
    """A path the server does not have answers 404 route-not-found, and a method 405."""
    client = server.client()
    for method, path in operations(document):
        answer = client.request(method.upper(), path.replace("{}", "nothing"))
        if answer.status in (404, 405):
            assert answer.problem not in ("route-not-found", "method-not-allowed"), (method, path)


def references(node):
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = node.values()
    elif not isinstance(node, list):
        return
    for child in node:
        yield from references(child)


def resolve(document, reference):
    assert reference.startswith("#/"), reference
    node = document
    for part in reference[2:].split("/"):
        node = node[part.replace("~1", "/").replace("~0", "~")]
    return node


def test_every_reference_leads_somewhere(document):
    for reference in references(document):
        assert resolve(document, reference) is not None


def test_every_schema_is_a_schema(document):
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_operation_says_how_it_can_end_and_has_a_name_of_its_own(document):
    names = [operation["operationId"] for operation in operations(document).values()]
    assert len(names) == len(set(names))
    for key, operation in operations(document).items():
        assert any(str(status).startswith("2") for status in operation["responses"]), key


def schema_of(document, method, path, answer):
    operation = operations(document)[method, plain(path)]
    responses = {str(status): response for status, response in operation["responses"].items()}
    response = responses.get(str(answer.status)) or responses.get(f"{answer.status // 100}XX") \
        or responses["default"]
    if "$ref" in response:
        response = resolve(document, response["$ref"])
    media = answer.headers["content-type"].split(";")[0]
    return response["content"][media]["schema"]


def test_real_answers_fit_their_schemas(document, queue, api):
    def fits(method, path, answer):
        schema = {**schema_of(document, method, path, answer),
                  "components": document["components"]}
        validator = jsonschema.Draft202012Validator(schema)
        errors = [f"{e.json_path}: {e.message}" for e in validator.iter_errors(answer.json)]
        assert not errors, (method, path, errors)
        return answer

    fits("put", QUEUE, api.put(queue.path, {"max_attempts": 1, "max_depth": 8}))
    fits("get", QUEUE, api.get(queue.path))
    one = queue.path + "/schedules/s"
    fits("put", QUEUE + "/schedules/{name}", api.put(one, {"payload": "x", "cron": "@hourly"}))
    fits("put", QUEUE + "/schedules/{name}", api.put(one, {
        "payload_base64": "AAEC", "every_seconds": 3600, "priority": 3, "delay_seconds": 1.5,
        "ttl_seconds": 9, "dedup_key": "k", "metadata": {"a": 1}, "paused": True}))
    fits("put", QUEUE + "/schedules/{name}", api.put(one, {"payload": "x", "cron": "nonsense"}))
    fits("get", QUEUE + "/schedules/{name}", api.get(one))
    fits("get", QUEUE + "/schedules", api.get(queue.path + "/schedules"))
    assert api.delete(one).status == 204
    fits("get", QUEUE + "/schedules/{name}", api.get(one))
    fits("post", MESSAGES, queue.enqueue("x", metadata={"a": "b"}, dedup_key="k", ttl_seconds=60))
    fits("post", MESSAGES, queue.enqueue("x", dedup_key="k"))
    fits("post", MESSAGES, queue.enqueue("x", priority="nonsense"))
    fits("post", MESSAGES, queue.enqueue({"json": True}, delay_seconds=60))
    batch = {"messages": [{"payload": "y"}, {"payload": "z", "priority": 77},
                          {"payload_base64": "AAEC"}]}
    fits("post", MESSAGES + "/batch", api.post(queue.path + "/messages/batch", batch))
    exported = api.get(queue.path + "/export").body
    schema = {"$ref": "#/components/schemas/ExportedMessage", "components": document["components"]}
    for line in exported.splitlines():
        jsonschema.Draft202012Validator(schema).validate(json.loads(line))
    copy = queue.path + "-copy"
    fits("put", QUEUE, api.put(copy, {}))
    fits("post", MESSAGES + "/import",
         api.request("POST", copy + "/messages/import", exported + b"{}\n",
                     {"Content-Type": "application/x-ndjson"}))
    waits = queue.put("w")
    fits("post", MESSAGES + "/{id}/priority",
         api.post(queue.message_path(waits) + "/priority", {"priority": 0, "actor": "ann"}))
    fits("get", MESSAGES + "/{id}/position", api.get(queue.message_path(waits) + "/position"))
    fits("post", MESSAGES + "/priority",
         api.post(queue.path + "/messages/priority", {"filter": {"priority": 0}, "priority": 0}))
    fits("get", MESSAGES, api.get(queue.path + "/messages", max=2))
    first = fits("post", MESSAGES + "/claim", queue.claim())["messages"][0]
    fits("get", MESSAGES + "/{id}", queue.show(first))
    fits("get", MESSAGES + "/{id}", queue.show("msg_nonsense"))
    fits("post", MESSAGES + "/{id}/extend", queue.extend(first, 20))
    fits("post", MESSAGES + "/{id}/release", queue.release(first))
    fits("post", MESSAGES + "/{id}/nack", queue.nack(first))
    [again] = fits("post", MESSAGES + "/claim", queue.claim())["messages"]
    fits("post", MESSAGES + "/{id}/nack", queue.nack(again, reason="why not"))
    queue.put("last")
    last = queue.take_one()
    fits("post", MESSAGES + "/ack", queue.ack_all([last, {**again, "message_id": "msg_x"}]))
    for verb, fields in (("extend", {"visibility_timeout_seconds": 20}), ("release", {}), ("nack", {})):
        queue.put(verb)
        receipts = [{key: m[key] for key in ("message_id", "receipt_handle")}
                    for m in (queue.take_one(), {**again, "message_id": "msg_x"})]
        fits("post", f"{MESSAGES}/{verb}",
             api.post(f"{queue.path}/messages/{verb}", {"receipts": receipts, **fields}))
    fits("get", QUEUE + "/dead", api.get(queue.path + "/dead"))
    fits("get", QUEUE + "/dead/{id}", api.get(f"{queue.path}/dead/{again['message_id']}"))
    fits("post", QUEUE + "/dead/{id}/redrive",
         api.post(f"{queue.path}/dead/{again['message_id']}/redrive", {"payload": "mended"}))
    fits("post", QUEUE + "/dead/{id}/redrive",
         api.post(f"{queue.path}/dead/{again['message_id']}/redrive", {"payload": "again"}))
    fits("post", QUEUE + "/dead/redrive", queue.post("dead/redrive"))
    fits("post", QUEUE + "/dead/purge", api.post(queue.path + "/dead/purge"))
    fits("get", QUEUE + "/stats", api.get(queue.path + "/stats"))
    fits("get", "/v1/queues", api.get("/v1/queues"))
    fits("get", "/v1/queues", api.get("/v1/queues", sort="trouble", details=True, limit=1))
    fits("get", "/v1/queues", api.get("/v1/queues", sort="nonsense"))
    fits("delete", QUEUE, api.delete(queue.path))
    fits("post", QUEUE + "/purge", queue.post("purge"))
    fits("get", "/v1/info", api.get("/v1/info"))
    fits("post", "/v1/admin/backup", api.post("/v1/admin/backup", {"directory": "x"}))
    fits("get", "/v1/admin/backup", api.get("/v1/admin/backup"))
    fits("get", QUEUE, api.get("/v1/queues/absent"))


def test_the_schemas_are_strict_enough_to_notice_a_wrong_answer(document, queue, api):
    queue.put("x")
    stats = api.get(queue.path + "/stats")
    schema = {**schema_of(document, "get", QUEUE + "/stats", stats),
              "components": document["components"]}
    wrong = {**stats.json, "ready": "many"}
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(wrong))
    del wrong["ready"]
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(wrong))
