"""Tollgate proxies that share a store, before an API; what they say of themselves meanwhile.

Settings and policies are dictionaries here, written as JSON, which is YAML.
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from stage import PATIENCE_SECONDS, TESTS, Tally, free_port, running, stop, wait_until_listening

START_ATTEMPTS = 3
WORKERS = 2
LIMIT = 200
WINDOW_SECONDS = 86400
CORE = {"per": "caller", "rate": f"{LIMIT}/day", "on_store_error": "local"}
# Of callers that only look who decides: they never come to its end.
PROBE = {"per": "caller", "rate": "1_000_000/day", "on_store_error": "local"}
SECRET = "a secret of the drills that is long enough to sign with"


class Proxy:
    """One proxy, which can be ended and started anew on its ports."""

    def __init__(self, binary, folder, store, policy, environment):
        self.command = [
            str(Path(binary).resolve()),
            "run",
            "--config",
            str(folder / "tollgate.yaml"),
        ]
        self.folder = folder
        self.store = store
        self.environment = os.environ | environment
        self.process = None
        # How often it was started.
        self.lives = 0
        folder.mkdir()
        (folder / "policies").mkdir()
        (folder / "policies" / "main.yaml").write_text(json.dumps(policy))
        for name in ("secret", "key-secret"):
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(SECRET)
        for attempt in range(START_ATTEMPTS):
            self.port, self.admin = free_port(), free_port()
            self.write_settings()
            try:
                return self.start()
            except RuntimeError:
                if attempt + 1 == START_ATTEMPTS:
                    raise RuntimeError(f"a proxy does not start: {self.log()[-2000:]}") from None

    def write_settings(self):
        """The settings file, as `store` is now."""
        settings = {
            "version": 1,
            "listeners": [{"address": f"127.0.0.1:{self.port}"}],
            "admin": {"address": f"127.0.0.1:{self.admin}"},
            "policies": "policies",
            "workers": WORKERS,
            "access_log": {"format": "off"},
            "drain": "2s",
            "store": {"key_secret_file": "key-secret", "fallback_header": True} | self.store,
        }
        (self.folder / "tollgate.yaml").write_text(json.dumps(settings))

    def start(self):
        """Starts it, and waits until it listens."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )
        wait_until_listening("tollgate", self.process, self.port)
        wait_until_listening("tollgate", self.process, self.admin)
        self.lives += 1

    def stop(self):
        """Ends it in good order, if it runs."""
        if self.process is not None and self.process.poll() is None:
            stop(self.process)

    def restart(self):
        """What it knew is gone, but for what it wrote down."""
        self.stop()
        self.start()

    def change_store(self, **fields):
        """Writes settings anew, and has them read."""
        self.store = self.store | fields
        self.write_settings()
        status, body = self.ask_admin("POST", "/reload")
        if status != 200:
            raise RuntimeError(f"the settings were not taken: {body}")

    def ask_admin(self, method, path):
        """Status and body of the admin listener."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE_SECONDS)
        with contextlib.closing(connection):
            # Without this header a request to act counts as one of a web page.
            connection.request(method, path, headers={"x-tollgate-action": "1"})
            response = connection.getresponse()
            return response.status, response.read().decode()

    def metric(self, name):
        """The sum of a metric's samples; none: this version has no such metric."""
        _, text = self.ask_admin("GET", "/metrics")
        samples = [
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.partition(" ")[0].partition("{")[0] == name
        ]
        return sum(samples) if samples else None

    def log(self):
        """All that it has logged."""
        return (self.folder / "log").read_text(errors="replace")


def policy(api_port, limit):
    """Every caller has a token, `limit`, and another one below `/probe`."""
    issuer = {"name": "main", "issuer": "https://id.test", "audience": ["api"]}
    issuer |= {"algorithms": ["HS256"], "secret_file": "../secret"}
    return {
        "version": 1,
        "upstreams": {"api": {"servers": [f"http://127.0.0.1:{api_port}"]}},
        "identity": {"jwt": [issuer], "callers": [{"name": "user", "key": "jwt.sub"}]},
        "limits": {"core": limit, "probe": PROBE},
        "routes": [
            {"match": {"path": "/probe/**"}, "auth": "required", "limits": ["probe"]},
            {"match": {"path": "/**"}, "auth": "required", "limits": ["core"]},
        ],
    }


def fleet(stage, store, limit=None, environments=({}, {})):
    """A proxy for each environment, with an API behind them."""
    port = free_port()
    api = [sys.executable, "-B", str(TESTS / "edge" / "api.py"), str(port)]
    stage.enter_context(running("the API", api, port, Tally()))
    store = {"deadline": "25ms", "instances": len(environments)} | store
    proxies = []
    for environment in environments:
        folder = stage.new_folder("proxy")
        one = Proxy(
            stage.programs.tollgate, folder, store, policy(port, limit or CORE), environment
        )
        stage.callback(one.stop)
        proxies.append(one)
    return proxies


def token(subject):
    """A token of a caller, for an hour."""

    def encode(content):
        return base64.urlsafe_b64encode(content).rstrip(b"=")

    claims = {
        "iss": "https://id.test",
        "aud": "api",
        "sub": subject,
        "exp": int(time.time()) + 3600,
    }
    parts = ({"alg": "HS256", "typ": "JWT"}, claims)
    signed = b".".join(encode(json.dumps(part).encode()) for part in parts)
    return (signed + b"." + encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256))).decode()
