"""What a request costs in Tollgate, HAProxy and nginx on this machine: processor time, side by side.

    target/test-venv/bin/python tests/bench/peers.py
    target/test-venv/bin/python tests/bench/peers.py --workloads W1,W2-HS256 --rounds 5 --seconds 6

Each proxy has one thread on one core; the load, and an nginx as the API, have another one. Rounds are
interleaved, so that what else the machine does meets all alike. The figure is processor time (user and
system, of the proxy's processes) for each request, divided by HAProxy's of the same round: unlike requests
a second it hardly moves when the machine is busy. The table has medians, and the least and greatest.

It needs two cores, and wrk, h2load, HAProxy and nginx (Debian: wrk nghttp2-client haproxy nginx-light), and runs
in Python of target/test-venv, which tests/run.sh makes. docs/benchmarks.md says what the workloads are.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "httpbin"), str(TESTS / "tokens")]
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from forge import hmac_signer, signer, token
from harness import free_port, stop, wait_until_listening

USERS = 10_000
# Requests before anything is measured.
WARM = 2 * USERS
CONNECTIONS = 64
STREAMS = 16
HUGE = 1_000_000_000
SECRET = b"a-secret-of-this-benchmark-that-is-long-enough-to-sign-with"
PROXY_CORE, LOAD_CORE = "0", "1"
PROGRAMS = ("wrk", "h2load", "haproxy", "nginx", "taskset", "openssl")
# Which token, over what, and how much may pass in an hour.
WORKLOADS = {
    "W1": {},
    "W2-HS256": {"token": "HS256"},
    "W2-RS256": {"token": "RS256"},
    "W2-ES256": {"token": "ES256"},
    "W3": {"token": "HS256", "limit": 1},
    "W5": {"tls": True},
    "W5-HS256": {"tls": True, "token": "HS256"},
    "W6": {"tls": True, "h2": True},
    "W6-HS256": {"tls": True, "h2": True, "token": "HS256"},
    "W8": {"browser": True},
    "W8-HS256": {"browser": True, "token": "HS256"},
}
# What a browser sends besides, with the token some 1.5 KB.
BROWSER = {
    "user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
    "accept": "application/json, text/plain, */*",
    "accept-encoding": "gzip, deflate, br, zstd",
    "accept-language": "en-GB,en;q=0.9,de;q=0.7",
    "cache-control": "no-cache",
    "origin": "https://app.example.com",
    "referer": "https://app.example.com/projects/4711/items?sort=updated",
    "priority": "u=1, i",
    "sec-ch-ua-mobile": "?0",
    "sec-ch-ua-platform": '"Linux"',
    "sec-fetch-dest": "empty",
    "sec-fetch-mode": "cors",
    "sec-fetch-site": "same-site",
    "x-client-name": "bench-sdk-js",
    "x-client-version": "4.18.2",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "cookie": "theme=dark; session=" + "0123456789abcdef" * 30,
}
WRK = """
local requests, at = {}, BEGIN
for line in io.lines("HEADS") do requests[#requests + 1] = line:gsub("|", "\\r\\n") .. "\\r\\n" end
request = function() at = at % #requests + 1; return requests[at] end
done = function(summary) io.write(string.format("DONE %d %d\\n", summary.requests, summary.errors.status)) end
"""


class Bench:
    """The files of a run: tokens, keys, the certificate, and what the API serves."""

    def __init__(self, folder, tollgate):
        self.folder, self.tollgate = folder, str(Path(tollgate).resolve())
        (folder / "site").mkdir()
        (folder / "site" / "small").write_bytes(b"x" * 1024)
        (folder / "site" / "large").write_bytes(b"x" * 16384)
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        make += ["-nodes", "-days", "30", "-subj", "/CN=localhost"]
        make += ["-keyout", folder / "site.key", "-out", folder / "site.pem"]
        subprocess.run(make, check=True, capture_output=True)
        (folder / "site.key").chmod(0o600)
        both = (folder / "site.pem").read_text() + (folder / "site.key").read_text()
        (folder / "both.pem").write_text(both)
        self.tokens = {}

    def tokens_of(self, algorithm):
        """A token for each user, by a key of this run."""
        if algorithm not in self.tokens:
            key = {
                "HS256": lambda: None,
                "RS256": lambda: rsa.generate_private_key(65537, 2048),
                "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            }[algorithm]()
            sign = signer(algorithm, key) if key else hmac_signer(algorithm, SECRET)
            claims = {"iss": "https://id.example.com/", "aud": "api", "exp": int(time.time()) + 86400}
            users = ({"sub": f"user-{number:05}"} | claims for number in range(USERS))
            self.tokens[algorithm] = [token({"alg": algorithm, "typ": "JWT"}, user, sign) for user in users]
            if key:
                pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
                (self.folder / f"{algorithm}.pem").write_bytes(pem)
        return self.tokens[algorithm]

    def path(self, workload):
        """What is requested."""
        return "/large" if workload.get("browser") else "/small"

    def fields(self, workload, jwt):
        """The fields of a request."""
        fields = dict(BROWSER) if workload.get("browser") else {}
        return fields | ({"authorization": f"Bearer {jwt}"} if jwt else {})

    def write_requests(self, workload, begin):
        """The heads of all requests for wrk, one a line, with `|` for the ends of their lines, and its script,
        which begins after so many of them."""
        jwts = self.tokens_of(workload["token"]) if "token" in workload else [None]
        with (self.folder / "heads").open("w") as heads:
            for jwt in jwts:
                lines = [f"GET {self.path(workload)} HTTP/1.1", "host: localhost"]
                lines += [f"{name}: {value}" for name, value in self.fields(workload, jwt).items()]
                heads.write("|".join(lines) + "|\n")
        script = WRK.replace("HEADS", str(self.folder / "heads")).replace("BEGIN", str(begin))
        (self.folder / "load.lua").write_text(script)


def tollgate(bench, workload, port, api):
    """The command of Tollgate, and its files."""
    algorithm = workload.get("token")
    listener = {"address": f"127.0.0.1:{port}"}
    if workload.get("tls"):
        listener["tls"] = {"certificates": [{"certificate_file": "site.pem", "key_file": "site.key"}]}
    settings = {"version": 1, "listeners": [listener], "policies": "policy.yaml", "workers": 1}
    settings |= {"access_log": {"format": "off"}}
    policy = {"version": 1, "upstreams": {"api": {"servers": [f"http://127.0.0.1:{api}"]}}}
    route = {"match": {"path": "/**"}, "auth": "none", "limits": []}
    if algorithm:
        issuer = {"name": "main", "issuer": "https://id.example.com/", "audience": ["api"]}
        issuer |= {"algorithms": [algorithm]}
        issuer |= {"secret_file": "secret"} if algorithm == "HS256" else {"public_key_file": f"{algorithm}.pem"}
        policy |= {"identity": {"jwt": [issuer], "callers": [{"name": "user", "key": "jwt.sub"}]}}
        rate = f"{workload.get('limit', HUGE)}/hour"
        policy |= {"limits": {"core": {"per": "caller", "rate": rate}}}
        route |= {"auth": "required", "limits": ["core"]}
    (bench.folder / "secret").write_bytes(SECRET)
    (bench.folder / "secret").chmod(0o600)
    (bench.folder / "tollgate.yaml").write_text(json.dumps(settings))
    (bench.folder / "policy.yaml").write_text(json.dumps(policy | {"routes": [route]}))
    return [bench.tollgate, "run", "--config", bench.folder / "tollgate.yaml"]


def haproxy(bench, workload, port, api):
    """HAProxy: `jwt_verify`, and a stick table by the claim `sub`."""
    algorithm, limit = workload.get("token"), workload.get("limit", HUGE)
    crt = f" ssl crt {bench.folder}/both.pem ssl-min-ver TLSv1.3" if workload.get("tls") else ""
    alpn = f" alpn {'h2,' if workload.get('h2') else ''}http/1.1" if crt else ""
    rules = ""
    if algorithm:
        key = SECRET.decode() if algorithm == "HS256" else f"{bench.folder}/{algorithm}.pem"
        rules = f"""
    stick-table type string len 64 size 200k expire 1h store http_req_rate(1h)
    http-request set-var(txn.alg) http_auth_bearer,jwt_header_query('$.alg')
    http-request deny deny_status 401 unless {{ var(txn.alg) -m str {algorithm} }}
    http-request deny deny_status 401 unless {{ http_auth_bearer,jwt_verify(txn.alg,"{key}") -m int 1 }}
    http-request set-var(txn.sub) http_auth_bearer,jwt_payload_query('$.sub')
    http-request set-var(txn.exp) http_auth_bearer,jwt_payload_query('$.exp','int')
    http-request set-var(txn.now) date
    http-request deny deny_status 401 if {{ var(txn.exp),sub(txn.now) -m int lt 0 }}
    http-request track-sc0 var(txn.sub)
    http-request set-var(txn.n) sc_http_req_rate(0)
    http-request return status 429 content-type text/plain string "limited" hdr x-ratelimit-limit {limit} hdr x-ratelimit-remaining 0 hdr retry-after 3600 if {{ var(txn.n) -m int gt {limit} }}
    http-request set-var(txn.rem) int({limit}),sub(txn.n)
    http-response set-header x-ratelimit-limit {limit}
    http-response set-header x-ratelimit-remaining %[var(txn.rem)]"""
    (bench.folder / "haproxy.cfg").write_text(f"""
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
frontend f
    bind 127.0.0.1:{port}{crt}{alpn}{rules}
    default_backend b
backend b
    server u 127.0.0.1:{api}
""")
    return ["haproxy", "-db", "-f", bench.folder / "haproxy.cfg"]


def nginx(bench, workload, port, api):
    """nginx, which checks no tokens: the workloads without."""
    tls = " ssl http2" if workload.get("h2") else " ssl" if workload.get("tls") else ""
    files = f"ssl_certificate {bench.folder}/site.pem; ssl_certificate_key {bench.folder}/site.key;" if tls else ""
    return nginx_command(bench.folder / "proxy", f"""
  upstream u {{ server 127.0.0.1:{api}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port}{tls}; {files} ssl_protocols TLSv1.3;
    location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}""")


def api_command(bench, port):
    """The API: an nginx that serves files."""
    fields = "".join(f"add_header x-field-{number} value-{number};" for number in range(9))
    return nginx_command(bench.folder / "api", f"""
  server {{
    listen 127.0.0.1:{port}; root {bench.folder}/site; open_file_cache max=10;
    location /large {{ {fields} }}
  }}""")


def nginx_command(folder, servers):
    """An nginx with one worker."""
    folder.mkdir(exist_ok=True)
    temporary = " ".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    # Of root its worker would become a user that cannot read the folder.
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(f"""
{user} worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
worker_rlimit_nofile 8192; events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000000; {temporary} {servers}
}}""")
    return ["nginx", "-e", folder / "error.log", "-c", folder / "nginx.conf"]


PEERS = {"haproxy": haproxy, "nginx": nginx, "tollgate": tollgate}


@contextlib.contextmanager
def running(name, command, port, core, log):
    """Runs a program on one core."""
    with log.open("ab") as output:
        command = ["taskset", "-c", core, *map(str, command)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_until_listening(name, process, port)
        yield process
    except RuntimeError:
        print(log.read_text(errors="replace")[-2000:])
        raise
    finally:
        stop(process)


def processor_seconds(pid):
    """User and system time of a process and its children, by now."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(processor_seconds, children))


def load(bench, workload, port, seconds, sent=0):
    """Sends as many requests as are answered, after `sent` ones; returns how many were, and how many with an
    error status."""
    url = f"{'https' if workload.get('tls') else 'http'}://127.0.0.1:{port}{bench.path(workload)}"
    if workload.get("h2"):
        command = ["h2load", "-c", CONNECTIONS // 8, "-m", STREAMS, "-D", seconds]
        jwt = bench.tokens_of(workload["token"])[0] if "token" in workload else None
        for name, value in bench.fields(workload, jwt).items():
            command += ["-H", f"{name}: {value}"]
        form = r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx"
    else:
        bench.write_requests(workload, sent)
        command = ["wrk", "-t", 1, "-c", CONNECTIONS, "-d", seconds, "-s", bench.folder / "load.lua"]
        form = r"DONE (\d+) (\d+)"
    done = subprocess.run(
        ["taskset", "-c", LOAD_CORE, *map(str, command), url], capture_output=True, text=True, check=True
    )
    found = re.search(form, done.stdout)
    if found is None:
        sys.exit(f"no count in what the load has printed:\n{done.stdout}{done.stderr}")
    first, *others = map(int, found.groups())
    return (first + sum(others), sum(others)) if workload.get("h2") else (first, others[0])


def measure(bench, name, peer, seconds):
    """Microseconds of processor time for each request of a workload."""
    workload = WORKLOADS[name]
    if "token" in workload:
        bench.tokens_of(workload["token"])
    api, port = free_port(), free_port()
    log = bench.folder / f"{peer}.log"
    with running("the API", api_command(bench, api), api, LOAD_CORE, log):
        with running(peer, PEERS[peer](bench, workload, port, api), port, PROXY_CORE, log) as process:
            # Until each token was seen, and each limit is used up where there is one.
            warm = 0
            while warm < WARM:
                warm += load(bench, workload, port, max(1, seconds // 3), warm)[0]
            before = processor_seconds(process.pid)
            requests, errors = load(bench, workload, port, seconds, warm)
            spent = processor_seconds(process.pid) - before
    expected = requests if workload.get("limit") else 0
    if not requests or abs(errors - expected) > requests / 100:
        sys.exit(f"{name}, {peer}: {errors} of {requests} are errors: see {log}")
    return spent / requests * 1e6


def show(name, peer, figures, haproxy_figures):
    """A row of the table."""
    ratios = [own / other for own, other in zip(figures, haproxy_figures)]
    median = statistics.median
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"| {name} | {peer} | {median(figures):.1f} | {median(ratios):.2f} | {spread} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tollgate", default="target/dist/tollgate", help="the binary to measure")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="some of these, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement")
    arguments = parser.parse_args()
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or (os.cpu_count() or 1) < 2:
        sys.exit(f"two cores are needed, and {', '.join(missing)}" if missing else "two cores are needed")
    print("| workload | proxy | µs a request | of HAProxy's | rounds |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="tollgate-bench-") as folder:
        bench = Bench(Path(folder), arguments.tollgate)
        for name in arguments.workloads.split(","):
            # nginx of Debian checks no tokens.
            peers = [peer for peer in PEERS if peer != "nginx" or "token" not in WORKLOADS[name]]
            figures = {peer: [] for peer in peers}
            for _ in range(arguments.rounds):
                for peer in peers:
                    figures[peer].append(measure(bench, name, peer, arguments.seconds))
            for peer in peers:
                show(name, peer, figures[peer], figures["haproxy"])


if __name__ == "__main__":
    main()
