"""Tries the static binary in a root that has nothing else: no C library, no certificate, no time zone, no user,
nothing to write to. That is what the image is.

It wants root, as it changes the root. The binary is made by packaging/build.sh static.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zlib
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "httpbin"))
from harness import Tally, binary_under_test, free_port, stop, wait_until_listening

SECONDS = 120
# As in the image.
USER = 10001
# A day that is cut where Berlin cuts it, and a server and an issuer that public authorities vouch
# for.
POLICY = """
version: 1
upstreams:
  api: { servers: ["http://127.0.0.1:API"] }
  safe: { servers: ["https://127.0.0.1:1"] }
identity:
  jwt:
    - { name: main, issuer: https://id.example.com/, audience: [api], algorithms: [RS256],
        jwks_url: https://id.example.com/keys }
  callers: [{ name: anonymous, key: client.ip }]
limits: { core: { per: caller, rate: 1000/day, align: calendar, timezone: Europe/Berlin } }
routes:
  - { match: { path: "/safe/**" }, upstream: safe, auth: optional, limits: [core] }
  - { match: { path: "/**" }, upstream: api, auth: optional, limits: [core] }
"""
# What the log says where the system has none.
OWN_AUTHORITIES = "using those of this program"


class Api(BaseHTTPRequestHandler):
    """Knows nothing of limits."""

    def do_GET(self):
        """A short answer."""
        self.send_response(200)
        self.send_header("content-length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_arguments):
        """Nothing."""


def main():
    """All checks."""
    binary = Path(binary_under_test(__doc__, SECONDS)).resolve()
    if os.geteuid() != 0:
        print("skipped: only root changes the root")
        return 0
    tally = Tally()
    print(f"{binary.stat().st_size / 2**20:.1f} MiB")
    check_file(binary, tally)
    with tempfile.TemporaryDirectory(prefix="static-") as folder:
        check_alone(binary, Path(folder), tally)
    return tally.conclude()


def check_file(binary, tally):
    """No library, no loader, no symbols, and a list of the crates that it is made of."""
    listed = output("readelf", "--wide", "--program-headers", "--dynamic", "--sections", binary)
    wrong = [word for word in ("INTERP", "(NEEDED)", ".symtab") if word in listed]
    tally.record("it needs no library, and has no symbols", wrong)
    with tempfile.NamedTemporaryFile() as section:
        output("objcopy", "--dump-section", f".dep-v0={section.name}", binary, "/dev/null")
        crates = json.loads(zlib.decompress(Path(section.name).read_bytes()))["packages"]
    names = {crate["name"] for crate in crates}
    missing = {"tollgate", "hyper", "rustls", "aws-lc-rs"} - names
    tally.record("it lists its crates", sorted(missing))
    print(f"{len(crates)} crates")


def check_alone(binary, folder, tally):
    """In an empty root it checks a configuration, serves by it, and says whether it is healthy."""
    api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    port = free_port()
    root = folder / "root"
    (root / "etc/tollgate/policies").mkdir(parents=True)
    shutil.copy(binary, root / "tollgate")
    (root / "etc/tollgate/policies/api.yaml").write_text(
        POLICY.replace("API", str(api.server_address[1]))
    )
    (root / "etc/tollgate/tollgate.yaml").write_text(
        f"version: 1\nlisteners: [{{ address: '127.0.0.1:{port}' }}]\npolicies: policies\n"
    )
    folder.chmod(0o755)
    # The user has nothing there to write to: all of it is root's.
    alone = ["chroot", f"--userspec={USER}:{USER}", str(root), "/tollgate"]
    version = attempt(*alone, "--version")
    said = version.stdout + version.stderr
    tally.record("it starts", [] if re.match(r"tollgate \d", said) else [said])
    settings = ["--config", "/etc/tollgate/tollgate.yaml"]
    checked = attempt(*alone, "check", "/etc/tollgate/tollgate.yaml")
    said = checked.stdout + checked.stderr
    tally.record("it knows time zones and authorities", [] if checked.returncode == 0 else [said])
    log = folder / "log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [*alone, "run", *settings], stdin=subprocess.DEVNULL, stdout=written, stderr=written
        )
    try:
        wait_until_listening("tollgate", process, port)
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/")
        response = connection.getresponse()
        response.read()
        seen = response.status, response.getheader("x-ratelimit-used")
        tally.record("it serves", [] if seen == (200, "1") else [str(seen)])
        healthy = attempt(*alone, "health", *settings)
        tally.record("it is healthy", [] if healthy.returncode == 0 else [healthy.stderr])
    finally:
        stop(process)
    said = log.read_text()
    tally.record("it brings authorities", [] if OWN_AUTHORITIES in said else [said])
    tally.record("it ends in order", [] if process.returncode == 0 else [said])
    ill = attempt(*alone, "health", *settings)
    tally.record("and then it is not", [] if ill.returncode == 1 else [str(ill)])
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    wanted = ["etc/tollgate/policies/api.yaml", "etc/tollgate/tollgate.yaml", "tollgate"]
    tally.record("it has written nothing", [] if left == wanted else left)
    api.shutdown()


def attempt(*command):
    """A command that may fail, for its exit code, its output and its errors."""
    return subprocess.run(
        [str(word) for word in command],
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def output(*command):
    """What a command prints that has to succeed."""
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
