"""Who may do what: the table in docs/api.md is that of src/api/routes.c, and the server keeps to it.
docs/openapi.yaml says the same.
A producer sees how its messages fare, and nothing of anybody else's."""

import os
import re

import pytest
import yaml

from server import ROOT, tokens_file
from wire import Queue

ROLES = ("produce", "consume", "read", "admin")


def routes():
    """(method, path): the roles that the table in routes.c gives it, and whether it is for tokens
    of all queues alone."""
    with open(os.path.join(ROOT, "src", "api", "routes.c")) as file:
        text = file.read()
    words = {name: value for name, value in re.findall(r"^#define (\w+) +(.+)$", text, re.M)}

    def path(expression):
        parts = re.findall(r'"[^"]*"|\w+', expression)
        return "".join(part[1:-1] if part[0] == '"' else path(words[part]) for part in parts)

    table = text[text.index("routes[] = {"):]
    table = table[:table.index("\n};")]
    found = {}
    for verb, where, roles, flags in re.findall(
            r"\{VERB_(\w+),\s*([^,]+),\s*\w+,\s*([\w |]+),\s*([\w |]+),", table):
        names = frozenset(role.lower() for role in re.findall(r"ROLE_(\w+)", roles))
        names |= {"open"} if "ROUTE_OPEN" in flags else {"any"} if not names else {"admin"}
        found[verb, path(where)] = (names, "ROUTE_SERVER" in flags)
    assert len(found) == table.count("{VERB_"), "a route that this test cannot read"
    return found


def documented():
    """The same, of the table in docs/api.md."""
    with open(os.path.join(ROOT, "docs", "api.md")) as file:
        text = file.read()
    section = text[text.index("### Roles"):]
    section = section[:section.index("\n## ")]
    rows = re.findall(r"^\| `(\w+) ([^`]+)` \| ([^|]+) \| ([^|]*) \|$", section, re.M)
    found = {(verb, path): (frozenset(re.findall(r"open|any|%s" % "|".join(ROLES), roles)),
                            "a token for all queues" in notes)
             for verb, path, roles, notes in rows}
    assert len(found) == len(rows), "a call that is there twice"
    return found


def test_the_table_in_the_docs_is_that_of_the_routes():
    assert documented() == routes()


def test_the_formal_contract_names_the_same_roles():
    with open(os.path.join(ROOT, "docs", "openapi.yaml")) as file:
        paths = yaml.safe_load(file)["paths"]
    for (verb, path), (allowed, _) in routes().items():
        text = paths[path][verb.lower()].get("description", "")
        said = [role for sentence in re.findall(r"[Rr]ole: ([^.,)]*)", text)
                for role in re.findall("|".join(ROLES), sentence)]
        assert set(said) | {"admin"} == set(allowed) | {"admin"} or allowed & {"any", "open"}, \
            (verb, path, said)


@pytest.fixture
def roles(start, tmp_path):
    """A server with a token for each role, and a client for each, by name."""
    server = start(engine="memory", tokens_file=tokens_file(tmp_path, [
        *((role, "t-" + role, role) for role in ROLES),
        ("mailer", "t-mailer", "produce mail"), ("nobody", "t-nobody", "admin none")]))
    return {name: server.client(token="t-" + name) for name in (*ROLES, "mailer", "nobody")}


NO_MESSAGE = "msg_00000080g6gy284gn0000000000g"


def test_the_server_keeps_to_the_table(roles):
    """Bodies are broken, so that nothing is carried out: who may call is looked at before."""
    for (verb, path), (allowed, _) in documented().items():
        concrete = path.replace("{queue}", "none").replace("{id}", NO_MESSAGE).replace("{name}", "x")
        for role in ROLES:
            if verb == "GET":
                answer = roles[role].request("GET", concrete, None, {"X-Requested-With": "x"})
            else:
                answer = roles[role].request(verb, concrete, b"{", {"Content-Type": "application/json"})
            may = role in allowed or allowed & {"any", "open"}
            refused = answer.status == 403 and answer.problem == "forbidden"
            assert refused == (not may), (verb, path, role, answer)
            if refused:
                assert "role" in answer.json["detail"]


def test_what_concerns_all_queues_is_not_for_a_token_of_some(roles):
    for (verb, path), (_, every) in documented().items():
        if every:
            answer = roles["nobody"].request(verb, path, None, {"Content-Type": "application/json"})
            assert answer.status == 403, (verb, path, answer)


# Who may produce may look


def test_a_producer_sees_how_its_message_fares_and_not_what_is_in_others(roles):
    mail = Queue(roles["produce"], "mail")
    ident = mail.put("secret of somebody", metadata={"tenant": "acme"}, priority=7)
    for name in ("produce", "mailer"):
        shown = roles[name].get(f"{mail.path}/messages/{ident}")
        assert shown.status == 200
        assert (shown.json["state"], shown.json["attempts"]) == ("ready", 0)
        assert "payload" not in shown.json and "metadata" not in shown.json
        position = roles[name].get(f"{mail.path}/messages/{ident}/position")
        assert (position.status, position.json["messages_ahead"]) == (200, 0)
        moved = roles[name].post(f"{mail.path}/messages/{ident}/priority", {"priority": 8})
        assert moved.status == 200 and "payload" not in moved.json
    whole = roles["read"].get(f"{mail.path}/messages/{ident}").json
    assert (whole["payload"], whole["metadata"]) == ("secret of somebody", {"tenant": "acme"})


def test_no_producer_learns_of_another_tenants_queue(roles):
    ours, theirs = Queue(roles["produce"], "mail"), Queue(roles["produce"], "orders")
    mine, foreign = ours.put("x"), theirs.put("y")
    for call in ("", "/position"):
        refused = roles["mailer"].get(f"{theirs.path}/messages/{foreign}{call}")
        assert refused.status == 403 and "mail" in refused.json["detail"]
        absent = roles["mailer"].get(f"/v1/queues/absent/messages/{foreign}{call}")
        assert (absent.status, absent.json["detail"]) == (403, refused.json["detail"]), \
            "nor whether there is such a queue"
        # The id of another queue's message, in one of its own.
        crossed = roles["mailer"].get(f"{ours.path}/messages/{foreign}{call}")
        assert (crossed.status, crossed.problem) == (404, "message-not-found")
        assert roles["mailer"].get(f"{ours.path}/messages/{mine}{call}").status == 200


def test_an_import_says_which_role_it_needs(roles):
    refused = roles["produce"].request("POST", "/v1/queues/mail/messages/import", b"{}\n",
                                       {"Content-Type": "application/x-ndjson"})
    assert refused.status == 403 and "the role admin" in refused.json["detail"]
