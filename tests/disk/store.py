"""What the scripts about the disk share: a proxy with its counters on disk, which can be killed and
started anew, and clients that charge limits by name.

Settings and policies are dictionaries here, written as JSON, which is YAML.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "httpbin")]
from harness import (
    PATIENCE_SECONDS,
    Tally,
    Witness,
    binary_under_test,
    free_port,
    give_up_after,
    wait_until_listening,
)

WORKERS = 2
START_ATTEMPTS = 3
LOG_LINES = 25
LOG_SECONDS = 5


class Proxy:
    """One proxy, in a folder of its own; its counters are in the folder `counters` there."""

    def __init__(self, binary, folder, limits, **disk):
        self.binary = str(Path(binary).resolve())
        self.folder = Path(folder)
        self.counters = self.folder / "counters"
        # Of `store.disk`.
        self.disk = disk
        self.environment = {}
        # What the command line begins with.
        self.prefix = []
        self.process = None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_policy(limits)

    def write_policy(self, limits):
        """The limits, each `per: key`, with the keys of the test."""
        keyed = {"per": "key", "verified": True}
        policy = {
            "version": 1,
            "limits": {name: keyed | limit for name, limit in limits.items()},
            "upstreams": {"api": {"servers": ["http://127.0.0.1:9"]}},
            "identity": {"callers": [{"name": "anonymous", "key": "client.ip"}]},
            "routes": [{"match": {"path": "/**"}, "upstream": "api", "auth": "none", "limits": []}],
        }
        (self.folder / "policy.yaml").write_text(json.dumps(policy))

    def write_settings(self):
        """The settings file, with ports that are free now."""
        self.plain, self.port, self.admin = free_port(), free_port(), free_port()
        # Slow machines are no outage.
        store = {"disk": {"path": "counters"} | self.disk, "deadline": "10s"}
        settings = {
            "version": 1,
            "listeners": [{"address": f"127.0.0.1:{self.plain}"}],
            "decisions": [{"address": f"127.0.0.1:{self.port}", "protocol": "http"}],
            "admin": {"address": f"127.0.0.1:{self.admin}"},
            "policies": "policy.yaml",
            "workers": WORKERS,
            "access_log": {"format": "off"},
            "drain": "2s",
            "store": store,
        }
        (self.folder / "tollgate.yaml").write_text(json.dumps(settings))

    @property
    def command(self):
        """The command line."""
        config = self.folder / "tollgate.yaml"
        return [*self.prefix, self.binary, "run", "--config", str(config)]

    def launch(self):
        """Starts the process, which may or may not come to serve."""
        self.write_settings()
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                start_new_session=True,
            )

    def start(self):
        """Starts it, and waits until it serves."""
        for attempt in range(START_ATTEMPTS):
            self.launch()
            try:
                wait_until_listening("tollgate", self.process, self.port)
                return self.wait_until_serving()
            except RuntimeError:
                in_use = "Address already in use" in self.log()[-2000:]
                if not in_use or attempt + 1 == START_ATTEMPTS:
                    raise

    def wait_until_serving(self):
        """Returns when a question is answered: it listens before it has opened the store."""
        try:
            with Asker(self.port) as asker:
                asker.standing("none", "none")
        except OSError:
            code = self.process.wait(timeout=PATIENCE_SECONDS)
            raise RuntimeError(f"tollgate ended with {code} before it served") from None

    def refusal(self):
        """What a start that must fail says: the exit code, none if it serves, and the log."""
        (self.folder / "log").write_text("")
        try:
            self.start()
        except RuntimeError:
            return self.process.wait(timeout=PATIENCE_SECONDS), self.log()
        return None, self.log()

    def stop(self):
        """Ends it in good order, if it runs, and returns its exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def kill(self):
        """Kills it, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def is_running(self):
        """Whether it has not ended."""
        return self.process is not None and self.process.poll() is None

    def log(self):
        """All that it has logged."""
        file = self.folder / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def has_logged(self, *texts):
        """Whether a line of the log has all these texts, or gets them soon: it is written late."""
        has_all = lambda line: all(text in line for text in texts)
        return eventually(lambda: any(map(has_all, self.log().splitlines())), LOG_SECONDS)

    def show_log(self):
        """Prints the last lines of the log."""
        print(f"--- the last lines of {self.folder.name} ---")
        print(*self.log().splitlines()[-LOG_LINES:], sep="\n", flush=True)

    def ask_admin(self, path):
        """Status and body of the admin listener."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def metric(self, name):
        """The sum of a metric's samples; none: there is no such metric."""
        _, text = self.ask_admin("/metrics")
        samples = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.partition(" ")[0].partition("{")[0] == name
        ]
        return sum(samples) if samples else None

    def store(self, *arguments, **more):
        """Runs `tollgate store …` to its end."""
        return subprocess.run(
            [self.binary, "store", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **more,
        )

    def journal_bytes(self):
        """Bytes of all journals."""
        sizes = 0
        for file in self.counters.glob("journal-*"):
            with contextlib.suppress(FileNotFoundError):
                sizes += file.stat().st_size
        return sizes


def eventually(probe, seconds=PATIENCE_SECONDS):
    """What `probe` gives once it is true, or at last; for what takes a moment."""
    deadline = time.monotonic() + seconds
    while not (found := probe()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


class Asker:
    """A connection to the listener for decisions, over which several questions may be under way."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def close(self):
        """Ends the connection."""
        self.answers.close()
        self.socket.close()

    def charge(self, *charges):
        """Charges limits, each given as name, key and cost. Returns status and standings."""
        self.socket.sendall(charge_request(charges))
        return self.read_answer()

    def standing(self, limit, key):
        """How a limit stands."""
        self.socket.sendall(standing_request(limit, key))
        return self.read_answer()

    def read_answer(self):
        """Status and content of the next answer."""
        line = self.answers.readline()
        if not line:
            raise ConnectionError("the connection was closed")
        status, length = int(line[9:12]), 0
        while (line := self.answers.readline()) != b"\r\n":
            if not line:
                raise ConnectionError("the connection was closed")
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
        body = self.answers.read(length)
        if len(body) < length:
            raise ConnectionError("the connection was closed")
        return status, json.loads(body) if body[:1] == b"{" else {}


def charge_request(charges):
    """The request of a charge."""
    charges = [{"limit": limit, "key": key, "cost": cost} for limit, key, cost in charges]
    body = json.dumps({"charges": charges}).encode()
    head = "POST /v1/charge HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def standing_request(limit, key):
    """The request of a standing."""
    return f"GET /v1/standing?limit={limit}&key={key} HTTP/1.1\r\nhost: t\r\n\r\n".encode()


def standings_of(content):
    """Used units and the instant of the reset, by the limit's name."""
    return {
        standing["limit"]: (standing["used"], standing["reset"])
        for standing in content.get("standings", ())
    }
