"""Whether the admin listener's description is good OpenAPI 3.1, and its answers are as it says.

Every endpoint is asked with each token, good and bad, and in each state of the proxy that a client
can bring about. Each answer is held against the schema of its status; a field that the schema does
not name is a mistake too. At the end every described answer must have been seen, but for a few.
"""

import contextlib
import http.client
import json
import sys
from pathlib import Path

import jsonschema
from openapi_spec_validator import OpenAPIV31SpecValidator

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "edge")]
from stage import PATIENCE_SECONDS, Plan, Tally, api, bearer, binary_under_test, eventually, proxy

SECONDS = 120
READ, WRITE, WRONG = "a-token-to-read-with", "a-token-to-act-with", "a-token-that-is-wrong"
FILES = {"read": READ.encode(), "write": WRITE.encode()}
ADMIN = {
    "auth": {"read_token_file": "read", "write_token_file": "write"},
    "ready": {"store": "require"},
}
JSON = {"content-type": "application/json"}
EVENTS = "text/event-stream"
ACTION = {"x-tollgate-action": "1"}
RESET = "/callers/{name}/reset"
ORDER = json.dumps({"why": "a test"})
FOREIGN = {"origin": "http://evil.example"}
MAX_LISTENERS = 16
# Larger than any body that is read.
TOO_LARGE = "x" * 70_000
CALLER = "user%3A42"
# What no client can bring about while the proxy works.
UNSEEN = {
    "get /callers/{name} 500",
    "post /callers/{name}/reset 500",
    "post /explain 500",
    "post /reload 400",
    "post /reload 409",
    "post /reload 503",
    "post /store/backup 500",
    "post /store/check 400",
    "post /store/check 500",
    "post /store/compact 400",
    "post /store/compact 500",
}


class Judge:
    """Holds answers of an admin listener against its description."""

    def __init__(self, port, tally):
        self.port, self.tally = port, tally
        status, _, text = self.send("GET", "/openapi.json", READ)
        self.description = json.loads(text) if status == 200 else {"paths": {}}
        self.strict = closed(self.description)
        self.seen = set()

    def send(self, method, path, token=None, headers=None, body=None):
        """Status, content type and text of an answer."""
        headers = dict(headers or {})
        if token:
            headers["authorization"] = f"Bearer {token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content_type = response.getheader("content-type")
            if content_type != EVENTS:
                return response.status, content_type, response.read().decode()
            # They have no end: the first one is enough.
            text = b""
            while not text.endswith(b"\n\n"):
                text += response.read(1)
            return response.status, content_type, text.decode()

    def hold(self, method, path, token=None, headers=None, body=None, query="", name=CALLER):
        """Asks, records whether the answer is as described, and gives its status. `name` is put in
        the path's place for it."""
        asked = path.replace("{name}", name) + query
        status, content_type, text = self.send(method, asked, token, headers, body)
        label = f"{method.lower()} {path} {status}"
        self.seen.add(label)
        responses = self.strict["paths"][path][method.lower()]["responses"]
        content = responses.get(str(status), {}).get("content", {})
        if content_type not in content:
            self.tally.record(label, [f"{content_type} is not described: {text[:300]}"])
            return status
        schema = content[content_type]["schema"]
        value = json.loads(text) if content_type == "application/json" else text
        if content_type == EVENTS:
            value, schema = json.loads(text.split("data: ")[1]), schema["contentSchema"]
        schema = schema | {"components": self.strict["components"]}
        errors = jsonschema.Draft202012Validator(schema).iter_errors(value)
        problems = [f"{error.json_path}: {error.message[:300]}" for error in errors]
        self.tally.record(f"{label} is as described", problems)
        return status

    def operations(self):
        """Each method and path, and what is described of it."""
        for path, methods in self.description["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def described(self):
        """Each answer that is described."""
        return {
            f"{method.lower()} {path} {status}"
            for method, path, operation in self.operations()
            for status in operation["responses"]
        }


def closed(value):
    """The same schemas, by which a field that they do not name is a mistake."""
    if isinstance(value, list):
        return [closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: closed(item) for key, item in value.items()}
    if isinstance(inner.get("properties"), dict):
        inner.setdefault("additionalProperties", False)
    return inner


def ask_everything(judge):
    """Each endpoint with each token, and as a page of another origin."""
    for method, path, operation in judge.operations():
        headers = ACTION if method == "POST" else {}
        body = {"/explain": question(), RESET: ORDER}.get(path)
        for token in (None, READ, WRITE):
            judge.hold(method, path, token, headers, body)
        judge.hold(method, path, WRITE, headers | FOREIGN, body)
        if method == "POST":
            judge.hold(method, path, WRITE, {}, body)
            judge.hold(method, path, WRITE, headers, TOO_LARGE)
        # So the table of the description is the one that answers.
        status, _, _ = judge.send("PUT", path.replace("{name}", CALLER), WRITE, ACTION)
        judge.tally.record(f"PUT {path}", [] if status == 405 else [status])


def question(**more):
    """What `/explain` is asked."""
    return json.dumps({"method": "GET", "url": "/get"} | more)


def explain(judge):
    """Requests of all kinds: their callers, routes and ends differ."""
    token = bearer("42").removeprefix("Bearer ")
    for more, status in [
        ({"token": token}, 200),
        ({"token": "none"}, 200),
        ({"claims": {"iss": "https://id.test", "aud": "api", "sub": "42"}}, 200),
        ({"address": "192.0.2.7", "headers": [["x-a", "b"]]}, 200),
        ({"method": "POST", "url": "/other"}, 200),
        ({"url": "a b"}, 422),
        ({"unknown": 1}, 400),
    ]:
        got = judge.hold("POST", "/explain", READ, JSON, question(**more))
        judge.tally.record(f"explaining {more}", [] if got == status else [got])


def rank(judge):
    """Questions about many callers, good and bad."""
    for path, query, status in [
        ("/callers", "?by=denials&limit=core&policy=main&minutes=60&top=5", 200),
        ("/callers", "?by=cost", 400),
        ("/callers", "?minutes=0", 400),
        ("/callers", "?limit=none", 404),
        ("/denials", "?after=1&caller=user:42&limit=core&policy=main&top=20", 200),
        ("/denials", "?top=0", 400),
    ]:
        got = judge.hold("GET", path, READ, query=query)
        judge.tally.record(f"asking {path}{query}", [] if got == status else [got])


def look_and_reset(judge):
    """Callers that there are and are not, and limits."""
    for query, name, status in [
        ("", CALLER, 200),
        ("?limit=core", CALLER, 200),
        # No limit counts by it alone: nothing is to be told of it.
        ("", "client.ip:192.0.2.1", 200),
        ("?limit=none", CALLER, 404),
        ("?unknown=1", CALLER, 400),
        ("", "nobody", 422),
    ]:
        got = judge.hold("GET", "/callers/{name}", READ, query=query, name=name)
        judge.tally.record(f"looking at {name}{query}", [] if got == status else [got])
    for order, name, status in [
        ({"why": "a test"}, CALLER, 200),
        ({"why": "a test", "limit": "core", "policy": "main"}, CALLER, 200),
        ({"why": ""}, CALLER, 400),
        ({"why": "a test", "limit": "none"}, CALLER, 404),
        ({"why": "a test"}, "nobody", 422),
    ]:
        got = judge.hold("POST", RESET, WRITE, JSON, json.dumps(order), name=name)
        judge.tally.record(f"resetting {name} by {order}", [] if got == status else [got])


def listen(judge):
    """More clients than may listen to the events at once."""
    with contextlib.ExitStack() as listening:
        for _ in range(MAX_LISTENERS):
            connection = http.client.HTTPConnection("127.0.0.1", judge.port, timeout=PATIENCE_SECONDS)
            listening.enter_context(contextlib.closing(connection))
            connection.request("GET", "/events", headers={"authorization": f"Bearer {READ}"})
            # Who drops the response hangs up.
            listening.enter_context(contextlib.closing(connection.getresponse()))
        status = judge.hold("GET", "/events", READ)
        judge.tally.record("too many listen", [] if status == 503 else [status])


def try_tokens(judge):
    """Wrong tokens, until they are too many; the endpoints answer each in both states."""
    for method, path, operation in judge.operations():
        if not operation["security"]:
            continue
        headers = ACTION if method == "POST" else {}
        refused = eventually(lambda: judge.hold(method, path, WRONG, headers) == 429)
        judge.tally.record(f"{path} refuses many tokens", [] if refused else ["never"])


def order_store(judge, folder):
    """What a store on disk does, and a copy to a folder that is not empty."""
    order = json.dumps({"folder": str(folder)})
    wanted = [("/store/backup", order, 200), ("/store/backup", order, 409)]
    wanted += [("/store/check", None, 200), ("/store/compact", None, 200)]
    for path, body, expected in wanted:
        status = judge.hold("POST", path, WRITE, ACTION | JSON, body)
        judge.tally.record(f"{path} on disk", [] if status == expected else [status])


def check(binary, tally, server):
    """Asks a proxy that has all it needs, one whose Redis is away, and one with a store on disk."""
    routes = [
        {"match": {"path": "/get"}, "upstream": "api", "auth": "optional", "limits": ["core"]},
        {"match": {"path": "/other", "methods": ["POST"]}, "upstream": "api", "auth": "required"},
    ]
    plan = Plan([server], routes=routes, files=FILES, admin=ADMIN)
    with proxy(binary, plan, tally) as on:
        judge = Judge(on.admin, tally)
        problems = OpenAPIV31SpecValidator(judge.description).iter_errors()
        tally.record("the description is OpenAPI 3.1", [error.message for error in problems])
        ask_everything(judge)
        explain(judge)
        look_and_reset(judge)
        rank(judge)
        judge.hold("POST", "/store/backup", WRITE, ACTION | JSON, json.dumps({"folder": "/nowhere"}))
        listen(judge)
        (on.folder / "policies" / "main.yaml").write_text("version: 2\n")
        refused = judge.hold("POST", "/reload", WRITE, ACTION)
        tally.record("a bad policy is refused", [] if refused == 422 else [refused])
        for path in ("/healthz", "/status"):
            judge.hold("GET", path, READ)
        judge.hold("GET", "/metrics", READ, {"accept": "application/openmetrics-text"})
        try_tokens(judge)
    seen = judge.seen

    store = {"redis": {"url": "redis://127.0.0.1:1"}, "key_secret_file": "secret"}
    plan.settings = {"store": store}
    with proxy(binary, plan, tally) as on:
        judge = Judge(on.admin, tally)
        status = eventually(lambda: judge.hold("GET", "/readyz") == 503)
        tally.record("it is not ready without Redis", [] if status else ["it is"])
        ask_everything(judge)
        explain(judge)
    seen |= judge.seen

    plan.settings = {"store": {"disk": {"path": "counters"}}}
    with proxy(binary, plan, tally) as on:
        judge = Judge(on.admin, tally)
        order_store(judge, on.folder / "copy")
    unseen = judge.described() - seen - judge.seen
    tally.record("what is described was seen", sorted(unseen ^ UNSEEN))


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with api(tally) as port:
        check(binary, tally, f"http://127.0.0.1:{port}")
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
