"""What the scripts about the edge share: an API, a proxy with any settings before it, and what that
proxy costs meanwhile.

Settings and policies are dictionaries here, written as JSON, which is YAML.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "httpbin"), str(TESTS / "tokens")]
from forge import hmac_signer, token
from harness import PATIENCE_SECONDS, Tally, Witness, binary_under_test, free_port, running

SECRET = b"a secret that no other test has, and that is long enough to sign with"
MEBIBYTE = 1 << 20
ANYTHING = {"match": {"path": "/**"}, "upstream": "api", "auth": "optional", "limits": ["core"]}


def counts_latency():
    """Whether latencies decide about a check. They are figures to read otherwise: the machine may be busy."""
    return "TOLLGATE_LATENCY" in os.environ


@dataclass
class Plan:
    """Settings and a policy. The files are beside the settings file."""

    # Of the upstream `api`.
    servers: list
    upstream: dict = field(default_factory=dict)
    # The callers before users and addresses.
    callers: list = field(default_factory=list)
    limits: dict = field(default_factory=dict)
    routes: list = field(default_factory=lambda: [ANYTHING])
    # More of the policy.
    policy: dict = field(default_factory=dict)
    # Each gets an address of its own, unless it has one.
    listeners: list = field(default_factory=lambda: [{}])
    # More of the settings.
    settings: dict = field(default_factory=dict)
    # More of the admin section.
    admin: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)

    def policy_text(self):
        """The policy: users by token and everybody else by address, with a limit for all."""
        issuer = {"name": "main", "issuer": "https://id.test", "audience": ["api"]}
        issuer |= {"algorithms": ["HS256"], "secret_file": "../secret"}
        callers = [{"name": "user", "key": "jwt.sub"}, {"name": "anonymous", "key": "client.ip"}]
        policy = {
            "version": 1,
            "upstreams": {"api": {"servers": self.servers} | self.upstream},
            "identity": {"jwt": [issuer], "callers": self.callers + callers},
            "limits": {"core": {"per": "caller", "rate": "1_000_000/hour"}} | self.limits,
            "routes": self.routes,
        }
        return json.dumps(policy | self.policy)


@dataclass
class Proxy:
    """A Tollgate at work."""

    process: subprocess.Popen
    # Of the listeners that were given no address, in their order.
    ports: list
    admin: int
    folder: Path
    command: list

    @property
    def port(self):
        """Of the first listener."""
        return self.ports[0]

    def resident(self):
        """Bytes of memory in use."""
        return self.memory("VmRSS")

    def peak(self):
        """The most bytes of memory that were ever in use."""
        return self.memory("VmHWM")

    def forget_peak(self):
        """From now on the peak is of what comes."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def memory(self, name):
        """One of the sizes in `/proc/PID/status`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(
            int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name)
        )

    def descriptors(self):
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def proxy(binary, plan, tally):
    """Runs Tollgate by a plan, in a folder of its own, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="tollgate-") as folder:
        folder = Path(folder)
        ports, listeners = [], []
        for listener in plan.listeners:
            if "address" not in listener:
                ports.append(free_port())
                listener = {"address": f"127.0.0.1:{ports[-1]}"} | listener
            listeners.append(json.loads(json.dumps(listener).replace("FOLDER", str(folder))))
        admin = free_port()
        settings = {
            "version": 1,
            "listeners": listeners,
            "admin": {"address": f"127.0.0.1:{admin}"} | plan.admin,
            "access_log": {"format": "off"},
        }
        settings |= json.loads(json.dumps(plan.settings).replace("FOLDER", str(folder)))
        for name, content in {"secret": SECRET, **plan.files}.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_bytes(content)
        (folder / "tollgate.yaml").write_text(json.dumps(settings))
        (folder / "policies").mkdir()
        (folder / "policies" / "main.yaml").write_text(plan.policy_text())
        command = [str(Path(binary).resolve()), "run", "--config", str(folder / "tollgate.yaml")]
        with running("tollgate", command, ports[0], tally) as process:
            yield Proxy(process, ports, admin, folder, command)


@contextlib.contextmanager
def api(tally):
    """Runs the API of `api.py` until the block ends, and gives its port."""
    port = free_port()
    script = Path(__file__).with_name("api.py")
    with running("the API", [sys.executable, "-B", str(script), str(port)], port, tally):
        yield port


def with_bulk(api_port, bulk_port, **more):
    """A plan by which bad clients' requests, below `/bulk`, go to an API of their own: what is
    measured is how the proxy keeps them apart."""
    upstreams = {
        name: {"servers": [f"http://127.0.0.1:{port}"]}
        for name, port in {"api": api_port, "bulk": bulk_port}.items()
    }
    bulk = ANYTHING | {"match": {"path": "/bulk/**"}, "upstream": "bulk"}
    return Plan([], policy={"upstreams": upstreams}, routes=[bulk, ANYTHING], **more)


def bearer(subject):
    """The value of `Authorization` for a user."""
    now = int(time.time())
    claims = {"iss": "https://id.test", "aud": "api", "sub": subject, "exp": now + 3600}
    return f"Bearer {token({'alg': 'HS256', 'typ': 'JWT'}, claims, hmac_signer('HS256', SECRET))}"


def eventually(probe):
    """What `probe` gives once it is true, or at last; for what takes a moment."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := probe()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def raise_descriptor_limit():
    """As many descriptors as are allowed; what is started from here has them too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def in_mebibytes(size):
    """A number of bytes, for people."""
    return f"{size / MEBIBYTE:.1f} MiB"
