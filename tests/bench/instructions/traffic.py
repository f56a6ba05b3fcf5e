"""A Tollgate before a server, both asked one thing at a time: the same instructions in every run.

Both speak HTTP/1.1 over kept connections: `GET /`, and a reply of 1 KiB.
"""

import base64
import contextlib
import hmac
import json
import selectors
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "httpbin"))
from harness import Tally, free_port, running

# In turn, as are the users. Both are few: nothing that grows with them is measured here.
CONNECTIONS = 4
USERS = 200
# Each user is known by then, and has used up the limit of W3.
WARM_UP = 2 * USERS

SECRET = b"a secret that no other test has, and that is long enough to sign with"
REPLY = (
    b"HTTP/1.1 200 OK\r\nServer: upstream\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 1024\r\n\r\n" + b"x" * 1024
)
# Requests an hour of each user, and the status of every reply after the warm-up.
WORKLOADS = {"W1": (None, 200), "W2": (1_000_000_000, 200), "W3": (1, 429)}


class Unmeasurable(Exception):
    """A run that did not do what was to be measured."""


class Traffic:
    """The clients and the server of one Tollgate, in one thread."""

    def __init__(self, workload, port, server, process):
        self.limit, self.status = WORKLOADS[workload]
        self.process = process
        self.selector = selectors.DefaultSelector()
        self.server = server
        self.selector.register(server, selectors.EVENT_READ)
        self.clients = [
            socket.create_connection(("127.0.0.1", port)) for _connection in range(CONNECTIONS)
        ]
        for client in self.clients:
            self.selector.register(client, selectors.EVENT_READ)
        self.requests = [request(self.limit, user) for user in range(USERS)]
        # What came of a request whose end has not come yet, by the connection from Tollgate.
        self.parts = {}

    def warm_up(self):
        """What is done once only, and by the first requests."""
        for number in range(WARM_UP):
            self.ask(number)
        self.wait_until_asleep()

    def run(self, requests):
        """So many requests, one after another; each must be answered as the workload says."""
        for number in range(requests):
            status = self.ask(number)
            if status != self.status:
                raise Unmeasurable(f"a reply has status {status} and not {self.status}")
        self.wait_until_asleep()

    def ask(self, number):
        """One request; gives the status of its reply."""
        self.wait_until_asleep()
        client = self.clients[number % CONNECTIONS]
        client.sendall(self.requests[number % USERS])
        reply = b""
        while True:
            for key, _events in self.selector.select():
                if key.fileobj is self.server:
                    connection, _address = self.server.accept()
                    self.selector.register(connection, selectors.EVENT_READ)
                    continue
                received = key.fileobj.recv(1 << 16)
                if key.fileobj is client:
                    reply += received
                    if is_whole(reply):
                        return int(reply.split(maxsplit=2)[1])
                if not received:
                    self.close(key.fileobj)
                elif key.fileobj is not client:
                    self.serve(key.fileobj, received)

    def serve(self, connection, received):
        """As the server: takes in what Tollgate has sent, and answers a whole request."""
        request = self.parts.pop(connection, b"") + received
        if request.endswith(b"\r\n\r\n"):
            self.wait_until_asleep()
            connection.sendall(REPLY)
        else:
            self.parts[connection] = request

    def close(self, connection):
        """Tollgate may close connections to its server, but not those of its clients."""
        if connection in self.clients:
            raise Unmeasurable("Tollgate has closed a client's connection")
        self.selector.unregister(connection)
        connection.close()

    def wait_until_asleep(self):
        """Until Tollgate waits for the network. What it is sent sooner it finds in the same turn or
        in the next one, and the count would differ from run to run.
        """
        # A thread that hands its turn to another sleeps for a moment while neither runs.
        seen_asleep = 0
        while seen_asleep < 2:
            seen_asleep = seen_asleep + 1 if self.is_asleep() else 0

    def is_asleep(self):
        """Whether no thread of Tollgate runs."""
        for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            # A thread may end between both.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                state = stat.read_text().rpartition(")")[2].split()[0]
                if state == "Z":
                    raise Unmeasurable("Tollgate has ended by itself")
                if state != "S":
                    return False
        return True


@contextlib.contextmanager
def traffic(workload, command, folder):
    """Starts a Tollgate in `folder` by `command`, which ends with the binary, and warms it up. It
    has ended too, and has written its profile, when the block has ended.
    """
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = free_port()
        write_configuration(folder, workload, port, server.getsockname()[1])
        # The same for everybody: an environment may hold options of valgrind.
        clean = ["env", "-i", "-C", str(folder), "PATH=/usr/bin:/bin", f"TMPDIR={folder}"]
        arguments = ["run", "--config", "settings.json"]
        process = stack.enter_context(
            running("Tollgate", [*clean, *command, *arguments], port, Tally())
        )
        started = Traffic(workload, port, server, process)
        for client in started.clients:
            stack.enter_context(client)
        started.warm_up()
        yield started


def write_configuration(folder, workload, port, server_port):
    """The settings and the policy of a workload, as JSON, which is YAML."""
    limit, _status = WORKLOADS[workload]
    settings = {
        "version": 1,
        "listeners": [{"address": f"127.0.0.1:{port}"}],
        "policies": "policy.json",
        "workers": 1,
        "access_log": {"format": "off"},
    }
    issuer = {"name": "main", "issuer": "https://issuer.test", "audience": ["bench"]}
    issuer |= {"algorithms": ["HS256"], "secret_file": "secret"}
    route = {"match": {"path": "/**"}, "auth": "none", "limits": []}
    policy = {
        "version": 1,
        "upstreams": {"api": {"servers": [f"http://127.0.0.1:{server_port}"]}},
    }
    if limit is not None:
        route |= {"auth": "required", "limits": ["core"]}
        policy["identity"] = {"jwt": [issuer], "callers": [{"name": "user", "key": "jwt.sub"}]}
        policy["limits"] = {"core": {"per": "caller", "rate": f"{limit}/3600s"}}
    policy["routes"] = [route]
    (folder / "secret").touch(mode=0o600)
    (folder / "secret").write_bytes(SECRET)
    (folder / "policy.json").write_text(json.dumps(policy))
    (folder / "settings.json").write_text(json.dumps(settings))


def request(limit, user):
    """A user's request; where there is no limit, nobody's."""
    fields = ["GET / HTTP/1.1", "Host: bench.test"]
    if limit is not None:
        fields.append(f"Authorization: Bearer {token(user)}")
    return "".join(f"{field}\r\n" for field in [*fields, ""]).encode()


def token(user):
    """A token until 2096, made here: tests/tokens/forge.py needs a library for its other tokens."""
    header = {"alg": "HS256", "typ": "JWT", "kid": "hs256"}
    claims = {"iss": "https://issuer.test", "aud": "bench", "sub": f"user-{user:05}"}
    claims |= {"iat": 1_700_000_000, "exp": 4_000_000_000, "scope": "read write"}
    message = f"{base64url(json.dumps(header).encode())}.{base64url(json.dumps(claims).encode())}"
    return f"{message}.{base64url(hmac.digest(SECRET, message.encode(), 'sha256'))}"


def base64url(content):
    """Without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def is_whole(reply):
    """Whether all of a reply with a `Content-Length` is there."""
    head, end, body = reply.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        name, _colon, value = line.partition(b":")
        if name == b"content-length":
            return len(body) == int(value)
    raise Unmeasurable("a reply does not tell its length")
