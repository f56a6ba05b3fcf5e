"""nginx with limits beside a Tollgate with the import of its configuration: both admit the same requests.

Ten clients, each with an address of its own, send 10,000 requests to both, one after the other. The
rates are so slow that nothing comes back meanwhile, so the counts are exact. Where the table of the
import names a difference, it is that difference.
"""

import contextlib
import http.client
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "edge")]
from stage import Plan, Tally, binary_under_test, free_port, proxy, running

SECONDS = 300
CLIENTS = [f"127.0.0.{last}" for last in range(2, 12)]
EXEMPT, DENIED = CLIENTS[3], CLIENTS[5]

CONFIGURATION = f"""
worker_processes 2;
events {{ }}
http {{
    access_log off;
    limit_req_status 429;
    geo $counted {{ default 1; {EXEMPT} 0; }}
    map $counted $by_network {{ 0 ""; 1 $binary_remote_addr; }}
    map $request_method $by_method {{ POST $binary_remote_addr; }}
    limit_req_zone $binary_remote_addr zone=api:1m rate=1r/m;
    limit_req_zone $binary_remote_addr zone=login:1m rate=1r/m;
    limit_req_zone $binary_remote_addr zone=rooms:1m rate=1r/m;
    limit_req_zone $binary_remote_addr zone=halls:1m rate=1r/m;
    limit_req_zone $binary_remote_addr zone=dry:1m rate=1r/m;
    limit_req_zone $server_name zone=server:1m rate=1r/m;
    limit_req_zone $binary_remote_addr$http_x_key zone=keyed:1m rate=1r/m;
    limit_req_zone $http_x_key zone=key:1m rate=1r/m;
    limit_req_zone $by_network zone=outside:1m rate=1r/m;
    limit_req_zone $by_method zone=writes:1m rate=1r/m;
    upstream app {{ server 127.0.0.1:BACK; }}
    server {{
        listen 127.0.0.1:FRONT;
        server_name a.test;
        limit_req zone=api burst=20 nodelay;
        location / {{ proxy_pass http://app; }}
        location = /login {{ limit_req zone=login nodelay; proxy_pass http://app; }}
        location /small/ {{ limit_req zone=rooms burst=5 nodelay; proxy_pass http://app; }}
        location /large/ {{ limit_req zone=rooms burst=30 nodelay; proxy_pass http://app; }}
        location /room/ {{ limit_req zone=halls burst=5 nodelay; proxy_pass http://app; }}
        location /hall/ {{ limit_req zone=halls burst=30 nodelay; proxy_pass http://app; }}
        location /dry/ {{ limit_req zone=dry burst=5 nodelay; limit_req_dry_run on; proxy_pass http://app; }}
        location /server {{ limit_req zone=server burst=99 nodelay; proxy_pass http://app; }}
        location /keyed/ {{ limit_req zone=keyed burst=9 nodelay; proxy_pass http://app; }}
        location /key/ {{ limit_req zone=key burst=9 nodelay; proxy_pass http://app; }}
        location /outside/ {{ limit_req zone=outside burst=9 nodelay; proxy_pass http://app; }}
        location /writes/ {{ limit_req zone=writes burst=9 nodelay; limit_req zone=login burst=50 nodelay; proxy_pass http://app; }}
        location /closed/ {{ deny {DENIED}; allow all; proxy_pass http://app; }}
        location ~ ^/(v1|v2)/[^/]+/items$ {{ limit_req zone=outside burst=9 nodelay; proxy_pass http://app/; }}
    }}
    server {{
        listen 127.0.0.1:FRONT;
        server_name b.test;
        location / {{ limit_req zone=api burst=20 nodelay; proxy_pass http://app; }}
    }}
}}
"""
# nginx refuses an address with a path in an expression.
CONFIGURATION = CONFIGURATION.replace("http://app/;", "http://app;")

BACK = """
events { }
http { access_log off; server { listen 127.0.0.1:BACK; location / { return 200 "ok"; } } }
"""


@dataclass(frozen=True)
class Visit:
    """Requests of one kind, which every client sends."""

    path: str
    times: int
    host: str = "a.test"
    method: str = "GET"
    key: str = ""
    # How many more than nginx Tollgate admits, as the table says.
    more: int = 0


VISITS = [
    Visit("/x", 15), Visit("/x/y", 60, "b.test"), Visit("/unknown", 20, "c.test"), Visit("/login", 40),
    Visit("/small/x", 40), Visit("/large/x", 90), Visit("/small/y", 20), Visit("/server", 55), Visit("/server-too", 20),
    # After some requests to the hall, nginx has no room left for the other place.
    Visit("/hall/x", 10), Visit("/room/x", 20, more=6),
    Visit("/dry/x", 60), Visit("/keyed/x", 40), Visit("/keyed/x", 40, key="a"), Visit("/keyed/x", 40, key="b"),
    Visit("/key/x", 60), Visit("/key/x", 25, key="a"), Visit("/outside/x", 50), Visit("/v2/8/items", 20), Visit("/v3/8/items", 20),
    Visit("/writes/x", 30), Visit("/writes/x", 90, method="POST"), Visit("/closed/x", 60), Visit("/nothing", 75),
]


def admitted(port, source, visit):
    """How many requests of a visit got through."""
    headers = {"Host": visit.host} | ({"X-Key": visit.key} if visit.key else {})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30, source_address=(source, 0))
    count = 0
    with contextlib.closing(connection):
        for _ in range(visit.times):
            connection.request(visit.method, visit.path, headers=headers)
            response = connection.getresponse()
            response.read()
            count += response.status == 200
    return count


class Imported(Plan):
    """The policy that an import has made."""

    def policy_text(self):
        return self.policy


def nginx(folder, name, text):
    """The command for an nginx with this configuration."""
    (folder / f"{name}.conf").write_text(text)
    directives = f"daemon off; pid {folder}/{name}.pid; error_log {folder}/{name}.log;"
    return ["nginx", "-p", str(folder), "-c", str(folder / f"{name}.conf"), "-g", directives]


def main():
    binary = binary_under_test(__doc__, SECONDS)
    tally = Tally()
    front, back = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="imported-") as folder:
        folder = Path(folder)
        ports = {"FRONT": front, "BACK": back}
        texts = [CONFIGURATION, BACK]
        for name, port in ports.items():
            texts = [text.replace(name, str(port)) for text in texts]
        commands = [nginx(folder, name, text) for name, text in zip(("front", "back"), texts)]
        imported = subprocess.run([binary, "import", "nginx", folder / "front.conf"], capture_output=True, text=True)
        tally.record("the import leaves nothing out", [] if imported.returncode == 0 else [imported.stderr])
        (folder / "policy.yaml").write_text(imported.stdout)
        checked = subprocess.run([binary, "check", folder / "policy.yaml"], capture_output=True, text=True)
        tally.record("the policy and its tests are good", [] if checked.returncode == 0 else [checked.stdout, checked.stderr])
        plan = Imported([], policy=imported.stdout)
        with running("back", commands[1], back, tally), running("nginx", commands[0], front, tally):
            with proxy(binary, plan, tally) as tollgate:
                compare(front, tollgate.port, tally)
    return tally.conclude()


def compare(front, port, tally):
    """The same requests to both."""
    sent = len(CLIENTS) * sum(visit.times for visit in VISITS)
    tally.record("10,000 requests", [] if sent == 10_000 else [sent])
    for client in CLIENTS:
        there = [admitted(front, client, visit) for visit in VISITS]
        here = [admitted(port, client, visit) for visit in VISITS]
        wrong = [(visit, mine, theirs) for visit, mine, theirs in zip(VISITS, here, there) if mine != theirs + visit.more]
        tally.record(f"{client}: {sum(here)} of {sent // len(CLIENTS)} admitted, as by nginx", wrong)


if __name__ == "__main__":
    sys.exit(main())
