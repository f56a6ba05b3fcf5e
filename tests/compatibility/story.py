"""What is written and loaded: counters of each algorithm and of each kind of key, in each store.

Proxies have a clock of faketime: a window that a fixture has open is open whenever it is loaded. Redis has
not, since its allocator does not start with faketime: so proxies count by their own clocks there, and may not
ask the server for its time, with which they would compare them.
The policy, the settings and what was written are in a folder by the name of the version that wrote them.
"""

import base64
import contextlib
import glob
import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path[:0] = [str(TESTS / "disk"), str(TESTS / "tokens")]
from forge import hmac_signer, token
from store import (
    PATIENCE_SECONDS,
    Asker,
    Tally,
    free_port,
    give_up_after,
    standings_of,
    wait_until_listening,
)

LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"
STORES = ("memory", "disk", "redis")
# When counters are written, and when they are loaded: within every window.
WRITTEN, LOADED = "2026-12-01 12:00:00", "2026-12-01 12:10:00"
EXPIRES = 1_800_000_000
TOKEN_SECRET = "a secret that only these fixtures have, and that is long enough"
LIMIT = 10
BY_KEY = ("fixed", "epoch", "calendar", "sliding", "log", "spaced", "bucket", "lumps", "several")
# Requests that count by callers and by what requests have: a name, the path, and the claims of a token.
BY_REQUEST = {
    "user": ("/core", {"sub": "42"}),
    "address": ("/core", None),
    "address and path": ("/place/a", None),
    "organisation": ("/tenant", {"sub": "7", "org": "acme"}),
}
# Keys, and how much of each limit they have used.
USED = {"all": LIMIT, "some": 4}


def clock(instant):
    """Variables by which a process has another clock: its time goes on from an instant."""
    library = next(iter(glob.glob(LIBRARIES)), None)
    if library is None:
        sys.exit("faketime is not installed; on Debian: apt-get install faketime")
    faked = {"FAKETIME": f"@{instant}", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "TZ": "UTC"}
    return {"LD_PRELOAD": library} | faked


def bearer(claims):
    """The value of `Authorization` for these claims."""
    claims = {"iss": "https://id.example.com/", "aud": "api", "exp": EXPIRES} | claims
    return f"Bearer {token({'alg': 'HS256'}, claims, hmac_signer('HS256', TOKEN_SECRET.encode()))}"


class Api(http.server.BaseHTTPRequestHandler):
    """The API behind the proxy."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_arguments):
        """It logs nothing."""


@contextlib.contextmanager
def serving_api():
    """Runs the API, and gives its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def started(name, command, port, log, **variables):
    """Runs a process until the block ends; shows its log if that fails."""
    environment = os.environ | variables
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
    try:
        wait_until_listening(name, process, port)
        yield process
    except BaseException:
        print(f"--- {name} ---", *log.read_text(errors="replace").splitlines()[-30:], sep="\n")
        raise
    finally:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Redis:
    """A server with nothing in it, or with what a fixture has."""

    def __init__(self, port):
        self.port = port

    @staticmethod
    @contextlib.contextmanager
    def start(folder):
        """Runs one until the block ends."""
        port = free_port()
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        with started("redis-server", command, port, folder / "redis.log"):
            redis = Redis(port)
            redis.ask("ACL", "SETUSER", "default", "-time")
            yield redis

    def ask(self, *words):
        """The reply to a command, in bytes, numbers and lists of them."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS) as client:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            parts = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
            client.sendall(b"*%d\r\n%s" % (len(words), b"".join(parts)))
            with client.makefile("rb") as replies:
                return read_reply(replies)

    def commands(self):
        """The commands that write everything that it has, in the order of the keys: words as text of
        Latin-1, so that each byte is one character."""
        text = lambda words: [word.decode("latin-1") for word in words]
        for key in sorted(self.ask("KEYS", "*")):
            match self.ask("TYPE", key):
                case b"string":
                    yield text([b"SET", key, self.ask("GET", key)])
                case b"hash":
                    yield text([b"HSET", key, *self.ask("HGETALL", key)])
                case b"zset":
                    pairs = self.ask("ZRANGE", key, 0, -1, "WITHSCORES")
                    flipped = [word for at in range(0, len(pairs), 2) for word in pairs[at : at + 2][::-1]]
                    yield text([b"ZADD", key, *flipped])
                case other:
                    raise RuntimeError(f"{key} is {other}")

    def load(self, lines):
        """Runs the commands of a fixture."""
        for line in lines:
            words = [word.encode("latin-1") for word in json.loads(line)]
            reply = self.ask(*words)
            if isinstance(reply, RuntimeError):
                raise reply


def read_reply(replies):
    """A reply of RESP2; an error is returned."""
    line = replies.readline()[:-2]
    kind, rest = line[:1], line[1:]
    match kind:
        case b"+":
            return rest
        case b"-":
            return RuntimeError(rest.decode())
        case b":":
            return int(rest)
        case b"$":
            return None if rest == b"-1" else replies.read(int(rest) + 2)[:-2]
        case b"*":
            return [read_reply(replies) for _ in range(int(rest))]
    raise RuntimeError(f"no reply: {line}")


class Proxy:
    """A proxy at work, by the settings of a fixture."""

    def __init__(self, listener, decisions, admin):
        self.listener, self.decisions, self.admin = listener, decisions, admin

    @staticmethod
    @contextlib.contextmanager
    def start(binary, folder, store, instant, api, redis=None):
        """Runs one until the block ends. The folder is a copy of the fixture's."""
        ports = [free_port() for _ in range(3)]
        names = dict(zip(("LISTENER", "DECISIONS", "ADMIN"), ports))
        names |= {"API": api, "REDIS": redis.port if redis else 0}
        variables = {name: f"127.0.0.1:{port}" for name, port in names.items()}
        variables |= clock(instant) | {"TOKEN_SECRET": TOKEN_SECRET}
        command = [binary, "run", "--config", str(folder / f"{store}.yaml")]
        log = folder / f"{store}.log"
        with started("tollgate", command, ports[1], log, **variables):
            proxy = Proxy(*ports)
            proxy.standing("fixed", "none")
            yield proxy

    def charge(self, limit, key, cost):
        """Status and standings after a charge."""
        with Asker(self.decisions) as asker:
            return asker.charge((limit, key, cost))

    def standing(self, limit, key):
        """Used units of each window, with the instant of its reset."""
        with Asker(self.decisions) as asker:
            _, content = asker.standing(limit, key)
        return [[entry["used"], entry["reset"]] for entry in content["standings"]]

    def request(self, path, claims):
        """Status of a request, and how many units its limit says are used."""
        headers = {"authorization": bearer(claims)} if claims else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.listener, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            response.read()
            return response.status, int(response.getheader("x-ratelimit-used", "-1"))

    def metrics(self):
        """What `metrics_in` tells of its metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        return metrics_in(text)


def metrics_in(text):
    """Each metric of a page in Prometheus' format: its kind, and the labels of its samples."""
    metrics = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            metrics[name] = (kind, set())
        elif line and not line.startswith("#"):
            sample = re.match(r"\w+", line)[0]
            parts = (sample.removesuffix(end) for end in ("", "_bucket", "_sum", "_count"))
            _, labels = metrics[next(name for name in parts if name in metrics)]
            labels.update(set(re.findall(r'[{,](\w+)="', line)) - {"le"})
    return metrics


def merged(several):
    """The metrics of several pages: the labels of all."""
    metrics = {}
    for one in several:
        for name, (kind, labels) in one.items():
            metrics.setdefault(name, (kind, set()))[1].update(labels)
    return metrics


@contextlib.contextmanager
def opened(binary, folder, store, instant, lines=()):
    """A proxy by a store of the fixture, with an API behind it and, if it needs one, a Redis with the
    commands of a fixture; with it the Redis, or none."""
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(serving_api())
        redis = None
        if store == "redis":
            redis = stack.enter_context(Redis.start(folder))
            redis.load(lines)
        proxy = stack.enter_context(Proxy.start(binary, folder, store, instant, api, redis))
        yield proxy, redis
