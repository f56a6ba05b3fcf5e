"""How the answer of a proxy differs from the answer without one.

Every difference is reported unless it is listed here with the reason why a proxy must make it.
"""

import gzip
import json
import re
import zlib

import brotlicffi

from wire import HOST, send

# What the policy of `compare.py` allows in an hour.
LIMIT = 1_000_000

LIMIT_HEADERS = [f"x-ratelimit-{name}" for name in "limit remaining used reset resource".split()]

# Belongs to one connection, or to the moment.
PER_HOP = {"connection", "keep-alive", "transfer-encoding", "date"}
# Belongs to the connection between proxy and upstream, and must not get further.
REMOVED = {"proxy-authenticate"}
# What the proxy says for itself; the limit headers are checked by `limit_problems`.
ADDED = {*LIMIT_HEADERS, "x-request-id", "access-control-expose-headers"}
# Compared by `length_problems`: an echoed request is longer by what the proxy added to it.
LENGTH = {"content-length"}

# Request headers that httpbin echoes and that a proxy sets for its upstream.
FORWARDED = {"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"}

UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
CHALLENGE_RANDOM = re.compile(r'\b(nonce|opaque)="?[0-9a-f]+"?')


class Pair:
    """The two ports that must behave alike."""

    def __init__(self, direct, proxied):
        self.direct = direct
        self.proxied = proxied

    def differences(self, case, send_proxied=send):
        """Sends a case to both and returns how the answers differ."""
        try:
            direct, proxied = send(self.direct, case), send_proxied(self.proxied, case)
        except Exception as error:  # Whatever it is, it is this case's failure, not the run's.
            return [f"{type(error).__name__}: {error}"]
        if case.refused is not None:
            return expect("status", case.refused, proxied.status)
        return self.compare(case, direct, proxied)

    def compare(self, case, direct, proxied):
        """How two replies differ."""
        problems = expect("status", direct.status, proxied.status)
        problems += header_problems(case, self.neutral(direct), self.neutral(proxied))
        problems += length_problems(case, direct, proxied)
        problems += self.body_problems(case, direct, proxied)
        problems += limit_problems(proxied)
        return problems

    def neutral(self, reply):
        """The headers by name, without those that may differ, and without addresses."""
        headers = {}
        for name, value in reply.headers:
            if name not in PER_HOP | ADDED | LENGTH:
                value = CHALLENGE_RANDOM.sub(r'\1="*"', self.without_address(value))
                headers.setdefault(name, []).append(value)
        return headers

    def without_address(self, text):
        """The proxy may address its upstream by its own name, which httpbin repeats in URLs."""
        for port in (self.direct, self.proxied):
            text = text.replace(f"127.0.0.1:{port}", HOST)
        return text

    def body_problems(self, case, direct, proxied):
        """How two bodies differ, apart from what a proxy must change."""
        if direct.body == proxied.body:
            return []
        if case.random_body:
            return expect("length of the body", len(direct.body), len(proxied.body))
        bodies = [self.meaning(decoded(reply)) for reply in (direct, proxied)]
        return expect("body", *bodies)

    def meaning(self, body):
        """JSON, or lines of it, without what may differ; other bodies as they are."""
        try:
            lines = [json.loads(body)]
        except ValueError:
            try:
                lines = [json.loads(line) for line in body.splitlines()]
            except ValueError:
                return body
        return [self.scrubbed(line) for line in lines]

    def scrubbed(self, value):
        """A JSON value without what may differ."""
        if isinstance(value, dict):
            members = {key: self.scrubbed(member) for key, member in value.items()}
            if isinstance(members.get("headers"), dict):
                members["headers"] = echoed(members["headers"])
            return members
        if isinstance(value, list):
            return [self.scrubbed(member) for member in value]
        if isinstance(value, str):
            return "uuid" if UUID.match(value) else self.without_address(value)
        return value


def expect(what, wanted, seen):
    """A problem unless the two are equal."""
    if wanted == seen:
        return []
    return [f"{what}: expected {abridged(wanted)}, got {abridged(seen)}"]


def abridged(value):
    """A value on one line."""
    text = repr(value)
    return text if len(text) <= 600 else f"{text[:300]} ... {text[-300:]}"


def echoed(headers):
    """The request's headers as httpbin saw them, without those that a proxy sets.

    `Content-Length: 0` says nothing that its absence does not (RFC 9112, 6.3), and a proxy that
    answers `100 Continue` itself need not forward `Expect` (RFC 9110, 10.1.1).
    """
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in FORWARDED | {"expect"}
        and (name.lower(), value) != ("content-length", "0")
    }


def decoded(reply):
    """The body without its content coding."""
    decoders = {"gzip": gzip.decompress, "deflate": zlib.decompress, "br": brotlicffi.decompress}
    body = reply.body
    for coding in reply.values("content-encoding"):
        body = decoders[coding](body)
    return body


def header_problems(case, direct, proxied):
    """How two sets of headers differ: by name, by number and by order of repeated ones."""
    problems = []
    for name in sorted(direct.keys() | proxied.keys()):
        wanted, seen = direct.get(name, []), proxied.get(name, [])
        if name in REMOVED:
            wanted = []
        if name in case.volatile:
            wanted, seen = len(wanted), len(seen)
        problems += expect(name, wanted, seen)
    return problems


def length_problems(case, direct, proxied):
    """Same bytes, same length; and a length is announced through the proxy iff it is without."""
    wanted, seen = direct.values("content-length"), proxied.values("content-length")
    problems = []
    if direct.body != proxied.body or case.echoes:
        problems += expect("number of content-length headers", len(wanted), len(seen))
    else:
        problems += expect("content-length", wanted, seen)
    if seen and proxied.body and int(seen[0]) != len(proxied.body):
        problems.append(f"content-length is {seen[0]}, but {len(proxied.body)} bytes came")
    return problems


def limit_problems(reply):
    """The five limit headers: all there, each once, and consistent."""
    values = [reply.values(name) for name in LIMIT_HEADERS]
    if any(len(each) != 1 for each in values):
        return [f"limit headers: {dict(zip(LIMIT_HEADERS, values))}"]
    limit, remaining, used, reset, resource = (each[0] for each in values)
    if not all(number.isdecimal() for number in (limit, remaining, used, reset)):
        return [f"limit headers that are no numbers: {values}"]
    problems = expect("x-ratelimit-limit", LIMIT, int(limit))
    problems += expect("used + remaining", LIMIT, int(used) + int(remaining))
    problems += expect("x-ratelimit-resource", "ip", resource)
    return problems
