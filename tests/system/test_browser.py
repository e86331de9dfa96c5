"""A page of somebody else, in a real browser on the server's own machine, tries to read and to
change what is in the server. Every attack is a way a browser has to send a request without asking
leave first, or one for which it asks."""

import pytest

import browser
from server import Server
from wire import until

pytestmark = pytest.mark.skipif(not (browser.DRIVER and browser.CHROMIUM),
                                reason="needs Debian's chromium and chromium-driver")

FOREIGN = "evil.test"  # a page of another site
REBOUND = "rebound.test"  # a name that was made to point at this machine, as DNS rebinding does
NEIGHBOUR = "localhost"  # another server of this machine: another port, but the same site

FORM = """
    const frame = document.createElement("iframe");
    frame.name = "target" + Math.random();
    document.body.append(frame);
    await new Promise(resolve => { frame.onload = resolve; setTimeout(resolve, 0); });
    const form = document.createElement("form");
    Object.assign(form, {method: "POST", action: args[0], enctype: args[1], target: frame.name});
    for (const [name, value] of Object.entries(args[2])) {
        const field = document.createElement("input");
        Object.assign(field, {type: "hidden", name, value});
        form.append(field);
    }
    document.body.append(form);
    await new Promise(resolve => { frame.onload = resolve; form.submit(); });
    return "sent";
"""
PICTURE = """
    const picture = new Image();
    await new Promise(resolve => { picture.onload = picture.onerror = resolve;
                                   picture.src = args[0]; });
    return "sent";
"""
FETCH = """
    const answer = await fetch(args[0], args[1]);
    return answer.type === "opaque" ? "sent" : answer.status + " " + await answer.text();
"""
BEACON = """
    const type = args[2];
    const queued = navigator.sendBeacon(args[0], type ? new Blob([args[1]], {type}) : undefined);
    return String(queued);
"""

MESSAGE = '{"payload": "planted"}'


def attacks(base):
    queue = base + "/v1/queues/q"
    text = {"mode": "no-cors", "headers": {"Content-Type": "text/plain"}}
    json = {"Content-Type": "application/json"}
    return {
        "a picture that claims": (PICTURE, queue + "/messages?max=100"
                                  "&visibility_timeout_seconds=43200"),
        "an empty form that purges": (FORM, queue + "/purge", "application/x-www-form-urlencoded",
                                      {}),
        "a form of text that enqueues": (FORM, queue + "/messages", "text/plain",
                                         {'{"payload": "planted", "metadata": {"a': '": "b"}}'}),
        "a form with parts that purges": (FORM, queue + "/purge", "multipart/form-data",
                                          {"a": "b"}),
        "a form of text that claims": (FORM, queue + "/messages/claim", "text/plain", {}),
        "a fetch of text that enqueues": (FETCH, queue + "/messages",
                                          {**text, "method": "POST", "body": MESSAGE}),
        "a fetch without a type that purges": (FETCH, queue + "/purge",
                                               {"mode": "no-cors", "method": "POST"}),
        "a fetch without a type that pauses": (FETCH, queue + "/pause",
                                               {"mode": "cors", "method": "POST"}),
        "a fetch that claims by GET": (FETCH, queue + "/messages?max=100", {"mode": "no-cors"}),
        "a fetch of JSON that enqueues": (FETCH, queue + "/messages",
                                          {"method": "POST", "body": MESSAGE, "headers": json}),
        "a fetch that configures": (FETCH, queue, {"method": "PUT", "body": '{"max_depth": 1}',
                                                   "headers": json}),
        "a fetch that deletes": (FETCH, queue + "?force=true", {"method": "DELETE"}),
        "a beacon that purges": (BEACON, queue + "/purge", "", ""),
        "a beacon of text that enqueues": (BEACON, queue + "/messages", MESSAGE, "text/plain"),
        "a fetch that reads": (FETCH, base + "/v1/queues", {}),
        "a fetch that exports": (FETCH, queue + "/export", {}),
    }


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    one = browser.Browser(tmp_path_factory.mktemp("chromium"), [FOREIGN, REBOUND])
    yield one
    one.close()


@pytest.fixture(scope="module")
def site():
    one = browser.Site()
    yield one
    one.close()


@pytest.fixture
def server(tmp_path):
    one = Server(tmp_path, engine="memory").start()
    yield one
    one.end()


def state(server):
    """All that an attack could change."""
    queue = server.queue("q")
    stats = queue.stats()
    config = server.client().get(queue.path).json
    return {k: stats[k] for k in ("ready", "in_flight", "totals")}, config, len(
        server.client().get("/v1/queues")["queues"])


def refusals(server):
    return sum(v for k, v in server.metrics().items() if k.startswith("triage_requests_refused"))


@pytest.mark.parametrize("name", [FOREIGN, NEIGHBOUR])
@pytest.mark.parametrize("attack", attacks(""))
def test_foreign_page_changes_nothing_and_reads_nothing(server, site, chromium, name, attack):
    server.queue("q").put("secret")
    before = state(server)
    port = server.address[1]
    script, *args = attacks(f"http://{'127.0.0.1' if name == FOREIGN else name}:{port}")[attack]
    chromium.visit(f"http://{name}:{site.port}/")
    outcome = chromium.run(script, *args)
    # The server says no, or the browser does, when nobody gave it leave; a beacon comes later.
    until(lambda: refusals(server) > 0 or "Failed to fetch" in outcome.get("error", "")
          or state(server) != before)
    assert state(server) == before, outcome
    assert "secret" not in str(outcome) and '"q"' not in str(outcome), outcome


def test_name_that_was_made_to_point_here_is_not_served(server, chromium):
    server.queue("q").put("secret")
    before = state(server)
    base = f"http://{REBOUND}:{server.address[1]}"
    chromium.visit(base + "/v1/queues")  # the same origin as what it asks for
    assert "secret" not in chromium.run("return document.documentElement.textContent")["value"]
    for path, options in [("/v1/queues", {}), ("/v1/queues/q/export", {}),
                          ("/v1/queues/q/purge", {"method": "POST", "headers": {
                              "Content-Type": "application/json"}})]:
        outcome = chromium.run(FETCH, base + path, options)
        assert outcome["value"].startswith("421 "), outcome
        assert "allowed_hosts" in outcome["value"], outcome
    assert state(server) == before


def test_page_of_the_server_itself_does_everything(server, chromium):
    server.queue("q").put("secret")
    base = f"http://127.0.0.1:{server.address[1]}"
    chromium.visit(base + "/")

    def fetch(path, **options):
        return chromium.run(FETCH, base + path, options)["value"].split(" ", 1)

    headers = {"Content-Type": "application/json"}
    assert fetch("/v1/queues/q/export")[0] == "200"
    assert fetch("/v1/queues/q/messages", method="POST", body=MESSAGE, headers=headers)[0] == "201"
    assert fetch("/v1/queues/q", method="PUT", body="{}", headers=headers)[0] == "200"
    assert fetch("/v1/queues/q/messages?max=1", headers={"X-Requested-With": "fetch"})[0] == "200"
    assert fetch("/v1/queues/q/purge", method="POST", headers=headers)[0] == "200"
    assert fetch("/v1/queues/q?force=true", method="DELETE")[0] == "204"
    assert refusals(server) == 0


def test_link_from_another_site_leads_to_the_front_page(server, site, chromium):
    chromium.visit(f"http://{FOREIGN}:{site.port}/")
    chromium.run("""const link = document.createElement("a");
                    link.href = args[0];
                    document.body.append(link);
                    setTimeout(() => link.click(), 0);""", f"http://127.0.0.1:{server.address[1]}/")
    until(lambda: chromium.run("return document.title")["value"] == "Triage")


def test_name_in_allowed_hosts_is_served(tmp_path, chromium):
    server = Server(tmp_path, engine="memory", allowed_hosts=f"queue.example, {REBOUND}").start()
    try:
        server.queue("q").put("known")
        base = f"http://{REBOUND}:{server.address[1]}"
        chromium.visit(base + "/")
        assert "known" in chromium.run(FETCH, base + "/v1/queues/q/export", {})["value"]
    finally:
        server.end()
