"""Holds httpbin behind Tollgate against httpbin itself: a client must not see a difference.

Every request of `cases.py` is sent to both and compared by `difference.py`. What takes more than
one request, or more than HTTP/1.1, is a `check_` function of this file.
"""

import hashlib
import json
import re
import sys

from cases import (
    BINARY_BODY,
    DOCUMENTED,
    HTTP2,
    JSON_BODY,
    UNDOCUMENTED,
    Case,
    authorized,
    get,
    upload,
)
from difference import LIMIT, LIMIT_HEADERS, Pair, expect, limit_problems
from harness import Tally, binary_under_test, free_port, running, tollgate
from wire import (
    HOST,
    curl_speaks_http2,
    open_connection,
    send,
    send_after_continue,
    send_bytes,
    send_http2,
    send_on,
)

POLICY = f"""\
version: 1
upstreams:
  httpbin: {{ servers: ["http://127.0.0.1:UPSTREAM_PORT"] }}
limits:
  ip: {{ per: client.ip, rate: {LIMIT:_}/hour }}
routes:
  - {{ match: {{ path: "/**" }}, auth: none, limits: [ip] }}
responses: {{ headers: github }}
"""


def check_coverage(pair, tally):
    """Every operation of httpbin's specification has a case, and no case is left over."""
    paths = json.loads(send(pair.direct, get("/spec.json")).body)["paths"]
    documented = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    covered = {(case.method, path) for path, cases in DOCUMENTED.items() for case in cases}
    problems = [f"no case for {method} {path}" for method, path in sorted(documented - covered)]
    problems += [f"{path} is not documented" for path in sorted(DOCUMENTED.keys() - paths.keys())]
    tally.record("every documented operation has a case", problems)
    print(f"httpbin documents {len(documented)} operations on {len(paths)} paths")


def check_digest(pair, tally):
    """Both steps of digest authentication (RFC 7616) work through the proxy."""
    for qop in ("auth", "auth-int"):
        for algorithm, digest in DIGESTS.items():
            case = get(f"/digest-auth/{qop}/ada/secret/{algorithm}")
            replies = [answer_challenge(port, case, qop, digest) for port in both(pair)]
            problems = expect("status", 200, replies[0].status) + pair.compare(case, *replies)
            tally.record(f"digest authentication, {qop}, {algorithm}", problems)


DIGESTS = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256, "SHA-512": hashlib.sha512}


def answer_challenge(port, case, qop, digest):
    """Asks, and asks again with what the challenge wanted."""

    def joined(*parts):
        return digest(":".join(parts).encode()).hexdigest()

    challenge = dict(
        re.findall(r'(\w+)="?([^",]+)"?', send(port, case).values("www-authenticate")[0])
    )
    secret = joined("ada", challenge["realm"], "secret")
    request = [case.method, case.target]
    if qop == "auth-int":
        request.append(digest(b"").hexdigest())
    response = joined(secret, challenge["nonce"], "00000001", "0a4f", qop, joined(*request))
    quoted = {name: challenge[name] for name in ("realm", "nonce", "opaque")}
    quoted |= {"username": "ada", "uri": case.target, "cnonce": "0a4f", "response": response}
    fields = [f'{name}="{value}"' for name, value in quoted.items()]
    fields += [f"algorithm={challenge['algorithm']}", f"qop={qop}", "nc=00000001"]
    return send(port, authorized(case, f"Digest {', '.join(fields)}"))


def both(pair):
    """Direct first, proxied second, as `Pair.compare` takes them."""
    return pair.direct, pair.proxied


def check_http_1_0(pair, tally):
    """A client that knows no chunks and no persistence gets the same bytes."""
    for target in ("/get", "/json", "/stream/5", "/bytes/1024?seed=7", "/status/204"):
        head = f"GET {target} HTTP/1.0\r\nHost: {HOST}\r\nUser-Agent: old\r\n\r\n".encode()
        replies = [send_bytes(port, head, ["GET"])[0] for port in both(pair)]
        # A length that is only known to one side is no difference when the end is the close.
        problems = expect("status", replies[0].status, replies[1].status)
        problems += pair.body_problems(get(target), *replies)
        problems += expect("transfer-encoding", [], replies[1].values("transfer-encoding"))
        tally.record(f"HTTP/1.0 GET {target}", problems)


def check_expect_continue(pair, tally):
    """A client that waits for leave before it sends its body is given leave."""
    for body in (JSON_BODY, BINARY_BODY):
        head = (
            f"POST /post HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: patient\r\n"
            "Content-Type: application/octet-stream\r\nExpect: 100-continue\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        answers = [send_after_continue(port, head, body) for port in both(pair)]
        problems = expect("interim status", "HTTP/1.1 100 Continue", answers[1][0])
        problems += pair.compare(Case("POST", "/post"), answers[0][1], answers[1][1])
        tally.record(f"Expect: 100-continue with {len(body)} bytes", problems)


def check_reuse(pair, tally):
    """Requests share a connection, one after the other and all at once."""
    targets = ["/get?n=1", "/json", "/status/204", "/stream/3", "/bytes/1024?seed=7", "/get?n=2"]
    cases = [*map(get, targets), upload("POST", "/post", "text/plain", b"once"), get("/get?n=3")]
    connection = open_connection(pair.proxied)
    problems = []
    first_socket = None
    for case in cases:
        problems += pair.compare(case, send(pair.direct, case), send_on(connection, case))
        first_socket = first_socket or connection.sock
        if connection.sock is not first_socket:
            problems.append(f"the connection was closed after {case.name}")
    connection.close()
    tally.record("requests one after the other on one connection", problems)

    # Pipelined through the proxy only: what httpbin's server makes of it is not our question.
    lines = [f"GET {target} HTTP/1.1\r\nHost: {HOST}\r\n" for target in targets]
    fields = "User-Agent: tollgate-compare\r\nAccept: */*\r\n\r\n"
    payload = "".join(line + fields for line in lines).encode()
    problems = []
    for target, reply in zip(targets, send_bytes(pair.proxied, payload, ["GET"] * len(targets))):
        problems += pair.compare(get(target), send(pair.direct, get(target)), reply)
    tally.record("pipelined requests are answered in order", problems)


def check_http2(pair, tally):
    """An HTTP/2 client gets what an HTTP/1.1 client gets without the proxy."""
    if not curl_speaks_http2():
        print("skipped: HTTP/2, which the installed curl does not know")
        return
    for case in HTTP2:
        tally.record(f"HTTP/2 {case.name}", pair.differences(case, send_http2))


def check_what_the_upstream_sees(pair, tally):
    """The upstream learns who asked from the proxy, and nothing from what a client made up."""
    forged = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "forged.test",
        "X-Real-Ip": "203.0.113.9",
        "Forwarded": "for=203.0.113.9",
        "X-RateLimit-Remaining": "203",
        "RateLimit": '"forged";r=203',
    }
    reply = send(pair.proxied, get("/headers?show_env=1", *forged.items()))
    seen = {name.lower(): value for name, value in json.loads(reply.body)["headers"].items()}
    problems = expect("x-forwarded-for", "127.0.0.1", seen.get("x-forwarded-for"))
    problems += expect("x-forwarded-proto", "http", seen.get("x-forwarded-proto"))
    problems += expect("x-forwarded-host", HOST, seen.get("x-forwarded-host"))
    problems += expect("an x-request-id", True, bool(seen.get("x-request-id")))
    unwanted = {"x-real-ip", "forwarded", "connection", "keep-alive", "te", "upgrade"}
    unwanted |= {name for name in seen if re.match(r"x?-?ratelimit|x-tollgate-", name)}
    problems += [f"upstream saw {name}: {seen[name]}" for name in sorted(unwanted & seen.keys())]
    tally.record("the upstream sees the proxy's word and no limit headers", problems)


def check_limits(pair, tally):
    """The limit headers count down by one for each request, and are the proxy's own."""
    counts = []
    for number in range(5):
        reply = send(pair.proxied, get(f"/get?count={number}"))
        counts.append([int(reply.values(name)[0]) for name in LIMIT_HEADERS[:4]])
    first = counts[0]
    wanted = [[LIMIT, first[1] - n, first[2] + n, first[3]] for n in range(len(counts))]
    tally.record("limit, remaining, used and reset count", expect("counts", wanted, counts))

    names = "&".join(f"X-RateLimit-{name}=7" for name in ("Limit", "Remaining", "Used", "Reset"))
    reply = send(pair.proxied, get(f"/response-headers?{names}&X-RateLimit-Resource=upstream"))
    tally.record("the upstream's limit headers are replaced", limit_problems(reply))

    reply = send(pair.proxied, get("/get", ("Origin", "https://example.com")))
    exposed = {
        name.strip().lower()
        for value in reply.values("access-control-expose-headers")
        for name in value.split(",")
    }
    missing = sorted(set(LIMIT_HEADERS) - exposed)
    tally.record("a browser may read the limit headers", expect("not exposed", [], missing))


def main():
    """Starts both servers and runs every check."""
    binary = binary_under_test(__doc__, 300)

    tally = Tally()
    direct = free_port()
    gunicorn = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{direct}"]
    gunicorn += ["--worker-class", "gthread", "--threads", "16", "--keep-alive", "60"]
    gunicorn += ["--no-control-socket", "httpbin:app"]
    policy = POLICY.replace("UPSTREAM_PORT", str(direct))
    with (
        running("httpbin", gunicorn, direct, tally),
        tollgate(binary, policy, tally) as proxied,
    ):
        pair = Pair(direct, proxied)
        check_coverage(pair, tally)
        for case in [case for cases in DOCUMENTED.values() for case in cases] + UNDOCUMENTED:
            tally.record(case.name, pair.differences(case))
        for check in (
            check_digest,
            check_http_1_0,
            check_expect_continue,
            check_reuse,
            check_http2,
            check_what_the_upstream_sees,
            check_limits,
        ):
            try:
                check(pair, tally)
            except Exception as error:  # A check that cannot be made is one that failed.
                tally.record(check.__name__, [f"{type(error).__name__}: {error}"])
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
