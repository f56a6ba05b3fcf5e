"""What the scripts about tokens share: an API that reports what it saw, servers of keys, and what
an accepted and a refused request must look like.

Whatever the API sees, Tollgate let through.
"""

import contextlib
import http.client
import http.server
import json
import re
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "httpbin"))
from cases import get
from difference import expect
from harness import tollgate
from wire import send

AUDIENCE = "api"

CHALLENGE = re.compile(
    r'Bearer realm="tollgate"(?:, error="(?P<error>[a-z_]+)")?'
    r'(?:, error_description="(?P<text>[^"\\]+)")?(?:, scope="[^"\\]+")?'
)

# All texts that a client gets about a bad token. Nothing of the token can be among it.
TEXTS = {
    "The token is too long",
    "The token is malformed",
    "The token header is malformed",
    "The token algorithm is not allowed",
    "The token header has unsupported critical extensions",
    "The token header must not carry or link a key",
    "The token type is not accepted",
    "The token payload is malformed",
    "The token issuer is not accepted",
    "The token does not name its key",
    "The token signature could not be verified",
    "A token claim is malformed",
    "A required token claim is missing",
    "The token is for another audience",
    "The token has expired",
    "The token is not valid yet",
    "The token is valid for too long",
    "The token is too old",
    "the token does not name a caller",
    "the issuer is not accepted here",
}

# Of a refusal; all others would be news.
HEADERS = {"content-type", "content-length", "cache-control", "date", "x-request-id"}


@dataclass(frozen=True)
class Answer:
    """How a request must be answered that Tollgate does not let through."""

    status: int
    # Of the challenge (RFC 6750 section 3.1).
    error: str | None
    message: str
    has_challenge: bool = True


REFUSED = Answer(401, "invalid_token", "Bad credentials")
MISSING = Answer(401, None, "Requires authentication")
SEVERAL = Answer(
    400, "invalid_request", "The request has more than one credential, or an empty one."
)
MALFORMED = Answer(400, "invalid_request", "The request has a malformed credential.")
UNAVAILABLE = Answer(
    *(503, None, "The credentials cannot be checked at the moment. Try again later."),
    has_challenge=False,
)


@dataclass
class Front:
    """A Tollgate, the API behind it, and a listener that must never get a connection."""

    port: int
    api: http.server.ThreadingHTTPServer
    tally: object
    path: str = "/"

    def ask(self, *headers, path=None):
        """Sends a GET; gives the reply and the headers of what reached the API."""
        before = len(self.api.seen)
        reply = send(self.port, get(path or self.path, *headers))
        return reply, self.api.seen[before:]

    def accepts(self, name, token, path=None, **wanted):
        """The token gets through, and the API receives its `subject` and `tier`."""
        reply, seen = self.ask(bearer(token), path=path)
        problems = expect("status", 200, reply.status)
        problems += expect("requests that reached the API", 1, len(seen))
        for request in seen:
            problems += expect("the token at the API", None, request.get("authorization"))
            for header, value in wanted.items():
                received = request.get(f"x-tollgate-{header}")
                problems += expect(header, value, received)
        if reply.status != 200:
            problems.append(f"response: {reply.values('www-authenticate')}")
        self.tally.record(f"{name} is accepted", problems)

    def refuses(self, name, *headers, answer=REFUSED, path=None):
        """A request with these headers, or with a token, does not get through."""
        if answer is REFUSED and any(isinstance(given, str) and spoilt(given) for given in headers):
            answer = MALFORMED
        headers = [bearer(given) if isinstance(given, str) else given for given in headers]
        try:
            reply, seen = self.ask(*headers, path=path)
            problems = refusal_problems(reply, answer)
            problems += expect("requests that reached the API", [], seen)
        except (OSError, ValueError, http.client.HTTPException) as error:
            problems = [f"{type(error).__name__}: {error}"]
        if problems:
            problems += [f"sent {header}: {value[:1200]!r}" for header, value in headers]
        self.tally.record(f"{name} is refused", problems)


def bearer(token):
    """The header that carries a token."""
    return ("Authorization", f"Bearer {token}")


def spoilt(token):
    """Whether it has what no token has: spaces, controls, bytes beyond ASCII."""
    return not all("!" <= letter <= "~" for letter in token)


def refusal_problems(reply, answer):
    """A refusal is the same for all of its kind but for one of the fixed texts."""
    problems = expect("status", answer.status, reply.status)
    problems += expect("cache-control", ["no-store"], reply.values("cache-control"))
    challenges = reply.values("www-authenticate")
    problems += expect("number of challenges", int(answer.has_challenge), len(challenges))
    for challenge in challenges:
        problems += challenge_problems(challenge, answer.error)
    problems += expect("body", f'{{"message":"{answer.message}"}}\n'.encode(), reply.body)
    known = HEADERS | ({"www-authenticate"} if answer.has_challenge else {"retry-after"})
    unknown = {name for name, _ in reply.headers} - known
    return problems + expect("other headers", [], sorted(unknown))


def challenge_problems(challenge, error):
    """`WWW-Authenticate` is well formed (RFC 6750 section 3) and says nothing of the token."""
    match = CHALLENGE.fullmatch(challenge)
    if match is None:
        return [f"malformed challenge: {challenge}"]
    problems = expect("error", error, match["error"])
    if error == "invalid_token" and match["text"] not in TEXTS:
        problems.append(f"a text that is not fixed: {match['text']}")
    return problems


class Api(http.server.BaseHTTPRequestHandler):
    """Answers everything with 200, and notes the headers that it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Notes the request before it answers: the test looks at it after the answer."""
        fields = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(fields | {":path": self.path})
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_arguments):
        """The list in `seen` is the log."""


class KeyServer(http.server.BaseHTTPRequestHandler):
    """Publishes what `documents` holds, by path, and notes who asked for what."""

    def do_GET(self):
        """A document, or 404."""
        self.server.seen.append(self.path)
        document = self.server.documents.get(self.path)
        body = json.dumps(document).encode()
        self.send_response(404 if document is None else 200)
        self.send_header("Content-Type", "application/jwk-set+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        """The list in `seen` is the log."""


@contextlib.contextmanager
def serving(handler):
    """Serves on a port of its own until the block ends; counts connections, even silent ones."""

    class Server(http.server.ThreadingHTTPServer):
        """With what its handlers need."""

        daemon_threads = True
        request_queue_size = 64
        connections = 0

        def get_request(self):
            self.connections += 1
            return super().get_request()

    with Server(("127.0.0.1", 0), handler) as server:
        server.seen = []
        server.documents = {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@dataclass
class Plan:
    """A policy, and the files that it names (as `../NAME`)."""

    issuers: list
    callers: str = "[{ name: user, key: jwt.sub, tier: jwt.plan }]"
    tiers: str = "{ default: free, names: [free, pro] }"
    routes: list = field(default_factory=lambda: ['{ match: { path: "/**" }, auth: required }'])
    # More of the `identity` section, such as where tokens come from.
    identity: str = ""
    files: dict = field(default_factory=dict)

    def policy(self, api_port):
        """The policy as YAML."""
        lines = ["version: 1"]
        lines += [f'upstreams: {{ api: {{ servers: ["http://127.0.0.1:{api_port}"] }} }}']
        lines += ["identity:", "  jwt:"]
        for issuer in self.issuers:
            # JSON is YAML, and needs no quotes to be thought about.
            lines.append(f"    - {json.dumps(issuer)}")
        lines += [f"  callers: {self.callers}"]
        if self.identity:
            lines += [f"  {self.identity}"]
        lines += [f"tiers: {self.tiers}", "routes:"]
        lines += [f"  - {route}" for route in self.routes]
        return "\n".join(lines) + "\n"


@contextlib.contextmanager
def front(binary, plan, tally):
    """Runs an API and a Tollgate with `plan` in front of it until the block ends."""
    with serving(Api) as api:
        policy = plan.policy(api.server_port)
        with tollgate(binary, policy, tally, files=plan.files) as port:
            yield Front(port, api, tally)
