"""Envoy's two questions by gRPC: may this request be forwarded, and have these descriptors room.

First a client of gRPC asks with the messages that Envoy publishes; then Envoy itself, with the rate
limit filter as config/beside has it. (run.py tries its filter ext_authz beside the other proxies.)
"""

import contextlib
import http.client
import json
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from envoy_data_plane.envoy.config.core.v3 import Address, HeaderMap, HeaderValue, SocketAddress
from envoy_data_plane.envoy.extensions.common.ratelimit.v3 import (
    RateLimitDescriptor,
    RateLimitDescriptorEntry,
)
from envoy_data_plane.envoy.service.auth.v3 import (
    AttributeContext,
    AttributeContextHttpRequest,
    AttributeContextPeer,
    AttributeContextRequest,
    AuthorizationSyncStub,
    CheckRequest,
)
from envoy_data_plane.envoy.service.ratelimit.v3 import (
    RateLimitRequest,
    RateLimitResponseCode as Code,
    RateLimitResponseRateLimitUnit as Unit,
    RateLimitServiceSyncStub,
)

HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / "config" / "beside" / "envoy" / "rate-limit.yaml"
sys.path[:0] = [str(HERE.parent / "edge")]
from stage import Plan, Tally, api, bearer, binary_under_test, eventually, free_port, proxy, running

SECONDS = 200
ENVOY = str(Path(sys.executable).with_name("envoy"))
LIMITS = {
    "per-caller": {"per": "caller", "rate": "2/hour"},
    "per-user": {"per": "descriptor.user", "rate": "10/hour"},
    "per-path": {"per": ["descriptor.user", "descriptor.path"], "rate": "4/minute"},
    "odd": {"per": "descriptor.odd", "rate": "2/90s"},
    "shadowed": {"per": "descriptor.shadowed", "rate": "1/hour", "mode": "shadow"},
    "sent-bytes": {"per": "descriptor.sent_to", "rate": "1000/day"},
}
POLICY = {
    "rls": [
        {"domain": "edge", "when": {"key": ["user"]}, "limits": ["per-user"]},
        {"domain": "edge", "when": {"key": ["user", "path"]}, "limits": ["per-path"]},
        {"domain": "edge", "when": {"key": ["odd"]}, "limits": ["odd"]},
        {"domain": "edge", "when": {"key": ["shadowed"]}, "limits": ["shadowed"]},
        {"domain": "edge", "when": {"key": ["sent_to"]}, "limits": ["sent-bytes"],
         "charge": "always"},
    ]
}
ROUTES = [
    {"match": {"path": "/private"}, "auth": "required", "limits": ["per-caller"]},
    {"match": {"path": "/**"}, "auth": "optional", "limits": ["per-caller"]},
]


def expect(tally, what, got, expected):
    """Records whether something is as expected."""
    tally.record(what, [] if got == expected else [f"{got!r} and not {expected!r}"])


def descriptor(*pairs, **more):
    """A descriptor of these pairs."""
    entries = [RateLimitDescriptorEntry(key=key, value=value) for key, value in pairs]
    return RateLimitDescriptor(entries=entries, **more)


def code_of(call, *arguments):
    """The status of gRPC that a call ends with."""
    try:
        call(*arguments, timeout=10) if arguments else call()
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


def try_limits(channel, tally):
    """Descriptors, hits, and what they do to each other."""
    stub = RateLimitServiceSyncStub(channel)

    def ask(*descriptors, domain="edge", hits=0):
        request = RateLimitRequest(domain=domain, descriptors=list(descriptors), hits_addend=hits)
        return stub.should_rate_limit(request)

    def told(answer):
        return answer.overall_code.name, [
            (status.code.name, status.limit_remaining) for status in answer.statuses
        ]

    user, both = ("user", "7"), [("user", "7"), ("path", "/a")]
    answer = ask(descriptor(user), descriptor(*both))
    expect(tally, "rls: two descriptors", told(answer), ("OK", [("OK", 9), ("OK", 3)]))
    limits = [status.current_limit for status in answer.statuses]
    limits = [(own.requests_per_unit, own.unit, own.name) for own in limits]
    expect(tally, "rls: their limits", limits,
           [(10, Unit.HOUR, "per-user"), (4, Unit.MINUTE, "per-path")])
    reset = answer.statuses[1].duration_until_reset.total_seconds()
    tally.record("rls: time until the window ends", [] if 50 < reset <= 60 else [str(reset)])

    expect(tally, "rls: hits of the request", told(ask(descriptor(user), hits=5)),
           ("OK", [("OK", 4)]))
    answer = ask(descriptor(user, hits_addend=0), descriptor(*both, hits_addend=2))
    expect(tally, "rls: a descriptor's own hits, and a look", told(answer),
           ("OK", [("OK", 4), ("OK", 1)]))
    answer = ask(descriptor(user), descriptor(*both, hits_addend=2))
    expect(tally, "rls: one has no room", told(answer), ("OVER_LIMIT", [("OK", 4), ("OVER_LIMIT", 1)]))
    fields = {field.key: field.value for field in answer.response_headers_to_add}
    tally.record("rls: when to come back", [] if int(fields.get("retry-after", 0)) > 0 else [fields])
    answer = ask(descriptor(user, hits_addend=0), descriptor(*both, hits_addend=0))
    expect(tally, "rls: so none was charged", told(answer), ("OK", [("OK", 4), ("OK", 1)]))
    back = ask(descriptor(user, hits_addend=3, is_negative_hits=True))
    expect(tally, "rls: hits are given back", told(back), ("OK", [("OK", 7)]))
    answer = ask(descriptor(user), descriptor(user))
    expect(tally, "rls: two descriptors of one counter", told(answer), ("OK", [("OK", 5)] * 2))

    answer = ask(descriptor(("odd", "1")))
    status = answer.statuses[0]
    expect(tally, "rls: a window that is no unit", (status.current_limit, status.limit_remaining),
           (None, 1))
    fields = {field.key: field.value for field in answer.response_headers_to_add}
    tally.record("rls: it is told in a field", [] if "w=90" in fields.get("ratelimit-policy", "")
                 else [fields])
    for _ in range(2):
        answer = ask(descriptor(("shadowed", "1")))
    expect(tally, "rls: a limit in shadow mode", answer.overall_code, Code.OK)
    done = ask(descriptor(("sent_to", "7"), hits_addend=1500))
    expect(tally, "rls: what has happened is charged over the limit", told(done),
           ("OVER_LIMIT", [("OVER_LIMIT", 0)]))
    look = ask(descriptor(("sent_to", "7"), hits_addend=0))
    expect(tally, "rls: and stays charged", told(look), ("OVER_LIMIT", [("OVER_LIMIT", 0)]))

    unknown = ask(descriptor(("nobody", "knows")), descriptor(user, hits_addend=0))
    expect(tally, "rls: a descriptor without limits", unknown.overall_code, Code.OK)
    expect(tally, "rls: another domain", ask(descriptor(user), domain="other").overall_code, Code.OK)
    for what, arguments, domain in [
        ("no domain", [descriptor(user)], ""),
        ("no descriptor", [], "edge"),
        ("too many descriptors", [descriptor(user)] * 65, "edge"),
    ]:
        code = code_of(lambda: ask(*arguments, domain=domain))
        expect(tally, f"rls: {what}", code, "INVALID_ARGUMENT")
    path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
    for what, message in [("garbage", b"\xff" * 40), ("a message cut short", b"\x0a\x04edg")]:
        expect(tally, f"rls: {what}", code_of(channel.unary_unary(path), message), "INVALID_ARGUMENT")
    expect(tally, "rls: a message that is too long",
           code_of(channel.unary_unary(path), b"\0" * (5 << 20)), "RESOURCE_EXHAUSTED")
    expect(tally, "an unknown method",
           code_of(channel.unary_unary("/envoy.service.nothing/There"), b""), "UNIMPLEMENTED")


def try_json(port, tally):
    """The same question over HTTP/1.1."""
    def ask(question):
        json_type = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/json", json.dumps(question).encode(), json_type
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    pair = {"key": "user", "value": "json"}
    question = {"domain": "edge", "descriptors": [{"entries": [pair], "hitsAddend": "9"}]}
    status, answer = ask(question)
    told = (status, answer["overallCode"], answer["statuses"][0]["limitRemaining"])
    expect(tally, "json: there is room", told, (200, "OK", 1))
    expect(tally, "json: there is none", (ask(question)[0], ask(question)[1]["overallCode"]),
           (429, "OVER_LIMIT"))
    expect(tally, "json: a mistake", ask({"domain": "edge", "descriptor": []})[0], 400)


def question(path="/a", method="GET", host="api.example", fields=(), source="192.0.2.1", raw=True):
    """What Envoy asks about a request."""
    asked = AttributeContextHttpRequest(method=method, path=path, host=host)
    if raw:
        fields = [HeaderValue(key=key, raw_value=value.encode()) for key, value in fields]
        asked.header_map = HeaderMap(headers=fields)
    else:
        asked.headers = dict(fields)
    address = Address(socket_address=SocketAddress(address=source)) if source else None
    return CheckRequest(
        attributes=AttributeContext(
            source=AttributeContextPeer(address=address),
            request=AttributeContextRequest(http=asked),
        )
    )


def try_checks(channel, tally):
    """Requests that may be forwarded, and those that may not."""
    stub = AuthorizationSyncStub(channel)
    token = ("authorization", bearer("42"))
    forged = [("x-tollgate-subject", "admin"), ("x-real-ip", "10.0.0.1")]
    for raw in (True, False):
        source = "192.0.2.7" if raw else "192.0.2.8"
        answer = stub.check(question(fields=[token, *forged] if raw else [token], raw=raw))
        okay = answer.ok_response
        expect(tally, f"check: admitted (raw {raw})", (answer.status.code, okay is not None), (0, True))
        fields = {own.header.key: own.header.value for own in okay.headers}
        expect(tally, f"check: the caller (raw {raw})", fields.get("x-tollgate-subject"), "42")
        told = {own.header.key: own.header.value for own in okay.response_headers_to_add}
        expect(tally, f"check: limit headers (raw {raw})", told.get("x-ratelimit-remaining"),
               "1" if raw else "0")
        anonymous = stub.check(question(fields=forged if raw else [], source=source, raw=raw))
        removed = set(anonymous.ok_response.headers_to_remove)
        needed = {"x-tollgate-subject"} | ({"x-real-ip"} if raw else set())
        tally.record(f"check: what a client could fake is removed (raw {raw})",
                     [] if needed <= removed else [str(removed)])
    answer = stub.check(question(fields=[token]))
    denied = answer.denied_response
    told = {own.header.key: own.header.value for own in denied.headers}
    expect(tally, "check: over the limit", (denied.status.code, told.get("x-ratelimit-remaining")),
           (429, "0"))
    tally.record("check: and why", [] if "rate limit" in denied.body.lower() else [denied.body])
    expect(tally, "check: no token where one is needed",
           stub.check(question("/private")).denied_response.status.code, 401)
    alias = stub.check(question(fields=[("x_tollgate_tier", "internal")]))
    expect(tally, "check: an alias of an identity field", alias.denied_response.status.code, 400)
    other = stub.check(question("/private/..;/a"))
    expect(tally, "check: a path that is judged as another", other.denied_response.status.code, 400)
    twice = stub.check(question("/private", fields=[token, ("authorization", bearer("43"))]))
    expect(tally, "check: two tokens", twice.denied_response.status.code, 400)
    for what, asked in [
        ("no path", question(path="")), ("no host", question(host="")),
        ("no method", question(method="")), ("no source", question(source="")),
        ("a malformed source", question(source="pipe")), ("nothing", CheckRequest()),
    ]:
        expect(tally, f"check: {what}", code_of(lambda: stub.check(asked)), "INVALID_ARGUMENT")


    # A client writes these: with an error, failure_mode_allow would let them through.
    for what, asked in [
        ("a malformed path", question(path="/a#b")),
        ("a malformed method", question(method="GE T")),
        ("a malformed field", question(fields=[("a b", "c")])),
    ]:
        denied = stub.check(asked).denied_response
        expect(tally, f"check: {what}", denied and denied.status.code, 400)


def try_health(channel, tally):
    """What a load balancer asks."""
    stub = health_pb2_grpc.HealthStub(channel)
    for service, expected in [
        ("", "SERVING"), ("envoy.service.auth.v3.Authorization", "SERVING"),
        ("envoy.service.ratelimit.v3.RateLimitService", "SERVING"), ("nobody", "NOT_FOUND"),
    ]:
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            got = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        except grpc.RpcError as error:
            got = error.code().name
        expect(tally, f"health of {service!r}", got, expected)


def try_strangers(port, tally):
    """Whoever may not ask is told so."""
    options = [("grpc.local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        stub = AuthorizationSyncStub(channel)
        expect(tally, "strangers may not ask", code_of(lambda: stub.check(question())),
               "PERMISSION_DENIED")


def send(port, user):
    """Status and fields of an answer of Envoy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/bytes/150", headers={"X-User": user})
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        response.read()
        return response.status, fields


def try_filter(tollgate, asked, back, tally):
    """Envoy's rate limit filter."""
    front = free_port()
    text = SHIPPED.read_text()
    for shipped, own in (("8080", front), ("9000", back), ("8091", asked)):
        text = text.replace(f"port_value: {shipped}", f"port_value: {own}")
    with tempfile.TemporaryDirectory(prefix="envoy-") as folder:
        file = Path(folder) / "envoy.yaml"

        def envoy(text):
            file.write_text(text)
            command = [ENVOY, "--config-path", str(file), "--log-level", "error"]
            command += ["--use-dynamic-base-id", "--concurrency", "1"]
            return running("envoy", command, front, tally)

        with envoy(text):
            eventually(lambda: send(front, "first")[0] == 200)
            answers = [send(front, "filter") for _ in range(11)]
            statuses = [status for status, _ in answers]
            expect(tally, "envoy: the limit", statuses, [200] * 10 + [429])
            fields = answers[3][1]
            limit = fields.get("x-ratelimit-limit", "")
            expect(tally, "envoy: its own headers agree",
                   (limit.split(",")[0], "w=3600" in limit, fields.get("x-ratelimit-remaining")),
                   ("10", True, "6"))
            reset = int(fields.get("x-ratelimit-reset", 0))
            tally.record("envoy: and the reset", [] if 3500 < reset <= 3600 else [str(reset)])
            expect(tally, "envoy: a denial tells when to come back",
                   ("retry-after" in answers[-1][1], answers[-1][1].get("x-ratelimit-remaining")),
                   (True, "0"))
            with grpc.insecure_channel(f"127.0.0.1:{asked}") as channel:
                stub = RateLimitServiceSyncStub(channel)

                def sent():
                    look = descriptor(("sent_to", "filter"), hits_addend=0)
                    request = RateLimitRequest(domain="edge", descriptors=[look])
                    return stub.should_rate_limit(request).statuses[0]

                # Ten responses of 150 bytes.
                eventually(lambda: sent().limit_remaining == 0)
                status = sent()
                expect(tally, "envoy: bytes are charged when streams are done",
                       (status.code.name, status.limit_remaining), ("OVER_LIMIT", 0))
            tollgate.process.kill()
            tollgate.process.wait()
            expect(tally, "envoy: closed while Tollgate is away", send(front, "other")[0], 503)
        openly = text.replace("failure_mode_deny: true", "failure_mode_deny: false")
        with envoy(openly):
            expect(tally, "envoy: open, if it is told to", send(front, "other")[0], 200)


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    with api(tally) as back:
        asked, strangers = free_port(), free_port()
        plan = Plan([f"http://127.0.0.1:{back}"], limits=LIMITS, routes=ROUTES, policy=POLICY)
        plan.settings = {"decisions": [
            {"address": f"127.0.0.1:{asked}", "protocol": "grpc"},
            {"address": f"127.0.0.1:{strangers}", "protocol": "grpc", "askers": ["192.0.2.1"]},
        ]}
        with proxy(binary, plan, tally) as tollgate:
            with grpc.insecure_channel(f"127.0.0.1:{asked}") as channel:
                try_limits(channel, tally)
                try_checks(channel, tally)
                try_health(channel, tally)
            try_json(asked, tally)
            try_strangers(strangers, tally)
            try_filter(tollgate, asked, back, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
