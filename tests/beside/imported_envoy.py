"""Envoy beside the policies that Tollgate's import makes of what limits it.

First its local limits: BackendTrafficPolicies, which Envoy gets as Envoy Gateway translates them, and
`tollgate import envoy-gateway`. Then its rate limit service: Envoy asks Tollgate, with the policy that
`tollgate import envoy` makes of a configuration of envoyproxy/ratelimit, and the answers are those of
reference.py, which counts as that does. Each gets 10,000 requests, of which one after another
is admitted by both or by neither. Then what the tables name.
"""

import contextlib
import http.client
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "edge"), str(HERE.parent / "httpbin")]
from envoy_gateway import translated, typed
from harness import tollgate
from reference import Reference
from stage import Plan, Tally, api, binary_under_test, free_port, proxy, running

SECONDS = 300
REQUESTS = 10_000
ENVOY = str(Path(sys.executable).with_name("envoy"))
SOURCES = [f"127.0.0.{number}" for number in range(40, 46)]
USERS = [None, "a", "b", "c", "admin"]
METHODS = ["GET", "POST", "PUT", "DELETE"]
# A window of the reference ends with a day: none may do so meanwhile.
DAY_SECONDS, ROOM_SECONDS = 86_400, 90


# --- Local limits ---


def rule(requests, shadow=False, **selector):
    """A rule of a BackendTrafficPolicy. The window is so long that nothing comes back meanwhile."""
    own = {"limit": {"requests": requests, "unit": "Year"}}
    own |= {"clientSelectors": [selector]} if selector else {}
    return own | ({"shadowMode": True} if shadow else {})


DISTINCT = {"name": "x-user", "type": "Distinct"}
# The rules of each route, which is for the paths below its name.
LOCAL = {
    "plain": [rule(137)],
    "keyed": [rule(40, headers=[DISTINCT])],
    "but-admin": [rule(30, headers=[DISTINCT, {"name": "x-user", "value": "admin", "invert": True}])],
    "free-a": [rule(30, headers=[{"name": "x-plan", "value": "free"}, {"name": "x-user", "value": "a"}])],
    "writes": [rule(90, methods=[{"value": "POST"}]), rule(60, methods=[{"value": "PUT"}])],
    "but-reads": [rule(80, methods=[{"value": "GET", "invert": True}])],
    "paths": [rule(70, path={"value": "/paths/a"}), rule(35, path={"value": "/paths/b", "type": "Exact"})],
    "clients": [rule(25, sourceCIDR={"value": "0.0.0.0/0", "type": "Distinct"})],
    "network": [rule(45, sourceCIDR={"value": "127.0.0.40/30"})],
    "user-posts": [rule(20, headers=[DISTINCT], methods=[{"value": "POST"}])],
    "shadow": [rule(5, shadow=True, headers=[DISTINCT])],
    "free": [],
}
# What the table names: a request that another rule counts, and one that another rule denies.
DIFFERENT = {
    "default": [rule(100), rule(20, headers=[DISTINCT])],
    "denied": [rule(60, headers=[DISTINCT]), rule(90, methods=[{"value": "POST"}])],
}
NAMED = {
    "default": "requests that another rule counts are charged to it as well",
    "denied": "a request that a rule with a higher rate denies is charged to this one there",
}


def objects():
    """Gateway, routes and policies."""
    meta = {"namespace": "shop"}
    yield {"kind": "Gateway", "metadata": meta | {"name": "edge"},
           "spec": {"gatewayClassName": "eg", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}
    for name, rules in (LOCAL | DIFFERENT).items():
        served = {"matches": [{"path": {"value": f"/{name}"}}], "backendRefs": [{"name": "api", "port": 80}]}
        yield {"kind": "HTTPRoute", "metadata": meta | {"name": name},
               "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["shop.test"], "rules": [served]}}
        target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}
        if rules:
            yield {"kind": "BackendTrafficPolicy", "metadata": meta | {"name": name},
                   "spec": {"targetRefs": [target], "rateLimit": {"type": "Local", "local": {"rules": rules}}}}


def local_routes():
    """Envoy's routes with these limits."""
    for name, rules in (LOCAL | DIFFERENT).items():
        route = {"match": {"path_separated_prefix": f"/{name}"}, "route": {"cluster": "api"}}
        limits = {"envoy.filters.http.local_ratelimit": translated(rules)} if rules else {}
        yield route | {"typed_per_filter_config": limits}


# --- Envoy ---


def cluster(name, port, **more):
    """A server on this machine."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    own = {"name": name, "connect_timeout": "5s"}
    return own | {"load_assignment": {"cluster_name": name, "endpoints": endpoints}} | more


@contextlib.contextmanager
def envoy(routes, limiter, clusters, tally):
    """Runs Envoy with a filter before its router, and gives its port."""
    port = free_port()
    router = {"name": "envoy.filters.http.router", "typed_config": typed("http.router.v3.Router")}
    host = {"name": "all", "domains": ["*"], "routes": list(routes)}
    manager = typed("network.http_connection_manager.v3.HttpConnectionManager") | {
        "stat_prefix": "front", "use_remote_address": True, "route_config": {"virtual_hosts": [host]},
        "http_filters": [limiter, router]}
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    listener = {"address": address, "filter_chains": [{"filters": filters}]}
    with tempfile.TemporaryDirectory(prefix="envoy-") as folder:
        file = Path(folder) / "envoy.json"
        file.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}}))
        command = [ENVOY, "--config-path", str(file), "--log-level", "error", "--use-dynamic-base-id"]
        with running("envoy", [*command, "--concurrency", "1"], port, tally):
            yield port


def statuses(port, requests):
    """The status of each request, which are sent one after another: source, method, path, fields."""
    answers = []
    with contextlib.ExitStack() as stack:
        connections = {}
        for source, method, path, fields in requests:
            if source not in connections:
                own = (source, 0)
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=own)
                connections[source] = stack.enter_context(contextlib.closing(connection))
            connections[source].request(method, path, headers={"Host": "shop.test"} | fields)
            with contextlib.closing(connections[source].getresponse()) as response:
                response.read()
                answers.append(response.status)
    return answers


# --- The rate limit service ---


def node(key, value=None, limit=None, below=(), **more):
    """A descriptor of the reference's configuration; `limit` is a number and a unit."""
    own = {"key": key} | ({} if value is None else {"value": value}) | more
    if limit:
        own["rate_limit"] = {"requests_per_unit": limit[0], "unit": limit[1]} | own.pop("rate", {})
    return own | ({"descriptors": list(below)} if below else {})


CONFIGURATION = {
    "domain": "edge",
    "descriptors": [
        node("user", limit=(60, "day")),
        node("user", "admin", rate_limit={"unlimited": True}),
        node("user", "b", limit=(0, "YEAR")),
        node("user", "c*", limit=(25, "week")),
        node("org", below=[
            node("user", limit=(40, "day")),
            node("user", "a", limit=(5, "month"), shadow_mode=True),
        ]),
        # It hides what is below the one without a value.
        node("org", "acme", below=[node("user", limit=(15, "week")), node("user", "admin", limit=(70, "day"))]),
        node("org", "free"),
        node("file", "f/*", limit=(90, "day"), share_threshold=True),
        node("file", "g/*/x", limit=(20, "year"), detailed_metric=True),
        node("file", "g/*", limit=(30, "month")),
        node("generic_key", "v1", below=[node("generic_key", "login", limit=(100, "day"))]),
        node("replaced", below=[node("user", limit=(30, "day"), rate={"name": "slow"})]),
        node("replacing", below=[node("user", limit=(50, "day"), rate={"replaces": [{"name": "slow"}]})]),
    ],
}

def generic(value):
    """An action with a fixed value, which the model takes from a field of that name."""
    return {"generic_key": {"descriptor_value": value}}


def header(key):
    """An action for a field of the request."""
    return {"request_headers": {"header_name": f"x-{key}", "descriptor_key": key}}


# Which descriptors Envoy sends of requests below a path.
ACTIONS = {
    "user": [[header("user")]],
    "nested": [[header("org"), header("user")]],
    "file": [[header("file")]],
    "login": [[generic("v1"), generic("login")]],
    "other": [[generic("v1")], [generic("v2"), generic("login")]],
    "two": [[header("user")], [header("org"), header("user")]],
    "replaces": [[header("replaced"), header("user")], [header("replacing"), header("user")]],
}
FIELDS = {
    "user": [*USERS, "cc", "d"],
    "org": [None, "acme", "free", "x"],
    "file": [None, "f/1", "f/2/x", "g/1", "g/1/x"],
}
SERVED = ["user", "nested", "file", "login", "other", "two"]


def descriptors(path, fields):
    """What Envoy sends: of a list of actions nothing, where a field is missing."""
    for actions in ACTIONS[path.strip("/")]:
        entries = []
        for action in actions:
            if own := action.get("request_headers"):
                entries.append((own["descriptor_key"], fields.get(own["header_name"])))
            else:
                entries.append(("generic_key", action["generic_key"]["descriptor_value"]))
        if all(value is not None for _, value in entries):
            yield tuple(entries)


def asking_routes():
    """Envoy's routes with these actions."""
    for path, actions in ACTIONS.items():
        own = typed("http.ratelimit.v3.RateLimitPerRoute")
        own["rate_limits"] = [{"actions": actions} for actions in actions]
        yield {"match": {"path": f"/{path}"}, "route": {"cluster": "api"},
               "typed_per_filter_config": {"envoy.filters.http.ratelimit": own}}


# --- Both ---


class Imported(Plan):
    """The policy that an import has made."""

    def policy_text(self):
        return self.policy


def expect(tally, what, got, expected):
    """Records whether something is as expected."""
    tally.record(what, [] if got == expected else [f"{got!r} and not {expected!r}"])


def imported(binary, kind, files, expected, tally):
    """The policy that is made of documents, and the table."""
    with tempfile.TemporaryDirectory(prefix="imported-") as folder:
        file, policy = Path(folder) / "file.yaml", Path(folder) / "policy.yaml"
        file.write_text("\n---\n".join(json.dumps(own, indent=1) for own in files))
        command = [binary, "import", kind[0], file, *kind[1:]]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        tally.record(f"import {kind[0]} ends with {expected}", [] if run.returncode == expected else [run.stderr])
        policy.write_text(run.stdout)
        check = subprocess.run([binary, "check", policy], capture_output=True, text=True, check=False)
        tally.record(f"import {kind[0]}: the policy and its tests are good",
                     [] if check.returncode == 0 else [check.stdout, check.stderr])
    return run.stdout, run.stderr


def compare(tally, what, requests, theirs, ours):
    """Whether each request has the same status with both."""
    differing = [(request, *own) for request, *own in zip(requests, theirs, ours) if own[0] != own[1]]
    admitted = ours.count(200)
    print(f"   {what}: {admitted} of {len(requests)} admitted")
    tally.record(f"{what}: all are answered alike",
                 [f"{len(differing)} are not", *differing[:5]] if differing else [])
    tally.record(f"{what}: some are denied", [] if 0 < admitted < len(requests) else [admitted])


def local_requests():
    """The same ones each time."""
    chance = random.Random(42)
    for _ in range(REQUESTS):
        fields = {"x-user": chance.choice(USERS), "x-plan": chance.choice([None, "free", "paid"])}
        path = f"/{chance.choice(list(LOCAL))}{chance.choice(['', '/a', '/a/x', '/ax', '/b', '/b/x'])}"
        source, method = chance.choice(SOURCES), chance.choice(METHODS)
        yield source, method, path, {name: value for name, value in fields.items() if value}


def try_local(binary, back, tally):
    """Envoy's local limits, and the import of Envoy Gateway's policies."""
    kind = ["envoy-gateway", "--upstream", f"http://127.0.0.1:{back}"]
    policy, table = imported(binary, kind, objects(), 0, tally)
    for name, words in NAMED.items():
        tally.record(f"the table names: {name}", [] if words in table else [table])
    requests = list(local_requests())
    # Requests that one rule counts, and then some that only the other one does.
    user = [(SOURCES[0], "GET", "/default", {"x-user": "a"})] * 40
    nobody = [(SOURCES[0], "GET", "/default", {})] * 150
    posts = [(SOURCES[0], "POST", "/denied", {})] * 90 + [(SOURCES[0], "POST", "/denied", {"x-user": "a"})] * 45
    gets = [(SOURCES[0], "GET", "/denied", {"x-user": "a"})] * 90
    limiter = typed("http.local_ratelimit.v3.LocalRateLimit")
    limiter |= {"stat_prefix": "http_local_rate_limiter", "max_dynamic_descriptors": 10000}
    limiter = {"name": "envoy.filters.http.local_ratelimit", "typed_config": limiter}

    def answers(port):
        all_of_them = statuses(port, requests)
        return all_of_them, [statuses(port, own).count(200) for own in (user, nobody, posts, gets)]

    with envoy(local_routes(), limiter, [cluster("api", back)], tally) as port:
        theirs, their_differences = answers(port)
    with tollgate(binary, policy, tally) as port:
        ours, our_differences = answers(port)
    compare(tally, "local limits", requests, theirs, ours)
    print(f"   what differs: {their_differences} by Envoy, {our_differences} here")
    # The user's 20 leave 80 for everybody here; 45 denied ones leave the user 15 of 60 there.
    expect(tally, "local limits: Envoy charges one rule, and what another denies",
           their_differences, [20, 100, 90, 15])
    expect(tally, "local limits: here both rules, and nothing that is denied",
           our_differences, [20, 80, 90, 60])


def service_requests():
    """The same ones each time."""
    chance = random.Random(43)
    for _ in range(REQUESTS):
        fields = {f"x-{name}": chance.choice(values) for name, values in FIELDS.items()}
        fields = {name: value for name, value in fields.items() if value}
        yield SOURCES[0], "GET", f"/{chance.choice(SERVED)}", fields


def expected(reference, requests):
    """The statuses by the reference."""
    return [200 if reference.admits(list(descriptors(path, fields))) else 429 for _, _, path, fields in requests]


def try_service(binary, back, tally):
    """Envoy asks Tollgate as it asks envoyproxy/ratelimit."""
    policy, table = imported(binary, ["envoy"], [CONFIGURATION], 3, tally)
    for words in ("`replaces`: all limits of a request are charged", "or none if one denies it"):
        tally.record(f"the table names: {words}", [] if words in table else [table])
    left = DAY_SECONDS - time.time() % DAY_SECONDS
    time.sleep(left if left < ROOM_SECONDS else 0)
    asked = free_port()
    plan = Imported([], policy=policy)
    plan.settings = {"decisions": [{"address": f"127.0.0.1:{asked}", "protocol": "grpc"}]}
    two = {"http2_protocol_options": {}}
    options = {"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"}
    options = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options | {"explicit_http_config": two}}
    clusters = [cluster("api", back), cluster("limiter", asked, typed_extension_protocol_options=options)]
    service = {"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "limiter"}}}
    limiter = typed("http.ratelimit.v3.RateLimit") | {
        "domain": "edge", "timeout": "5s", "failure_mode_deny": True, "rate_limit_service": service}
    limiter = {"name": "envoy.filters.http.ratelimit", "typed_config": limiter}
    requests = list(service_requests())
    # A user who is denied by one of two limits, and then only asked about the other one.
    denied = [(SOURCES[0], "GET", "/two", {"x-user": "z", "x-org": "acme"})] * 50
    alone = [(SOURCES[0], "GET", "/user", {"x-user": "z"})] * 90
    replaced = [(SOURCES[0], "GET", "/replaces", {"x-user": "z", "x-replaced": "1", "x-replacing": "1"})] * 70
    with proxy(binary, plan, tally), envoy(asking_routes(), limiter, clusters, tally) as port:
        ours = statuses(port, requests)
        differences = [statuses(port, own).count(200) for own in (denied, alone, replaced)]
    compare(tally, "the service", requests, expected(Reference(CONFIGURATION, charges_denied=False), requests), ours)
    reference = Reference(CONFIGURATION, charges_denied=True)
    theirs = [expected(reference, own).count(200) for own in (denied, alone, replaced)]
    print(f"   what differs: {theirs} by the reference, {differences} here")
    expect(tally, "the service: the reference charges what is denied, and replaces limits", theirs, [15, 10, 50])
    expect(tally, "the service: nothing that is denied is charged here, and no limit replaced",
           differences, [15, 45, 30])


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with api(tally) as back:
        try_local(binary, back, tally)
        try_service(binary, back, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
