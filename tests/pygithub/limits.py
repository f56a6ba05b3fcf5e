"""A stock GitHub client, PyGithub, in front of an API that Tollgate limits.

The upstream knows nothing of limits: whatever the client reads, Tollgate said it.
"""

import argparse
import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import secrets
import sys
import threading
import time
from pathlib import Path

import github

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "httpbin"))
from harness import Tally, give_up_after, tollgate

ISSUER = "https://issuer.test"
DOCUMENTATION = "https://docs.example.com/limits"
LIMIT = 5
WINDOW_SECONDS = 3600

POLICY = f"""\
version: 1
upstreams:
  api: {{ servers: ["http://127.0.0.1:UPSTREAM_PORT"] }}
identity:
  jwt:
    - name: main
      issuer: {ISSUER}
      audience: [api]
      algorithms: [HS256]
      secret_file: {{secret_file}}
  callers:
    - {{ name: user, key: jwt.sub, tier: jwt.plan }}
tiers: {{ default: free, names: [free] }}
limits:
  core: {{ per: caller, rate: {LIMIT}/hour }}
routes:
  - {{ match: {{ path: "/**" }}, auth: required, limits: [core] }}
responses: {{ denied_status: DENIED_STATUS, documentation_url: {DOCUMENTATION} }}
"""


class FakeGithub(http.server.BaseHTTPRequestHandler):
    """Two routes of GitHub's, and a list of the requests that came through."""

    protocol_version = "HTTP/1.1"
    answers = {
        "/user": {"login": "ada", "id": 1, "type": "User"},
        "/repos/o/r": {"id": 2, "name": "r", "full_name": "o/r", "private": False},
    }

    def do_GET(self):
        """Answers from the table."""
        self.server.seen.append((self.path, {name.lower() for name in self.headers}))
        answer = self.answers.get(self.path)
        body = json.dumps(answer or {"message": "Not Found"}).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        """The list in `seen` is the log."""


@contextlib.contextmanager
def fake_github():
    """Serves `FakeGithub` on a port of its own until the block ends."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeGithub) as server:
        server.daemon_threads = True
        server.seen = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def token(secret, subject):
    """A JSON Web Token signed with HS256 (RFC 7515, appendix A.1)."""
    now = int(time.time())
    header = {"alg": "HS256", "typ": "JWT"}
    claims = {"iss": ISSUER, "aud": "api", "sub": subject, "plan": "free"}
    claims |= {"iat": now, "exp": now + 2 * WINDOW_SECONDS}
    signed = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
    signature = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64url(signature)}"


def base64url(data):
    """Base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Session:
    """One Tollgate with one `denied_status`, and the clients that talk to it."""

    def __init__(self, port, secret, upstream, tally):
        self.url = f"http://127.0.0.1:{port}"
        self.secret = secret
        self.upstream = upstream
        self.tally = tally

    def client(self, subject=None):
        """A PyGithub client that neither waits nor tries again."""
        # AppAuthToken is PyGithub's way to send `Bearer`; its other tokens say `token`.
        auth = github.Auth.AppAuthToken(token(self.secret, subject)) if subject else None
        return github.Github(
            base_url=self.url, auth=auth, retry=None, timeout=20, seconds_between_requests=0
        )

    def expect(self, what, wanted, seen):
        """Prints what was seen, and records whether it was wanted."""
        print(f"    {what}: {seen!r}")
        self.tally.record(what, [] if wanted == seen else [f"expected {wanted!r}, got {seen!r}"])

    def count_down(self, client):
        """Uses up the limit, and gives the reset time that the client read."""
        started = int(time.time())
        resets = set()
        calls = [lambda: client.get_user().login, lambda: client.get_repo("o/r").full_name]
        for used in range(1, LIMIT + 1):
            calls[used % 2]()
            self.expect(f"rate_limiting after {used}", (LIMIT - used, LIMIT), client.rate_limiting)
            resets.add(client.rate_limiting_resettime)
        self.expect("number of reset times", 1, len(resets))
        reset = resets.pop()
        # The window opened after `started` and before now; the reset is rounded up.
        window = range(started + WINDOW_SECONDS, int(time.time()) + WINDOW_SECONDS + 2)
        self.expect("reset is one window after the first call", True, reset in window)
        return reset

    def denial(self, client, kind):
        """Calls once too often, and gives the error of exactly the `kind` that is wanted."""
        before = len(self.upstream.seen)
        try:
            login = client.get_user().login
        except github.GithubException as error:
            self.expect("type of the error", kind.__name__, type(error).__name__)
            self.expect("requests that reached upstream", 0, len(self.upstream.seen) - before)
            return error
        self.expect("a denial", kind.__name__, login)
        return None

    def check_denial(self, client, kind, status, reset):
        """The denial tells the client what it needs, in the words that it looks for."""
        error = self.denial(client, kind)
        if error is None:
            return
        headers = {name.lower(): value for name, value in error.headers.items()}
        message = str(error.data.get("message"))
        self.expect("status of the denial", status, error.status)
        self.expect("start of the message", "API rate limit exceeded", message[:23])
        self.expect("documentation_url", DOCUMENTATION, error.data.get("documentation_url"))
        self.expect("x-ratelimit-remaining", "0", headers.get("x-ratelimit-remaining"))
        self.expect("x-ratelimit-used", str(LIMIT), headers.get("x-ratelimit-used"))
        self.expect("x-ratelimit-reset", str(reset), headers.get("x-ratelimit-reset"))
        self.expect("x-ratelimit-resource", "core", headers.get("x-ratelimit-resource"))
        retry_after = headers.get("retry-after", "none")
        in_window = retry_after.isdecimal() and 1 <= int(retry_after) <= WINDOW_SECONDS
        self.expect(f"retry-after ({retry_after}) is within the window", True, in_window)
        self.expect("rate_limiting when denied", (0, LIMIT), client.rate_limiting)

    def check_strangers(self):
        """Another caller has counts of his own; one without a token has no business here."""
        other = self.client("other")
        other.get_user().login
        self.expect("rate_limiting of another caller", (LIMIT - 1, LIMIT), other.rate_limiting)
        try:
            self.client().get_user().login
            self.expect("status without a token", 401, 200)
        except github.GithubException as error:
            self.expect("status without a token", 401, error.status)


def run(binary, denied_status, kind, tally):
    """One pass with one `denied_status`."""
    print(f"denied_status {denied_status}")
    secret = secrets.token_hex(32)
    with fake_github() as upstream:
        policy = POLICY.replace("UPSTREAM_PORT", str(upstream.server_port))
        policy = policy.replace("DENIED_STATUS", str(denied_status))
        with tollgate(binary, policy, tally, secret) as port:
            session = Session(port, secret, upstream, tally)
            client = session.client("ada")
            reset = session.count_down(client)
            session.check_denial(client, kind, denied_status, reset)
            session.check_strangers()
            names = set().union(*(headers for _, headers in upstream.seen))
            leaked = sorted(name for name in names if "ratelimit" in name)
            session.expect("limit headers that reached upstream", [], leaked)


def main():
    """GitHub's own status for a denial first, then the one of RFC 6585."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tollgate", default="target/release/tollgate", help="the binary to test")
    arguments = parser.parse_args()
    give_up_after(120)

    tally = Tally()
    run(arguments.tollgate, 403, github.RateLimitExceededException, tally)
    run(arguments.tollgate, 429, github.GithubException, tally)
    return tally.conclude()


if __name__ == "__main__":
    sys.exit(main())
