"""What is checked of docker-compose.production.yml: it does not start while a secret is missing, and
what it starts is bounded, closed, and has its secrets from files alone.
"""

import http.client
import json
import os
import re
import secrets
import shutil
import ssl
import subprocess

from bases import ROOT
from checks import Checks
from engine import Compose, eventually

FILES = ["docker-compose.production.yml", "tests/compose/production-api.yml"]
# Each has to be set, and is in what Compose says when it is not.
REQUIRED = (
    "TOLLGATE_POLICIES",
    "TOLLGATE_TLS",
    "TOLLGATE_REDIS_PASSWORD_FILE",
    "TOLLGATE_KEY_SECRET_FILE",
)
# The group of the user in the image.
GROUP = 10001
MEMORY = 384 << 20
CPUS = 0.5
# Fewer than most machines let an engine have.
OPEN_FILES = 4096
# What the log says of secrets that others know.
COMPLAINTS = ("published", "everybody on this machine")


class ProductionTrial(Checks):
    """The checks, with the folder in which the secrets are."""

    def __init__(self, engine, tally, folder, ports):
        https, plain = ports
        self.folder = folder
        self.secrets = {name: secrets.token_hex(32) for name in ("redis-password", "key-secret")}
        self.make_secrets()
        compose = Compose(
            engine,
            FILES,
            {
                "TOLLGATE_IMAGE": "tollgate:local",
                "TOLLGATE_HTTPS": f"127.0.0.1:{https}",
                "TOLLGATE_HTTP": f"127.0.0.1:{plain}",
                "TOLLGATE_MEMORY": str(MEMORY),
                "TOLLGATE_CPUS": str(CPUS),
                "TOLLGATE_OPEN_FILES": str(OPEN_FILES),
                "TOLLGATE_POLICIES": str(folder / "policies"),
                "TOLLGATE_TLS": str(folder / "tls"),
                "TOLLGATE_REDIS_PASSWORD_FILE": str(folder / "redis-password"),
                "TOLLGATE_KEY_SECRET_FILE": str(folder / "key-secret"),
            },
        )
        super().__init__("production", compose, https, tally)
        self.plain = plain

    def run(self):
        """All checks, in an order in which each finds what it needs."""
        self.check_required()
        self.print_figures(f"up after {self.up():.0f} s")
        self.check_confinement("tollgate", "redis")
        self.check_requests()
        self.check_bounds()
        self.check_secrets()
        self.check_openings()
        self.check_renewal()
        self.check_complaints()
        self.check_stop()

    def check_required(self):
        """Without one of the variables nothing starts, and the message names it."""
        for name in REQUIRED:
            done = self.compose.attempt("config", without=[name])
            self.expect_so(f"config fails without {name}", done.returncode != 0, done.stdout)
            said = f"set {name} to" in done.stderr
            self.expect_so(f"config says to set {name}", said, done.stderr)
        shown = self.compose("config")
        self.expect_so("config names the image", "image: tollgate:local" in shown, shown)

    def check_requests(self):
        """Requests go by TLS to the API, are counted in Redis, and plain ones are sent to TLS."""
        answers = [self.ask() for _ in range(2)]
        self.expect("statuses", [200, 200], [status for status, _ in answers])
        used = [fields.get("x-ratelimit-used") for _, fields in answers]
        self.expect("used", ["1", "2"], used)
        ask_redis = "REDISCLI_AUTH=$(cat $REDIS_PASSWORD_FILE) redis-cli dbsize"
        keys = self.compose.execute("redis", "sh", "-c", ask_redis).stdout.strip()
        self.expect_so("counters are in Redis", keys.isdecimal() and int(keys) > 0, keys)
        refused = self.compose.execute("redis", "redis-cli", "ping").stdout
        self.expect_so("Redis wants a password", "NOAUTH" in refused, refused)

        connection = http.client.HTTPConnection("127.0.0.1", self.plain, timeout=10)
        connection.request("GET", "/user", headers={"host": "a.example"})
        response = connection.getresponse()
        seen = response.status, response.getheader("location")
        self.expect("plain HTTP", (308, "https://a.example/user"), seen)

    def check_bounds(self):
        """Memory, processors, processes, open files and logs are bounded."""
        host = self.compose.inspect("tollgate")["HostConfig"]
        self.expect("memory", MEMORY, host["Memory"])
        self.expect("memory and swap", MEMORY, host["MemorySwap"])
        self.expect("processors", CPUS, host["NanoCpus"] / 1e9)
        limits = {limit["Name"]: limit["Hard"] for limit in host["Ulimits"] or ()}
        self.expect("open files", {"nofile": OPEN_FILES}, limits)
        for service in ("tollgate", "redis"):
            host = self.compose.inspect(service)["HostConfig"]
            self.expect_so(f"{service}'s memory is bounded", host["Memory"] > 0, host["Memory"])
            self.expect(f"{service}'s processes", 512, host["PidsLimit"])
            log = host["LogConfig"]["Config"]
            self.expect(f"{service}'s log", {"max-size": "10m", "max-file": "5"}, log)
            self.expect(f"{service}'s restarts", "unless-stopped", host["RestartPolicy"]["Name"])

        settings = (ROOT / "config/compose/production.yaml").read_text()
        waits = re.findall(r"^drain(?:_delay)?: (\d+)s", settings, re.MULTILINE)
        self.expect("number of waits", 2, len(waits))
        patience = self.compose.inspect("tollgate")["Config"]["StopTimeout"]
        self.expect_so("it may drain", patience > sum(map(int, waits)), (patience, waits))

    def check_secrets(self):
        """No secret is in what the engine knows, and nothing that is mounted can be written to."""
        for service in ("tollgate", "redis"):
            known = self.compose.inspect(service)
            shown = [name for name, secret in self.secrets.items() if secret in json.dumps(known)]
            self.expect(f"secrets in what is known of {service}", [], shown)
            writable = [mount["Destination"] for mount in known["Mounts"] if mount["RW"]]
            wanted = {"tollgate": [], "redis": ["/data"]}[service]
            self.expect(f"where {service} can write", wanted, writable)
        for secret, service in (("key-secret", "redis"), ("redis-password", "api")):
            seen = self.compose.execute(service, "ls", f"/run/secrets/{secret}").returncode
            self.expect_so(f"{service} has no {secret}", seen != 0, seen)

    def check_openings(self):
        """Two ports of the proxy are open to others; its admin listener and Redis are not."""
        ports = self.compose.inspect("tollgate")["NetworkSettings"]["Ports"]
        published = sorted(name for name, where in ports.items() if where)
        self.expect("published", ["8080/tcp", "8443/tcp"], published)
        others = self.compose.inspect("redis")["NetworkSettings"]["Ports"]
        self.expect_so("Redis is not published", not any(others.values()), others)
        networks = {
            service: {
                name.removeprefix("tollgate_")
                for name in self.compose.inspect(service)["NetworkSettings"]["Networks"]
            }
            for service in ("tollgate", "redis", "api")
        }
        wanted = {"tollgate": {"api", "store"}, "redis": {"store"}, "api": {"api"}}
        self.expect("networks", wanted, networks)

    def check_renewal(self):
        """A renewed certificate is shown by the same process."""
        before = self.compose.inspect("tollgate")["State"]["Pid"]
        self.make_certificate()
        eventually("the renewed certificate is shown", self.is_trusted)
        self.expect("process", before, self.compose.inspect("tollgate")["State"]["Pid"])

    def check_complaints(self):
        """The log has nothing to say against the configuration."""
        log = self.compose("logs", "--no-color", "tollgate")
        found = [line for line in log.split("\n") if any(word in line for word in COMPLAINTS)]
        self.expect("complaints in the log", [], found)

    def check_stop(self):
        """It ends in good order, and is not killed."""
        self.compose("stop", "tollgate")
        self.expect("exit code", 0, self.compose.inspect("tollgate")["State"]["ExitCode"])

    def ask(self):
        """One request by TLS, for its status and its fields."""
        context = ssl.create_default_context(cafile=self.folder / "tls" / "tls.pem")
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=10, context=context
        )
        try:
            connection.request("GET", "/user")
            response = connection.getresponse()
            response.read()
        finally:
            connection.close()
        return response.status, {name.lower(): value for name, value in response.getheaders()}

    def is_trusted(self):
        """Whether the certificate that is shown is the one in the folder."""
        try:
            return self.ask()[0] == 200
        except ssl.SSLCertVerificationError:
            return False

    def make_secrets(self):
        """Everything that the variables name, as docs/deploy.md says."""
        (self.folder / "policies").mkdir()
        shutil.copy(ROOT / "tests/compose/production.yaml", self.folder / "policies")
        (self.folder / "tls").mkdir(mode=0o750)
        os.chown(self.folder / "tls", 0, GROUP)
        self.make_certificate()
        for name, secret in self.secrets.items():
            self.write(name, f"{secret}\n")

    def make_certificate(self):
        """A new certificate and its key."""
        names = [self.folder / f"new.{ending}" for ending in ("pem", "key")]
        command = [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", names[0], "-keyout", names[1]),
        ]
        subprocess.run(command, check=True, capture_output=True)
        for name in names:
            self.write(f"tls/tls{name.suffix}", name.read_text())
            name.unlink()

    def write(self, name, text):
        """Puts a file in its place that root and the image's user can read."""
        draft = self.folder / f"{name}.draft"
        draft.touch(0o440)
        draft.write_text(text)
        os.chown(draft, 0, GROUP)
        draft.chmod(0o440)
        draft.rename(self.folder / name)
