"""What the scripts for PyGithub share: an API that knows nothing of limits, tokens, and sessions.

Whatever the client reads about limits, Tollgate said it.
"""

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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "httpbin"))
from harness import PATIENCE_SECONDS, Tally, binary_under_test, tollgate

ISSUER = "https://issuer.test"
DOCUMENTATION = "https://docs.example.com/limits"
HELD = "/repos/o/held"

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
responses: {{ denied_status: DENIED_STATUS, documentation_url: {DOCUMENTATION} }}
"""


class FakeGithub(http.server.BaseHTTPRequestHandler):
    """Routes of GitHub's, and a list of the requests that came through."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answers with what the path names; `HELD` waits for its release."""
        self.server.seen.append((self.path, {name.lower() for name in self.headers}))
        if self.path == HELD:
            self.server.arrival.set()
            self.server.release.wait(PATIENCE_SECONDS)
        answer = answer_to(self.path)
        body = json.dumps(answer or {"message": "Not Found"}).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        """The list in `seen` is the log."""


def answer_to(path):
    """The user or the repository that a path names."""
    if path == "/user":
        return {"login": "ada", "id": 1, "type": "User"}
    if path.startswith("/repos/o/"):
        name = path.removeprefix("/repos/o/")
        return {"id": 2, "name": name, "full_name": f"o/{name}", "private": False}
    return None


@contextlib.contextmanager
def fake_github():
    """Serves `FakeGithub` on a port of its own until the block ends."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeGithub) as server:
        server.daemon_threads = True
        server.seen = []
        server.arrival = threading.Event()
        server.release = threading.Event()
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
    claims |= {"iat": now, "exp": now + 7200}
    signed = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
    signature = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64url(signature)}"


def base64url(data):
    """Base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Session:
    """One Tollgate with one `denied_status`, and the clients that talk to it."""

    def __init__(self, port, secret, denied_status, upstream, tally):
        self.url = f"http://127.0.0.1:{port}"
        self.secret = secret
        self.denied_status = denied_status
        self.upstream = upstream
        self.tally = tally

    def client(self, subject=None, retry=None):
        """A PyGithub client; without `retry` it neither waits nor tries again."""
        # AppAuthToken is PyGithub's way to send `Bearer`; its other tokens say `token`.
        auth = github.Auth.AppAuthToken(token(self.secret, subject)) if subject else None
        return github.Github(
            base_url=self.url, auth=auth, retry=retry, timeout=20, seconds_between_requests=0
        )

    def expect(self, what, wanted, seen):
        """Prints what was seen, and records whether it was wanted."""
        print(f"    {what}: {seen!r}")
        self.tally.record(what, [] if wanted == seen else [f"expected {wanted!r}, got {seen!r}"])

    def requests(self, path):
        """How many requests for `path` reached upstream."""
        return sum(1 for seen, _ in self.upstream.seen if seen == path)


@contextlib.contextmanager
def session(binary, policy, denied_status, tally):
    """Runs an API and a Tollgate in front of it until the block ends."""
    secret = secrets.token_hex(32)
    with fake_github() as upstream:
        policy = policy.replace("UPSTREAM_PORT", str(upstream.server_port))
        policy = policy.replace("DENIED_STATUS", str(denied_status))
        with tollgate(binary, policy, tally, secret) as port:
            yield Session(port, secret, denied_status, upstream, tally)
